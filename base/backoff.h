/*
 * backoff.h - how long to wait before what failed is tried again: `first`, then twice
 * as long with each failure in a row, never longer than `max`; for ever.
 *
 *	(void)uv_timer_start(&t, again, backoff_ms(failures++, FIRST_MS, MAX_MS), 0);
 *
 * What went well for a while sets failures back to 0.
 */
#ifndef BASE_BACKOFF_H
#define BASE_BACKOFF_H

#include <stdint.h>

static inline uint64_t backoff_ms(unsigned failures, uint64_t first, uint64_t max)
{
	uint64_t ms = first;

	for (unsigned i = 0; i < failures && ms < max; i++)
		ms = ms > max / 2 ? max : ms * 2;
	return ms < max ? ms : max;
}

#endif
