/* Names of the session's root: whose environment, which point of it. */
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>

#include "base/file.h"
#include "base/text.h"
#include "fs/ops.h"
#include "fs/past-impl.h"
#include "journal/points.h"

enum { NAME_S = 1 }; /* for which the kernel may keep a name of the session's root */

/* ---- environments ---- */

static int find_id(struct past *p, const char *name, uint8_t ret_id[16], bool *ret_removed)
{
	int r = 0;

	(void)pthread_mutex_lock(&p->registry_lock);
	if (!p->registry)
		r = registry_open(p->brain_log_fd, &p->registry);
	if (r >= 0)
		r = registry_lookup(p->registry, name, ret_id, ret_removed);
	/* A reader that met damage is of no more use. */
	if (r < 0 && r != -ENOENT) {
		registry_close(p->registry);
		p->registry = NULL;
	}
	(void)pthread_mutex_unlock(&p->registry_lock);
	return r;
}

/* Under the lock, as no index may be opened twice. */
static int env_open(struct past *p, const uint8_t id[16], struct past_env **ret)
{
	struct past_env *e = calloc(1, sizeof(*e));
	char hex[33];
	int r;

	if (!e)
		return -ENOMEM;
	memcpy(e->id, id, sizeof(e->id));
	text_hex(hex, id, sizeof(e->id));
	e->log_fd = -1;
	r = e->dir_fd = file_open_dir(p->envs_fd, hex);
	if (r >= 0)
		r = e->log_fd = file_open_dir(e->dir_fd, "log");
	if (r >= 0)
		r = source_open(e->dir_fd, p->contents, SOURCE_LAZY, &e->source);
	if (r < 0) {
		past_env_free(e);
		return r;
	}
	e->next = p->envs;
	p->envs = e;
	*ret = e;
	return 0;
}

static int env_get(struct past *p, const uint8_t id[16], bool removed, struct past_env **ret)
{
	struct past_env *e;
	int r = 0;

	(void)pthread_mutex_lock(&p->lock);
	for (e = p->envs; e && memcmp(e->id, id, sizeof(e->id)) != 0; e = e->next)
		;
	if (!e)
		r = env_open(p, id, &e);
	if (r >= 0) {
		if (removed)
			source_set_kept(e->source);
		e->refs++;
		*ret = e;
	}
	(void)pthread_mutex_unlock(&p->lock);
	return r;
}

static void env_put(struct past *p, struct past_env *e)
{
	(void)pthread_mutex_lock(&p->lock);
	e->refs--;
	(void)pthread_mutex_unlock(&p->lock);
}

/* As limbd keeps it; look where that cannot be read. */
static bool is_trusted(const struct past_env *e)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	bool trusted = false;
	json_t *o;

	if (file_read(e->dir_fd, "env.json", &b) < 0)
		return false;
	o = json_loadb((const char *)buf_data(&b), buf_len(&b), 0, NULL);
	trusted = json_is_true(json_object_get(o, "work_mode"));
	json_decref(o);
	return trusted;
}

/* ---- names ---- */

struct wanted {
	char env_name[NODE_NAME_MAX + 1];
	struct point point;
	bool consistent; /* in place of point */
	bool link;
	struct attr_rules rules;
};

static bool parse_name(const char *name, struct wanted *w)
{
	const char *at = strchr(name, '@');

	if (!at || at == name || (size_t)(at - name) >= sizeof(w->env_name))
		return false;
	memcpy(w->env_name, name, (size_t)(at - name));
	w->env_name[at - name] = '\0';
	w->consistent = strcmp(at + 1, "consistent") == 0;
	if (!w->consistent && !point_parse_all(at + 1, &w->point))
		return false;
	w->link = w->consistent || w->point.kind == POINT_HEAD || w->point.kind == POINT_NOW;
	return true;
}

/* Under the lock; at 0: whatever it is, if that is settled. */
static struct past_tree *tree_find(struct past *p, const struct past_env *e, const char *name,
				   const struct wanted *w, uint64_t at)
{
	struct past_tree *t;

	for (t = p->trees; t; t = t->next)
		if (t->env == e && t->fs.rules.look == w->rules.look &&
		    (at ? t->fs.at == at : t->settled) && strcmp(t->name, name) == 0)
			break;
	if (t)
		t->refs++;
	return t;
}

/* The tree of that name at that position, one reference more. */
static int tree_make(struct past *p, struct past_env *e, const char *name, const struct wanted *w,
		     struct index_txn *txn, uint64_t at, struct past_tree **ret)
{
	struct past_tree *t;
	int r = 0;

	(void)pthread_mutex_lock(&p->lock);
	t = tree_find(p, e, name, w, at);
	if (!t && (t = past_tree_new(p, e->source, &w->rules, e->id, at))) {
		e->refs++;
		t->env = e;
		t->name = strdup(name);
		t->settled = w->point.kind == POINT_SEQ || w->point.kind == POINT_BEFORE_JOB ||
			     w->point.kind == POINT_AFTER_JOB ||
			     (w->point.kind == POINT_TIME && at < index_seq(txn));
		if (w->link) {
			t->settled = false;
			if (asprintf(&t->target, "%s@%llu", w->env_name, (unsigned long long)at) <
			    0)
				t->target = NULL;
		}
		r = t->name && (t->target || !w->link) ? past_stat_root(t, txn, &t->st) : -ENOMEM;
		if (r < 0)
			past_tree_unref(p, t);
	} else if (!t) {
		r = -ENOMEM;
	}
	(void)pthread_mutex_unlock(&p->lock);
	if (r >= 0)
		*ret = t;
	return r;
}

static int resolve(struct past *p, struct past_env *e, const char *name, const struct wanted *w,
		   struct past_tree **ret)
{
	struct index_txn *txn;
	uint64_t seq, at;
	int r;

	(void)pthread_mutex_lock(&p->lock);
	*ret = tree_find(p, e, name, w, 0);
	(void)pthread_mutex_unlock(&p->lock);
	if (*ret)
		return 0;
	past_note_use(p);
	r = source_begin(e->source, &txn, &seq);
	if (r < 0)
		return r;
	r = w->consistent ? points_consistent(txn, &at)
			  : points_find(txn, e->log_fd, &w->point, &at);
	if (r >= 0)
		r = tree_make(p, e, name, w, txn, at, ret);
	source_end(e->source, txn);
	return r;
}

int past_find(struct past *p, const char *name, struct fuse_entry_param *ret)
{
	struct wanted w = {0};
	struct past_tree *t;
	struct past_env *e;
	uint8_t id[16];
	bool removed;
	int r;

	if (!parse_name(name, &w))
		return -ENOENT;
	r = find_id(p, w.env_name, id, &removed);
	if (r >= 0)
		r = env_get(p, id, removed, &e);
	if (r < 0)
		return r;
	attr_rules_init(&w.rules, removed || !is_trusted(e), geteuid(), getegid());
	r = resolve(p, e, name, &w, &t);
	if (r >= 0) {
		(void)pthread_mutex_lock(&p->lock);
		r = past_hold_node(p, t, NODE_ROOT, 0, NODE_ROOT, &ret->ino);
		if (r >= 0 && t->target)
			past_stat_link(p, t, ret->ino, &ret->attr);
		else if (r >= 0)
			ret->attr = t->st;
		past_tree_unref(p, t);
		(void)pthread_mutex_unlock(&p->lock);
	}
	env_put(p, e);
	ret->entry_timeout = NAME_S;
	ret->attr_timeout = OPS_FOREVER_S;
	return r;
}
