/*
 * link.h - the attached side of an environment: the transport's process, its
 * limb-ingest, and the socket on which limb-ingest hands over entries.
 *
 *	link_start(env)		provider's `command`, transport, limb-ingest
 *	link_send(...)		one wire frame to the environment
 *	link_request(...)	a frame with a request id; the answer or a deadline
 *	link_stop(env)		both processes end; env->link is NULL then
 *
 * Entries are dispatched by a static table to attach, intake, feed, job.
 * limbd never parses what an environment wrote: entry.h's structs are checked
 * and used.  When the transport or limb-ingest ends, the environment is away
 * and link.c tries again, at once and then with capped back-off (100 ms doubling to 10 s).
 */
#ifndef BRAIN_LINK_H
#define BRAIN_LINK_H

#include <protobuf-c/protobuf-c.h>

#include "brain/env.h"
#include "wire/frame.h"

struct link;

int link_start(struct env *env);
/* Ends it; `why` for the log. No retry is made. */
void link_stop(struct env *env, const char *why);
/* As when the line fell (`why` is NULL if that is all that is known): ended now, tried again later. */
void link_lost(struct env *env, const char *why);
/* Arms the next attempt where a line is wanted and there is none. An attempt that comes while
 * the environment is busy is dropped: who ends being busy calls this. */
void link_retry(struct env *env);
void link_resume(struct env *env);   /* a commit round is over: read on */
bool link_up(const struct env *env); /* WELCOME was sent */
void link_set_up(struct env *env);

int link_send(struct env *env, enum wire_type type, const ProtobufCMessage *msg, const void *bulk,
	      size_t bulk_len);
/* Numbers up to here are had: limb-ingest expects the next ones. */
int link_send_start(struct env *env, uint64_t durable_number);
/* Ready frames (feed.c). */
int link_send_raw(struct env *env, const void *frames, size_t n);
/* For the next PUSH: never 0, nor one that is in use. */
uint32_t link_push_number(void);
size_t link_queued(const struct env *env);
/* Hands limb-ingest a fresh pack, as soon as a helper thread has made one; a guest's a file that
 * is thrown away, at once. */
int link_send_pack(struct env *env);
int link_send_seal(struct env *env); /* limb-ingest: enough of this pack */
/* What it has stored before; part of a base, as it asked for it (error: positive errno). */
int link_send_seed(struct env *env, const void *hashes, size_t n);
int link_send_base(struct env *env, uint64_t request, uint64_t size_bytes, int error,
		   const void *data, size_t n);

/* e: the answer, or NULL with r = -ETIMEDOUT, -ENOTCONN (line lost) or the errno that ERROR
 * carried. Lent for the call. */
typedef void (*link_answer_fn)(struct env *env, int r, const struct entry_head *e, void *userdata);
/* A request id to put into the message that the caller sends next; the type that its answer
 * has, other than ERROR; the answer's deadline. */
int link_expect(struct env *env, enum entry_type answer, uint64_t deadline_ms, link_answer_fn fn,
		void *userdata, uint64_t *ret_request);
/* For handlers: the one who waits for this request is told. *keep: stays registered (TREE_PART
 * before the last). -EPROTO: an answer of another type than was expected, which is a lie; who
 * waits is told so when the line ends. */
int link_answer(struct env *env, uint64_t request, int r, const struct entry_head *e, bool keep);
/* Something has moved: the deadline begins anew. */
void link_extend(struct env *env, uint64_t request, uint64_t deadline_ms);
void link_forget(struct env *env, uint64_t request);

/* The line is another env's from now on, which has none; what was asked over it is answered
 * with -ENOTCONN. */
void link_move(struct env *from, struct env *to);
uint64_t link_sent_bytes(const struct env *env); /* of wire frames, over the present line */
/* User number `n` (24 bits and one) of limbd's helpers, as text; false: they stay what we are. */
bool link_helper_uid(uint32_t n, char *out, size_t size);

/* Is this a content of which this line has proven that the environment has it (proof.h)? */
bool link_has_proof(const struct env *env, const uint8_t hash[SHA256_BYTES]);

int link_transport_pid(const struct env *env);
int link_ingest_pid(const struct env *env);

#endif
