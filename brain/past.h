/*
 * past.h - the limb-fs that serves MNT/.at, the past of all environments: started
 * with limbd, found again after a restart of limbd, started anew when it dies.
 *
 * It needs nothing of limbd but to be told when to end (and of packs that were
 * merged): names, points and trees are in the state directory.
 */
#ifndef BRAIN_PAST_H
#define BRAIN_PAST_H

#include "brain/brain.h"

/* Failure is not an error: work goes on without views of the past, and the log says so. */
void past_start(struct brain *b);
void past_stop(struct brain *b);  /* unmount; the process ends */
void past_close(struct brain *b); /* limbd goes, it stays */
void past_merged(struct brain *b);

/* fn when it is mounted, or cannot be had; at once when that is so. */
void past_wait(struct brain *b, void (*fn)(void *userdata), void *userdata);

#endif
