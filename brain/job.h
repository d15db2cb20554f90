/*
 * job.h - jobs as the brain sees them: recorded before they start, their output
 * in files of ours, their end recorded once, and whoever waits for that.
 *
 * A job is started in this order: JOB_START record durable, then the wire's
 * JOB_START.  It ends so: the environment's JOB_EXIT (with the last CHANGE that
 * belongs to it), JOB_END record durable with those changes, the mounts have seen
 * it, then the answer and JOB_FORGET.  Nothing here starts a job twice.
 *
 * Output lies in STATE/envs/ID/jobs/JOB/{stdout,stderr}; clients that follow read
 * those files at their own pace.
 */
#ifndef BRAIN_JOB_H
#define BRAIN_JOB_H

#include <jansson.h>

#include "brain/env.h"

struct job;

/* Called at the job's end, and when more output lies there (over = false). */
typedef void (*job_watch_fn)(struct job *job, bool over, void *userdata);

struct job_spec {
	char **argv; /* NULL-terminated, as all of these; copied */
	char **env;  /* NAME=value, complete */
	const char *cwd;
	const char *principal, *key;
	uint64_t timeout_ms;
	bool stdin_open, tty;
};

/* 0: *ret is the job (being started). The watcher may be NULL. */
int job_start(struct env *env, const struct job_spec *spec, job_watch_fn fn, void *userdata,
	      struct job **ret);
void job_unwatch(struct job *job);
struct job *job_find(struct brain *b, const char *id);
bool job_known(struct env *env, const char *id);
void job_input(struct job *job, const void *data, size_t n, bool eof);
void job_signal(struct job *job, int signo, const char *why);

const char *job_id(const struct job *job);
bool job_over(const struct job *job);
int job_exit_code(const struct job *job); /* as `limb exec` exits; -1 unknown or running */
uint64_t job_output_bytes(const struct job *job, int stream);
/* Descriptor of an output file, lent; -ENOENT. */
int job_output_fd(const struct job *job, int stream);
/* The contract's `exec` object. */
json_t *job_json_exec(struct job *job, uint64_t max_output_bytes, bool with_output);
unsigned jobs_running_in(const struct env *env);
/* The machine that ran them is gone: each gets an end, its outcome unknown. */
void jobs_lost(struct env *env);
void jobs_drop_env(struct env *env); /* the environment is removed */

/* ---- the line ---- */
int job_on_started(struct env *env, const struct entry_head *e);
int job_on_output(struct env *env, const struct entry_head *e);
int job_on_exit(struct env *env, const struct entry_head *e);
int job_on_list(struct env *env, const struct entry_head *e);
void job_line_lost(struct env *env);

#endif
