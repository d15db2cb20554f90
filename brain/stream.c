#include "brain/stream.h"

#include <signal.h>

#include "base/clock.h"

enum {
	PIECE_BYTES = 128 << 10,
	UTF8_BYTES = 4,
	KILL_MS = 3000,
};

static uint8_t piece[PIECE_BYTES]; /* used up before anybody else can want it */

/* ---- pieces ---- */

/* Bytes at the end that begin a character and do not end it. */
static size_t unfinished(const uint8_t *p, size_t n)
{
	for (size_t back = 1; back < UTF8_BYTES && back <= n; back++) {
		uint8_t c = p[n - back];
		size_t len = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;

		if ((c & 0xc0) == 0x80)
			continue;
		return len > back ? back : 0;
	}
	return 0;
}

json_t *stream_piece(struct job *job, int stream, uint64_t *at, uint64_t to, bool last,
		     int64_t when_ns)
{
	uint64_t next, total = job_output_bytes(job, stream);
	char when[CLOCK_TEXT_MAX];
	size_t want, cut;
	json_t *o;
	ssize_t n;

	/* A character may be written in two steps. */
	want = (size_t)MIN(to - *at, (uint64_t)PIECE_BYTES);
	if (want < UTF8_BYTES)
		want = (size_t)MIN(total - *at, (uint64_t)UTF8_BYTES);
	n = job_output_read(job, stream, *at, piece, want, &next);
	if (n <= 0) {
		*at = n == 0 && next > *at ? next : total;
		return NULL;
	}
	cut = last && *at + (uint64_t)n == total ? 0 : unfinished(piece, (size_t)n);
	n -= (ssize_t)cut;
	if (n == 0)
		return NULL;
	o = json_pack("{s:s, s:I}", "stream", stream == 1 ? "stdout" : "stderr", "offset",
		      (json_int_t)*at);
	job_put_text(o, "data", piece, (size_t)n);
	(void)json_object_set_new(o, "at", json_string(clock_format(when, when_ns)));
	*at += (uint64_t)n;
	return o;
}

/* Sends a piece of stream i; false: the client has no room for more. */
static bool send_piece(struct stream *s, int i, const struct job_step *to)
{
	struct job *job = s->watch.job;
	uint64_t *at = &s->watch.taken[i], before = *at, next;
	enum rpc_kind kind = i ? RPC_STDERR : RPC_STDOUT;
	json_t *o;
	ssize_t n;

	if (s->how == STREAM_PIECES) {
		o = stream_piece(job, i + 1, at, to->total[i], s->over, to->at_ns);
		if (!o) {
			s->left_out += *at - before;
			s->stalled[i] = *at == before;
			return true;
		}
		return call_notify(s->call, "output", o);
	}
	n = job_output_read(job, i + 1, *at, piece,
			    (size_t)MIN(to->total[i] - *at, (uint64_t)PIECE_BYTES), &next);
	if (n <= 0) {
		*at = n == 0 && next > *at ? next : to->total[i];
		s->left_out += *at - before;
		return true;
	}
	*at += (uint64_t)n;
	return call_bytes(s->call, kind, piece, (size_t)n);
}

/* All that lies there, in the order in which it came; false: the client has no room. */
static bool pump(struct stream *s)
{
	struct job_step to;
	bool known;

	if (s->how == STREAM_QUIET || s->cancelled)
		return true;
	/* More output may come while the client has not taken what was there. */
	if (!call_has_room(s->call))
		return false;
	s->stalled[0] = s->stalled[1] = false;
	for (;;) {
		bool sent = false;

		known = job_output_step(s->watch.job, s->step, &to);
		for (int i = 0; i < 2; i++) {
			if (s->watch.taken[i] >= to.total[i] || s->stalled[i] ||
			    (s->only && s->only != i + 1))
				continue;
			sent = true;
			if (!send_piece(s, i, &to))
				return false;
		}
		if (sent)
			continue;
		if (!known)
			return true;
		s->step++;
	}
}

/* ---- the end ---- */

static void stream_closed(uv_handle_t *h)
{
	free(container_of((uv_timer_t *)h, struct stream, timer));
}

