#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "index-tree.h"

/* An operation that cannot be is refused with its reason, and nothing of its change stays. */
static void impossible_operations(void **state)
{
	struct journal j;

	journal_open(&j);
	small_tree(&j);
#define REFUSED(op, why) \
	assert_refused(&j, journal_ops(&j, op_file(20, "x"), op_link(1, "new", 20), op), why)
	REFUSED(op_link(99, "x", 11), "there is no such parent");
	REFUSED(op_link(11, "x", 13), "the parent is not a directory");
	REFUSED(op_link(1, "x", 99), "there is no such node");
	REFUSED(op_link(1, "x", 1), "the root has no name");
	REFUSED(op_link(1, "x", 12), "a directory cannot have two names");
	REFUSED(op_unlink(1, "x"), "there is no such name");
	REFUSED(op_unlink(99, "x"), "there is no such parent");
	REFUSED(op_unlink(11, "x"), "the parent is not a directory");
	REFUSED(op_move(1, "x", 1, "y"), "there is no such name");
	REFUSED(op_move(1, "h", 99, "y"), "there is no such parent");
	REFUSED(op_move(1, "h", 11, "y"), "the parent is not a directory");
	REFUSED(op_move(1, "d", 12, "y"), "a directory cannot be moved into itself");
	REFUSED(op_move(1, "d", 10, "y"), "a directory cannot be moved into itself");
	REFUSED(op_dir(11), "a node cannot change its type");
	REFUSED(op_file(1, "x"), "a node cannot change its type");
	REFUSED(op_file(1ull << 62, "x"), "not a node id");
	REFUSED(op_link(1, "..", 11), "not a name");
	struct change_op other = op_unlink(1, "h");
	other.node = 13;
	REFUSED(other, "the name is another node's");
	other = op_move(1, "h", 1, "i");
	other.node = 13;
	REFUSED(other, "the name is another node's");
#undef REFUSED
	assert_refused(
		&j,
		journal_ops(&j, op_dir(30), op_dir(31), op_link(30, "a", 31), op_link(31, "b", 30)),
		"a directory cannot be moved into itself");
	assert_refused(&j, journal_ops(&j, op_dir(30), op_link(30, "a", 30)),
		       "a directory cannot be moved into itself");
	assert_tree(&j, "d d/f=3 d/s d/s/g=0 h=3#2 ");
	/* After a death its id is not given again. */
	assert_int_equal(journal_ops(&j, op_unlink(12, "g")), 0);
	assert_refused(&j, journal_ops(&j, op_file(13, "x")), "the node id was used before");
	journal_close(&j);
}

/* Whether a node has names counts at the end of a change, not within it. */
static void deaths_are_judged_at_the_end(void **state)
{
	struct journal j;

	journal_open(&j);
	small_tree(&j);
	/* A directory that loses its name and gets another keeps what is beneath it. */
	assert_int_equal(journal_ops(&j, op_unlink(1, "d"), op_link(1, "e", 10)), 0);
	assert_tree(&j, "e e/f=3 e/s e/s/g=0 h=3#2 ");
	/* What is taken out of a dying directory in time stays. */
	assert_int_equal(journal_ops(&j, op_unlink(1, "e"), op_move(10, "s", 1, "kept"),
				     op_file(13, "12345")),
			 0);
	assert_tree(&j, "h=3 kept kept/g=5 ");
	assert_int_equal(get_node(&j, 11).links, 1);
	/* What was there before is known, though the name was given anew as it went. */
	assert_tree_at(&j, 2, "e e/f=3 e/s e/s/g=0 h=3#2 ");
	assert_int_equal(
		journal_ops(&j, op_file(14, "1"), op_link(12, "g", 14), op_unlink(1, "kept")), 0);
	assert_tree(&j, "h=3 ");
	assert_tree_at(&j, 3, "h=3 kept kept/g=5 ");
	/* Children may be linked before their parent is. */
	assert_int_equal(journal_ops(&j, op_dir(40), op_dir(41), op_link(40, "x", 41),
				     op_file(42, ""), op_link(41, "y", 42), op_link(1, "z", 40)),
			 0);
	assert_tree(&j, "h=3 z z/x z/x/y=0 ");
	/* A PUT without a name leaves nothing, with all that was put beneath it. */
	assert_int_equal(journal_ops(&j, op_dir(50), op_file(51, "x"), op_link(50, "x", 51),
				     op_file(52, "y")),
			 0);
	assert_tree(&j, "h=3 z z/x z/x/y=0 ");
	/* A directory that has lost its name may take in the one that held it. */
	assert_int_equal(
		journal_ops(&j, op_unlink(40, "x"), op_move(1, "z", 41, "z"), op_link(1, "x", 41)),
		0);
	assert_tree(&j, "h=3 x x/y=0 x/z ");
	reopen(&j);
	assert_tree(&j, "h=3 x x/y=0 x/z ");
	journal_close(&j);
}

