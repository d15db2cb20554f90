/* Whole trees of processes get a signal, those that fork meanwhile, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"
#include "syncd/proc.h"

enum { ROUNDS = 10, FORKERS = 3, CHILDREN = 100, DEADLINE_MS = 60000 };

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_forks_meanwhile_is_stopped_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
