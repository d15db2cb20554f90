#include "bridge/client.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/text.h"
#include "brain/rpc.h"
#include "bridge/failure.h"

enum {
	CONNECT_S = 10, /* limbd does not take it: its backlog is full */
	READ_BYTES = 256 * 1024,
	STDIN_BYTES = 64 * 1024,
	/* What a pipe takes without blocking once poll says that it takes something. */
	PIPE_BYTES = 4096,
	FILE_BYTES = 1 << 20,
	OUT_HIGH_BYTES = 256 * 1024,
};

struct client {
	int fd;
	pid_t peer;
	struct buf in, out;
	int64_t last_id;
	int signal;
	bool answered; /* the last call */
};

/* State of the call in progress. */
struct run {
	struct client *c;
	const struct client_call *call;
	int signal_fd;
	bool in_open;	/* stdin has more */
	bool cancelled; /* limbd was told */
	bool pipe_closed;
	uint64_t end_ms; /* 0: none */
	size_t written;	 /* of the payload of the frame at the head of c->in */
	json_t *answer;
	bool failed;
	bool done;
};

bool client_is_unreachable(const json_t *failure)
{
	const char *code = json_string_value(json_object_get(failure, "error"));

	return code && strcmp(code, "daemon_unreachable") == 0;
}

static json_t *unreachable(const struct places *places, int r)
{
	char shown[256];

	text_escape_into(shown, sizeof(shown), places->socket, strlen(places->socket));
	if (r == -EACCES)
		return failure_new("permission_denied", "use your own brain: another --state DIR",
				   "you may not use the socket '%s'", shown);
	return failure_new("daemon_unreachable", "start it: limb up",
			   "no limbd answers at '%s' (%s)", shown, strerror(-r));
}

