#include "fs/follow.h"

#include <pthread.h>
#include <time.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/log.h"
#include "fs/news.h"
#include "fs/settle.h"

enum {
	AGAIN_US = 50,
	AGAIN_MS_MAX = 5000,
	FAILED_PAUSE_MS = 100,
	FAILED_PAUSE_MAX_MS = 5000,
};

struct follow {
	struct fs *fs;
	struct fuse_session *se;
	follow_seen_fn seen;
	void *userdata;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	uint64_t wanted;	/* under the lock */
	uint64_t done, done_at; /* what is over in the view's log, and in which record */
	bool asked, stop;
	uint64_t since; /* the thread's own: what the kernel has been told of */
};

/* ---- telling ---- */

static bool is_stopping(struct follow *f)
{
	bool stop;

	(void)pthread_mutex_lock(&f->lock);
	stop = f->stop;
	(void)pthread_mutex_unlock(&f->lock);
	return stop;
}

/* ENOENT of a node that counts as known: an answer that makes it known is on its way, with
 * old attributes maybe, and would install them for ever. So ask again until it is there,
 * or forgotten. (When all is unmounted nothing is there, and nothing is forgotten any more.) */
static void tell_node(struct follow *f, uint64_t id, bool data)
{
	const struct timespec pause = {.tv_nsec = AGAIN_US * 1000};
	uint64_t end_ms = 0;

	while (fuse_lowlevel_notify_inval_inode(f->se, id, data ? 0 : -1, 0) == -ENOENT) {
		if (id == NODE_ROOT || !nodes_known(f->fs->nodes, id) || is_stopping(f))
			return;
		if (!end_ms)
			end_ms = clock_mono_ms() + AGAIN_MS_MAX;
		if (clock_mono_ms() > end_ms) {
			log_warning("node %llu was answered, but the kernel does not know it; "
				    "forgetting it",
				    (unsigned long long)id);
			nodes_forget(f->fs->nodes, id, UINT64_MAX);
			return;
		}
		(void)nanosleep(&pause, NULL);
	}
}

/* Of a node that is gone the kernel is told so, which also ends watches on it. A moved one
 * must not be told of in this way: its inode would be dead under the new name. */
static void tell_entry(struct follow *f, const struct news *n, const struct news_entry *e)
{
	const char *name = news_name(n, e);

	if (e->dead)
		(void)fuse_lowlevel_notify_delete(f->se, e->shown, e->dead, name, e->len);
	else
		(void)fuse_lowlevel_notify_inval_entry(f->se, e->shown, name, e->len);
}

static int tell_round(struct follow *f, uint64_t wanted)
{
	struct news n;
	int r;

	news_init(&n, f->fs, f->since);
	r = news_gather(&n, wanted);
	if (r >= 0) {
		for (size_t i = 0; i < n.n_entries; i++)
			tell_entry(f, &n, &n.entries[i]);
		for (size_t i = 0; i < n.n_dirs; i++)
			tell_node(f, n.dirs[i], true);
		for (size_t i = 0; i < n.n_nodes; i++)
			tell_node(f, n.nodes[i].shown, n.nodes[i].data);
		f->since = n.seq;
		atomic_store(&f->fs->status.seen, n.seq);
	}
	news_done(&n);
	return r;
}

/* What is over leaves the overlay; the same order as above. */
static int settle_round(struct follow *f, uint64_t done, uint64_t at)
{
	struct settle s;
	int r;

	settle_init(&s);
	r = settle_gather(&s, f->fs->overlay, done, at);
	for (size_t i = 0; i < s.n_entries; i++)
		(void)fuse_lowlevel_notify_inval_entry(
			f->se, s.entries[i].parent, s.entries[i].name, strlen(s.entries[i].name));
	for (size_t i = 0; i < s.n_entries; i++)
		if (i == 0 || s.entries[i].parent != s.entries[i - 1].parent)
			tell_node(f, s.entries[i].parent, true);
	for (size_t i = 0; i < s.n_nodes; i++)
		tell_node(f, s.nodes[i].id, s.nodes[i].data);
	settle_done(&s);
	return r;
}

