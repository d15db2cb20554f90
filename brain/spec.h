/*
 * spec.h - what the spec of `create` may say: limbd's own settings, and what the providers
 * that come with limbfs take.  Of theirs, a key that nobody reads is refused: a limit or a
 * rule that is spelled wrong must not look as if it were in force.  A provider given by its
 * path may take whatever it likes.
 *
 * A pure function; the values of a provider's keys are judged by that provider.
 */
#ifndef BRAIN_SPEC_H
#define BRAIN_SPEC_H

#include <jansson.h>
#include <stddef.h>

enum { SPEC_WHY_MAX = 512 };

/* NULL: fine; else a sentence for whoever wrote it, which may be in room. */
const char *spec_judge(const json_t *spec, const char *provider, char room[SPEC_WHY_MAX]);

#endif
