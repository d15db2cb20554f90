/*
 * remote-call.h - one run of remote.sh over a byte stream, to its end or the
 * deadline; remote.c asks and judges.
 */
#ifndef PROVIDERS_REMOTE_CALL_H
#define PROVIDERS_REMOTE_CALL_H

#include "base/buf.h"
#include "providers/remote.h"

struct remote_call {
	const char *verb;
	const char *syncd; /* sent when asked for; NULL: none is needed */
	char hash[65];
	uint64_t size_bytes;
	const char *base, *bin; /* what earlier calls found, or "" */

	struct buf lines; /* out: what it said after its mark, whole lines, NUL-terminated */
	char said[4096];
};

/* Calls on_line for each line as it comes. 0: the script said "over"; else *ret_end says
 * how it ended. */
int remote_call_run(const struct remote *rm, struct remote_call *c,
		    void (*on_line)(const char *line, void *userdata), void *userdata,
		    struct remote_end *ret_end);

#endif
