/* What is marked while it is looked at, or waits for the end of its round, is looked at again before
 * anybody believes which node it is; but a name that never rests does not hold up the round. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "syncd/dirty.h"

static struct shadow shadow;
static struct dirty d;

static int setup(void **state)
{
	(void)state;
	return shadow_init(&shadow) < 0 || dirty_init(&d, &shadow) < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	dirty_free(&d);
	shadow_done(&shadow);
	return 0;
}

static struct item *mark(void)
{
	struct item *it = dirty_mark(&d, ITEM_NAME, SHADOW_ROOT, "name", 4, 0, NULL);

	assert_non_null(it);
	return it;
}

static void test_marked_while_looked_at(void **state)
{
	struct item *it = mark();

	(void)state;
	dirty_move(&d, it, ITEM_LOOKING);
	assert_false(dirty_is_stale(&d, it));
	assert_int_equal(it->state, ITEM_LOOKING);
	assert_ptr_equal(mark(), it);
	assert_true(dirty_is_stale(&d, it));
	assert_int_equal(it->state, ITEM_READY);
	assert_false(it->again);
	assert_int_equal(it->tries, 0);
}

static void test_announced_while_swept(void **state)
{
	struct item *it = mark();

	(void)state;
	it->flags = ITEM_SWEEP;
	dirty_move(&d, it, ITEM_LOOKING);
	dirty_retry(&d, it);
	assert_true(it->flags & ITEM_SWEEP);
	dirty_move(&d, it, ITEM_LOOKING);
	(void)mark();
	dirty_retry(&d, it);
	assert_false(it->flags & ITEM_SWEEP);
}

static void waits(enum item_state state)
{
	struct item *it = mark();

	dirty_give(&d, it, 3);
	dirty_move(&d, it, state);
	assert_ptr_equal(mark(), it);
	assert_int_equal(it->state, ITEM_READY);
	assert_false(it->again);
	assert_int_equal(d.waiting[3], 1);
	dirty_done(&d, it);
	assert_int_equal(d.waiting[3], 0);
	assert_int_equal(d.total, 0);
}

static void test_marked_while_it_waits(void **state)
{
	(void)state;
	waits(ITEM_LATE);
	waits(ITEM_ABSENT);
}

static void test_never_rests(void **state)
{
	struct item *it = mark();
	unsigned n;

	(void)state;
	for (n = 0; n < 10000; n++) {
		dirty_move(&d, it, ITEM_LOOKING);
		(void)mark();
		if (!dirty_is_stale(&d, it))
			break;
	}
	assert_in_range(n, 100, 1000);
	/* Nor while it waits for the others; what came is not forgotten. */
	dirty_move(&d, it, ITEM_LATE);
	(void)mark();
	assert_int_equal(it->state, ITEM_LATE);
	dirty_done(&d, it);
	assert_int_equal(it->state, ITEM_READY);
	dirty_move(&d, it, ITEM_LATE);
	(void)mark();
	assert_int_equal(it->state, ITEM_READY);
}

static void test_lost(void **state)
{
	struct item *it = mark();

	(void)state;
	dirty_set_lost(&d, it, true);
	dirty_set_lost(&d, it, true);
	assert_int_equal(d.lost, 1);
	dirty_rest(&d, it, UINT64_MAX);
	it->tries = 100;
	dirty_look_for_lost(&d);
	assert_int_equal(it->state, ITEM_READY);
	assert_int_equal(it->tries, 0);
	dirty_done(&d, it);
	assert_int_equal(d.lost, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_marked_while_looked_at, setup, teardown),
		cmocka_unit_test_setup_teardown(test_announced_while_swept, setup, teardown),
		cmocka_unit_test_setup_teardown(test_marked_while_it_waits, setup, teardown),
		cmocka_unit_test_setup_teardown(test_never_rests, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lost, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
