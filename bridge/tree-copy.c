#include "bridge/tree-copy.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/util.h"
#include "bridge/tree-copy-attr.h"

enum {
	PROGRESS_MS = 250,
	OPEN_DEPTH = 64, /* so many directories are open on each side; the others by ".." */
	RANGE_BYTES = 16 << 20,
	BLOCK_BYTES = 1 << 20,
	NAMES_MAX = 1 << 24,
	LEVELS_MAX = 1 << 20,
};

/* One directory on the way down. */
struct frame {
	int src, dst; /* -1: closed, opened again from below */
	char **names;
	size_t n, i;
	struct stat st;	    /* of src */
	struct stat dst_st; /* which directory it was */
};

static void frame_done(struct frame *f)
{
	if (f->src >= 0)
		(void)close(f->src);
	if (f->dst >= 0)
		(void)close(f->dst);
	file_names_free(f->names, f->n);
}

static struct frame *top(struct tree_copy *c)
{
	return &c->frames[c->depth - 1];
}

/* ---- what people are told ---- */

static void report(struct tree_copy *c, const char *name, const char *why)
{
	_cleanup_(buf_done) struct buf path = BUF_INIT(0);

	for (size_t i = 0; i + 1 < c->depth; i++) {
		(void)buf_add_str(&path, c->frames[i].names[c->frames[i].i - 1]);
		(void)buf_add_u8(&path, '/');
	}
	(void)buf_add_str(&path, name);
	if (c->report)
		c->report((const char *)buf_data(&path), buf_len(&path), why, c->userdata);
}

/* The source does not give it: left out. Gone meanwhile is no news. */
static int unreadable(struct tree_copy *c, const char *name, int r)
{
	if (r == -ENOENT)
		return 0;
	c->unreadable++;
	report(c, name, strerror(-r));
	return 0;
}

static int tell_progress(struct tree_copy *c)
{
	uint64_t now;

	if (!c->progress)
		return 0;
	now = clock_mono_ms();
	if (now < c->next_progress_ms)
		return 0;
	c->next_progress_ms = now + PROGRESS_MS;
	return c->progress(c, c->userdata);
}

/* ---- bytes ---- */

static bool range_unsupported(int e)
{
	return e == EXDEV || e == EINVAL || e == ENOSYS || e == EOPNOTSUPP || e == EPERM ||
	       e == ETXTBSY || e == EBADF;
}

static int copy_blocks(struct tree_copy *c, int in, int out, off_t from, off_t to)
{
	while (from < to) {
		size_t want = (size_t)MIN(to - from, (off_t)BLOCK_BYTES);
		ssize_t n = io_pread_full(in, c->block, want, (uint64_t)from, "copy.read");
		int r;

		if (n < 0)
			return (int)n;
		if (n == 0)
			return 0; /* it became shorter */
		r = io_pwrite_full(out, c->block, (size_t)n, (uint64_t)from, "copy.write");
		if (r >= 0)
			r = tell_progress(c);
		if (r < 0)
			return r;
		from += n;
		c->bytes += (uint64_t)n;
	}
	return 0;
}

static int copy_range(struct tree_copy *c, int in, int out, off_t from, off_t to)
{
	while (from < to) {
		off_t in_at = from, out_at = from;
		ssize_t n = copy_file_range(in, &in_at, out, &out_at,
					    (size_t)MIN(to - from, (off_t)RANGE_BYTES), 0);
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n == 0 || range_unsupported(errno)
				       ? copy_blocks(c, in, out, from, to)
				       : -errno;
		from += n;
		c->bytes += (uint64_t)n;
		r = tell_progress(c);
		if (r < 0)
			return r;
	}
	return 0;
}

