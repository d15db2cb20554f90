/*
 * client.h - one call of limbd over its socket (brain/rpc.h), with stdin and
 * stdout of the call beside it.
 *
 *	failure = client_connect(&places, &client);
 *	call = (struct client_call){.method = "status", .params = params,
 *				    .in_fd = -1, .out_fd = 1, .err_fd = 2};
 *	outcome = client_call(client, &call, &answer);
 *	client_free(client);
 *
 * client_call() returns when the answer is there.  It moves stdin only as fast
 * as limbd reads, and reads limbd only as fast as stdout and stderr take it.
 * SIGINT, SIGTERM and SIGHUP cancel the call: limbd is told, and has CLIENT_CANCEL_MS to
 * answer; a second one does not wait.  A reader of stdout that is gone cancels it, too.
 *
 * Not for threads: signals are blocked while a call lasts.
 */
#ifndef BRIDGE_CLIENT_H
#define BRIDGE_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "bridge/places.h"

#define CLIENT_CANCEL_MS 2000

struct client;

struct client_call {
	const char *method;
	json_t *params;	     /* borrowed */
	int in_fd;	     /* read for 'i' frames; -1: none are sent */
	const void *in_data; /* client_begin(): at most RPC_FRAME_MAX; NULL: none */
	size_t in_n;
	int out_fd;	      /* where 'o' goes */
	int err_fd;	      /* where 'r' goes */
	int *terminal;	      /* when *terminal >= 0, changes of its size are told */
	uint64_t deadline_ms; /* from now; 0: none */
	/* Each notification of limbd; may be NULL. */
	void (*notified)(const char *method, const json_t *params, void *userdata);
	void *userdata;
};

enum client_outcome {
	CLIENT_RESULT,	    /* *ret_answer is the result */
	CLIENT_FAILED,	    /* *ret_answer is a failure (failure.h), limbd's or ours */
	CLIENT_INTERRUPTED, /* by a signal, client_signal(); no answer is given */
	CLIENT_PIPE_CLOSED, /* nobody reads our stdout any more */
};

/* NULL, or the failure ("daemon_unreachable" with its remedy). Nothing is started. */
json_t *client_connect(const struct places *places, struct client **ret);
void client_free(struct client *c);
int client_signal(const struct client *c); /* that interrupted the last call */
/* Whether limbd has ended it; if not, what it began there may go on. */
bool client_answered(const struct client *c);
/* During a call (`notified`): the terminal's size as it is now. */
int client_send_size(struct client *c, int terminal);
pid_t client_peer_pid(const struct client *c); /* limbd's */

/* A client makes one call after the other. The answer is the caller's. */
enum client_outcome client_call(struct client *c, const struct client_call *call,
				json_t **ret_answer);

/* ---- for a loop of one's own (limb mcp) ---- */

/* Begins a call; nothing is read from stdin (in_data is sent in its place, and its end), and
 * bytes of output are dropped. call and
 * what it points at have to stay until the end. Poll client_fd() for POLLIN, and for
 * POLLOUT while client_wants_write(). */
int client_begin(struct client *c, const struct client_call *call);
int client_fd(const struct client *c);
bool client_wants_write(const struct client *c);
/* After poll: 0, or 1: the call is over, with *ret_outcome (RESULT, FAILED) and the answer. */
int client_pump(struct client *c, const struct client_call *call, short revents,
		enum client_outcome *ret_outcome, json_t **ret_answer);
/* Asks limbd to end the call; its answer still comes. */
int client_cancel(struct client *c);

/* True if nothing listens at the socket: what client_connect() failed with. */
bool client_is_unreachable(const json_t *failure);

#endif