/* LINK and MOVE replace what the name held, a whole subtree too. */
static void names_are_replaced(void **state)
{
	struct journal j;
	struct index_counts c;

	journal_open(&j);
	small_tree(&j);
	assert_int_equal(journal_ops(&j, op_file(20, "1"), op_link(10, "f", 20)), 0);
	assert_tree(&j, "d d/f=1 d/s d/s/g=0 h=3 ");
	assert_int_equal(journal_ops(&j, op_move(1, "h", 10, "s")), 0);
	assert_tree(&j, "d d/f=1 d/s=3 ");
	/* A directory over its own parent. */
	assert_int_equal(journal_ops(&j, op_dir(21), op_link(10, "t", 21), op_file(22, "12"),
				     op_link(21, "u", 22)),
			 0);
	assert_int_equal(journal_ops(&j, op_move(10, "t", 1, "d")), 0);
	assert_tree(&j, "d d/u=2 ");
	/* The same node, and the very same name. */
	assert_int_equal(journal_ops(&j, op_link(21, "v", 22)), 0);
	assert_int_equal(journal_ops(&j, op_move(21, "u", 21, "v")), 0);
	assert_int_equal(journal_ops(&j, op_move(21, "v", 21, "v"), op_link(21, "v", 22)), 0);
	assert_tree(&j, "d d/v=2 ");
	assert_int_equal(get_node(&j, 22).links, 1);
	assert_tree_at(&j, 1, "d d/f=3 d/s d/s/g=0 h=3#2 ");
	struct index_txn *t = read_begin(&j);
	assert_int_equal(index_counts(t, &c), 0);
	assert_true(c.files == 1 && c.directories == 1 && c.bytes == 2);
	index_read_end(t);
	journal_close(&j);
}

/* A PUT without content keeps the content; a version is that of the last PUT, and links
 * made in between do not change it. */
static void content_and_versions(void **state)
{
	struct index_txn *t;
	struct index_node n;
	uint8_t empty[SHA256_BYTES];
	struct journal j;

	journal_open(&j);
	assert_int_equal(journal_ops(&j, op_file(5, "abc"), op_link(1, "a", 5)), 0);
	struct change_op chmod = op_file(5, NULL);
	chmod.attr.mode = 0600;
	assert_int_equal(journal_ops(&j, chmod), 0);
	assert_int_equal(journal_ops(&j, op_link(1, "b", 5)), 0);
	n = get_node(&j, 5);
	assert_int_equal(n.n.mode, 0600);
	assert_int_equal(n.n.content.size_bytes, 3);
	assert_int_equal(n.version, 2);
	assert_int_equal(n.links, 2);

	assert_int_equal(journal_ops(&j, op_file(6, NULL), op_link(1, "c", 6)), 0);
	sha256("", 0, empty);
	assert_memory_equal(get_node(&j, 6).n.content.sha256, empty, SHA256_BYTES);

	t = read_begin(&j);
	assert_int_equal(index_get_node(t, 5, 1, &n), 0);
	assert_int_equal(n.n.mode, 0644);
	assert_int_equal(index_get_node(t, 5, 2, &n), 0);
	assert_true(n.n.mode == 0600 && n.links == 1 && n.version == 2);
	assert_int_equal(index_get_node(t, 5, 0, &n), -ENOENT);
	assert_int_equal(index_get_node(t, 1, 0, &n), 0);
	index_read_end(t);
	journal_close(&j);
}

static struct change_op rich_file(uint64_t node, uint32_t unheld, const uint8_t *xattrs, size_t n)
{
	struct change_op op = op_file(node, "x");

	op.attr.mode = 06755;
	op.attr.uid_kind = op.attr.gid_kind = NODE_OWNER_NUMBER;
	op.attr.uid = 7;
	op.attr.gid = 8;
	op.attr.mtime_ns = 5000000001;
	op.attr.unheld = unheld;
	op.attr.xattrs = xattrs;
	op.attr.xattrs_len = (uint32_t)n;
	return op;
}

