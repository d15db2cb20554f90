#include "bridge/tree-copy-attr.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/xattr.h>

#include "base/util.h"

enum { LIST_MAX = 1 << 16, VALUE_MAX = 1 << 16 }; /* XATTR_LIST_MAX, XATTR_SIZE_MAX */

/* Set by the kernel or its policy, not by the file's owner. */
static int is_foreign(const char *name)
{
	return strcmp(name, "security.selinux") == 0 || strcmp(name, "security.ima") == 0 ||
	       strcmp(name, "security.evm") == 0;
}

/* How one entry's attributes are reached: by descriptor, or by name through /proc,
 * because there are no *at() calls for them. */
struct reach {
	int fd;
	char path[320];
	int by_path;
};

static ssize_t reach_list(const struct reach *r, char *list, size_t n)
{
	return r->by_path ? llistxattr(r->path, list, n) : flistxattr(r->fd, list, n);
}

static ssize_t reach_get(const struct reach *r, const char *name, void *value, size_t n)
{
	return r->by_path ? lgetxattr(r->path, name, value, n) : fgetxattr(r->fd, name, value, n);
}

static int reach_set(const struct reach *r, const char *name, const void *value, size_t n)
{
	return r->by_path ? lsetxattr(r->path, name, value, n, 0)
			  : fsetxattr(r->fd, name, value, n, 0);
}

static int copy_xattrs(const struct reach *src, const struct reach *dst)
{
	cleanup_free char *list = NULL, *value = NULL;
	ssize_t n = reach_list(src, NULL, 0), len;
	int refused = 0;

	if (n == 0 ||
	    (n < 0 && (errno == ENOTSUP || errno == ENOENT || errno == EPERM || errno == EACCES)))
		return 0;
	if (n < 0)
		return -errno;
	list = malloc(LIST_MAX);
	value = malloc(VALUE_MAX);
	if (!list || !value)
		return -ENOMEM;
	n = reach_list(src, list, LIST_MAX);
	for (char *p = list; n > 0 && p < list + n; p += strlen(p) + 1) {
		if (is_foreign(p))
			continue;
		len = reach_get(src, p, value, VALUE_MAX);
		if (len < 0 && errno == ENODATA)
			continue;
		if (len >= 0 && reach_set(dst, p, value, (size_t)len) == 0)
			continue;
		if (errno == ENOSPC || errno == EDQUOT || errno == EIO)
			return -errno;
		refused++;
	}
	return refused;
}

static void times_of(const struct stat *st, struct timespec out[2])
{
	out[0] = st->st_atim;
	out[1] = st->st_mtim;
}

int tree_copy_attr_fd(int src, int dst, const struct stat *st)
{
	const struct reach from = {.fd = src}, to = {.fd = dst};
	struct timespec times[2];
	struct stat now;
	int refused, r;

	if (fstat(dst, &now) < 0)
		return -errno;
	r = (now.st_uid != st->st_uid || now.st_gid != st->st_gid) &&
	    fchown(dst, st->st_uid, st->st_gid) < 0;
	refused = copy_xattrs(&from, &to);
	if (refused < 0)
		return refused;
	times_of(st, times);
	if (fchmod(dst, st->st_mode & 07777) < 0 || futimens(dst, times) < 0)
		return -errno;
	return refused + r;
}

int tree_copy_attr_at(int src_dir, int dst_dir, const char *name, const struct stat *st)
{
	struct reach from = {.by_path = 1}, to = {.by_path = 1};
	struct timespec times[2];
	int refused, r;

	(void)snprintf(from.path, sizeof(from.path), "/proc/self/fd/%d/%s", src_dir, name);
	(void)snprintf(to.path, sizeof(to.path), "/proc/self/fd/%d/%s", dst_dir, name);
	r = fchownat(dst_dir, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0;
	refused = copy_xattrs(&from, &to);
	if (refused < 0)
		return refused;
	/* A link has no mode of its own; the others were made by us just now, and here is
	 * nobody who could put a link in their place. */
	if (!S_ISLNK(st->st_mode) && fchmodat(dst_dir, name, st->st_mode & 07777, 0) < 0)
		return -errno;
	times_of(st, times);
	if (utimensat(dst_dir, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return refused + r;
}
