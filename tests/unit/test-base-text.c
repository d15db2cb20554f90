#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"

struct pair {
	const char *in;
	const char *out;
};

static void assert_buf(const struct buf *b, const char *text)
{
	cleanup_free char *s = NULL;

	assert_int_equal(buf_to_str(b, &s), 0);
	assert_string_equal(s, text);
}

/* UTF-8 as RFC 3629 section 3 defines it, written the slow way. */
static size_t encode(uint8_t out[4], uint32_t c)
{
	if (c < 0x80) {
		out[0] = (uint8_t)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (uint8_t)(0xc0 | c >> 6);
		out[1] = (uint8_t)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (uint8_t)(0xe0 | c >> 12);
		out[1] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
		out[2] = (uint8_t)(0x80 | (c & 0x3f));
		return 3;
	}
	out[0] = (uint8_t)(0xf0 | c >> 18);
	out[1] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
	out[2] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
	out[3] = (uint8_t)(0x80 | (c & 0x3f));
	return 4;
}

/* Every code point is good but NUL, the surrogates and what is above 10FFFF. */
static void utf8_all_code_points(void **state)
{
	uint8_t c[4];

	for (uint32_t i = 0; i < 0x140000; i++) {
		bool good = i != 0 && (i < 0xd800 || i > 0xdfff) && i <= 0x10ffff;
		size_t n = encode(c, i);

		if (text_utf8_ok(c, n) != good)
			fail_msg("U+%04X taken for %s", i, good ? "bad" : "good");
	}
}

/* Overlong forms, stray and missing tails, and impossible bytes are bad. */
static void utf8_bad_forms(void **state)
{
	static const char *const bad[] = {
		"\x80",
		"\xbf",
		"\xc0\x80",
		"\xc0\xaf",
		"\xc1\xbf",
		"\xe0\x80\x80",
		"\xe0\x9f\xbf",
		"\xf0\x80\x80\x80",
		"\xf0\x8f\xbf\xbf",
		"\xf4\x90\x80\x80",
		"\xf5\x80\x80\x80",
		"\xf8\x88\x80\x80\x80",
		"\xff",
		"\xfe",
		"\xc3",
		"\xc3(",
		"\xe2\x82",
		"\xe2\x82x",
		"\xe2(\xa1",
		"\xf0\x9f\x98",
		"\xf0\x9f\x98x",
		"\xed\xa0\x80",
		"\xed\xbf\xbf",
		"a\xc3",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (text_utf8_ok(bad[i], strlen(bad[i])))
			fail_msg("bad form %zu taken for good", i);
	assert_true(text_utf8_ok("", 0));
	assert_true(text_utf8_ok("z\xc3\xbc\xf0\x9f\x98\x80", 7));
	assert_false(text_utf8_ok("a\0b", 3));
}

/* Each bad byte becomes one U+FFFD, all else stays, and the result is good. */
static void utf8_replaces(void **state)
{
#define FFFD "\xef\xbf\xbd"
	static const struct pair pairs[] = {
		{"", ""},
		{"a\xc3\xbc", "a\xc3\xbc"},
		{"\xff", FFFD},
		{"a\xe2\x82z", "a" FFFD FFFD "z"},
		{"\xed\xa0\x80", FFFD FFFD FFFD},
		{"\xf0\x9f\x98", FFFD FFFD FFFD},
	};

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		_cleanup_(buf_done) struct buf b = BUF_INIT(0);

		assert_int_equal(text_utf8_replace(&b, pairs[i].in, strlen(pairs[i].in)), 0);
		assert_buf(&b, pairs[i].out);
		assert_true(text_utf8_ok(buf_data(&b), buf_len(&b)));
	}
}

/* A NUL is replaced too, and a full buffer is left as it was. */
static void utf8_replace_nul_and_limit(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(6);

	assert_int_equal(text_utf8_replace(&b, "a\0b", 3), 0);
	assert_buf(&b, "a" FFFD "b");
	assert_int_equal(text_utf8_replace(&b, "c\xff", 2), -E2BIG);
	assert_buf(&b, "a" FFFD "b");
}

