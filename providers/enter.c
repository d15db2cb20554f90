#include "providers/enter.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/util.h"
#include "providers/provider.h"
#include "providers/sandbox.h"

enum {
	CAPABILITIES_MAX = 64,
	SAID_MAX = 64 * 1024, /* of what it writes to stderr, we pass on so much */
};

static bool is_kept(unsigned cap)
{
	if (geteuid() != 0)
		return false;
	for (size_t i = 0; i < sandbox_capabilities_count; i++)
		if (sandbox_capabilities[i] == cap)
			return true;
	return false;
}

/* Joining a user namespace gave us all capabilities over it; exec keeps of them
 * what the bounding set still has. */
static int drop_capabilities(void)
{
	for (unsigned cap = 0; cap < CAPABILITIES_MAX; cap++) {
		if (is_kept(cap) || prctl(PR_CAPBSET_READ, cap, 0, 0, 0) <= 0)
			continue;
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return -errno;
	}
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

/* All at once: by steps, a normal user may not enter those that belong to another
 * of bwrap's user namespaces than the innermost. */
static int join(const struct process *init)
{
	cleanup_close int fd = process_open(init);

	if (fd < 0)
		return fd;
	/* Until exec, our executable and descriptors are of the host: not for its eyes. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -errno;
	if (setns(fd, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
			      CLONE_NEWNET) < 0)
		return -errno;
	if (geteuid() == 0 &&
	    (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0))
		return -errno;
	return chdir("/") < 0 ? -errno : 0;
}

static _Noreturn void become(char **argv, char **env, int tell, int said)
{
	int r;

	/* Our stderr is limbd's log: from inside, /proc would open it anew, to read and to
	 * write. */
	if (dup2(said, STDERR_FILENO) < 0)
		_exit(127);
	(void)syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC);
	r = drop_capabilities();
	if (r >= 0) {
		(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		(void)execve(argv[0], argv, env);
		r = -errno;
	}
	(void)io_write_full(tell, &r, sizeof(r), "enter.tell");
	_exit(127);
}

/* What the child says, to our stderr, until it has ended: others may hold the pipe longer. */
static void pass_on(int said, pid_t pid)
{
	cleanup_close int child = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p[2] = {{.fd = said, .events = POLLIN}, {.fd = child, .events = POLLIN}};
	char text[4096];
	size_t total = 0;
	ssize_t n;

	while (TEMP_FAILURE_RETRY(poll(p, 2, -1)) > 0 && (p[0].revents || !p[1].revents)) {
		n = io_read_some(said, text, sizeof(text), "enter.said");
		if (n <= 0)
			break;
		n = (ssize_t)MIN((size_t)n, SAID_MAX - total);
		if (n > 0)
			(void)io_write_full(STDERR_FILENO, text, (size_t)n, "enter.say");
		total += (size_t)n;
	}
}

/* Who ends us ends the child, and we are there to bury it: left to the machine's first process,
 * which may be slow or not care, it would hold up the end of the whole sandbox. */
static volatile sig_atomic_t child_pid;

static void end_child(int sig)
{
	(void)sig;
	(void)kill((pid_t)child_pid, SIGKILL);
}

int enter_run(const struct process *init, char **argv, char **env)
{
	int p[2], said[2], r, failed = 0, wait_status;
	ssize_t n;
	pid_t pid;

	r = join(init);
	if (r < 0)
		return r;
	if (pipe2(p, O_CLOEXEC) < 0 || pipe2(said, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		become(argv, env, p[1], said[1]);
	child_pid = pid;
	(void)sigaction(SIGTERM, &(struct sigaction){.sa_handler = end_child}, NULL);
	(void)close(p[1]);
	(void)close(said[1]);
	n = io_read_full(p[0], &failed, sizeof(failed), "enter.told");
	(void)close(p[0]);
	if (n == sizeof(failed) && failed < 0)
		return failed;
	/* What it reads and writes must end when it does, not when we do. */
	(void)close(STDIN_FILENO);
	(void)close(STDOUT_FILENO);
	pass_on(said[0], pid);
	if (TEMP_FAILURE_RETRY(waitpid(pid, &wait_status, 0)) < 0)
		return -errno;
	return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}
