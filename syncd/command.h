/*
 * command.h - starting a job's command: where, with what, and exactly once.
 *
 * The directory is opened beneath the root before anything runs; links that stay
 * beneath are followed where the kernel can do that safely (openat2), else none.
 * A command that cannot run there does not run elsewhere.
 */
#ifndef SYNCD_COMMAND_H
#define SYNCD_COMMAND_H

#include <sys/types.h>

#include "wire/wire.pb-c.h"

struct command {
	pid_t pid;
	int in;		    /* write end of its stdin, or the terminal; -1: it has /dev/null */
	int out[2];	    /* read ends; out[1] is -1 with a terminal */
	const char *failed; /* after an error: "cwd", "exec" or what else */
};

/* root: its absolute name, opened anew each time; job->cwd is relative to it. Descriptors in
 * ret are non-blocking and the caller's. */
int command_start(const Limbwire__JobStart *job, const char *root, struct command *ret);

#endif
