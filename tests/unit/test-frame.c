/* What is encoded is decoded, however it is fed, and nothing that a peer can send makes the
 * decoder take more than one frame's limits or accept what breaks a rule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <lz4.h>
#include <zstd.h>

#include "wire/frame.h"
#include "wire/wire.pb-c.h"

/* Feeds n bytes in one go; what next() gives then is for the caller. */
static void feed(struct wframe_decoder *d, const void *data, size_t n)
{
	const uint8_t *bytes = data;

	while (n > 0) {
		size_t part = MIN(n, (size_t)WIRE_READ_MAX);
		uint8_t *p;

		assert_int_equal(wframe_decoder_reserve(d, part, &p), 0);
		memcpy(p, bytes, part);
		wframe_decoder_commit(d, part);
		bytes += part;
		n -= part;
	}
}

static void start(struct wframe_decoder *d)
{
	struct wframe f;

	wframe_decoder_init(d);
	feed(d, WIRE_START, WIRE_START_BYTES);
	assert_int_equal(wframe_decoder_next(d, &f), 0);
	assert_true(d->started);
}

static void add_raw(struct buf *b, uint8_t type, uint8_t flags, uint32_t body_len,
		    uint32_t bulk_len)
{
	uint8_t h[WIRE_HEADER_BYTES] = {type, flags};

	put_le32(h + 4, body_len);
	put_le32(h + 8, bulk_len);
	assert_int_equal(buf_add(b, h, sizeof(h)), 0);
}

/* The i'th frame of a series in which lengths, types and compression vary. */
static void make_parts(unsigned i, uint8_t *type, uint8_t body[512], size_t *body_len,
		       uint8_t bulk[4096], size_t *bulk_len)
{
	*type = (uint8_t[]){WIRE_CHANGE, WIRE_DATA, WIRE_PING, WIRE_JOB_OUTPUT}[i % 4];
	*body_len = i * 37 % 512;
	*bulk_len = i % 3 == 0 ? 0 : i * 997 % 4096;
	for (size_t k = 0; k < *body_len; k++)
		body[k] = (uint8_t)(i + k);
	for (size_t k = 0; k < *bulk_len; k++)
		bulk[k] = i % 2 ? 'x' : (uint8_t)((i + 1) * k * k >> 3);
}

static void check_frame(unsigned i, const struct wframe *f)
{
	uint8_t type, body[512], bulk[4096];
	size_t body_len, bulk_len;

	make_parts(i, &type, body, &body_len, bulk, &bulk_len);
	assert_int_equal(f->type, type);
	assert_int_equal(f->body_len, body_len);
	assert_memory_equal(f->body, body, body_len);
	assert_int_equal(f->bulk_len, bulk_len);
	assert_memory_equal(f->bulk, bulk, bulk_len);
}

static void make_series(struct buf *out, unsigned n)
{
	uint8_t type, body[512], bulk[4096];
	size_t body_len, bulk_len;

	buf_init(out, 0);
	for (unsigned i = 0; i < n; i++) {
		make_parts(i, &type, body, &body_len, bulk, &bulk_len);
		assert_int_equal(
			wframe_encode(out, type, body, body_len, bulk, bulk_len, i % 5 != 0), 0);
	}
}

static void fifty_frames_in_one_feed(void **state)
{
	struct wframe_decoder d;
	struct buf series;
	struct wframe f;

	make_series(&series, 50);
	start(&d);
	feed(&d, buf_data(&series), buf_len(&series));
	for (unsigned i = 0; i < 50; i++) {
		assert_int_equal(wframe_decoder_next(&d, &f), 1);
		check_frame(i, &f);
	}
	assert_int_equal(wframe_decoder_next(&d, &f), 0);
	wframe_decoder_done(&d);
	buf_done(&series);
}

