/*
 * session.h - limb-syncd's side of the wire: one attached transport at a time,
 * outgoing frames in three classes, incoming frames dispatched by a table.
 *
 * The daemon listens on a socket in its private directory; `limb-syncd attach`
 * is the process at the end of a transport: it connects there and moves bytes.
 * A newer attach replaces an older one (whose transport may hang half-dead).
 * Everything runs on the one uv loop thread unless it says otherwise.
 *
 * The sync half (sync.h) and the job half (jobs.h) send through this; neither
 * knows of sockets.
 */
#ifndef SYNCD_SESSION_H
#define SYNCD_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>
#include <uv.h>

#include "wire/frame.h"
#include "wire/wire.pb-c.h"

struct session;

enum session_class { SESSION_CONTROL, SESSION_OUTPUT, SESSION_BULK };

/* Packs msg and queues one frame; bulk is copied. 0, or -ENOTCONN when nothing
 * is attached (the frame is dropped: whoever needs it sent again does so after
 * the next WELCOME), -ENOMEM, -E2BIG. */
int session_send(struct session *s, enum session_class class, enum wire_type type,
		 const ProtobufCMessage *msg, const void *bulk, size_t bulk_len);
/* ERROR for a request. */
int session_send_error(struct session *s, uint64_t request, int error, const char *detail);

bool session_attached(const struct session *s); /* WELCOME has come */
bool session_takes_deltas(const struct session *s);
bool session_has_trees(const struct session *s); /* WIRE_CAP_TREES */
/* Bytes queued in a class. Senders of SESSION_BULK stop above SESSION_BULK_HIGH and go
 * on in their drained() callback. */
#define SESSION_BULK_HIGH (4u << 20)
size_t session_queued(const struct session *s, enum session_class class);

/* ---- used by the daemon (daemon.c) and the dispatcher (dispatch.c) ---- */

struct session_ops {
	int (*hello)(Limbwire__Hello *hello, void *userdata); /* strings lent until it is packed */
	/* One frame, lent for the call. Negative closes the stream. */
	int (*frame)(const struct wframe *f, void *userdata);
	/* A class went above its high mark and is below half of it now. */
	void (*drained)(enum session_class class, void *userdata);
	void (*detached)(void *userdata);
};

#define SESSION_OUTPUT_HIGH (512u << 10)

int session_new(uv_loop_t *loop, const struct session_ops *ops, void *userdata,
		struct session **ret);
void session_free(struct session *s); /* before the loop's last run, which closes its handles */
/* Takes the descriptors, also when it fails, in place of what was attached before, and says
 * HELLO. `in` and `out` differ (dup one socket); `held` (-1 = none) is closed with them, and
 * its end is the session's. */
int session_attach(struct session *s, int in, int out, int held);
void session_welcomed(struct session *s, uint64_t capabilities); /* that B has */
/* Sends what is queued as control, then closes. */
void session_close(struct session *s);

#endif
