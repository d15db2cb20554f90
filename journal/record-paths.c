#include "journal/record-paths.h"

#include <search.h>

#include "journal/node.h"

struct place {
	uint64_t parent, node;
	size_t len;
	char name[];
};

/* Two trees over the same entries: each by its place, and of each node the one
 * that it got last. */
struct record_paths {
	void *by_place;
	void *by_node;
};

static int compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int compare_places(const void *a, const void *b)
{
	const struct place *x = a, *y = b;
	int r = compare(x->parent, y->parent);

	if (r == 0)
		r = compare(x->len, y->len);
	return r != 0 ? r : memcmp(x->name, y->name, x->len);
}

static int compare_nodes(const void *a, const void *b)
{
	return compare(((const struct place *)a)->node, ((const struct place *)b)->node);
}

struct record_paths *record_paths_new(void)
{
	return calloc(1, sizeof(struct record_paths));
}

static void keep(void *entry)
{
	(void)entry;
}

void record_paths_free(struct record_paths *p)
{
	if (!p)
		return;
	tdestroy(p->by_node, keep);
	tdestroy(p->by_place, free);
	free(p);
}

static struct place *entry_new(uint64_t parent, const void *name, size_t len, uint64_t node)
{
	struct place *e = malloc(sizeof(*e) + len);

	if (!e)
		return NULL;
	*e = (struct place){.parent = parent, .node = node, .len = len};
	if (len > 0)
		memcpy(e->name, name, len);
	return e;
}

static struct place *find_node(const struct record_paths *p, uint64_t node)
{
	const struct place key = {.node = node};
	struct place *const *found = tfind(&key, &p->by_node, compare_nodes);

	return found ? *found : NULL;
}

static void forget(struct record_paths *p, struct place *e)
{
	if (find_node(p, e->node) == e)
		(void)tdelete(e, &p->by_node, compare_nodes);
	(void)tdelete(e, &p->by_place, compare_places);
	free(e);
}

/* Takes the name away and says whose it was (0: nobody's). */
static int take_name(struct record_paths *p, uint64_t parent, const void *name, size_t len,
		     uint64_t *ret_node)
{
	struct place *key = entry_new(parent, name, len, 0), **found;

	if (!key)
		return -ENOMEM;
	found = tfind(key, &p->by_place, compare_places);
	*ret_node = found ? (*found)->node : 0;
	if (found)
		forget(p, *found);
	free(key);
	return 0;
}

static int give_name(struct record_paths *p, uint64_t parent, const void *name, size_t len,
		     uint64_t node)
{
	struct place *e, *last;
	uint64_t before;
	int r;

	r = take_name(p, parent, name, len, &before);
	if (r < 0)
		return r;
	e = entry_new(parent, name, len, node);
	if (!e)
		return -ENOMEM;
	if (!tsearch(e, &p->by_place, compare_places)) {
		free(e);
		return -ENOMEM;
	}
	last = find_node(p, node);
	if (last)
		(void)tdelete(last, &p->by_node, compare_nodes);
	if (!tsearch(e, &p->by_node, compare_nodes)) {
		forget(p, e);
		return -ENOMEM;
	}
	return 0;
}

int record_paths_apply(struct record_paths *p, const Limb__Op *op)
{
	uint64_t node;
	int r;

	switch (op->kind) {
	case LIMB__OP_KIND__OP_LINK:
		return give_name(p, op->parent, op->name.data, op->name.len, op->node);
	case LIMB__OP_KIND__OP_UNLINK:
		return take_name(p, op->parent, op->name.data, op->name.len, &node);
	case LIMB__OP_KIND__OP_MOVE:
		r = take_name(p, op->parent, op->name.data, op->name.len, &node);
		if (r < 0 || node == 0)
			return r;
		return give_name(p, op->to_parent, op->to_name.data, op->to_name.len, node);
	default: return 0;
	}
}

/* Puts text before what is in the buffer: paths are found from their end. */
static int prepend(struct buf *b, const void *data, size_t n)
{
	uint8_t *p;
	int r;

	if (buf_len(b) + n + 1 > RECORD_PATHS_MAX_BYTES)
		return -ENOENT;
	r = buf_reserve(b, n + 1, &p);
	if (r < 0)
		return r;
	p -= buf_len(b);
	memmove(p + n + 1, p, buf_len(b));
	if (n > 0)
		memcpy(p, data, n);
	p[n] = '/';
	buf_commit(b, n + 1);
	return 0;
}

int record_paths_of(const struct record_paths *p, uint64_t parent, const void *name, size_t len,
		    struct buf *out)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	int r;

	r = prepend(&b, name, len);
	while (r >= 0 && parent != NODE_ROOT) {
		const struct place *e = find_node(p, parent);

		if (!e)
			return -ENOENT;
		r = prepend(&b, e->name, e->len);
		parent = e->parent;
	}
	if (r < 0)
		return r;
	return buf_add(out, buf_data(&b), buf_len(&b) - 1);
}

int record_paths_of_node(const struct record_paths *p, uint64_t node, struct buf *out)
{
	const struct place *e;

	if (node == NODE_ROOT)
		return 0;
	e = find_node(p, node);
	return e ? record_paths_of(p, e->parent, e->name, e->len, out) : -ENOENT;
}
