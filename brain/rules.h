/*
 * rules.h - by which rules names are left out of an environment's tree: what its spec says
 * (`ignore`, gitignore patterns; `audit`: "full" makes it the only one to say so) and what
 * limb-syncd says that its .limbignore files do.
 *
 * All rules in force are a record of the log, each time they change. A rule takes nothing out
 * of the journal; who compares the journal with what is there asks env->ignore.
 */
#ifndef BRAIN_RULES_H
#define BRAIN_RULES_H

#include "brain/env.h"
#include "wire/wire.pb-c.h"

/* NULL: fine; else a sentence for whoever wrote the spec. */
const char *rules_judge(const json_t *spec);
/* Fills in what the spec says; *ret_lines is to be freed by the caller when it was sent. */
void rules_welcome(struct env *env, Limbwire__Welcome *w, ProtobufCBinaryData **ret_lines);
/* The contract's {file, line, pattern}; new reference. */
json_t *rules_hit_json(const struct ignore_hit *hit);
int rules_on_ignores(struct env *env, const struct entry_head *e);

#endif
