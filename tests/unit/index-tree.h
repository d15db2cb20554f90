/*
 * index-tree.h - a small tree in an index, and what a tree looks like: a line
 * of "path", "path=size" for a file, "#n" for a further name of entry n.
 */
#ifndef TESTS_UNIT_INDEX_TREE_H
#define TESTS_UNIT_INDEX_TREE_H

#include "index-fixture.h"

static inline struct index_txn *read_begin(struct journal *j)
{
	struct index_txn *t = NULL;

	assert_int_equal(index_read_begin(j->ix, &t), 0);
	return t;
}

/* "path=content-size ..." of the tree, in order. */
static inline int add_line(const char *path, size_t len, const struct index_node *n,
			   uint32_t same_as, void *userdata)
{
	struct buf *b = userdata;

	assert_int_equal(buf_add(b, path, len), 0);
	if (n->n.type == NODE_TYPE_FILE)
		assert_int_equal(
			buf_printf(b, "=%llu", (unsigned long long)n->n.content.size_bytes), 0);
	if (same_as)
		assert_int_equal(buf_printf(b, "#%u", same_as), 0);
	return buf_add_u8(b, ' ');
}

static inline void assert_tree_at(struct journal *j, uint64_t at, const char *wanted)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	cleanup_free char *got = NULL;
	struct index_txn *t = read_begin(j);

	assert_int_equal(index_walk(t, NODE_ROOT, at, add_line, &b), 0);
	index_read_end(t);
	assert_int_equal(buf_to_str(&b, &got), 0);
	assert_string_equal(got, wanted);
}

static inline void assert_tree(struct journal *j, const char *wanted)
{
	assert_tree_at(j, INDEX_NOW, wanted);
}

static inline struct index_node get_node(struct journal *j, uint64_t node)
{
	struct index_txn *t = read_begin(j);
	struct index_node n;

	assert_int_equal(index_get_node(t, node, INDEX_NOW, &n), 0);
	index_read_end(t);
	n.n.target = NULL;
	n.n.xattrs = NULL;
	return n;
}

static inline void assert_refused(struct journal *j, int r, const char *why)
{
	assert_int_equal(r, -EINVAL);
	assert_string_equal(j->why, why);
}

/* d/f, d/s/g, and f again as h. */
static inline void small_tree(struct journal *j)
{
	assert_int_equal(journal_ops(j, op_dir(10), op_link(1, "d", 10), op_file(11, "abc"),
				     op_link(10, "f", 11), op_dir(12), op_link(10, "s", 12),
				     op_file(13, ""), op_link(12, "g", 13), op_link(1, "h", 11)),
			 0);
	assert_tree(j, "d d/f=3 d/s d/s/g=0 h=3#2 ");
}

static inline void reopen(struct journal *j)
{
	journal_close(j);
	journal_open(j);
}

#endif
