/*
 * DATA: contents that come in several frames, several of them at once.
 *
 * The zeros of a hole count in the SHA-256 of its file, which takes 12 minutes
 * for 1 TiB.  So a hole is taken in slices, one each ingest_work(), and between
 * them the caller goes on with everything else.
 */
#include "brain/ingest-parts.h"

#include <assert.h>
#include <inttypes.h>

#define HOLE_SLICE_BYTES (16ull << 20)

static struct stream *find(struct streams *s, uint32_t id)
{
	for (size_t i = 0; i < ARRAY_SIZE(s->all); i++)
		if (s->all[i].id == id)
			return &s->all[i];
	return NULL;
}

static int take_writer(struct ingest *in, struct content_writer **ret)
{
	int r;

	if (!in->streams.spare) {
		r = content_writer_new(ingest_store_put, &in->store, &in->streams.spare);
		if (r < 0)
			return r;
	}
	*ret = take_ptr(&in->streams.spare);
	content_writer_begin(*ret);
	return 0;
}

static void give_writer(struct streams *s, struct content_writer *w)
{
	if (s->spare) {
		content_writer_free(w);
		return;
	}
	s->spare = w;
}

static int open_stream(struct ingest *in, uint32_t id, struct stream **ret)
{
	struct streams *s = &in->streams;
	struct stream *st;
	int r;

	if (s->n_open == STREAMS_OPEN_MAX)
		return ingest_hostile(in, "DATA: more than %d streams at once", STREAMS_OPEN_MAX);
	st = find(s, 0);
	assert(st); /* stream_end() counts the others */
	r = take_writer(in, &st->w);
	if (r < 0)
		return r;
	st->id = id;
	st->offset = 0;
	s->n_open++;
	*ret = st;
	return 0;
}

void stream_drop(struct streams *s, struct stream *st)
{
	delta_drop(s, st);
	if (st->w) {
		give_writer(s, st->w);
		s->n_open--;
	} else {
		s->n_ended--;
	}
	*st = (struct stream){0};
}

int stream_end(struct ingest *in, struct stream *st)
{
	struct streams *s = &in->streams;
	int r;

	if (s->n_ended == STREAMS_ENDED_MAX)
		return ingest_hostile(in, "DATA: %d streams ended without a CHANGE",
				      STREAMS_ENDED_MAX);
	r = content_writer_end(st->w, &st->ref);
	if (r < 0)
		return ingest_content_error(in, r);
	give_writer(s, take_ptr(&st->w));
	s->n_open--;
	s->n_ended++;
	return 0;
}

int streams_work(struct ingest *in)
{
	struct streams *s = &in->streams;
	struct stream *st = s->hole;
	int r;

	if (!st)
		return deltas_work(in);
	r = content_writer_settle(st->w, HOLE_SLICE_BYTES);
	if (r != 0)
		return r;
	s->hole = NULL;
	r = s->hole_last ? stream_end(in, st) : 0;
	return r < 0 ? r : deltas_work(in);
}

static int begin_hole(struct ingest *in, struct stream *st, const Limbwire__Data *m)
{
	struct streams *s = &in->streams;
	int r;

	r = content_writer_hole(st->w, m->hole_bytes);
	if (r < 0)
		return ingest_content_error(in, r);
	s->hole = st;
	s->hole_last = m->last;
	r = streams_work(in);
	return r < 0 ? r : 0;
}

int ingest_on_data(struct ingest *in, const void *msg, const struct wframe *f)
{
	const Limbwire__Data *m = msg;
	struct stream *st;
	int r;

	if (m->stream == 0)
		return ingest_hostile(in, "DATA: no stream");
	st = find(&in->streams, m->stream);
	if (m->abort) {
		/* One from before a re-attach may be unknown here. */
		if (st)
			stream_drop(&in->streams, st);
		return 0;
	}
	if (!st) {
		r = open_stream(in, m->stream, &st);
		if (r >= 0 && m->base_node)
			r = delta_open(in, st, m);
		if (r < 0)
			return r;
	} else if (!st->w) {
		return ingest_hostile(in, "DATA: more of a stream that ended");
	} else if (m->base_node) {
		return ingest_hostile(in, "DATA: a base for what has begun");
	}
	if (m->offset != st->offset)
		return ingest_hostile(in, "DATA: offset %" PRIu64 " where %" PRIu64 " was due",
				      m->offset, st->offset);
	if (m->hole_bytes && f->bulk_len)
		return ingest_hostile(in, "DATA: both bytes and a hole");
	if (m->hole_bytes > CONTENT_HOLE_BYTES_MAX)
		return ingest_hostile(in, "DATA: hole too large");
	if (st->delta)
		return delta_data(in, st, m, f);
	if (m->copy_bytes)
		return ingest_hostile(in, "DATA: a copy, and no base");
	st->offset += m->hole_bytes + f->bulk_len;
	if (m->hole_bytes)
		return begin_hole(in, st, m);
	r = content_writer_data(st->w, f->bulk, f->bulk_len);
	if (r < 0)
		return ingest_content_error(in, r);
	return m->last ? stream_end(in, st) : 0;
}

int streams_take(struct ingest *in, uint32_t id, struct content_ref *ret)
{
	struct stream *st = find(&in->streams, id);

	if (!st)
		return ingest_hostile(in, "CHANGE: unknown stream %" PRIu32, id);
	if (st->w)
		return ingest_hostile(in, "CHANGE: stream %" PRIu32 " has not ended", id);
	*ret = st->ref;
	stream_drop(&in->streams, st);
	return 0;
}

void streams_rest(struct streams *s)
{
	content_writer_free(s->spare);
	s->spare = NULL;
	deltas_rest(s);
}

void streams_done(struct streams *s)
{
	for (size_t i = 0; i < ARRAY_SIZE(s->all); i++) {
		delta_drop(s, &s->all[i]);
		content_writer_free(s->all[i].w);
	}
	streams_rest(s);
}
