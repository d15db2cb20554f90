/*
 * Fork: a new environment with the tree that another had at a point.
 *
 * Made from the journal alone: the tree as records of a log of its own (snapshot.h), then
 * a root filled from that, as a rebuild fills one.  Where the other is live and no point
 * is named, what was done in it until now is heard first, as for a label.
 */
#include "brain/life-impl.h"

#include "base/log.h"
#include "brain/accept.h"
#include "brain/barrier.h"
#include "brain/link.h"
#include "brain/point.h"
#include "brain/snapshot.h"

enum { SYNC_MS = 60000 };

static void fork_fail(struct life *l, int r, const char *what)
{
	char text[300];

	(void)snprintf(text, sizeof(text), "%s: %s", what, strerror(-r));
	life_create_fail(l, life_code(r), text);
}

static void fork_recorded(int r, uint64_t seq, void *userdata)
{
	struct life *l = userdata;

	if (r < 0) {
		fork_fail(l, r, "the tree cannot be recorded");
		return;
	}
	(void)json_object_set_new(l->env->forked_from, "base", json_integer((json_int_t)seq));
	rebuild_begin(l);
}

static void fork_begun(int r, uint64_t seq, void *userdata)
{
	struct life *l = userdata;
	struct env *parent = env_parent(l->env);

	(void)seq;
	if (r == 0 && !parent) /* removed meanwhile */
		r = -ENOENT;
	if (r == 0)
		r = snapshot_take(l->env, parent, l->forked_seq, 0);
	if (r == 0)
		r = commit_wait(l->env, fork_recorded, l);
	if (r < 0)
		fork_fail(l, r, "the tree cannot be recorded");
}

static int fork_new(struct call *call, struct env *parent, uint64_t seq, const char *name,
		    char **provider, char **target, struct env **ret)
{
	struct env *f;
	int r;

	r = env_new(call->brain, name, &f);
	if (r < 0)
		return r;
	f->provider = take_ptr(provider);
	f->target = take_ptr(target);
	f->spec = parent->spec ? json_deep_copy(parent->spec) : json_object();
	free(f->class);
	f->class = strdup(parent->class);
	f->creating = true;
	f->wanted = true;
	f->work_mode = strcmp(f->provider, "local") == 0;
	f->forked_from = json_pack("{s:s, s:s, s:I}", "environment", parent->name, "id",
				   parent->id_hex, "seq", (json_int_t)seq);
	r = snapshot_begin(f);
	if (r < 0)
		return r;
	*ret = f;
	return 0;
}

static void fork_go(struct call *call, struct env *parent, uint64_t seq)
{
	const char *name = call_str(call, "new"), *wanted = call_str(call, "provider");
	cleanup_free char *provider = NULL, *target = NULL;
	struct env *f;
	struct life *l;
	int r;

	if (!life_judge_name(call, name))
		return;
	if (!wanted) {
		provider = strdup(parent->provider);
		target = parent->target ? strdup(parent->target) : NULL;
	} else if (!life_judge_provider(call, name, wanted, &provider, &target)) {
		return;
	}
	r = fork_new(call, parent, seq, name, &provider, &target, &f);
	if (r < 0) {
		call_fail(call, life_code(r), name, "limb doctor", "cannot fork '%s' in '%s': %s",
			  name, call->brain->state_dir, strerror(-r));
		return;
	}
	l = life_new(f, call, "fork");
	if (!l) {
		call_fail(call, "internal", name, NULL, "out of memory");
		life_discard(f, false);
		return;
	}
	l->fresh = true;
	l->at = INDEX_NOW;
	l->forked_seq = seq;
	r = snapshot_genesis(f, parent, seq, fork_begun, l);
	if (r < 0)
		fork_fail(l, r, "its log cannot be begun");
}

void life_forget_fork(struct env *env)
{
	struct life *l = life_new(env, NULL, "fork");

	log_warning("environment '%s': its fork was never finished; it is removed", env->name);
	if (l)
		life_create_fail(l, "internal", "limbd ended meanwhile");
}

/* ---- what was done until now ---- */

static void fork_now(struct call *call)
{
	struct env *parent = life_env(call, true);

	if (!parent)
		return;
	/* Of a root that was removed: as a rebuild would make it (env_root_gone). */
	fork_go(call, parent, parent->rebuild_from ? parent->rebuild_from : env_seq(parent));
}

static void fork_synced(struct env *env, const struct barrier_result *res, void *userdata)
{
	(void)env;
	(void)res; /* away, or late: what the journal has */
	fork_now(userdata);
}

static void fork_drained(struct call *call)
{
	struct env *parent = life_env(call, true);

	if (!parent)
		return;
	if (!link_up(parent) || parent->halted ||
	    barrier_run(parent, SYNC_MS, fork_synced, call) < 0)
		fork_now(call);
}

void life_fork(struct call *call)
{
	struct env *parent = life_env(call, true);
	uint64_t at;

	if (!parent || !life_judge_name(call, call_str(call, "new")) ||
	    !point_of_call(call, parent, "at", &at))
		return;
	if (at != INDEX_NOW)
		fork_go(call, parent, at);
	else if (link_up(parent) && !parent->halted)
		accept_first(call, parent, fork_drained);
	else
		fork_now(call);
}
