#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/buf.h"

/* AddressSanitizer ends the program at a size that malloc refuses. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1";
}

static void assert_content(const struct buf *b, const char *text)
{
	assert_int_equal(buf_len(b), strlen(text));
	if (*text)
		assert_memory_equal(buf_data(b), text, strlen(text));
}

/* What is appended is there in order, whatever the way it was added. */
static void adds_append(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	uint8_t *p;

	assert_int_equal(buf_add(&b, "ab", 2), 0);
	assert_int_equal(buf_add_u8(&b, 'c'), 0);
	assert_int_equal(buf_add_str(&b, "de"), 0);
	assert_int_equal(buf_printf(&b, "%d-%s", 7, "f"), 0);
	assert_int_equal(buf_reserve(&b, 100, &p), 0);
	memcpy(p, "gh", 2);
	buf_commit(&b, 2);
	assert_int_equal(buf_add(&b, NULL, 0), 0);
	assert_content(&b, "abcde7-fgh");
}

/* A buffer never holds more than its limit, may hold exactly that, and a
 * refused addition of any kind leaves it as it was. */
static void limit_is_exact(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(5);
	uint8_t *p;

	assert_int_equal(buf_add(&b, "abcdef", 6), -E2BIG);
	assert_int_equal(buf_printf(&b, "%s", "abcdef"), -E2BIG);
	assert_int_equal(buf_len(&b), 0);
	assert_int_equal(buf_printf(&b, "%s", "abc"), 0);

	assert_int_equal(buf_add_str(&b, "def"), -E2BIG);
	assert_int_equal(buf_printf(&b, "%d", 123), -E2BIG);
	assert_int_equal(buf_reserve(&b, 3, &p), -E2BIG);
	assert_int_equal(buf_reserve(&b, SIZE_MAX, &p), -E2BIG);
	assert_content(&b, "abc");

	assert_int_equal(buf_printf(&b, "%s", "de"), 0);
	assert_int_equal(buf_add_u8(&b, 'f'), -E2BIG);
	assert_int_equal(buf_add(&b, "", 0), 0);
	assert_content(&b, "abcde");
}

/* The limit counts what is in the buffer, not what has passed through it. */
static void consumed_bytes_do_not_count(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(300);
	char text[101] = "";
	unsigned next = 0, seen = 0;

	for (int i = 0; i < 1000; i++) {
		while (buf_len(&b) + 100 <= 300) {
			(void)snprintf(text, sizeof(text), "%0100u", next++);
			assert_int_equal(buf_add(&b, text, 100), 0);
		}
		(void)snprintf(text, sizeof(text), "%0100u", seen++);
		assert_memory_equal(buf_data(&b), text, 100);
		buf_consume(&b, 100);
		assert_true(b.cap <= 301);
	}
}

/* The memory grows with what is in use, not with what has passed, also in a
 * buffer that is never empty. */
static void memory_follows_content(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	assert_int_equal(buf_printf(&b, "%0100d", 0), 0);
	for (int i = 0; i < 100000; i++) {
		assert_int_equal(buf_add_str(&b, "xyz"), 0);
		buf_consume(&b, 3);
		assert_true(b.cap <= 1024);
	}
	assert_int_equal(buf_len(&b), 100);
}

/* Consuming in odd steps keeps the order of the bytes across every move. */
static void consume_keeps_order(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	uint8_t in = 0, out = 0;

	for (int i = 0; i < 50000; i++) {
		for (int k = 0; k < i % 23; k++)
			assert_int_equal(buf_add_u8(&b, in++), 0);
		for (int k = i % 25; k > 0 && buf_len(&b) > 0; k--) {
			assert_int_equal(*buf_data(&b), out++);
			buf_consume(&b, 1);
		}
	}
	while (buf_len(&b) > 0) {
		assert_int_equal(*buf_data(&b), out++);
		buf_consume(&b, 1);
	}
	assert_int_equal(in, out);
}

/* An impossible size is an error, not an overflow. */
static void huge_is_refused(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	uint8_t *p = NULL;
	int r;

	assert_int_equal(buf_add_u8(&b, 'x'), 0);
	r = buf_reserve(&b, SIZE_MAX, &p);
	assert_true(r == -E2BIG || r == -ENOMEM);
	assert_int_equal(buf_reserve(&b, SIZE_MAX / 2, &p), -ENOMEM);
	assert_null(p);
	assert_content(&b, "x");
}

/* printf grows the buffer when its text is longer than the room. */
static void printf_grows(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	for (int i = 0; i < 3; i++)
		assert_int_equal(buf_printf(&b, "%0*d", 1000, 7), 0);
	assert_int_equal(buf_len(&b), 3000);
	for (size_t i = 0; i < 3000; i++)
		assert_int_equal(buf_data(&b)[i], i % 1000 == 999 ? '7' : '0');
}

/* clear keeps the memory, done gives it back, and both leave an empty buffer. */
static void clear_and_done(void **state)
{
	struct buf b = {0};
	const uint8_t *mem;

	buf_done(NULL);
	buf_done(&b);
	assert_int_equal(buf_add_str(&b, "abc"), 0);
	mem = b.mem;
	buf_clear(&b);
	assert_int_equal(buf_len(&b), 0);
	assert_int_equal(buf_add_str(&b, "d"), 0);
	assert_ptr_equal(b.mem, mem);
	buf_done(&b);
	assert_null(b.mem);
	assert_int_equal(buf_len(&b), 0);
	buf_done(&b);
}

/* The copy as a string ends with a NUL, also that of an empty buffer. */
static void copies_to_string(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(3);
	cleanup_free char *empty = NULL, *s = NULL;

	assert_int_equal(buf_to_str(&b, &empty), 0);
	assert_string_equal(empty, "");
	assert_int_equal(buf_add(&b, "xyz", 3), 0);
	buf_consume(&b, 1);
	assert_int_equal(buf_to_str(&b, &s), 0);
	assert_string_equal(s, "yz");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(adds_append),
		cmocka_unit_test(limit_is_exact),
		cmocka_unit_test(consumed_bytes_do_not_count),
		cmocka_unit_test(memory_follows_content),
		cmocka_unit_test(consume_keeps_order),
		cmocka_unit_test(huge_is_refused),
		cmocka_unit_test(printf_grows),
		cmocka_unit_test(clear_and_done),
		cmocka_unit_test(copies_to_string),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
