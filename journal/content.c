/*
 * The writer: data is gathered until a cut can be decided, pieces become
 * entries of the list at level 1, full lists become entries one level up.
 *
 * A list is closed when the entry behind it arrives, not when it is full, so
 * that the last list of a level stands in its level alone only where it is the
 * root: no root is a list of one list.
 */
#include "journal/content.h"

#include <assert.h>

#include "journal/chunk.h"

#define LIST_BYTES_MAX (CONTENT_LIST_MAX * CONTENT_LIST_ENTRY_BYTES)
#define PENDING_BYTES_MAX (4 * CHUNK_MAX)

struct level {
	uint8_t *entries; /* LIST_BYTES_MAX, allocated at first use */
	size_t n;
	uint64_t len; /* bytes of the file that they cover */
	bool full;
};

struct content_writer {
	content_sink_fn sink;
	void *userdata;
	struct buf pending;	/* data behind the last cut */
	uint64_t hole_len;	/* hole behind the last entry; pending is empty then */
	uint64_t hole_hashed;	/* bytes of it that sha has */
	struct sha256_ctx *sha; /* of the pieces so far, once they are more than one data chunk */
	uint8_t last_chunk[SHA256_BYTES];
	uint64_t size;
	uint64_t hole_bytes; /* of all holes */
	size_t n_pieces;
	int error; /* after one, everything up to the next begin fails with it */
	struct level levels[CONTENT_DEPTH_MAX];
};

int content_writer_new(content_sink_fn sink, void *userdata, struct content_writer **ret)
{
	struct content_writer *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->sink = sink;
	w->userdata = userdata;
	buf_init(&w->pending, PENDING_BYTES_MAX);
	w->sha = sha256_new();
	*ret = w;
	return 0;
}

void content_writer_free(struct content_writer *w)
{
	if (!w)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(w->levels); i++)
		free(w->levels[i].entries);
	sha256_free(w->sha);
	buf_done(&w->pending);
	free(w);
}

void content_writer_begin(struct content_writer *w)
{
	buf_clear(&w->pending);
	sha256_reset(w->sha);
	memset(w->last_chunk, 0, sizeof(w->last_chunk));
	w->hole_len = 0;
	w->hole_hashed = 0;
	w->size = 0;
	w->n_pieces = 0;
	w->hole_bytes = 0;
	w->error = 0;
	for (size_t i = 0; i < ARRAY_SIZE(w->levels); i++) {
		w->levels[i].n = 0;
		w->levels[i].len = 0;
		w->levels[i].full = false;
	}
}

static int add_entry(struct content_writer *w, size_t depth, const uint8_t hash[SHA256_BYTES],
		     uint64_t len);

/* Hands the list at `level` to the sink and empties it. */
static int close_list(struct content_writer *w, struct level *level, uint8_t ret_hash[SHA256_BYTES])
{
	size_t n = level->n * CONTENT_LIST_ENTRY_BYTES;

	sha256(level->entries, n, ret_hash);
	level->n = 0;
	level->len = 0;
	level->full = false;
	return w->sink(FRAME_LIST, ret_hash, level->entries, n, w->userdata);
}

/* Closes the list at `depth` (from 0) into an entry of the one above. */
static int raise_list(struct content_writer *w, size_t depth)
{
	uint64_t len = w->levels[depth].len;
	uint8_t hash[SHA256_BYTES];
	int r;

	r = close_list(w, &w->levels[depth], hash);
	if (r < 0)
		return r;
	return add_entry(w, depth + 1, hash, len);
}

static int add_entry(struct content_writer *w, size_t depth, const uint8_t hash[SHA256_BYTES],
		     uint64_t len)
{
	struct level *level;
	uint8_t *entry;
	int r;

	if (depth == ARRAY_SIZE(w->levels))
		return -EFBIG;
	level = &w->levels[depth];
	if (!level->entries) {
		level->entries = malloc(LIST_BYTES_MAX);
		if (!level->entries)
			return -ENOMEM;
	}
	if (level->full) {
		r = raise_list(w, depth);
		if (r < 0)
			return r;
	}
	entry = level->entries + level->n * CONTENT_LIST_ENTRY_BYTES;
	memcpy(entry, hash, SHA256_BYTES);
	put_le64(entry + SHA256_BYTES, len);
	level->n++;
	level->len += len;
	level->full = level->n == CONTENT_LIST_MAX ||
		      (level->n >= CONTENT_LIST_MIN && hash[SHA256_BYTES - 1] == 0);
	return 0;
}

static int add_chunk(struct content_writer *w, const uint8_t *data, size_t n)
{
	uint8_t hash[SHA256_BYTES];
	int r;

	sha256(data, n, hash);
	if (w->n_pieces == 0 || memcmp(hash, w->last_chunk, sizeof(hash)) != 0) {
		r = w->sink(FRAME_CHUNK, hash, data, n, w->userdata);
		if (r < 0)
			return r;
		memcpy(w->last_chunk, hash, sizeof(hash));
	}
	w->n_pieces++;
	return add_entry(w, 0, hash, n);
}

