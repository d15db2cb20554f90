/*
 * holder-private.h - a holder's state, shared by
 *
 *	holder.c	its beginning, its loop, what it hears
 *	holder-job.c	the job: output, signals, the end, and what is said of them
 */
#ifndef SYNCD_HOLDER_PRIVATE_H
#define SYNCD_HOLDER_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "syncd/feed.h"
#include "syncd/link.h"
#include "base/spool.h"
#include "wire/wire.pb-c.h"

/* What happens next, by time; 0 = never. */
enum timer { TIMER_TIMEOUT, TIMER_KILL, TIMER_GIVE_UP, TIMER_LINGER, TIMER_RECONNECT, TIMERS };

struct holder {
	int dir;     /* DIR */
	int job_dir; /* where our files are; it is renamed when it becomes a job's */
	int link, sigfd, record;
	char *root;
	struct buf in, out;
	uint64_t due_ms[TIMERS], reconnect_ms;

	Limbwire__JobStart *job; /* NULL: a spare */
	pid_t pid;
	int pipes[2]; /* read ends, -1 at their end */
	struct spool spools[2];
	struct feed feed; /* its stdin */
	int64_t started_ns;
	uint64_t started_ms;

	bool command_ended, none_left, reported;
	bool timed_out, killing, ending, forgotten; /* ending: with all that it started */
	bool output_news;			    /* not yet told */
	int status;
	char killed_by[128];
};

void holder_tell(struct holder *h, enum link_type type, const void *data, size_t n);
void holder_tell_message(struct holder *h, enum link_type type, const ProtobufCMessage *m);
void holder_tell_output(struct holder *h); /* if there is news */
void holder_tell_started(struct holder *h);

void holder_timer_set(struct holder *h, enum timer t, uint64_t in_ms);
void holder_timeout(struct holder *h);
void holder_kill(struct holder *h); /* all descendants, until none is left */
void holder_signal(struct holder *h, const Limbwire__JobSignal *m);

/* One read; false when there is nothing more for now. */
bool holder_pipe_read(struct holder *h, unsigned i);
void holder_reap(struct holder *h);
/* Called when anything has changed; LINGER and GIVE_UP count once they have fired. */
void holder_consider_end(struct holder *h);

#endif
