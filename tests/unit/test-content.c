#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "journal/chunk.h"
#include "tests/unit/content-fixture.h"

#define MIB ((size_t)1 << 20)

static struct pieces *pieces;
static struct content_writer *writer;

static int setup(void **state)
{
	random_state = 7;
	pieces = pieces_new();
	return pieces ? content_writer_new(pieces_sink, pieces, &writer) : -1;
}

static int teardown(void **state)
{
	content_writer_free(writer);
	pieces_free(pieces);
	return 0;
}

static struct content_ref write_whole(const uint8_t *p, size_t n)
{
	struct content_ref ref;

	content_writer_begin(writer);
	assert_int_equal(content_writer_data(writer, p, n), 0);
	assert_int_equal(content_writer_end(writer, &ref), 0);
	return ref;
}

static void assert_ref(const struct content_ref *ref, const uint8_t *p, size_t n)
{
	uint8_t hash[SHA256_BYTES];

	sha256(p, n, hash);
	assert_int_equal(ref->size_bytes, n);
	assert_memory_equal(ref->sha256, hash, sizeof(hash));
	if (ref->depth == 0)
		for (size_t i = 0; i < SHA256_BYTES; i++)
			assert_int_equal(ref->root[i], 0);
}

static void assert_range(const struct content_ref *ref, const uint8_t *p, uint64_t offset, size_t n)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	size_t want = offset >= ref->size_bytes ? 0 : MIN((uint64_t)n, ref->size_bytes - offset);

	assert_int_equal(buf_add(&b, "before", 6), 0);
	assert_int_equal(content_read(ref, offset, n, pieces_fetch, pieces, &b), 0);
	assert_int_equal(buf_len(&b), 6 + want);
	assert_memory_equal(buf_data(&b), "before", 6);
	if (want > 0)
		assert_memory_equal(buf_data(&b) + 6, p + offset, want);
}

/* Files of the sizes where something changes come back, and are one chunk, nothing,
 * or a list exactly where the format says so. */
static void sizes_come_back(void **state)
{
	static const size_t bases[] = {
		0, CHUNK_MIN, CHUNK_AVG, CHUNK_MAX, 2 * CHUNK_AVG, 4 * CHUNK_MAX, 40 * CHUNK_AVG};
	uint8_t *data = malloc(41 * CHUNK_AVG);

	random_fill(data, 41 * CHUNK_AVG);
	for (size_t i = 0; i < ARRAY_SIZE(bases); i++) {
		for (int d = -1; d <= 1; d++) {
			size_t n = bases[i] + (size_t)d;
			struct content_ref ref;

			if (bases[i] == 0 && d < 0)
				continue;
			ref = write_whole(data, n);
			assert_ref(&ref, data, n);
			assert_false(ref.holes);
			if (chunk_cut(data, n, 1) == n)
				assert_int_equal(ref.depth, 0);
			else
				assert_int_equal(ref.depth, 1);
			assert_range(&ref, data, 0, n + 1);
		}
	}
	free(data);
}

/* How the bytes are handed over makes no difference to what is stored. */
static void parts_make_no_difference(void **state)
{
	static const size_t steps[] = {1000, CHUNK_AVG, CHUNK_MAX, CHUNK_MAX + 1, 3 * MIB};
	size_t n = 8 * MIB + 123;
	uint8_t *data = malloc(n);
	struct content_ref want, ref;
	size_t n_lists, n_chunks;

	random_fill(data, n);
	want = write_whole(data, n);
	assert_ref(&want, data, n);
	n_lists = pieces->n_lists;
	n_chunks = pieces->n_chunks;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		content_writer_begin(writer);
		for (size_t at = 0, part; at < n; at += part) {
			part = MIN(n - at, 1 + random_below(2 * steps[i]));
			assert_int_equal(content_writer_data(writer, data + at, part), 0);
		}
		assert_int_equal(content_writer_end(writer, &ref), 0);
		assert_memory_equal(&ref, &want, sizeof(ref));
	}
	assert_int_equal(pieces->n_lists, n_lists);
	assert_int_equal(pieces->n_chunks, n_chunks);
	free(data);
}

