/*
 * ingest-parts.h - the inside of ingest.h, shared by ingest*.c only.
 *
 *	ingest.c	  frames to handlers, the entries' queues
 *	ingest-store.c	  content into frames of the pack, what is known already
 *	ingest-stream.c	  DATA: contents that come in several frames
 *	ingest-delta.c	  ... and of those the ones that are made from a base
 *	ingest-change.c	  CHANGE
 *	ingest-message.c  messages about the environment
 *	ingest-job.c	  messages about jobs and processes
 *
 * A handler gets an unpacked message and appends whole entries to in->held.
 */
#ifndef BRAIN_INGEST_PARTS_H
#define BRAIN_INGEST_PARTS_H

#include <protobuf-c/protobuf-c.h>

#include "brain/ingest.h"
#include "journal/arena.h"
#include "journal/content.h"
#include "journal/pack.h"
#include "wire/wire.pb-c.h"

/* ---- store ---- */

/* What was stored last: sets of KNOWN_WAYS, the oldest of a set is replaced.  Of a
 * content the hash stands there, changed by its kind. */
#define KNOWN_SETS 4096
#define KNOWN_WAYS 4

struct ingest_store {
	ingest_write_fn write;
	void *userdata;
	struct buf *held, *out; /* entries: see ingest_store_release() */

	bool has_pack;
	uint64_t end, seal_bytes; /* of the pack: bytes in use, and when it is full */
	int zstd_level;

	struct frame_builder *builder;	/* NULL at rest */
	uint8_t (*known)[SHA256_BYTES]; /* KNOWN_SETS * KNOWN_WAYS, NULL until needed */
	uint8_t next_way[KNOWN_SETS];
	bool failed; /* the last error is ours, not the environment's */
};

void ingest_store_init(struct ingest_store *st, ingest_write_fn write, void *userdata,
		       struct buf *held, struct buf *out);
void ingest_store_done(struct ingest_store *st);
void ingest_store_set_pack(struct ingest_store *st, const struct entry_pack *pack);
int ingest_store_seed(struct ingest_store *st, const uint8_t hash[SHA256_BYTES]);
/* A content_sink_fn; userdata is the store. */
int ingest_store_put(enum frame_kind kind, const uint8_t hash[SHA256_BYTES], const void *data,
		     size_t n, void *userdata);
bool ingest_store_pending(const struct ingest_store *st);
/* Writes the frame that is being gathered: its places go out, then what was held for it.
 * ingest_store_put() does that too, so no entry may be half made in `held` meanwhile. */
int ingest_store_flush(struct ingest_store *st);
/* All of `held` goes to `out`; nothing may be pending. */
int ingest_store_release(struct ingest_store *st);
void ingest_store_rest(struct ingest_store *st); /* nothing pending */

/* ---- streams ---- */

#define STREAMS_OPEN_MAX 8   /* whose `last` has not come */
#define STREAMS_ENDED_MAX 64 /* that no CHANGE has named yet */

struct stream {
	uint32_t id;		  /* 0: free */
	struct content_writer *w; /* NULL once it ended */
	uint64_t offset;
	struct content_ref ref; /* once it ended */
	struct delta *delta;	/* until it ended, of one that has a base */
};

/* Pieces of bases, as limbd sends them: read ahead of the copy that is being made. */
#define BASE_SLOTS 4
struct base_slot {
	uint32_t stream;  /* for which; 0: for none (any more) */
	bool asked, have; /* neither: free */
	uint64_t request, piece;
	struct buf bytes;
};

struct streams {
	struct stream all[STREAMS_OPEN_MAX + STREAMS_ENDED_MAX];
	unsigned n_open, n_ended;
	struct content_writer *spare;
	struct stream *hole; /* whose hole is being hashed, slice by slice */
	bool hole_last;
	struct base_slot bases[BASE_SLOTS];
	uint64_t last_request;
	size_t delta_bytes; /* of DATA that waits for its base */
};

/* ---- the whole ---- */

