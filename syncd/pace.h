/*
 * pace.h - so many bytes a second, as the spec's `rate_bytes` allows: a bucket that
 * fills with time and is emptied by what was sent.  Values in, values out; no clock.
 *
 *	pace_set(&p, rate, now_ms);		0: no limit
 *	if (pace_wait_ms(&p, now_ms) == 0)	send something, then
 *		pace_took(&p, bytes);
 *
 * What is sent at once may be more than the bucket holds; the debt is waited for.  Only an
 * environment that behaves is paced by this; limbd counts what comes (brain/quota.h).
 */
#ifndef SYNCD_PACE_H
#define SYNCD_PACE_H

#include <stdint.h>

enum { PACE_BURST_MIN = 1 << 20 };

struct pace {
	uint64_t rate; /* bytes a second */
	int64_t credit;
	uint64_t at_ms; /* credit is of then */
};

void pace_set(struct pace *p, uint64_t rate, uint64_t now_ms);
void pace_took(struct pace *p, uint64_t bytes);
uint64_t pace_wait_ms(struct pace *p, uint64_t now_ms); /* 0: go on */

#endif
