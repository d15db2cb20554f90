/* What record_*() and segment_header_*() write is the layout of FORMAT 1 and 2, byte for byte, and
 * no bit of a header changes unnoticed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/util.h"
#include "journal/record.h"

/* Headers by the tables of FORMAT, made without record.c. */
struct layout {
	uint8_t bytes[128];
};

static void put_check(struct layout *l)
{
	uint8_t hash[SHA256_BYTES];

	sha256(l->bytes, 120, hash);
	memcpy(l->bytes + 120, hash, 8);
}

static void fill(uint8_t *p, size_t n, uint8_t first)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(first + i);
}

static void segment_layout(struct layout *l)
{
	memset(l, 0, sizeof(*l));
	memcpy(l->bytes, "LIMBLOG\n", 8);
	put_le32(l->bytes + 8, 1);
	put_le32(l->bytes + 12, 128);
	fill(l->bytes + 16, 16, 0x10);
	fill(l->bytes + 32, 16, 0x30);
	put_le64(l->bytes + 48, 7);
	put_le64(l->bytes + 56, 0x0102030405060708);
	fill(l->bytes + 64, 32, 0x50);
	put_le64(l->bytes + 96, 1234567890123456789);
	put_le64(l->bytes + 104, 0xfeedfacecafebeef);
	put_le64(l->bytes + 112, 0x42);
	put_check(l);
}

static void segment_values(struct segment_header *h)
{
	memset(h, 0, sizeof(*h));
	fill(h->log_id, 16, 0x10);
	fill(h->brain_id, 16, 0x30);
	h->term = 7;
	h->first_seq = 0x0102030405060708;
	fill(h->chain, 32, 0x50);
	h->time_ns = 1234567890123456789;
	h->tag = 0xfeedfacecafebeef;
	h->before_first_seq = 0x42;
}

static void test_segment_layout(void **state)
{
	struct segment_header h, got;
	uint8_t bytes[SEGMENT_HEADER_BYTES];
	struct layout want;

	segment_layout(&want);
	segment_values(&h);
	segment_header_seal(&h, bytes);
	assert_memory_equal(bytes, want.bytes, sizeof(bytes));

	memset(&got, 0, sizeof(got));
	assert_int_equal(segment_header_parse(want.bytes, &got), 0);
	assert_memory_equal(&got, &h, sizeof(h));
}

static void test_segment_bits(void **state)
{
	struct segment_header h;
	struct layout l;

	for (unsigned bit = 0; bit < 128 * 8; bit++) {
		segment_layout(&l);
		l.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(segment_header_parse(l.bytes, &h), -EBADMSG);
	}
}

static void test_segment_refused(void **state)
{
	struct segment_header h;
	struct layout l;

	segment_layout(&l);
	put_le32(l.bytes + 8, 2);
	put_check(&l);
	assert_int_equal(segment_header_parse(l.bytes, &h), -EPROTONOSUPPORT);

	segment_layout(&l);
	put_le32(l.bytes + 12, 136);
	put_check(&l);
	assert_int_equal(segment_header_parse(l.bytes, &h), -EBADMSG);

	segment_layout(&l);
	put_le64(l.bytes + 56, 0);
	put_check(&l);
	assert_int_equal(segment_header_parse(l.bytes, &h), -EBADMSG);
}

static const char salted[] = "0123456789abcdef-the body"; /* with its NUL: 26 bytes */
static uint8_t before[SHA256_BYTES];

static void record_layout(struct layout *l)
{
	uint8_t chained[32 + 64];

	fill(before, sizeof(before), 0x90);
	memset(l, 0, sizeof(*l));
	memcpy(l->bytes, "LREC", 4);
	l->bytes[4] = 1;
	put_le16(l->bytes + 6, 3);
	put_le32(l->bytes + 8, sizeof(salted));
	put_le64(l->bytes + 16, 99);
	put_le64(l->bytes + 24, (uint64_t)-5);
	sha256(salted, sizeof(salted), l->bytes + 32);
	memcpy(chained, before, 32);
	memcpy(chained + 32, l->bytes, 64);
	sha256(chained, sizeof(chained), l->bytes + 64);
	put_le64(l->bytes + 96, 88);
	put_le64(l->bytes + 104, 0x1122334455667788);
	put_check(l);
}

