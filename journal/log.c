#include "journal/log.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/util.h"
#include "journal/log-head.h"
#include "journal/log-private.h"
#include "journal/log-recover.h"
#include "journal/segment.h"

enum {
	FILL_FIRST_BYTES = 256 << 10,
	FILL_MAX_BYTES = 1 << 20,
	PENDING_WRITE_BYTES = 1 << 20, /* log_append writes by itself above this */
	PENDING_MAX_BYTES = 64 << 20,  /* when it cannot */
	PENDING_KEEP_BYTES = 4 << 20,
	HEAD_INTERVAL_MS = 1000,
};

struct log {
	int dir_fd, lock_fd;
	struct log_ids ids;

	int fd; /* the last segment */
	struct segment_header header;
	uint64_t end;	 /* one past what is written in it */
	uint64_t filled; /* zeros from end up to here */
	uint64_t fill_step;
	uint64_t seal_bytes;
	uint64_t sealed_bytes; /* of the segments before */
	unsigned segments;

	struct buf pending; /* records behind end, not written yet */
	uint64_t last, written, durable;
	uint8_t chain[SHA256_BYTES];
	int64_t time_ns;

	bool broken;
	bool syncing;
	uint8_t sync_chain[SHA256_BYTES]; /* of the last record that the sync covers */

	struct log_head_file head;
	struct log_head durable_head;
	uint64_t head_seq; /* what `head` names */
	uint64_t head_ms;
	uint64_t head_interval_ms;
};

static int fail(struct log *log, int r)
{
	log->broken = true;
	return r;
}

static uint64_t random_tag(void)
{
	uint64_t tag;

	random_bytes(&tag, sizeof(tag));
	return tag;
}

/* ---- opening ---- */

/* Goes on in a new segment, behind the last record. */
static int new_segment(struct log *log)
{
	struct segment_header h = {
		.term = log->ids.term,
		.first_seq = log->last + 1,
		.tag = random_tag(),
	};
	bool empty = log->fd >= 0 && h.first_seq == log->header.first_seq;
	bool named = false;
	int fd, r;

	h.time_ns = MAX(clock_real_ns(), log->time_ns);
	memcpy(h.log_id, log->ids.log_id, sizeof(h.log_id));
	memcpy(h.brain_id, log->ids.brain_id, sizeof(h.brain_id));
	memcpy(h.chain, log->chain, SHA256_BYTES);
	if (log->fd >= 0)
		h.before_first_seq = empty ? log->header.before_first_seq : log->header.first_seq;
	r = segment_create(log->dir_fd, &h, FILL_FIRST_BYTES, &fd, &named);
	if (r < 0)
		return named ? fail(log, r) : r;

	if (log->fd >= 0)
		(void)close(log->fd);
	if (!empty) {
		log->sealed_bytes += log->end;
		log->segments++;
	}
	log->fd = fd;
	log->header = h;
	log->end = SEGMENT_HEADER_BYTES;
	log->filled = FILL_FIRST_BYTES;
	log->fill_step = FILL_FIRST_BYTES;
	log->time_ns = h.time_ns;
	return 0;
}

static void take_tail(struct log *log, const struct log_tail *t)
{
	log->fd = t->fd;
	log->header = t->header;
	log->end = t->end;
	log->filled = t->size;
	log->fill_step = FILL_FIRST_BYTES;
	log->sealed_bytes = t->sealed_bytes;
	log->segments = t->segments;
	log->last = log->written = log->durable = t->last_seq;
	log->time_ns = t->time_ns;
	memcpy(log->chain, t->chain, SHA256_BYTES);
}

static int renew_head(struct log *log)
{
	int r;

	log->head_ms = clock_mono_ms();
	if (log->head_seq == log->durable_head.seq)
		return 0;
	r = log_head_put(&log->head, &log->durable_head);
	if (r >= 0)
		log->head_seq = log->durable_head.seq;
	return r;
}

static void set_durable(struct log *log, uint64_t seq, const uint8_t chain[SHA256_BYTES])
{
	log->durable = seq;
	log->durable_head.seq = seq;
	memcpy(log->durable_head.chain, chain, SHA256_BYTES);
}

