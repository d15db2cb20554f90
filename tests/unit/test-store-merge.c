/* What several environments stored is kept once, and stays readable: whatever is a lie, whoever
 * still has a pack open, and wherever limbd is killed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/stat.h>

#include "base/fault.h"
#include "base/file.h"
#include "journal/store-merge.h"
#include "journal/store-table.h"
#include "tests/unit/store-fixture.h"

static const struct store_merge_pace no_pace;

/* ---- a worker within ---- */

#define GOOD_MAX 4096
struct seen {
	uint64_t good[GOOD_MAX];
	size_t n;
	int fd;
	bool bad;
};

static int look(uint64_t offset, const struct frame_info *info, const struct frame_member *members,
		size_t n, void *userdata)
{
	struct seen *s = userdata;

	(void)info;
	(void)members;
	(void)n;
	if (frame_compare(s->fd, offset) == 1)
		s->good[s->n++] = offset;
	else
		s->bad = true;
	return 0;
}

static int check_job(struct store *st, const struct store_merge_job *job)
{
	static struct seen s;
	struct store_merge_verdict v = {.good = s.good};
	bool damaged;
	uint64_t end;
	int r;

	s = (struct seen){.fd = job->fd};
	r = pack_walk(job->fd, PACK_HEADER_BYTES, look, &s, &end, &damaged);
	if (r < 0)
		return r;
	v.n_good = s.n;
	v.whole = !s.bad && !damaged && end == job->length;
	return store_merge_checked(st, &no_pace, job, &v);
}

static unsigned n_checked;

/* All that there is to do. */
static int upkeep(struct store *st)
{
	struct store_merge_job job;
	int r;

	n_checked = 0;
	do {
		while ((r = store_merge_next(st, &no_pace, &job)) > 0) {
			n_checked++;
			r = check_job(st, &job);
			store_merge_done(&job);
			if (r < 0)
				return r;
		}
		if (r >= 0)
			r = store_merge_packs(st, &no_pace);
	} while (r > 0);
	return r;
}

/* ---- packs ---- */

/* Contents from..to once more, two a frame; those in `lies` with other bytes. */
static int put_again(struct store *st, struct test_pack *p, size_t from, size_t to, size_t lie_from)
{
	_cleanup_(frame_builder_freep) struct frame_builder *fb = NULL;
	int r;

	r = frame_builder_new(1, &fb);
	for (size_t i = from; r >= 0 && i < to; i += 2) {
		struct store_place places[2];
		struct frame f;

		for (size_t k = 0; k < 2 && r >= 0; k++) {
			const struct content *c = &contents[i + k];
			uint8_t *data = malloc(c->n);

			memcpy(data, c->data, c->n);
			if (i + k >= lie_from)
				data[0] ^= 1;
			places[k] = c->place;
			memcpy(places[k].pack_id, p->id, 16);
			places[k].offset = p->end;
			r = frame_builder_add(fb, FRAME_CHUNK, c->hash, data, c->n);
			free(data);
		}
		if (r >= 0)
			r = frame_builder_finish(fb, &f);
		if (r >= 0)
			r = frame_write(p, &f);
		if (r >= 0)
			r = store_add(st, places, 2);
	}
	return r;
}

static void make_pack(struct store *st, size_t n)
{
	struct test_pack p;

	assert_int_equal(pack_begin(st, &p, 0), 0);
	for (size_t i = 0; i < n; i += 2)
		assert_int_equal(pack_put(st, &p, 2, 3000), 0);
	assert_int_equal(pack_close(st, &p), 0);
}

static void copy_pack(struct store *st, size_t from, size_t to, size_t lie_from)
{
	struct test_pack p;

	assert_int_equal(pack_begin(st, &p, 0), 0);
	assert_int_equal(put_again(st, &p, from, to, lie_from), 0);
	assert_int_equal(pack_close(st, &p), 0);
}

static size_t packs_there(struct store *st)
{
	struct store_counts c;

	assert_int_equal(store_counts(st, &c), 0);
	return c.packs;
}

