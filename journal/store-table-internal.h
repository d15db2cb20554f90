/*
 * store-table-internal.h - what store-table.c (opening, reading) and
 * store-table-write.c share.
 */
#ifndef JOURNAL_STORE_TABLE_INTERNAL_H
#define JOURNAL_STORE_TABLE_INTERNAL_H

#include <lmdb.h>
#include <pthread.h>

#include "journal/mark.h"
#include "journal/store-table.h"

#define STORE_TABLE_VALUE_BYTES 16
#define STORE_TABLE_FORMAT 2

extern const struct mark_kind store_table_mark;

struct store_table {
	int dir_fd;   /* the store's */
	int index_fd; /* index.N */
	uint64_t number;
	MDB_env *env;
	MDB_dbi places, packs_db, counts;

	pthread_mutex_t lock; /* of what follows; taken before LMDB's */
	bool write, clean;
	uint64_t generation;
	struct store_table_pack *packs; /* the writer's copy */
	size_t n_packs;
};

int store_table_error(int lmdb_rc);
int store_table_load_packs(struct store_table *t);
/* Also of a pack that is gone, or not even known (its number is 0 then); ret_pack may be NULL. */
int store_table_get_raw(struct store_table *t, MDB_txn *txn, const uint8_t *hash,
			struct store_place *ret, struct store_table_pack *ret_pack);
int store_table_get_place(struct store_table *t, MDB_txn *txn, const uint8_t *hash,
			  struct store_place *ret);
int store_table_get_content_bytes(struct store_table *t, MDB_txn *txn, uint64_t *ret);

#endif
