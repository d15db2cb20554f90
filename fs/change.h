/*
 * change.h - one entry of the intent log, written and laid over the tree.
 *
 *	p = (struct placed){...};		what its paths are in the tree that is shown
 *	r = change_make(ov, t, &e, &p);		appended (accepted), then applied
 *
 * and change_replay() does the second part for all entries that are not over, when limb-fs
 * starts: their paths are walked in the tree as it is shown by then. What is not found any
 * more has been made already, and is left to the index; bytes of which there is no version yet
 * become one all the same.  Under the overlay's lock.
 */
#ifndef FS_CHANGE_H
#define FS_CHANGE_H

#include "fs/overlay.h"

struct placed {
	uint64_t parent, to_parent;
	const char *name, *to_name; /* last components of path and to_path */
	uint64_t replaced;	    /* MOVE: the node at `to`, 0: none */
};

int change_make(struct overlay *ov, struct index_txn *t, struct accepted *e, struct placed *p);
int change_replay(struct overlay *ov);

#endif
