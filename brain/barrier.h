/*
 * barrier.h - everything that an environment had changed until now is durable
 * and seen by its mount.
 *
 * The wire's BARRIER, then the commit of what it covers, then "seen N" of the view:
 * `limb sync`, and the first and last step of create, rebuild, verify, stop, down.
 */
#ifndef BRAIN_BARRIER_H
#define BRAIN_BARRIER_H

#include "brain/env.h"

struct barrier_result {
	int r; /* 0, -ETIMEDOUT, -ENOTCONN, -EIO ... */
	uint64_t seq;
	bool consistent, view_behind;
	char **left_out; /* by barrier_run_past(): paths, lent for the call */
	size_t n_left_out;
};
typedef void (*barrier_fn)(struct env *env, const struct barrier_result *res, void *userdata);

/* fn is called once, unless a negative errno is returned at once. */
/* -EDQUOT: its journal is full (quota.h). */
int barrier_run(struct env *env, uint64_t deadline_ms, barrier_fn fn, void *userdata);
/* The same for who has changed something there: a file elsewhere that never rests is not waited
 * for longer than a second, and named in `left_out`. */
int barrier_run_past(struct env *env, uint64_t deadline_ms, barrier_fn fn, void *userdata);
/* Was something left out at this path of the environment, or beneath it? NULL: anywhere. */
bool barrier_left_out(const struct barrier_result *res, const char *path);
/* The same while its jobs are stopped, which limb-syncd does and undoes. */
int barrier_run_frozen(struct env *env, uint64_t deadline_ms, barrier_fn fn, void *userdata);

#endif