/* A byte put into the middle of 10 MB changes few chunks, and one list a level. */
static void an_insertion_changes_little(void **state)
{
	size_t n = 10000000, at = 5000000, n_chunks, n_lists;
	uint8_t *data = malloc(n + 1);
	struct content_ref ref;

	random_fill(data, n);
	ref = write_whole(data, n);
	n_chunks = pieces->n_chunks;
	n_lists = pieces->n_lists;
	assert_true(n_chunks > 100 && n_chunks < 200);

	memmove(data + at + 1, data + at, n - at);
	data[at] = 'x';
	ref = write_whole(data, n + 1);
	assert_ref(&ref, data, n + 1);
	assert_in_range(pieces->n_chunks - n_chunks, 1, 3);
	assert_in_range(pieces->n_lists - n_lists, 1, 2);
	free(data);
}

struct walked {
	uint64_t at, data_bytes;
	size_t n_pieces, n_holes;
	bool last_hole;
};

static int note_piece(const uint8_t *hash, uint64_t offset, uint64_t len, void *userdata)
{
	struct walked *w = userdata;

	if (offset != w->at || len == 0 || (!hash && w->last_hole && w->n_pieces > 0))
		return -EINVAL;
	w->at += len;
	w->n_pieces++;
	w->n_holes += !hash;
	w->data_bytes += hash ? len : 0;
	w->last_hole = !hash;
	return 0;
}

/* Data and holes in any order read as the plain bytes do, at any offset and length;
 * how data and holes were handed over makes no difference. */
static void random_reads_are_right(void **state)
{
	for (unsigned round = 0; round < 40; round++) {
		size_t n = 0, cap = 6 * MIB, n_parts = 1 + random_below(round < 20 ? 8 : 300);
		uint8_t *data = calloc(1, cap);
		struct walked w = {0};
		struct content_ref ref;
		bool holes = false;

		content_writer_begin(writer);
		for (size_t i = 0; i < n_parts; i++) {
			size_t part = random_below(2 * 5 * MIB / n_parts);

			part = MIN(part, cap - n);
			if (random_below(3) == 0) {
				assert_int_equal(content_writer_hole(writer, part / 2), 0);
				assert_int_equal(content_writer_data(writer, NULL, 0), 0);
				assert_int_equal(content_writer_hole(writer, part - part / 2), 0);
				holes |= part > 0;
			} else {
				random_fill(data + n, part);
				assert_int_equal(content_writer_data(writer, data + n, part), 0);
			}
			n += part;
		}
		assert_int_equal(content_writer_end(writer, &ref), 0);
		assert_ref(&ref, data, n);
		assert_int_equal(ref.holes, holes);
		assert_int_equal(content_walk(&ref, pieces_fetch, pieces, note_piece, &w), 0);
		assert_int_equal(w.at, n);
		for (unsigned i = 0; i < 60; i++)
			assert_range(&ref, data, random_below(n + 100),
				     random_below(i % 2 ? 1000 : n + 100));
		free(data);
	}
}

/* Zeros that are hashed ahead, whenever and however many, make no difference. */
static void zeros_hashed_ahead(void **state)
{
	static const uint64_t steps[] = {0, 1, 4096, 100000, UINT64_MAX};
	struct content_ref want = {0}, ref;

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		content_writer_begin(writer);
		assert_int_equal(content_writer_settle(writer, 1), 0);
		assert_int_equal(content_writer_data(writer, "before", 6), 0);
		assert_int_equal(content_writer_hole(writer, 3 * MIB), 0);
		assert_int_equal(content_writer_settle(writer, steps[i]), steps[i] < 3 * MIB);
		assert_int_equal(content_writer_hole(writer, 100000), 0);
		while (steps[i] == 100000 && content_writer_settle(writer, steps[i]) > 0)
			;
		assert_int_equal(content_writer_data(writer, "after", 5), 0);
		assert_int_equal(content_writer_hole(writer, 70000), 0);
		assert_int_equal(content_writer_settle(writer, steps[i]), steps[i] < 70000);
		assert_int_equal(content_writer_end(writer, &ref), 0);
		if (i == 0)
			want = ref;
		assert_int_equal(ref.size_bytes, want.size_bytes);
		assert_memory_equal(ref.sha256, want.sha256, SHA256_BYTES);
		assert_memory_equal(ref.root, want.root, SHA256_BYTES);
	}
}

