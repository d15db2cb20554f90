/*
 * hostile.h - an environment's end of the wire that lies.
 *
 *	hostile STATE LIE ENVIRONMENT		stdin and stdout are the transport
 *
 * It attaches as a limb-syncd that knows its root would, has told of a small tree,
 * tells LIE (their names are in lies.c and lies-wire.c; "none" is the truth), then
 * answers what it is asked.  STATE is a file of its own, for the next time.
 */
#ifndef TESTS_FUNCTIONAL_HOSTILE_H
#define TESTS_FUNCTIONAL_HOSTILE_H

#include <err.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/sha256.h"
#include "base/util.h"
#include "wire/frame.h"
#include "wire/wire.pb-c.h"

struct lie {
	const char *name;
	void (*tell)(void); /* once WELCOME has come; NULL: nothing */
	/* In place of the true answer to a BARRIER, PS, TREE_GET, APPLY or RESTORE; NULL: the truth. */
	void (*answer)(uint8_t type, uint64_t request);
	void (*hello)(void); /* in place of HELLO */
};
extern const struct lie lies_of_trees[], lies_of_wire[]; /* each ends with a NULL name */

/* A directory "d" in the root, with a file "f" and a link "l" to /etc in it. */
struct known {
	uint8_t mark[16];
	uint64_t incarnation, dir, file, link;
};
extern struct known known;
extern Limbwire__Welcome *welcome;
extern uint64_t number, node; /* of the last change, of the next node */

void say_bytes(const void *p, size_t n);
void say_raw(uint8_t type, const void *body, size_t body_len, const void *bulk, size_t n);
void say(uint8_t type, const ProtobufCMessage *m, const void *bulk, size_t n);
void say_head(uint8_t type, uint8_t flags, uint32_t body, uint32_t bulk, uint32_t reserved);
void say_hello(void);
void say_barrier_done(uint64_t request, uint64_t up_to);

/* One CHANGE: begin, operations, end. */
#define OPS_MAX 80
struct said {
	Limbwire__WireChange m;
	Limbwire__WireOp wops[OPS_MAX], *ptrs[OPS_MAX];
	Limb__Op ops[OPS_MAX];
	Limb__Attr attrs[OPS_MAX];
	Limb__Content contents[OPS_MAX];
	uint8_t hashes[OPS_MAX][SHA256_BYTES];
	struct buf bulk;
};
struct said *begin(void);
Limb__Op *add(struct said *c, Limb__OpKind kind);
Limb__Op *put(struct said *c, uint64_t id, Limb__NodeType type);
Limb__Op *put_file(struct said *c, uint64_t id, const void *data, size_t n);
Limb__Op *link_name(struct said *c, uint64_t parent, const void *name, size_t n, uint64_t id);
Limb__Op *move_name(struct said *c, uint64_t parent, const char *name, uint64_t to,
		    const char *to_name);
void end(struct said *c);
/* A new file with this name in the directory. */
void tell_name(uint64_t directory, const void *name, size_t n);
static inline void set_bytes(ProtobufCBinaryData *b, const void *p, size_t n)
{
	b->data = (uint8_t *)(uintptr_t)p;
	b->len = n;
}

#endif
