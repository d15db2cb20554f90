/*
 * op.h - one request that changes something: made an entry of the intent log, then answered.
 *
 *	r = op_begin(&op, req);			the overlay's lock and a transaction
 *	  r = op_find_at(&op, parent, name);	op.path, op.p, op.node
 *	  ... op.e.n ...
 *	  r = op_make(&op, ACCEPTED_..., node);	accepted, and laid over the tree
 *	op_answer(&op, r);			also after an error of op_begin()
 *	op_answer_with(&op, r, &answer)		or with more than that
 *
 * Where a path is of class strong (classes.h), the answer waits for the environment (await.h).
 */
#ifndef FS_OP_H
#define FS_OP_H

#include "fs/await.h"
#include "fs/change.h"

struct op {
	fuse_req_t req;
	struct fs *fs;
	struct overlay *ov;
	struct index_txn *t;
	uint64_t seq;
	struct buf path, to_path;
	struct accepted e;
	struct placed p;
	uint64_t node; /* that `name` leads to; 0: nothing */
	struct waiter *wait;
};

/* -EDQUOT: too much waits, and went on waiting; -EINTR. */
int op_begin(struct op *op, fuse_req_t req);
void op_end(struct op *op);
void op_answer(struct op *op, int r);
void op_answer_with(struct op *op, int r, const struct answer *a);

/* The directory, and what its name leads to now: into e, p, path and node. */
int op_find_at(struct op *op, uint64_t parent, const char *name);
/* The same for the second path. */
int op_find_to(struct op *op, uint64_t parent, const char *name, uint64_t *ret_node);
/* -EHOSTUNREACH: it is strong, and the environment is away. */
int op_make(struct op *op, uint8_t kind, uint64_t node);

/* What is being written of it becomes a version, before what comes now. */
int op_version_of(struct op *op, uint64_t id);
/* Is it a strong file, without a lock; -EHOSTUNREACH as above. */
int op_is_strong(struct fs *fs, uint64_t id);
/* Who made entries since then waits for them; with what they were waiting for already. */
int op_wait_from(struct op *op, uint64_t first);

void op_set_uid(const struct fs *fs, struct node *n, uid_t uid);
void op_set_gid(const struct fs *fs, struct node *n, gid_t gid);

#endif
