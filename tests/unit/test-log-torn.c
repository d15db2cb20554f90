/* A record that a crash tore is cut, with all that stood behind it, before anything is appended
 * (B57); one that was durable is not, whatever became of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/fault.h"
#include "tests/unit/child.h"
#include "tests/unit/log-fixture.h"
#include "tests/unit/scratch.h"

static const char first_segment[] = "0000000000000001.log";

/* Starts, writes C, is killed before anything is synced. */
static int write_c_and_die(void *arg)
{
	struct log *log;
	uint64_t seq;

	(void)arg;
	if (log_open(scratch, &fixture_ids, 0, &log, NULL) < 0 ||
	    log_append(log, RECORD_CHANGE, "C", 1, 0, &seq) < 0 || log_write(log) < 0)
		return 1;
	fault_die();
}

static void remove_head(void)
{
	/* It lags in truth; here the log was closed. */
	assert_int_equal(unlinkat(scratch, "head", 0), 0);
}

/* A segment with A and B, whole. */
struct two {
	uint8_t *p;
	size_t n, b, end;
};

static struct two make_a_b(void)
{
	static const char *const texts[] = {"A", "B, of more than one word"};
	size_t offsets[4];
	struct two t;

	fixture_log(scratch, 0, texts, 2);
	remove_head();
	t.p = fixture_load(scratch, first_segment, &t.n);
	assert_int_equal(fixture_places(t.p, t.n, offsets, 3), 2);
	t.b = offsets[1];
	t.end = offsets[2];
	return t;
}

static void expect_a_c(uint64_t torn_bytes, bool b_is_whole)
{
	struct log_recovery recovery;
	struct log *log;

	assert_int_equal(log_open(scratch, &fixture_ids, 0, &log, &recovery), 0);
	log_close(log);
	assert_int_equal(recovery.torn_tail_bytes, torn_bytes);
	remove_head();
	assert_sound(scratch, 0);
	assert_int_equal(child_run(write_c_and_die, NULL), -SIGKILL);
	assert_int_equal(log_open(scratch, &fixture_ids, 0, &log, &recovery), 0);
	assert_int_equal(recovery.torn_tail_bytes, 0);
	assert_log(scratch, b_is_whole ? "A,B, of more than one word,C," : "A,C,");
	log_close(log);
	remove_head();
	assert_sound(scratch, 0);
}

static void B57_cut(void **state)
{
	struct two t = make_a_b();

	for (size_t cut = t.b; cut <= t.end; cut++) {
		size_t used = cut;

		while (used > t.b && t.p[used - 1] == 0)
			used--;
		fixture_store(scratch, first_segment, t.p, cut);
		expect_a_c(cut < t.end ? used - t.b : 0, cut == t.end);
	}
	free(t.p);
}

static void B57_zeros_behind(void **state)
{
	struct two t = make_a_b();
	uint8_t *p = malloc(t.n);

	assert_non_null(p);
	for (size_t cut = t.b; cut < t.end; cut++) {
		size_t used = cut;

		memcpy(p, t.p, t.n);
		memset(p + cut, 0, t.end - cut);
		while (used > t.b && p[used - 1] == 0)
			used--;
		if (memcmp(p, t.p, t.n) == 0)
			used = t.b; /* it ended in zeros: B is whole */
		fixture_store(scratch, first_segment, p, t.n);
		expect_a_c(used - t.b, memcmp(p, t.p, t.n) == 0);
	}
	free(p);
	free(t.p);
}

/* The disk wrote the end of B, not its beginning. */
static void B57_zeros_before(void **state)
{
	struct two t = make_a_b();
	uint8_t *p = malloc(t.n);
	size_t used = t.end;

	assert_non_null(p);
	while (t.p[used - 1] == 0)
		used--;
	for (size_t cut = t.b + 1; cut < used; cut++) {
		memcpy(p, t.p, t.n);
		memset(p + t.b, 0, cut - t.b);
		fixture_store(scratch, first_segment, p, t.n);
		expect_a_c(used - t.b, false);
	}
	free(p);
	free(t.p);
}

/* Of B, C, D in one batch any may be lost: only A was acknowledged. */
static void B57_batch(void **state)
{
	size_t offsets[6], n;
	struct log *log = fixture_open(scratch);
	uint8_t *p, *q;

	fixture_append(log, "A");
	assert_int_equal(log_sync(log), 0);
	fixture_append(log, "B");
	fixture_append(log, "C");
	fixture_append(log, "D");
	assert_int_equal(log_write(log), 0);
	log_close(log);

	p = fixture_load(scratch, first_segment, &n);
	assert_int_equal(fixture_places(p, n, offsets, 5), 4);
	q = malloc(n);
	assert_non_null(q);
	for (unsigned lost = 1; lost < 8; lost++) {
		static const char *const want[] = {NULL,     "A,", "A,B,", "A,",
						   "A,B,C,", "A,", "A,B,", "A,"};

		memcpy(q, p, n);
		for (int i = 0; i < 3; i++) {
			if (lost & 1u << i)
				memset(q + offsets[i + 1], 0, offsets[i + 2] - offsets[i + 1]);
		}
		fixture_store(scratch, first_segment, q, n);
		assert_int_equal(log_open(scratch, &fixture_ids, 0, &log, NULL), 0);
		assert_log(scratch, want[lost]);
		log_close(log);
		assert_sound(scratch, 0);
		remove_head();
	}
	free(q);
	free(p);
}

/* A torn tail is only what was never durable: each of these is left alone. */
static void test_durable_is_not_torn(void **state)
{
	size_t offsets[6], n, n_head, flips[3];
	struct log *log = fixture_open(scratch);
	uint8_t *p, *head;

	fixture_append(log, "A");
	assert_int_equal(log_sync(log), 0);
	fixture_append(log, "B");
	assert_int_equal(log_sync(log), 0);
	fixture_append(log, "C"); /* knows that B is durable */
	assert_int_equal(log_sync(log), 0);
	log_close(log); /* `head` knows that C is */
	p = fixture_load(scratch, first_segment, &n);
	head = fixture_load(scratch, "head", &n_head);
	assert_int_equal(fixture_places(p, n, offsets, 5), 3);

	for (int i = 0; i < 3; i++) {
		flips[0] = offsets[i];	     /* its magic */
		flips[1] = offsets[i] + 20;  /* header */
		flips[2] = offsets[i] + 144; /* body */
		for (int k = 0; k < 3; k++) {
			for (int with_head = 0; with_head < 2; with_head++) {
				bool last = i == 2;

				p[flips[k]] ^= 0x40;
				fixture_store(scratch, first_segment, p, n);
				p[flips[k]] ^= 0x40;
				fixture_store(scratch, "head", head, with_head ? n_head : 0);
				if (last && !with_head)
					continue; /* nobody can know */
				assert_int_equal(log_open(scratch, &fixture_ids, 0, &log, NULL),
						 -EBADMSG);
				assert_int_equal(log_open(scratch, &fixture_ids, 0, &log, NULL),
						 -EBADMSG);
			}
		}
	}
	free(p);
	free(head);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, scratch_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(B57_cut),	 TEST(B57_zeros_behind),	 TEST(B57_zeros_before),
		TEST(B57_batch), TEST(test_durable_is_not_torn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
