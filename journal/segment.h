/*
 * segment.h - one file of a log: its name, how it is made, and its records as
 * they stand in it, one after the other.
 *
 *	segment_list(dir_fd, &firsts, &n);
 *	segment_open(dir_fd, firsts[i], O_RDONLY, &header, &fd);
 *	segment_scan_init(&s, fd, header.tag);
 *	while (segment_scan_next(&s, true, &rec) == SEGMENT_RECORD)
 *		segment_scan_skip(&s, &rec);
 *	segment_scan_done(&s);
 *
 * A scan judges what stands at its place by itself; number, chain and time are
 * the caller's to compare, who also says when to go on.  It reads through a
 * window of its own: memory is bounded by one record, and a file that is cut
 * meanwhile is no fault.
 */
#ifndef JOURNAL_SEGMENT_H
#define JOURNAL_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "journal/record.h"

#define SEGMENT_SEAL_BYTES (64ull << 20)
#define SEGMENT_NAME_BYTES 24

/* "000000000000002a.log" */
void segment_name(char out[SEGMENT_NAME_BYTES], uint64_t first_seq);

/* First sequences, by the names in the directory, ascending; free the array.
 * -E2BIG: over a million files. */
int segment_list(int dir_fd, uint64_t **ret_firsts, size_t *ret_n);

/* flags as for open(2).  -EBADMSG, -EPROTONOSUPPORT from the header, whose
 * first_seq is not compared with the name. */
int segment_open(int dir_fd, uint64_t first_seq, int flags, struct segment_header *ret_header,
		 int *ret_fd);

/* Makes the file under its name, replacing one of that name, filled with zeros
 * up to fill_bytes; durable when it returns.  -EIO and *ret_named true: it has
 * its name, and whether for good is unknown. */
int segment_create(int dir_fd, const struct segment_header *h, uint64_t fill_bytes, int *ret_fd,
		   bool *ret_named);
/* What a crash in segment_create() left. */
int segment_clean(int dir_fd);

struct segment_scan {
	int fd; /* lent */
	uint64_t tag;
	uint64_t offset; /* of the record that is next */
	uint8_t *window;
	size_t window_cap, window_len;
	uint64_t window_offset;
};

struct segment_record {
	struct record_header h;
	uint64_t offset;
	size_t size;	       /* with header and padding */
	const uint8_t *salted; /* body with its salt, lent until the next call */
	bool blank;	       /* salt, body and padding are zeros: purged, or never written */
};

enum segment_verdict {
	SEGMENT_RECORD, /* a good header; a good body, or a blank one */
	SEGMENT_END,	/* end of file, or 4 zeros in place of a magic */
	SEGMENT_CUT,	/* the file ends inside header or body; h.seq 0: inside the header */
	SEGMENT_BAD_HEADER,
	SEGMENT_BAD_BODY, /* ret is filled in */
	SEGMENT_FOREIGN,  /* a good header with the tag of another segment; ret has the header */
	SEGMENT_NEWER,	  /* a version that we do not know */
};

void segment_scan_init(struct segment_scan *s, int fd, uint64_t tag); /* at the first record */
void segment_scan_done(struct segment_scan *s);
/* Judges what stands at s->offset and stays there; an enum segment_verdict, or a
 * negative errno.  with_body false: the body is neither read nor judged. */
int segment_scan_next(struct segment_scan *s, bool with_body, struct segment_record *ret);
void segment_scan_skip(struct segment_scan *s, const struct segment_record *rec);
/* Forgets what was read, for files that grow. */
void segment_scan_reread(struct segment_scan *s);

/* The next good header of this segment (of any, when any_tag) at or behind
 * `from`, in steps of 8 bytes: 1 and its place, 0: none. */
int segment_scan_find(struct segment_scan *s, uint64_t from, bool any_tag, uint64_t *ret_offset,
		      struct record_header *ret);
/* One past the last byte that is not zero, at least s->offset. */
int segment_scan_used(struct segment_scan *s, uint64_t *ret_end);

/* Whether what stands from s->offset on, where a good record with number
 * `expect` does not, is what a crash leaves (FORMAT 2): 1 yes, and how many
 * bytes (0: a clean end); 0: damage.  durable_seq: known to be synced. */
int segment_scan_torn(struct segment_scan *s, uint64_t expect, const uint8_t chain[SHA256_BYTES],
		      uint64_t durable_seq, uint64_t *ret_bytes);

#endif
