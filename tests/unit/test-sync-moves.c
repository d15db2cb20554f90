/* What is renamed keeps its node and sends no content again. */
#include "tests/unit/sync-fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

static int start(void **state)
{
	int r = setup(state);

	if (r < 0)
		return r;
	sh("mkdir -p d1/sub d2/sub d3; for i in 1 2 3; do echo $i >f$i; echo d$i >d$i/f; done; "
	   "echo 1 >d1/sub/x; echo 2 >d2/sub/x; for i in {0..5}; do echo log$i >log.$i; done");
	brain_start(&b, root, dir_fd);
	(void)check();
	reset_counts();
	return 0;
}

static uint64_t id(const char *path)
{
	struct bnode *n = brain_lookup(&b, path);

	assert_non_null(n);
	return n->id;
}

/* f moves from..to; nothing is sent but its attributes. */
static void expect_moves_only(void)
{
	(void)check();
	assert_int_equal(b.contents, 0);
	assert_int_equal(b.links, 0);
	assert_int_equal(b.unlinks, 0);
}

static void exchange(const char *x, const char *y)
{
	assert_int_equal(renameat2(root_fd, x, root_fd, y, RENAME_EXCHANGE), 0);
}

static void test_file(void **state)
{
	uint64_t f1 = id("f1"), f2 = id("f2");

	(void)state;
	sh("mv f1 renamed; mv f2 d1/sub/moved");
	expect_moves_only();
	assert_int_equal(id("renamed"), f1);
	assert_int_equal(id("d1/sub/moved"), f2);
}

/* One operation for a directory, whatever it holds. */
static void test_directory(void **state)
{
	uint64_t sub = id("d1/sub/x");

	(void)state;
	sh("mv d1 d2/here");
	expect_moves_only();
	assert_int_equal(b.moves, 1);
	assert_int_equal(id("d2/here/sub/x"), sub);
	sh("echo more >>d2/here/sub/x");
	(void)check();
}

static void test_into_new_directory(void **state)
{
	uint64_t f1 = id("f1"), d1 = id("d1");

	(void)state;
	sh("mkdir -p n/m; mv f1 n/m/f; mv d1 n/d");
	(void)check();
	assert_int_equal(id("n/m/f"), f1);
	assert_int_equal(id("n/d"), d1);
	assert_int_equal(b.contents, 0);
}

static void test_over_existing(void **state)
{
	uint64_t f1 = id("f1"), d3 = id("d3");

	(void)state;
	sh("mv f1 f2; rm d3/f; mkdir e; mv -T d3 e");
	(void)check();
	assert_int_equal(id("f2"), f1);
	assert_int_equal(id("e"), d3);
	assert_int_equal(b.contents, 0);
}

/* B21: a chain of fifty, and a name that is used again. */
static void B21_chain(void **state)
{
	uint64_t f1 = id("f1"), f2 = id("f2");

	(void)state;
	sh("mv f1 c0; for i in {0..48}; do mv c$i c$((i + 1)); done; mv f2 f1");
	(void)check();
	assert_int_equal(id("c49"), f1);
	assert_int_equal(id("f1"), f2);
	assert_int_equal(b.contents, 0);
}

/* Each log takes the place of the next; the oldest goes. */
static void test_rotation(void **state)
{
	uint64_t ids[6];
	char name[16];

	(void)state;
	for (int i = 0; i < 6; i++) {
		(void)snprintf(name, sizeof(name), "log.%d", i);
		ids[i] = id(name);
	}
	sh("for i in 4 3 2 1 0; do mv log.$i log.$((i + 1)); done; echo fresh >log.0");
	(void)check();
	for (int i = 1; i < 6; i++) {
		(void)snprintf(name, sizeof(name), "log.%d", i);
		assert_int_equal(id(name), ids[i - 1]);
	}
	assert_int_equal(b.contents, 1);
}

static void test_swaps(void **state)
{
	uint64_t f1 = id("f1"), f2 = id("f2"), d1 = id("d1"), d2 = id("d2"), f3 = id("f3");

	(void)state;
	exchange("f1", "f2");
	exchange("d1", "d2");
	expect_moves_only();
	assert_int_equal(id("f1"), f2);
	assert_int_equal(id("d1"), d2);
	sh("mv f1 t; mv f2 f1; mv t f2; mv d1 t; mv d2 d1; mv t d2");
	expect_moves_only();
	assert_int_equal(id("f1"), f1);
	assert_int_equal(id("d1"), d1);
	/* A file and a directory. */
	exchange("f3", "d3");
	expect_moves_only();
	assert_int_equal(id("d3"), f3);
}

