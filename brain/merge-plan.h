/*
 * merge-plan.h - what was done in a fork, as changes that reconcile.h can judge: two lists of
 * names in, a list of steps out. Nothing is read or asked here.
 *
 *	merge_plan_begin(&p, get, userdata)
 *	merge_plan_add(&p, MERGE_WAS, ...)	each name of the tree as it was, in pre-order
 *	merge_plan_add(&p, MERGE_IS, ...)	the same of the tree as it is
 *	merge_plan_make(&p, mask)
 *	p.steps					in an order in which they can be made
 *	merge_plan_done(&p)
 *
 * Ids are the fork's.  A node that has another name is moved and keeps its identity; one that
 * was replaced by another of its type under the same name (an editor's save) is written,
 * not removed and made.  Of a removed tree the top alone is removed, when all that was moved
 * out of it is out.  Where names go in a circle one of them steps aside first.
 *
 * Names that are only the way to what is asked for are added as `way`: they are made if they
 * are not there, and else left alone.
 */
#ifndef BRAIN_MERGE_PLAN_H
#define BRAIN_MERGE_PLAN_H

#include "brain/reconcile.h"

#define MERGE_ASIDE ".limb-merge-"
#define MERGE_NAMES_MAX (4u << 20) /* of each side */

enum merge_side { MERGE_WAS, MERGE_IS };

/* A node as it was at the point that its name was added with; lent until the plan is made. */
typedef int (*merge_get_fn)(uint64_t node, uint64_t at, struct node *ret, void *userdata);

/* As struct intent, with ids of the fork; all of it is the plan's. */
struct merge_step {
	uint8_t kind;  /* enum intent_kind */
	uint64_t node; /* CREATE: that it makes */
	uint64_t parent, to_parent, replaces;
	char *path, *to_path; /* their last parts are the names */
	bool shared;
	uint32_t fields;
	struct node wanted, base;
	void *lent[4]; /* what those two point to */
};

struct mname;
struct mnode;
struct mop;
struct merge_plan {
	merge_get_fn get;
	void *userdata;
	uint32_t mask;
	struct mname **names[2]; /* by merge_side */
	size_t n[2], cap[2];
	struct mname **by_name[2];
	struct mnode **nodes, **replaced; /* by id; by the id of what replaced it */
	size_t hash;
	struct mop *ops;
	size_t n_ops;

	struct merge_step *steps;
	size_t n_steps, cap_steps;
};

void merge_plan_begin(struct merge_plan *p, merge_get_fn get, void *userdata);
/* Each behind its directory; told twice is told once. -E2BIG above MERGE_NAMES_MAX. */
int merge_plan_add(struct merge_plan *p, enum merge_side side, uint64_t parent, const char *name,
		   size_t len, uint64_t node, uint8_t type, uint64_t at, bool way);
/* mask: attributes that do not count (enum node_mask). */
int merge_plan_make(struct merge_plan *p, uint32_t mask);
void merge_plan_done(struct merge_plan *p);

#endif
