#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "base/file.h"
#include "journal/store-table.h"
#include "tests/unit/mark-fixture.h"
#include "tests/unit/store-fixture.h"

/* A store with three closed packs of some contents, closed again. */
static void make_store(void)
{
	struct store *st = open_store(STORE_WRITE);
	struct test_pack p;

	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(pack_begin(st, &p, 1 << 16), 0);
		for (unsigned k = 0; k < 5; k++)
			assert_int_equal(pack_put(st, &p, 1 + random_below(20), 3000), 0);
		assert_int_equal(pack_close(st, &p), 0);
	}
	store_close(st);
}

static void assert_places(struct store *st)
{
	for (size_t i = 0; i < n_contents; i++) {
		struct store_place p;

		assert_int_equal(store_lookup(st, contents[i].hash, &p), 0);
		assert_memory_equal(p.hash, contents[i].hash, SHA256_BYTES);
		assert_memory_equal(p.pack_id, contents[i].place.pack_id, 16);
		assert_int_equal(p.offset, contents[i].place.offset);
		assert_int_equal(p.len, contents[i].n);
		assert_int_equal(p.kind, FRAME_CHUNK);
	}
}

/* What was put in is found and comes back, and nothing else, before and after the
 * store was closed. */
static void contents_come_back(void **state)
{
	const uint8_t unknown[SHA256_BYTES] = {1};
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	struct store_counts counts;
	struct store_place place;
	struct store *st;
	uint64_t bytes = 0;

	make_store();
	for (unsigned round = 0; round < 2; round++) {
		st = open_store(round ? STORE_READ : STORE_WRITE);
		assert_places(st);
		assert_int_equal(contents_check(st, 0, n_contents), 0);
		assert_int_equal(contents_check(st, 0, n_contents), 0);
		assert_int_equal(store_lookup(st, unknown, &place), -ENOENT);
		assert_int_equal(store_fetch(st, unknown, &b), -ENOENT);
		assert_int_equal(store_counts(st, &counts), 0);
		assert_int_equal(counts.packs, 3);
		assert_int_equal(counts.contents, n_contents);
		if (round) {
			assert_int_equal(store_add(st, &place, 1), -EROFS);
			assert_int_equal(store_flush(st), -EROFS);
		}
		store_close(st);
	}
	for (size_t i = 0; i < n_contents; i++)
		bytes += contents[i].n;
	assert_int_equal(counts.content_bytes, bytes);
	assert_true(counts.pack_bytes > bytes);
	assert_true(has("index.1"));
	assert_false(has("index.2"));
}

/* A pack is 0600 and filled ahead while it is open, cut and 0400 when it is done; an
 * empty one goes away. */
static void packs_are_sealed(void **state)
{
	struct store *st = open_store(STORE_WRITE);
	struct test_pack p;
	struct stat sb;
	char byte;

	assert_int_equal(pack_begin(st, &p, 100000), 0);
	assert_int_equal(fstatat(scratch, pack_path(p.id), &sb, 0), 0);
	assert_int_equal(sb.st_size, 100000);
	assert_int_equal(sb.st_mode & 07777, 0600);
	assert_int_equal(pread(p.fd, &byte, 1, 0), -1);
	assert_int_equal(pack_put(st, &p, 3, 1000), 0);
	assert_int_equal(store_pack_done(st, p.id, PACK_HEADER_BYTES), -EINVAL);
	assert_int_equal(store_pack_done(st, p.id, 100001), -EINVAL);
	assert_int_equal(pack_close(st, &p), 0);
	assert_int_equal(fstatat(scratch, pack_path(p.id), &sb, 0), 0);
	assert_int_equal(sb.st_size, p.end);
	assert_int_equal(sb.st_mode & 07777, 0400);
	assert_int_equal(store_pack_done(st, p.id, p.end), -EALREADY);

	assert_int_equal(pack_begin(st, &p, 1000), 0);
	assert_true(has(pack_path(p.id)));
	assert_int_equal(pack_close(st, &p), 0);
	assert_false(has(pack_path(p.id)));
	assert_int_equal(store_pack_done(st, p.id, 64), -ENOENT);
	store_close(st);
}

/* The first place of a content stays; places in packs that are not there are refused. */
static void the_first_place_stays(void **state)
{
	struct store_place other = {.offset = 4096, .len = 1, .kind = FRAME_LIST}, got;
	struct store *st = open_store(STORE_WRITE);
	struct test_pack p;

	assert_int_equal(pack_begin(st, &p, 0), 0);
	assert_int_equal(pack_put(st, &p, 5, 100), 0);
	memcpy(other.hash, contents[2].hash, SHA256_BYTES);
	memcpy(other.pack_id, p.id, 16);
	assert_int_equal(store_add(st, &other, 1), 0);
	assert_places(st);
	other.pack_id[3] ^= 1;
	other.hash[0] ^= 1;
	assert_int_equal(store_add(st, &other, 1), -ENOENT);
	assert_int_equal(store_lookup(st, other.hash, &got), -ENOENT);
	(void)close(p.fd);
	store_close(st);
}

