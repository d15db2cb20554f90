#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/file.h"
#include "tests/unit/store-fixture.h"

struct image {
	struct test_pack pack;
	uint8_t *bytes; /* the whole pack, three frames */
	uint64_t third; /* offset of the third */
	size_t n_two;	/* contents in the first two */
};

static void make_image(struct image *im)
{
	struct store *st = open_store(STORE_WRITE);

	assert_int_equal(pack_begin(st, &im->pack, 1 << 14), 0);
	assert_int_equal(pack_put(st, &im->pack, 3, 200), 0);
	assert_int_equal(pack_put(st, &im->pack, 4, 200), 0);
	im->third = im->pack.end;
	im->n_two = n_contents;
	assert_int_equal(pack_put(st, &im->pack, 2, 100), 0);
	assert_int_equal(pack_close(st, &im->pack), 0);
	im->bytes = calloc(1, 1 << 14);
	im->pack.fd = openat(scratch, pack_path(im->pack.id), O_RDONLY | O_CLOEXEC);
	assert_int_equal(pread(im->pack.fd, im->bytes, im->pack.end, 0), im->pack.end);
	(void)close(im->pack.fd);
	store_close(st);
}

/* The pack as it was while it was being filled, n bytes of it written. */
static void put_image(const struct image *im, const uint8_t *bytes, size_t n, size_t size,
		      mode_t mode)
{
	const char *path = pack_path(im->pack.id);
	int fd;

	(void)unlinkat(scratch, path, 0);
	fd = openat(scratch, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, n, 0), n);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	(void)close(fd);
}

static void note_bad(const char *pack, uint64_t offset, const uint8_t *hash, int error,
		     void *userdata)
{
	++*(unsigned *)userdata;
}

static unsigned count_bad(struct store *st)
{
	unsigned n = 0;

	assert_int_equal(store_check(st, note_bad, &n), 0);
	return n;
}

/* Whether the third frame is whole: zeros may stand for its padding. */
static bool is_whole(const struct image *im, uint64_t cut, bool filled)
{
	if (filled)
		while (cut < im->pack.end && im->bytes[cut] == 0)
			cut++;
	return cut == im->pack.end;
}

static void assert_third(struct store *st, const struct image *im, bool whole)
{
	struct store_place place;

	assert_int_equal(contents_check(st, 0, im->n_two), 0);
	for (size_t i = im->n_two; i < n_contents; i++)
		assert_int_equal(store_lookup(st, contents[i].hash, &place), whole ? 0 : -ENOENT);
	assert_int_equal(count_bad(st), 0);
}

static void assert_more_can_be_added(struct store *st)
{
	size_t before = n_contents;
	struct test_pack more;

	assert_int_equal(pack_begin(st, &more, 0), 0);
	assert_int_equal(pack_put(st, &more, 3, 100), 0);
	assert_int_equal(contents_check(st, before, n_contents), 0);
	assert_int_equal(pack_close(st, &more), 0);
	assert_int_equal(unlinkat(scratch, pack_path(more.id), 0), 0);
	contents_forget(before);
}

/* Cut at each byte of its last frame, with and without zeros ahead: what came before
 * is there, the torn frame is not. A writer cuts it off, seals the pack, and more can
 * be added. */
static void a_torn_tail_is_cut(void **state)
{
	struct image im;

	make_image(&im);
	for (uint64_t i = 2 * im.third; i <= 2 * im.pack.end + 1; i++) {
		uint64_t cut = i / 2;
		bool filled = i % 2, whole = is_whole(&im, cut, filled);
		struct store *st;
		struct stat sb;

		forget_index();
		put_image(&im, im.bytes, cut, filled ? 1 << 14 : cut, 0600);
		st = open_store(STORE_COPY);
		assert_third(st, &im, whole);
		store_close(st);
		if (i % 15 != 0 && cut > im.third && cut + 1 < im.pack.end)
			continue;
		st = open_store(STORE_WRITE);
		assert_third(st, &im, whole);
		assert_int_equal(fstatat(scratch, pack_path(im.pack.id), &sb, 0), 0);
		assert_int_equal(sb.st_mode & 07777, 0400);
		assert_int_equal(sb.st_size, whole ? im.pack.end : im.third);
		assert_more_can_be_added(st);
		store_close(st);
	}
	free(im.bytes);
}