/* ---- the thread ---- */

/* False: it is time to end. After failures there is no news to wait for. */
static bool next_round(struct follow *f, unsigned failures, uint64_t *ret_wanted,
		       uint64_t *ret_done, uint64_t *ret_done_at)
{
	uint64_t ms = failures ? backoff_ms(failures - 1, FAILED_PAUSE_MS, FAILED_PAUSE_MAX_MS) : 0;
	struct timespec until = clock_to_timespec((int64_t)(clock_mono_ns() + ms * 1000000));
	bool go_on;

	(void)pthread_mutex_lock(&f->lock);
	while (!f->asked && !f->stop) {
		if (!failures)
			(void)pthread_cond_wait(&f->cond, &f->lock);
		else if (pthread_cond_clockwait(&f->cond, &f->lock, CLOCK_MONOTONIC, &until) ==
			 ETIMEDOUT)
			break;
	}
	go_on = !f->stop;
	f->asked = false;
	*ret_wanted = MAX(f->wanted, f->done_at);
	*ret_done = f->done;
	*ret_done_at = f->done_at;
	(void)pthread_mutex_unlock(&f->lock);
	return go_on;
}

static void *run(void *userdata)
{
	struct follow *f = userdata;
	struct log_limit limit = {0};
	uint64_t wanted, done, done_at;
	unsigned failures = 0;
	int r;

	while (next_round(f, failures, &wanted, &done, &done_at)) {
		r = tell_round(f, wanted);
		if (r >= 0 && f->fs->overlay)
			r = settle_round(f, done, done_at);
		failures = r < 0 ? failures + 1 : 0;
		if (r >= 0)
			f->seen(f->since, f->userdata);
		else if (log_limited(&limit, 3, 10000))
			(void)log_line_errno(LOG_LEVEL_WARNING, r,
					     "cannot read what changed; trying again");
	}
	return NULL;
}

int follow_start(struct fs *fs, struct fuse_session *se, follow_seen_fn seen, void *userdata,
		 struct follow **ret)
{
	struct follow *f = calloc(1, sizeof(*f));
	struct index_txn *t;
	int r;

	if (!f)
		return -ENOMEM;
	f->fs = fs;
	f->se = se;
	f->seen = seen;
	f->userdata = userdata;
	(void)pthread_mutex_init(&f->lock, NULL);
	(void)pthread_cond_init(&f->cond, NULL);
	r = source_begin(fs->source, &t, &f->since);
	if (r >= 0) {
		source_end(fs->source, t);
		atomic_store(&fs->status.seen, f->since);
		r = -pthread_create(&f->thread, NULL, run, f);
	}
	if (r < 0) {
		free(f);
		return r;
	}
	*ret = f;
	return 0;
}

void follow_publish(struct follow *f, uint64_t seq)
{
	(void)pthread_mutex_lock(&f->lock);
	f->wanted = MAX(f->wanted, seq);
	f->asked = true;
	(void)pthread_cond_signal(&f->cond);
	(void)pthread_mutex_unlock(&f->lock);
}

void follow_over(struct follow *f, uint64_t done, uint64_t seq)
{
	(void)pthread_mutex_lock(&f->lock);
	f->done = done;
	f->done_at = MAX(f->done_at, seq);
	f->asked = true;
	(void)pthread_cond_signal(&f->cond);
	(void)pthread_mutex_unlock(&f->lock);
}

void follow_stop(struct follow *f)
{
	if (!f)
		return;
	(void)pthread_mutex_lock(&f->lock);
	f->stop = true;
	(void)pthread_cond_signal(&f->cond);
	(void)pthread_mutex_unlock(&f->lock);
	(void)pthread_join(f->thread, NULL);
	(void)pthread_cond_destroy(&f->cond);
	(void)pthread_mutex_destroy(&f->lock);
	free(f);
}
