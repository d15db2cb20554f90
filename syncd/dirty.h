/*
 * dirty.h - what has to be looked at: names and whole directories, each at most
 * once, with the stage it has reached.
 *
 * An item that is marked while it is being worked on is worked on again
 * afterwards.  What waits for the end of the round (LATE, ABSENT) is looked at again at once: which
 * node has become which is told by looks that nothing has happened to since.  Barriers wait for items by bit: dirty_assign() gives the bit to all
 * that are there, what is derived from an item inherits it, and waiting[bit] is 0
 * when all of them are done.
 *
 *	it = dirty_mark(d, ITEM_NAME, dir, name, len, flags, &from)
 *	dirty_move(d, it, ITEM_LOOKING)
 *	dirty_done(d, it)
 *
 * Directories are pinned in the shadow as long as an item names them.
 */
#ifndef SYNCD_DIRTY_H
#define SYNCD_DIRTY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "syncd/scan.h"
#include "syncd/shadow.h"

enum {
	DIRTY_BARRIERS = 32,
	DIRTY_SCAN_BIT = 31,	/* a full scan waits by this one */
	DIRTY_MAX = 200 * 1000, /* names waiting; beyond, everything is scanned instead */
};

enum item_kind {
	ITEM_NAME, /* dir 0 and no name: the root's own attributes */
	ITEM_LIST, /* list the directory */
};

enum item_state {
	ITEM_READY,    /* a name to be looked at */
	ITEM_LISTABLE, /* a directory to be listed */
	ITEM_RESTING,  /* until ripe_ms */
	ITEM_LOOKING,
	ITEM_WANTED, /* to be captured */
	ITEM_CAPTURING,
	ITEM_STREAM, /* large: waits for its turn, or is being read */
	ITEM_LATE,   /* another node stands where the shadow has one */
	ITEM_ABSENT, /* not there; a move may still explain it */
	ITEM_VERIFYING,
	ITEM_STATES,
};

enum item_flag {
	ITEM_CONTENT = 1 << 0,	/* compare the bytes whatever stat says */
	ITEM_SWEEP = 1 << 1,	/* nobody but the sweep has announced it */
	ITEM_SCAN = 1 << 2,	/* found by listing, not by an event */
	ITEM_MAPPED = 1 << 3,	/* some process maps it writable */
	ITEM_LOOKED = 1 << 4,	/* st is what was seen */
	ITEM_DEEP = 1 << 5,	/* and what is beneath it: off once that is to be listed */
	ITEM_REPLACES = 1 << 6, /* the round is over: what has the name may be replaced */
};

struct item {
	struct item *prev, *next;
	struct item *chain;
	uint32_t dir;
	uint32_t bits, again_bits;
	uint32_t hash;
	uint64_t epoch, ripe_ms, since_ms;
	uint8_t kind, state, flags, again_flags, len, tries;
	uint8_t stale;	/* how often what was seen was not new enough to say which node it is */
	uint8_t origin; /* enum Origin of the APPLY that took it away; 0: there was none */
	bool again;
	bool lost;   /* its directory is not where it was, and not found yet */
	bool taking; /* WANTED, CAPTURING, STREAM: its name goes to a known node once that is read */
	struct stamp st;
	char name[]; /* NUL-terminated */
};

struct dirty {
	struct shadow *shadow;
	struct item heads[ITEM_STATES];
	size_t counts[ITEM_STATES];
	size_t total, lists, lost; /* lists: directories to be listed */
	size_t late_dirs;	   /* ITEM_LATE, and directories */
	size_t taking;
	struct item **slots;
	uint32_t mask;
	uint64_t epoch, marks; /* marks: how often events made something dirty */
	uint32_t waiting[DIRTY_BARRIERS];
};

int dirty_init(struct dirty *d, struct shadow *shadow);
void dirty_done_all(struct dirty *d); /* forgets every item; none may be held by a worker */
void dirty_free(struct dirty *d);

/* from: the item it derives from, or NULL. NULL = no memory. */
struct item *dirty_mark(struct dirty *d, enum item_kind kind, uint32_t dir, const char *name,
			size_t len, uint8_t flags, const struct item *from);
struct item *dirty_find(const struct dirty *d, enum item_kind kind, uint32_t dir, const char *name,
			size_t len);
void dirty_move(struct dirty *d, struct item *it, enum item_state state);
void dirty_rest(struct dirty *d, struct item *it, uint64_t until_ms);
/* Ripe ones become ready; returns when the next one will be, 0 = none. */
uint64_t dirty_ripen(struct dirty *d, uint64_t now_ms);
/* Frees it, or makes it ready again. */
void dirty_done(struct dirty *d, struct item *it);
/* Back to ready, keeping whom it serves. */
void dirty_retry(struct dirty *d, struct item *it);
/* It was marked after it was seen, and is ready again: so often only, as some names never rest. */
bool dirty_is_stale(struct dirty *d, struct item *it);

void dirty_set_lost(struct dirty *d, struct item *it, bool lost);
void dirty_set_taking(struct dirty *d, struct item *it, bool is);
/* The first (NULL) or next one that is taking; NULL: no more. */
struct item *dirty_taking(const struct dirty *d, const struct item *it);
void dirty_look_for_lost(struct dirty *d); /* now, they have rested enough */

struct item *dirty_first(const struct dirty *d, enum item_state state); /* NULL = empty */
struct item *dirty_after(const struct dirty *d, const struct item *it);

/* Everything dirtied after `since`, and what may be a directory without a watch: no event tells
 * what was made in that since. With `scans` every directory still to be listed. */
void dirty_assign(struct dirty *d, unsigned bit, uint64_t since, bool scans);
void dirty_give(struct dirty *d, struct item *it, unsigned bit); /* one item */
void dirty_release(struct dirty *d, struct item *it, unsigned bit);
void dirty_release_all(struct dirty *d, unsigned bit);

#endif
