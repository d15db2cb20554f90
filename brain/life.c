/* What every life has: its struct, its provider, its line, its deadline. */
#include "brain/life-impl.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"
#include "brain/link.h"
#include "brain/migrate.h"
#include "brain/provider.h"
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

/* ---- calls that come while limbd tries by itself to bring it back ---- */

static void deferred_go(uv_timer_t *t)
{
	struct brain *b = t->data;
	struct call *calls[ENV_DEFERRED_MAX];

	for (struct env *env = b->envs, *next; env; env = next) {
		size_t n = env->n_deferred;

		next = env->next;
		if (env->busy || !n)
			continue;
		env->n_deferred = 0;
		memcpy(calls, env->deferred, n * sizeof(*calls));
		link_retry(env);
		/* The first of them may remove it. */
		for (size_t i = 0; i < n; i++)
			calls[i]->verb->handler(calls[i]);
	}
}

static void deferred_soon(struct brain *b)
{
	static uv_timer_t timer;

	if (!timer.data) {
		(void)uv_timer_init(b->loop, &timer);
		timer.data = b;
	}
	(void)uv_timer_start(&timer, deferred_go, 0, 0);
}

bool life_defer(struct call *call, struct env *env)
{
	const struct life *l = env->life;

	if (!l || l->call || strcmp(l->verb, "start") != 0 || env->n_deferred == ENV_DEFERRED_MAX)
		return false;
	env->deferred[env->n_deferred++] = call;
	return true;
}

void life_fail_deferred(struct env *env)
{
	for (size_t i = 0; i < env->n_deferred; i++)
		call_fail(env->deferred[i], "environment_not_found", env->name, "limb ls",
			  "environment '%s' was removed meanwhile", env->name);
	env->n_deferred = 0;
}

void life_done(struct life *l, json_t *result)
{
	struct env *env = l->env;

	if (env) {
		env->busy = false;
		env->life = NULL;
		link_retry(env);
		if (env->n_deferred)
			deferred_soon(env->brain);
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
	case ENOSPC: return "no_space";
	case EDQUOT: return "quota_exceeded";
	case ENOTCONN: return "env_unreachable";
	case EACCES:
	case EPERM: return "permission_denied";
	default: return "io_error";
	}
}

const char *life_not_restored(const struct entry_restored *e, char *out, size_t size)
{
	bool full = e->error == ENOSPC || e->error == EDQUOT;
	char shown[256];

	(void)text_escape_into(shown, sizeof(shown), e + 1, e->detail_len);
	(void)snprintf(out, size,
		       full ? "%s: %s there; free space there, or choose another place" : "%s: %s",
		       shown, strerror(e->error));
	return out;
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
	if (env->busy && !may_be_busy && life_defer(call, env))
		return NULL;
	if (env->busy && !may_be_busy) {
		const struct life *l = env->life;
		bool create = l && strcmp(l->verb, "create") == 0;

		call_fail_with(call, "conflict", json_pack("{s:i}", "retry_after_ms", 1000), name,
			       create ? "limb rm NAME --force" : "limb status",
			       create ? "environment '%s' is not made yet, its %s is under way; "
					"try again when that is over, or give it up"
				      : "environment '%s' is busy with another %s; try again when "
					"that is over",
			       name, l ? l->verb : "operation");
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
	if (provider_run(l->env, "start", NULL, LIFE_PROVIDER_MS, on_started, l) < 0)
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
	hands = env_hands_dir(env);
	take(&env->handle, answer_str(answer, "handle", env->wire_hex));
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

static const char *answer_str_lent(json_t *o, const char *key, const char *def)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : def;
}

void life_take_info(struct env *env, json_t *info)
{
	json_decref(env->isolation);
	env->isolation = json_incref(json_object_get(info, "isolation"));
	json_decref(env->enforces);
	env->enforces = json_incref(json_object_get(info, "enforces"));
	json_decref(env->defaults);
	env->defaults = json_incref(json_object_get(info, "limits"));
	env->network = strcmp(answer_str_lent(info, "transport", "pipe"), "network") == 0;
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
	life_take_info(env, answer);
	if (strcmp(answer_str_lent(answer, "roots", "here"), "there") == 0) {
		if (env->user_root) {
			fail.code = "unsupported";
			fail.detail = "its root is on another machine, and --root is a directory "
				      "of this one; --from copies one there";
			l->next(l, &fail);
			return;
		}
		if (l->copied) {
			if (life_stage(l) < 0 ||
			    provider_run(env, "info", NULL, INFO_MS, on_info, l) < 0)
				l->next(l, &fail);
			return;
		}
	}
	if (provider_run(env, "create", l->fresh ? json_pack("{s:b}", "fresh", 1) : NULL,
			 LIFE_PROVIDER_MS, on_created, l) < 0)
		l->next(l, &fail);
}

void life_provider_create(struct life *l, life_next_fn next)
{
	struct provider_error err = {"io_error", "cannot run its provider", NULL};

	l->next = next;
	if (provider_run(l->env, "info", NULL, INFO_MS, on_info, l) < 0)
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
	if (!env->guest_of)
		migrate_thaw(env);
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
