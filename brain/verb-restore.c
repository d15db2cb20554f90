/*
 * restore: a living environment goes back to a point.
 *
 * A barrier, so that the journal has what was done; a plan (restore-plan.h) of what differs
 * from the point; a label; then the plan's steps, each an APPLY that is `careful`: what
 * the environment has and the journal was not told of is never written over. After a
 * barrier another plan is made, until there is nothing left to do: what did not work
 * because somebody wrote meanwhile is done then, over what the journal has by now.
 *
 * Nothing is kept about it: whoever calls again after a crash has the rest done.
 */
#include "brain/accept.h"
#include "brain/restore-impl.h"

#include <stdio.h>

#include "base/text.h"
#include "brain/barrier.h"
#include "brain/link.h"
#include "brain/point.h"
#include "brain/verify.h"
#include "wire/wire.pb-c.h"

enum {
	SYNC_MS = 60000,
	ROUNDS_MAX = 8,
	LISTED_MAX = 10000,
	PATHS_MAX = 1000,
	LINE_HIGH = 4 << 20,
	PAUSE_MS = 5,
};

/* ---- its end ---- */

static void pause_closed(uv_handle_t *h)
{
	free(container_of((uv_timer_t *)h, struct restoring, pause));
}

/* Its call has been answered, which ended that. */
static void restoring_free(struct restoring *g)
{
	if (g->env->restore == g) {
		g->env->restore = NULL;
		g->env->applying[ORIGIN_RESTORE_]--;
	}
	rplan_done(&g->plan);
	json_decref(g->changes);
	json_decref(g->told);
	for (size_t i = 0; i < g->n_paths; i++)
		free(g->paths[i]);
	free(g->paths);
	ignore_done(&g->ignore);
	buf_done(&g->frames);
	if (g->pause_made)
		uv_close((uv_handle_t *)&g->pause, pause_closed);
	else
		free(g);
}

static void fail(struct restoring *g, const char *code, const char *what)
{
	json_t *fields = g->label_seq ? json_pack("{s:s}", "label", g->label) : NULL;

	call_fail_with(g->call, code, fields, g->env->name,
		       g->label_seq ? "run the same command again; or go back to the label" : NULL,
		       "environment '%s' was not restored%s: %s%s%s", g->env->name,
		       g->label_seq ? " whole" : "", what,
		       g->label_seq ? "; what it was before has the label " : "", g->label);
	restoring_free(g);
}

static void fail_errno(struct restoring *g, int r, const char *what)
{
	char text[200];

	(void)snprintf(text, sizeof(text), "%s: %s", what,
		       r == -ETIMEDOUT	? "no answer before its deadline"
		       : r == -ENOTCONN ? "the line is down"
					: strerror(-r));
	fail(g, verb_code(r), text);
}

static json_t *answer(struct restoring *g)
{
	json_t *o = json_pack("{s:s, s:I, s:b, s:O}", "environment", g->env->name, "to_seq",
			      (json_int_t)g->at, "dry_run", g->dry_run, "changes", g->changes);

	if (g->label_seq)
		(void)json_object_set_new(o, "label", json_string(g->label));
	if (g->n_changes > json_array_size(g->changes)) {
		(void)json_object_set_new(o, "truncated", json_true());
		(void)json_object_set_new(o, "total", json_integer((json_int_t)g->n_changes));
	}
	return o;
}

static void succeed(struct restoring *g, uint64_t seq)
{
	json_t *o = answer(g);

	(void)json_object_set_new(o, "seq", json_integer((json_int_t)seq));
	call_ok(g->call, o);
	restoring_free(g);
}

