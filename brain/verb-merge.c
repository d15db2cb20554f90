/*
 * merge: what was done in a fork since, brought back into the environment that it is of.
 *
 * Three trees: the base (the fork as it was when it was made, or as an earlier merge took
 * it), the fork as it is, and the environment.  The first two are compared here, in a
 * helper thread (merge-plan.h); the steps become changes of the brain's side (queue.h), each
 * of which is judged where it is made (reconcile.h), as any other: what the environment
 * did itself since the fork's point counts as the other side's doing.  So it waits while the
 * environment is away, and its conflicts are those of `limb conflicts`.
 *
 * Which record of the fork's log it came up to is recorded before its changes (merge-past.h), and
 * they count all or none (queue-merge.c): whoever calls again after a crash brings what is
 * not there yet, and nothing twice.
 */
#include "brain/merge-impl.h"

#include "brain/accept.h"
#include "brain/barrier.h"
#include "brain/link.h"
#include "brain/want.h"

enum { SYNC_MS = 60000, DRAIN_MS = 60000, PATHS_MAX = 1000 };

static void merging_free(struct merging *g)
{
	merge_plan_done(&g->plan);
	merge_past_done(&g->past);
	for (size_t i = 0; i < g->n_paths; i++)
		free(g->paths[i]);
	free(g->paths);
	free(g->map);
	free(g);
}

static struct env *env_named(struct call *call, const char *key)
{
	const char *name = call_str(call, key);

	return name ? env_find(call->brain, name) : NULL;
}

/* ---- the answer ---- */

struct ends {
	uint64_t first, last, conflicts, lost, unapplied;
};

static int count_conflict(const struct index_intent *row, void *userdata)
{
	struct ends *e = userdata;
	Limb__Record *rec;

	if (row->change < e->first || row->change > e->last)
		return 0;
	e->conflicts++;
	rec = limb__record__unpack(NULL, row->n, row->body);
	if (rec && rec->body_case == LIMB__RECORD__BODY_CONFLICT)
		e->lost += strcmp(rec->conflict->winner, "brain") != 0;
	if (rec)
		limb__record__free_unpacked(rec, NULL);
	return 0;
}

static void count_unapplied(const struct queue_refused *u, void *userdata)
{
	struct ends *e = userdata;

	e->unapplied += u->change >= e->first && u->change <= e->last;
}

static void answer(struct merging *g, bool pending)
{
	struct ends e = {.first = g->first, .last = g->last};
	uint64_t all = g->first ? g->last - g->first + 1 : 0;
	struct index_txn *t;
	json_t *o;

	if (g->first && env_read_begin(g->into, &t) == 0) {
		(void)index_conflicts(t, count_conflict, &e);
		index_read_end(t);
	}
	if (g->first)
		queue_unapplied(g->into, count_unapplied, &e);
	o = json_pack("{s:s, s:s, s:I, s:I, s:I, s:b}", "environment", g->into->name, "from",
		      g->from->name, "applied",
		      (json_int_t)(pending ? 0 : all - MIN(all, e.lost + e.unapplied)), "conflicts",
		      (json_int_t)e.conflicts, "seq", (json_int_t)env_seq(g->into), "clean",
		      !e.conflicts && !e.unapplied);
	if (e.unapplied)
		(void)json_object_set_new(o, "unapplied", json_integer((json_int_t)e.unapplied));
	if (pending) {
		(void)json_object_set_new(o, "pending", json_true());
		(void)json_object_set_new(o, "pending_changes", json_integer((json_int_t)all));
	}
	call_ok(g->call, o);
	merging_free(g);
}

static void fail(struct merging *g, struct env *env, int r, const char *what)
{
	verb_fail_errno(g->call, env, r, what);
	merging_free(g);
}

static void all_over(struct env *env, const struct queue_result *res, void *userdata)
{
	struct merging *g = userdata;

	if (res->r == -ECANCELED) {
		fail(g, env, res->r, "what was done in the fork still waits");
		return;
	}
	answer(g, res->r == -ETIMEDOUT && queue_merging(env));
}

static void all_durable(int r, uint64_t seq, void *userdata)
{
	struct merging *g = userdata;

	(void)seq;
	if (r == 0 && link_up(g->into)) {
		r = queue_wait(g->into, DRAIN_MS, all_over, g);
		if (r == 0)
			return;
	}
	if (r < 0)
		fail(g, g->into, r, "what was done in the fork cannot be recorded");
	else
		answer(g, true);
}

static void changes_add(struct merging *g)
{
	size_t n = merge_count(g);
	int r;

	if (!n) {
		answer(g, false);
		return;
	}
	if (!queue_has_room(g->into, n)) {
		call_fail(g->call, "too_large", g->into->name, "limb merge NEW --into NAME PATH...",
			  "%zu changes of '%s' are more than can wait for '%s' at once (%d); "
			  "merge a part of its paths first",
			  n, g->from->name, g->into->name, QUEUE_MAX);
		merging_free(g);
		return;
	}
	g->first = queue_next(g->into);
	g->last = g->first + n - 1;
	r = merge_add(g, all_durable);
	if (r < 0)
		fail(g, g->into, r, "what was done in the fork cannot be recorded");
}

static void plan_work(uv_work_t *w)
{
	struct merging *g = container_of(w, struct merging, work);

	g->result = merge_plan_read(g);
}

