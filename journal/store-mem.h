/*
 * store-mem.h - the table of a copied store, in memory: hash -> place. For
 * store*.c alone.
 *
 * Hashes come from files that may be hostile and are not proved when they are
 * entered, so the slot is chosen by a keyed function of them. Filled by one
 * thread; then read by any.
 */
#ifndef JOURNAL_STORE_MEM_H
#define JOURNAL_STORE_MEM_H

#include "journal/store.h"

struct store_mem;
int store_mem_new(struct store_mem **ret);
void store_mem_free(struct store_mem *m);
DEFINE_CLEANUP(struct store_mem, store_mem_free);

/* The first place of a hash stays. */
int store_mem_add(struct store_mem *m, const struct store_place *places, size_t n);
int store_mem_get(const struct store_mem *m, const uint8_t hash[SHA256_BYTES],
		  struct store_place *ret); /* -ENOENT */
void store_mem_counts(const struct store_mem *m, uint64_t *ret_contents, uint64_t *ret_bytes);

#endif
