/*
 * emit.h - changes of the shadow and the CHANGEs that tell the brain of them: each
 * function does both, in the same order.
 *
 * Operations gather until 64 of them, 32 files or 1 MiB of content are together
 * or emit_flush() is called; those of one call are never parted.  A CHANGE that
 * could not be queued counts as made: the next WELCOME shows that the brain
 * lacks it, and undo.h takes it back.
 */
#ifndef SYNCD_EMIT_H
#define SYNCD_EMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "journal/node.h"
#include "journal/record.pb-c.h"
#include "syncd/shadow.h"
#include "wire/attr.h"
#include "wire/wire.pb-c.h"

enum {
	EMIT_OPS_MAX = 64,
	EMIT_FILES_MAX = 32,
	EMIT_BULK_MAX = 1 << 20,
	EMIT_BODY_MAX = 768 << 10,
};

struct item;
struct sync;

struct emit_op {
	Limb__Op op;
	Limbwire__WireOp wire;
	struct wire_attr_scratch scratch;
	char name[256], to_name[256];
	uint8_t *owned; /* target and xattrs */
};

struct emit {
	struct emit_op *ops;
	size_t n_ops, n_files, body_bytes;
	struct buf bulk;
	uint64_t made;		 /* number of the newest CHANGE */
	uint64_t durable;	 /* as acknowledged */
	uint64_t bytes;		 /* of content and records, sent since the start */
	const struct item *from; /* what is looked at because of a change serves whom this serves */
	uint8_t origin;		 /* of what gathers: a CHANGE has one */
	uint32_t next_stream, used_stream; /* used: by the newest PUT that had one */
};

/* A PUT's content: inline bytes, or a stream already sent. */
struct emit_content {
	const void *data;
	uint32_t stream; /* 0 = data */
};

int emit_init(struct emit *em);
void emit_done(struct emit *em);

/* sig: what the shadow keeps; node: what is sent, its pointers lent for the call; content NULL =
 * unchanged. */
int emit_create(struct sync *sy, uint32_t dir, const char *name, size_t len,
		struct shadow_node *sig, const struct node *node,
		const struct emit_content *content);
int emit_put(struct sync *sy, uint32_t n, const struct shadow_node *sig, const struct node *node,
	     const struct emit_content *content);
int emit_link(struct sync *sy, uint32_t dir, const char *name, size_t len, uint32_t n);
int emit_move(struct sync *sy, uint32_t e, uint32_t dir, const char *name, size_t len);
int emit_unlink(struct sync *sy, uint32_t e, Limb__Evidence evidence);

/* Room for n operations in one CHANGE. */
void emit_room(struct sync *sy, size_t n_ops, size_t bulk_bytes, size_t body_bytes);
void emit_flush(struct sync *sy);
/* Forgets what gathers (its numbers were not used): before a new start. */
void emit_drop(struct emit *em);

#endif