/* Entries change places; what else leads to the files stays. */
static void test_swap_with_other_names(void **state)
{
	uint64_t f1 = id("f1"), f2 = id("f2"), f3 = id("f3");

	(void)state;
	sh("ln f2 other; ln f3 d1/another");
	(void)check();
	exchange("f1", "f2");
	(void)check();
	assert_int_equal(b.contents, 0);
	assert_int_equal(id("f1"), f2);
	assert_int_equal(id("f2"), f1);
	assert_int_equal(id("other"), f2);
	sh("mv f1 t; mv f3 f1; mv t f3");
	(void)check();
	assert_int_equal(b.contents, 0);
	assert_int_equal(id("f3"), f2);
	assert_int_equal(id("f1"), f3);
	assert_int_equal(id("d1/another"), f3);
}

static void test_cycle_of_three(void **state)
{
	uint64_t d1 = id("d1"), d2 = id("d2"), d3 = id("d3");

	(void)state;
	sh("mv d1 t; mv d2 d1; mv d3 d2; mv t d3");
	expect_moves_only();
	assert_int_equal(id("d3"), d1);
	assert_int_equal(id("d1"), d2);
	assert_int_equal(id("d2"), d3);
}

/* What was inside is outside now, and the other way round. */
static void test_inside_out(void **state)
{
	uint64_t d1 = id("d1"), sub = id("d1/sub");

	(void)state;
	sh("mv d1/sub s; mv d1 s/d1");
	(void)check();
	assert_int_equal(id("s"), sub);
	assert_int_equal(id("s/d1"), d1);
	assert_int_equal(b.contents, 0);
}

/* The shadow's path leads nowhere while its directory is elsewhere already. */
static void test_moved_and_changed(void **state)
{
	(void)state;
	sh("mv d1/f d2/g; mv d1 n1; echo y >n1/sub/y; mv n1/sub n1/sub2; echo z >n1/sub2/z; "
	   "mv n1 d2/n2; mv d2 d4");
	(void)check();
	assert_int_equal(b.contents, 2);
}

static void touch(const char *path)
{
	sync_touch(b.sync, path, strlen(path), LIMB__ORIGIN__ORIGIN_BRAIN);
}

/* The brain puts a directory where a file was and the file in its place, within a directory that
 * changes its own place then: neither of the two can be found before that one is. */
static void test_changed_places_in_what_moved(void **state)
{
	uint64_t d1 = id("d1"), f = id("d2/f"), d2 = id("d2"), d3 = id("d3");

	(void)state;
	sh("mv d2/f t; mv d1 d2/f; mv t d1; mv d2 t; mv d3 d2; mv t d3");
	touch("d1");
	touch("d2/f");
	touch("d2");
	touch("d3");
	expect_moves_only();
	assert_int_equal(id("d3"), d2);
	assert_int_equal(id("d2"), d3);
	assert_int_equal(id("d1"), f);
	assert_int_equal(id("d3/f"), d1);
}

/* A directory goes into another, which then takes its place: each is found by the other. */
static void test_swallowed_by_what_takes_its_place(void **state)
{
	uint64_t d1 = id("d1"), d2 = id("d2");

	(void)state;
	sh("mv d1 d2/in; mv d2 d1");
	touch("d1");
	touch("d2/in");
	touch("d2");
	expect_moves_only();
	assert_int_equal(id("d1"), d2);
	assert_int_equal(id("d1/in"), d1);
}

/* The brain makes a directory and moves one into it; another takes the name it had. */
static void test_into_what_was_just_made(void **state)
{
	uint64_t d1 = id("d1"), d2 = id("d2");

	(void)state;
	sh("mkdir -p new/deep; mv d1 new/deep/d; mv d2 d1");
	touch("new");
	touch("new/deep");
	touch("d1");
	touch("new/deep/d");
	touch("d2");
	(void)check();
	assert_int_equal(b.contents, 0);
	assert_int_equal(id("new/deep/d"), d1);
	assert_int_equal(id("d1"), d2);
}

