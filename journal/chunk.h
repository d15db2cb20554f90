/*
 * chunk.h - where content is cut: content-defined chunking, a pure function.
 *
 * A gear hash rolls over the bytes: h = (h << 1) + gear[byte], 64 bits, so that
 * it depends on the last 64 bytes. A chunk ends behind a byte where the top bits
 * of h are zero: CHUNK_BITS_BEFORE_AVG of them while the chunk would be shorter
 * than CHUNK_AVG, CHUNK_BITS_FROM_AVG from there on; not before CHUNK_MIN and not
 * after CHUNK_MAX bytes (normalised as in FastCDC, Xia et al., USENIX ATC 2016).
 * gear[i] is the first 8 bytes, little-endian, of SHA-256("limbfs gear", i as one
 * byte). All of this is part of the format, never changed.
 */
#ifndef JOURNAL_CHUNK_H
#define JOURNAL_CHUNK_H

#include <stddef.h>
#include <stdint.h>

#define CHUNK_MIN (16u << 10)
#define CHUNK_AVG (64u << 10)
#define CHUNK_MAX (256u << 10)
#define CHUNK_BITS_BEFORE_AVG 18
#define CHUNK_BITS_FROM_AVG 14

/* Length of the first chunk of data, which holds n bytes; `last` says that
 * nothing follows them.  0: more bytes are needed to decide (only when !last and
 * n < CHUNK_MAX).  With last and n <= CHUNK_AVG the answer is n. */
size_t chunk_cut(const uint8_t *data, size_t n, int last);

#endif
