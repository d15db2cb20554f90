/* However the bytes come, the same lines come out; what is too large is known by its id. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "bridge/mcp-line.h"

static int collect(const struct mcp_line *line, void *userdata)
{
	static const char *const kinds[] = {"ok", "long", "deep", "complex"};

	return buf_printf(userdata, "%s %.*s %.*s\n", kinds[line->kind],
			  line->id ? (int)line->id_len : 1, line->id ? line->id : "-",
			  (int)(line->n < 100 ? line->n : 100), line->text ? line->text : "");
}

static void assert_lines(const char *in, size_t n, size_t step, const char *want)
{
	_cleanup_(buf_done) struct buf got = BUF_INIT(0);
	struct mcp_lines l;

	mcp_lines_init(&l, collect, &got);
	for (size_t at = 0; at < n; at += step)
		assert_int_equal(mcp_lines_feed(&l, in + at, MIN(step, n - at)), 0);
	assert_int_equal(mcp_lines_end(&l), 0);
	assert_int_equal(buf_add_u8(&got, 0), 0);
	assert_string_equal((const char *)buf_data(&got), want);
	mcp_lines_done(&l);
}

static void chunks(void **state)
{
	static const char in[] = "{\"id\":1,\"a\":\"\xf0\x9f\x98\x80\"}\n"
				 "\r\n  \n"
				 "{\"x\":{\"id\":2},\"id\" : \"a\\\"}b\" ,\"y\":[1,2]}\r\n"
				 "{\"a\":\"id\",\"b\":\"}\"}\n"
				 "not json, \"id\":7\n"
				 "{\"i\\u0064\":3}\n"
				 "[{\"id\":4}]\n"
				 "{\"id\":5}";
	static const char want[] =
		"ok 1 {\"id\":1,\"a\":\"\xf0\x9f\x98\x80\"}\n"
		"ok \"a\\\"}b\" {\"x\":{\"id\":2},\"id\" : \"a\\\"}b\" ,\"y\":[1,2]}\r\n"
		"ok - {\"a\":\"id\",\"b\":\"}\"}\n"
		"ok - not json, \"id\":7\n"
		"ok - {\"i\\u0064\":3}\n"
		"ok - [{\"id\":4}]\n"
		"ok 5 {\"id\":5}\n";

	(void)state;
	for (size_t step = 1; step <= sizeof(in); step++)
		assert_lines(in, sizeof(in) - 1, step, want);
}

static void too_deep(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	(void)state;
	(void)buf_add_str(&b, "{\"id\":8,\"a\":");
	for (int i = 0; i < 10000; i++)
		(void)buf_add_u8(&b, '[');
	for (int i = 0; i < 10000; i++)
		(void)buf_add_u8(&b, ']');
	(void)buf_add_str(&b, ",\"id2\":0}\n{\"id\":9}\n");
	assert_lines((const char *)buf_data(&b), buf_len(&b), 4096, "deep 8 \nok 9 {\"id\":9}\n");
	buf_clear(&b);
	for (int i = 0; i < 10000; i++)
		(void)buf_add_str(&b, "{\"a\":");
	assert_lines((const char *)buf_data(&b), buf_len(&b), 1000, "deep - \n");
	buf_clear(&b);
	/* The id behind it is found as well. */
	(void)buf_add_str(&b, "{\"a\":");
	for (int i = 0; i < 100; i++)
		(void)buf_add_str(&b, "[");
	for (int i = 0; i < 100; i++)
		(void)buf_add_str(&b, "]");
	(void)buf_add_str(&b, ",\"id\":\"z\"}\n");
	assert_lines((const char *)buf_data(&b), buf_len(&b), 7, "deep \"z\" \n");
}

static void too_long(void **state)
{
	static char zeros[1 << 20];
	_cleanup_(buf_done) struct buf got = BUF_INIT(0);
	struct mcp_lines l;

	(void)state;
	memset(zeros, 'x', sizeof(zeros));
	mcp_lines_init(&l, collect, &got);
	assert_int_equal(mcp_lines_feed(&l, "{\"a\":\"", 6), 0);
	for (int i = 0; i < 64; i++) {
		assert_int_equal(mcp_lines_feed(&l, zeros, sizeof(zeros)), 0);
		assert_true(l.line.cap <= 2 * (size_t)MCP_LINE_MAX);
	}
	assert_true(l.line.cap == 0);
	assert_int_equal(mcp_lines_feed(&l, "\",\"id\":\"big\"}\n{\"id\":2}\n", 23), 0);
	assert_int_equal(buf_add_u8(&got, 0), 0);
	assert_string_equal((const char *)buf_data(&got), "long \"big\" \nok 2 {\"id\":2}\n");
	mcp_lines_done(&l);
}

static void too_many(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0), got = BUF_INIT(0);
	struct mcp_lines l;

	(void)state;
	(void)buf_add_str(&b, "{\"a\":[");
	for (int i = 0; i < MCP_VALUES_MAX + 1; i++)
		(void)buf_add_str(&b, "1,");
	(void)buf_add_str(&b, "1],\"id\":3}\n");
	assert_lines((const char *)buf_data(&b), buf_len(&b), 65536, "complex 3 \n");
	/* An id that nobody would choose is none. */
	buf_clear(&b);
	(void)buf_add_str(&b, "{\"id\":");
	for (int i = 0; i < 400; i++)
		(void)buf_add_u8(&b, '7');
	(void)buf_add_str(&b, "}");
	mcp_lines_init(&l, collect, &got);
	assert_int_equal(mcp_lines_feed(&l, buf_data(&b), buf_len(&b)), 0);
	assert_int_equal(mcp_lines_end(&l), 0);
	assert_memory_equal(buf_data(&got), "ok - {", 6);
	mcp_lines_done(&l);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(chunks),
		cmocka_unit_test(too_deep),
		cmocka_unit_test(too_long),
		cmocka_unit_test(too_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