/* What is left could not be done. */
static void give_up(struct restoring *g)
{
	char text[800], shown[300];
	const char *path = g->failed_path, *why = strerror(-g->failed);
	int r = g->failed;

	if (!g->n_failed) {
		path = g->plan.n_steps ? g->plan.steps[0].path : "";
		why = "it is changed again and again";
		r = -ESTALE;
	} else if (r == -ENOTEMPTY) {
		why = "names are in it that the journal does not have (ignored, or made just now)";
	} else if (r == -ESTALE) {
		why = "it is changed again and again";
	}
	(void)snprintf(text, sizeof(text), "'%s': %s",
		       text_escape_into(shown, sizeof(shown), path, strlen(path)), why);
	if (g->n_failed > 1)
		(void)snprintf(text + strlen(text), sizeof(text) - strlen(text), " (and %zu more)",
			       g->n_failed - 1);
	fail(g, r == -ESTALE || r == -ENOTEMPTY || r == -EEXIST ? "conflict" : verb_code(r), text);
}

/* ---- one plan after the other ---- */

static void plan_go(struct restoring *g);

/* Elsewhere something may change without a rest. */
static int synced(const struct restoring *g, const struct barrier_result *res)
{
	bool out = g->n_paths == 0 && barrier_left_out(res, NULL);

	for (size_t i = 0; i < g->n_paths && !out; i++)
		out = barrier_left_out(res, g->paths[i]);
	return res->r == 0 && out ? -ETIMEDOUT : res->r;
}

static void round_synced(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct restoring *g = userdata;
	int r = synced(g, res);

	(void)env;
	if (r < 0) {
		fail_errno(g, r, "it is written there, but cannot be made durable");
		return;
	}
	g->round++;
	plan_go(g);
}

static void round_over(struct restoring *g)
{
	int r = barrier_run_past(g->env, SYNC_MS, round_synced, g);

	if (r < 0)
		fail_errno(g, r, "it is written there, but cannot be made durable");
}

/* ---- steps ---- */

static void steps_go(struct restoring *g);
static void frames_go(struct restoring *g);

void restore_step_failed(struct restoring *g, const struct rplan_step *s, int r)
{
	/* What will not do by itself is worth more than what the next plan may mend. */
	if (!g->n_failed++ || g->failed == -ESTALE) {
		g->failed = r;
		(void)snprintf(g->failed_path, sizeof(g->failed_path), "%s", s->path);
	}
}

static void forget_slots(struct restoring *g, size_t from)
{
	for (size_t i = from; i < g->n_slots; i++) {
		if (!g->slots[i].open)
			continue;
		link_forget(g->env, g->slots[i].request);
		g->slots[i].open = false;
		g->open--;
	}
}

static void stop(struct restoring *g)
{
	forget_slots(g, 0);
	fail_errno(g, g->fatal, g->fatal_what);
}

/* All that was sent is answered, and no thread is at it. */
static void slots_over(struct restoring *g)
{
	if (g->fatal < 0) {
		stop(g);
	} else if (g->cancelled) {
		g->fatal = -ECANCELED;
		g->fatal_what = "it was called off";
		stop(g);
	} else {
		g->step += g->n_slots;
		g->n_slots = 0;
		steps_go(g);
	}
}

static void step_answered(struct env *env, int r, const struct entry_head *e, void *userdata)
{
	const struct entry_done *d = (const struct entry_done *)e;
	struct restore_slot *slot = userdata;
	struct restoring *g = slot->restoring;

	(void)env;
	slot->open = false;
	g->open--;
	if (r < 0 && !g->fatal) {
		g->fatal = r;
		g->fatal_what = "it did not answer";
	} else if (r == 0 && d->error) {
		restore_step_failed(g, &g->plan.steps[slot->step], -d->error);
		if (d->error == ENOSPC || d->error == EDQUOT || d->error == EROFS) {
			g->fatal = -d->error;
			g->fatal_what = "it cannot be written there";
		}
	}
	if (!g->working && !uv_is_active((uv_handle_t *)&g->pause) && !g->open)
		slots_over(g);
}

static void frames_work(uv_work_t *w)
{
	struct restoring *g = container_of(w, struct restoring, work);

	g->result = restore_frames(g);
}