static int know_two_frames(void *arg)
{
	const struct image *im = arg;
	struct store *st;
	struct test_pack p;

	if (store_open(scratch, STORE_WRITE, &st) < 0 || pack_begin(st, &p, 1 << 14) < 0)
		return 1;
	if (pwrite(p.fd, im->bytes + PACK_HEADER_BYTES, im->third - PACK_HEADER_BYTES,
		   PACK_HEADER_BYTES) < 0)
		return 2;
	for (size_t i = 0; i < im->n_two; i++) {
		struct store_place place = contents[i].place;

		memcpy(place.pack_id, p.id, 16);
		if (store_add(st, &place, 1) < 0)
			return 3;
	}
	/* Torn: all of the third frame but its first bytes. */
	if (pwrite(p.fd, im->bytes + im->third + 8, im->pack.end - im->third - 8,
		   (off_t)im->third + 8) < 0)
		return 4;
	/* And one that was written, and not added. */
	if (pwrite(p.fd, im->bytes + im->third, im->pack.end - im->third, (off_t)im->pack.end) < 0)
		return 5;
	return 0;
}

/* Behind what a trusted table knows of an open pack, frames that are whole are found,
 * also behind one that is not, which is then blank. */
static void the_tail_behind_the_table_is_walked(void **state)
{
	struct store_place place;
	struct image im;
	struct store *st;

	make_image(&im);
	assert_int_equal(unlinkat(scratch, pack_path(im.pack.id), 0), 0);
	forget_index();
	assert_int_equal(child_run(know_two_frames, &im), 0);
	st = open_store(STORE_WRITE);
	assert_true(has("index.1"));
	assert_false(has("index.2"));
	assert_int_equal(contents_check(st, 0, n_contents), 0);
	assert_int_equal(store_lookup(st, contents[n_contents - 1].hash, &place), 0);
	assert_int_equal(place.offset, im.pack.end);
	assert_int_equal(count_bad(st), 0);
	store_close(st);
	free(im.bytes);
}

static unsigned frame_of(const struct image *im, size_t i)
{
	return i < 3 ? 0 : i < im->n_two ? 1 : 2;
}

static uint64_t frame_end(const struct image *im, unsigned frame)
{
	return frame == 0 ? contents[3].place.offset : frame == 1 ? im->third : im->pack.end;
}

/* With any byte of a pack changed, contents come back right or not at all, and those
 * of other frames always do: by the table, by one made again, and in a copy. What is
 * lost is told by the check. */
static void a_damaged_pack_loses_one_frame(void **state)
{
	struct image im;

	make_image(&im);
	for (uint64_t at = PACK_HEADER_BYTES; at < im.pack.end; at += 1 + random_below(6)) {
		enum store_mode mode = random_below(5) ? STORE_COPY : STORE_WRITE;
		bool sealed = random_below(2), lost = false;
		uint8_t byte = im.bytes[at];
		struct store *st;

		im.bytes[at] ^= (uint8_t)(1u << random_below(8));
		put_image(&im, im.bytes, im.pack.end, im.pack.end, sealed ? 0400 : 0600);
		if (random_below(2))
			forget_index();
		st = open_store(mode);
		for (size_t i = 0; i < n_contents; i++) {
			unsigned frame = frame_of(&im, i);
			int r = content_check(st, &contents[i]);

			if (at < contents[i].place.offset || at >= frame_end(&im, frame))
				assert_int_equal(r, 0);
			else
				assert_true(r == 0 || r == -ENOENT || r == -EBADMSG);
			lost |= r != 0;
		}
		if (lost && sealed)
			assert_true(count_bad(st) > 0);
		store_close(st);
		im.bytes[at] = byte;
	}
	free(im.bytes);
}

