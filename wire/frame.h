/*
 * frame.h - frames of the wire (PROTOCOL 2): a pure decoder and an encoder.
 *
 * The decoder is fed bytes as they come and says what it needs; it never
 * allocates more than one frame's limits.  It knows nothing of protobuf: body
 * and bulk are bytes.
 *
 *	wframe_decoder_init(&d);			first it looks for the start mark
 *	wframe_decoder_reserve(&d, n, &p);		read up to n bytes to p
 *	wframe_decoder_commit(&d, n_read);
 *	while ((r = wframe_decoder_next(&d, &f)) > 0)	f lent until the next reserve or next
 *		...
 *	r < 0: close the stream; next() says the same again from then on
 *
 * The names clash with nothing: journal's frames live in packs (pack.h); these
 * are wire frames, so the prefix is wframe_.
 */
#ifndef WIRE_FRAME_H
#define WIRE_FRAME_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define WIRE_START "\0LIMB-WIRE-0001\n"
#define WIRE_START_BYTES 16
#define WIRE_NOISE_MAX (16u << 20)
#define WIRE_HEADER_BYTES 16
#define WIRE_BODY_MAX (1u << 20)
#define WIRE_BULK_MAX ((1u << 20) + (64u << 10))
#define WIRE_READ_MAX (256u << 10) /* most to reserve at once */
#define WIRE_PROTOCOL_VERSION 1
/* Bits of `capabilities`. LZ4: bulks may come compressed; a side compresses only when the
 * other says so, and B does neither on a local pipe. */
#define WIRE_CAP_LZ4 1u
/* DELTA: a large file may come as copies of what the other side has; on networks only. */
#define WIRE_CAP_DELTA 2u
/* TREES: bulks may come as zstd frames, TREE_PARTs in their bulk, and a TREE_GET may say what
 * there is; on networks only. */
#define WIRE_CAP_TREES 4u
/* SETTINGS: E takes that message. */
#define WIRE_CAP_SETTINGS 8u

enum wire_type {
	WIRE_HELLO = 1,
	WIRE_WELCOME = 2,
	WIRE_PING = 3,
	WIRE_PONG = 4,
	WIRE_ERROR = 5,
	WIRE_BYE = 6,
	WIRE_CHANGE = 10,
	WIRE_DATA = 11,
	WIRE_DURABLE = 12,
	WIRE_BARRIER = 13,
	WIRE_BARRIER_DONE = 14,
	WIRE_STATUS = 15,
	WIRE_TREE_GET = 16,
	WIRE_TREE_PART = 17,
	WIRE_ACCEPT = 18,
	WIRE_ACCEPTED = 19,
	WIRE_APPLY = 20,
	WIRE_APPLIED = 21,
	WIRE_PULL = 22,
	WIRE_PULL_DATA = 23,
	WIRE_RESTORE = 24,
	WIRE_RESTORED = 25,
	WIRE_DATA_DONE = 26,
	WIRE_IGNORES = 27,
	WIRE_SETTINGS = 28,
	WIRE_JOB_START = 30,
	WIRE_JOB_STARTED = 31,
	WIRE_JOB_OUTPUT = 32,
	WIRE_JOB_ACK = 33,
	WIRE_JOB_INPUT = 34,
	WIRE_JOB_SIGNAL = 35,
	WIRE_JOB_EXIT = 36,
	WIRE_JOB_FORGET = 37,
	WIRE_JOB_LIST = 38,
	WIRE_PS = 39,
	WIRE_PS_DONE = 40,
	WIRE_FREEZE = 41,
	WIRE_FROZEN = 42,
	WIRE_JOB_INPUT_HAD = 43,
	WIRE_PUSH = 50,
};

enum { WIRE_FLAG_LZ4 = 1, WIRE_FLAG_ZSTD = 2 };

/* How a bulk is made smaller, where that makes it smaller. */
enum wire_compress {
	WIRE_PLAIN = 0,
	WIRE_LZ4 = WIRE_FLAG_LZ4,   /* faster than any line */
	WIRE_ZSTD = WIRE_FLAG_ZSTD, /* where bytes count */
};

struct wframe {
	uint8_t type;
	const uint8_t *body;
	uint32_t body_len;
	const uint8_t *bulk; /* decompressed */
	uint32_t bulk_len;
};

struct wframe_decoder {
	struct buf in;
	struct buf bulk; /* decompressed bulk */
	size_t used;	 /* bytes of `in` that the frame handed out last takes */
	size_t noise;
	bool started;
	int error; /* once next() failed */
};

void wframe_decoder_init(struct wframe_decoder *d);
void wframe_decoder_done(struct wframe_decoder *d);
/* Frees what a large frame left behind; ends the loan of the last frame. For rests. */
void wframe_decoder_trim(struct wframe_decoder *d);
/* Room to read into, and how much was read: avoids a copy. n <= WIRE_READ_MAX always
 * succeeds (but for -ENOMEM) after next() returned 0. */
int wframe_decoder_reserve(struct wframe_decoder *d, size_t n, uint8_t **ret);
void wframe_decoder_commit(struct wframe_decoder *d, size_t n);
/* 1: a frame; 0: more bytes needed; -EPROTO: no start mark within WIRE_NOISE_MAX;
 * -E2BIG: a length above its limit; -EBADMSG: flags, reserved bytes or the compressed bulk;
 * -EPROTONOSUPPORT: unknown type below 128 (from 128 on they are skipped). */
int wframe_decoder_next(struct wframe_decoder *d, struct wframe *ret);

/* Appends one frame. */
int wframe_encode(struct buf *out, uint8_t type, const void *body, size_t body_len,
		  const void *bulk, size_t bulk_len, enum wire_compress compress);

/* The same of a message, which is packed for it (NULL: no body). -E2BIG: it is too long. */
int wframe_pack(struct buf *out, enum wire_type type, const ProtobufCMessage *msg, const void *bulk,
		size_t bulk_len, enum wire_compress compress);
struct Limbwire__TreePart;
/* A TREE_PART whose entries travel in its bulk, as a TREE_PART of their own. */
int wframe_pack_tree(struct buf *out, const struct Limbwire__TreePart *part);
/* ... and back: *ret is the one inside with request and last of the outer one, or NULL if its
 * entries are not in the bulk. free_unpacked() it. -EBADMSG. */
int wframe_unpack_tree(const struct Limbwire__TreePart *part, const void *bulk, size_t n,
		       ProtobufCAllocator *allocator, struct Limbwire__TreePart **ret);

/* Name of a type for messages, "frame 99" for unknown (static or thread-local text). */
const char *wframe_type_name(uint8_t type);

#endif
