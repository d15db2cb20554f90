#include "brain/point.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"
#include "brain/barrier.h"
#include "brain/commit.h"
#include "brain/link.h"
#include "brain/verb.h"
#include "journal/point.h"

enum {
	POINTS_MAX = 100000, /* looked at */
	LISTED = 1000,	     /* given, unless asked otherwise */
	LABEL_SYNC_MS = 30000,
};

/* ---- the list ---- */

struct item {
	uint64_t seq; /* the position */
	int64_t time_ns;
	char label[POINT_WORD_MAX + 1], kind[16], job[POINT_WORD_MAX + 1];
	bool consistent, automatic;
};

struct list {
	struct item *items;
	size_t n, cap;
};

static struct item *list_add(struct list *l)
{
	if (l->n == POINTS_MAX)
		return NULL;
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 64;
		struct item *p = reallocarray(l->items, cap, sizeof(*p));

		if (!p)
			return NULL;
		l->items = p;
		l->cap = cap;
	}
	l->items[l->n] = (struct item){0};
	return &l->items[l->n++];
}

static void copy_word(char *out, size_t size, const char *s, size_t n)
{
	(void)snprintf(out, size, "%.*s", (int)MIN(n, size - 1), s);
}

static int take_point(const struct index_point *p, void *userdata)
{
	struct item *it = list_add(userdata);

	if (!it)
		return 1;
	it->seq = p->at_seq;
	it->time_ns = p->time_ns;
	it->consistent = p->consistent;
	copy_word(it->label, sizeof(it->label), p->label, p->label_len);
	copy_word(it->kind, sizeof(it->kind), p->kind, p->kind_len);
	copy_word(it->job, sizeof(it->job), p->job, p->job_len);
	it->automatic = strcmp(it->kind, "label") != 0;
	return 0;
}

static bool add_job(struct list *l, const struct index_job *j, const struct index_job_record *rec,
		    const char *kind)
{
	struct item *it;

	if (!rec->seq)
		return true;
	it = list_add(l);
	if (!it)
		return false;
	it->seq = rec->seq;
	it->time_ns = rec->time_ns;
	it->automatic = true;
	(void)snprintf(it->kind, sizeof(it->kind), "%s", kind);
	copy_word(it->job, sizeof(it->job), j->id, j->id_len);
	return true;
}

static int take_job(const struct index_job *j, void *userdata)
{
	return !add_job(userdata, j, &j->end, "after_job") ||
	       !add_job(userdata, j, &j->start, "before_job");
}

static int by_seq(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	return x->seq > y->seq ? -1 : x->seq < y->seq;
}

/* The newest first. */
static int list_make(struct index_txn *t, struct list *l)
{
	int r = index_points(t, INDEX_NOW, take_point, l);

	if (r == 0)
		r = index_jobs(t, take_job, l);
	if (r == 0 && l->n)
		qsort(l->items, l->n, sizeof(*l->items), by_seq);
	return r;
}

/* ---- what a point means ---- */

static int back(struct index_txn *t, uint64_t n, uint64_t *ret_at)
{
	uint64_t at = index_seq(t);
	struct list l = {0};
	int r = list_make(t, &l);

	for (size_t i = 0; r == 0 && n > 0 && i < l.n; i++) {
		if (!l.items[i].automatic || l.items[i].seq >= at)
			continue;
		at = l.items[i].seq;
		n--;
	}
	free(l.items);
	if (r == 0 && n > 0)
		return -ENOENT;
	if (r == 0)
		*ret_at = at;
	return r;
}

static int take_consistent(const struct index_point *p, void *userdata)
{
	if (!p->consistent)
		return 0;
	*(uint64_t *)userdata = p->at_seq;
	return 1;
}

static int consistent(struct index_txn *t, uint64_t *ret_at)
{
	uint64_t at = 0;
	int r = index_points(t, INDEX_NOW, take_consistent, &at);

	if (r < 0)
		return r;
	*ret_at = at;
	return at ? 0 : -ENOENT;
}

static int job_point(struct index_txn *t, const struct point *p, uint64_t *ret_at)
{
	struct index_job job;
	int r = index_job(t, p->word, &job);

	if (r < 0)
		return r;
	*ret_at = p->kind == POINT_BEFORE_JOB ? job.start.seq : job.end.seq;
	return *ret_at ? 0 : -ENOENT;
}

static int resolve(struct env *env, struct index_txn *t, const struct point *p, uint64_t *ret_at)
{
	switch (p->kind) {
	case POINT_SEQ: *ret_at = p->seq; return p->seq && p->seq <= index_seq(t) ? 0 : -ENOENT;
	case POINT_LABEL: return index_label(t, p->word, ret_at);
	case POINT_TIME: return log_seq_at(env->log_fd, p->time_ns, ret_at);
	case POINT_BEFORE_JOB:
	case POINT_AFTER_JOB: return job_point(t, p, ret_at);
	case POINT_HEAD: return back(t, p->seq, ret_at);
	case POINT_NOW: *ret_at = index_seq(t); return 0;
	}
	return -EINVAL;
}

int point_resolve(struct env *env, struct index_txn *t, const char *text, uint64_t *ret_at,
		  char *problem, size_t size)
{
	struct point p;
	uint64_t at;
	int r;

	if (strcmp(text, "consistent") == 0) {
		r = consistent(t, &at);
	} else {
		if (!point_parse_all(text, &p)) {
			(void)snprintf(problem, size,
				       "a point is a sequence number, a label, a time, before:JOB, "
				       "after:JOB, HEAD, HEAD~N or now");
			return -EINVAL;
		}
		r = resolve(env, t, &p, &at);
	}
	if (r == 0 && at > index_seq(t))
		r = -ENOENT;
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
	if (r < 0)
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

static json_t *item_json(const struct item *it)
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
	struct env *env = verb_env(call);
	int64_t limit = call_int(call, "limit", LISTED);
	json_t *array, *o;
	struct index_txn *t;
	struct list l = {0};
	int r;

	if (!env)
		return;
	r = env_read_begin(env, &t);
	if (r == 0) {
		r = list_make(t, &l);
		index_read_end(t);
	}
	if (r < 0) {
		free(l.items);
		verb_fail_errno(call, env, r, "its points cannot be read");
		return;
	}
	array = json_array();
	limit = limit < 1 ? 1 : MIN(limit, (int64_t)POINTS_MAX);
	for (size_t i = 0; i < l.n && i < (size_t)limit; i++)
		(void)json_array_append_new(array, item_json(&l.items[i]));
	o = json_pack("{s:s, s:o, s:b, s:I}", "environment", env->name, "points", array,
		      "truncated", l.n > (size_t)limit, "total", (json_int_t)l.n);
	free(l.items);
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
	struct item item;
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
	struct env *env = verb_env(call);
	const char *label = call_str(call, "label");
	struct labelling *l;
	uint64_t at;

	if (!env)
		return;
	if (!label || !text_label_ok(label) || strcmp(label, "consistent") == 0) {
		call_fail(call, "usage", env->name, NULL,
			  "a label has letters, digits, '.', '_' and '-', begins with a letter or "
			  "'_', has at most 63, and is not HEAD, now or consistent");
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
