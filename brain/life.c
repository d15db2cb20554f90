/* Start, stop, remove, revive; life-create.c and life-rebuild.c have the long ones. */
#include "brain/life-impl.h"

#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "brain/barrier.h"
#include "brain/commit.h"
#include "brain/job.h"
#include "brain/link.h"
#include "brain/provider.h"
#include "brain/state.h"
#include "brain/view.h"

/* ---- what all of them share ---- */

struct life *life_new(struct env *env, struct call *call, const char *verb)
{
	struct life *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->env = env;
	l->call = call;
	l->verb = verb;
	l->begun_ms = clock_mono_ms();
	l->previous = env->incarnation;
	env->busy = true;
	env->life = l;
	return l;
}

void life_done(struct life *l, json_t *result)
{
	struct env *env = l->env;

	if (env) {
		env->busy = false;
		env->life = NULL;
	}
	if (l->call && result)
		call_ok(l->call, result);
	else
		json_decref(result);
	life_free(l);
}

void life_free(struct life *l)
{
	json_decref(l->answer);
	free(l->old_root);
	free(l);
}

uint64_t life_ms(const struct life *l)
{
	return clock_mono_ms() - l->begun_ms;
}

const char *life_code(int r)
{
	switch (-r) {
	case ETIMEDOUT: return "timed_out";
	case ENOSPC:
	case EDQUOT: return "no_space";
	case ENOTCONN: return "env_unreachable";
	case EACCES:
	case EPERM: return "permission_denied";
	default: return "io_error";
	}
}

struct env *life_env(struct call *call, bool may_be_busy)
{
	const char *name = call_str(call, "name");
	struct env *env = name ? env_find(call->brain, name) : NULL;

	if (!name) {
		call_fail(call, "usage", NULL, "limb help", "the environment's name is missing");
		return NULL;
	}
	if (!env) {
		call_fail(call, "environment_not_found", name, "limb ls",
			  "there is no environment '%s'", name);
		return NULL;
	}
	if (!env->log && strcmp(call->verb->name, "rm") != 0) {
		call_fail(call, "halted", name, "limb journal verify NAME", "environment '%s': %s",
			  name,
			  env->n_reasons ? env->reasons[0].detail : "its journal cannot be opened");
		return NULL;
	}
	if (env->busy && !may_be_busy) {
		call_fail_with(
			call, "conflict", json_pack("{s:i}", "retry_after_ms", 1000), name,
			"limb status",
			"environment '%s' is busy with another %s; try again when that is over",
			name, env->life ? ((struct life *)env->life)->verb : "operation");
		return NULL;
	}
	return env;
}

/* ---- the provider's create and start, for create, rebuild, start, revive ---- */

static char *answer_str(json_t *o, const char *key, const char *def)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? strdup(s) : def ? strdup(def) : NULL;
}

static void take(char **to, char *value)
{
	free(*to);
	*to = value;
}

static void on_started(struct env *env, const struct provider_error *err, json_t *answer,
		       void *userdata)
{
	struct life *l = userdata;

	if (err) {
		l->next(l, err);
		return;
	}
	env->init_pid = (int)json_integer_value(json_object_get(answer, "init_pid"));
	env->lost = false;
	l->next(l, NULL);
}

void life_provider_start(struct life *l, life_next_fn next)
{
	struct provider_error err = {"io_error", "cannot run its provider", NULL};

	l->next = next;
	if (provider_run(l->env, "start", NULL, 30000, on_started, l) < 0)
		next(l, &err);
}

static void on_created(struct env *env, const struct provider_error *err, json_t *answer,
		       void *userdata)
{
	struct life *l = userdata;
	cleanup_free char *hands = NULL;

	if (err) {
		l->next(l, err);
		return;
	}
	if (asprintf(&hands, "%s/hands", env->dir) < 0)
		hands = NULL;
	take(&env->handle, answer_str(answer, "handle", env->id_hex));
	take(&env->root, answer_str(answer, "root", NULL));
	take(&env->host_root, answer_str(answer, "host_root", NULL));
	take(&env->inner_dir, answer_str(answer, "dir", hands));
	take(&env->inner_syncd, answer_str(answer, "syncd", env->brain->syncd_path));
	if (!env->root) {
		struct provider_error e = {"io_error",
					   "its provider answered `create` without a root", NULL};

		l->next(l, &e);
		return;
	}
	(void)env_save(env);
	life_provider_start(l, l->next);
}