static void test_record_layout(void **state)
{
	struct record_header h = {
		.type = RECORD_CHANGE,
		.body_len = sizeof(salted),
		.seq = 99,
		.time_ns = -5,
		.durable_seq = 88,
		.tag = 0x1122334455667788,
	};
	uint8_t bytes[RECORD_HEADER_BYTES];
	struct record_header got;
	struct layout want;

	record_layout(&want);
	record_header_seal(&h, before, salted, bytes);
	assert_memory_equal(bytes, want.bytes, sizeof(bytes));
	assert_memory_equal(h.body_hash, want.bytes + 32, SHA256_BYTES);
	assert_memory_equal(h.chain, want.bytes + 64, SHA256_BYTES);

	assert_int_equal(record_header_parse(want.bytes, &got), RECORD_OK);
	assert_int_equal(got.type, RECORD_CHANGE);
	assert_int_equal(got.body_len, sizeof(salted));
	assert_int_equal(got.seq, 99);
	assert_int_equal(got.time_ns, -5);
	assert_int_equal(got.durable_seq, 88);
	assert_int_equal(got.tag, 0x1122334455667788);
	assert_memory_equal(got.body_hash, h.body_hash, SHA256_BYTES);
	assert_memory_equal(got.chain, h.chain, SHA256_BYTES);
	assert_true(record_chain_ok(&got, before));
	assert_true(record_body_ok(&got, salted));
}

static void test_record_bits(void **state)
{
	struct record_header h;
	struct layout l;

	for (unsigned bit = 0; bit < 128 * 8; bit++) {
		record_layout(&l);
		l.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(record_header_parse(l.bytes, &h), RECORD_DAMAGED);
	}
}

static void test_record_refused(void **state)
{
	static const struct {
		uint32_t body_len;
		enum record_verdict verdict;
	} lengths[] = {
		{0, RECORD_DAMAGED},
		{15, RECORD_DAMAGED},
		{16, RECORD_OK},
		{16 << 20, RECORD_OK},
		{(16 << 20) + 1, RECORD_DAMAGED},
		{UINT32_MAX, RECORD_DAMAGED},
	};
	struct record_header h;
	struct layout l;

	memset(&l, 0, sizeof(l));
	assert_int_equal(record_header_parse(l.bytes, &h), RECORD_END);

	record_layout(&l);
	l.bytes[4] = 2;
	put_check(&l);
	assert_int_equal(record_header_parse(l.bytes, &h), RECORD_NEWER);

	record_layout(&l);
	put_le64(l.bytes + 16, 0);
	put_check(&l);
	assert_int_equal(record_header_parse(l.bytes, &h), RECORD_DAMAGED);

	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		record_layout(&l);
		put_le32(l.bytes + 8, lengths[i].body_len);
		put_check(&l);
		assert_int_equal(record_header_parse(l.bytes, &h), lengths[i].verdict);
	}
}

/* Number, type, time and body are under the chain, whatever check somebody puts. */
static void test_record_chain(void **state)
{
	static const size_t covered[] = {6, 8, 16, 24, 32, 63};
	struct record_header h;
	struct layout l;

	for (size_t i = 0; i < ARRAY_SIZE(covered); i++) {
		record_layout(&l);
		l.bytes[covered[i]] ^= 1;
		put_check(&l);
		assert_int_equal(record_header_parse(l.bytes, &h), RECORD_OK);
		assert_false(record_chain_ok(&h, before));
	}
	record_layout(&l);
	assert_int_equal(record_header_parse(l.bytes, &h), RECORD_OK);
	before[31] ^= 1;
	assert_false(record_chain_ok(&h, before));
}

static void test_record_body(void **state)
{
	struct record_header h;
	struct layout l;
	char body[sizeof(salted)];

	record_layout(&l);
	assert_int_equal(record_header_parse(l.bytes, &h), RECORD_OK);
	for (size_t i = 0; i < sizeof(salted); i++) {
		memcpy(body, salted, sizeof(salted));
		body[i] ^= 1;
		assert_false(record_body_ok(&h, body));
	}
}

static void test_record_size(void **state)
{
	assert_int_equal(record_size(16), 144);
	assert_int_equal(record_size(17), 152);
	assert_int_equal(record_size(24), 152);
	assert_int_equal(record_size(16 << 20), 128 + (16 << 20));
}

static void test_type_names(void **state)
{
	assert_string_equal(record_type_name(RECORD_GENESIS), "genesis");
	assert_string_equal(record_type_name(RECORD_JOB_START), "job_start");
	assert_string_equal(record_type_name(RECORD_AUDIT), "audit");
	assert_string_equal(record_type_name(0), "unknown");
	assert_string_equal(record_type_name(23), "unknown");
	assert_string_equal(record_type_name(65535), "unknown");
	for (uint16_t t = 1; t < 23; t++)
		assert_string_not_equal(record_type_name(t), "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_segment_layout),	cmocka_unit_test(test_segment_bits),
		cmocka_unit_test(test_segment_refused), cmocka_unit_test(test_record_layout),
		cmocka_unit_test(test_record_bits),	cmocka_unit_test(test_record_refused),
		cmocka_unit_test(test_record_chain),	cmocka_unit_test(test_record_body),
		cmocka_unit_test(test_record_size),	cmocka_unit_test(test_type_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
