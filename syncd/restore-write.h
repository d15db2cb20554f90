/*
 * restore-write.h - what a restore does to the disk, entry by entry, beneath one
 * descriptor. No state of the daemon is touched: these run in worker threads,
 * each with a writer and a report of its own.
 *
 * What the system cannot hold goes into the report; what fails otherwise sets its
 * error, of which the first stays.
 */
#ifndef SYNCD_RESTORE_WRITE_H
#define SYNCD_RESTORE_WRITE_H

#include "syncd/restore-tree.h"

struct rreport {
	Limbwire__Restored__Unsupported **list; /* with malloc'ed paths, static fields */
	size_t n, cap, bytes;
	int error; /* negative errno */
	char detail[300];
	uint64_t files, file_bytes;
	bool found; /* something stands there that may be kept */
};
void rreport_done(struct rreport *rep);
void rreport_add(struct rreport *rep, const struct rentry *e, const char *field);
void rreport_fail(struct rreport *rep, const struct rentry *e, int error);
void rreport_merge(struct rreport *to, struct rreport *from); /* empties from */

struct rwriter {
	int root; /* lent */
	const struct rentry *parent;
	int parent_fd;
	struct buf xattrs;
	bool deltas; /* the other side makes them */
};
#define RWRITER_INIT(root_fd)                      \
	{                                          \
		.root = (root_fd), .parent_fd = -1 \
	}
void rwriter_done(struct rwriter *w);

/* Everything beneath root goes; -EXDEV where a mount point is in the way. */
int rwrite_clean(int root);
/* All directories, 0700. prune: the root is not empty, so what the tree does not have, or has
 * with another type, goes first. */
void rwrite_dirs(struct rwriter *w, const struct rtree *t, bool prune, struct rreport *rep);
/* What stands in the place of an entry that is no directory: e->kept if it is what is wanted
 * (its attributes are given to it then), else it goes, unless it is e->base. */
void rwrite_check(struct rwriter *w, const struct rtree *t, struct rentry *e, struct rreport *rep);
/* A whole file. */
void rwrite_file(struct rwriter *w, struct rentry *e, const void *data, size_t n,
		 struct rreport *rep);
/* A file in pieces: the descriptor, or negative (and reported); then its end. Takes fd. */
int rwrite_open(struct rwriter *w, struct rentry *e, struct rreport *rep);
/* The old file under e's name, which then has none any more. */
int rwrite_take_base(struct rwriter *w, struct rentry *e);
/* Bytes of it, at the place in `to`; into `sha`, too. */
int rwrite_copy(int base, uint64_t from, int to, uint64_t at, uint64_t n, struct sha256_ctx *sha);
/* A file in pieces that was not what it should be. Takes fd. */
void rwrite_undo(struct rwriter *w, struct rentry *e, int fd);
void rwrite_finish(struct rwriter *w, struct rentry *e, int fd, struct rreport *rep);
void rwrite_special(struct rwriter *w, struct rentry *e, struct rreport *rep);
void rwrite_link(struct rwriter *w, struct rentry *e, struct rreport *rep);
/* Of what is there now. */
int rwrite_stat(struct rwriter *w, const struct rentry *e, struct stat *ret);
/* Attributes of all directories, the deepest first, the root last. */
void rwrite_dir_attrs(struct rwriter *w, const struct rtree *t, struct rreport *rep);

#endif
