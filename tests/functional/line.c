/*
 * line - a bad line: a proxy that delays a byte stream, limits its rate, stops it,
 * cuts it, drops bytes of it and gives them in another order.
 *
 *	line [SETTING...] PORT		listens on a free port of 127.0.0.1, passes each
 *					connection on to PORT there; "port N" on stdout
 *	line [SETTING...] -- CMD ARG...	between its own stdin and stdout and CMD's
 *
 * Settings, also taken as lines from a fifo (control=FIFO), for what is open and
 * what comes:
 *
 *	rtt=MS		half of it on each way
 *	rate=BYTES	a second, each way; 0: no limit
 *	drop=N		one byte in each N is lost; 0: none
 *	swap=N		on the way back, each N bytes two neighbouring runs of bytes change
 *			places; 0: never
 *	after=N		cut when N bytes more have passed, both ways counted together
 *	cut		every stream ends now, as when a cable is pulled (TCP: reset)
 *	stop, go	nothing passes until go; the streams stay
 *	refuse, accept	connections are closed at once
 *
 * "bytes OUT IN" at the end of each stream, on stdout (stderr with CMD): what passed.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/util.h"

enum {
	PIECE_BYTES = 16 << 10,
	QUEUE_MIN_BYTES = 256 << 10,
	LINES_MAX = 64,
	SWAP_BYTES = 64, /* of each of the two runs */
};

/* Read, and not yet due. */
struct piece {
	struct piece *next;
	uint64_t due_ns;
	size_t n, done;
	uint8_t bytes[PIECE_BYTES];
};

struct way {
	int from, to;
	struct piece *head, **tail;
	size_t queued_bytes;
	uint64_t free_ns; /* when the last byte has left, by the rate */
	uint64_t passed_bytes;
	bool ended; /* of `from` */
	bool back;  /* towards who asked for the line */
};

struct line {
	bool open;
	struct way way[2];
};

static uint64_t rtt_ms, rate_bytes, drop_every, swap_every, after_bytes;
static bool stopped, refusing, cutting;
static struct line lines[LINES_MAX];
static int control_fd = -1, listen_fd = -1;
static pid_t child;

