/* The self-test: does the filter hold, asked from inside of it. */
#include "brain/ingest-confine.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/util.h"

enum { EXIT_POSSIBLE = 0, EXIT_DENIED = 10, EXIT_NOT_CONFINED = 11 };

static pid_t tester;

/* Raw calls: a library that gives up by itself would prove nothing. */

static long probe_open(void)
{
	return syscall(SYS_openat, AT_FDCWD, "/", O_RDONLY | O_CLOEXEC);
}

static long probe_socket(void)
{
	return syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0);
}

static long probe_fork(void)
{
	long pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);

	if (pid == 0)
		_exit(0);
	return pid;
}

static long probe_exec(void)
{
	static char name[] = "true";
	char *const argv[] = {name, NULL};

	return syscall(SYS_execve, "/bin/true", argv, NULL);
}

static long probe_kill(void)
{
	return syscall(SYS_kill, tester, 0);
}

static long probe_unlink(void)
{
	/* ENOTDIR is the answer of who may try. */
	if (syscall(SYS_unlinkat, AT_FDCWD, "/dev/null/nothing", 0) < 0 && errno == ENOTDIR)
		return 0;
	return -1;
}

static long probe_dup(void)
{
	return syscall(SYS_dup, 0);
}

static long map_page(int prot)
{
	return syscall(SYS_mmap, NULL, 4096, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static long probe_map_code(void)
{
	return map_page(PROT_READ | PROT_EXEC);
}

static long probe_allow_code(void)
{
	long page = map_page(PROT_READ | PROT_WRITE);

	return page == -1 ? -1 : syscall(SYS_mprotect, page, 4096, PROT_READ | PROT_EXEC);
}

static long probe_dumpable(void)
{
	return syscall(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0);
}

static long probe_memory(void)
{
	void *p = malloc(1 << 20);

	free(p);
	return p ? 0 : -1;
}

static const struct {
	const char *name;
	long (*call)(void);
	bool allowed;
} probes[] = {
	{"memory", probe_memory, true},
	{"open a file", probe_open, false},
	{"remove a file", probe_unlink, false},
	{"make a socket", probe_socket, false},
	{"fork", probe_fork, false},
	{"execute a program", probe_exec, false},
	{"kill", probe_kill, false},
	{"duplicate a descriptor", probe_dup, false},
	{"map memory for code", probe_map_code, false},
	{"turn memory into code", probe_allow_code, false},
	{"become dumpable", probe_dumpable, false},
};

/* In a process of its own: the filter may end it, and a probe may replace it. */
static bool possible(long (*call)(void), bool inside, enum confine_as as, uid_t uid,
		     bool *ret_failed)
{
	int status;
	pid_t pid;

	pid = fork();
	if (pid == 0) {
		if (inside && confine(as, uid, 3) < 0)
			_exit(EXIT_NOT_CONFINED);
		_exit(call() == -1 ? EXIT_DENIED : EXIT_POSSIBLE);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid) {
		*ret_failed = true;
		return false;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_POSSIBLE)
		return true;
	if (!(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_DENIED) &&
	    !(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS))
		*ret_failed = true;
	return false;
}

static int self_test(enum confine_as as, uid_t uid)
{
	int wrong = 0;

	for (size_t i = 0; i < ARRAY_SIZE(probes); i++) {
		bool failed = false, before, inside;

		before = possible(probes[i].call, false, as, uid, &failed);
		inside = possible(probes[i].call, true, as, uid, &failed);
		printf("%s%s: %s before, %s inside%s\n", probes[i].name,
		       as == CONFINE_CHECK ? " (in a check)" : "", before ? "possible" : "denied",
		       inside ? "possible" : "denied", failed ? ", the probe failed" : "");
		wrong += failed || !before || inside != probes[i].allowed;
	}
	return wrong;
}

int confine_self_test(uid_t uid)
{
	tester = getpid();
	return self_test(CONFINE_INGEST, uid) + self_test(CONFINE_CHECK, uid);
}
