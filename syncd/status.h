/*
 * status.h - STATUS: counts, and the reasons why things are not as they should
 * be.  Sent at most every 250 ms when something changed, every 5 s when not, and
 * before a barrier's answer when a reason came or went: who is told that all is
 * durable must not find an older state.
 */
#ifndef SYNCD_STATUS_H
#define SYNCD_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

#include <uv.h>

enum { STATUS_REASONS_MAX = 32 };

struct sync;

struct status_reason {
	const char *code;    /* static */
	char *path, *detail; /* may be NULL */
	int64_t since_ns;
	uint64_t until_ms; /* 0 = until cleared */
};

struct status {
	struct status_reason reasons[STATUS_REASONS_MAX];
	size_t n_reasons;
	uint64_t unlisted; /* reasons beyond the table */
	uint64_t overflows, rescans, ignored_names, ignored_bytes;
	uint64_t scanned_files, scanned_bytes, audit_differences, refused;
	uint64_t sent_ms;
	bool changed, reasons_changed; /* since it was sent */
	uv_timer_t timer;
};

void status_init(struct sync *sy);
void status_done(struct sync *sy);
void status_changed(struct sync *sy);
void status_send(struct sync *sy);	   /* now */
void status_send_reasons(struct sync *sy); /* now, if one came or went */

/* code: a word of the contract (watch_limit, unreadable ...), static. path may be NULL; detail may
 * be NULL. for_ms: how long it is shown, 0 = until cleared. */
void status_set(struct sync *sy, const char *code, const char *path, uint64_t for_ms,
		const char *detail);
void status_clear(struct sync *sy, const char *code, const char *path);
void status_clear_all(struct sync *sy, const char *code);
bool status_has(const struct sync *sy, const char *code);

#endif
