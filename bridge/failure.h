/*
 * failure.h - what a verb says when it could not: the contract's error object
 * {"error": CODE, "detail", "next_steps", ...}, made here or by limbd.
 *
 *	return failure_new("not_running", "limb start x", "'%s' is stopped", name);
 *	...
 *	return failure_print(failure, json);	the process's exit status
 *
 * A failure is a JSON object that its holder owns.  Detail and step are bytes
 * made fit for JSON and for one line of a terminal here; file names in them are
 * escaped by the caller (text.h).
 */
#ifndef BRIDGE_FAILURE_H
#define BRIDGE_FAILURE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/util.h"

enum exit_code {
	EXIT_NO = 1,
	EXIT_USAGE = 2,
	EXIT_DEADLINE = 124,
	EXIT_COULD_NOT = 125,
	EXIT_INTERRUPTED = 130,
};

/* step may be NULL. Never returns NULL: without memory the process ends with
 * EXIT_COULD_NOT and a line that says so. */
json_t *failure_new(const char *code, const char *step, const char *fmt, ...) _printf_(3, 4);
/* The contract's code for an errno ("no_space", "permission_denied", else "io_error"). */
const char *failure_code_of_errno(int r);

/* 2, 124 or 125: what the object's "exit" says, else by its code. */
int failure_exit(const json_t *failure);
/* One line on stderr, "limb: DETAIL; STEP" ("; try: limb ..." for a bare command), whatever the
 * texts hold; a step that the detail names is not said twice. step may be NULL. */
void failure_log(const char *detail, const char *step);
/* The same for a failure; with json the object on stdout, too (without "exit").
 * Consumes failure, returns its exit status. */
int failure_print(json_t *failure, bool json);

#endif
