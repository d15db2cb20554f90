/*
 * chunk.h - where content is cut: content-defined chunking, a pure function.
 *
 * A gear hash rolls over the bytes; a boundary is where its top bits are zero,
 * not before CHUNK_MIN and not after CHUNK_MAX bytes (normalised: a stricter
 * mask before the average, a looser one after it, as in FastCDC, Xia et al.,
 * USENIX ATC 2016).  The gear table is derived at build or start from SHA-256
 * of "limbfs gear" and the index: part of the format, never changed.
 */
#ifndef JOURNAL_CHUNK_H
#define JOURNAL_CHUNK_H

#include <stddef.h>
#include <stdint.h>

#define CHUNK_MIN (16u << 10)
#define CHUNK_AVG (64u << 10)
#define CHUNK_MAX (256u << 10)

/* Length of the first chunk of data, which holds n bytes; `last` says that
 * nothing follows them.  0: more bytes are needed to decide (only when !last and
 * n < CHUNK_MAX).  With last and n <= CHUNK_AVG the answer is n. */
size_t chunk_cut(const uint8_t *data, size_t n, int last);

#endif