static void byte_by_byte(void **state)
{
	struct wframe_decoder d;
	struct buf series;
	struct wframe f;
	unsigned i = 0;
	int r;

	make_series(&series, 20);
	wframe_decoder_init(&d);
	feed(&d, WIRE_START, WIRE_START_BYTES);
	for (size_t k = 0; k < buf_len(&series); k++) {
		feed(&d, buf_data(&series) + k, 1);
		r = wframe_decoder_next(&d, &f);
		assert_in_range(r, 0, 1);
		if (r == 1)
			check_frame(i++, &f);
	}
	assert_int_equal(i, 20);
	wframe_decoder_done(&d);
	buf_done(&series);
}

/* A frame lent by next() stays whole until the next call. */
static void lent_until_next(void **state)
{
	struct wframe_decoder d;
	struct buf series;
	struct wframe f;

	make_series(&series, 3);
	start(&d);
	feed(&d, buf_data(&series), buf_len(&series));
	assert_int_equal(wframe_decoder_next(&d, &f), 1);
	assert_int_equal(wframe_decoder_next(&d, &f), 1);
	check_frame(1, &f);
	check_frame(1, &f);
	wframe_decoder_done(&d);
	buf_done(&series);
}

static int noise_then_mark(size_t noise, size_t feed_bytes)
{
	uint8_t *all = malloc(noise + WIRE_START_BYTES);
	struct wframe_decoder d;
	struct wframe f;
	int r = 0;

	assert_non_null(all);
	for (size_t i = 0; i < noise; i++)
		all[i] = (uint8_t)("\0LIMB-WIRE-0001\r"[i % 16]);
	memcpy(all + noise, WIRE_START, WIRE_START_BYTES);
	wframe_decoder_init(&d);
	for (size_t i = 0; i < noise + WIRE_START_BYTES && r == 0; i += feed_bytes) {
		feed(&d, all + i, MIN(feed_bytes, noise + WIRE_START_BYTES - i));
		r = wframe_decoder_next(&d, &f);
	}
	if (r == 0 && !d.started)
		r = 1;
	wframe_decoder_done(&d);
	free(all);
	return r;
}

static void noise_is_skipped_up_to_its_limit(void **state)
{
	static const size_t feeds[] = {1 << 20, 4096, 1000, 17};

	assert_int_equal(noise_then_mark(0, 1), 0);
	assert_int_equal(noise_then_mark(5, 1), 0);
	assert_int_equal(noise_then_mark(1000, 1), 0);
	for (size_t i = 0; i < ARRAY_SIZE(feeds); i++) {
		assert_int_equal(noise_then_mark(WIRE_NOISE_MAX, feeds[i]), 0);
		assert_int_equal(noise_then_mark(WIRE_NOISE_MAX + 1, feeds[i]), -EPROTO);
	}
}

static void endless_noise_takes_no_memory(void **state)
{
	static const uint8_t noise[4096];
	struct wframe_decoder d;
	struct wframe f;
	size_t fed = 0;
	int r;

	wframe_decoder_init(&d);
	do {
		feed(&d, noise, sizeof(noise));
		fed += sizeof(noise);
		r = wframe_decoder_next(&d, &f);
		assert_true(d.in.cap <= 64 << 10);
	} while (r == 0);
	assert_int_equal(r, -EPROTO);
	assert_true(fed <= WIRE_NOISE_MAX + 2 * sizeof(noise));
	wframe_decoder_done(&d);
}

static int verdict(const struct buf *raw)
{
	struct wframe_decoder d;
	struct wframe f;
	int r;

	start(&d);
	feed(&d, buf_data(raw), buf_len(raw));
	r = wframe_decoder_next(&d, &f);
	if (r < 0) /* and for ever */
		assert_int_equal(wframe_decoder_next(&d, &f), r);
	wframe_decoder_done(&d);
	return r;
}

static int verdict_of_header(uint8_t type, uint8_t flags, uint32_t body_len, uint32_t bulk_len)
{
	struct buf raw = BUF_INIT(0);
	int r;

	add_raw(&raw, type, flags, body_len, bulk_len);
	r = verdict(&raw);
	buf_done(&raw);
	return r;
}