static void plan_made(uv_work_t *w, int status)
{
	struct merging *g = container_of(w, struct merging, work);

	(void)status;
	g->from->threads--;
	g->into->threads--;
	if (g->result < 0) {
		fail(g, g->from, g->result, "what was done in it cannot be found out");
		return;
	}
	/* Another call was faster: what it brings is not brought twice. */
	if (queue_merging(g->into)) {
		call_fail_with(g->call, "conflict", json_pack("{s:i}", "retry_after_ms", 1000),
			       g->into->name, "limb status NAME",
			       "another merge into '%s' is under way; try again when it is over",
			       g->into->name);
		merging_free(g);
		return;
	}
	changes_add(g);
}

/* ---- the call ---- */

/* NULL: answered. */
static char **take_paths(struct call *call, struct env *env, size_t *ret_n)
{
	char **v = call_strv(call, "paths"), **paths;
	size_t n = 0, used = 0;

	while (v && v[n])
		n++;
	paths = calloc(n + 1, sizeof(*paths));
	for (size_t i = 0; paths && i < n && n <= PATHS_MAX; i++) {
		paths[used] = verb_path(call, env, v[i]);
		if (!paths[used]) {
			while (used)
				free(paths[--used]);
			free(paths);
			call_strv_free(v);
			return NULL;
		}
		used++;
	}
	call_strv_free(v);
	if (!paths || n > PATHS_MAX) {
		free(paths);
		call_fail(call, "usage", env->name, "limb help merge",
			  "paths is a list of at most %d paths", PATHS_MAX);
		return NULL;
	}
	/* The root is all. */
	for (size_t i = 0; i < used; i++) {
		if (*paths[i])
			continue;
		while (used)
			free(paths[--used]);
	}
	*ret_n = used;
	return paths;
}

/* May something be changed in it, now or later? False: answered. */
static bool judge_into(struct call *call, struct env *into)
{
	if (want_is_away(into))
		return true;
	if (!link_up(into) || into->halted || into->full) {
		/* It is verb_attached_env() that has the words, and it goes by the name. */
		(void)json_object_set_new(call->params, "name", json_string(into->name));
		return verb_attached_env(call) != NULL;
	}
	return true;
}

static void plan_go(struct call *call)
{
	struct env *from = env_named(call, "name"), *into = env_named(call, "into");
	struct merging *g;
	int r;

	if (!from || !into || env_parent(from) != into) {
		call_fail(call, "environment_not_found", call_str(call, from ? "into" : "name"),
			  "limb ls", "it was removed meanwhile");
		return;
	}
	if (!judge_into(call, into))
		return;
	if (queue_merging(into)) {
		call_fail_with(call, "unsynced", json_pack("{s:i}", "retry_after_ms", 1000),
			       into->name, "limb status NAME",
			       "changes of an earlier merge still wait for environment '%s'; they "
			       "go first, when it is back",
			       into->name);
		return;
	}
	g = calloc(1, sizeof(*g));
	if (!g) {
		call_fail(call, "internal", into->name, NULL, "out of memory");
		return;
	}
	g->call = call;
	g->from = from;
	g->into = into;
	g->forked_seq = (uint64_t)json_integer_value(json_object_get(from->forked_from, "seq"));
	g->base = (uint64_t)json_integer_value(json_object_get(from->forked_from, "base"));
	g->paths = take_paths(call, into, &g->n_paths);
	if (!g->paths) {
		merging_free(g);
		return;
	}
	r = uv_queue_work(call->brain->loop, &g->work, plan_work, plan_made);
	if (r < 0) {
		fail(g, from, r, "what was done in it cannot be found out");
		return;
	}
	from->threads++;
	into->threads++;
}

static void into_drained(struct env *env, const struct queue_result *res, void *userdata)
{
	if (res->r == 0 || (res->r == -ETIMEDOUT && !queue_merging(env)))
		plan_go(userdata);
	else
		verb_fail_errno(userdata, env, res->r,
				"changes that came before still wait for it");
}

static void into_written(struct call *call)
{
	struct env *into = env_named(call, "into");

	if (!into || !link_up(into) || queue_wait(into, DRAIN_MS, into_drained, call) < 0)
		plan_go(call);
}

static void from_heard(struct call *call)
{
	struct env *into = env_named(call, "into");

	if (into && link_up(into))
		accept_first(call, into, into_written);
	else
		plan_go(call);
}

static void from_synced(struct env *env, const struct barrier_result *res, void *userdata)
{
	(void)env;
	(void)res; /* away, or late: what the journal has */
	from_heard(userdata);
}

static void from_written(struct call *call)
{
	struct env *from = env_named(call, "name");

	if (!from || !link_up(from) || from->halted ||
	    barrier_run(from, SYNC_MS, from_synced, call) < 0)
		from_heard(call);
}

void verb_merge(struct call *call)
{
	struct env *from = verb_env(call), *into = env_named(call, "into");
	const char *name = call_str(call, "into");

	if (!from)
		return;
	if (!name) {
		call_fail(call, "usage", from->name, "limb help merge",
			  "merge wants the environment that it is a fork of: --into NAME");
		return;
	}
	if (!into) {
		call_fail(call, "environment_not_found", name, "limb ls",
			  "there is no environment '%s'", name);
		return;
	}
	if (env_parent(from) != into) {
		call_fail(call, "unsupported", from->name, "limb inspect NAME",
			  "'%s' is no fork of '%s': only what was forked from it can be merged "
			  "into it",
			  from->name, name);
		return;
	}
	if (from->busy || from->creating) {
		call_fail_with(call, "conflict", json_pack("{s:i}", "retry_after_ms", 1000),
			       from->name, "limb status",
			       "environment '%s' is being made or started; try again when that is "
			       "over",
			       from->name);
		return;
	}
	if (!judge_into(call, into))
		return;
	if (link_up(from) && !from->halted)
		accept_first(call, from, from_written);
	else
		from_heard(call);
}