/* A gigabyte that holds one byte is two holes and a chunk, in one list. */
static void a_sparse_gigabyte_is_small(void **state)
{
	uint64_t half = 512 * MIB;
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	struct walked w = {0};
	struct content_ref ref;

	content_writer_begin(writer);
	assert_int_equal(content_writer_hole(writer, half), 0);
	assert_int_equal(content_writer_data(writer, "x", 1), 0);
	assert_int_equal(content_writer_hole(writer, half - 1), 0);
	assert_int_equal(content_writer_end(writer, &ref), 0);
	assert_int_equal(ref.size_bytes, 2 * half);
	assert_true(ref.holes);
	assert_int_equal(pieces->bytes, 1 + 3 * CONTENT_LIST_ENTRY_BYTES);

	assert_int_equal(content_walk(&ref, pieces_fetch, pieces, note_piece, &w), 0);
	assert_int_equal(w.at, 2 * half);
	assert_int_equal(w.n_pieces, 3);
	assert_int_equal(w.n_holes, 2);
	assert_int_equal(content_read(&ref, half - 1, 3, pieces_fetch, pieces, &b), 0);
	assert_int_equal(buf_len(&b), 3);
	assert_memory_equal(buf_data(&b), "\0x\0", 3);
}

/* A terabyte of hole is told in no time, and refused where too much of it would have
 * to be hashed. */
static void holes_have_a_limit(void **state)
{
	struct content_ref ref;

	content_writer_begin(writer);
	assert_int_equal(content_writer_hole(writer, CONTENT_HOLE_BYTES_MAX), 0);
	assert_int_equal(content_writer_hole(writer, 1), -EFBIG);
	assert_int_equal(content_writer_end(writer, &ref), -EFBIG);
	content_writer_begin(writer);
	assert_int_equal(content_writer_hole(writer, UINT64_MAX), -EFBIG);
	content_writer_begin(writer);
	assert_int_equal(content_writer_hole(writer, 1), 0);
	assert_int_equal(content_writer_end(writer, &ref), 0);
	assert_int_equal(ref.depth, 1);
}

static unsigned fetches;
static int counting_fetch(const uint8_t hash[SHA256_BYTES], struct buf *out, void *userdata)
{
	fetches++;
	return pieces_fetch(hash, out, userdata);
}

static void assert_extent(const struct content_ref *ref, uint64_t offset, uint64_t max, bool hole,
			  uint64_t bytes)
{
	bool is_hole = !hole;
	uint64_t n = 0;

	fetches = 0;
	assert_int_equal(content_extent(ref, offset, max, counting_fetch, pieces, &is_hole, &n), 0);
	assert_int_equal(is_hole, hole);
	assert_int_equal(n, bytes);
	assert_true(fetches <= ref->depth);
}

