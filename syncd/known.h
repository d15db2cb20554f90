/*
 * known.h - is what stands at a path what the brain believes to be there?
 *
 * Asked before apply takes something away on the brain's word: what the brain has not
 * seen yet must not go.  The shadow says what it was told, the undo log what it was
 * told only now, statx and, where that proves nothing, the bytes say what is there.
 * What differs is marked to be looked at, so that it is told.
 */
#ifndef SYNCD_KNOWN_H
#define SYNCD_KNOWN_H

#include "syncd/sync.h"

enum known_how {
	KNOWN_NODE,  /* it is this node, whatever is in it now */
	KNOWN_WHOLE, /* and nothing in it or beneath it is news for who knows changes up to `seen` */
};

/* 0 or -ESTALE. Nothing in between stops others from changing it: what is called next has to
 * be quick. */
int known_check(struct sync *sy, const char *path, uint64_t node, uint64_t seen,
		enum known_how how);

/* What stands at a path, if anything, with all beneath it, was told: it may go and is kept all the
 * same. What is ignored is never told, and does not count. 0 or -ESTALE. */
int known_told(struct sync *sy, const char *path);

#endif
