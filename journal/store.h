/*
 * store.h - where content lies: packs of one owner and the table hash ->
 * (pack, offset, length), in a directory STATE/store/OWNER.
 *
 *	store_open(dir_fd, STORE_WRITE, &st);		limbd
 *	store_pack_create(st, env_id, &id, &fd);	a pack for a limb-ingest to fill
 *	store_add(st, places, n);			one LMDB transaction, not synced
 *	store_pack_done(st, id, length);		cut, sealed
 *	store_fetch(st, hash, buf);			any thread; content_fetch_fn shape
 *
 * Readers (STORE_READ: limb-fs, limb-journal) share it with the writer and see
 * what it adds at once. -ENOENT from their store_open: no writer has made a
 * table that can be trusted yet. A copied state directory is opened STORE_COPY:
 * nothing in it is written or locked, and its LMDB file is not even opened (a
 * damaged one is death to who reads it): the packs' frame headers, 1,000,000
 * contents in about a second, fill a table in memory.
 *
 * A pack that nobody writes to any more has mode 0400. The table follows
 * ARCHITECTURE's LMDB rules: commits are not synced; a table is trusted when it
 * was marked clean (store_flush, store_close) and not written to since, or in the
 * same boot; else it is made again from the packs, and contents in packs that
 * were being filled are compared with their hashes.
 *
 * Functions are for any thread. A process opens a directory's store once (LMDB)
 * and does not use it after fork.
 */
#ifndef JOURNAL_STORE_H
#define JOURNAL_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/sha256.h"

struct store;

enum store_mode { STORE_WRITE, STORE_READ, STORE_COPY };

struct store_place {
	uint8_t hash[SHA256_BYTES];
	uint8_t pack_id[16];
	uint64_t offset; /* of the frame */
	uint32_t len;	 /* of the content */
	uint8_t kind;	 /* enum frame_kind */
};

/* STORE_WRITE makes what is missing under dir_fd (packs/, index.N/) and, when
 * the table is not trusted, rebuilds it from the packs. Packs left open by another run
 * are mended and sealed (not while a limb-ingest still has the descriptor). dir_fd stays
 * the caller's. -EAGAIN: locked. */
int store_open(int dir_fd, enum store_mode mode, struct store **ret);
void store_close(struct store *st); /* STORE_WRITE: marks the table clean */
DEFINE_CLEANUP(struct store, store_close);

/* A new pack with its header written, and zeros ahead (fill_bytes). The descriptor is
 * write-only, positioned nowhere: frames go by pwrite from PACK_HEADER_BYTES. */
int store_pack_create(struct store *st, const uint8_t env_id[16], uint64_t fill_bytes,
		      uint8_t ret_id[16], int *ret_fd);
/* A descriptor of a pack for reading, also while it is being filled. */
int store_pack_read(struct store *st, const uint8_t pack_id[16]);
/* All its places have been added. Without frames the pack is removed. -ENOENT: not
 * known; -EALREADY; -EINVAL: not a length that it can have. */
int store_pack_done(struct store *st, const uint8_t pack_id[16], uint64_t length_bytes);

/* Adds places that are not there yet; the first place of a hash stays while its pack
 * is there and none that was checked comes (store-merge.h). Their frames have been written before. -ENOENT: a pack is not known. The
 * first call after store_flush() takes the clean mark away: two fsyncs. */
int store_add(struct store *st, const struct store_place *places, size_t n);
/* Syncs packs that are being filled and the table, and marks it clean. For idle times. */
int store_flush(struct store *st);

/* -ENOENT */
int store_lookup(struct store *st, const uint8_t hash[SHA256_BYTES], struct store_place *ret);
/* Appends the content; checks it; looks the place up again when a pack is gone, and for another
 * when it is a wrong one. */
int store_fetch(struct store *st, const uint8_t hash[SHA256_BYTES], struct buf *out);
/* store_fetch as content_fetch_fn: userdata is the store. */
int store_fetch_fn(const uint8_t hash[SHA256_BYTES], struct buf *out, void *userdata);

/* Closes packs that were merged into others and removed: the disk has their room then. */
void store_close_removed(struct store *st);

struct store_counts {
	uint64_t packs, pack_bytes, contents, content_bytes;
};
int store_counts(struct store *st, struct store_counts *ret);

/* Reads every frame and compares every content with its hash: bad(pack name, offset,
 * hash or NULL, error). Offset 0 and -ENOENT: a pack is missing. An incomplete end of
 * a pack that is being filled is not told. */
typedef void (*store_bad_fn)(const char *pack, uint64_t offset, const uint8_t *hash, int error,
			     void *userdata);
int store_check(struct store *st, store_bad_fn bad, void *userdata);

#endif
