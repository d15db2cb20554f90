#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <zstd.h>

#include "journal/pack.h"
#include "tests/unit/content-fixture.h"
#include "tests/unit/scratch.h"

/* A pack under test: what went into it, where. */
struct placed {
	uint8_t hash[SHA256_BYTES];
	uint64_t offset;
	size_t n;
	uint8_t *data;
};

static int pack_fd = -1;
static uint64_t pack_end;
static struct placed placed[600];
static size_t n_placed;

static int setup(void **state)
{
	struct pack_header h = {.pack_id = "0123456789abcde"};
	uint8_t bytes[PACK_HEADER_BYTES];

	if (scratch_setup(state) < 0)
		return -1;
	random_state = 3;
	pack_fd = openat(scratch, "p", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	pack_header_seal(&h, bytes);
	pack_end = PACK_HEADER_BYTES;
	n_placed = 0;
	return pwrite(pack_fd, bytes, sizeof(bytes), 0) == sizeof(bytes) ? 0 : -1;
}

static int teardown(void **state)
{
	for (size_t i = 0; i < n_placed; i++)
		free(placed[i].data);
	(void)close(pack_fd);
	return scratch_teardown(state);
}

static void write_frame(struct frame_builder *fb)
{
	struct frame f;

	assert_int_equal(frame_builder_finish(fb, &f), 0);
	assert_int_equal(f.n % 8, 0);
	assert_int_equal(pwrite(pack_fd, f.bytes, f.n, (off_t)pack_end), f.n);
	for (size_t i = n_placed - f.n_members; i < n_placed; i++)
		placed[i].offset = pack_end;
	pack_end += f.n;
}

/* Random bytes, or text-like ones that shrink. */
static int add(struct frame_builder *fb, size_t n, bool random)
{
	struct placed *p = &placed[n_placed];
	int r;

	p->n = n;
	p->data = malloc(n);
	for (size_t i = 0; i < n; i++)
		p->data[i] = (uint8_t)(random ? random_next() >> 32 : 'a' + random_below(4));
	sha256(p->data, n, p->hash);
	r = frame_builder_add(fb, FRAME_CHUNK, p->hash, p->data, n);
	if (r >= 0)
		n_placed++;
	else
		free(p->data);
	return r;
}

static struct frame_builder *builder(void)
{
	struct frame_builder *fb;

	assert_int_equal(frame_builder_new(1, &fb), 0);
	assert_true(frame_builder_empty(fb));
	return fb;
}

static void assert_reads(const struct placed *p)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	assert_int_equal(frame_read_member(pack_fd, p->offset, p->hash, &b), 0);
	assert_int_equal(buf_len(&b), p->n);
	assert_memory_equal(buf_data(&b), p->data, p->n);
}

/* A header tells the ids it was made with; any damage to what counts is seen. */
static void headers_tell_damage(void **state)
{
	struct pack_header h = {0}, got;
	uint8_t bytes[PACK_HEADER_BYTES], bad[PACK_HEADER_BYTES];

	random_fill(h.pack_id, 16);
	random_fill(h.env_id, 16);
	pack_header_seal(&h, bytes);
	assert_memory_equal(bytes, "LIMBPAK\n\1\0\0\0\x40\0\0\0", 16);
	assert_int_equal(pack_header_parse(bytes, &got), 0);
	assert_memory_equal(&got, &h, sizeof(h));
	for (size_t i = 0; i < sizeof(bytes); i++) {
		memcpy(bad, bytes, sizeof(bad));
		bad[i] ^= 0x10;
		assert_int_equal(pack_header_parse(bad, &got), -EBADMSG);
	}
	/* A later version, sealed as ours is. */
	memcpy(bad, bytes, sizeof(bad));
	bad[8] = 2;
	{
		uint8_t hash[SHA256_BYTES];

		sha256(bad, 56, hash);
		memcpy(bad + 56, hash, 8);
	}
	assert_int_equal(pack_header_parse(bad, &got), -EPROTONOSUPPORT);
}

