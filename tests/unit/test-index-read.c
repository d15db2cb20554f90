#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "index-tree.h"

/* ---- large and deep ---- */

static int count_recent(const struct index_recent *r, void *userdata)
{
	(void)r;
	++*(size_t *)userdata;
	return 0;
}

/* A subtree of any size goes in one change; its past stays whole; and a follower is told
 * to look at everything. */
static void a_large_subtree_goes(void **state)
{
	enum { DIRS = 60, FILES_EACH = 100 };
	struct index_counts counts;
	struct index_txn *t;
	uint64_t node = 100, seq;
	struct journal j;
	char name[16];
	size_t n = 0;

	journal_open(&j);
	assert_int_equal(journal_ops(&j, op_dir(10), op_link(1, "top", 10)), 0);
	assert_int_equal(index_begin(j.ix), 0);
	for (int d = 0; d < DIRS; d++) {
		uint64_t dir = node++;
		(void)snprintf(name, sizeof(name), "%d", d);
		struct change_op make[] = {op_dir(dir),
					   op_link(d % 3 ? dir - FILES_EACH - 1 : 10, name, dir)};
		assert_int_equal(journal_apply(&j, &(struct change){.ops = make, .n_ops = 2}), 0);
		for (int f = 0; f < FILES_EACH; f++, node++) {
			struct change_op ops[] = {op_file(node, "x"), op_link(dir, "", node)};
			(void)snprintf(name, sizeof(name), "f%d", f);
			ops[1] = op_link(dir, name, node);
			assert_int_equal(
				journal_apply(&j, &(struct change){.ops = ops, .n_ops = 2}), 0);
		}
	}
	assert_int_equal(index_commit(j.ix), 0);
	/* One of its files lives on by another name. */
	assert_int_equal(journal_ops(&j, op_link(1, "kept", node - 1)), 0);
	seq = log_last(j.log);
	assert_int_equal(journal_ops(&j, op_unlink(1, "top")), 0);
	assert_tree(&j, "kept=1 ");
	assert_int_equal(get_node(&j, node - 1).links, 1);
	t = read_begin(&j);
	assert_int_equal(index_counts(t, &counts), 0);
	assert_true(counts.files == 1 && counts.directories == 0 && counts.bytes == 1);
	assert_int_equal(index_recent(t, seq, count_recent, &n), -EOVERFLOW);
	assert_int_equal(index_recent(t, seq + 1, count_recent, &n), 0);
	assert_int_equal(n, 0);
	index_read_end(t);
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	t = read_begin(&j);
	assert_int_equal(index_walk(t, NODE_ROOT, seq, add_line, &b), 0);
	index_read_end(t);
	for (size_t i = 0; i < buf_len(&b); i++)
		n += buf_data(&b)[i] == ' ';
	assert_int_equal(n, 1 + DIRS + DIRS * FILES_EACH + 1);
	journal_close(&j);
}

/* Directories nested deeper than any stack or PATH_MAX would bear are walked, named and
 * removed; beyond INDEX_PATH_MAX they are refused, not truncated. */
static void deep_trees(void **state)
{
	enum { DEPTH = 20000 };
	_cleanup_(buf_done) struct buf path = BUF_INIT(0), lines = BUF_INIT(0);
	struct index_txn *t;
	struct journal j;
	uint64_t node, parent = 1, half = 0;

	journal_open(&j);
	assert_int_equal(index_begin(j.ix), 0);
	for (node = 2; node < 2 + DEPTH; node++) {
		struct change_op ops[] = {op_dir(node), op_link(parent, "d", node)};
		assert_int_equal(journal_apply(&j, &(struct change){.ops = ops, .n_ops = 2}), 0);
		parent = node;
	}
	assert_int_equal(index_commit(j.ix), 0);
	t = read_begin(&j);
	assert_int_equal(index_path(t, parent, &path), 0);
	assert_int_equal(buf_len(&path), 2 * DEPTH - 1);
	assert_int_equal(index_lookup_path(t, (const char *)buf_data(&path), buf_len(&path),
					   INDEX_NOW, &node),
			 0);
	assert_int_equal(node, parent);
	half = 2 + DEPTH / 2;
	assert_int_equal(index_walk(t, half, INDEX_NOW, add_line, &lines), 0);
	index_read_end(t);
	/* A cycle this long is not looked for. */
	assert_refused(&j, journal_ops(&j, op_move(half, "d", parent, "x")),
		       "directories are nested too deep");
	assert_int_equal(journal_ops(&j, op_unlink(1, "d")), 0);
	assert_tree(&j, "");
	journal_close(&j);
}

