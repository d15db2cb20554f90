/* A log opens for the writer of the newest term alone, at its true end, and not where what it
 * remembers differs from what is there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/log-fixture.h"
#include "tests/unit/scratch.h"

static const char *const abcdefgh[] = {"A", "B", "C", "D", "E", "F", "G", "H"};

static void test_accepted_survives(void **state)
{
	struct log_recovery recovery;
	struct log *log = fixture_open(scratch);

	fixture_append(log, "A");
	assert_int_equal(log_write(log), 0);
	assert_int_equal(log_written(log), 1);
	assert_int_equal(log_durable(log), 0);
	fixture_append(log, "never written");
	assert_int_equal(log_written(log), 1);
	log_close(log);

	assert_int_equal(log_open(scratch, &fixture_ids, 0, &log, &recovery), 0);
	assert_int_equal(recovery.last_seq, 1);
	assert_int_equal(recovery.torn_tail_bytes, 0);
	assert_int_equal(log_durable(log), 1);
	assert_log(scratch, "A,");
	assert_int_equal(fixture_append(log, "B"), 2);
	assert_int_equal(log_write(log), 0);
	assert_log(scratch, "A,B,");
	log_close(log);
}

static void test_empty_directory(void **state)
{
	struct log_reader *rd;
	struct log *log;

	assert_int_equal(log_reader_open(scratch, 0, &rd), -ENOENT);
	assert_int_equal(log_open(scratch, &fixture_ids, 0, &log, NULL), -ENOENT);
	log = fixture_open(scratch);
	log_close(log);
	assert_int_equal(log_open(scratch, &fixture_ids, 0, &log, NULL), 0);
	assert_int_equal(log_last(log), 0);
	log_close(log);
	assert_log(scratch, "");
	log_close(NULL);
	log_reader_free(NULL);
}

static void test_one_writer(void **state)
{
	struct log *log = fixture_open(scratch), *other;

	assert_int_equal(log_open(scratch, &fixture_ids, LOG_CREATE, &other, NULL), -EAGAIN);
	log_close(log);
	log = fixture_open(scratch);
	log_close(log);
}

static void test_terms(void **state)
{
	struct log_ids ids = fixture_ids;
	struct log *log;

	fixture_log(scratch, 0, abcdefgh, 2);
	ids.term = 3;
	assert_int_equal(log_open(scratch, &ids, 0, &log, NULL), 0);
	/* The fence stands before anything is appended under it. */
	log_close(log);
	assert_int_equal(log_open(scratch, &fixture_ids, 0, &log, NULL), -ESTALE);
	ids.term = 2;
	assert_int_equal(log_open(scratch, &ids, 0, &log, NULL), -ESTALE);
	ids.term = 4; /* while the segment of term 3 is empty */
	assert_int_equal(log_open(scratch, &ids, 0, &log, NULL), 0);
	assert_int_equal(log_segments(log), 2);
	assert_int_equal(fixture_append(log, "C"), 3);
	assert_int_equal(log_sync(log), 0);
	log_close(log);
	ids.term = 3;
	assert_int_equal(log_open(scratch, &ids, 0, &log, NULL), -ESTALE);
	ids.term = 4;
	assert_int_equal(log_open(scratch, &ids, 0, &log, NULL), 0);
	assert_int_equal(log_segments(log), 2);
	log_close(log);
	assert_log(scratch, "A,B,C,");
}

static void test_other_ids(void **state)
{
	struct log_ids ids = fixture_ids;
	struct log *log;

	fixture_log(scratch, 0, abcdefgh, 2);
	ids.log_id[15] ^= 1;
	assert_int_equal(log_open(scratch, &ids, LOG_CREATE, &log, NULL), -ESTALE);
	ids = fixture_ids;
	ids.brain_id[0] ^= 1;
	assert_int_equal(log_open(scratch, &ids, LOG_CREATE, &log, NULL), -ESTALE);
}

static void test_head(void **state)
{
	struct log *log = fixture_open(scratch);
	struct log_head head;
	uint8_t chain[SHA256_BYTES];

	assert_int_equal(log_head_read(scratch, &head), -ENOENT);
	log_set_head_interval(log, 0);
	fixture_append(log, "A");
	assert_int_equal(log_write(log), 0);
	assert_int_equal(log_head_read(scratch, &head), -ENOENT); /* it is not durable */
	memcpy(chain, log_chain(log), sizeof(chain));
	fixture_append(log, "B");
	assert_int_equal(log_sync(log), 0);
	assert_int_equal(log_head_read(scratch, &head), 0);
	assert_int_equal(head.seq, 2);
	assert_memory_equal(head.chain, log_chain(log), SHA256_BYTES);

	log_set_head_interval(log, 3600 * 1000);
	memcpy(chain, log_chain(log), sizeof(chain));
	fixture_append(log, "C");
	assert_int_equal(log_sync(log), 0);
	assert_int_equal(log_head_read(scratch, &head), 0);
	assert_int_equal(head.seq, 2);
	assert_memory_equal(head.chain, chain, sizeof(chain));
	memcpy(chain, log_chain(log), sizeof(chain));
	fixture_append(log, "not synced");
	assert_int_equal(log_write(log), 0);
	log_close(log);
	assert_int_equal(log_head_read(scratch, &head), 0);
	assert_int_equal(head.seq, 3);
	assert_memory_equal(head.chain, chain, sizeof(chain));
}

