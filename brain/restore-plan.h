/*
 * restore-plan.h - what has to be done so that a living tree becomes an older one: two lists of
 * names in, a list of steps out. Nothing is read or asked here.
 *
 *	rplan_begin(&p, diff, userdata)
 *	rplan_add(&p, RPLAN_THEN, ...)	each name of the older tree, in pre-order, without the root
 *	rplan_add(&p, RPLAN_NOW, ...)	the same of the tree as it is
 *	rplan_make(&p)
 *	p.steps, p.changes		to be done in order; what a person is told
 *	rplan_done(&p)
 *
 * A node that the tree still has is moved back and keeps its identity; one that it has
 * not is made. Only names of the second list are ever removed, one by one, children
 * before their directory. What stands in the way of a name and is wanted elsewhere
 * steps aside under a name of its own beside it (RPLAN_ASIDE and its node): should the
 * work end there, the next plan finds it by its node.
 *
 * Names that are only the way to what is asked for are added as `way`: they are made if they
 * are not there, and else left alone.
 *
 * What lies at another place than in the list (it was moved, or what is above it) is not
 * written to in the same plan: `more` says that another is needed after this one.
 */
#ifndef BRAIN_RESTORE_PLAN_H
#define BRAIN_RESTORE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPLAN_ASIDE ".limb-restore-"

enum rplan_side { RPLAN_THEN, RPLAN_NOW };

enum rplan_kind {
	RPLAN_OPEN,    /* the directory's owner may write and search */
	RPLAN_MKDIR,   /* 0700; ATTR follows */
	RPLAN_CREATE,  /* a file where nothing is */
	RPLAN_REPLACE, /* its bytes and attributes, over the one that is there */
	RPLAN_SPECIAL, /* a symlink, fifo ... where nothing is */
	RPLAN_LINK,    /* to_path is a further name of path */
	RPLAN_MOVE,    /* path to to_path, where nothing is */
	RPLAN_REMOVE,  /* one entry; a directory has to be empty by then */
	RPLAN_ATTR,
};

struct rplan_step {
	enum rplan_kind kind;
	bool is_dir;
	char *path, *to_path;
	uint64_t node; /* of the older tree: whose attributes and content */
	uint32_t mode; /* OPEN */
};

enum rplan_action { RPLAN_CREATED, RPLAN_REPLACED, RPLAN_REMOVED, RPLAN_RENAMED, RPLAN_METADATA };
const char *rplan_action_name(enum rplan_action a);

struct rplan_change {
	enum rplan_action action;
	char *path, *from_path;
};

/* In what the two nodes differ, under the mask: bits of enum node_field; or an error. */
typedef int (*rplan_diff_fn)(uint64_t then, uint64_t now, void *userdata);

struct rname;
struct rplan {
	rplan_diff_fn diff;
	void *userdata;
	struct rname **names[2]; /* by rplan_side */
	size_t n[2], cap[2];
	struct rname **by_path, **by_node[2];
	size_t mask;

	struct rplan_step *steps;
	size_t n_steps, cap_steps;
	struct rplan_change *changes;
	size_t n_changes, cap_changes;
	bool more;
	char *blocked; /* a `way` that is no directory now: nothing can be planned */
};

#define RPLAN_NAMES_MAX (4u << 20) /* of each side */

void rplan_begin(struct rplan *p, rplan_diff_fn diff, void *userdata);
/* -E2BIG above RPLAN_NAMES_MAX. path: below the root; links: names of the node in the whole
 * tree. */
int rplan_add(struct rplan *p, enum rplan_side side, const char *path, size_t len, uint64_t node,
	      uint8_t type, uint32_t mode, uint32_t links, bool way);
/* -ENOTDIR with `blocked`. */
int rplan_make(struct rplan *p);
void rplan_done(struct rplan *p);

#endif
