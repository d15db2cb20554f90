/*
 * contents.h - the store that views read, one for all sources of a process: LMDB
 * files must not be opened twice.
 *
 *	contents_open(store_fd, STORE_READ, &c);	opened when first asked
 *	contents_fetch(hash, buf, c);			content_fetch_fn
 *	contents_rest(c);				closed until asked again
 *
 * Functions are for any thread.
 */
#ifndef FS_CONTENTS_H
#define FS_CONTENTS_H

#include "journal/store.h"

struct contents;
/* store_fd: store/OWNER; stays the caller's. STORE_READ: beside limbd, or after it. */
int contents_open(int store_fd, enum store_mode mode, struct contents **ret);
void contents_close(struct contents *c);
DEFINE_CLEANUP(struct contents, contents_close);

int contents_fetch(const uint8_t hash[SHA256_BYTES], struct buf *out, void *contents);
void contents_close_removed(struct contents *c); /* packs that it has open */
void contents_rest(struct contents *c);

#endif
