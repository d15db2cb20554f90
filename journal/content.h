/*
 * content.h - a file's content as chunks and chunk lists (FORMAT 5).
 *
 * Writing is a push machine without I/O: bytes and holes in, contents out
 * through a callback (which puts them into frames), a reference at the end.
 *
 *	content_writer_new(sink, userdata, &w);
 *	content_writer_begin(w);
 *	content_writer_data(w, p, n); content_writer_hole(w, n); ...
 *	content_writer_end(w, &ref);
 *
 * Reading is by a fetch callback (hash -> bytes), so that the same code serves
 * limb-fs, limbd and tools.  Lists from disk are hostile input: depth, counts
 * and lengths are checked against the size.
 */
#ifndef JOURNAL_CONTENT_H
#define JOURNAL_CONTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/sha256.h"
#include "journal/pack.h"

#define CONTENT_LIST_ENTRY_BYTES 40
#define CONTENT_LIST_MIN 32
#define CONTENT_LIST_MAX 1024
#define CONTENT_DEPTH_MAX 6
#define CONTENT_HOLE_BYTES_MAX (4ull << 40) /* all holes of one file */

struct content_ref {
	uint64_t size_bytes;
	uint8_t sha256[SHA256_BYTES];
	uint8_t root[SHA256_BYTES]; /* zeros when depth is 0 */
	uint8_t depth;
	bool holes;
};

/* Gets each distinct piece in order; n <= FRAME_RAW_MAX; data is lent for the call. */
typedef int (*content_sink_fn)(enum frame_kind kind, const uint8_t hash[SHA256_BYTES],
			       const void *data, size_t n, void *userdata);

struct content_writer;
int content_writer_new(content_sink_fn sink, void *userdata, struct content_writer **ret);
void content_writer_free(struct content_writer *w);
DEFINE_CLEANUP(struct content_writer, content_writer_free);
void content_writer_begin(struct content_writer *w); /* also drops a half-written one */
/* After an error, the sink's or -EFBIG (too large, too many holes, too deep), all calls
 * fail with it up to the next begin. A hole costs nothing when it is told; its zeros
 * are hashed when data follows, or at the end: 1.5 GB/s, 12 minutes for 1 TiB; or
 * before that, so many at a time, by content_writer_settle(): 1 while more are left. */
int content_writer_data(struct content_writer *w, const void *data, size_t n);
int content_writer_hole(struct content_writer *w, uint64_t n_bytes);
int content_writer_settle(struct content_writer *w, uint64_t max_bytes);
int content_writer_end(struct content_writer *w, struct content_ref *ret);

/* Appends the content of hash to out; -ENOENT, -EBADMSG. */
typedef int (*content_fetch_fn)(const uint8_t hash[SHA256_BYTES], struct buf *out, void *userdata);

/* Appends up to n bytes from offset (short at end of file) to out; nothing on failure.
 * Pieces are not hashed again: fetch has compared them. -EBADMSG: a list that is not
 * one, or lengths that do not add up. */
int content_read(const struct content_ref *ref, uint64_t offset, size_t n, content_fetch_fn fetch,
		 void *userdata, struct buf *out);

/* What lies at an offset before the end: a hole of *ret_bytes, or so many bytes of data (at most
 * `max`) up to the next hole. Costs what content_read() of it would, without the data. */
int content_extent(const struct content_ref *ref, uint64_t offset, uint64_t max,
		   content_fetch_fn fetch, void *userdata, bool *ret_hole, uint64_t *ret_bytes);

/* The pieces in order: data chunks (hash, offset, length) and holes (hash NULL). What
 * is not 0 from the callback ends the walk and is its result. */
typedef int (*content_piece_fn)(const uint8_t *hash, uint64_t offset, uint64_t len, void *userdata);
int content_walk(const struct content_ref *ref, content_fetch_fn fetch, void *fetch_userdata,
		 content_piece_fn piece, void *userdata);

#endif
