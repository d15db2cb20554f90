#include "brain/resolve.h"

#include <stdio.h>

struct walk {
	const char *root;
	struct index_txn *t;
	uint64_t at;
	char *todo, *next; /* what is left of the path; owned, and where we are in it */
	char *done;	   /* without links; "" is the root */
	uint64_t node;	   /* of done; 0: not there */
	unsigned links;
};

static int lookup_done(struct walk *w)
{
	int r = index_lookup_path(w->t, w->done, strlen(w->done), w->at, &w->node);

	if (r == -ENOENT) {
		w->node = 0;
		r = 0;
	}
	return r;
}

static int go_up(struct walk *w)
{
	char *slash = strrchr(w->done, '/');

	if (!w->node)
		return -ENOENT;
	if (!w->done[0])
		return -EXDEV;
	if (slash)
		*slash = 0;
	else
		w->done[0] = 0;
	return lookup_done(w);
}

static int go_down(struct walk *w, const char *name, size_t len, uint64_t node)
{
	char *s;

	if (asprintf(&s, "%s%s%.*s", w->done, w->done[0] ? "/" : "", (int)len, name) < 0)
		return -ENOMEM;
	free(w->done);
	w->done = s;
	w->node = node;
	return 0;
}

/* The link's target takes the place of its name. */
static int go_along(struct walk *w, const uint8_t *target, size_t len)
{
	size_t skip = 0;
	char *todo;

	if (++w->links > RESOLVE_LINKS_MAX)
		return -ELOOP;
	if (len && target[0] == '/') {
		skip = strlen(w->root);
		if (!skip || len < skip || memcmp(target, w->root, skip) != 0 ||
		    (len > skip && target[skip] != '/'))
			return -EXDEV;
		w->done[0] = 0;
		w->node = NODE_ROOT;
	}
	if (asprintf(&todo, "%.*s/%s", (int)(len - skip), (const char *)target + skip, w->next) < 0)
		return -ENOMEM;
	free(w->todo);
	w->todo = w->next = todo;
	return 0;
}

static int step(struct walk *w, const char *name, size_t len, bool follow)
{
	struct index_node n;
	uint64_t node;
	int r;

	if (len == 1 && *name == '.')
		return 0;
	if (len == 2 && memcmp(name, "..", 2) == 0)
		return go_up(w);
	if (!w->node)
		return go_down(w, name, len, 0);
	r = index_get_node(w->t, w->node, w->at, &n);
	if (r == 0 && n.n.type != NODE_TYPE_DIRECTORY)
		r = -ENOTDIR;
	if (r < 0)
		return r;
	r = index_lookup(w->t, w->node, name, len, w->at, &node);
	if (r == -ENOENT)
		return go_down(w, name, len, 0);
	if (r == 0)
		r = index_get_node(w->t, node, w->at, &n);
	if (r < 0)
		return r;
	if (n.n.type == NODE_TYPE_SYMLINK && follow)
		return go_along(w, n.n.target, n.n.target_len);
	return go_down(w, name, len, node);
}

static int walk(struct walk *w, bool follow_last)
{
	int r = 0;

	while (r == 0) {
		const char *name;
		size_t len;

		w->next += strspn(w->next, "/");
		len = strcspn(w->next, "/");
		if (len == 0)
			return 0;
		if (len > NODE_NAME_MAX)
			return -ENAMETOOLONG;
		name = w->next;
		w->next += len;
		r = step(w, name, len, follow_last || w->next[strspn(w->next, "/")] != '\0');
	}
	return r;
}

int resolve_path(const char *root, struct index_txn *t, uint64_t at, const char *path,
		 bool follow_last, struct buf *out, uint64_t *ret_node)
{
	struct walk w = {.root = root, .t = t, .at = at, .node = NODE_ROOT};
	int r = -ENOMEM;

	w.todo = w.next = strdup(path);
	w.done = strdup("");
	if (w.todo && w.done)
		r = walk(&w, follow_last);
	if (r == 0)
		r = buf_add_str(out, w.done);
	if (r == 0)
		*ret_node = w.node;
	free(w.todo);
	free(w.done);
	return r;
}
