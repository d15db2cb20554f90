/*
 * job.h - jobs as the brain sees them: recorded before they start, their output
 * in files of ours, their end recorded once, and whoever waits for that.
 *
 * A job is started in this order: JOB_START record durable, then the wire's
 * JOB_START.  It ends so: the environment's JOB_EXIT (with the last CHANGE that
 * belongs to it), JOB_END record durable with those changes, the mounts have seen
 * it, then the watchers are told and JOB_FORGET is sent.  Nothing here starts a job
 * twice.
 *
 * The records are what is known for ever: job_get() makes a job of them again after
 * limbd's restart and when it was long ago.  Output lies in
 * STATE/envs/ID/jobs/JOB/{stdout,stderr}, a byte at its own offset, at most
 * JOB_KEPT_BYTES of a stream: its head and its tail; and only of the newest jobs.
 * Who follows reads those files at its own pace.
 */
#ifndef BRAIN_JOB_H
#define BRAIN_JOB_H

#include <jansson.h>

#include "brain/env.h"

struct job;

#define JOB_KEPT_BYTES (64u << 20)
#define JOB_MAX_OUTPUT (16u << 20) /* most that an `exec` object carries of a stream */

enum job_event {
	JOB_MORE,  /* more output lies there */
	JOB_INPUT, /* more of its input has arrived */
	JOB_OVER,  /* its end is durable and seen */
	JOB_GONE,  /* its environment is removed: let go of it now */
};

/* Embedded in who watches. The function may take itself away (job_unwatch), nobody else. */
struct job_watch {
	struct job_watch *next;
	struct job *job; /* NULL: watches nothing */
	void (*fn)(struct job_watch *w, enum job_event event);
	/* What the watcher has taken so far; a job that waits for its reader (job_spec.waits) goes
	 * on only so far. UINT64_MAX: it does not wait for this one. */
	uint64_t taken[2];
};

struct job_spec {
	char **argv; /* NULL-terminated, as all of these; copied */
	char **env;  /* NAME=value, complete */
	const char *cwd;
	const char *principal, *key;
	const char *shell;	/* the session's name (brain/shell.h); of these three NULL: none */
	char **shell_set;	/* of env, what wins over the session; NULL: nothing */
	bool shell_interactive; /* argv is not run */
	const char *restart_of; /* the job that was stopped for it; NULL: none */
	uint64_t timeout_ms;
	bool stdin_open, tty;
	bool waits; /* when nobody reads its output, it waits; else the middle is left out */
	uint32_t rows, cols;
};

/* 0: *ret is the job (being started). */
int job_start(struct env *env, const struct job_spec *spec, struct job **ret);
void job_watch(struct job *job, struct job_watch *w);
void job_unwatch(struct job_watch *w);
void job_taken(struct job_watch *w); /* taken[] has grown */

/* From memory, or made of its records: -ENOENT. */
int job_get(struct brain *b, const char *id, struct job **ret);
/* The first job of this environment with that key: -ENOENT. */
int job_by_key(struct env *env, const char *key, struct job **ret);
bool job_known(struct env *env, const char *id); /* in memory */
/* The same command in the same place? */
bool job_is(const struct job *job, char *const *argv, const char *cwd);

/* -EPIPE: it has ended, or its stdin has; -ENOBUFS: not now. */
int job_input(struct job *job, const void *data, size_t n, bool eof);
/* Bytes that its environment does not have yet: above JOB_INPUT_HIGH, wait for JOB_INPUT. */
#define JOB_INPUT_HIGH (1u << 20)
size_t job_input_waiting(const struct job *job);
/* -ESRCH: it has ended, or has no terminal; -ENOTCONN. */
int job_signal(struct job *job, int signo, const char *why);
/* The same to all that it started, and what is left after a grace is killed. */
int job_end(struct job *job, int signo, const char *why);
int job_resize(struct job *job, uint32_t rows, uint32_t cols);

struct env *job_env(const struct job *job);
const char *job_id(const struct job *job);
bool job_over(const struct job *job);
bool job_has_terminal(const struct job *job);
bool job_reads_input(const struct job *job);
int job_exit_code(const struct job *job); /* as `limb exec` exits; -1 unknown or running */

/* The contract's `exec` and JOB objects. */
json_t *job_json_exec(struct job *job, uint64_t max_output_bytes, bool with_output);
json_t *job_json(struct job *job);
/* At most `limit` of them, newest first; env NULL: of all; *ret_more: there are others. */
json_t *job_json_list(struct brain *b, struct env *env, bool all, size_t limit, bool *ret_more);
/* text and, where it is not UTF-8, KEY_base64 */
void job_put_text(json_t *o, const char *key, const void *data, size_t n);

unsigned jobs_running_in(const struct env *env);
/* What an earlier limbd left running, from the records. */
void jobs_resume(struct env *env);
void jobs_kill(struct env *env); /* their environment is about to stop */
/* The machine that ran them is gone: each gets an end, its outcome unknown. */
void jobs_lost(struct env *env);
void jobs_drop_env(struct env *env); /* the environment is removed */

/* ---- output (job-output.c) ---- */

uint64_t job_output_bytes(const struct job *job, int stream); /* stream: 1, 2 */
/* Bytes at offset of a stream: the count; or 0 and *ret_next, where there is something again:
 * offset at the end so far, beyond it when what lay between was left out. */
ssize_t job_output_read(struct job *job, int stream, uint64_t offset, void *data, size_t n,
			uint64_t *ret_next);
/* When output came, in steps: until ret->at_ns there was ret->total of each. step counts from
 * 0; false: there is no such step, and *ret is how it is now. */
struct job_step {
	int64_t at_ns;
	uint64_t total[2];
};
bool job_output_step(struct job *job, uint64_t step, struct job_step *ret);
/* -ENOENT: there was output, and it is not kept any more. */
int job_output_check(struct job *job);

/* ---- the line ---- */
int job_on_started(struct env *env, const struct entry_head *e);
int job_on_output(struct env *env, const struct entry_head *e);
int job_on_input(struct env *env, const struct entry_head *e);
int job_on_exit(struct env *env, const struct entry_head *e);
int job_on_list(struct env *env, const struct entry_head *e);
void job_line_lost(struct env *env);

#endif
