#include "fs/control.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "brain/view-protocol.h"
#include "fs/await.h"
#include "fs/classes.h"
#include "fs/keeper.h"
#include "fs/past.h"

#define SOCKET_NAME "fs.sock"

enum { WROTE_MS = 30 }; /* limbd gathers for twice as long */

struct control {
	int env_fd, listener;
	pthread_mutex_t lock; /* of conn: the follower sends on it */
	int conn;	      /* -1: limbd is not there */
	uint8_t in[sizeof(struct view_frame)];
	size_t in_n;
	uint64_t over_at;
};

/* By way of the directory's descriptor, so that the length of the path does not matter. */
static int listen_at(int env_fd)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	cleanup_close int fd = -1;

	if (unlinkat(env_fd, SOCKET_NAME, 0) < 0 && errno != ENOENT)
		return -errno;
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/" SOCKET_NAME, env_fd);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		return -errno;
	if (fchmodat(env_fd, SOCKET_NAME, 0600, 0) < 0 || listen(fd, 8) < 0)
		return -errno;
	return take_fd(&fd);
}

int control_open(int env_fd, struct control **ret)
{
	struct control *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->env_fd = env_fd;
	c->conn = -1;
	c->listener = listen_at(env_fd);
	if (c->listener < 0) {
		r = c->listener;
		free(c);
		return r;
	}
	(void)pthread_mutex_init(&c->lock, NULL);
	*ret = c;
	return 0;
}

static void take_connection(struct control *c, int conn)
{
	(void)pthread_mutex_lock(&c->lock);
	if (c->conn >= 0)
		(void)close(c->conn);
	c->conn = conn;
	c->in_n = 0;
	(void)pthread_mutex_unlock(&c->lock);
}

void control_stop(struct control *c)
{
	if (!c || c->listener < 0)
		return;
	(void)unlinkat(c->env_fd, SOCKET_NAME, 0);
	(void)close(c->listener);
	c->listener = -1;
	take_connection(c, -1);
}

void control_free(struct control *c)
{
	if (!c)
		return;
	control_stop(c);
	(void)pthread_mutex_destroy(&c->lock);
	free(c);
}

static void say(struct control *c, uint32_t kind, uint32_t arg, uint64_t seq)
{
	struct view_frame f = {.kind = kind, .arg = arg, .seq = seq};

	(void)pthread_mutex_lock(&c->lock);
	/* A limbd that does not read is told again by the next one. */
	if (c->conn >= 0)
		(void)send(c->conn, &f, sizeof(f), MSG_NOSIGNAL | MSG_DONTWAIT);
	(void)pthread_mutex_unlock(&c->lock);
}

void control_seen(uint64_t seq, void *control)
{
	say(control, VIEW_SEEN, 0, seq);
}

void control_drained(uint64_t token, void *control)
{
	say(control, VIEW_DRAINED, 0, token);
}

void control_waits(uint64_t last, void *control)
{
	say(control, VIEW_WAITS, 0, last);
}

void control_told(uint64_t first, uint64_t last, void *control)
{
	say(control, VIEW_TOLD, (uint32_t)MIN(last - first + 1, (uint64_t)UINT32_MAX), last);
}

/* ---- the main thread ---- */

static void set_daemon(struct fs *fs, bool here)
{
	struct status *s = &fs->status;

	if (atomic_exchange(&s->daemon, here) && !here && !atomic_load(&s->away))
		atomic_store(&s->since_ms, clock_mono_ms());
	/* What it would have said of what it has is not said again by the next one. */
	if (!here && fs->await)
		await_lost(fs->await);
}

static void set_away(struct fs *fs, bool away)
{
	struct status *s = &fs->status;

	if (!atomic_exchange(&s->away, away) && away)
		atomic_store(&s->since_ms, clock_mono_ms());
}

/* Numbers beyond the log's are those of an older one. */
static void set_over(struct fs *fs, uint64_t number)
{
	bool ours;

	if (!fs->await)
		return;
	overlay_read_lock(fs->overlay);
	ours = number <= intent_last(fs->overlay->log);
	overlay_unlock(fs->overlay);
	if (ours)
		await_over(fs->await, number);
}

