#include "syncd/daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <uv.h>

#include "base/file.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "base/util.h"
#include "syncd/dispatch.h"

enum {
	GUESTS_MAX = 32,
	GREETING_MS = 5000,
	LOG_BYTES_MAX = 1 << 20,
	LOG_CHECK_MS = 30000,
};

struct daemon {
	const struct place *place;
	int dir_fd, lock_fd, listen_fd;
	uv_loop_t loop;
	uv_poll_t listener;
	uv_signal_t sigterm, sigint;
	uv_timer_t log_check;
	struct self self;
	unsigned n_guests;
	struct guest *guests;
	struct guest *stopper; /* waits for ANSWER_STOPPED */

	struct dispatch *dispatch;
	struct sync *sync;
	struct jobs *jobs;
	struct apply *apply;
};

/* Somebody who has connected and not yet said all of what it wants. */
struct guest {
	struct daemon *daemon;
	struct guest *next;
	int fd;
	int passed[2];
	unsigned open_handles;
	bool greeted;
	size_t have;
	union {
		struct greeting greeting;
		uint8_t sha256[SHA256_BYTES];
		uint8_t bytes[sizeof(struct greeting)];
	};
	uv_poll_t poll;
	uv_timer_t patience;
};

/* ---- guests ---- */

static void on_guest_closed(uv_handle_t *h)
{
	struct guest *g = h->data;

	if (--g->open_handles > 0)
		return;
	if (g->fd >= 0)
		(void)close(g->fd);
	for (unsigned i = 0; i < 2; i++) {
		if (g->passed[i] >= 0)
			(void)close(g->passed[i]);
	}
	free(g);
}

static void guest_leave(struct guest *g)
{
	struct daemon *d = g->daemon;
	struct guest **p;

	if (uv_is_closing((uv_handle_t *)&g->poll))
		return;
	for (p = &d->guests; *p != g; p = &(*p)->next)
		;
	*p = g->next;
	d->n_guests--;
	if (d->stopper == g)
		d->stopper = NULL;
	uv_close((uv_handle_t *)&g->poll, on_guest_closed);
	uv_close((uv_handle_t *)&g->patience, on_guest_closed);
}

static void answer(struct guest *g, enum greeting_answer a)
{
	uint8_t c = (uint8_t)a;

	(void)io_write_some(g->fd, &c, 1, "daemon.answer");
}

/* The session gets copies: a descriptor must leave its poll handle before its number
 * may be polled again. */
static void guest_becomes_session(struct guest *g)
{
	int in, out, held = -1, r;
	bool passed = g->passed[0] >= 0;

	answer(g, passed ? ANSWER_TAKEN : ANSWER_RELAY);
	in = fcntl(passed ? g->passed[0] : g->fd, F_DUPFD_CLOEXEC, 3);
	out = fcntl(passed ? g->passed[1] : g->fd, F_DUPFD_CLOEXEC, 3);
	if (passed)
		held = fcntl(g->fd, F_DUPFD_CLOEXEC, 3);
	if (in < 0 || out < 0 || (passed && held < 0)) {
		r = -errno;
		if (in >= 0)
			(void)close(in);
		if (out >= 0)
			(void)close(out);
		if (held >= 0)
			(void)close(held);
	} else {
		r = session_attach(dispatch_session(g->daemon->dispatch), in, out, held);
	}
	if (r < 0)
		(void)log_warning_errno(r, "cannot attach");
	guest_leave(g);
}

static void on_all_stopped(void *userdata)
{
	struct daemon *d = userdata;

	if (d->stopper)
		answer(d->stopper, ANSWER_STOPPED);
	uv_stop(&d->loop);
}

static void guest_stops_us(struct guest *g)
{
	struct daemon *d = g->daemon;

	if (d->stopper) {
		guest_leave(g);
		return;
	}
	d->stopper = g;
	(void)uv_timer_stop(&g->patience);
	(void)uv_poll_stop(&g->poll);
	jobs_stop(d->jobs, on_all_stopped, d);
}

static void replace_us(struct guest *g)
{
	log_info("another build takes our place");
	answer(g, ANSWER_REPLACE);
	uv_stop(&g->daemon->loop);
}

