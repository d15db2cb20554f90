/*
 * barrier.h - "everything that became dirty before now has been sent": a cookie
 * file in a watched directory of our own shows that all earlier events have been
 * read; then the items that are dirty are waited for.
 *
 * Each barrier has one bit of struct item (dirty.h); more than 32 at a time wait
 * in a queue.  A deadline ends each, with what did not come to rest.
 */
#ifndef SYNCD_BARRIER_H
#define SYNCD_BARRIER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

#include <uv.h>

#include "syncd/dirty.h"
#include "syncd/sync.h"

enum { BARRIER_UNSETTLED_MAX = 100 };

struct barrier;
struct sync;

struct barriers {
	struct barrier *first; /* oldest */
	uint32_t bits;	       /* in use */
	int cookie_fd;	       /* directory of the cookies */
	int cookie_wd;
	uint64_t cookie; /* newest number */
	uv_timer_t timer;
	bool closing;
};

int barriers_init(struct sync *sy);
void barriers_done(struct sync *sy); /* each ends with ECANCELED */
/* An event in the cookies' directory. */
void barrier_cookie(struct sync *sy, const char *name);
bool barrier_is_cookie(const struct sync *sy, int wd);
void barrier_lost_watch(struct sync *sy);
/* After each piece of work: which are through? */
void barriers_check(struct sync *sy);
bool barriers_wait_for(const struct sync *sy, const struct item *it);
/* The brain's journal is full: only barriers of jobs go on, and say what is unsettled. */
void barriers_full(struct sync *sy);
void barriers_fail(struct sync *sy, int error); /* all that wait */

#endif
