/*
 * view.h - limb-fs processes: one for each environment, started, found again
 * after a restart of limbd, told what is new, asked what they have seen.
 *
 * limb-fs listens on STATE/envs/ID/fs.sock and outlives limbd.  limbd connects
 * there and speaks as view-protocol.h says.
 */
#ifndef BRAIN_VIEW_H
#define BRAIN_VIEW_H

#include "brain/env.h"
#include "brain/view-protocol.h"

/* Connects to a running limb-fs of this environment, else starts one. Failure is a state
 * (`absent`), not an error: work goes on without a view. */
void view_start(struct env *env);
void view_stop(struct env *env);  /* unmount; the process ends */
void view_close(struct env *env); /* limbd goes, limb-fs stays */
void view_publish(struct env *env, uint64_t seq);
void view_set_stale(struct env *env, bool stale);
/* Of the view's log all up to number is over, and the index shows it at seq. False: nobody is
 * there to hear it. */
bool view_over(struct env *env, uint64_t number, uint64_t seq);
/* All that was written is to be in the log: accept_drained() follows. False: nobody is there. */
bool view_drain(struct env *env, uint64_t token);
/* Of its log that entry was not made; before the view_over() that it is in. */
void view_refused(struct env *env, uint64_t number, int error);
void view_classes(struct env *env); /* what env.json says of them has changed */
void view_merged(struct env *env);  /* packs were removed: their room is free once it closes them */

/* fn when the mount has seen seq, or behind=true after 1 s; at once without a mount. */
typedef void (*view_seen_fn)(struct env *env, bool behind, void *userdata);
void view_wait_seen(struct env *env, uint64_t seq, view_seen_fn fn, void *userdata);

/* fn when the mount answers, or cannot be had. */
void view_wait_connected(struct env *env, view_seen_fn fn, void *userdata);

/* Mode work, and the spec says "view": {"write": true}. */
bool view_is_writable(const struct env *env);
const char *view_path(const struct env *env);  /* MNT/NAME */
const char *view_state(const struct env *env); /* mounted absent stale */
int view_pid(const struct env *env);	       /* 0: none */

#endif
