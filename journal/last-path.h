/*
 * last-path.h - what a path leads to, or led to last.
 *
 *	r = last_path_find(t, "src/gone/x.c", &p);	0, -ENOENT: it never led anywhere
 *
 * A name that is not there any more is looked for in the past of its directory, and that
 * directory may itself be one that went: `rm -r d; mkdir d` leaves the old d/x findable.
 */
#ifndef JOURNAL_LAST_PATH_H
#define JOURNAL_LAST_PATH_H

#include "journal/index.h"

enum {
	LAST_PATH_DEPTH_MAX = 2048, /* components; more are -ENAMETOOLONG */
	LAST_PATH_STEPS_MAX = 4096, /* names looked up; after these it is -ENOENT */
};

struct last_path {
	struct index_node n; /* as it is now, or was when it went; lent, as by index_get_node() */
	uint64_t gone_seq;   /* 0: it is there; else the record with which the path ended */
	bool is_renamed;     /* gone from here, but the node is alive under another name */
};

/* No empty components, no '/' at the ends; "" is the root. */
int last_path_find(struct index_txn *t, const char *path, struct last_path *ret);

#endif
