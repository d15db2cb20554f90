/* log_verify() names each way in which a log is not what was written: by its kind and place, for
 * any single byte, and without stopping at the first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "journal/record.pb-c.h"
#include "tests/unit/log-fixture.h"
#include "tests/unit/scratch.h"

static const char *const texts[] = {"A", "B", "C, longer than the others", "D", "E", "F", "G", "H"};
static const char *const names[] = {"0000000000000001.log", "0000000000000003.log",
				    "0000000000000005.log", "0000000000000007.log"};

/* A log's bytes by segment, to be altered and put back. */
static struct {
	uint8_t *p[4];
	size_t n[4];
	size_t at[4][10]; /* places of records; of the end */
	size_t records[4];
	unsigned segments;
	struct log_head head;
} good;

static void free_good(void)
{
	for (unsigned i = 0; i < good.segments; i++)
		free(good.p[i]);
	memset(&good, 0, sizeof(good));
}

static int teardown(void **state)
{
	free_good();
	return scratch_teardown(state);
}

static void load_good(unsigned segments)
{
	assert_int_equal(log_head_read(scratch, &good.head), 0);
	good.segments = segments;
	for (unsigned i = 0; i < segments; i++) {
		good.p[i] = fixture_load(scratch, names[i], &good.n[i]);
		good.records[i] = fixture_places(good.p[i], good.n[i], good.at[i], 9);
		/* Of the zeros ahead a few are enough. */
		good.n[i] = MIN(good.n[i], good.at[i][good.records[i]] + 1024);
	}
}

static void one_segment(void)
{
	fixture_log(scratch, 0, texts, 8);
	load_good(1);
	assert_int_equal(good.records[0], 8);
}

static void four_segments(void)
{
	fixture_log(scratch, 500, texts, 8);
	load_good(4);
	for (int i = 0; i < 4; i++)
		assert_int_equal(good.records[i], 2);
}

static void restore(unsigned segment)
{
	fixture_store(scratch, names[segment], good.p[segment], good.n[segment]);
}

/* The problems as "kind@seq ", in order. */
static const char *problems(const struct log_head *head)
{
	static char out[4096];
	struct log_report rep;
	size_t used = 0;

	out[0] = '\0';
	assert_int_equal(log_verify(scratch, head, NULL, NULL, &rep), 0);
	for (size_t i = 0; i < rep.n_problems && used < sizeof(out); i++)
		used += (size_t)snprintf(out + used, sizeof(out) - used, "%s@%lu ",
					 log_problem_name(rep.problems[i].kind),
					 (unsigned long)rep.problems[i].seq);
	log_report_done(&rep);
	return out;
}

#define assert_problems(want) assert_string_equal(problems(&good.head), want)

static int count_each(const struct log_record *rec, void *userdata)
{
	unsigned *n = userdata;

	assert_int_equal(rec->seq, *n + 1);
	assert_memory_equal(rec->body, texts[*n], rec->n);
	(*n)++;
	return 0;
}

static int stop_at_3(const struct log_record *rec, void *userdata)
{
	return rec->seq == 3 ? -ECANCELED : 0;
}

static void test_good(void **state)
{
	struct log_report rep;
	unsigned n = 0;

	four_segments();
	assert_int_equal(log_verify(scratch, &good.head, count_each, &n, &rep), 0);
	assert_int_equal(n, 8);
	assert_int_equal(rep.records, 8);
	assert_int_equal(rep.first_seq, 1);
	assert_int_equal(rep.last_seq, 8);
	assert_int_equal(rep.segments, 4);
	assert_int_equal(rep.bytes, good.n[0] + good.n[1] + good.n[2] + good.at[3][2]);
	assert_int_equal(rep.torn_tail_bytes, 0);
	assert_int_equal(rep.n_problems, 0);
	assert_memory_equal(rep.head_hash, good.head.chain, SHA256_BYTES);
	log_report_done(&rep);
	assert_int_equal(log_verify(scratch, NULL, stop_at_3, NULL, &rep), -ECANCELED);
}

static void test_empty(void **state)
{
	struct log_head head = {.seq = 1};
	struct log_report rep;

	assert_int_equal(log_verify(scratch, NULL, NULL, NULL, &rep), 0);
	assert_int_equal(rep.records + rep.segments + rep.n_problems, 0);
	assert_string_equal(problems(&head), "missing_tail@1 ");
	log_report_done(&rep);
	log_report_done(NULL);
}