/* Of its two slots the good one counts; with none it says nothing, and is made anew. */
static void test_head_damage(void **state)
{
	struct log *log = fixture_open(scratch);
	struct log_head head;
	uint8_t *p;
	size_t n;

	log_set_head_interval(log, 0);
	fixture_append(log, "A");
	assert_int_equal(log_sync(log), 0);
	fixture_append(log, "B");
	assert_int_equal(log_sync(log), 0);
	log_close(log);
	p = fixture_load(scratch, "head", &n);
	assert_int_equal(n, 1024);
	for (size_t i = 0; i < n; i++) {
		size_t slot = i % 512;

		p[i] ^= 0x10;
		fixture_store(scratch, "head", p, n);
		p[i] ^= 0x10;
		assert_int_equal(log_head_read(scratch, &head), 0);
		assert_true(slot < 64 ? head.seq == 1 || head.seq == 2 : head.seq == 2);
	}
	p[0] ^= 1;
	p[512] ^= 1;
	fixture_store(scratch, "head", p, n);
	assert_int_equal(log_head_read(scratch, &head), -EBADMSG);
	log = fixture_open(scratch);
	log_close(log);
	assert_int_equal(log_head_read(scratch, &head), 0);
	assert_int_equal(head.seq, 2);
	free(p);
}

static void expect_damage(void)
{
	struct log *log;

	assert_int_equal(log_open(scratch, &fixture_ids, LOG_CREATE, &log, NULL), -EBADMSG);
	assert_int_equal(log_open(scratch, &fixture_ids, LOG_CREATE, &log, NULL), -EBADMSG);
}

/* A tail that is gone, a tail that is another: nobody writes over that. */
static void test_open_refuses_other_tail(void **state)
{
	static const char *const other[] = {"A", "B", "X", "Y"};
	size_t n, n_head, offsets[8];
	uint8_t *p, *head;

	fixture_log(scratch, 0, abcdefgh, 4);
	p = fixture_load(scratch, "0000000000000001.log", &n);
	head = fixture_load(scratch, "head", &n_head);
	assert_int_equal(fixture_places(p, n, offsets, 7), 4);
	memset(p + offsets[3], 0, n - offsets[3]);
	fixture_store(scratch, "0000000000000001.log", p, n);
	expect_damage();
	assert_log(scratch, "A,B,C,");

	assert_int_equal(unlinkat(scratch, "0000000000000001.log", 0), 0);
	expect_damage();

	assert_int_equal(unlinkat(scratch, "head", 0), 0);
	fixture_log(scratch, 0, other, 4);
	fixture_store(scratch, "head", head, n_head);
	expect_damage();
	free(p);
	free(head);
}

static void test_open_refuses_gaps(void **state)
{
	static const char *const names[] = {"0000000000000001.log", "0000000000000003.log",
					    "0000000000000005.log", "0000000000000007.log"};
	uint8_t *p;
	size_t n;

	fixture_log(scratch, 500, abcdefgh, 8);
	for (int i = 0; i < 4; i++) {
		p = fixture_load(scratch, names[i], &n);
		assert_int_equal(unlinkat(scratch, names[i], 0), 0);
		expect_damage();
		fixture_store(scratch, names[i], p, n);
		p[60] ^= 1; /* its header */
		fixture_store(scratch, names[i], p, n);
		expect_damage();
		p[60] ^= 1;
		fixture_store(scratch, names[i], p, n);
		free(p);
	}
	assert_int_equal(renameat(scratch, names[2], scratch, "0000000000000006.log"), 0);
	expect_damage();
	assert_int_equal(renameat(scratch, "0000000000000006.log", scratch, names[2]), 0);
	assert_log(scratch, "A,B,C,D,E,F,G,H,");
	fixture_log(scratch, 0, abcdefgh, 1);
}

