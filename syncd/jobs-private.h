/*
 * jobs-private.h - the daemon's half of jobs, shared by
 *
 *	jobs.c		the table of jobs; what the brain asks
 *	jobs-link.c	spares, links to holders, adoption, the end of a holder
 *	jobs-output.c	output and ends on their way to the brain
 *
 * A job in memory has a directory DIR/jobs/ID, and the other way round.
 */
#ifndef SYNCD_JOBS_PRIVATE_H
#define SYNCD_JOBS_PRIVATE_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/log.h"
#include "syncd/jobs.h"
#include "syncd/link.h"

enum job_state {
	JOB_QUEUED,   /* waits for a spare holder */
	JOB_STARTING, /* the holder has it */
	JOB_RUNNING,
	JOB_FAILED, /* could not be started */
	JOB_ENDED,
};

struct holder_link {
	struct holder_link *next;
	struct jobs *jobs;
	struct job *job; /* NULL: a spare, or one that has not said whose it is */
	int fd;
	bool spare, ready;
	uint32_t pid;
	char spare_name[24];
	struct buf in, out;
	uv_poll_t poll;
};

/* Who waits for a barrier: survives the job that asked. */
struct job_waiter {
	struct job *job;
};

struct job {
	struct job *next;
	struct jobs *jobs;
	char id[LINK_JOB_MAX + 1];
	enum job_state state;
	struct holder_link *link; /* NULL: the holder is gone, or has not come back yet */
	struct buf waiting;	  /* messages for when it does */
	struct buf start;	  /* JobStart, until a holder has it */
	uint64_t request;	  /* of the JOB_START to answer; 0 = none */
	int error;		  /* JOB_FAILED: errno */
	char detail[64];
	uint32_t pid, holder_pid;
	uint64_t lost_ms; /* since when its holder is known to be gone */

	int fds[2]; /* stdout, stderr; -1: not opened yet */
	int record;
	uint64_t total[2], sent[2], acked[2], acked_told[2];
	uint64_t input_bytes;
	int input_file;

	uint64_t mark; /* of sync, before it began; 0 = begun under another daemon */
	uint32_t settle_ms;
	Limbwire__JobExit *exit;
	struct job_waiter *waiter;
	bool settled, exit_sent, forgotten;
};

struct jobs {
	uv_loop_t *loop;
	struct session *session;
	struct sync *sync;
	char *root, *real_root;
	int dir_fd, jobs_fd, spare_fd;

	struct job *first;
	unsigned n_jobs;
	int freeze_signal; /* what the last FREEZE sent: a holder may come back later */

	int spawner;
	pid_t spawner_pid;
	bool elsewhere; /* some jobs are not below the spawner */
	struct holder_link *links;
	unsigned n_spares;
	unsigned failures; /* spares that died, or could not be made, one after the other */
	unsigned spare_count;
	char (*used_dirs)[24]; /* in spare/, without a holder */
	unsigned n_used_dirs;
	uv_timer_t refill, orphans;
	struct log_limit limit;

	bool stopping;
	void (*stopped)(void *userdata);
	void *stopped_userdata;
	uv_timer_t stop_deadline;
	unsigned open_handles;
};

/* jobs.c */
struct job *job_find(struct jobs *js, const char *id);
struct job *job_new(struct jobs *js, const char *id);
void job_free(struct job *j);	/* not its directory */
void job_forget(struct job *j); /* and its directory */
void job_answer_started(struct job *j, uint64_t request);
bool job_id_ok(const char *id);
void job_say_input(struct job *j); /* how much of its input is here */
void job_kill(struct job *j);	   /* because we end */

unsigned jobs_held(const struct jobs *js); /* with a living holder, as far as we know */

static inline uint64_t take_request(struct job *j)
{
	uint64_t request = j->request;

	j->request = 0;
	return request;
}

/* jobs-link.c */
int jobs_dirs_open(struct jobs *js);
void jobs_link_begin(struct jobs *js);
void jobs_link_end(struct jobs *js);
void jobs_spawner_wait(struct jobs *js);
void jobs_watch_ends(struct jobs *js); /* looks for holders that are gone until there are none */
void jobs_adopt_dirs(struct jobs *js);
/* Gives it to a spare, or makes one. */
void job_place(struct job *j);
void job_tell(struct job *j, enum link_type type, const void *data, size_t n);
void job_tell_message(struct job *j, enum link_type type, const ProtobufCMessage *m);
/* The directory becomes a spare's, or goes. */
void job_dir_recycle(struct job *j);
void link_close(struct holder_link *l);

/* jobs-output.c */
void job_pump(struct job *j);
void jobs_pump(struct jobs *js);
void job_ended(struct job *j, Limbwire__JobExit *exit); /* takes it */
void job_unsettle(struct job *j); /* a session begins: what was said in the last may be lost */
void job_waiter_drop(struct job *j);

#endif