/* A torn tail alone is no problem, and is told. */
static void test_torn_tail(void **state)
{
	struct log_report rep;

	one_segment();
	good.p[0][good.at[0][7] + 130] ^= 1;
	restore(0);
	good.head.seq = 7; /* as it would be, had H not been synced */
	memcpy(good.head.chain, good.p[0] + good.at[0][6] + 64, SHA256_BYTES);
	assert_int_equal(log_verify(scratch, &good.head, NULL, NULL, &rep), 0);
	assert_int_equal(rep.n_problems, 0);
	assert_int_equal(rep.records, 7);
	assert_in_range(rep.torn_tail_bytes, 140, 152);
	log_report_done(&rep);
}

/* ---- B60 ---- */

static void B60_last_dropped(void **state)
{
	one_segment();
	for (int keep = 7; keep >= 0; keep--) {
		char want[64];
		uint8_t *p = malloc(good.n[0]);

		assert_non_null(p);
		(void)snprintf(want, sizeof(want), "missing_tail@%d ", keep + 1);
		/* Zeros as if nothing had been written, and cut. */
		memcpy(p, good.p[0], good.n[0]);
		memset(p + good.at[0][keep], 0, good.n[0] - good.at[0][keep]);
		fixture_store(scratch, names[0], p, good.n[0]);
		assert_problems(want);
		fixture_store(scratch, names[0], p, good.at[0][keep]);
		assert_problems(want);
		free(p);
	}
}

static void B60_last_segments_dropped(void **state)
{
	four_segments();
	assert_int_equal(unlinkat(scratch, names[3], 0), 0);
	assert_problems("missing_tail@7 ");
	assert_int_equal(unlinkat(scratch, names[2], 0), 0);
	assert_problems("missing_tail@5 ");
}

/* Removes records [from, to) of a segment by moving the others up. */
static void drop(unsigned segment, size_t from, size_t to)
{
	size_t gone = good.at[segment][to] - good.at[segment][from];
	uint8_t *p = calloc(1, good.n[segment]);
	size_t end = good.n[segment] - gone;

	assert_non_null(p);
	memcpy(p, good.p[segment], good.at[segment][from]);
	memcpy(p + good.at[segment][from], good.p[segment] + good.at[segment][to],
	       good.n[segment] - good.at[segment][to]);
	fixture_store(scratch, names[segment], p, end);
	free(p);
}

static void B60_middle_dropped(void **state)
{
	one_segment();
	for (size_t i = 0; i < 7; i++) {
		char want[64];

		for (size_t to = i + 1; to < 8; to++) {
			(void)snprintf(want, sizeof(want), "missing_record@%zu ", i + 1);
			drop(0, i, to);
			assert_problems(want);
		}
	}
	free_good();
	assert_int_equal(unlinkat(scratch, names[0], 0), 0);
	assert_int_equal(unlinkat(scratch, "head", 0), 0);
	four_segments();
	drop(1, 1, 2); /* the last of a sealed segment */
	assert_problems("missing_record@4 ");
	drop(1, 0, 2);
	assert_problems("missing_record@3 ");
}

/* Exchanges two records of one segment. */
static void swap(uint8_t *p, size_t a, size_t b)
{
	const uint8_t *q = good.p[0];
	const size_t *at = good.at[0];
	size_t to = at[a];

	memcpy(p, q, good.n[0]);
	memcpy(p + to, q + at[b], at[b + 1] - at[b]);
	to += at[b + 1] - at[b];
	memcpy(p + to, q + at[a + 1], at[b] - at[a + 1]);
	to += at[b] - at[a + 1];
	memcpy(p + to, q + at[a], at[a + 1] - at[a]);
}

