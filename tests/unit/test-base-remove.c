/* file_remove_tree() of base/file.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/io.h"
#include "base/util.h"
#include "tests/unit/child.h"
#include "tests/unit/scratch.h"

static bool exists(int dir, const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Every kind of entry goes; what is absent is gone already. */
static void removes_all_kinds(void **state)
{
	assert_int_equal(mkdirat(scratch, "t", 0700), 0);
	assert_int_equal(mkdirat(scratch, "t/empty", 0700), 0);
	assert_int_equal(mkdirat(scratch, "t/full", 0700), 0);
	scratch_write(scratch, "t/full/file", "x");
	scratch_write(scratch, "t/.hidden", "x");
	assert_int_equal(mkfifoat(scratch, "t/fifo", 0600), 0);
	assert_int_equal(symlinkat("nowhere", scratch, "t/full/dangling"), 0);
	scratch_write(scratch, "beside", "x");
	assert_int_equal(file_remove_tree(scratch, "t"), 0);
	assert_false(exists(scratch, "t"));
	assert_true(exists(scratch, "beside"));
	assert_int_equal(file_remove_tree(scratch, "beside"), 0);
	assert_false(exists(scratch, "beside"));
	assert_int_equal(file_remove_tree(scratch, "t"), 0);
	assert_int_equal(file_remove_tree(scratch, "no/such"), 0);
}

/* Names that mean another directory are refused. The test stands two levels
 * down, so that what a mistake removes is its own. */
