/* What the files of restore.h share; nobody else includes it. */
#ifndef SYNCD_RESTORE_PRIVATE_H
#define SYNCD_RESTORE_PRIVATE_H

#include "syncd/look.h"
#include "syncd/restore-write.h"
#include "syncd/restore.h"

enum {
	PULLS = 4,
	PULL_FILES = 16, /* 4 times 16: what PROTOCOL allows outstanding */
	BATCH_FILES = 64,
	BATCH_BYTES = 1 << 20,
	BATCHES = 4, /* with workers at a time: more only wait for each other */
	CHECK_ENTRIES = 512,
	SMALL_BYTES = 256 << 10,
	COPY_MAX = 4 << 20, /* one PULL_DATA's */
	ADOPT_AT_ONCE = 2000,
};

enum phase { CLEAN, LOOK, TREE, DIRS, CHECK, FILES, LINKS, ATTRS, ADOPT, OVER };

/* A file whose content was asked for. */
struct slot {
	struct rentry *e; /* NULL: done */
	uint64_t got;
	int fd; /* -1: nothing has come yet */
	/* With e->base: it, -1 if it is gone; and what has come, compared at the end. */
	int base;
	struct sha256_ctx *sha;
};

struct pull {
	uint64_t request; /* 0: free */
	unsigned n;
	struct slot slots[PULL_FILES];
};

/* Work for a thread: some files, or a phase. */
struct batch {
	uv_work_t work;
	struct restore *restore;
	enum phase phase;
	struct {
		struct rentry *e;
		size_t offset, len; /* in data */
	} files[BATCH_FILES];
	unsigned n;
	size_t from, to; /* CHECK: of the tree's entries */
	struct buf data;
	struct rreport report;
};

struct restore {
	uv_loop_t *loop;
	struct session *session;
	struct sync *sync;
	restore_done_fn done;
	void *userdata;

	enum phase phase;
	uint64_t request; /* of the RESTORE */
	uint64_t tree_request, next_request;
	bool empty_root, hold, durable;
	int root;
	struct rtree tree;
	struct look *look;     /* what is there, until the tree has come */
	struct rwriter writer; /* of the loop: large files */
	struct rreport report;
	bool cancelled; /* nobody is to be answered */

	size_t cursor;	       /* next entry to look at, in CHECK, FILES and ADOPT */
	struct rentry **files; /* FILES: all but directories, by node */
	size_t n_files;
	struct pull pulls[PULLS];
	struct batch *batch; /* being filled */
	unsigned n_batches;
	struct rentry *links, **links_last;
	struct rentry *again; /* what a base did not help with: to be asked for whole */

	uv_idle_t step;
	uv_timer_t deadline;
	unsigned open_handles;
};

struct batch *restore_batch_new(struct restore *r, enum phase phase);
void restore_batch_submit(struct restore *r, struct batch *b);
void restore_batch_free(struct batch *b);
void restore_advance(struct restore *r); /* something has ended: a batch, a request */

/* restore-files.c */
int restore_files_begin(struct restore *r);
void restore_files_pump(struct restore *r);
bool restore_files_over(const struct restore *r);
void restore_pull_done(struct pull *p); /* what it has open */

#endif
