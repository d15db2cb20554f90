#include "bridge/mcp-impl.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/io.h"

enum {
	READ_BYTES = 64 << 10,
	PIPE_BYTES = 4096, /* what a pipe takes once poll says that it takes something */
	PROGRESS_MS = 2000,
};

enum { POLL_IN, POLL_OUT, POLL_CALLS };

static int read_input(struct mcp *m)
{
	static uint8_t data[READ_BYTES];
	ssize_t n = io_read_some(m->in_fd, data, sizeof(data), "mcp.read");

	if (n == -EAGAIN)
		return 0;
	if (n > 0)
		return mcp_lines_feed(&m->lines, data, (size_t)n);
	m->eof = true;
	m->end_ms = clock_mono_ms() + MCP_LINGER_MS;
	return mcp_lines_end(&m->lines);
}

static int write_output(struct mcp *m)
{
	size_t n = buf_len(&m->out);
	ssize_t w;

	w = send(m->out_fd, buf_data(&m->out), n, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (w < 0)
		w = errno == ENOTSOCK ? io_write_some(m->out_fd, buf_data(&m->out),
						      MIN(n, (size_t)PIPE_BYTES), "mcp.write")
				      : -errno;
	if (w == -EAGAIN || w == -EINTR)
		return 0;
	if (w < 0)
		return (int)w;
	buf_consume(&m->out, (size_t)w);
	return 0;
}

/* When something has to be done without being woken; -1: never. */
static int timeout_ms(const struct mcp *m)
{
	uint64_t now_ms = clock_mono_ms(), at_ms = UINT64_MAX;

	if (m->eof)
		at_ms = m->end_ms;
	for (const struct mcp_call *c = m->calls; c; c = c->next) {
		if (c->token)
			at_ms = MIN(at_ms, c->told_ms + PROGRESS_MS);
		if (c->client)
			at_ms = MIN(at_ms, mcp_call_expires_ms(c));
	}
	if (at_ms == UINT64_MAX)
		return -1;
	return at_ms <= now_ms ? 0 : (int)MIN(at_ms - now_ms, (uint64_t)1000000);
}

static int tell_progress(struct mcp *m)
{
	uint64_t now_ms = clock_mono_ms();
	int r = 0;

	for (struct mcp_call *c = m->calls; r == 0 && c; c = c->next) {
		if (!c->token || now_ms - c->told_ms < PROGRESS_MS)
			continue;
		r = mcp_call_progress(c, NULL);
		c->told_ms = now_ms;
	}
	return r;
}

static int step(struct mcp *m)
{
	struct pollfd p[POLL_CALLS + MCP_ACTIVE_MAX] = {{0}};
	struct mcp_call *active[MCP_ACTIVE_MAX];
	/* A client that does not read is asked for nothing more. */
	bool full = buf_len(&m->out) > MCP_OUT_HIGH;
	size_t n = 0;
	int r;

	p[POLL_IN].fd = m->eof || full ? -1 : m->in_fd;
	p[POLL_IN].events = POLLIN;
	p[POLL_OUT].fd = m->out_fd;
	p[POLL_OUT].events = (short)(buf_len(&m->out) ? POLLOUT : 0);
	for (struct mcp_call *c = m->calls; c && n < MCP_ACTIVE_MAX; c = c->next) {
		if (!c->client)
			continue;
		p[POLL_CALLS + n].fd = client_fd(c->client);
		p[POLL_CALLS + n].events = (short)((full ? 0 : POLLIN) |
						   (client_wants_write(c->client) ? POLLOUT : 0));
		active[n++] = c;
	}
	if (poll(p, POLL_CALLS + n, timeout_ms(m)) < 0)
		return errno == EINTR ? 0 : -errno;

	r = p[POLL_OUT].revents & POLLOUT ? write_output(m) : 0;
	if (r == 0 && p[POLL_OUT].revents & (POLLERR | POLLHUP) && !(p[POLL_OUT].revents & POLLOUT))
		return -EPIPE;
	for (size_t i = 0; r == 0 && i < n; i++)
		if (p[POLL_CALLS + i].revents)
			r = mcp_call_pump(active[i], p[POLL_CALLS + i].revents);
	if (r == 0 && p[POLL_IN].revents)
		r = read_input(m);
	if (r == 0)
		r = mcp_calls_expire(m);
	if (r == 0)
		r = mcp_calls_start(m);
	if (r == 0)
		r = tell_progress(m);
	return r;
}

static bool over(const struct mcp *m)
{
	if (!m->eof)
		return false;
	return (!m->calls && buf_len(&m->out) == 0) || clock_mono_ms() >= m->end_ms;
}

int mcp_serve(const struct places *places, const char *environment, int in_fd, int out_fd)
{
	struct mcp m = {
		.places = places, .environment = environment, .in_fd = in_fd, .out_fd = out_fd};
	int r = 0;

	mcp_lines_init(&m.lines, mcp_on_line, &m);
	buf_init(&m.out, 0);
	while (r == 0 && !over(&m))
		r = step(&m);
	mcp_calls_drop(&m);
	mcp_lines_done(&m.lines);
	buf_done(&m.out);
	return r;
}
