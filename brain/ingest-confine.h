/*
 * ingest-confine.h - what limb-ingest may still do once it reads from an
 * environment: read, write, poll, messages on its socket, memory, clock, exit; and
 * once it checks a pack: pread, write, memory, exit.
 *
 *	confine(...)	limits, user, no new privileges, seccomp; for ever
 *
 * Libraries must be set up before.  A call outside of the list ends the process
 * (SIGSYS), but for those that a C library may try by itself: they fail with
 * EPERM.  In builds with sanitizers every call outside of the list fails with
 * EPERM, and memory is not limited.
 */
#ifndef BRAIN_INGEST_CONFINE_H
#define BRAIN_INGEST_CONFINE_H

#include <stdint.h>
#include <sys/types.h>

#define CONFINE_MEMORY_BYTES (256ull << 20)
#define CONFINE_NO_UID ((uid_t)-1)

enum confine_as { CONFINE_INGEST, CONFINE_CHECK };

/* uid: user and group to become (root only), or CONFINE_NO_UID. Closes every descriptor
 * above first_closed - 1. On failure the process must end. */
int confine(enum confine_as as, uid_t uid, unsigned first_closed);

/* For tests: each kind of forbidden call, made from inside by a process of its own, which
 * could make it before. A line each on stdout; the number of those that were possible. */
int confine_self_test(uid_t uid);

#endif
