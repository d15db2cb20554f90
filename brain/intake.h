/*
 * intake.h - what an environment says became of its files, into its log.
 *
 * limb-ingest has checked each entry's form; here each is checked against what is
 * known: its number is the next one, new nodes come from the range that this
 * incarnation was granted, and the index accepts the operations.  What does not
 * fit is a lie or a bug of limb-syncd: nothing of it is taken and the line ends,
 * state `hostile`.  So does what says that changes came which did not.  A number seen before is skipped (exactly once).
 */
#ifndef BRAIN_INTAKE_H
#define BRAIN_INTAKE_H

#include "brain/env.h"

int intake_on_places(struct env *env, const struct entry_head *e);
int intake_on_change(struct env *env, const struct entry_head *e);
/* BARRIER_DONE and JOB_EXIT come behind the changes up to their `number` (PROTOCOL, BARRIER):
 * who acknowledged one that names others would promise what nobody has. -EPROTO: hostile. */
int intake_check_number(struct env *env, uint64_t number);

#endif
