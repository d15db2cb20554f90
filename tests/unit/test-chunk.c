#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "journal/chunk.h"
#include "tests/unit/content-fixture.h"

#define N_BYTES (8u << 20)

static uint8_t *data;

static int setup(void **state)
{
	data = malloc(N_BYTES);
	if (!data)
		return -1;
	random_state = 42;
	random_fill(data, N_BYTES);
	return 0;
}

static int teardown(void **state)
{
	free(data);
	return 0;
}

/* The rule of chunk.h, word by word: every hash over its whole window anew. */
static size_t cut_slowly(const uint8_t *p, size_t n)
{
	uint64_t gear[256];

	for (unsigned i = 0; i < 256; i++) {
		uint8_t text[12], hash[SHA256_BYTES];

		memcpy(text, "limbfs gear", 11);
		text[11] = (uint8_t)i;
		sha256(text, sizeof(text), hash);
		gear[i] = get_le64(hash);
	}
	if (n <= CHUNK_AVG)
		return n;
	for (size_t len = CHUNK_MIN; len < n && len < CHUNK_MAX; len++) {
		unsigned bits = len < CHUNK_AVG ? 18 : 14;
		uint64_t h = 0;

		for (size_t i = len - 64; i < len; i++)
			h = (h << 1) + gear[p[i]];
		if (h >> (64 - bits) == 0)
			return len;
	}
	return n < CHUNK_MAX ? n : CHUNK_MAX;
}

/* Chunks end where the format says, and nowhere else. */
static void cuts_are_the_formats(void **state)
{
	size_t at = 0, n_max = 0;

	while (at < N_BYTES) {
		size_t n = chunk_cut(data + at, N_BYTES - at, 1);

		assert_int_equal(n, cut_slowly(data + at, N_BYTES - at));
		n_max += n == CHUNK_MAX;
		at += n;
	}
	assert_int_equal(at, N_BYTES);
	assert_true(n_max <= 2);
}

/* Sizes around the limits: up to the average a file is one chunk; all chunks but the
 * last lie between minimum and maximum. */
static void limits_hold(void **state)
{
	static const size_t bases[] = {
		0, CHUNK_MIN, CHUNK_AVG, CHUNK_MAX, 3 * CHUNK_AVG, 2 * CHUNK_MAX, 20 * CHUNK_AVG};

	for (size_t i = 0; i < ARRAY_SIZE(bases); i++) {
		for (int d = -1; d <= 1; d++) {
			size_t size = bases[i] + (size_t)d, at = 0;

			if (bases[i] == 0 && d < 0)
				continue;
			while (at < size) {
				size_t n = chunk_cut(data + at, size - at, 1);

				assert_in_range(n, 1, CHUNK_MAX);
				if (at + n < size)
					assert_in_range(n, CHUNK_MIN, CHUNK_MAX);
				if (size <= CHUNK_AVG)
					assert_int_equal(n, size);
				at += n;
			}
			assert_int_equal(at, size);
		}
	}
	assert_int_equal(chunk_cut(data, 0, 1), 0);
	assert_int_equal(chunk_cut(data, 0, 0), 0);
}

/* However much of it is known, the answer is the same or "more". */
static void more_bytes_change_nothing(void **state)
{
	for (unsigned round = 0; round < 30; round++) {
		const uint8_t *p = data + random_below(N_BYTES - 2 * CHUNK_MAX);
		size_t whole = chunk_cut(p, 2 * CHUNK_MAX, 0);

		assert_true(whole > 0);
		for (size_t n = 0; n < CHUNK_MAX + 1000; n += 1 + random_below(5000)) {
			size_t cut = chunk_cut(p, n, 0);

			assert_true(cut == 0 || cut == whole);
			if (n > CHUNK_AVG && n >= whole)
				assert_int_equal(cut, whole);
			if (n > CHUNK_AVG && n >= whole)
				assert_int_equal(chunk_cut(p, n, 1), whole);
			else
				assert_int_equal(chunk_cut(p, n, 1), n);
		}
		assert_int_equal(chunk_cut(p, CHUNK_MAX, 0), whole);
	}
}

/* A stretch of one byte has no boundary in it. */
static void equal_bytes_are_cut_at_the_maximum(void **state)
{
	for (unsigned byte = 0; byte < 256; byte++) {
		memset(data, (int)byte, CHUNK_MAX + 1);
		assert_int_equal(chunk_cut(data, CHUNK_MAX + 1, 0), CHUNK_MAX);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cuts_are_the_formats),
		cmocka_unit_test(limits_hold),
		cmocka_unit_test(more_bytes_change_nothing),
		cmocka_unit_test(equal_bytes_are_cut_at_the_maximum),
	};

	return cmocka_run_group_tests_name("chunk", tests, setup, teardown);
}