/* What an incarnation cannot hold keeps its older value, each kind by its own bit. */
static void unheld_attributes_stay(void **state)
{
#define USER_A 6, 0, 'u', 's', 'e', 'r', '.', 'a', 1, 0, 0, 0
#define TRUSTED_T 9, 0, 't', 'r', 'u', 's', 't', 'e', 'd', '.', 't', 1, 0, 0, 0
	static const uint8_t before[] = {TRUSTED_T, '1', USER_A, '1'}, user[] = {USER_A, '2'},
			     after[] = {TRUSTED_T, '1', USER_A, '2'};
	struct index_node n;
	struct index_txn *t;
	struct change_op op;
	struct journal j;

	journal_open(&j);
	op = rich_file(5, 0, before, sizeof(before));
	assert_int_equal(journal_ops(&j, op, op_link(1, "a", 5)), 0);

	op = rich_file(5,
		       NODE_MASK_OWNER | NODE_MASK_SETID | NODE_MASK_NS | NODE_MASK_XATTR_TRUSTED,
		       user, sizeof(user));
	op.attr.mode = 0711;
	op.attr.uid_kind = op.attr.gid_kind = NODE_OWNER_SELF;
	op.attr.mtime_ns = 5000000000;
	assert_int_equal(journal_ops(&j, op), 0);
	t = read_begin(&j);
	assert_int_equal(index_get_node(t, 5, INDEX_NOW, &n), 0);
	assert_int_equal(n.n.mode, 06711);
	assert_int_equal(n.n.uid_kind, NODE_OWNER_NUMBER);
	assert_int_equal(n.n.gid, 8);
	assert_true(n.n.mtime_ns == 5000000001);
	assert_int_equal(n.n.xattrs_len, sizeof(after));
	assert_memory_equal(n.n.xattrs, after, sizeof(after));
	index_read_end(t);

	/* Another second is another time; and without the bits everything is new. */
	op.attr.mtime_ns = 6000000000;
	op.attr.unheld = NODE_MASK_NS;
	assert_int_equal(journal_ops(&j, op), 0);
	n = get_node(&j, 5);
	assert_int_equal(n.n.mode, 0711);
	assert_int_equal(n.n.uid_kind, NODE_OWNER_SELF);
	assert_true(n.n.mtime_ns == 6000000000);
	assert_int_equal(n.n.xattrs_len, sizeof(user));

	/* A time before 1970 survives where it is shown as 1970, until there is a new one. */
	op.attr.mtime_ns = -86400000000000;
	op.attr.unheld = 0;
	assert_int_equal(journal_ops(&j, op), 0);
	op.attr.mtime_ns = 0;
	op.attr.unheld = NODE_MASK_YEARS;
	assert_int_equal(journal_ops(&j, op), 0);
	assert_true(get_node(&j, 5).n.mtime_ns == -86400000000000);
	op.attr.mtime_ns = 1;
	assert_int_equal(journal_ops(&j, op), 0);
	assert_true(get_node(&j, 5).n.mtime_ns == 1);
	journal_close(&j);
}

/* All attributes of all types come back from a row as they went in. */
static void rows_are_exact(void **state)
{
	static const uint8_t xattrs[] = {USER_A, 'v'};
	struct change_op file = op_file(5, "abc"), dev = op_put(6, NODE_TYPE_BLOCK, NULL),
			 link = op_put(7, NODE_TYPE_SYMLINK, "to\xff/there");
	struct index_txn *t;
	struct index_node n;
	struct journal j;

	file.attr.uid_kind = NODE_OWNER_ROOT;
	file.attr.gid_kind = NODE_OWNER_NUMBER;
	file.attr.uid = UINT32_MAX;
	file.attr.gid = 3;
	file.attr.mode = 07777;
	file.attr.mtime_ns = INT64_MIN;
	file.attr.ctime_ns = INT64_MAX;
	file.attr.inode = UINT64_MAX;
	file.attr.generation = 1;
	file.attr.device = 2;
	file.attr.unheld = NODE_MASK_DEVICE;
	file.attr.torn = true;
	file.attr.content.holes = true;
	file.attr.content.depth = 2;
	memset(file.attr.content.root, 9, SHA256_BYTES);
	file.attr.allocated_bytes = 4096;
	file.attr.xattrs = xattrs;
	file.attr.xattrs_len = sizeof(xattrs);
	dev.attr.rdev_major = UINT32_MAX;
	dev.attr.rdev_minor = 1;
	journal_open(&j);
	assert_int_equal(journal_ops(&j, file, dev, link, op_link(1, "f", 5), op_link(1, "b", 6),
				     op_link(1, "l", 7)),
			 0);
	t = read_begin(&j);
	assert_int_equal(index_get_node(t, 5, INDEX_NOW, &n), 0);
	assert_int_equal(node_compare(&n.n, &file.attr, 0), 0);
	assert_true(n.n.uid == UINT32_MAX && n.n.gid == 3 && n.n.ctime_ns == INT64_MAX);
	assert_true(n.n.inode == UINT64_MAX && n.n.generation == 1 && n.n.device == 2);
	assert_true(n.n.unheld == NODE_MASK_DEVICE && n.n.torn && n.n.allocated_bytes == 4096);
	assert_true(n.n.content.depth == 2 && n.n.content.holes && n.n.content.root[31] == 9);
	assert_int_equal(index_get_node(t, 6, INDEX_NOW, &n), 0);
	assert_int_equal(node_compare(&n.n, &dev.attr, 0), 0);
	assert_int_equal(index_get_node(t, 7, INDEX_NOW, &n), 0);
	assert_int_equal(node_compare(&n.n, &link.attr, 0), 0);
	index_read_end(t);
	journal_close(&j);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, scratch_setup, scratch_teardown)
	static const struct CMUnitTest tests[] = {
		TEST(impossible_operations),  TEST(deaths_are_judged_at_the_end),
		TEST(names_are_replaced),     TEST(content_and_versions),
		TEST(unheld_attributes_stay), TEST(rows_are_exact),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
