/* The shadow's file saves what it says truly, and whatever else it says changes nothing. */
#include "tests/unit/sync-fixture.h"

enum { ENTRIES = 21 + 20 * 20 + 3 }; /* with the root */

static uint8_t *file;
static size_t file_len;

static void make_tree(void)
{
	sh("for i in {1..20}; do mkdir d$i; for j in {1..20}; do echo $i $j >d$i/f$j; done; done; "
	   "ln d1/f1 d2/second; ln -s x link; head -c 600000 /dev/urandom >large");
}

/* What it has written; not what it writes when it ends in peace. */
static void take_file(void)
{
	int fd = openat(dir_fd, "shadow", O_RDONLY);
	struct stat st;

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	free(file);
	file_len = (size_t)st.st_size;
	file = malloc(file_len);
	assert_int_equal(read(fd, file, file_len), file_len);
	(void)close(fd);
}

static void put_file(const void *p, size_t n)
{
	int fd = openat(dir_fd, "shadow", O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, p, n), n);
	(void)close(fd);
}

/* The same bytes, and a check that is right. */
static void put_checked(uint8_t *p, size_t n)
{
	sha256(p, n - SHA256_BYTES, p + n - SHA256_BYTES);
	put_file(p, n);
}

static void begin(void)
{
	brain_init(&b);
	b.trees = true;
	memset(b.env, 7, sizeof(b.env));
	make_tree();
	brain_new_syncd(&b, root, dir_fd);
	brain_attach(&b);
	(void)check();
}

static void end_syncd(void)
{
	brain_kill_syncd(&b);
	take_file();
	reset_counts();
}

static void go_on(void)
{
	brain_new_syncd(&b, root, dir_fd);
	brain_attach(&b);
	(void)check();
}

static void test_nothing_is_sent(void **state)
{
	(void)state;
	begin();
	end_syncd();
	go_on();
	assert_int_equal(b.tree_entries, 1);
	assert_int_equal(b.tree_had, 1);
	assert_int_equal(b.changes, 0);
	/* And it knows all of it: links, moves, removals are told as such. */
	sh("mv d5 d6/moved; rm d1/f1 d7/f7; echo x >>d8/f8; chmod 600 d9/f9");
	(void)check();
	assert_int_equal(b.moves, 1);
	assert_int_equal(b.contents, 1);
	assert_int_equal(b.unlinks, 2);
}

/* It writes by itself, too, soon after the first scan. */
static void test_written_while_it_runs(void **state)
{
	uint64_t until = clock_mono_ms() + 30000;

	(void)state;
	begin();
	while (faccessat(dir_fd, "shadow", F_OK, 0) < 0 && clock_mono_ms() < until)
		brain_turn(&b);
	take_file();
	sh("echo x >d3/new; rm -r d4");
	(void)check();
	brain_kill_syncd(&b);
	put_file(file, file_len); /* as after kill -9 */
	reset_counts();
	go_on();
	assert_in_range(b.tree_entries, 2, 60);
	assert_int_equal(b.changes, 0);
}

/* What a rescan of today finds is found. */
static void test_changed_while_down(void **state)
{
	(void)state;
	begin();
	end_syncd();
	sh("touch -r d3/f3 ../time; echo 3 X >d3/f3; touch -r ../time d3/f3; echo new >d4/new; "
	   "rm d5/f5; mv d6/f6 d7/f6x; ln -sfn y link; echo large >large; touch -d 2001-01-01 "
	   "d8/f8");
	go_on();
	assert_int_equal(b.tree_entries, 1);
	assert_int_equal(b.contents, 3);
	assert_int_equal(b.moves, 1);
}

/* Older than much that has happened. */
static void test_old_file(void **state)
{
	(void)state;
	begin();
	end_syncd();
	go_on();
	sh("mv d1 d2/d1; rm -r d3; for i in 4 5 6; do echo x >>d$i/f1; done; mkdir -p n/m; ln "
	   "d7/f1 n/m; "
	   "rm d2/second; mv d8/f1 d9/f1x; chmod 700 d10; mv d11/f1 d11/f2; ln d12/f1 d13/l");
	(void)check();
	brain_kill_syncd(&b);
	put_file(file, file_len);
	sh("echo while down >>d14/f1; rm d15/f1");
	reset_counts();
	go_on();
	assert_in_range(b.tree_entries, 2, ENTRIES - 100);
	assert_true(b.tree_had > 3);
	assert_int_equal(b.contents, 1);
	assert_int_equal(b.unlinks, 1);
}

static void check_unused(void)
{
	reset_counts();
	go_on();
	assert_int_equal(b.n_hashes, 0);
	assert_int_equal(b.tree_entries, ENTRIES);
	assert_int_equal(b.changes, 0);
	brain_kill_syncd(&b);
}

