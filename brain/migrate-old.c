/* Places that an environment has left: heard once more, then deleted. */
#include "brain/migrate-impl.h"

#include "base/log.h"
#include "base/text.h"
#include "brain/attach.h"
#include "brain/link.h"
#include "brain/verify.h"
#include "wire/wire.pb-c.h"

enum {
	HEAR_MS = 60000,
	SWEEP_MS = 30000,
	SWEEP_FAILS_MAX = 6, /* half an hour */
};

static const json_t *number_of(const json_t *o, const char *key, uint64_t *ret)
{
	const json_t *v = json_object_get(o, key);

	*ret = (uint64_t)json_integer_value(v);
	return v;
}

int old_guest(struct env *env, json_t *o, struct env **ret)
{
	const char *mark = json_string_value(json_object_get(o, "mark"));
	struct env *guest;
	int r;

	if (!json_is_object(o))
		return -EBADMSG;
	r = env_guest_new(env, 0, &guest);
	if (r < 0)
		return r;
	r = env_place_take(guest, o);
	if (r < 0) {
		guest_free(guest);
		return r;
	}
	(void)number_of(o, "incarnation", &guest->incarnation);
	(void)number_of(o, "grant_first", &guest->grant_first);
	(void)number_of(o, "grant_end", &guest->grant_end);
	(void)number_of(o, "seq", &guest->restore_at);
	if (guest->restore_at == 0)
		guest->restore_at = INDEX_NOW;
	guest->node_used = guest->grant_first ? guest->grant_first - 1 : 0;
	(void)json_object_set_new(guest->spec, "in_place", json_true());
	if (mark)
		(void)text_unhex(guest->mark, sizeof(guest->mark), mark);
	*ret = guest;
	return 0;
}

struct old {
	struct env *env, *guest;
	struct life *gl;
	json_t *left; /* borrowed from env->left */
	old_fn then;
	void *userdata;
};

static void old_over(struct old *o, int r)
{
	old_fn then = o->then;
	void *userdata = o->userdata;

	free(o);
	then(r, userdata);
}

/* A directory that a person named stays, and the entry with it: it holds an older copy. */
static void forget_left(struct env *env, json_t *left)
{
	const char *target = json_string_value(json_object_get(left, "target"));
	size_t i;
	json_t *o;

	if (json_object_get(left, "user_root") || (target && strstr(target, ":/"))) {
		(void)json_object_set_new(left, "done", json_true());
		return;
	}
	json_array_foreach(env->left, i, o)
	{
		if (o == left) {
			(void)json_array_remove(env->left, i);
			return;
		}
	}
}

static void old_deleted(struct life *gl, const struct provider_error *err)
{
	struct old *o = gl->extra;

	if (err) {
		log_warning("environment '%s': the place that it left cannot be deleted: %s",
			    o->env->name, err->detail);
		old_over(o, -EIO);
		return;
	}
	guest_remove_dirs(o->guest);
	forget_left(o->env, o->left);
	(void)env_save(o->env);
	old_over(o, 0);
}

static void old_delete(struct old *o)
{
	link_stop(o->guest, "this place was left");
	o->guest->wanted = false;
	life_provider_stop(o->gl, "delete", old_deleted);
}

static void old_forked(int r, void *userdata)
{
	struct old *o = userdata;

	if (r < 0)
		old_over(o, r);
	else
		old_delete(o);
}

static void old_heard(struct env *guest, int r, const struct entry_head *e, void *userdata)
{
	struct old *o = userdata;

	(void)e;
	if (guest->guest_spoke)
		late_fork(guest, o->left, old_forked, o);
	else if (r < 0)
		old_over(o, r);
	else
		old_delete(o);
}

/* What it has to say comes before the answer. */
static void old_ask(struct old *o)
{
	Limbwire__Barrier q = LIMBWIRE__BARRIER__INIT;
	struct env *guest = o->guest;
	int r;

	r = link_expect(guest, ENTRY_BARRIER_DONE, HEAR_MS, old_heard, o, &q.request);
	if (r == 0) {
		q.deadline_ms = HEAR_MS - 1000;
		r = link_send(guest, WIRE_BARRIER, &q.base, NULL, 0);
		if (r < 0)
			link_forget(guest, q.request);
	}
	if (r < 0)
		old_over(o, r);
}

static void old_attached_go(struct life *gl)
{
	old_ask(gl->extra);
}

static void old_no_root(struct life *gl)
{
	old_delete(gl->extra);
}

static void old_attached(struct life *gl, enum attach_mode mode)
{
	gl->env->wanted = false;
	/* Another root, or none: nothing of ours is left to be heard. */
	life_end_timer(gl, mode == ATTACH_SYNC ? old_attached_go : old_no_root);
}

static void old_late_over(struct life *gl)
{
	struct old *o = gl->extra;

	link_stop(o->guest, "no answer");
	old_over(o, -ETIMEDOUT);
}

static void old_late(struct life *gl)
{
	gl->env->wanted = false;
	life_end_timer(gl, old_late_over);
}

static void old_started(struct life *gl, const struct provider_error *err)
{
	struct old *o = gl->extra;

	if (err) {
		log_debug("environment '%s': the place that it left does not start: %s",
			  o->env->name, err->detail);
		if (o->guest->host_root && access(o->guest->host_root, F_OK) < 0)
			old_delete(o);
		else
			old_over(o, -EIO);
		return;
	}
	life_attach(gl, NULL, false, false, old_attached, old_late);
}

