#include "base/text.h"

#include <stdio.h>

#include "base/util.h"

enum { ESCAPED_MAX = 4 }; /* bytes one escaped unit needs: \xNN, or one character */

static bool is_tail(uint8_t c)
{
	return (c & 0xc0) == 0x80;
}

/* Length of the well-formed character at p, 0 if there is none (RFC 3629,
 * section 4; the second byte's range shuts out overlong forms, surrogates and
 * what is above U+10FFFF). */
static size_t utf8_char(const uint8_t *p, size_t n)
{
	uint8_t low = 0x80, high = 0xbf;
	size_t len;

	if (p[0] < 0x80)
		return 1;
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return 0;
	len = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	if (n < len)
		return 0;

	if (p[0] == 0xe0)
		low = 0xa0;
	else if (p[0] == 0xed)
		high = 0x9f;
	else if (p[0] == 0xf0)
		low = 0x90;
	else if (p[0] == 0xf4)
		high = 0x8f;
	if (p[1] < low || p[1] > high)
		return 0;
	for (size_t i = 2; i < len; i++)
		if (!is_tail(p[i]))
			return 0;
	return len;
}

bool text_utf8_ok(const void *data, size_t n)
{
	const uint8_t *p = data;

	while (n > 0) {
		size_t k = *p ? utf8_char(p, n) : 0;

		if (k == 0)
			return false;
		p += k;
		n -= k;
	}
	return true;
}

int text_utf8_replace(struct buf *b, const void *data, size_t n)
{
	const uint8_t *p = data;
	size_t before = b->end - b->start;
	int r = 0;

	while (n > 0 && r == 0) {
		size_t k = *p ? utf8_char(p, n) : 0;

		r = k ? buf_add(b, p, k) : buf_add_str(b, "\xef\xbf\xbd");
		k = k ? k : 1;
		p += k;
		n -= k;
	}
	if (r < 0)
		b->end = b->start + before;
	return r;
}

/* Writes the escaped form of the first unit at p; returns its length, and how
 * many bytes of input it stands for. */
static size_t escape_unit(char out[ESCAPED_MAX + 1], const uint8_t *p, size_t n, size_t *ret_used)
{
	size_t k = utf8_char(p, n);
	bool control = p[0] < 0x20 || p[0] == 0x7f;

	/* C1 controls are well-formed, and terminals obey them. */
	if (k == 2 && p[0] == 0xc2 && p[1] < 0xa0)
		k = 0;
	if (k == 0 || control) {
		*ret_used = 1;
		return (size_t)snprintf(out, ESCAPED_MAX + 1, "\\x%02x", p[0]);
	}
	*ret_used = k;
	if (p[0] == '\\') {
		memcpy(out, "\\\\", 2);
		return 2;
	}
	memcpy(out, p, k);
	return k;
}

int text_escape(struct buf *b, const void *data, size_t n)
{
	const uint8_t *p = data;
	size_t before = buf_len(b);
	char unit[ESCAPED_MAX + 1];
	int r = 0;

	while (n > 0 && r == 0) {
		size_t used, len = escape_unit(unit, p, n, &used);

		r = buf_add(b, unit, len);
		p += used;
		n -= used;
	}
	if (r < 0)
		b->end = b->start + before;
	return r;
}

const char *text_escape_into(char *out, size_t size, const void *data, size_t n)
{
	static const char dots[] = "...";
	const uint8_t *p = data;
	char unit[ESCAPED_MAX + 1];
	size_t len = 0, cut = 0; /* cut: where the dots go if it does not fit */

	if (size == 0)
		return out;
	while (n > 0) {
		size_t used, k = escape_unit(unit, p, n, &used);

		if (len + k >= size) {
			len = MIN(cut + strlen(dots), size - 1);
			memcpy(out + cut, dots, len - cut);
			break;
		}
		memcpy(out + len, unit, k);
		len += k;
		if (len + strlen(dots) < size)
			cut = len;
		p += used;
		n -= used;
	}
	out[len] = '\0';
	return out;
}

void text_hex(char *out, const void *data, size_t n)
{
	static const char hex_digits[] = "0123456789abcdef";
	const uint8_t *p = data;

	for (size_t i = 0; i < n; i++) {
		out[2 * i] = hex_digits[p[i] >> 4];
		out[2 * i + 1] = hex_digits[p[i] & 15];
	}
	out[2 * n] = '\0';
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -EINVAL;
}

int text_unhex(void *out, size_t n, const char *hex)
{
	uint8_t *p = out;

	if (strlen(hex) != 2 * n || strspn(hex, "0123456789abcdefABCDEF") != 2 * n)
		return -EINVAL;
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(hex_value(hex[2 * i]) << 4 | hex_value(hex[2 * i + 1]));
	return 0;
}

