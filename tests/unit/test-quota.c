/* What a quota and a rate allow, at every edge of the arithmetic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "brain/quota.h"
#include "syncd/pace.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static void verdicts(void **state)
{
	static const struct {
		uint64_t limit, used, since;
		enum quota_verdict wanted;
	} cases[] = {
		{0, 0, 0, QUOTA_FINE},
		{0, UINT64_MAX, UINT64_MAX, QUOTA_FINE},
		{1, 0, 0, QUOTA_FINE},
		{1, 1, UINT64_MAX, QUOTA_FINE},
		{1, 2, 0, QUOTA_FULL},
		{1, GIB, 256 * KIB, QUOTA_FULL},
		{1, GIB, 256 * KIB + 1, QUOTA_SPENT},
		{100 * MIB, 100 * MIB, GIB, QUOTA_FINE},
		{100 * MIB, 100 * MIB + 1, 0, QUOTA_FULL},
		{100 * MIB, 200 * MIB, 100 * MIB / 16, QUOTA_FULL},
		{100 * MIB, 100 * MIB + 1, 100 * MIB / 16 + 1, QUOTA_SPENT},
		{100 * GIB, 101 * GIB, 64 * MIB, QUOTA_FULL},
		{100 * GIB, 101 * GIB, 64 * MIB + 1, QUOTA_SPENT},
		{UINT64_MAX, UINT64_MAX, 0, QUOTA_FINE},
		{UINT64_MAX - 1, UINT64_MAX, 0, QUOTA_FULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(quota_judge(cases[i].limit, cases[i].used, cases[i].since),
				 cases[i].wanted);
	/* The more is recorded, the worse; the more is allowed, the better. */
	for (uint64_t limit = 1; limit < 4 * MIB; limit = limit * 3 + 1) {
		enum quota_verdict before = QUOTA_FINE;

		for (uint64_t since = 0; since < 8 * MIB; since += 37 * KIB) {
			enum quota_verdict v = quota_judge(limit, limit + 1, since);

			assert_true(v >= before);
			assert_true(quota_judge(limit * 2, limit + 1, since) <= v);
			before = v;
		}
		assert_int_equal(before, QUOTA_SPENT);
	}
}

static void disks(void **state)
{
	(void)state;
	assert_false(quota_disk_is_full(64 * MIB, 100 * GIB, false));
	assert_true(quota_disk_is_full(64 * MIB - 1, 100 * GIB, false));
	/* What began ends with twice as much. */
	assert_true(quota_disk_is_full(128 * MIB - 1, 100 * GIB, true));
	assert_false(quota_disk_is_full(128 * MIB, 100 * GIB, true));
	/* A small disk is not full for being small. */
	assert_false(quota_disk_is_full(2 * MIB, 24 * MIB, false));
	assert_true(quota_disk_is_full(1 * MIB, 24 * MIB, false));
	assert_false(quota_disk_is_full(0, 0, false));
}

static void specs(void **state)
{
	static const struct {
		const char *text;
		bool fine;
	} cases[] = {
		{"{}", true},
		{"{\"quota_bytes\": 0, \"rate_bytes\": 1, \"sweep_s\": 2592000}", true},
		{"{\"quota_bytes\": -1}", false},
		{"{\"quota_bytes\": 1.5}", false},
		{"{\"quota_bytes\": \"1G\"}", false},
		{"{\"quota_bytes\": 9007199254740993}", false},
		{"{\"rate_bytes\": null}", false},
		{"{\"sweep_s\": 2592001}", false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		json_t *o = json_loads(cases[i].text, 0, NULL);

		assert_non_null(o);
		assert_int_equal(quota_judge_spec(o) == NULL, cases[i].fine);
		json_decref(o);
	}
}

/* Who sends whenever it may gets the rate, whatever the pieces and the clock's steps. */
static void rates(void **state)
{
	static const uint64_t rate[] = {1, 999, 1000, 64 * KIB, 10 * MIB, 3 * GIB};
	static const uint64_t piece[] = {1, 777, 100 * KIB, 5 * MIB};

	(void)state;
	for (size_t r = 0; r < ARRAY_SIZE(rate); r++) {
		for (size_t s = 0; s < ARRAY_SIZE(piece); s++) {
			const uint64_t end_ms = 100000;
			uint64_t now_ms = 5, sent = 0, burst, most;
			struct pace p = {0};

			pace_set(&p, rate[r], now_ms);
			burst = MAX(MIN(rate[r], (uint64_t)INT32_MAX), MIB);
			for (unsigned i = 0; now_ms < end_ms && i < 3000000; i++) {
				uint64_t wait_ms = pace_wait_ms(&p, now_ms);

				assert_true(wait_ms <= 60000);
				if (wait_ms) {
					now_ms += wait_ms;
					continue;
				}
				pace_took(&p, piece[s]);
				sent += piece[s];
			}
			most = burst + rate[r] * now_ms / 1000 + piece[s] + rate[r];
			assert_true(sent <= most);
			if (now_ms >= end_ms)
				assert_true(sent + piece[s] + rate[r] + 1000 >=
					    rate[r] / 10 * 9 / 1000 * (end_ms - 60000));
		}
	}
}

static void no_rate(void **state)
{
	struct pace p = {0};

	(void)state;
	pace_took(&p, UINT64_MAX);
	assert_int_equal(pace_wait_ms(&p, 1), 0);
	pace_set(&p, 1000, 1);
	pace_took(&p, 3 * MIB);
	assert_true(pace_wait_ms(&p, 1) > 1000);
	/* Said again it is the same; another one begins anew, none has no limit. */
	pace_set(&p, 1000, 1);
	assert_true(pace_wait_ms(&p, 1) > 1000);
	/* A clock that jumps is no gift and no harm. */
	assert_true(pace_wait_ms(&p, 0) > 1000);
	pace_set(&p, 0, 1);
	assert_int_equal(pace_wait_ms(&p, 1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(verdicts), cmocka_unit_test(disks),   cmocka_unit_test(specs),
		cmocka_unit_test(rates),    cmocka_unit_test(no_rate),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
