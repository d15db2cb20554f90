/* Remove: synced, deleted, recorded, then its files in the background. */
#include "brain/life-impl.h"

#include <fcntl.h>
#include "base/file.h"
#include "base/log.h"
#include "brain/accept.h"
#include "brain/barrier.h"
#include "brain/commit.h"
#include "brain/job.h"
#include "brain/link.h"
#include "brain/migrate.h"
#include "brain/provider.h"
#include "brain/queue.h"
#include "brain/state.h"
#include "brain/view.h"

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
	life_fail_deferred(env);
	commit_cancel(env);
	if (env->retry_ready) {
		uv_close((uv_handle_t *)&env->retry, NULL);
		env->retry_ready = false;
	}
	env_link_out(env);
	(void)snprintf(name, sizeof(name), "%s", env->id_hex);
	if (keep_journal) {
		env_place_name(env, "root", gone);
		life_remove_later(b, env->dir_fd, gone);
		env_place_name(env, "hands", gone);
		life_remove_later(b, env->dir_fd, gone);
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

static void remove_places_deleted(void *userdata)
{
	remove_recorded(userdata);
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
	migrate_delete_places(env, true, remove_places_deleted, l);
}

static void remove_synced(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct life *l = userdata;
	struct queue_counts waits;

	queue_counts(env, &waits);
	if (waits.changes + waits.unapplied && !l->force && !l->keep_journal) {
		struct call *call = take_ptr(&l->call);

		life_done(l, NULL);
		call_fail(call, "unsynced", env->name, "limb rm NAME --force",
			  "%llu changes that were made for environment '%s' are not in it, and are "
			  "nowhere else",
			  (unsigned long long)(waits.changes + waits.unapplied), env->name);
		return;
	}
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

static void remove_drained(struct call *call)
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

/* What was written in its view arrives, or is counted with what waits: it is nowhere else. */
void life_remove(struct call *call)
{
	const char *name = call_str(call, "name");
	struct env *env = name ? env_find(call->brain, name) : NULL;

	if (env && call_bool(call, "force") && life_give_up(env, call))
		return;
	env = life_env(call, false);
	if (!env)
		return;
	if (call_bool(call, "force") || !env->log)
		remove_drained(call);
	else
		accept_tried_first(call, env, remove_drained);
}
