#include "fs/look.h"

#include "journal/node.h"

uint32_t look_mode(uint8_t node_type, uint32_t mode)
{
	uint32_t rx = mode & 0500;

	if (node_type == NODE_TYPE_SYMLINK)
		return 0777;
	return rx | rx >> 3 | rx >> 6;
}

struct piece {
	const char *p;
	size_t n;
};

/* The next component of a path that is not empty and not "."; n 0: the end. */
static struct piece next_piece(const char **pos, const char *end)
{
	for (;;) {
		struct piece c = {.p = *pos};

		while (c.p < end && *c.p == '/')
			c.p++;
		while (c.p + c.n < end && c.p[c.n] != '/')
			c.n++;
		*pos = c.p + c.n;
		if (c.n != 1 || c.p[0] != '.')
			return c;
	}
}

static bool is_up(struct piece c)
{
	return c.n == 2 && c.p[0] == '.' && c.p[1] == '.';
}

bool look_target_plain(const void *target, size_t n)
{
	const char *pos = target, *end = pos + n;
	struct piece c;

	if (n > 0 && *pos == '/')
		return false;
	while ((c = next_piece(&pos, end)).n > 0)
		if (is_up(c))
			return false;
	return true;
}

/* A path without "." and with ".." at the front only. */
struct path {
	size_t ups, n;
	struct piece pieces[NODE_TARGET_MAX / 2 + 1];
};

/* What stands before a ".." goes with it, even if it is a link there: a ".." behind a name
 * could lead anywhere. */
static void collapse(const char *p, size_t n, struct path *ret)
{
	const char *pos = p, *end = p + n;
	struct piece c;

	ret->ups = ret->n = 0;
	while ((c = next_piece(&pos, end)).n > 0) {
		if (!is_up(c))
			ret->pieces[ret->n++] = c;
		else if (ret->n > 0)
			ret->n--;
		else
			ret->ups++;
	}
}

/* How many of the path's names are the root's own, 0 when it lies elsewhere. */
static size_t beneath(const struct path *path, const char *root)
{
	const char *pos = root, *end = root + strlen(root);
	struct piece c;
	size_t i = 0;

	while ((c = next_piece(&pos, end)).n > 0) {
		if (i == path->n || path->pieces[i].n != c.n ||
		    memcmp(path->pieces[i].p, c.p, c.n) != 0)
			return 0;
		i++;
	}
	return i;
}

static int add_path(const struct path *path, size_t first, bool is_directory, struct buf *out)
{
	size_t before = buf_len(out);
	int r = 0;

	for (size_t i = 0; r >= 0 && i < path->ups; i++)
		r = buf_add_str(out, i ? "/.." : "..");
	for (size_t i = first; r >= 0 && i < path->n; i++) {
		if (buf_len(out) > before)
			r = buf_add_str(out, "/");
		if (r >= 0)
			r = buf_add(out, path->pieces[i].p, path->pieces[i].n);
	}
	if (r >= 0 && buf_len(out) == before)
		r = buf_add_str(out, ".");
	else if (r >= 0 && is_directory)
		r = buf_add_str(out, "/");
	if (r >= 0 && buf_len(out) - before > NODE_TARGET_MAX)
		r = -ENAMETOOLONG;
	return r;
}

int look_target(const void *target, size_t n, const char *root, size_t depth, struct buf *out)
{
	cleanup_free struct path *path = NULL;
	const char *p = target;
	size_t first = 0;

	if (look_target_plain(target, n))
		return buf_add(out, target, n);
	if (n > NODE_TARGET_MAX)
		return -ENAMETOOLONG;
	path = malloc(sizeof(*path));
	if (!path)
		return -ENOMEM;
	collapse(p, n, path);
	if (*p == '/') {
		if (root)
			first = beneath(path, root);
		path->ups = depth;
	} else {
		path->ups = MIN(path->ups, depth);
	}
	return add_path(path, first, n > 1 && p[n - 1] == '/', out);
}