/* One chunk of a longer file. */
static int add_part(struct content_writer *w, const uint8_t *data, size_t n)
{
	sha256_update(w->sha, data, n);
	return add_chunk(w, data, n);
}

static int flush_hole(struct content_writer *w)
{
	static const uint8_t hole[SHA256_BYTES];
	uint64_t len = w->hole_len;

	if (len == 0)
		return 0;
	sha256_update_zeros(w->sha, len - w->hole_hashed);
	w->hole_len = 0;
	w->hole_hashed = 0;
	w->n_pieces++;
	return add_entry(w, 0, hole, len);
}

/* Cuts what is pending; `all`: nothing follows it. */
static int cut_pending(struct content_writer *w, bool all)
{
	size_t n, cut;
	int r;

	while ((n = buf_len(&w->pending)) > 0) {
		if (!all && n < CHUNK_MAX)
			return 0;
		cut = chunk_cut(buf_data(&w->pending), n, all);
		if (cut == 0)
			return 0;
		r = add_part(w, buf_data(&w->pending), cut);
		if (r < 0)
			return r;
		buf_consume(&w->pending, cut);
	}
	return 0;
}

static int write_data(struct content_writer *w, const uint8_t *p, size_t n)
{
	int r;

	r = flush_hole(w);
	while (r >= 0 && n > 0) {
		size_t part;

		/* What the caller holds is cut where it lies, when nothing comes before it. */
		if (buf_len(&w->pending) == 0 && n >= CHUNK_MAX) {
			part = chunk_cut(p, n, 0);
			r = add_part(w, p, part);
		} else {
			part = MIN(n, (size_t)PENDING_BYTES_MAX - buf_len(&w->pending));
			r = buf_add(&w->pending, p, part);
			if (r >= 0)
				r = cut_pending(w, false);
		}
		p += part;
		n -= part;
	}
	return r;
}

static int grow(struct content_writer *w, uint64_t n)
{
	if (w->error == 0 && n > INT64_MAX - w->size)
		w->error = -EFBIG;
	if (w->error == 0)
		w->size += n;
	return w->error;
}

int content_writer_data(struct content_writer *w, const void *data, size_t n)
{
	int r;

	r = grow(w, n);
	if (r < 0 || n == 0)
		return r;
	r = write_data(w, data, n);
	if (r < 0)
		w->error = r;
	return r;
}

int content_writer_hole(struct content_writer *w, uint64_t n_bytes)
{
	int r;

	r = grow(w, n_bytes);
	if (r < 0 || n_bytes == 0)
		return r;
	if (n_bytes > CONTENT_HOLE_BYTES_MAX - w->hole_bytes)
		r = -EFBIG;
	else
		r = cut_pending(w, true);
	if (r < 0) {
		w->error = r;
		return r;
	}
	w->hole_len += n_bytes;
	w->hole_bytes += n_bytes;
	return 0;
}

int content_writer_settle(struct content_writer *w, uint64_t max_bytes)
{
	uint64_t n = MIN(max_bytes, w->hole_len - w->hole_hashed);

	if (w->error < 0)
		return w->error;
	sha256_update_zeros(w->sha, n);
	w->hole_hashed += n;
	return w->hole_hashed < w->hole_len;
}

/* The whole file is pending: no list. */
static int end_single(struct content_writer *w, struct content_ref *ref)
{
	const uint8_t *data = buf_data(&w->pending);
	size_t n = buf_len(&w->pending);

	sha256(data, n, ref->sha256);
	if (n == 0)
		return 0;
	return w->sink(FRAME_CHUNK, ref->sha256, data, n, w->userdata);
}

static int end_lists(struct content_writer *w, struct content_ref *ref)
{
	size_t depth;
	int r;

	for (depth = 0; depth + 1 < ARRAY_SIZE(w->levels) && w->levels[depth + 1].n > 0; depth++) {
		r = raise_list(w, depth);
		if (r < 0)
			return r;
	}
	assert(w->levels[depth].n > 0);
	sha256_final(w->sha, ref->sha256);
	ref->depth = (uint8_t)(depth + 1);
	return close_list(w, &w->levels[depth], ref->root);
}

int content_writer_end(struct content_writer *w, struct content_ref *ret)
{
	struct content_ref ref = {.size_bytes = w->size, .holes = w->hole_bytes > 0};
	size_t n = buf_len(&w->pending);
	int r = w->error;

	if (r < 0)
		return r;
	w->error = -EINVAL; /* until the next begin */
	if (w->n_pieces == 0 && w->hole_len == 0 &&
	    (n == 0 || chunk_cut(buf_data(&w->pending), n, 1) == n)) {
		r = end_single(w, &ref);
	} else {
		r = cut_pending(w, true);
		if (r >= 0)
			r = flush_hole(w);
		/* Cut from the caller's memory, and then nothing came. */
		if (r >= 0 && w->n_pieces == 1 && !ref.holes) {
			memcpy(ref.sha256, w->last_chunk, sizeof(ref.sha256));
			*ret = ref;
			return 0;
		}
		if (r >= 0)
			r = end_lists(w, &ref);
	}
	if (r < 0)
		return r;
	*ret = ref;
	return 0;
}
