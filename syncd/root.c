#include "syncd/root.h"

#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "base/beneath.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "journal/node.h"
#include "syncd/apply-log.h"

#define MARK_XATTR "user.limb.mark"
#define MARK_FILE "mark"
#define PROBE_FILE "probe"

enum { STAMP_TRIES = 8, OTHER_UID = 4242 };

int root_init(struct root *rt, const char *path, int dir_fd)
{
	*rt = (struct root){.dir_fd = dir_fd, .fd = -1, .uid = geteuid(), .gid = getegid()};
	rt->path = strdup(path);
	if (!rt->path)
		return -ENOMEM;
	(void)stamp_of(dir_fd, &rt->dir_st);
	return 0;
}

void root_done(struct root *rt)
{
	if (rt->fd >= 0)
		(void)close(rt->fd);
	free(rt->path);
	*rt = (struct root){.fd = -1};
}

int root_open(struct root *rt)
{
	cleanup_close int fd = open(rt->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
	struct stamp st;
	int r;

	if (fd < 0) {
		r = -errno;
		/* Without the right to list it, what is known of it still holds. */
		if (r != -EACCES)
			return r;
		fd = open(rt->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			return -errno;
	}
	r = stamp_of(fd, &st);
	if (r < 0)
		return r;
	if (rt->fd >= 0) {
		/* Workers may hold the number: it stays, what it names changes at once. */
		if (dup3(fd, rt->fd, O_CLOEXEC) < 0)
			return -errno;
	} else {
		rt->fd = take_fd(&fd);
	}
	if (st.device != rt->st.device || st.inode != rt->st.inode)
		rt->measured = false;
	rt->st = st;
	/* Whatever looks at the root opens it first. */
	(void)apply_log_mend(rt->dir_fd, rt->fd);
	return 0;
}

/* In a sandbox the root is a bind mount: its path goes on naming a directory that was removed
 * outside. */
static bool is_removed(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_nlink == 0;
}

int root_check(const struct root *rt)
{
	struct stamp st;
	int r;

	if (rt->fd < 0)
		return -ENOENT;
	r = stamp_at(AT_FDCWD, rt->path, &st);
	/* The path may end in a link: the directory is what counts. */
	if (r == 0 && S_ISLNK(st.mode)) {
		cleanup_close int fd = open(rt->path, O_PATH | O_DIRECTORY | O_CLOEXEC);

		r = fd < 0 ? -errno : stamp_of(fd, &st);
	}
	if (r == -ENOENT || r == -ENOTDIR || (r == 0 && !S_ISDIR(st.mode)))
		return -ENOENT;
	if (r < 0)
		return r;
	/* Removed where it is mounted from: the path leads to it for ever. */
	if (st.nlink == 0)
		return -ENOENT;
	if (st.inode != rt->st.inode || st.device != rt->st.device || st.mount != rt->st.mount)
		return -ESTALE;
	return is_removed(rt->fd) ? -ENOENT : 0;
}

/* ---- mark ---- */

static void mark_text(const struct root *rt, const uint8_t mark[ROOT_MARK_BYTES], struct buf *b)
{
	char hex[2 * ROOT_MARK_BYTES + 1];

	text_hex(hex, mark, ROOT_MARK_BYTES);
	(void)buf_printf(b, "%s %llu %u\n", hex, (unsigned long long)rt->st.inode,
			 stamp_generation(&rt->st));
}

static int get_mark_file(const struct root *rt, uint8_t mark[ROOT_MARK_BYTES])
{
	_cleanup_(buf_done) struct buf have = BUF_INIT(256), want = BUF_INIT(256);
	char hex[2 * ROOT_MARK_BYTES + 1];
	int r = file_read(rt->dir_fd, MARK_FILE, &have);

	if (r < 0 || buf_len(&have) < sizeof(hex))
		return -ENODATA;
	memcpy(hex, buf_data(&have), sizeof(hex) - 1);
	hex[sizeof(hex) - 1] = '\0';
	if (text_unhex(mark, ROOT_MARK_BYTES, hex) < 0)
		return -ENODATA;
	mark_text(rt, mark, &want);
	if (buf_len(&have) != buf_len(&want) ||
	    memcmp(buf_data(&have), buf_data(&want), buf_len(&want)) != 0)
		return -ENODATA;
	return 0;
}

int root_get_mark(const struct root *rt, uint8_t mark[ROOT_MARK_BYTES])
{
	char hex[2 * ROOT_MARK_BYTES + 1];
	ssize_t n = fgetxattr(rt->fd, MARK_XATTR, hex, sizeof(hex) - 1);

	if (n < 0)
		return get_mark_file(rt, mark);
	if (n != sizeof(hex) - 1)
		return -ENODATA;
	hex[n] = '\0';
	return text_unhex(mark, ROOT_MARK_BYTES, hex) < 0 ? -ENODATA : 0;
}

int root_set_mark(const struct root *rt, const uint8_t mark[ROOT_MARK_BYTES])
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(256);
	char hex[2 * ROOT_MARK_BYTES + 1];

	text_hex(hex, mark, ROOT_MARK_BYTES);
	if (fsetxattr(rt->fd, MARK_XATTR, hex, sizeof(hex) - 1, 0) == 0)
		return 0;
	mark_text(rt, mark, &b);
	return file_replace(rt->dir_fd, MARK_FILE, buf_data(&b), buf_len(&b));
}

bool root_is_empty(const struct root *rt)
{
	int fd = openat(rt->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent *e;
	bool empty = true;
	DIR *dir;

	if (fd < 0)
		return false;
	dir = fdopendir(fd);
	if (!dir) {
		(void)close(fd);
		return false;
	}
	while (empty && (e = readdir(dir)))
		empty = !beneath_name_ok(e->d_name, strlen(e->d_name));
	(void)closedir(dir);
	return empty;
}

/* ---- what it can hold ---- */

/* A file without a name on the root's own file system; where there are none, one in the
 * private directory stands for it. Nothing is ever left in the root. */
static int probe_open(const struct root *rt)
{
	int fd = openat(rt->fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd >= 0)
		return fd;
	fd = openat(rt->dir_fd, PROBE_FILE, O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0)
		(void)unlinkat(rt->dir_fd, PROBE_FILE, 0);
	return fd;
}

static bool probe_owner(int fd, const struct root *rt)
{
	struct stat st;

	return fchown(fd, OTHER_UID, OTHER_UID) == 0 && fstat(fd, &st) == 0 &&
	       st.st_uid == OTHER_UID && fchown(fd, rt->uid, rt->gid) == 0;
}

static bool probe_setid(int fd)
{
	struct stat st;

	return fchmod(fd, 07755) == 0 && fstat(fd, &st) == 0 && (st.st_mode & 07777) == 07755;
}

static bool probe_time(int fd, int64_t ns)
{
	struct timespec ts[2] = {{.tv_nsec = UTIME_OMIT}, clock_to_timespec(ns)};
	struct stat st;

	return futimens(fd, ts) == 0 && fstat(fd, &st) == 0 &&
	       clock_from_timespec(st.st_mtim) == ns;
}

/* Where somebody else has no number, in a user namespace without his, he cannot be named, and
 * whom others named is read as nobody. */
static bool probe_acl(int fd)
{
	struct {
		struct posix_acl_xattr_header head;
		struct posix_acl_xattr_entry entries[5];
	} acl = {
		{htole32(POSIX_ACL_XATTR_VERSION)},
		{
			{htole16(ACL_USER_OBJ), htole16(7), htole32((uint32_t)ACL_UNDEFINED_ID)},
			{htole16(ACL_USER), htole16(4), htole32(OTHER_UID)},
			{htole16(ACL_GROUP_OBJ), htole16(5), htole32((uint32_t)ACL_UNDEFINED_ID)},
			{htole16(ACL_MASK), htole16(5), htole32((uint32_t)ACL_UNDEFINED_ID)},
			{htole16(ACL_OTHER), htole16(5), htole32((uint32_t)ACL_UNDEFINED_ID)},
		},
	};

	return fsetxattr(fd, "system.posix_acl_access", &acl, sizeof(acl), 0) == 0;
}

/* Capabilities decide for security and trusted together: trusted.* alone fails in every
 * user namespace, where nobody could have set it either. */
static bool probe_capability(int fd)
{
	static const uint8_t cap[20] = {0, 0, 0, 2, 0, 4};

	return fsetxattr(fd, "security.capability", cap, sizeof(cap), 0) == 0;
}

static bool probe_device(const struct root *rt)
{
	if (mknodat(rt->dir_fd, PROBE_FILE, S_IFCHR | 0600, makedev(1, 3)) < 0)
		return false;
	(void)unlinkat(rt->dir_fd, PROBE_FILE, 0);
	return true;
}

static bool probe_stamps(int fd)
{
	int64_t last_ns = 0;
	struct stamp st;

	for (int i = 0; i < STAMP_TRIES; i++) {
		if (pwrite(fd, "x", 1, 0) != 1 || stamp_of(fd, &st) < 0 || st.ctime_ns == last_ns)
			return false;
		last_ns = st.ctime_ns;
	}
	return true;
}

void root_measure(struct root *rt)
{
	static const int64_t year_1910 = -1893456000ll * 1000000000;
	static const int64_t year_2200 = 7258118400ll * 1000000000;
	cleanup_close int fd = -1;

	if (rt->measured || rt->fd < 0)
		return;
	fd = probe_open(rt);
	if (fd < 0)
		return;
	rt->unheld = 0;
	rt->fine_stamps = probe_stamps(fd);
	if (!probe_time(fd, 1000000000123456789))
		rt->unheld |= NODE_MASK_NS;
	if (!probe_time(fd, year_1910) || !probe_time(fd, year_2200))
		rt->unheld |= NODE_MASK_YEARS;
	if (fsetxattr(fd, "user.limb.probe", "1", 1, 0) < 0)
		rt->unheld |= NODE_MASK_XATTR_USER;
	if (!probe_acl(fd))
		rt->unheld |= NODE_MASK_XATTR_ACL;
	if (!probe_capability(fd))
		rt->unheld |= NODE_MASK_XATTR_TRUSTED;
	if (!probe_setid(fd))
		rt->unheld |= NODE_MASK_SETID;
	if (!probe_owner(fd, rt))
		rt->unheld |= NODE_MASK_OWNER;
	if (!probe_device(rt))
		rt->unheld |= NODE_MASK_DEVICE;
	rt->measured = true;
}
