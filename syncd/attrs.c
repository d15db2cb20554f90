#include "syncd/attrs.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "base/clock.h"
#include "base/util.h"

#define OURS "user.limb." /* says things about a root; never content */

static uid_t owner_of(uint8_t kind, uint32_t number, uint32_t self)
{
	if (kind == NODE_OWNER_SELF)
		return self;
	return kind == NODE_OWNER_ROOT ? 0 : number;
}

/* A path that leads to the descriptor itself, also when that is a link. */
static const char *fd_path(char out[40], int fd)
{
	(void)snprintf(out, 40, "/proc/self/fd/%d", fd);
	return out;
}

static bool stays_in_a_write(const char *name)
{
	return strncmp(name, "security.selinux", 16) != 0 &&
	       strcmp(name, "security.capability") != 0 && strncmp(name, OURS, strlen(OURS)) != 0;
}

void attrs_copy_xattrs(int dir, const char *from, const char *to)
{
	cleanup_close int from_fd = openat(dir, from, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	cleanup_close int to_fd = openat(dir, to, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	cleanup_free char *names = NULL, *value = malloc(NODE_XATTRS_MAX);
	char from_path[40], to_path[40];
	ssize_t len, n;

	if (from_fd < 0 || to_fd < 0 || !value)
		return;
	(void)fd_path(from_path, from_fd);
	(void)fd_path(to_path, to_fd);
	len = listxattr(from_path, NULL, 0);
	names = len > 0 ? malloc((size_t)len) : NULL;
	len = names ? listxattr(from_path, names, (size_t)len) : 0;
	for (char *p = names; len > 0 && p < names + len; p += strlen(p) + 1) {
		n = stays_in_a_write(p) ? getxattr(from_path, p, value, NODE_XATTRS_MAX) : -1;
		if (n >= 0)
			(void)setxattr(to_path, p, value, (size_t)n, 0);
	}
}

static int chown_one(int dir, const char *name, int fd, uid_t uid, gid_t gid)
{
	int r = fd >= 0 ? fchown(fd, uid, gid) : fchownat(dir, name, uid, gid, AT_SYMLINK_NOFOLLOW);

	return r < 0 ? -errno : 0;
}

/* One by one when both at once are refused: a user may give a file to a group of its own. */
static uint32_t set_owner(int dir, const char *name, int fd, const struct node *n, bool is_new)
{
	uid_t uid = owner_of(n->uid_kind, n->uid, geteuid());
	gid_t gid = owner_of(n->gid_kind, n->gid, getegid());
	uint32_t failed = 0;

	if (is_new && uid == geteuid() && gid == getegid())
		return 0;
	if (chown_one(dir, name, fd, uid, gid) == 0)
		return 0;
	if (chown_one(dir, name, fd, uid, (gid_t)-1) < 0)
		failed |= NODE_FIELD_UID;
	if (chown_one(dir, name, fd, (uid_t)-1, gid) < 0)
		failed |= NODE_FIELD_GID;
	return failed;
}

static bool xattr_wanted(const struct node *n, const char *name)
{
	const uint8_t *value;
	uint32_t len;

	return node_xattrs_find(n->xattrs, n->xattrs_len, name, &value, &len);
}

/* Removes what the node does not have; only what we can set ourselves. */
static void drop_xattrs(const char *path, const struct node *n)
{
	cleanup_free char *names = NULL;
	ssize_t len;

	len = listxattr(path, NULL, 0);
	if (len <= 0)
		return;
	names = malloc((size_t)len);
	len = names ? listxattr(path, names, (size_t)len) : -1;
	for (char *p = names; len > 0 && p < names + len; p += strlen(p) + 1) {
		if (strncmp(p, OURS, strlen(OURS)) != 0 &&
		    strncmp(p, "security.selinux", 16) != 0 && !xattr_wanted(n, p))
			(void)removexattr(path, p);
	}
}

/* fd_only: an O_PATH descriptor, which has no calls of its own for this. */
static uint32_t set_each_xattr(int fd, bool fd_only, const char *path, const struct node *n)
{
	char key[NODE_NAME_MAX + 1];
	const uint8_t *value;
	const char *k;
	uint32_t pos = 0, value_len, failed = 0;
	uint16_t len;
	int r;

	while (node_xattrs_next(n->xattrs, n->xattrs_len, &pos, &k, &len, &value, &value_len) > 0) {
		if (len > NODE_NAME_MAX)
			continue;
		memcpy(key, k, len);
		key[len] = 0;
		if (strncmp(key, OURS, strlen(OURS)) == 0)
			continue;
		r = fd_only ? setxattr(path, key, value, value_len, 0)
			    : fsetxattr(fd, key, value, value_len, 0);
		if (r < 0)
			failed = NODE_FIELD_XATTR;
	}
	return failed;
}

static uint32_t set_xattrs(int dir, const char *name, int fd, const struct node *n, bool is_new)
{
	cleanup_close int own = -1;
	char path[40];

	if (is_new && n->xattrs_len == 0)
		return 0;
	if (fd < 0) {
		own = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		if (own < 0)
			return n->xattrs_len > 0 ? NODE_FIELD_XATTR : 0;
	}
	(void)fd_path(path, fd < 0 ? own : fd);
	if (!is_new)
		drop_xattrs(path, n);
	return set_each_xattr(fd, fd < 0, path, n);
}

static uint32_t set_mode(int dir, const char *name, int fd, const struct node *n)
{
	struct stat st;
	int r;

	if (n->type == NODE_TYPE_SYMLINK)
		return 0;
	r = fd >= 0 ? fchmod(fd, n->mode) : fchmodat(dir, name, n->mode, AT_SYMLINK_NOFOLLOW);
	if (r < 0)
		return NODE_FIELD_MODE;
	/* A setgid bit that is not ours to give is dropped in silence. */
	if ((n->mode & 07000) == 0)
		return 0;
	r = fd >= 0 ? fstat(fd, &st) : fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW);
	return r < 0 || (st.st_mode & 07777) != n->mode ? NODE_FIELD_MODE : 0;
}

static uint32_t set_time(int dir, const char *name, int fd, const struct node *n)
{
	struct timespec ts[2] = {{.tv_nsec = UTIME_OMIT}, clock_to_timespec(n->mtime_ns)};
	int r = fd >= 0 ? futimens(fd, ts) : utimensat(dir, name, ts, AT_SYMLINK_NOFOLLOW);

	return r < 0 ? NODE_FIELD_MTIME : 0;
}

uint32_t attrs_set(int dir, const char *name, int fd, const struct node *n, bool is_new)
{
	uint32_t failed;

	failed = set_owner(dir, name, fd, n, is_new);
	failed |= set_xattrs(dir, name, fd, n, is_new);
	failed |= set_mode(dir, name, fd, n);
	failed |= set_time(dir, name, fd, n);
	return failed;
}

int attrs_set_some(int dir, const char *name, const struct stat *st, const struct node *n,
		   uint32_t fields)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, clock_to_timespec(n->mtime_ns)};
	uid_t uid = fields & NODE_FIELD_UID ? owner_of(n->uid_kind, n->uid, geteuid()) : (uid_t)-1;
	gid_t gid = fields & NODE_FIELD_GID ? owner_of(n->gid_kind, n->gid, getegid()) : (gid_t)-1;

	if (fields & ~(uint32_t)(NODE_FIELD_MODE | NODE_FIELD_MTIME | NODE_FIELD_UID |
				 NODE_FIELD_GID | NODE_FIELD_XATTR))
		return -EOPNOTSUPP;
	if (fields & (NODE_FIELD_UID | NODE_FIELD_GID) &&
	    fchownat(dir, name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (fields & NODE_FIELD_XATTR && set_xattrs(dir, name, -1, n, false))
		return -EOPNOTSUPP;
	if (fields & NODE_FIELD_MODE && !S_ISLNK(st->st_mode) &&
	    fchmodat(dir, name, n->mode, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (fields & NODE_FIELD_MTIME && utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return 0;
}

int attrs_make_special(int dir, const char *name, const struct node *n)
{
	char target[NODE_TARGET_MAX + 1];
	int r;

	switch (n->type) {
	case NODE_TYPE_SYMLINK:
		if (n->target_len > NODE_TARGET_MAX)
			return -ENAMETOOLONG;
		memcpy(target, n->target, n->target_len);
		target[n->target_len] = 0;
		r = symlinkat(target, dir, name);
		break;
	case NODE_TYPE_FIFO:
	case NODE_TYPE_SOCKET: r = mknodat(dir, name, node_type_to_mode(n->type) | 0600, 0); break;
	case NODE_TYPE_CHAR:
	case NODE_TYPE_BLOCK:
		r = mknodat(dir, name, node_type_to_mode(n->type) | 0600,
			    makedev(n->rdev_major, n->rdev_minor));
		break;
	default: return -EINVAL;
	}
	return r < 0 ? -errno : 0;
}
