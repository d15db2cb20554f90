/* The record of a time is the last that is not younger, wherever it lies; one is found by its
 * number. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "log-fixture.h"

#include "base/clock.h"

enum { RECORDS = 4000, STEP_NS = 1000 };

static unsigned seed = 5;

/* Some share a time, some are large; times[i] is of record i + 1. */
static void make(uint64_t seal_bytes, int64_t times[RECORDS])
{
	static uint8_t body[9000];
	struct log *log = fixture_open(scratch);
	/* No record is older than its log. */
	int64_t now = clock_real_ns() + 1000000000;

	if (seal_bytes)
		log_set_seal_bytes(log, seal_bytes);
	for (unsigned i = 0; i < RECORDS; i++) {
		size_t n = 10 + (unsigned)rand_r(&seed) % (i % 50 ? 100 : sizeof(body) - 10);
		uint64_t seq;

		now += rand_r(&seed) % 3 ? 0 : STEP_NS;
		times[i] = now;
		put_le32(body, i + 1);
		assert_int_equal(log_append(log, RECORD_CHANGE, body, n, now, &seq), 0);
		assert_int_equal(seq, i + 1);
		if (i % 100 == 0)
			assert_int_equal(log_write(log), 0);
	}
	assert_int_equal(log_write(log), 0);
	log_close(log);
}

static void check(const int64_t times[RECORDS])
{
	uint64_t seq = 7;

	assert_int_equal(log_seq_at(scratch, times[0] - 1, &seq), -ENOENT);
	assert_int_equal(seq, 7);
	for (unsigned i = 0; i < RECORDS; i += 1 + (unsigned)rand_r(&seed) % 20) {
		unsigned last = i;

		while (last + 1 < RECORDS && times[last + 1] == times[i])
			last++;
		assert_int_equal(log_seq_at(scratch, times[i], &seq), 0);
		assert_int_equal(seq, last + 1);
		assert_int_equal(log_seq_at(scratch, times[i] + STEP_NS - 1, &seq), 0);
		assert_int_equal(seq, last + 1);
	}
	assert_int_equal(log_seq_at(scratch, INT64_MAX, &seq), 0);
	assert_int_equal(seq, RECORDS);
}

/* The same of a number: bodies begin with it. */
static void check_bodies(void)
{
	_cleanup_(buf_done) struct buf body = BUF_INIT(0);
	uint16_t type = 0;

	for (unsigned i = 0; i < RECORDS; i += 1 + (unsigned)rand_r(&seed) % 20) {
		buf_clear(&body);
		assert_int_equal(log_read_one(scratch, i + 1, &type, NULL, &body), 0);
		assert_int_equal(type, RECORD_CHANGE);
		assert_int_equal(get_le32(buf_data(&body)), i + 1);
	}
	assert_int_equal(log_read_one(scratch, 0, &type, NULL, &body), -ENOENT);
	assert_int_equal(log_read_one(scratch, RECORDS + 1, &type, NULL, &body), -ENOENT);
}

static void one_segment(void **state)
{
	static int64_t times[RECORDS];

	(void)state;
	make(0, times);
	check(times);
	check_bodies();
}

static void many_segments(void **state)
{
	static int64_t times[RECORDS];

	(void)state;
	make(100000, times);
	check(times);
	check_bodies();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(one_segment, fixture_setup, scratch_teardown),
		cmocka_unit_test_setup_teardown(many_segments, fixture_setup, scratch_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
