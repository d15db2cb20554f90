#include "journal/point.h"

#include <string.h>

#include "base/clock.h"

/* What JSON carries exactly. */
static const uint64_t seq_max = (1ull << 53) - 1;

static bool in(char c, const char *set)
{
	return c != '\0' && strchr(set, c) != NULL;
}

static bool digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool lower(char c)
{
	return c >= 'a' && c <= 'z';
}

static bool letter(char c)
{
	return lower(c) || (c >= 'A' && c <= 'Z');
}

static size_t number(const char *s, uint64_t *ret)
{
	uint64_t v = 0;
	size_t n = 0;

	for (; digit(s[n]); n++) {
		v = v * 10 + (uint64_t)(s[n] - '0');
		if (v > seq_max)
			return 0;
	}
	*ret = v;
	return n;
}

static size_t label_length(const char *s)
{
	size_t n = 0;

	while (letter(s[n]) || s[n] == '_' || (n > 0 && (digit(s[n]) || in(s[n], ".-"))))
		n++;
	return n <= POINT_WORD_MAX ? n : 0;
}

size_t point_job_length(const char *s)
{
	size_t n = 0;

	if (strncmp(s, "j-", 2) != 0)
		return 0;
	while (digit(s[n]) || lower(s[n]) || s[n] == '-')
		n++;
	return n > 2 && n <= POINT_WORD_MAX ? n : 0;
}

/* The longest start of s that is an RFC 3339 time. */
static size_t time_length(const char *s, int64_t *ret_ns)
{
	char text[CLOCK_TEXT_MAX + 8];
	size_t n = 0;

	while (digit(s[n]))
		n++;
	if (n != 4 || s[4] != '-')
		return 0;
	while (digit(s[n]) || in(s[n], "-:.+TtZz"))
		n++;
	for (; n > 0; n--) {
		if (n >= sizeof(text))
			continue;
		memcpy(text, s, n);
		text[n] = '\0';
		if (clock_parse(text, ret_ns) == 0)
			return n;
	}
	return 0;
}

static void set_word(struct point *p, const char *s, size_t n)
{
	memcpy(p->word, s, n);
	p->word[n] = '\0';
}

static size_t parse_number(const char *s, struct point *p)
{
	size_t n = time_length(s, &p->time_ns);

	p->kind = POINT_TIME;
	if (n)
		return n;
	p->kind = POINT_SEQ;
	return number(s, &p->seq);
}

static size_t parse_job(const char *s, const char *prefix, enum point_kind kind, struct point *p)
{
	size_t n = strlen(prefix), job;

	if (strncmp(s, prefix, n) != 0)
		return 0;
	job = point_job_length(s + n);
	if (!job)
		return 0;
	p->kind = kind;
	set_word(p, s + n, job);
	return n + job;
}

static size_t parse_word(const char *s, struct point *p)
{
	size_t n = label_length(s), back = 0;

	if (n == 4 && memcmp(s, "HEAD", 4) == 0) {
		p->kind = POINT_HEAD;
		if (s[n] == '~')
			back = number(s + n + 1, &p->seq);
		return n + (back ? back + 1 : 0);
	}
	p->kind = n == 3 && memcmp(s, "now", 3) == 0 ? POINT_NOW : POINT_LABEL;
	set_word(p, s, n);
	return n;
}

size_t point_parse(const char *s, struct point *ret)
{
	struct point p = {0};
	size_t n;

	if (digit(s[0])) {
		n = parse_number(s, &p);
	} else {
		n = parse_job(s, "before:", POINT_BEFORE_JOB, &p);
		if (!n)
			n = parse_job(s, "after:", POINT_AFTER_JOB, &p);
		if (!n)
			n = parse_word(s, &p);
	}
	if (n)
		*ret = p;
	return n;
}

bool point_parse_all(const char *s, struct point *ret)
{
	struct point p;
	size_t n = point_parse(s, &p);

	if (n == 0 || s[n] != '\0')
		return false;
	*ret = p;
	return true;
}