static const char base64_digits[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void base64_group(uint8_t out[4], const uint8_t *p, size_t n)
{
	uint32_t v = (uint32_t)p[0] << 16;

	if (n > 1)
		v |= (uint32_t)p[1] << 8;
	if (n > 2)
		v |= p[2];
	out[0] = (uint8_t)base64_digits[v >> 18];
	out[1] = (uint8_t)base64_digits[v >> 12 & 63];
	out[2] = n > 1 ? (uint8_t)base64_digits[v >> 6 & 63] : '=';
	out[3] = n > 2 ? (uint8_t)base64_digits[v & 63] : '=';
}

int text_base64(struct buf *b, const void *data, size_t n)
{
	const uint8_t *p = data;
	uint8_t *out;
	size_t groups = n / 3 + (n % 3 != 0);
	int r;

	if (groups > SIZE_MAX / 4)
		return -E2BIG;
	r = buf_reserve(b, groups * 4, &out);
	if (r < 0)
		return r;
	for (size_t i = 0; i < groups; i++)
		base64_group(out + 4 * i, p + 3 * i, n - 3 * i);
	buf_commit(b, groups * 4);
	return 0;
}

static int base64_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+')
		return 62;
	return c == '/' ? 63 : -EINVAL;
}

/* `digits` of the four characters are not padding (2, 3 or 4). Bits that fall
 * off the end must be zero, so that bytes have one encoding only. */
static int unbase64_group(uint8_t *out, const char *s, size_t digits)
{
	uint32_t v = 0;

	for (size_t i = 0; i < 4; i++) {
		int d = i < digits ? base64_value(s[i]) : 0;

		if (d < 0)
			return d;
		v = v << 6 | (uint32_t)d;
	}
	if (v & (digits == 2 ? 0xffffU : digits == 3 ? 0xffU : 0))
		return -EINVAL;
	for (size_t i = 0; i + 1 < digits; i++)
		out[i] = (uint8_t)(v >> (16 - 8 * i));
	return 0;
}

int text_unbase64(struct buf *b, const char *s, size_t n)
{
	size_t padding, bytes;
	uint8_t *out;
	int r;

	if (n % 4 != 0)
		return -EINVAL;
	if (n == 0)
		return 0;
	padding = s[n - 1] != '=' ? 0 : s[n - 2] != '=' ? 1 : 2;
	bytes = n / 4 * 3 - padding;
	r = buf_reserve(b, bytes, &out);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i += 4) {
		r = unbase64_group(out + i / 4 * 3, s + i, i + 4 == n ? 4 - padding : 4);
		if (r < 0)
			return r;
	}
	buf_commit(b, bytes);
	return 0;
}

/* The digits at s, of which there must be one; *ret_end is what follows. */
static int parse_digits(const char *s, const char **ret_end, uint64_t *ret)
{
	uint64_t v = 0;

	if (*s < '0' || *s > '9')
		return -EINVAL;
	*ret_end = s + strspn(s, "0123456789");
	for (; s < *ret_end; s++)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return -ERANGE;
	*ret = v;
	return 0;
}

int text_parse_u64(const char *s, uint64_t max, uint64_t *ret)
{
	const char *end = s;
	uint64_t v = 0;
	int r;

	r = parse_digits(s, &end, &v);
	if (r != -EINVAL && *end)
		return -EINVAL;
	if (r < 0)
		return r;
	if (v > max)
		return -ERANGE;
	*ret = v;
	return 0;
}

int text_parse_size(const char *s, uint64_t *ret_bytes)
{
	static const char units[] = "KMGT";
	const char *end = s, *unit;
	uint64_t v = 0;
	unsigned shift = 0;
	int r;

	r = parse_digits(s, &end, &v);
	if (r == -EINVAL)
		return r;
	if (*end) {
		unit = strchr(units, *end);
		if (!unit || end[1])
			return -EINVAL;
		shift = 10 * (unsigned)(unit - units + 1);
	}
	if (r < 0)
		return r;
	if (v > UINT64_MAX >> shift)
		return -ERANGE;
	*ret_bytes = v << shift;
	return 0;
}

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGIT "0123456789"

enum { WORD_MAX = 63 };

static bool is_word(const char *s, const char *first, const char *rest)
{
	size_t n = strlen(s);

	return n > 0 && n <= WORD_MAX && strspn(s, first) > 0 && strspn(s, rest) == n;
}

bool text_name_ok(const char *s)
{
	return is_word(s, LOWER DIGIT, LOWER DIGIT "_-");
}

bool text_label_ok(const char *s)
{
	return is_word(s, LOWER UPPER "_", LOWER UPPER DIGIT "._-") && strcmp(s, "HEAD") != 0 &&
	       strcmp(s, "now") != 0;
}