/* Contents small and large, that shrink or not, come back from their frames. */
static void contents_come_back(void **state)
{
	static const size_t sizes[] = {1, 7, 100, 4096, 100000, FRAME_TARGET, FRAME_RAW_MAX};
	_cleanup_(frame_builder_freep) struct frame_builder *fb = builder();
	struct frame f;

	assert_int_equal(frame_builder_finish(fb, &f), -ENODATA);
	for (unsigned round = 0; round < 40; round++) {
		size_t n = sizes[random_below(ARRAY_SIZE(sizes))];
		int r = add(fb, n, random_below(2));

		if (r == -E2BIG) {
			assert_false(frame_builder_empty(fb));
			write_frame(fb);
			assert_true(frame_builder_empty(fb));
			r = add(fb, n, random_below(2));
		}
		assert_in_range(r, 0, 1);
		if (r == 1)
			write_frame(fb);
	}
	if (!frame_builder_empty(fb))
		write_frame(fb);
	for (size_t i = 0; i < n_placed; i++)
		assert_reads(&placed[i]);
}

/* A frame holds at most so many contents and bytes; too much is refused. */
static void frames_have_limits(void **state)
{
	_cleanup_(frame_builder_freep) struct frame_builder *fb = builder();
	uint8_t *big = calloc(1, FRAME_RAW_MAX + 1), hash[SHA256_BYTES] = {1};
	struct frame f;

	assert_int_equal(frame_builder_add(fb, FRAME_CHUNK, hash, big, FRAME_RAW_MAX + 1), -EINVAL);
	assert_int_equal(frame_builder_add(fb, FRAME_CHUNK, hash, big, 0), -EINVAL);
	assert_int_equal(frame_builder_add(fb, 3, hash, big, 1), -EINVAL);
	for (size_t i = 1; i < FRAME_MEMBERS_MAX; i++)
		assert_int_equal(frame_builder_add(fb, FRAME_LIST, hash, big, 1), 0);
	assert_int_equal(frame_builder_add(fb, FRAME_LIST, hash, big, 1), 1);
	assert_int_equal(frame_builder_add(fb, FRAME_LIST, hash, big, 1), -E2BIG);
	assert_int_equal(frame_builder_finish(fb, &f), 0);
	assert_int_equal(f.n_members, FRAME_MEMBERS_MAX);
	assert_int_equal(frame_builder_add(fb, FRAME_CHUNK, hash, big, 1), 0);
	assert_int_equal(frame_builder_add(fb, FRAME_CHUNK, hash, big, FRAME_RAW_MAX), -E2BIG);
	assert_int_equal(frame_builder_finish(fb, &f), 0);
	assert_int_equal(f.n_members, 1);
	assert_int_equal(frame_builder_add(fb, FRAME_CHUNK, hash, big, FRAME_RAW_MAX), 1);
	assert_int_equal(frame_builder_finish(fb, &f), 0);
	assert_true(f.n < 1000); /* zeros shrink */
	free(big);
}

/* What does not shrink takes its own size and the header's. */
static void noise_is_stored_as_it_is(void **state)
{
	_cleanup_(frame_builder_freep) struct frame_builder *fb = builder();
	uint8_t header[FRAME_HEADER_BYTES];
	struct frame_info info;

	(void)add(fb, 100000, true);
	write_frame(fb);
	assert_int_equal(pack_end,
			 PACK_HEADER_BYTES + FRAME_HEADER_BYTES + FRAME_MEMBER_BYTES + 100000);
	assert_int_equal(pread(pack_fd, header, sizeof(header), PACK_HEADER_BYTES), sizeof(header));
	assert_int_equal(frame_header_parse(header, &info), 0);
	assert_int_equal(info.codec, 0);
	assert_int_equal(info.total, pack_end - PACK_HEADER_BYTES);
	assert_reads(&placed[0]);
}