static void paths_beyond_the_limit(void **state)
{
	static char name[NODE_NAME_MAX + 1];
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	uint8_t hash[SHA256_BYTES];
	struct index_txn *t;
	struct journal j;
	uint64_t node;

	memset(name, 'n', NODE_NAME_MAX);
	journal_open(&j);
	for (node = 2; node < 2 + 256; node++) {
		assert_int_equal(journal_ops(&j, op_dir(node), op_link(node - 1, name, node)), 0);
	}
	t = read_begin(&j);
	assert_int_equal(index_path(t, node - 1, &b), 0); /* 256 * 256 - 1 bytes */
	assert_int_equal(buf_len(&b), INDEX_PATH_MAX - 1);
	assert_int_equal(index_tree_hash(t, INDEX_NOW, 0, hash, hash), 0);
	index_read_end(t);
	assert_int_equal(journal_ops(&j, op_dir(node), op_link(node - 1, "x", node)), 0);
	t = read_begin(&j);
	buf_clear(&b);
	assert_int_equal(index_path(t, node, &b), -ENAMETOOLONG);
	assert_int_equal(buf_len(&b), 0);
	assert_int_equal(index_tree_hash(t, INDEX_NOW, 0, hash, hash), -ENAMETOOLONG);
	index_read_end(t);
	journal_close(&j);
}

/* ---- reading ---- */

static int stop_with(const char *name, size_t len, uint64_t node, void *userdata)
{
	(void)name;
	(void)len;
	(void)node;
	return *(int *)userdata;
}

/* Paths: empty components are passed over, a file is no directory, and an error of a
 * callback is the answer. */
static void paths_and_callbacks(void **state)
{
	struct index_txn *t;
	struct journal j;
	uint64_t node;
	int stop = -ENOENT;

	journal_open(&j);
	small_tree(&j);
	t = read_begin(&j);
#define LOOKUP(path) index_lookup_path(t, path, strlen(path), INDEX_NOW, &node)
	assert_int_equal(LOOKUP(""), 0);
	assert_int_equal(node, NODE_ROOT);
	assert_int_equal(LOOKUP("/d//s/"), 0);
	assert_int_equal(node, 12);
	assert_int_equal(LOOKUP("d/x"), -ENOENT);
	assert_int_equal(LOOKUP("d/x/y"), -ENOENT);
	assert_int_equal(LOOKUP("h/x"), -ENOTDIR);
	assert_int_equal(LOOKUP(".."), -ENOENT);
#undef LOOKUP
	assert_int_equal(index_lookup_path(t, "d\0s", 3, 1, &node), -ENOENT);
	assert_int_equal(index_lookup(t, 10, "f\0", 2, 0, &node), -ENOENT);
	assert_int_equal(index_list(t, 10, NULL, 0, INDEX_NOW, stop_with, &stop), -ENOENT);
	stop = 1;
	assert_int_equal(index_list(t, 10, NULL, 0, 1, stop_with, &stop), 0);
	assert_int_equal(index_walk(t, 11, INDEX_NOW, add_line, NULL), -ENOTDIR);
	assert_int_equal(index_walk(t, 99, INDEX_NOW, add_line, NULL), -ENOENT);
	index_read_end(t);
	journal_close(&j);
}

