#include "journal/log-recover.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/util.h"

enum { COPY_BYTES = 256 << 10 };

/* Is this the record that follows on what t holds? */
static bool follows(const struct log_tail *t, const struct record_header *h)
{
	return h->seq == t->last_seq + 1 && record_chain_ok(h, t->chain);
}

static bool head_fits(const struct log_tail *t, const struct log_head *head)
{
	return head->seq != t->last_seq || head->seq == 0 ||
	       memcmp(head->chain, t->chain, SHA256_BYTES) == 0;
}

static int tail_scan(struct segment_scan *s, const struct log_head *head, uint64_t stop_seq,
		     struct log_tail *t)
{
	struct segment_record rec;
	int r, v;

	for (;;) {
		if (!head_fits(t, head))
			return -EBADMSG;
		if (t->last_seq >= stop_seq)
			return 0;
		v = segment_scan_next(s, true, &rec);
		if (v < 0)
			return v;
		if (v == SEGMENT_NEWER)
			return -EPROTONOSUPPORT;
		if (v == SEGMENT_FOREIGN)
			return -EBADMSG;

		r = 0;
		if (v != SEGMENT_RECORD || !follows(t, &rec.h) ||
		    (rec.blank && head->seq < rec.h.seq)) {
			r = segment_scan_torn(s, t->last_seq + 1, t->chain, head->seq,
					      &t->torn_bytes);
			if (r != 0)
				return r < 0 ? r : 0;
			/* A blank body is a purged one when the record was durable. */
			if (v != SEGMENT_RECORD || !follows(t, &rec.h))
				return -EBADMSG;
		}
		segment_scan_skip(s, &rec);
		t->last_seq = rec.h.seq;
		t->time_ns = rec.h.time_ns;
		memcpy(t->chain, rec.h.chain, SHA256_BYTES);
	}
}

int log_tail_scan(int fd, const struct segment_header *h, const struct log_head *head,
		  uint64_t stop_seq, struct log_tail *ret)
{
	struct segment_scan s;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	ret->header = *h;
	ret->last_seq = h->first_seq - 1;
	ret->time_ns = h->time_ns;
	ret->torn_bytes = 0;
	memcpy(ret->chain, h->chain, SHA256_BYTES);
	segment_scan_init(&s, fd, h->tag);
	r = tail_scan(&s, head, stop_seq, ret);
	ret->end = s.offset;
	ret->size = (uint64_t)st.st_size;
	segment_scan_done(&s);
	return r;
}

/* Headers in order, of one log, each naming the one before. */
static int check_headers(int dir_fd, const struct log_ids *ids, const uint64_t *firsts, size_t n,
			 struct log_tail *t)
{
	struct segment_header h;
	uint64_t before = 0, term = 0;
	struct stat st;
	int r;

	for (size_t i = 0; i < n; i++) {
		cleanup_close int fd = -1;

		r = segment_open(dir_fd, firsts[i], i + 1 < n ? O_RDONLY : O_RDWR, &h, &fd);
		if (r < 0)
			return r;
		if (memcmp(h.log_id, ids->log_id, sizeof(h.log_id)) != 0 ||
		    memcmp(h.brain_id, ids->brain_id, sizeof(h.brain_id)) != 0 ||
		    h.term > ids->term)
			return -ESTALE;
		if (h.first_seq != firsts[i] || h.before_first_seq != before || h.term < term ||
		    (i == 0 && h.first_seq != 1))
			return -EBADMSG;
		before = h.first_seq;
		term = h.term;
		if (i + 1 < n) {
			if (fstat(fd, &st) < 0)
				return -errno;
			t->sealed_bytes += (uint64_t)st.st_size;
		} else {
			t->header = h;
			t->fd = take_fd(&fd);
		}
	}
	t->segments = (unsigned)n;
	return 0;
}

