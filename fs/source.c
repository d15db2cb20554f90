#include "fs/source.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "journal/index-view.h"

enum {
	WAIT_MS = 5000,
	PAUSE_MS = 20,
	RETRY_MS = 200, /* between attempts to open an index that is being made */
};

struct source {
	enum source_kind kind;
	int env_fd, log_fd, store_fd;
	pthread_rwlock_t lock; /* readers: a transaction is open; writer: ix is replaced */
	struct index *ix;
	uint64_t retry_ms;
	pthread_mutex_t store_lock;
	struct store *_Atomic store;
};

static void pause_ms(unsigned ms)
{
	struct timespec ts = {.tv_nsec = (long)ms * 1000000};

	(void)nanosleep(&ts, NULL);
}

/* ---- the index ---- */

static int open_live(struct source *s)
{
	uint64_t end_ms = clock_mono_ms() + WAIT_MS;
	int r;

	for (;;) {
		r = index_open(s->env_fd, INDEX_READ, -1, NULL, NULL, &s->ix);
		if (r != -ENOENT || clock_mono_ms() >= end_ms)
			return r;
		pause_ms(PAUSE_MS);
	}
}

/* Not an error: a copy of a log that is being written may have got the newer head. */
static void warn_of_end(struct source *s)
{
	struct index_txn *t;
	struct log_head head;

	if (log_head_read(s->log_fd, &head) < 0 || index_read_begin(s->ix, &t) < 0)
		return;
	if (index_seq(t) < head.seq)
		log_warning("the log ends with record %llu, but went on up to %llu: showing what "
			    "is there",
			    (unsigned long long)index_seq(t), (unsigned long long)head.seq);
	index_read_end(t);
}

/* An index in a copy may be incomplete, of another machine, damaged (which is death to who
 * maps it) or made to deceive: so it is not looked at, and made from the log. */
static int open_copy(struct source *s)
{
	const char *tmp = getenv("TMPDIR");
	cleanup_free char *path = NULL;
	cleanup_close int fd = -1;
	int r;

	s->log_fd = file_open_dir(s->env_fd, "log");
	if (s->log_fd < 0)
		return s->log_fd;
	if (asprintf(&path, "%s/limb-fs.XXXXXX", tmp && *tmp ? tmp : "/tmp") < 0) {
		path = NULL;
		return -ENOMEM;
	}
	if (!mkdtemp(path))
		return -errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = fd < 0 ? -errno : index_open(fd, INDEX_WRITE, s->log_fd, NULL, NULL, &s->ix);
	(void)file_remove_tree(AT_FDCWD, path);
	if (r >= 0)
		warn_of_end(s);
	return r;
}

int source_open(int env_fd, int store_fd, enum source_kind kind, struct source **ret)
{
	_cleanup_(source_closep) struct source *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->kind = kind;
	s->log_fd = -1;
	(void)pthread_rwlock_init(&s->lock, NULL);
	(void)pthread_mutex_init(&s->store_lock, NULL);
	s->env_fd = fcntl(env_fd, F_DUPFD_CLOEXEC, 3);
	s->store_fd = fcntl(store_fd, F_DUPFD_CLOEXEC, 3);
	if (s->env_fd < 0 || s->store_fd < 0)
		return -errno;
	r = kind == SOURCE_LIVE ? open_live(s) : open_copy(s);
	if (r < 0)
		return r;
	*ret = take_ptr(&s);
	return 0;
}

void source_close(struct source *s)
{
	if (!s)
		return;
	index_close(s->ix);
	store_close(s->store);
	(void)pthread_rwlock_destroy(&s->lock);
	(void)pthread_mutex_destroy(&s->store_lock);
	if (s->env_fd >= 0)
		(void)close(s->env_fd);
	if (s->log_fd >= 0)
		(void)close(s->log_fd);
	if (s->store_fd >= 0)
		(void)close(s->store_fd);
	free(s);
}

/* limbd has made another index, or is about to. Until it can be opened the old one, whose
 * files are ours as long as we have them open, goes on answering. Only for that: the same
 * index opened twice would lose LMDB's lock on it when the first one is closed. */
static void open_again(struct source *s)
{
	struct index *ix;
	int r;

	(void)pthread_rwlock_wrlock(&s->lock);
	if (clock_mono_ms() >= s->retry_ms) {
		s->retry_ms = clock_mono_ms() + RETRY_MS;
		r = index_open(s->env_fd, INDEX_READ, -1, NULL, NULL, &ix);
		if (r >= 0) {
			index_close(s->ix);
			s->ix = ix;
			log_debug("opened the index again");
		}
	}
	(void)pthread_rwlock_unlock(&s->lock);
}

/* The lock stays taken for reading until source_end. */
static int begin(struct source *s, bool left, struct index_txn **ret)
{
	int r;

	(void)pthread_rwlock_rdlock(&s->lock);
	r = left ? index_read_begin_left(s->ix, ret) : index_read_begin(s->ix, ret);
	if (r < 0)
		(void)pthread_rwlock_unlock(&s->lock);
	return r;
}

int source_begin(struct source *s, struct index_txn **ret, uint64_t *ret_seq)
{
	int r;

	r = begin(s, false, ret);
	if (r == -ESTALE) {
		open_again(s);
		r = begin(s, true, ret);
	}
	if (r >= 0)
		*ret_seq = index_seq(*ret);
	return r;
}

void source_end(struct source *s, struct index_txn *t)
{
	index_read_end(t);
	(void)pthread_rwlock_unlock(&s->lock);
}

int source_begin_at_least(struct source *s, uint64_t seq, struct index_txn **ret, uint64_t *ret_seq)
{
	uint64_t end_ms = clock_mono_ms() + WAIT_MS;
	int r;

	for (;;) {
		r = source_begin(s, ret, ret_seq);
		if (r < 0 || *ret_seq >= seq || s->kind != SOURCE_LIVE || clock_mono_ms() >= end_ms)
			return r;
		/* A left index is noticed within a second. */
		source_end(s, *ret);
		pause_ms(PAUSE_MS);
	}
}

/* ---- the store ---- */

static int open_store(struct source *s, struct store **ret)
{
	struct store *st = s->store;
	int r = 0;

	if (!st) {
		(void)pthread_mutex_lock(&s->store_lock);
		st = s->store;
		if (!st) {
			r = store_open(s->store_fd,
				       s->kind == SOURCE_LIVE ? STORE_READ : STORE_COPY, &st);
			if (r >= 0)
				s->store = st;
		}
		(void)pthread_mutex_unlock(&s->store_lock);
	}
	*ret = st;
	return r;
}

int source_fetch(const uint8_t hash[SHA256_BYTES], struct buf *out, void *source)
{
	struct store *st;
	int r;

	r = open_store(source, &st);
	return r < 0 ? r : store_fetch(st, hash, out);
}

void source_close_removed(struct source *s)
{
	(void)pthread_mutex_lock(&s->store_lock);
	if (s->store)
		store_close_removed(s->store);
	(void)pthread_mutex_unlock(&s->store_lock);
}