/* As it is, as a reader and a copy see it, and with a table made from the packs. */
static void assert_all_there(struct store *st)
{
	struct store *other;

	assert_int_equal(contents_check(st, 0, n_contents), 0);
	store_close(st);
	for (unsigned i = 0; i < 3; i++) {
		if (i == 2)
			forget_index();
		other = open_store(i == 0 ? STORE_COPY : STORE_WRITE);
		assert_int_equal(contents_check(other, 0, n_contents), 0);
		store_close(other);
	}
}

/* ---- tests ---- */

/* Ten environments with the same contents and one of its own each leave two packs. */
static void equal_content_is_kept_once(void **state)
{
	struct store *st = open_store(STORE_WRITE);
	struct store_counts c;

	make_pack(st, 40);
	for (unsigned i = 0; i < 9; i++) {
		struct test_pack p;

		assert_int_equal(pack_begin(st, &p, 0), 0);
		assert_int_equal(put_again(st, &p, 0, 40, SIZE_MAX), 0);
		assert_int_equal(pack_put(st, &p, 1, 100), 0);
		assert_int_equal(pack_close(st, &p), 0);
	}
	for (unsigned i = 0; i < 5; i++)
		copy_pack(st, 0, 40, SIZE_MAX);
	assert_int_equal(upkeep(st), 0);
	/* What has nothing of its own is not even decompressed. */
	assert_int_equal(n_checked, 10);
	assert_true(packs_there(st) <= 2);
	assert_int_equal(store_counts(st, &c), 0);
	assert_int_equal(c.contents, n_contents);
	assert_int_equal(upkeep(st), 0);
	assert_int_equal(n_checked, 0);
	assert_all_there(st);
}

/* A wrong content under a right hash, stored first, hides nothing, and gives way. */
static void a_lie_that_was_first(void **state)
{
	struct test_pack lie, right;
	struct store *st = open_store(STORE_WRITE);
	struct store_place place;

	assert_int_equal(pack_begin(st, &right, 0), 0);
	for (size_t i = 0; i < 20; i += 2)
		assert_int_equal(pack_put(NULL, &right, 2, 3000), 0);
	assert_int_equal(pack_begin(st, &lie, 0), 0);
	assert_int_equal(put_again(st, &lie, 0, 20, 4), 0);
	for (size_t i = 0; i < 20; i++)
		assert_int_equal(store_add(st, &contents[i].place, 1), 0);
	/* Before anything was checked, or even closed. */
	assert_int_equal(contents_check(st, 0, 20), 0);
	assert_int_equal(pack_close(st, &lie), 0);
	assert_int_equal(upkeep(st), 0);
	assert_int_equal(contents_check(st, 0, 20), 0);
	assert_int_equal(pack_close(st, &right), 0);
	assert_int_equal(upkeep(st), 0);
	for (size_t i = 0; i < 20; i++) {
		assert_int_equal(store_lookup(st, contents[i].hash, &place), 0);
		assert_memory_equal(place.pack_id, right.id, 16);
	}
	assert_false(has(pack_path(lie.id)));
	assert_int_equal(packs_there(st), 1);
	assert_all_there(st);
}

/* Nor does one that comes later displace anything; and what of its pack is right is kept. */
static void a_lie_that_came_later(void **state)
{
	struct test_pack lie;
	struct store *st = open_store(STORE_WRITE);

	make_pack(st, 20);
	assert_int_equal(upkeep(st), 0);
	copy_pack(st, 0, 20, 0); /* all of it lies, and all is known */
	assert_int_equal(pack_begin(st, &lie, 0), 0);
	assert_int_equal(put_again(st, &lie, 0, 20, 10), 0);
	assert_int_equal(pack_put(st, &lie, 6, 3000), 0);
	assert_int_equal(pack_close(st, &lie), 0);
	assert_int_equal(upkeep(st), 0);
	assert_int_equal(n_checked, 1);
	assert_true(has(pack_path(lie.id)));
	assert_int_equal(packs_there(st), 2);
	assert_all_there(st);
}