static void frames_made(uv_work_t *w, int status)
{
	struct restoring *g = container_of(w, struct restoring, work);
	int r = 0;

	(void)status;
	g->working = false;
	g->env->threads--;
	if (!g->fatal)
		r = link_send_raw(g->env, buf_data(&g->frames), buf_len(&g->frames));
	buf_clear(&g->frames);
	if (r < 0) {
		g->fatal = r;
		g->fatal_what = "it cannot be asked";
	}
	if (!g->fatal && g->result < 0) {
		/* Its content, most likely: the others can be had. */
		struct restore_slot *slot = &g->slots[g->n_made++];

		g->begun = false;
		restore_step_failed(g, &g->plan.steps[slot->step], g->result);
		if (slot->open) {
			link_forget(g->env, slot->request);
			slot->open = false;
			g->open--;
		}
	}
	if (g->fatal) {
		stop(g);
		return;
	}
	for (size_t i = 0; i < g->n_slots; i++)
		if (g->slots[i].open)
			link_extend(g->env, g->slots[i].request, RESTORE_ASK_MS);
	if (g->n_made < g->n_slots)
		frames_go(g);
	else if (!g->open)
		slots_over(g);
}

static void pause_over(uv_timer_t *t)
{
	struct restoring *g = container_of(t, struct restoring, pause);

	if (g->fatal)
		stop(g);
	else
		frames_go(g);
}

static int thread_go(struct restoring *g, uv_work_cb fn, uv_after_work_cb then)
{
	int r = uv_queue_work(g->env->brain->loop, &g->work, fn, then);

	if (r == 0) {
		g->working = true;
		g->env->threads++;
	}
	return r;
}

/* What waits for the line is bounded. */
static void frames_go(struct restoring *g)
{
	int r;

	if (link_queued(g->env) >= LINE_HIGH) {
		(void)uv_timer_start(&g->pause, pause_over, PAUSE_MS, 0);
		return;
	}
	r = thread_go(g, frames_work, frames_made);
	if (r < 0) {
		g->fatal = r;
		g->fatal_what = "it cannot be asked";
		stop(g);
	}
}

static int slot_open(struct restoring *g)
{
	struct restore_slot *slot = &g->slots[g->n_slots];
	int r;

	*slot = (struct restore_slot){
		.restoring = g, .step = g->step + g->n_slots, .push = link_push_number()};
	r = link_expect(g->env, ENTRY_DONE, RESTORE_ASK_MS, step_answered, slot, &slot->request);
	if (r < 0)
		return r;
	slot->open = true;
	g->n_slots++;
	g->open++;
	return 0;
}

static void steps_go(struct restoring *g)
{
	size_t left = g->plan.n_steps - g->step;
	int r = 0;

	if (!left) {
		round_over(g);
		return;
	}
	call_progress(g->call, "restoring", g->step, 0, g->plan.n_steps, 0);
	g->n_slots = g->n_made = 0;
	g->begun = false;
	while (r == 0 && g->n_slots < MIN(left, (size_t)RESTORE_STEPS))
		r = slot_open(g);
	if (r < 0) {
		g->fatal = r;
		g->fatal_what = "it cannot be asked";
		stop(g);
		return;
	}
	frames_go(g);
}

/* ---- the plan ---- */

static json_t *change_json(const struct rplan_change *c)
{
	json_t *o = json_object();

	verb_put_bytes(o, "path", c->path, strlen(c->path));
	(void)json_object_set_new(o, "action", json_string(rplan_action_name(c->action)));
	if (c->from_path)
		verb_put_bytes(o, "from_path", c->from_path, strlen(c->from_path));
	return o;
}

