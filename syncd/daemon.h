/*
 * daemon.h - the process that stays: holds DIR/lock, listens on DIR/s, and
 * joins the session with sync, jobs and apply on one loop.
 *
 * It ends by SIGTERM or SIGINT (holders and their jobs go on), by `limb-syncd
 * stop` (they do not), or when an attach of another build asks for its place.
 */
#ifndef SYNCD_DAEMON_H
#define SYNCD_DAEMON_H

#include "syncd/place.h"

/* Until the daemon ends; -EBUSY when another one has the lock. */
int daemon_run(const struct place *p);
/* In a forked child: the same as a program of its own, so that it is seen as what it is. */
_Noreturn void daemon_exec(const struct place *p);

#endif
