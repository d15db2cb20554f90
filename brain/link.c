#include "brain/link-impl.h"

#include <signal.h>
#include <sys/socket.h>
#include "base/backoff.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "brain/attach.h"
#include "brain/basis.h"
#include "brain/intake.h"
#include "brain/commit.h"
#include "brain/feed.h"
#include "brain/guest.h"
#include "brain/job.h"
#include "brain/life.h"
#include "brain/proof.h"
#include "brain/rules.h"
#include "brain/view.h"

enum {
	IN_KEPT = 512 << 10,  /* what a quiet line keeps of its buffer */
	TURN_BYTES = 4 << 20, /* entries taken in one turn of the loop */
	RETRY_FIRST_MS = 100,
	STEADY_MS = 5000, /* a line that was up so long begins anew with its retries */
	RETRY_MAX_MS = 10000,
	FLAPPING_MAX = 4, /* of a line that comes up each time: never more than 800 ms */
};

/* ---- ending ---- */

static void link_handle_closed(uv_handle_t *h)
{
	struct link *l = h->data;
	struct out *o;

	if (--l->closing)
		return;
	while ((o = l->out_head)) {
		l->out_head = o->next;
		if (o->fd >= 0)
			(void)close(o->fd);
		free(o);
	}
	buf_done(&l->in);
	proof_free(l->proof);
	if (l->sock >= 0)
		(void)close(l->sock);
	free(l);
}

void link_maybe_free(struct link *l)
{
	uv_handle_t *handles[5];
	unsigned n = 0;

	if (!l->ending || l->starting || l->transport_alive || l->ingest_alive || l->closing)
		return;
	handles[n++] = (uv_handle_t *)&l->hello_timer;
	if (l->poll_made)
		handles[n++] = (uv_handle_t *)&l->poll;
	if (l->transport_made)
		handles[n++] = (uv_handle_t *)&l->transport;
	if (l->ingest_made)
		handles[n++] = (uv_handle_t *)&l->ingest;
	if (l->said_made)
		handles[n++] = (uv_handle_t *)&l->said;
	l->closing = n;
	for (unsigned i = 0; i < n; i++) {
		handles[i]->data = l;
		uv_close(handles[i], link_handle_closed);
	}
}

static void link_end(struct env *env, const char *why)
{
	struct link *l = env->link;

	if (!l)
		return;
	log_debug("environment '%s': line ends: %s", env->name, why ? why : "it fell");
	env->link = NULL;
	l->ending = true;
	if (l->up) {
		env->fell_ms = clock_mono_ms();
		view_set_stale(env, true);
	}
	l->up = false;
	if (l->poll_made)
		(void)uv_poll_stop(&l->poll);
	(void)uv_timer_stop(&l->hello_timer);
	if (l->ingest_alive)
		(void)uv_process_kill(&l->ingest, SIGKILL);
	if (l->transport_alive)
		(void)uv_process_kill(&l->transport, SIGTERM);
	link_pack_forget(l);
	if (env->commit)
		(void)commit_drop_pack(env);
	feed_stop(env);
	basis_stop(env);
	link_requests_fail(env, -ENOTCONN);
	job_line_lost(env);
	link_maybe_free(l);
}

static void retry_now(uv_timer_t *t)
{
	struct env *env = container_of(t, struct env, retry);

	if (env->wanted && !env->link && !env->brain->stopping)
		life_revive(env);
}

void link_stop(struct env *env, const char *why)
{
	if (env->retry_ready)
		(void)uv_timer_stop(&env->retry);
	link_end(env, why);
}

void link_lost(struct env *env, const char *why)
{
	/* One that fell soon after it was up counts as a failure, too: no loop of attempts. */
	if (link_up(env) && clock_mono_ms() - env->link->up_ms > STEADY_MS)
		env->attach_failures = 0;
	else if (link_up(env))
		env->attach_failures = MIN(env->attach_failures, (unsigned)FLAPPING_MAX);
	if (env->link && env->link->said_line[0])
		why = env->link->said_line;
	if (env->link && env->wanted && !env->halted && !env->hostile && !env->failed &&
	    !env_has_reason(env, "line_down"))
		(void)env_set_reason(
			env, "line_down",
			"the line to its limb-syncd fell%s%s; what runs there goes on; "
			"limbd tries again by itself",
			why ? ": " : "", why ? why : "");
	link_end(env, why);
	link_retry(env);
	env->attach_failures++;
}

void link_retry(struct env *env)
{
	uint64_t ms = 0;

	if (!env->wanted || env->link || env->halted || env->hostile || env->failed ||
	    env->brain->stopping)
		return;
	/* At once, then after 100 ms, doubling. */
	if (env->attach_failures)
		ms = backoff_ms(env->attach_failures - 1, RETRY_FIRST_MS, RETRY_MAX_MS);
	if (!env->retry_ready) {
		(void)uv_timer_init(env->brain->loop, &env->retry);
		env->retry_ready = true;
	}
	(void)uv_timer_start(&env->retry, retry_now, ms, 0);
}

