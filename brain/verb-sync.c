/* sync, verify, accept, trust, ps, mv, rm FILE: verbs that ask the environment. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "brain/accept.h"
#include "brain/barrier.h"
#include "brain/commit.h"
#include "brain/env.h"
#include "brain/life.h"
#include "brain/link.h"
#include "brain/migrate.h"
#include "brain/point.h"
#include "brain/verb.h"
#include "brain/verify.h"
#include "brain/view.h"
#include "brain/want.h"
#include "brain/warned.h"
#include "wire/wire.pb-c.h"

enum {
	SYNC_MS = 60000,
	ASK_MS = 30000,
};

struct ask {
	struct call *call;
	uint64_t begun_ms;
	char *path;
	char *to;	   /* mv */
	const char *fails; /* what is said of the path when it is refused */
	size_t files;
	struct env *applying; /* counted there */
};

static struct ask *ask_new(struct call *call)
{
	struct ask *a = calloc(1, sizeof(*a));

	if (a) {
		a->call = call;
		a->begun_ms = clock_mono_ms();
	} else {
		call_fail(call, "internal", NULL, NULL, "out of memory");
	}
	return a;
}

static void ask_free(struct ask *a)
{
	if (a->applying)
		a->applying->applying[ORIGIN_BRAIN_]--;
	free(a->path);
	free(a->to);
	free(a);
}

static void ask_applies(struct ask *a, struct env *env, Limbwire__Apply *m)
{
	m->origin = LIMB__ORIGIN__ORIGIN_BRAIN;
	m->deadline_ms = ASK_MS - 1000;
	a->applying = env;
	env->applying[ORIGIN_BRAIN_]++;
}

static void ask_fail(struct ask *a, struct env *env, int r, const char *what)
{
	verb_fail_errno(a->call, env, r, what);
	ask_free(a);
}

/* The environment, or what waits for it, says no to a path. */
static void ask_refused(struct ask *a, struct env *env, int r)
{
	char from[256], to[256];

	(void)text_escape_into(from, sizeof(from), a->path, strlen(a->path));
	if (a->to && (r == -ENOENT || r == -ENOTDIR))
		call_fail(a->call, verb_code(r), env->name,
			  "limb ls NAME:", "environment '%s' has no '%s', or no directory for '%s'",
			  env->name, from, text_escape_into(to, sizeof(to), a->to, strlen(a->to)));
	else if (!a->files && r == -ENOENT)
		call_fail(a->call, "file_not_found", env->name, "limb status NAME",
			  "environment '%s' waits for no word about '%s'", env->name, from);
	else
		verb_fail_path(a->call, env, r, a->path, a->fails);
	ask_free(a);
}

/* ---- sync ---- */

struct synced {
	struct ask *ask;
	struct env *env;
	struct barrier_result res;
	bool consistent;
};

static void sync_answer(const struct synced *s)
{
	struct ask *a = s->ask;
	json_t *o = json_pack("{s:s, s:I, s:I, s:b, s:I}", "environment", s->env->name,
			      "incarnation", (json_int_t)s->env->incarnation, "seq",
			      (json_int_t)s->res.seq, "consistent", s->consistent, "duration_ms",
			      (json_int_t)(clock_mono_ms() - a->begun_ms));

	if (s->res.view_behind)
		(void)json_object_set_new(o, "mounts_behind", json_pack("[s]", view_path(s->env)));
	call_ok(a->call, o);
	ask_free(a);
}

static void sync_pointed(int r, uint64_t seq, void *userdata)
{
	struct synced *s = userdata;

	if (r < 0) {
		ask_fail(s->ask, s->env, r, "its consistent point cannot be recorded");
	} else {
		s->env->synced_point = seq;
		sync_answer(s);
	}
	free(s);
}

/* Where nothing was changing is a point to go back to, unless nothing has come since the last. */
static int sync_point(const struct synced *s)
{
	struct synced *later = malloc(sizeof(*later));
	int r;

	if (!later)
		return -ENOMEM;
	*later = *s;
	r = point_record(s->env, "", "sync", s->res.seq, true, sync_pointed, later);
	if (r < 0)
		free(later);
	return r;
}

static void sync_done(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct ask *a = userdata;
	bool frozen = call_bool(a->call, "freeze");
	struct synced s = {a, env, *res, res->consistent || frozen};
	int r = res->r;

	if (frozen && res->r == 0) {
		env->frozen = false;
		(void)env_save(env);
	} else if (frozen) {
		migrate_thaw(env);
	}
	if (r == 0 && s.consistent && res->seq > env->synced_point)
		r = sync_point(&s);
	else if (r == 0)
		sync_answer(&s);
	if (r < 0)
		ask_fail(a, env, r, "it cannot be synced");
}

