/*
 * difference.h - what of a content is in an older one, both in the store: equal chunks are
 * found by their hashes, unread; what lies between them is compared by librsync.
 *
 *	difference_new(old, new, fetch, userdata, &d)
 *	while (difference_next(d, &from, &n, &literal) > 0)	in order, to the end of `new`
 *
 * For helper threads.  Memory: 100 bytes for a chunk of either, and the run between two equal
 * chunks, of which no more than DIFFERENCE_RUN_BYTES are compared.
 */
#ifndef BRAIN_DIFFERENCE_H
#define BRAIN_DIFFERENCE_H

#include "journal/content.h"

#define DIFFERENCE_MAX_BYTES (16ull << 30)
#define DIFFERENCE_RUN_BYTES (4u << 20)
#define DIFFERENCE_COPY_BYTES (4u << 20) /* of one piece */
#define DIFFERENCE_LITERAL_BYTES (512u << 10)

struct difference;
/* -EOPNOTSUPP: there are holes, or it is too large or too small to be worth it. */
int difference_new(const struct content_ref *old, const struct content_ref *new,
		   content_fetch_fn fetch, void *userdata, struct difference **ret);
void difference_free(struct difference *d);
DEFINE_CLEANUP(struct difference, difference_free);
/* 1: a copy, or (copy_bytes 0) what is appended to `literal`; 0: the end. */
int difference_next(struct difference *d, uint64_t *ret_copy_from, uint64_t *ret_copy_bytes,
		    struct buf *literal);

#endif
