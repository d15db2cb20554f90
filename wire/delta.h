/*
 * delta.h - librsync's signatures and deltas, as values: what of a new content is in an old
 * one, told by a signature of the old one alone.
 *
 *	sig_maker_new(size, &m); sig_maker_add(m, p, n) ...; sig_maker_end(m, &buf)
 *	delta_sig_load(buf, n, size, &sig)
 *	delta_new(sig, sink, userdata, &d); delta_add(d, p, n) ...; delta_end(d)
 *
 * The sink gets copies and literals in order, neighbouring copies as one, but cut every 8 MiB,
 * so that who puts together can work meanwhile.  librsync's own
 * format of a delta never leaves this file: on the wire copies are fields of a message, so
 * nobody has a patcher that a hostile delta could lead astray.
 *
 * No descriptors, no state between calls but what is handed over; a signature is used by one
 * thread at a time.
 */
#ifndef WIRE_DELTA_H
#define WIRE_DELTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/util.h"

/* Contents of fewer bytes go whole, those of more, too: 64 GiB have a signature of 10 MiB. */
#define DELTA_MIN_BYTES (1ull << 20)
/* Towards the environment no signature is made, and most files of a move are small. */
#define DELTA_PULL_MIN_BYTES (1ull << 10)
#define DELTA_MAX_BYTES (64ull << 30)
#define DELTA_SIG_MAX (12u << 20)

/* Bytes of a block for a content of this size: about its root, 1 to 128 KiB. */
size_t delta_block_bytes(uint64_t size);

struct sig_maker;
/* size: of the content, which must turn out to be just that. */
int sig_maker_new(uint64_t size, struct sig_maker **ret);
void sig_maker_free(struct sig_maker *m);
DEFINE_CLEANUP(struct sig_maker, sig_maker_free);
int sig_maker_add(struct sig_maker *m, const void *data, size_t n);
/* Appends it; -EBADMSG: another number of bytes came. */
int sig_maker_end(struct sig_maker *m, struct buf *out);

struct delta_sig;
/* -EBADMSG: it is not what sig_maker made of a content of `size` bytes. */
int delta_sig_load(const void *data, size_t n, uint64_t size, struct delta_sig **ret);
void delta_sig_free(struct delta_sig *sig);
DEFINE_CLEANUP(struct delta_sig, delta_sig_free);
/* Does a block of it begin somewhere in these bytes? With three blocks' length one does unless
 * something changed there. */
bool delta_sig_matches(struct delta_sig *sig, const void *data, size_t n);

/* literal NULL: copy_bytes of the old content from copy_from on. Lent for the call; an error
 * ends the delta. */
typedef int (*delta_sink_fn)(uint64_t copy_from, uint64_t copy_bytes, const void *literal, size_t n,
			     void *userdata);
struct delta;
int delta_new(struct delta_sig *sig, delta_sink_fn sink, void *userdata, struct delta **ret);
void delta_free(struct delta *d);
DEFINE_CLEANUP(struct delta, delta_free);
int delta_add(struct delta *d, const void *data, size_t n);
int delta_end(struct delta *d);

#endif
