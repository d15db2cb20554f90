/*
 * clock.h - times: wall clock in ns since 1970 (int64_t, may be negative),
 * monotonic ms, RFC 3339 text, the kernel's boot id.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

int64_t clock_real_ns(void);
uint64_t clock_mono_ms(void);
uint64_t clock_mono_ns(void);

static inline int64_t clock_from_timespec(struct timespec ts)
{
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}
struct timespec clock_to_timespec(int64_t ns); /* tv_nsec in 0..999999999, also before 1970 */

#define CLOCK_TEXT_MAX 40
/* "2026-01-02T03:04:05.000000006Z"; years 1678 to 2262; returns out. */
const char *clock_format(char out[CLOCK_TEXT_MAX], int64_t ns);
/* RFC 3339 with Z or offset, fraction optional; -EINVAL. */
int clock_parse(const char *s, int64_t *ret_ns);

/* 16 bytes of /proc/sys/kernel/random/boot_id; -ENOENT where there is none. */
int clock_boot_id(uint8_t out[16]);

#endif
