/* Rebuild: a fresh root filled from the journal, a new incarnation, both sides verified. */
#include "brain/life-impl.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "brain/barrier.h"
#include "brain/job.h"
#include "brain/link.h"
#include "brain/point.h"
#include "brain/verify.h"
#include "brain/view.h"
#include "wire/wire.pb-c.h"

enum {
	RESTORE_MS = 24 * 3600 * 1000,
	BARRIER_MS = 600000,
};

static void rebuild_fail_now(struct life *l)
{
	struct env *env = l->env;
	struct call *call = take_ptr(&l->call);
	char detail[512], code[40];

	(void)snprintf(detail, sizeof(detail), "%s", l->detail);
	(void)snprintf(code, sizeof(code), "%s", l->code);
	env->restore_at = INDEX_NOW;
	link_stop(env, "rebuild failed");
	env_halt(env, "root_missing",
		 "its rebuild failed: %s; its journal is whole: run: limb rebuild %s", detail,
		 env->name);
	life_done(l, NULL);
	if (call)
		call_fail(call, code, env->name, "limb rebuild NAME",
			  "cannot rebuild '%s': %s; its journal is whole, try again", env->name,
			  detail);
}

static bool is_fork(const struct life *l)
{
	return strcmp(l->verb, "fork") == 0;
}

static void rebuild_fail(struct life *l, const char *code, const char *detail)
{
	if (is_fork(l)) {
		l->env->restore_at = INDEX_NOW;
		life_create_fail(l, code, detail);
		return;
	}
	(void)snprintf(l->code, sizeof(l->code), "%s", code);
	(void)snprintf(l->detail, sizeof(l->detail), "%s", detail);
	life_end_timer(l, rebuild_fail_now);
}

static void rebuild_fail_errno(struct life *l, int r, const char *what)
{
	char text[300];

	(void)snprintf(text, sizeof(text), "%s: %s", what, strerror(-r));
	rebuild_fail(l, life_code(r), text);
}

static void rebuild_late(struct life *l)
{
	rebuild_fail(l, "env_unreachable", "the fresh sandbox's limb-syncd did not answer in 30 s");
}

/* ---- the end: compare ---- */

