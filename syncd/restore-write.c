#include "syncd/restore-write.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/sysmacros.h>

#include "base/beneath.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/sha256.h"
#include "base/text.h"
#include "base/util.h"
#include "syncd/attrs.h"
#include "wire/delta.h"

enum { REPORT_BYTES_MAX = 800 << 10, CHECK_BYTES = 256 << 10 };

/* ---- the report ---- */

void rreport_done(struct rreport *rep)
{
	for (size_t i = 0; i < rep->n; i++) {
		free(rep->list[i]->path.data);
		free(rep->list[i]);
	}
	free(rep->list);
	*rep = (struct rreport){0};
}

static int report_room(struct rreport *rep, size_t n)
{
	Limbwire__Restored__Unsupported **more;
	size_t cap = rep->cap ? rep->cap : 16;

	if (rep->n + n <= rep->cap)
		return 0;
	while (cap < rep->n + n)
		cap *= 2;
	more = realloc(rep->list, cap * sizeof(*more));
	if (!more)
		return -ENOMEM;
	rep->list = more;
	rep->cap = cap;
	return 0;
}

/* The list has to fit into one message; what is beyond is not named. */
void rreport_add(struct rreport *rep, const struct rentry *e, const char *field)
{
	Limbwire__Restored__Unsupported *u;
	char *path;

	if (rep->bytes > REPORT_BYTES_MAX || report_room(rep, 1) < 0)
		return;
	u = malloc(sizeof(*u));
	if (!u)
		return;
	if (rentry_path(e, &path) < 0) {
		free(u);
		return;
	}
	limbwire__restored__unsupported__init(u);
	u->path = (ProtobufCBinaryData){strlen(path), (uint8_t *)path};
	u->field = (char *)field;
	rep->list[rep->n++] = u;
	rep->bytes += u->path.len + strlen(field) + 16;
}

void rreport_fail(struct rreport *rep, const struct rentry *e, int error)
{
	cleanup_free char *path = NULL;

	if (rep->error != 0)
		return;
	rep->error = error;
	if (rentry_path(e, &path) == 0)
		(void)text_escape_into(rep->detail, sizeof(rep->detail), path, strlen(path));
}

void rreport_merge(struct rreport *to, struct rreport *from)
{
	to->files += from->files;
	to->file_bytes += from->file_bytes;
	to->found |= from->found;
	if (to->error == 0 && from->error != 0) {
		to->error = from->error;
		memcpy(to->detail, from->detail, sizeof(to->detail));
	}
	if (from->n > 0 && to->bytes <= REPORT_BYTES_MAX && report_room(to, from->n) == 0) {
		memcpy(to->list + to->n, from->list, from->n * sizeof(*from->list));
		to->n += from->n;
		to->bytes += from->bytes;
		from->n = 0;
	}
	rreport_done(from);
}

static void report_fields(struct rreport *rep, const struct rentry *e, uint32_t fields)
{
	for (uint32_t bit = 1; fields != 0; bit <<= 1) {
		if (fields & bit)
			rreport_add(rep, e, node_field_name((enum node_field)bit));
		fields &= ~bit;
	}
}

/* ---- where ---- */

void rwriter_done(struct rwriter *w)
{
	if (w->parent_fd >= 0)
		(void)close(w->parent_fd);
	w->parent_fd = -1;
	w->parent = NULL;
	buf_done(&w->xattrs);
}

static int open_dir(struct rwriter *w, const struct rentry *dir, int flags)
{
	cleanup_free char *path = NULL;
	int r = rentry_path(dir, &path);

	return r < 0 ? r : beneath_open(w->root, path, flags | O_DIRECTORY, 0);
}

/* Neighbours come one after the other, so one directory is kept open. */
static int parent_of(struct rwriter *w, const struct rentry *e)
{
	int fd;

	if (w->parent == e->parent && w->parent_fd >= 0)
		return w->parent_fd;
	fd = open_dir(w, e->parent, O_PATH);
	if (fd < 0)
		return fd;
	if (w->parent_fd >= 0)
		(void)close(w->parent_fd);
	w->parent_fd = fd;
	w->parent = e->parent;
	return fd;
}

