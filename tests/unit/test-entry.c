/* What one side makes of an entry the other reads back the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/entry-fixture.h"

static void assert_node(const struct node *a, const struct node *b)
{
	struct node x = *a, y = *b;

	assert_int_equal(a->target_len, b->target_len);
	assert_int_equal(a->xattrs_len, b->xattrs_len);
	if (a->target_len)
		assert_memory_equal(a->target, b->target, a->target_len);
	if (a->xattrs_len)
		assert_memory_equal(a->xattrs, b->xattrs, a->xattrs_len);
	assert_int_equal(x.type, y.type);
	assert_int_equal(x.uid_kind, y.uid_kind);
	assert_int_equal(x.gid_kind, y.gid_kind);
	assert_int_equal(x.mode, y.mode);
	assert_int_equal(x.uid, y.uid);
	assert_int_equal(x.gid, y.gid);
	assert_true(x.mtime_ns == y.mtime_ns && x.ctime_ns == y.ctime_ns);
	assert_true(x.inode == y.inode && x.generation == y.generation && x.device == y.device);
	assert_int_equal(x.rdev_major, y.rdev_major);
	assert_int_equal(x.rdev_minor, y.rdev_minor);
	assert_int_equal(x.unheld, y.unheld);
	assert_int_equal(x.torn, y.torn);
	assert_true(x.allocated_bytes == y.allocated_bytes);
	assert_true(x.content.size_bytes == y.content.size_bytes);
	assert_int_equal(x.content.depth, y.content.depth);
	assert_int_equal(x.content.holes, y.content.holes);
	assert_memory_equal(x.content.sha256, y.content.sha256, SHA256_BYTES);
	assert_memory_equal(x.content.root, y.content.root, SHA256_BYTES);
}

static void assert_name(const char *a, size_t a_len, const char *b, size_t b_len)
{
	assert_int_equal(a_len, b_len);
	if (a_len)
		assert_memory_equal(a, b, a_len);
}

static void all_types_are_right(void **state)
{
	struct buf b = BUF_INIT(0);
	size_t n = 0;

	make_all(&b);
	while (buf_len(&b) > 0) {
		const struct entry_head *e = (const void *)buf_data(&b);
		const char *why = "";
		ssize_t len = entry_whole(e, buf_len(&b));

		assert_true(len > 0);
		if (entry_check(e, &why) < 0)
			fail_msg("type %u: %s", e->type, why);
		(void)read_parts(e);
		buf_consume(&b, (size_t)len);
		n++;
	}
	assert_int_equal(n, 26);
	buf_done(&b);
}

static void ops_come_back(void **state)
{
	struct buf b = BUF_INIT(0);
	struct entry_cursor c;
	struct change_op got;
	const char *why;
	unsigned i;

	make_change(&b, CHANGE_OPS_MAX);
	assert_int_equal(entry_check((const void *)buf_data(&b), &why), 0);
	entry_cursor_init(&c, (const void *)buf_data(&b));
	for (i = 0; entry_next_op(&c, &got); i++) {
		char name[NODE_NAME_MAX + 1];
		struct change_op op = sample_op(i, name);

		assert_int_equal(got.kind, op.kind);
		assert_int_equal(got.evidence, op.evidence);
		assert_int_equal(got.has_content, op.has_content);
		assert_true(got.node == op.node && got.parent == op.parent &&
			    got.to_parent == op.to_parent && got.base_version == op.base_version);
		assert_name(got.name, got.name_len, op.name, op.name_len);
		assert_name(got.to_name, got.to_name_len, op.to_name, op.to_name_len);
		assert_node(&got.attr, &op.attr);
	}
	assert_int_equal(i, CHANGE_OPS_MAX);
	buf_done(&b);
}

static void trees_come_back(void **state)
{
	static const char *const names[] = {"", "file", "link", "secret"};
	struct node nodes[] = {{.type = NODE_TYPE_DIRECTORY}, a_file(), a_link(), {0}}, got;
	const struct entry_tree_entry *e;
	struct buf b = BUF_INIT(0);
	struct entry_cursor c;
	const char *name;
	size_t i;

	make_tree(&b);
	entry_cursor_init(&c, (const void *)buf_data(&b));
	for (i = 0; entry_next_tree(&c, &e, &name, &got); i++) {
		assert_name(name, e->name_len, names[i], strlen(names[i]));
		assert_node(&got, &nodes[i]);
		assert_int_equal(e->attr.has_content, i == 1);
		assert_int_equal(e->error, i == 3 ? EACCES : 0);
	}
	assert_int_equal(i, 4);
	buf_done(&b);
}

static void texts_and_paths_come_back(void **state)
{
	const struct entry_reason *reason;
	const struct entry_unsettled *u;
	const struct entry_unsupported *un;
	const struct entry_process *p;
	struct buf b = BUF_INIT(0);
	struct entry_cursor c;
	const char *x, *y;

	make_job_exit(&b);
	assert_memory_equal(entry_tail((const struct entry_job *)buf_data(&b)), "where", 5);
	entry_cursor_init(&c, (const void *)buf_data(&b));
	assert_true(entry_next_unsettled(&c, &u, &x));
	assert_name(x, u->len, "a/b", 3);
	assert_true(entry_next_unsettled(&c, &u, &x));
	assert_name(x, u->len, "12345678", 8);
	assert_false(entry_next_unsettled(&c, &u, &x));

	buf_clear(&b);
	make_status(&b);
	entry_cursor_init(&c, (const void *)buf_data(&b));
	assert_true(entry_next_reason(&c, &reason, &x, &y));
	assert_string_equal(reason->code, "watches");
	assert_name(x, reason->detail_len, "text", 4);
	assert_name(y, reason->path_len, "/p", 2);

	buf_clear(&b);
	make_restored(&b);
	entry_cursor_init(&c, (const void *)buf_data(&b));
	assert_true(entry_next_unsupported(&c, &un, &x, &y));
	assert_true(entry_next_unsupported(&c, &un, &x, &y));
	assert_name(x, un->path_len, "p/a/u", 5);
	assert_name(y, un->field_len, "xattr", 5);

	buf_clear(&b);
	make_ps_done(&b);
	entry_cursor_init(&c, (const void *)buf_data(&b));
	assert_true(entry_next_process(&c, &p, &x));
	assert_name(x, p->argv_len, "sh\0-c\0x", 8);
	assert_true(entry_next_process(&c, &p, &x));
	assert_int_equal(p->argv_len, 0);
	assert_false(entry_next_process(&c, &p, &x));
	buf_done(&b);
}

static void too_large_to_make(void **state)
{
	static uint8_t tail[ENTRY_MAX];
	struct entry_job_output out = {.job = "j-1", .stream = 1};
	struct buf b = BUF_INIT(0);

	out.len = ENTRY_MAX - sizeof(out);
	assert_int_equal(entry_add(&b, ENTRY_JOB_OUTPUT, &out, sizeof(out), tail, out.len), 0);
	assert_int_equal(buf_len(&b), ENTRY_MAX);
	out.len++;
	assert_int_equal(entry_add(&b, ENTRY_JOB_OUTPUT, &out, sizeof(out), tail, out.len), -E2BIG);
	assert_int_equal(buf_len(&b), ENTRY_MAX);
	buf_done(&b);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_types_are_right), cmocka_unit_test(ops_come_back),
		cmocka_unit_test(trees_come_back),     cmocka_unit_test(texts_and_paths_come_back),
		cmocka_unit_test(too_large_to_make),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
