#include "bridge/ref.h"

#include <string.h>

#include "journal/point.h"

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

bool ref_name_ok(const char *s)
{
	size_t n = name_length(s);

	return n > 0 && s[n] == '\0';
}

bool ref_point_ok(const char *s)
{
	struct point point;

	return point_parse_all(s, &point);
}

bool ref_job_ok(const char *s)
{
	size_t n = point_job_length(s);

	return n > 0 && s[n] == '\0';
}

bool ref_parse(const char *s, struct ref *ret)
{
	struct ref ref = {.name = s, .name_len = name_length(s)};
	const char *p = s + ref.name_len;
	struct point point;

	if (ref.name_len == 0)
		return false;
	if (*p == '@') {
		ref.point = p + 1;
		ref.point_len = point_parse(ref.point, &point);
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
