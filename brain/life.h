/*
 * life.h - an environment's life: create, start, stop, rebuild, remove, and
 * coming back by itself.
 *
 * Each is a struct life that goes from step to step; env->busy keeps two of them
 * apart.  A failed create leaves nothing; a failed rebuild leaves the journal and
 * the old root (moved aside) as they were, and the environment halted or away.
 */
#ifndef BRAIN_LIFE_H
#define BRAIN_LIFE_H

#include "brain/attach.h"
#include "brain/env.h"
#include "brain/rpc-server.h"

/* The verbs' handlers; each answers the call. */
void life_create(struct call *call);
void life_fork(struct call *call);
void life_start(struct call *call);
void life_stop(struct call *call);
void life_pause(struct call *call);
void life_resume(struct call *call);
void life_rebuild(struct call *call);
void life_remove(struct call *call);

/* For `limb down --stop`: what can be synced was synced before. then() is called when its
 * provider has stopped it, or could not. -EBUSY: something else is under way. */
int life_stop_quietly(struct env *env, void (*then)(struct env *, void *), void *userdata);

/* limbd has come up, or a line fell: whatever should run is found or started again. */
void life_revive(struct env *env);
/* While limbd revives it by itself, which takes moments and comes when nobody can know: the call
 * begins anew when that is over. False: it is not being revived. */
bool life_defer(struct call *call, struct env *env);

/* An environment whose create did not get as far as a sandbox: nothing of it stays. */
void life_forget_unmade(struct env *env);
/* The same of a fork, whose sandbox may have some of its files. */
void life_forget_fork(struct env *env);

/* From attach.c: WELCOME is sent; a STATUS came. */
void life_attached(struct env *env, enum attach_mode mode);
void life_status(struct env *env);

/* Of one that was made for a move that failed, or did not come about, nothing stays. call: who
 * wants to know, or NULL. step: what to do about it; NULL or empty: the usual. */
void life_unstage(struct env *env, struct call *call, const char *code, const char *detail,
		  const char *step);

#endif
