/* set: what a person may change of a living environment's spec. */
#include <stdio.h>

#include "base/text.h"
#include "brain/class.h"
#include "brain/commit.h"
#include "brain/link.h"
#include "brain/quota.h"
#include "brain/verb.h"
#include "brain/view.h"

enum { SETTINGS_MAX = 16 };

static const struct key {
	const char *name, *field;
	bool size; /* a suffix is taken */
} keys[] = {
	{"class", "class", false},
	{"quota", "quota_bytes", true},
	{"rate", "rate_bytes", true},
	{"sweep", "sweep_s", false},
};

struct setting {
	struct call *call;
	char **texts;
	json_t *fields; /* of the spec, as it is by then */
	size_t waiting; /* records */
	int error;
};

static const struct key *find_key(const char *text)
{
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		size_t n = strlen(keys[i].name);

		if (strncmp(text, keys[i].name, n) == 0 && text[n] == '=')
			return &keys[i];
	}
	return NULL;
}

/* NULL: it is in fields; else why not. */
static const char *take(const json_t *spec, json_t *fields, const char *text)
{
	const struct key *k = find_key(text);
	const char *value = strchr(text, '=');
	uint64_t n;
	int r;

	if (!k)
		return "KEY=VALUE is class=ordered|strong|eventual[:PATTERN], quota=BYTES, "
		       "rate=BYTES (a second) or sweep=SECONDS";
	value++;
	if (strcmp(k->name, "class") == 0)
		return class_take(spec, fields, value);
	r = k->size ? text_parse_size(value, &n) : text_parse_u64(value, UINT32_MAX, &n);
	if (r < 0 || n > (uint64_t)1 << 53)
		return k->size ? "the value is a number of bytes, with K, M, G or T if you like; 0 "
				 "is "
				 "no limit"
			       : "the value is a number of seconds; 0 is the default";
	(void)json_object_set_new(fields, k->field, json_integer((json_int_t)n));
	return quota_judge_spec(fields);
}

static const char *take_all(const json_t *spec, json_t *fields, char *const *texts, size_t *ret_n)
{
	const char *why = NULL;
	size_t n = 0;

	for (; !why && texts && texts[n]; n++)
		why = n < SETTINGS_MAX ? take(spec, fields, texts[n])
				       : "that are too many settings";
	*ret_n = n;
	return n ? why : "limb set NAME KEY=VALUE... takes at least one setting";
}

static void setting_free(struct setting *s)
{
	json_decref(s->fields);
	call_strv_free(s->texts);
	free(s);
}

static void apply(struct setting *s, struct env *env)
{
	const char *class, *why;
	char *copy;
	size_t n;
	int r;

	/* Another one may have been first: a list of patterns is not what it was. */
	(void)json_object_clear(s->fields);
	why = take_all(env->spec, s->fields, s->texts, &n);
	if (why) {
		call_fail(s->call, "usage", env->name, "limb help set", "%s", why);
		return;
	}
	class = json_string_value(json_object_get(s->fields, "class"));
	copy = class ? strdup(class) : NULL;
	(void)json_object_update(env->spec, s->fields);
	if (copy) {
		free(env->class);
		env->class = copy;
	}
	r = env_save(env);
	if (r < 0) {
		verb_fail_errno(s->call, env, r, "its settings cannot be kept");
		return;
	}
	quota_look(env);
	quota_say(env);
	view_classes(env);
	call_ok(s->call, env_json_inspect(env));
}

static void recorded(int r, uint64_t seq, void *userdata)
{
	struct setting *s = userdata;
	struct env *env;

	(void)seq;
	s->error = r < 0 ? r : s->error;
	if (--s->waiting)
		return;
	env = verb_env(s->call);
	if (env && s->error < 0)
		verb_fail_errno(s->call, env, s->error, "the decision cannot be recorded");
	else if (env)
		apply(s, env);
	setting_free(s);
}

/* A record for each, as for every decision. */
static int record(struct setting *s, struct env *env, const char *text)
{
	Limb__Record rec = LIMB__RECORD__INIT;
	Limb__Decision d = LIMB__DECISION__INIT;
	cleanup_free char *key = strndup(text, strcspn(text, "="));
	int r;

	if (!key)
		return -ENOMEM;
	d.verb = (char *)"set";
	d.key = key;
	d.value = (char *)strchr(text, '=') + 1;
	rec.origin = LIMB__ORIGIN__ORIGIN_BRAIN;
	rec.body_case = LIMB__RECORD__BODY_DECISION;
	rec.decision = &d;
	s->waiting++;
	r = commit_submit(env, RECORD_DECISION, &rec, recorded, s);
	s->waiting -= r < 0;
	return r;
}

void verb_set(struct call *call)
{
	struct env *env = verb_env(call);
	struct setting *s;
	const char *why;
	size_t n;
	int r = 0;

	if (!env)
		return;
	if (!env->log) {
		(void)verb_live_env(call);
		return;
	}
	s = calloc(1, sizeof(*s));
	if (!s) {
		call_fail(call, "internal", env->name, NULL, "out of memory");
		return;
	}
	s->call = call;
	s->texts = call_strv(call, "settings");
	s->fields = json_object();
	why = take_all(env->spec, s->fields, s->texts, &n);
	for (size_t i = 0; !why && r == 0 && i < n; i++)
		r = record(s, env, s->texts[i]);
	if (why)
		call_fail(call, "usage", env->name, "limb help set", "%s", why);
	if (why || (r < 0 && !s->waiting)) {
		if (!why)
			verb_fail_errno(call, env, r, "the decision cannot be recorded");
		setting_free(s);
	} else if (r < 0) {
		s->error = r;
	}
}