static int seal(struct log *log);

static int open_locked(struct log *log, unsigned flags, struct log_recovery *recovery)
{
	struct log_head head;
	struct log_tail t;
	int r;

	r = log_head_open(log->dir_fd, &log->head, &head);
	if (r < 0)
		return r;
	r = log_recover(log->dir_fd, &log->ids, &head, &t);
	if (r < 0)
		return r;
	log->head_seq = head.seq;
	if (t.fd < 0) {
		if (!(flags & LOG_CREATE))
			return -ENOENT;
		r = new_segment(log);
		if (r < 0)
			return r;
	} else {
		take_tail(log, &t);
		recovery->torn_tail_bytes = t.torn_bytes;
		recovery->last_seq = t.last_seq;
		set_durable(log, t.last_seq, t.chain);
		if (log->header.term < log->ids.term) {
			/* From here on the older term is refused. */
			r = seal(log);
			if (r < 0)
				return r;
		}
	}
	return renew_head(log);
}

int log_open(int dir_fd, const struct log_ids *ids, unsigned flags, struct log **ret_log,
	     struct log_recovery *ret_recovery)
{
	_cleanup_(log_closep) struct log *log = NULL;
	struct log_recovery recovery = {0};
	int r;

	log = calloc(1, sizeof(*log));
	if (!log)
		return -ENOMEM;
	log->ids = *ids;
	log->lock_fd = log->fd = log->head.fd = -1;
	log->seal_bytes = SEGMENT_SEAL_BYTES;
	log->head_interval_ms = HEAD_INTERVAL_MS;
	buf_init(&log->pending, PENDING_MAX_BYTES);
	log->dir_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
	if (log->dir_fd < 0)
		return -errno;
	r = file_lock(log->dir_fd, "lock", &log->lock_fd);
	if (r < 0)
		return r;
	r = open_locked(log, flags, &recovery);
	if (r < 0)
		return fail(log, r);
	if (ret_recovery)
		*ret_recovery = recovery;
	*ret_log = take_ptr(&log);
	return 0;
}

void log_close(struct log *log)
{
	if (!log)
		return;
	if (!log->broken && log->head_seq != log->durable_head.seq && renew_head(log) >= 0)
		(void)log_head_sync(&log->head); /* it may lag */
	log_head_done(&log->head);
	buf_done(&log->pending);
	if (log->fd >= 0)
		(void)close(log->fd);
	if (log->lock_fd >= 0)
		(void)close(log->lock_fd);
	if (log->dir_fd >= 0)
		(void)close(log->dir_fd);
	free(log);
}

/* ---- appending ---- */

static int fill_ahead(struct log *log, uint64_t need)
{
	uint64_t to = MIN(need + log->fill_step, log->seal_bytes);
	int r;

	if (need <= log->filled)
		return 0;
	to = MAX(to, need);
	r = io_fill_zeros(log->fd, log->filled, to, "log.fill");
	if (r < 0)
		return r;
	log->filled = to;
	log->fill_step = MIN(log->fill_step * 2, (uint64_t)FILL_MAX_BYTES);
	return 0;
}

int log_write(struct log *log)
{
	size_t n = buf_len(&log->pending);
	int r;

	if (log->broken)
		return -EIO;
	if (n > 0) {
		/* No room for zeros harms nothing: it can be tried again. */
		r = fill_ahead(log, log->end + n);
		if (r < 0)
			return r;
		r = io_pwrite_full(log->fd, buf_data(&log->pending), n, log->end, "log.append");
		if (r < 0)
			return fail(log, r);
		log->end += n;
		buf_clear(&log->pending);
		if (log->pending.cap > PENDING_KEEP_BYTES)
			buf_done(&log->pending);
	}
	log->written = log->last;
	return 0;
}

