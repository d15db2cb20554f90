/* What the files of job.h share; nobody else includes it. */
#ifndef BRAIN_JOB_IMPL_H
#define BRAIN_JOB_IMPL_H

#include "base/buf.h"
#include "base/spool.h"
#include "brain/job.h"

struct unsettled {
	char *path;
	size_t len;
	uint64_t size_bytes;
	int64_t since_ns;
};

struct job {
	struct job *next; /* brain->jobs */
	struct env *env;
	char id[ENTRY_JOB_MAX + 1];
	uint64_t incarnation;
	char **argv, **envp;
	char **run; /* what is run instead of argv, in a shell session; NULL: argv */
	char *cwd, *principal, *key, *shell, *restart_of;
	uint64_t timeout_ms;
	bool stdin_open, tty, waits;
	uint32_t rows, cols;
	bool recorded; /* JOB_START is durable */
	bool sent;     /* the wire's JOB_START went out */
	struct {
		int signo; /* 0: none */
		bool tree;
		const char *why; /* static */
	} early;	  /* what it is to get when that has gone out: the last one, or SIGKILL */
	uint64_t sent_in; /* ... in this session of the environment; 0: by an earlier limbd */
	bool started;
	bool ended; /* JOB_EXIT came, or it could not start */
	bool over;  /* its end is durable */

	/* output */
	int dir_fd; /* -1: there was none yet, or it is not kept */
	bool opened;
	struct spool out[2];
	uint64_t acked[2]; /* what the environment was told that we have */
	bool left_out;	   /* some output is not kept, here or there */
	int steps_fd;
	uint64_t n_steps;
	struct job_step first; /* step 0; the others are in a file */
	int64_t step_ns;       /* of the last one */
	int64_t last_output_ns;

	int64_t started_ns, ended_ns;

	/* its end */
	int exit_code, signal, error;
	bool timed_out, unknown, background;
	char killed_by[12];
	char *error_detail;
	uint64_t duration_ms, seq;
	struct unsettled *unsettled;
	size_t n_unsettled;
	bool view_behind;

	/* stdin: from offset input_had on, until the environment has it */
	struct buf input;
	uint64_t input_had, input_sent;
	bool input_unknown; /* until the environment has said what it has */
	bool input_eof, input_eof_sent;

	struct job_watch *watches;
	unsigned refs; /* commits under way */
	bool gone;     /* its environment is removed: the last of them frees it */
};

struct job *job_new(struct env *env, const char *id); /* NULL id: a fresh one */
void job_free(struct job *j);
void job_link_in(struct job *j);
struct job *job_find(struct brain *b, const char *id); /* in memory */
void job_send_input(struct job *j);
void job_input_had(struct job *j, uint64_t bytes);
int job_error_code(const struct job *j); /* of one that could not start */
void job_cannot_start(struct job *j, int error, const char *detail);
void job_tell(struct job *j, enum job_event event);
bool job_gone(struct job *j);	/* a commit of it is over; true: and it is not to be used */
void job_finish(struct job *j); /* everything about the end is known: records it, once */

/* job-load.c */
int job_load(struct env *env, const char *id, struct job **ret); /* linked in */
struct job *job_of_records(struct env *env, const struct index_job *in);

/* job-output.c */
void job_output_open(struct job *j); /* what there is of it */
int job_output_add(struct job *j, int stream, uint64_t offset, const void *data, size_t n);
int job_output_ack(struct job *j, bool now); /* now: also a little */
void job_output_close(struct job *j);
void job_output_keep(struct env *env); /* drops that of old jobs */

#endif