static void B60_swapped(void **state)
{
	uint8_t *p;

	one_segment();
	p = malloc(good.n[0]);
	assert_non_null(p);
	for (size_t a = 0; a < 8; a++) {
		for (size_t b = a + 1; b < 8; b++) {
			const char *got;

			swap(p, a, b);
			fixture_store(scratch, names[0], p, good.n[0]);
			got = problems(&good.head);
			assert_memory_equal(got, "swapped@", 8);
			/* Of nothing else is spoken; two are named at most, unless they
			 * are one apart, where either could be the stray one. */
			assert_null(strstr(got, "missing"));
			assert_null(strstr(got, "chain"));
			assert_null(strstr(got, "checksum"));
			assert_true(strlen(got) <= 2 * strlen("swapped@1 "));
		}
	}
	free(p);
}

static void B60_swapped_over_segments(void **state)
{
	size_t size;
	uint8_t a[152];

	four_segments();
	size = good.at[3][1] - good.at[3][0];
	assert_int_equal(size, sizeof(a));
	memcpy(a, good.p[0] + good.at[0][1], size);
	memcpy(good.p[0] + good.at[0][1], good.p[3] + good.at[3][0], size);
	memcpy(good.p[3] + good.at[3][0], a, size);
	restore(0);
	restore(3);
	assert_problems("swapped@7 swapped@2 ");
}

static void B60_segments_swapped(void **state)
{
	four_segments();
	assert_int_equal(renameat(scratch, names[1], scratch, "x"), 0);
	assert_int_equal(renameat(scratch, names[2], scratch, names[1]), 0);
	assert_int_equal(renameat(scratch, "x", scratch, names[2]), 0);
	assert_problems("swapped@5 swapped@3 ");
}

static void B60_repeated(void **state)
{
	uint8_t *p;

	four_segments();
	fixture_store(scratch, names[2], good.p[1], good.n[1]);
	assert_memory_equal(problems(&good.head), "swapped@3 ", 10);
	restore(2);
	assert_problems("");

	p = malloc(good.n[0] * 2);
	assert_non_null(p);
	memcpy(p, good.p[0], good.n[0]);
	memcpy(p + good.n[0], good.p[0] + good.at[0][1], good.n[0] - good.at[0][1]);
	fixture_store(scratch, names[0], p, good.n[0] * 2 - good.at[0][1]);
	assert_problems("swapped@2 ");
	free(p);
}

/* What a faulty writer does: appends behind the torn tail. */
static void B60_torn_then_appended(void **state)
{
	struct log *log;
	uint8_t *p, torn[100];
	struct record_header h = {.type = 1, .body_len = 17, .seq = 8};
	const char salted[24] = "0123456789abcdefC";
	size_t end;

	one_segment();
	p = good.p[0];
	/* Half of H, then a record 8 that follows on G. */
	assert_int_equal(record_header_parse(p + good.at[0][6], &h), RECORD_OK);
	h.seq = 8;
	h.body_len = 17;
	memcpy(torn, p + good.at[0][7], sizeof(torn));
	memset(p + good.at[0][7], 0, 1000);
	memcpy(p + good.at[0][7], torn, sizeof(torn));
	end = good.at[0][7] + 104;
	record_header_seal(&h, p + good.at[0][6] + 64, salted, p + end);
	memcpy(p + end + 128, salted, sizeof(salted));
	restore(0);
	assert_string_equal(problems(NULL), "checksum@8 ");
	assert_int_equal(unlinkat(scratch, "head", 0), 0);
	assert_int_equal(log_open(scratch, &fixture_ids, 0, &log, NULL), -EBADMSG);
}

static void B60_rolled_back(void **state)
{
	static const char *const other[] = {"A", "B", "X", "Y", "Z", "1", "2", "3", "4"};
	struct log_head head;

	one_segment();
	head = good.head;
	assert_int_equal(unlinkat(scratch, names[0], 0), 0);
	assert_int_equal(unlinkat(scratch, "head", 0), 0);
	fixture_log(scratch, 0, other, 9);
	assert_string_equal(problems(&head), "rolled_back@8 ");
	assert_string_equal(problems(NULL), "");
}

/* ---- the other kinds ---- */

static void test_missing_segments(void **state)
{
	four_segments();
	for (unsigned i = 0; i < 3; i++) {
		char want[64];

		(void)snprintf(want, sizeof(want), "missing_segment@%u ", i * 2 + 1);
		assert_int_equal(unlinkat(scratch, names[i], 0), 0);
		assert_problems(want);
		restore(i);
	}
	assert_problems("");
}