static void finish(struct stream *s)
{
	struct call *call = s->call;
	struct job *job = s->watch.job;
	json_t *o;

	o = s->answer == STREAM_EXEC ? job_json_exec(job, s->max, s->with_output) : job_json(job);
	if (s->left_out)
		(void)json_object_set_new(o, "left_out_bytes",
					  json_integer((json_int_t)s->left_out));
	job_unwatch(&s->watch);
	call->op = NULL;
	call->on_cancel = NULL;
	call->on_stdin = NULL;
	call->on_drained = NULL;
	call->on_notify = NULL;
	if (s->timer_made)
		uv_close((uv_handle_t *)&s->timer, stream_closed);
	else
		free(s);
	call_ok(call, o);
}

static void go_on(struct stream *s)
{
	bool all = pump(s);

	if (s->how != STREAM_QUIET)
		job_taken(&s->watch);
	if (all && (s->over || (s->answer == STREAM_JOB && !s->follow)))
		finish(s);
}

static void on_job(struct job_watch *w, enum job_event event)
{
	struct stream *s = container_of(w, struct stream, watch);

	switch (event) {
	case JOB_GONE: finish(s); return;
	case JOB_INPUT:
		if (job_input_waiting(w->job) < JOB_INPUT_HIGH)
			call_pause(s->call, false);
		return;
	case JOB_OVER: s->over = true; break;
	case JOB_MORE: break;
	}
	go_on(s);
}

/* ---- what the client does ---- */

static void on_drained(struct call *call)
{
	if (call->op)
		go_on(call->op);
}

static void on_stdin(struct call *call, const void *data, size_t n, bool eof)
{
	struct stream *s = call->op;

	if (!s || !s->input)
		return;
	/* A command that reads no more is no failure. */
	(void)job_input(s->watch.job, data, n, eof);
	if (job_input_waiting(s->watch.job) >= JOB_INPUT_HIGH)
		call_pause(call, true);
}

static void on_notify(struct call *call, const char *method, json_t *params)
{
	struct stream *s = call->op;
	json_int_t rows = json_integer_value(json_object_get(params, "rows"));
	json_int_t cols = json_integer_value(json_object_get(params, "cols"));

	if (s && strcmp(method, "resize") == 0 && rows > 0 && cols > 0 && rows <= UINT16_MAX &&
	    cols <= UINT16_MAX)
		(void)job_resize(s->watch.job, (uint32_t)rows, (uint32_t)cols);
}

static void set_timer(struct stream *s, uint64_t ms);

static void on_timer(uv_timer_t *t)
{
	struct stream *s = container_of(t, struct stream, timer);

	if (!s->cancelled) {
		finish(s);
		return;
	}
	/* Until it is over: a line that is down, or falls, takes no signal along. */
	(void)job_signal(s->watch.job, SIGKILL, "user");
	set_timer(s, KILL_MS);
}

static void set_timer(struct stream *s, uint64_t ms)
{
	if (!s->timer_made)
		(void)uv_timer_init(s->call->brain->loop, &s->timer);
	s->timer_made = true;
	(void)uv_timer_start(&s->timer, on_timer, ms, 0);
}

static void on_cancel(struct call *call)
{
	struct stream *s = call->op;

	if (!s || s->cancelled)
		return;
	if (!s->kills || (!call->client && s->outlive)) {
		finish(s);
		return;
	}
	s->cancelled = true;
	(void)job_end(s->watch.job, SIGTERM, "user");
	set_timer(s, KILL_MS);
}

struct stream *stream_new(struct call *call, struct job *job, enum stream_how how,
			  enum stream_answer answer)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (!s) {
		call_fail(call, "internal", NULL, NULL, "out of memory");
		return NULL;
	}
	s->call = call;
	s->how = how;
	s->answer = answer;
	s->watch.job = job;
	s->watch.fn = on_job;
	return s;
}

void stream_go(struct stream *s)
{
	struct call *call = s->call;
	struct job *job = s->watch.job;

	if (s->how == STREAM_QUIET)
		s->watch.taken[0] = s->watch.taken[1] = UINT64_MAX;
	else if (s->only)
		s->watch.taken[2 - s->only] = UINT64_MAX;
	job_watch(job, &s->watch);
	call->op = s;
	call->on_cancel = on_cancel;
	call->on_stdin = on_stdin;
	call->on_drained = on_drained;
	call->on_notify = on_notify;
	if (s->wait_ms)
		set_timer(s, s->wait_ms);
	s->over = job_over(job);
	go_on(s);
}
