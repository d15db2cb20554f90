#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "journal/chunk.h"
#include "tests/unit/content-fixture.h"

#define N_BYTES (8u << 20)

static uint8_t *data;

static uint64_t gear[256];

static void make_gear(void)
{
	for (unsigned i = 0; i < 256; i++) {
		uint8_t text[12], hash[SHA256_BYTES];

		memcpy(text, "limbfs gear", 11);
		text[11] = (uint8_t)i;
		sha256(text, sizeof(text), hash);
		gear[i] = get_le64(hash);
	}
}

static int setup(void **state)
{
	data = malloc(N_BYTES);
	if (!data)
		return -1;
	make_gear();
	random_state = 42;
	random_fill(data, N_BYTES);
	return 0;
}

static int teardown(void **state)
{
	free(data);
	return 0;
}

static uint64_t hash_before(const uint8_t *end)
{
	uint64_t h = 0;

	for (const uint8_t *p = end - 64; p < end; p++)
		h = (h << 1) + gear[*p];
	return h;
}

/* The rule of chunk.h, word by word: every hash over its whole window anew. */
static size_t cut_slowly(const uint8_t *p, size_t n)
{
	if (n <= CHUNK_AVG)
		return n;
	for (size_t len = CHUNK_MIN; len < n && len < CHUNK_MAX; len++)
		if (hash_before(p + len) >> (len < CHUNK_AVG ? 64 - 18 : 64 - 14) == 0)
			return len;
	return n < CHUNK_MAX ? n : CHUNK_MAX;
}

/* Makes a boundary of exactly so many bits before `end`. */
static void put_boundary(uint8_t *end, unsigned bits)
{
	do
		put_le64(end - 8, random_next());
	while (hash_before(end) >> (63 - bits) != 1);
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

/* A boundary counts from the minimum on, a weak one from the average on; in what is
 * no longer than the average none counts. */
static void boundaries_count_where_they_should(void **state)
{
	static const struct {
		size_t at;
		unsigned bits;
		bool counts;
	} cases[] = {
		{CHUNK_MIN - 1, 18, false}, {CHUNK_MIN, 18, true},	{CHUNK_MIN, 17, false},
		{CHUNK_AVG - 1, 18, true},  {CHUNK_AVG - 1, 17, false}, {CHUNK_AVG, 14, true},
		{CHUNK_AVG, 13, false},	    {CHUNK_AVG + 1, 14, true},	{CHUNK_MAX - 1, 14, true},
	};
	size_t n = CHUNK_MAX + 100;
	uint8_t *p = malloc(n);

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		memset(p, 0, n);
		put_boundary(p + cases[i].at, cases[i].bits);
		assert_int_equal(chunk_cut(p, n, 0), cut_slowly(p, n));
		if (cases[i].counts)
			assert_int_equal(chunk_cut(p, n, 0), cases[i].at);
		else
			assert_int_not_equal(chunk_cut(p, n, 0), cases[i].at);
		assert_int_equal(chunk_cut(p, CHUNK_AVG, 1), CHUNK_AVG);
	}
	free(p);
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
		cmocka_unit_test(boundaries_count_where_they_should),
		cmocka_unit_test(limits_hold),
		cmocka_unit_test(more_bytes_change_nothing),
		cmocka_unit_test(equal_bytes_are_cut_at_the_maximum),
	};

	return cmocka_run_group_tests_name("chunk", tests, setup, teardown);
}
