/* What the files of `limb restore` share; nobody else includes it. */
#ifndef BRAIN_RESTORE_IMPL_H
#define BRAIN_RESTORE_IMPL_H

#include "brain/env.h"
#include "brain/restore-plan.h"
#include "brain/verb.h"

enum {
	RESTORE_STEPS = 64, /* asked at once */
	RESTORE_ASK_MS = 60000,
};

struct restoring;

/* A step that was asked for, and is answered. */
struct restore_slot {
	struct restoring *restoring;
	uint64_t request; /* 0: not in use */
	size_t step;
	uint32_t push;
	bool open; /* no answer yet */
};

struct restoring {
	struct call *call;
	struct env *env;
	uint64_t at, label_seq;
	char label[64];
	char **paths; /* below the root, in pre-order, none beneath another */
	size_t n_paths;
	bool dry_run, cancelled;
	struct ignore ignore; /* what it leaves out is not touched */
	uint64_t ignore_left;

	struct rplan plan;
	unsigned round;
	json_t *changes, *told; /* told: the same as keys */
	size_t n_changes;

	/* the steps under way */
	size_t step; /* the next one whose frames are made */
	struct restore_slot slots[RESTORE_STEPS];
	size_t n_slots, n_made; /* made: slots whose frames were sent whole */
	unsigned open;		/* slots without an answer */
	bool begun;		/* ... the one after those, and its content up to offset */
	uint64_t offset;
	struct buf frames;

	/* the first thing that went wrong in a round, and how many did */
	size_t n_failed;
	int failed;
	char failed_path[300];

	uv_work_t work;
	bool working;
	int result, fatal;
	const char *fatal_what;
	uv_timer_t pause;
	bool pause_made;
};

/* In a helper thread: what has to be done, from the index as it is now. */
int restore_plan(struct restoring *g);
/* In a helper thread: frames for slots from n_made on, about a MiB; moves n_made, offset, push. */
int restore_frames(struct restoring *g);
/* A step did not work; the round goes on. */
void restore_step_failed(struct restoring *g, const struct rplan_step *s, int r);

#endif
