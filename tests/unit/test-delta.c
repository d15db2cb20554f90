/* A delta made from a signature gives the new content, whatever its size and likeness to the
 * old one; a damaged signature is refused or gives a delta that still holds together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/delta.h"

#define SIZE_MAX_TRIED (3u << 20)

static uint64_t seed = 1;

static uint32_t next_random(void)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 33);
}

static void fill(uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)next_random();
}

struct patched {
	const uint8_t *old;
	size_t old_n;
	struct buf out;
	uint64_t literals;
	unsigned copies;
	bool last_was_copy;
	uint64_t copy_end;
};

static int patch(uint64_t from, uint64_t n, const void *literal, size_t len, void *userdata)
{
	struct patched *p = userdata;

	if (literal) {
		assert_true(len > 0);
		p->literals += len;
		p->last_was_copy = false;
		return buf_add(&p->out, literal, len);
	}
	assert_true(n > 0);
	assert_true(from <= p->old_n && n <= p->old_n - from);
	assert_false(p->last_was_copy && p->copy_end == from && p->old_n <= SIZE_MAX_TRIED);
	p->last_was_copy = true;
	p->copy_end = from + n;
	p->copies++;
	return buf_add(&p->out, p->old + from, n);
}

static struct buf signature(const uint8_t *old, size_t n, size_t piece)
{
	struct sig_maker *m;
	struct buf b;

	buf_init(&b, DELTA_SIG_MAX);
	assert_int_equal(sig_maker_new(n, &m), 0);
	for (size_t at = 0; at < n; at += piece)
		assert_int_equal(sig_maker_add(m, old + at, MIN(piece, n - at)), 0);
	assert_int_equal(sig_maker_end(m, &b), 0);
	sig_maker_free(m);
	return b;
}

/* Returns how many bytes were literal. */
static uint64_t roundtrip(const uint8_t *old, size_t old_n, const uint8_t *new, size_t new_n)
{
	size_t piece = 1 + next_random() % (300 << 10);
	struct buf sig = signature(old, old_n, piece);
	struct patched p = {.old = old, .old_n = old_n, .out = BUF_INIT(64 << 20)};
	struct delta_sig *s;
	struct delta *d;

	assert_int_equal(delta_sig_load(buf_data(&sig), buf_len(&sig), old_n, &s), 0);
	assert_int_equal(delta_new(s, patch, &p, &d), 0);
	for (size_t at = 0; at < new_n; at += piece)
		assert_int_equal(delta_add(d, new + at, MIN(piece, new_n - at)), 0);
	assert_int_equal(delta_end(d), 0);
	assert_int_equal(buf_len(&p.out), new_n);
	if (new_n)
		assert_memory_equal(buf_data(&p.out), new, new_n);
	delta_free(d);
	delta_sig_free(s);
	buf_done(&p.out);
	buf_done(&sig);
	return p.literals;
}

static size_t sizes_of(size_t block, size_t *out)
{
	static const size_t n[] = {1, 2, 3, 7, 100};
	size_t k = 0;

	out[k++] = 0;
	out[k++] = 1;
	for (size_t i = 0; i < ARRAY_SIZE(n); i++) {
		out[k++] = n[i] * block - 1;
		out[k++] = n[i] * block;
		out[k++] = n[i] * block + 1;
	}
	return k;
}

/* B55 */
static void B55_all_sizes_around_a_block(void **state)
{
	uint8_t *old = malloc(SIZE_MAX_TRIED), *new = malloc(SIZE_MAX_TRIED);
	size_t sizes[32], n = sizes_of(delta_block_bytes(0), sizes);

	fill(old, SIZE_MAX_TRIED);
	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j < n; j++) {
			/* truncated or grown, of other bytes, moved by one */
			memcpy(new, old, sizes[j]);
			(void)roundtrip(old, sizes[i], new, sizes[j]);
			fill(new, sizes[j]);
			(void)roundtrip(old, sizes[i], new, sizes[j]);
			memcpy(new, old + 1, sizes[j]);
			(void)roundtrip(old, sizes[i], new, sizes[j]);
		}
	}
	free(old);
	free(new);
}

/* B55 */
static void B55_blocks_that_repeat(void **state)
{
	uint8_t *old = malloc(SIZE_MAX_TRIED), *new = malloc(SIZE_MAX_TRIED);
	size_t block = delta_block_bytes(1 << 20);

	fill(old, block);
	for (size_t at = block; at + block <= 1 << 20; at += block)
		memcpy(old + at, old, block);
	for (unsigned k = 0; k < 20; k++) {
		size_t n = next_random() % (1 << 20);

		for (size_t at = 0; at < n; at++)
			new[at] = old[(at + k * 37) % block];
		(void)roundtrip(old, 1 << 20, new, n);
	}
	memset(old, 0, 1 << 20);
	memset(new, 0, 1 << 20);
	(void)roundtrip(old, 1 << 20, new, (1 << 20) - 1);
	free(old);
	free(new);
}

static void edits_cost_what_they_touch(void **state)
{
	uint8_t *old = malloc(SIZE_MAX_TRIED), *new = malloc(2 * SIZE_MAX_TRIED);
	size_t n = SIZE_MAX_TRIED - 4096, block = delta_block_bytes(n);

	fill(old, n);
	for (unsigned k = 0; k < 20; k++) {
		size_t at = next_random() % n, more = 1 + next_random() % 4096;

		memcpy(new, old, at);
		fill(new + at, more);
		memcpy(new + at + more, old + at, n - at);
		assert_true(roundtrip(old, n, new, n + more) <= more + 2 * block);
		/* and taken out again */
		assert_true(roundtrip(new, n + more, old, n) <= 2 * delta_block_bytes(n + more));
	}
	free(old);
	free(new);
}

