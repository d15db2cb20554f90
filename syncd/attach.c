#include "syncd/attach.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "syncd/daemon.h"

enum {
	DEADLINE_MS = 10000,
	ANSWER_MS = 5000,
	STOP_DEADLINE_MS = 15000,
	RETRY_MS = 10,
	START_AGAIN_MS = 1000,
	RELAY_BYTES = 128 << 10,
};

static void sleep_ms(unsigned ms)
{
	(void)poll(NULL, 0, (int)ms);
}

/* ---- starting the daemon ---- */

static void null_or_log(int dir)
{
	int null, log;

	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0) /* a bare root: any descriptor will do, as long as 0 to 2 are taken */
		null = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	log = openat(dir, "log", O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
	(void)dup2(null, STDIN_FILENO);
	(void)dup2(null, STDOUT_FILENO);
	(void)dup2(log >= 0 ? log : null, STDERR_FILENO);
}

_Noreturn static void daemon_child(const struct place *p, int dir)
{
	(void)setsid();
	if (fork() != 0)
		_exit(0);
	null_or_log(dir);
	if (chdir("/") < 0)
		_exit(1);
	(void)close_range(3, ~0u, 0);
	daemon_exec(p);
}

static int daemon_start(const struct place *p, int dir)
{
	pid_t pid;
	int status;

	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		daemon_child(p, dir);
	if (TEMP_FAILURE_RETRY(waitpid(pid, &status, 0)) < 0)
		return -errno;
	return 0;
}

/* ---- talking to it ---- */

static bool can_pass(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
}

static int send_greeting(int fd, uint32_t kind, const struct self *self, bool pass)
{
	struct greeting g = {.magic = GREETING_MAGIC, .kind = kind, .self = *self};
	int fds[2] = {STDIN_FILENO, STDOUT_FILENO};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(fds))];
	} control = {0};
	struct iovec iov = {&g, sizeof(g)};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c;

	if (pass) {
		mh.msg_control = &control;
		mh.msg_controllen = sizeof(control.bytes);
		c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(fds));
		memcpy(CMSG_DATA(c), fds, sizeof(fds));
	}
	return TEMP_FAILURE_RETRY(sendmsg(fd, &mh, MSG_NOSIGNAL)) == (ssize_t)sizeof(g) ? 0
											: -EPIPE;
}

/* One byte, or 0 when the daemon hung up or is silent: it may be stopped. */
static int read_answer(int fd, unsigned patience_ms)
{
	struct pollfd p = {fd, POLLIN, 0};
	uint8_t c;

	if (TEMP_FAILURE_RETRY(poll(&p, 1, (int)patience_ms)) <= 0)
		return 0;
	return io_read_full(fd, &c, 1, "attach.answer") == 1 ? c : 0;
}

static int greet(int fd, const struct self *self, bool pass)
{
	uint8_t hash[SHA256_BYTES];
	int r;

	r = send_greeting(fd, GREET_ATTACH, self, pass);
	if (r < 0)
		return 0;
	r = read_answer(fd, ANSWER_MS);
	if (r != ANSWER_HASH)
		return r;
	if (self_sha256(hash) < 0 || io_write_full(fd, hash, sizeof(hash), "attach.hash") < 0)
		return 0;
	return read_answer(fd, ANSWER_MS);
}

/* ---- moving bytes ---- */

struct direction {
	int from, to;
	size_t start, end;
	uint8_t bytes[RELAY_BYTES];
};

static int direction_step(struct direction *d, short from_events, short to_events)
{
	ssize_t n;

	if (d->start == d->end && from_events != 0) {
		n = io_read_some(d->from, d->bytes, sizeof(d->bytes), "attach.read");
		if (n == 0)
			return -EPIPE;
		if (n < 0)
			return n == -EAGAIN ? 0 : (int)n;
		d->start = 0;
		d->end = (size_t)n;
		to_events = POLLOUT;
	}
	if (d->start < d->end && to_events != 0) {
		n = io_write_some(d->to, d->bytes + d->start, d->end - d->start, "attach.write");
		if (n < 0)
			return n == -EAGAIN ? 0 : (int)n;
		d->start += (size_t)n;
	}
	return 0;
}

