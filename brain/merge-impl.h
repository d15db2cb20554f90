/* What the files of `limb merge` share; nobody else includes it. */
#ifndef BRAIN_MERGE_IMPL_H
#define BRAIN_MERGE_IMPL_H

#include "brain/env.h"
#include "brain/merge-past.h"
#include "brain/merge-plan.h"
#include "brain/queue.h"
#include "brain/verb.h"

/* What a node of the fork is called on the brain's side of the environment. */
struct mapped {
	uint64_t node, id; /* node 0: free */
	uint64_t before;   /* its id before it was made */
	bool lost;	   /* it was to be made, and is not */
};

struct merging {
	struct call *call;
	struct env *from, *into;
	char **paths;
	size_t n_paths;
	uint64_t forked_seq, base; /* the fork's point: there, and in its own log */
	uint64_t to, first, last;

	/* the helper thread's, while it works */
	uv_work_t work;
	int result;
	struct index_txn *t;
	struct merge_past past;
	struct merge_plan plan;

	struct mapped *map;
	size_t map_mask;
};

/* In a helper thread: what was done in the fork since, from the index as it is now. */
int merge_plan_read(struct merging *g);
/* How many of its steps become changes. */
size_t merge_count(struct merging *g);
/* Adds them, numbers first to last; fn with g when the last one is durable. */
int merge_add(struct merging *g, queue_durable_fn fn);

#endif
