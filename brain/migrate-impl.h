/* What the files of migrate.h share; nobody else includes it. */
#ifndef BRAIN_MIGRATE_IMPL_H
#define BRAIN_MIGRATE_IMPL_H

#include "brain/guest.h"
#include "brain/life-impl.h"
#include "brain/migrate.h"

enum move_jobs { MOVE_JOBS_WAIT, MOVE_JOBS_STOP, MOVE_JOBS_RESTART };

struct move_again; /* a job to be started anew */

struct move {
	struct env *env, *guest;
	struct life *l, *gl; /* theirs */
	enum move_jobs jobs;
	json_t *jobs_done; /* [{job_id, action}] */
	struct move_again *again;
	uint64_t jobs_since_ms;
	unsigned jobs_step;
	uv_timer_t timer;
	bool timer_made;
	void (*jobs_over)(struct move *m);

	uint64_t seq, base_seq; /* what the guest has, or gets; what it had before */
	unsigned passes;
	bool copying; /* from here on there may be something at the new place */
	uint64_t frozen_since_ms, frozen_ms, sent_bytes;
	uint64_t from_incarnation, to_incarnation;
	char *from_provider;
	json_t *unsupported;
	json_t *left; /* the old place's entry in env->left; borrowed */
	json_t *answer;
	char code[40], detail[512], step[300]; /* step: what the provider says to do */
};

/* A point at which a test can kill limbd. */
void move_step(const char *name);

/* migrate.c: from the new place to the end; m has all that was asked for. */
void move_begin(struct move *m);
/* The environment lives where the guest did, and the guest has the old place: the entry for
 * env->left, borrowed. */
json_t *move_switch(struct env *env, struct env *guest);
void move_fail_errno(struct move *m, int r, const char *what);

/* migrate-jobs.c: no job is started from now on; then jobs_over(), or move_fail(). */
void move_jobs(struct move *m, void (*over)(struct move *m));
void move_jobs_again(struct move *m); /* after the move, once */
void move_jobs_done(struct move *m);
void move_fail(struct move *m, const char *code, const char *fmt, ...) _printf_(3, 4);

/* migrate-old.c: a place that was left. gl: the guest's life, without a line. hear: what it
 * says before it goes is a fork's. then(r): 0 it is deleted, negative it is not. */
typedef void (*old_fn)(int r, void *userdata);
void old_clean(struct life *gl, json_t *left, bool hear, old_fn then, void *userdata);
/* A guest for an entry of env->left or for env->migration. */
int old_guest(struct env *env, json_t *o, struct env **ret);

/* late.c: a fork of the environment as it was when the place was left, to which its line
 * goes. then(r) when all late words are in it and its line is gone. */
void late_fork(struct env *guest, json_t *left, old_fn then, void *userdata);

#endif