/* ---- files and the like ---- */

static void failed(struct rentry *e, int r, struct rreport *rep)
{
	e->failed = true;
	/* A name that this file system cannot have, a kind it does not know: listed. */
	if (r == -ENAMETOOLONG || r == -EILSEQ || r == -EOPNOTSUPP || r == -EINVAL)
		rreport_add(rep, e, "missing");
	else
		rreport_fail(rep, e, r);
}

int rwrite_open(struct rwriter *w, struct rentry *e, struct rreport *rep)
{
	int dir = parent_of(w, e), fd;

	fd = dir < 0 ? dir
		     : openat(dir, e->bytes,
			      O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC,
			      0600);
	if (fd < 0) {
		failed(e, dir < 0 ? dir : -errno, rep);
		return -EIO;
	}
	return fd;
}

int rwrite_take_base(struct rwriter *w, struct rentry *e)
{
	int dir = parent_of(w, e), fd;

	if (dir < 0)
		return dir;
	fd = openat(dir, e->bytes, O_RDONLY | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	(void)unlinkat(dir, e->bytes, 0); /* if it stays, its successor cannot be made */
	return fd < 0 ? -errno : fd;
}

int rwrite_copy(int base, uint64_t from, int to, uint64_t at, uint64_t n, struct sha256_ctx *sha)
{
	cleanup_free uint8_t *bytes = malloc(CHECK_BYTES);
	int r = bytes ? 0 : -ENOMEM;

	while (r == 0 && n > 0) {
		size_t some = (size_t)MIN(n, (uint64_t)CHECK_BYTES);
		ssize_t got = io_pread_full(base, bytes, some, from, "restore.base");

		if (got != (ssize_t)some)
			return got < 0 ? (int)got : -ESTALE;
		sha256_update(sha, bytes, some);
		r = io_pwrite_full(to, bytes, some, at, "restore.write");
		from += some;
		at += some;
		n -= some;
	}
	return r;
}

void rwrite_undo(struct rwriter *w, struct rentry *e, int fd)
{
	int dir = parent_of(w, e);

	if (fd >= 0)
		(void)close(fd);
	if (dir >= 0)
		(void)unlinkat(dir, e->bytes, 0);
}

static void set_attrs(struct rwriter *w, struct rentry *e, int dir, int fd, bool is_new,
		      struct rreport *rep)
{
	Limbwire__TreeEntry *m;
	struct node n;
	int r;

	r = rentry_read(e, &w->xattrs, &m, &n);
	if (r < 0) {
		rreport_fail(rep, e, r);
		return;
	}
	report_fields(rep, e, attrs_set(dir, e->bytes, fd, &n, is_new));
	limbwire__tree_entry__free_unpacked(m, NULL);
}

void rwrite_finish(struct rwriter *w, struct rentry *e, int fd, struct rreport *rep)
{
	struct stat st;

	set_attrs(w, e, -1, fd, true, rep);
	if (fstat(fd, &st) == 0) {
		e->inode = st.st_ino;
		e->ctime_ns = clock_from_timespec(st.st_ctim);
		e->ours = true;
	}
	if (close(fd) < 0)
		failed(e, -errno, rep);
	rep->files++;
	rep->file_bytes += e->size_bytes;
}

void rwrite_file(struct rwriter *w, struct rentry *e, const void *data, size_t n,
		 struct rreport *rep)
{
	int fd, r;

	fd = rwrite_open(w, e, rep);
	if (fd < 0)
		return;
	r = n > 0 ? io_write_full(fd, data, n, "restore.write") : 0;
	if (r < 0) {
		(void)close(fd);
		failed(e, r, rep);
		return;
	}
	rwrite_finish(w, e, fd, rep);
}

void rwrite_special(struct rwriter *w, struct rentry *e, struct rreport *rep)
{
	Limbwire__TreeEntry *m;
	struct node n;
	int dir, r;

	dir = parent_of(w, e);
	r = dir < 0 ? dir : rentry_read(e, &w->xattrs, &m, &n);
	if (r < 0) {
		failed(e, r, rep);
		return;
	}
	r = attrs_make_special(dir, e->bytes, &n);
	if (r == -EPERM && (n.type == NODE_TYPE_CHAR || n.type == NODE_TYPE_BLOCK)) {
		e->failed = true;
		rreport_add(rep, e, node_field_name(NODE_FIELD_TYPE));
	} else if (r < 0) {
		failed(e, r, rep);
	} else {
		report_fields(rep, e, attrs_set(dir, e->bytes, -1, &n, true));
		rep->files++;
	}
	limbwire__tree_entry__free_unpacked(m, NULL);
}

/* Where the file system has no links the second name gets a copy: the content is there,
 * and the list says that they are apart. */
static int copy_instead(struct rwriter *w, struct rentry *e, int from_dir, struct rreport *rep)
{
	cleanup_close int in = -1;
	ssize_t n;
	int out;

	if (e->type != NODE_TYPE_FILE)
		return -EPERM;
	in = openat(from_dir, e->first->bytes, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (in < 0)
		return -errno;
	out = rwrite_open(w, e, rep);
	if (out < 0)
		return 0; /* reported */
	while ((n = copy_file_range(in, NULL, out, NULL, 1 << 30, 0)) > 0)
		;
	if (n < 0) {
		n = -errno;
		(void)close(out);
		return (int)n;
	}
	rwrite_finish(w, e, out, rep);
	e->ours = false; /* these are the bytes that the first name had just now */
	return 0;
}

static bool is_same_file(int a_dir, const char *a, int b_dir, const char *b)
{
	struct stat x, y;

	return fstatat(a_dir, a, &x, AT_SYMLINK_NOFOLLOW) == 0 &&
	       fstatat(b_dir, b, &y, AT_SYMLINK_NOFOLLOW) == 0 && x.st_ino == y.st_ino &&
	       x.st_dev == y.st_dev;
}

void rwrite_link(struct rwriter *w, struct rentry *e, struct rreport *rep)
{
	cleanup_close int from = -1;
	int dir, r = 0;

	if (e->first->failed) {
		e->failed = true;
		rreport_add(rep, e, "missing");
		return;
	}
	from = open_dir(w, e->first->parent, O_PATH);
	dir = parent_of(w, e);
	if (from < 0 || dir < 0) {
		failed(e, from < 0 ? from : dir, rep);
		return;
	}
	if (linkat(from, e->first->bytes, dir, e->bytes, 0) < 0) {
		r = -errno;
		if (r == -EEXIST && is_same_file(from, e->first->bytes, dir, e->bytes))
			return;
		if (r == -EEXIST && unlinkat(dir, e->bytes, 0) == 0)
			r = linkat(from, e->first->bytes, dir, e->bytes, 0) < 0 ? -errno : 0;
		if (r == -EPERM || r == -EMLINK || r == -EXDEV || r == -EOPNOTSUPP) {
			rreport_add(rep, e, node_field_name(NODE_FIELD_LINKS));
			r = copy_instead(w, e, from, rep);
		}
	}
	if (r < 0)
		failed(e, r, rep);
}

/* ---- what was there before ---- */

/* As the restore before has left it. */
static bool is_as_left(const struct rtree *t, const struct rentry *e, const struct stat *st)
{
	const struct rentry *b = t->base && e->same ? rtree_find(t->base, e->node) : NULL;

	return b && b->inode && b->inode == st->st_ino &&
	       b->ctime_ns == clock_from_timespec(st->st_ctim);
}

static bool hash_file(int fd, uint8_t hash[SHA256_BYTES])
{
	struct sha256_ctx *sha = sha256_new();
	uint8_t *bytes = malloc(CHECK_BYTES);
	ssize_t got = -ENOMEM;

	while (bytes && (got = io_read_some(fd, bytes, CHECK_BYTES, "restore.check")) > 0)
		sha256_update(sha, bytes, (size_t)got);
	if (got == 0)
		sha256_final(sha, hash);
	sha256_free(sha);
	free(bytes);
	return got == 0;
}

/* It may be what the content that is wanted has grown from. */
static void note_base(const struct rwriter *w, struct rentry *e, const struct stat *st,
		      const uint8_t *hash)
{
	if (!w->deltas || !hash || e->size_bytes < DELTA_PULL_MIN_BYTES || e->holes ||
	    (uint64_t)st->st_size < DELTA_PULL_MIN_BYTES)
		return;
	e->base = malloc(sizeof(*e->base));
	if (e->base)
		memcpy(e->base->sha, hash, SHA256_BYTES);
}

/* Never by names, sizes and times alone. Further names of one node are told by their inode
 * only where we made them ourselves, so such a file is made anew. */
static bool is_wanted(const struct rwriter *w, int dir, struct rentry *e, const struct node *n,
		      const struct stat *st, int *ret_fd)
{
	uint8_t hash[SHA256_BYTES];
	char target[NODE_TARGET_MAX + 1];
	ssize_t len;

	if (e->multi || st->st_nlink != 1)
		return false;
	switch (e->type) {
	case NODE_TYPE_FILE:
		if ((uint64_t)st->st_size != e->size_bytes &&
		    (!w->deltas ||
		     MIN((uint64_t)st->st_size, e->size_bytes) < DELTA_PULL_MIN_BYTES))
			return false;
		*ret_fd = openat(dir, e->bytes,
				 O_RDONLY | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
		if (*ret_fd < 0 || !hash_file(*ret_fd, hash))
			return false;
		if (memcmp(hash, n->content.sha256, sizeof(hash)) == 0)
			return true;
		note_base(w, e, st, hash);
		return false;
	case NODE_TYPE_SYMLINK:
		len = readlinkat(dir, e->bytes, target, sizeof(target));
		return len >= 0 && (size_t)len == n->target_len &&
		       memcmp(target, n->target, n->target_len) == 0;
	case NODE_TYPE_CHAR:
	case NODE_TYPE_BLOCK: return st->st_rdev == makedev(n->rdev_major, n->rdev_minor);
	default: return true;
	}
}

void rwrite_check(struct rwriter *w, const struct rtree *t, struct rentry *e, struct rreport *rep)
{
	cleanup_close int fd = -1;
	Limbwire__TreeEntry *m;
	struct node n;
	struct stat st;
	int dir, r;

	if (e->parent->fresh)
		return;
	dir = parent_of(w, e);
	if (dir < 0) {
		rreport_fail(rep, e, dir);
		return;
	}
	if (fstatat(dir, e->bytes, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	if (is_as_left(t, e, &st)) {
		e->kept = true;
		return;
	}
	r = rentry_read(e, &w->xattrs, &m, &n);
	if (r < 0) {
		rreport_fail(rep, e, r);
		return;
	}
	if (is_wanted(w, dir, e, &n, &st, &fd)) {
		e->kept = true;
		report_fields(rep, e, attrs_set(dir, e->bytes, fd, &n, false));
	} else if (!e->base && unlinkat(dir, e->bytes, 0) < 0 && errno != ENOENT) {
		rreport_fail(rep, e, -errno);
	}
	limbwire__tree_entry__free_unpacked(m, NULL);
}

int rwrite_stat(struct rwriter *w, const struct rentry *e, struct stat *ret)
{
	int dir;

	if (!e->parent)
		return fstat(w->root, ret) < 0 ? -errno : 0;
	dir = parent_of(w, e);
	if (dir < 0)
		return dir;
	return fstatat(dir, e->bytes, ret, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

/* ---- directories ---- */

int rwrite_clean(int root)
{
	char **names;
	size_t n;
	int r;

	r = file_list(root, ".", SIZE_MAX, &names, &n);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n && r == 0; i++)
		r = file_remove_tree(root, names[i]);
	file_names_free(names, n);
	return r;
}

/* Entries by their directory: those of number N are at [start[N - 1], start[N]). */
struct children {
	struct rentry **list;
	size_t *start;
};

static int by_name(const void *a, const void *b)
{
	const struct rentry *const *x = a, *const *y = b;

	return strcmp((*x)->bytes, (*y)->bytes);
}

static int children_index(const struct rtree *t, struct children *ret)
{
	size_t *fill;

	ret->list = calloc(t->n + 1, sizeof(*ret->list));
	ret->start = calloc(t->n + 2, sizeof(*ret->start));
	fill = calloc(t->n + 2, sizeof(*fill));
	if (!ret->list || !ret->start || !fill) {
		free(fill);
		return -ENOMEM;
	}
	for (size_t i = 1; i < t->n; i++)
		ret->start[t->entries[i]->parent->number]++;
	for (size_t i = 1; i <= t->n; i++)
		ret->start[i] += ret->start[i - 1];
	memcpy(fill, ret->start, (t->n + 1) * sizeof(*fill));
	for (size_t i = 1; i < t->n; i++) {
		struct rentry *e = t->entries[i];

		ret->list[fill[e->parent->number - 1]++] = e;
	}
	free(fill);
	return 0;
}

/* Of the tree's type, and, a directory, on this file system. */
static bool name_is_kept(const struct children *c, const struct rentry *dir, const char *name,
			 int dir_fd, dev_t dev)
{
	size_t start = c->start[dir->number - 1], n = c->start[dir->number] - start;
	struct rentry *key, **found;
	struct stat st;

	key = malloc(sizeof(*key) + strlen(name) + 1);
	if (!key)
		return false;
	memcpy(key->bytes, name, strlen(name) + 1);
	found = bsearch(&key, c->list + start, n, sizeof(*c->list), by_name);
	free(key);
	return found && fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       (st.st_mode & S_IFMT) == node_type_to_mode((*found)->type) && st.st_dev == dev;
}

/* What is not of the tree goes, on this file system only. */
static int prune_dir(struct rwriter *w, const struct children *c, struct rentry *dir, bool *ret_any)
{
	cleanup_close int fd = -1;
	size_t start = c->start[dir->number - 1], n;
	struct stat st;
	char **names;
	int r;

	qsort(c->list + start, c->start[dir->number] - start, sizeof(*c->list), by_name);
	fd = open_dir(w, dir, O_RDONLY);
	if (fd < 0)
		return fd;
	if (fchmod(fd, 0700) < 0 || fstat(fd, &st) < 0)
		return -errno;
	r = file_list(fd, ".", SIZE_MAX, &names, &n);
	if (r < 0)
		return r;
	dir->fresh = n == 0;
	for (size_t i = 0; i < n && r == 0; i++) {
		if (name_is_kept(c, dir, names[i], fd, st.st_dev))
			*ret_any = true;
		else
			r = file_remove_tree(fd, names[i]);
	}
	file_names_free(names, n);
	return r;
}

/* A directory of 0000 cannot be entered by a user who is not root. */
static int open_up(int dir, const char *name)
{
	return fchmodat(dir, name, 0700, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

void rwrite_dirs(struct rwriter *w, const struct rtree *t, bool prune, struct rreport *rep)
{
	struct children c = {0};
	int r = 0;

	if (prune)
		r = children_index(t, &c);
	if (r == 0 && prune && t->n > 0)
		r = prune_dir(w, &c, t->entries[0], &rep->found);
	if (r < 0)
		rreport_fail(rep, t->entries[0], r);
	for (size_t i = 1; i < t->n && rep->error == 0; i++) {
		struct rentry *e = t->entries[i];
		int dir;

		if (e->type != NODE_TYPE_DIRECTORY)
			continue;
		dir = parent_of(w, e);
		r = dir < 0 ? dir : mkdirat(dir, e->bytes, 0700) < 0 ? -errno : 0;
		e->fresh = r == 0;
		if (r == -EEXIST && prune) {
			r = open_up(dir, e->bytes);
			if (r == 0)
				r = prune_dir(w, &c, e, &rep->found);
		}
		if (r < 0)
			rreport_fail(rep, e, r);
	}
	free(c.list);
	free(c.start);
}

void rwrite_dir_attrs(struct rwriter *w, const struct rtree *t, struct rreport *rep)
{
	for (size_t i = t->n; i-- > 0;) {
		struct rentry *e = t->entries[i];
		cleanup_close int fd = -1;

		if (e->type != NODE_TYPE_DIRECTORY)
			continue;
		fd = open_dir(w, e, O_RDONLY);
		if (fd < 0)
			rreport_fail(rep, e, fd);
		else
			set_attrs(w, e, -1, fd, false, rep);
	}
}
