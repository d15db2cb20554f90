/*
 * watch.h - what becomes of a tree, one line a change, as its log grows: created,
 * written, removed, renamed, attributes changed.
 *
 * It needs no daemon: the log is read from its first record, for where nodes were, and
 * then waited on. What cannot be told (a purged record, a path that is too long) is
 * a "resync": who keeps something looks at all of it again.
 */
#ifndef JOURNAL_WATCH_H
#define JOURNAL_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#define WATCH_FROM_NOW UINT64_MAX

/* Prints to stdout what records behind `since` did, until *stop (a signal handler's); a signal
 * ends a wait. -ENOENT: the log was removed. */
int watch_run(int log_fd, uint64_t since, bool json, const volatile int *stop);

#endif
