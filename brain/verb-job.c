/* jobs, logs, wait, attach, input, signal: what is asked of a job by its id. */
#include <signal.h>

#include "base/text.h"
#include "brain/job.h"
#include "brain/link.h"
#include "brain/stream.h"
#include "brain/verb.h"

enum {
	LIST_MAX = 1000,
	MAX_OUTPUT = 1 << 20,
	INPUT_MS = 60000,    /* for the environment to have it */
	LAST_WORD_MS = 3000, /* for a client to say that what ended the job was all */
};

static struct job *call_job(struct call *call)
{
	const char *id = call_str(call, "job");
	struct job *job = NULL;
	int r;

	if (!id) {
		call_fail(call, "usage", NULL, "limb jobs -a", "the job's id is missing");
		return NULL;
	}
	r = job_get(call->brain, id, &job);
	if (r == 0)
		return job;
	call_fail_with(call, r == -ENOENT ? "job_not_found" : verb_code(r),
		       text_utf8_ok(id, strlen(id)) ? json_pack("{s:s}", "job_id", id) : NULL, NULL,
		       "limb jobs -a",
		       r == -ENOENT ? "there is no job '%s'" : "cannot read job '%s'",
		       text_utf8_ok(id, strlen(id)) ? id : "?");
	return NULL;
}

/* verb: what to try with it; NULL: nothing. */
static void fail_job(struct call *call, struct job *job, const char *code, const char *verb,
		     const char *text)
{
	char step[ENTRY_JOB_MAX + 32];

	(void)snprintf(step, sizeof(step), "limb %s %s", verb ? verb : "", job_id(job));
	call_fail_with(call, code, json_pack("{s:s}", "job_id", job_id(job)), job_env(job)->name,
		       verb ? step : NULL, "job %s %s", job_id(job), text);
}

/* ---- jobs ---- */

void verb_jobs(struct call *call)
{
	struct env *env = NULL;
	json_t *list, *o;
	bool more;

	if (json_object_get(call->params, "name")) {
		env = verb_env(call);
		if (!env)
			return;
	}
	list = job_json_list(call->brain, env, call_bool(call, "all"), LIST_MAX, &more);
	o = json_pack("{s:o}", "jobs", list);
	if (more)
		(void)json_object_set_new(o, "truncated", json_true());
	call_ok(call, o);
}

/* ---- wait, attach ---- */

static void follow(struct call *call, enum stream_how how, bool input)
{
	struct job *job = call_job(call);
	struct stream *s;

	if (!job)
		return;
	s = stream_new(call, job, call_bool(call, "json") ? STREAM_QUIET : how, STREAM_EXEC);
	if (!s)
		return;
	s->input = input;
	s->with_output = call_bool(call, "json");
	s->max = (uint64_t)MAX((int64_t)2, call_int(call, "max_output_bytes", MAX_OUTPUT));
	if (input)
		(void)call_notify(call, "job", job_json(job));
	if (json_object_get(call->params, "timeout_ms"))
		s->wait_ms = (uint64_t)MAX((int64_t)1, call_int(call, "timeout_ms", 1));
	stream_go(s);
}

void verb_wait(struct call *call)
{
	follow(call, STREAM_QUIET, false);
}

void verb_attach(struct call *call)
{
	follow(call, STREAM_BYTES, true);
}

/* ---- logs ---- */

/* 0: both; -1: the call is answered. */
static int which_stream(struct call *call)
{
	const char *name = call_str(call, "stream");
	char shown[80];

	if (!json_object_get(call->params, "stream"))
		return 0;
	if (name && strcmp(name, "stdout") == 0)
		return 1;
	if (name && strcmp(name, "stderr") == 0)
		return 2;
	call_fail(call, "usage", NULL, "limb help logs", "a stream is stdout or stderr, not '%s'",
		  name ? text_escape_into(shown, sizeof(shown), name, strlen(name)) : "");
	return -1;
}

/* Some of the output as an answer by itself, and where to go on. */
struct some {
	struct call *call;
	struct job_watch watch;
	uint64_t at[2], limit;
	int only;
	uv_timer_t timer;
	bool timer_made;
};

static void some_closed(uv_handle_t *h)
{
	free(container_of((uv_timer_t *)h, struct some, timer));
}

static json_t *some_pieces(struct some *x, struct job *job)
{
	uint64_t left = x->limit, before, skipped = 0;
	json_t *list = json_array(), *one;
	struct job_step to;
	bool known = true;

	for (uint64_t step = 0; known && left; step++) {
		known = job_output_step(job, step, &to);
		for (int i = 0; i < 2; i++) {
			while (x->at[i] < to.total[i] && left && x->only != 2 - i) {
				before = x->at[i];
				one = stream_piece(job, i + 1, &x->at[i],
						   MIN(to.total[i], x->at[i] + left), job_over(job),
						   to.at_ns);
				if (one) {
					left -= MIN(left, x->at[i] - before);
					(void)json_array_append_new(list, one);
				} else if (x->at[i] == before) {
					break; /* the first bytes of a character */
				} else {
					skipped += x->at[i] - before;
				}
			}
		}
	}
	one = job_json(job);
	(void)json_object_set_new(one, "pieces", list);
	(void)json_object_set_new(one, "stdout_offset", json_integer((json_int_t)x->at[0]));
	(void)json_object_set_new(one, "stderr_offset", json_integer((json_int_t)x->at[1]));
	if (skipped)
		(void)json_object_set_new(one, "left_out_bytes", json_integer((json_int_t)skipped));
	return one;
}