static void lengths_are_judged_from_the_header_alone(void **state)
{
	assert_int_equal(verdict_of_header(WIRE_PING, 0, WIRE_BODY_MAX, WIRE_BULK_MAX), 0);
	assert_int_equal(verdict_of_header(WIRE_PING, 0, WIRE_BODY_MAX + 1, 0), -E2BIG);
	assert_int_equal(verdict_of_header(WIRE_PING, 0, 0, WIRE_BULK_MAX + 1), -E2BIG);
	assert_int_equal(verdict_of_header(WIRE_PING, 0, 1u << 30, 0), -E2BIG);
	assert_int_equal(verdict_of_header(WIRE_PING, 0, UINT32_MAX, UINT32_MAX), -E2BIG);
	assert_int_equal(verdict_of_header(200, 0, UINT32_MAX, 0), -E2BIG);
}

static void headers_that_break_rules(void **state)
{
	struct buf raw = BUF_INIT(0);

	assert_int_equal(verdict_of_header(0, 0, 0, 0), -EPROTONOSUPPORT);
	assert_int_equal(verdict_of_header(7, 0, 0, 0), -EPROTONOSUPPORT);
	assert_int_equal(verdict_of_header(99, 0, 0, 0), -EPROTONOSUPPORT);
	assert_int_equal(verdict_of_header(127, 0, 0, 0), -EPROTONOSUPPORT);
	assert_int_equal(verdict_of_header(WIRE_PING, 4, 0, 0), -EBADMSG);
	assert_int_equal(verdict_of_header(WIRE_PING, WIRE_FLAG_LZ4 | WIRE_FLAG_ZSTD, 0, 0),
			 -EBADMSG);
	for (size_t i = 2; i < WIRE_HEADER_BYTES; i++) {
		if (i >= 4 && i < 12)
			continue; /* the lengths */
		add_raw(&raw, WIRE_PING, 0, 0, 0);
		((uint8_t *)buf_data(&raw))[i] = 1;
		assert_int_equal(verdict(&raw), -EBADMSG);
		buf_clear(&raw);
	}
	buf_done(&raw);
}

static void unknown_types_from_128_are_skipped(void **state)
{
	struct buf raw = BUF_INIT(0);
	struct wframe_decoder d;
	struct wframe f;

	for (unsigned type = 128; type < 256; type++) {
		add_raw(&raw, (uint8_t)type, 0xff, 3, 2);
		assert_int_equal(buf_add(&raw, "abcde", 5), 0);
	}
	assert_int_equal(wframe_encode(&raw, WIRE_PONG, "z", 1, NULL, 0, false), 0);
	start(&d);
	feed(&d, buf_data(&raw), buf_len(&raw));
	assert_int_equal(wframe_decoder_next(&d, &f), 1);
	assert_int_equal(f.type, WIRE_PONG);
	assert_int_equal(wframe_decoder_next(&d, &f), 0);
	wframe_decoder_done(&d);
	buf_done(&raw);
}

static void frames_at_their_limits(void **state)
{
	uint8_t *body = calloc(1, WIRE_BODY_MAX), *bulk = malloc(WIRE_BULK_MAX);
	struct buf raw = BUF_INIT(0);
	struct wframe_decoder d;
	struct wframe f;
	size_t used;

	assert_true(body && bulk);
	for (uint32_t i = 0; i < WIRE_BULK_MAX; i++)
		bulk[i] = (uint8_t)(i * 2654435761u >> 24);
	assert_int_equal(
		wframe_encode(&raw, WIRE_DATA, body, WIRE_BODY_MAX, bulk, WIRE_BULK_MAX, false), 0);
	used = buf_len(&raw);
	assert_int_equal(wframe_encode(&raw, WIRE_DATA, body, WIRE_BODY_MAX + 1, NULL, 0, false),
			 -E2BIG);
	assert_int_equal(wframe_encode(&raw, WIRE_DATA, NULL, 0, bulk, WIRE_BULK_MAX + 1, true),
			 -E2BIG);
	assert_int_equal(buf_len(&raw), used);

	/* Two behind each other, read in the largest steps. */
	assert_int_equal(
		wframe_encode(&raw, WIRE_DATA, body, WIRE_BODY_MAX, bulk, WIRE_BULK_MAX, true), 0);
	start(&d);
	for (size_t at = 0, n = 0; at < buf_len(&raw);) {
		size_t part = MIN(buf_len(&raw) - at, (size_t)WIRE_READ_MAX);

		feed(&d, buf_data(&raw) + at, part);
		at += part;
		while (wframe_decoder_next(&d, &f) > 0) {
			n++;
			assert_int_equal(f.body_len, WIRE_BODY_MAX);
			assert_int_equal(f.bulk_len, WIRE_BULK_MAX);
			assert_memory_equal(f.bulk, bulk, WIRE_BULK_MAX);
		}
		assert_int_equal(d.error, 0);
		if (at == buf_len(&raw))
			assert_int_equal(n, 2);
	}
	wframe_decoder_trim(&d);
	assert_null(d.in.mem);
	assert_null(d.bulk.mem);
	wframe_decoder_done(&d);
	buf_done(&raw);
	free(body);
	free(bulk);
}

