/*
 * Content into frames of the pack.  A content is "known" from the moment it is
 * in the builder: its frame is written before any entry that needs it goes out.
 */
#include "brain/ingest-parts.h"

#include <assert.h>

void ingest_store_init(struct ingest_store *st, ingest_write_fn write, void *userdata,
		       struct buf *held, struct buf *out)
{
	*st = (struct ingest_store){
		.write = write,
		.userdata = userdata,
		.held = held,
		.out = out,
	};
}

void ingest_store_done(struct ingest_store *st)
{
	frame_builder_free(st->builder);
	free(st->known);
	st->builder = NULL;
	st->known = NULL;
}

void ingest_store_set_pack(struct ingest_store *st, const struct entry_pack *pack)
{
	assert(!ingest_store_pending(st));
	if (st->zstd_level != (int)pack->zstd_level)
		ingest_store_rest(st);
	st->has_pack = true;
	st->end = pack->offset;
	st->seal_bytes = pack->seal_bytes;
	st->zstd_level = (int)pack->zstd_level;
}

/* ---- what is known ---- */

static void known_key(enum frame_kind kind, const uint8_t hash[SHA256_BYTES],
		      uint8_t key[SHA256_BYTES])
{
	memcpy(key, hash, SHA256_BYTES);
	key[0] ^= kind == FRAME_LIST;
}

static uint32_t known_set(const uint8_t key[SHA256_BYTES])
{
	return get_le32(key + 4) % KNOWN_SETS;
}

static bool known_has(const struct ingest_store *st, const uint8_t key[SHA256_BYTES])
{
	uint32_t first = known_set(key) * KNOWN_WAYS;

	for (uint32_t i = first; st->known && i < first + KNOWN_WAYS; i++)
		if (memcmp(st->known[i], key, SHA256_BYTES) == 0)
			return true;
	return false;
}

static int known_add(struct ingest_store *st, const uint8_t key[SHA256_BYTES])
{
	uint32_t set = known_set(key);

	if (!st->known) {
		st->known = calloc((size_t)KNOWN_SETS * KNOWN_WAYS, SHA256_BYTES);
		if (!st->known)
			return -ENOMEM;
	}
	memcpy(st->known[set * KNOWN_WAYS + st->next_way[set]], key, SHA256_BYTES);
	st->next_way[set] = (uint8_t)((st->next_way[set] + 1) % KNOWN_WAYS);
	return 0;
}

int ingest_store_seed(struct ingest_store *st, const uint8_t hash[SHA256_BYTES])
{
	uint8_t key[SHA256_BYTES];

	known_key(FRAME_CHUNK, hash, key);
	return known_has(st, key) ? 0 : known_add(st, key);
}

/* ---- frames ---- */

static int put_new(struct ingest_store *st, enum frame_kind kind, const uint8_t hash[SHA256_BYTES],
		   const void *data, size_t n)
{
	int r;

	if (!st->builder) {
		r = frame_builder_new(st->zstd_level, &st->builder);
		if (r < 0)
			return r;
	}
	r = frame_builder_add(st->builder, kind, hash, data, n);
	if (r == -E2BIG) {
		r = ingest_store_flush(st);
		if (r < 0)
			return r;
		r = frame_builder_add(st->builder, kind, hash, data, n);
	}
	return r > 0 ? ingest_store_flush(st) : r;
}

int ingest_store_put(enum frame_kind kind, const uint8_t hash[SHA256_BYTES], const void *data,
		     size_t n, void *userdata)
{
	struct ingest_store *st = userdata;
	uint8_t key[SHA256_BYTES];
	int r;

	known_key(kind, hash, key);
	if (known_has(st, key))
		return 0;
	r = put_new(st, kind, hash, data, n);
	if (r >= 0)
		r = known_add(st, key);
	if (r < 0)
		st->failed = true;
	return r;
}

bool ingest_store_pending(const struct ingest_store *st)
{
	return st->builder && !frame_builder_empty(st->builder);
}

static int add_places(struct ingest_store *st, const struct frame *frame)
{
	struct entry_places places = {
		.n = (uint32_t)frame->n_members,
		.pack_end = st->end + frame->n,
	};
	size_t at;
	int r;

	r = entry_begin(st->out, ENTRY_PLACES, &places, sizeof(places), &at);
	if (r < 0)
		return r;
	for (size_t i = 0; i < frame->n_members && r >= 0; i++) {
		struct entry_place place = {
			.offset = st->end,
			.len = frame->members[i].len,
			.kind = frame->members[i].kind,
		};

		memcpy(place.hash, frame->members[i].hash, SHA256_BYTES);
		r = buf_add(st->out, &place, sizeof(place));
	}
	if (r >= 0)
		r = entry_end(st->out, at);
	if (r < 0)
		entry_drop(st->out, at);
	return r;
}

int ingest_store_release(struct ingest_store *st)
{
	struct buf empty;
	int r;

	if (buf_len(st->out) == 0) {
		empty = *st->out;
		*st->out = *st->held;
		*st->held = empty;
		return 0;
	}
	r = buf_add(st->out, buf_data(st->held), buf_len(st->held));
	if (r >= 0)
		buf_clear(st->held);
	return r;
}

int ingest_store_flush(struct ingest_store *st)
{
	struct frame frame;
	int r;

	if (!ingest_store_pending(st))
		return 0;
	assert(st->has_pack);
	r = frame_builder_finish(st->builder, &frame);
	if (r >= 0)
		r = st->write(frame.bytes, frame.n, st->end, st->userdata);
	if (r >= 0)
		r = add_places(st, &frame);
	if (r >= 0)
		r = ingest_store_release(st);
	if (r < 0) {
		st->failed = true;
		return r;
	}
	st->end += frame.n;
	return 0;
}

void ingest_store_rest(struct ingest_store *st)
{
	if (ingest_store_pending(st))
		return;
	frame_builder_free(st->builder);
	st->builder = NULL;
}
