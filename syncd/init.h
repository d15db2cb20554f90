/*
 * init.h - the first process of a sandbox: starts the daemon, starts it again
 * when it dies, reaps what is orphaned, ends on SIGTERM with everything.
 */
#ifndef SYNCD_INIT_H
#define SYNCD_INIT_H

#include "syncd/place.h"

int init_run(const struct place *p);

#endif
