/* Coming back by itself, start, stop. */
#include "brain/life-impl.h"

#include "base/log.h"
#include "brain/barrier.h"
#include "brain/job.h"
#include "brain/link.h"
#include "brain/migrate.h"
#include "brain/provider.h"
#include "brain/state.h"
#include "brain/verb.h"
#include "brain/view.h"
#include "wire/wire.pb-c.h"

enum { PAUSE_MS = 15000 };

enum { STOP_JOBS_MS = 8000, STOP_TICK_MS = 10 };

/* ---- coming back by itself ---- */

/* Where this machine can see it: a provider elsewhere leaves that to limb-syncd's HELLO. */
static bool root_is_gone(const struct env *env)
{
	return env->host_root && access(env->host_root, F_OK) < 0 && errno == ENOENT;
}

static void revive_started(struct life *l, const struct provider_error *err)
{
	struct env *env = l->env;

	if (err) {
		log_warning("environment '%s' cannot be started: %s", env->name, err->detail);
		(void)env_set_reason(env, "process_died", "%s", err->detail);
	}
	life_done(l, NULL);
	if (err && root_is_gone(env)) {
		jobs_lost(env);
		env_root_gone(env);
		env_halt(env, "root_missing",
			 "its root '%s' is gone; its journal has all that was durable: "
			 "run: limb rebuild %s",
			 env->host_root, env->name);
		return;
	}
	if (err) {
		link_lost(env, "cannot start");
		return;
	}
	attach_expect(env, "restart", false, false);
	(void)link_start(env);
}

static void revive_status(struct env *env, const struct provider_error *err, json_t *answer,
			  void *userdata)
{
	struct life *l = userdata;
	const char *status = json_string_value(json_object_get(answer, "status"));

	/* A machine that does not answer is no sandbox that has died: nothing is to be started. */
	if (err &&
	    (strcmp(err->code, "env_unreachable") == 0 || strcmp(err->code, "timed_out") == 0)) {
		(void)env_set_reason(env, "line_down",
				     "%s; what runs there goes on; limbd tries again by itself",
				     err->detail);
		life_done(l, NULL);
		link_lost(env, err->detail);
		return;
	}
	env->lost = !err && status && strcmp(status, "NotFound") == 0;
	if (!err && status && (strcmp(status, "Running") == 0 || strcmp(status, "Busy") == 0)) {
		env->init_pid = (int)json_integer_value(json_object_get(answer, "init_pid"));
		life_done(l, NULL);
		(void)link_start(env);
		return;
	}
	/* Its jobs may outlive limb-syncd: JOB_LIST after WELCOME says which did. */
	life_provider_start(l, revive_started);
}

static void revive_fail(struct life *l)
{
	struct env *env = l->env;

	life_done(l, NULL);
	link_lost(env, "cannot run its provider");
}

static void revive_ask(struct life *l)
{
	if (provider_run(l->env, "status", NULL, 10000, revive_status, l) < 0)
		revive_fail(l);
}

/* What isolates it is the provider's to say, each time anew. */
static void revive_info(struct env *env, const struct provider_error *err, json_t *answer,
			void *userdata)
{
	if (!err)
		life_take_info(env, answer);
	revive_ask(userdata);
}

void life_revive(struct env *env)
{
	struct life *l = env->life;

	if (!env->wanted || env->link || env->halted || env->hostile || env->n_deferred)
		return;
	if (env->busy) {
		/* Somebody waits for just this line. */
		if (l && l->attached)
			(void)link_start(env);
		return;
	}
	/* A network's lines fall more often than what is at their end: one call, not two. */
	if (env->network && env->was_up) {
		env->was_up = false;
		(void)link_start(env);
		return;
	}
	l = life_new(env, NULL, "start");
	if (!l)
		return;
	if (env->isolation)
		revive_ask(l);
	else if (provider_run(env, "info", NULL, 10000, revive_info, l) < 0)
		revive_fail(l);
}

/* ---- start ---- */

static json_t *state_json(struct env *env)
{
	return json_pack("{s:s, s:s, s:I}", "environment", env->name, "state",
			 env_state_name(env_state(env)), "incarnation",
			 (json_int_t)env->incarnation);
}

static void start_over(struct life *l)
{
	life_done(l, state_json(l->env));
}

static void start_attached(struct life *l, enum attach_mode mode)
{
	(void)mode;
	life_end_timer(l, start_over);
}

static void start_late_over(struct life *l)
{
	struct call *call = take_ptr(&l->call);
	struct env *env = l->env;

	life_done(l, NULL);
	call_fail(call, "env_unreachable", env->name, "limb status",
		  "environment '%s' was started but its limb-syncd does not answer; limbd goes on "
		  "trying",
		  env->name);
}

static void start_late(struct life *l)
{
	life_end_timer(l, start_late_over);
}

static void start_started(struct life *l, const struct provider_error *err)
{
	struct env *env = l->env;

	if (err) {
		struct call *call = take_ptr(&l->call);

		life_done(l, NULL);
		call_fail(call, err->code, env->name, NULL,
			  "environment '%s' cannot be started: %s", env->name, err->detail);
		return;
	}
	(void)env_save(env);
	life_attach(l, "restart", false, false, start_attached, start_late);
}

