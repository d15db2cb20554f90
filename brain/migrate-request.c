/* `limb migrate`: the request judged, former roots heard, then move_begin() (migrate.c). */
#include "brain/accept.h"
#include "brain/migrate-impl.h"

#include "brain/link.h"
#include "brain/provider.h"
#include "brain/verb.h"

/* ---- judging the request ---- */

/* HOST of HOST:/DIRECTORY, and whatever else is no path. */
static size_t host_length(const char *target)
{
	const char *path = target ? strstr(target, ":/") : NULL;

	return path ? (size_t)(path - target) : strlen(target ? target : "");
}

static bool is_there_already(const struct env *env, const struct env *guest)
{
	size_t n = host_length(guest->target);

	return strcmp(env->provider, guest->provider) == 0 && host_length(env->target) == n &&
	       (n == 0 || strncmp(env->target, guest->target, n) == 0);
}

/* A directory that a person named there stays when it is left, with an older copy. */
static bool root_is_named(const json_t *place)
{
	const char *target = json_string_value(json_object_get(place, "target"));

	return json_object_get(place, "user_root") || (target && strstr(target, ":/"));
}

static bool is_same_text(const json_t *a, const json_t *b, const char *key)
{
	const char *x = json_string_value(json_object_get(a, key));
	const char *y = json_string_value(json_object_get(b, key));

	return x && y ? strcmp(x, y) == 0 : x == y;
}

/* A directory of this machine is the same whoever runs it there. */
static bool root_is_same(const json_t *a, const json_t *b)
{
	if (json_object_get(a, "user_root") || json_object_get(b, "user_root"))
		return is_same_text(a, b, "user_root");
	return is_same_text(a, b, "provider") && is_same_text(a, b, "target");
}

/* A directory of this machine: named, or the one that it had before it moved away. */
static bool judge_root(struct call *call, struct env *env, struct env *guest)
{
	const struct env *other;
	const char *why;
	char *root = NULL;

	if (!guest->target) {
		if (env->home_root &&
		    !(env->user_root && strcmp(env->user_root, env->home_root) == 0))
			guest->user_root = strdup(env->home_root);
		return true;
	}
	why = guest->target[0] == '/' ? life_judge_dir(env->brain, guest->target, &root)
				      : "a root is named by its whole path, from / on";
	guest->user_root = root;
	if (why) {
		call_fail(call, "invalid_path", env->name, NULL, "'%s': %s", guest->target, why);
		return false;
	}
	other = life_root_taken(env->brain, root);
	if (other) {
		call_fail(
			call, "invalid_path", env->name, NULL,
			"'%s' and the root of environment '%s' contain each other; choose another",
			root, other->name);
		return false;
	}
	free(take_ptr(&guest->target));
	return true;
}

static int judge_jobs(struct call *call, struct env *env, enum move_jobs *ret)
{
	static const char *const names[] = {"wait", "stop", "restart"};
	const char *text = call_str(call, "jobs");

	*ret = MOVE_JOBS_WAIT;
	for (size_t i = 0; text && i < ARRAY_SIZE(names); i++) {
		if (strcmp(names[i], text) == 0) {
			*ret = (enum move_jobs)i;
			return 0;
		}
	}
	if (!text)
		return 0;
	call_fail(call, "usage", env->name, "limb help migrate",
		  "--jobs is wait, stop or restart, not '%s'", text);
	return -EINVAL;
}

static struct env *judge_target(struct call *call, struct env *env)
{
	const char *to = call_str(call, "to"), *colon;
	cleanup_free char *unknown = NULL;
	struct env *guest = NULL;
	int r;

	if (!to && !(call_bool(call, "resume") && env->migration)) {
		call_fail(call, call_bool(call, "resume") ? "conflict" : "usage", env->name,
			  "limb help migrate",
			  call_bool(call, "resume") ? "no move of '%s' was interrupted; say where "
						      "to with --to"
						    : "say where '%s' is to move with --to",
			  env->name);
		return NULL;
	}
	r = to ? env_guest_new(env, env->incarnation + 1, &guest)
	       : old_guest(env, json_object_get(env->migration, "to"), &guest);
	if (r < 0) {
		call_fail(call, life_code(r), env->name, NULL, "cannot move '%s': %s", env->name,
			  strerror(-r));
		return NULL;
	}
	/* Whether what stands there may be taken is judged by its mark. */
	(void)json_object_set_new(guest->spec, "in_place", json_true());
	if (!to)
		return guest;
	colon = strchr(to, ':');
	guest->provider = colon ? strndup(to, (size_t)(colon - to)) : strdup(to);
	guest->target = colon ? strdup(colon + 1) : NULL;
	unknown = guest->provider ? provider_judge(env->brain, guest->provider) : NULL;
	if (unknown) {
		call_fail(call, "file_not_found", env->name, "limb help migrate", "%s", unknown);
	} else if (guest->provider && provider_is_here(guest->provider)) {
		if (judge_root(call, env, guest))
			return guest;
	} else if (guest->provider && !is_there_already(env, guest)) {
		return guest;
	} else {
		call_fail(call, "conflict", env->name, NULL, "'%s' lives there already", env->name);
	}
	guest_free(guest);
	return NULL;
}

/* A directory that it had before, and that is to be overwritten: what was done in it since is
 * heard first. */
