/*
 * upkeep-check.h - one pack given to a worker (check.h), and what that says; for a
 * helper thread.
 */
#ifndef BRAIN_UPKEEP_CHECK_H
#define BRAIN_UPKEEP_CHECK_H

#include <stdatomic.h>

#include "journal/store-merge.h"

/* file: limb-ingest; uid: its user or NULL. The verdict's frames are the caller's to free. `stop`
 * ends it early: -ECANCELED. A worker that dies or says nonsense has not seen the whole.
 * Negative: it could not be asked. */
int upkeep_check(const char *file, const char *uid, const struct store_merge_job *job,
		 const atomic_bool *stop, struct store_merge_verdict *ret);

#endif