void link_transport_exit(uv_process_t *p, int64_t status, int sig)
{
	struct link *l = container_of(p, struct link, transport);

	(void)status;
	(void)sig;
	l->transport_alive = false;
	/* limb-ingest sees the end of the stream and says the rest itself. */
	link_maybe_free(l);
}

void link_ingest_exit(uv_process_t *p, int64_t status, int sig)
{
	struct link *l = container_of(p, struct link, ingest);

	l->ingest_alive = false;
	if (!l->ending) {
		if (sig || (status && status != 3))
			log_warning("environment '%s': limb-ingest ended (%s %d)", l->env->name,
				    sig ? "signal" : "status", sig ? sig : (int)status);
		/* What it wrote before is still in the socket: the poll reads it first. */
	}
	link_maybe_free(l);
}

/* ---- input ---- */

/* A handler returns 0, or negative: the entry breaks a rule that limb-ingest should have
 * kept, or cannot be taken; the line ends. */
typedef int (*entry_fn)(struct env *env, const struct entry_head *e);

static int on_answer_request_first(struct env *env, const struct entry_head *e)
{
	/* DONE, BARRIER_DONE, RESTORED, PS_DONE: the request is the first field. */
	const struct entry_done *d = (const struct entry_done *)e;

	return link_answer(env, d->request, 0, e, false);
}

static int on_barrier_done(struct env *env, const struct entry_head *e)
{
	int r;

	r = intake_check_number(env, ((const struct entry_barrier_done *)e)->number);
	return r < 0 ? r : on_answer_request_first(env, e);
}

static int on_tree_part(struct env *env, const struct entry_head *e)
{
	const struct entry_tree_part *p = (const struct entry_tree_part *)e;

	return link_answer(env, p->request, 0, e, !p->last);
}

static int on_error(struct env *env, const struct entry_head *e)
{
	const struct entry_text *t = (const struct entry_text *)e;

	return link_answer(env, t->request, t->error > 0 ? -t->error : -EIO, e, false);
}

static int on_pack_full(struct env *env, const struct entry_head *e)
{
	int r;

	(void)e;
	r = commit_drop_pack(env);
	if (r < 0)
		return r;
	return link_send_pack(env);
}

static int on_bye(struct env *env, const struct entry_head *e)
{
	(void)env;
	(void)e;
	return -ENOTCONN;
}

static int on_hostile(struct env *env, const struct entry_head *e)
{
	const struct entry_text *t = (const struct entry_text *)e;

	env->hostile = true;
	(void)env_set_reason(env, "lies", "%.*s; look at it, then run: limb start %s",
			     (int)MIN(t->len, (uint32_t)ENTRY_TEXT_MAX), (const char *)(t + 1),
			     env->name);
	log_warning("environment '%s' broke a rule of the wire and is cut off: %.*s", env->name,
		    (int)MIN(t->len, (uint32_t)ENTRY_TEXT_MAX), (const char *)(t + 1));
	return -EPROTO;
}

static int on_pong(struct env *env, const struct entry_head *e)
{
	(void)env;
	(void)e;
	return 0;
}

static const struct {
	entry_fn fn;
	bool needs_commit; /* appends records: waits for the round that runs */
	bool before_welcome;
} handlers[] = {
	[ENTRY_HELLO] = {attach_on_hello, true, true},
	[ENTRY_PLACES] = {intake_on_places, true, false},
	[ENTRY_CHANGE] = {intake_on_change, true, false},
	[ENTRY_BARRIER_DONE] = {on_barrier_done, true, false},
	[ENTRY_STATUS] = {attach_on_status, true, false},
	[ENTRY_TREE_GET] = {feed_on_tree_get, false, false},
	[ENTRY_TREE_PART] = {on_tree_part, false, false},
	[ENTRY_DONE] = {on_answer_request_first, true, false},
	[ENTRY_PULL] = {feed_on_pull, false, false},
	[ENTRY_IGNORES] = {rules_on_ignores, true, false},
	[ENTRY_RESTORED] = {on_answer_request_first, true, false},
	[ENTRY_JOB_STARTED] = {job_on_started, false, false},
	[ENTRY_JOB_OUTPUT] = {job_on_output, false, false},
	[ENTRY_JOB_EXIT] = {job_on_exit, true, false},
	[ENTRY_JOB_LIST] = {job_on_list, true, false},
	[ENTRY_PS_DONE] = {on_answer_request_first, false, false},
	[ENTRY_ERROR] = {on_error, false, true},
	[ENTRY_BYE] = {on_bye, false, true},
	[ENTRY_PACK_FULL] = {on_pack_full, true, true},
	[ENTRY_HOSTILE] = {on_hostile, false, true},
	[ENTRY_PONG] = {on_pong, false, false},
	[ENTRY_JOB_INPUT] = {job_on_input, false, false},
	[ENTRY_BASE] = {basis_on_base, false, false},
};

