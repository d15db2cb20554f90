/*
 * accept.h - what was written in the view comes into the queue: limb-fs's intent log
 * (journal/accepted.h) is read, contents go to the store (keep.h), each entry becomes an
 * INTENT (queue.h) that names it.  So each is consumed once: after a crash reading goes on
 * behind the highest number that the log's records have.
 *
 *	accept_open(env)		after the queue
 *	accept_kick(env)		there may be more
 *	accept_first(call, env, then)	then(call) when all that was written in the view until
 *					now is in the queue; the call is answered otherwise
 *	accept_applied_first(...)	... and nothing waits in the queue any more
 *	accept_tried_first(...)		... or goes on waiting there
 *	accept_drain(env, fn, ud)	the same for several environments at once
 *	accept_over(env)		tells limb-fs how far all is over
 *
 * An entry whose path leads nowhere any more makes what it needs (a file's directories), or
 * has nothing to do (what was to be removed is gone). Bytes of a file that the environment has
 * removed are written over what it was: the file is made again, as a conflict. CREATE waits a moment for the bytes
 * of its file, so that it is one change there. Loop thread; reading and keeping in a helper
 * thread.
 */
#ifndef BRAIN_ACCEPT_H
#define BRAIN_ACCEPT_H

#include "brain/env.h"
#include "brain/rpc-server.h"
#include "journal/accepted.h"

struct accept;

int accept_open(struct env *env);
void accept_close(struct env *env);

void accept_kick(struct env *env);
void accept_now(struct env *env); /* somebody waits for it */
/* An intent of a view has ended so, and before accept_ended(); who made these was told that they are refused. */
void accept_refused(struct env *env, uint64_t epoch, uint64_t number, int error);
void accept_told(struct env *env, uint64_t first, uint64_t last);
void accept_connected(struct env *env);		      /* a limb-fs is there, maybe another one */
void accept_drained(struct env *env, uint64_t token); /* UINT64_MAX: nobody will answer */
void accept_over(struct env *env);
void accept_ended(struct env *env); /* an intent that came from a view is over, and in the index */

typedef void (*accept_then_fn)(struct call *call);
void accept_first(struct call *call, struct env *env, accept_then_fn then);
void accept_applied_first(struct call *call, struct env *env, accept_then_fn then);

/* ... and, where that can be now, over; queue_counts() tells what is not, which is no failure. */
void accept_tried_first(struct call *call, struct env *env, accept_then_fn then);
typedef void (*accept_drained_fn)(struct env *env, bool ok, void *userdata);
void accept_drain(struct env *env, accept_drained_fn fn, void *userdata); /* maybe at once */

/* ---- accept-want.c ---- */

/* The entry as an intent of the queue; content is that of a VERSION, or of a CREATE that is
 * merged with one. 1: added, and fn is called; 0: there is nothing to do. min_base: what the
 * view's own changes have become is in the tree from there on. */
int accept_want(struct env *env, const struct accepted *e, uint64_t epoch, uint64_t min_base,
		void (*fn)(int r, uint64_t seq, void *userdata), void *userdata);

#endif
