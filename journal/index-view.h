/*
 * index-view.h - what a view asks of the index beyond index.h: nodes that have
 * no name any more but are still open somewhere, an index that its writer has
 * left, and the root's path in the environment.
 */
#ifndef JOURNAL_INDEX_VIEW_H
#define JOURNAL_INDEX_VIEW_H

#include "journal/index.h"

/* As index_read_begin(), also when the writer has moved to another index.N: what was
 * last known, until that one can be opened. */
int index_read_begin_left(struct index *ix, struct index_txn **ret);

/* The node now, else as it was when it died, with links 0. -ENOENT: it never was, or its
 * past has been dropped. */
int index_last_node(struct index_txn *t, uint64_t node, struct index_node *ret);

/* The path of the root in the environment, of the newest incarnation, malloc'ed. -ENOENT:
 * there was none yet, or it did not say. */
int index_root_path(struct index_txn *t, char **ret);

#endif
