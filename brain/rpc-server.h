/*
 * rpc-server.h - limbd's side of the client socket: connections, calls, and
 * their answers (rpc.h has the bytes).
 *
 * A call is answered exactly once, by call_ok() or call_fail(); both end it, and free it:
 * whoever calls what may answer (verb_env()) reads the parameters that it needs before.
 * When its client is gone first, call->on_cancel is called (call->client is NULL then)
 * and the answer, which still has to be given, goes nowhere.  A client that says
 * "cancel" has it called, too, and waits for the answer.  Only limbd's own user may connect.
 */
#ifndef BRAIN_RPC_SERVER_H
#define BRAIN_RPC_SERVER_H

#include <jansson.h>

#include "brain/brain.h"
#include "brain/rpc.h"

struct call {
	struct brain *brain;
	struct client *client; /* NULL: gone */
	json_t *id, *params;
	const struct verb *verb;
	void (*on_cancel)(struct call *call);
	void (*on_stdin)(struct call *call, const void *data, size_t n, bool eof);
	void (*on_drained)(struct call *call); /* room for call_bytes again */
	void (*on_notify)(struct call *call, const char *method, json_t *params);
	void *op; /* the handler's own */
};

struct verb {
	const char *name;
	void (*handler)(struct call *call);
};
extern const struct verb verbs[]; /* verbs.c; ends with a NULL name */

int rpc_server_start(struct brain *b, char **ret_why);
void rpc_server_stop(struct brain *b);

void call_ok(struct call *call, json_t *result); /* steals */
/* code of the contract; next_step may be NULL, and NAME in it stands for env; env names the
 * environment or is NULL. */
void call_fail(struct call *call, const char *code, const char *env, const char *next_step,
	       const char *fmt, ...) _printf_(5, 6);
/* The same with fields of its own (stolen) merged into the error object. */
void call_fail_with(struct call *call, const char *code, json_t *fields, const char *env,
		    const char *next_step, const char *fmt, ...) _printf_(6, 7);
void call_progress(struct call *call, const char *text, uint64_t files, uint64_t bytes,
		   uint64_t total_files, uint64_t total_bytes);

/* Bytes for the client; false: its queue is above RPC_QUEUE_HIGH, wait for on_drained. */
#define RPC_QUEUE_HIGH (1u << 20)
bool call_bytes(struct call *call, enum rpc_kind kind, const void *data, size_t n);
bool call_has_room(const struct call *call);
/* A notification; params are stolen. The answer is that of call_bytes(). */
bool call_notify(struct call *call, const char *method, json_t *params);
/* Nothing more is read from the client for now; no call stays so. */
void call_pause(struct call *call, bool pause);

/* Parameters. Strings hold as long as the call; bytes that are no UTF-8 are decoded. NULL,
 * false or the default when absent. */
const char *call_str(struct call *call, const char *key);
bool call_bool(struct call *call, const char *key);
int64_t call_int(struct call *call, const char *key, int64_t def);
/* NULL-terminated copies of an array of strings (strv, free with call_strv_free). */
char **call_strv(struct call *call, const char *key);
void call_strv_free(char **v);

#endif