/* What a transaction changed is seen by its own reader at once, by others after the
 * commit, and by nobody after an abort. */
static void transactions(void **state)
{
	struct change_op ops[] = {op_file(5, "x"), op_link(1, "a", 5)};
	struct change c = {.ops = ops, .n_ops = 2};
	struct index_txn *before, *t;
	struct journal j;
	uint64_t node;

	journal_open(&j);
	assert_null(index_writer_txn(j.ix));
	assert_int_equal(index_commit(j.ix), -EBADFD);
	assert_int_equal(index_apply_change(j.ix, 1, 1, &c), -EBADFD);
	before = read_begin(&j);
	assert_int_equal(index_begin(j.ix), 0);
	assert_int_equal(index_begin(j.ix), -EBADFD);
	assert_int_equal(index_apply_change(j.ix, 1, 1, &c), 0);
	assert_int_equal(index_apply_change(j.ix, 1, 1, &c), -EINVAL); /* 1 was applied */
	assert_int_equal(index_lookup(index_writer_txn(j.ix), 1, "a", 1, INDEX_NOW, &node), 0);
	assert_int_equal(index_seq(index_writer_txn(j.ix)), 1);
	assert_int_equal(index_lookup(before, 1, "a", 1, INDEX_NOW, &node), -ENOENT);
	index_abort(j.ix);
	assert_tree(&j, "");
	index_read_end(before);
	t = read_begin(&j);
	assert_int_equal(index_seq(t), 0);
	index_read_end(t);
	journal_close(&j);
}

static int count_entry(const char *name, size_t len, uint64_t node, void *userdata)
{
	(void)name;
	(void)len;
	(void)node;
	++*(uint64_t *)userdata;
	return 0;
}

struct watcher {
	struct index *ix;
	_Atomic bool stop;
	_Atomic unsigned rounds, wrong;
};

/* Assertions are for the main thread: what is wrong is counted. */
static void *watch(void *arg)
{
	struct watcher *w = arg;

	while (!w->stop) {
		struct index_counts c;
		struct index_txn *t;
		uint64_t n = 0;

		if (index_read_begin(w->ix, &t) < 0) {
			w->wrong++;
			break;
		}
		/* One file is there for good; each change adds or removes two at once. */
		w->wrong += index_counts(t, &c) < 0 ||
			    index_list(t, 1, NULL, 0, INDEX_NOW, count_entry, &n) < 0 ||
			    n != c.files || n % 2 != 1;
		w->wrong += index_list(t, 1, NULL, 0, 1, count_entry, &n) < 0 || n != c.files + 1;
		index_read_end(t);
		w->rounds++;
	}
	return NULL;
}

/* Readers in other threads see whole commits only, now and of the past, and stay at what
 * they saw first. */
static void readers_in_threads(void **state)
{
	struct watcher w = {0};
	pthread_t threads[3];
	struct journal j;
	uint64_t node = 10;

	journal_open(&j);
	assert_int_equal(journal_ops(&j, op_file(2, "x"), op_link(1, "always", 2)), 0);
	w.ix = j.ix;
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, watch, &w), 0);
	for (int i = 0; i < 400 || (w.rounds < 300 && !w.wrong); i++, node += 2) {
		assert_int_equal(journal_ops(&j, op_file(node, "x"), op_link(1, "a", node),
					     op_file(node + 1, "x"), op_link(1, "b", node + 1)),
				 0);
		if (i % 3 == 0)
			assert_int_equal(journal_ops(&j, op_unlink(1, "a"), op_unlink(1, "b")), 0);
	}
	w.stop = true;
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(w.wrong, 0);
	assert_true(w.rounds >= 300);
	journal_close(&j);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, scratch_setup, scratch_teardown)
	static const struct CMUnitTest tests[] = {
		TEST(a_large_subtree_goes), TEST(deep_trees),	TEST(paths_beyond_the_limit),
		TEST(paths_and_callbacks),  TEST(transactions), TEST(readers_in_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