/* 1: taken; 0: not now; negative: the line ends. */
static int link_take(struct link *l, const struct entry_head *e)
{
	struct env *env = l->env;
	const char *why = "";
	int r;

	if (e->type >= ARRAY_SIZE(handlers) || !handlers[e->type].fn)
		return -EPROTO;
	if (!l->up && !handlers[e->type].before_welcome)
		return -EPROTO;
	if (handlers[e->type].needs_commit && (env->muted || commit_busy(env)))
		return 0;
	r = entry_check(e, &why);
	if (r < 0) {
		log_warning("environment '%s': limb-ingest sent what does not add up: %s",
			    env->name, why);
		return r;
	}
	env->last_word_ms = clock_mono_ms();
	if (e->type == ENTRY_PLACES && !env->guest_of) {
		r = proof_places(l->proof, (const struct entry_places *)e);
		if (r == -EBADMSG)
			env_lied(env, "content that is not what it says, or is not its own");
		if (r <= 0)
			return r;
	}
	r = env->guest_of && !guest_may_say(env, e) ? guest_says(env, e)
						    : handlers[e->type].fn(env, e);
	return r < 0 ? r : 1;
}

/* The contents of a guest are not the journal's yet. */
static void look_ahead(struct link *l)
{
	if (l->up && !l->env->guest_of)
		l->looked += proof_ahead(l->proof, l->env, buf_data(&l->in) + l->looked,
					 buf_len(&l->in) - l->looked);
}

static void link_process(struct link *l)
{
	struct env *env = l->env;
	size_t taken = 0;
	int r = 0;

	look_ahead(l);
	while (env->link == l && taken < TURN_BYTES) {
		ssize_t whole = entry_whole(buf_data(&l->in), buf_len(&l->in));

		r = (int)MIN(whole, (ssize_t)0);
		if (whole <= 0)
			break;
		r = link_take(l, (const struct entry_head *)buf_data(&l->in));
		if (r <= 0 || env->link != l)
			break;
		buf_consume(&l->in, (size_t)whole);
		taken += (size_t)whole;
		l->looked -= MIN(l->looked, (size_t)whole);
	}
	if (env->link != l)
		return;
	if (r < 0) {
		link_lost(env, r == -ENOTCONN ? NULL : strerror(-r));
		return;
	}
	look_ahead(l);
	if (buf_len(&l->in) == 0 && l->in.cap > IN_KEPT) {
		buf_done(&l->in);
		buf_init(&l->in, LINK_IN_LIMIT + LINK_READ_BYTES);
	}
	link_poll_update(l);
}

static int link_read(struct link *l)
{
	uint8_t *p;
	ssize_t n;
	int r;

	r = buf_reserve(&l->in, LINK_READ_BYTES, &p);
	if (r < 0)
		return r;
	n = io_read_some(l->sock, p, LINK_READ_BYTES, "link.read");
	if (n == -EAGAIN)
		return 0;
	if (n == 0)
		return -ENOTCONN;
	if (n < 0)
		return (int)n;
	buf_commit(&l->in, (size_t)n);
	return 1;
}

static void link_poll(uv_poll_t *p, int status, int events)
{
	struct link *l = container_of(p, struct link, poll);
	struct env *env = l->env;
	int r = 0;

	if (status < 0)
		r = status;
	if (r == 0 && events & UV_WRITABLE)
		r = link_flush(l);
	if (r == 0 && events & (UV_READABLE | UV_DISCONNECT))
		r = link_read(l);
	if (r < 0) {
		link_process(l); /* what came before the end counts */
		if (env->link == l)
			link_lost(env, "limb-ingest has ended");
		return;
	}
	link_process(l);
	if (env->link == l && events & UV_WRITABLE)
		feed_drained(env);
}

void link_poll_update(struct link *l)
{
	int events = 0;

	if (l->ending || !l->poll_made)
		return;
	if (buf_len(&l->in) < LINK_IN_LIMIT / 2)
		events |= UV_READABLE;
	if (l->out_head)
		events |= UV_WRITABLE;
	(void)uv_poll_start(&l->poll, events, link_poll);
}

void link_resume(struct env *env)
{
	if (env->link)
		link_process(env->link);
}

bool link_up(const struct env *env)
{
	return env->link && env->link->up;
}

void link_set_up(struct env *env)
{
	env->link->up = true;
	/* While nobody could say anything no time has passed for what was going on. */
	if (env->fell_ms && env->run.before_seq)
		env->run.last_ms += clock_mono_ms() - env->fell_ms;
	env->fell_ms = 0;
	env->was_up = true;
	env->link->up_ms = clock_mono_ms();
	(void)uv_timer_stop(&env->link->hello_timer);
}

void link_move(struct env *from, struct env *to)
{
	feed_stop(from);
	basis_stop(from);
	link_requests_fail(from, -ENOTCONN);
	to->link = take_ptr(&from->link);
	if (to->link)
		to->link->env = to;
}

bool link_has_proof(const struct env *env, const uint8_t hash[SHA256_BYTES])
{
	return env->link && proof_has(env->link->proof, hash);
}

uint64_t link_sent_bytes(const struct env *env)
{
	return env->link ? env->link->sent_bytes : 0;
}

int link_transport_pid(const struct env *env)
{
	return env->link && env->link->transport_alive ? env->link->transport.pid : 0;
}

int link_ingest_pid(const struct env *env)
{
	return env->link && env->link->ingest_alive ? env->link->ingest.pid : 0;
}
