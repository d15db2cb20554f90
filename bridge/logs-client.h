/*
 * logs-client.h - `limb logs`: a job's output as its exact bytes, or as JSON lines
 * of which the last one is the job.
 */
#ifndef BRIDGE_LOGS_CLIENT_H
#define BRIDGE_LOGS_CLIENT_H

#include <jansson.h>

#include "bridge/args.h"
#include "bridge/client.h"

/* Runs the call; the process's exit status. A failure, if any, is printed. */
int logs_client_run(struct client *c, const struct args *args);

/* Says on stderr how much of the output was not kept, if any of it was not. */
void logs_client_left_out(const json_t *result);

#endif
