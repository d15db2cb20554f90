/*
 * anew.h - a limbd that begins anew once its disk has room.
 *
 * A round that failed is for ever: what is on disk is known to a recovery only, so the
 * environment takes nothing more (commit.h).  When it failed for want of space, limbd
 * ends by itself as soon as there is space, and its process becomes a new limbd: the
 * recovery is the one of every start.  What runs in environments, and their views, go
 * on meanwhile.  If it fails again it waits longer (backoff.h); the count is handed
 * on in LIMBD_ANEW.
 *
 * LIMB_ANEW_MS in limbd's environment is the first pause (tests want less).
 */
#ifndef BRAIN_ANEW_H
#define BRAIN_ANEW_H

#include "brain/brain.h"

void anew_start(struct brain *b); /* looks at what could not be opened, too */
void anew_want(struct brain *b);  /* a round failed: there is no space */
/* After state_close(): no return if brain->anew says so, unless it fails. */
void anew_exec(const struct brain *b, char **argv);

#endif
