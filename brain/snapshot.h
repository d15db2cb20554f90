/*
 * snapshot.h - an environment that begins with another's tree: whose fork it is, and
 * that tree as records of its own.
 *
 *	snapshot_begin(f)				its directory, log and index
 *	snapshot_genesis(f, parent, seq, fn, ud)	the first record of f's log
 *	snapshot_take(f, parent, seq, 0)		the tree that parent had at seq
 *
 * Nodes keep the ids that they have in the parent's log; contents are in the store
 * already, and are shared.  A reference to the parent's log would be shorter, and gone
 * with `limb rm` of the parent.
 */
#ifndef BRAIN_SNAPSHOT_H
#define BRAIN_SNAPSHOT_H

#include "brain/commit.h"
#include "brain/env.h"

/* f is new (env_new), and one of the brain's from now on; r < 0: freed, and nothing is left of it. */
int snapshot_begin(struct env *f);
int snapshot_genesis(struct env *f, struct env *parent, uint64_t seq, commit_fn fn, void *userdata);
/* Appends and applies: not while a commit round of f's runs. number: that the environment's own
 * numbers go on from, 0 where nobody has spoken yet. */
int snapshot_take(struct env *f, struct env *parent, uint64_t seq, uint64_t number);

#endif
