/* A log gives back what was appended, in order and byte for byte, over segments, restarts and
 * failures; "durable" is said only after a sync. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/fault.h"
#include "tests/unit/log-fixture.h"
#include "tests/unit/scratch.h"

static const char *const abcdefgh[] = {"A", "B", "C", "D", "E", "F", "G", "H"};

static int teardown(void **state)
{
#ifdef LIMB_FAULTS
	(void)fault_set(NULL);
#endif
	return scratch_teardown(state);
}

static void test_append_and_read(void **state)
{
	static const size_t sizes[] = {
		0, 1, 7, 8, 9, 255, 65536, 65537, 300000, 4 << 20, (16 << 20) - 16};
	static uint8_t body[16 << 20];
	struct log *log = fixture_open(scratch);
	struct log_reader *rd = NULL;
	struct log_record rec;
	struct log_ids ids;
	uint64_t seq;

	for (size_t i = 0; i < sizeof(body); i++)
		body[i] = (uint8_t)(i * 31 + i / 251);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		assert_int_equal(log_append(log, (uint16_t)(i + 1), body + i, sizes[i],
					    1000 + (int64_t)i, &seq),
				 0);
		assert_int_equal(seq, i + 1);
		assert_int_equal(log_last(log), i + 1);
	}
	assert_int_equal(log_append(log, 1, body, (16 << 20) - 15, 0, NULL), -E2BIG);
	assert_int_equal(log_last(log), ARRAY_SIZE(sizes));
	assert_int_equal(log_sync(log), 0);

	assert_int_equal(log_reader_open(scratch, 0, &rd), 0);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		assert_int_equal(log_reader_next(rd, &rec), 1);
		assert_int_equal(rec.seq, i + 1);
		assert_int_equal(rec.type, i + 1);
		assert_int_equal(rec.n, sizes[i]);
		assert_memory_equal(rec.body, body + i, sizes[i]);
	}
	assert_memory_equal(rec.chain, log_chain(log), SHA256_BYTES);
	assert_int_equal(log_reader_next(rd, &rec), 0);
	log_reader_ids(rd, &ids);
	assert_memory_equal(ids.log_id, fixture_ids.log_id, 16);
	assert_memory_equal(ids.brain_id, fixture_ids.brain_id, 16);
	assert_int_equal(ids.term, 1);
	log_reader_free(rd);
	log_close(log);
}

static void test_times_never_go_back(void **state)
{
	static const int64_t given[] = {500, 400, 600, 1, INT64_MAX - 1, 0};
	static const int64_t want[] = {500, 500, 600, 600, INT64_MAX - 1, INT64_MAX - 1};
	struct segment_header h = {.first_seq = 1, .time_ns = 10, .term = 1};
	struct log_reader *rd = NULL;
	struct log_record rec;
	bool named;
	struct log *log;
	int fd;

	/* A segment that was made at 10 ns after 1970. */
	memcpy(h.log_id, fixture_ids.log_id, 16);
	memcpy(h.brain_id, fixture_ids.brain_id, 16);
	assert_int_equal(segment_create(scratch, &h, 0, &fd, &named), 0);
	(void)close(fd);
	log = fixture_open(scratch);
	for (size_t i = 0; i < ARRAY_SIZE(given); i++) {
		assert_int_equal(log_append(log, 1, "x", 1, given[i], NULL), 0);
		if (i == 3) { /* nor over a restart and a new segment */
			assert_int_equal(log_write(log), 0);
			log_close(log);
			log = fixture_open(scratch);
			log_set_seal_bytes(log, 700);
		}
	}
	assert_int_equal(log_sync(log), 0);
	assert_int_equal(log_segments(log), 2);
	assert_int_equal(log_reader_open(scratch, 0, &rd), 0);
	for (size_t i = 0; i < ARRAY_SIZE(given); i++) {
		assert_int_equal(log_reader_next(rd, &rec), 1);
		if (i < 4)
			assert_int_equal(rec.time_ns, want[i]);
		else
			assert_int_equal(rec.time_ns, INT64_MAX - 1);
	}
	log_reader_free(rd);
	log_close(log);
}

static void test_time_is_now(void **state)
{
	struct log *log = fixture_open(scratch);
	struct log_reader *rd = NULL;
	struct log_record rec;
	int64_t before = clock_real_ns(), after;

	fixture_append(log, "A");
	assert_int_equal(log_write(log), 0);
	after = clock_real_ns();
	assert_int_equal(log_reader_open(scratch, 0, &rd), 0);
	assert_int_equal(log_reader_next(rd, &rec), 1);
	assert_true(rec.time_ns >= before && rec.time_ns <= after);
	log_reader_free(rd);
	log_close(log);
}

