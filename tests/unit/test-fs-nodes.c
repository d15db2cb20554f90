/* Lookup counts are exact however they come and go, and no answer older than the floor counts. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "fs/nodes.h"

static void counts(void **state)
{
	_cleanup_(nodes_freep) struct nodes *ns = NULL;
	const uint64_t ids[] = {5, 0, 6, 5, 1};

	(void)state;
	assert_int_equal(nodes_new(&ns), 0);
	assert_true(nodes_known(ns, 1));
	assert_false(nodes_known(ns, 5));
	assert_int_equal(nodes_hold(ns, 1, ids, ARRAY_SIZE(ids)), 0);
	assert_true(nodes_known(ns, 5));
	assert_true(nodes_known(ns, 6));
	nodes_forget(ns, 5, 1);
	assert_true(nodes_known(ns, 5));
	nodes_forget(ns, 5, 1);
	assert_false(nodes_known(ns, 5));
	nodes_forget(ns, 6, 100);
	assert_false(nodes_known(ns, 6));
	nodes_forget(ns, 6, 1);
	nodes_forget(ns, 1, 7);
	assert_true(nodes_known(ns, 1));
}

static void floor_refuses(void **state)
{
	_cleanup_(nodes_freep) struct nodes *ns = NULL;
	const uint64_t ids[] = {7, 8};

	(void)state;
	assert_int_equal(nodes_new(&ns), 0);
	nodes_set_floor(ns, 10);
	assert_int_equal(nodes_hold(ns, 9, ids, 2), -EAGAIN);
	assert_false(nodes_known(ns, 7));
	assert_int_equal(nodes_hold(ns, 10, ids, 2), 0);
	assert_true(nodes_known(ns, 8));
	nodes_set_floor(ns, 5);
	assert_int_equal(nodes_hold(ns, 9, ids, 1), -EAGAIN);
}

/* Against an array, through growing and shrinking. */
static void many(void **state)
{
	enum { IDS = 5000 };
	_cleanup_(nodes_freep) struct nodes *ns = NULL;
	cleanup_free uint64_t *listed = NULL;
	static unsigned want[IDS];
	unsigned seed = 7;
	size_t n, known = 0;

	(void)state;
	assert_int_equal(nodes_new(&ns), 0);
	for (unsigned i = 0; i < 400000; i++) {
		uint64_t k, id;
		bool up;

		seed = seed * 1103515245 + 12345;
		k = seed / 65536 % IDS;
		/* Runs of ids, and some that fall on each other. */
		id = k < IDS / 2 ? k + 2 : k << 40;
		up = i % 100000 < 50000 ? seed / 4 % 4 != 0 : seed / 4 % 4 == 0;
		if (up) {
			assert_int_equal(nodes_hold(ns, 0, &id, 1), 0);
			want[k]++;
		} else if (want[k] > 0) {
			nodes_forget(ns, id, 1);
			want[k]--;
		}
		assert_int_equal(nodes_known(ns, id), want[k] > 0);
	}
	for (unsigned k = 0; k < IDS; k++) {
		assert_int_equal(nodes_known(ns, k < IDS / 2 ? k + 2 : (uint64_t)k << 40),
				 want[k] > 0);
		known += want[k] > 0;
	}
	assert_int_equal(nodes_list(ns, &listed, &n), 0);
	assert_int_equal(n, known);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts),
		cmocka_unit_test(floor_refuses),
		cmocka_unit_test(many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
