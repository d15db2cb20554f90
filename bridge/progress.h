/*
 * progress.h - one line on a terminal's stderr, rewritten as limbd's "progress"
 * notifications come; silent when stderr is no terminal.
 *
 *	struct progress p;
 *	progress_init(&p);
 *	call.notified = progress_notified, call.userdata = &p;
 *	...
 *	progress_end(&p);	before anything else is printed
 */
#ifndef BRIDGE_PROGRESS_H
#define BRIDGE_PROGRESS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool terminal, shown;
	uint64_t start_ms, last_ms;
};

void progress_init(struct progress *p);
void progress_notified(const char *method, const json_t *params, void *progress);
void progress_end(struct progress *p);

/* "capturing: 1200 of 5000 files, 3.0 MiB, 12.0 MiB/s, 3.0 s left"; pure. */
struct buf;
int progress_line(struct buf *b, const json_t *params, uint64_t elapsed_ms);

#endif
