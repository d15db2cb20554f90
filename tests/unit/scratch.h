/*
 * scratch.h - a directory of its own for each test, gone afterwards.
 *
 *	cmocka_unit_test_setup_teardown(fn, scratch_setup, scratch_teardown)
 *
 * In the test, `scratch` is its descriptor and `scratch_path` its path.
 */
#ifndef TESTS_UNIT_SCRATCH_H
#define TESTS_UNIT_SCRATCH_H

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static int scratch = -1;
static char scratch_path[PATH_MAX];

static inline int scratch_setup(void **state)
{
	const char *tmp = getenv("TMPDIR");

	(void)state;
	(void)snprintf(scratch_path, sizeof(scratch_path), "%s/limb-test-XXXXXX",
		       tmp ? tmp : "/tmp");
	if (!mkdtemp(scratch_path))
		return -1;
	scratch = open(scratch_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return scratch < 0 ? -1 : 0;
}

static inline int scratch_teardown(void **state)
{
	(void)state;
	(void)close(scratch);
	return file_remove_tree(AT_FDCWD, scratch_path);
}

/* A file with the text as its content, to begin with. */
static inline void scratch_write(int dir, const char *name, const char *text)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || dprintf(fd, "%s", text) < 0 || close(fd) < 0) {
		perror(name);
		abort();
	}
}

/* Compares the whole content of a file with a text; -1 if there is no file. */
static inline int scratch_is(int dir, const char *name, const char *text)
{
	char got[4096] = "";
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = read(fd, got, sizeof(got) - 1);
	(void)close(fd);
	return n == (ssize_t)strlen(text) && memcmp(got, text, (size_t)n) == 0;
}

#endif