/* Whether data or a hole lies somewhere costs the lists that lead there, and no others. */
static void extents_cost_their_way(void **state)
{
	cleanup_free uint8_t *data = calloc(1, 4 * MIB);
	struct content_ref ref;
	uint64_t n = 60000;

	content_writer_begin(writer);
	for (uint32_t i = 0; i < n; i++) {
		put_le32(data, i);
		assert_int_equal(content_writer_data(writer, data, 4), 0);
		assert_int_equal(content_writer_hole(writer, 1), 0);
	}
	assert_int_equal(content_writer_end(writer, &ref), 0);
	assert_int_equal(ref.depth, 3);
	for (uint64_t i = 0; i < n; i += 997) {
		assert_extent(&ref, i * 5, 1, false, 1);
		assert_extent(&ref, i * 5 + 1, 3, false, 3);
		assert_extent(&ref, i * 5 + 4, 1, true, 1);
	}
	assert_extent(&ref, n * 5 - 1, MIB, true, 1);

	content_writer_begin(writer);
	assert_int_equal(content_writer_data(writer, data, 4 * MIB), 0);
	assert_int_equal(content_writer_hole(writer, 3 * MIB), 0);
	assert_int_equal(content_writer_data(writer, data, 1), 0);
	assert_int_equal(content_writer_end(writer, &ref), 0);
	assert_extent(&ref, 0, MIB, false, MIB);
	assert_extent(&ref, MIB, UINT64_MAX, false, 3 * MIB);
	assert_extent(&ref, 5 * MIB, 1, true, 2 * MIB);
	assert_extent(&ref, 7 * MIB, UINT64_MAX, false, 1);
	ref = write_whole(data, 10);
	assert_extent(&ref, 3, 5, false, 5);
	assert_extent(&ref, 3, MIB, false, 7);
}

/* Lists are cut behind a hash that ends in 0, from 32 entries on and at 1024; with
 * many pieces the tree gets higher, and no root holds a single list. */
static void lists_are_cut_as_the_format_says(void **state)
{
	size_t n = 60000;
	uint8_t data[4];
	struct content_ref ref;
	struct walked w = {0};
	struct piece *root;

	content_writer_begin(writer);
	for (uint32_t i = 0; i < n; i++) {
		put_le32(data, i);
		assert_int_equal(content_writer_data(writer, data, sizeof(data)), 0);
		assert_int_equal(content_writer_hole(writer, 1), 0);
	}
	assert_int_equal(content_writer_end(writer, &ref), 0);
	assert_int_equal(ref.depth, 3);
	assert_int_equal(pieces->n_chunks, n);
	assert_int_equal(content_walk(&ref, pieces_fetch, pieces, note_piece, &w), 0);
	assert_int_equal(w.n_pieces, 2 * n);
	assert_int_equal(w.data_bytes, 4 * n);

	root = pieces_find(pieces, ref.root);
	assert_non_null(root);
	assert_true(root->n > CONTENT_LIST_ENTRY_BYTES);
	for (size_t b = 0; b < ARRAY_SIZE(pieces->buckets); b++) {
		for (struct piece *p = pieces->buckets[b]; p; p = p->next) {
			size_t n_entries = p->n / CONTENT_LIST_ENTRY_BYTES;

			if (p->kind != FRAME_LIST)
				continue;
			assert_in_range(n_entries, 1, CONTENT_LIST_MAX);
			for (size_t i = CONTENT_LIST_MIN; i < n_entries; i++)
				assert_int_not_equal(p->data[i * CONTENT_LIST_ENTRY_BYTES - 9], 0);
		}
	}
}

/* Written zeros are no hole: they are kept, once. */
static void zeros_are_data(void **state)
{
	size_t n = 8 * MIB;
	uint8_t *data = calloc(1, n);
	struct content_ref ref = write_whole(data, n);

	assert_ref(&ref, data, n);
	assert_false(ref.holes);
	assert_int_equal(ref.depth, 1);
	assert_int_equal(pieces->n_chunks, 1);
	assert_int_equal(pieces->n_calls, 2);
	assert_range(&ref, data, 0, n);
	free(data);
}

