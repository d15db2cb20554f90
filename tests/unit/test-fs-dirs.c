/* Offsets are the names' own: what stays is met once from any place, whatever comes or goes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "index-fixture.h"

#include "fs/dirs.h"
#include "fs/siphash.h"

/* The vectors of the reference implementation: key 00..0f, input 00..n-1. */
static void vectors(void **state)
{
	static const struct {
		size_t n;
		uint64_t hash;
	} cases[] = {
		{0, 0x726fdb47dd0e0e31ull},  {1, 0x74f839c593dc67fdull},
		{7, 0xab0200f58b01d137ull},  {8, 0x93f5f5799a932462ull},
		{15, 0xa129ca6149be45e5ull}, {63, 0x958a324ceb064572ull},
	};
	uint8_t key[16], data[64];

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)i;
	memcpy(key, data, sizeof(key));
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(siphash(key, data, cases[i].n), cases[i].hash);
}

/* ---- directories of an index ---- */

static uint64_t next_node = 2;

static void make(struct journal *j, const char *prefix, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		char name[64];

		(void)snprintf(name, sizeof(name), "%s-%u", prefix, i);
		assert_int_equal(
			journal_ops(j, op_file(next_node, ""), op_link(NODE_ROOT, name, next_node)),
			0);
		next_node++;
	}
}

/* How many of the names with the prefix lie behind the offset; *offset moves by at most max. */
static unsigned read_some(struct journal *j, struct dirs *d, const char *prefix, size_t max,
			  uint64_t *offset)
{
	struct index_txn *t;
	struct listing *l;
	const char *name;
	unsigned n = 0;
	size_t len;

	assert_int_equal(index_read_begin(j->ix, &t), 0);
	assert_int_equal(dirs_get(d, t, index_seq(t), NODE_ROOT, &l), 0);
	for (size_t i = listing_seek(l, *offset); i < listing_count(l) && max-- > 0; i++) {
		uint64_t at = listing_entry(l, i, &name, &len);

		assert_true(at > *offset && at >= DIRS_OFFSET_FIRST && at < 1ull << 62);
		assert_int_equal(strlen(name), len);
		*offset = at;
		n += strncmp(name, prefix, strlen(prefix)) == 0;
	}
	dirs_put(d, l);
	index_read_end(t);
	return n;
}

static void streams(void **state)
{
	_cleanup_(dirs_freep) struct dirs *d = NULL;
	struct journal j;
	uint64_t offset = 0;
	unsigned n = 0;

	(void)state;
	next_node = 2;
	journal_open(&j);
	assert_int_equal(dirs_new(&d), 0);
	make(&j, "stay", 200);
	make(&j, "go", 100);
	for (unsigned round = 0; round < 10; round++) {
		n += read_some(&j, d, "stay", 25, &offset);
		for (unsigned i = 0; i < 10; i++) {
			char name[64];
			(void)snprintf(name, sizeof(name), "go-%u", round * 10 + i);
			assert_int_equal(journal_ops(&j, op_unlink(NODE_ROOT, name)), 0);
			(void)snprintf(name, sizeof(name), "come%u", round);
			make(&j, name, 1);
		}
		dirs_drop(d, NODE_ROOT);
	}
	n += read_some(&j, d, "stay", SIZE_MAX, &offset);
	assert_int_equal(n, 200);
	journal_close(&j);
}

/* A listing made before a change is not given out after it. */
static void floors(void **state)
{
	_cleanup_(dirs_freep) struct dirs *d = NULL;
	struct index_txn *old;
	struct listing *l;
	struct journal j;
	uint64_t offset = 0, old_seq;

	(void)state;
	next_node = 2;
	journal_open(&j);
	assert_int_equal(dirs_new(&d), 0);
	make(&j, "first", 1);
	assert_int_equal(read_some(&j, d, "first", SIZE_MAX, &offset), 1);
	make(&j, "second", 1);
	/* Kept until it is dropped. */
	offset = 0;
	assert_int_equal(read_some(&j, d, "second", SIZE_MAX, &offset), 0);
	dirs_drop(d, NODE_ROOT);
	offset = 0;
	assert_int_equal(read_some(&j, d, "second", SIZE_MAX, &offset), 1);

	/* Made from an old transaction, finished after the drop. */
	assert_int_equal(index_read_begin(j.ix, &old), 0);
	old_seq = index_seq(old);
	make(&j, "third", 1);
	dirs_set_floor(d, old_seq + 1);
	dirs_drop(d, NODE_ROOT);
	assert_int_equal(dirs_get(d, old, old_seq, NODE_ROOT, &l), 0);
	assert_int_equal(listing_count(l), 2);
	dirs_put(d, l);
	index_read_end(old);
	offset = 0;
	assert_int_equal(read_some(&j, d, "third", SIZE_MAX, &offset), 1);
	journal_close(&j);
}

/* More directories than are kept, while one is held. */
static void pressed_out(void **state)
{
	_cleanup_(dirs_freep) struct dirs *d = NULL;
	struct index_txn *t;
	struct listing *held, *l;
	struct journal j;
	const char *name;
	size_t len;

	(void)state;
	next_node = 2;
	journal_open(&j);
	assert_int_equal(dirs_new(&d), 0);
	make(&j, "only", 1);
	assert_int_equal(index_read_begin(j.ix, &t), 0);
	assert_int_equal(dirs_get(d, t, index_seq(t), NODE_ROOT, &held), 0);
	for (uint64_t dir = 1000; dir < 1200; dir++) {
		assert_int_equal(dirs_get(d, t, index_seq(t), dir, &l), 0);
		assert_int_equal(listing_count(l), 0);
		dirs_put(d, l);
	}
	(void)listing_entry(held, 0, &name, &len);
	assert_string_equal(name, "only-0");
	dirs_put(d, held);
	dirs_drop_all(d);
	index_read_end(t);
	journal_close(&j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vectors),
		cmocka_unit_test_setup_teardown(streams, scratch_setup, scratch_teardown),
		cmocka_unit_test_setup_teardown(floors, scratch_setup, scratch_teardown),
		cmocka_unit_test_setup_teardown(pressed_out, scratch_setup, scratch_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