static _Noreturn void die(const char *what)
{
	(void)fprintf(stderr, "line: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* ---- settings ---- */

static bool set(const char *text)
{
	static const struct {
		const char *name;
		uint64_t *to;
	} numbers[] = {{"rtt=", &rtt_ms},
		       {"rate=", &rate_bytes},
		       {"drop=", &drop_every},
		       {"swap=", &swap_every},
		       {"after=", &after_bytes}};

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		size_t n = strlen(numbers[i].name);

		if (strncmp(text, numbers[i].name, n) == 0)
			return text_parse_u64(text + n, UINT64_MAX, numbers[i].to) == 0;
	}
	if (strncmp(text, "control=", 8) == 0) {
		/* For reading and writing, so that it does not end with its first writer. */
		control_fd = open(text + 8, O_RDWR | O_NONBLOCK | O_CLOEXEC);
		return control_fd >= 0;
	}
	if (strcmp(text, "cut") == 0)
		cutting = true;
	else if (strcmp(text, "stop") == 0 || strcmp(text, "go") == 0)
		stopped = text[0] == 's';
	else if (strcmp(text, "refuse") == 0 || strcmp(text, "accept") == 0)
		refusing = text[0] == 'r';
	else
		return false;
	return true;
}

static void read_control(void)
{
	static char line[256];
	static size_t have;
	char *end;
	ssize_t n = read(control_fd, line + have, sizeof(line) - 1 - have);

	if (n <= 0)
		return;
	have += (size_t)n;
	while ((end = memchr(line, '\n', have))) {
		*end = '\0';
		if (!set(line))
			(void)fprintf(stderr, "line: what is '%s'?\n", line);
		have -= (size_t)(end + 1 - line);
		memmove(line, end + 1, have);
	}
}

/* ---- one way ---- */

static void way_init(struct way *w, int from, int to)
{
	*w = (struct way){.from = from, .to = to, .tail = &w->head};
}

/* As much as is under way at this rate and length, and some more. */
static bool way_has_room(const struct way *w)
{
	uint64_t under_way = rate_bytes ? rate_bytes * rtt_ms / 1000 : (uint64_t)8 << 20;

	return !w->ended && w->queued_bytes < under_way + QUEUE_MIN_BYTES;
}

/* Of the stream's bytes first .. first + n, those at each `drop_every` are left out. */
static size_t spoil(struct way *w, uint8_t *p, size_t n)
{
	size_t kept = 0;

	if (swap_every && w->back && n >= 2 * (size_t)SWAP_BYTES &&
	    w->passed_bytes / swap_every != (w->passed_bytes + n) / swap_every) {
		uint8_t run[SWAP_BYTES];

		memcpy(run, p, SWAP_BYTES);
		memmove(p, p + SWAP_BYTES, SWAP_BYTES);
		memcpy(p + SWAP_BYTES, run, SWAP_BYTES);
	}
	for (size_t i = 0; i < n; i++)
		if (!drop_every || (w->passed_bytes + i + 1) % drop_every != 0)
			p[kept++] = p[i];
	w->passed_bytes += n;
	return kept;
}

static void way_read(struct way *w, uint64_t now_ns)
{
	struct piece *piece = calloc(1, sizeof(*piece));
	ssize_t n;

	if (!piece)
		die("memory");
	n = read(w->from, piece->bytes, sizeof(piece->bytes));
	if (n <= 0) {
		w->ended = n == 0 || (errno != EAGAIN && errno != EINTR);
		free(piece);
		return;
	}
	if (after_bytes) {
		after_bytes -= MIN(after_bytes, (uint64_t)n);
		cutting = cutting || after_bytes == 0;
	}
	piece->n = spoil(w, piece->bytes, (size_t)n);
	w->free_ns = MAX(w->free_ns, now_ns);
	if (rate_bytes)
		w->free_ns += (uint64_t)n * 1000000000 / rate_bytes;
	piece->due_ns = w->free_ns + rtt_ms * 500000;
	w->queued_bytes += piece->n;
	*w->tail = piece;
	w->tail = &piece->next;
}

static bool way_due(const struct way *w, uint64_t now_ns)
{
	return w->head && !stopped && w->head->due_ns <= now_ns;
}

static void way_drop(struct way *w)
{
	struct piece *piece = w->head;

	w->head = piece->next;
	if (!w->head)
		w->tail = &w->head;
	w->queued_bytes -= piece->n;
	free(piece);
}

/* False: nobody takes it any more. */
static bool way_write(struct way *w)
{
	struct piece *piece = w->head;
	ssize_t n = write(w->to, piece->bytes + piece->done, piece->n - piece->done);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	piece->done += (size_t)n;
	if (piece->done == piece->n)
		way_drop(w);
	return true;
}

/* ---- lines ---- */

static void line_open(int out, int in, int far_out, int far_in)
{
	const int fds[] = {out, in, far_out, far_in};

	for (size_t i = 0; i < LINES_MAX; i++) {
		if (lines[i].open)
			continue;
		for (size_t k = 0; k < ARRAY_SIZE(fds); k++)
			(void)fcntl(fds[k], F_SETFL, fcntl(fds[k], F_GETFL) | O_NONBLOCK);
		way_init(&lines[i].way[0], in, far_out);
		way_init(&lines[i].way[1], far_in, out);
		lines[i].way[1].back = true;
		lines[i].open = true;
		return;
	}
	for (size_t k = 0; k < ARRAY_SIZE(fds); k++)
		(void)close(fds[k]);
}

static void line_close(struct line *l, bool reset)
{
	struct linger now = {.l_onoff = 1};

	for (size_t i = 0; i < 2; i++) {
		while (l->way[i].head)
			way_drop(&l->way[i]);
		if (reset)
			(void)setsockopt(l->way[i].from, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		(void)close(l->way[i].from);
		if (l->way[i].to >= 0)
			(void)close(l->way[i].to);
	}
	(void)printf("bytes %llu %llu\n", (unsigned long long)l->way[0].passed_bytes,
		     (unsigned long long)l->way[1].passed_bytes);
	(void)fflush(stdout);
	l->open = false;
}

static void line_run(struct line *l, uint64_t now_ns)
{
	for (size_t i = 0; i < 2; i++) {
		struct way *w = &l->way[i];
		struct pollfd p[2] = {{way_has_room(w) && !stopped ? w->from : -1, POLLIN, 0},
				      {way_due(w, now_ns) ? w->to : -1, POLLOUT, 0}};

		(void)poll(p, 2, 0);
		if (p[0].revents)
			way_read(w, now_ns);
		if (p[1].revents && way_due(w, now_ns) && !way_write(w)) {
			line_close(l, false);
			return;
		}
	}
	/* All of a way has arrived: its end does, too. A command's end is the end of all. */
	for (size_t i = 0; i < 2; i++) {
		struct way *w = &l->way[i];

		if (!w->ended || w->head || w->to < 0)
			continue;
		if (!child)
			(void)shutdown(w->to, SHUT_WR);
		(void)close(w->to);
		w->to = -1;
	}
	if (l->way[1].to < 0 && (child || l->way[0].to < 0))
		line_close(l, false);
}

/* Until something can be done; a due time is waited for. */
static void wait_for_work(uint64_t now_ns)
{
	struct pollfd p[4 * LINES_MAX + 2];
	uint64_t next_ns = now_ns + 1000000000;
	nfds_t n = 0;

	p[n++] = (struct pollfd){control_fd, POLLIN, 0};
	p[n++] = (struct pollfd){listen_fd, POLLIN, 0};
	for (size_t i = 0; i < 2 * LINES_MAX; i++) {
		const struct way *w = &lines[i / 2].way[i % 2];

		if (!lines[i / 2].open || stopped)
			continue;
		if (way_has_room(w))
			p[n++] = (struct pollfd){w->from, POLLIN, 0};
		if (way_due(w, now_ns))
			p[n++] = (struct pollfd){w->to, POLLOUT, 0};
		else if (w->head)
			next_ns = MIN(next_ns, w->head->due_ns);
	}
	(void)poll(p, n, (int)((next_ns - MIN(now_ns, next_ns)) / 1000000) + 1);
}

/* ---- ends ---- */

static int tcp(uint16_t port, bool listens)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0)
		die("socket");
	if (listens ? bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(fd, 64) < 0
		    : connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
		(void)close(fd);
		return -1;
	}
	return fd;
}

