/*
 * provider.h - what our providers share: EXECUTABLE VERB, one JSON object in,
 * one out, an end by deadline_ms (limb-provider(7)).
 *
 *	static const struct provider_verb verbs[] = {{"info", info}, ...};
 *	int main(int argc, char **argv)
 *	{
 *		return provider_main("local", argc, argv, verbs, ARRAY_SIZE(verbs));
 *	}
 *
 * A verb gets the parsed call and gives its answer or a failure made by
 * provider_failure().  Verbs that change something hold a lock in the private
 * directory, so that two of them on one environment come one after the other.
 * A timer ends the process with a failure a moment after the deadline, whatever
 * it waits for.
 */
#ifndef PROVIDERS_PROVIDER_H
#define PROVIDERS_PROVIDER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

struct provider_call {
	const char *provider;
	json_t *in;
	/* Lent by `in`; NULL where the verb needs none. */
	const char *environment, *id, *brain, *handle, *dir;
	const json_t *spec;
	const char *root, *syncd; /* of spec */
	int dir_fd;		  /* dir, made if absent; -1 without one */
	uint64_t end_ms;	  /* by clock_mono_ms() */
	char *mark;		  /* "PROVIDER BRAIN ID" (process.h) */
};

/* NULL and *ret_answer (new), or a failure. */
typedef json_t *(*provider_fn)(const struct provider_call *call, json_t **ret_answer);

struct provider_verb {
	const char *name;
	provider_fn fn;
	bool needs_dir; /* an environment is named: id and dir are there, the lock is held */
};

int provider_main(const char *provider, int argc, char **argv, const struct provider_verb *verbs,
		  size_t n);

/* code of the contract; step may be NULL. Texts are made fit for JSON. */
json_t *provider_failure(const char *code, const char *step, const char *fmt, ...) _printf_(3, 4);
json_t *provider_failure_errno(int r, const char *what);

/* {"status": ..., "init_pid"?} */
json_t *provider_status(const char *status, pid_t init_pid);

/* A failure unless spec.root is an absolute directory; make: made if absent. */
json_t *provider_check_root(const struct provider_call *call, bool make);

/* The environment for what we start: PATH, HOME, ..., the mark, and LIMB_* and
 * sanitizer variables of ours, for tests; NULL-terminated "K=V". Nothing else of
 * limbd's environment goes to the hands. Free with provider_strv_free(). */
char **provider_environment(const struct provider_call *call, const char *home);
void provider_strv_free(char **v);

/* DIR/log as descriptors 1 and 2, /dev/null as 0, a session of its own, no other
 * descriptor after exec; for the child. */
int provider_detach(const struct provider_call *call);
/* The last line of DIR/log, escaped. */
const char *provider_log_tail(const struct provider_call *call, char *out, size_t size);

/* As many descriptors as the hard limit permits; processes at most this many
 * (0: as many as now; the kernel does not count root's). */
void provider_set_limits(unsigned processes);

#endif