struct ingest {
	struct ingest_store store;
	struct streams streams;
	struct content_writer *writer; /* for inline contents of more than one chunk */
	struct buf out, held, replies;
	struct buf xattrs;
	struct arena arena; /* of the message at hand */
	ProtobufCAllocator allocator;
	bool said_hello, said_bye, started;
	uint64_t next_number;
	char why[ENTRY_TEXT_MAX];
};

/* Notes the rule that was broken (the first one stays) and gives -EPROTO. */
int ingest_hostile(struct ingest *in, const char *fmt, ...) _printf_(2, 3);
/* An error of content_writer or the store: the environment's or ours. */
int ingest_content_error(struct ingest *in, int r);

/* The handlers; msg is what the table in ingest.c names. */
int ingest_on_change(struct ingest *in, const void *msg, const struct wframe *f);
int ingest_on_data(struct ingest *in, const void *msg, const struct wframe *f);
int ingest_on_hello(struct ingest *in, const void *msg, const struct wframe *f);
int ingest_on_ping(struct ingest *in, const void *msg, const struct wframe *f);
int ingest_on_pong(struct ingest *in, const void *msg, const struct wframe *f);
int ingest_on_error(struct ingest *in, const void *msg, const struct wframe *f);
int ingest_on_bye(struct ingest *in, const void *msg, const struct wframe *f);
int ingest_on_barrier_done(struct ingest *in, const void *msg, const struct wframe *f);
int ingest_on_status(struct ingest *in, const void *msg, const struct wframe *f);
int ingest_on_tree_get(struct ingest *in, const void *msg, const struct wframe *f);
int ingest_on_tree_part(struct ingest *in, const void *msg, const struct wframe *f);
int ingest_on_done(struct ingest *in, const void *msg, const struct wframe *f);
int ingest_on_pull(struct ingest *in, const void *msg, const struct wframe *f);
int ingest_on_ignores(struct ingest *in, const void *msg, const struct wframe *f);
int ingest_on_restored(struct ingest *in, const void *msg, const struct wframe *f);
int ingest_on_job_started(struct ingest *in, const void *msg, const struct wframe *f);
int ingest_on_job_output(struct ingest *in, const void *msg, const struct wframe *f);
int ingest_on_job_input(struct ingest *in, const void *msg, const struct wframe *f);
int ingest_on_job_exit(struct ingest *in, const void *msg, const struct wframe *f);
int ingest_on_job_list(struct ingest *in, const void *msg, const struct wframe *f);
int ingest_on_ps_done(struct ingest *in, const void *msg, const struct wframe *f);

/* Makes one of a stream whose first DATA names a base; takes its DATA, already judged but
 * for what concerns the base; makes some of what waits (1: more to do). */
int delta_open(struct ingest *in, struct stream *st, const Limbwire__Data *m);
int delta_data(struct ingest *in, struct stream *st, const Limbwire__Data *m,
	       const struct wframe *f);
int deltas_work(struct ingest *in);
void delta_drop(struct streams *s, struct stream *st);
void deltas_rest(struct streams *s);
int stream_end(struct ingest *in, struct stream *st); /* all its bytes are there */
void stream_drop(struct streams *s, struct stream *st);

/* Next piece of a hole, or of what is made from a base: 1: more to do. */
int streams_work(struct ingest *in);
/* Takes what DATA brought as `id`; -EPROTO if it is unknown or not at its end. */
int streams_take(struct ingest *in, uint32_t id, struct content_ref *ret);
void streams_done(struct streams *s);
void streams_rest(struct streams *s);

/* A job's id into an entry's field; may be empty if `optional`. */
int ingest_job_id(struct ingest *in, const char *job, bool optional, char out[ENTRY_JOB_MAX + 1]);
/* Appends the first ENTRY_UNSETTLED_MAX unsettled files. */
int ingest_add_unsettled(struct ingest *in, Limbwire__Unsettled *const *u, size_t n);
/* How many of n things go into an entry. */
static inline uint32_t ingest_at_most(size_t n, uint32_t max)
{
	return n < max ? (uint32_t)n : max;
}
/* Length of a text, cut to what an entry holds. */
static inline uint32_t ingest_text_len(const char *s)
{
	return (uint32_t)strnlen(s, ENTRY_TEXT_MAX);
}

#endif