static void compressed_when_that_is_smaller(void **state)
{
	static uint8_t same[64 << 10];
	uint8_t random[1000];
	struct buf raw = BUF_INIT(0);
	uint64_t x = 1;

	assert_int_equal(wframe_encode(&raw, WIRE_DATA, NULL, 0, same, sizeof(same), WIRE_LZ4), 0);
	assert_int_equal(buf_data(&raw)[1], WIRE_FLAG_LZ4);
	assert_true(buf_len(&raw) < sizeof(same) / 50);
	buf_clear(&raw);
	assert_int_equal(wframe_encode(&raw, WIRE_DATA, NULL, 0, same, sizeof(same), WIRE_PLAIN),
			 0);
	assert_int_equal(buf_data(&raw)[1], 0);
	buf_clear(&raw);
	for (size_t i = 0; i < sizeof(random); i++)
		random[i] = (uint8_t)((x = x * 6364136223846793005u + 1) >> 56);
	assert_int_equal(wframe_encode(&raw, WIRE_DATA, NULL, 0, random, sizeof(random), WIRE_LZ4),
			 0);
	assert_int_equal(buf_data(&raw)[1], 0);
	assert_int_equal(buf_len(&raw), WIRE_HEADER_BYTES + sizeof(random));
	buf_clear(&raw);
	assert_int_equal(wframe_encode(&raw, WIRE_DATA, NULL, 0, same, sizeof(same), WIRE_ZSTD), 0);
	assert_int_equal(buf_data(&raw)[1], WIRE_FLAG_ZSTD);
	assert_true(buf_len(&raw) < sizeof(same) / 50);
	buf_clear(&raw);
	assert_int_equal(wframe_encode(&raw, WIRE_DATA, NULL, 0, random, sizeof(random), WIRE_ZSTD),
			 0);
	assert_int_equal(buf_data(&raw)[1], 0);
	buf_done(&raw);
}

/* A compressed bulk that says it is `said` bytes. */
static int verdict_of(uint8_t flag, uint32_t said, const void *block, uint32_t n)
{
	struct buf raw = BUF_INIT(0);
	uint8_t head[4];
	int r;

	put_le32(head, said);
	add_raw(&raw, WIRE_DATA, flag, 0, 4 + n);
	assert_int_equal(buf_add(&raw, head, 4), 0);
	assert_int_equal(buf_add(&raw, block, n), 0);
	r = verdict(&raw);
	buf_done(&raw);
	return r;
}

static int verdict_of_lz4(uint32_t said, const void *block, uint32_t n)
{
	return verdict_of(WIRE_FLAG_LZ4, said, block, n);
}

static int verdict_of_zstd(uint32_t said, const void *block, uint32_t n)
{
	return verdict_of(WIRE_FLAG_ZSTD, said, block, n);
}