static int copy_data(struct tree_copy *c, int in, int out, off_t size)
{
	off_t at = 0;

	while (at < size) {
		off_t data = lseek(in, at, SEEK_DATA), hole;
		int r;

		if (data < 0 && errno == ENXIO)
			break;
		if (data < 0) /* a file system without holes */
			data = at;
		hole = lseek(in, data, SEEK_HOLE);
		if (hole <= data || hole > size)
			hole = size;
		r = copy_range(c, in, out, data, hole);
		if (r < 0)
			return r;
		at = hole;
	}
	return io_ftruncate(out, (uint64_t)size, "copy.truncate");
}

/* ---- entries ---- */

static int open_source(int dir, const char *name, int flags)
{
	int fd;

	flags |= O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
	fd = openat(dir, name, flags | O_NOATIME);
	if (fd < 0 && errno == EPERM)
		fd = openat(dir, name, flags);
	return fd < 0 ? -errno : fd;
}

static bool same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static int add_refused(struct tree_copy *c, int r)
{
	if (r > 0)
		c->not_kept += (uint64_t)r;
	return MIN(r, 0);
}

/* Names that the target cannot hold are left out; anything else ends the copy. */
static int not_made(struct tree_copy *c, const char *name, int r)
{
	if (r != -ENAMETOOLONG && r != -EINVAL && r != -EILSEQ && r != -EPERM && r != -EOPNOTSUPP)
		return r;
	c->unreadable++;
	report(c, name, strerror(-r));
	return 0;
}

