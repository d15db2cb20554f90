/*
 * point.h - what a POINT (journal/point.h has its grammar) means in one
 * environment's journal, and the points that it has: records, and the beginning
 * and end of each job.
 *
 *	r = point_resolve(env, t, "before:j-...", &at, problem, sizeof(problem));
 *
 * A point is a sequence number: the tree is seen as it was when that record was
 * the last.
 */
#ifndef BRAIN_POINT_H
#define BRAIN_POINT_H

#include "brain/env.h"
#include "brain/rpc-server.h"

/* 0; -ENOENT with a sentence in problem, -EINVAL for what is no point, or why it cannot be
 * read. "consistent" is the newest point in which nothing was changing. */
int point_resolve(struct env *env, struct index_txn *t, const char *text, uint64_t *ret_at,
		  char *problem, size_t size);
/* The same for a parameter of a call: INDEX_NOW where it is absent. False: answered. */
bool point_of_call(struct call *call, struct env *env, const char *key, uint64_t *ret_at);

/* A POINT record; fn may be NULL. */
int point_record(struct env *env, const char *label, const char *kind, uint64_t at, bool consistent,
		 void (*fn)(int r, uint64_t seq, void *userdata), void *userdata);

void verb_label(struct call *call);
void verb_points(struct call *call);

#endif