/* Bytes of a future version are neither read wrong nor cut. */
static void test_newer_versions(void **state)
{
	size_t n, offsets[4];
	struct log *log;
	uint8_t *p, hash[SHA256_BYTES];
	char got[64];

	fixture_log(scratch, 0, abcdefgh, 2);
	p = fixture_load(scratch, "0000000000000001.log", &n);
	assert_int_equal(fixture_places(p, n, offsets, 3), 2);
	p[offsets[1] + 4] = 2;
	sha256(p + offsets[1], 120, hash);
	memcpy(p + offsets[1] + 120, hash, 8);
	fixture_store(scratch, "0000000000000001.log", p, n);
	assert_int_equal(unlinkat(scratch, "head", 0), 0);
	assert_int_equal(log_open(scratch, &fixture_ids, 0, &log, NULL), -EPROTONOSUPPORT);
	assert_int_equal(fixture_read(scratch, 0, got, sizeof(got)), -EPROTONOSUPPORT);
	assert_string_equal(got, "A,");

	put_le32(p + 8, 2);
	sha256(p, 120, hash);
	memcpy(p + 120, hash, 8);
	fixture_store(scratch, "0000000000000001.log", p, n);
	assert_int_equal(log_open(scratch, &fixture_ids, 0, &log, NULL), -EPROTONOSUPPORT);
	assert_int_equal(fixture_read(scratch, 0, got, sizeof(got)), -EPROTONOSUPPORT);
	free(p);
}

/* A body that holds the bytes of a record with a higher number and all checks right, torn. */
static void test_forged_records_in_bodies(void **state)
{
	uint8_t evil[4096] = {0}, *p;
	struct record_header h = {
		.type = 1, .body_len = 16, .seq = 3, .durable_seq = 2, .time_ns = 1};
	size_t n, offsets[4];
	struct log_recovery recovery;
	struct log *log = fixture_open(scratch);

	for (size_t at = 0; at + 144 <= sizeof(evil); at += 144)
		record_header_seal(&h, log_chain(log), evil, evil + at);
	fixture_append(log, "A");
	assert_int_equal(log_sync(log), 0);
	assert_int_equal(log_append(log, 1, evil, sizeof(evil), 0, NULL), 0);
	assert_int_equal(log_write(log), 0);
	log_close(log);

	p = fixture_load(scratch, "0000000000000001.log", &n);
	assert_int_equal(fixture_places(p, n, offsets, 3), 2);
	memset(p + offsets[1], 0, 200);
	fixture_store(scratch, "0000000000000001.log", p, n);
	assert_int_equal(log_open(scratch, &fixture_ids, 0, &log, &recovery), 0);
	assert_true(recovery.torn_tail_bytes > 0);
	assert_int_equal(recovery.last_seq, 1);
	log_close(log);
	free(p);
}

static void truncate_to(int dir, uint64_t to, const char *left)
{
	struct log *log;
	struct log_head head;
	char want[64];

	fixture_log(dir, 500, abcdefgh, 8); /* two in a segment */
	log = fixture_open(dir);
	fixture_append(log, "I");
	assert_int_equal(log_truncate(log, to), -EBUSY);
	assert_int_equal(log_sync(log), 0);
	assert_int_equal(log_truncate(log, 100), 0); /* nothing above */
	assert_int_equal(log_last(log), 9);
	assert_int_equal(log_truncate(log, to), 0);
	assert_int_equal(log_last(log), to);
	assert_int_equal(log_durable(log), to);
	/* The one in which the next record belongs stays, empty or not. */
	assert_int_equal(log_segments(log), MIN(to / 2 + 1, (uint64_t)4));
	assert_int_equal(log_bytes(log), 128 * log_segments(log) + 152 * to);
	assert_log(dir, left);
	if (to > 0) {
		assert_int_equal(log_head_read(dir, &head), 0);
		assert_int_equal(head.seq, to);
		assert_memory_equal(head.chain, log_chain(log), SHA256_BYTES);
	}
	assert_int_equal(fixture_append(log, "new"), to + 1);
	assert_int_equal(log_sync(log), 0);
	log_close(log);
	(void)snprintf(want, sizeof(want), "%snew,", left);
	assert_log(dir, want);
}

static void test_truncate(void **state)
{
	char left[64] = "A,B,C,D,E,F,G,H,";

	for (uint64_t to = 8 + 1; to-- > 0;) {
		int dir;

		left[to * 2] = '\0';
		assert_int_equal(mkdirat(scratch, abcdefgh[to % 8], 0700), to == 0 ? -1 : 0);
		dir = file_open_dir(scratch, to == 0 ? "." : abcdefgh[to % 8]);
		assert_true(dir >= 0);
		truncate_to(dir, to, left);
		(void)close(dir);
	}
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, scratch_setup, scratch_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_accepted_survives),
		TEST(test_empty_directory),
		TEST(test_one_writer),
		TEST(test_terms),
		TEST(test_other_ids),
		TEST(test_head),
		TEST(test_head_damage),
		TEST(test_open_refuses_other_tail),
		TEST(test_open_refuses_gaps),
		TEST(test_newer_versions),
		TEST(test_forged_records_in_bodies),
		TEST(test_truncate),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