static void test_segments(void **state)
{
	struct log *log = fixture_open(scratch);
	uint64_t *firsts, first = 0;
	uint8_t body[100] = {0};
	struct stat st;
	size_t n;

	log_set_seal_bytes(log, 1000);
	for (int i = 0; i < 20; i++)
		assert_int_equal(log_append(log, 1, body, sizeof(body), 0, NULL), 0);
	assert_int_equal(log_sync(log), 0);
	/* 128 of header, three of 248 each. */
	assert_int_equal(log_segments(log), 7);
	assert_int_equal(log_bytes(log), 7 * 128 + 20 * 248);
	log_close(log);

	assert_int_equal(segment_list(scratch, &firsts, &n), 0);
	assert_int_equal(n, 7);
	for (size_t i = 0; i < n; i++) {
		struct segment_header h;
		char name[SEGMENT_NAME_BYTES];
		int fd;

		assert_int_equal(firsts[i], i * 3 + 1);
		assert_int_equal(segment_open(scratch, firsts[i], O_RDONLY, &h, &fd), 0);
		(void)close(fd);
		assert_int_equal(h.first_seq, firsts[i]);
		assert_int_equal(h.before_first_seq, first);
		first = h.first_seq;
		(void)snprintf(name, sizeof(name), "%016lx.log", (unsigned long)first);
		assert_int_equal(fstatat(scratch, name, &st, 0), 0);
		if (i < 6)
			assert_int_equal(st.st_size, 128 + 3 * 248);
		assert_int_equal(st.st_mode & 0777, 0600);
	}
	free(firsts);

	for (uint64_t from = 0; from <= 22; from++) {
		struct log_reader *rd = NULL;
		struct log_record rec;

		assert_int_equal(log_reader_open(scratch, from, &rd), 0);
		for (uint64_t want = MAX(from, (uint64_t)1); want <= 20; want++) {
			assert_int_equal(log_reader_next(rd, &rec), 1);
			assert_int_equal(rec.seq, want);
		}
		assert_int_equal(log_reader_next(rd, &rec), 0);
		log_reader_free(rd);
	}
	log = fixture_open(scratch);
	assert_int_equal(log_last(log), 20);
	assert_int_equal(log_durable(log), 20);
	assert_int_equal(log_bytes(log), 7 * 128 + 20 * 248);
	assert_int_equal(log_segments(log), 7);
	log_close(log);
}

/* A record larger than what is left, or than a whole segment of the usual size. */
static void test_seal_at_64_mib(void **state)
{
	static uint8_t body[15 << 20];
	struct log *log = fixture_open(scratch);
	struct stat st;

	for (int i = 0; i < 5; i++)
		assert_int_equal(log_append(log, 1, body, sizeof(body), 0, NULL), 0);
	assert_int_equal(log_write(log), 0);
	assert_int_equal(log_segments(log), 2);
	assert_int_equal(fstatat(scratch, "0000000000000001.log", &st, 0), 0);
	assert_true(st.st_size <= 64 << 20);
	assert_int_equal(fstatat(scratch, "0000000000000005.log", &st, 0), 0);
	log_close(log);
}

/* What is written ahead of a sync costs no metadata: the file is as long as before. */
static void test_zeros_ahead(void **state)
{
	struct log *log = fixture_open(scratch);
	unsigned grown = 0;
	struct stat st;
	off_t size = 0;

	for (int i = 0; i < 10000; i++) {
		fixture_append(log, "0123456789012345678901234567890123456789");
		assert_int_equal(log_write(log), 0);
		assert_int_equal(fstatat(scratch, "0000000000000001.log", &st, 0), 0);
		assert_true((uint64_t)st.st_size >= log_bytes(log));
		assert_true((uint64_t)st.st_size <= log_bytes(log) + (1 << 20));
		if (st.st_size != size)
			grown++;
		size = st.st_size;
	}
	assert_in_range(grown, 1, 6); /* 1.8 MB */
	log_close(log);
}

static void test_sync_beside_appends(void **state)
{
	struct log *log = fixture_open(scratch);
	struct log_sync s, other;

	fixture_append(log, "A");
	assert_int_equal(log_sync_begin(log, &s), 0);
	assert_int_equal(s.seq, 1);
	assert_int_equal(log_sync_begin(log, &other), -EBUSY);
	fixture_append(log, "B");
	assert_int_equal(log_write(log), 0);
	assert_int_equal(log_sync_run(&s), 0);
	assert_int_equal(log_durable(log), 0);
	assert_int_equal(log_sync_end(log, &s, 0), 0);
	assert_int_equal(log_durable(log), 1);
	assert_int_equal(log_sync(log), 0);
	assert_int_equal(log_durable(log), 2);
	assert_int_equal(log_sync(log), 0); /* nothing to do */
	log_close(log);
}

