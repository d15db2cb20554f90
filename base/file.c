#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/beneath.h"
#include "base/io.h"
#include "base/util.h"

enum {
	FILE_MODE = 0600,
	DIR_MODE = 0700,
	READ_BYTES = 16 * 1024,
};

static int open_file(int dir, const char *name, int flags)
{
	int fd = TEMP_FAILURE_RETRY(openat(dir, name, flags | O_CLOEXEC | O_NOCTTY, FILE_MODE));

	return fd < 0 ? -errno : fd;
}

int file_open_dir(int dir, const char *name)
{
	return open_file(dir, name, O_RDONLY | O_DIRECTORY);
}

int file_sync_dir(int dir, const char *path)
{
	cleanup_close int fd = -1;

	fd = file_open_dir(dir, path);
	if (fd < 0)
		return fd;
	return io_fsync(fd, "file.sync_dir");
}

/* fsync of the directory that holds NAME. */
static int sync_parent(int dir, const char *name)
{
	cleanup_free char *parent = NULL;
	const char *end = name + strlen(name);

	while (end > name && end[-1] == '/')
		end--;
	while (end > name && end[-1] != '/')
		end--;
	parent = end > name ? strndup(name, (size_t)(end - name)) : strdup(".");
	if (!parent)
		return -ENOMEM;
	return file_sync_dir(dir, parent);
}

/* Opens NAME, made 0600 if absent, and locks it. While we waited its owner may
 * have renamed or removed the file: what we locked must still be NAME. */
static int open_locked(int dir, const char *name, int lock_flags)
{
	for (;;) {
		cleanup_close int fd = -1;
		struct stat ours, named;

		fd = open_file(dir, name, O_RDWR | O_CREAT | O_NOFOLLOW);
		if (fd < 0)
			return fd;
		if (TEMP_FAILURE_RETRY(flock(fd, LOCK_EX | lock_flags)) < 0)
			return -errno;
		if (fstat(fd, &ours) < 0)
			return -errno;
		if (fstatat(dir, name, &named, AT_SYMLINK_NOFOLLOW) < 0) {
			if (errno == ENOENT)
				continue;
			return -errno;
		}
		if (ours.st_dev != named.st_dev || ours.st_ino != named.st_ino)
			continue;
		if (fchmod(fd, FILE_MODE) < 0)
			return -errno;
		return take_fd(&fd);
	}
}

int file_lock(int dir, const char *name, int *ret_fd)
{
	int fd = open_locked(dir, name, LOCK_NB);

	if (fd < 0)
		return fd;
	*ret_fd = fd;
	return 0;
}

static int write_temp(int fd, const void *data, size_t n)
{
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size > 0) {
		r = io_ftruncate(fd, 0, "file.replace.truncate");
		if (r < 0)
			return r;
	}
	r = io_write_full(fd, data, n, "file.replace.write");
	if (r < 0)
		return r;
	return io_fsync(fd, "file.replace.sync");
}

/* The temporary file has one name and is locked, so that a crash leaves at most
 * one of them, and two writers come one after the other. */
int file_replace(int dir, const char *name, const void *data, size_t n)
{
	cleanup_free char *temp = NULL;
	cleanup_close int fd = -1;
	int r;

	if (asprintf(&temp, "%s.tmp", name) < 0) {
		temp = NULL;
		return -ENOMEM;
	}
	fd = open_locked(dir, temp, 0);
	if (fd < 0)
		return fd;
	r = write_temp(fd, data, n);
	if (r >= 0)
		r = io_renameat(dir, temp, dir, name, "file.replace.rename");
	if (r < 0) {
		(void)unlinkat(dir, temp, 0);
		return r;
	}
	return sync_parent(dir, name);
}

/* Whether fd has nothing more to say, for a buffer that is full. */
static int at_end(int fd)
{
	uint8_t c;
	ssize_t k = io_read_some(fd, &c, 1, "file.read");

	if (k < 0)
		return (int)k;
	return k == 0 ? 0 : -E2BIG;
}

static int read_all(int fd, struct buf *b)
{
	size_t limit = b->limit ? b->limit : SIZE_MAX;
	uint8_t *p;
	ssize_t k;
	int r;

	for (;;) {
		size_t want = MIN((size_t)READ_BYTES, limit - buf_len(b));

		if (want == 0)
			return at_end(fd);
		r = buf_reserve(b, want, &p);
		if (r < 0)
			return r;
		k = io_read_full(fd, p, want, "file.read");
		if (k < 0)
			return (int)k;
		buf_commit(b, (size_t)k);
		if ((size_t)k < want)
			return 0;
	}
}

