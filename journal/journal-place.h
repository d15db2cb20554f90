/*
 * journal-place.h - where in a (copied) state directory the log of an environment lies,
 * and the stores that may have its content.
 *
 * DIR is a state directory (envs/ID/log, brain/log, store/OWNER), one
 * environment's directory or the brain's (they hold log/), or a log itself.
 * With several environments one is named: by its name at the end of the brain's
 * log, by the name in its own GENESIS record when there is no brain's log, or by
 * its id, 32 hex digits, with or without dashes.
 */
#ifndef JOURNAL_JOURNAL_PLACE_H
#define JOURNAL_JOURNAL_PLACE_H

#include "base/util.h"

struct journal_place {
	int log_fd;
	int store_fd; /* the directory that holds one directory for each owner; -1: none */
};

#define JOURNAL_PLACE_INIT                    \
	{                                     \
		.log_fd = -1, .store_fd = -1, \
	}

enum journal_place_problem {
	JOURNAL_PLACE_NO_LOG,  /* there is no log in DIR */
	JOURNAL_PLACE_SEVERAL, /* DIR holds several environments */
	JOURNAL_PLACE_UNKNOWN, /* no environment of that name */
};

/* environment: NULL = the only one.  0; -ENOENT and *ret_problem; another errno. */
int journal_place_open(const char *dir, const char *environment, struct journal_place *ret,
		       enum journal_place_problem *ret_problem);
void journal_place_done(struct journal_place *p);

#endif