static void reseal(uint8_t *header)
{
	uint8_t hash[SHA256_BYTES];

	sha256(header, 120, hash);
	memcpy(header + 120, hash, 8);
}

/* An edit with all hashes made right, up to where the editor stops. */
static void test_edited(void **state)
{
	uint8_t *r;

	one_segment();
	r = good.p[0] + good.at[0][3];
	r[144] = 'X';
	restore(0);
	assert_problems("checksum@4 ");
	sha256(r + 128, 17, r + 32);
	reseal(r);
	restore(0);
	assert_problems("chain@4 ");

	for (size_t i = 3; i < 8; i++) {
		struct record_header h;
		char want[64];

		r = good.p[0] + good.at[0][i];
		assert_int_equal(record_header_parse(r, &h), RECORD_OK);
		record_header_seal(&h, good.p[0] + good.at[0][i - 1] + 64, r + 128, r);
		restore(0);
		(void)snprintf(want, sizeof(want), i < 7 ? "chain@%zu " : "rolled_back@%zu ",
			       i < 7 ? i + 2 : i + 1);
		assert_problems(want);
	}
}

static void test_segment_headers(void **state)
{
	static const struct {
		size_t offset;
		const char *want;
	} edits[] = {
		{16, "bad_header@0 "}, /* log id */
		{32, "bad_header@0 "}, /* brain id */
		{48, "bad_header@0 "}, /* term: 0, below that of the segment before */
		{64, "chain@3 "},      /* chain */
	};

	four_segments();
	for (size_t i = 0; i < ARRAY_SIZE(edits); i++) {
		good.p[1][edits[i].offset] ^= 1;
		reseal(good.p[1]);
		restore(1);
		assert_problems(edits[i].want);
		good.p[1][edits[i].offset] ^= 1;
		reseal(good.p[1]);
	}
	restore(1);
	assert_problems("");

	good.p[1][8] = 2; /* a version to come */
	reseal(good.p[1]);
	restore(1);
	assert_problems("bad_header@0 ");
}

static void test_time_goes_back(void **state)
{
	struct record_header h;
	uint8_t *r;

	one_segment();
	r = good.p[0] + good.at[0][7];
	assert_int_equal(record_header_parse(r, &h), RECORD_OK);
	h.time_ns = 1;
	record_header_seal(&h, good.p[0] + good.at[0][6] + 64, r + 128, r);
	restore(0);
	assert_string_equal(problems(NULL), "bad_header@8 ");
}

/* Each byte of each segment, one at a time; what follows the damage is still read. */
static void test_every_byte(void **state)
{
	four_segments();
	for (unsigned s = 0; s < 4; s++) {
		/* In the last one also some of the zeros ahead. */
		size_t n = s < 3 ? good.n[s] : good.at[s][2] + 40;

		for (size_t i = 0; i < n; i++) {
			struct log_report rep;
			bool behind = i >= good.at[s][good.records[s]];

			good.p[s][i] ^= 0x20;
			restore(s);
			good.p[s][i] ^= 0x20;
			assert_int_equal(log_verify(scratch, &good.head, NULL, NULL, &rep), 0);
			if (behind)
				assert_int_equal(rep.torn_tail_bytes, i + 1 - good.at[s][2]);
			else
				assert_true(rep.n_problems > 0);
			assert_true(rep.records >= 7);
			assert_int_equal(rep.last_seq + (rep.records == 7 ? 1 : 0) >= 8, 1);
			log_report_done(&rep);
		}
		restore(s);
	}
}

/* A segment cut at each byte: something is said, and never two things of the same. */
static void test_every_cut(void **state)
{
	four_segments();
	for (unsigned s = 0; s < 4; s++) {
		for (size_t n = 0; n < good.at[s][2]; n++) {
			const char *got;

			fixture_store(scratch, names[s], good.p[s], n);
			got = problems(&good.head);
			assert_true(strlen(got) > 0);
			if (s < 3 && n > 128 && n < good.at[s][1])
				assert_non_null(strstr(got, "checksum@"));
		}
		restore(s);
	}
}

/* Damage over several records: one problem, and the rest is read. */
static void test_hole(void **state)
{
	one_segment();
	memset(good.p[0] + good.at[0][2] + 20, 0xff, good.at[0][5] - good.at[0][2] - 100);
	restore(0);
	assert_problems("checksum@3 ");
	memset(good.p[0] + good.at[0][2], 0, good.at[0][5] - good.at[0][2]);
	restore(0);
	assert_problems("checksum@3 ");
}

