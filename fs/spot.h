/*
 * spot.h - what a node id of the kernel's means: which tree, and which node in it.
 *
 * A live view has one tree, now, and the kernel's ids are the journal's.  A session
 * of the past (past.h) has many trees, each at its point, and hands out ids of its
 * own for as long as the kernel knows them.
 *
 *	r = spot_get(req, ino, &s);		s.fs is the tree
 *	r = source_begin(s.fs->source, ...);
 *	  r = spot_node(&s, t, &n);
 *	spot_done(&s);				once it is answered; fine after an error
 */
#ifndef FS_SPOT_H
#define FS_SPOT_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "fs/fs.h"

#define SPOT_BY_NAME SIZE_MAX

struct spot {
	struct fs *fs;
	uint64_t node;
	uint64_t parent; /* of a directory of the past; a root is its own */
	/* Directories between the tree's root and a link here; of a directory: and a link in
	 * it. SPOT_BY_NAME: its names tell. */
	size_t depth;
};

/* -ESTALE: the id means nothing (any more). */
int spot_get(fuse_req_t req, fuse_ino_t ino, struct spot *ret);
void spot_done(struct spot *s);

/* The node as this tree has it; of the live one also what died while it was open. */
int spot_node(const struct spot *s, struct index_txn *t, struct index_node *ret);
/* What a name in the directory s leads to: the kernel's id in a live view, else the tree's. */
int spot_lookup(const struct spot *s, struct index_txn *t, const char *name, size_t len,
		uint64_t *ret_node);
/* The node of that id. */
int spot_get_node(const struct spot *s, struct index_txn *t, uint64_t node, struct index_node *ret);
/* Its path from the root now, NUL-terminated. -ENOENT: it has none, or is of the past. */
int spot_path(const struct spot *s, struct index_txn *t, struct buf *out);
/* Around a transaction whose answer makes nodes known; see overlay.h. */
void spot_lock(const struct spot *s);
void spot_unlock(const struct spot *s);
/* Around one that only looks. */
int spot_begin(const struct spot *s, struct index_txn **ret, uint64_t *ret_seq);
void spot_end(const struct spot *s, struct index_txn *t);
/* Its inode number as stat(2) shows it. */
uint64_t spot_inode(const struct fs *fs, const struct index_node *n);

/* The kernel is about to learn of n in the directory s: one lookup more of *ret_ino. Of a live
 * tree it is counted by nodes_hold(). */
int spot_hold(const struct spot *s, const struct index_node *n, fuse_ino_t *ret_ino);
void spot_forget(struct fs *session, fuse_ino_t ino, uint64_t count);

#endif
