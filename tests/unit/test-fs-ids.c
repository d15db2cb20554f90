/* An id means one thing for as long as it is counted, and nothing afterwards. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "fs/ids.h"

static char trees[3];

static uint64_t hold(struct ids *ids, const struct ids_key *k, bool want_new)
{
	uint64_t id = 0;
	bool fresh;

	assert_int_equal(ids_hold(ids, k, k->node + 7, &id, &fresh), 0);
	assert_int_equal(fresh, want_new);
	assert_true(id >= IDS_FIRST);
	return id;
}

static void counts(void **state)
{
	_cleanup_(ids_freep) struct ids *ids = NULL;
	const struct ids_key a = {&trees[0], 5, 0}, b = {&trees[1], 5, 0}, c = {&trees[0], 5, 1};
	struct ids_key key = {0};
	uint64_t id;

	(void)state;
	assert_int_equal(ids_new(&ids), 0);
	assert_null(ids_get(ids, 1));
	assert_null(ids_get(ids, IDS_FIRST));
	id = hold(ids, &a, true);
	assert_int_equal(hold(ids, &a, false), id);
	assert_int_not_equal(hold(ids, &b, true), id);
	assert_int_not_equal(hold(ids, &c, true), id);
	assert_ptr_equal(ids_get(ids, id)->key.tree, &trees[0]);
	assert_int_equal(ids_get(ids, id)->parent, 12);
	assert_false(ids_forget(ids, id, 1, &key));
	assert_true(ids_forget(ids, id, 1, &key));
	assert_int_equal(key.node, 5);
	assert_null(ids_get(ids, id));
	assert_false(ids_forget(ids, id, 1, &key));
	/* Its place is taken again, under another id. */
	assert_int_not_equal(hold(ids, &a, true), id);
	assert_null(ids_get(ids, id));
}

/* Against an array, through growing and long chains. */
static void many(void **state)
{
	enum { KEYS = 3000, STEPS = 100000 };
	_cleanup_(ids_freep) struct ids *ids = NULL;
	static struct {
		unsigned count;
		uint64_t id;
	} want[KEYS];
	unsigned seed = 11;

	(void)state;
	assert_int_equal(ids_new(&ids), 0);
	for (unsigned step = 0; step < STEPS; step++) {
		unsigned i = (unsigned)rand_r(&seed) % KEYS;
		const struct ids_key k = {&trees[i % 3], i / 6 + 2, i / 3 % 2};
		struct ids_key key;

		if (rand_r(&seed) % 5 < 3) {
			uint64_t id = hold(ids, &k, want[i].count == 0);

			assert_true(want[i].count == 0 || id == want[i].id);
			want[i].id = id;
			want[i].count++;
		} else if (want[i].count) {
			unsigned n = 1 + (unsigned)rand_r(&seed) % want[i].count;

			want[i].count -= n;
			assert_int_equal(ids_forget(ids, want[i].id, n, &key), want[i].count == 0);
		}
	}
	for (unsigned i = 0; i < KEYS; i++) {
		const struct ids_entry *e = want[i].id ? ids_get(ids, want[i].id) : NULL;

		assert_int_equal(e != NULL, want[i].count > 0);
		if (e)
			assert_int_equal(e->count, want[i].count);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts),
		cmocka_unit_test(many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
