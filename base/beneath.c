#include "base/beneath.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "base/util.h"

enum {
	PART_MAX = PATH_MAX - 1, /* what one system call takes, without the NUL */
	DIR_FLAGS = O_PATH | O_DIRECTORY,
};

enum method { UNKNOWN, OPENAT2, WALK };

static atomic_int method;

static enum method method_get(void)
{
	const char *e;

	if (atomic_load_explicit(&method, memory_order_relaxed) == UNKNOWN) {
		e = getenv("LIMB_NO_OPENAT2");
		atomic_store(&method, e && strcmp(e, "1") == 0 ? WALK : OPENAT2);
	}
	return (enum method)atomic_load_explicit(&method, memory_order_relaxed);
}

static int openat2_call(int dir, const char *path, int flags, mode_t mode, uint64_t resolve)
{
	struct open_how how = {
		.flags = (uint64_t)(unsigned)flags,
		.mode = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? mode & 07777 : 0,
		.resolve = resolve,
	};
	long r;

	r = TEMP_FAILURE_RETRY(syscall(SYS_openat2, dir, path, &how, sizeof(how)));
	return r < 0 ? -errno : (int)r;
}

/* EPERM may also be about the file: ask with a path that cannot be refused. */
static bool openat2_missing(int r)
{
	cleanup_close int fd = -1;

	if (r == -ENOSYS)
		return true;
	if (r != -EPERM)
		return false;
	fd = openat2_call(AT_FDCWD, "/", O_PATH | O_CLOEXEC, 0, 0);
	return fd == -EPERM || fd == -ENOSYS;
}

/* Both ways refuse a link at any place of `part`, the walk because its parts
 * are single components. -EAGAIN: openat2 is missing, begin again by walking. */
static int open_part(enum method by, int dir, const char *part, int flags, mode_t mode)
{
	int r;

	flags |= O_CLOEXEC | O_NOFOLLOW;
	if (by == WALK) {
		r = TEMP_FAILURE_RETRY(openat(dir, part, flags, mode));
		return r < 0 ? -errno : r;
	}
	r = openat2_call(dir, part, flags, mode,
			 RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS);
	if (!openat2_missing(r))
		return r;
	atomic_store(&method, WALK);
	return -EAGAIN;
}

/* O_DIRECTORY makes a link ENOTDIR, as a file is; the caller of a walk wants to
 * know which of the two it met. */
static int open_part_as_dir(enum method by, int dir, const char *part, int flags)
{
	cleanup_close int fd = -1;
	struct stat st;
	int r;

	r = open_part(by, dir, part, flags | O_DIRECTORY, 0);
	if (r != -ENOTDIR)
		return r;
	fd = open_part(by, dir, part, O_PATH, 0);
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISLNK(st.st_mode))
		return -ELOOP;
	return r;
}

/* Bytes of path[0..n) that the next system call takes; n if it is the last. */
static size_t part_len(enum method by, const char *path, size_t n)
{
	const char *slash;

	if (by == WALK)
		slash = memchr(path, '/', n);
	else if (n > PART_MAX)
		slash = memrchr(path, '/', PART_MAX);
	else
		return n;
	return slash ? (size_t)(slash - path) : n;
}

static int open_by(enum method by, int root, const char *path, size_t n, int flags, mode_t mode)
{
	cleanup_close int held = -1;
	char part[PATH_MAX];
	int dir = root, r;

	for (;;) {
		size_t m = part_len(by, path, n);

		if (m > PART_MAX)
			return -ENAMETOOLONG;
		memcpy(part, path, m);
		part[m] = '\0';
		if (m == n)
			break;

		r = open_part_as_dir(by, dir, part, O_PATH);
		if (r < 0)
			return r;
		cleanup_close_fn(&held);
		dir = held = r;
		for (path += m, n -= m; n > 0 && *path == '/'; n--)
			path++;
	}
	if (n == 0)
		memcpy(part, ".", sizeof("."));
	if ((flags & O_DIRECTORY) && (flags & O_TMPFILE) != O_TMPFILE)
		return open_part_as_dir(by, dir, part, flags);
	return open_part(by, dir, part, flags, mode);
}

/* ".." is refused as such: what it means depends on when it is asked, and a
 * long path is walked in parts, whose start it must not leave either. */
static int path_check(const char *path, size_t n)
{
	const char *p = path, *end = path + n;

	if (n > 0 && *path == '/')
		return -EINVAL;
	while (p < end) {
		const char *slash = memchr(p, '/', (size_t)(end - p));
		size_t m = (size_t)((slash ? slash : end) - p);

		if (m == 2 && memcmp(p, "..", 2) == 0)
			return -EXDEV;
		p += m + 1;
	}
	return 0;
}

static int open_beneath(int root, const char *path, size_t n, int flags, mode_t mode)
{
	enum method by = method_get();
	int r;

	r = path_check(path, n);
	if (r < 0)
		return r;
	r = open_by(by, root, path, n, flags, mode);
	if (r == -EAGAIN && by != method_get())
		r = open_by(WALK, root, path, n, flags, mode);
	return r;
}

int beneath_open(int root, const char *path, int flags, mode_t mode)
{
	return open_beneath(root, path, strlen(path), flags, mode);
}

int beneath_open_parent(int root, const char *path, int *ret_fd, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	int r;

	if (*path == '/' || !beneath_name_ok(name, strlen(name)))
		return strlen(name) > NAME_MAX ? -ENAMETOOLONG : -EINVAL;
	r = open_beneath(root, path, (size_t)(name - path), DIR_FLAGS, 0);
	if (r < 0)
		return r;
	*ret_fd = r;
	*ret_name = name;
	return 0;
}

bool beneath_name_ok(const char *name, size_t n)
{
	if (n == 0 || n > NAME_MAX || memchr(name, '/', n) || memchr(name, '\0', n))
		return false;
	return !(name[0] == '.' && (n == 1 || (n == 2 && name[1] == '.')));
}
