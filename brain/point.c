#include "brain/point.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"
#include "brain/barrier.h"
#include "brain/commit.h"
#include "brain/link.h"
#include "brain/verb.h"
#include "journal/points.h"

enum {
	LISTED = 1000, /* given, unless asked otherwise */
	LABEL_SYNC_MS = 30000,
};

/* ---- what a point means ---- */

int point_resolve(struct env *env, struct index_txn *t, const char *text, uint64_t *ret_at,
		  char *problem, size_t size)
{
	struct point p;
	uint64_t at;
	int r;

	if (strcmp(text, "consistent") == 0) {
		r = points_consistent(t, &at);
	} else {
		if (!point_parse_all(text, &p)) {
			(void)snprintf(problem, size,
				       "a point is a sequence number, a label, a time, before:JOB, "
				       "after:JOB, HEAD, HEAD~N or now");
			return -EINVAL;
		}
		r = points_find(t, env->log_fd, &p, &at);
	}
	if (r == 0)
		*ret_at = at;
	else if (r == -ENOENT)
		(void)snprintf(problem, size, "the journal of '%s' has no point '%.100s'",
			       env->name, text);
	else
		(void)snprintf(problem, size, "point '%.100s' cannot be read: %s", text,
			       strerror(-r));
	return r;
}

bool point_of_call(struct call *call, struct env *env, const char *key, uint64_t *ret_at)
{
	const char *text = call_str(call, key);
	struct index_txn *t;
	char problem[300] = "its index cannot be read";
	int r;

	*ret_at = INDEX_NOW;
	if (!text)
		return true;
	r = env_read_begin(env, &t);
	if (r == 0) {
		r = point_resolve(env, t, text, ret_at, problem, sizeof(problem));
		index_read_end(t);
	}
	if (r < 0 && env->failed)
		verb_fail_errno(call, env, r, problem);
	else if (r < 0)
		call_fail(call,
			  r == -ENOENT	 ? "point_not_found"
			  : r == -EINVAL ? "usage"
					 : verb_code(r),
			  env->name, "limb points NAME", "%s", problem);
	return r == 0;
}

/* ---- verbs ---- */

static void set(json_t *o, const char *key, json_t *v)
{
	(void)json_object_set_new(o, key, v);
}

static json_t *item_json(const struct points_item *it)
{
	char when[CLOCK_TEXT_MAX];
	json_t *o = json_pack("{s:I, s:s}", "seq", (json_int_t)it->seq, "at",
			      clock_format(when, it->time_ns));

	if (it->label[0])
		set(o, "label", json_string(it->label));
	set(o, "kind", json_string(it->kind));
	if (it->job[0])
		set(o, "job_id", json_string(it->job));
	if (it->consistent)
		set(o, "consistent", json_true());
	return o;
}

void verb_points(struct call *call)
{
	int64_t limit = call_int(call, "limit", LISTED);
	struct env *env = verb_env(call);
	json_t *array, *o;
	struct index_txn *t;
	struct points l = {0};
	int r;

	if (!env)
		return;
	r = env_read_begin(env, &t);
	if (r == 0) {
		r = points_list(t, &l);
		index_read_end(t);
	}
	if (r < 0) {
		points_done(&l);
		verb_fail_errno(call, env, r, "its points cannot be read");
		return;
	}
	array = json_array();
	limit = limit < 1 ? 1 : MIN(limit, (int64_t)POINTS_MAX);
	for (size_t i = 0; i < l.n && i < (size_t)limit; i++)
		(void)json_array_append_new(array, item_json(&l.items[i]));
	o = json_pack("{s:s, s:o, s:b, s:I}", "environment", env->name, "points", array,
		      "truncated", l.n > (size_t)limit, "total", (json_int_t)l.n);
	points_done(&l);
	call_ok(call, o);
}

int point_record(struct env *env, const char *label, const char *kind, uint64_t at, bool quiet,
		 void (*fn)(int r, uint64_t seq, void *userdata), void *userdata)
{
	Limb__Record rec = LIMB__RECORD__INIT;
	Limb__Point p = LIMB__POINT__INIT;

	p.label = (char *)label;
	p.kind = (char *)kind;
	p.at_seq = at;
	p.consistent = quiet;
	rec.origin = LIMB__ORIGIN__ORIGIN_BRAIN;
	rec.body_case = LIMB__RECORD__BODY_POINT;
	rec.point = &p;
	return commit_submit(env, RECORD_POINT, &rec, fn, userdata);
}

struct labelling {
	struct call *call;
	struct env *env;
	struct points_item item;
};

static void label_durable(int r, uint64_t seq, void *userdata)
{
	struct labelling *l = userdata;

	(void)seq;
	if (r < 0)
		verb_fail_errno(l->call, l->env, r, "the label cannot be recorded");
	else
		call_ok(l->call, json_pack("{s:s, s:[o]}", "environment", l->env->name, "points",
					   item_json(&l->item)));
	free(l);
}

static void label_record(struct labelling *l)
{
	int r;

	l->item.time_ns = clock_real_ns();
	r = point_record(l->env, l->item.label, "label", l->item.seq, l->item.consistent,
			 label_durable, l);
	if (r < 0)
		label_durable(r, 0, l);
}

static void label_synced(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct labelling *l = userdata;

	/* Away: what the journal has is what can be labelled. */
	l->item.seq = res->r == 0 ? res->seq : env_seq(env);
	l->item.consistent = res->r == 0 && res->consistent;
	label_record(l);
}

void verb_label(struct call *call)
{
	const char *label = call_str(call, "label");
	struct env *env = verb_env(call);
	struct labelling *l;
	char shown[256];
	uint64_t at;

	if (!env)
		return;
	if (!label || !text_label_ok(label) || strcmp(label, "consistent") == 0) {
		call_fail(call, "usage", env->name, NULL,
			  "'%s' is no label: letters, digits, '.', '_' and '-', at most 63, "
			  "beginning "
			  "with a letter or '_', and not HEAD, now or consistent",
			  text_escape_into(shown, sizeof(shown), label ? label : "",
					   label ? strlen(label) : 0));
		return;
	}
	if (!point_of_call(call, env, "at", &at))
		return;
	l = calloc(1, sizeof(*l));
	if (!l) {
		call_fail(call, "internal", env->name, NULL, "out of memory");
		return;
	}
	l->call = call;
	l->env = env;
	(void)snprintf(l->item.label, sizeof(l->item.label), "%s", label);
	(void)snprintf(l->item.kind, sizeof(l->item.kind), "label");
	l->item.seq = at == INDEX_NOW ? env_seq(env) : at;
	if (at != INDEX_NOW || !link_up(env) ||
	    barrier_run(env, LABEL_SYNC_MS, label_synced, l) < 0)
		label_record(l);
}