struct seen {
	size_t n_frames, n_members;
	uint64_t at;
	size_t stop_after;
};

static int see(uint64_t offset, const struct frame_info *info, const struct frame_member *members,
	       size_t n, void *userdata)
{
	struct seen *s = userdata;

	if (offset != s->at || n != info->n_members)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		const struct placed *p = &placed[s->n_members++];

		if (p->offset != offset || p->n != members[i].len ||
		    memcmp(p->hash, members[i].hash, SHA256_BYTES) != 0)
			return -EINVAL;
	}
	s->at += info->total;
	return ++s->n_frames == s->stop_after ? 17 : 0;
}

/* Six frames, some with many members. */
static void fill_pack(void)
{
	_cleanup_(frame_builder_freep) struct frame_builder *fb = builder();

	for (unsigned i = 0; i < 6; i++) {
		size_t n = i % 2 ? 20 : 1 + random_below(4);

		for (size_t k = 0; k < n; k++)
			assert_int_equal(add(fb, 1 + random_below(300), i < 3), 0);
		write_frame(fb);
	}
}

/* A walk meets every frame in order and ends at the end of file, at zeros, or where
 * told. */
static void a_walk_meets_all(void **state)
{
	struct seen s = {.at = PACK_HEADER_BYTES};
	uint64_t end;
	bool damaged;

	fill_pack();
	assert_int_equal(pack_walk(pack_fd, s.at, see, &s, &end, &damaged), 0);
	assert_int_equal(s.n_frames, 6);
	assert_int_equal(s.n_members, n_placed);
	assert_int_equal(end, pack_end);
	assert_false(damaged);
	for (off_t zeros = 1; zeros < 100; zeros += 7) {
		s = (struct seen){.at = PACK_HEADER_BYTES};
		assert_int_equal(ftruncate(pack_fd, (off_t)pack_end + zeros), 0);
		assert_int_equal(pack_walk(pack_fd, s.at, see, &s, &end, &damaged), 0);
		assert_int_equal(end, pack_end);
		assert_false(damaged);
	}
	s = (struct seen){.at = PACK_HEADER_BYTES, .stop_after = 3};
	assert_int_equal(pack_walk(pack_fd, s.at, see, &s, &end, &damaged), 17);
	assert_int_equal(s.n_frames, 3);
	assert_int_equal(end, placed[s.n_members - 1].offset);
}

/* Cut at any byte of its last frame, a pack has the frames before it. */
static void a_walk_ends_at_a_torn_frame(void **state)
{
	uint64_t last;

	fill_pack();
	last = placed[n_placed - 1].offset;
	for (uint64_t size = pack_end - 1; size >= last; size--) {
		struct seen s = {.at = PACK_HEADER_BYTES};
		uint64_t end;
		bool damaged;

		assert_int_equal(ftruncate(pack_fd, (off_t)size), 0);
		assert_int_equal(pack_walk(pack_fd, s.at, see, &s, &end, &damaged), 0);
		assert_int_equal(s.n_frames, 5);
		assert_int_equal(end, last);
		assert_int_equal(damaged, size > last);
	}
}