static int relay(int fd)
{
	static struct direction in, out;
	struct pollfd p[4];
	int r = 0;

	in = (struct direction){.from = STDIN_FILENO, .to = fd};
	out = (struct direction){.from = fd, .to = STDOUT_FILENO};
	/* Writing to a pipe blocks this process only when the other side is slow, and then
	 * there is nothing else to move that way; the socket must not block, though. */
	(void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	while (r == 0) {
		p[0] = (struct pollfd){in.start == in.end ? in.from : -1, POLLIN, 0};
		p[1] = (struct pollfd){in.start < in.end ? in.to : -1, POLLOUT, 0};
		p[2] = (struct pollfd){out.start == out.end ? out.from : -1, POLLIN, 0};
		p[3] = (struct pollfd){out.start < out.end ? out.to : -1, POLLOUT, 0};
		if (TEMP_FAILURE_RETRY(poll(p, 4, -1)) < 0)
			return -errno;
		r = direction_step(&in, p[0].revents, p[1].revents);
		if (r == 0)
			r = direction_step(&out, p[2].revents, p[3].revents);
	}
	return 0;
}

/* The daemon has our descriptors; we live as long as it uses them. */
static int stay(int fd)
{
	uint8_t c;

	while (io_read_some(fd, &c, 1, "attach.stay") > 0)
		;
	return 0;
}

/* ---- the commands ---- */

int attach_run(const struct place *p, enum attach_start start)
{
	cleanup_close int dir = -1;
	uint64_t end = clock_mono_ms() + DEADLINE_MS, started = 0;
	bool pass = can_pass(STDIN_FILENO) && can_pass(STDOUT_FILENO);
	struct self self;
	int r;

	(void)signal(SIGPIPE, SIG_IGN);
	r = place_open_dir(p, &dir);
	if (r < 0)
		return r;
	self_identify(&self);
	for (;; sleep_ms(RETRY_MS)) {
		cleanup_close int fd = -1;

		r = place_connect(dir, "s", &fd);
		if (r == 0) {
			switch (greet(fd, &self, pass)) {
			case ANSWER_RELAY: return relay(fd);
			case ANSWER_TAKEN: return stay(fd);
			default: break; /* it ends, or makes room for us */
			}
		} else if (r != -ENOENT && r != -ECONNREFUSED && r != -EAGAIN) {
			return r;
		} else if (start == ATTACH_RUNNING) {
			return r;
		} else if (start == ATTACH_MAY_START &&
			   clock_mono_ms() - started >= START_AGAIN_MS) {
			/* It may lose the race for the lock; then another one answers. */
			r = daemon_start(p, dir);
			if (r < 0)
				return r;
			started = clock_mono_ms();
		}
		if (clock_mono_ms() >= end)
			return -ETIMEDOUT;
	}
}

/* Somebody listens; what it is the next attach finds out. */
int attach_probe(const struct place *p)
{
	cleanup_close int dir = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;

	if (dir < 0)
		return -errno;
	return place_connect(dir, "s", &fd);
}

int attach_start(const struct place *p)
{
	cleanup_close int dir = -1;
	uint64_t end = clock_mono_ms() + DEADLINE_MS, started = 0;
	int r;

	r = place_open_dir(p, &dir);
	if (r < 0)
		return r;
	for (;; sleep_ms(RETRY_MS)) {
		cleanup_close int fd = -1;

		r = place_connect(dir, "s", &fd);
		if (r != -ENOENT && r != -ECONNREFUSED && r != -EAGAIN)
			return r;
		if (clock_mono_ms() >= end)
			return -ETIMEDOUT;
		if (clock_mono_ms() - started < START_AGAIN_MS)
			continue;
		r = daemon_start(p, dir);
		if (r < 0)
			return r;
		started = clock_mono_ms();
	}
}

static int ask_to_stop(int fd)
{
	struct self self = {0};
	int r;

	r = send_greeting(fd, GREET_STOP, &self, false);
	if (r < 0)
		return r;
	return read_answer(fd, STOP_DEADLINE_MS) == ANSWER_STOPPED ? 0 : -EPIPE;
}

int attach_stop(const struct place *p)
{
	cleanup_close int dir = -1;
	uint64_t end = clock_mono_ms() + STOP_DEADLINE_MS;
	int r;

	(void)signal(SIGPIPE, SIG_IGN);
	dir = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return errno == ENOENT ? 0 : -errno;
	/* Until the lock is free: then the daemon has ended, by us or by itself. */
	do {
		cleanup_close int fd = -1, lock = -1;

		if (place_connect(dir, "s", &fd) == 0)
			(void)ask_to_stop(fd);
		r = file_lock(dir, "lock", &lock);
		if (r != -EAGAIN)
			return r;
		sleep_ms(RETRY_MS);
	} while (clock_mono_ms() < end);
	return -ETIMEDOUT;
}
