/* Built twice: test-base-beneath-walk.c forces the walk of components. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <seccomp.h>
#include <stdatomic.h>
#include <sys/ioctl.h>

#include <linux/fs.h>

#include "base/beneath.h"
#include "base/util.h"
#include "tests/unit/child.h"
#include "tests/unit/scratch.h"

static int root = -1;

/* root is scratch/root; scratch/outside is what must not be reached. */
static int root_setup(void **state)
{
	if (scratch_setup(state) < 0 || mkdirat(scratch, "root", 0700) < 0 ||
	    mkdirat(scratch, "outside", 0700) < 0)
		return -1;
	scratch_write(scratch, "outside/secret", "outside");
	root = openat(scratch, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return root < 0 ? -1 : 0;
}

static int root_teardown(void **state)
{
	(void)close(root);
	return scratch_teardown(state);
}

static void make_dirs(const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		assert_int_equal(mkdirat(root, names[i], 0700), 0);
}

static int try_open(const char *path, int flags)
{
	int fd = beneath_open(root, path, flags, 0);

	if (fd < 0)
		return fd;
	(void)close(fd);
	return 0;
}

static void assert_opens(const char *path, int flags, int at, const char *same)
{
	cleanup_close int fd = beneath_open(root, path, flags, 0);
	struct stat got, want;

	if (fd < 0) {
		fail_msg("'%s': %s", path, strerror(-fd));
		return;
	}
	assert_int_equal(fstat(fd, &got), 0);
	assert_int_equal(fstatat(at, same, &want, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(got.st_dev, want.st_dev);
	assert_int_equal(got.st_ino, want.st_ino);
	assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

/* Any spelling of a path beneath opens what it names. */
static void opens(void **state)
{
	static const char *const dirs[] = {"a", "a/b", "..a", "a/b..", "..."};

	make_dirs(dirs, ARRAY_SIZE(dirs));
	scratch_write(root, "f", "x");
	scratch_write(root, "a/b/f", "x");
	assert_opens("", O_RDONLY, root, ".");
	assert_opens(".", O_RDONLY | O_DIRECTORY, root, ".");
	assert_opens("./", O_PATH, root, ".");
	assert_opens("f", O_RDWR, root, "f");
	assert_opens("./f", O_RDONLY, root, "f");
	assert_opens("a//b/./f", O_RDONLY, root, "a/b/f");
	assert_opens("a/b/", O_RDONLY, root, "a/b");
	assert_opens("a/b/.", O_RDONLY, root, "a/b");
	assert_opens("a/b", O_PATH | O_DIRECTORY, root, "a/b");
	assert_opens("..a", O_RDONLY, root, "..a");
	assert_opens("a/b..", O_RDONLY, root, "a/b..");
	assert_opens("...", O_RDONLY, root, "...");
}

/* The errors are those of openat(2). */
static void errors(void **state)
{
	char name[5001] = "";

	assert_int_equal(mkdirat(root, "d", 0700), 0);
	scratch_write(root, "f", "x");
	assert_int_equal(try_open("none", O_RDONLY), -ENOENT);
	assert_int_equal(try_open("none/f", O_RDONLY), -ENOENT);
	assert_int_equal(try_open("f/x", O_RDONLY), -ENOTDIR);
	assert_int_equal(try_open("f/", O_RDONLY), -ENOTDIR);
	assert_int_equal(try_open("f", O_RDONLY | O_DIRECTORY), -ENOTDIR);
	assert_int_equal(try_open("d", O_RDWR), -EISDIR);
	assert_int_equal(try_open("f", O_RDWR | O_CREAT | O_EXCL), -EEXIST);
	assert_int_equal(try_open("", O_RDWR | O_CREAT), -EISDIR);
	assert_int_equal(beneath_open(-1, "f", O_RDONLY, 0), -EBADF);
	memset(name, 'n', 256);
	assert_int_equal(try_open(name, O_RDONLY), -ENAMETOOLONG);
	memset(name, 'n', 5000);
	assert_int_equal(try_open(name, O_RDONLY), -ENAMETOOLONG);
}

/* O_CREAT makes the file with the mode asked for; mode is nothing without it. */
static void creates(void **state)
{
	cleanup_close int fd = -1, again = -1;
	struct stat st;

	assert_int_equal(mkdirat(root, "d", 0700), 0);
	fd = beneath_open(root, "d/new", O_RDWR | O_CREAT | O_EXCL, 0640);
	assert_true(fd >= 0);
	assert_int_equal(fstatat(root, "d/new", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777 & ~0640, 0);
	again = beneath_open(root, "d/new", O_RDONLY, S_IFREG | 0640);
	assert_true(again >= 0);
}

/* Neither an absolute path nor any ".." gets through, harmless ones included. */
static void ways_out(void **state)
{
	static const char *const up[] = {"..",	    "../",	 "../outside/secret", "d/..",
					 "d/../f",  "./../root", "d/../../outside",   "d//..//f",
					 "none/..", "d/e/.."};

	assert_int_equal(mkdirat(root, "d", 0700), 0);
	assert_int_equal(mkdirat(root, "d/e", 0700), 0);
	scratch_write(root, "f", "x");
	for (size_t i = 0; i < ARRAY_SIZE(up); i++)
		assert_int_equal(try_open(up[i], O_RDONLY), -EXDEV);
	assert_int_equal(try_open("/", O_RDONLY), -EINVAL);
	assert_int_equal(try_open("/etc", O_RDONLY), -EINVAL);
	assert_int_equal(try_open("//f", O_RDONLY), -EINVAL);
}

/* No link is followed: at the end, on the way, inside or out, to a directory
 * or to nothing; and none is written through. */
static void links(void **state)
{
	static const char *const bad[] = {"out",	"out/",	      "out/secret",  "in/f",
					  "in",		"in/.",	      "d/in2/f",     "dangling",
					  "dangling/x", "file",	      "loop",	     "loop/x",
					  "absolute",	"absolute/x", "out/secret/x"};
	struct stat st;

	assert_int_equal(mkdirat(root, "d", 0700), 0);
	scratch_write(root, "d/f", "x");
	assert_int_equal(symlinkat("../outside", root, "out"), 0);
	assert_int_equal(symlinkat("d", root, "in"), 0);
	assert_int_equal(symlinkat(".", root, "d/in2"), 0);
	assert_int_equal(symlinkat("nowhere", root, "dangling"), 0);
	assert_int_equal(symlinkat("d/f", root, "file"), 0);
	assert_int_equal(symlinkat("loop", root, "loop"), 0);
	assert_int_equal(symlinkat(scratch_path, root, "absolute"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		if (try_open(bad[i], O_RDONLY) != -ELOOP)
			fail_msg("'%s' gave %d", bad[i], try_open(bad[i], O_RDONLY));
		assert_int_equal(try_open(bad[i], O_RDONLY | O_DIRECTORY), -ELOOP);
	}
	assert_int_equal(beneath_open(root, "dangling", O_RDWR | O_CREAT, 0600), -ELOOP);
	assert_int_equal(fstatat(root, "nowhere", &st, 0), -1);
	assert_int_equal(try_open("file", O_WRONLY | O_TRUNC), -ELOOP);
	assert_int_equal(scratch_is(root, "d/f", "x"), 1);
	assert_opens("out", O_PATH, root, "out"); /* the link itself */
}

/* The links of /proc, which lead anywhere at once, are links. */
static void magic_links(void **state)
{
	cleanup_close int proc = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char path[32];

	if (proc < 0) {
		print_message("# /proc is not mounted\n");
		skip();
	}
	assert_int_equal(beneath_open(proc, "root/etc", O_RDONLY, 0), -ELOOP);
	assert_int_equal(beneath_open(proc, "cwd", O_RDONLY, 0), -ELOOP);
	(void)snprintf(path, sizeof(path), "fd/%d/outside", scratch);
	assert_int_equal(beneath_open(proc, path, O_RDONLY, 0), -ELOOP);
}

/* A chain of directories, a path for it of more than 3 * PATH_MAX bytes, and
 * the deepest of them. */
static char *make_deep(int *ret_deepest)
{
	char name[201] = "", *path = malloc(70 * 201 + 32), *end = path;
	int dir = dup(root);

	memset(name, 'n', 200);
	for (int i = 0; i < 70; i++) {
		int next;

		assert_int_equal(mkdirat(dir, name, 0700), 0);
		next = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		(void)close(dir);
		dir = next;
		memcpy(end, name, 200);
		end += 200;
		*end++ = '/';
	}
	*end = '\0';
	*ret_deepest = dir;
	return path;
}

/* A path may have any length; what is refused is refused at any depth. */
static void long_paths(void **state)
{
	cleanup_close int deepest = -1, parent = -1;
	cleanup_free char *path = make_deep(&deepest);
	char *end = path + strlen(path);
	const char *name;
	struct stat st;

	assert_true(strlen(path) > 3 * PATH_MAX);
	scratch_write(deepest, "f", "deep");
	assert_int_equal(symlinkat(".", deepest, "link"), 0);

	assert_opens(path, O_RDONLY, deepest, ".");
	memcpy(end, "f", sizeof("f"));
	assert_opens(path, O_RDONLY, deepest, "f");
	assert_int_equal(beneath_open_parent(root, path, &parent, &name), 0);
	assert_string_equal(name, "f");
	assert_int_equal(fstatat(parent, "f", &st, 0), 0);
	memcpy(end, "link/f", sizeof("link/f"));
	assert_int_equal(try_open(path, O_RDONLY), -ELOOP);
	memcpy(end, "../f", sizeof("../f"));
	assert_int_equal(try_open(path, O_RDONLY), -EXDEV);
	memcpy(end, "none/f", sizeof("none/f"));
	assert_int_equal(try_open(path, O_RDONLY), -ENOENT);
	memcpy(end, "f/x", sizeof("f/x"));
	assert_int_equal(try_open(path, O_RDONLY), -ENOTDIR);

	memcpy(end, "f", sizeof("f"));
	memcpy(path + 201 * 5, "..", 2);
	memset(path + 201 * 5 + 2, '/', 199);
	assert_int_equal(try_open(path, O_RDONLY), -EXDEV);
}

/* Slashes without end fall into no part of their own. */
static void long_rows_of_slashes(void **state)
{
	enum { N = 3 * PATH_MAX };
	cleanup_free char *path = malloc(N + 8);

	assert_int_equal(mkdirat(root, "d", 0700), 0);
	scratch_write(root, "d/f", "x");
	memset(path, '/', N);
	path[0] = 'd';
	path[N] = '\0';
	assert_opens(path, O_RDONLY, root, "d");
	memcpy(path + N, "f", sizeof("f"));
	assert_opens(path, O_RDONLY, root, "d/f");
}

enum { SWAPS = 2000000 };

static atomic_bool stop_swapping;

/* d is a directory at one moment and a link to the outside at the next. */
static void *swap(void *arg)
{
	(void)arg;
	while (!stop_swapping)
		(void)renameat2(root, "d", root, "link", RENAME_EXCHANGE);
	return NULL;
}

/* Whatever the other side renames while we open, we get what is inside or are
 * refused, and never the outside; both outcomes must have been seen. */
static void swapped_links(void **state)
{
	unsigned inside = 0, refused = 0;
	pthread_t swapper;
	bool wrong = false;

	assert_int_equal(mkdirat(root, "d", 0700), 0);
	scratch_write(root, "d/secret", "inside!");
	assert_int_equal(symlinkat("../outside", root, "link"), 0);
	if (renameat2(root, "d", root, "link", RENAME_EXCHANGE) < 0) {
		print_message("# no RENAME_EXCHANGE here\n");
		skip();
	}
	stop_swapping = false;
	assert_int_equal(pthread_create(&swapper, NULL, swap, NULL), 0);
	for (int i = 0; !wrong && (i < SWAPS / 100 || (i < SWAPS && !(inside && refused))); i++) {
		cleanup_close int fd = beneath_open(root, "d/secret", O_RDONLY, 0);
		char got[8] = "";

		if (fd >= 0)
			wrong = read(fd, got, 7) != 7 || strcmp(got, "inside!") != 0;
		else
			wrong = fd != -ELOOP && fd != -ENOTDIR;
		inside += fd >= 0;
		refused += fd < 0;
	}
	stop_swapping = true;
	assert_int_equal(pthread_join(swapper, NULL), 0);
	assert_false(wrong);
	assert_true(inside > 0 && refused > 0);
}

/* The parent is opened, the name points into the path. */
static void parents(void **state)
{
	static const char *const bad[] = {"", ".", "..", "a/..", "a/.", "a/", "/", "/a", "a/b/"};
	static const char *const good[] = {"new", "a/new", "a/b/new", "a//new", "./new", "a/b"};
	const char *path, *name = NULL;
	int fd = -1;

	assert_int_equal(mkdirat(root, "a", 0700), 0);
	assert_int_equal(mkdirat(root, "a/b", 0700), 0);
	assert_int_equal(symlinkat("a", root, "link"), 0);
	scratch_write(root, "f", "x");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(beneath_open_parent(root, bad[i], &fd, &name), -EINVAL);
	assert_int_equal(beneath_open_parent(root, "link/x", &fd, &name), -ELOOP);
	assert_int_equal(beneath_open_parent(root, "../x", &fd, &name), -EXDEV);
	assert_int_equal(beneath_open_parent(root, "a/../x", &fd, &name), -EXDEV);
	assert_int_equal(beneath_open_parent(root, "f/x", &fd, &name), -ENOTDIR);
	assert_int_equal(beneath_open_parent(root, "none/x", &fd, &name), -ENOENT);
	assert_int_equal(fd, -1);
	assert_null(name);

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		struct stat got, want;
		char dir[16];

		path = good[i];
		assert_int_equal(beneath_open_parent(root, path, &fd, &name), 0);
		assert_ptr_equal(name, strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
		(void)snprintf(dir, sizeof(dir), "./%.*s", (int)(name - path), path);
		assert_int_equal(fstat(fd, &got), 0);
		assert_int_equal(fstatat(root, dir, &want, 0), 0);
		assert_int_equal(got.st_ino, want.st_ino);
		(void)close(fd);
	}
	assert_int_equal(beneath_open_parent(root, "link", &fd, &name), 0);
	assert_string_equal(name, "link"); /* the link is an entry like any other */
	(void)close(fd);
}

/* One directory entry: 1 to 255 bytes, no slash, no NUL, no dots alone. */
static void names(void **state)
{
	char name[256];

	memset(name, 'n', sizeof(name));
	assert_true(beneath_name_ok("a", 1));
	assert_true(beneath_name_ok("...", 3));
	assert_true(beneath_name_ok(".a", 2));
	assert_true(beneath_name_ok("..a", 3));
	assert_true(beneath_name_ok("\n\xff", 2));
	assert_true(beneath_name_ok(name, 255));
	assert_false(beneath_name_ok(name, 256));
	assert_false(beneath_name_ok("", 0));
	assert_false(beneath_name_ok(".", 1));
	assert_false(beneath_name_ok("..", 2));
	assert_false(beneath_name_ok("a/b", 3));
	assert_false(beneath_name_ok("/", 1));
	assert_false(beneath_name_ok("a\0b", 3));
}

static int open_without_openat2(void *err)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	int r;

	if (!filter ||
	    seccomp_rule_add(filter, SCMP_ACT_ERRNO((uint32_t) * (int *)err), SCMP_SYS(openat2),
			     0) < 0 ||
	    seccomp_load(filter) < 0)
		return CHILD_SKIP;
	seccomp_release(filter);
	for (int i = 0; i < 2; i++) {
		r = beneath_open(root, "d/f", O_RDONLY, 0);
		if (r < 0)
			return -r;
		(void)close(r);
		if (beneath_open(root, "out/secret", O_RDONLY, 0) != -ELOOP)
			return 200;
	}
	return 0;
}

/* Where a filter denies openat2, or a kernel has none, the walk takes over. */
static void openat2_denied(void **state)
{
	int errors[] = {ENOSYS, EPERM};

	assert_int_equal(mkdirat(root, "d", 0700), 0);
	scratch_write(root, "d/f", "x");
	assert_int_equal(symlinkat("../outside", root, "out"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
		int status = child_run(open_without_openat2, &errors[i]);

		if (status == CHILD_SKIP) {
			print_message("# cannot install a seccomp filter\n");
			skip();
		}
		assert_int_equal(status, 0);
	}
}

static int set_immutable(int fd, bool on)
{
	int flags = 0;

	if (ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0)
		return -1;
	flags = on ? flags | FS_IMMUTABLE_FL : flags & ~FS_IMMUTABLE_FL;
	return ioctl(fd, FS_IOC_SETFLAGS, &flags);
}

/* EPERM that is about the file is given back, and takes openat2 from nobody. */
static void true_eperm(void **state)
{
	cleanup_close int fd = -1;

	scratch_write(root, "f", "x");
	fd = openat(root, "f", O_RDONLY | O_CLOEXEC);
	if (set_immutable(fd, true) < 0) {
		print_message("# cannot make a file immutable\n");
		skip();
	}
	assert_int_equal(try_open("f", O_RDWR), -EPERM);
	assert_int_equal(set_immutable(fd, false), 0);
	assert_int_equal(try_open("f", O_RDWR), 0);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, root_setup, root_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(opens),
		TEST(errors),
		TEST(creates),
		TEST(ways_out),
		TEST(links),
		TEST(magic_links),
		TEST(long_paths),
		TEST(long_rows_of_slashes),
		TEST(swapped_links),
		TEST(parents),
		TEST(openat2_denied),
		TEST(true_eperm),
		cmocka_unit_test(names),
	};

#ifdef FORCE_WALK
	if (setenv("LIMB_NO_OPENAT2", "1", 1) < 0)
		return 1;
#endif
	return cmocka_run_group_tests(tests, NULL, NULL);
}