struct hearing {
	struct move *m;
	struct env *old;
	struct life *life;
};

static void heard(int r, void *userdata)
{
	struct hearing *h = userdata;
	struct move *m = h->m;
	json_t *o, *to;
	size_t i;

	h->old->wanted = false;
	life_done(h->life, NULL);
	guest_free(h->old);
	free(h);
	if (r < 0) {
		move_fail(m, "conflict",
			  "its root there was its root before, and whether it was changed since "
			  "cannot be seen (%s); empty it, or choose another",
			  strerror(-r));
		return;
	}
	to = env_place_json(m->guest);
	json_array_foreach(m->env->left, i, o)
	{
		if (root_is_same(o, to))
			(void)json_array_remove(m->env->left, i--);
	}
	json_decref(to);
	move_begin(m);
}

static bool hear_first(struct move *m)
{
	struct hearing *h;
	json_t *o, *left = NULL, *to = env_place_json(m->guest);
	size_t i;
	int r;

	json_array_foreach(m->env->left, i, o)
	{
		if (root_is_named(o) && root_is_same(o, to))
			left = o; /* the last is the newest */
	}
	json_decref(to);
	if (!left)
		return false;
	h = calloc(1, sizeof(*h));
	r = h ? old_guest(m->env, left, &h->old) : -ENOMEM;
	if (r == 0) {
		h->m = m;
		h->life = life_new(h->old, NULL, "migrate");
		r = h->life ? guest_make_dirs(h->old) : -ENOMEM;
	}
	if (r == 0) {
		old_clean(h->life, left, true, heard, h);
		return true;
	}
	/* What was not heard is not overwritten. */
	if (h && h->life)
		life_done(h->life, NULL);
	if (h)
		guest_free(h->old);
	free(h);
	move_fail_errno(m, r, "its root there was its root before, and cannot be looked at");
	return true;
}

static void migrate_begin(struct call *call, struct env *env, enum move_jobs jobs)
{
	struct env *guest = judge_target(call, env);
	struct move *m = guest ? calloc(1, sizeof(*m)) : NULL;

	if (!guest)
		return;
	if (m) {
		m->l = life_new(env, call, "migrate");
		m->gl = life_new(guest, NULL, "migrate");
	}
	if (!m || !m->l || !m->gl) {
		call_fail(call, "internal", env->name, NULL, "out of memory");
		return;
	}
	m->env = env;
	m->guest = guest;
	m->gl->extra = m;
	m->jobs = jobs;
	m->jobs_done = json_array();
	m->from_provider = strdup(env->provider);
	m->from_incarnation = env->incarnation;
	m->to_incarnation = env->incarnation + 1;
	if (!hear_first(m))
		move_begin(m);
}

void migrate_staged(struct call *call, struct env *env, uint64_t begun_ms)
{
	struct life *l;

	if (!call) {
		life_unstage(env, NULL, "internal", "nobody waits for it", NULL);
		return;
	}
	(void)json_object_set_new(call->params, "to", json_string(env->staged));
	migrate_begin(call, env, MOVE_JOBS_STOP);
	l = env->life;
	if (l)
		l->begun_ms = begun_ms;
	else if (!env->busy)
		life_unstage(env, NULL, "internal", "it cannot be moved", NULL);
}

/* An interrupted move to elsewhere goes first. */
struct redo {
	struct call *call;
	struct env *env;
	enum move_jobs jobs;
};

static void dropped(void *userdata)
{
	struct redo *q = userdata;

	json_decref(q->env->migration);
	q->env->migration = NULL;
	q->env->busy = false;
	migrate_begin(q->call, q->env, q->jobs);
	if (!q->env->busy)
		link_retry(q->env); /* its line may have fallen meanwhile */
	free(q);
}

static void migrate_drained(struct call *call)
{
	struct env *env = life_env(call, false);
	enum move_jobs jobs;
	struct redo *q;

	if (!env || !verb_live_env(call) || judge_jobs(call, env, &jobs) < 0)
		return;
	if (env->paused) {
		call_fail(call, "conflict", env->name, "limb resume NAME",
			  "'%s' is paused; let it go on first: limb resume %s", env->name,
			  env->name);
		return;
	}
	if (env->mount_changed) {
		call_fail(call, "conflict", env->name, "limb status",
			  "'%s' waits for a word about a changed mount; give it first", env->name);
		return;
	}
	if (!env->migration || !call_str(call, "to")) {
		migrate_begin(call, env, jobs);
		return;
	}
	q = calloc(1, sizeof(*q));
	if (!q) {
		call_fail(call, "internal", env->name, NULL, "out of memory");
		return;
	}
	*q = (struct redo){call, env, jobs};
	env->busy = true; /* nobody else begins anything with it meanwhile */
	migrate_delete_places(env, false, dropped, q);
}

/* What was written in the view goes where it was meant to go, while that is there. */
void migrate(struct call *call)
{
	struct env *env = life_env(call, false);
	enum move_jobs jobs;

	if (!env || !verb_live_env(call) || judge_jobs(call, env, &jobs) < 0)
		return;
	if (env->paused || env->mount_changed)
		migrate_drained(call); /* says so */
	else
		accept_applied_first(call, env, migrate_drained);
}