static void lz4_that_lies(void **state)
{
	static uint8_t zeros[WIRE_BULK_MAX], block[16 << 10];
	struct buf raw = BUF_INIT(0);
	int n;

	n = LZ4_compress_default((char *)zeros, (char *)block, sizeof(zeros), sizeof(block));
	assert_in_range(n, 1, sizeof(block));
	assert_int_equal(verdict_of_lz4(sizeof(zeros), block, (uint32_t)n), 1);
	assert_int_equal(verdict_of_lz4(sizeof(zeros) - 1, block, (uint32_t)n), -EBADMSG);
	assert_int_equal(verdict_of_lz4(sizeof(zeros) + 1, block, (uint32_t)n), -E2BIG);
	assert_int_equal(verdict_of_lz4(1, block, (uint32_t)n), -EBADMSG);
	assert_int_equal(verdict_of_lz4(0, block, (uint32_t)n), -EBADMSG);
	assert_int_equal(verdict_of_lz4(UINT32_MAX, block, (uint32_t)n), -E2BIG);
	assert_int_equal(verdict_of_lz4(sizeof(zeros), block, (uint32_t)n - 1), -EBADMSG);
	assert_int_equal(verdict_of_lz4(100, "garbage, not a block", 20), -EBADMSG);
	assert_int_equal(verdict_of_lz4(100, "", 0), -EBADMSG);
	n = LZ4_compress_default((char *)zeros, (char *)block, 1000, sizeof(block));
	assert_int_equal(verdict_of_lz4(1000, block, (uint32_t)n), 1);
	assert_int_equal(verdict_of_lz4(1001, block, (uint32_t)n), -EBADMSG);
	/* No room for the length. */
	add_raw(&raw, WIRE_DATA, WIRE_FLAG_LZ4, 0, 3);
	assert_int_equal(buf_add(&raw, "abc", 3), 0);
	assert_int_equal(verdict(&raw), -EBADMSG);
	buf_done(&raw);
}

static void zstd_that_lies(void **state)
{
	static uint8_t zeros[WIRE_BULK_MAX], block[16 << 10];
	uint32_t n = (uint32_t)ZSTD_compress(block, sizeof(block), zeros, sizeof(zeros), 3);

	assert_in_range(n, 1, sizeof(block));
	assert_int_equal(verdict_of_zstd(sizeof(zeros), block, n), 1);
	assert_int_equal(verdict_of_zstd(sizeof(zeros) - 1, block, n), -EBADMSG);
	assert_int_equal(verdict_of_zstd(sizeof(zeros) + 1, block, n), -E2BIG);
	assert_int_equal(verdict_of_zstd(0, block, n), -EBADMSG);
	assert_int_equal(verdict_of_zstd(sizeof(zeros), block, n - 1), -EBADMSG);
	assert_int_equal(verdict_of_zstd(100, "garbage, not a frame", 20), -EBADMSG);
	assert_int_equal(verdict_of_zstd(100, "", 0), -EBADMSG);
	n = (uint32_t)ZSTD_compress(block, sizeof(block), zeros, 1000, 3);
	assert_int_equal(verdict_of_zstd(1000, block, n), 1);
	assert_int_equal(verdict_of_zstd(1001, block, n), -EBADMSG);
	assert_int_equal(verdict_of_lz4(1000, block, n), -EBADMSG);
}

