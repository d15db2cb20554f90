/*
 * buf.h - a growable byte buffer with a limit.
 *
 *	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
 *	r = buf_add(&b, data, n);
 *	if (r < 0)
 *		return r;
 *	r = buf_printf(&b, "%d\n", x);
 *
 * The limit is what a peer may make us allocate: exceeding it is -E2BIG and
 * leaves the buffer as it was.  Data is consumed from the front by
 * buf_consume(), which moves bytes only when half of the space is free.
 * Pointers into the buffer hold until the next call that is not const.
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdarg.h>
#include <stdint.h>
#include <stddef.h>

#include "base/util.h"

struct buf {
	uint8_t *mem;
	size_t start; /* first byte in use */
	size_t end;   /* one past the last byte in use */
	size_t cap;
	size_t limit; /* bytes in use never exceed this; 0 = SIZE_MAX */
};

#define BUF_INIT(limit_bytes)          \
	{                              \
		.limit = (limit_bytes) \
	}

void buf_init(struct buf *b, size_t limit_bytes);
void buf_done(struct buf *b);  /* NULL and zeroed are fine */
void buf_clear(struct buf *b); /* keeps the memory */

static inline const uint8_t *buf_data(const struct buf *b)
{
	return b->start ? b->mem + b->start : b->mem; /* NULL + 0 is undefined, too */
}
static inline size_t buf_len(const struct buf *b)
{
	return b->end - b->start;
}

int buf_add(struct buf *b, const void *data, size_t n);
int buf_add_u8(struct buf *b, uint8_t v);
int buf_add_str(struct buf *b, const char *s); /* without its NUL */
int buf_printf(struct buf *b, const char *fmt, ...) _printf_(2, 3);
int buf_vprintf(struct buf *b, const char *fmt, va_list ap) _printf_(2, 0);

/* Room for n more bytes at *ret_p; buf_commit(n') makes n' <= n of them part
 * of the buffer. */
int buf_reserve(struct buf *b, size_t n, uint8_t **ret_p);
void buf_commit(struct buf *b, size_t n);

void buf_consume(struct buf *b, size_t n); /* n <= buf_len() */

/* A NUL-terminated copy of the content, owned by the caller. */
int buf_to_str(const struct buf *b, char **ret_s);

#endif
