/*
 * migrate.h - an environment moves to another place: `limb migrate`.
 *
 *	copy	while it runs there, the tree is made here (a guest, RESTORE that holds)
 *	jobs	waited for, stopped, or stopped to be started anew
 *	freeze	its processes stop; a barrier; from now on its words wait (env->muted)
 *	copy	what has changed since
 *	lease	one LEASE record: the guest's incarnation is the writer of record
 *	switch	env.json says so, too; the lines change places; WELCOME; it runs
 *	verify	both sides, and what is there is synced to its disk
 *	clean	the old place: late words into a fork, then it is deleted
 *
 * Before the lease is durable any failure brings all back as it was, after it
 * nothing does.  env.json's `migration` names the place while it is made, `left`
 * the places that are not cleaned up yet: limbd's next start goes on from there
 * (migrate_recover), to the side that the log names.
 */
#ifndef BRAIN_MIGRATE_H
#define BRAIN_MIGRATE_H

#include "brain/env.h"
#include "brain/rpc-server.h"

void migrate(struct call *call);
/* `limb create --from` to another machine: an environment that was made here moves to where it
 * was meant to be (env->staged). call: create's, or NULL, begun_ms when; what fails undoes the
 * create. */
void migrate_staged(struct call *call, struct env *env, uint64_t begun_ms);

/* At limbd's start, before anything runs: env.json follows the log. */
void migrate_recover(struct env *env);
/* ... and then: what is left of a move is stopped or cleaned up. */
void migrate_resume(struct env *env);
void migrate_sweep_start(struct brain *b); /* again each half minute */

/* Lets its processes go on, where an earlier freeze was not ended. */
void migrate_thaw(struct env *env);

/* Deletes the place that an interrupted move was about to go to; all: and those that were
 * left, for `limb rm`. then() once. */
void migrate_delete_places(struct env *env, bool all, void (*then)(void *), void *userdata);

#endif