/* Those that rebuilds which failed have left, too: root.PREVIOUS.HEX, see fresh_owned_root. */
static void drop_old_roots(struct env *env)
{
	int fd = openat(env->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	unsigned long long previous, at;
	struct dirent *e;
	int used;

	if (!d) {
		if (fd >= 0)
			(void)close(fd);
		return;
	}
	while ((e = readdir(d))) {
		used = 0;
		if (sscanf(e->d_name, "root.%llu.%llx%n", &previous, &at, &used) == 2 && used &&
		    e->d_name[used] == 0)
			life_remove_later(env->brain, env->dir_fd, e->d_name);
	}
	(void)closedir(d);
}

static void fork_view_seen(struct env *env, bool behind, void *userdata)
{
	struct life *l = userdata;
	json_t *result = life_created(env, life_ms(l));

	(void)behind;
	(void)json_object_set(result, "equal", json_object_get(l->answer, "equal"));
	if (!json_is_true(json_object_get(l->answer, "equal")))
		(void)json_object_set(result, "differences",
				      json_object_get(l->answer, "differences"));
	life_done(l, result);
}

static void rebuild_verified(struct env *env, int r, json_t *result, void *userdata)
{
	struct life *l = userdata;

	if (r < 0) {
		rebuild_fail_errno(l, r, verify_what(r, "it stands, but cannot be verified"));
		return;
	}
	l->answer = json_deep_copy(result);
	(void)json_object_set_new(l->answer, "previous_incarnation",
				  json_integer((json_int_t)l->previous));
	(void)json_object_set_new(l->answer, "duration_ms", json_integer((json_int_t)life_ms(l)));
	if (l->at != INDEX_NOW)
		(void)json_object_set_new(l->answer, "restored_seq",
					  json_integer((json_int_t)l->at));
	if (l->old_root && env->user_root)
		(void)json_object_set_new(l->answer, "kept_aside", json_string(l->old_root));
	if (json_is_true(json_object_get(result, "equal")))
		drop_old_roots(env);
	env->rebuild_from = 0;
	env->first_sync_done = true;
	env->creating = false;
	(void)env_save(env);
	if (!env->view)
		view_start(env);
	if (is_fork(l))
		view_wait_connected(env, fork_view_seen, l);
	else
		life_done(l, json_incref(l->answer));
}

static void rebuild_synced(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct life *l = userdata;
	int r = res->r;

	if (r == 0)
		r = verify_run(env, false, NULL, rebuild_verified, l);
	if (r < 0)
		rebuild_fail_errno(l, r, "its files are back, but cannot be synced");
}

static void take_unsupported(struct env *env, const struct entry_head *e)
{
	const struct entry_unsupported *u;
	const char *path, *field;
	struct entry_cursor c;

	json_decref(env->unsupported);
	env->unsupported = json_array();
	entry_cursor_init(&c, e);
	while (entry_next_unsupported(&c, &u, &path, &field))
		(void)json_array_append_new(env->unsupported,
					    json_pack("{s:s%, s:s%}", "path", path,
						      (size_t)u->path_len, "field", field,
						      (size_t)u->field_len));
}

static void rebuild_sync(struct life *l)
{
	int r = barrier_run(l->env, BARRIER_MS, rebuild_synced, l);

	if (r < 0)
		rebuild_fail_errno(l, r, "its files are back, but cannot be synced");
}

static void rebuild_attached_again(struct life *l, enum attach_mode mode)
{
	(void)mode;
	life_end_timer(l, rebuild_sync);
}

/* What stands there is an older tree than the journal's newest: another incarnation says, as
 * any would, what is different now. */
static void rebuild_attach_again(struct life *l)
{
	link_stop(l->env, "restored");
	life_attach(l, "rebuild", true, false, rebuild_attached_again, rebuild_late);
}

static void rebuild_restored(struct env *env, int r, const struct entry_head *e, void *userdata)
{
	const struct entry_restored *m = (const struct entry_restored *)e;
	struct life *l = userdata;
	char text[400];

	l->on_status = NULL;
	env->restore_at = INDEX_NOW;
	if (r == 0 && m->error) {
		rebuild_fail(l, life_code(-m->error), life_not_restored(m, text, sizeof(text)));
		return;
	}
	if (r < 0) {
		rebuild_fail_errno(l, r, "its files could not be brought back");
		return;
	}
	take_unsupported(env, e);
	env->restoring = false;
	r = env_save(env);
	if (r < 0) {
		env->restoring = true;
		rebuild_fail_errno(l, r, "its files are back, but that cannot be recorded");
		return;
	}
	if (l->at == INDEX_NOW)
		rebuild_sync(l);
	else
		life_end_timer(l, rebuild_attach_again);
}

static void rebuild_status(struct life *l)
{
	if (l->call)
		call_progress(l->call, "restoring", l->env->status.scanned_files,
			      l->env->status.scanned_bytes, l->files, l->bytes);
}

static void rebuild_restore(struct life *l)
{
	struct env *env = l->env;
	Limbwire__Restore m = LIMBWIRE__RESTORE__INIT;
	struct index_counts n = {0};
	struct index_txn *t;
	int r;

	if (env_read_begin(env, &t) == 0) {
		(void)index_counts(t, &n);
		l->files = n.files;
		l->bytes = n.bytes;
		index_read_end(t);
	}
	l->on_status = rebuild_status;
	r = link_expect(env, ENTRY_RESTORED, RESTORE_MS, rebuild_restored, l, &m.request);
	if (r == 0) {
		m.at_seq = l->at == INDEX_NOW ? env_seq(env) : l->at;
		env->restore_at = l->at;
		m.past = l->at != INDEX_NOW;
		m.deadline_ms = RESTORE_MS - 1000;
		r = link_send(env, WIRE_RESTORE, &m.base, NULL, 0);
		if (r < 0)
			link_forget(env, m.request);
	}
	if (r < 0)
		rebuild_fail_errno(l, r, "cannot ask for it");
}

static void rebuild_attached(struct life *l, enum attach_mode mode)
{
	if (mode != ATTACH_RESTORE)
		rebuild_fail(l, "halted", "its fresh root is not what was made for it");
	else
		life_end_timer(l, rebuild_restore);
}

static void rebuild_started(struct life *l, const struct provider_error *err)
{
	if (err) {
		rebuild_fail(l, err->code, err->detail);
		return;
	}
	life_attach(l, l->verb, true, true, rebuild_attached, rebuild_late);
}

/* ---- a fresh root; what stands there goes aside, never away ---- */

static bool dir_empty(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;
	unsigned n = 0;

	if (!d)
		return false;
	while ((e = readdir(d)))
		n++;
	(void)closedir(d);
	return n <= 2;
}

static int fresh_user_root(struct life *l)
{
	const char *root = l->env->user_root;
	struct stat st;

	if (lstat(root, &st) == 0) {
		if (S_ISDIR(st.st_mode) && dir_empty(root))
			return 0;
		if (asprintf(&l->old_root, "%s.before-%llu", root,
			     (unsigned long long)(l->previous + 1)) < 0) {
			l->old_root = NULL;
			return -ENOMEM;
		}
		if (rename(root, l->old_root) < 0)
			return -errno;
	} else if (errno != ENOENT) {
		return -errno;
	}
	return mkdir(root, 0755) < 0 ? -errno : 0;
}

static int fresh_owned_root(struct life *l)
{
	int dir = l->env->dir_fd;
	char root[40];

	env_place_name(l->env, "root", root);
	if (asprintf(&l->old_root, "root.%llu.%llx", (unsigned long long)l->previous,
		     (unsigned long long)clock_mono_ns()) < 0) {
		l->old_root = NULL;
		return -ENOMEM;
	}
	if (renameat(dir, root, dir, l->old_root) < 0) {
		if (errno != ENOENT)
			return -errno;
		free(take_ptr(&l->old_root));
	}
	if (mkdirat(dir, root, 0755) < 0)
		return -errno;
	return fchmodat(dir, root, 0755, 0) < 0 ? -errno : 0;
}

void rebuild_begin(struct life *l)
{
	struct env *env = l->env;
	int r;

	/* Until all is back, what is missing there is no deletion: not for a later limbd either. */
	env->restoring = true;
	r = env_save(env);
	if (r == 0)
		r = is_fork(l)	     ? life_make_root(env)
		    : env->user_root ? fresh_user_root(l)
				     : fresh_owned_root(l);
	if (r < 0) {
		rebuild_fail_errno(l, r, "a fresh root cannot be made");
		return;
	}
	life_provider_create(l, rebuild_started);
}

static void rebuild_stopped(struct life *l, const struct provider_error *err)
{
	struct env *env = l->env;

	jobs_lost(env);
	if (err)
		log_warning("environment '%s': its old sandbox: %s", env->name, err->detail);
	rebuild_begin(l);
}

static void rebuild_old_synced(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct life *l = userdata;

	(void)res;
	link_stop(env, "rebuild");
	env->halted = env->hostile = env->mount_changed = false;
	env->paused = env->frozen = false;
	env_clear_reason(env, NULL);
	env->has_status = false;
	life_provider_stop(l, "stop", rebuild_stopped);
}

static void rebuild_labelled(int r, uint64_t seq, void *userdata)
{
	struct life *l = userdata;

	(void)r;
	(void)seq;
	if (barrier_run(l->env, 10000, rebuild_old_synced, l) < 0)
		rebuild_old_synced(l->env, NULL, l);
}

/* Over a living environment, or back in time: a point to come back to. */
static int make_label(struct life *l)
{
	char label[64];

	(void)snprintf(label, sizeof(label), "before_rebuild_%llu",
		       (unsigned long long)(l->previous + 1));
	return point_record(l->env, label, "before_restore", env_seq(l->env), false,
			    rebuild_labelled, l);
}

void life_rebuild(struct call *call)
{
	struct env *env = life_env(call, false);
	struct life *l;
	uint64_t at;
	bool alive;
	int r = 0;

	if (!env)
		return;
	if (!point_of_call(call, env, "at", &at))
		return;
	if (env->failed) {
		call_fail(call, "io_error", env->name, "limb down && limb up",
			  "the log of '%s' cannot be written; free space or mend the disk, then "
			  "restart limbd",
			  env->name);
		return;
	}
	alive = link_up(env) && !env->halted;
	if (alive && !call_bool(call, "force")) {
		call_fail(call, "conflict", env->name, "limb rebuild NAME --force",
			  "environment '%s' is alive; to make it anew all the same (a label is set "
			  "first) add --force",
			  env->name);
		return;
	}
	l = life_new(env, call, "rebuild");
	if (!l) {
		call_fail(call, "internal", env->name, NULL, "out of memory");
		return;
	}
	l->fresh = true;
	env->wanted = true;
	/* `now` is said by who wants what was left. */
	if (!call_str(call, "at") && env->rebuild_from)
		at = env->rebuild_from;
	l->at = at;
	if (alive || at != INDEX_NOW)
		r = make_label(l);
	else
		rebuild_old_synced(env, NULL, l);
	if (r < 0)
		rebuild_fail_errno(l, r, "its label cannot be recorded");
}
