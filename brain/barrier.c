#include "brain/barrier.h"

#include "brain/commit.h"
#include "brain/link.h"
#include "brain/view.h"
#include "wire/wire.pb-c.h"

struct barrier {
	struct env *env;
	barrier_fn fn;
	void *userdata;
	struct barrier_result res;
};

static void barrier_end(struct barrier *b)
{
	b->fn(b->env, &b->res, b->userdata);
	free(b);
}

static void barrier_seen(struct env *env, bool behind, void *userdata)
{
	struct barrier *b = userdata;

	(void)env;
	b->res.view_behind = behind;
	barrier_end(b);
}

static void barrier_durable(int r, uint64_t seq, void *userdata)
{
	struct barrier *b = userdata;

	b->res.r = r;
	b->res.seq = seq;
	if (r < 0)
		barrier_end(b);
	else {
		b->env->run = (struct removal_run){0};
		view_wait_seen(b->env, seq, barrier_seen, b);
	}
}

static void barrier_answered(struct env *env, int r, const struct entry_head *e, void *userdata)
{
	struct barrier *b = userdata;

	if (r == 0) {
		b->res.consistent = ((const struct entry_barrier_done *)e)->quiet;
		/* Whatever there was to scan is behind it, whenever STATUS comes to say so. */
		env->has_status = true;
		env->status.scanning = false;
		r = commit_wait(env, barrier_durable, b);
	}
	if (r < 0) {
		b->res.r = r;
		barrier_end(b);
	}
}

static int run(struct env *env, uint64_t deadline_ms, bool freeze, barrier_fn fn, void *userdata)
{
	Limbwire__Barrier m = LIMBWIRE__BARRIER__INIT;
	struct barrier *b = calloc(1, sizeof(*b));
	int r;

	if (!b)
		return -ENOMEM;
	if (env->full) { /* it would wait for what is not captured */
		free(b);
		return -EDQUOT;
	}
	b->env = env;
	b->fn = fn;
	b->userdata = userdata;
	/* Its own end comes first, so that its reason reaches us. */
	r = link_expect(env, ENTRY_BARRIER_DONE, deadline_ms + 1000, barrier_answered, b,
			&m.request);
	if (r < 0) {
		free(b);
		return r;
	}
	m.freeze = freeze;
	m.deadline_ms = (uint32_t)MIN(deadline_ms, (uint64_t)UINT32_MAX);
	r = link_send(env, WIRE_BARRIER, &m.base, NULL, 0);
	if (r < 0) {
		link_forget(env, m.request);
		free(b);
	}
	return r;
}

int barrier_run(struct env *env, uint64_t deadline_ms, barrier_fn fn, void *userdata)
{
	return run(env, deadline_ms, false, fn, userdata);
}

int barrier_run_frozen(struct env *env, uint64_t deadline_ms, barrier_fn fn, void *userdata)
{
	return run(env, deadline_ms, true, fn, userdata);
}
