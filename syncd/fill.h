/*
 * fill.h - the shadow from what the brain says it has (TREE_PART), or from what
 * apply has just made from the journal.
 */
#ifndef SYNCD_FILL_H
#define SYNCD_FILL_H

#include "syncd/plan.h"
#include "syncd/state.h"

/* Into a fresh shadow: begin, entries in pre-order with the root first, end. */
void fill_begin(struct sync *sy);
int fill_entry(struct sync *sy, const Limbwire__TreeEntry *m, struct buf *scratch);
void fill_end(struct sync *sy);

/* One entry; st as it is now, or NULL. len 0 = the root. -EINVAL: unknown parent. */
int fill_adopt(struct sync *sy, uint64_t parent, const char *name, size_t len, uint64_t id,
	       const struct node *n, const struct stamp *st);

#endif