/* With any one byte changed, a content is read right or not at all. */
static void no_flip_gives_wrong_bytes(void **state)
{
	size_t n_right = 0, n_refused = 0;

	fill_pack();
	for (uint64_t at = PACK_HEADER_BYTES; at < pack_end; at++) {
		uint8_t byte, bad;

		assert_int_equal(pread(pack_fd, &byte, 1, (off_t)at), 1);
		bad = byte ^ (uint8_t)(1u << random_below(8));
		assert_int_equal(pwrite(pack_fd, &bad, 1, (off_t)at), 1);
		for (size_t i = 0; i < n_placed; i++) {
			_cleanup_(buf_done) struct buf b = BUF_INIT(0);
			uint64_t next = placed[i].offset + 4000; /* no frame is longer */
			int r;

			/* All of them is too much: some of this frame, few of others. */
			if (random_below(placed[i].offset <= at && at < next ? 4 : 100))
				continue;
			r = frame_read_member(pack_fd, placed[i].offset, placed[i].hash, &b);
			if (r == 0) {
				assert_int_equal(buf_len(&b), placed[i].n);
				assert_memory_equal(buf_data(&b), placed[i].data, placed[i].n);
				n_right++;
			} else {
				assert_true(r == -EBADMSG || r == -EPROTONOSUPPORT || r == -ENOENT);
				assert_int_equal(buf_len(&b), 0);
				n_refused++;
			}
		}
		assert_int_equal(pwrite(pack_fd, &byte, 1, (off_t)at), 1);
	}
	assert_true(n_right > 0 && n_refused > 0);
	for (size_t i = 0; i < n_placed; i++)
		assert_reads(&placed[i]);
}

static void reseal(uint8_t *frame)
{
	uint8_t hash[SHA256_BYTES];

	sha256(frame + FRAME_HEADER_BYTES, get_le16(frame + 6) * FRAME_MEMBER_BYTES, hash);
	memcpy(frame + 16, hash, 8);
	sha256(frame, 32, hash);
	memcpy(frame + 32, hash, 8);
}

static void assert_frame_refused(const uint8_t *frame, size_t n, const uint8_t *hash)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	int r;

	assert_int_equal(pwrite(pack_fd, frame, n, PACK_HEADER_BYTES), n);
	r = frame_read_member(pack_fd, PACK_HEADER_BYTES, hash, &b);
	assert_true(r == -EBADMSG || r == -EPROTONOSUPPORT);
	assert_int_equal(buf_len(&b), 0);
	assert_true(b.cap <= 4096);
}

/* Frames that lie, with every check in order, are refused; one that unpacks to more
 * than it says costs no more memory than it says. */
static void lying_frames_are_refused(void **state)
{
	_cleanup_(frame_builder_freep) struct frame_builder *fb = builder();
	static uint8_t good[8192], bad[65536 * FRAME_MEMBER_BYTES], raw[16 << 20];
	struct frame f;
	uint8_t *hash = placed[0].hash;
	size_t n, z;

	(void)add(fb, 3000, false);
	(void)add(fb, 1000, false);
	assert_int_equal(frame_builder_finish(fb, &f), 0);
	n = f.n;
	assert_true(n < sizeof(good));
	memcpy(good, f.bytes, n);
	assert_int_equal(good[5], 1);

	static const struct {
		unsigned at, bytes, value;
	} lies[] = {
		{4, 1, 2}, /* version */
		{5, 1, 0}, /* stored, at a compressed length */
		{5, 1, 2}, /* codec */
		{6, 2, 0}, /* members */
		{6, 2, 1},
		{6, 2, 3},
		{6, 2, 1025},
		{6, 2, 65535},
		{8, 4, 0},
		{8, 4, 1},
		{8, 4, 5000},
		{8, 4, 0xffffffff}, /* as stored */
		{12, 4, 0},
		{12, 4, 3999},
		{12, 4, 4001},
		{12, 4, FRAME_RAW_MAX + 1},
		{12, 4, 0xffffffff}, /* as it is */
		{40 + 32, 4, 0},
		{40 + 32, 4, 2999},
		{40 + 32, 4, 0xffffffff}, /* a member's */
		{40 + 36, 1, 0},
		{40 + 36, 1, 3}, /* kind */
	};
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		memcpy(bad, good, sizeof(good));
		for (unsigned k = 0; k < lies[i].bytes; k++)
			bad[lies[i].at + k] = (uint8_t)(lies[i].value >> 8 * k);
		reseal(bad);
		assert_frame_refused(bad, n, hash);
	}

	/* Lengths of members that only wrap around to the right sum. */
	memcpy(bad, good, sizeof(good));
	put_le32(bad + 40 + 32, 0xffffffff);
	put_le32(bad + 80 + 32, 4001);
	reseal(bad);
	assert_frame_refused(bad, n, hash);

	/* 16 MiB of zeros in a payload that says 4000 bytes. */
	memcpy(bad, good, sizeof(good));
	z = ZSTD_compress(bad + 120, sizeof(bad) - 120, raw, sizeof(raw), 3);
	assert_in_range(z, 1, 3999);
	put_le32(bad + 8, (uint32_t)z);
	reseal(bad);
	assert_frame_refused(bad, ALIGN_UP(120 + z, (size_t)8), hash);

	/* And the good one is read. */
	assert_int_equal(pwrite(pack_fd, good, n, PACK_HEADER_BYTES), n);
	placed[0].offset = placed[1].offset = PACK_HEADER_BYTES;
	assert_reads(&placed[0]);
	assert_reads(&placed[1]);
}

