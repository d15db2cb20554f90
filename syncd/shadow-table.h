/*
 * shadow-table.h - what the shadow is made of: chunked tables of equal elements,
 * an arena of names, hashes of indices.  For shadow.c only.
 *
 * Chunks never move or shrink, so a pointer into a table holds; index 0 is never
 * given out.  Hashes are open addressing with linear probing and no tombstones;
 * they keep indices only and ask for an element's hash again when they grow.
 */
#ifndef SYNCD_SHADOW_TABLE_H
#define SYNCD_SHADOW_TABLE_H

#include "syncd/shadow.h"

void *shadow_table_at(const struct shadow_table *t, uint32_t i);
uint32_t shadow_table_new(struct shadow_table *t); /* zeroed; 0 = no memory */
void shadow_table_free(struct shadow_table *t, uint32_t i);
void shadow_table_done(struct shadow_table *t);

/* A length byte, then the name. */
uint8_t *shadow_arena_at(const struct shadow *sh, uint32_t at);
uint32_t shadow_arena_add(struct shadow *sh, const char *name, size_t len); /* 0 = no memory */

uint64_t shadow_mix(uint64_t x);
uint32_t shadow_hash_name(uint32_t dir, const char *name, size_t len);

typedef uint32_t (*shadow_hash_fn)(const struct shadow *sh, uint32_t i);
int shadow_hash_add(const struct shadow *sh, struct shadow_hash *h, shadow_hash_fn fn, uint32_t i);
/* Nothing happens if it is not there. */
void shadow_hash_remove(const struct shadow *sh, struct shadow_hash *h, shadow_hash_fn fn,
			uint32_t i);

#endif