/* A large one is taken in segments: an edit at a seam costs no more than elsewhere. */
static void seams_cost_nothing(void **state)
{
	size_t n = 20 << 20, seam = 8 << 20, block = delta_block_bytes(n);
	uint8_t *old = malloc(n), *new = malloc(n + 4096);

	fill(old, n);
	assert_int_equal(roundtrip(old, n, old, n), 0);
	for (unsigned k = 0; k < 20; k++) {
		size_t at = seam - 2 * block + k * block / 4, more = 1 + next_random() % 4096;

		memcpy(new, old, at);
		fill(new + at, more);
		memcpy(new + at + more, old + at, n - at);
		assert_true(roundtrip(old, n, new, n + more) <= more + 2 * block);
	}
	free(old);
	free(new);
}

static void a_sample_tells_whether_it_pays(void **state)
{
	size_t n = 2 << 20, block = delta_block_bytes(n);
	uint8_t *old = malloc(n), *other = malloc(n);
	struct delta_sig *s;
	struct buf sig;

	fill(old, n);
	fill(other, n);
	sig = signature(old, n, n);
	assert_int_equal(delta_sig_load(buf_data(&sig), buf_len(&sig), n, &s), 0);
	for (size_t at = 0; at + 3 * block < n; at += 12345) {
		assert_true(delta_sig_matches(s, old + at, 3 * block));
		assert_false(delta_sig_matches(s, other + at, 3 * block));
	}
	delta_sig_free(s);
	buf_done(&sig);
	free(old);
	free(other);
}

/* B56: what was kept may be damaged, or be another file. */
static void B56_a_damaged_signature(void **state)
{
	size_t n = 1 << 20;
	uint8_t *old = malloc(n);
	struct delta_sig *s;
	struct buf sig;
	uint8_t *p;

	fill(old, n);
	sig = signature(old, n, n);
	p = (uint8_t *)buf_data(&sig);
	for (size_t cut = 0; cut < buf_len(&sig); cut += 1 + next_random() % 100)
		assert_int_equal(delta_sig_load(p, cut, n, &s), -EBADMSG);
	assert_int_equal(delta_sig_load(p, buf_len(&sig), n + (1 << 20), &s), -EBADMSG);
	assert_int_equal(delta_sig_load(p, buf_len(&sig), UINT64_MAX, &s), -EBADMSG);
	assert_int_equal(delta_sig_load(old, buf_len(&sig), n, &s), -EBADMSG);
	for (unsigned k = 0; k < 12 * 8; k++) {
		p[k / 8] ^= (uint8_t)(1 << k % 8);
		assert_int_equal(delta_sig_load(p, buf_len(&sig), n, &s), -EBADMSG);
		p[k / 8] ^= (uint8_t)(1 << k % 8);
	}
	/* Wrong sums: blocks are taken for changed. */
	for (unsigned k = 0; k < 50; k++) {
		struct patched out = {.old = old, .old_n = n, .out = BUF_INIT(8 << 20)};
		struct delta *d;

		p[12 + next_random() % (buf_len(&sig) - 12)] ^= (uint8_t)(1 << k % 8);
		assert_int_equal(delta_sig_load(p, buf_len(&sig), n, &s), 0);
		assert_int_equal(delta_new(s, patch, &out, &d), 0);
		assert_int_equal(delta_add(d, old, n), 0);
		assert_int_equal(delta_end(d), 0);
		assert_int_equal(buf_len(&out.out), n);
		assert_memory_equal(buf_data(&out.out), old, n);
		delta_free(d);
		delta_sig_free(s);
		buf_done(&out.out);
	}
	buf_done(&sig);
	free(old);
}

static int stop(uint64_t from, uint64_t n, const void *literal, size_t len, void *userdata)
{
	return -ENOSPC;
}

static void what_does_not_fit(void **state)
{
	uint8_t old[4096];
	struct sig_maker *m;
	struct delta_sig *s;
	struct delta *d;
	struct buf sig;

	fill(old, sizeof(old));
	buf_init(&sig, DELTA_SIG_MAX);
	assert_int_equal(sig_maker_new(4095, &m), 0);
	assert_int_equal(sig_maker_add(m, old, 4096), -EBADMSG);
	sig_maker_free(m);
	assert_int_equal(sig_maker_new(4097, &m), 0);
	assert_int_equal(sig_maker_add(m, old, 4096), 0);
	assert_int_equal(sig_maker_end(m, &sig), -EBADMSG);
	sig_maker_free(m);
	sig = signature(old, 4096, 100);
	assert_int_equal(delta_sig_load(buf_data(&sig), buf_len(&sig), 4096, &s), 0);
	assert_int_equal(delta_new(s, stop, NULL, &d), 0);
	assert_int_equal(delta_add(d, old, 4096), 0);
	assert_int_equal(delta_end(d), -ENOSPC);
	delta_free(d);
	delta_sig_free(s);
	buf_done(&sig);
	/* Sizes and what their signature takes. */
	assert_int_equal(delta_block_bytes(0), 1 << 10);
	assert_in_range(delta_block_bytes(100000000), 9900, 10240);
	assert_int_equal(delta_block_bytes(DELTA_MAX_BYTES), 128 << 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(B55_all_sizes_around_a_block),
		cmocka_unit_test(B55_blocks_that_repeat),
		cmocka_unit_test(edits_cost_what_they_touch),
		cmocka_unit_test(seams_cost_nothing),
		cmocka_unit_test(a_sample_tells_whether_it_pays),
		cmocka_unit_test(B56_a_damaged_signature),
		cmocka_unit_test(what_does_not_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