static void load_classes(const struct control *c, struct fs *fs)
{
	int r = fs->classes ? classes_load(fs->classes, c->env_fd) : 0;

	if (r < 0)
		(void)log_line_errno(LOG_LEVEL_WARNING, r,
				     "cannot read the classes of the view; they are as before");
}

static void accept_one(struct control *c, struct fs *fs)
{
	int conn = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct ucred cred;
	socklen_t n = sizeof(cred);

	if (conn < 0)
		return;
	if (getsockopt(conn, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0 || cred.uid != geteuid()) {
		(void)close(conn);
		return;
	}
	/* Another limbd: of the one before nothing more is heard. */
	set_daemon(fs, false);
	take_connection(c, conn);
	set_daemon(fs, true);
}

/* 1: QUIT */
static int take_frame(struct control *c, const struct view_frame *m, struct fs *fs,
		      struct follow *f)
{
	switch (m->kind) {
	case VIEW_PUBLISH:
		if (f)
			follow_publish(f, m->seq);
		return 0;
	case VIEW_STALE: set_away(fs, m->seq != 0); return 0;
	case VIEW_MERGED: contents_close_removed(fs->contents); return 0;
	case VIEW_OVER_AT: c->over_at = m->seq; return 0;
	case VIEW_REFUSED:
		if (fs->await)
			await_refused(fs->await, m->seq, (int)m->arg);
		return 0;
	case VIEW_CLASSES: load_classes(c, fs); return 0;
	case VIEW_OVER:
		set_over(fs, m->seq);
		if (f)
			follow_over(f, m->seq, c->over_at);
		return 0;
	case VIEW_DRAIN:
		if (fs->keeper)
			keeper_drain(fs->keeper, m->seq);
		return 0;
	case VIEW_QUIT: return 1;
	default: return 0;
	}
}

static int read_frames(struct control *c, struct fs *fs, struct follow *f)
{
	struct view_frame m;
	ssize_t n;

	for (;;) {
		n = io_read_some(c->conn, c->in + c->in_n, sizeof(c->in) - c->in_n, "control.read");
		if (n == -EAGAIN)
			return 0;
		if (n <= 0) {
			take_connection(c, -1);
			set_daemon(fs, false);
			return 0;
		}
		c->in_n += (size_t)n;
		if (c->in_n < sizeof(m))
			continue;
		memcpy(&m, c->in, sizeof(m));
		c->in_n = 0;
		if (take_frame(c, &m, fs, f))
			return 1;
	}
}

void control_run(struct control *c, struct fs *fs, struct follow *f, int wake_fd)
{
	int wrote = fs->overlay ? intent_wake_fd(fs->overlay->log) : -1;
	uint64_t rest_ms = 0; /* until then limbd knows */
	eventfd_t count;

	for (;;) {
		uint64_t now_ms = clock_mono_ms();
		bool rests = rest_ms > now_ms;
		int timeout_ms = fs->past ? past_tick(fs->past)
				 : rests  ? (int)(rest_ms - now_ms)
					  : -1;
		struct pollfd fds[5] = {
			{.fd = wake_fd, .events = POLLIN},
			{.fd = c ? c->conn : -1, .events = POLLIN},
			{.fd = c ? c->listener : -1, .events = POLLIN},
			{.fd = fs->past ? past_fd(fs->past) : -1, .events = POLLIN},
			{.fd = rests ? -1 : wrote, .events = POLLIN},
		};

		if (poll(fds, ARRAY_SIZE(fds), timeout_ms) < 0)
			continue;
		if (fds[0].revents || (fds[1].revents && read_frames(c, fs, f)))
			return;
		if (fds[2].revents)
			accept_one(c, fs);
		/* Whoever comes later looks by itself. */
		if (fds[4].revents && eventfd_read(wrote, &count) == 0 && c) {
			say(c, VIEW_WROTE, 0, 0);
			rest_ms = clock_mono_ms() + WROTE_MS;
		}
	}
}
