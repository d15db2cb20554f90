#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "base/util.h"

static const struct {
	const char *text;
	int64_t ns;
} times[] = {
	{"1970-01-01T00:00:00.000000000Z", 0},
	{"1969-12-31T23:59:59.999999999Z", -1},
	{"1969-12-31T23:59:59.000000000Z", -1000000000},
	{"1969-12-31T00:00:00.000000000Z", -86400000000000},
	{"1900-03-01T00:00:00.000000001Z", -2203891199999999999},
	{"2000-02-29T12:34:56.000000006Z", 951827696000000006},
	{"2026-01-02T03:04:05.000000006Z", 1767323045000000006},
	{"2038-01-19T03:14:08.000000000Z", 2147483648000000000},
	{"2100-03-01T00:00:00.000000000Z", 4107542400000000000},
	{"2262-04-11T23:47:16.854775807Z", INT64_MAX},
	{"1677-09-21T00:12:43.145224192Z", INT64_MIN},
};

/* Known times go both ways, before 1970 and to both ends of what fits. */
static void known_times(void **state)
{
	char text[CLOCK_TEXT_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
		int64_t ns = 42;

		assert_string_equal(clock_format(text, times[i].ns), times[i].text);
		assert_int_equal(clock_parse(times[i].text, &ns), 0);
		assert_true(ns == times[i].ns);
	}
}

/* Any time has the text that the C library gives it, and comes back exact. */
static void agrees_with_libc(void **state)
{
	for (int i = 0; i < 20000; i++) {
		char ours[CLOCK_TEXT_MAX], date[CLOCK_TEXT_MAX], theirs[2 * CLOCK_TEXT_MAX];
		int64_t ns, back;
		struct timespec ts;
		struct tm tm;

		random_bytes(&ns, sizeof(ns));
		ts = clock_to_timespec(ns);
		assert_true(ts.tv_nsec >= 0 && ts.tv_nsec < 1000000000);
		assert_non_null(gmtime_r(&ts.tv_sec, &tm));
		assert_true(strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm) > 0);
		(void)snprintf(theirs, sizeof(theirs), "%s.%09ldZ", date, ts.tv_nsec);
		assert_string_equal(clock_format(ours, ns), theirs);
		assert_int_equal(clock_parse(ours, &back), 0);
		assert_true(back == ns);
	}
}

/* tv_nsec is never negative, and the way back is exact. */
static void timespec(void **state)
{
	struct timespec ts = clock_to_timespec(-1);

	assert_int_equal(ts.tv_sec, -1);
	assert_int_equal(ts.tv_nsec, 999999999);
	ts = clock_to_timespec(-1000000000);
	assert_int_equal(ts.tv_sec, -1);
	assert_int_equal(ts.tv_nsec, 0);
	ts = clock_to_timespec(INT64_MAX);
	assert_int_equal(ts.tv_sec, 9223372036);
	assert_true(clock_from_timespec(ts) == INT64_MAX);
}

/* Offsets, fractions of any length, small letters, a leap second. */
static void parses_variants(void **state)
{
	static const struct {
		const char *text;
		int64_t ns;
	} good[] = {
		{"1970-01-01T01:00:00+01:00", 0},
		{"1969-12-31T16:00:00-08:00", 0},
		{"1970-01-01T05:45:00.5+05:45", 500000000},
		{"1970-01-01T00:00:00-00:00", 0},
		{"1970-01-01t00:00:01z", 1000000000},
		{"1970-01-01T00:00:00.000000001999Z", 1},
		{"1970-01-01T00:00:00.1Z", 100000000},
		{"2016-12-31T23:59:60Z", 1483228800000000000},
		{"1970-01-01T23:59:00+23:59", 0},
		{"2262-04-12T00:47:16.854775807+01:00", INT64_MAX},
	};

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		int64_t ns = 42;

		if (clock_parse(good[i].text, &ns) != 0 || ns != good[i].ns)
			fail_msg("'%s' gave %lld", good[i].text, (long long)ns);
	}
}