static void sync_drained(struct call *call)
{
	struct env *env = verb_live_env(call);
	struct ask *a;
	int64_t ms;
	int r;

	if (!env)
		return;
	if (call_bool(call, "freeze") && (env->busy || env->frozen)) {
		call_fail_with(call, "conflict", json_pack("{s:i}", "retry_after_ms", 1000),
			       env->name, "limb status",
			       "environment '%s' is %s; sync it without --freeze, or try again",
			       env->name, env->paused ? "paused" : "busy");
		return;
	}
	ms = call_int(call, "timeout_ms", SYNC_MS);
	a = ask_new(call);
	if (!a)
		return;
	if (!call_bool(call, "freeze")) {
		r = barrier_run(env, (uint64_t)MAX((int64_t)1, ms), sync_done, a);
	} else {
		/* Whoever dies meanwhile: the next WELCOME lets its processes go on. */
		env->frozen = true;
		r = env_save(env);
		if (r == 0)
			r = barrier_run_frozen(env, (uint64_t)MAX((int64_t)1, ms), sync_done, a);
		if (r < 0)
			migrate_thaw(env);
	}
	if (r < 0)
		ask_fail(a, env, r, "it cannot be synced");
}

/* What was written in the view is a part of everything. */
void verb_sync(struct call *call)
{
	struct env *env = verb_live_env(call);

	if (env)
		accept_applied_first(call, env, sync_drained);
}

/* ---- verify ---- */

static void verify_done(struct env *env, int r, json_t *result, void *userdata)
{
	const char *path = json_string_value(result);
	struct ask *a = userdata;
	char shown[300];

	if (r < 0 && path) {
		call_fail(a->call, "file_not_found", env->name,
			  "limb ls NAME:", "environment '%s': neither side has '%s'", env->name,
			  text_escape_into(shown, sizeof(shown), path, strlen(path)));
		ask_free(a);
		return;
	}
	if (r < 0) {
		ask_fail(a, env, r, verify_what(r, "it cannot be verified"));
		return;
	}
	call_ok(a->call, json_incref(result));
	ask_free(a);
}

/* --paths: as components below the root. False: answered. */
static bool verify_paths(struct call *call, struct env *env, json_t **ret)
{
	const json_t *o, *given = json_object_get(call->params, "paths");
	json_t *paths;
	size_t i;

	*ret = NULL;
	if (!given)
		return true;
	paths = json_array();
	json_array_foreach(given, i, o)
	{
		char *path = NULL;

		if (json_is_string(o))
			path = verb_path(call, env, json_string_value(o));
		else
			call_fail(call, "usage", env->name, "limb help verify",
				  "a path of --paths is no text");
		if (!path) {
			json_decref(paths);
			return false;
		}
		/* Bytes that are no UTF-8 are kept as they are: only this program looks at them. */
		(void)json_array_append_new(paths, json_stringn_nocheck(path, strlen(path)));
		free(path);
	}
	*ret = paths;
	return true;
}

void verb_verify(struct call *call)
{
	struct env *env = verb_live_env(call);
	json_t *paths = NULL;
	struct ask *a;
	int r;

	if (!env || !verify_paths(call, env, &paths))
		return;
	a = ask_new(call);
	if (a) {
		r = verify_run(env, false, paths, verify_done, a);
		if (r < 0)
			ask_fail(a, env, r, "it cannot be verified");
	}
	json_decref(paths);
}
/* ---- requests with a DONE for an answer, then durable ---- */

static void done_durable(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct ask *a = userdata;
	json_t *o;

	if (res->r < 0) {
		ask_fail(a, env, res->r, "it was done there, but cannot be synced");
		return;
	}
	o = json_pack("{s:s, s:I}", "environment", env->name, "seq", (json_int_t)res->seq);
	if (a->path)
		verb_put_bytes(o, "path", a->path, strlen(a->path));
	if (a->files) {
		(void)json_object_set_new(o, "files", json_integer((json_int_t)a->files));
		(void)json_object_set_new(o, "bytes", json_integer(0));
	}
	call_ok(a->call, o);
	ask_free(a);
}

static void done_answered(struct env *env, int r, const struct entry_head *e, void *userdata)
{
	const struct entry_done *d = (const struct entry_done *)e;
	struct ask *a = userdata;

	if (r == 0 && d->error) {
		ask_refused(a, env, -d->error);
		return;
	}
	if (r == 0)
		r = barrier_run_past(env, SYNC_MS, done_durable, a);
	if (r < 0)
		ask_refused(a, env, r);
}

static void ask_send(struct ask *a, struct env *env, enum wire_type type, ProtobufCMessage *m,
		     uint64_t *request)
{
	int r = link_expect(env, ENTRY_DONE, ASK_MS, done_answered, a, request);

	if (r == 0) {
		r = link_send(env, type, m, NULL, 0);
		if (r < 0)
			link_forget(env, *request);
	}
	if (r < 0)
		ask_fail(a, env, r, "it cannot be asked");
}