/* Entries beside the message are those of the message, and nothing else comes beside it. */
static void trees_in_the_bulk(void **state)
{
	Limbwire__TreePart part = LIMBWIRE__TREE_PART__INIT, *outer, *inner = NULL;
	Limbwire__TreeEntry e = LIMBWIRE__TREE_ENTRY__INIT, *entries[] = {&e, &e};
	uint8_t bulk[256];
	struct wframe_decoder d;
	struct buf raw = BUF_INIT(0);
	struct wframe f;
	size_t n;

	e.node = 77;
	part.request = 5;
	part.last = true;
	part.entries = entries;
	part.n_entries = 2;
	assert_int_equal(wframe_pack_tree(&raw, &part), 0);
	start(&d);
	feed(&d, buf_data(&raw), buf_len(&raw));
	assert_int_equal(wframe_decoder_next(&d, &f), 1);
	outer = limbwire__tree_part__unpack(NULL, f.body_len, f.body);
	assert_non_null(outer);
	assert_int_equal(wframe_unpack_tree(outer, f.bulk, f.bulk_len, NULL, &inner), 0);
	assert_non_null(inner);
	assert_int_equal(inner->n_entries, 2);
	assert_int_equal(inner->entries[1]->node, 77);
	assert_int_equal(inner->request, 5);
	assert_true(inner->last);
	limbwire__tree_part__free_unpacked(inner, NULL);
	limbwire__tree_part__free_unpacked(outer, NULL);
	wframe_decoder_done(&d);
	buf_done(&raw);

	/* As it is without. */
	assert_int_equal(wframe_unpack_tree(&part, NULL, 0, NULL, &inner), 0);
	assert_null(inner);
	assert_int_equal(wframe_unpack_tree(&part, "x", 1, NULL, &inner), -EBADMSG);
	/* In both places, one in the other, and what is none. */
	n = limbwire__tree_part__pack(&part, bulk);
	part.in_bulk = true;
	assert_int_equal(wframe_unpack_tree(&part, bulk, n, NULL, &inner), -EBADMSG);
	n = limbwire__tree_part__pack(&part, bulk);
	part.n_entries = 0;
	assert_int_equal(wframe_unpack_tree(&part, bulk, n, NULL, &inner), -EBADMSG);
	assert_int_equal(wframe_unpack_tree(&part, "\xff\xff\xff", 3, NULL, &inner), -EBADMSG);
	assert_null(inner);
}

/* Series with one byte changed, in pieces of any size: each frame that comes out lies inside
 * of the limits, and an error stays. */
static void garbage(void **state)
{
	struct buf series;

	make_series(&series, 12);
	for (unsigned seed = 1; seed <= 3000; seed++) {
		uint64_t x = seed * 0x9e3779b97f4a7c15u;
		size_t n = buf_len(&series), at = 0;
		uint8_t *all = (uint8_t *)buf_data(&series) + x % n, before = *all;
		struct wframe_decoder d;
		struct wframe f;
		int r = 0;

		*all = (uint8_t)(x >> 32);
		start(&d);
		while (at < n && r >= 0) {
			size_t part = MIN(1 + (x = x * 6364136223846793005u + 1) % 3000, n - at);

			feed(&d, buf_data(&series) + at, part);
			at += part;
			while ((r = wframe_decoder_next(&d, &f)) > 0) {
				assert_true(f.body_len <= WIRE_BODY_MAX);
				assert_true(f.bulk_len <= WIRE_BULK_MAX);
			}
		}
		if (r < 0)
			assert_int_equal(wframe_decoder_next(&d, &f), r);
		wframe_decoder_done(&d);
		*all = before;
	}
	buf_done(&series);
}

static void names(void **state)
{
	assert_string_equal(wframe_type_name(WIRE_CHANGE), "CHANGE");
	assert_string_equal(wframe_type_name(WIRE_PUSH), "PUSH");
	assert_string_equal(wframe_type_name(99), "frame 99");
	assert_string_equal(wframe_type_name(0), "frame 0");
	assert_string_equal(wframe_type_name(255), "frame 255");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(fifty_frames_in_one_feed),
		cmocka_unit_test(byte_by_byte),
		cmocka_unit_test(lent_until_next),
		cmocka_unit_test(noise_is_skipped_up_to_its_limit),
		cmocka_unit_test(endless_noise_takes_no_memory),
		cmocka_unit_test(lengths_are_judged_from_the_header_alone),
		cmocka_unit_test(headers_that_break_rules),
		cmocka_unit_test(unknown_types_from_128_are_skipped),
		cmocka_unit_test(frames_at_their_limits),
		cmocka_unit_test(compressed_when_that_is_smaller),
		cmocka_unit_test(lz4_that_lies),
		cmocka_unit_test(zstd_that_lies),
		cmocka_unit_test(trees_in_the_bulk),
		cmocka_unit_test(garbage),
		cmocka_unit_test(names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
