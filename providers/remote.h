/*
 * remote.h - an environment that is reached by a byte stream alone: an argv that
 * starts a program there, with its standard input and output as its own.
 *
 * providers/ssh and providers/command are this and their own argv.  What is done
 * there is one shell script (remote.sh), sent on the stream itself, so that no
 * name is ever quoted for a shell: it finds a place for limb-syncd, asks for its
 * bytes unless a file with its hash in its name is there and says that hash
 * itself, and answers in lines.  Each verb is one call, and changes nothing when
 * it fails.
 *
 *	const struct remote rm = {.call = call, .argv = ..., ...};
 *	failure = remote_create(&rm, &answer);
 *
 * Nothing that comes from there is trusted: what start-up files print before the
 * script's own mark is skipped (NOISE_MAX), what follows is bounded, escaped,
 * and taken only where it can be right.
 */
#ifndef PROVIDERS_REMOTE_H
#define PROVIDERS_REMOTE_H

#include <jansson.h>
#include <stdbool.h>

#include "providers/provider.h"
#include "providers/words.h"

/* How a call ended that did not come to its end. */
struct remote_end {
	bool late, noisy, began; /* began: the script's mark came */
	int failed;		 /* negative errno: argv could not be started */
	int status;		 /* exit status; 128 + n by signal n */
	const char *said;	 /* stderr, its last 4 KiB; "" */
};

struct remote {
	const struct provider_call *call;
	struct words argv; /* what starts a program there */
	bool by_shell;	   /* ... as one word, for a login shell (ssh) */
	const char *where; /* for people: "host 'vps'" */
	const char *root;  /* the directory there; NULL: one of limbfs's own */
	/* A failure that says why in the transport's words; NULL: it has no better. */
	json_t *(*explain)(const struct remote *rm, const struct remote_end *end);
};

json_t *remote_create(const struct remote *rm, json_t **ret);
json_t *remote_start(const struct remote *rm, json_t **ret);
json_t *remote_stop(const struct remote *rm, json_t **ret);
json_t *remote_delete(const struct remote *rm, json_t **ret);
json_t *remote_status(const struct remote *rm, json_t **ret);
json_t *remote_command(const struct remote *rm, json_t **ret);
json_t *remote_list(const struct remote *rm, json_t **ret);

/* NULL, or the failure, for a directory that is to be the root there. */
json_t *remote_check_path(const char *path);

#endif
