#include "fs/source.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
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
	int env_fd, log_fd;
	struct contents *contents;
	pthread_rwlock_t lock; /* readers: a transaction is open; writer: ix is replaced */
	struct index *ix;      /* NULL: a lazy one that rests */
	uint64_t retry_ms;
	_Atomic uint64_t used_ms;
	atomic_bool kept;
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

	if (s->log_fd < 0)
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

static int open_lazy(struct source *s)
{
	int r = index_open(s->env_fd, INDEX_READ, -1, NULL, NULL, &s->ix);

	return r == -ENOENT && atomic_load(&s->kept) ? open_copy(s) : r;
}

int source_open(int env_fd, struct contents *contents, enum source_kind kind, struct source **ret)
{
	_cleanup_(source_closep) struct source *s = calloc(1, sizeof(*s));
	int r = 0;

	if (!s)
		return -ENOMEM;
	s->kind = kind;
	s->contents = contents;
	s->log_fd = -1;
	(void)pthread_rwlock_init(&s->lock, NULL);
	s->env_fd = fcntl(env_fd, F_DUPFD_CLOEXEC, 3);
	if (s->env_fd < 0)
		return -errno;
	if (kind == SOURCE_LIVE)
		r = open_live(s);
	else if (kind == SOURCE_COPY)
		r = open_copy(s);
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
	(void)pthread_rwlock_destroy(&s->lock);
	if (s->env_fd >= 0)
		(void)close(s->env_fd);
	if (s->log_fd >= 0)
		(void)close(s->log_fd);
	free(s);
}

static int wake(struct source *s)
{
	int r = 0;

	(void)pthread_rwlock_wrlock(&s->lock);
	atomic_store(&s->used_ms, clock_mono_ms());
	if (!s->ix)
		r = open_lazy(s);
	(void)pthread_rwlock_unlock(&s->lock);
	return r;
}

void source_set_kept(struct source *s)
{
	atomic_store(&s->kept, true);
}

bool source_rest(struct source *s, uint64_t idle_ms)
{
	bool open = true;

	/* Who has the lock uses it. */
	if (pthread_rwlock_trywrlock(&s->lock) != 0)
		return true;
	if (s->kind == SOURCE_LAZY && clock_mono_ms() - atomic_load(&s->used_ms) >= idle_ms) {
		index_close(s->ix);
		s->ix = NULL;
	}
	open = s->ix != NULL;
	(void)pthread_rwlock_unlock(&s->lock);
	return open;
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
	while (!s->ix) {
		(void)pthread_rwlock_unlock(&s->lock);
		r = wake(s);
		if (r < 0)
			return r;
		(void)pthread_rwlock_rdlock(&s->lock);
	}
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
	atomic_store_explicit(&s->used_ms, clock_mono_ms(), memory_order_relaxed);
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

int source_record(struct source *s, uint64_t seq, uint16_t *ret_type, struct buf *body)
{
	cleanup_close int fd = file_open_dir(s->env_fd, "log");

	return fd < 0 ? fd : log_read_one(fd, seq, ret_type, NULL, body);
}

/* ---- the store ---- */

int source_fetch(const uint8_t hash[SHA256_BYTES], struct buf *out, void *source)
{
	return contents_fetch(hash, out, ((struct source *)source)->contents);
}

void source_close_removed(struct source *s)
{
	contents_close_removed(s->contents);
}
