/*
 * kept.h - signatures of large files as they were sent, kept in the private directory, so that
 * the next version goes as a delta against one that the brain has.
 *
 *	kept_begin(k, fd, size, sending)	a pass over the file begins
 *	kept_feed(k, p, n)			its bytes, in order
 *	kept_end(k)				operations for DATA, and perhaps a new signature
 *	kept_after(...)				it was taken: what is kept now
 *
 * All but kept_after() runs in the stream's worker.  A signature stays as long as deltas
 * against its version are small: an edit costs no new one, and one that comes early finds it.
 * It lies under the node's id and names the node and the SHA-256 of its version, which may be
 * another node's: of a file that this one replaced.  Nothing depends on what is kept: the
 * brain says what came out, and one that is not right is followed by the whole.
 */
#ifndef SYNCD_KEPT_H
#define SYNCD_KEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/sha256.h"
#include "wire/delta.h"

#define KEPT_DIR "signatures"
#define KEPT_BYTES_MAX (64u << 20) /* of all of them; the oldest go */

struct sync;

struct kept_version {
	uint64_t node, size;
	uint8_t sha[SHA256_BYTES];
	bool worn; /* what is sent against it has grown: make a new one */
};

/* A part of a delta: a copy, or the next `len` literal bytes. */
struct kept_op {
	uint64_t from, bytes;
	size_t len;
};

struct kept {
	/* Set by whoever begins a stream. */
	bool may;	/* the other side takes deltas */
	bool whole;	/* not this time */
	int private_fd; /* lent */
	uint64_t node;	/* under whose name it is looked for; 0: none */

	/* The worker's. */
	struct kept_version base; /* with delta */
	struct delta_sig *sig;
	struct delta *delta;	 /* this pass is sent as one */
	struct sig_maker *maker; /* a new signature is made on the way */
	struct buf made;	 /* ... and is this, after kept_end() */
	struct buf ops, literals;
	uint64_t fed, literal_bytes;
	bool hopeless; /* the delta is not smaller, or failed: send it whole */
};

void kept_init(struct kept *k);
void kept_done(struct kept *k);
void kept_begin(struct kept *k, int fd, uint64_t size, bool sending);
void kept_feed(struct kept *k, const void *data, size_t n);
void kept_end(struct kept *k);

/* On the loop, once the brain was told: node is what the file's name has now. */
void kept_after(struct sync *sy, struct kept *k, uint64_t node, const uint8_t sha[SHA256_BYTES],
		uint64_t size);

#endif
