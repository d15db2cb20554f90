#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/fault.h"
#include "base/io.h"
#include "base/text.h"
#include "base/util.h"

#define NS_PER_S 1000000000

enum {
	SECONDS_PER_DAY = 86400,
	DAYS_PER_ERA = 146097, /* 400 Gregorian years */
	DAYS_TO_1970 = 719468, /* from 0000-03-01, where the eras begin */
};

static struct timespec now(clockid_t id)
{
	struct timespec ts;

	(void)clock_gettime(id, &ts);
	return ts;
}

int64_t clock_real_ns(void)
{
	return clock_from_timespec(now(CLOCK_REALTIME)) + fault_clock_ns();
}

uint64_t clock_mono_ns(void)
{
	return (uint64_t)clock_from_timespec(now(CLOCK_MONOTONIC));
}

uint64_t clock_mono_ms(void)
{
	return clock_mono_ns() / 1000000;
}

struct timespec clock_to_timespec(int64_t ns)
{
	struct timespec ts = {.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};

	if (ts.tv_nsec < 0) {
		ts.tv_sec--;
		ts.tv_nsec += NS_PER_S;
	}
	return ts;
}

/* Days since 1970 and back, in the proleptic Gregorian calendar. Years begin
 * in March here, so that the leap day is the last of its year. */
static int64_t days_from_civil(int64_t year, int month, int day)
{
	int64_t y = month <= 2 ? year - 1 : year;
	int64_t era = (y >= 0 ? y : y - 399) / 400;
	int64_t year_of_era = y - era * 400;
	int64_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
	int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;

	return era * DAYS_PER_ERA + day_of_era - DAYS_TO_1970;
}

static void civil_from_days(int64_t days, int *ret_year, int *ret_month, int *ret_day)
{
	int64_t z = days + DAYS_TO_1970; /* positive for every int64_t of ns */
	int64_t era = z / DAYS_PER_ERA, doe = z % DAYS_PER_ERA;
	int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
	int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
	int64_t mp = (5 * doy + 2) / 153;

	*ret_day = (int)(doy - (153 * mp + 2) / 5 + 1);
	*ret_month = (int)(mp < 10 ? mp + 3 : mp - 9);
	*ret_year = (int)(yoe + era * 400 + (*ret_month <= 2));
}

const char *clock_format(char out[CLOCK_TEXT_MAX], int64_t ns)
{
	struct timespec ts = clock_to_timespec(ns);
	int64_t days = ts.tv_sec / SECONDS_PER_DAY;
	int s = (int)(ts.tv_sec % SECONDS_PER_DAY);
	int year, month, day;

	if (s < 0) {
		s += SECONDS_PER_DAY;
		days--;
	}
	civil_from_days(days, &year, &month, &day);
	(void)snprintf(out, CLOCK_TEXT_MAX, "%04d-%02d-%02dT%02d:%02d:%02d.%09ldZ", year, month,
		       day, s / 3600, s / 60 % 60, s % 60, ts.tv_nsec);
	return out;
}

/* Exactly n digits and then `after` (0: whatever). */
static bool digits(const char **s, int n, char after, int *ret)
{
	int v = 0;

	for (int i = 0; i < n; i++, (*s)++) {
		if (**s < '0' || **s > '9')
			return false;
		v = v * 10 + (**s - '0');
	}
	if (after && *(*s)++ != after)
		return false;
	*ret = v;
	return true;
}

static int days_in_month(int year, int month)
{
	static const uint8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

	return days[month - 1] + (month == 2 && leap);
}

static bool parse_date(const char **s, int64_t *ret_days)
{
	int year, month, day;

	if (!digits(s, 4, '-', &year) || !digits(s, 2, '-', &month) || !digits(s, 2, 0, &day))
		return false;
	if (month < 1 || month > 12 || day < 1 || day > days_in_month(year, month))
		return false;
	*ret_days = days_from_civil(year, month, day);
	return true;
}

/* A leap second, which RFC 3339 allows, is the second after it. */
static bool parse_time(const char **s, int *ret_seconds)
{
	int hour, minute, second;

	if (!digits(s, 2, ':', &hour) || !digits(s, 2, ':', &minute) || !digits(s, 2, 0, &second))
		return false;
	if (hour > 23 || minute > 59 || second > 60)
		return false;
	*ret_seconds = hour * 3600 + minute * 60 + second;
	return true;
}

/* Digits beyond the ninth are cut off. */
static bool parse_fraction(const char **s, int *ret_ns)
{
	int unit = NS_PER_S / 10, ns = 0;

	if (**s != '.') {
		*ret_ns = 0;
		return true;
	}
	(*s)++;
	if (**s < '0' || **s > '9')
		return false;
	for (; **s >= '0' && **s <= '9'; (*s)++, unit /= 10)
		ns += (**s - '0') * unit;
	*ret_ns = ns;
	return true;
}

static bool parse_offset(const char **s, int *ret_seconds)
{
	char sign = *(*s)++;
	int hour, minute;

	if (sign == 'Z' || sign == 'z') {
		*ret_seconds = 0;
		return true;
	}
	if (sign != '+' && sign != '-')
		return false;
	if (!digits(s, 2, ':', &hour) || !digits(s, 2, 0, &minute) || hour > 23 || minute > 59)
		return false;
	*ret_seconds = (hour * 3600 + minute * 60) * (sign == '-' ? -1 : 1);
	return true;
}

/* seconds * NS_PER_S alone may be out of range where the sum is not. */
static bool combine(int64_t seconds, int64_t ns, int64_t *ret_ns)
{
	if (seconds < 0 && ns > 0) {
		seconds++;
		ns -= NS_PER_S;
	}
	return !__builtin_mul_overflow(seconds, (int64_t)NS_PER_S, &seconds) &&
	       !__builtin_add_overflow(seconds, ns, ret_ns);
}

int clock_parse(const char *s, int64_t *ret_ns)
{
	int seconds, fraction_ns, offset;
	int64_t days, ns;

	if (!parse_date(&s, &days) || (*s != 'T' && *s != 't'))
		return -EINVAL;
	s++;
	if (!parse_time(&s, &seconds) || !parse_fraction(&s, &fraction_ns) ||
	    !parse_offset(&s, &offset) || *s)
		return -EINVAL;
	if (!combine(days * SECONDS_PER_DAY + seconds - offset, fraction_ns, &ns))
		return -EINVAL;
	*ret_ns = ns;
	return 0;
}

int clock_boot_id(uint8_t out[16])
{
	cleanup_close int fd = -1;
	char text[37], hex[33];
	size_t n = 0;

	fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || io_read_full(fd, text, sizeof(text), "clock.boot_id") < 36)
		return -ENOENT;
	for (size_t i = 0; i < 36 && n < 32; i++)
		if (text[i] != '-')
			hex[n++] = text[i];
	hex[n] = '\0';
	return text_unhex(out, 16, hex) < 0 ? -ENOENT : 0;
}
