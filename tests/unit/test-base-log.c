#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "tests/unit/scratch.h"

static int saved_stderr = -1;

/* stderr goes to the file "log" of the test's directory. */
static int log_setup(void **state)
{
	int fd;

	(void)unsetenv("LIMB_LOG");
	if (scratch_setup(state) < 0)
		return -1;
	fd = openat(scratch, "log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	saved_stderr = dup(STDERR_FILENO);
	return fd < 0 || dup2(fd, STDERR_FILENO) < 0 || close(fd) < 0 ? -1 : 0;
}

static int log_teardown(void **state)
{
	(void)dup2(saved_stderr, STDERR_FILENO);
	(void)close(saved_stderr);
	return scratch_teardown(state);
}

/* A line is prefix, text and, of an error, its reason; the error comes back
 * negative, and errno stays what it was. */
static void lines(void **state)
{
	log_init("limb");
	errno = EXDEV;
	log_error("cannot %s '%s'", "open", "x");
	assert_int_equal(log_error_errno(-ENOENT, "cannot open '%s'", "y"), -ENOENT);
	assert_int_equal(log_warning_errno(EACCES, "goes on"), -EACCES);
	assert_int_equal(log_oom(), -ENOMEM);
	assert_int_equal(errno, EXDEV);
	log_init("limbd");
	log_warning("z");
	assert_int_equal(scratch_is(scratch, "log",
				    "limb: cannot open 'x'\n"
				    "limb: cannot open 'y': No such file or directory\n"
				    "limb: goes on: Permission denied\n"
				    "limb: out of memory: Cannot allocate memory\n"
				    "limbd: z\n"),
			 1);
}

/* Levels above the chosen one are not written; their errors still come back. */
static void levels(void **state)
{
	log_init("limb");
	log_info("shown");
	log_debug("not shown");
	assert_true(log_enabled(LOG_LEVEL_INFO));
	assert_false(log_enabled(LOG_LEVEL_DEBUG));

	assert_int_equal(setenv("LIMB_LOG", "error", 1), 0);
	log_init("limb");
	assert_false(log_enabled(LOG_LEVEL_WARNING));
	assert_int_equal(log_warning_errno(-EIO, "not shown"), -EIO);
	log_error("shown too");

	assert_int_equal(setenv("LIMB_LOG", "debug", 1), 0);
	log_init("limb");
	log_debug("shown at last");
	assert_int_equal(
		scratch_is(scratch, "log", "limb: shown\nlimb: shown too\nlimb: shown at last\n"),
		1);
}

/* A line too long is cut, and is still one line. */
static void long_lines(void **state)
{
	char text[10001] = "";
	struct stat st;
	char last;

	memset(text, 'x', sizeof(text) - 1);
	log_init("limb");
	log_info("%s", text);
	assert_int_equal(log_error_errno(-EIO, "%s", text), -EIO);
	assert_int_equal(fstatat(scratch, "log", &st, 0), 0);
	assert_int_equal(st.st_size, 2 * 4096);
	for (int i = 1; i <= 2; i++) {
		int fd = openat(scratch, "log", O_RDONLY | O_CLOEXEC);

		assert_int_equal(pread(fd, &last, 1, i * 4096 - 1), 1);
		assert_int_equal(last, '\n');
		(void)close(fd);
	}
}

/* True `burst` times, then once for each interval that has passed, and never
 * more than the burst in a row. */
static void limited(void **state)
{
	const unsigned hour_ms = 3600 * 1000;
	struct log_limit l = {0};

	for (int i = 0; i < 3; i++)
		assert_true(log_limited(&l, 3, hour_ms));
	assert_false(log_limited(&l, 3, hour_ms));

	l.next_ms = clock_mono_ms(); /* as if one interval had passed */
	assert_true(log_limited(&l, 3, hour_ms));
	assert_false(log_limited(&l, 3, hour_ms));

	l = (struct log_limit){0};
	assert_false(log_limited(&l, 0, hour_ms));
}

/* However long it was quiet, no more than one burst is due. */
static void limited_after_a_pause(void **state)
{
	unsigned interval_ms = (unsigned)(clock_mono_ms() / 6) + 1;
	struct log_limit l = {.used = 3, .next_ms = 0}; /* so 6 intervals ago */

	for (int i = 0; i < 3; i++)
		assert_true(log_limited(&l, 3, interval_ms));
	assert_false(log_limited(&l, 3, interval_ms));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(lines, log_setup, log_teardown),
		cmocka_unit_test_setup_teardown(levels, log_setup, log_teardown),
		cmocka_unit_test_setup_teardown(long_lines, log_setup, log_teardown),
		cmocka_unit_test(limited),
		cmocka_unit_test(limited_after_a_pause),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
