#include "fs/intent.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/log.h"

enum {
	LOG_BYTES_MAX = 1 << 20,
	MARKS = 64,
	MARK_MS = 1000,
};

struct intent_log {
	int dir_fd, fd, wake_fd;
	uint64_t epoch, first, last, size_bytes;
	pthread_mutex_t lock; /* of fd, which another thread may be syncing */
	struct buf out;
	/* When what waits was accepted: from that number on, up to the next. */
	struct mark {
		uint64_t number, ms;
	} marks[MARKS];
	size_t n_marks;
	uint64_t mark_ms; /* as far apart */
	uint64_t marked;  /* the newest that one of them stands for */
};

int intent_dir(const struct intent_log *l)
{
	return l->dir_fd;
}

uint64_t intent_last(const struct intent_log *l)
{
	return l->last;
}

int intent_wake_fd(const struct intent_log *l)
{
	return l->wake_fd;
}

void intent_close(struct intent_log *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < 3; i++) {
		int fd = (const int[]){l->fd, l->dir_fd, l->wake_fd}[i];

		if (fd >= 0)
			(void)close(fd);
	}
	(void)pthread_mutex_destroy(&l->lock);
	buf_done(&l->out);
	free(l);
}

/* The next log; the one before stays as it is. */
static int begin_log(struct intent_log *l)
{
	uint8_t head[ACCEPTED_HEADER_BYTES];
	cleanup_close int fd = -1;
	char name[32];
	int r;

	accepted_header(l->epoch, l->last + 1, head);
	accepted_log_name(l->last + 1, name);
	fd = openat(l->dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	r = io_write_full(fd, head, sizeof(head), "intent.header");
	if (r < 0) {
		(void)io_unlinkat(l->dir_fd, name, 0, "intent.unlink");
		return r;
	}
	(void)pthread_mutex_lock(&l->lock);
	/* What is in it may have been promised to whoever syncs next. */
	if (l->fd >= 0) {
		r = io_fdatasync(l->fd, "intent.sync");
		(void)close(l->fd);
	}
	l->fd = take_fd(&fd);
	(void)pthread_mutex_unlock(&l->lock);
	l->first = l->last + 1;
	l->size_bytes = sizeof(head);
	return r;
}

/* What a crash left half written goes. */
static int cut_tail(struct intent_log *l, uint64_t offset)
{
	struct stat st;

	if (fstat(l->fd, &st) < 0)
		return -errno;
	l->size_bytes = offset;
	if ((uint64_t)st.st_size <= offset)
		return 0;
	log_info("the view's intent log ends %" PRIu64 " bytes early; a write was under way",
		 (uint64_t)st.st_size - offset);
	return io_ftruncate(l->fd, offset, "intent.cut");
}

static int nothing(const struct accepted *e, void *userdata)
{
	(void)e;
	(void)userdata;
	return 0;
}

static int find_end(struct intent_log *l)
{
	char name[32];
	int r;

	l->fd = -1;
	r = intent_replay(l, nothing, NULL);
	if (r == -ENOENT || r == -EBADMSG) {
		if (r == -EBADMSG)
			log_warning("the view's intent log cannot be read; a new one is begun");
		random_bytes(&l->epoch, sizeof(l->epoch));
		l->epoch >>= 11; /* numbers of records can be said as JSON */
		l->last = 0;
		return begin_log(l);
	}
	if (r < 0)
		return r;
	accepted_log_name(l->first, name);
	l->fd = openat(l->dir_fd, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	return l->fd < 0 ? -errno : cut_tail(l, l->size_bytes);
}

int intent_open(int env_fd, struct intent_log **ret)
{
	_cleanup_(intent_closep) struct intent_log *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	(void)pthread_mutex_init(&l->lock, NULL);
	l->fd = l->dir_fd = -1;
	l->mark_ms = MARK_MS;
	l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->wake_fd < 0)
		return -errno;
	r = file_make_dir(env_fd, ACCEPTED_DIR);
	if (r >= 0)
		r = l->dir_fd = file_open_dir(env_fd, ACCEPTED_DIR);
	if (r >= 0)
		r = find_end(l);
	if (r < 0)
		return r;
	*ret = take_ptr(&l);
	return 0;
}

int intent_replay(struct intent_log *l, intent_fn each, void *userdata)
{
	_cleanup_(accepted_reader_closep) struct accepted_reader *rd = NULL;
	struct accepted e;
	int r;

	r = accepted_reader_open(l->dir_fd, 0, 0, &rd);
	if (r < 0)
		return r;
	while ((r = accepted_next(rd, &e)) > 0) {
		r = each(&e, userdata);
		if (r < 0)
			return r;
	}
	l->epoch = accepted_reader_epoch(rd);
	accepted_reader_place(rd, &l->first, &l->size_bytes, &l->last);
	return r;
}

/* ---- how old what waits is ---- */

/* With no room for more of them every second one goes. */
void intent_waits(struct intent_log *l, uint64_t number, uint64_t now_ms)
{
	l->marked = MAX(l->marked, number);
	if (l->n_marks == 0)
		l->mark_ms = MARK_MS;
	else if (now_ms - l->marks[l->n_marks - 1].ms < l->mark_ms)
		return;
	if (l->n_marks == MARKS) {
		for (size_t i = 0; i < MARKS / 2; i++)
			l->marks[i] = l->marks[2 * i];
		l->n_marks = MARKS / 2;
		l->mark_ms *= 2;
	}
	l->marks[l->n_marks++] = (struct mark){number, now_ms};
}

static void drop_marks(struct intent_log *l, uint64_t done)
{
	size_t n = 0;

	while (n < l->n_marks &&
	       (n + 1 < l->n_marks ? l->marks[n + 1].number <= done + 1 : l->marked <= done))
		n++;
	l->n_marks -= n;
	memmove(l->marks, l->marks + n, l->n_marks * sizeof(l->marks[0]));
}

uint64_t intent_age_ms(const struct intent_log *l, uint64_t now_ms)
{
	return l->n_marks ? now_ms - l->marks[0].ms : 0;
}

/* ---- entries ---- */

int intent_append(struct intent_log *l, struct accepted *e)
{
	int r;

	if (l->size_bytes >= LOG_BYTES_MAX) {
		r = begin_log(l);
		if (r < 0)
			return r;
	}
	e->number = l->last + 1;
	buf_clear(&l->out);
	r = accepted_encode(e, l->epoch, &l->out);
	if (r >= 0)
		r = io_pwrite_full(l->fd, buf_data(&l->out), buf_len(&l->out), l->size_bytes,
				   "intent.append");
	if (r < 0) {
		(void)io_ftruncate(l->fd, l->size_bytes, "intent.cut");
		return r == -E2BIG ? -ENAMETOOLONG : r;
	}
	l->size_bytes += buf_len(&l->out);
	l->last++;
	if (e->kind != ACCEPTED_DONE)
		intent_waits(l, e->number, clock_mono_ms());
	(void)eventfd_write(l->wake_fd, 1);
	return 0;
}

int intent_sync(struct intent_log *l)
{
	int fd, r;

	(void)pthread_mutex_lock(&l->lock);
	fd = fcntl(l->fd, F_DUPFD_CLOEXEC, 3);
	(void)pthread_mutex_unlock(&l->lock);
	if (fd < 0)
		return -errno;
	r = io_fdatasync(fd, "intent.sync");
	(void)close(fd);
	return r < 0 ? r : io_fsync(l->dir_fd, "intent.sync-dir");
}

void intent_done(struct intent_log *l, uint64_t number)
{
	cleanup_free uint64_t *firsts = NULL;
	char name[32];
	size_t n;

	drop_marks(l, number);
	if (accepted_logs(l->dir_fd, &firsts, &n) < 0)
		return;
	for (size_t i = 0; i + 1 < n; i++) {
		if (firsts[i + 1] > number + 1)
			break;
		accepted_log_name(firsts[i], name);
		(void)io_unlinkat(l->dir_fd, name, 0, "intent.unlink");
	}
}
