/*
 * restore-tree.h - the tree that is to be made, as TREE_PARTs bring it: entries in
 * pre-order, each kept as the packed message it came in, judged when it comes.
 *
 * A tree may lean on the one before (rtree_base): what is `same` in it was not sent
 * again, and what stands on the disk as it was left then needs no second look.
 */
#ifndef SYNCD_RESTORE_TREE_H
#define SYNCD_RESTORE_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/sha256.h"
#include "journal/node.h"
#include "wire/wire.pb-c.h"

/* What stands in the place of a large file, and may be copied from. */
struct rbase {
	uint8_t sha[SHA256_BYTES];
};

struct rentry {
	struct rentry *parent; /* NULL: the root */
	struct rentry *first;  /* of the same node, if this is a further name of it */
	struct rentry *next;   /* in whatever list it waits */
	struct rbase *base;    /* NULL: nothing */
	uint64_t node;
	uint64_t size_bytes; /* files */
	uint64_t inode;	     /* as it was left on the disk; 0: not known */
	int64_t ctime_ns;
	uint32_t number; /* from 1 */
	uint32_t packed_len;
	uint8_t type;
	bool holes;
	bool failed; /* it is not there */
	bool multi;  /* its node has further names */
	bool fresh;  /* a directory that we made: nothing was in it */
	bool same;   /* its node is as in the tree before */
	bool kept;   /* what was there is what is wanted */
	bool ours;   /* inode and ctime are those that it was written with */
	uint16_t name_len;
	char bytes[]; /* name, NUL, packed TreeEntry */
};

struct rtree {
	struct rentry **entries; /* by number - 1 */
	size_t n, cap;
	size_t bytes;		  /* of memory */
	const struct rtree *base; /* lent; NULL: none */
	struct rentry **by_node;  /* first names, sorted; NULL before rtree_sort() */
	size_t n_by_node;
};

#define RTREE_ENTRIES_MAX (64u << 20)

/* Adds one; -EBADMSG with *ret_why for what breaks a rule (order, names, numbers). */
int rtree_add(struct rtree *t, const Limbwire__TreeEntry *m, const char **ret_why);
/* For who leans on it. */
int rtree_sort(struct rtree *t);
struct rentry *rtree_find(const struct rtree *t, uint64_t node);
void rtree_done(struct rtree *t);

/* The entry's attributes; pointers in ret lead into *ret_m and xattrs. Free *ret_m. */
int rentry_read(const struct rentry *e, struct buf *xattrs, Limbwire__TreeEntry **ret_m,
		struct node *ret);
/* From the root, with '/' between; "" for the root. free() it. */
int rentry_path(const struct rentry *e, char **ret);

#endif