/* What a terminal obeys, and what is not UTF-8, is shown as \xNN. */
static void escapes(void **state)
{
	static const struct pair pairs[] = {
		{"plain name", "plain name"},
		{"a\nb\tc", "a\\x0ab\\x09c"},
		{"\x1b[31m", "\\x1b[31m"},
		{"\x7f", "\\x7f"},
		{"a\\b", "a\\\\b"},
		{"z\xc3\xbc", "z\xc3\xbc"},
		{"\xff\xc3", "\\xff\\xc3"},
		{"\xc2\x9b"
		 "31m",
		 "\\xc2\\x9b31m"},
		{"\xc2\xa0", "\xc2\xa0"},
		{"\xe2\x82", "\\xe2\\x82"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		_cleanup_(buf_done) struct buf b = BUF_INIT(0);

		assert_int_equal(text_escape(&b, pairs[i].in, strlen(pairs[i].in)), 0);
		assert_buf(&b, pairs[i].out);
	}
}

/* A NUL is escaped, and what does not fit leaves the buffer as it was. */
static void escape_nul_and_limit(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(6);

	assert_int_equal(text_escape(&b, "a\0b", 3), 0);
	assert_buf(&b, "a\\x00b");
	assert_int_equal(text_escape(&b, "c", 1), -E2BIG);
	assert_buf(&b, "a\\x00b");
}

/* A text too long ends in dots, never in half of a character or of an escape,
 * and the array is never overrun. */
static void escape_into_cuts(void **state)
{
	static const struct {
		const char *in;
		size_t size;
		const char *out;
	} cases[] = {
		{"abcdef", 7, "abcdef"},
		{"abcdef", 6, "ab..."},
		{"abcdef", 4, "..."},
		{"abcdef", 2, "."},
		{"abcdef", 1, ""},
		{"ab\n", 7, "ab\\x0a"},
		{"ab\n", 6, "ab..."},
		{"\n\n\n", 9, "\\x0a..."},
		{"a\xc3\xbc"
		 "bcd",
		 6, "a..."},
		{"", 1, ""},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char out[16];

		memset(out, '#', sizeof(out));
		assert_ptr_equal(
			text_escape_into(out, cases[i].size, cases[i].in, strlen(cases[i].in)),
			out);
		assert_string_equal(out, cases[i].out);
		assert_int_equal(out[cases[i].size], '#');
	}
}

/* Hex goes both ways, in both cases, and takes nothing but hex digits. */
static void hex(void **state)
{
	static const char *const bad[] = {"00ff1",   "00ff1g",	"00ff1 ", "0x00ff",
					  "00ff1a1", "00ff1a ", "",	  "-0ff1a"};
	static const uint8_t bytes[] = {0x00, 0xff, 0x1a};
	uint8_t back[3] = {1, 2, 3};
	char out[7];

	text_hex(out, bytes, 3);
	assert_string_equal(out, "00ff1a");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(text_unhex(back, 3, bad[i]), -EINVAL);
	assert_memory_equal(back, "\1\2\3", 3);
	assert_int_equal(text_unhex(back, 3, "00Ff1A"), 0);
	assert_memory_equal(back, bytes, 3);
	assert_int_equal(text_unhex(back, 0, ""), 0);
}

/* RFC 4648, section 10. */
static const struct pair base64_vectors[] = {
	{"", ""},
	{"f", "Zg=="},
	{"fo", "Zm8="},
	{"foo", "Zm9v"},
	{"foob", "Zm9vYg=="},
	{"fooba", "Zm9vYmE="},
	{"foobar", "Zm9vYmFy"},
	{"\xfb\xff\xbf", "+/+/"},
};

/* The vectors of the RFC come out of both directions, appended. */
static void base64(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(base64_vectors); i++) {
		const struct pair *v = &base64_vectors[i];
		_cleanup_(buf_done) struct buf b = BUF_INIT(0), back = BUF_INIT(0);

		assert_int_equal(buf_add_str(&b, ">"), 0);
		assert_int_equal(text_base64(&b, v->in, strlen(v->in)), 0);
		buf_consume(&b, 1);
		assert_buf(&b, v->out);
		assert_int_equal(buf_add_str(&back, ">"), 0);
		assert_int_equal(text_unbase64(&back, v->out, strlen(v->out)), 0);
		buf_consume(&back, 1);
		assert_buf(&back, v->in);
	}
}

/* Every byte at every place in a group survives the way there and back. */
static void base64_all_bytes(void **state)
{
	for (size_t n = 1; n <= 3; n++) {
		for (unsigned v = 0; v < 256 * n; v++) {
			_cleanup_(buf_done) struct buf b = BUF_INIT(0), back = BUF_INIT(0);
			uint8_t in[3] = {0x5a, 0xa5, 0x3c};

			in[v / 256] = (uint8_t)v;
			assert_int_equal(text_base64(&b, in, n), 0);
			assert_int_equal(
				text_unbase64(&back, (const char *)buf_data(&b), buf_len(&b)), 0);
			assert_int_equal(buf_len(&back), n);
			assert_memory_equal(buf_data(&back), in, n);
		}
	}
}

