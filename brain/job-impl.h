/* What the files of job.h share; nobody else includes it. */
#ifndef BRAIN_JOB_IMPL_H
#define BRAIN_JOB_IMPL_H

#include "base/buf.h"
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
	char *cwd, *principal, *key;
	uint64_t timeout_ms;
	bool stdin_open, tty;
	bool recorded;	  /* JOB_START is durable */
	bool sent;	  /* the wire's JOB_START went out */
	uint64_t sent_in; /* ... in this session of the environment; 0: by an earlier limbd */
	bool started;
	bool ended; /* JOB_EXIT came, or it could not start */
	bool over;  /* its end is durable */

	int dir_fd, out_fd[2];
	uint64_t out_bytes[2];
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

	/* stdin that waits for the job's start */
	struct buf input;
	uint64_t input_sent;
	bool input_eof, input_eof_sent;

	job_watch_fn fn;
	void *userdata;
	unsigned refs; /* commits under way */
};

struct job *job_new(struct env *env, const char *id); /* NULL id: a fresh one */
void job_free(struct job *j);
void job_link_in(struct job *j);
int job_open_files(struct job *j);
void job_send_input(struct job *j);
void job_cannot_start(struct job *j, int error, const char *detail);
void job_tell(struct job *j, bool over);
void job_finish(struct job *j); /* everything about the end is known: records it, once */

#endif