int file_read(int dir, const char *name, struct buf *b)
{
	cleanup_close int fd = -1;
	size_t before = buf_len(b);
	int r;

	fd = open_file(dir, name, O_RDONLY);
	if (fd < 0)
		return fd;
	r = read_all(fd, b);
	if (r < 0)
		b->end = b->start + before;
	return r;
}

static bool is_dir(int dir, const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, 0) == 0 && S_ISDIR(st.st_mode);
}

int file_make_dir(int dir, const char *name)
{
	int r;

	if (mkdirat(dir, name, DIR_MODE) < 0) {
		r = -errno;
		return is_dir(dir, name) ? 0 : r;
	}
	r = fchmodat(dir, name, DIR_MODE, 0) < 0 ? -errno : sync_parent(dir, name);
	if (r < 0)
		(void)unlinkat(dir, name, AT_REMOVEDIR);
	return r;
}

int file_make_dirs(const char *path)
{
	cleanup_free char *part = strdup(path);
	char *p = part;
	int r;

	if (!part)
		return -ENOMEM;
	while (*p) {
		char c;

		p += strspn(p, "/");
		p += strcspn(p, "/");
		c = *p;
		*p = '\0';
		r = file_make_dir(AT_FDCWD, part);
		if (r < 0)
			return r;
		*p = c;
	}
	return 0;
}

struct names {
	char **v;
	size_t n, cap;
};

static void names_done(struct names *l)
{
	file_names_free(l->v, l->n);
}

static int names_add(struct names *l, const char *name, size_t limit)
{
	char **v;

	if (l->n >= limit)
		return -E2BIG;
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 16;

		v = reallocarray(l->v, cap, sizeof(*v));
		if (!v)
			return -ENOMEM;
		l->v = v;
		l->cap = cap;
	}
	l->v[l->n] = strdup(name);
	if (!l->v[l->n])
		return -ENOMEM;
	l->n++;
	return 0;
}

static void close_dir(DIR **d)
{
	if (*d)
		(void)closedir(*d);
}

static bool is_dot(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int open_dir_stream(int dir, const char *name, DIR **ret_stream)
{
	int fd = file_open_dir(dir, name);

	if (fd < 0)
		return fd;
	*ret_stream = fdopendir(fd);
	if (!*ret_stream) {
		int r = -errno;

		(void)close(fd);
		return r;
	}
	return 0;
}

int file_list(int dir, const char *name, size_t limit, char ***ret_names, size_t *ret_n)
{
	_cleanup_(names_done) struct names l = {0};
	_cleanup_(close_dir) DIR *d = NULL;
	struct dirent *e;
	int r;

	r = open_dir_stream(dir, name, &d);
	if (r < 0)
		return r;
	for (errno = 0; (e = readdir(d)) != NULL; errno = 0) {
		if (is_dot(e->d_name))
			continue;
		r = names_add(&l, e->d_name, limit);
		if (r < 0)
			return r;
	}
	if (errno)
		return -errno;
	if (l.n > 0)
		qsort(l.v, l.n, sizeof(*l.v), compare_names);
	*ret_names = take_ptr(&l.v);
	*ret_n = l.n;
	l.n = 0;
	return 0;
}

void file_names_free(char **names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(names[i]);
	free(names);
}

/*
 * Removal of a tree.  The path down to where we are is a stack of levels.  Only
 * the deepest few keep their directory open; the way up to the others is "..",
 * and what that leads to must be the directory we came from.
 */
enum { LEVELS_OPEN = 32 };

struct level {
	DIR *d; /* NULL while closed */
	dev_t dev;
	ino_t ino;
	char *name; /* in the level above */
};

struct levels {
	struct level *v;
	size_t n, cap;
};

static void level_done(struct level *l)
{
	close_dir(&l->d);
	free(l->name);
}

static void levels_done(struct levels *s)
{
	while (s->n > 0)
		level_done(&s->v[--s->n]);
	free(s->v);
}

/* 0 = gone, 1 = a directory that has entries. */
static int remove_entry(int dir, const char *name)
{
	int r, q;

	r = io_unlinkat(dir, name, 0, "file.remove");
	if (r == -EISDIR || r == -EPERM) {
		q = io_unlinkat(dir, name, AT_REMOVEDIR, "file.remove");
		if (q == -ENOTEMPTY || q == -EEXIST)
			return 1;
		if (q != -ENOTDIR)
			r = q;
	}
	if (r == -EBUSY)
		return -EXDEV; /* it is a mount point */
	return r == -ENOENT ? 0 : r;
}

static int open_no_follow(int dir, const char *name)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
	int fd = open_file(dir, name, flags);

	if (fd == -EACCES && fchmodat(dir, name, DIR_MODE, AT_SYMLINK_NOFOLLOW) == 0)
		fd = open_file(dir, name, flags);
	return fd;
}