/* ... and moves it to where another was, while something new takes the name of what is in it. */
static void test_into_what_takes_a_place(void **state)
{
	uint64_t d1 = id("d1"), d2 = id("d2");

	(void)state;
	sh("mkdir n; mv d1 n/in; echo fresh >d1; mv d2 z; mv n d2");
	(void)check();
	assert_int_equal(b.contents, 1);
	assert_int_equal(id("d2/in"), d1);
	assert_int_equal(id("z"), d2);
}

/* A directory goes over an empty one, and a new one comes in its place. */
static void test_over_empty_and_anew(void **state)
{
	uint64_t d1 = id("d1"), f1 = id("f1");

	(void)state;
	sh("mkdir empty");
	(void)check();
	reset_counts();
	sh("mv -T d1 empty; mkdir d1; mv f1 d1/f");
	(void)check();
	assert_int_equal(b.contents, 0);
	assert_int_equal(id("empty"), d1);
	assert_int_equal(id("d1/f"), f1);
}

/* The same while nobody watched: the next limb-syncd finds moves by inodes. */
static void test_moved_meanwhile(void **state)
{
	uint64_t d1 = id("d1"), f1 = id("f1"), x = id("d2/sub/x");

	(void)state;
	brain_kill_syncd(&b);
	sh("mv d1 d3/d1; mv f1 d3/f1; mv d2/sub/x .");
	brain_new_syncd(&b, root, dir_fd);
	brain_attach(&b);
	expect_moves_only();
	assert_int_equal(id("d3/d1"), d1);
	assert_int_equal(id("d3/f1"), f1);
	assert_int_equal(id("x"), x);
}

enum { LARGE = 3 << 20, DIFFERS = 7 };

static struct {
	size_t bytes; /* less what differs */
	int times;
	atomic_bool over;
} replacing;

/* As editors do: f1 is always whole. */
static void *replace(void *userdata)
{
	char *bytes = calloc(1, replacing.bytes);

	for (int i = 0; i < replacing.times; i++) {
		size_t n = replacing.bytes - (size_t)(i % DIFFERS);
		int fd = openat(root_fd, "f1.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

		(void)usleep((useconds_t)(i * 7 % 300));
		(void)!write(fd, bytes, n / 2);
		(void)usleep((useconds_t)(i * 11 % 300));
		(void)!write(fd, bytes, n - n / 2);
		(void)close(fd);
		(void)usleep((useconds_t)(i * 13 % 300));
		(void)renameat(root_fd, "f1.new", root_fd, "f1");
	}
	free(bytes);
	atomic_store(&replacing.over, true);
	return userdata;
}

static void f1_is_whole(struct brain *brain)
{
	const struct bnode *n = brain_lookup(brain, "f1");

	assert_non_null(n);
	assert_true(n->n.content.size_bytes > replacing.bytes - DIFFERS);
}

/* Each CHANGE leaves a content under the name that was there. */
static void replaced(size_t bytes, int times)
{
	char command[64];
	pthread_t thread;

	(void)snprintf(command, sizeof(command), "truncate -s %zu f1", bytes);
	sh(command);
	replacing.bytes = bytes;
	replacing.times = times;
	(void)check();
	b.changed = f1_is_whole;
	atomic_store(&replacing.over, false);
	assert_int_equal(pthread_create(&thread, NULL, replace, NULL), 0);
	while (!atomic_load(&replacing.over))
		brain_turn(&b);
	assert_int_equal(pthread_join(thread, NULL), 0);
	(void)check();
}

static void test_replaced_all_the_time(void **state)
{
	(void)state;
	replaced(1000, 1500);
}

static void test_large_and_replaced(void **state)
{
	(void)state;
	replaced(LARGE, 150);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, start, teardown)
	const struct CMUnitTest tests[] = {
		T(test_file),
		T(test_directory),
		T(test_into_new_directory),
		T(test_over_existing),
		T(B21_chain),
		T(test_rotation),
		T(test_swaps),
		T(test_swap_with_other_names),
		T(test_cycle_of_three),
		T(test_inside_out),
		T(test_moved_and_changed),
		T(test_changed_places_in_what_moved),
		T(test_swallowed_by_what_takes_its_place),
		T(test_into_what_was_just_made),
		T(test_into_what_takes_a_place),
		T(test_over_empty_and_anew),
		T(test_moved_meanwhile),
		T(test_replaced_all_the_time),
		T(test_large_and_replaced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
