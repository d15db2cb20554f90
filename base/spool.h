/*
 * spool.h - the output of one stream of a job, in a file where the byte at
 * offset N of the stream is at offset N of the file.
 *
 * One side adds, others read: a job's holder and its daemon, limbd and whoever
 * follows. What was acknowledged is punched out. With
 * a limit, what lies between a head and a tail of half the limit each is punched
 * out, too, so a job may write for ever: the file says itself what was left out,
 * because a hole is never written by us. Both sides agree on nothing else: the
 * reader looks for holes after it has read, so what is punched meanwhile is
 * never taken for zeros. Where a file system cannot punch, everything stays.
 */
#ifndef BASE_SPOOL_H
#define BASE_SPOOL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct spool {
	int fd;
	uint64_t total; /* bytes that came, kept or not */
	uint64_t acked;
	uint64_t limit_bytes; /* not yet acknowledged ones that are kept; 0 = all */
	uint64_t acked_punched;
	uint64_t gap_start, gap_end; /* left out; equal = nothing */
};

int spool_add(struct spool *s, const void *data, size_t n);
/* What the disk did not take is counted all the same and becomes a gap. */
void spool_skip(struct spool *s, size_t n);
void spool_ack(struct spool *s, uint64_t offset);

/* Reads at `offset` of a stream that is `total` bytes long so far: the count, or 0 and
 * *ret_next, the offset where there is something again (at most total). */
ssize_t spool_read(int fd, uint64_t offset, uint64_t total, void *data, size_t n,
		   uint64_t *ret_next);

#endif