/* A second writer is refused while there is one. */
static int open_second(void *arg)
{
	struct store *st;

	return -store_open(scratch, STORE_WRITE, &st);
}

static void one_writer_at_a_time(void **state)
{
	struct store *st = open_store(STORE_WRITE);

	assert_int_equal(child_run(open_second, NULL), EAGAIN);
	store_close(st);
	assert_int_equal(child_run(open_second, NULL), 0);
}

/* ---- trust ---- */

static void assert_rebuilt(unsigned number, bool rebuilt)
{
	struct store *st = open_store(STORE_WRITE);
	char before[16], after[16];

	(void)snprintf(before, sizeof(before), "index.%u", number);
	(void)snprintf(after, sizeof(after), "index.%u", number + 1);
	assert_int_equal(has(before), !rebuilt);
	assert_int_equal(has(after), rebuilt);
	assert_places(st);
	assert_int_equal(contents_check(st, 0, n_contents), 0);
	store_close(st);
}

/* A table that is missing, unfinished, of a format to come, from a boot that ended
 * without a clean mark, or a copy of one at work is made again, with the same places;
 * one marked clean is kept over a boot. */
static void an_untrusted_table_is_made_again(void **state)
{
	make_store();
	assert_rebuilt(1, false);
	mark_edit("index.1/state", true, true);
	assert_rebuilt(1, false);
	forget_index();
	assert_rebuilt(0, true);
	mark_edit("index.1/state", true, false);
	assert_rebuilt(1, true);
	assert_int_equal(unlinkat(scratch, "index.2/state", 0), 0);
	assert_rebuilt(2, true);
	scratch_write(scratch, "index.3/state", "something else");
	assert_rebuilt(3, true);

	/* Not clean, this boot, but not the file that was marked. */
	assert_int_equal(renameat(scratch, "index.4", scratch, "index.x"), 0);
	assert_int_equal(mkdirat(scratch, "index.4", 0700), 0);
	{
		_cleanup_(buf_done) struct buf b = BUF_INIT(0);

		assert_int_equal(file_read(scratch, "index.x/data.mdb", &b), 0);
		assert_int_equal(
			file_replace(scratch, "index.4/data.mdb", buf_data(&b), buf_len(&b)), 0);
		buf_clear(&b);
		assert_int_equal(file_read(scratch, "index.x/state", &b), 0);
		assert_int_equal(file_replace(scratch, "index.4/state", buf_data(&b), buf_len(&b)),
				 0);
		mark_edit("index.4/state", false, false);
	}
	assert_rebuilt(4, true);
}

/* Fills a store and dies without closing it. */
static int write_and_die(void *arg)
{
	const bool *flush = arg;
	struct test_pack p;
	struct store *st;

	if (store_open(scratch, STORE_WRITE, &st) < 0 || pack_begin(st, &p, 1 << 16) < 0)
		return 1;
	for (unsigned i = 0; i < 4; i++)
		if (pack_put(st, &p, 10, 1000) < 0)
			return 2;
	return *flush && store_flush(st) < 0 ? 3 : 0;
}

/* After the writer died everything is there, from the same table; after the machine
 * did as well, from a table made again, or from one that was flushed. */
