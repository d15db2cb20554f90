#include "base/spool.h"

#include <fcntl.h>
#include <linux/falloc.h>

#include "base/io.h"
#include "base/util.h"

enum {
	BLOCK = 4096,
	GAP_STEP_MIN = 64 << 10, /* punched at once, while the job writes */
	GAP_STEP_MAX = 1 << 20,
	ACK_STEP = 1 << 20,
};

static void punch(int fd, uint64_t from, uint64_t to)
{
	if (to > from)
		(void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
				(off_t)(to - from));
}

/* Whole blocks only: punching a part of one would write zeros that are no hole. */
static void leave_out(struct spool *s)
{
	uint64_t half = ALIGN_UP(s->limit_bytes / 2, (uint64_t)BLOCK), end;
	uint64_t step = MIN(MAX(half / 4, (uint64_t)GAP_STEP_MIN), (uint64_t)GAP_STEP_MAX);

	if (s->limit_bytes == 0 || s->total < s->acked + 2 * half + step)
		return;
	if (s->gap_start == s->gap_end)
		s->gap_start = s->gap_end = ALIGN_UP(s->acked + half, (uint64_t)BLOCK);
	end = (s->total - half) / BLOCK * BLOCK;
	if (end < s->gap_end + step)
		return;
	punch(s->fd, s->gap_end, end);
	s->gap_end = end;
}

int spool_add(struct spool *s, const void *data, size_t n)
{
	int r = io_pwrite_full(s->fd, data, n, s->total, "spool.write");

	if (r < 0)
		return r;
	s->total += n;
	leave_out(s);
	return 0;
}

void spool_skip(struct spool *s, size_t n)
{
	s->total += n;
	leave_out(s);
}

void spool_ack(struct spool *s, uint64_t offset)
{
	uint64_t end;

	if (offset <= s->acked || offset > s->total)
		return;
	s->acked = offset;
	if (s->gap_start != s->gap_end && offset >= s->gap_end)
		s->gap_start = s->gap_end = 0;
	end = offset / BLOCK * BLOCK;
	if (end < s->acked_punched + ACK_STEP)
		return;
	punch(s->fd, s->acked_punched, end);
	s->acked_punched = end;
}

ssize_t spool_read(int fd, uint64_t offset, uint64_t total, void *data, size_t n,
		   uint64_t *ret_next)
{
	for (;;) {
		off_t at;
		ssize_t got;

		at = lseek(fd, (off_t)offset, SEEK_DATA);
		if (at < 0 && errno == ENXIO) {
			*ret_next = total;
			return 0;
		}
		if (at > (off_t)offset) {
			*ret_next = MIN((uint64_t)at, total);
			return 0;
		}
		got = io_pread_full(fd, data, (size_t)MIN((uint64_t)n, total - offset), offset,
				    "spool.read");
		if (got < 0)
			return got;
		at = lseek(fd, (off_t)offset, SEEK_HOLE);
		if (at < 0) /* no such notion here, then no holes either */
			at = (off_t)offset + got;
		if (at > (off_t)offset)
			return MIN(got, (ssize_t)(at - (off_t)offset));
	}
}
