/* Operations on names: paths from the directory, a few of them, so that they meet. */
#include "tests/functional/twin/twin.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

enum { DIRS = 4, FILES = 10, TRIES = 12 };

void some_path(char path[PATH_ROOM])
{
	int n = 0;

	for (unsigned depth = (unsigned)below(3); depth > 0; depth--)
		n += snprintf(path + n, PATH_ROOM - (size_t)n, "d%u/", (unsigned)below(DIRS));
	(void)snprintf(path + n, PATH_ROOM - (size_t)n, "f%u", (unsigned)below(FILES));
}

static void some_dir(char path[PATH_ROOM])
{
	int n = 0;

	if (one_in(2))
		n = snprintf(path, PATH_ROOM, "d%u/", (unsigned)below(DIRS));
	(void)snprintf(path + n, PATH_ROOM - (size_t)n, "d%u", (unsigned)below(DIRS));
}

void some_path_of(unsigned type, char path[PATH_ROOM])
{
	struct stat st;

	for (unsigned i = 0; i < TRIES; i++) {
		if (type == S_IFDIR)
			some_dir(path);
		else
			some_path(path);
		if (fstatat(twin.dir[NATIVE], path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    (!type || (st.st_mode & S_IFMT) == type))
			return;
	}
}

/* Mostly a file or directory that is there. */
static void some_thing(char path[PATH_ROOM])
{
	some_path_of(one_in(5) ? S_IFDIR : one_in(10) ? 0 : S_IFREG, path);
}

static void run_mkdir(void)
{
	char path[PATH_ROOM];
	outcome r;

	some_dir(path);
	note("mkdir %s", path);
	for (size_t i = 0; i < SIDES; i++)
		r[i] = result(mkdirat(twin.dir[i], path, 0755));
	same(r, "mkdir");
}

static void remove_both(const char *what, const char *path, int flags)
{
	outcome r;

	note("%s %s", what, path);
	for (size_t i = 0; i < SIDES; i++)
		r[i] = result(unlinkat(twin.dir[i], path, flags));
	same(r, what);
}

static void run_rmdir(void)
{
	char path[PATH_ROOM];

	some_path_of(one_in(6) ? S_IFREG : S_IFDIR, path);
	remove_both("rmdir", path, AT_REMOVEDIR);
}

static void run_unlink(void)
{
	char path[PATH_ROOM];

	some_thing(path);
	remove_both("unlink", path, 0);
}

static void run_rename(void)
{
	char from[PATH_ROOM], to[PATH_ROOM];
	unsigned flags = one_in(6) ? RENAME_NOREPLACE : one_in(5) ? RENAME_EXCHANGE : 0;
	outcome r;

	some_thing(from);
	if (flags == RENAME_EXCHANGE)
		some_thing(to);
	else if (one_in(6))
		some_dir(to);
	else
		some_path(to);
	note("rename %s %s %x", from, to, flags);
	for (size_t i = 0; i < SIDES; i++)
		r[i] = result(renameat2(twin.dir[i], from, twin.dir[i], to, flags));
	same(r, "rename");
}

static void run_link(void)
{
	char from[PATH_ROOM], to[PATH_ROOM];
	outcome r;

	some_path_of(S_IFREG, from);
	some_path(to);
	note("link %s %s", from, to);
	for (size_t i = 0; i < SIDES; i++)
		r[i] = result(linkat(twin.dir[i], from, twin.dir[i], to, 0));
	same(r, "link");
}

static void run_symlink(void)
{
	char target[PATH_ROOM], path[PATH_ROOM];
	outcome r;

	some_path(target);
	some_path(path);
	note("symlink %s %s", target, path);
	for (size_t i = 0; i < SIDES; i++)
		r[i] = result(symlinkat(target, twin.dir[i], path));
	same(r, "symlink");
}

static void run_mknod(void)
{
	mode_t mode = one_in(2) ? S_IFREG | 0640 : S_IFIFO | 0600;
	char path[PATH_ROOM];
	outcome r;

	some_path(path);
	note("mknod %s %o", path, mode);
	for (size_t i = 0; i < SIDES; i++)
		r[i] = result(mknodat(twin.dir[i], path, mode, 0));
	same(r, "mknod");
}

static void run_chmod(void)
{
	mode_t mode = (mode_t)(0600 | below(0200));
	char path[PATH_ROOM];
	outcome r;

	some_path_of(one_in(4) ? S_IFDIR : S_IFREG, path);
	if (one_in(5))
		mode |= one_in(2) ? S_ISUID : S_ISVTX;
	/* What is open is written whatever becomes of the way to it, and the environment's side goes by
	 * names: what it may not reach is unapplied there (HACKING). */
	if (geteuid() != 0)
		mode |= S_IXUSR;
	note("chmod %o %s", mode, path);
	for (size_t i = 0; i < SIDES; i++)
		r[i] = result(fchmodat(twin.dir[i], path, mode, 0));
	same(r, "chmod");
}

static void run_utimens(void)
{
	const struct timespec at = {.tv_sec = (time_t)(900000000 + below(1000000)),
				    .tv_nsec = (long)below(1000000000)};
	const struct timespec ts[2] = {at, at};
	char path[PATH_ROOM];
	struct stat st;
	outcome r;

	/* What is only in a mapping has another time in each file system. */
	slots_sync();
	some_path_of(S_IFREG, path);
	note("utimens %s", path);
	for (size_t i = 0; i < SIDES; i++) {
		r[i] = result(utimensat(twin.dir[i], path, ts, 0));
		if (r[i] >= 0 &&
		    (fstatat(twin.dir[i], path, &st, 0) < 0 || st.st_mtim.tv_sec != at.tv_sec ||
		     st.st_mtim.tv_nsec != at.tv_nsec))
			differ("%s: the time is not what was set", path);
	}
	same(r, "utimens");
}

/* For calls that take no directory; no descriptor, as it may be a FIFO. */
static void full_path(size_t side, const char *path, char out[PATH_ROOM * 2])
{
	(void)snprintf(out, PATH_ROOM * 2, "/proc/self/fd/%d/%s", twin.dir[side], path);
}

static void run_truncate(void)
{
	off_t size = (off_t)below(one_in(3) ? 1 : SIZE_TOP);
	char path[PATH_ROOM], full[PATH_ROOM * 2];
	outcome r;

	some_path_of(one_in(10) ? S_IFDIR : S_IFREG, path);
	note("truncate %s %lld", path, (long long)size);
	for (size_t i = 0; i < SIDES; i++) {
		full_path(i, path, full);
		r[i] = result(truncate(full, size));
	}
	same(r, "truncate");
}

static void run_stat(void)
{
	struct stat st[SIDES];
	char path[PATH_ROOM];
	outcome r;

	some_thing(path);
	note("stat %s", path);
	for (size_t i = 0; i < SIDES; i++)
		r[i] = result(fstatat(twin.dir[i], path, &st[i], AT_SYMLINK_NOFOLLOW));
	same(r, "stat");
	if (r[0] < 0)
		return;
	for (size_t i = 0; i < SIDES; i++)
		r[i] = st[i].st_mode;
	same(r, "mode");
	for (size_t i = 0; i < SIDES; i++)
		r[i] = S_ISDIR(st[i].st_mode) ? 0 : st[i].st_size;
	same(r, "size");
	for (size_t i = 0; i < SIDES; i++)
		r[i] = S_ISDIR(st[i].st_mode) ? 0 : (long)st[i].st_nlink;
	same(r, "links");
}

struct xattr {
	char path[PATH_ROOM], full[SIDES][PATH_ROOM * 2], name[16];
};

static void some_xattr(struct xattr *x)
{
	some_thing(x->path);
	for (size_t i = 0; i < SIDES; i++)
		full_path(i, x->path, x->full[i]);
	(void)snprintf(x->name, sizeof(x->name), "user.x%u", (unsigned)below(4));
}

static void run_setxattr(void)
{
	int flags = one_in(4) ? XATTR_CREATE : one_in(4) ? XATTR_REPLACE : 0;
	size_t n = (size_t)below(one_in(4) ? 700 : 20);
	const uint8_t *value = some_bytes(n);
	struct xattr x;
	outcome r;

	some_xattr(&x);
	note("setxattr %s %s %zu %x", x.path, x.name, n, flags);
	for (size_t i = 0; i < SIDES; i++)
		r[i] = result(lsetxattr(x.full[i], x.name, value, n, flags));
	same(r, "setxattr");
}

static void run_removexattr(void)
{
	struct xattr x;
	outcome r;

	some_xattr(&x);
	note("removexattr %s %s", x.path, x.name);
	for (size_t i = 0; i < SIDES; i++)
		r[i] = result(lremovexattr(x.full[i], x.name));
	same(r, "removexattr");
}

static void run_getxattr(void)
{
	char value[SIDES][1000];
	struct xattr x;
	outcome r;

	some_xattr(&x);
	note("getxattr %s %s", x.path, x.name);
	for (size_t i = 0; i < SIDES; i++)
		r[i] = result(lgetxattr(x.full[i], x.name, value[i], sizeof(value[i])));
	same(r, "getxattr");
	if (r[0] > 0 && memcmp(value[0], value[1], (size_t)r[0]) != 0)
		differ("another value of %s", x.name);
}

const struct operation name_operations[] = {
	{8, run_mkdir},	   {4, run_rmdir},	 {10, run_unlink}, {14, run_rename},
	{8, run_link},	   {3, run_symlink},	 {2, run_mknod},   {6, run_chmod},
	{3, run_utimens},  {6, run_truncate},	 {12, run_stat},   {5, run_setxattr},
	{3, run_getxattr}, {2, run_removexattr},
};
const size_t n_name_operations = ARRAY_SIZE(name_operations);