static void greeting_read(struct guest *g)
{
	struct daemon *d = g->daemon;
	int fd;

	if (g->greeting.magic != GREETING_MAGIC) {
		guest_leave(g);
		return;
	}
	switch (g->greeting.kind) {
	case GREET_STOP: guest_stops_us(g); return;
	case GREET_ATTACH:
		if (memcmp(&g->greeting.self, &d->self, sizeof(d->self)) == 0) {
			guest_becomes_session(g);
			return;
		}
		g->greeted = true;
		g->have = 0;
		answer(g, ANSWER_HASH);
		return;
	case GREET_HOLDER:
		fd = fcntl(g->fd, F_DUPFD_CLOEXEC, 3);
		if (fd >= 0)
			jobs_adopt(d->jobs, fd);
		guest_leave(g);
		return;
	default: guest_leave(g);
	}
}

static void hash_read(struct guest *g)
{
	uint8_t ours[SHA256_BYTES];

	if (self_sha256(ours) == 0 && memcmp(ours, g->sha256, sizeof(ours)) != 0)
		replace_us(g);
	else
		guest_becomes_session(g);
}

/* Keeps the first two descriptors that come, closes any more. */
static void take_passed(struct guest *g, struct msghdr *mh)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c; c = CMSG_NXTHDR(mh, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		int fds[2];

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		memcpy(fds, CMSG_DATA(c), MIN(n, (size_t)2) * sizeof(int));
		for (size_t i = 0; i < MIN(n, (size_t)2); i++) {
			if (n == 2 && g->passed[i] < 0)
				g->passed[i] = fds[i];
			else
				(void)close(fds[i]);
		}
	}
}

static void on_guest_speaks(uv_poll_t *h, int status, int events)
{
	struct guest *g = h->data;
	size_t want = g->greeted ? sizeof(g->sha256) : sizeof(g->greeting);
	char control[CMSG_SPACE(2 * sizeof(int))];
	struct iovec iov = {g->bytes + g->have, want - g->have};
	struct msghdr mh = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n;

	n = status < 0 ? 0 : recvmsg(g->fd, &mh, MSG_CMSG_CLOEXEC);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		guest_leave(g);
		return;
	}
	take_passed(g, &mh);
	g->have += (size_t)n;
	if (g->have < want)
		return;
	if (g->greeted)
		hash_read(g);
	else
		greeting_read(g);
}

static void on_guest_silent(uv_timer_t *h)
{
	guest_leave(h->data);
}

static bool same_user(int fd)
{
	struct ucred cred;
	socklen_t n = sizeof(cred);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) == 0 &&
	       (cred.uid == 0 || cred.uid == geteuid());
}