/* When the sink fails at any call, that is the result, and the next file is fine. */
static void a_failing_sink_is_told(void **state)
{
	size_t n = 3 * MIB, n_calls;
	uint8_t *data = malloc(n);
	struct content_ref ref;
	int r;

	random_fill(data, n);
	(void)write_whole(data, n);
	n_calls = pieces->n_calls;
	for (unsigned at = 1; at <= n_calls; at++) {
		pieces->n_calls = 0;
		pieces->fail_at = at;
		content_writer_begin(writer);
		r = content_writer_data(writer, data, n / 2);
		if (r == 0)
			r = content_writer_data(writer, data + n / 2, n - n / 2);
		if (r < 0)
			assert_int_equal(content_writer_hole(writer, 1), -EIO);
		assert_int_equal(content_writer_end(writer, &ref), -EIO);
		pieces->fail_at = 0;
	}
	ref = write_whole(data, n);
	assert_ref(&ref, data, n);
	free(data);
}

/* A list with one entry for each given (hash, length). */
static void put_list(const uint8_t (*hashes)[SHA256_BYTES], const uint64_t *lens, size_t n,
		     uint8_t ret[SHA256_BYTES])
{
	uint8_t *list = malloc(n * CONTENT_LIST_ENTRY_BYTES + 1);

	for (size_t i = 0; i < n; i++) {
		memcpy(list + i * CONTENT_LIST_ENTRY_BYTES, hashes[i], SHA256_BYTES);
		put_le64(list + i * CONTENT_LIST_ENTRY_BYTES + SHA256_BYTES, lens[i]);
	}
	sha256(list, n * CONTENT_LIST_ENTRY_BYTES, ret);
	assert_int_equal(pieces_sink(FRAME_LIST, ret, list, n * CONTENT_LIST_ENTRY_BYTES, pieces),
			 0);
	free(list);
}

static void assert_refused(const struct content_ref *ref)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	struct walked w = {0};
	size_t n = (size_t)MIN(ref->size_bytes, (uint64_t)MIB);

	assert_int_equal(buf_add(&b, "x", 1), 0);
	assert_int_equal(content_read(ref, 0, n, pieces_fetch, pieces, &b), -EBADMSG);
	assert_int_equal(buf_len(&b), 1);
	if (ref->depth > 0)
		assert_int_equal(content_walk(ref, pieces_fetch, pieces, note_piece, &w), -EBADMSG);
}

/* Lists that do not add up, are not lists, hold themselves too deep or promise more
 * than there is are refused, whatever is read of them. */
