#include "journal/log.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"
#include "journal/segment.h"

/* How often a place that seems damaged is looked at again: a writer beside us
 * may have been in the middle of it, and many records further on by now. */
enum { LOOKS_MAX = 3 };

/* Of a segment, one record after another. */
enum { SCANNED_BYTES = 128 << 10 };

struct log_reader {
	int dir_fd;
	int fd;
	struct segment_header header;
	struct segment_scan scan;
	uint64_t from_seq; /* nothing below it is given out */
	uint64_t last_seq; /* the last record passed */
	uint8_t chain[SHA256_BYTES];
};

static int open_segment(struct log_reader *rd, uint64_t first_seq)
{
	struct segment_header h;
	int fd, r;

	r = segment_open(rd->dir_fd, first_seq, O_RDONLY, &h, &fd);
	if (r < 0)
		return r;
	if (h.first_seq != first_seq ||
	    (rd->fd >= 0 && (memcmp(h.log_id, rd->header.log_id, sizeof(h.log_id)) != 0 ||
			     memcmp(h.chain, rd->chain, SHA256_BYTES) != 0))) {
		(void)close(fd);
		return -EBADMSG;
	}
	segment_scan_done(&rd->scan);
	if (rd->fd >= 0)
		(void)close(rd->fd);
	rd->fd = fd;
	rd->header = h;
	rd->last_seq = h.first_seq - 1;
	memcpy(rd->chain, h.chain, SHA256_BYTES);
	segment_scan_init(&rd->scan, fd, h.tag);
	return 0;
}

/* Some segment behind the one that is read: the next one's first sequence, 0: none. */
static int next_first(const struct log_reader *rd, uint64_t *ret)
{
	cleanup_free uint64_t *firsts = NULL;
	size_t n = 0, i = 0;
	int r;

	r = segment_list(rd->dir_fd, &firsts, &n);
	if (r < 0)
		return r;
	while (i < n && firsts[i] <= rd->header.first_seq)
		i++;
	*ret = i < n ? firsts[i] : 0;
	return 0;
}

/* Where no good record stands. 1: go on, in the next segment or by another look;
 * 0: the end. */
