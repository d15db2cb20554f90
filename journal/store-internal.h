/*
 * store-internal.h - what store.c and store-check.c share.
 */
#ifndef JOURNAL_STORE_INTERNAL_H
#define JOURNAL_STORE_INTERNAL_H

#include <pthread.h>

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
};

#endif
