/*
 * store-walk.h - the contents of one pack, by its frames alone: how a table is
 * made, mended and checked. For store*.c alone.
 *
 * Walks on behind damage: whatever is a frame at a multiple of 8 bytes is found.
 * Behind damage, and where `compare` is set, a content counts only when its bytes
 * have its hash (a payload may hold bytes that look like a frame).
 */
#ifndef JOURNAL_STORE_WALK_H
#define JOURNAL_STORE_WALK_H

#include "journal/store.h"

struct store_walk {
	uint8_t pack_id[16];
	bool compare;
	bool torn_tail; /* nothing counts behind the last frame that is good as a whole */
	bool mend;	/* damage before a good frame is overwritten with zeros; fd is writable */
	/* The contents of a frame; what is not 0 ends the walk. May be NULL. */
	int (*add)(const struct store_place *places, size_t n, void *userdata);
	/* Damage: one content, or (hash NULL) bytes that are no frame. May be NULL. */
	void (*bad)(uint64_t offset, const uint8_t *hash, int error, void *userdata);
	void *userdata;
};

/* *ret_end: behind the last good frame, `from` when there is none. Damage behind it
 * (a torn tail) is not told to bad(). */
int store_walk_pack(const struct store_walk *walk, int fd, uint64_t from, uint64_t *ret_end);

/* ---- the files of a store ---- */

struct store_file {
	uint8_t pack_id[16];
	uint64_t size_bytes;
	bool sealed; /* nobody may write to it: mode 0400 */
};

/* Sealed ones first: of two places for one content the safer one is met first. free() *ret. */
int store_walk_files(int packs_fd, struct store_file **ret, size_t *ret_n);

#endif