void verb_accept(struct call *call)
{
	struct env *env = verb_env(call);
	Limbwire__Accept m = LIMBWIRE__ACCEPT__INIT;
	Limb__Record rec = LIMB__RECORD__INIT;
	Limb__Decision d = LIMB__DECISION__INIT;
	struct ask *a;
	char *path;

	if (!env)
		return;
	if (!link_up(env)) {
		(void)verb_live_env(call);
		return;
	}
	path = verb_path(call, env, call_str(call, "path") ? call_str(call, "path") : "");
	if (!path)
		return;
	a = ask_new(call);
	if (!a) {
		free(path);
		return;
	}
	a->path = path;
	a->fails = "cannot be accepted";
	m.path = (ProtobufCBinaryData){strlen(path), (uint8_t *)path};
	d.verb = (char *)"accept";
	d.path = m.path;
	rec.origin = LIMB__ORIGIN__ORIGIN_BRAIN;
	rec.body_case = LIMB__RECORD__BODY_DECISION;
	rec.decision = &d;
	(void)commit_submit(env, RECORD_DECISION, &rec, NULL, NULL);
	if (env->halted && !*path) {
		env->halted = false;
		env_clear_reason(env, NULL);
		attach_expect(env, "accept", true, false);
		link_lost(env, "accepted");
		ask_free(a);
		call_ok(call, json_pack("{s:s, s:s, s:I}", "environment", env->name, "path", "",
					"seq", (json_int_t)env_seq(env)));
		return;
	}
	ask_send(a, env, WIRE_ACCEPT, &m.base, &m.request);
}

/* ---- mv, rm of what waits for an environment that is away ---- */

static void ask_accepted(int r, uint64_t seq, void *userdata)
{
	struct ask *a = userdata;
	struct env *env = verb_env(a->call);

	if (env && r < 0) {
		ask_fail(a, env, r, "it cannot be kept for the environment");
		return;
	}
	if (env) {
		json_t *o = json_pack("{s:s, s:I, s:i, s:i, s:b}", "environment", env->name, "seq",
				      (json_int_t)seq, "files", 1, "bytes", 0, "pending", 1);

		verb_put_bytes(o, "path", a->path, strlen(a->path));
		call_ok(a->call, o);
	}
	ask_free(a);
}

static void ask_queued(struct ask *a, struct env *env, int r)
{
	if (r == -EALREADY)
		ask_accepted(0, env_seq(env), a);
	else if (r < 0)
		ask_refused(a, env, r);
}

/* Changes are queued for it: it is away, or others wait. */
static struct env *env_to_change(struct call *call, bool *ret_queue)
{
	struct env *env = verb_env(call);

	*ret_queue = env && (want_is_away(env) || (link_up(env) && !queue_is_empty(env)));
	return *ret_queue || !env ? env : verb_live_env(call);
}

void verb_mv(struct call *call)
{
	const char *src = call_str(call, "src"), *dst = call_str(call, "dst");
	bool queue;
	struct env *env = env_to_change(call, &queue);
	Limbwire__Apply m = LIMBWIRE__APPLY__INIT;
	char *from, *to;
	struct ask *a;

	if (!env)
		return;
	src = src && strchr(src, ':') ? strchr(src, ':') + 1 : src;
	dst = dst && strchr(dst, ':') ? strchr(dst, ':') + 1 : dst;
	if (!src || !dst) {
		call_fail(call, "usage", env->name, "limb help mv",
			  "mv wants two paths of one environment");
		return;
	}
	from = verb_path(call, env, src);
	if (!from)
		return;
	to = verb_path(call, env, dst);
	a = to ? ask_new(call) : NULL;
	if (!a) {
		free(from);
		free(to);
		return;
	}
	a->path = from;
	a->to = to;
	a->fails = "cannot be renamed";
	a->files = 1;
	if (queue) {
		ask_queued(a, env, want_move(env, from, to, ask_accepted, a));
		return;
	}
	m.kind = LIMBWIRE__APPLY__KIND__MOVE;
	m.path = (ProtobufCBinaryData){strlen(from), (uint8_t *)from};
	m.to_path = (ProtobufCBinaryData){strlen(to), (uint8_t *)to};
	ask_applies(a, env, &m);
	ask_send(a, env, WIRE_APPLY, &m.base, &m.request);
}

