/*
 * watch.h - inotify: one instance, one thread that empties it, events as (wd,
 * name, mask) in the order in which the kernel gave them.
 *
 * libinotifytools is not used for this: its state is global and unlocked, while
 * here watches are added by scanning threads as events are read; it keeps a path
 * and two tree nodes a watch (256 bytes measured), which would be wrong after the
 * first rename of a parent.  Watches are added through a directory's descriptor,
 * so no path is followed.
 *
 *	watch_new(loop, on_events, userdata, &w)
 *	worker: wd = watch_add(w, fd)
 *	loop:	watch_bind(w, wd, dir, &before)	true: events came before, list again
 *		while (watch_next(w, &ev)) ...	in on_events
 */
#ifndef SYNCD_WATCH_H
#define SYNCD_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/inotify.h>

#include "base/util.h"
#include <uv.h>

struct watch;

struct watch_event {
	int wd;	      /* -1: overflow */
	uint32_t dir; /* what it was bound to; 0 = not yet, or not any more */
	uint32_t mask, cookie;
	const char *name; /* lent until the next watch_next(); "" = the directory itself */
	uint8_t len;
};

typedef void (*watch_fn)(void *userdata);

/* -EMFILE, -ENOSYS ...: no instance, everything must be polled. */
int watch_new(uv_loop_t *loop, watch_fn on_events, void *userdata, struct watch **ret);
/* The handle is closed by the loop, which must run once more. */
void watch_free(struct watch *w);

/* Any thread. wd > 0; -ENOSPC: the kernel's limit or ours. */
int watch_add(struct watch *w, int dir_fd);
void watch_set_limit(struct watch *w, uint32_t limit); /* 0 = the kernel's */

/* The loop's thread from here on. */
/* True if events came before; *ret_before: what it was bound to, 0 = nothing. */
bool watch_bind(struct watch *w, int wd, uint32_t dir, uint32_t *ret_before);
void watch_remove(struct watch *w, int wd); /* unbinds, too */
/* After an overflow, when no directory is being listed: counts what is bound. */
void watch_recount(struct watch *w);
bool watch_next(struct watch *w, struct watch_event *ret);
uint32_t watch_count(const struct watch *w);

#endif