/* Makes the bytes from `from` to `to` dirty again, as they are, and syncs them. */
static int write_again(int fd, uint64_t from, uint64_t to)
{
	cleanup_free uint8_t *copy = NULL;
	int r;

	copy = malloc(COPY_BYTES);
	if (!copy)
		return -ENOMEM;
	while (from < to) {
		size_t n = (size_t)MIN(to - from, (uint64_t)COPY_BYTES);
		ssize_t k = io_pread_full(fd, copy, n, from, "log.read");

		if (k < 0)
			return (int)k;
		if (k == 0)
			return -EIO;
		r = io_pwrite_full(fd, copy, (size_t)k, from, "log.recover.write");
		if (r < 0)
			return r;
		from += (uint64_t)k;
	}
	return io_fsync(fd, "log.recover.sync");
}

/* The place of the first record above seq, by the headers alone. */
static int place_above(int fd, const struct segment_header *h, uint64_t seq, uint64_t *ret)
{
	struct segment_record rec;
	struct segment_scan s;
	int v;

	segment_scan_init(&s, fd, h->tag);
	while ((v = segment_scan_next(&s, false, &rec)) == SEGMENT_RECORD && rec.h.seq <= seq)
		segment_scan_skip(&s, &rec);
	*ret = s.offset;
	segment_scan_done(&s);
	return v < 0 ? v : 0;
}

/* A segment is sealed synced, but its error may have gone to a sync that ran
 * beside: what `head` does not cover is in doubt there, too. */
static int sync_sealed(int dir_fd, const uint64_t *firsts, size_t n, const struct log_head *head)
{
	struct segment_header h;
	struct stat st;
	uint64_t from;
	int r;

	for (size_t i = n - 1; head->seq > 0 && i > 0 && head->seq + 1 < firsts[i]; i--) {
		cleanup_close int fd = -1;

		r = segment_open(dir_fd, firsts[i - 1], O_RDWR, &h, &fd);
		if (r < 0)
			return r;
		r = place_above(fd, &h, head->seq, &from);
		if (r < 0)
			return r;
		if (fstat(fd, &st) < 0)
			return -errno;
		r = write_again(fd, from, (uint64_t)st.st_size);
		if (r < 0)
			return r;
	}
	return 0;
}

static int sync_tail(const struct log_head *head, struct log_tail *t)
{
	uint64_t from;
	int r;

	if (t->torn_bytes > 0) {
		r = io_ftruncate(t->fd, t->end, "log.recover.cut");
		if (r < 0)
			return r;
		t->size = t->end;
	}
	if (t->torn_bytes == 0 && head->seq == t->last_seq)
		return 0;
	r = place_above(t->fd, &t->header, head->seq, &from);
	if (r < 0)
		return r;
	return write_again(t->fd, MIN(from, t->end), t->end);
}

static int recover(int dir_fd, const struct log_ids *ids, const struct log_head *head,
		   const uint64_t *firsts, size_t n, struct log_tail *t)
{
	int r;

	r = check_headers(dir_fd, ids, firsts, n, t);
	if (r < 0)
		return r;
	r = log_tail_scan(t->fd, &t->header, head, UINT64_MAX, t);
	if (r < 0)
		return r;
	if (t->last_seq < head->seq)
		return -EBADMSG;
	r = sync_sealed(dir_fd, firsts, n, head);
	if (r < 0)
		return r;
	r = sync_tail(head, t);
	if (r < 0)
		return r;
	/* A kill may have come between the last rename and its sync. */
	return io_fsync(dir_fd, "log.dir.sync");
}

int log_recover(int dir_fd, const struct log_ids *ids, const struct log_head *head,
		struct log_tail *ret)
{
	struct log_tail t = {.fd = -1};
	uint64_t *firsts = NULL;
	size_t n = 0;
	int r;

	r = segment_clean(dir_fd);
	if (r < 0)
		return r;
	r = segment_list(dir_fd, &firsts, &n);
	if (r < 0)
		return r;
	if (n > 0)
		r = recover(dir_fd, ids, head, firsts, n, &t);
	else if (head->seq > 0)
		r = -EBADMSG;
	free(firsts);
	if (r < 0) {
		if (t.fd >= 0)
			(void)close(t.fd);
		return r;
	}
	*ret = t;
	return 0;
}
