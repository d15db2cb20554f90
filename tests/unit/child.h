/*
 * child.h - runs a function in a child process, for what kills, changes or
 * limits a process.
 *
 *	assert_int_equal(child_run(fn, arg), 0);
 *
 * The function must not use cmocka's assertions: its result is the exit status.
 */
#ifndef TESTS_UNIT_CHILD_H
#define TESTS_UNIT_CHILD_H

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_SKIP = 77 };

typedef int (*child_fn)(void *arg);

static inline pid_t child_start(child_fn fn, void *arg)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(fn(arg));
	if (pid < 0)
		abort();
	return pid;
}

/* The exit status (0 to 255), or -SIGNAL. */
static inline int child_wait(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		abort();
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static inline int child_run(child_fn fn, void *arg)
{
	return child_wait(child_start(fn, arg));
}

#endif