/* A segment is sealed while the sync of it runs: durable is said when that has ended well. */
static void test_seal_beside_sync(void **state)
{
	struct log *log = fixture_open(scratch);
	struct log_sync s;

	log_set_seal_bytes(log, 500);
	fixture_append(log, "A");
	fixture_append(log, "B");
	assert_int_equal(log_sync_begin(log, &s), 0);
	fixture_append(log, "C");
	fixture_append(log, "D");
	fixture_append(log, "E");
	assert_int_equal(log_segments(log), 3);
	assert_int_equal(log_durable(log), 0);
	assert_int_equal(log_sync_end(log, &s, log_sync_run(&s)), 0);
	assert_int_equal(log_durable(log), 2);
	assert_int_equal(log_sync(log), 0);
	assert_int_equal(log_durable(log), 5);

	assert_int_equal(log_sync_begin(log, &s), 0);
	fixture_append(log, "F");
	assert_int_equal(log_sync_end(log, &s, -EIO), -EIO);
	assert_int_equal(log_durable(log), 5);
	assert_int_equal(log_append(log, 1, "x", 1, 0, NULL), -EIO);
	log_close(log);
}

#ifdef LIMB_FAULTS

static void expect_refusal(struct log *log)
{
	struct log_sync s;

	assert_int_equal(log_append(log, 1, "x", 1, 0, NULL), -EIO);
	assert_int_equal(log_write(log), -EIO);
	assert_int_equal(log_sync_begin(log, &s), -EIO);
	assert_int_equal(log_sync(log), -EIO);
	assert_int_equal(log_truncate(log, 0), -EIO);
}

static void test_failed_sync(void **state)
{
	struct log *log = fixture_open(scratch);

	fixture_append(log, "A");
	assert_int_equal(log_sync(log), 0);
	fixture_append(log, "B");
	assert_int_equal(fault_set("log.sync:1:error"), 0);
	assert_int_equal(log_sync(log), -EIO);
	assert_int_equal(log_durable(log), 1);
	expect_refusal(log);
	log_close(log);
	log = fixture_open(scratch);
	assert_int_equal(log_durable(log), 2);
	assert_log(scratch, "A,B,");
	log_close(log);
}

static void test_failed_write(void **state)
{
	struct log_recovery recovery;
	struct log *log = fixture_open(scratch);

	fixture_append(log, "A");
	assert_int_equal(log_sync(log), 0);
	fixture_append(log, "B");
	assert_int_equal(fault_set("log.append:1:cut=ENOSPC"), 0);
	assert_int_equal(log_write(log), -ENOSPC);
	assert_int_equal(log_written(log), 1);
	expect_refusal(log);
	log_close(log);
	assert_int_equal(log_open(scratch, &fixture_ids, 0, &log, &recovery), 0);
	assert_true(recovery.torn_tail_bytes > 0);
	assert_int_equal(fixture_append(log, "C"), 2);
	assert_int_equal(log_sync(log), 0);
	assert_log(scratch, "A,C,");
	log_close(log);
}

/* No room for zeros or for a new segment: nothing is lost, and it works later. */
static void test_no_room(void **state)
{
	static uint8_t body[300 << 10];
	struct log *log = fixture_open(scratch);
	uint64_t seq = 0;

	assert_int_equal(log_append(log, 1, body, sizeof(body), 0, &seq), 0);
	for (int i = 1; i <= 3; i++) {
		assert_int_equal(
			fault_set(i == 2 ? "log.fill:1:cut=ENOSPC" : "log.fill:1:error=ENOSPC"), 0);
		assert_int_equal(log_write(log), -ENOSPC);
		assert_int_equal(log_written(log), 0);
	}
	assert_int_equal(fault_set(NULL), 0);
	assert_int_equal(log_write(log), 0);
	assert_int_equal(log_written(log), 1);

	log_set_seal_bytes(log, 1000);
	for (int i = 0; i < 4; i++) {
		static const char *const plans[] = {
			"log.segment.write:1:error=ENOSPC",
			"log.segment.fill:1:cut=ENOSPC",
			"log.segment.sync:1:error=ENOSPC",
			"log.segment.rename:1:error=ENOSPC",
		};

		assert_int_equal(fault_set(plans[i]), 0);
		assert_int_equal(log_append(log, 1, "x", 1, 0, NULL), -ENOSPC);
		assert_int_equal(log_last(log), 1);
		assert_int_equal(faccessat(scratch, "segment.tmp", F_OK, 0), -1);
	}
	assert_int_equal(fault_set(NULL), 0);
	assert_int_equal(fixture_append(log, "B"), 2);
	assert_int_equal(log_sync(log), 0);
	assert_int_equal(log_segments(log), 2);
	log_close(log);
	log = fixture_open(scratch);
	assert_int_equal(log_last(log), 2);
	log_close(log);
}

