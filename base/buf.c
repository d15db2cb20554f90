#include "base/buf.h"

#include <assert.h>
#include <stdio.h>

enum { MIN_CAP = 256 };

void buf_init(struct buf *b, size_t limit_bytes)
{
	*b = (struct buf)BUF_INIT(limit_bytes);
}

void buf_done(struct buf *b)
{
	if (!b)
		return;
	free(b->mem);
	buf_init(b, b->limit);
}

void buf_clear(struct buf *b)
{
	b->start = b->end = 0;
}

static size_t limit_of(const struct buf *b)
{
	return b->limit ? b->limit : SIZE_MAX;
}

/* Memory follows the limit too: one byte above it, for the NUL of printf. */
static size_t next_cap(const struct buf *b, size_t need)
{
	size_t limit = limit_of(b);
	size_t cap = b->cap > SIZE_MAX / 2 ? SIZE_MAX : b->cap * 2;

	cap = MAX(cap, (size_t)MIN_CAP);
	if (limit < SIZE_MAX)
		cap = MIN(cap, limit + 1);
	return MAX(cap, need);
}

/* Makes room for n bytes of content and `extra` bytes that never become it. */
static int make_room(struct buf *b, size_t n, size_t extra)
{
	size_t len = buf_len(b), need, cap;
	uint8_t *mem;

	if (n > limit_of(b) - len)
		return -E2BIG;
	if (__builtin_add_overflow(len, n, &need) || __builtin_add_overflow(need, extra, &need))
		return -ENOMEM;
	if (b->cap - b->end >= n + extra)
		return 0;

	cap = next_cap(b, need);
	if (need <= b->cap && (b->start >= b->cap / 2 || cap <= b->cap)) {
		memmove(b->mem, b->mem + b->start, len);
	} else {
		mem = malloc(cap);
		if (!mem)
			return -ENOMEM;
		if (len)
			memcpy(mem, b->mem + b->start, len);
		free(b->mem);
		b->mem = mem;
		b->cap = cap;
	}
	b->start = 0;
	b->end = len;
	return 0;
}

int buf_reserve(struct buf *b, size_t n, uint8_t **ret_p)
{
	int r;

	r = make_room(b, n, 0);
	if (r < 0)
		return r;
	*ret_p = b->mem ? b->mem + b->end : NULL;
	return 0;
}

void buf_commit(struct buf *b, size_t n)
{
	assert(n <= b->cap - b->end);
	b->end += n;
}

int buf_add(struct buf *b, const void *data, size_t n)
{
	uint8_t *p;
	int r;

	if (n == 0)
		return 0;
	r = buf_reserve(b, n, &p);
	if (r < 0)
		return r;
	memcpy(p, data, n);
	buf_commit(b, n);
	return 0;
}

int buf_add_u8(struct buf *b, uint8_t v)
{
	return buf_add(b, &v, 1);
}

int buf_add_str(struct buf *b, const char *s)
{
	return buf_add(b, s, strlen(s));
}

int buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
	size_t room = b->cap - b->end;
	va_list again;
	int n, r;

	va_copy(again, ap);
	n = vsnprintf(room ? (char *)b->mem + b->end : NULL, room, fmt, again);
	va_end(again);
	if (n < 0)
		return -EINVAL;
	r = make_room(b, (size_t)n, 1);
	if (r < 0)
		return r;
	if ((size_t)n >= room)
		(void)vsnprintf((char *)b->mem + b->end, (size_t)n + 1, fmt, ap);
	buf_commit(b, (size_t)n);
	return 0;
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = buf_vprintf(b, fmt, ap);
	va_end(ap);
	return r;
}

void buf_consume(struct buf *b, size_t n)
{
	assert(n <= buf_len(b));
	b->start += n;
	if (b->start == b->end)
		buf_clear(b);
}

int buf_to_str(const struct buf *b, char **ret_s)
{
	size_t n = buf_len(b);
	char *s;

	s = malloc(n + 1);
	if (!s)
		return -ENOMEM;
	if (n)
		memcpy(s, buf_data(b), n);
	s[n] = '\0';
	*ret_s = s;
	return 0;
}