static void some_end(struct some *x)
{
	struct call *call = x->call;
	json_t *o = some_pieces(x, x->watch.job);

	job_unwatch(&x->watch);
	call->op = NULL;
	call->on_cancel = NULL;
	if (x->timer_made)
		uv_close((uv_handle_t *)&x->timer, some_closed);
	else
		free(x);
	call_ok(call, o);
}

static bool some_there(const struct some *x)
{
	struct job *job = x->watch.job;

	return job_over(job) || (x->only != 2 && x->at[0] < job_output_bytes(job, 1)) ||
	       (x->only != 1 && x->at[1] < job_output_bytes(job, 2));
}

static void some_on_job(struct job_watch *w, enum job_event event)
{
	struct some *x = container_of(w, struct some, watch);

	if (event == JOB_GONE || some_there(x))
		some_end(x);
}

static void some_on_timer(uv_timer_t *t)
{
	some_end(container_of(t, struct some, timer));
}

static void some_on_cancel(struct call *call)
{
	some_end(call->op);
}

static void logs_some(struct call *call, struct job *job, int only)
{
	int64_t since = call_int(call, "since", 0), wait_ms = call_int(call, "wait_ms", 0);
	struct some *x = calloc(1, sizeof(*x));

	if (!x) {
		call_fail(call, "internal", NULL, NULL, "out of memory");
		return;
	}
	x->call = call;
	x->only = only;
	x->at[0] = (uint64_t)MAX(call_int(call, "since_stdout", since), (int64_t)0);
	x->at[1] = (uint64_t)MAX(call_int(call, "since_stderr", since), (int64_t)0);
	x->limit = (uint64_t)MIN(MAX(call_int(call, "limit_bytes", 0), (int64_t)4),
				 (int64_t)JOB_MAX_OUTPUT);
	x->watch.fn = some_on_job;
	x->watch.taken[0] = x->watch.taken[1] = UINT64_MAX;
	job_watch(job, &x->watch);
	if (wait_ms <= 0 || some_there(x)) {
		some_end(x);
		return;
	}
	call->op = x;
	call->on_cancel = some_on_cancel;
	(void)uv_timer_init(call->brain->loop, &x->timer);
	x->timer_made = true;
	(void)uv_timer_start(&x->timer, some_on_timer, (uint64_t)wait_ms, 0);
}

void verb_logs(struct call *call)
{
	int64_t since = call_int(call, "since", 0);
	int only = which_stream(call);
	struct job *job = only < 0 ? NULL : call_job(call);
	struct stream *s;

	if (!job)
		return;
	if (job_output_check(job) < 0) {
		fail_job(call, job, "file_not_found", "wait",
			 "is too long ago: its output is not kept any more, but how it ended is");
		return;
	}
	if (json_object_get(call->params, "limit_bytes")) {
		logs_some(call, job, only);
		return;
	}
	s = stream_new(call, job, call_bool(call, "json") ? STREAM_PIECES : STREAM_BYTES,
		       STREAM_JOB);
	if (!s)
		return;
	s->only = only;
	s->follow = call_bool(call, "follow");
	s->watch.taken[0] = s->watch.taken[1] = (uint64_t)MAX(since, (int64_t)0);
	stream_go(s);
}

/* ---- input ---- */

struct given {
	struct call *call;
	struct job_watch watch;
	uint64_t bytes;
	bool eof, all; /* all: the client has said everything */
	uv_timer_t timer;
};

static void given_closed(uv_handle_t *h)
{
	free(container_of((uv_timer_t *)h, struct given, timer));
}

static struct job *given_end(struct given *g)
{
	struct job *job = g->watch.job;

	job_unwatch(&g->watch);
	g->call->op = NULL;
	g->call->on_cancel = NULL;
	g->call->on_stdin = NULL;
	uv_close((uv_handle_t *)&g->timer, given_closed);
	return job;
}

static void given_fail(struct given *g, const char *code, const char *verb, const char *text)
{
	struct call *call = g->call;

	fail_job(call, given_end(g), code, verb, text);
}

static void given_consider(struct given *g)
{
	struct job *job = g->watch.job;
	struct call *call = g->call;
	uint64_t bytes = g->bytes;

	if (job_input_waiting(job) < JOB_INPUT_HIGH)
		call_pause(call, false);
	if (!g->all || job_input_waiting(job) > 0)
		return;
	(void)given_end(g);
	call_ok(call, json_pack("{s:s, s:I}", "job_id", job_id(job), "accepted_bytes",
				(json_int_t)bytes));
}

