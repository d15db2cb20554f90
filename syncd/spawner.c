#include "syncd/spawner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/log.h"
#include "base/sha256.h"
#include "base/util.h"
#include "syncd/holder.h"
#include "syncd/place.h"
#include "syncd/proc.h"

enum { SOCKET_FD = 3, FDS = 2, SWEEP_MS = 20 };

extern char **environ;

/* ---- the daemon's side ---- */

int spawner_start(int *ret_fd, pid_t *ret_pid)
{
	char *argv[] = {(char *)"limb-syncd", (char *)"spawner", NULL};
	cleanup_close int ours = -1, theirs = -1;
	posix_spawn_file_actions_t actions;
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	ours = pair[0];
	/* dup2 of a descriptor onto itself would leave it to be closed by exec. */
	theirs = fcntl(pair[1], F_DUPFD_CLOEXEC, SOCKET_FD + 1);
	(void)close(pair[1]);
	if (theirs < 0)
		return -errno;
	(void)posix_spawn_file_actions_init(&actions);
	r = posix_spawn_file_actions_adddup2(&actions, theirs, SOCKET_FD);
	if (r == 0)
		r = posix_spawn_file_actions_addclosefrom_np(&actions, SOCKET_FD + 1);
	if (r == 0)
		r = posix_spawn(ret_pid, self_path(), &actions, NULL, argv, environ);
	(void)posix_spawn_file_actions_destroy(&actions);
	if (r != 0)
		return -r;
	*ret_fd = take_fd(&ours);
	return 0;
}

int spawner_ask(int fd, int dir, int link)
{
	int fds[FDS] = {dir, link};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(fds))];
	} control = {0};
	char c = 'h';
	struct iovec iov = {&c, 1};
	struct msghdr mh = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control.bytes),
	};
	struct cmsghdr *cm = CMSG_FIRSTHDR(&mh);

	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(cm), fds, sizeof(fds));
	return TEMP_FAILURE_RETRY(sendmsg(fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT)) < 0 ? -errno : 0;
}

/* ---- the spawner ---- */

struct spawner {
	int fd, sigfd;
	pid_t *holders;
	size_t n, cap;
	bool sweep; /* a holder was killed: what it left is ours now */
};

/* The count of descriptors, 0 at the end of the daemon, -EAGAIN. */
static int receive(int fd, int fds[FDS])
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(FDS * sizeof(int))];
	} control;
	char c;
	struct iovec iov = {&c, 1};
	struct msghdr mh = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control.bytes),
	};
	struct cmsghdr *cm;
	size_t n;

	if (TEMP_FAILURE_RETRY(recvmsg(fd, &mh, MSG_CMSG_CLOEXEC)) <= 0)
		return 0;
	cm = CMSG_FIRSTHDR(&mh);
	if (!cm || cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
		return -EAGAIN;
	n = (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	memcpy(fds, CMSG_DATA(cm), MIN(n, (size_t)FDS) * sizeof(int));
	return (int)n;
}

static int holder_fork(struct spawner *s, int dir, int link)
{
	pid_t pid;

	if (s->n == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 16;
		pid_t *more = realloc(s->holders, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		s->holders = more;
		s->cap = cap;
	}
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		/* Else the daemon would not see that the spawner is gone. */
		(void)close(s->fd);
		(void)close(s->sigfd);
		_exit(holder_main(dir, link));
	}
	s->holders[s->n++] = pid;
	return 0;
}

static bool holder_remove(struct spawner *s, pid_t pid)
{
	for (size_t i = 0; i < s->n; i++) {
		if (s->holders[i] == pid) {
			s->holders[i] = s->holders[--s->n];
			return true;
		}
	}
	return false;
}

static bool is_holder(const struct spawner *s, pid_t pid)
{
	for (size_t i = 0; i < s->n; i++) {
		if (s->holders[i] == pid)
			return true;
	}
	return false;
}

static void reap(struct spawner *s)
{
	pid_t pid;
	int status;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (holder_remove(s, pid) && status != 0)
			s->sweep = true;
	}
}

/* Kills our children that are no holders, and what is below them; goes on until there
 * are none. */
static void sweep(struct spawner *s)
{
	cleanup_free struct proc *list = NULL;
	size_t n = 0, left = 0;

	if (proc_list(&list, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		if (list[i].ppid != getpid() || is_holder(s, list[i].pid))
			continue;
		left++;
		for (size_t k = 0; k < n; k++) {
			if (proc_below(list, n, list[k].pid, list[i].pid))
				(void)kill(list[k].pid, SIGKILL);
		}
		(void)kill(list[i].pid, SIGKILL);
	}
	s->sweep = left > 0;
}

static void on_request(struct spawner *s)
{
	int fds[FDS] = {-1, -1}, n, r;

	n = receive(s->fd, fds);
	if (n == 0) {
		(void)close(s->fd);
		s->fd = -1;
	} else if (n == FDS) {
		r = holder_fork(s, fds[0], fds[1]);
		if (r < 0) /* its socket closes: the daemon sees that it has none */
			(void)log_error_errno(r, "cannot fork a job's holder");
	}
	for (unsigned i = 0; i < FDS; i++) {
		if (fds[i] >= 0)
			(void)close(fds[i]);
	}
}

int spawner_main(int fd)
{
	struct spawner s = {.fd = fd};
	struct signalfd_siginfo info;
	uint8_t warm[SHA256_BYTES];
	sigset_t set;

	(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	(void)setsid();
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	(void)sigprocmask(SIG_SETMASK, &set, NULL);
	s.sigfd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s.sigfd < 0)
		return log_error_errno(-errno, "spawner");
	sha256("", 0, warm); /* the library's start-up, once for all holders */

	while (s.fd >= 0 || s.n > 0 || s.sweep) {
		struct pollfd p[] = {{s.fd, POLLIN, 0}, {s.sigfd, POLLIN, 0}};

		if (poll(p, 2, s.sweep ? SWEEP_MS : -1) < 0 && errno != EINTR)
			break;
		if (p[1].revents) {
			while (read(s.sigfd, &info, sizeof(info)) > 0)
				;
			reap(&s);
		}
		if (s.sweep)
			sweep(&s);
		if (p[0].revents)
			on_request(&s);
	}
	free(s.holders);
	(void)close(s.sigfd);
	return 0;
}