/* A later plan says again what of the first one was left. */
static void tell_changes(struct restoring *g)
{
	for (size_t i = 0; i < g->plan.n_changes; i++) {
		const struct rplan_change *c = &g->plan.changes[i];
		cleanup_free char *key = NULL;

		if (asprintf(&key, "%d %s", (int)c->action, c->path) < 0)
			key = NULL;
		if (!key || json_object_get(g->told, key))
			continue;
		g->n_changes++;
		if (json_array_size(g->changes) == LISTED_MAX)
			continue;
		(void)json_object_set_new_nocheck(g->told, key, json_true());
		(void)json_array_append_new(g->changes, change_json(c));
	}
}

static void labelled(int r, uint64_t seq, void *userdata)
{
	struct restoring *g = userdata;

	if (r < 0) {
		fail_errno(g, r, "its label cannot be recorded");
		return;
	}
	g->label_seq = seq;
	steps_go(g);
}

/* Whatever comes is found under it. */
static void label_first(struct restoring *g)
{
	uint64_t seq = env_seq(g->env);
	int r;

	(void)snprintf(g->label, sizeof(g->label), "before_restore_%llu",
		       (unsigned long long)seq + 1);
	r = point_record(g->env, g->label, "before_restore", seq, false, labelled, g);
	if (r < 0)
		fail_errno(g, r, "its label cannot be recorded");
}

static void planned(struct restoring *g, int r)
{
	char text[400], shown[300];

	if (r == -ENOTDIR && g->plan.blocked) {
		(void)snprintf(text, sizeof(text), "'%s' is no directory now; restore it, too",
			       text_escape_into(shown, sizeof(shown), g->plan.blocked,
						strlen(g->plan.blocked)));
		fail(g, "conflict", text);
		return;
	}
	if (r == -ENOENT && g->paths) {
		(void)snprintf(
			text, sizeof(text), "'%s' is there neither now nor at that point",
			text_escape_into(shown, sizeof(shown), g->paths[0], strlen(g->paths[0])));
		fail(g, "file_not_found", text);
		return;
	}
	if (r < 0) {
		fail_errno(g, r, verify_what(r, "what differs cannot be found out"));
		return;
	}
	tell_changes(g);
	if (g->dry_run || (!g->plan.n_steps && !g->plan.more)) {
		succeed(g, env_seq(g->env));
		return;
	}
	if (g->round >= ROUNDS_MAX) {
		give_up(g);
		return;
	}
	g->step = g->n_failed = 0;
	g->failed = 0;
	if (g->label_seq)
		steps_go(g);
	else
		label_first(g);
}

static void plan_work(uv_work_t *w)
{
	struct restoring *g = container_of(w, struct restoring, work);

	g->result = restore_plan(g);
}

static void plan_made(uv_work_t *w, int status)
{
	struct restoring *g = container_of(w, struct restoring, work);

	(void)status;
	g->working = false;
	g->env->threads--;
	planned(g, g->result);
}

static void plan_go(struct restoring *g)
{
	int r;

	/* What could not be done twice in a row will not be done a third time. */
	if (g->round >= 2 && g->n_failed && g->failed != -ESTALE) {
		give_up(g);
		return;
	}
	ignore_done(&g->ignore);
	(void)ignore_copy(&g->ignore, &g->env->ignore);
	ignore_bound(&g->ignore, 2 * env_nodes(g->env), &g->ignore_left);
	r = thread_go(g, plan_work, plan_made);
	if (r < 0)
		fail_errno(g, r, "what differs cannot be found out");
}

static void begin_synced(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct restoring *g = userdata;
	int r = synced(g, res);

	(void)env;
	if (r < 0)
		fail_errno(g, r, "it cannot be synced");
	else
		plan_go(g);
}

/* ---- the call ---- */

/* Pre-order: '/' comes before all other bytes. */
static int by_path(const void *a, const void *b)
{
	const unsigned char *x = *(const unsigned char *const *)a;
	const unsigned char *y = *(const unsigned char *const *)b;

	for (; *x && *x == *y; x++)
		y++;
	return (*x == '/' ? 1 : *x ? *x + 1 : 0) - (*y == '/' ? 1 : *y ? *y + 1 : 0);
}

