/*
 * ingest.h - what limb-ingest makes of the frames of an environment: a machine
 * without a loop, fed frames, giving entries (entry.h) and bytes of a pack.
 *
 *	ingest_new(write_pack, userdata, &in)
 *	ingest_start(in, durable); ingest_set_pack(in, &pack); ingest_seed(...)
 *	ingest_needs_pack(in, &frame)	it has to wait until there is one
 *	ingest_frame(in, &frame)	-EPROTO: a rule was broken, ingest_why(in)
 *	ingest_work(in)			while 1: goes on with a long one (holes, copies)
 *	ingest_flush(in)		nothing else waits: entries must go out
 *	ingest_out(in)			entries for limbd, taken by the caller
 *	ingest_replies(in)		frames for the environment, likewise
 *
 * Small contents share a frame of the pack, so entries whose content is not
 * written yet are held back until that frame is full or ingest_flush().  Their
 * order never changes.
 *
 * -EPROTO is the environment's fault; the frame that caused it left nothing in
 * the entries.  Any other error (memory, the pack's file) is ours: end, and
 * begin again.  Either way nothing more may be fed.
 */
#ifndef BRAIN_INGEST_H
#define BRAIN_INGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "brain/entry.h"
#include "wire/frame.h"

struct ingest;

typedef int (*ingest_write_fn)(const void *data, size_t n, uint64_t offset, void *userdata);

int ingest_new(ingest_write_fn write, void *userdata, struct ingest **ret);
void ingest_free(struct ingest *in);
DEFINE_CLEANUP(struct ingest, ingest_free);

/* WELCOME is on its way; again: a later one of the same incarnation. */
void ingest_start(struct ingest *in, uint64_t durable_number);
/* -EBUSY: there is one that is not full. */
int ingest_set_pack(struct ingest *in, const struct entry_pack *pack);
/* False after ENTRY_PACK_FULL until the next pack: the caller may close the file. */
bool ingest_has_pack(const struct ingest *in);
/* ENTRY_SEAL: the pack is told to be full, unless a content is half in it. */
int ingest_seal(struct ingest *in);
void ingest_seed(struct ingest *in, const uint8_t (*hashes)[SHA256_BYTES], size_t n);

bool ingest_needs_pack(const struct ingest *in, const struct wframe *f);
int ingest_frame(struct ingest *in, const struct wframe *f);
int ingest_work(struct ingest *in);
/* What came waits for limbd (ENTRY_BASE): no frame may be fed. */
bool ingest_blocked(const struct ingest *in);
/* -EBADMSG: nobody asked. ingest_work() goes on with it. */
int ingest_base_data(struct ingest *in, const struct entry_base_data *e);
bool ingest_pending(const struct ingest *in); /* ingest_flush() has something to do */
int ingest_flush(struct ingest *in);
const char *ingest_why(const struct ingest *in);
bool ingest_bye(const struct ingest *in); /* the environment said BYE: the entry is out */

struct buf *ingest_out(struct ingest *in);
struct buf *ingest_replies(struct ingest *in);
/* Gives memory back until there is work again. */
void ingest_rest(struct ingest *in);

#endif
