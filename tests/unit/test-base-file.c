#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/io.h"
#include "base/util.h"
#include "tests/unit/child.h"
#include "tests/unit/scratch.h"

static int replace(int dir, const char *name, const char *text)
{
	return file_replace(dir, name, text, strlen(text));
}

static void assert_mode(int dir, const char *name, mode_t mode)
{
	struct stat st;

	assert_int_equal(fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(st.st_mode & 07777, mode);
}

static void assert_names(int dir, const char *name, const char *const *want, size_t n)
{
	char **names;
	size_t n_names;

	assert_int_equal(file_list(dir, name, 100, &names, &n_names), 0);
	assert_int_equal(n_names, n);
	for (size_t i = 0; i < n; i++)
		assert_string_equal(names[i], want[i]);
	file_names_free(names, n_names);
}

static int lock_status(void *name)
{
	int fd = -1, r = file_lock(scratch, name, &fd);

	return r < 0 ? -r : 0;
}

/* The new content replaces the old one, longer or shorter, and nothing else is
 * left in the directory. */
static void replace_replaces(void **state)
{
	static const char *const names[] = {"f", "sub"};

	assert_int_equal(mkdirat(scratch, "sub", 0700), 0);
	assert_int_equal(replace(scratch, "f", "first"), 0);
	assert_int_equal(scratch_is(scratch, "f", "first"), 1);
	assert_int_equal(replace(scratch, "f", "the second is longer"), 0);
	assert_int_equal(scratch_is(scratch, "f", "the second is longer"), 1);
	assert_int_equal(replace(scratch, "f", ""), 0);
	assert_int_equal(scratch_is(scratch, "f", ""), 1);
	assert_int_equal(replace(scratch, "sub/g", "in sub"), 0);
	assert_int_equal(scratch_is(scratch, "sub/g", "in sub"), 1);
	assert_names(scratch, ".", names, 2);
	assert_int_equal(replace(scratch, "none/f", "x"), -ENOENT);
}

/* A path relative to the working directory, and an absolute one, do as well. */
static void replace_at_fdcwd(void **state)
{
	char path[PATH_MAX + 8];

	(void)snprintf(path, sizeof(path), "%s/f", scratch_path);
	assert_int_equal(replace(AT_FDCWD, path, "x"), 0);
	assert_int_equal(scratch_is(scratch, "f", "x"), 1);
}

/* A link with the name is replaced, not followed. */
static void replace_of_a_link(void **state)
{
	scratch_write(scratch, "target", "untouched");
	assert_int_equal(symlinkat("target", scratch, "f"), 0);
	assert_int_equal(replace(scratch, "f", "x"), 0);
	assert_int_equal(scratch_is(scratch, "target", "untouched"), 1);
	assert_int_equal(scratch_is(scratch, "f", "x"), 1);
}

/* What a crash left under the temporary name never gets into the file. */
static void replace_over_stale_temp(void **state)
{
	static const char *const names[] = {"f"};

	scratch_write(scratch, "f.tmp", "a stale text, longer than what comes");
	assert_int_equal(fchmodat(scratch, "f.tmp", 0644, 0), 0);
	assert_int_equal(replace(scratch, "f", "new"), 0);
	assert_int_equal(scratch_is(scratch, "f", "new"), 1);
	assert_mode(scratch, "f", 0600);
	assert_names(scratch, ".", names, 1);
}

static int make_all_kinds(void *mask)
{
	char path[PATH_MAX + 8];
	int fd;

	(void)umask(*(mode_t *)mask);
	(void)snprintf(path, sizeof(path), "%s/p/q/r", scratch_path);
	if (replace(scratch, "f", "x") < 0 || file_make_dir(scratch, "d") < 0)
		return 1;
	return file_lock(scratch, "l", &fd) < 0 || file_make_dirs(path) < 0 ? 1 : 0;
}

/* Files are 0600 and directories 0700, be the umask all or nothing. */
static void modes_despite_umask(void **state)
{
	mode_t masks[] = {0, 0777};

	for (size_t i = 0; i < ARRAY_SIZE(masks); i++) {
		assert_int_equal(child_run(make_all_kinds, &masks[i]), 0);
		assert_mode(scratch, "f", 0600);
		assert_mode(scratch, "l", 0600);
		assert_mode(scratch, "d", 0700);
		assert_mode(scratch, "p/q", 0700);
		assert_mode(scratch, "p/q/r", 0700);
		assert_int_equal(file_remove_tree(scratch, "p"), 0);
		assert_int_equal(file_remove_tree(scratch, "d"), 0);
		assert_int_equal(unlinkat(scratch, "f", 0), 0);
		assert_int_equal(unlinkat(scratch, "l", 0), 0);
	}
}

enum { WRITERS = 4, ROUNDS = 60, WHOLE_BYTES = 20000 };

static int write_often(void *arg)
{
	size_t n = WHOLE_BYTES + *(int *)arg;
	char *data = malloc(n);

	memset(data, 'a' + *(int *)arg, n);
	for (int i = 0; i < ROUNDS; i++)
		if (file_replace(scratch, "f", data, n) < 0)
			return 1;
	return 0;
}

/* While several processes replace a file, who reads it sees one of their
 * contents, whole. */
static void replace_is_atomic_among_writers(void **state)
{
	static const char *const names[] = {"f"};
	int numbers[WRITERS];
	pid_t pids[WRITERS];

	assert_int_equal(replace(scratch, "f", ""), 0);
	for (int i = 0; i < WRITERS; i++) {
		numbers[i] = i;
		pids[i] = child_start(write_often, &numbers[i]);
	}
	for (int i = 0; i < 300; i++) {
		_cleanup_(buf_done) struct buf b = BUF_INIT(0);
		const uint8_t *p;

		assert_int_equal(file_read(scratch, "f", &b), 0);
		if (buf_len(&b) == 0)
			continue;
		p = buf_data(&b);
		assert_in_range(*p, 'a', 'a' + WRITERS - 1);
		assert_int_equal(buf_len(&b), WHOLE_BYTES + *p - 'a');
		for (size_t k = 1; k < buf_len(&b); k++)
			assert_int_equal(p[k], *p);
	}
	for (int i = 0; i < WRITERS; i++)
		assert_int_equal(child_wait(pids[i]), 0);
	assert_names(scratch, ".", names, 1);
}

/* A file is read whole, after what the buffer has. */
static void read_appends(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	cleanup_free char *big = malloc(100000);

	memset(big, 'b', 100000);
	assert_int_equal(file_replace(scratch, "big", big, 100000), 0);
	scratch_write(scratch, "small", "xyz");
	scratch_write(scratch, "empty", "");
	assert_int_equal(file_read(scratch, "empty", &b), 0);
	assert_int_equal(buf_len(&b), 0);
	assert_int_equal(file_read(scratch, "small", &b), 0);
	assert_int_equal(file_read(scratch, "big", &b), 0);
	assert_int_equal(buf_len(&b), 100003);
	assert_memory_equal(buf_data(&b), "xyz", 3);
	assert_memory_equal(buf_data(&b) + 3, big, 100000);
	assert_int_equal(file_read(scratch, "none", &b), -ENOENT);
	assert_int_equal(file_read(scratch, ".", &b), -EISDIR);
	assert_int_equal(buf_len(&b), 100003);
}

/* A file of exactly the limit is read; one byte more is refused, and leaves
 * the buffer as it was. */
static void read_keeps_the_limit(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(5);

	scratch_write(scratch, "three", "abc");
	scratch_write(scratch, "four", "abcd");
	assert_int_equal(buf_add_str(&b, ">>"), 0);
	assert_int_equal(file_read(scratch, "four", &b), -E2BIG);
	assert_int_equal(buf_len(&b), 2);
	assert_int_equal(file_read(scratch, "three", &b), 0);
	assert_int_equal(buf_len(&b), 5);
	assert_memory_equal(buf_data(&b), ">>abc", 5);
}

/* A file that has no size before it is read, as those of /proc, is read too. */
static void read_without_a_size(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	struct stat st;

	if (stat("/proc/self/status", &st) < 0 || st.st_size != 0) {
		print_message("# /proc is not mounted\n");
		skip();
	}
	assert_int_equal(file_read(AT_FDCWD, "/proc/self/status", &b), 0);
	assert_memory_equal(buf_data(&b), "Name:", 5);
}

/* Directories are made once, and an obstacle is an error. */
static void make_dir(void **state)
{
	scratch_write(scratch, "file", "");
	assert_int_equal(mkdirat(scratch, "real", 0755), 0);
	assert_int_equal(symlinkat("real", scratch, "link"), 0);
	assert_int_equal(file_make_dir(scratch, "d"), 0);
	assert_int_equal(file_make_dir(scratch, "d"), 0);
	assert_int_equal(file_make_dir(scratch, "d/e"), 0);
	assert_int_equal(file_make_dir(scratch, "link"), 0);
	assert_mode(scratch, "real", 0755);
	assert_int_equal(file_make_dir(scratch, "file"), -EEXIST);
	assert_int_equal(file_make_dir(scratch, "none/x"), -ENOENT);
	assert_int_equal(file_make_dir(scratch, "file/x"), -ENOTDIR);
}

static int make_relative(void *arg)
{
	if (fchdir(scratch) < 0 || file_make_dirs("one/two//three/") < 0)
		return 1;
	return file_make_dirs("one/two") < 0 || file_make_dirs(".") < 0 ? 1 : 0;
}

/* All that is missing of a path is made, and what is there stays. */
static void make_dirs(void **state)
{
	char path[PATH_MAX + 16];

	assert_int_equal(child_run(make_relative, NULL), 0);
	assert_mode(scratch, "one/two/three", 0700);
	(void)snprintf(path, sizeof(path), "%s/one/two/4/5", scratch_path);
	assert_int_equal(file_make_dirs(path), 0);
	assert_mode(scratch, "one/two/4/5", 0700);
	scratch_write(scratch, "one/file", "");
	(void)snprintf(path, sizeof(path), "%s/one/file/x", scratch_path);
	assert_true(file_make_dirs(path) < 0);
	assert_int_equal(file_make_dirs("/"), 0);
}

/* A directory is opened as such, and closed on exec. */
static void open_dir(void **state)
{
	cleanup_close int fd = -1;

	scratch_write(scratch, "file", "");
	assert_int_equal(file_open_dir(scratch, "file"), -ENOTDIR);
	assert_int_equal(file_open_dir(scratch, "none"), -ENOENT);
	fd = file_open_dir(scratch, ".");
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	assert_int_equal(file_sync_dir(scratch, "."), 0);
	assert_int_equal(file_sync_dir(scratch, "file"), -ENOTDIR);
}

/* Names come sorted as bytes, hidden and odd ones too, within the limit. */
static void list(void **state)
{
	static const char *const names[] = {"..x", ".a", "A", "a", "a b", "b\nc", "\xff"};
	const size_t n = ARRAY_SIZE(names);
	char **got = NULL;
	size_t n_got = 42;

	assert_int_equal(mkdirat(scratch, "d", 0700), 0);
	assert_names(scratch, "d", NULL, 0);
	for (size_t i = 0; i < n; i++) {
		char path[32];

		(void)snprintf(path, sizeof(path), "d/%s", names[(i * 3) % n]);
		scratch_write(scratch, path, "");
	}
	assert_names(scratch, "d", names, n);
	assert_int_equal(file_list(scratch, "d", n - 1, &got, &n_got), -E2BIG);
	assert_int_equal(file_list(scratch, "none", n, &got, &n_got), -ENOENT);
	assert_null(got);
	assert_int_equal(n_got, 42);
	assert_int_equal(file_list(scratch, "d", n, &got, &n_got), 0);
	file_names_free(got, n_got);
}

/* One holder at a time, within a process and across; closing gives it back. */
static void lock_excludes(void **state)
{
	char name[] = "lock";
	int fd = -1, other = -1;

	assert_int_equal(file_lock(scratch, name, &fd), 0);
	assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	assert_int_equal(child_run(lock_status, name), EAGAIN);
	assert_int_equal(file_lock(scratch, name, &other), -EAGAIN);
	assert_int_equal(other, -1);
	assert_int_equal(close(fd), 0);
	assert_int_equal(child_run(lock_status, name), 0);
	assert_int_equal(file_lock(scratch, name, &fd), 0);
	(void)close(fd);
}

static int lock_and_die(void *name)
{
	int fd;

	if (file_lock(scratch, name, &fd) == 0)
		(void)kill(getpid(), SIGKILL);
	return 1;
}

/* The lock of a holder that was killed is free. */
static void lock_ends_with_its_holder(void **state)
{
	char name[] = "lock";

	assert_int_equal(child_run(lock_and_die, name), -SIGKILL);
	assert_int_equal(child_run(lock_status, name), 0);
}

#ifdef LIMB_FAULTS

static int fault_teardown(void **state)
{
	(void)fault_set(NULL);
	io_set_observer(NULL, NULL);
	return scratch_teardown(state);
}

static int replace_with_plan(void *plan)
{
	int r = fault_set(plan);

	return r < 0 ? 99 : -replace(scratch, "f", "the new content");
}

enum outcome { OLD, NEW };

static const struct {
	const char *plan;
	int status; /* of the child: errno, or -signal */
	enum outcome outcome;
} replace_faults[] = {
	{"file.replace.truncate:1:error", EIO, OLD},
	{"file.replace.truncate:1:cut", EIO, OLD},
	{"file.replace.truncate:1:kill", -SIGKILL, OLD},
	{"file.replace.write:1:error=ENOSPC", ENOSPC, OLD},
	{"file.replace.write:1:cut=ENOSPC", ENOSPC, OLD},
	{"file.replace.write:1:kill", -SIGKILL, OLD},
	{"file.replace.sync:1:error", EIO, OLD},
	{"file.replace.sync:1:cut", EIO, OLD},
	{"file.replace.sync:1:kill", -SIGKILL, OLD},
	{"file.replace.rename:1:error", EIO, OLD},
	{"file.replace.rename:1:cut", EIO, NEW},
	{"file.replace.rename:1:kill", -SIGKILL, OLD},
	{"file.sync_dir:1:error", EIO, NEW},
	{"file.sync_dir:1:cut", EIO, NEW},
	{"file.sync_dir:1:kill", -SIGKILL, NEW},
};

/* At each fault point the file has its old content or its new one, never a mix;
 * a failure is reported; and the next attempt succeeds and cleans up. */
static void replace_under_faults(void **state)
{
	static const char *const texts[] = {[OLD] = "old", [NEW] = "the new content"};
	static const char *const names[] = {"f"};

	for (size_t i = 0; i < ARRAY_SIZE(replace_faults); i++) {
		const char *plan = replace_faults[i].plan;
		cleanup_free char *copy = strdup(plan);

		print_message("# %s\n", plan);
		scratch_write(scratch, "f.tmp", "left by a crash");
		scratch_write(scratch, "f", texts[OLD]);
		assert_int_equal(child_run(replace_with_plan, copy), replace_faults[i].status);
		assert_int_equal(scratch_is(scratch, "f", texts[replace_faults[i].outcome]), 1);
		if (replace_faults[i].status > 0)
			assert_names(scratch, ".", names, 1);

		assert_int_equal(replace(scratch, "f", "and after"), 0);
		assert_int_equal(scratch_is(scratch, "f", "and after"), 1);
		assert_names(scratch, ".", names, 1);
	}
}

/* However many steps a replacement has, death at any of them leaves old or new:
 * the count goes up until a run survives. */
static void replace_killed_at_any_point(void **state)
{
	int status = -SIGKILL, n = 0, old = 0, new = 0;

	while (status == -SIGKILL) {
		char plan[32];

		(void)snprintf(plan, sizeof(plan), "*:%d:kill", ++n);
		scratch_write(scratch, "f", "old");
		status = child_run(replace_with_plan, plan);
		old += scratch_is(scratch, "f", "old");
		new += scratch_is(scratch, "f", "the new content");
		assert_int_equal(old + new, n);
	}
	assert_int_equal(status, 0);
	assert_true(old > 0 && new > 1);
}

static enum io_event events[8];
static size_t n_events;

static void record_event(const struct io_observation *o, void *userdata)
{
	assert_true(n_events < ARRAY_SIZE(events));
	events[n_events++] = o->event;
}

/* Content is on disk before it gets its name, and the name before success. */
static void replace_order(void **state)
{
	static const enum io_event want[] = {IO_WRITE, IO_SYNC, IO_RENAME, IO_SYNC_DIR};

	n_events = 0;
	io_set_observer(record_event, NULL);
	assert_int_equal(replace(scratch, "f", "x"), 0);
	io_set_observer(NULL, NULL);
	assert_int_equal(n_events, ARRAY_SIZE(want));
	assert_memory_equal(events, want, sizeof(want));
}

/* A directory whose parent could not be synced was not made. */
static void make_dir_under_fault(void **state)
{
	struct stat st;

	assert_int_equal(fault_set("file.sync_dir:1:error"), 0);
	assert_int_equal(file_make_dir(scratch, "d"), -EIO);
	assert_int_equal(fstatat(scratch, "d", &st, 0), -1);
	assert_int_equal(file_make_dir(scratch, "d"), 0);
	assert_int_equal(fstatat(scratch, "d", &st, 0), 0);
}

/* A read that fails leaves the buffer as it was. */
static void read_under_fault(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	scratch_write(scratch, "f", "content");
	assert_int_equal(buf_add_str(&b, ">"), 0);
	assert_int_equal(fault_set("file.read:1:cut"), 0);
	assert_int_equal(file_read(scratch, "f", &b), -EIO);
	assert_int_equal(buf_len(&b), 1);
}

#endif

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, scratch_setup, scratch_teardown)
#define FAULT_TEST(fn) cmocka_unit_test_setup_teardown(fn, scratch_setup, fault_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(replace_replaces),
		TEST(replace_at_fdcwd),
		TEST(replace_of_a_link),
		TEST(replace_over_stale_temp),
		TEST(modes_despite_umask),
		TEST(replace_is_atomic_among_writers),
		TEST(read_appends),
		TEST(read_keeps_the_limit),
		TEST(read_without_a_size),
		TEST(make_dir),
		TEST(make_dirs),
		TEST(open_dir),
		TEST(list),
		TEST(lock_excludes),
		TEST(lock_ends_with_its_holder),
#ifdef LIMB_FAULTS
		FAULT_TEST(replace_under_faults),
		FAULT_TEST(replace_killed_at_any_point),
		FAULT_TEST(replace_order),
		FAULT_TEST(make_dir_under_fault),
		FAULT_TEST(read_under_fault),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