/* Anything else is refused, and the output stays as it was. */
static void refuses(void **state)
{
	static const char *const bad[] = {
		"",
		"1970",
		"1970-01-01",
		"1970-01-01T00:00:00",
		"1970-01-01 00:00:00Z",
		"1970-01-01T00:00Z",
		"1970-01-01T00:00:00.Z",
		"1970-01-01T00:00:00,5Z",
		"1970-01-01T00:00:00ZZ",
		"1970-01-01T00:00:00Z ",
		" 1970-01-01T00:00:00Z",
		"1970-01-01T00:00:00+1:00",
		"1970-01-01T00:00:00+0100",
		"1970-01-01T00:00:00+24:00",
		"1970-01-01T00:00:00+00:60",
		"1970-13-01T00:00:00Z",
		"1970-00-01T00:00:00Z",
		"1970-01-00T00:00:00Z",
		"1970-01-32T00:00:00Z",
		"1970-04-31T00:00:00Z",
		"1900-02-29T00:00:00Z",
		"2023-02-29T00:00:00Z",
		"1970-01-01T24:00:00Z",
		"1970-01-01T00:60:00Z",
		"1970-01-01T00:00:61Z",
		"-970-01-01T00:00:00Z",
		"1970-01-01T-1:00:00Z",
		"2262-04-11T23:47:16.854775808Z",
		"1677-09-21T00:12:43.145224191Z",
		"9999-12-31T23:59:59Z",
		"0000-01-01T00:00:00Z",
	};
	int64_t ns = 42;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (clock_parse(bad[i], &ns) != -EINVAL)
			fail_msg("'%s' was taken", bad[i]);
	assert_int_equal(ns, 42);
}

/* The clocks go forward, and the wall clock is that of the C library. */
static void clocks_run(void **state)
{
	uint64_t ms = clock_mono_ms(), ns = clock_mono_ns();
	int64_t before = (int64_t)time(NULL), now = clock_real_ns() / 1000000000;

	assert_true(ns / 1000000 >= ms);
	assert_true(clock_mono_ns() >= ns);
	assert_true(now >= before && now <= (int64_t)time(NULL) + 1);
}

/* The boot id is the kernel's, as bytes. */
static void boot_id(void **state)
{
	uint8_t id[16];
	char want[64] = "", got[64];
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (!f) {
		print_message("# there is no /proc/sys/kernel/random/boot_id\n");
		skip();
	}
	assert_non_null(fgets(want, sizeof(want), f));
	(void)fclose(f);
	assert_int_equal(clock_boot_id(id), 0);
	(void)snprintf(got, sizeof(got),
		       "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x\n",
		       id[0], id[1], id[2], id[3], id[4], id[5], id[6], id[7], id[8], id[9], id[10],
		       id[11], id[12], id[13], id[14], id[15]);
	assert_string_equal(got, want);
}

/* Twice as long each time, never beyond the end, however often. */
static void backs_off(void **state)
{
	(void)state;
	assert_int_equal(backoff_ms(0, 100, 5000), 100);
	assert_int_equal(backoff_ms(1, 100, 5000), 200);
	assert_int_equal(backoff_ms(5, 100, 5000), 3200);
	assert_int_equal(backoff_ms(6, 100, 5000), 5000);
	assert_int_equal(backoff_ms(UINT32_MAX, 1, UINT64_MAX), UINT64_MAX);
	assert_int_equal(backoff_ms(3, 100, 50), 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_times), cmocka_unit_test(agrees_with_libc),
		cmocka_unit_test(timespec),    cmocka_unit_test(parses_variants),
		cmocka_unit_test(refuses),     cmocka_unit_test(clocks_run),
		cmocka_unit_test(boot_id),     cmocka_unit_test(backs_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