static void a_dead_writer_loses_nothing(void **state)
{
	struct test_pack same = {.end = PACK_HEADER_BYTES};
	bool flush = false;
	struct store *st;

	for (unsigned round = 0; round < 4; round++) {
		flush = round >= 2;
		random_state = 500 + round;
		assert_int_equal(child_run(write_and_die, &flush), 0);
		if (round % 2)
			mark_edit(has("index.1/state") ? "index.1/state" : "index.2/state", true,
				  flush);
		/* The same bytes here, wherever they lie. */
		random_state = 500 + round;
		same.fd = openat(scratch, "mine", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(pack_put(NULL, &same, 10, 1000), 0);
		(void)close(same.fd);
		st = open_store(STORE_WRITE);
		assert_int_equal(contents_check(st, 0, n_contents), 0);
		store_close(st);
		assert_true(has(round >= 1 ? "index.2" : "index.1"));
	}
	assert_false(has("index.3"));
}

/* What comes while a table is being synced keeps it from being marked clean. */
static void a_mark_is_not_given_for_what_came_later(void **state)
{
	struct store_table_pack pack = {.id = "a pack", .state = STORE_TABLE_OPEN};
	struct store_table *t;
	uint64_t generation;

	assert_int_equal(store_table_create(scratch, &t), 0);
	assert_int_equal(store_table_publish(t), 0);
	assert_true(store_table_clean(t));
	assert_int_equal(store_table_put_pack(t, &pack), 0);
	assert_false(store_table_clean(t));
	generation = store_table_generation(t);
	pack.id[0]++;
	assert_int_equal(store_table_put_pack(t, &pack), 0);
	assert_int_equal(store_table_sync(t, generation), 0);
	assert_false(store_table_clean(t));
	assert_int_equal(store_table_sync(t, store_table_generation(t)), 0);
	assert_true(store_table_clean(t));
	store_table_close(t);
}

/* ---- readers beside the writer ---- */

struct shared {
	atomic_size_t n_added;
	atomic_bool done;
	atomic_uint n_ready;
};

enum { N_FRAMES = 150 };

/* Fetches each content as soon as it is said to be there. */
static int read_along(void *arg)
{
	struct shared *sh = arg;
	struct test_pack same = {.end = PACK_HEADER_BYTES};
	struct store *st;
	size_t seen = 0;
	int r;

	random_state = 77;
	same.fd = openat(scratch, "mine", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	for (unsigned i = 0; i < N_FRAMES; i++)
		if (pack_put(NULL, &same, 5, 2000) < 0)
			return 100;
	if (store_open(scratch, STORE_READ, &st) < 0)
		return 101;
	atomic_fetch_add(&sh->n_ready, 1);
	while (seen < n_contents) {
		size_t n = atomic_load(&sh->n_added);

		if (atomic_load(&sh->done) && n < n_contents)
			return 102;
		if (n == seen)
			(void)usleep(100);
		r = contents_check(st, seen, n);
		if (r == 0)
			r = contents_check(st, 0, MIN(n, (size_t)20));
		if (r != 0)
			return r < 0 ? -r : r;
		seen = n;
	}
	store_close(st);
	return 0;
}

/* Readers in other processes find what was added at once, while more is added and
 * packs are finished and begun. */
static void readers_follow_the_writer(void **state)
{
	const int prot = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_ANONYMOUS;
	struct shared *sh;
	struct store *st;
	struct test_pack p;
	pid_t pids[2];

	/* cppcheck-suppress invalidFunctionArg */
	sh = mmap(NULL, sizeof(*sh), prot, flags, -1, 0);
	assert_true(sh != MAP_FAILED);
	store_close(open_store(STORE_WRITE));
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
		pids[i] = child_start(read_along, sh);
	st = open_store(STORE_WRITE);
	while (atomic_load(&sh->n_ready) < ARRAY_SIZE(pids))
		(void)usleep(1000);
	random_state = 77;
	for (unsigned i = 0; i < N_FRAMES; i++) {
		if (i % 30 == 0)
			assert_int_equal(pack_begin(st, &p, 1 << 20), 0);
		assert_int_equal(pack_put(st, &p, 5, 2000), 0);
		atomic_store(&sh->n_added, n_contents);
		if (i % 30 == 29)
			assert_int_equal(pack_close(st, &p), 0);
		if (i % 50 == 0)
			assert_int_equal(store_flush(st), 0);
	}
	atomic_store(&sh->done, true);
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
		assert_int_equal(child_wait(pids[i]), 0);
	store_close(st);
	(void)munmap(sh, sizeof(*sh));
}

struct turn {
	int to_child[2], to_parent[2];
};

/* Reads the first half, waits, and reads all. */
static int read_before_and_after(void *arg)
{
	const struct turn *t = arg;
	struct store *st;
	char c;

	if (store_open(scratch, STORE_READ, &st) < 0)
		return 100;
	if (contents_check(st, 0, n_contents / 2) != 0)
		return 101;
	if (write(t->to_parent[1], "x", 1) != 1 || read(t->to_child[0], &c, 1) != 1)
		return 102;
	if (contents_check(st, 0, n_contents) != 0)
		return 103;
	store_close(st);
	return 0;
}

/* A reader that stays finds its way to a table that was made again. */
static void readers_follow_to_a_new_table(void **state)
{
	struct test_pack p = {.end = PACK_HEADER_BYTES};
	uint64_t seed = 1234;
	struct store *st;
	struct turn t;
	char c;
	pid_t pid;

	make_store();
	random_state = seed;
	p.fd = openat(scratch, "mine", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	contents_forget(20);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pack_put(NULL, &p, 5, 1000), 0);
	(void)close(p.fd);
	assert_int_equal(pipe(t.to_child) | pipe(t.to_parent), 0);
	pid = child_start(read_before_and_after, &t);
	assert_int_equal(read(t.to_parent[0], &c, 1), 1);

	mark_edit("index.1/state", true, false);
	contents_forget(20);
	random_state = seed;
	st = open_store(STORE_WRITE);
	assert_true(has("index.2"));
	assert_int_equal(pack_begin(st, &p, 0), 0);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pack_put(st, &p, 5, 1000), 0);
	assert_int_equal(write(t.to_child[1], "x", 1), 1);
	assert_int_equal(child_wait(pid), 0);
	assert_int_equal(pack_close(st, &p), 0);
	store_close(st);
	for (unsigned i = 0; i < 2; i++) {
		(void)close(t.to_child[i]);
		(void)close(t.to_parent[i]);
	}
}

struct fetcher {
	struct store *st;
	atomic_size_t *n_added;
	uint64_t random;
	int result;
};

static void *fetch_some(void *arg)
{
	struct fetcher *f = arg;

	for (unsigned i = 0; i < 3000 && f->result == 0; i++) {
		size_t n = atomic_load(f->n_added);

		f->random = f->random * 6364136223846793005u + 1442695040888963407u;
		if (n > 0)
			f->result = content_check(f->st, &contents[(f->random >> 33) % n]);
	}
	return NULL;
}

/* Threads fetch while one adds: always the right bytes. */
static void threads_fetch_together(void **state)
{
	struct store *st = open_store(STORE_WRITE);
	struct fetcher fetchers[6] = {{0}};
	pthread_t threads[6];
	atomic_size_t n_added = 0;
	struct test_pack p;

	for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
		fetchers[i] = (struct fetcher){.st = st, .n_added = &n_added, .random = i};
		assert_int_equal(pthread_create(&threads[i], NULL, fetch_some, &fetchers[i]), 0);
	}
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(pack_begin(st, &p, 0), 0);
		assert_int_equal(pack_put(st, &p, 1 + random_below(10), 3000), 0);
		assert_int_equal(pack_close(st, &p), 0);
		atomic_store(&n_added, n_contents);
	}
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_equal(fetchers[i].result, 0);
	}
	store_close(st);
}