/* In order, and none beneath another. */
static void paths_sort(struct restoring *g)
{
	size_t n = 0, len;

	if (!g->n_paths)
		return;
	qsort(g->paths, g->n_paths, sizeof(*g->paths), by_path);
	for (size_t i = 1; i < g->n_paths; i++) {
		len = strlen(g->paths[n]);
		if (strncmp(g->paths[i], g->paths[n], len) == 0 &&
		    (g->paths[i][len] == '/' || !g->paths[i][len]))
			free(g->paths[i]);
		else
			g->paths[++n] = g->paths[i];
	}
	g->n_paths = n + 1;
}

/* False: answered. */
static bool take_paths(struct restoring *g)
{
	const json_t *given = json_object_get(g->call->params, "paths");
	char **v = call_strv(g->call, "paths");
	size_t n = json_array_size(given);
	bool whole = false;

	for (size_t i = 0; v && v[i]; i++)
		n = i + 1;
	if (given && (!json_is_array(given) || !v || n > PATHS_MAX)) {
		call_fail(g->call, "usage", g->env->name, "limb help restore",
			  "paths is a list of at most %d paths", PATHS_MAX);
		call_strv_free(v);
		return false;
	}
	g->paths = n ? calloc(n, sizeof(*g->paths)) : NULL;
	for (size_t i = 0; g->paths && i < n; i++) {
		char *path = verb_path(g->call, g->env, v[i]);

		if (!path) {
			call_strv_free(v);
			return false;
		}
		whole = whole || !*path;
		g->paths[g->n_paths++] = path;
	}
	call_strv_free(v);
	if (whole) {
		for (size_t i = 0; i < g->n_paths; i++)
			free(g->paths[i]);
		free(g->paths);
		g->paths = NULL;
		g->n_paths = 0;
	}
	paths_sort(g);
	return true;
}

static void cancel(struct call *call)
{
	struct restoring *g = call->op;

	g->cancelled = true;
}

static void restore_drained(struct call *call)
{
	struct env *env = verb_live_env(call);
	struct restoring *g;
	uint64_t at;
	int r;

	if (!env)
		return;
	if (!call_str(call, "at")) {
		call_fail(call, "usage", env->name, "limb points NAME",
			  "restore wants the point to go back to: --at POINT");
		return;
	}
	if (!point_of_call(call, env, "at", &at))
		return;
	if (env->restore || env->busy || env->migration) {
		call_fail_with(call, "conflict", json_pack("{s:i}", "retry_after_ms", 1000),
			       env->name, "limb status",
			       "environment '%s' is being %s; try again when that is over",
			       env->name, env->restore ? "restored" : "moved or started");
		return;
	}
	g = calloc(1, sizeof(*g));
	if (!g) {
		call_fail(call, "internal", env->name, NULL, "out of memory");
		return;
	}
	g->call = call;
	g->env = env;
	g->at = at;
	g->dry_run = call_bool(call, "dry_run");
	g->changes = json_array();
	g->told = json_object();
	buf_init(&g->frames, 4 << 20);
	(void)uv_timer_init(env->brain->loop, &g->pause);
	g->pause_made = true;
	if (!take_paths(g)) {
		restoring_free(g);
		return;
	}
	env->restore = g;
	env->applying[ORIGIN_RESTORE_]++;
	call->op = g;
	call->on_cancel = cancel;
	r = barrier_run_past(env, SYNC_MS, begin_synced, g);
	if (r < 0)
		fail_errno(g, r, "it cannot be synced");
}

/* What was written in the view comes before it: it is not to arrive in what was restored. */
void verb_restore(struct call *call)
{
	struct env *env = verb_live_env(call);

	if (!env)
		return;
	if (call_str(call, "at"))
		accept_applied_first(call, env, restore_drained);
	else
		restore_drained(call); /* says so */
}
