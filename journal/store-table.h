/*
 * store-table.h - the store's table in LMDB: index.N under the store's directory.
 * For store*.c alone.
 *
 *	places	hash (32) -> pack number u32, length u24 and kind u8, offset u64
 *	packs	number u32 -> struct store_table_pack
 *	counts	"content_bytes" u64
 *
 * Commits are not synced, so after a loss of power the file may be anything, and
 * LMDB does not survive reading it: the mark beside it (mark.h) says whether
 * it may be opened. The clean mark is taken away, durably, before the first write.
 *
 * A process opens one table once (LMDB's locks are per process) and does not use
 * it after fork. Functions are for any thread.
 */
#ifndef JOURNAL_STORE_TABLE_H
#define JOURNAL_STORE_TABLE_H

#include "journal/pack.h"
#include "journal/store.h"

enum store_table_pack_state {
	STORE_TABLE_OPEN = 1,	/* being filled, or not yet repaired */
	STORE_TABLE_SEALED = 2, /* complete */
	STORE_TABLE_GONE = 3,	/* the file is missing: its places may be replaced */
	/* Sealed, and each content in it was compared with its hash: a place in it gives way to
	 * no other. */
	STORE_TABLE_CHECKED = 4,
	/* Sealed and looked at: not all in it is what it says. Its places give way to those in
	 * checked packs. */
	STORE_TABLE_DOUBTFUL = 5,
};

struct store_table_pack {
	uint8_t id[16];
	uint32_t num;	   /* given by the table; 0 = not yet */
	uint32_t state;	   /* enum store_table_pack_state */
	uint64_t known;	   /* offset of the last frame that has places here */
	uint64_t live;	   /* places that are in it: kept here, whatever a caller says */
	uint64_t contents; /* in its frames, once it was looked at */
};
/* Nobody writes to it any more, and it is there. */
static inline bool store_table_is_sealed(const struct store_table_pack *p)
{
	return p->state == STORE_TABLE_SEALED || p->state == STORE_TABLE_CHECKED ||
	       p->state == STORE_TABLE_DOUBTFUL;
}

struct store_table;

/* Opens the newest trusted table. -ENOENT: there is none. */
int store_table_open(int dir_fd, bool write, struct store_table **ret);
/* Makes an empty one, which nobody sees before store_table_publish(): that syncs
 * and marks it and removes all others. */
int store_table_create(int dir_fd, struct store_table **ret);
int store_table_publish(struct store_table *t);
void store_table_close(struct store_table *t); /* NULL is fine; does not mark */
DEFINE_CLEANUP(struct store_table, store_table_close);

/* Whether a writer has put another table in place of this one. */
bool store_table_replaced(const struct store_table *t);

/* -ENOENT: the hash is not there, or its pack is gone. */
int store_table_get(struct store_table *t, const uint8_t hash[SHA256_BYTES],
		    struct store_place *ret);
/* All places, and the sum of their lengths. */
int store_table_counts(struct store_table *t, uint64_t *ret_contents, uint64_t *ret_bytes);

/* A copy of all packs, free() it. */
int store_table_packs(struct store_table *t, struct store_table_pack **ret, size_t *ret_n);
int store_table_find_pack(struct store_table *t, const uint8_t id[16],
			  struct store_table_pack *ret);

/* ---- the writer's ---- */

/* Adds or replaces; by id. */
int store_table_put_pack(struct store_table *t, const struct store_table_pack *pack);
/* Keeps what else is known of it. */
int store_table_set_state(struct store_table *t, const uint8_t id[16],
			  enum store_table_pack_state state);
/* One that places are still in stays, as gone. */
int store_table_remove_pack(struct store_table *t, const uint8_t id[16]);

/* Places of packs that are not there are refused (-ENOENT). One transaction. */
int store_table_add(struct store_table *t, const struct store_place *places, size_t n);
/* Of contents that were compared with their hashes: they take the place of any that is not in a
 * checked pack. One transaction, which holds up who adds: a few hundred at a time. */
int store_table_add_checked(struct store_table *t, const struct store_place *places, size_t n);
/* Has each of n contents a place in a checked pack that is not this one? 1, 0. */
int store_table_is_spare(struct store_table *t, const uint8_t pack_id[16],
			 const struct frame_member *members, size_t n);
/* Is one of n contents placed in this frame? 1, 0. */
int store_table_is_used(struct store_table *t, const uint8_t pack_id[16], uint64_t offset,
			const struct frame_member *members, size_t n);

/* Makes what was there at store_table_generation() durable, and marks the table
 * clean when nothing came since. The packs have to be synced in between. */
uint64_t store_table_generation(struct store_table *t);
bool store_table_clean(struct store_table *t);
int store_table_sync(struct store_table *t, uint64_t generation);

#endif
