/*
 * arena.h - memory that is given back all at once.
 *
 *	struct arena a = ARENA_INIT(limit_bytes);
 *	p = arena_alloc(&a, n);		8-byte aligned, not zeroed; NULL: no memory
 *					or over the limit
 *	arena_reset(&a);		everything is free, the first block is kept
 *	arena_done(&a);
 *
 * Pieces never move.  The limit counts what was asked for: it bounds what a
 * hostile body can make a decoder allocate.
 */
#ifndef JOURNAL_ARENA_H
#define JOURNAL_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct arena_block;

struct arena {
	struct arena_block *blocks; /* the newest first */
	size_t used;		    /* bytes asked for since the reset */
	size_t limit;		    /* 0 = none */
};

#define ARENA_INIT(limit_bytes)        \
	{                              \
		.limit = (limit_bytes) \
	}

void *arena_alloc(struct arena *a, size_t n);
void *arena_copy(struct arena *a, const void *data, size_t n);
void arena_reset(struct arena *a);
void arena_done(struct arena *a); /* NULL and zeroed are fine */

#endif