static void on_connection(uv_poll_t *h, int status, int events)
{
	struct daemon *d = h->data;
	struct guest *g;
	int fd;

	fd = accept4(d->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return;
	g = d->n_guests < GUESTS_MAX && same_user(fd) ? calloc(1, sizeof(*g)) : NULL;
	if (!g) {
		(void)close(fd);
		return;
	}
	g->daemon = d;
	g->fd = fd;
	g->passed[0] = g->passed[1] = -1;
	g->open_handles = 2;
	g->next = d->guests;
	d->guests = g;
	d->n_guests++;
	(void)uv_poll_init(&d->loop, &g->poll, fd);
	(void)uv_timer_init(&d->loop, &g->patience);
	g->poll.data = g->patience.data = g;
	(void)uv_poll_start(&g->poll, UV_READABLE, on_guest_speaks);
	(void)uv_timer_start(&g->patience, on_guest_silent, GREETING_MS, 0);
}

/* ---- the daemon ---- */

static void on_signal(uv_signal_t *h, int signum)
{
	uv_stop(h->loop);
}

/* Standard error is DIR/log when an attach started us. */
static void on_log_check(uv_timer_t *h)
{
	struct stat st;

	if (fstat(STDERR_FILENO, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > LOG_BYTES_MAX &&
	    ftruncate(STDERR_FILENO, 0) == 0)
		log_info("the log was emptied at %d bytes", LOG_BYTES_MAX);
}

static int listen_begin(struct daemon *d)
{
	int r;

	/* We hold the lock, so a socket that is there is a dead daemon's. */
	r = io_unlinkat(d->dir_fd, "s", 0, "daemon.unlink");
	if (r < 0 && r != -ENOENT)
		return r;
	return place_listen(d->dir_fd, "s", &d->listen_fd);
}

static int parts_begin(struct daemon *d)
{
	struct session *session;
	int r;

	r = dispatch_new(&d->loop, d->place, d->dir_fd, &d->dispatch);
	if (r < 0)
		return r;
	session = dispatch_session(d->dispatch);
	r = sync_new(&d->loop, session, d->place->root, d->dir_fd, &d->sync);
	if (r < 0)
		return r;
	r = jobs_new(&d->loop, session, d->sync, d->place->root, d->dir_fd, &d->jobs);
	if (r < 0)
		return r;
	r = apply_new(&d->loop, session, d->sync, &d->apply);
	if (r < 0)
		return r;
	dispatch_set(d->dispatch, d->sync, d->jobs, d->apply);
	return 0;
}

static void handles_begin(struct daemon *d)
{
	(void)uv_poll_init(&d->loop, &d->listener, d->listen_fd);
	(void)uv_signal_init(&d->loop, &d->sigterm);
	(void)uv_signal_init(&d->loop, &d->sigint);
	(void)uv_timer_init(&d->loop, &d->log_check);
	d->listener.data = d->sigterm.data = d->sigint.data = d->log_check.data = d;
	(void)uv_signal_start(&d->sigterm, on_signal, SIGTERM);
	(void)uv_signal_start(&d->sigint, on_signal, SIGINT);
	(void)uv_timer_start(&d->log_check, on_log_check, LOG_CHECK_MS, LOG_CHECK_MS);
	(void)uv_poll_start(&d->listener, UV_READABLE, on_connection);
}

/* Each part has closed its handles; a few turns let them go. */
static void handles_end(struct daemon *d)
{
	uv_handle_t *ours[] = {(uv_handle_t *)&d->listener, (uv_handle_t *)&d->sigterm,
			       (uv_handle_t *)&d->sigint, (uv_handle_t *)&d->log_check};

	while (d->guests)
		guest_leave(d->guests);
	for (size_t i = 0; i < ARRAY_SIZE(ours); i++) {
		if (ours[i]->data)
			uv_close(ours[i], NULL);
	}
}

int daemon_run(const struct place *p)
{
	struct daemon d = {.place = p, .dir_fd = -1, .lock_fd = -1, .listen_fd = -1};
	int r;

	(void)signal(SIGPIPE, SIG_IGN);
	r = place_open_dir(p, &d.dir_fd);
	if (r < 0)
		return r;
	r = file_lock(d.dir_fd, "lock", &d.lock_fd);
	if (r < 0) {
		(void)close(d.dir_fd);
		return r == -EAGAIN ? -EBUSY : r;
	}
	self_identify(&d.self);
	r = listen_begin(&d);
	if (r == 0)
		r = uv_loop_init(&d.loop);
	if (r < 0)
		goto out;
	r = parts_begin(&d);
	if (r == 0) {
		handles_begin(&d);
		(void)uv_run(&d.loop, UV_RUN_DEFAULT);
	}
	dispatch_free(d.dispatch);
	apply_free(d.apply);
	jobs_free(d.jobs);
	sync_free(d.sync);
	handles_end(&d);
	for (unsigned i = 0; i < 8 && uv_loop_close(&d.loop) == UV_EBUSY; i++)
		(void)uv_run(&d.loop, UV_RUN_NOWAIT);
out:
	if (d.listen_fd >= 0)
		(void)close(d.listen_fd);
	(void)close(d.lock_fd);
	(void)close(d.dir_fd);
	return r;
}

_Noreturn void daemon_exec(const struct place *p)
{
	char env[2 * sizeof(p->env) + 1];
	char *argv[] = {(char *)"limb-syncd",
			(char *)"daemon",
			(char *)"--dir",
			(char *)p->dir,
			(char *)"--root",
			(char *)p->root,
			(char *)"--env",
			env,
			NULL};

	text_hex(env, p->env, sizeof(p->env));
	(void)execv(self_path(), argv);
	_exit(daemon_run(p) < 0 ? 1 : 0);
}
