/*
 * view.h - limb-fs processes: one for each environment, started, found again
 * after a restart of limbd, told what is new, asked what they have seen.
 *
 * limb-fs listens on STATE/envs/ID/fs.sock and outlives limbd.  limbd connects
 * there and speaks messages of 16 bytes: { u32 kind, u32 reserved, u64 seq }:
 *	limbd -> limb-fs	PUBLISH seq: the index holds seq; STALE: the line to the
 *				environment is down (1) or up (0); QUIT: unmount and end
 *	limb-fs -> limbd	SEEN seq: every cache agrees with seq
 */
#ifndef BRAIN_VIEW_H
#define BRAIN_VIEW_H

#include "brain/env.h"

enum view_message { VIEW_PUBLISH = 1, VIEW_STALE = 2, VIEW_QUIT = 3, VIEW_SEEN = 16 };

struct view_frame {
	uint32_t kind, reserved;
	uint64_t seq;
};

/* Connects to a running limb-fs of this environment, else starts one. Failure is a state
 * (`absent`), not an error: work goes on without a view. */
void view_start(struct env *env);
void view_stop(struct env *env);  /* unmount; the process ends */
void view_close(struct env *env); /* limbd goes, limb-fs stays */
void view_publish(struct env *env, uint64_t seq);
void view_set_stale(struct env *env, bool stale);

/* fn when the mount has seen seq, or behind=true after 1 s; at once without a mount. */
typedef void (*view_seen_fn)(struct env *env, bool behind, void *userdata);
void view_wait_seen(struct env *env, uint64_t seq, view_seen_fn fn, void *userdata);

/* fn when the mount answers, or cannot be had. */
void view_wait_connected(struct env *env, view_seen_fn fn, void *userdata);

const char *view_path(const struct env *env);  /* MNT/NAME */
const char *view_state(const struct env *env); /* mounted absent stale */
int view_pid(const struct env *env);	       /* 0: none */

#endif
