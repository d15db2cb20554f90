/*
 * Lists come from disk, so every one is checked before it is followed: whole
 * entries, not too many, no empty ones, lengths that add up to what the entry
 * above promised. What a hostile tree can cost is then bounded by the range
 * that was asked for.
 */
#include "journal/content.h"

#include "journal/chunk.h"

struct walk {
	content_fetch_fn fetch;
	void *fetch_userdata;
	content_piece_fn piece;
	void *userdata;
	uint64_t from, to; /* only pieces that overlap this range */
};

static const uint8_t no_hash[SHA256_BYTES];

static bool is_hole(const uint8_t *entry)
{
	return memcmp(entry, no_hash, SHA256_BYTES) == 0;
}

/* Judges a list at `depth` that has to cover len bytes. */
static int check_list(const struct buf *list, unsigned depth, uint64_t len)
{
	const uint8_t *entry = buf_data(list);
	size_t n = buf_len(list) / CONTENT_LIST_ENTRY_BYTES;

	if (n == 0 || n > CONTENT_LIST_MAX || buf_len(list) % CONTENT_LIST_ENTRY_BYTES != 0)
		return -EBADMSG;
	for (size_t i = 0; i < n; i++, entry += CONTENT_LIST_ENTRY_BYTES) {
		uint64_t part = get_le64(entry + SHA256_BYTES);

		if (part == 0 || part > len)
			return -EBADMSG;
		if (is_hole(entry) ? depth > 1 : depth == 1 && part > CHUNK_MAX)
			return -EBADMSG;
		len -= part;
	}
	return len == 0 ? 0 : -EBADMSG;
}

static int fetch_list(const struct walk *w, const uint8_t hash[SHA256_BYTES], unsigned depth,
		      uint64_t len, struct buf *list)
{
	int r;

	r = w->fetch(hash, list, w->fetch_userdata);
	if (r < 0)
		return r == -E2BIG ? -EBADMSG : r;
	return check_list(list, depth, len);
}

static int walk_list(const struct walk *w, const uint8_t hash[SHA256_BYTES], unsigned depth,
		     uint64_t offset, uint64_t len)
{
	_cleanup_(buf_done) struct buf list = BUF_INIT(CONTENT_LIST_MAX * CONTENT_LIST_ENTRY_BYTES);
	const uint8_t *entry, *end;
	int r;

	r = fetch_list(w, hash, depth, len, &list);
	if (r < 0)
		return r;
	entry = buf_data(&list);
	end = entry + buf_len(&list);
	for (; entry < end && offset < w->to; entry += CONTENT_LIST_ENTRY_BYTES) {
		uint64_t part = get_le64(entry + SHA256_BYTES);

		if (offset + part > w->from) {
			if (depth > 1)
				r = walk_list(w, entry, depth - 1, offset, part);
			else
				r = w->piece(is_hole(entry) ? NULL : entry, offset, part,
					     w->userdata);
			if (r != 0)
				return r;
		}
		offset += part;
	}
	return 0;
}

static int walk_ref(const struct walk *w, const struct content_ref *ref)
{
	if (ref->depth > CONTENT_DEPTH_MAX || ref->size_bytes > INT64_MAX)
		return -EBADMSG;
	if (ref->size_bytes == 0)
		return ref->depth == 0 ? 0 : -EBADMSG;
	if (ref->depth > 0)
		return walk_list(w, ref->root, ref->depth, 0, ref->size_bytes);
	if (ref->size_bytes > CHUNK_MAX)
		return -EBADMSG;
	return w->piece(ref->sha256, 0, ref->size_bytes, w->userdata);
}

int content_walk(const struct content_ref *ref, content_fetch_fn fetch, void *fetch_userdata,
		 content_piece_fn piece, void *userdata)
{
	const struct walk w = {
		.fetch = fetch,
		.fetch_userdata = fetch_userdata,
		.piece = piece,
		.userdata = userdata,
		.from = 0,
		.to = UINT64_MAX,
	};

	return walk_ref(&w, ref);
}

struct read {
	const struct walk *walk;
	struct buf *out;
};

static int add_zeros(struct buf *out, uint64_t n)
{
	uint8_t *p;
	int r;

	if (n > SIZE_MAX)
		return -E2BIG;
	r = buf_reserve(out, (size_t)n, &p);
	if (r < 0)
		return r;
	memset(p, 0, (size_t)n);
	buf_commit(out, (size_t)n);
	return 0;
}

/* The part of the piece that lies in the range. */
static int read_piece(const uint8_t *hash, uint64_t offset, uint64_t len, void *userdata)
{
	const struct read *rd = userdata;
	uint64_t from = MAX(offset, rd->walk->from), to = MIN(offset + len, rd->walk->to);
	_cleanup_(buf_done) struct buf chunk = BUF_INIT(CHUNK_MAX);
	int r;

	if (!hash)
		return add_zeros(rd->out, to - from);
	r = rd->walk->fetch(hash, &chunk, rd->walk->fetch_userdata);
	if (r < 0)
		return r == -E2BIG ? -EBADMSG : r;
	if (buf_len(&chunk) != len)
		return -EBADMSG;
	return buf_add(rd->out, buf_data(&chunk) + (from - offset), (size_t)(to - from));
}

int content_read(const struct content_ref *ref, uint64_t offset, size_t n, content_fetch_fn fetch,
		 void *userdata, struct buf *out)
{
	struct walk w = {
		.fetch = fetch,
		.fetch_userdata = userdata,
		.piece = read_piece,
	};
	struct read rd = {.walk = &w, .out = out};
	size_t before = buf_len(out);
	int r;

	if (n == 0 || offset >= ref->size_bytes)
		return 0;
	w.from = offset;
	w.to = offset + MIN((uint64_t)n, ref->size_bytes - offset);
	w.userdata = &rd;
	r = walk_ref(&w, ref);
	if (r < 0)
		out->end = out->start + before; /* nothing half-read */
	return r;
}

struct extent {
	uint64_t at, end;
	bool hole;
};

static int extent_piece(const uint8_t *hash, uint64_t offset, uint64_t len, void *userdata)
{
	struct extent *x = userdata;

	if (!hash && x->end > x->at)
		return 1;
	x->end = offset + len;
	x->hole = !hash;
	return x->hole;
}

int content_extent(const struct content_ref *ref, uint64_t offset, uint64_t max,
		   content_fetch_fn fetch, void *userdata, bool *ret_hole, uint64_t *ret_bytes)
{
	const uint64_t end = offset + MIN(max, ref->size_bytes - offset);
	struct extent x = {.at = offset, .end = offset};
	const struct walk w = {
		.fetch = fetch,
		.fetch_userdata = userdata,
		.piece = extent_piece,
		.userdata = &x,
		.from = offset,
		.to = end,
	};
	int r = 0;

	if (ref->holes)
		r = walk_ref(&w, ref);
	else
		x.end = w.to;
	if (r >= 0 && x.end <= offset)
		r = -EBADMSG;
	if (r < 0)
		return r;
	*ret_hole = x.hole;
	*ret_bytes = x.hole ? x.end - offset : MIN(x.end, w.to) - offset;
	return 0;
}
