/* A point is read exactly as far as it goes, as what it is, and nothing else is one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/util.h"
#include "journal/point.h"

static void points(void **state)
{
	static const struct {
		const char *text;
		size_t n; /* 0: no point */
		enum point_kind kind;
		uint64_t seq;
		int64_t time_ns;
		const char *word;
	} cases[] = {
		{"0", 1, POINT_SEQ, 0, 0, ""},
		{"17", 2, POINT_SEQ, 17, 0, ""},
		{"17:a/b", 2, POINT_SEQ, 17, 0, ""},
		{"17a", 2, POINT_SEQ, 17, 0, ""},
		{"2026", 4, POINT_SEQ, 2026, 0, ""},
		{"9007199254740991", 16, POINT_SEQ, 9007199254740991, 0, ""},
		{.text = "9007199254740992"},
		{.text = "99999999999999999999999999"},
		{"a", 1, POINT_LABEL, 0, 0, "a"},
		{"_x.y-9:p", 6, POINT_LABEL, 0, 0, "_x.y-9"},
		{"HEADER", 6, POINT_LABEL, 0, 0, "HEADER"},
		{"head", 4, POINT_LABEL, 0, 0, "head"},
		{"nowhere", 7, POINT_LABEL, 0, 0, "nowhere"},
		{"before", 6, POINT_LABEL, 0, 0, "before"},
		{"before:x", 6, POINT_LABEL, 0, 0, "before"},
		{"HEAD", 4, POINT_HEAD, 0, 0, ""},
		{"HEAD~", 4, POINT_HEAD, 0, 0, ""},
		{"HEAD~12:x", 7, POINT_HEAD, 12, 0, ""},
		{"now", 3, POINT_NOW, 0, 0, "now"},
		{"before:j-a1:p", 11, POINT_BEFORE_JOB, 0, 0, "j-a1"},
		{"after:j-0", 9, POINT_AFTER_JOB, 0, 0, "j-0"},
		{"1970-01-01T00:00:01Z", 20, POINT_TIME, 0, 1000000000, ""},
		{"1970-01-01T00:00:01Z:p", 20, POINT_TIME, 0, 1000000000, ""},
		{"1970-01-01T01:00:00.5+01:00:p", 27, POINT_TIME, 0, 500000000, ""},
		{"2026-13-01T00:00:00Z", 4, POINT_SEQ, 2026, 0, ""},
		{.text = ""},
		{.text = "~1"},
		{.text = "-a"},
		{.text = ":a"},
		{.text = "\xc3\xa9"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct point p = {.kind = POINT_NOW};
		size_t n = point_parse(cases[i].text, &p);

		if (n != cases[i].n)
			fail_msg("'%s': %zu bytes, not %zu", cases[i].text, n, cases[i].n);
		if (!n)
			continue;
		if (p.kind != cases[i].kind || p.seq != cases[i].seq)
			fail_msg("'%s' is something else", cases[i].text);
		if (p.kind == POINT_TIME)
			assert_true(p.time_ns == cases[i].time_ns);
		assert_string_equal(p.word, cases[i].word);
		assert_true(point_parse_all(cases[i].text, &p) == (cases[i].text[n] == '\0'));
	}
}

static void lengths(void **state)
{
	char label[POINT_WORD_MAX + 2] = {0}, job[POINT_WORD_MAX + 10] = "after:j-";
	struct point p;

	(void)state;
	memset(label, 'l', POINT_WORD_MAX);
	assert_int_equal(point_parse(label, &p), POINT_WORD_MAX);
	label[POINT_WORD_MAX] = 'l';
	assert_int_equal(point_parse(label, &p), 0);
	memset(job + 8, 'a', POINT_WORD_MAX - 2);
	assert_int_equal(point_parse(job, &p), POINT_WORD_MAX + 6);
	job[POINT_WORD_MAX + 6] = 'a';
	assert_false(point_parse_all(job, &p));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(points),
		cmocka_unit_test(lengths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