static void test_damaged(void **state)
{
	(void)state;
	begin();
	end_syncd();
	for (size_t i = 0; i < 12; i++) {
		size_t at = file_len * i / 12;

		file[at] ^= 4;
		put_file(file, file_len);
		file[at] ^= 4;
		check_unused();
		put_file(file, at);
		check_unused();
	}
	assert_int_equal(unlinkat(dir_fd, "shadow", 0), 0);
	check_unused();
	/* Not a file. */
	assert_int_equal(unlinkat(dir_fd, "shadow", 0), 0);
	assert_int_equal(mkdirat(dir_fd, "shadow", 0700), 0);
	check_unused();
	assert_int_equal(unlinkat(dir_fd, "shadow", AT_REMOVEDIR), 0);
}

static void test_of_another(void **state)
{
	(void)state;
	begin();
	end_syncd();
	b.env[0]++;
	put_file(file, file_len);
	check_unused();
	/* Another incarnation's is as good, and a line that is fast enough needs none. */
	b.env[0]--;
	b.incarnation++;
	put_file(file, file_len);
	go_on();
	assert_int_equal(b.tree_entries, 1);
	brain_kill_syncd(&b);
	b.trees = false;
	put_file(file, file_len);
	check_unused();
}

/* Whole, checked, and not true: nothing of it is used that the brain does not have. */
static void test_lies(void **state)
{
	uint64_t seed = 1;

	(void)state;
	begin();
	end_syncd();
	for (int i = 0; i < 60; i++) {
		uint8_t *p = malloc(file_len);
		size_t n = file_len;

		memcpy(p, file, n);
		for (int k = 0; k <= i % 4; k++) {
			size_t at;

			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			at = 40 + (size_t)(seed >> 20) % (n - 40 - SHA256_BYTES);
			p[at] = (uint8_t)(seed >> 10);
		}
		if (i % 10 == 9)
			n -= 200;
		put_checked(p, n);
		free(p);
		reset_counts();
		go_on();
		assert_int_equal(b.unlinks, 0);
		assert_int_equal(b.moves, 0);
		assert_int_equal(b.links, 0);
		brain_kill_syncd(&b);
	}
}

/* A brain that says `had` of what was not asked is not followed. */
static void test_brain_lies(void **state)
{
	Limbwire__TreeEntry e = LIMBWIRE__TREE_ENTRY__INIT, *entries[] = {&e};
	Limbwire__TreePart part = LIMBWIRE__TREE_PART__INIT;
	struct wire_attr_scratch ws = {0};
	static const struct node dir = {.type = NODE_TYPE_DIRECTORY, .mode = 0755};

	(void)state;
	begin();
	end_syncd();
	assert_int_equal(unlinkat(dir_fd, "shadow", 0), 0);
	brain_new_syncd(&b, root, dir_fd);
	brain_attach(&b);
	assert_int_not_equal(b.tree_request, 0);
	assert_int_equal(wire_attr_fill(&ws, &dir), 0);
	e.node = NODE_ROOT;
	e.root = e.had = true;
	e.attr = &ws.attr;
	part.request = b.tree_request;
	b.tree_request = 0;
	part.entries = entries;
	part.n_entries = 1;
	part.last = true;
	sync_on_tree_part(b.sync, &part);
	brain_run_ms(&b, 400);
	assert_non_null(b.status);
	assert_true(b.status->halted);
	assert_int_equal(b.changes, 0);
	wire_attr_scratch_done(&ws);
}

/* Whatever happens in between, while it runs or not, and whichever file is found. */
static void test_random(void **state)
{
	(void)state;
	begin();
	for (int i = 0; i < 12; i++) {
		char command[400];

		(void)snprintf(
			command, sizeof(command),
			"RANDOM=%d; for k in 1 2 3 4 5 6; do a=d$((RANDOM %% 20 + 1)); "
			"c=$a/f$((RANDOM %% 20 + 1)); case $((RANDOM %% 5)) in 0) echo $k >>$c;; "
			"1) rm -f $c;; 2) mkdir -p $a/n; echo $k >$a/n/$k;; "
			"3) [ ! -e $c ] || mv $c d1/x$RANDOM;; 4) touch -d @$RANDOM $a;; esac; "
			"done",
			i + 1);
		if (i % 3 == 0) {
			end_syncd();
			sh(command);
		} else {
			sh(command);
			(void)check();
			brain_kill_syncd(&b);
			if (i % 3 == 2)
				put_file(file, file_len);
			reset_counts();
		}
		go_on();
		assert_true(b.tree_had > 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_nothing_is_sent, setup, teardown),
		cmocka_unit_test_setup_teardown(test_written_while_it_runs, setup, teardown),
		cmocka_unit_test_setup_teardown(test_changed_while_down, setup, teardown),
		cmocka_unit_test_setup_teardown(test_old_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
		cmocka_unit_test_setup_teardown(test_of_another, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lies, setup, teardown),
		cmocka_unit_test_setup_teardown(test_brain_lies, setup, teardown),
		cmocka_unit_test_setup_teardown(test_random, setup, teardown),
	};

	int r = cmocka_run_group_tests(tests, NULL, NULL);

	free(file);
	return r;
}