static size_t count_fds(void)
{
	char **names;
	size_t n;

	assert_int_equal(file_list(AT_FDCWD, "/proc/self/fd", 10000, &names, &n), 0);
	file_names_free(names, n);
	return n;
}

/* However many packs there are, few descriptors are open, and none is left. */
static void descriptors_are_few(void **state)
{
	size_t before = count_fds();
	struct store *st = open_store(STORE_WRITE);
	struct test_pack p;

	for (unsigned i = 0; i < 150; i++) {
		assert_int_equal(pack_begin(st, &p, 0), 0);
		assert_int_equal(pack_put(st, &p, 2, 300), 0);
		assert_int_equal(pack_close(st, &p), 0);
	}
	for (unsigned round = 0; round < 3; round++)
		assert_int_equal(contents_check(st, 0, n_contents), 0);
	assert_in_range(count_fds(), before, before + 64 + 10);
	store_close(st);
	assert_int_equal(count_fds(), before);
}

/* Contents of a pack that is gone are not there, and can be stored again. */
static void a_pack_that_is_gone(void **state)
{
	struct store_place place;
	struct test_pack p, again;
	struct store *st;
	size_t n;

	make_store();
	n = n_contents;
	st = open_store(STORE_WRITE);
	random_state = 99;
	assert_int_equal(pack_begin(st, &p, 0), 0);
	assert_int_equal(pack_put(st, &p, 5, 1000), 0);
	assert_int_equal(pack_close(st, &p), 0);
	assert_int_equal(unlinkat(scratch, pack_path(p.id), 0), 0);
	assert_int_equal(content_check(st, &contents[n]), -ENOENT);
	store_close(st);

	st = open_store(STORE_WRITE);
	assert_int_equal(contents_check(st, 0, n), 0);
	assert_int_equal(store_lookup(st, contents[n].hash, &place), -ENOENT);
	contents_forget(n);
	random_state = 99;
	assert_int_equal(pack_begin(st, &again, 0), 0);
	assert_int_equal(pack_put(st, &again, 5, 1000), 0);
	assert_int_equal(contents_check(st, 0, n_contents), 0);
	assert_int_equal(pack_close(st, &again), 0);
	assert_places(st);
	store_close(st);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, store_test_setup, store_test_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(contents_come_back),
		TEST(packs_are_sealed),
		TEST(the_first_place_stays),
		TEST(one_writer_at_a_time),
		TEST(an_untrusted_table_is_made_again),
		TEST(a_dead_writer_loses_nothing),
		TEST(a_mark_is_not_given_for_what_came_later),
		TEST(readers_follow_the_writer),
		TEST(readers_follow_to_a_new_table),
		TEST(threads_fetch_together),
		TEST(descriptors_are_few),
		TEST(a_pack_that_is_gone),
	};

	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
