/*
 * pack.h - frames of content: made in memory, written to a pack, read back.
 *
 * The frame builder is pure: contents in, frames out.  It gathers small
 * contents until FRAME_TARGET bytes and compresses the frame with zstd (stored
 * as they are when that does not help).
 *
 *	frame_builder_new(level, &fb);
 *	frame_builder_add(fb, FRAME_CHUNK, hash, data, n);  -> 1 when full
 *	frame_builder_finish(fb, &frame);		bytes + members
 *
 * Reading checks everything against the hash that was asked for: a wrong pack
 * is an error, never wrong bytes.
 */
#ifndef JOURNAL_PACK_H
#define JOURNAL_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/sha256.h"

#define PACK_HEADER_BYTES 64
#define PACK_SEAL_BYTES (256ull << 20)
#define FRAME_HEADER_BYTES 40
#define FRAME_MEMBER_BYTES 40
#define FRAME_MEMBERS_MAX 1024
#define FRAME_RAW_MAX (1u << 20)
#define FRAME_TARGET (128u << 10)

enum frame_kind { FRAME_CHUNK = 1, FRAME_LIST = 2 };

struct pack_header {
	uint8_t pack_id[16];
	uint8_t env_id[16];
};
void pack_header_seal(const struct pack_header *h, uint8_t out[PACK_HEADER_BYTES]);
/* -EBADMSG, -EPROTONOSUPPORT */
int pack_header_parse(const uint8_t in[PACK_HEADER_BYTES], struct pack_header *ret);

struct frame_member {
	uint8_t hash[SHA256_BYTES];
	uint32_t len;
	uint8_t kind;
};

struct frame_builder;
int frame_builder_new(int zstd_level, struct frame_builder **ret);
void frame_builder_free(struct frame_builder *fb);
DEFINE_CLEANUP(struct frame_builder, frame_builder_free);
/* 0 < n <= FRAME_RAW_MAX.  1: the frame should be finished now; 0: there is room;
 * -E2BIG: does not fit beside what is there: finish first, then add. */
int frame_builder_add(struct frame_builder *fb, enum frame_kind kind,
		      const uint8_t hash[SHA256_BYTES], const void *data, size_t n);
bool frame_builder_empty(const struct frame_builder *fb);

struct frame {
	const uint8_t *bytes; /* whole frame with padding: lent until the next add */
	size_t n;
	const struct frame_member *members; /* lent likewise */
	size_t n_members;
};
int frame_builder_finish(struct frame_builder *fb, struct frame *ret); /* -ENODATA when empty */

/* ---- reading ---- */

struct frame_info {
	uint8_t codec;
	uint16_t n_members;
	uint32_t stored_len, raw_len;
	uint32_t total; /* bytes of the whole frame, padding included */
};
/* Judges a frame header: 0; -ENODATA for zeros (end of pack); -EBADMSG;
 * -EPROTONOSUPPORT for a good one of another version. */
int frame_header_parse(const uint8_t in[FRAME_HEADER_BYTES], struct frame_info *ret);

/* The reading functions are for any thread; each thread that calls them keeps up to
 * 1 MiB for it until it ends.
 *
 * Reads and decompresses the frame at offset: raw payload appended to `raw`,
 * members (malloc'ed, caller frees) out. Member hashes are not compared yet. */
int frame_read(int fd, uint64_t offset, struct buf *raw, struct frame_member **ret_members,
	       size_t *ret_n);

/* 1: each member of the frame at offset has the bytes that its hash names; 0: one has not, or
 * the frame is damaged. Negative: it cannot be read. */
int frame_compare(int fd, uint64_t offset);

/* The one content of hash from the frame at offset, compared with its hash;
 * -ENOENT: not in that frame; -EBADMSG: damaged. */
int frame_read_member(int fd, uint64_t offset, const uint8_t hash[SHA256_BYTES], struct buf *out);

/* Walks the frames of a pack from offset: each(offset, info, members, n).  Ends at
 * zeros, end of file or the first damaged frame, which *ret_end names; *ret_damaged
 * says whether it was damage. Payloads are not read. What is not 0 from each ends the
 * walk and is its result. */
typedef int (*pack_each_fn)(uint64_t offset, const struct frame_info *info,
			    const struct frame_member *members, size_t n, void *userdata);
int pack_walk(int fd, uint64_t offset, pack_each_fn each, void *userdata, uint64_t *ret_end,
	      bool *ret_damaged);
/* The same for who may not ask how long the file is. */
int pack_walk_sized(int fd, uint64_t size, uint64_t offset, pack_each_fn each, void *userdata,
		    uint64_t *ret_end, bool *ret_damaged);

#endif
