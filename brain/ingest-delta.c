/*
 * DATA of a stream that is made from a base: literals and copies, queued until limbd has sent
 * the parts of the base that they need.
 *
 * limb-ingest only puts together: nothing here follows instructions of a format but "so many
 * bytes from there".  What comes out is bounded by what the first DATA says and by the size of
 * the base, each copy lies within the base and is of something, so a hostile environment can
 * cost no more than by sending as much.  What it is, DATA_DONE tells the environment by its
 * SHA-256: one that expected something else sends the whole.
 */
#include "brain/ingest-parts.h"

#include <inttypes.h>

#define PIECE ENTRY_BASE_MAX
#define SLICE_BYTES (1u << 20) /* made in one ingest_work() */
#define QUEUE_HIGH_BYTES (2u << 20)
/* A file that grew more than this gains little. */
#define GROWN_MAX 4
#define GROWN_BYTES (1u << 20)

struct delta {
	uint64_t node, size; /* size: what comes out is not longer */
	uint8_t sha256[SHA256_BYTES];
	bool asked;	    /* something of the base */
	uint64_t base_size; /* once limbd has said it */
	bool known;
	int refused;	  /* positive errno: what comes is thrown away */
	struct buf queue; /* struct command and its literal, each */
	uint64_t copied;  /* of the first one */
};

struct command {
	uint64_t from, bytes; /* a copy; bytes 0: none */
	uint32_t len;	      /* of the literal that follows */
	uint32_t last;
};

int delta_open(struct ingest *in, struct stream *st, const Limbwire__Data *m)
{
	struct delta *d;

	if (!in->started)
		return ingest_hostile(in, "DATA: a base before WELCOME");
	if (m->base_sha256.len != SHA256_BYTES)
		return ingest_hostile(in, "DATA: a base without its SHA-256");
	if (m->size_bytes > INT64_MAX)
		return ingest_hostile(in, "DATA: more than a file can have");
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->node = m->base_node;
	d->size = m->size_bytes;
	memcpy(d->sha256, m->base_sha256.data, SHA256_BYTES);
	buf_init(&d->queue, QUEUE_HIGH_BYTES + 2 * WIRE_BULK_MAX);
	st->delta = d;
	return 0;
}

static bool is_busy(const struct base_slot *slot)
{
	return slot->asked || slot->have;
}

static void slot_clear(struct base_slot *slot)
{
	slot->have = false;
	slot->stream = 0;
	buf_clear(&slot->bytes);
}

void delta_drop(struct streams *s, struct stream *st)
{
	struct delta *d = take_ptr(&st->delta);

	if (!d)
		return;
	for (size_t i = 0; i < BASE_SLOTS; i++)
		if (s->bases[i].stream == st->id)
			slot_clear(&s->bases[i]); /* an answer that is on its way finds it so */
	s->delta_bytes -= buf_len(&d->queue);
	buf_done(&d->queue);
	free(d);
}

void deltas_rest(struct streams *s)
{
	for (size_t i = 0; i < ARRAY_SIZE(s->all); i++)
		if (s->all[i].delta)
			return;
	for (size_t i = 0; i < BASE_SLOTS; i++)
		buf_done(&s->bases[i].bytes);
}

bool ingest_blocked(const struct ingest *in)
{
	return in->streams.delta_bytes >= QUEUE_HIGH_BYTES;
}

int delta_data(struct ingest *in, struct stream *st, const Limbwire__Data *m,
	       const struct wframe *f)
{
	struct delta *d = st->delta;
	struct command c = {
		.from = m->copy_from,
		.bytes = m->copy_bytes,
		.len = f->bulk_len,
		.last = m->last,
	};
	int r;

	if (m->hole_bytes)
		return ingest_hostile(in, "DATA: a hole where a base is copied");
	if (c.bytes && c.len)
		return ingest_hostile(in, "DATA: both bytes and a copy");
	if (!c.bytes && !c.len && !c.last)
		return ingest_hostile(in, "DATA: a copy of nothing");
	if (c.bytes > d->size - st->offset || c.len > d->size - st->offset)
		return ingest_hostile(in, "DATA: more than the %" PRIu64 " bytes that were told",
				      d->size);
	st->offset += c.bytes + c.len;
	r = buf_add(&d->queue, &c, sizeof(c));
	if (r >= 0)
		r = buf_add(&d->queue, f->bulk, c.len);
	if (r < 0)
		return r;
	in->streams.delta_bytes += sizeof(c) + c.len;
	r = deltas_work(in);
	return r < 0 ? r : 0;
}

