#include "syncd/capture.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/clock.h"
#include "journal/node.h"

enum {
	TRIES = 3,
	LIST_BYTES_MAX = 64 * 1024,
};

/* ---- extended attributes ---- */

struct xattr_place {
	char path[64 + NAME_MAX]; /* for what cannot be opened */
	int fd;
};

static ssize_t place_list(const struct xattr_place *p, char *out, size_t n)
{
	return p->fd >= 0 ? flistxattr(p->fd, out, n) : llistxattr(p->path, out, n);
}

static ssize_t place_get(const struct xattr_place *p, const char *name, void *out, size_t n)
{
	return p->fd >= 0 ? fgetxattr(p->fd, name, out, n) : lgetxattr(p->path, name, out, n);
}

static bool starts(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* The bit of enum node_mask, 0 for what is not kept at all. */
static uint32_t xattr_class(const char *name)
{
	if (starts(name, "user.limb."))
		return 0;
	if (starts(name, "user."))
		return NODE_MASK_XATTR_USER;
	if (starts(name, "security.") || starts(name, "trusted."))
		return NODE_MASK_XATTR_TRUSTED;
	if (starts(name, "system.posix_acl_"))
		return NODE_MASK_XATTR_ACL;
	return 0;
}

static int name_order(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_xattr(const struct xattr_place *p, const char *name, size_t start, struct buf *text)
{
	size_t len = strlen(name);
	uint8_t *out;
	ssize_t n;
	int r;

	r = buf_reserve(text, 6 + len + NODE_XATTRS_MAX, &out);
	if (r < 0)
		return r;
	n = place_get(p, name, out + 6 + len, NODE_XATTRS_MAX);
	if (n < 0)
		return -errno;
	if (buf_len(text) - start + 6 + len + (size_t)n > NODE_XATTRS_MAX)
		return -E2BIG;
	put_le16(out, (uint16_t)len);
	memcpy(out + 2, name, len);
	put_le32(out + 2 + len, (uint32_t)n);
	buf_commit(text, 6 + len + (size_t)n);
	return 0;
}

static int sorted_names(char *list, size_t n, char ***ret, size_t *ret_n)
{
	size_t count = 0;
	char **names;

	for (size_t i = 0; i < n; i += strlen(list + i) + 1)
		count++;
	names = calloc(count + 1, sizeof(*names));
	if (!names)
		return -ENOMEM;
	count = 0;
	for (size_t i = 0; i < n; i += strlen(list + i) + 1)
		names[count++] = list + i;
	qsort(names, count, sizeof(*names), name_order);
	*ret = names;
	*ret_n = count;
	return 0;
}

static int add_xattrs(const struct xattr_place *p, struct capture *c, char *list, size_t n,
		      struct buf *text)
{
	cleanup_free char **names = NULL;
	size_t count;
	int r;

	r = sorted_names(list, n, &names, &count);
	if (r < 0)
		return r;
	for (size_t i = 0; i < count; i++) {
		uint32_t class = xattr_class(names[i]);

		if (!class || (class & c->unheld))
			continue;
		r = add_xattr(p, names[i], c->xattrs, text);
		if (r == -ENODATA)
			continue;
		if (r == -ENOMEM)
			return r;
		/* The journal keeps what it has of a kind that cannot be read whole. */
		if (r < 0)
			c->kept |= class;
	}
	return 0;
}

int capture_xattrs(int dir, int fd, struct capture *c, struct buf *text)
{
	struct xattr_place p = {.fd = fd};
	cleanup_free char *more = NULL;
	char list[1024];
	ssize_t n;
	int r;

	c->xattrs = buf_len(text);
	if (fd < 0)
		(void)snprintf(p.path, sizeof(p.path), "/proc/self/fd/%d/%s", dir,
			       *c->name ? c->name : ".");
	n = place_list(&p, list, sizeof(list));
	if (n < 0 && errno == ERANGE) {
		more = malloc(LIST_BYTES_MAX);
		if (!more)
			return -ENOMEM;
		n = place_list(&p, more, LIST_BYTES_MAX);
	}
	if (n < 0 && errno != EOPNOTSUPP && errno != ENOSYS)
		c->kept |= NODE_MASK_XATTR_USER | NODE_MASK_XATTR_ACL | NODE_MASK_XATTR_TRUSTED;
	if (n <= 0)
		return 0;
	r = add_xattrs(&p, c, more ? more : list, (size_t)n, text);
	c->xattrs_len = buf_len(text) - c->xattrs;
	return r;
}

/* ---- regular files ---- */

bool capture_is_sparse(const struct stamp *st)
{
	return st->size > CAPTURE_SPARSE_MIN && st->blocks_bytes + 4095 < st->size;
}

static bool is_expected(const struct stamp *st, const struct stamp *expect)
{
	return st->inode == expect->inode && st->device == expect->device &&
	       (st->mode & S_IFMT) == (expect->mode & S_IFMT);
}

int capture_open(int dir, struct capture *c, int *ret_fd)
{
	int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
	cleanup_close int fd = openat(dir, c->name, flags | O_NOATIME);
	int r;

	if (fd < 0 && errno == EPERM)
		fd = openat(dir, c->name, flags);
	if (fd < 0)
		return errno == ELOOP || errno == ENXIO ? -ESTALE : -errno;
	r = stamp_of(fd, &c->st);
	if (r < 0)
		return r;
	if (!is_expected(&c->st, &c->expect))
		return -ESTALE;
	*ret_fd = take_fd(&fd);
	return 0;
}

/* The whole file or -EFBIG. A file that shrinks meanwhile gives what is left. */
static int read_all(int fd, uint64_t size, struct buf *bulk, size_t *ret_len)
{
	size_t want = (size_t)size + 1, have = 0;
	uint8_t *p;
	int r;

	if (size > CAPTURE_INLINE_MAX)
		return -EFBIG;
	r = buf_reserve(bulk, want, &p);
	if (r < 0)
		return r;
	while (have < want) {
		ssize_t n = pread(fd, p + have, want - have, (off_t)have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		have += (size_t)n;
	}
	*ret_len = MIN(have, (size_t)size);
	/* One byte more than it should have: it grows, the next stat will tell. */
	return 0;
}

static int read_at_rest(int fd, struct capture *c, struct buf *bulk)
{
	for (int i = 0; i < TRIES; i++) {
		struct stamp after;
		size_t len = 0;
		int r;

		if (c->st.size > CAPTURE_INLINE_MAX || capture_is_sparse(&c->st)) {
			c->large = true;
			return 0;
		}
		r = read_all(fd, c->st.size, bulk, &len);
		if (r < 0)
			return r;
		r = stamp_of(fd, &after);
		if (r < 0)
			return r;
		c->torn = !stamp_same(&after, &c->st) || len != c->st.size;
		c->content_len = len;
		if (!c->torn || i == TRIES - 1)
			break;
		c->st = after;
	}
	/* What is sent has the size of what was read. */
	c->st.size = c->content_len;
	c->content = buf_len(bulk);
	buf_commit(bulk, c->content_len);
	sha256(buf_data(bulk) + c->content, c->content_len, c->sha);
	return 0;
}

/* 1: nothing but its attributes is needed. */
static int capture_unread(int dir, struct capture *c, struct buf *text)
{
	int r;

	if (!c->unread)
		return 0;
	r = stamp_at(dir, c->name, &c->st);
	if (r < 0)
		return r;
	c->unread = stamp_same(&c->st, &c->expect);
	if (!c->unread)
		return 0;
	r = capture_xattrs(dir, -1, c, text);
	return r < 0 ? r : 1;
}

static int capture_file(int dir, struct capture *c, struct buf *bulk, struct buf *text)
{
	cleanup_close int fd = -1;
	int r;

	r = capture_unread(dir, c, text);
	if (r != 0)
		return MIN(r, 0);
	r = capture_open(dir, c, &fd);
	if (r < 0)
		return r;
	if (c->mapped) {
		/* So that the next store to the mapping moves mtime. */
		(void)fdatasync(fd);
		r = stamp_of(fd, &c->st);
		if (r < 0)
			return r;
	}
	r = read_at_rest(fd, c, bulk);
	if (r < 0 || c->large)
		return r;
	return capture_xattrs(dir, fd, c, text);
}

/* ---- all else ---- */

static int capture_target(int dir, struct capture *c, struct buf *text)
{
	uint8_t *p;
	ssize_t n;
	int r;

	r = buf_reserve(text, PATH_MAX + 1, &p);
	if (r < 0)
		return r;
	n = readlinkat(dir, c->name, (char *)p, PATH_MAX + 1);
	if (n < 0)
		return errno == EINVAL ? -ESTALE : -errno;
	if (n == 0 || n > NODE_TARGET_MAX)
		return -ENAMETOOLONG;
	c->target = buf_len(text);
	c->target_len = (size_t)n;
	buf_commit(text, (size_t)n);
	sha256(p, (size_t)n, c->sha);
	return 0;
}

static int capture_other(int dir, struct capture *c, struct buf *text)
{
	int r;

	r = stamp_at(dir, c->name, &c->st);
	if (r < 0)
		return r;
	if (!is_expected(&c->st, &c->expect))
		return -ESTALE;
	if (S_ISLNK(c->st.mode)) {
		r = capture_target(dir, c, text);
		if (r < 0)
			return r;
	}
	return capture_xattrs(dir, -1, c, text);
}

void capture_entry(int dir, struct capture *c, struct buf *bulk, struct buf *text)
{
	uint64_t start_ns = clock_mono_ns();

	c->error = S_ISREG(c->expect.mode) ? capture_file(dir, c, bulk, text)
					   : capture_other(dir, c, text);
	c->cost_ns = clock_mono_ns() - start_ns;
}
