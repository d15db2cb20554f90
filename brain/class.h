/*
 * class.h - when a call that changes something in a view returns, as the spec says it: `class` for
 * all, and `classes`, a list of {"pattern", "class"} of which the last that meets a path counts
 * (fs/classes.h).
 */
#ifndef BRAIN_CLASS_H
#define BRAIN_CLASS_H

#include <jansson.h>

enum { CLASS_PATTERNS_MAX = 64 };

/* Both: NULL, or a sentence for whoever wrote it. */
const char *class_judge_spec(const json_t *spec);
/* CLASS, CLASS:PATTERN, or :PATTERN, which takes that one away: into fields, which are to go over
 * the spec's. */
const char *class_take(const json_t *spec, json_t *fields, const char *text);

#endif
