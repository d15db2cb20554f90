/*
 * provider.h - running a provider: EXECUTABLE VERB, one JSON object in, one
 * out, an end by the deadline (limb-provider(7)).
 *
 * A provider named without '/' is one of ours (providers/ beside limbd or in
 * pkglibexecdir), else the user's own executable.  It runs as limbd's user, with
 * limbd's environment and the umask that limbd was started with, and its stderr in
 * limbd's log.  The answer is bounded (1 MiB) and must be one JSON object.
 */
#ifndef BRAIN_PROVIDER_H
#define BRAIN_PROVIDER_H

#include <jansson.h>

#include "brain/env.h"

struct provider_error {
	const char *code;   /* of the contract */
	const char *detail; /* names the provider and the verb */
	json_t *next_steps; /* array or NULL; borrowed */
};

/* NULL, or a sentence about what stands in its way (malloc'ed): there is none of that name, or
 * the file cannot be run. */
char *provider_judge(const struct brain *b, const char *provider);
/* Its roots are directories of this machine, named by nothing but their path. */
bool provider_is_here(const char *provider);

/* answer is borrowed; NULL when err is set. */
typedef void (*provider_fn)(struct env *env, const struct provider_error *err, json_t *answer,
			    void *userdata);

/* extra (stolen, may be NULL) is merged into the request. fn is called once unless a negative
 * errno is returned at once. */
int provider_run(struct env *env, const char *verb, json_t *extra, uint64_t deadline_ms,
		 provider_fn fn, void *userdata);

/* NULL-terminated arrays into the JSON strings (free the array only); NULL when it is not an
 * array of strings / absent (env: limbd's own environment then). */
char **provider_argv(json_t *array);
char **provider_env(json_t *array);

#endif
