/* What difference.h says of two contents of the store makes the new one from the old one,
 * costs about what was changed, and is refused where it cannot be told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "brain/difference.h"
#include "tests/unit/content-fixture.h"
#include "wire/delta.h"

#define OLD_BYTES (12u << 20)

static struct pieces *store;
static unsigned n_fetched;

static int fetch(const uint8_t hash[SHA256_BYTES], struct buf *out, void *userdata)
{
	n_fetched++;
	return pieces_fetch(hash, out, userdata);
}

static struct content_ref stored(const void *data, size_t n, uint64_t hole)
{
	struct content_writer *w;
	struct content_ref ref;

	assert_int_equal(content_writer_new(pieces_sink, store, &w), 0);
	content_writer_begin(w);
	assert_int_equal(content_writer_data(w, data, n), 0);
	if (hole)
		assert_int_equal(content_writer_hole(w, hole), 0);
	assert_int_equal(content_writer_end(w, &ref), 0);
	content_writer_free(w);
	return ref;
}

/* Returns the literal bytes. */
static uint64_t made(const uint8_t *old, size_t old_n, const uint8_t *new, size_t new_n)
{
	struct content_ref a = stored(old, old_n, 0), b = stored(new, new_n, 0);
	_cleanup_(buf_done) struct buf out = BUF_INIT(0);
	_cleanup_(buf_done) struct buf literal = BUF_INIT(DIFFERENCE_LITERAL_BYTES);
	uint64_t from, n, literals = 0;
	struct difference *d;

	n_fetched = 0;
	assert_int_equal(difference_new(&a, &b, fetch, store, &d), 0);
	while (difference_next(d, &from, &n, &literal) == 1) {
		if (n) {
			assert_int_equal(buf_len(&literal), 0);
			assert_true(n <= DIFFERENCE_COPY_BYTES && from + n <= old_n);
			assert_int_equal(buf_add(&out, old + from, n), 0);
		} else {
			assert_true(buf_len(&literal) > 0);
			assert_int_equal(buf_add(&out, buf_data(&literal), buf_len(&literal)), 0);
		}
		literals += buf_len(&literal);
		buf_clear(&literal);
	}
	assert_int_equal(difference_next(d, &from, &n, &literal), 0);
	difference_free(d);
	assert_int_equal(buf_len(&out), new_n);
	assert_memory_equal(buf_data(&out), new, new_n);
	return literals;
}

static int setup(void **state)
{
	store = pieces_new();
	return store ? 0 : -1;
}

static int teardown(void **state)
{
	pieces_free(store);
	return 0;
}

static void edits(void **state)
{
	uint8_t *old = malloc(OLD_BYTES), *new = malloc(2 * OLD_BYTES);

	random_fill(old, OLD_BYTES);
	assert_int_equal(made(old, OLD_BYTES, old, OLD_BYTES), 0);
	for (unsigned k = 0; k < 10; k++) {
		size_t at = random_below(OLD_BYTES), more = 1 + random_below(5000);

		memcpy(new, old, at);
		random_fill(new + at, more);
		memcpy(new + at + more, old + at, OLD_BYTES - at);
		assert_true(made(old, OLD_BYTES, new, OLD_BYTES + more) <= more + 4096);
		assert_true(n_fetched < 30); /* not the equal ones */
		assert_true(made(new, OLD_BYTES + more, old, OLD_BYTES) <= 8192);
	}
	/* at both ends, and cut there */
	memcpy(new, old, OLD_BYTES);
	random_fill(new + OLD_BYTES, 100);
	assert_true(made(old, OLD_BYTES, new, OLD_BYTES + 100) <= 4096);
	assert_true(made(old, OLD_BYTES, old + 100, OLD_BYTES - 100) <= 4096);
	assert_true(made(old, OLD_BYTES, old, OLD_BYTES - 100) <= 4096);
	/* one in each chunk, as a database has it */
	for (size_t at = 0; at < OLD_BYTES; at += 30000)
		new[at] ^= 1;
	assert_true(made(old, OLD_BYTES, new, OLD_BYTES) <= OLD_BYTES / 30000 * 3000);
	free(old);
	free(new);
}

static void little_in_common(void **state)
{
	uint8_t *old = malloc(OLD_BYTES), *new = malloc(OLD_BYTES);

	random_fill(old, OLD_BYTES);
	random_fill(new, OLD_BYTES);
	assert_int_equal(made(old, OLD_BYTES, new, OLD_BYTES), OLD_BYTES);
	memcpy(new + OLD_BYTES / 2, old, OLD_BYTES / 2); /* halves that change their place */
	assert_true(made(old, OLD_BYTES, new, OLD_BYTES) <= OLD_BYTES / 2 + (300 << 10));
	memset(old, 0, OLD_BYTES);
	memset(new, 0, OLD_BYTES);
	new[OLD_BYTES / 2] = 1;
	(void)made(old, OLD_BYTES, new, OLD_BYTES - 5);
	(void)made(new, OLD_BYTES - 5, old, OLD_BYTES);
	free(old);
	free(new);
}

static void refused(void **state)
{
	uint8_t *data = calloc(1, 2 << 20);
	struct content_ref good, small, holes, gone;
	_cleanup_(buf_done) struct buf literal = BUF_INIT(DIFFERENCE_LITERAL_BYTES);
	struct difference *d = NULL;

	random_fill(data, 2 << 20);
	good = stored(data, 2 << 20, 0);
	small = stored(data, DELTA_PULL_MIN_BYTES - 1, 0);
	holes = stored(data, 2 << 20, 1 << 20);
	gone = good;
	memset(gone.root, 7, sizeof(gone.root));
	assert_int_equal(difference_new(&good, &small, fetch, store, &d), -EOPNOTSUPP);
	assert_int_equal(difference_new(&small, &good, fetch, store, &d), -EOPNOTSUPP);
	assert_int_equal(difference_new(&good, &holes, fetch, store, &d), -EOPNOTSUPP);
	assert_int_equal(difference_new(&holes, &good, fetch, store, &d), -EOPNOTSUPP);
	assert_int_equal(difference_new(&gone, &good, fetch, store, &d), -ENOENT);
	assert_int_equal(difference_new(&good, &gone, fetch, store, &d), -ENOENT);
	assert_null(d);
	free(data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(edits, setup, teardown),
		cmocka_unit_test_setup_teardown(little_in_common, setup, teardown),
		cmocka_unit_test_setup_teardown(refused, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