static void hostile_lists_are_refused(void **state)
{
	uint8_t hashes[CONTENT_LIST_MAX + 1][SHA256_BYTES] = {{0}};
	uint64_t lens[CONTENT_LIST_MAX + 1] = {0};
	struct content_ref ref = {.size_bytes = 300, .depth = 1};
	uint8_t chunk[100], hash[SHA256_BYTES];

	random_fill(chunk, sizeof(chunk));
	sha256(chunk, sizeof(chunk), hash);
	assert_int_equal(pieces_sink(FRAME_CHUNK, hash, chunk, sizeof(chunk), pieces), 0);
	for (size_t i = 0; i < ARRAY_SIZE(hashes); i++)
		memcpy(hashes[i], hash, SHA256_BYTES);

	/* The sound one first. */
	lens[0] = lens[1] = lens[2] = 100;
	put_list(hashes, lens, 3, ref.root);
	{
		_cleanup_(buf_done) struct buf b = BUF_INIT(0);

		assert_int_equal(content_read(&ref, 0, 300, pieces_fetch, pieces, &b), 0);
		assert_int_equal(buf_len(&b), 300);
	}
	ref.size_bytes = 299;
	assert_refused(&ref);
	ref.size_bytes = 301;
	assert_refused(&ref);
	ref.size_bytes = UINT64_MAX;
	assert_refused(&ref);
	ref.size_bytes = 300;
	ref.depth = CONTENT_DEPTH_MAX + 1;
	assert_refused(&ref);
	ref.depth = 2; /* chunks taken for lists */
	assert_refused(&ref);
	ref.depth = 1;

	lens[2] = 0;
	lens[3] = 100;
	put_list(hashes, lens, 4, ref.root); /* an empty piece */
	assert_refused(&ref);
	lens[2] = UINT64_MAX - 99; /* a hole that wraps around to the right sum */
	lens[3] = 200;
	memset(hashes[2], 0, SHA256_BYTES);
	put_list(hashes, lens, 4, ref.root);
	assert_refused(&ref);
	memcpy(hashes[2], hash, SHA256_BYTES);
	for (lens[0] = 99; lens[0] <= 101; lens[0] += 2) { /* not the chunk's length */
		_cleanup_(buf_done) struct buf b = BUF_INIT(0);

		ref.size_bytes = lens[0];
		put_list(hashes, lens, 1, ref.root);
		assert_int_equal(content_read(&ref, 0, 300, pieces_fetch, pieces, &b), -EBADMSG);
	}
	lens[0] = CHUNK_MAX + 1; /* no chunk is that long */
	ref.size_bytes = lens[0];
	put_list(hashes, lens, 1, ref.root);
	assert_refused(&ref);

	for (size_t i = 0; i < ARRAY_SIZE(lens); i++)
		lens[i] = 100;
	ref.size_bytes = 100 * ARRAY_SIZE(lens);
	put_list(hashes, lens, ARRAY_SIZE(lens), ref.root); /* too many */
	assert_refused(&ref);
	ref.size_bytes = 100;
	memcpy(ref.root, hash, SHA256_BYTES); /* no whole number of entries */
	ref.depth = 1;
	assert_refused(&ref);

	memset(hashes[0], 0, SHA256_BYTES); /* a hole where a list has to be */
	put_list(hashes, lens, 1, ref.root);
	ref.depth = 2;
	assert_refused(&ref);
	ref.size_bytes = 0;
	{
		struct walked w = {0};

		assert_int_equal(content_walk(&ref, pieces_fetch, pieces, note_piece, &w),
				 -EBADMSG);
	}
}

static int forget_piece(const uint8_t *hash, uint64_t offset, uint64_t len, void *userdata)
{
	pieces_find(pieces, hash)->hash[0] ^= 1;
	return 1;
}

/* A piece that is missing is -ENOENT, and nothing is appended. */
static void a_missing_piece_is_told(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	uint8_t *data = malloc(2 * MIB);
	struct content_ref ref, last;

	random_fill(data, 2 * MIB);
	last = write_whole(data + 2 * MIB - 1000, 1000);
	content_writer_begin(writer);
	assert_int_equal(content_writer_data(writer, data, 2 * MIB - 1000), 0);
	assert_int_equal(content_writer_hole(writer, 1), 0);
	assert_int_equal(content_writer_data(writer, data + 2 * MIB - 1000, 1000), 0);
	assert_int_equal(content_writer_end(writer, &ref), 0);
	assert_int_equal(content_read(&ref, 0, SIZE_MAX, pieces_fetch, pieces, &b), 0);
	assert_int_equal(buf_len(&b), 2 * MIB + 1);

	buf_clear(&b);
	assert_int_equal(content_walk(&last, pieces_fetch, pieces, forget_piece, NULL), 1);
	assert_int_equal(content_read(&ref, 0, SIZE_MAX, pieces_fetch, pieces, &b), -ENOENT);
	assert_int_equal(buf_len(&b), 0);
	assert_int_equal(content_read(&ref, 0, MIB, pieces_fetch, pieces, &b), 0);
	free(data);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(sizes_come_back),
		TEST(parts_make_no_difference),
		TEST(an_insertion_changes_little),
		TEST(random_reads_are_right),
		TEST(zeros_hashed_ahead),
		TEST(a_sparse_gigabyte_is_small),
		TEST(holes_have_a_limit),
		TEST(extents_cost_their_way),
		TEST(lists_are_cut_as_the_format_says),
		TEST(zeros_are_data),
		TEST(a_failing_sink_is_told),
		TEST(hostile_lists_are_refused),
		TEST(a_missing_piece_is_told),
	};

	return cmocka_run_group_tests_name("content", tests, NULL, NULL);
}
