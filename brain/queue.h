/*
 * queue.h - changes of the brain's side on their way into an environment.
 *
 * A change is recorded (INTENT: accepted, then durable), waits, is judged against what
 * the environment has become (reconcile.h), asked of limb-syncd under its number (APPLY),
 * shown by the environment's own CHANGE, and over (INTENT_END). Refused, it is unapplied:
 * it stays, is listed, and holds up only what builds on it. Judged lost, it is a
 * conflict. In the order in which they were made, many under way at a time (HACKING); after
 * a crash limb-syncd is asked which were made, and does nothing twice under one number.
 *
 *	queue_open(env)			what the index knows of them
 *	queue_seen(env, path, ...)	the tree as the brain sees it: with what waits
 *	queue_add(env, &intent, ...)	records one; want.h makes them from paths
 *	queue_kick(env)			whenever something may have become possible
 *	queue_wait(env, fn, ud)		all that was added until now is over
 *
 * The environment's tree (the index) is never changed by what only waits here. Loop
 * thread, but for the judging, which a helper thread does on values that stay.
 */
#ifndef BRAIN_QUEUE_H
#define BRAIN_QUEUE_H

#include "brain/env.h"
#include "brain/reconcile.h"

#define QUEUE_MAX 100000

struct queue;

int queue_open(struct env *env);   /* after the index */
void queue_close(struct env *env); /* who waits is told -ECANCELED */

struct queue_counts {
	uint64_t changes, bytes, unapplied, conflicts;
};
void queue_counts(struct env *env, struct queue_counts *ret);
bool queue_is_empty(const struct env *env); /* but for what is unapplied */
/* Of a view's entries up to `consumed`: the last one before which all are over. */
uint64_t queue_view_done(const struct env *env, uint64_t consumed);
bool queue_has_room(const struct env *env, size_t n);

/* ---- the brain's view ---- */

struct queue_entry {
	uint64_t parent, node; /* ids of the brain's side; node 0: nothing there */
	const char *name;      /* in the path */
	uint16_t len;
	uint32_t links;
	struct node n; /* target is lent until the next call */
};
/* path from the root, no link followed. -ENOENT, -ENOTDIR: a directory on the way is not
 * there; *ret_missing (may be NULL) is how much of the path is. The root is parent 0. */
int queue_seen(struct env *env, const char *path, struct queue_entry *ret, size_t *ret_missing);
bool queue_dir_is_empty(struct env *env, uint64_t dir);

/* Of the changes that wait or were refused, the last one about this path, or else about what it
 * lies in; false: there is none. path is lent until something is added or over. */
struct queue_change {
	uint64_t change, seq; /* seq 0: not durable yet */
	uint8_t kind;	      /* enum intent_kind */
	int error;	      /* as in struct queue_refused; 0: it waits */
	const char *path;
	int64_t since_ns;
};
bool queue_find(const struct env *env, const char *path, struct queue_change *ret);

/* ---- adding ---- */

/* Its number is set, all else given; copied. fn (may be NULL): durable, or r < 0 and it is not.
 * -EDQUOT: too many wait. It is part of the brain's view at once. */
typedef void (*queue_durable_fn)(int r, uint64_t seq, void *userdata);
int queue_add(struct env *env, struct intent *in, queue_durable_fn fn, void *userdata);

/* ---- what a fork did (verb-merge.c) ---- */

struct merge_past;
uint64_t queue_next(const struct env *env);    /* the number that the next one gets; 0: no queue */
uint64_t queue_merging(const struct env *env); /* the first of a merge that waits; 0: none */
/* Before changes of that fork are added, in the same turn of the loop; last: of this merge. */
int queue_merge_known(struct env *env, const struct merge_past *past, uint64_t last);

/* ---- ends ---- */

struct queue_result {
	int r; /* 0, or -ECANCELED, or -ETIMEDOUT: they go on waiting */
	unsigned applied, conflicts, unapplied; /* of what was waited for */
	int error;				/* the last refusal's errno, positive */
	uint64_t seq;
};
typedef void (*queue_fn)(struct env *env, const struct queue_result *res, void *userdata);
/* Until all that wait now are over; ms: for so long without one that ends (0: for ever). */
int queue_wait(struct env *env, uint64_t ms, queue_fn fn, void *userdata);
void queue_kick(struct env *env);
bool queue_may_run(const struct env *env); /* else what waits goes on waiting for now */

/* ---- what a person decides ---- */

void queue_conflict_resolved(struct env *env); /* one conflict less; its record is durable */

struct queue_refused {
	uint64_t change;
	int error; /* positive errno; ECANCELED: an earlier one that it builds on was refused */
	const char *path;
	int64_t since_ns;
};
typedef void (*queue_refused_fn)(const struct queue_refused *u, void *userdata);
void queue_unapplied(struct env *env, queue_refused_fn each, void *userdata);
/* All unapplied ones of this path; -ENOENT: there is none. */
int queue_retry(struct env *env, const char *path, queue_durable_fn fn, void *userdata);
/* The unapplied ones that came from a view under these numbers: who made them knows. */
void queue_drop_of_view(struct env *env, uint64_t epoch, uint64_t first, uint64_t last);
int queue_drop(struct env *env, const char *path, queue_durable_fn fn, void *userdata);

#endif
