#include "fs/keeper.h"

#include <fcntl.h>
#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/log.h"
#include "fs/bytes.h"

enum {
	TICK_MS = 10,
	QUIET_MAX_MS = 1000,
	INVALIDATE_MAX = 1024,
};

struct keeper {
	struct fs *fs;
	struct fuse_session *se;
	char *mount_path;
	keeper_fn drained;
	void *userdata;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool stop, wake, drain;
	uint64_t token; /* of the newest drain that was asked for */
	uint64_t stale[INVALIDATE_MAX];
	size_t n_stale;
};

/* all: whatever is written, else what was quiet for long enough. */
static void make_versions(struct keeper *k, bool all)
{
	static struct log_limit limit;
	struct overlay *ov = k->fs->overlay;
	uint64_t now = clock_mono_ms(), seq;
	struct index_txn *t;
	int r;

	overlay_lock(ov);
	if (ov->n_written == 0 || source_begin(k->fs->source, &t, &seq) < 0) {
		overlay_unlock(ov);
		return;
	}
	for (size_t i = 0; i < ov->n_slots && ov->n_written; i++)
		for (struct onode *o = ov->nodes[i]; o; o = o->next) {
			if (!o->written || (!all && now - o->write_ms < o->quiet_ms &&
					    now - o->stage_ms < QUIET_MAX_MS))
				continue;
			r = bytes_version(ov, t, o);
			o->quiet_ms = MIN(o->quiet_ms * 2, (uint64_t)QUIET_MAX_MS);
			if (r == -ENOENT) { /* it has no name in a tree that anybody sees */
				o->written = false;
				ov->n_written--;
				r = 0;
			}
			if (r < 0 && log_limited(&limit, 3, 10000))
				(void)log_line_errno(LOG_LEVEL_WARNING, r,
						     "cannot keep what was written; trying again");
		}
	source_end(k->fs->source, t);
	overlay_unlock(ov);
}

/* Pages of mappings come as WRITEs meanwhile, which others answer. */
static void drain(struct keeper *k, uint64_t token)
{
	cleanup_close int fd = file_open_dir(AT_FDCWD, k->mount_path);

	if (fd >= 0)
		(void)io_syncfs(fd, "keeper.syncfs");
	make_versions(k, true);
	k->drained(token, k->userdata);
}

static bool is_anything_written(struct keeper *k)
{
	bool any;

	overlay_read_lock(k->fs->overlay);
	any = k->fs->overlay->n_written > 0;
	overlay_unlock(k->fs->overlay);
	return any;
}

/* True: it is that late. */
static bool wait_until(struct keeper *k, uint64_t end_ms)
{
	uint64_t now_ms = clock_mono_ms(), ms = MAX(end_ms, now_ms) - now_ms;
	struct timespec until;

	if (ms == 0)
		return true;
	until = clock_to_timespec((int64_t)(clock_mono_ns() + ms * 1000000));
	return pthread_cond_clockwait(&k->cond, &k->lock, CLOCK_MONOTONIC, &until) == ETIMEDOUT;
}

static void *run(void *userdata)
{
	struct keeper *k = userdata;
	uint64_t stale[INVALIDATE_MAX], token, next_ms = 0;
	bool draining, busy = true; /* what a crash left is written, too */
	size_t n;

	(void)pthread_mutex_lock(&k->lock);
	for (;;) {
		/* A look at all nodes each tick, however often it is woken. */
		while (!k->stop && !k->drain && !k->n_stale) {
			if (!busy && !k->wake)
				(void)pthread_cond_wait(&k->cond, &k->lock);
			else if (wait_until(k, next_ms))
				break;
		}
		next_ms = clock_mono_ms() + TICK_MS;
		if (k->stop)
			break;
		k->wake = false;
		draining = k->drain;
		k->drain = false;
		token = k->token;
		n = k->n_stale;
		memcpy(stale, k->stale, n * sizeof(stale[0]));
		k->n_stale = 0;
		(void)pthread_mutex_unlock(&k->lock);
		for (size_t i = 0; i < n; i++)
			(void)fuse_lowlevel_notify_inval_inode(k->se, stale[i], 0, 0);
		if (draining)
			drain(k, token);
		else
			make_versions(k, false);
		busy = is_anything_written(k);
		(void)pthread_mutex_lock(&k->lock);
	}
	(void)pthread_mutex_unlock(&k->lock);
	return NULL;
}

int keeper_start(struct fs *fs, struct fuse_session *se, const char *mount_path, keeper_fn drained,
		 void *userdata, struct keeper **ret)
{
	struct keeper *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return -ENOMEM;
	k->fs = fs;
	k->se = se;
	k->drained = drained;
	k->userdata = userdata;
	k->mount_path = strdup(mount_path);
	(void)pthread_mutex_init(&k->lock, NULL);
	(void)pthread_cond_init(&k->cond, NULL);
	r = k->mount_path ? -pthread_create(&k->thread, NULL, run, k) : -ENOMEM;
	if (r < 0) {
		free(k->mount_path);
		free(k);
		return r;
	}
	*ret = k;
	return 0;
}

void keeper_stop(struct keeper *k)
{
	if (!k)
		return;
	(void)pthread_mutex_lock(&k->lock);
	k->stop = true;
	(void)pthread_cond_signal(&k->cond);
	(void)pthread_mutex_unlock(&k->lock);
	(void)pthread_join(k->thread, NULL);
	make_versions(k, true);
	(void)pthread_cond_destroy(&k->cond);
	(void)pthread_mutex_destroy(&k->lock);
	free(k->mount_path);
	free(k);
}

void keeper_wake(struct keeper *k)
{
	if (!k)
		return;
	(void)pthread_mutex_lock(&k->lock);
	k->wake = true;
	(void)pthread_cond_signal(&k->cond);
	(void)pthread_mutex_unlock(&k->lock);
}

/* Beyond the limit the kernel's own look at the file's size comes late, and is right. */
void keeper_invalidate(struct keeper *k, uint64_t id)
{
	if (!k)
		return;
	(void)pthread_mutex_lock(&k->lock);
	if (k->n_stale < INVALIDATE_MAX)
		k->stale[k->n_stale++] = id;
	(void)pthread_cond_signal(&k->cond);
	(void)pthread_mutex_unlock(&k->lock);
}

void keeper_drain(struct keeper *k, uint64_t token)
{
	(void)pthread_mutex_lock(&k->lock);
	k->drain = true;
	k->token = token;
	(void)pthread_cond_signal(&k->cond);
	(void)pthread_mutex_unlock(&k->lock);
}