static int copy_file(struct tree_copy *c, const char *name)
{
	cleanup_close int in = -1, out = -1;
	struct stat st;
	int r;

	in = open_source(top(c)->src, name, 0);
	if (in < 0)
		return unreadable(c, name, in);
	if (fstat(in, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return unreadable(c, name, -ESTALE);
	out = openat(top(c)->dst, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (out < 0)
		return not_made(c, name, -errno);
	r = copy_data(c, in, out, st.st_size);
	if (r == -EIO || r == -EACCES || r == -ESTALE) {
		/* a file with part of its bytes is worse than none */
		(void)unlinkat(top(c)->dst, name, 0);
		return unreadable(c, name, r);
	}
	if (r < 0)
		return r;
	c->files++;
	return add_refused(c, tree_copy_attr_fd(in, out, &st));
}

static int copy_symlink(struct tree_copy *c, const char *name, const struct stat *st)
{
	char target[PATH_MAX + 1];
	ssize_t n = readlinkat(top(c)->src, name, target, PATH_MAX);

	if (n < 0)
		return unreadable(c, name, -errno);
	target[n] = '\0';
	if (symlinkat(target, top(c)->dst, name) < 0)
		return not_made(c, name, -errno);
	c->symlinks++;
	return add_refused(c, tree_copy_attr_at(top(c)->src, top(c)->dst, name, st));
}

static int copy_special(struct tree_copy *c, const char *name, const struct stat *st)
{
	if (mknodat(top(c)->dst, name, (st->st_mode & S_IFMT) | 0600, st->st_rdev) < 0)
		return not_made(c, name, -errno);
	c->others++;
	return add_refused(c, tree_copy_attr_at(top(c)->src, top(c)->dst, name, st));
}

/* ---- hard links ----
 * The first copy of a file with several names gets one more, in a directory beside
 * the target that is removed at the end: so each of them is found without its path,
 * however deep that is, and without a descriptor for each. */

static int open_links(struct tree_copy *c)
{
	int r;

	if (c->links_fd >= 0)
		return 0;
	r = file_remove_tree(c->parent_fd, c->links_name);
	if (r >= 0)
		r = file_make_dir(c->parent_fd, c->links_name);
	if (r >= 0)
		r = file_open_dir(c->parent_fd, c->links_name);
	if (r < 0)
		return r;
	c->links_fd = r;
	return 0;
}

static void link_name(char out[40], const struct stat *st)
{
	(void)snprintf(out, 40, "%llx-%llx", (unsigned long long)st->st_dev,
		       (unsigned long long)st->st_ino);
}

/* 1: made as another name of what was copied before. */
static int link_known(struct tree_copy *c, const char *name, const struct stat *st)
{
	char known[40];
	int r = open_links(c);

	if (r < 0)
		return r;
	link_name(known, st);
	if (linkat(c->links_fd, known, top(c)->dst, name, 0) < 0)
		return errno == ENOENT || errno == EMLINK ? 0 : -errno;
	if (S_ISREG(st->st_mode))
		c->files++;
	else if (S_ISLNK(st->st_mode))
		c->symlinks++;
	else
		c->others++;
	return 1;
}

static int link_remember(struct tree_copy *c, const char *name, const struct stat *st)
{
	char known[40];

	link_name(known, st);
	if (linkat(top(c)->dst, name, c->links_fd, known, 0) < 0 && errno != ENOENT &&
	    errno != EEXIST && errno != EMLINK)
		return -errno;
	return 0;
}

/* ---- directories ---- */

static int push(struct tree_copy *c, struct frame *f)
{
	if (c->depth == c->cap) {
		size_t cap = c->cap ? 2 * c->cap : 32;
		struct frame *frames = reallocarray(c->frames, cap, sizeof(*frames));

		if (!frames)
			return -ENOMEM;
		c->frames = frames;
		c->cap = cap;
	}
	c->frames[c->depth++] = *f;
	if (c->depth > OPEN_DEPTH) {
		struct frame *far = &c->frames[c->depth - 1 - OPEN_DEPTH];

		(void)close(far->src);
		(void)close(far->dst);
		far->src = far->dst = -1;
	}
	return 0;
}

static int open_parent(int fd, const struct stat *expected, int *ret_fd)
{
	cleanup_close int up = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (up < 0 || fstat(up, &st) < 0)
		return -errno;
	if (!same(&st, expected))
		return -ESTALE;
	*ret_fd = take_fd(&up);
	return 0;
}

/* The deepest directory is done: its attributes last, then back to the one above. */
static int pop(struct tree_copy *c)
{
	struct frame f = *top(c), *up;
	int r;

	r = add_refused(c, tree_copy_attr_fd(f.src, f.dst, &f.st));
	c->depth--;
	up = c->depth > 0 ? top(c) : NULL;
	if (r >= 0 && up && up->src < 0)
		r = open_parent(f.src, &up->st, &up->src);
	if (r >= 0 && up && up->dst < 0)
		r = open_parent(f.dst, &up->dst_st, &up->dst);
	frame_done(&f);
	return r;
}

static int enter(struct tree_copy *c, int src, int dst, const struct stat *st)
{
	struct frame f = {.src = src, .dst = dst, .st = *st};
	int r;

	if (c->depth >= LEVELS_MAX)
		r = -ENAMETOOLONG;
	else
		r = fstat(dst, &f.dst_st) < 0 ? -errno : 0;
	if (r >= 0) {
		c->directories++;
		r = file_list(src, ".", NAMES_MAX, &f.names, &f.n);
		if (r == -EACCES || r == -EIO) {
			c->unreadable++;
			report(c, c->depth ? top(c)->names[top(c)->i - 1] : ".", strerror(-r));
			f.n = 0;
			r = 0;
		}
	}
	if (r >= 0)
		r = push(c, &f);
	if (r < 0)
		frame_done(&f);
	return r;
}

/* Not opened, because of its mode: there it is, empty. */
static int copy_closed_dir(struct tree_copy *c, const char *name, const struct stat *st, int why)
{
	c->directories++;
	(void)unreadable(c, name, why);
	return add_refused(c, tree_copy_attr_at(top(c)->src, top(c)->dst, name, st));
}

static int copy_dir(struct tree_copy *c, const char *name, const struct stat *st)
{
	cleanup_close int src = -1, dst = -1;
	struct stat opened;

	if (mkdirat(top(c)->dst, name, 0700) < 0)
		return not_made(c, name, -errno);
	src = open_source(top(c)->src, name, O_DIRECTORY);
	if (src < 0)
		return copy_closed_dir(c, name, st, src);
	dst = openat(top(c)->dst, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (dst < 0 || fstat(src, &opened) < 0)
		return -errno;
	return enter(c, take_fd(&src), take_fd(&dst), &opened);
}

/* True for a directory or file on which something is mounted. */
static bool is_mount(struct tree_copy *c, const char *name, const struct stat *st)
{
	struct statx sx;

	if (st->st_dev != c->device)
		return true;
	return statx(top(c)->src, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_TYPE, &sx) ==
		       0 &&
	       (sx.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

static int copy_mount(struct tree_copy *c, const char *name, const struct stat *st)
{
	c->mounts++;
	report(c, name, "a mount point: what is mounted there is left out");
	if (!S_ISDIR(st->st_mode))
		return 0;
	c->directories++;
	return mkdirat(top(c)->dst, name, 0755) < 0 ? not_made(c, name, -errno) : 0;
}

static int copy_entry(struct tree_copy *c, const char *name)
{
	struct stat st;
	int r = 0;

	if (fstatat(top(c)->src, name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
		return unreadable(c, name, -errno);
	if ((S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)) && is_mount(c, name, &st))
		return copy_mount(c, name, &st);
	if (S_ISDIR(st.st_mode))
		return copy_dir(c, name, &st);
	if (st.st_nlink > 1) {
		r = link_known(c, name, &st);
		if (r != 0)
			return MIN(r, 0);
	}
	if (S_ISREG(st.st_mode))
		r = copy_file(c, name);
	else if (S_ISLNK(st.st_mode))
		r = copy_symlink(c, name, &st);
	else
		r = copy_special(c, name, &st);
	return r >= 0 && st.st_nlink > 1 ? link_remember(c, name, &st) : r;
}

static int walk(struct tree_copy *c)
{
	int r = 0;

	while (r >= 0 && c->depth > 0) {
		struct frame *f = top(c);

		if (f->i < f->n) {
			r = copy_entry(c, f->names[f->i++]);
			if (r >= 0)
				r = tell_progress(c);
		} else {
			r = pop(c);
		}
	}
	return r;
}

int tree_copy_run(struct tree_copy *c, int src, int dst_parent, const char *name, int dst)
{
	struct stat st;
	int r = 0, s = dup(src), d = dup(dst);

	c->links_fd = -1;
	c->parent_fd = dst_parent;
	c->block = malloc(BLOCK_BYTES);
	if (asprintf(&c->links_name, "%s.links", name) < 0)
		c->links_name = NULL;
	if (s < 0 || d < 0 || fstat(src, &st) < 0)
		r = -errno;
	else if (!c->block || !c->links_name)
		r = -ENOMEM;
	if (r >= 0) {
		c->device = st.st_dev;
		r = enter(c, s, d, &st);
		s = d = -1;
	}
	if (r >= 0)
		r = walk(c);
	while (c->depth > 0)
		frame_done(&c->frames[--c->depth]);
	if (s >= 0)
		(void)close(s);
	if (d >= 0)
		(void)close(d);
	if (c->links_fd >= 0) {
		int q = file_remove_tree(dst_parent, c->links_name);

		(void)close(c->links_fd);
		r = r < 0 ? r : q;
	}
	free(c->frames);
	free(c->block);
	free(c->links_name);
	return r;
}

int tree_copy_is_beneath(int inside, int outside)
{
	cleanup_close int fd = openat(inside, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat target, st, up_st;

	if (fd < 0 || fstat(outside, &target) < 0 || fstat(fd, &st) < 0)
		return -errno;
	while (!same(&st, &target)) {
		int up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);

		if (up < 0)
			return -errno;
		(void)close(fd);
		fd = up;
		if (fstat(fd, &up_st) < 0)
			return -errno;
		if (same(&up_st, &st))
			return 0;
		st = up_st;
	}
	return 1;
}
