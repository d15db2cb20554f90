/*
 * attach.h - the end of a transport: finds the daemon, starts one when none
 * answers, hands it our stdin and stdout, or moves the bytes ourselves where
 * these cannot be handed over (not pipes or sockets).
 *
 * Nothing of ours is ever printed on stdout: that is the stream.
 */
#ifndef SYNCD_ATTACH_H
#define SYNCD_ATTACH_H

#include <stdbool.h>

#include "syncd/place.h"

enum attach_start {
	ATTACH_MAY_START,
	ATTACH_WAIT,	/* somebody else starts the daemon (init): waited for, 10 s */
	ATTACH_RUNNING, /* one runs, or it is an error at once */
};
int attach_run(const struct place *p, enum attach_start start);
/* Starts the daemon unless one runs; 0 when it answers, within 10 s. */
int attach_start(const struct place *p);
/* 0: a daemon answers; -ENOENT, -ECONNREFUSED: none. */
int attach_probe(const struct place *p);
/* Asks the daemon to end with all its jobs; 0 also when none runs. */
int attach_stop(const struct place *p);

#endif
