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
};
typedef void (*barrier_fn)(struct env *env, const struct barrier_result *res, void *userdata);

/* fn is called once, unless a negative errno is returned at once. */
/* -EDQUOT: its journal is full (quota.h). */
int barrier_run(struct env *env, uint64_t deadline_ms, barrier_fn fn, void *userdata);
/* The same while its jobs are stopped, which limb-syncd does and undoes. */
int barrier_run_frozen(struct env *env, uint64_t deadline_ms, barrier_fn fn, void *userdata);

#endif