static void given_on_over(uv_timer_t *t)
{
	given_fail(container_of(t, struct given, timer), "conflict", "logs", "has ended");
}

static void given_on_job(struct job_watch *w, enum job_event event)
{
	struct given *g = container_of(w, struct given, watch);

	/* It has all that was said, and ended by that maybe: that there is no more may be on its
	 * way from the client. */
	if (event == JOB_OVER && g->bytes && job_input_waiting(w->job) == 0)
		(void)uv_timer_start(&g->timer, given_on_over, LAST_WORD_MS, 0);
	else if (event == JOB_GONE || event == JOB_OVER)
		given_fail(g, "conflict", "logs", "has ended");
	else
		given_consider(g);
}

static void given_on_stdin(struct call *call, const void *data, size_t n, bool eof)
{
	struct given *g = call->op;
	int r;

	if (!g || g->all)
		return;
	g->all = eof;
	r = n || (eof && g->eof) ? job_input(g->watch.job, data, n, eof && g->eof) : 0;
	if (r == -EPIPE && n == 0) /* its end is nothing that one that has ended lacks */
		r = 0;
	if (r < 0) {
		given_fail(g, r == -EPIPE ? "conflict" : "quota_exceeded", NULL,
			   r == -EPIPE ? "reads no more input" : "does not take so much at once");
		return;
	}
	g->bytes += n;
	if (job_input_waiting(g->watch.job) >= JOB_INPUT_HIGH)
		call_pause(call, true);
	given_consider(g);
}

static void given_on_timer(uv_timer_t *t)
{
	struct given *g = container_of(t, struct given, timer);

	if (job_input_waiting(g->watch.job) == 0) {
		(void)uv_timer_again(t);
		return; /* the client is the slow one */
	}
	given_fail(g, "timed_out", NULL,
		   "did not get it in time: its environment is away; what was accepted goes to it "
		   "when it is back");
}

static void given_on_cancel(struct call *call)
{
	given_fail(call->op, "conflict", NULL, "got a part of it: the client left");
}

void verb_input(struct call *call)
{
	struct job *job = call_job(call);
	struct given *g;

	if (!job)
		return;
	if (!job_reads_input(job) || job_over(job)) {
		fail_job(call, job, "conflict", job_over(job) ? "logs" : NULL,
			 job_over(job) ? "has ended"
				       : "reads no input: it was started without, or got its end");
		return;
	}
	if (!link_up(job_env(job))) {
		call_fail(call, "env_unreachable", job_env(job)->name, "limb status",
			  "environment '%s' is away; the job runs on", job_env(job)->name);
		return;
	}
	g = calloc(1, sizeof(*g));
	if (!g) {
		call_fail(call, "internal", NULL, NULL, "out of memory");
		return;
	}
	g->call = call;
	g->eof = call_bool(call, "eof");
	g->watch.fn = given_on_job;
	g->watch.taken[0] = g->watch.taken[1] = UINT64_MAX;
	job_watch(job, &g->watch);
	call->op = g;
	call->on_stdin = given_on_stdin;
	call->on_cancel = given_on_cancel;
	(void)uv_timer_init(call->brain->loop, &g->timer);
	(void)uv_timer_start(&g->timer, given_on_timer, INPUT_MS, INPUT_MS);
}

/* ---- signal ---- */

/* "TERM", "SIGTERM", "15"; 0: none. */
static int parse_signal(const char *s)
{
	uint64_t n;

	if (text_parse_u64(s, NSIG - 1, &n) == 0)
		return (int)n;
	if (strncasecmp(s, "SIG", 3) == 0)
		s += 3;
	for (int sig = 1; sig < NSIG; sig++) {
		const char *name = sigabbrev_np(sig);

		if (name && strcasecmp(name, s) == 0)
			return sig;
	}
	return 0;
}

void verb_signal(struct call *call)
{
	const char *text = call_str(call, "signal");
	int sig = text ? parse_signal(text) : 0, r;
	char name[24], shown[80];
	struct job *job;

	if (sig == 0) {
		call_fail(call, "usage", NULL, NULL,
			  "'%s' is no signal: write a name such as TERM, or a number below %d",
			  text ? text_escape_into(shown, sizeof(shown), text, strlen(text)) : "",
			  NSIG);
		return;
	}
	job = call_job(call);
	if (!job)
		return;
	r = call_bool(call, "tree") && sig == SIGTERM ? job_end(job, sig, "user")
						      : job_signal(job, sig, "user");
	if (r == -ESRCH)
		fail_job(call, job, "conflict", "logs", "has ended");
	else if (r < 0)
		call_fail(call, "env_unreachable", job_env(job)->name, "limb status",
			  "environment '%s' is away; the job runs on", job_env(job)->name);
	if (r < 0)
		return;
	if (sigabbrev_np(sig))
		(void)snprintf(name, sizeof(name), "SIG%s", sigabbrev_np(sig));
	else
		(void)snprintf(name, sizeof(name), "SIG%d", sig);
	call_ok(call, json_pack("{s:s, s:s}", "job_id", job_id(job), "signal", name));
}
