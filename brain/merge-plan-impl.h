/* What the files of merge-plan.h share; nobody else includes it. */
#ifndef BRAIN_MERGE_PLAN_IMPL_H
#define BRAIN_MERGE_PLAN_IMPL_H

#include "brain/merge-plan.h"

enum { MERGE_DEEP = 8192 }; /* directories above each other */

struct mnode {
	struct mnode *next, *next_replaced;
	uint64_t id;
	uint64_t is_id; /* under which it is there now: its own, or of what replaced it */
	uint64_t at[2];
	uint8_t type;
	bool was, is, way, made;
	unsigned names;	 /* by the steps so far */
	unsigned moves;	 /* that are still to come */
	unsigned inside; /* of a removed directory: names that are still to leave it */
	uint64_t parent; /* of a directory, by the steps so far */
	struct mname *first[2], *left; /* left: names that go, not used yet */
};

struct mname {
	struct mname *chain;   /* of the same hash of (parent, name) */
	struct mname *next_of; /* in a list of its node's */
	uint64_t parent, node; /* ids as the plan has them */
	uint64_t at, raw;      /* raw: the node's id in the list */
	struct mnode *m;
	struct mop *op;
	uint16_t len;
	uint8_t type;
	bool way, stays, gone, placed;
	char name[];
};

struct mop {
	uint8_t kind;
	bool done;
	const struct mname *aside; /* it stepped aside, to beside this one */
	struct mname *from, *to;
	struct mnode *m;
};

/* ---- merge-plan.c: the two trees ---- */

struct mnode *mplan_node(const struct merge_plan *p, uint64_t id);
struct mname *mplan_name(const struct merge_plan *p, enum merge_side side, uint64_t parent,
			 const char *name, size_t len);
/* The directory that it is in. */
struct mnode *mplan_dir(const struct merge_plan *p, const struct mname *x);
/* It was there, and is no more. */
bool mplan_is_dead(const struct mnode *m);

/* ---- merge-order.c: what has to be done, and when ---- */

int mplan_order(struct merge_plan *p);

/* ---- merge-steps.c: it is said as steps ---- */

/* over: what it goes over, or NULL. */
int mplan_emit(struct merge_plan *p, const struct mop *op, const struct mname *over);
/* It steps aside: out of its name, to beside op->aside. */
int mplan_emit_aside(struct merge_plan *p, const struct mop *op);
/* Attributes and contents. open: of directories that are not closed by it, before all else;
 * else what remains, last. */
int mplan_attrs(struct merge_plan *p, bool open);

#endif
