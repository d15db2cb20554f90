/*
 * upkeep.h - what the journal needs in quiet times, in helper threads:
 *
 *  - The pack of an environment that has sent nothing for a while is sealed, and
 *    sealed packs are checked and merged (journal/store-merge.h): what several
 *    environments stored is kept once.
 *  - A synced copy of each index is made now and then (index_sync()): after a loss
 *    of power only what came since is replayed.
 *
 * Its pieces are short, pause while commit rounds run, and the worker that checks a
 * pack is the last in the machine to get processor and disk.  LIMB_QUIET_MS in
 * limbd's environment says how long "a while" is (20 s; tests want less); the rest
 * follows from it.
 */
#ifndef BRAIN_UPKEEP_H
#define BRAIN_UPKEEP_H

#include "brain/brain.h"

struct upkeep;

int upkeep_start(struct brain *b);
void upkeep_stop(struct brain *b); /* tells its threads to end */
bool upkeep_busy(const struct brain *b);
/* Not while it is busy, and when the loop runs no more: its timer is in there. */
void upkeep_free(struct brain *b);

/* Is a copy of an index worth its cost? Pure. */
struct upkeep_copy_facts {
	uint64_t records;  /* since the last one */
	uint64_t nodes;	   /* what a copy writes, some 400 bytes each */
	uint64_t since_ms; /* the last one was made; UINT64_MAX: never */
	uint64_t idle_ms;
	uint64_t quiet_ms;
};
bool upkeep_copy_due(const struct upkeep_copy_facts *f);

#endif