/* Ends the last segment for ever and makes the next. */
static int seal(struct log *log)
{
	int r;

	r = log_write(log);
	if (r < 0)
		return r;
	if (log->last >= log->header.first_seq) {
		r = io_ftruncate(log->fd, log->end, "log.segment.cut");
		if (r < 0)
			return fail(log, r);
		log->filled = log->end;
		r = io_fsync(log->fd, "log.segment.seal");
		if (r < 0)
			return fail(log, r);
		/* A sync that runs beside shares our descriptor's errors: it may
		 * have been told what we were not. */
		if (!log->syncing)
			set_durable(log, log->last, log->chain);
	}
	r = new_segment(log);
	if (r < 0)
		return r;
	(void)renew_head(log); /* it may lag */
	return 0;
}

static void put_record(struct log *log, uint16_t type, const void *body, size_t n, int64_t time_ns,
		       uint8_t *p)
{
	struct record_header h = {
		.type = type,
		.body_len = (uint32_t)(n + RECORD_SALT_BYTES),
		.seq = log->last + 1,
		.durable_seq = log->durable,
		.tag = log->header.tag,
	};
	size_t used = RECORD_HEADER_BYTES + h.body_len;
	uint8_t *salted = p + RECORD_HEADER_BYTES;

	h.time_ns = time_ns ? time_ns : clock_real_ns();
	h.time_ns = MAX(h.time_ns, log->time_ns);
	random_bytes(salted, RECORD_SALT_BYTES);
	if (n > 0)
		memcpy(salted + RECORD_SALT_BYTES, body, n);
	memset(p + used, 0, record_size(h.body_len) - used);
	record_header_seal(&h, log->chain, salted, p);
	log->last = h.seq;
	log->time_ns = h.time_ns;
	memcpy(log->chain, h.chain, SHA256_BYTES);
}

int log_append(struct log *log, uint16_t type, const void *body, size_t n, int64_t time_ns,
	       uint64_t *ret_seq)
{
	size_t size;
	uint8_t *p;
	int r;

	if (log->broken)
		return -EIO;
	if (n > RECORD_BODY_MAX - RECORD_SALT_BYTES)
		return -E2BIG;
	size = record_size((uint32_t)(n + RECORD_SALT_BYTES));
	if (log->last >= log->header.first_seq &&
	    log->end + buf_len(&log->pending) + size > log->seal_bytes) {
		r = seal(log);
		if (r < 0)
			return r;
	} else if (buf_len(&log->pending) + size > PENDING_WRITE_BYTES) {
		r = log_write(log);
		if (r < 0)
			return r;
	}
	r = buf_reserve(&log->pending, size, &p);
	if (r < 0)
		return r;
	put_record(log, type, body, n, time_ns, p);
	buf_commit(&log->pending, size);
	if (ret_seq)
		*ret_seq = log->last;
	return 0;
}

/* ---- syncing ---- */

int log_sync_begin(struct log *log, struct log_sync *s)
{
	int r, fd;

	if (log->syncing)
		return -EBUSY;
	r = log_write(log);
	if (r < 0)
		return r;
	*s = (struct log_sync){.seq = log->written};
	if (log->written > log->durable) {
		fd = fcntl(log->fd, F_DUPFD_CLOEXEC, 0);
		if (fd < 0)
			return -errno;
		s->fds[s->n_fds++] = fd;
	}
	memcpy(log->sync_chain, log->chain, SHA256_BYTES);
	log->syncing = true;
	return 0;
}

int log_sync_run(const struct log_sync *s)
{
	int r;

	for (int i = 0; i < s->n_fds; i++) {
		r = io_fdatasync(s->fds[i], "log.sync");
		if (r < 0)
			return r;
	}
	return 0;
}

int log_sync_end(struct log *log, struct log_sync *s, int result)
{
	for (int i = 0; i < s->n_fds; i++)
		(void)close(s->fds[i]);
	s->n_fds = 0;
	log->syncing = false;
	if (result < 0)
		return fail(log, result);
	if (log->broken)
		return -EIO;
	set_durable(log, s->seq, log->sync_chain);
	if (clock_mono_ms() - log->head_ms >= log->head_interval_ms)
		(void)renew_head(log); /* it may lag */
	return 0;
}

int log_sync(struct log *log)
{
	struct log_sync s;
	int r;

	r = log_sync_begin(log, &s);
	if (r < 0)
		return r;
	return log_sync_end(log, &s, log_sync_run(&s));
}

