/*
 * quota.h - how much an environment's journal may take, and what is left on the disk.
 *
 * Above its quota (spec `quota_bytes`, limb set NAME quota=) an environment is full: limb-syncd
 * is told to capture no more (SETTINGS), the state is `halted` with the reason
 * journal_quota, and nothing that is durable is touched.  Commands run on; what they
 * change stays dirty there and is named as unsettled.  Beyond the quota lies a reserve for
 * decisions and the records of jobs; when that much was recorded since, no job begins any more,
 * while ends and decisions are still taken.  The same happens when the disk of the state directory
 * is almost full (no_space).  Raised, or with room again, all goes on by itself.
 *
 * What counts is the log, and the content as it was packed for this environment; that other
 * environments share it is nobody's merit.  quota_judge() is pure.
 */
#ifndef BRAIN_QUOTA_H
#define BRAIN_QUOTA_H

#include "brain/env.h"

enum quota_verdict {
	QUOTA_FINE,
	QUOTA_FULL,  /* no more changes */
	QUOTA_SPENT, /* no more commands either */
};

uint64_t quota_reserve(uint64_t limit);
/* limit 0: none; since_full: how much the log has grown since the quota was first exceeded. What
 * was on its way then does not count against the reserve. */
enum quota_verdict quota_judge(uint64_t limit, uint64_t used, uint64_t since_full);
/* Is so little free that only the reserve is left? full: it was so until now. */
bool quota_disk_is_full(uint64_t free_bytes, uint64_t total_bytes, bool full);

uint64_t quota_used(const struct env *env);
/* NULL: the settings of this spec are fine; else a sentence for whoever wrote it. */
const char *quota_judge_spec(const json_t *spec);
/* After whatever may have changed the verdict. */
void quota_look(struct env *env);
/* Tells limb-syncd, which has just been welcomed or whose settings have changed. */
void quota_say(struct env *env);
/* So many bytes came of a change or of content. -EPROTO: it goes on although it was told. */
int quota_took(struct env *env, uint64_t bytes);

void quota_start(struct brain *b); /* looks at the disk while there is little room */

#endif