/* ---- the base ---- */

static struct base_slot *slot_of(struct streams *s, uint32_t stream, uint64_t piece)
{
	for (size_t i = 0; i < BASE_SLOTS; i++) {
		struct base_slot *slot = &s->bases[i];

		if (slot->stream == stream && is_busy(slot) && slot->piece == piece)
			return slot;
	}
	return NULL;
}

/* Where one of the pieces from `piece` on may go. */
static struct base_slot *slot_room(struct streams *s, uint32_t stream, uint64_t piece)
{
	for (size_t i = 0; i < BASE_SLOTS; i++) {
		struct base_slot *slot = &s->bases[i];

		if (!slot->asked && (!slot->have || slot->stream != stream || slot->piece < piece ||
				     slot->piece - piece >= BASE_SLOTS))
			return slot;
	}
	return NULL;
}

/* For the pieces from `first` to `last` that are not here yet, as many as there is room for. */
static int ask(struct ingest *in, struct stream *st, uint64_t first, uint64_t last)
{
	struct streams *s = &in->streams;
	struct delta *d = st->delta;

	for (uint64_t piece = first; piece <= last && piece - first < BASE_SLOTS; piece++) {
		struct entry_base e = {
			.node = d->node,
			.offset = piece * PIECE,
			.len = PIECE,
			.first = !d->asked,
		};
		struct base_slot *slot;
		int r;

		if (slot_of(s, st->id, piece))
			continue;
		slot = slot_room(s, st->id, first);
		if (!slot)
			return 0;
		memcpy(e.sha256, d->sha256, SHA256_BYTES);
		e.request = ++s->last_request;
		r = entry_add(&in->out, ENTRY_BASE, &e, sizeof(e), NULL, 0);
		if (r < 0)
			return r;
		slot_clear(slot);
		slot->stream = st->id;
		slot->asked = true;
		slot->request = e.request;
		slot->piece = piece;
		d->asked = true;
	}
	return 0;
}

static struct stream *stream_of(struct streams *s, uint32_t id)
{
	for (size_t i = 0; i < ARRAY_SIZE(s->all) && id; i++)
		if (s->all[i].id == id && s->all[i].delta)
			return &s->all[i];
	return NULL;
}

static int take_piece(struct base_slot *slot, struct delta *d, const struct entry_base_data *e)
{
	uint64_t offset = slot->piece * PIECE, left;

	if (e->error)
		return e->error;
	left = e->size_bytes > offset ? e->size_bytes - offset : 0;
	if (e->len != MIN(left, (uint64_t)PIECE))
		return EIO;
	d->known = true;
	d->base_size = e->size_bytes;
	if (d->size / GROWN_MAX > d->base_size + GROWN_BYTES)
		return EFBIG;
	buf_init(&slot->bytes, PIECE);
	return buf_add(&slot->bytes, entry_tail(e), e->len) < 0 ? ENOMEM : 0;
}

int ingest_base_data(struct ingest *in, const struct entry_base_data *e)
{
	struct streams *s = &in->streams;
	struct base_slot *slot = NULL;
	struct stream *st;
	int r;

	for (size_t i = 0; i < BASE_SLOTS && !slot; i++)
		if (s->bases[i].asked && s->bases[i].request == e->request)
			slot = &s->bases[i];
	if (!slot)
		return -EBADMSG;
	slot->asked = false;
	st = stream_of(s, slot->stream);
	if (!st)
		return 0;
	buf_done(&slot->bytes);
	r = take_piece(slot, st->delta, e);
	slot->have = r == 0;
	if (r && !st->delta->refused)
		st->delta->refused = r;
	return 0;
}

/* ---- putting together ---- */