/* Kernels before 5.8 do not tell mount points; the device does, but for bind
 * mounts of the same file system. */
static int refuse_mount_point(int fd, const struct level *above)
{
	struct statx sx;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &sx) < 0)
		return -errno;
	if (sx.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT)
		return sx.stx_attributes & STATX_ATTR_MOUNT_ROOT ? -EXDEV : 0;
	if (above && makedev(sx.stx_dev_major, sx.stx_dev_minor) != above->dev)
		return -EXDEV;
	return 0;
}

static int level_open(struct level *l, int dir, const char *name, const struct level *above)
{
	cleanup_close int fd = -1;
	struct stat st;
	int r;

	fd = open_no_follow(dir, name);
	if (fd < 0)
		return fd;
	r = refuse_mount_point(fd, above);
	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return -errno;
	if ((st.st_mode & DIR_MODE) != DIR_MODE)
		(void)fchmod(fd, DIR_MODE); /* if it mattered, removing will fail */
	l->dev = st.st_dev;
	l->ino = st.st_ino;
	l->name = strdup(name);
	if (!l->name)
		return -ENOMEM;
	l->d = fdopendir(fd);
	if (!l->d)
		return -errno;
	(void)take_fd(&fd);
	return 0;
}

static int levels_push(struct levels *s, int dir, const char *name)
{
	struct level l = {0};
	int r;

	if (s->n == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : 16;
		struct level *v = reallocarray(s->v, cap, sizeof(*v));

		if (!v)
			return -ENOMEM;
		s->v = v;
		s->cap = cap;
	}
	r = level_open(&l, dir, name, s->n > 0 ? &s->v[s->n - 1] : NULL);
	if (r < 0) {
		level_done(&l);
		return r;
	}
	s->v[s->n++] = l;
	if (s->n > LEVELS_OPEN) {
		struct level *far = &s->v[s->n - 1 - LEVELS_OPEN];

		close_dir(&far->d);
		far->d = NULL;
	}
	return 0;
}

static int level_reopen(struct level *l, const struct level *below)
{
	cleanup_close int fd = -1;
	struct stat st;

	fd = open_no_follow(dirfd(below->d), "..");
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_dev != l->dev || st.st_ino != l->ino)
		return -ESTALE; /* somebody moved the tree that we remove */
	l->d = fdopendir(fd);
	if (!l->d)
		return -errno;
	(void)take_fd(&fd);
	return 0;
}

/* Leaves an emptied directory for the one above, and removes it there. */
static int levels_pop(struct levels *s, int dir)
{
	struct level *l = &s->v[s->n - 1], *above = s->n > 1 ? l - 1 : NULL;
	int r = 0;

	if (above && !above->d)
		r = level_reopen(above, l);
	if (r >= 0)
		r = io_unlinkat(above ? dirfd(above->d) : dir, l->name, AT_REMOVEDIR,
				"file.remove");
	level_done(l);
	s->n--;
	return r == -ENOENT ? 0 : r;
}

/* Removes what can be removed from d at once. 1: *ret_name, until the next call
 * on d, is a directory to enter. Passes are repeated, since a file system may
 * skip entries while others are being removed. */
static int remove_entries(DIR *d, const char **ret_name)
{
	struct dirent *e;
	bool any;
	int r;

	do {
		any = false;
		for (errno = 0; (e = readdir(d)) != NULL; errno = 0) {
			if (is_dot(e->d_name))
				continue;
			r = remove_entry(dirfd(d), e->d_name);
			*ret_name = e->d_name;
			if (r != 0)
				return r;
			any = true;
		}
		if (errno)
			return -errno;
		rewinddir(d);
	} while (any);
	return 0;
}

static int remove_below(struct levels *s, int dir)
{
	const char *name = NULL;
	int r;

	while (s->n > 0) {
		DIR *d = s->v[s->n - 1].d;

		r = remove_entries(d, &name);
		if (r == 1)
			r = levels_push(s, dirfd(d), name);
		else if (r == 0)
			r = levels_pop(s, dir);
		if (r < 0)
			return r;
	}
	return 0;
}

int file_remove_tree(int dir, const char *name)
{
	_cleanup_(levels_done) struct levels s = {0};
	const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
	int r;

	/* "x/.." is another directory, and "x/" follows a link. */
	if (!beneath_name_ok(last, strlen(last)))
		return -EINVAL;
	r = remove_entry(dir, name);
	if (r <= 0)
		return r;
	r = levels_push(&s, dir, name);
	if (r < 0)
		return r;
	return remove_below(&s, dir);
}
