/*
 * log-recover.h - from what stands in a log's directory to the place where its
 * writer goes on (FORMAT 2).
 *
 * log_recover() looks at the headers of all segments and at every byte of the
 * last one.  It cuts a torn tail, and writes again and syncs what is not known
 * to be durable: after a failed sync the page cache shows records as if they
 * were on the disk.
 */
#ifndef JOURNAL_LOG_RECOVER_H
#define JOURNAL_LOG_RECOVER_H

#include "journal/log.h"
#include "journal/segment.h"

struct log_tail {
	struct segment_header header; /* of the last segment */
	int fd;			      /* of it, for reading and writing; -1: there is none */
	uint64_t end;		      /* one past its last record */
	uint64_t size;		      /* of the file: zeros from end on */
	uint64_t last_seq;
	uint8_t chain[SHA256_BYTES];
	int64_t time_ns;
	uint64_t torn_bytes;
	uint64_t sealed_bytes; /* of the segments before */
	unsigned segments;
};

/* head->seq 0: not known.  The errors of log_open(). */
int log_recover(int dir_fd, const struct log_ids *ids, const struct log_head *head,
		struct log_tail *ret);

/* Fills ret from the segment fd up to record stop_seq; changes nothing. */
int log_tail_scan(int fd, const struct segment_header *h, const struct log_head *head,
		  uint64_t stop_seq, struct log_tail *ret);

#endif
