/* What the files of restore-plan.h share; nobody else includes it. */
#ifndef BRAIN_RESTORE_NAMES_H
#define BRAIN_RESTORE_NAMES_H

#include "brain/restore-plan.h"

/* A name of either tree; those of the tree as it is are moved about as the steps say. */
struct rname {
	struct rname *parent; /* NULL: the root */
	char *name;	      /* where it is by the steps so far */
	const char *was;      /* its path in the list */
	uint64_t node;
	uint32_t mode;
	uint32_t links; /* names that its node has, here and elsewhere */
	size_t end;	/* index behind its subtree, in the list */
	uint8_t type;
	bool way, gone, moved, made, opened;
	bool touched;	     /* names come or go in it */
	bool stale;	     /* a directory whose attributes are to be set */
	bool told;	     /* and a person was told */
	struct rname *match; /* of the other side */
	struct rname *chain; /* of the same hash of (parent, name) */
	struct rname *same;  /* next name of its node, on its side */
	char path[];
};

struct rname *rname_new(const char *path, size_t len, uint64_t node, uint8_t type);
void rname_free(struct rname *x);
int rname_push(struct rplan *p, enum rplan_side side, struct rname *x);
/* Parents, and the tables by which names are found; -EINVAL: the lists are none. */
int rname_tables(struct rplan *p);

/* Of the tree as it is by the steps so far; parent NULL: the root. */
struct rname *rname_find(const struct rplan *p, const struct rname *parent, const char *name);
void rname_place(struct rplan *p, struct rname *x);
void rname_unplace(struct rplan *p, struct rname *x);
/* The first name that the node has on that side. */
struct rname *rname_of_node(const struct rplan *p, enum rplan_side side, uint64_t node);

#endif
