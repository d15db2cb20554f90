/*
 * source.h - where a view reads: one environment's index and the store of a
 * state directory, opened again by itself when limbd has moved on.
 *
 *	source_begin(s, &t, &seq);	one request: a read transaction
 *	  index_...(t, ...)
 *	source_end(s, t);		before the reply
 *	source_fetch(hash, buf, s);	content_fetch_fn; outside of a transaction
 *
 * SOURCE_LIVE reads beside limbd, or after it; SOURCE_COPY reads log and packs of a copied
 * state directory and writes nothing there: its index is made in a temporary directory
 * that is gone at once.  Functions are for any thread.
 */
#ifndef FS_SOURCE_H
#define FS_SOURCE_H

#include "journal/index.h"
#include "journal/store.h"

enum source_kind { SOURCE_LIVE, SOURCE_COPY };

struct source;
/* env_fd: envs/ID, store_fd: store/OWNER; both stay the caller's. A live source waits a few
 * seconds for limbd to make its index. The store may come later. */
int source_open(int env_fd, int store_fd, enum source_kind kind, struct source **ret);
void source_close(struct source *s);
DEFINE_CLEANUP(struct source, source_close);

int source_begin(struct source *s, struct index_txn **ret, uint64_t *ret_seq);
void source_end(struct source *s, struct index_txn *t);
/* For who knows that the index holds seq: waits for it a few seconds, since the one that is
 * open may be a left one. */
int source_begin_at_least(struct source *s, uint64_t seq, struct index_txn **ret,
			  uint64_t *ret_seq);

void source_close_removed(struct source *s); /* packs that it has open */
int source_fetch(const uint8_t hash[SHA256_BYTES], struct buf *out, void *source);

#endif
