/*
 * util.h - the small macros every file uses: cleanup attributes, ownership
 * hand-over, array sizes, and fixed-width integers in byte order.
 *
 *	cleanup_free char *name = strdup("x");
 *	cleanup_close int fd = open(...);
 *	...
 *	*ret_fd = take_fd(&fd);		the caller owns it now
 *
 * Nothing here allocates, logs or fails.
 */
#ifndef BASE_UTIL_H
#define BASE_UTIL_H

#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#undef MIN /* uv.h brings those of sys/param.h */
#undef MAX
#define MIN(a, b)                     \
	({                            \
		__auto_type _a = (a); \
		__auto_type _b = (b); \
		_a < _b ? _a : _b;    \
	})
#define MAX(a, b)                     \
	({                            \
		__auto_type _a = (a); \
		__auto_type _b = (b); \
		_a > _b ? _a : _b;    \
	})
#define ALIGN_UP(n, a) (((n) + ((a)-1)) & ~((__typeof__(n))(a)-1))
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define _printf_(f, a) __attribute__((format(printf, f, a)))
#define _cleanup_(fn) __attribute__((cleanup(fn)))

static inline void cleanup_free_fn(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_close_fn(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
}

#define cleanup_free _cleanup_(cleanup_free_fn)
#define cleanup_close _cleanup_(cleanup_close_fn)

/* Declares x_free's cleanup function; used as _cleanup_(x_freep). */
#define DEFINE_CLEANUP(type, fn)           \
	static inline void fn##p(type **p) \
	{                                  \
		fn(*p);                    \
	}                                  \
	struct util_swallow_semicolon

static inline int take_fd(int *fd)
{
	int r = *fd;
	*fd = -1;
	return r;
}

#define take_ptr(p)                   \
	({                            \
		__auto_type _p = (p); \
		__auto_type _r = *_p; \
		*_p = NULL;           \
		_r;                   \
	})

/* Integers in a byte order, at any alignment. */
static inline void put_le16(void *p, uint16_t v)
{
	v = htole16(v);
	memcpy(p, &v, sizeof(v));
}
static inline void put_le32(void *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, sizeof(v));
}
static inline void put_le64(void *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, sizeof(v));
}
static inline void put_be64(void *p, uint64_t v)
{
	v = htobe64(v);
	memcpy(p, &v, sizeof(v));
}
static inline uint16_t get_le16(const void *p)
{
	uint16_t v;
	memcpy(&v, p, sizeof(v));
	return le16toh(v);
}
static inline uint32_t get_le32(const void *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}
static inline uint64_t get_le64(const void *p)
{
	uint64_t v;
	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}
static inline uint64_t get_be64(const void *p)
{
	uint64_t v;
	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

#endif
