/*
 * exec-client.h - `limb exec`, git, shell, attach, wait: stdin, stdout and stderr of a command in an
 * environment, and its status as ours (CLI contract, section 3).
 */
#ifndef BRIDGE_EXEC_CLIENT_H
#define BRIDGE_EXEC_CLIENT_H

#include <jansson.h>

#include "bridge/args.h"
#include "bridge/client.h"

/* Runs the call of parsed arguments; the process's exit status. A failure, if
 * any, is printed. Ends the process by SIGPIPE where stdout has no reader. */
int exec_client_run(struct client *c, const struct args *args);

/* The status that a result gives: the command's, 124, 125; 0 for -d. Pure. */
int exec_client_status(const json_t *result);

#endif