/* Other characters, lengths, padding, or bits left over: nothing is appended. */
static void base64_bad(void **state)
{
	static const char *const bad[] = {
		"Z",	    "Zg",	"Zg=",	    "Zm9",
		"=",	    "====",	"Z===",	    "Zh==",
		"Zm9=",	    "Zm9v\n",	"Zm 9",	    "Zm-_",
		"Zg==Zg==", "Zm9vYg=A", "Zm9v====", "\xff\xff\xff\xff",
		"Zm8=Zm8=", "Z=8=",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_(buf_done) struct buf b = BUF_INIT(0);

		assert_int_equal(buf_add_str(&b, ">"), 0);
		if (text_unbase64(&b, bad[i], strlen(bad[i])) != -EINVAL)
			fail_msg("'%s' was taken", bad[i]);
		assert_buf(&b, ">");
	}
}

/* Numbers are whole strings of digits within their limit. */
static void parse_u64(void **state)
{
	static const char *const bad[] = {
		"", " 1", "1 ", "-1", "+1", "0x1", "1a", "a", "99999999999999999999999x"};
	uint64_t v = 42;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(text_parse_u64(bad[i], UINT64_MAX, &v), -EINVAL);
	assert_int_equal(text_parse_u64("18446744073709551616", UINT64_MAX, &v), -ERANGE);
	assert_int_equal(text_parse_u64("101", 100, &v), -ERANGE);
	assert_int_equal(v, 42);
	assert_int_equal(text_parse_u64("100", 100, &v), 0);
	assert_int_equal(v, 100);
	assert_int_equal(text_parse_u64("18446744073709551615", UINT64_MAX, &v), 0);
	assert_true(v == UINT64_MAX);
	assert_int_equal(text_parse_u64("007", 10, &v), 0);
	assert_int_equal(v, 7);
}

/* Sizes are such numbers with at most one unit, and fit in 64 bits. */
static void parse_size(void **state)
{
	static const char *const bad[] = {"", "K", "1KB", "1k", "1.5M", "1 K", "-1K", "1KK", "1X"};
	static const struct {
		const char *in;
		uint64_t out;
	} good[] = {
		{"0", 0},
		{"123", 123},
		{"10K", 10240},
		{"5M", 5242880},
		{"2G", 2147483648},
		{"1T", 1099511627776},
		{"16777215T", UINT64_MAX - 1099511627775},
	};
	uint64_t v = 42;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(text_parse_size(bad[i], &v), -EINVAL);
	assert_int_equal(text_parse_size("16777216T", &v), -ERANGE);
	assert_int_equal(text_parse_size("18446744073709551616", &v), -ERANGE);
	assert_int_equal(v, 42);
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_int_equal(text_parse_size(good[i].in, &v), 0);
		assert_true(v == good[i].out);
	}
}

#define LONGEST "axxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" /* 63 bytes */
#define TOO_LONG (LONGEST "x")

/* NAME is [a-z0-9][a-z0-9_-]{0,62}. */
static void names(void **state)
{
	static const char *const good[] = {"a", "0", "a-b_c", "9z", LONGEST};
	static const char *const bad[] = {"",	"-a", "_a",	"A",   "aB",	   "a.b", "a/b",
					  "..", "a ", TOO_LONG, "a~1", "\xc3\xbc", "a\n"};

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(text_name_ok(good[i]));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(text_name_ok(bad[i]));
}

/* LABEL is [A-Za-z_][A-Za-z0-9._-]{0,62}, but neither HEAD nor now. */
static void labels(void **state)
{
	static const char *const good[] = {"a",	  "_",	     "V1.2-rc_3", "head",
					   "Now", "nowhere", LONGEST};
	static const char *const bad[] = {"",	 "1",	".a",  "-a",  "HEAD",  "now",
					  "a:b", "a~1", "a@b", "a b", TOO_LONG};

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(text_label_ok(good[i]));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(text_label_ok(bad[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(utf8_all_code_points),
		cmocka_unit_test(utf8_bad_forms),
		cmocka_unit_test(utf8_replaces),
		cmocka_unit_test(utf8_replace_nul_and_limit),
		cmocka_unit_test(escapes),
		cmocka_unit_test(escape_nul_and_limit),
		cmocka_unit_test(escape_into_cuts),
		cmocka_unit_test(hex),
		cmocka_unit_test(base64),
		cmocka_unit_test(base64_all_bytes),
		cmocka_unit_test(base64_bad),
		cmocka_unit_test(parse_u64),
		cmocka_unit_test(parse_size),
		cmocka_unit_test(names),
		cmocka_unit_test(labels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
