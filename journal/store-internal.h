/*
 * store-internal.h - what store.c and store-check.c share.
 */
#ifndef JOURNAL_STORE_INTERNAL_H
#define JOURNAL_STORE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "journal/store-cache.h"
#include "journal/store-mem.h"
#include "journal/store-table.h"

struct store {
	enum store_mode mode;
	int dir_fd, packs_fd;
	int lock_fd;	       /* the writer's */
	struct store_mem *mem; /* STORE_COPY; else the table */
	struct store_table *table;
	pthread_rwlock_t table_lock; /* readers: taken for writing to open another table */
	struct store_cache *cache;
	atomic_uint_fast64_t n_removed; /* packs, by merging */
};

/* Appends a content that is in any pack, by their headers: where its place fails. -ENOENT. */
int store_search(struct store *st, const uint8_t hash[SHA256_BYTES], struct buf *out);

/* A pack as the writer of the store reads it. */
int store_open_pack(struct store *st, const uint8_t id[16]);

#endif
