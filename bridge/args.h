/*
 * args.h - a command line becomes a call: verb, params, how to print.
 *
 *	_cleanup_(args_done) struct args args = {0};
 *	failure = args_parse(argc, argv, &args);
 *	if (failure)
 *		return failure_print(failure, args.json);
 *
 * Everything that the verb table can decide is decided here: unknown verbs and
 * flags, missing and surplus arguments, the grammar of names, points and files,
 * numbers.  Flags may stand anywhere before "--"; for exec, before the command.
 * Reads nothing but the current directory (relative host paths become absolute)
 * and the file of --spec.
 */
#ifndef BRIDGE_ARGS_H
#define BRIDGE_ARGS_H

#include <jansson.h>
#include <stdbool.h>

#include "bridge/verbs.h"

struct args {
	const struct verb *verb; /* NULL: none was given */
	json_t *params;
	const char *state; /* points into argv */
	bool json, quiet, nul;
	bool help, version;
};

/* NULL, or the failure ("usage"); args->json holds either way. */
json_t *args_parse(int argc, char **argv, struct args *args);
void args_done(struct args *args);

/* What is said of a first word that is none. */
json_t *args_no_verb(const char *word);

/* "usage: limb VERB ..." on one line; appended to b. */
struct buf;
int args_usage(struct buf *b, const struct verb *verb);

#endif