static void refuses_dots(void **state)
{
	static const char *const bad[] = {"",	 ".",	 "..",	  "./", "../",
					  "d/.", "d/..", "d/../", "d/", "link/"};
	cleanup_close int below = -1;

	assert_int_equal(mkdirat(scratch, "a", 0700), 0);
	assert_int_equal(mkdirat(scratch, "a/b", 0700), 0);
	assert_int_equal(mkdirat(scratch, "a/b/d", 0700), 0);
	below = openat(scratch, "a/b", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	scratch_write(below, "d/file", "x");
	assert_int_equal(symlinkat("d", below, "link"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(file_remove_tree(below, bad[i]), -EINVAL);
	assert_true(exists(below, "d/file"));
	assert_true(exists(below, "link"));
}

/* A link goes, what it leads to stays: at the top, within, file or directory. */
static void links_are_not_followed(void **state)
{
	assert_int_equal(mkdirat(scratch, "keep", 0700), 0);
	scratch_write(scratch, "keep/file", "x");
	assert_int_equal(mkdirat(scratch, "t", 0700), 0);
	assert_int_equal(symlinkat("../keep", scratch, "t/dir"), 0);
	assert_int_equal(symlinkat("../keep/file", scratch, "t/file"), 0);
	assert_int_equal(symlinkat(scratch_path, scratch, "t/absolute"), 0);
	assert_int_equal(symlinkat("keep", scratch, "top"), 0);
	assert_int_equal(file_remove_tree(scratch, "t"), 0);
	assert_int_equal(file_remove_tree(scratch, "top"), 0);
	assert_false(exists(scratch, "t"));
	assert_false(exists(scratch, "top"));
	assert_true(exists(scratch, "keep/file"));
}

/* A chain of `depth` directories called `name`, each with a file. */
static void make_deep(int top, const char *name, int depth)
{
	int dir = dup(top);

	for (int i = 0; i < depth; i++) {
		int next;

		assert_int_equal(mkdirat(dir, name, 0700), 0);
		next = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		scratch_write(next, "file", "x");
		assert_int_equal(symlinkat("..", next, "up"), 0);
		(void)close(dir);
		dir = next;
	}
	(void)close(dir);
}

static int remove_with_few_descriptors(void *name)
{
	struct rlimit few = {64, 64};

	if (setrlimit(RLIMIT_NOFILE, &few) < 0)
		return 99;
	return -file_remove_tree(scratch, name);
}

/* Paths far beyond PATH_MAX, and more levels than a process has descriptors. */
static void any_depth(void **state)
{
	char name[201] = "", one[] = "d";

	memset(name, 'n', 200);
	make_deep(scratch, name, 60); /* 12,000 bytes */
	assert_int_equal(child_run(remove_with_few_descriptors, name), 0);
	assert_false(exists(scratch, name));

	make_deep(scratch, one, 3000);
	assert_int_equal(child_run(remove_with_few_descriptors, one), 0);
	assert_false(exists(scratch, one));
}

/* More entries than one reading of a directory gives, and full directories
 * beside each other. */
static void any_width(void **state)
{
	char name[64];

	assert_int_equal(mkdirat(scratch, "t", 0700), 0);
	for (int i = 0; i < 3000; i++) {
		(void)snprintf(name, sizeof(name), "t/file-with-a-long-name-%d", i);
		scratch_write(scratch, name, "");
	}
	for (int i = 0; i < 300; i++) {
		(void)snprintf(name, sizeof(name), "t/d%d", i);
		assert_int_equal(mkdirat(scratch, name, 0700), 0);
		(void)snprintf(name, sizeof(name), "t/d%d/f", i);
		scratch_write(scratch, name, "");
	}
	assert_int_equal(file_remove_tree(scratch, "t"), 0);
	assert_false(exists(scratch, "t"));
}

static const struct {
	const char *name;
	mode_t mode;
} closed[] = {
	{"t/a/b", 0000},    {"t/a", 0000},     {"t/read", 0400},
	{"t/search", 0100}, {"t/write", 0200}, {"t", 0500},
};

/* As somebody whom permission bits hold back. */
static int make_and_remove_closed(void *arg)
{
	if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
		return CHILD_SKIP;
	if (mkdirat(scratch, "t", 0700) < 0 || mkdirat(scratch, "t/a", 0700) < 0)
		return 1;
	for (size_t i = 0; i < ARRAY_SIZE(closed); i++) {
		char file[32];

		(void)mkdirat(scratch, closed[i].name, 0700);
		(void)snprintf(file, sizeof(file), "%s/file", closed[i].name);
		scratch_write(scratch, file, "x");
	}
	for (size_t i = 0; i < ARRAY_SIZE(closed); i++)
		if (fchmodat(scratch, closed[i].name, closed[i].mode, 0) < 0)
			return 2;
	if (exists(scratch, "t/a/file"))
		return 3;
	return file_remove_tree(scratch, "t") < 0 || exists(scratch, "t") ? 4 : 0;
}

/* Directories that allow nothing are in nobody's way when they are our own. */
static void closed_directories(void **state)
{
	int status;

	if (geteuid() == 0)
		assert_int_equal(fchown(scratch, 65534, 65534), 0);
	status = child_run(make_and_remove_closed, NULL);
	if (status == CHILD_SKIP) {
		print_message("# cannot become another user\n");
		skip();
	}
	assert_int_equal(status, 0);
}

static int write_text(const char *path, const char *text)
{
	cleanup_close int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -errno;
}

static int own_mounts(void)
{
	char uid_map[32], gid_map[32];

	(void)snprintf(uid_map, sizeof(uid_map), "0 %u 1", getuid());
	(void)snprintf(gid_map, sizeof(gid_map), "0 %u 1", getgid());
	if (geteuid() == 0)
		return unshare(CLONE_NEWNS);
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return -1;
	if (write_text("/proc/self/setgroups", "deny") < 0 ||
	    write_text("/proc/self/gid_map", gid_map) < 0)
		return -1;
	return write_text("/proc/self/uid_map", uid_map);
}

/* Mounts at `at` what the test asks for, then tries to remove t. */
struct mounting {
	const char *at;
	bool bind;	  /* of "source", so that the device is the same */
	const char *file; /* on what is mounted */
	const char *plan; /* of faults, or NULL */
};

static int remove_mounted(void *arg)
{
	const struct mounting *m = arg;
	int r;

	if (own_mounts() < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return CHILD_SKIP;
	if (chdir(scratch_path) < 0) /* `scratch` lies in the old mounts */
		return 1;
	if (m->bind)
		r = mount("source", m->at, NULL, MS_BIND, NULL);
	else
		r = mount("tmpfs", m->at, "tmpfs", 0, NULL);
	if (r < 0)
		return 2;
	scratch_write(AT_FDCWD, m->file, "x");
#ifdef LIMB_FAULTS
	if (fault_set(m->plan) < 0)
		return 4;
#endif
	r = file_remove_tree(AT_FDCWD, "t");
	return exists(AT_FDCWD, m->file) ? -r : 3;
}

static void try_mountings(struct mounting *mountings, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int status;

		(void)mkdirat(scratch, "source", 0700);
		(void)mkdirat(scratch, "t", 0700);
		(void)mkdirat(scratch, "t/m", 0700);
		status = child_run(remove_mounted, &mountings[i]);
		if (status == CHILD_SKIP) {
			print_message("# cannot mount in a namespace of its own\n");
			skip();
		}
		assert_int_equal(status, EXDEV);
	}
}

/* A mount point stops the removal, and what is mounted keeps its content: of
 * another file system or the same, within the tree or its very top. */
static void mounts_are_not_crossed(void **state)
{
	struct mounting mountings[] = {
		{"t/m", false, "t/m/file", NULL},
		{"t/m", true, "source/file", NULL},
		{"t", false, "t/file", NULL},
		{"t", true, "source/file", NULL},
	};

	try_mountings(mountings, ARRAY_SIZE(mountings));
}

#ifdef LIMB_FAULTS

/* Puts a link in the place of t/d just before its rmdir(2), which the plan then
 * makes fail as if a full directory had still been there. */
static void swap(const struct io_observation *o, void *n_seen)
{
	if (o->event != IO_UNLINK || strcmp(o->name, "d") != 0 || ++*(int *)n_seen != 2)
		return;
	assert_int_equal(unlinkat(o->fd, "d", AT_REMOVEDIR), 0);
	assert_int_equal(symlinkat("../keep", o->fd, "d"), 0);
}

/* Nor is a link followed that takes a directory's place at the last moment. */
static void swapped_links_are_not_followed(void **state)
{
	int n_seen = 0;

	assert_int_equal(mkdirat(scratch, "keep", 0700), 0);
	scratch_write(scratch, "keep/file", "x");
	assert_int_equal(mkdirat(scratch, "t", 0700), 0);
	assert_int_equal(mkdirat(scratch, "t/d", 0700), 0);
	io_set_observer(swap, &n_seen);
	assert_int_equal(fault_set("file.remove:4:cut=ENOTEMPTY"), 0);
	assert_int_equal(file_remove_tree(scratch, "t"), -ENOTDIR);
	io_set_observer(NULL, NULL);
	assert_int_equal(fault_set(NULL), 0);
	assert_int_equal(n_seen, 2);
	assert_true(exists(scratch, "keep/file"));
	assert_int_equal(file_remove_tree(scratch, "t"), 0);
	assert_true(exists(scratch, "keep/file"));
}

/* At the bottom of the tree, moves what is 9 levels down into "keep". */
static void move(const struct io_observation *o, void *done)
{
	if (o->event != IO_UNLINK || *(bool *)done || exists(o->fd, "d"))
		return;
	assert_int_equal(renameat(scratch, "d/d/d/d/d/d/d/d/d", scratch, "keep/moved"), 0);
	*(bool *)done = true;
}

/* When a part of the tree is moved away while we are in it, what is around its
 * new place stays. */
static void moved_trees_do_not_lead_out(void **state)
{
	bool done = false;

	assert_int_equal(mkdirat(scratch, "keep", 0700), 0);
	scratch_write(scratch, "keep/file", "x");
	make_deep(scratch, "d", 40);
	io_set_observer(move, &done);
	assert_int_equal(file_remove_tree(scratch, "d"), -ESTALE);
	io_set_observer(NULL, NULL);
	assert_true(done);
	assert_true(exists(scratch, "keep/file"));
}

/* Nor is a mount point entered where rmdir(2) does not tell, as when the mount comes just after. */
static void new_mounts_are_not_crossed(void **state)
{
	struct mounting mountings[] = {
		{"t/m", false, "t/m/file", "file.remove:4:error=ENOTEMPTY"},
		{"t/m", true, "source/file", "file.remove:4:error=ENOTEMPTY"},
		{"t", false, "t/file", "file.remove:2:error=ENOTEMPTY"},
		{"t", true, "source/file", "file.remove:2:error=ENOTEMPTY"},
	};

	try_mountings(mountings, ARRAY_SIZE(mountings));
}

/* A failure stops the removal and is reported, at whatever entry it comes; the
 * next attempt removes the rest. */
static void failures_come_back(void **state)
{
	int r = -EIO, n = 0;

	while (r == -EIO) {
		char plan[32];

		(void)snprintf(plan, sizeof(plan), "file.remove:%d:error", ++n);
		make_deep(scratch, "t", 3);
		assert_int_equal(fault_set(plan), 0);
		r = file_remove_tree(scratch, "t");
		if (r == -EIO) {
			assert_true(exists(scratch, "t"));
			assert_int_equal(file_remove_tree(scratch, "t"), 0);
		}
		assert_false(exists(scratch, "t"));
	}
	assert_int_equal(r, 0);
	assert_true(n > 9);
	assert_int_equal(fault_set(NULL), 0);
}

#endif

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, scratch_setup, scratch_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(removes_all_kinds),
		TEST(refuses_dots),
		TEST(links_are_not_followed),
		TEST(any_depth),
		TEST(any_width),
		TEST(closed_directories),
		TEST(mounts_are_not_crossed),
#ifdef LIMB_FAULTS
		TEST(swapped_links_are_not_followed),
		TEST(moved_trees_do_not_lead_out),
		TEST(new_mounts_are_not_crossed),
		TEST(failures_come_back),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