static void accept_one(uint16_t port)
{
	int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), far;

	if (fd < 0)
		return;
	far = refusing ? -1 : tcp(port, false);
	if (far < 0) {
		(void)close(fd);
		return;
	}
	line_open(fd, fcntl(fd, F_DUPFD_CLOEXEC, 0), far, fcntl(far, F_DUPFD_CLOEXEC, 0));
}

static void start_listening(void)
{
	struct sockaddr_in sa;
	socklen_t n = sizeof(sa);

	listen_fd = tcp(0, true);
	if (listen_fd < 0 || getsockname(listen_fd, (struct sockaddr *)&sa, &n) < 0)
		die("listen");
	(void)fcntl(listen_fd, F_SETFL, O_NONBLOCK);
	(void)printf("port %u\n", ntohs(sa.sin_port));
	(void)fflush(stdout);
}

static void start_command(char **argv)
{
	int to[2], from[2];

	if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0 || (child = fork()) < 0)
		die("pipe");
	if (child == 0) {
		(void)signal(SIGPIPE, SIG_DFL);
		if (dup2(to[0], 0) < 0 || dup2(from[1], 1) < 0)
			_exit(127);
		(void)execvp(argv[0], argv);
		_exit(127);
	}
	(void)close(to[0]);
	(void)close(from[1]);
	line_open(fcntl(1, F_DUPFD_CLOEXEC, 3), fcntl(0, F_DUPFD_CLOEXEC, 3), to[1], from[0]);
	/* Ours are the line's alone. */
	(void)dup2(2, 1);
	(void)close(0);
}

/* The command's, once its streams have ended. */
static int child_status(bool killed)
{
	int status;

	if (killed)
		(void)kill(child, SIGKILL);
	if (waitpid(child, &status, 0) < 0)
		return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
	uint64_t port = 0;
	int i;

	(void)signal(SIGPIPE, SIG_IGN);
	for (i = 1; i < argc && set(argv[i]); i++)
		;
	if (i < argc - 1 && strcmp(argv[i], "--") == 0) {
		start_command(argv + i + 1);
	} else if (i == argc - 1 && text_parse_u64(argv[i], 65535, &port) == 0) {
		start_listening();
	} else {
		(void)fprintf(stderr, "usage: line [SETTING...] PORT | -- CMD ARG...\n");
		return 2;
	}
	for (;;) {
		uint64_t now_ns = clock_mono_ns();
		bool cut;

		if (control_fd >= 0)
			read_control();
		cut = cutting;
		cutting = false;
		if (listen_fd >= 0)
			accept_one((uint16_t)port);
		for (size_t k = 0; k < LINES_MAX; k++) {
			if (lines[k].open && cut)
				line_close(&lines[k], true);
			else if (lines[k].open)
				line_run(&lines[k], now_ns);
		}
		if (child && !lines[0].open)
			return child_status(cut);
		wait_for_work(clock_mono_ns());
	}
}
