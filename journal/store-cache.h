/*
 * store-cache.h - open packs and frames read lately, for many readers. For
 * store*.c alone.
 *
 * Holds at most STORE_CACHE_PACKS descriptors and STORE_CACHE_FRAMES frames
 * without their payload's compression (1 MiB each at most), so that small files
 * read one after the other decompress their frame once. A content is compared
 * with its hash before it is given out, once as long as its frame stays.
 * Functions are for any thread; reading goes on outside of the lock.
 */
#ifndef JOURNAL_STORE_CACHE_H
#define JOURNAL_STORE_CACHE_H

#include "journal/store.h"

#define STORE_CACHE_PACKS 64
#define STORE_CACHE_FRAMES 16

struct store_cache;
int store_cache_new(int packs_fd, struct store_cache **ret); /* dups packs_fd */
void store_cache_free(struct store_cache *c);
DEFINE_CLEANUP(struct store_cache, store_cache_free);

/* Appends the content at its place to out. -ENOENT: no such pack; -EBADMSG: it is
 * not there, or damaged. */
int store_cache_fetch(struct store_cache *c, const struct store_place *place, struct buf *out);

/* Closes packs that were removed: their room on the disk is free only then. */
void store_cache_close_removed(struct store_cache *c);

#define STORE_PACK_NAME_BYTES 40
/* "32 hex digits.pack" into out; returns out. */
const char *store_cache_pack_name(char out[STORE_PACK_NAME_BYTES], const uint8_t id[16]);

#endif