#endif

/* A reader goes over no gap, and waits at the place that it was given. */
static void test_reader_places(void **state)
{
	struct log_reader *rd = NULL;
	struct log_record rec;
	struct log *log;
	char got[64];

	fixture_log(scratch, 500, abcdefgh, 6);
	assert_int_equal(log_reader_open(scratch, 9, &rd), 0);
	assert_int_equal(log_reader_next(rd, &rec), 0);
	log = fixture_open(scratch);
	log_set_seal_bytes(log, 500);
	for (uint64_t seq = 7; seq <= 10; seq++) {
		fixture_append(log, "x");
		assert_int_equal(log_write(log), 0);
		assert_int_equal(log_reader_next(rd, &rec), seq < 9 ? 0 : 1);
	}
	assert_int_equal(rec.seq, 10);
	log_reader_free(rd);
	log_close(log);

	assert_int_equal(unlinkat(scratch, "0000000000000005.log", 0), 0);
	assert_int_equal(fixture_read(scratch, 0, got, sizeof(got)), -EBADMSG);
	assert_string_equal(got, "A,B,C,D,");
	assert_int_equal(fixture_read(scratch, 6, got, sizeof(got)), -EBADMSG);
	assert_string_equal(got, "");
	assert_int_equal(fixture_read(scratch, 8, got, sizeof(got)), 0);
	assert_string_equal(got, "x,x,x,");
}

/* One thread writes, seals and syncs; a reader sees each record once, in order, and no damage. */
struct race {
	int dir;
	atomic_bool done;
};

enum { RACE_RECORDS = 20000 };

static void *race_writer(void *arg)
{
	struct race *race = arg;
	static uint8_t body[1500];
	struct log *log = NULL;
	long bad = 0;

	bad |= log_open(race->dir, &fixture_ids, LOG_CREATE, &log, NULL) < 0;
	for (uint64_t i = 1; !bad && i <= RACE_RECORDS; i++) {
		size_t n = 8 + i * 7919 % (sizeof(body) - 8);

		memset(body, (int)i, n);
		put_le64(body, i);
		log_set_seal_bytes(log, 100 << 10);
		bad |= log_append(log, 1, body, n, 0, NULL) < 0;
		if (i % 3 == 0)
			bad |= log_write(log) < 0;
		if (i % 100 == 0)
			bad |= log_sync(log) < 0;
	}
	bad |= !log || log_sync(log) < 0;
	log_close(log);
	atomic_store(&race->done, true);
	return (void *)bad;
}

static void test_reader_beside_writer(void **state)
{
	struct race race = {.dir = scratch};
	struct log_reader *rd = NULL;
	struct log_record rec;
	uint64_t want = 1;
	bool done = false;
	pthread_t thread;
	void *bad;
	int r = 0;

	assert_int_equal(pthread_create(&thread, NULL, race_writer, &race), 0);
	do {
		r = log_reader_open(scratch, 0, &rd);
	} while (r == -ENOENT);
	assert_int_equal(r, 0);
	for (;;) {
		bool was_done = done;

		done = atomic_load(&race.done);
		while ((r = log_reader_next(rd, &rec)) > 0) {
			assert_int_equal(rec.seq, want);
			assert_int_equal(get_le64(rec.body), want);
			assert_int_equal(rec.n, 8 + want * 7919 % 1492);
			want++;
		}
		assert_int_equal(r, 0);
		if (was_done)
			break;
	}
	assert_int_equal(pthread_join(thread, &bad), 0);
	assert_null(bad);
	assert_int_equal(want, RACE_RECORDS + 1);
	log_reader_free(rd);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, scratch_setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_append_and_read),
		TEST(test_times_never_go_back),
		TEST(test_time_is_now),
		TEST(test_segments),
		TEST(test_seal_at_64_mib),
		TEST(test_zeros_ahead),
		TEST(test_sync_beside_appends),
		TEST(test_seal_beside_sync),
		TEST(test_reader_places),
		TEST(test_reader_beside_writer),
#ifdef LIMB_FAULTS
		TEST(test_failed_sync),
		TEST(test_failed_write),
		TEST(test_no_room),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