void verb_rm(struct call *call)
{
	Limbwire__Apply m = LIMBWIRE__APPLY__INIT;
	const char *path = call_str(call, "path");
	struct env *env;
	struct ask *a;
	char *clean;
	bool queue;

	if (!path) {
		life_remove(call);
		return;
	}
	env = env_to_change(call, &queue);
	clean = env ? verb_path(call, env, path) : NULL;
	if (!clean)
		return;
	if (!*clean) {
		free(clean);
		call_fail(call, "invalid_path", env->name, "limb rm NAME",
			  "that is the root of environment '%s'; to remove the environment: limb "
			  "rm %s",
			  env->name, env->name);
		return;
	}
	a = ask_new(call);
	if (!a) {
		free(clean);
		return;
	}
	a->path = clean;
	a->fails = "cannot be removed";
	a->files = 1;
	if (queue) {
		ask_queued(a, env, want_remove(env, clean, ask_accepted, a));
		return;
	}
	m.kind = LIMBWIRE__APPLY__KIND__REMOVE;
	m.path = (ProtobufCBinaryData){strlen(clean), (uint8_t *)clean};
	ask_applies(a, env, &m);
	ask_send(a, env, WIRE_APPLY, &m.base, &m.request);
}

/* ---- ps ---- */

static json_t *process_json(const struct entry_process *p, const char *argv)
{
	json_t *list = json_array(), *o;
	char when[CLOCK_TEXT_MAX];

	for (uint32_t at = 0; at < p->argv_len;) {
		size_t n = strnlen(argv + at, p->argv_len - at);
		_cleanup_(buf_done) struct buf b = BUF_INIT(0);

		if (text_utf8_replace(&b, argv + at, n) == 0)
			(void)json_array_append_new(
				list, json_stringn((const char *)buf_data(&b), buf_len(&b)));
		at += (uint32_t)n + 1;
	}
	o = json_pack("{s:i, s:i, s:o, s:s, s:I, s:s}", "pid", (int)p->pid, "ppid", (int)p->ppid,
		      "argv", list, "state", p->state, "memory_bytes", (json_int_t)p->memory_bytes,
		      "started_at", clock_format(when, p->started_ns));
	if (p->job[0])
		(void)json_object_set_new(o, "job_id", json_string(p->job));
	return o;
}

static void ps_answered(struct env *env, int r, const struct entry_head *e, void *userdata)
{
	struct ask *a = userdata;
	const struct entry_process *p;
	struct entry_cursor c;
	const char *argv;
	json_t *list;

	if (r < 0) {
		ask_fail(a, env, r, "its processes cannot be listed");
		return;
	}
	list = json_array();
	entry_cursor_init(&c, e);
	while (entry_next_process(&c, &p, &argv))
		(void)json_array_append_new(list, process_json(p, argv));
	call_ok(a->call, json_pack("{s:o}", "processes", list));
	ask_free(a);
}

void verb_ps(struct call *call)
{
	struct env *env = verb_env(call);
	Limbwire__Ps m = LIMBWIRE__PS__INIT;
	struct ask *a;
	int r;

	if (!env)
		return;
	if (!link_up(env)) {
		(void)verb_live_env(call);
		return;
	}
	a = ask_new(call);
	if (!a)
		return;
	r = link_expect(env, ENTRY_PS_DONE, ASK_MS, ps_answered, a, &m.request);
	if (r == 0)
		r = link_send(env, WIRE_PS, &m.base, NULL, 0);
	if (r < 0)
		ask_fail(a, env, r, "its processes cannot be listed");
}

/* ---- trust ---- */

static void trust_durable(int r, uint64_t seq, void *userdata)
{
	struct ask *a = userdata;
	struct env *env = verb_env(a->call);

	(void)seq;
	if (env && r < 0) {
		ask_fail(a, env, r, "the decision cannot be recorded");
		return;
	}
	if (env) {
		bool work = !call_bool(a->call, "off"), same = work == env->work_mode;

		env->work_mode = work;
		warned_clear(env); /* whoever decides has seen what was warned of */
		(void)env_save(env);
		if (!same) { /* else nobody's open files are lost for it */
			view_stop(env);
			view_start(env);
		}
		call_ok(a->call, json_pack("{s:s, s:s}", "environment", env->name, "mode",
					   env->work_mode ? "work" : "look"));
	}
	ask_free(a);
}

void verb_trust(struct call *call)
{
	struct env *env = verb_env(call);
	Limb__Record rec = LIMB__RECORD__INIT;
	Limb__Decision d = LIMB__DECISION__INIT;
	struct ask *a;
	int r;

	if (env && !env->log) {
		(void)verb_live_env(call);
		return;
	}
	a = env ? ask_new(call) : NULL;
	if (!a)
		return;
	d.verb = (char *)"trust";
	d.value = (char *)(call_bool(call, "off") ? "look" : "work");
	rec.origin = LIMB__ORIGIN__ORIGIN_BRAIN;
	rec.body_case = LIMB__RECORD__BODY_DECISION;
	rec.decision = &d;
	r = commit_submit(env, RECORD_DECISION, &rec, trust_durable, a);
	if (r < 0)
		ask_fail(a, env, r, "the decision cannot be recorded");
}