/* Bytes inside of a content that look like a frame are not believed, not even when
 * the frame around them is damaged: what they claim to hold can be stored later. */
static void a_frame_in_a_content_is_not_believed(void **state)
{
	_cleanup_(frame_builder_freep) struct frame_builder *fb = NULL;
	struct test_pack p, outer;
	struct store_place place;
	struct content *c;
	struct frame f;
	struct store *st;
	uint8_t bad = 'x', inner[2000] = {0};
	size_t n;

	assert_int_equal(frame_builder_new(1, &fb), 0);
	st = open_store(STORE_WRITE);
	assert_int_equal(pack_begin(st, &outer, 0), 0);
	/* The victim's frame, with other bytes in it. */
	p = outer;
	assert_int_equal(frame_make(fb, &p, 1, 500, &f), 0);
	memcpy(inner, f.bytes, f.n);
	inner[f.n - 40] ^= 1;
	contents[0].place.pack_id[0] = 0;
	n = f.n;

	/* That as a content, in a frame that then loses its magic. */
	c = &contents[n_contents++];
	c->n = n;
	c->data = malloc(n);
	memcpy(c->data, inner, n);
	sha256(c->data, n, c->hash);
	assert_int_equal(frame_builder_add(fb, FRAME_CHUNK, c->hash, c->data, n), 0);
	assert_int_equal(frame_builder_finish(fb, &f), 0);
	assert_int_equal(frame_write(&outer, &f), 0);
	assert_int_equal(pwrite(outer.fd, &bad, 1, PACK_HEADER_BYTES), 1);
	assert_int_equal(pack_close(st, &outer), 0);
	store_close(st);

	forget_index();
	st = open_store(STORE_WRITE);
	assert_int_equal(store_lookup(st, contents[0].hash, &place), -ENOENT);
	assert_int_equal(pack_begin(st, &p, 0), 0);
	assert_int_equal(frame_builder_add(fb, FRAME_CHUNK, contents[0].hash, contents[0].data,
					   contents[0].n),
			 0);
	assert_int_equal(frame_builder_finish(fb, &f), 0);
	memcpy(place.hash, contents[0].hash, SHA256_BYTES);
	memcpy(place.pack_id, p.id, 16);
	place.offset = p.end;
	place.len = (uint32_t)contents[0].n;
	place.kind = FRAME_CHUNK;
	assert_int_equal(frame_write(&p, &f), 0);
	assert_int_equal(store_add(st, &place, 1), 0);
	assert_int_equal(content_check(st, &contents[0]), 0);
	assert_int_equal(pack_close(st, &p), 0);
	store_close(st);
}

/* A pack that somebody still writes to is neither cut, sealed nor mended; later it is. */
static void a_busy_pack_is_left_alone(void **state)
{
	struct store *st = open_store(STORE_WRITE);
	char junk[64] = "bytes that are no frame", got[64];
	struct test_pack p;
	struct stat sb;
	off_t at;

	assert_int_equal(pack_begin(st, &p, 5000), 0);
	assert_int_equal(pack_put(st, &p, 3, 100), 0);
	store_close(st);
	at = (off_t)p.end;
	assert_int_equal(pwrite(p.fd, junk, sizeof(junk), at), sizeof(junk));
	p.end += sizeof(junk);
	assert_int_equal(pack_put(NULL, &p, 3, 100), 0);
	for (unsigned busy = 2; busy-- > 0;) {
		int fd;

		st = open_store(STORE_WRITE);
		assert_int_equal(fstatat(scratch, pack_path(p.id), &sb, 0), 0);
		assert_int_equal(sb.st_size, busy ? 5000 : p.end);
		assert_int_equal(sb.st_mode & 07777, busy ? 0600 : 0400);
		assert_int_equal(contents_check(st, 0, n_contents), 0);
		store_close(st);
		fd = openat(scratch, pack_path(p.id), O_RDONLY | O_CLOEXEC);
		assert_int_equal(pread(fd, got, sizeof(got), at), sizeof(got));
		if (!busy)
			memset(junk, 0, sizeof(junk));
		assert_memory_equal(got, junk, sizeof(junk));
		(void)close(fd);
		if (busy)
			(void)close(p.fd);
	}
}