static void test_many_problems(void **state)
{
	struct log *log = fixture_open(scratch);
	size_t n, at = 128;
	struct log_report rep;
	struct log_head head;
	uint8_t *p;

	for (int i = 0; i < 1500; i++)
		fixture_append(log, "x");
	assert_int_equal(log_sync(log), 0);
	log_close(log);
	p = fixture_load(scratch, names[0], &n);
	for (int i = 0; i < 1400; i++, at += 152)
		p[at + 144] = 'y';
	fixture_store(scratch, names[0], p, n);
	free(p);
	assert_int_equal(log_head_read(scratch, &head), 0);
	assert_int_equal(log_verify(scratch, &head, NULL, NULL, &rep), 0);
	assert_int_equal(rep.n_problems, 1000);
	assert_true(rep.problems_cut);
	assert_int_equal(rep.last_seq, 1500);
	assert_int_equal(rep.records, 100);
	log_report_done(&rep);
}

/* ---- purge ---- */

static void append_purge(struct log *log, uint64_t a, uint64_t b)
{
	Limb__Record record = LIMB__RECORD__INIT;
	Limb__Purge purge = LIMB__PURGE__INIT;
	uint64_t seqs[] = {a, b};
	uint8_t body[256];
	size_t n;

	purge.n_seqs = 2;
	purge.seqs = seqs;
	record.body_case = LIMB__RECORD__BODY_PURGE;
	record.purge = &purge;
	assert_true(limb__record__get_packed_size(&record) <= sizeof(body));
	n = limb__record__pack(&record, body);
	assert_int_equal(log_append(log, RECORD_PURGE, body, n, 0, NULL), 0);
	assert_int_equal(log_sync(log), 0);
}

static void blank(size_t i)
{
	size_t from = good.at[0][i] + 128;

	memset(good.p[0] + from, 0, good.at[0][i + 1] - from);
}

static void test_purge(void **state)
{
	struct log *log;
	struct log_report rep;

	one_segment();
	free_good();
	log = fixture_open(scratch);
	append_purge(log, 3, 5);
	log_close(log);
	load_good(1);

	blank(2);
	restore(0);
	assert_problems("");
	blank(4);
	restore(0);
	assert_problems("");
	assert_log(scratch, "A,B,-,D,-,F,G,H,\xc2\x01\x04\x0a\x02\x03\x05,");
	assert_int_equal(log_verify(scratch, &good.head, NULL, NULL, &rep), 0);
	assert_int_equal(rep.records, 9);
	log_report_done(&rep);
	/* The log goes on, with `head` and without. */
	log = fixture_open(scratch);
	assert_int_equal(log_last(log), 9);
	log_close(log);
	assert_int_equal(unlinkat(scratch, "head", 0), 0);
	log = fixture_open(scratch);
	assert_int_equal(log_last(log), 9);
	log_close(log);

	blank(5); /* nobody asked for this one */
	restore(0);
	assert_problems("checksum@6 ");
	assert_int_equal(log_verify(scratch, &good.head, NULL, NULL, &rep), 0);
	assert_int_equal(rep.records, 8);
	log_report_done(&rep);
	good.p[0][good.at[0][2] + 140] = 1; /* purged, yet not all of it is blank */
	restore(0);
	assert_problems("checksum@3 checksum@6 ");
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_good),
		TEST(test_empty),
		TEST(test_torn_tail),
		TEST(B60_last_dropped),
		TEST(B60_last_segments_dropped),
		TEST(B60_middle_dropped),
		TEST(B60_swapped),
		TEST(B60_swapped_over_segments),
		TEST(B60_segments_swapped),
		TEST(B60_repeated),
		TEST(B60_torn_then_appended),
		TEST(B60_rolled_back),
		TEST(test_missing_segments),
		TEST(test_edited),
		TEST(test_segment_headers),
		TEST(test_time_goes_back),
		TEST(test_every_byte),
		TEST(test_every_cut),
		TEST(test_hole),
		TEST(test_many_problems),
		TEST(test_purge),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