/* Of a worker that was killed nothing is believed but what it said. */
static void half_a_verdict(void **state)
{
	struct store *st = open_store(STORE_WRITE);
	struct store_merge_verdict none = {0};
	struct store_merge_job job;

	make_pack(st, 20);
	assert_int_equal(store_merge_next(st, &no_pace, &job), 1);
	assert_int_equal(store_merge_checked(st, &no_pace, &job, &none), 0);
	store_merge_done(&job);
	copy_pack(st, 0, 20, SIZE_MAX);
	assert_int_equal(upkeep(st), 0);
	assert_int_equal(n_checked, 1);
	/* The checked one took its places. */
	assert_int_equal(packs_there(st), 1);
	assert_all_there(st);
}

/* A pack that its limb-ingest still could write to is not looked at. */
static void an_open_descriptor(void **state)
{
	struct store *st = open_store(STORE_WRITE);
	struct test_pack p;
	int kept;

	make_pack(st, 20);
	assert_int_equal(pack_begin(st, &p, 0), 0);
	assert_int_equal(put_again(st, &p, 0, 20, SIZE_MAX), 0);
	kept = dup(p.fd);
	assert_int_equal(pack_close(st, &p), 0);
	assert_int_equal(upkeep(st), 0);
	assert_int_equal(packs_there(st), 2);
	assert_int_equal(close(kept), 0);
	assert_int_equal(upkeep(st), 0);
	assert_int_equal(packs_there(st), 1);
	assert_all_there(st);
}

/* Small packs come together when there are several, and readers that hold the old ones, or
 * looked their places up before, still read. */
static void small_packs_become_one(void **state)
{
	struct store *st = open_store(STORE_WRITE), *copy = open_store(STORE_COPY);

	for (unsigned i = 0; i < STORE_MERGE_SEVERAL - 1; i++)
		make_pack(st, 4);
	assert_int_equal(upkeep(st), 0);
	assert_int_equal(packs_there(st), STORE_MERGE_SEVERAL - 1);
	store_close(copy);
	copy = open_store(STORE_COPY);
	assert_int_equal(contents_check(copy, 0, 8), 0);
	make_pack(st, 4);
	assert_int_equal(upkeep(st), 0);
	assert_int_equal(packs_there(st), 1);
	assert_int_equal(contents_check(copy, 0, n_contents - 4), 0);
	store_close(copy);
	assert_all_there(st);
}

static int stop_at_once(void *userdata)
{
	(void)userdata;
	return 1;
}

/* Told to end, it ends, and leaves no half of a pack. */
static void an_end_in_between(void **state)
{
	const struct store_merge_pace stop = {.wait = stop_at_once};
	struct store *st = open_store(STORE_WRITE);
	struct store_merge_job job;

	for (unsigned i = 0; i < STORE_MERGE_SEVERAL; i++)
		make_pack(st, 4);
	while (store_merge_next(st, &no_pace, &job) > 0) {
		assert_int_equal(check_job(st, &job), 0);
		store_merge_done(&job);
	}
	assert_int_equal(store_merge_packs(st, &stop), -ECANCELED);
	assert_int_equal(contents_check(st, 0, n_contents), 0);
	assert_int_equal(upkeep(st), 0);
	assert_int_equal(packs_there(st), 1);
	assert_all_there(st);
}

/* A checked pack whose disk does not give it back any more stops no merge, nor another pack. */
static void a_pack_that_rots(void **state)
{
	struct store *st = open_store(STORE_WRITE);
	size_t before;

	if (fault_set(NULL) == -ENOSYS)
		skip();
	for (unsigned i = 0; i < STORE_MERGE_SEVERAL; i++)
		make_pack(st, 4);
	before = n_contents;
	assert_int_equal(fault_set("merge.read:5:error"), 0);
	assert_int_equal(upkeep(st), -EIO);
	assert_int_equal(fault_set(NULL), 0);
	assert_int_equal(packs_there(st), STORE_MERGE_SEVERAL);
	assert_int_equal(upkeep(st), 0);
	assert_int_equal(packs_there(st), STORE_MERGE_SEVERAL);
	make_pack(st, 4);
	assert_int_equal(upkeep(st), 0);
	assert_int_equal(packs_there(st), 2);
	assert_int_equal(contents_check(st, 0, before), 0);
	assert_all_there(st);
}