/* A pack of a later version stops the store from being opened, and is not touched. */
static void a_later_version_is_refused(void **state)
{
	uint8_t hash[SHA256_BYTES];
	struct store *st;
	struct image im;
	struct stat sb;

	make_image(&im);
	im.bytes[8] = 2;
	sha256(im.bytes, 56, hash);
	memcpy(im.bytes + 56, hash, 8);
	put_image(&im, im.bytes, im.pack.end, 1 << 14, 0600);
	forget_index();
	assert_int_equal(store_open(scratch, STORE_WRITE, &st), -EPROTONOSUPPORT);
	assert_int_equal(store_open(scratch, STORE_COPY, &st), -EPROTONOSUPPORT);
	assert_int_equal(store_open(scratch, STORE_READ, &st), -ENOENT);
	assert_int_equal(fstatat(scratch, pack_path(im.pack.id), &sb, 0), 0);
	assert_int_equal(sb.st_size, 1 << 14);
	free(im.bytes);
}

/* ---- copies ---- */

static void copy_pack(int from, const char *name, int to)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	struct stat sb;

	assert_int_equal(file_read(from, name, &b), 0);
	assert_int_equal(file_replace(to, name, buf_data(&b), buf_len(&b)), 0);
	assert_int_equal(fstatat(from, name, &sb, 0), 0);
	assert_int_equal(fchmodat(to, name, sb.st_mode & 07777, 0), 0);
}

static size_t count_names(int dir, const char *path)
{
	char **names;
	size_t n;

	assert_int_equal(file_list(dir, path, 1000, &names, &n), 0);
	file_names_free(names, n);
	return n;
}

/* A copy of a store at work is read without anything being made or changed in it,
 * with its table missing or garbage, and its packs open. */
static void a_copy_is_read_and_not_touched(void **state)
{
	struct store *st = open_store(STORE_WRITE);
	cleanup_close int copy = -1, packs = -1, copy_packs = -1, index = -1;
	struct store_place sealed, place;
	struct store_counts counts;
	char **names;
	struct test_pack p;
	uint64_t seed;
	struct store *c;
	size_t n;

	assert_int_equal(pack_begin(st, &p, 1 << 16), 0);
	seed = random_state;
	assert_int_equal(pack_put(st, &p, 300, 400), 0);
	assert_int_equal(pack_close(st, &p), 0);
	sealed = contents[5].place;
	assert_int_equal(pack_begin(st, &p, 1 << 17), 0);
	assert_int_equal(pack_put(st, &p, 200, 400), 0);
	/* The same contents as before, once more. */
	random_state = seed;
	assert_int_equal(pack_put(NULL, &p, 300, 400), 0);
	contents_forget(500);

	assert_int_equal(file_make_dir(scratch, "copy"), 0);
	copy = file_open_dir(scratch, "copy");
	assert_int_equal(file_make_dir(copy, "packs"), 0);
	assert_int_equal(file_make_dir(copy, "index.1"), 0);
	packs = file_open_dir(scratch, "packs");
	copy_packs = file_open_dir(copy, "packs");
	index = file_open_dir(copy, "index.1");
	assert_int_equal(file_list(scratch, "packs", 10, &names, &n), 0);
	for (size_t i = 0; i < n; i++)
		copy_pack(packs, names[i], copy_packs);
	file_names_free(names, n);
	assert_int_equal(file_replace(index, "data.mdb", "garbage", 7), 0);

	(void)close(p.fd);
	store_close(st);

	assert_int_equal(fchmodat(copy, "packs", 0500, 0), 0);
	assert_int_equal(fchmod(copy, 0500), 0);
	assert_int_equal(store_open(copy, STORE_COPY, &c), 0);
	assert_int_equal(contents_check(c, 0, n_contents), 0);
	assert_int_equal(count_bad(c), 0);
	assert_int_equal(store_counts(c, &counts), 0);
	assert_int_equal(counts.contents, n_contents);
	assert_int_equal(counts.packs, 2);
	/* Of two places the one that nobody writes to any more is taken. */
	assert_int_equal(store_lookup(c, contents[5].hash, &place), 0);
	assert_memory_equal(&place, &sealed, offsetof(struct store_place, kind));
	assert_int_equal(store_flush(c), -EROFS);
	store_close(c);
	assert_int_equal(count_names(copy, "."), 2);
	assert_int_equal(count_names(copy, "packs"), 2);
	assert_int_equal(count_names(copy, "index.1"), 1);
	assert_int_equal(fchmod(copy, 0700), 0);
}