static int socket_connect(const char *path, int *ret_fd)
{
	const struct timeval patience = {.tv_sec = CONNECT_S};
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	cleanup_close int fd = -1;

	if (strlen(path) >= sizeof(sa.sun_path))
		return -ENAMETOOLONG;
	memcpy(sa.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (TEMP_FAILURE_RETRY(connect(fd, (struct sockaddr *)&sa, sizeof(sa))) < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	/* Only once it is connected: a full backlog is to be waited for. */
	if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	*ret_fd = take_fd(&fd);
	return 0;
}

json_t *client_connect(const struct places *places, struct client **ret)
{
	cleanup_close int fd = -1;
	struct ucred cred;
	socklen_t n = sizeof(cred);
	json_t *failure;
	struct client *c;
	int r;

	failure = places_check_owner(places);
	if (!failure)
		failure = places_check_socket(places);
	if (failure)
		return failure;
	r = socket_connect(places->socket, &fd);
	if (r < 0)
		return unreachable(places, r);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0)
		return unreachable(places, -errno);
	if (cred.uid != geteuid())
		return failure_new("permission_denied", "use your own brain: another --state DIR",
				   "limbd runs as uid %u, and you are uid %u", (unsigned)cred.uid,
				   (unsigned)geteuid());
	c = calloc(1, sizeof(*c));
	if (!c)
		return failure_new("internal", NULL, "out of memory");
	c->fd = take_fd(&fd);
	c->peer = cred.pid;
	buf_init(&c->in, RPC_FRAME_MAX + RPC_HEADER_BYTES + READ_BYTES);
	buf_init(&c->out, RPC_FRAME_MAX + OUT_HIGH_BYTES);
	*ret = c;
	return NULL;
}

void client_free(struct client *c)
{
	if (!c)
		return;
	(void)close(c->fd);
	buf_done(&c->in);
	buf_done(&c->out);
	free(c);
}

bool client_answered(const struct client *c)
{
	return c->answered;
}

int client_signal(const struct client *c)
{
	return c->signal;
}

pid_t client_peer_pid(const struct client *c)
{
	return c->peer;
}

/* ---- sending ---- */

static int queue_frame(struct client *c, enum rpc_kind kind, const void *data, size_t n)
{
	uint8_t header[RPC_HEADER_BYTES] = {0};
	int r;

	if (n > RPC_FRAME_MAX)
		return -E2BIG;
	put_le32(header, (uint32_t)n);
	header[4] = (uint8_t)kind;
	r = buf_add(&c->out, header, sizeof(header));
	return r < 0 ? r : buf_add(&c->out, data, n);
}

static int queue_json(struct client *c, json_t *message)
{
	cleanup_free char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;

	json_decref(message);
	return text ? queue_frame(c, RPC_JSON, text, strlen(text)) : -ENOMEM;
}

static int flush_out(struct client *c)
{
	ssize_t n;

	if (buf_len(&c->out) == 0)
		return 0;
	n = send(c->fd, buf_data(&c->out), buf_len(&c->out), MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	buf_consume(&c->out, (size_t)n);
	return 0;
}

static int read_stdin(struct run *run)
{
	uint8_t data[STDIN_BYTES];
	ssize_t n = io_read_some(run->call->in_fd, data, sizeof(data), "client.stdin");

	if (n == -EAGAIN)
		return 0;
	/* A terminal that is gone, a directory: the command sees the end. */
	if (n < 0)
		n = 0;
	run->in_open = n > 0;
	return queue_frame(run->c, RPC_STDIN, data, (size_t)n);
}

int client_send_size(struct client *c, int terminal)
{
	struct winsize ws;

	if (ioctl(terminal, TIOCGWINSZ, &ws) < 0 || !ws.ws_row || !ws.ws_col)
		return 0;
	return queue_json(c, json_pack("{s:s, s:s, s:{s:i, s:i}}", "jsonrpc", "2.0", "method",
				       "resize", "params", "rows", (int)ws.ws_row, "cols",
				       (int)ws.ws_col));
}

static int queue_cancel(struct client *c)
{
	return queue_json(c, json_pack("{s:s, s:s}", "jsonrpc", "2.0", "method", "cancel"));
}

static int cancel(struct run *run)
{
	uint64_t end = clock_mono_ms() + CLIENT_CANCEL_MS;

	if (run->cancelled) {
		run->done = true;
		return 0;
	}
	run->cancelled = true;
	run->in_open = false;
	run->end_ms = run->end_ms ? MIN(run->end_ms, end) : end;
	return queue_cancel(run->c);
}

/* ---- receiving ---- */

static void take_response(struct run *run, json_t *message)
{
	json_t *result = json_object_get(message, "result");
	json_t *error = json_object_get(message, "error");
	json_t *data = json_object_get(error, "data");
	const char *text = json_string_value(json_object_get(error, "message"));

	run->done = run->c->answered = true;
	run->failed = error != NULL || !result;
	if (!run->failed)
		run->answer = json_incref(result);
	else if (json_is_string(json_object_get(data, "error")))
		run->answer = json_incref(data);
	else
		run->answer = failure_new("internal", NULL, "limbd failed: %s",
					  text ? text : "it gave no reason");
}

static int take_json(struct run *run, const uint8_t *data, size_t n)
{
	json_t *message = json_loadb((const char *)data, n, JSON_ALLOW_NUL, NULL);
	const char *method = json_string_value(json_object_get(message, "method"));

	if (!json_is_object(message)) {
		json_decref(message);
		return -EPROTO;
	}
	if (method && run->call->notified)
		run->call->notified(method, json_object_get(message, "params"),
				    run->call->userdata);
	else if (!method && json_integer_value(json_object_get(message, "id")) == run->c->last_id)
		take_response(run, message);
	json_decref(message);
	return 0;
}

/* The complete frame at the head of what was received, or NULL. */
static int head_frame(struct client *c, const uint8_t **ret, size_t *ret_n, uint8_t *ret_kind)
{
	const uint8_t *p = buf_data(&c->in);
	uint32_t n;

	*ret = NULL;
	if (buf_len(&c->in) < RPC_HEADER_BYTES)
		return 0;
	n = get_le32(p);
	if (n > RPC_FRAME_MAX)
		return -EPROTO;
	if (buf_len(&c->in) - RPC_HEADER_BYTES < n)
		return 0;
	*ret = p + RPC_HEADER_BYTES;
	*ret_n = n;
	*ret_kind = p[4];
	return 0;
}

static void drop_frame(struct run *run, size_t n)
{
	buf_consume(&run->c->in, RPC_HEADER_BYTES + n);
	run->written = 0;
}

/* Takes frames until one has output that must wait for its reader; *ret_fd is
 * where it goes then, else -1. */
static int take_frames(struct run *run, int *ret_fd)
{
	const uint8_t *p;
	uint8_t kind;
	size_t n;
	int r;

	*ret_fd = -1;
	while (!run->done) {
		r = head_frame(run->c, &p, &n, &kind);
		if (r < 0 || !p)
			return r;
		if (kind == RPC_STDOUT || kind == RPC_STDERR) {
			*ret_fd = kind == RPC_STDOUT ? run->call->out_fd : run->call->err_fd;
			if (n > run->written && *ret_fd >= 0 &&
			    !(kind == RPC_STDOUT && run->pipe_closed))
				return 0;
			*ret_fd = -1;
		} else if (kind == RPC_JSON) {
			r = take_json(run, p, n);
			if (r < 0)
				return r;
		}
		drop_frame(run, n);
	}
	return 0;
}

/* Some of the frame at the head, to fd, which poll called ready. */
static int write_output(struct run *run, int fd)
{
	const uint8_t *p;
	struct stat st;
	uint8_t kind;
	ssize_t w;
	size_t n;

	if (head_frame(run->c, &p, &n, &kind) < 0 || !p)
		return -EPROTO;
	n -= run->written;
	n = MIN(n, fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? (size_t)FILE_BYTES
							      : (size_t)PIPE_BYTES);
	w = io_write_some(fd, p + run->written, n, "client.output");
	if (w == -EAGAIN)
		return 0;
	if (w >= 0) {
		run->written += (size_t)w;
		return 0;
	}
	if (kind == RPC_STDERR) { /* nobody is left to be told */
		run->written += n;
		return 0;
	}
	if (w != -EPIPE)
		return (int)w;
	run->pipe_closed = true;
	return cancel(run);
}

static int read_socket(struct client *c)
{
	uint8_t *p;
	ssize_t n;
	int r;

	r = buf_reserve(&c->in, READ_BYTES, &p);
	if (r < 0)
		return r;
	n = io_read_some(c->fd, p, READ_BYTES, "client.receive");
	if (n == 0)
		return -ECONNRESET;
	if (n > 0)
		buf_commit(&c->in, (size_t)n);
	return n == -EAGAIN ? 0 : (int)MIN(n, 0);
}

/* ---- the loop ---- */

enum { POLL_SOCKET, POLL_STDIN, POLL_OUTPUT, POLL_SIGNAL, POLL_COUNT };

static int step(struct run *run)
{
	struct client *c = run->c;
	struct pollfd p[POLL_COUNT] = {{0}};
	int output, timeout_ms = -1, r;

	r = take_frames(run, &output);
	if (r < 0 || run->done)
		return r;
	/* While output waits, a closed socket must not wake us again and again. */
	p[POLL_SOCKET].fd = output < 0 || buf_len(&c->out) ? c->fd : -1;
	p[POLL_SOCKET].events =
		(short)((output < 0 ? POLLIN : 0) | (buf_len(&c->out) ? POLLOUT : 0));
	p[POLL_STDIN].fd = run->in_open && buf_len(&c->out) < OUT_HIGH_BYTES ? run->call->in_fd
									     : -1;
	p[POLL_STDIN].events = POLLIN;
	p[POLL_OUTPUT].fd = output;
	p[POLL_OUTPUT].events = POLLOUT;
	p[POLL_SIGNAL].fd = run->signal_fd;
	p[POLL_SIGNAL].events = POLLIN;
	if (run->end_ms) {
		uint64_t now = clock_mono_ms();

		if (now >= run->end_ms)
			return -ETIMEDOUT;
		timeout_ms = (int)MIN(run->end_ms - now, (uint64_t)1000000);
	}
	if (poll(p, POLL_COUNT, timeout_ms) < 0)
		return errno == EINTR ? 0 : -errno;

	if (p[POLL_SIGNAL].revents) {
		struct signalfd_siginfo si = {0};

		(void)io_read_some(run->signal_fd, &si, sizeof(si), "client.signal");
		if (si.ssi_signo == SIGWINCH) {
			if (run->call->terminal && *run->call->terminal >= 0)
				r = client_send_size(c, *run->call->terminal);
		} else {
			c->signal = si.ssi_signo ? (int)si.ssi_signo : SIGINT;
			r = cancel(run);
		}
	}
	if (r >= 0 && p[POLL_OUTPUT].revents)
		r = write_output(run, output);
	if (r >= 0 && p[POLL_STDIN].revents)
		r = read_stdin(run);
	/* What limbd said before it closed is read first: an answer may be in it. */
	if (r >= 0 && p[POLL_SOCKET].revents & (POLLIN | POLLHUP | POLLERR) && output < 0)
		r = read_socket(c);
	if (r >= 0 && buf_len(&c->out)) {
		r = flush_out(c);
		if (r == -EPIPE || r == -ECONNRESET) {
			buf_clear(&c->out);
			run->in_open = false;
			r = 0;
		}
	}
	return r;
}

/* A descriptor that reports the signals that end a call, but those that our starter has
 * ignored; and a terminal's changes. */
static int catch_signals(sigset_t *ret_old)
{
	static const int ending[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction sa;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGWINCH);
	for (size_t i = 0; i < ARRAY_SIZE(ending); i++)
		if (sigaction(ending[i], NULL, &sa) < 0 || sa.sa_handler != SIG_IGN)
			sigaddset(&set, ending[i]);
	(void)sigprocmask(SIG_BLOCK, &set, ret_old);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static json_t *broken(int r)
{
	if (r == -ETIMEDOUT)
		return failure_new("timed_out", "see limbd.log in the state directory",
				   "limbd did not answer in time");
	if (r == -ECONNRESET || r == -EPIPE)
		return failure_new("daemon_unreachable",
				   "start it again: limb up (what was running goes on: limb jobs)",
				   "limbd ended before it answered");
	if (r == -EPROTO)
		return failure_new("internal", "are limb and limbd of one version?",
				   "limbd's answer makes no sense");
	return failure_new(failure_code_of_errno(r), NULL, "the call of limbd failed: %s",
			   strerror(-r));
}

static int queue_request(struct client *c, const struct client_call *call)
{
	return queue_json(c, json_pack("{s:s, s:I, s:s, s:O}", "jsonrpc", "2.0", "id",
				       (json_int_t)++c->last_id, "method", call->method, "params",
				       call->params));
}

enum client_outcome client_call(struct client *c, const struct client_call *call,
				json_t **ret_answer)
{
	struct run run = {.c = c, .call = call, .in_open = call->in_fd >= 0};
	sigset_t old;
	int r;

	if (call->deadline_ms)
		run.end_ms = clock_mono_ms() + call->deadline_ms;
	c->signal = 0;
	c->answered = false;
	run.signal_fd = catch_signals(&old);
	r = queue_request(c, call);
	if (r >= 0)
		r = flush_out(c);
	if (r == -EPIPE)
		r = 0; /* the reason may wait to be read */
	while (r >= 0 && !run.done)
		r = step(&run);
	if (run.signal_fd >= 0)
		(void)close(run.signal_fd);
	(void)sigprocmask(SIG_SETMASK, &old, NULL);

	if (c->signal || run.pipe_closed) {
		json_decref(run.answer);
		return c->signal ? CLIENT_INTERRUPTED : CLIENT_PIPE_CLOSED;
	}
	if (r < 0) {
		json_decref(run.answer);
		*ret_answer = broken(r);
		return CLIENT_FAILED;
	}
	*ret_answer = run.answer;
	return run.failed ? CLIENT_FAILED : CLIENT_RESULT;
}

/* ---- for a loop of one's own ---- */

int client_fd(const struct client *c)
{
	return c->fd;
}

bool client_wants_write(const struct client *c)
{
	return buf_len(&c->out) > 0;
}

static int flush_or_wait(struct client *c)
{
	int r = flush_out(c);

	/* The reason may wait to be read. */
	if (r == -EPIPE || r == -ECONNRESET) {
		buf_clear(&c->out);
		r = 0;
	}
	return r;
}

int client_begin(struct client *c, const struct client_call *call)
{
	int r = queue_request(c, call);

	if (r >= 0 && call->in_data && call->in_n)
		r = queue_frame(c, RPC_STDIN, call->in_data, call->in_n);
	if (r >= 0 && call->in_data)
		r = queue_frame(c, RPC_STDIN, NULL, 0);
	return r < 0 ? r : flush_or_wait(c);
}

int client_cancel(struct client *c)
{
	int r = queue_cancel(c);

	return r < 0 ? r : flush_or_wait(c);
}

int client_pump(struct client *c, const struct client_call *call, short revents,
		enum client_outcome *ret_outcome, json_t **ret_answer)
{
	struct run run = {.c = c, .call = call};
	int output, r = 0;

	if (revents & POLLOUT)
		r = flush_or_wait(c);
	if (r >= 0 && revents & (POLLIN | POLLHUP | POLLERR))
		r = read_socket(c);
	if (r >= 0)
		r = take_frames(&run, &output);
	if (r >= 0 && !run.done)
		return 0;
	*ret_outcome = run.done && !run.failed ? CLIENT_RESULT : CLIENT_FAILED;
	*ret_answer = run.done ? run.answer : broken(r);
	return 1;
}