static int upkeep_dies(void *arg)
{
	struct store *st;
	int r;

	r = store_open(scratch, STORE_WRITE, &st);
	if (r >= 0)
		r = fault_set(arg);
	if (r >= 0)
		r = upkeep(st);
	(void)fault_set(NULL);
	return r < 0 ? 100 : 0;
}

/* Killed at each step, and with the table lost or not, everything is there, and the next
 * run comes to the same end. */
static void killed_anywhere(void **state)
{
	bool died = true;

	if (fault_set(NULL) == -ENOSYS)
		skip();
	for (unsigned at = 1; died; at += 1 + at / 16) {
		struct store *st = open_store(STORE_WRITE);
		size_t from = n_contents;
		char plan[32];
		int status;

		make_pack(st, 8);
		copy_pack(st, from, from + 8, SIZE_MAX);
		for (unsigned i = 0; i < STORE_MERGE_SEVERAL; i++)
			make_pack(st, 2);
		store_close(st);
		(void)snprintf(plan, sizeof(plan), "*:%u:kill", at);
		status = child_wait(child_start(upkeep_dies, plan));
		died = status != 0;
		assert_int_not_equal(status, 100);
		if (at % 3 == 0)
			forget_index();
		st = open_store(STORE_WRITE);
		assert_int_equal(contents_check(st, 0, n_contents), 0);
		assert_int_equal(upkeep(st), 0);
		assert_int_equal(contents_check(st, 0, n_contents), 0);
		assert_true(packs_there(st) <= 4 * (STORE_MERGE_SEVERAL - 1));
		store_close(st);
		assert_true(n_contents + 64 < CONTENTS_MAX);
	}
}

/* ---- the choice ---- */

static size_t choose(const struct store_merge_pack *packs, size_t n, const char *expected)
{
	bool chosen[64];
	size_t k = store_merge_choose(packs, n, chosen);

	for (size_t i = 0; i < n; i++)
		assert_int_equal(chosen[i], expected[i] == '+');
	return k;
}

static void what_is_worth_it(void **state)
{
	const uint64_t mb = 1 << 20;
	struct store_merge_pack p[16] = {0};

	(void)state;
	assert_int_equal(choose(p, 0, ""), 0);
	p[0] = (struct store_merge_pack){200 * mb, 51, 100};
	p[1] = (struct store_merge_pack){200 * mb, 50, 100};
	p[2] = (struct store_merge_pack){mb, 100, 100};
	assert_int_equal(choose(p, 3, "-+-"), 1);
	/* Not more at once than a pack holds. */
	p[0].live = 1;
	assert_int_equal(choose(p, 3, "+--"), 1);
	for (size_t i = 0; i < 7; i++)
		p[i] = (struct store_merge_pack){mb, 10, 10};
	p[7] = (struct store_merge_pack){60 * mb, 10, 10};
	assert_int_equal(choose(p, 8, "--------"), 0);
	p[8] = (struct store_merge_pack){mb - 1, 10, 10};
	assert_int_equal(choose(p, 9, "+++++++-+"), 8);
	for (size_t i = 0; i < 9; i++)
		p[i] = (struct store_merge_pack){65 * mb, 10, 10};
	assert_int_equal(choose(p, 9, "---------"), 0);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, store_test_setup, store_test_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(equal_content_is_kept_once),
		TEST(a_lie_that_was_first),
		TEST(a_lie_that_came_later),
		TEST(half_a_verdict),
		TEST(an_open_descriptor),
		TEST(small_packs_become_one),
		TEST(an_end_in_between),
		TEST(a_pack_that_rots),
		TEST(killed_anywhere),
		cmocka_unit_test(what_is_worth_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
