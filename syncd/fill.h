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

/* sig under that name; *ret is the node. second_name: it may be there under another one. */
int fill_add(struct sync *sy, uint32_t dir, const char *name, size_t len,
	     const struct shadow_node *sig, bool second_name, uint32_t *ret);
/* Coarse clocks: it may have been changed once more in the same tick. */
bool fill_is_doubtful(const struct sync *sy, int64_t ctime_ns);

/* One entry; st as it is now, or NULL. len 0 = the root. -EINVAL: unknown parent. ours: its bytes
 * are the journal's as long as its ctime is that of st. */
int fill_adopt(struct sync *sy, uint64_t parent, const char *name, size_t len, uint64_t id,
	       const struct node *n, const struct stamp *st, bool ours);

#endif