void life_start(struct call *call)
{
	struct env *env = life_env(call, false);
	struct life *l;

	if (!env)
		return;
	if (link_up(env)) {
		call_ok(call, state_json(env));
		return;
	}
	link_stop(env, "start");
	env->wanted = true;
	env->hostile = env->halted = false;
	env->paused = env->frozen = false; /* its processes are new ones */
	env_clear_reason(env, NULL);
	l = life_new(env, call, "start");
	if (!l) {
		call_fail(call, "internal", env->name, NULL, "out of memory");
		return;
	}
	life_provider_start(l, start_started);
}

/* ---- stop ---- */

static void stop_stopped(struct life *l, const struct provider_error *err)
{
	struct env *env = l->env;

	/* Of what was killed with it nobody has said how it ended. */
	if (!err)
		jobs_lost(env);
	if (err) {
		struct call *call = take_ptr(&l->call);
		void (*then)(struct env *, void *) = l->then;
		void *userdata = l->then_userdata;

		life_done(l, NULL);
		if (call) {
			call_fail(call, err->code, env->name, NULL,
				  "environment '%s' cannot be stopped: %s", env->name, err->detail);
			return;
		}
		log_warning("environment '%s' cannot be stopped: %s", env->name, err->detail);
		env->wanted = true; /* as its env.json says */
		then(env, userdata);
		return;
	}
	(void)env_save(env);
	view_set_stale(env, true);
	if (l->call) {
		life_done(l, state_json(env));
	} else {
		void (*then)(struct env *, void *) = l->then;
		void *userdata = l->then_userdata;

		life_done(l, NULL);
		then(env, userdata);
	}
}

static void stop_synced(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct life *l = userdata;

	(void)res; /* what could be had was had; the journal keeps that */
	env->wanted = env->paused = env->frozen = false;
	link_stop(env, "stop");
	life_provider_stop(l, "stop", stop_stopped);
}

static void stop_sync(struct life *l)
{
	struct barrier_result none = {.r = -ENOTCONN};

	if (barrier_run(l->env, 10000, stop_synced, l) < 0)
		stop_synced(l->env, &none, l);
}

static void stop_jobs_tick(uv_timer_t *t)
{
	struct life *l = container_of(t, struct life, timer);

	if (jobs_running_in(l->env) == 0 || !link_up(l->env) || life_ms(l) > STOP_JOBS_MS)
		life_end_timer(l, stop_sync);
}

/* Its jobs end first, while they can still say how. */
static void stop_jobs(struct life *l)
{
	jobs_kill(l->env);
	if (jobs_running_in(l->env) == 0 || !link_up(l->env)) {
		stop_sync(l);
		return;
	}
	(void)uv_timer_init(l->env->brain->loop, &l->timer);
	l->timer_made = true;
	(void)uv_timer_start(&l->timer, stop_jobs_tick, STOP_TICK_MS, STOP_TICK_MS);
}

void life_stop(struct call *call)
{
	struct env *env = life_env(call, false);
	struct life *l;

	if (!env)
		return;
	l = life_new(env, call, "stop");
	if (!l) {
		call_fail(call, "internal", env->name, NULL, "out of memory");
		return;
	}
	stop_jobs(l);
}

int life_stop_quietly(struct env *env, void (*then)(struct env *, void *), void *userdata)
{
	struct life *l;

	if (env->busy)
		return -EBUSY;
	l = life_new(env, NULL, "stop");
	if (!l)
		return -ENOMEM;
	l->then = then;
	l->then_userdata = userdata;
	stop_jobs(l);
	return 0;
}

/* ---- pause, resume ---- */

/* What could not be frozen is not called paused; what is frozen late goes on. */
static void pause_failed(struct env *env, const char *verb)
{
	if (strcmp(verb, "pause") != 0)
		return;
	env->paused = false;
	(void)env_save(env);
	migrate_thaw(env);
}

static void pause_answered(struct env *env, int r, const struct entry_head *e, void *userdata)
{
	struct call *call = userdata;
	const char *verb = call->verb->name;
	int error = r < 0 ? -r : ((const struct entry_done *)e)->error;

	if (error && error != ESRCH) {
		pause_failed(env, verb);
		call_fail(call, life_code(-error), env->name, NULL,
			  "environment '%s' cannot be %sd: %s", env->name, verb, strerror(error));
		return;
	}
	if (strcmp(verb, "resume") == 0) {
		env->paused = env->frozen = false;
		(void)env_save(env);
	}
	call_ok(call, state_json(env));
}

static void pause_or_resume(struct call *call, bool pause)
{
	struct env *env = life_env(call, false);
	Limbwire__Freeze m = LIMBWIRE__FREEZE__INIT;
	int r = 0;

	if (!env || !verb_attached_env(call))
		return;
	if (env->paused == pause) {
		call_ok(call, state_json(env));
		return;
	}
	if (pause) {
		env->paused = env->frozen = true;
		r = env_save(env);
	}
	if (r == 0)
		r = link_expect(env, ENTRY_DONE, PAUSE_MS, pause_answered, call, &m.request);
	if (r == 0) {
		m.thaw = !pause;
		r = link_send(env, WIRE_FREEZE, &m.base, NULL, 0);
		if (r < 0)
			link_forget(env, m.request);
	}
	if (r < 0) {
		pause_failed(env, call->verb->name);
		call_fail(call, life_code(r), env->name, NULL, "environment '%s' cannot be %s: %s",
			  env->name, pause ? "paused" : "resumed", strerror(-r));
	}
}

void life_pause(struct call *call)
{
	pause_or_resume(call, true);
}

void life_resume(struct call *call)
{
	pause_or_resume(call, false);
}