static int say_done(struct ingest *in, uint32_t stream, int error, const struct content_ref *ref)
{
	Limbwire__DataDone m = LIMBWIRE__DATA_DONE__INIT;
	uint8_t body[128];

	m.stream = stream;
	m.error = error;
	if (!error) {
		m.size_bytes = ref->size_bytes;
		m.sha256 = (ProtobufCBinaryData){SHA256_BYTES, (uint8_t *)ref->sha256};
	}
	/* One that does not read its answers does not get this one. */
	(void)wframe_encode(&in->replies, WIRE_DATA_DONE, body, limbwire__data_done__pack(&m, body),
			    NULL, 0, false);
	return 0;
}

static int finish(struct ingest *in, struct stream *st)
{
	struct streams *s = &in->streams;
	uint32_t id = st->id;
	int r;

	if (st->delta->refused) {
		r = st->delta->refused;
		stream_drop(s, st);
		return say_done(in, id, r, NULL);
	}
	delta_drop(s, st);
	r = stream_end(in, st);
	return r < 0 ? r : say_done(in, id, 0, &st->ref);
}

/* Bytes of the copy that are here, lent; 0: asked for. */
static ssize_t base_bytes(struct ingest *in, struct stream *st, const struct command *c,
			  const uint8_t **ret)
{
	struct delta *d = st->delta;
	uint64_t at = c->from + d->copied, piece = at / PIECE;
	struct base_slot *slot = slot_of(&in->streams, st->id, piece);
	int r;

	if (d->known && (c->from > d->base_size || c->bytes > d->base_size - c->from))
		return ingest_hostile(in, "DATA: a copy from beyond the base");
	if (c->from > INT64_MAX)
		return ingest_hostile(in, "DATA: a copy from beyond any file");
	/* How long it is is known with the first part. */
	r = ask(in, st, piece, d->known ? (c->from + c->bytes - 1) / PIECE : piece);
	if (r < 0 || !slot || !slot->have)
		return r;
	*ret = buf_data(&slot->bytes) + at % PIECE;
	return (ssize_t)MIN(buf_len(&slot->bytes) - at % PIECE, c->bytes - d->copied);
}

/* 1: done; 0: its base is awaited. */
static int copy(struct ingest *in, struct stream *st, const struct command *c, size_t *budget)
{
	struct delta *d = st->delta;

	while (d->copied<c->bytes && * budget> 0) {
		const uint8_t *p = NULL;
		ssize_t n = base_bytes(in, st, c, &p);
		int r;

		if (n <= 0)
			return (int)n;
		n = MIN(n, (ssize_t)*budget);
		r = content_writer_data(st->w, p, (size_t)n);
		if (r < 0)
			return ingest_content_error(in, r);
		d->copied += (uint64_t)n;
		*budget -= (size_t)n;
	}
	return d->copied == c->bytes;
}

static void command_over(struct ingest *in, struct delta *d, const struct command *c)
{
	buf_consume(&d->queue, sizeof(*c) + c->len);
	in->streams.delta_bytes -= sizeof(*c) + c->len;
	d->copied = 0;
}

static int work(struct ingest *in, struct stream *st)
{
	size_t budget = SLICE_BYTES;
	struct delta *d = st->delta;

	while (buf_len(&d->queue) > 0) {
		struct command c;
		bool last;
		int r = 1;

		if (budget == 0)
			return 1;
		memcpy(&c, buf_data(&d->queue), sizeof(c));
		last = c.last;
		if (!d->refused && c.bytes) {
			r = copy(in, st, &c, &budget);
		} else if (!d->refused && c.len) {
			r = content_writer_data(st->w, buf_data(&d->queue) + sizeof(c), c.len);
			r = r < 0 ? ingest_content_error(in, r) : 1;
			budget -= MIN(budget, (size_t)c.len);
		}
		if (r < 0)
			return r;
		if (r == 0 && !d->refused)
			return budget == 0;
		command_over(in, d, &c);
		if (last)
			return finish(in, st);
	}
	return 0;
}

int deltas_work(struct ingest *in)
{
	struct streams *s = &in->streams;

	/* What comes out is stored: the pack must be there all the time. */
	if (!in->store.has_pack || s->hole)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(s->all); i++) {
		struct stream *st = &s->all[i];
		int r;

		if (!st->delta || buf_len(&st->delta->queue) == 0)
			continue;
		r = work(in, st);
		if (r < 0 || r > 0 || (st->delta && buf_len(&st->delta->queue) > 0))
			return r;
	}
	return 0;
}
