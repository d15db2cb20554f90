/*
 * resolve.h - a path of an environment as its journal knows it, links followed
 * where they stay beneath the root.
 *
 * The answer holds for one tree (a read transaction, a point), so nobody can change
 * it between the look and the use.  What is then asked of the environment with the
 * resolved path is done there without following any link (base/beneath.h).
 */
#ifndef BRAIN_RESOLVE_H
#define BRAIN_RESOLVE_H

#include "base/buf.h"
#include "journal/index.h"

#define RESOLVE_LINKS_MAX 40

/* root: as the environment names it, for absolute links. path: components below it (verb_path). Appends the link-free path to out; *ret_node is
 * 0 where the last component, or more of them, are not there. -EXDEV: a link leads out of the
 * root; -ELOOP: too many of them; -ENOTDIR; -ENOENT: ".." behind what is not there. */
int resolve_path(const char *root, struct index_txn *t, uint64_t at, const char *path,
		 bool follow_last, struct buf *out, uint64_t *ret_node);

#endif
