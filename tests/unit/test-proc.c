/* Whole trees and sessions of processes get a signal, those that fork meanwhile, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"
#include "syncd/proc.h"

enum { ROUNDS = 10, SESSIONS = 100, FORKERS = 3, CHILDREN = 100, DEADLINE_MS = 60000 };

/* Forks for as long as it may; what it forks sleeps, and is gone in the end whatever happens. */
static void fork_on(void)
{
	(void)alarm(DEADLINE_MS / 1000);
	for (unsigned i = 0; i < CHILDREN; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			(void)setsid();
			(void)alarm(DEADLINE_MS / 1000);
			for (;;)
				(void)pause();
		}
		(void)usleep(200);
	}
	for (;;)
		(void)pause();
}

/* What is below us and may still run. */
static unsigned running(void)
{
	cleanup_free struct proc *list = NULL;
	size_t n;
	unsigned count = 0;

	assert_int_equal(proc_list(&list, &n), 0);
	for (size_t i = 0; i < n; i++)
		if (!strchr("ZXTt", list[i].state) && proc_below(list, n, list[i].pid, getpid()))
			count++;
	return count;
}

static void what_forks_meanwhile_is_stopped_too(void **state)
{
	(void)state;
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t end = clock_mono_ms() + DEADLINE_MS;
		unsigned left;

		for (unsigned i = 0; i < FORKERS; i++) {
			pid_t pid = fork();

			assert_true(pid >= 0);
			if (pid == 0)
				fork_on();
		}
		(void)usleep(1000 * round);
		assert_true(proc_signal_tree(getpid(), SIGSTOP) > 0);
		/* The signal is sent; it takes a moment to be taken. */
		while ((left = running()) > 0 && clock_mono_ms() < end)
			(void)usleep(1000);
		assert_true(proc_signal_tree(getpid(), SIGKILL) > 0);
		while (waitpid(-1, NULL, 0) > 0)
			;
		assert_int_equal(left, 0);
	}
}

/* A shell in a session of its own, returned as soon as exec has closed its descriptors: it has not
 * got its environment yet, most of the time, and is going to fork. */
static pid_t start_session(const char *mark)
{
	char *argv[] = {(char *)"sh", (char *)"-c", (char *)"sleep 60; true", NULL};
	char *envp[] = {(char *)"PATH=/usr/bin:/bin", (char *)mark, NULL};
	pid_t pid;
	int p[2];
	char c;

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	pid = vfork();
	if (pid == 0) {
		(void)setsid();
		(void)execve("/bin/sh", argv, envp);
		_exit(127);
	}
	assert_true(pid > 0);
	(void)close(p[1]);
	assert_int_equal(read(p[0], &c, 1), 0);
	(void)close(p[0]);
	return pid;
}

static unsigned running_in(pid_t session)
{
	cleanup_free struct proc *list = NULL;
	size_t n;
	unsigned count = 0;

	assert_int_equal(proc_list(&list, &n), 0);
	for (size_t i = 0; i < n; i++)
		count += list[i].session == session && !strchr("ZX", list[i].state);
	return count;
}

static void kill_session(pid_t session, const char *value)
{
	uint64_t end = clock_mono_ms() + DEADLINE_MS;
	int r;

	while ((r = proc_kill_session(session, "MARK", value)) == -EAGAIN && clock_mono_ms() < end)
		(void)usleep(1000);
	assert_int_equal(r, 0);
}

static void a_session_is_killed_that_has_just_begun(void **state)
{
	(void)state;
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	for (unsigned i = 0; i < SESSIONS; i++) {
		pid_t pid = start_session("MARK=ours");

		(void)usleep(30 * i);
		kill_session(pid, "ours");
		assert_int_equal(running_in(pid), 0);
		while (waitpid(-1, NULL, 0) > 0)
			;
	}
}

static void the_session_of_another_is_left(void **state)
{
	pid_t pid = start_session("MARK=theirs");

	(void)state;
	kill_session(pid, "ours");
	assert_true(running_in(pid) > 0);
	kill_session(pid, "theirs");
	assert_int_equal(running_in(pid), 0);
	while (waitpid(-1, NULL, 0) > 0)
		;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_forks_meanwhile_is_stopped_too),
		cmocka_unit_test(a_session_is_killed_that_has_just_begun),
		cmocka_unit_test(the_session_of_another_is_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
