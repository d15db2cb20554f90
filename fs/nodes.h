/*
 * nodes.h - which nodes the kernel knows, or is about to: the lookup count of
 * each, and how old an answer may be that makes it known.
 *
 * Answers are made from a read transaction, and the invalidation of a change
 * skips what the kernel does not know.  So that no answer made before a change
 * slips in after its invalidation, who makes nodes known and who invalidates
 * meet here:
 *
 *	answering	nodes_hold(seq of the transaction, ids), and only then the
 *			reply; -EAGAIN: read again, the floor has passed it
 *	following	nodes_set_floor(seq), and only then nodes_known()
 *
 * The root (FUSE's 1, the journal's 1) is always known.  Functions are for any
 * thread; none calls out under the lock.
 */
#ifndef FS_NODES_H
#define FS_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

struct nodes;
int nodes_new(struct nodes **ret);
void nodes_free(struct nodes *ns);
DEFINE_CLEANUP(struct nodes, nodes_free);

/* One lookup of each id more (0 is passed over), or of none. -EAGAIN, -ENOMEM. */
int nodes_hold(struct nodes *ns, uint64_t seq, const uint64_t *ids, size_t n);
/* FORGET, and answers that did not reach the kernel. */
void nodes_forget(struct nodes *ns, uint64_t id, uint64_t count);

void nodes_set_floor(struct nodes *ns, uint64_t seq); /* it only rises */
bool nodes_known(struct nodes *ns, uint64_t id);
/* All of them but the root; malloc'ed. */
int nodes_list(struct nodes *ns, uint64_t **ret_ids, size_t *ret_n);

#endif
