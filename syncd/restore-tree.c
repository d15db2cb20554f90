#include "syncd/restore-tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/beneath.h"
#include "base/util.h"
#include "wire/attr.h"

static int bad(const char **ret_why, const char *why)
{
	*ret_why = why;
	return -EBADMSG;
}

/* Pre-order: the directory is the last entry or one of those above it. */
static struct rentry *find_parent(const struct rtree *t, uint64_t node)
{
	struct rentry *e = t->n > 0 ? t->entries[t->n - 1] : NULL;

	while (e && (e->node != node || e->type != NODE_TYPE_DIRECTORY))
		e = e->parent;
	return e;
}

static int check(struct rtree *t, const Limbwire__TreeEntry *m, struct node *n,
		 struct rentry **ret_parent, struct rentry **ret_first, const char **ret_why)
{
	_cleanup_(buf_done) struct buf xattrs = BUF_INIT(NODE_XATTRS_MAX);
	int r;

	r = wire_attr_parse(m->attr, m->content, &xattrs, n, ret_why);
	if (r < 0)
		return r;
	if (t->n >= RTREE_ENTRIES_MAX)
		return bad(ret_why, "too many entries");
	if (t->n == 0) {
		if (m->name.len != 0 || n->type != NODE_TYPE_DIRECTORY)
			return bad(ret_why, "the first entry is not a root");
		return 0;
	}
	if (!beneath_name_ok((const char *)m->name.data, m->name.len))
		return bad(ret_why, "not a name");
	*ret_parent = find_parent(t, m->parent);
	if (!*ret_parent)
		return bad(ret_why, "an entry before its directory");
	if (m->same_as != 0) {
		if (m->same_as > t->n)
			return bad(ret_why, "a name of a later node");
		*ret_first = t->entries[m->same_as - 1];
		if ((*ret_first)->first || (*ret_first)->type != n->type ||
		    n->type == NODE_TYPE_DIRECTORY)
			return bad(ret_why, "names of different nodes");
	}
	return 0;
}

static int add(struct rtree *t, const Limbwire__TreeEntry *m, bool same, const char **ret_why)
{
	struct rentry *parent = NULL, *first = NULL, *e;
	size_t packed = limbwire__tree_entry__get_packed_size(m);
	struct node n;
	int r;

	r = check(t, m, &n, &parent, &first, ret_why);
	if (r < 0)
		return r;
	if (t->n == t->cap) {
		size_t cap = t->cap ? 2 * t->cap : 1024;
		struct rentry **more = realloc(t->entries, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		t->entries = more;
		t->cap = cap;
	}
	e = malloc(sizeof(*e) + m->name.len + 1 + packed);
	if (!e)
		return -ENOMEM;
	*e = (struct rentry){
		.parent = parent,
		.first = first,
		.node = m->node,
		.size_bytes = n.type == NODE_TYPE_FILE ? n.content.size_bytes : 0,
		.number = (uint32_t)t->n + 1,
		.packed_len = (uint32_t)packed,
		.type = n.type,
		.holes = n.content.holes,
		.same = same,
		.name_len = (uint16_t)m->name.len,
	};
	if (first)
		first->multi = true;
	if (m->name.len > 0)
		memcpy(e->bytes, m->name.data, m->name.len);
	e->bytes[m->name.len] = 0;
	(void)limbwire__tree_entry__pack(m, (uint8_t *)e->bytes + m->name.len + 1);
	t->entries[t->n++] = e;
	t->bytes += sizeof(*e) + m->name.len + 1 + packed;
	return 0;
}

/* Attributes and content are those of the tree before. */
static int add_same(struct rtree *t, const Limbwire__TreeEntry *m, const char **ret_why)
{
	const struct rentry *before = t->base ? rtree_find(t->base, m->node) : NULL;
	Limbwire__TreeEntry whole = *m, *had;
	int r;

	if (!before || m->attr || m->content)
		return bad(ret_why, "an entry as before that was not there before");
	had = limbwire__tree_entry__unpack(NULL, before->packed_len,
					   (const uint8_t *)before->bytes + before->name_len + 1);
	if (!had)
		return -ENOMEM;
	whole.attr = had->attr;
	whole.content = had->content;
	whole.version = had->version;
	whole.same = false;
	r = add(t, &whole, true, ret_why);
	limbwire__tree_entry__free_unpacked(had, NULL);
	return r;
}

int rtree_add(struct rtree *t, const Limbwire__TreeEntry *m, const char **ret_why)
{
	return m->same ? add_same(t, m, ret_why) : add(t, m, false, ret_why);
}

static int by_node(const void *a, const void *b)
{
	const struct rentry *const *x = a, *const *y = b;

	return (*x)->node < (*y)->node ? -1 : (*x)->node > (*y)->node;
}

int rtree_sort(struct rtree *t)
{
	t->by_node = calloc(t->n + 1, sizeof(struct rentry *));
	if (!t->by_node)
		return -ENOMEM;
	t->n_by_node = 0;
	for (size_t i = 0; i < t->n; i++)
		if (!t->entries[i]->first)
			t->by_node[t->n_by_node++] = t->entries[i];
	qsort(t->by_node, t->n_by_node, sizeof(struct rentry *), by_node);
	return 0;
}

struct rentry *rtree_find(const struct rtree *t, uint64_t node)
{
	struct rentry key = {.node = node}, *k = &key, **found;

	if (!t->by_node)
		return NULL;
	found = bsearch(&k, t->by_node, t->n_by_node, sizeof(struct rentry *), by_node);
	return found ? *found : NULL;
}

void rtree_done(struct rtree *t)
{
	for (size_t i = 0; i < t->n; i++) {
		free(t->entries[i]->base);
		free(t->entries[i]);
	}
	free(t->entries);
	free(t->by_node);
	*t = (struct rtree){0};
}

int rentry_read(const struct rentry *e, struct buf *xattrs, Limbwire__TreeEntry **ret_m,
		struct node *ret)
{
	Limbwire__TreeEntry *m;
	const char *why;
	int r;

	m = limbwire__tree_entry__unpack(NULL, e->packed_len,
					 (const uint8_t *)e->bytes + e->name_len + 1);
	if (!m)
		return -ENOMEM;
	buf_clear(xattrs);
	r = wire_attr_parse(m->attr, m->content, xattrs, ret, &why);
	if (r < 0) {
		limbwire__tree_entry__free_unpacked(m, NULL);
		return r;
	}
	*ret_m = m;
	return 0;
}

int rentry_path(const struct rentry *e, char **ret)
{
	size_t n = 0;
	char *out, *p;

	for (const struct rentry *x = e; x->parent; x = x->parent)
		n += x->name_len + 1u;
	out = malloc(n + 1);
	if (!out)
		return -ENOMEM;
	p = out + n;
	*p = 0;
	for (const struct rentry *x = e; x->parent; x = x->parent) {
		p -= x->name_len + 1u;
		memcpy(p, x->bytes, x->name_len);
		p[x->name_len] = x == e ? 0 : '/';
	}
	*ret = out;
	return 0;
}
