/* Any chunk lists: a walk over them covers exactly the size that was promised, or refuses, and a
 * read gives no byte more than was asked for. Any bytes and holes that are written come back. */
#include "journal/chunk.h"
#include "journal/content.h"
#include "tests/fuzz/fuzz.h"

enum { PIECES_MAX = 64, READ_MAX = 1 << 20 };

struct piece {
	uint8_t hash[SHA256_BYTES];
	uint8_t *data;
	size_t n;
};

static struct piece pieces[PIECES_MAX];
static size_t n_pieces;
static unsigned fetches, told;

static int fetch(const uint8_t hash[SHA256_BYTES], struct buf *out, void *userdata)
{
	if (++fetches > 5000)
		return -EIO; /* a list of lists of lists: long, but it ends */
	for (size_t i = 0; i < n_pieces; i++)
		if (memcmp(pieces[i].hash, hash, SHA256_BYTES) == 0)
			return buf_add(out, pieces[i].data, pieces[i].n);
	return -ENOENT;
}

static int piece(const uint8_t *hash, uint64_t offset, uint64_t len, void *userdata)
{
	uint64_t *at = userdata;

	must(offset == *at && len > 0);
	*at += len;
	return ++told > 100000 ? -EIO : 0;
}

static void drop(void)
{
	while (n_pieces > 0)
		free(pieces[--n_pieces].data);
}

/* Lists in terms of each other: piece number i has its number as hash. */
static void make_lists(struct fuzz_in *in)
{
	for (n_pieces = 0; n_pieces < PIECES_MAX && in->n > 0;) {
		struct piece *p = &pieces[n_pieces++];
		size_t entries = fuzz_take(in, 1) % 40;
		unsigned width = 1 + fuzz_take(in, 1) % 8;

		memset(p->hash, (int)n_pieces, SHA256_BYTES);
		p->n = entries * CONTENT_LIST_ENTRY_BYTES + (width == 7);
		p->data = calloc(1, p->n + 1);
		must(p->data != NULL);
		for (size_t i = 0; i < entries; i++) {
			uint8_t *e = p->data + i * CONTENT_LIST_ENTRY_BYTES;

			memset(e, (int)(fuzz_take(in, 1) % PIECES_MAX), SHA256_BYTES);
			put_le64(e + SHA256_BYTES, fuzz_take(in, width));
		}
	}
}

static void read_lists(struct fuzz_in *in)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(READ_MAX);
	struct content_ref ref = {.depth = (uint8_t)(fuzz_take(in, 1) % 8)};
	uint64_t offset, at = 0;
	size_t n;

	ref.size_bytes = fuzz_take(in, 1 + fuzz_take(in, 1) % 8);
	offset = fuzz_take(in, 4);
	n = fuzz_take(in, 3) % READ_MAX;
	memset(ref.root, 1, SHA256_BYTES);
	memset(ref.sha256, 1, SHA256_BYTES);
	make_lists(in);
	fetches = told = 0;
	if (content_walk(&ref, fetch, NULL, piece, &at) == 0)
		must(at == ref.size_bytes);
	fetches = 0;
	if (content_read(&ref, offset, n, fetch, NULL, &out) == 0)
		must(offset >= ref.size_bytes ||
		     buf_len(&out) == MIN((uint64_t)n, ref.size_bytes - offset));
	else
		must(buf_len(&out) == 0);
	drop();
}

static int sink(enum frame_kind kind, const uint8_t hash[SHA256_BYTES], const void *data, size_t n,
		void *userdata)
{
	struct piece *p = &pieces[n_pieces];

	must(n > 0 && n <= FRAME_RAW_MAX);
	if (n_pieces == PIECES_MAX)
		return -ENOSPC;
	memcpy(p->hash, hash, SHA256_BYTES);
	p->data = malloc(n);
	must(p->data != NULL);
	memcpy(p->data, data, n);
	p->n = n;
	n_pieces++;
	return 0;
}

/* What is written comes back, whole and in parts. */
static void write_and_read(struct fuzz_in *in)
{
	_cleanup_(content_writer_freep) struct content_writer *w = NULL;
	_cleanup_(buf_done) struct buf want = BUF_INIT(4 << 20), got = BUF_INIT(4 << 20);
	static uint8_t block[128 << 10];
	struct content_ref ref;
	uint64_t at = 0;
	int r = 0;

	must(content_writer_new(sink, NULL, &w) == 0);
	content_writer_begin(w);
	while (in->n > 0 && r == 0 && buf_len(&want) < 2 << 20) {
		uint8_t what = (uint8_t)fuzz_take(in, 1);
		size_t n = MIN((size_t)fuzz_take(in, 3), sizeof(block));

		memset(block, what & 2 ? 0 : what, n);
		for (size_t i = 0; what & 4 && i < n; i++)
			block[i] = (uint8_t)(i * (what | 1u) >> (what & 3));
		if (what & 1) {
			memset(block, 0, n);
			r = content_writer_hole(w, n);
		} else {
			r = content_writer_data(w, block, n);
		}
		must(buf_add(&want, block, n) == 0);
	}
	if (r == 0)
		r = content_writer_end(w, &ref);
	if (r == 0) {
		must(ref.size_bytes == buf_len(&want));
		fetches = told = 0;
		must(content_walk(&ref, fetch, NULL, piece, &at) == 0 && at == ref.size_bytes);
		must(content_read(&ref, 0, ref.size_bytes, fetch, NULL, &got) == 0);
		must(buf_len(&got) == buf_len(&want) &&
		     (buf_len(&got) == 0 ||
		      memcmp(buf_data(&got), buf_data(&want), buf_len(&got)) == 0));
	}
	drop();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};

	if (fuzz_take(&in, 1) & 1)
		write_and_read(&in);
	else
		read_lists(&in);
	if (size > 0)
		must(chunk_cut(data, size, 1) > 0 && chunk_cut(data, size, 1) <= size);
	return 0;
}
