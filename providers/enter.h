/*
 * enter.h - one more process inside a sandbox that runs: the namespaces, the
 * capabilities and the limits of its first process, then exec.
 *
 * nsenter(1) would leave what it starts with every capability over the sandbox,
 * and finds its process by a number that may be another's by then.
 */
#ifndef PROVIDERS_ENTER_H
#define PROVIDERS_ENTER_H

#include "providers/process.h"

/* Runs argv inside, with stdin and stdout as they are and stderr passed on, a bounded
 * part of it, and returns its exit status (128 + n by signal n), or a negative errno when it did not start:
 * -ESRCH when the sandbox is gone. The caller's death is its death. */
int enter_run(const struct process *init, char **argv, char **env);

#endif
