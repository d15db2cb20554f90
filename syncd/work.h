/*
 * work.h - items handed to worker threads in bundles, and their results handed
 * to plan.h on the loop's thread.
 */
#ifndef SYNCD_WORK_H
#define SYNCD_WORK_H

#include <stdbool.h>
#include <stddef.h>

#include "syncd/state.h"

enum {
	WORK_IN_FLIGHT_MAX = 3,
	WORK_LOOK_MAX = 256,
	WORK_LIST_MAX = 8,
	WORK_CAPTURE_MAX = 32,
};

/* Each takes as much as fits from its list of items; false if nothing was there. */
bool work_look(struct sync *sy);    /* ITEM_READY */
bool work_list(struct sync *sy);    /* ITEM_LISTABLE */
bool work_capture(struct sync *sy); /* ITEM_WANTED */
bool work_verify(struct sync *sy);  /* ITEM_ABSENT, all of them */

#endif
