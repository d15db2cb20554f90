#include "tests/functional/twin/twin.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

enum { NAMES = 4096, XATTRS = 8192, DEPTH = 16 };
enum { SET_BEFORE = 1100000000 }; /* mtimes before it were set by an operation */

struct names {
	char *name[NAMES];
	size_t n;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list(int fd, struct names *ns)
{
	DIR *dir = fdopendir(fd);
	const struct dirent *e;

	ns->n = 0;
	while (dir && (e = readdir(dir)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    strncmp(e->d_name, "env.", 4) != 0 && ns->n < NAMES)
			ns->name[ns->n++] = strdup(e->d_name);
	qsort(ns->name, ns->n, sizeof(ns->name[0]), by_name);
	if (dir)
		(void)closedir(dir);
}

static void names_free(struct names *ns)
{
	for (size_t i = 0; i < ns->n; i++)
		free(ns->name[i]);
}

/* Names and values of user.*, sorted, end to end. */
static size_t xattrs_of(const char *path, char out[XATTRS])
{
	char names[XATTRS], *sorted[64];
	ssize_t len = llistxattr(path, names, sizeof(names));
	size_t n = 0, at = 0;

	for (char *p = names; p < names + MAX(len, 0) && n < ARRAY_SIZE(sorted); p += strlen(p) + 1)
		if (strncmp(p, "user.", 5) == 0)
			sorted[n++] = p;
	qsort(sorted, n, sizeof(sorted[0]), by_name);
	for (size_t i = 0; i < n; i++) {
		size_t room = XATTRS - at;
		int k = snprintf(out + at, room, "%s=", sorted[i]);

		at += MIN((size_t)k, room - 1);
		len = lgetxattr(path, sorted[i], out + at, XATTRS - at);
		at += (size_t)MAX(len, 0);
	}
	return at;
}

static void compare_xattrs(const char *a, const char *b, const char *shown)
{
	static char x[SIDES][XATTRS];
	size_t n[SIDES] = {xattrs_of(a, x[0]), xattrs_of(b, x[1])};

	if (n[0] != n[1] || memcmp(x[0], x[1], n[0]) != 0)
		differ("'%s' has other extended attributes: '%.*s', '%.*s'", shown, (int)n[0], x[0],
		       (int)n[1], x[1]);
}

static void compare_content(int a, int b, const char *shown)
{
	static uint8_t mem[SIDES][64 << 10];
	ssize_t n[SIDES];
	off_t at = 0;

	do {
		n[0] = pread(a, mem[0], sizeof(mem[0]), at);
		n[1] = pread(b, mem[1], sizeof(mem[1]), at);
		for (ssize_t i = 0; i < MIN(n[0], n[1]); i++)
			if (mem[0][i] != mem[1][i])
				differ("'%s' differs from byte %lld: %02x, %02x", shown,
				       (long long)at + i, mem[0][i], mem[1][i]);
		if (n[0] != n[1])
			differ("'%s': at %lld %zd and %zd bytes are read", shown, (long long)at,
			       n[0], n[1]);
		at += n[0];
	} while (n[0] > 0);
}

static void compare_stat(const struct stat *a, const struct stat *b, const char *shown)
{
	if (a->st_mode != b->st_mode)
		differ("'%s' has mode %o and %o", shown, a->st_mode, b->st_mode);
	if (S_ISREG(a->st_mode) && a->st_size != b->st_size)
		differ("'%s' has %lld and %lld bytes", shown, (long long)a->st_size,
		       (long long)b->st_size);
	if (!S_ISDIR(a->st_mode) && a->st_nlink != b->st_nlink)
		differ("'%s' has %lu and %lu links", shown, (unsigned long)a->st_nlink,
		       (unsigned long)b->st_nlink);
	if (S_ISREG(a->st_mode) &&
	    (a->st_mtim.tv_sec < SET_BEFORE || b->st_mtim.tv_sec < SET_BEFORE) &&
	    (a->st_mtim.tv_sec != b->st_mtim.tv_sec || a->st_mtim.tv_nsec != b->st_mtim.tv_nsec))
		differ("'%s' has mtime %lld.%09ld and %lld.%09ld", shown,
		       (long long)a->st_mtim.tv_sec, a->st_mtim.tv_nsec,
		       (long long)b->st_mtim.tv_sec, b->st_mtim.tv_nsec);
}

static void compare_dirs(int a, int b, const char *path);

static void compare_things(int a, int b, const char *name, const char *shown)
{
	int flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
	char link[SIDES][4096], proc[SIDES][4200];
	struct stat st[SIDES];
	outcome r = {result(fstatat(a, name, &st[0], AT_SYMLINK_NOFOLLOW)),
		     result(fstatat(b, name, &st[1], AT_SYMLINK_NOFOLLOW))};
	int fd[SIDES];

	same(r, shown);
	if (r[0] < 0)
		return;
	compare_stat(&st[0], &st[1], shown);
	if (S_ISLNK(st[0].st_mode)) {
		for (size_t i = 0; i < SIDES; i++)
			r[i] = result(readlinkat(i ? b : a, name, link[i], sizeof(link[i])));
		same(r, shown);
		if (r[0] >= 0 && memcmp(link[0], link[1], (size_t)r[0]) != 0)
			differ("'%s' leads elsewhere", shown);
		return;
	}
	(void)snprintf(proc[0], sizeof(proc[0]), "/proc/self/fd/%d/%s", a, name);
	(void)snprintf(proc[1], sizeof(proc[1]), "/proc/self/fd/%d/%s", b, name);
	compare_xattrs(proc[0], proc[1], shown);
	if (!S_ISREG(st[0].st_mode) && !S_ISDIR(st[0].st_mode))
		return;
	for (size_t i = 0; i < SIDES; i++)
		r[i] = MIN(0, fd[i] = (int)result(openat(i ? b : a, name, flags)));
	same(r, shown);
	if (r[0] < 0)
		return;
	if (S_ISREG(st[0].st_mode))
		compare_content(fd[0], fd[1], shown);
	else
		compare_dirs(fd[0], fd[1], shown);
	(void)close(fd[0]);
	(void)close(fd[1]);
}

/* What both names lead to must be one node on both sides, or none. */
static void compare_dirs(int a, int b, const char *path)
{
	struct names *ns = calloc(SIDES, sizeof(*ns));
	char shown[PATH_ROOM * 2];
	size_t n;

	if (!ns)
		abort();
	list(openat(a, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), &ns[0]);
	list(openat(b, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), &ns[1]);
	n = MAX(ns[0].n, ns[1].n);
	for (size_t i = 0; i < n; i++) {
		const char *x = i < ns[0].n ? ns[0].name[i] : "",
			   *y = i < ns[1].n ? ns[1].name[i] : "";

		if (strcmp(x, y) != 0)
			differ("in '%s' there are '%s' and '%s'", path, x, y);
		(void)snprintf(shown, sizeof(shown), "%s/%s", path, x);
		compare_things(a, b, x, shown);
	}
	names_free(&ns[0]);
	names_free(&ns[1]);
	free(ns);
}

void compare_trees(int a, int b)
{
	compare_dirs(a, b, "");
}