static int at_no_record(struct log_reader *rd, int verdict, unsigned *looks)
{
	uint64_t next, torn_bytes;
	int r;

	/* First whether it is the last segment, then what stands there: the other
	 * way round the writer could seal it in between. */
	r = next_first(rd, &next);
	if (r < 0)
		return r;
	if (next > 0 && next == rd->last_seq + 1 && verdict == SEGMENT_END) {
		r = open_segment(rd, next);
		return r < 0 ? r : 1;
	}
	if (next == 0 && verdict != SEGMENT_FOREIGN && verdict != SEGMENT_NEWER) {
		r = segment_scan_torn(&rd->scan, rd->last_seq + 1, rd->chain, 0, &torn_bytes);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	return (*looks)++ < LOOKS_MAX ? 1 : -EBADMSG;
}

static bool follows(const struct log_reader *rd, const struct record_header *h)
{
	return h->seq == rd->last_seq + 1 && record_chain_ok(h, rd->chain);
}

/* Is a blank body a purged one?  Only of a record that was durable; at the end
 * of the log it is one that was not written yet. */
static int blank_is_purged(struct log_reader *rd)
{
	uint64_t next, torn_bytes;
	struct log_head head;
	int r;

	r = next_first(rd, &next);
	if (r < 0)
		return r;
	if (next > 0 || (log_head_read(rd->dir_fd, &head) >= 0 && head.seq > rd->last_seq))
		return 1;
	r = segment_scan_torn(&rd->scan, rd->last_seq + 1, rd->chain, 0, &torn_bytes);
	return r < 0 ? r : r == 0;
}

/* 1: rec is the next record and the scan stands behind it; 0: end. */
static int next_record(struct log_reader *rd, bool with_body, struct segment_record *rec)
{
	unsigned looks = 0;
	bool fresh = false; /* nothing in the window is from a call before */
	int r, v;

	for (;;) {
		v = segment_scan_next(&rd->scan, with_body, rec);
		if (v < 0)
			return v;
		if (v == SEGMENT_RECORD && follows(rd, &rec->h)) {
			if (rec->blank) {
				r = blank_is_purged(rd);
				if (r <= 0)
					return r;
			}
			segment_scan_skip(&rd->scan, rec);
			rd->last_seq = rec->h.seq;
			memcpy(rd->chain, rec->h.chain, SHA256_BYTES);
			return 1;
		}
		if (v == SEGMENT_NEWER)
			return -EPROTONOSUPPORT;
		if (!fresh) {
			segment_scan_reread(&rd->scan);
			fresh = true;
			continue;
		}
		r = at_no_record(rd, v, &looks);
		segment_scan_reread(&rd->scan);
		if (r <= 0)
			return r;
	}
}

static int open_at(struct log_reader *rd, int dir_fd, uint64_t seq)
{
	cleanup_free uint64_t *firsts = NULL;
	struct segment_record rec;
	size_t n = 0, i;
	int r;

	rd->dir_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
	if (rd->dir_fd < 0)
		return -errno;
	r = segment_list(rd->dir_fd, &firsts, &n);
	if (r < 0)
		return r;
	if (n == 0)
		return -ENOENT;
	for (i = n - 1; i > 0 && firsts[i] > seq; i--)
		;
	r = open_segment(rd, firsts[i]);
	if (r < 0)
		return r;
	while (rd->last_seq + 1 < seq) {
		r = next_record(rd, false, &rec);
		if (r < 0)
			return r;
		if (r == 0)
			break;
	}
	return 0;
}

int log_reader_open(int dir_fd, uint64_t seq, struct log_reader **ret)
{
	_cleanup_(log_reader_freep) struct log_reader *rd = NULL;
	int r;

	rd = calloc(1, sizeof(*rd));
	if (!rd)
		return -ENOMEM;
	rd->dir_fd = rd->fd = rd->scan.fd = -1;
	rd->from_seq = seq;
	r = open_at(rd, dir_fd, seq);
	if (r < 0)
		return r;
	*ret = take_ptr(&rd);
	return 0;
}

void log_reader_free(struct log_reader *rd)
{
	if (!rd)
		return;
	segment_scan_done(&rd->scan);
	if (rd->fd >= 0)
		(void)close(rd->fd);
	if (rd->dir_fd >= 0)
		(void)close(rd->dir_fd);
	free(rd);
}

int log_reader_next(struct log_reader *rd, struct log_record *ret)
{
	struct segment_record rec;
	int r;

	do {
		r = next_record(rd, true, &rec);
		if (r <= 0)
			return r;
	} while (rec.h.seq < rd->from_seq);
	*ret = (struct log_record){
		.type = rec.h.type,
		.seq = rec.h.seq,
		.time_ns = rec.h.time_ns,
		.body = rec.blank ? NULL : rec.salted + RECORD_SALT_BYTES,
		.n = rec.blank ? 0 : rec.h.body_len - RECORD_SALT_BYTES,
	};
	memcpy(ret->chain, rec.h.chain, SHA256_BYTES);
	return 1;
}

void log_reader_ids(const struct log_reader *rd, struct log_ids *ret)
{
	memcpy(ret->log_id, rd->header.log_id, sizeof(ret->log_id));
	memcpy(ret->brain_id, rd->header.brain_id, sizeof(ret->brain_id));
	ret->term = rd->header.term;
}

/* 1: there is a first record at or above seq, and its time. */
static int time_from(int dir_fd, uint64_t seq, int64_t *ret_ns)
{
	_cleanup_(log_reader_freep) struct log_reader *rd = NULL;
	struct log_record rec = {0};
	int r;

	r = log_reader_open(dir_fd, seq, &rd);
	if (r == 0)
		r = log_reader_next(rd, &rec);
	if (r > 0)
		*ret_ns = rec.time_ns;
	return r;
}

/* Somewhere before the last record that is neither younger than time_ns nor behind seq, by
 * halves of the file: headers are found from any place, as no body can hold one with the
 * segment's tag. */
static int skip_by_halves(struct segment_scan *s, int64_t time_ns, uint64_t seq)
{
	uint64_t low = s->offset, high, found;
	struct record_header h;
	struct stat st;
	int r;

	if (fstat(s->fd, &st) < 0)
		return -errno;
	high = (uint64_t)st.st_size;
	while (high > low && high - low > SCANNED_BYTES) {
		uint64_t mid = low + (high - low) / 2;

		r = segment_scan_find(s, mid, false, &found, &h);
		if (r < 0)
			return r;
		if (r > 0 && found < high && h.time_ns <= time_ns && h.seq <= seq)
			low = found;
		else
			high = mid;
	}
	s->offset = low;
	return 0;
}

/* The last record of one segment that is not younger; 0: all are. */
static int seq_in_segment(int dir_fd, uint64_t first, bool last, int64_t time_ns, uint64_t *ret)
{
	cleanup_close int fd = -1;
	struct segment_record rec;
	struct segment_header h;
	struct segment_scan s;
	int r;

	r = segment_open(dir_fd, first, O_RDONLY, &h, &fd);
	if (r < 0)
		return r;
	segment_scan_init(&s, fd, h.tag);
	r = skip_by_halves(&s, time_ns, UINT64_MAX);
	*ret = 0;
	while (r >= 0) {
		r = segment_scan_next(&s, false, &rec);
		if (r != SEGMENT_RECORD || rec.h.time_ns > time_ns)
			break;
		*ret = rec.h.seq;
		segment_scan_skip(&s, &rec);
	}
	segment_scan_done(&s);
	if (r < 0)
		return r;
	/* At the log's end anything may stand that a crash left. */
	return r == SEGMENT_RECORD || r == SEGMENT_END || last ? 0 : -EBADMSG;
}

int log_seq_at(int dir_fd, int64_t time_ns, uint64_t *ret_seq)
{
	cleanup_free uint64_t *firsts = NULL;
	size_t n = 0, low = 0, high;
	uint64_t seq = 0;
	int64_t first_ns = 0;
	int r;

	r = segment_list(dir_fd, &firsts, &n);
	if (r < 0)
		return r;
	/* firsts[low] is not younger, firsts[high] is: times never go back. */
	for (high = n; high - low > 1;) {
		size_t mid = low + (high - low) / 2;

		r = time_from(dir_fd, firsts[mid], &first_ns);
		if (r < 0)
			return r;
		if (r > 0 && first_ns <= time_ns)
			low = mid;
		else
			high = mid;
	}
	if (n == 0)
		return -ENOENT;
	r = seq_in_segment(dir_fd, firsts[low], low + 1 == n, time_ns, &seq);
	if (r < 0)
		return r;
	if (!seq)
		return -ENOENT;
	*ret_seq = seq;
	return 0;
}

static int read_one(struct segment_scan *s, uint64_t seq, uint16_t *ret_type, int64_t *ret_time_ns,
		    struct buf *body)
{
	struct segment_record rec;
	int r;

	r = skip_by_halves(s, INT64_MAX, seq);
	if (r < 0)
		return r;
	while ((r = segment_scan_next(s, false, &rec)) == SEGMENT_RECORD && rec.h.seq < seq)
		segment_scan_skip(s, &rec);
	if (r == SEGMENT_RECORD && rec.h.seq == seq)
		r = segment_scan_next(s, true, &rec);
	if (r < 0)
		return r;
	if (r == SEGMENT_END || r == SEGMENT_CUT)
		return -ENOENT;
	if (r != SEGMENT_RECORD || rec.h.seq != seq)
		return -EBADMSG;
	if (rec.blank)
		return -ENODATA;
	r = buf_add(body, rec.salted + RECORD_SALT_BYTES, rec.h.body_len - RECORD_SALT_BYTES);
	if (r < 0)
		return r;
	*ret_type = rec.h.type;
	if (ret_time_ns)
		*ret_time_ns = rec.h.time_ns;
	return r;
}

int log_read_one(int dir_fd, uint64_t seq, uint16_t *ret_type, int64_t *ret_time_ns,
		 struct buf *body)
{
	cleanup_free uint64_t *firsts = NULL;
	cleanup_close int fd = -1;
	struct segment_header h;
	struct segment_scan s;
	size_t n, i;
	int r;

	r = segment_list(dir_fd, &firsts, &n);
	if (r < 0)
		return r;
	for (i = n; i > 0 && firsts[i - 1] > seq; i--)
		;
	if (i == 0)
		return -ENOENT;
	r = segment_open(dir_fd, firsts[i - 1], O_RDONLY, &h, &fd);
	if (r < 0)
		return r;
	segment_scan_init(&s, fd, h.tag);
	r = read_one(&s, seq, ret_type, ret_time_ns, body);
	segment_scan_done(&s);
	return r;
}