void old_clean(struct life *gl, json_t *left, bool hear, old_fn then, void *userdata)
{
	struct old *o = calloc(1, sizeof(*o));

	if (!o) {
		then(-ENOMEM, userdata);
		return;
	}
	*o = (struct old){gl->env->guest_of, gl->env, gl, left, then, userdata};
	gl->extra = o;
	gl->env->guest_is_old = true;
	if (!hear || !json_object_get(left, "mark"))
		old_delete(o);
	else if (json_object_get(left, "done")) /* deleted before: limb-syncd has to get there */
		life_provider_create(gl, old_started);
	else
		life_provider_start(gl, old_started);
}

/* ---- the sweep ---- */

struct sweep {
	struct env *env, *guest;
	struct life *l, *gl;
	json_t *left;
};

static void sweep_over(int r, void *userdata)
{
	struct sweep *s = userdata;

	/* Tried again, but it keeps the environment busy: less and less often. */
	s->env->sweep_fails = r < 0 ? MIN(s->env->sweep_fails + 1, (unsigned)SWEEP_FAILS_MAX) : 0;
	s->env->sweep_skip = r < 0 ? 1u << s->env->sweep_fails : 0;
	s->guest->wanted = false;
	life_done(s->gl, NULL);
	guest_free(s->guest);
	life_done(s->l, NULL);
	free(s);
}

static void sweep_verified(struct env *env, int r, json_t *result, void *userdata)
{
	struct sweep *s = userdata;

	if (r < 0 || !json_is_true(json_object_get(result, "equal"))) {
		sweep_over(r < 0 ? r : -EAGAIN, s);
		return;
	}
	(void)json_object_set_new(s->left, "verified", json_true());
	(void)env_save(env);
	old_clean(s->gl, s->left, true, sweep_over, s);
}

static void sweep(struct env *env)
{
	struct sweep *s;
	json_t *o, *left = NULL;
	size_t i;

	json_array_foreach(env->left, i, o)
	{
		if (!left && !json_object_get(o, "done"))
			left = o;
	}
	if (!left || env->busy || !link_up(env) || env->halted)
		return;
	if (env->sweep_skip) {
		env->sweep_skip--;
		return;
	}
	s = calloc(1, sizeof(*s));
	if (!s || old_guest(env, left, &s->guest) < 0) {
		free(s);
		return;
	}
	s->env = env;
	s->left = left;
	s->l = life_new(env, NULL, "migrate");
	s->gl = life_new(s->guest, NULL, "migrate");
	if (!s->l || !s->gl)
		return;
	if (json_object_get(left, "verified"))
		old_clean(s->gl, left, true, sweep_over, s);
	else if (verify_run(env, true, NULL, sweep_verified, s) < 0)
		sweep_over(-ENOTCONN, s);
}

static void sweep_tick(uv_timer_t *t)
{
	struct brain *b = t->data;

	for (struct env *env = b->envs; env; env = env->next)
		if (env->left)
			sweep(env);
}

void migrate_sweep_start(struct brain *b)
{
	static uv_timer_t timer;

	(void)uv_timer_init(b->loop, &timer);
	timer.data = b;
	uv_unref((uv_handle_t *)&timer);
	(void)uv_timer_start(&timer, sweep_tick, 2000, SWEEP_MS);
}

/* ---- all of them ---- */

struct deletion {
	struct env *env, *guest;
	struct life *gl;
	json_t *places; /* to do */
	void (*then)(void *userdata);
	void *userdata;
};

static void delete_next(struct deletion *d);

static void deleted_one(struct life *gl, const struct provider_error *err)
{
	struct deletion *d = gl->extra;

	if (err)
		log_warning("environment '%s': one of its places: %s", d->env->name, err->detail);
	guest_remove_dirs(d->guest);
	life_done(gl, NULL);
	guest_free(take_ptr(&d->guest));
	delete_next(d);
}

static void delete_next(struct deletion *d)
{
	void (*then)(void *) = d->then;
	void *userdata = d->userdata;

	while (json_array_size(d->places)) {
		json_t *o = json_incref(json_array_get(d->places, 0));
		int r;

		(void)json_array_remove(d->places, 0);
		r = old_guest(d->env, o, &d->guest);
		json_decref(o);
		d->gl = r == 0 ? life_new(d->guest, NULL, "migrate") : NULL;
		if (!d->gl)
			continue;
		d->gl->extra = d;
		life_provider_stop(d->gl, "delete", deleted_one);
		return;
	}
	json_decref(d->places);
	free(d);
	then(userdata);
}

void migrate_delete_places(struct env *env, bool all, void (*then)(void *), void *userdata)
{
	struct deletion *d = calloc(1, sizeof(*d));
	json_t *o, *to = json_object_get(env->migration, "to");
	size_t i;

	if (!d) {
		then(userdata);
		return;
	}
	*d = (struct deletion){
		.env = env, .places = json_array(), .then = then, .userdata = userdata};
	if (to)
		(void)json_array_append(d->places, to);
	json_array_foreach(env->left, i, o)
	{
		if (all && !json_object_get(o, "done"))
			(void)json_array_append(d->places, o);
	}
	delete_next(d);
}
