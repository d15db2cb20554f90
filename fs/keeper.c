#include "fs/keeper.h"

#include <fcntl.h>
#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/log.h"
#include "fs/bytes.h"
#include "fs/classes.h"

enum {
	TICK_MS = 10,
	QUIET_MAX_MS = 1000,
	EVENTUAL_MS = 2000, /* how often a file of that class has a version */
	LATER_MS = 250,	    /* TICK_MS where there are only such */
	INVALIDATE_MAX = 1024,
	NAMELESS_MS = 5000, /* the index may just be telling where its directory is */
};

struct stale_name {
	struct stale_name *next;
	uint64_t dir;
	char name[];
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
	bool nameless;	/* its thread's: there is something of which no version can be made now */
	uint64_t token; /* of the newest drain that was asked for */
	uint64_t stale[INVALIDATE_MAX];
	size_t n_stale;
	struct stale_name *names;
};

enum occasion { A_TICK, A_DRAIN, LAST_DRAIN, THE_END };

/* What is written still: nothing, what can wait, or what is to be looked at each tick. */
enum left { LEFT_NOTHING, LEFT_LATER, LEFT_SOON };

static bool is_eventual(struct keeper *k, struct index_txn *t, const struct onode *o)
{
	_cleanup_(buf_done) struct buf path = BUF_INIT(INDEX_PATH_MAX + 1);

	return !classes_plain(k->fs->classes) &&
	       overlay_path(k->fs->overlay, t, o->id, &path) >= 0 && buf_add_u8(&path, 0) >= 0 &&
	       classes_of(k->fs->classes, (const char *)buf_data(&path), false) == CLASS_EVENTUAL;
}

static bool is_due(struct keeper *k, const struct onode *o, bool eventual, enum occasion on)
{
	uint64_t now = clock_mono_ms();

	if (on == THE_END)
		return true;
	if (eventual)
		return on == A_TICK && status_is_live(&k->fs->status) &&
		       now - o->stage_ms >= EVENTUAL_MS;
	return on != A_TICK || now - o->write_ms >= o->quiet_ms ||
	       now - o->stage_ms >= QUIET_MAX_MS;
}

static enum left make_versions(struct keeper *k, enum occasion on)
{
	static struct log_limit limit;
	struct overlay *ov = k->fs->overlay;
	enum left left = LEFT_NOTHING;
	struct index_txn *t;
	uint64_t seq;
	int r;

	overlay_lock(ov);
	if (ov->n_written == 0 || source_begin(k->fs->source, &t, &seq) < 0) {
		left = ov->n_written ? LEFT_SOON : LEFT_NOTHING;
		overlay_unlock(ov);
		return left;
	}
	for (size_t i = 0; i < ov->n_slots && ov->n_written; i++)
		for (struct onode *o = ov->nodes[i]; o; o = o->next) {
			bool eventual = o->written && is_eventual(k, t, o), gone;

			if (!o->written)
				continue;
			if (!is_due(k, o, eventual, on)) {
				if (!eventual || left == LEFT_NOTHING)
					left = eventual ? LEFT_LATER : LEFT_SOON;
				continue;
			}
			gone = on >= LAST_DRAIN || clock_mono_ms() - o->write_ms >= NAMELESS_MS;
			r = bytes_version(ov, t, o, gone);
			o->quiet_ms = MIN(o->quiet_ms * 2, (uint64_t)QUIET_MAX_MS);
			/* It has no name in a tree that anybody sees. */
			if (r == -ENOENT && !gone) {
				k->nameless = true;
				left = LEFT_SOON;
				continue;
			}
			if (r < 0)
				left = LEFT_SOON;
			if (r < 0 && log_limited(&limit, 3, 10000))
				(void)log_line_errno(LOG_LEVEL_WARNING, r,
						     "cannot keep what was written; trying again");
		}
	source_end(k->fs->source, t);
	overlay_unlock(ov);
	return left;
}

/* Pages of mappings come as WRITEs meanwhile, which others answer. */
static enum left drain(struct keeper *k, uint64_t token)
{
	enum left left = LEFT_NOTHING;
	cleanup_close int fd = file_open_dir(AT_FDCWD, k->mount_path);

	if (fd >= 0)
		(void)io_syncfs(fd, "keeper.syncfs");
	for (unsigned i = 0; i < BYTES_NAPS; i++) {
		k->nameless = false;
		left = make_versions(k, i < BYTES_NAPS - 1 ? A_DRAIN : LAST_DRAIN);
		if (!k->nameless)
			break;
		(void)usleep(BYTES_NAP_MS * 1000);
	}
	k->drained(token, k->userdata);
	return left;
}

static void forget_names(struct keeper *k, struct stale_name *list, bool tell)
{
	for (struct stale_name *s = list, *next; s; s = next) {
		next = s->next;
		if (tell)
			(void)fuse_lowlevel_notify_inval_entry(k->se, s->dir, s->name,
							       strlen(s->name));
		free(s);
	}
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
	uint64_t stale[INVALIDATE_MAX], token, last_ms = 0;
	enum left left = LEFT_SOON; /* what a crash left is written, too */
	struct stale_name *names;
	bool draining;
	size_t n;

	(void)pthread_mutex_lock(&k->lock);
	for (;;) {
		/* A look at all nodes each tick, however often it is woken. */
		while (!k->stop && !k->drain && !k->n_stale && !k->names) {
			if (left == LEFT_NOTHING && !k->wake)
				(void)pthread_cond_wait(&k->cond, &k->lock);
			else if (wait_until(k, last_ms + (left == LEFT_SOON || k->wake ? TICK_MS
										       : LATER_MS)))
				break;
		}
		last_ms = clock_mono_ms();
		if (k->stop)
			break;
		k->wake = false;
		draining = k->drain;
		k->drain = false;
		token = k->token;
		n = k->n_stale;
		memcpy(stale, k->stale, n * sizeof(stale[0]));
		k->n_stale = 0;
		names = take_ptr(&k->names);
		(void)pthread_mutex_unlock(&k->lock);
		for (size_t i = 0; i < n; i++)
			(void)fuse_lowlevel_notify_inval_inode(k->se, stale[i], 0, 0);
		forget_names(k, names, true);
		left = draining ? drain(k, token) : make_versions(k, A_TICK);
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
	(void)make_versions(k, THE_END);
}

void keeper_free(struct keeper *k)
{
	if (!k)
		return;
	forget_names(k, k->names, false);
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

void keeper_forget_name(struct keeper *k, uint64_t dir, const char *name)
{
	size_t n = strlen(name) + 1;
	struct stale_name *s = k ? malloc(sizeof(*s) + n) : NULL;

	if (!s)
		return;
	s->dir = dir;
	memcpy(s->name, name, n);
	(void)pthread_mutex_lock(&k->lock);
	s->next = k->names;
	k->names = s;
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
