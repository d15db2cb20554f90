/*
 * undo.h - what was done to the shadow by CHANGEs that the brain has not
 * acknowledged, so that after a re-attach the shadow can be brought back to
 * what the brain has.
 *
 * Rolling back names what it touched; those names are looked at again, and what
 * differs is sent under new numbers.
 */
#ifndef SYNCD_UNDO_H
#define SYNCD_UNDO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "syncd/shadow.h"

enum { UNDO_MAX = 500 * 1000 };

enum undo_kind {
	UNDO_LINK,   /* entry was made, perhaps with its node */
	UNDO_UNLINK, /* entry was detached */
	UNDO_MOVE,   /* entry came from (parent, name) */
	UNDO_PUT,    /* node was `old` */
};

struct undo_record {
	uint64_t number;
	uint8_t kind;
	uint32_t entry; /* PUT: the node */
	uint32_t parent, name;
	struct shadow_node *old;
};

struct undo {
	struct undo_record *records;
	size_t start, end, cap;
	bool lost; /* too much to keep: the shadow must be asked for again */
};

void undo_done(struct undo *u, struct shadow *sh);

/* Failure sets `lost`; nothing else depends on it. */
void undo_link(struct undo *u, uint64_t number, uint32_t entry);
void undo_unlink(struct undo *u, struct shadow *sh, uint64_t number, uint32_t entry);
void undo_move(struct undo *u, struct shadow *sh, uint64_t number, uint32_t entry, uint32_t parent,
	       uint32_t old_name);
void undo_put(struct undo *u, const struct shadow *sh, uint64_t number, uint32_t node);

/* Everything up to number is durable: what it kept is freed. */
void undo_commit(struct undo *u, struct shadow *sh, uint64_t number);

struct undo_fns {
	void (*touched)(uint32_t dir, const char *name, size_t len, void *userdata);
	shadow_dir_fn left, came;
	void *userdata;
};
/* Takes back everything above number. -ENODATA: not all of it is known. */
int undo_rollback(struct undo *u, struct shadow *sh, uint64_t number, const struct undo_fns *fns);

#endif
