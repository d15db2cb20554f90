/* down: what there is is made durable, what is to be stopped is stopped, and limbd ends. */
#include "brain/accept.h"
#include "brain/barrier.h"
#include "brain/env.h"
#include "brain/life.h"
#include "brain/link.h"
#include "brain/past.h"
#include "brain/queue.h"
#include "brain/verb.h"
#include "brain/view.h"

enum { DOWN_MS = 10000 };

struct down {
	struct call *call;
	unsigned pending;
	json_t *running;
	uint64_t pending_bytes;
	bool stop;
};

static void down_end(struct down *d)
{
	struct brain *b = d->call->brain;
	struct queue_counts waits;
	uint64_t changes = 0;

	if (--d->pending)
		return;
	b->stopping = true;
	for (struct env *env = b->envs; env; env = env->next) {
		queue_counts(env, &waits);
		changes += waits.changes;
		link_stop(env, "down");
		view_stop(env);
	}
	past_stop(b);
	call_ok(d->call, json_pack("{s:b, s:o, s:I, s:I}", "stopped", 1, "environments_running",
				   d->running, "pending_bytes", (json_int_t)d->pending_bytes,
				   "pending_changes", (json_int_t)changes));
	b->stopped(b);
	free(d);
}

static void down_stopped(struct env *env, void *userdata)
{
	struct down *d = userdata;

	if (env->wanted) /* it could not be stopped */
		(void)json_array_append_new(d->running, json_string(env->name));
	down_end(d);
}

/* One that limbd tries to bring back just now can be stopped in a moment: begun anew then. */
static bool down_later(struct down *d)
{
	for (struct env *env = d->call->brain->envs; d->stop && env; env = env->next) {
		if (!env->wanted || !env->busy || !life_defer(d->call, env))
			continue;
		json_decref(d->running);
		free(d);
		return true;
	}
	return false;
}

/* All barriers are over: stop what is to be stopped. */
static void down_go(struct down *d)
{
	if (--d->pending)
		return;
	if (down_later(d))
		return;
	d->pending = 1;
	for (struct env *env = d->call->brain->envs; env; env = env->next) {
		if (!env->wanted)
			continue;
		if (d->stop && life_stop_quietly(env, down_stopped, d) == 0)
			d->pending++;
		else
			(void)json_array_append_new(d->running, json_string(env->name));
	}
	down_end(d);
}

/* Of one that is halted or lost nothing more will come. */
static void down_not_synced(struct down *d, const struct env *env)
{
	if (!env->halted && !env->failed && !env->lost)
		d->pending_bytes += env->status.pending_bytes;
}

static void down_synced(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct down *d = userdata;

	if (res->r < 0)
		down_not_synced(d, env);
	down_go(d);
}

/* What was written in its view is in its log or, if it can be reached, there. */
static void down_drained(struct env *env, bool ok, void *userdata)
{
	struct down *d = userdata;

	(void)ok;
	if (env->wanted) {
		if (barrier_run(env, DOWN_MS, down_synced, d) == 0)
			return;
		down_not_synced(d, env);
	}
	down_go(d);
}

void verb_down(struct call *call)
{
	struct brain *b = call->brain;
	struct down *d = calloc(1, sizeof(*d));

	if (!d) {
		call_fail(call, "internal", NULL, NULL, "out of memory");
		return;
	}
	d->call = call;
	d->running = json_array();
	d->stop = call_bool(call, "stop");
	d->pending = 1;
	for (struct env *env = b->envs, *next; env; env = next) {
		next = env->next;
		d->pending++;
		accept_drain(env, down_drained, d);
	}
	down_go(d);
}
