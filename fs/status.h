/*
 * status.h - what a view knows of how new it is: the line to the environment,
 * what limbd said last, how many messages the kernel sent. Written by the
 * threads that learn of it, read by any.
 */
#ifndef FS_STATUS_H
#define FS_STATUS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define STATUS_OPCODES 64

struct status {
	_Atomic uint64_t seen;	   /* every cache agrees with this sequence number */
	_Atomic uint64_t since_ms; /* monotonic: when the line or limbd went away */
	atomic_bool away;	   /* the line to the environment is down */
	atomic_bool daemon;	   /* limbd is connected, or there is none to be */
	_Atomic uint64_t messages[STATUS_OPCODES]; /* from the kernel, by opcode; 0: others */
};

static inline bool status_is_live(const struct status *s)
{
	return !atomic_load(&s->away) && atomic_load(&s->daemon);
}

#endif
