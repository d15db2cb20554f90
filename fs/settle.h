/*
 * settle.h - what is over leaves the overlay: limbd has said so, and the index shows it.
 *
 *	settle_init(&s);
 *	settle_gather(&s, ov, done, at);	takes and releases the lock
 *	... tell the kernel of s.entries and s.nodes, without it ...
 *	settle_done(&s);
 */
#ifndef FS_SETTLE_H
#define FS_SETTLE_H

#include "fs/overlay.h"

struct settle_entry {
	uint64_t parent;
	char *name;
};

struct settle_node {
	uint64_t id;
	bool data; /* its pages may be wrong, too */
};

struct settle {
	struct settle_entry *entries;
	size_t n_entries, entries_room;
	struct settle_node *nodes;
	size_t n_nodes, nodes_room;
};

void settle_init(struct settle *s);
void settle_done(struct settle *s);
/* All up to number `done` is over, and in the index at position `at`. */
int settle_gather(struct settle *s, struct overlay *ov, uint64_t done, uint64_t at);

#endif
