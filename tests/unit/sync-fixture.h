/*
 * sync-fixture.h - a root, a private directory and a brain for each test of the
 * sync half, and a shell to change things below the root.
 */
#ifndef TESTS_UNIT_SYNC_FIXTURE_H
#define TESTS_UNIT_SYNC_FIXTURE_H

#include "tests/unit/sync-brain.h"

#include <signal.h>
#include <sys/wait.h>

#include "tests/unit/scratch.h"

static struct brain b;
static char root[PATH_MAX + 16];
static int root_fd = -1, dir_fd = -1;

static inline int setup(void **state)
{
	if (scratch_setup(state) < 0 || mkdirat(scratch, "root", 0755) < 0 ||
	    mkdirat(scratch, "private", 0700) < 0)
		return -1;
	(void)snprintf(root, sizeof(root), "%s/root", scratch_path);
	root_fd = openat(scratch, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir_fd = openat(scratch, "private", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return 0;
}

static inline int teardown(void **state)
{
	if (the_brain)
		brain_stop(&b);
	(void)close(root_fd);
	(void)close(dir_fd);
	return scratch_teardown(state);
}

/* A command in the root, while nothing else runs in this process's loop. */
static inline pid_t sh_start(const char *command)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	if (fchdir(root_fd) < 0)
		_exit(99);
	execl("/bin/bash", "bash", "-euc", command, (char *)NULL);
	_exit(98);
}

static inline void sh_end(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		fail_msg("the command ended with status %d", status);
}

static inline void sh(const char *command)
{
	sh_end(sh_start(command));
}

/* The same while the sync half runs. */
static inline void sh_live(const char *command)
{
	pid_t pid = sh_start(command);
	siginfo_t info;

	do {
		info.si_pid = 0;
		brain_turn(&b);
		assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
	} while (info.si_pid == 0);
	sh_end(pid);
}

/* Everything that has happened is sent, and the two trees are equal. */
static inline unsigned check(void)
{
	brain_sync(&b);
	return brain_compare(&b, root);
}

static inline void reset_counts(void)
{
	b.puts = b.contents = b.links = b.unlinks = b.moves = b.changes = 0;
	b.bytes = b.inline_bytes = 0;
}

#endif
