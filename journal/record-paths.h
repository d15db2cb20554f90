/*
 * record-paths.h - where nodes are, for whoever reads a log from its first
 * record on: LINK, UNLINK and MOVE applied to names in memory.
 *
 *	record_paths_new(&p);
 *	for each op of each CHANGE, in order:
 *		record_paths_of(p, parent, name, &path);  as it is before the op
 *		record_paths_apply(p, op);
 *
 * It believes the log: names are not judged (the index does that), a node's
 * path is by the name it got last.
 */
#ifndef JOURNAL_RECORD_PATHS_H
#define JOURNAL_RECORD_PATHS_H

#include "base/buf.h"
#include "journal/record.pb-c.h"

#define RECORD_PATHS_MAX_BYTES (64u << 10)

struct record_paths;

struct record_paths *record_paths_new(void); /* NULL: no memory */
void record_paths_free(struct record_paths *p);
DEFINE_CLEANUP(struct record_paths, record_paths_free);

int record_paths_apply(struct record_paths *p, const Limb__Op *op);

/* The path of (parent, name), or of a node (the root: ""), appended to out.
 * -ENOENT: not known, or longer than RECORD_PATHS_MAX_BYTES. */
int record_paths_of(const struct record_paths *p, uint64_t parent, const void *name, size_t len,
		    struct buf *out);
int record_paths_of_node(const struct record_paths *p, uint64_t node, struct buf *out);

#endif