/* ---- dropping the end ---- */

/* Both slots, so that the higher one is gone. */
static int lower_head(struct log *log, const struct log_tail *t)
{
	int r;

	set_durable(log, t->last_seq, t->chain);
	for (int i = 0; i < 2; i++) {
		r = log_head_put(&log->head, &log->durable_head);
		if (r < 0)
			return r;
	}
	log->head_seq = log->durable_head.seq;
	return log_head_sync(&log->head);
}

/* Removes the segments above firsts[keep], newest first, so that a crash leaves
 * no gap. */
static int drop_segments(struct log *log, const uint64_t *firsts, size_t n, size_t keep)
{
	char name[SEGMENT_NAME_BYTES];
	int r;

	for (size_t i = n; i > keep + 1; i--) {
		segment_name(name, firsts[i - 1]);
		r = io_unlinkat(log->dir_fd, name, 0, "log.segment.unlink");
		if (r < 0)
			return r;
		r = io_fsync(log->dir_fd, "log.dir.sync");
		if (r < 0)
			return r;
	}
	return 0;
}

static int truncate_to(struct log *log, uint64_t seq, const uint64_t *firsts, size_t n)
{
	struct log_tail t = {.sealed_bytes = log->sealed_bytes};
	struct segment_header h;
	cleanup_close int fd = -1;
	struct stat st;
	size_t keep = n - 1;
	int r;

	while (keep > 0 && firsts[keep] > seq + 1)
		keep--;
	r = segment_open(log->dir_fd, firsts[keep], O_RDWR, &h, &fd);
	if (r < 0)
		return r;
	r = log_tail_scan(fd, &h, &log->durable_head, seq, &t);
	if (r < 0)
		return r;
	if (t.last_seq != seq)
		return -EBADMSG;
	for (size_t i = keep; i + 1 < n; i++) {
		char name[SEGMENT_NAME_BYTES];

		segment_name(name, firsts[i]);
		if (fstatat(log->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
		t.sealed_bytes -= (uint64_t)st.st_size;
	}

	/* What stays is durable before `head` says so. */
	r = io_fdatasync(fd, "log.truncate.sync");
	if (r < 0)
		return r;
	r = lower_head(log, &t);
	if (r < 0)
		return r;
	r = drop_segments(log, firsts, n, keep);
	if (r < 0)
		return r;
	r = io_ftruncate(fd, t.end, "log.truncate.cut");
	if (r < 0)
		return r;
	r = io_fsync(fd, "log.truncate.sync");
	if (r < 0)
		return r;
	(void)close(log->fd);
	t.fd = take_fd(&fd);
	t.size = t.end;
	t.segments = (unsigned)keep + 1;
	take_tail(log, &t);
	return 0;
}

int log_truncate(struct log *log, uint64_t seq)
{
	cleanup_free uint64_t *firsts = NULL;
	size_t n = 0;
	int r;

	if (log->broken)
		return -EIO;
	if (log->syncing || buf_len(&log->pending) > 0)
		return -EBUSY;
	if (seq >= log->last)
		return 0;
	r = segment_list(log->dir_fd, &firsts, &n);
	if (r >= 0 && n == 0)
		r = -EBADMSG;
	if (r >= 0)
		r = truncate_to(log, seq, firsts, n);
	return r < 0 ? fail(log, r) : 0;
}

/* ---- what it knows ---- */

uint64_t log_last(const struct log *log)
{
	return log->last;
}

uint64_t log_written(const struct log *log)
{
	return log->written;
}

uint64_t log_durable(const struct log *log)
{
	return log->durable;
}

const uint8_t *log_chain(const struct log *log)
{
	return log->chain;
}

uint64_t log_bytes(const struct log *log)
{
	return log->sealed_bytes + log->end + buf_len(&log->pending);
}

unsigned log_segments(const struct log *log)
{
	return log->segments;
}

void log_set_seal_bytes(struct log *log, uint64_t bytes)
{
	log->seal_bytes = bytes;
}

void log_set_head_interval(struct log *log, uint64_t interval_ms)
{
	log->head_interval_ms = interval_ms;
}
