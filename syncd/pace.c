#include "syncd/pace.h"

#include "base/util.h"

enum { WAIT_MAX_MS = 60000 };

static int64_t burst(const struct pace *p)
{
	return (int64_t)MAX(MIN(p->rate, (uint64_t)INT32_MAX), (uint64_t)PACE_BURST_MIN);
}

void pace_set(struct pace *p, uint64_t rate, uint64_t now_ms)
{
	if (rate == p->rate)
		return;
	*p = (struct pace){.rate = rate, .at_ms = now_ms};
	p->credit = burst(p);
}

void pace_took(struct pace *p, uint64_t bytes)
{
	if (p->rate)
		p->credit -= (int64_t)MIN(bytes, (uint64_t)INT64_MAX / 4);
	p->credit = MAX(p->credit, INT64_MIN / 2);
}

uint64_t pace_wait_ms(struct pace *p, uint64_t now_ms)
{
	uint64_t passed_ms, wait_ms;

	if (!p->rate)
		return 0;
	passed_ms = MIN(now_ms > p->at_ms ? now_ms - p->at_ms : 0, (uint64_t)WAIT_MAX_MS);
	/* Fractions of a byte stay for the next time. */
	if (passed_ms * p->rate >= 1000 || passed_ms == WAIT_MAX_MS) {
		p->credit +=
			(int64_t)(passed_ms * MIN(p->rate, UINT64_MAX / WAIT_MAX_MS / 2) / 1000);
		p->credit = MIN(p->credit, burst(p));
		p->at_ms = now_ms;
	}
	if (p->credit > 0)
		return 0;
	wait_ms = ((uint64_t)-p->credit + 1) / MAX(p->rate / 1000, (uint64_t)1) + 1;
	return MIN(wait_ms, (uint64_t)WAIT_MAX_MS);
}