/* ---- failing system calls ---- */

static int use_store(void *arg)
{
	struct test_pack p = {.fd = -1};
	struct store *st;
	int r, q;

	r = store_open(scratch, STORE_WRITE, &st);
	if (r < 0)
		return r;
	r = pack_begin(st, &p, 4096);
	if (r >= 0) {
		for (unsigned i = 0; r >= 0 && i < 3; i++)
			r = pack_put(st, &p, 4, 300);
		if (r >= 0)
			r = store_flush(st);
		q = pack_close(st, &p);
		if (r >= 0)
			r = q;
	}
	if (r >= 0)
		r = store_flush(st);
	store_close(st);
	return r;
}

/* 1: not reached, all went well. */
static int use_with_fault(void *arg)
{
	int r;

	if (fault_set(arg) < 0)
		return 200;
	r = use_store(NULL);
	return r == 0 ? 1 : r == -EIO ? 0 : 201;
}

/* Each call that writes, syncs, renames or removes fails once, or is the last thing
 * the process does: the error is told, and the next one finds what was there before. */
static void every_fault_is_survived(void **state)
{
	static const char *const kinds[] = {"error", "cut", "kill"};
	unsigned n_faults = 0;

#ifndef LIMB_FAULTS
	print_message("# built without fault points\n");
	skip();
#endif
	assert_int_equal(use_store(NULL), 0);
	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
		for (unsigned at = 1;; at++) {
			char plan[32];
			struct store *st;
			int r;

			(void)snprintf(plan, sizeof(plan), "*:%u:%s", at, kinds[k]);
			if (at % 2)
				forget_index();
			r = child_run(use_with_fault, plan);
			assert_in_range(at, 1, 500);
			if (r == 1)
				break;
			/* Closing is not told; nor is what only saves work. */
			assert_true(r == 0 || r == -SIGKILL);
			n_faults++;
			st = open_store(STORE_WRITE);
			assert_int_equal(contents_check(st, 0, n_contents), 0);
			assert_int_equal(count_bad(st), 0);
			store_close(st);
		}
	}
	assert_true(n_faults > 30);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, store_test_setup, store_test_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_torn_tail_is_cut),
		TEST(the_tail_behind_the_table_is_walked),
		TEST(a_damaged_pack_loses_one_frame),
		TEST(a_frame_in_a_content_is_not_believed),
		TEST(a_busy_pack_is_left_alone),
		TEST(a_later_version_is_refused),
		TEST(a_copy_is_read_and_not_touched),
		TEST(every_fault_is_survived),
	};

	return cmocka_run_group_tests_name("store-damage", tests, NULL, NULL);
}
