/*
 * warned.h - what the environment changed that tools on this machine obey (base/obeyed.h), while
 * its view is in mode work: kept in env.json, shown by `status`, until somebody who has looked at
 * it says `limb trust` again.
 *
 * The first WARNED_MAX paths are kept; of a path its newest change.  What the brain's side made,
 * and what was there when the environment was created, is no surprise.
 */
#ifndef BRAIN_WARNED_H
#define BRAIN_WARNED_H

#include "brain/env.h"
#include "journal/change.h"

#define WARNED_MAX 16

/* The change is in the index, as record seq. */
void warned_look(struct env *env, const struct change *c, uint64_t seq);
void warned_clear(struct env *env); /* the caller saves env */

#endif