static void on_info(struct env *env, const struct provider_error *err, json_t *answer,
		    void *userdata)
{
	struct life *l = userdata;
	struct provider_error fail = {"io_error", "cannot run its provider", NULL};

	if (err) {
		l->next(l, err);
		return;
	}
	json_decref(env->isolation);
	env->isolation = json_incref(json_object_get(answer, "isolation"));
	if (provider_run(env, "create", NULL, 30000, on_created, l) < 0)
		l->next(l, &fail);
}

void life_provider_create(struct life *l, life_next_fn next)
{
	struct provider_error err = {"io_error",
				     "cannot run its provider; `limb create` knows local, bwrap, "
				     "or the path of an executable",
				     NULL};

	l->next = next;
	if (provider_run(l->env, "info", NULL, 10000, on_info, l) < 0)
		next(l, &err);
}

static void on_stopped(struct env *env, const struct provider_error *err, json_t *answer,
		       void *userdata)
{
	struct life *l = userdata;

	(void)answer;
	env->init_pid = 0;
	l->next(l, err);
}

void life_provider_stop(struct life *l, const char *verb, life_next_fn next)
{
	struct provider_error err = {"io_error", "cannot run its provider", NULL};

	l->next = next;
	if (provider_run(l->env, verb, NULL, 30000, on_stopped, l) < 0)
		next(l, &err);
}

/* ---- attaching, with somebody who waits for it ---- */

void life_attached(struct env *env, enum attach_mode mode)
{
	struct life *l = env->life;

	env->next_why = NULL;
	env->next_fresh = env->next_restoring = false;
	env->has_status = false;
	view_set_stale(env, false);
	if (l && l->attached) {
		void (*fn)(struct life *, enum attach_mode) = l->attached;

		l->attached = NULL;
		(void)uv_timer_stop(&l->timer);
		fn(l, mode);
		return;
	}
	if (env->creating && !env->busy && mode == ATTACH_SYNC)
		life_finish_create(env);
}

void life_status(struct env *env)
{
	struct life *l = env->life;

	if (l && l->on_status)
		l->on_status(l);
}

static void attach_timer_closed(uv_handle_t *h)
{
	struct life *l = container_of((uv_timer_t *)h, struct life, timer);

	l->timer_made = false;
	if (l->after_timer)
		l->after_timer(l);
}

void life_end_timer(struct life *l, void (*then)(struct life *))
{
	l->after_timer = then;
	if (!l->timer_made) {
		then(l);
		return;
	}
	if (!uv_is_closing((uv_handle_t *)&l->timer))
		uv_close((uv_handle_t *)&l->timer, attach_timer_closed);
}

static void attach_late(uv_timer_t *t)
{
	struct life *l = container_of(t, struct life, timer);

	l->attached = NULL;
	l->late(l);
}

void life_attach(struct life *l, const char *why, bool fresh, bool restoring,
		 void (*attached)(struct life *, enum attach_mode), void (*late)(struct life *))
{
	struct env *env = l->env;

	env->wanted = true;
	env->hostile = false;
	env->attach_failures = 0;
	l->attached = attached;
	l->late = late;
	if (!l->timer_made) {
		(void)uv_timer_init(env->brain->loop, &l->timer);
		l->timer_made = true;
	}
	(void)uv_timer_start(&l->timer, attach_late, LIFE_ATTACH_MS, 0);
	if (why)
		attach_expect(env, why, fresh, restoring);
	(void)link_start(env);
}

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
		env->halted = true;
		env_clear_reason(env, "process_died");
		(void)env_set_reason(env, "root_missing",
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

	env->lost = !err && status && strcmp(status, "NotFound") == 0;
	if (!err && status && (strcmp(status, "Running") == 0 || strcmp(status, "Busy") == 0)) {
		env->init_pid = (int)json_integer_value(json_object_get(answer, "init_pid"));
		life_done(l, NULL);
		(void)link_start(env);
		return;
	}
	jobs_lost(env);
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
		env->isolation = json_incref(json_object_get(answer, "isolation"));
	revive_ask(userdata);
}

