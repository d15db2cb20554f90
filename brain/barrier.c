#include "brain/barrier.h"

#include "brain/commit.h"
#include "brain/link.h"
#include "brain/view.h"
#include "wire/wire.pb-c.h"

enum { SETTLE_MS = 1000 };

struct barrier {
	struct env *env;
	barrier_fn fn;
	void *userdata;
	struct barrier_result res;
};

static void barrier_end(struct barrier *b)
{
	b->fn(b->env, &b->res, b->userdata);
	for (size_t i = 0; i < b->res.n_left_out; i++)
		free(b->res.left_out[i]);
	free(b->res.left_out);
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

static int take_left_out(struct barrier *b, const struct entry_head *e)
{
	const struct entry_unsettled *u;
	struct entry_cursor c;
	const char *path;

	entry_cursor_init(&c, e);
	while (entry_next_unsettled(&c, &u, &path)) {
		char **list = reallocarray(b->res.left_out, b->res.n_left_out + 1, sizeof(*list));

		if (!list)
			return -ENOMEM;
		b->res.left_out = list;
		list[b->res.n_left_out] = strndup(path, u->len);
		if (!list[b->res.n_left_out])
			return -ENOMEM;
		b->res.n_left_out++;
	}
	return 0;
}

bool barrier_left_out(const struct barrier_result *res, const char *path)
{
	size_t n = path ? strlen(path) : 0;

	for (size_t i = 0; i < res->n_left_out; i++) {
		const char *out = res->left_out[i];

		if (n == 0 || (strncmp(out, path, n) == 0 && (!out[n] || out[n] == '/')))
			return true;
	}
	return false;
}

static void barrier_answered(struct env *env, int r, const struct entry_head *e, void *userdata)
{
	struct barrier *b = userdata;

	if (r == 0) {
		b->res.consistent = ((const struct entry_barrier_done *)e)->quiet;
		/* Whatever there was to scan is behind it, whenever STATUS comes to say so. */
		env->has_status = true;
		env->status.scanning = false;
		r = take_left_out(b, e);
	}
	if (r == 0) {
		r = commit_wait(env, barrier_durable, b);
	}
	if (r < 0) {
		b->res.r = r;
		barrier_end(b);
	}
}

static int run(struct env *env, uint64_t deadline_ms, uint32_t settle_ms, bool freeze,
	       barrier_fn fn, void *userdata)
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
	m.settle_ms = settle_ms;
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
	return run(env, deadline_ms, 0, false, fn, userdata);
}

int barrier_run_past(struct env *env, uint64_t deadline_ms, barrier_fn fn, void *userdata)
{
	return run(env, deadline_ms, SETTLE_MS, false, fn, userdata);
}

int barrier_run_frozen(struct env *env, uint64_t deadline_ms, barrier_fn fn, void *userdata)
{
	return run(env, deadline_ms, 0, true, fn, userdata);
}
