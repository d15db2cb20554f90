/*
 * jobs.h - jobs and their holders.
 *
 * A job's holder is a fork of limb-syncd: a session leader and child subreaper
 * that owns the command's pipes (or terminal), writes its output to files in the
 * private directory and its end to a record there, and kills the whole tree of
 * descendants at a timeout or signal.  limb-syncd only watches those files and
 * the holder's socket, so its own death or upgrade loses nothing: it finds the
 * holders again in DIR/jobs/ID/.
 *
 *	jobs_new(loop, session, sync, root, dir_fd, &js)   adopts what is there
 *	jobs_welcome(js)			JOB_LIST, then output not yet acked
 *	jobs_on_start/input/signal/ack/forget/ps
 */
#ifndef SYNCD_JOBS_H
#define SYNCD_JOBS_H

#include <uv.h>

#include "syncd/session.h"
#include "syncd/sync.h"
#include "wire/wire.pb-c.h"

struct jobs;

int jobs_new(uv_loop_t *loop, struct session *session, struct sync *sync, const char *root,
	     int dir_fd, struct jobs **ret);
void jobs_free(struct jobs *js);
void jobs_welcome(struct jobs *js);
/* A holder that an earlier daemon made comes back (GREET_HOLDER). Takes fd. */
void jobs_adopt(struct jobs *js, int fd);
void jobs_on_start(struct jobs *js, const Limbwire__JobStart *m);
void jobs_on_ack(struct jobs *js, const Limbwire__JobAck *m);
void jobs_on_input(struct jobs *js, const Limbwire__JobInput *m, const void *bulk, size_t n);
void jobs_on_signal(struct jobs *js, const Limbwire__JobSignal *m);
void jobs_on_forget(struct jobs *js, const Limbwire__JobForget *m);
void jobs_on_ps(struct jobs *js, const Limbwire__Ps *m);
void jobs_detached(struct jobs *js);
void jobs_drained(struct jobs *js);
/* SIGSTOP, or SIGCONT, to all processes of all jobs. */
int jobs_freeze(struct jobs *js, bool freeze);
/* Kills every job's processes; done() when the last holder has ended, or after 5 s. */
void jobs_stop(struct jobs *js, void (*done)(void *userdata), void *userdata);
unsigned jobs_running(const struct jobs *js);

#endif
