/*
 * ps.h - the processes of the environment, each with its job.
 *
 * In a sandbox of ours (its first process is limb-syncd, or bwrap around it)
 * all that it has; elsewhere, where strangers live too, only what descends from
 * a holder.
 */
#ifndef SYNCD_PS_H
#define SYNCD_PS_H

#include <sys/types.h>

#include "syncd/session.h"

struct ps_holder {
	pid_t pid;
	const char *job;
};

void ps_answer(struct session *session, uint64_t request, const struct ps_holder *holders,
	       size_t n_holders);

#endif
