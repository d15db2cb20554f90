/*
 * stream.h - large and sparse files: read piece by piece in workers, sent as DATA
 * as the line takes it, and named by a PUT at the end.
 *
 * A file whose size is what the brain has is hashed first and only sent when the
 * hash differs.  One that moves while it is read is read again once, then sent as
 * it was read, marked torn, and left alone for nine times as long as it took.
 *
 * Where the other side takes deltas, a large file goes as one against a version whose
 * signature is kept (kept.h), if a sample of it is found there.  The brain then says what came
 * out (DATA_DONE); if that is not what was read, or nothing, the file goes whole.
 */
#ifndef SYNCD_STREAM_H
#define SYNCD_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "syncd/capture.h"
#include "syncd/dirty.h"
#include "wire/wire.pb-c.h"

enum {
	STREAM_PIECE = 1 << 20,
	STREAMS_MAX = 2,
};

struct stream;
struct sync;

struct streams {
	struct stream *active[STREAMS_MAX];
	unsigned n;
};

/* Starts what waits in ITEM_STREAM, and goes on with what waits for the line. */
void streams_pump(struct sync *sy);
void streams_on_done(struct sync *sy, const Limbwire__DataDone *m);
/* The line is gone: what was half sent begins again. */
void streams_detached(struct sync *sy);
/* Milliseconds for which the item's file has been read, 0 = not active. */
uint64_t stream_age_ms(const struct sync *sy, const struct item *it);

#endif
