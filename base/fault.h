/*
 * fault.h - named points at which a test makes a system call fail.
 *
 * Every write, fsync, rename, send and receive of ours goes through io.h and
 * has a name there ("log.append", "pack.sync").  In builds configured with
 * --enable-faults the environment variable
 *
 *	LIMB_FAULT=name:count:error|cut|kill[,name:count:...]
 *
 * makes the count'th visit of that point (from 1) fail with EIO, do half of
 * its work and then fail, or do half of its work and kill the process.  The
 * name "*" counts visits of all points together.  An error may name its errno:
 * "error=ENOSPC"; so may a cut.  A plan that cannot be read aborts the program.
 * LIMB_FAULT_TRACE=FILE appends a line "name" for each first visit of a point,
 * so a harness can visit every one of them.  In other builds all of it is
 * constant and costs nothing.
 *
 * LIMB_FAULT_NOW=FILE is for what begins and ends while programs run: they map the
 * file at their start, and each visit reads it.  It has FAULT_NOW_BYTES, is written
 * over in place (never made shorter), and holds words, "name:error=ENOSPC" for every
 * visit as long as it says so, and "clock:-3600", by which clock_real_ns() is off.
 */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <errno.h>

#include <stdint.h>

enum { FAULT_NOW_BYTES = 1024 };

enum fault_kind {
	FAULT_NONE = 0,
	FAULT_ERROR, /* fail, having done nothing */
	FAULT_CUT,   /* do about half, then fail */
	FAULT_KILL,  /* do about half, then fault_die() */
};

#ifdef LIMB_FAULTS
enum fault_kind fault_visit(const char *name, int *ret_errno);
_Noreturn void fault_die(void); /* SIGKILL to ourselves */
/* Sets the plan in place of LIMB_FAULT and restarts the counts; NULL ends it. */
int fault_set(const char *plan);
int64_t fault_clock_ns(void);
#else
static inline enum fault_kind fault_visit(const char *name, int *ret_errno)
{
	(void)name;
	(void)ret_errno;
	return FAULT_NONE;
}
/* So that tests compile, and skip, in builds without fault points. */
static inline int fault_set(const char *plan)
{
	(void)plan;
	return -ENOSYS;
}
static inline int64_t fault_clock_ns(void)
{
	return 0;
}
#endif

#endif