/* A frame that is sound but larger than any may be. */
static void a_huge_frame_is_refused(void **state)
{
	size_t n = FRAME_RAW_MAX + 8;
	uint8_t *frame = calloc(1, FRAME_HEADER_BYTES + FRAME_MEMBER_BYTES + n);

	memcpy(frame, "LFRM\1\0\1\0", 8);
	put_le32(frame + 8, (uint32_t)n);
	put_le32(frame + 12, (uint32_t)n);
	put_le32(frame + FRAME_HEADER_BYTES + 32, (uint32_t)n);
	frame[FRAME_HEADER_BYTES + 36] = FRAME_CHUNK;
	sha256(frame + FRAME_HEADER_BYTES + FRAME_MEMBER_BYTES, n, frame + FRAME_HEADER_BYTES);
	reseal(frame);
	assert_frame_refused(frame, FRAME_HEADER_BYTES + FRAME_MEMBER_BYTES + n,
			     frame + FRAME_HEADER_BYTES);
	free(frame);
}

/* Not there is told apart from damaged. */
static void an_unknown_hash_is_not_found(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	const uint8_t hash[SHA256_BYTES] = {9};

	fill_pack();
	assert_int_equal(frame_read_member(pack_fd, PACK_HEADER_BYTES, hash, &b), -ENOENT);
	assert_int_equal(frame_read_member(pack_fd, pack_end, placed[0].hash, &b), -EBADMSG);
	assert_int_equal(frame_read_member(pack_fd, placed[0].offset + 8, placed[0].hash, &b),
			 -EBADMSG);
	assert_int_equal(buf_len(&b), 0);
}

static void *read_all(void *arg)
{
	unsigned *n_wrong = arg;

	for (unsigned round = 0; round < 10; round++) {
		for (size_t i = 0; i < n_placed; i++) {
			_cleanup_(buf_done) struct buf b = BUF_INIT(0);

			if (frame_read_member(pack_fd, placed[i].offset, placed[i].hash, &b) < 0 ||
			    buf_len(&b) != placed[i].n ||
			    memcmp(buf_data(&b), placed[i].data, placed[i].n) != 0)
				(*n_wrong)++;
		}
	}
	return NULL;
}

/* Many threads read one pack. */
static void threads_read_together(void **state)
{
	unsigned n_wrong[8] = {0};
	pthread_t threads[8];

	fill_pack();
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, read_all, &n_wrong[i]), 0);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_equal(n_wrong[i], 0);
	}
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(headers_tell_damage),	 TEST(contents_come_back),
		TEST(frames_have_limits),	 TEST(noise_is_stored_as_it_is),
		TEST(a_walk_meets_all),		 TEST(a_walk_ends_at_a_torn_frame),
		TEST(no_flip_gives_wrong_bytes), TEST(lying_frames_are_refused),
		TEST(a_huge_frame_is_refused),	 TEST(an_unknown_hash_is_not_found),
		TEST(threads_read_together),
	};

	return cmocka_run_group_tests_name("pack", tests, NULL, NULL);
}
