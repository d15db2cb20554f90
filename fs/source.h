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
 * that is gone at once.  SOURCE_LAZY is a live one whose index is opened by the first
 * source_begin() and closed by source_rest(); after source_set_kept(), of an environment that
 * was removed, an index that cannot be trusted is not waited for, as nobody will make
 * another: it is made as for a copy.  Functions are for any thread.
 */
#ifndef FS_SOURCE_H
#define FS_SOURCE_H

#include "fs/contents.h"
#include "journal/index.h"

enum source_kind { SOURCE_LIVE, SOURCE_COPY, SOURCE_LAZY };

struct source;
/* env_fd: envs/ID; it and contents stay the caller's. A live source waits a few seconds for
 * limbd to make its index. */
int source_open(int env_fd, struct contents *contents, enum source_kind kind, struct source **ret);
void source_close(struct source *s);
DEFINE_CLEANUP(struct source, source_close);

int source_begin(struct source *s, struct index_txn **ret, uint64_t *ret_seq);
void source_end(struct source *s, struct index_txn *t);
/* For who knows that the index holds seq: waits for it a few seconds, since the one that is
 * open may be a left one. */
int source_begin_at_least(struct source *s, uint64_t seq, struct index_txn **ret,
			  uint64_t *ret_seq);

/* Closes the index of a lazy one that was not used for idle_ms. Is it open now? */
void source_set_kept(struct source *s);
bool source_rest(struct source *s, uint64_t idle_ms);

/* The body of one record of the environment's log, appended; as log_read_one(). */
int source_record(struct source *s, uint64_t seq, uint16_t *ret_type, struct buf *body);

void source_close_removed(struct source *s); /* packs that its contents have open */
int source_fetch(const uint8_t hash[SHA256_BYTES], struct buf *out, void *source);

#endif
