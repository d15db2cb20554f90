#include "fs/classes.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/ignore.h"

static const char *const names[] = {
	[CLASS_ORDERED] = "ordered", [CLASS_STRONG] = "strong", [CLASS_EVENTUAL] = "eventual"};

struct rules {
	enum view_class all;
	struct ignore patterns; /* line i: its class is of[i - 1] */
	enum view_class *of;
	size_t n;
};

struct classes {
	pthread_rwlock_t lock;
	atomic_bool plain;
	_Atomic uint64_t wait_ms;
	struct rules rules;
};

const char *classes_name(enum view_class class)
{
	return names[class];
}

static enum view_class parse(const json_t *v)
{
	const char *text = json_string_value(v);

	for (size_t i = 0; text && i < ARRAY_SIZE(names); i++)
		if (strcmp(text, names[i]) == 0)
			return (enum view_class)i;
	return CLASS_ORDERED;
}

static void rules_done(struct rules *r)
{
	ignore_done(&r->patterns);
	free(r->of);
	*r = (struct rules){0};
}

static int rules_parse(const json_t *spec, struct rules *ret)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(IGNORE_TEXT_MAX);
	const json_t *rows = json_object_get(spec, "classes"), *row;
	int r = 0;
	size_t i;

	*ret = (struct rules){.all = parse(json_object_get(spec, "class"))};
	ret->of = calloc(json_array_size(rows) + 1, sizeof(*ret->of));
	if (!ret->of)
		return -ENOMEM;
	json_array_foreach(rows, i, row)
	{
		const char *pattern = json_string_value(json_object_get(row, "pattern"));

		ret->of[ret->n++] = parse(json_object_get(row, "class"));
		if (pattern)
			r = buf_add_str(&text, pattern);
		if (r >= 0)
			r = buf_add_u8(&text, '\n');
		if (r < 0)
			return r;
	}
	return ret->n ? ignore_add(&ret->patterns, NULL, buf_data(&text), buf_len(&text)) : 0;
}

static bool is_plain(const struct rules *r)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->of[i] != CLASS_ORDERED)
			return false;
	return r->all == CLASS_ORDERED;
}

struct classes *classes_new(void)
{
	struct classes *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	(void)pthread_rwlock_init(&c->lock, NULL);
	atomic_store(&c->plain, true);
	return c;
}

void classes_free(struct classes *c)
{
	if (!c)
		return;
	rules_done(&c->rules);
	(void)pthread_rwlock_destroy(&c->lock);
	free(c);
}

int classes_load(struct classes *c, int env_fd)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(0);
	struct rules rules, old;
	const json_t *spec, *wait;
	json_t *o;
	int r = file_read(env_fd, "env.json", &text);

	if (r < 0)
		return r;
	o = json_loadb((const char *)buf_data(&text), buf_len(&text), 0, NULL);
	if (!o)
		return -EBADMSG;
	spec = json_object_get(o, "spec");
	wait = json_object_get(json_object_get(spec, "view"), "wait_s");
	atomic_store(&c->wait_ms, (uint64_t)MAX(json_integer_value(wait), 0) * 1000);
	r = rules_parse(spec, &rules);
	json_decref(o);
	if (r < 0) {
		rules_done(&rules);
		return r;
	}
	(void)pthread_rwlock_wrlock(&c->lock);
	old = c->rules;
	c->rules = rules;
	atomic_store(&c->plain, is_plain(&rules));
	(void)pthread_rwlock_unlock(&c->lock);
	rules_done(&old);
	return 0;
}

uint64_t classes_wait_ms(const struct classes *c)
{
	return c ? atomic_load(&c->wait_ms) : 0;
}

bool classes_plain(const struct classes *c)
{
	return !c || atomic_load(&c->plain);
}

static enum view_class find(const struct rules *rules, char *path, bool is_dir)
{
	struct ignore_hit hit;
	char *slash;

	while (*path) {
		(void)ignore_match(&rules->patterns, path, is_dir, &hit);
		if (hit.rule && hit.rule->line >= 1 && hit.rule->line <= rules->n)
			return rules->of[hit.rule->line - 1];
		slash = strrchr(path, '/');
		if (!slash)
			break;
		*slash = '\0';
		is_dir = true;
	}
	return rules->all;
}

enum view_class classes_of(struct classes *c, const char *path, bool is_dir)
{
	enum view_class class;
	char *copy;

	if (classes_plain(c))
		return CLASS_ORDERED;
	(void)pthread_rwlock_rdlock(&c->lock);
	class = c->rules.all;
	copy = c->rules.n ? strdup(path) : NULL;
	if (copy)
		class = find(&c->rules, copy, is_dir);
	(void)pthread_rwlock_unlock(&c->lock);
	free(copy);
	return class;
}
