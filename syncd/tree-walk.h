/*
 * tree-walk.h - a walk of the root in canonical pre-order, some entries at a
 * time.  Runs in a worker; knows nothing of the sync.
 */
#ifndef SYNCD_TREE_WALK_H
#define SYNCD_TREE_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/ignore.h"
#include "base/sha256.h"
#include "syncd/capture.h"
#include "syncd/scan.h"

struct tree_item {
	char *path;	  /* from the root */
	const char *name; /* its end */
	uint64_t parent;  /* number of the directory's entry, 0 = the root */
	uint32_t same_as;
	int error;
	bool hashed;
	struct capture c; /* st, target, xattrs, sha */
};

struct tree_walk;

struct tree_walk_args {
	int root_fd;			       /* lent */
	uint64_t device, mount, private_inode; /* the root's; a directory to skip */
	uint32_t unheld;
	bool hash;
	bool flat;		     /* nothing beneath the paths */
	const struct ignore *ignore; /* lent, unchanged meanwhile */
	char **paths;		     /* lent; only these subtrees and what leads to them */
	size_t n_paths;
};

int tree_walk_new(const struct tree_walk_args *args, struct tree_walk **ret);
void tree_walk_free(struct tree_walk *w);
/* The next entries: at most `max`. *ret_n 0 = the end. Lent until the next call, as is *ret_text. */
int tree_walk_next(struct tree_walk *w, size_t max, struct tree_item **ret, size_t *ret_n,
		   const uint8_t **ret_text);

#endif