void life_revive(struct env *env)
{
	struct life *l = env->life;

	if (!env->wanted || env->link || env->halted)
		return;
	if (env->busy) {
		/* Somebody waits for just this line. */
		if (l && l->attached)
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

	if (err) {
		struct call *call = take_ptr(&l->call);

		life_done(l, NULL);
		call_fail(call, err->code, env->name, NULL,
			  "environment '%s' cannot be stopped: %s", env->name, err->detail);
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
	env->wanted = false;
	link_stop(env, "stop");
	life_provider_stop(l, "stop", stop_stopped);
}

void life_stop(struct call *call)
{
	struct env *env = life_env(call, false);
	struct barrier_result none = {.r = -ENOTCONN};
	struct life *l;

	if (!env)
		return;
	l = life_new(env, call, "stop");
	if (!l) {
		call_fail(call, "internal", env->name, NULL, "out of memory");
		return;
	}
	if (barrier_run(env, 10000, stop_synced, l) < 0)
		stop_synced(env, &none, l);
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
	stop_synced(env, NULL, l);
	return 0;
}

/* ---- remove ---- */

struct removal {
	uv_work_t work;
	int dir;
	char name[128];
};

static void removal_work(uv_work_t *w)
{
	struct removal *rm = container_of(w, struct removal, work);

	(void)file_remove_tree(rm->dir, rm->name);
}

static void removal_done(uv_work_t *w, int status)
{
	struct removal *rm = container_of(w, struct removal, work);

	(void)status;
	(void)close(rm->dir);
	free(rm);
}

void life_remove_later(struct brain *b, int dir, const char *name)
{
	struct removal *rm = calloc(1, sizeof(*rm));

	if (!rm)
		return;
	rm->dir = fcntl(dir, F_DUPFD_CLOEXEC, 3);
	(void)snprintf(rm->name, sizeof(rm->name), "%s", name);
	if (rm->dir < 0 || uv_queue_work(b->loop, &rm->work, removal_work, removal_done) < 0) {
		if (rm->dir >= 0)
			(void)close(rm->dir);
		free(rm);
	}
}

void life_discard(struct env *env, bool keep_journal)
{
	struct brain *b = env->brain;
	char name[64], gone[72];

	env->wanted = false;
	link_stop(env, "removed");
	view_stop(env);
	jobs_drop_env(env);
	if (env->retry_ready) {
		uv_close((uv_handle_t *)&env->retry, NULL);
		env->retry_ready = false;
	}
	env_link_out(env);
	(void)snprintf(name, sizeof(name), "%s", env->id_hex);
	if (keep_journal) {
		life_remove_later(b, env->dir_fd, "root");
		life_remove_later(b, env->dir_fd, "hands");
	} else {
		(void)snprintf(gone, sizeof(gone), "%s.gone", name);
		if (renameat(b->envs_fd, name, b->envs_fd, gone) == 0)
			life_remove_later(b, b->envs_fd, gone);
	}
	env_free_later(env);
}

void life_forget_unmade(struct env *env)
{
	log_warning("environment '%s' was never finished; it is removed", env->name);
	if (state_record_env(env->brain, env, "removed") == 0)
		life_discard(env, false);
}

static void remove_recorded(struct life *l)
{
	struct env *env = l->env;
	struct brain *b = env->brain;
	struct call *call = take_ptr(&l->call);
	json_t *result = json_pack("{s:s, s:b, s:b}", "environment", env->name, "removed", 1,
				   "journal_kept", l->keep_journal);
	int r;

	r = state_record_env(b, env, l->keep_journal ? "kept" : "removed");
	if (r < 0) {
		json_decref(result);
		life_done(l, NULL);
		call_fail(call, life_code(r), env->name, NULL,
			  "cannot record the removal of '%s': %s", env->name, strerror(-r));
		return;
	}
	l->env = NULL;
	env->busy = false;
	env->life = NULL;
	life_discard(env, l->keep_journal);
	life_free(l);
	call_ok(call, result);
}

static void remove_deleted(struct life *l, const struct provider_error *err)
{
	struct env *env = l->env;

	if (err && !l->force) {
		struct call *call = take_ptr(&l->call);

		life_done(l, NULL);
		call_fail(call, err->code, env->name, "limb rm NAME --force",
			  "the sandbox of '%s' cannot be removed: %s", env->name, err->detail);
		return;
	}
	remove_recorded(l);
}

static void remove_synced(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct life *l = userdata;

	if (res->r < 0 && !l->force && env->wanted) {
		struct call *call = take_ptr(&l->call);

		life_done(l, NULL);
		call_fail(call, "unsynced", env->name, "limb rm NAME --force",
			  "environment '%s' cannot be synced before its removal (%s): what it "
			  "changed last "
			  "may be nowhere else",
			  env->name, strerror(-res->r));
		return;
	}
	env->wanted = false;
	link_stop(env, "removed");
	life_provider_stop(l, "delete", remove_deleted);
}

void life_remove(struct call *call)
{
	struct env *env = life_env(call, false);
	struct barrier_result none = {.r = -ENOTCONN};
	struct life *l;

	if (!env)
		return;
	l = life_new(env, call, "rm");
	if (!l) {
		call_fail(call, "internal", env->name, NULL, "out of memory");
		return;
	}
	l->force = call_bool(call, "force");
	l->keep_journal = call_bool(call, "keep_journal");
	if (barrier_run(env, 10000, remove_synced, l) < 0)
		remove_synced(env, &none, l);
}
