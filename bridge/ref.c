#include "bridge/ref.h"

#include <string.h>

#include "base/clock.h"

enum { NAME_MAX_LEN = 63 };

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

static size_t digits(const char *s)
{
	size_t n = 0;

	while (digit(s[n]))
		n++;
	return n;
}

/* "~" and digits, or 0 */
static size_t back(const char *s)
{
	size_t n = s[0] == '~' ? digits(s + 1) : 0;

	return n ? n + 1 : 0;
}

static size_t name_length(const char *s)
{
	size_t n = 0;

	while (digit(s[n]) || lower(s[n]) || (n > 0 && in(s[n], "_-")))
		n++;
	if (n == 0 || n > NAME_MAX_LEN)
		return 0;
	return n + back(s + n);
}

static size_t label_length(const char *s)
{
	size_t n = 0;

	while (letter(s[n]) || s[n] == '_' || (n > 0 && (digit(s[n]) || in(s[n], ".-"))))
		n++;
	return n <= NAME_MAX_LEN ? n : 0;
}

static size_t job_length(const char *s)
{
	size_t n = 0;

	if (strncmp(s, "j-", 2) != 0)
		return 0;
	while (digit(s[n]) || lower(s[n]) || s[n] == '-')
		n++;
	return n > 2 && n <= NAME_MAX_LEN ? n : 0;
}

/* The longest start of s that is an RFC 3339 time. */
static size_t time_length(const char *s)
{
	char text[CLOCK_TEXT_MAX + 8];
	size_t n = 0;
	int64_t ns;

	if (digits(s) != 4 || s[4] != '-')
		return 0;
	while (digit(s[n]) || in(s[n], "-:.+TtZz"))
		n++;
	for (; n > 0; n--) {
		if (n >= sizeof(text))
			continue;
		memcpy(text, s, n);
		text[n] = '\0';
		if (clock_parse(text, &ns) == 0)
			return n;
	}
	return 0;
}

static size_t point_length(const char *s)
{
	static const char *const job_prefixes[] = {"before:", "after:"};
	size_t n;

	if (digit(s[0])) {
		n = time_length(s);
		return n ? n : digits(s);
	}
	for (size_t i = 0; i < 2; i++) {
		size_t p = strlen(job_prefixes[i]);

		if (strncmp(s, job_prefixes[i], p) == 0 && job_length(s + p))
			return p + job_length(s + p);
	}
	n = label_length(s);
	if (n == 4 && memcmp(s, "HEAD", 4) == 0)
		return n + back(s + n);
	return n;
}

bool ref_name_ok(const char *s)
{
	size_t n = name_length(s);

	return n > 0 && s[n] == '\0';
}

bool ref_point_ok(const char *s)
{
	size_t n = point_length(s);

	return n > 0 && s[n] == '\0';
}

bool ref_job_ok(const char *s)
{
	size_t n = job_length(s);

	return n > 0 && s[n] == '\0';
}

bool ref_parse(const char *s, struct ref *ret)
{
	struct ref ref = {.name = s, .name_len = name_length(s)};
	const char *p = s + ref.name_len;

	if (ref.name_len == 0)
		return false;
	if (*p == '@') {
		ref.point = p + 1;
		ref.point_len = point_length(ref.point);
		if (ref.point_len == 0)
			return false;
		p = ref.point + ref.point_len;
	}
	if (*p == ':')
		ref.path = p + 1;
	else if (*p != '\0')
		return false;
	*ret = ref;
	return true;
}
