/* A barrier ends when what was dirty is sent, or at its deadline with the names of the rest. */
#include "syncd/plan.h"
#include "tests/unit/sync-fixture.h"

#include <sys/prctl.h>

static int start(void **state)
{
	int r = setup(state);

	if (r == 0)
		brain_start(&b, root, dir_fd);
	return r;
}

/* Writes without a pause until it is told to stop. */
static pid_t restless(const char *name, size_t size)
{
	pid_t pid = fork();
	int fd;

	if (pid)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	fd = openat(root_fd, name, O_CREAT | O_RDWR | O_CLOEXEC, 0644);
	if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
		_exit(1);
	for (uint64_t i = 0;; i++)
		if (pwrite(fd, &i, sizeof(i), (off_t)(i * 4096 % size)) < 0)
			_exit(1);
}

static void end(pid_t pid)
{
	int status;

	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
}

/* Nothing happens: the point is consistent. Something happens: it is not. */
static void test_quiet(void **state)
{
	(void)state;
	sh("for i in {1..50}; do echo $i >f$i; done");
	brain_sync(&b);
	brain_sync(&b);
	assert_true(b.result.quiet);
	assert_int_equal(b.result.number, b.number);
}

/* A file that moves each time it is read (large, so that it does) is named, sent as torn, and keeps nobody else waiting. */
static void test_restless_file(void **state)
{
	pid_t pid;
	uint64_t start_ms;

	(void)state;
	brain_sync(&b);
	pid = restless("restless", 8 << 20);
	sh("until [ -s restless ]; do :; done");
	start_ms = clock_mono_ms();
	/* On a busy machine its writer may not run while it is read: then it was at rest. */
	for (int i = 0, moved = 0; moved < 3; i++) {
		sh("echo $RANDOM >calm");
		brain_barrier(&b, 0, 250, 20000);
		assert_int_equal(b.result.error, 0);
		assert_non_null(brain_lookup(&b, "calm"));
		assert_true(i < 20);
		if (b.unsettled[0] == 0)
			continue;
		assert_string_equal(b.unsettled, "restless ");
		assert_true(brain_lookup(&b, "restless")->n.torn);
		moved++;
	}
	assert_true(clock_mono_ms() - start_ms < 100000);
	end(pid);
	(void)check();
	assert_false(brain_lookup(&b, "restless")->n.torn);
}

/* Without a settle time the deadline ends it. */
static void test_deadline(void **state)
{
	uint64_t start_ms;
	pid_t pid;

	(void)state;
	brain_sync(&b);
	pid = restless("restless", 8 << 20);
	sh("until [ -s restless ]; do :; done");
	start_ms = clock_mono_ms();
	brain_barrier(&b, 0, 0, 700);
	assert_int_equal(b.result.error, ETIMEDOUT);
	assert_string_equal(b.unsettled, "restless ");
	assert_true(clock_mono_ms() - start_ms >= 700);
	end(pid);
	(void)check();
}

/* A job waits for what became dirty since it began, not for what was dirty before. */
static void test_since_a_mark(void **state)
{
	uint64_t mark;
	pid_t pid;

	(void)state;
	brain_sync(&b);
	pid = restless("before", 8 << 20);
	sh("until [ -s before ]; do :; done");
	brain_run_ms(&b, 200);
	end(pid);
	/* Events come in order: with the fence's the last of the writer's are in. */
	sh("echo 1 >fence");
	while (!brain_lookup(&b, "fence"))
		brain_run_ms(&b, 5);
	mark = sync_mark(b.sync);
	sh("echo 1 >after");
	brain_barrier(&b, mark, 250, 20000);
	assert_int_equal(b.result.error, 0);
	assert_string_equal(b.unsettled, "");
	assert_non_null(brain_lookup(&b, "after"));
}

/* More at once than there are bits. */
static unsigned many_done;
static void many(const struct sync_result *res, void *userdata)
{
	(void)userdata;
	assert_int_equal(res->error, 0);
	many_done++;
}

static void test_many(void **state)
{
	(void)state;
	brain_sync(&b);
	many_done = 0;
	for (int i = 0; i < 80; i++) {
		char command[64];

		(void)snprintf(command, sizeof(command), "echo %d >f%d", i, i);
		sh(command);
		assert_int_equal(sync_barrier(b.sync, 0, 250, 20000, many, NULL), 0);
	}
	while (many_done < 80)
		brain_turn(&b);
	(void)brain_compare(&b, root);
}

static uint32_t node_of(const char *path)
{
	uint32_t e = sync_entry_at(b.sync, path, strlen(path));

	assert_true(e != 0);
	return shadow_entry(&b.sync->shadow, e)->node;
}

/* No event comes of it any more, and nobody knows: as after an overflow. */
static void deaf(const char *dir)
{
	struct sync *sy = b.sync;

	watch_remove(sy->watch, shadow_dir(&sy->shadow, node_of(dir))->wd);
}

/* A rescan that meets a directory between its look and its capture looks beneath it, too. */
static void test_rescan_meets_wanted(void **state)
{
	struct sync *sy = b.sync;
	struct item *it;

	(void)state;
	sh("mkdir d; echo 1 >d/known");
	brain_sync(&b);
	deaf("d");
	sh("echo 1 >d/unheard");
	sync_rescan(sy, NULL);
	sync_pump(sy);
	assert_int_equal(sy->lists_in_flight, 1);
	/* The line is full meanwhile: nothing is captured. */
	b.queued = SESSION_BULK_HIGH;
	it = dirty_mark(&sy->dirty, ITEM_NAME, SHADOW_ROOT, "d", 1, 0, NULL);
	assert_int_equal(stamp_at(root_fd, "d", &it->st), 0);
	dirty_move(&sy->dirty, it, ITEM_WANTED);
	while (sy->lists_in_flight)
		brain_turn(&b);
	assert_int_equal(it->state, ITEM_WANTED);
	b.queued = 0;
	sync_drained(sy);
	(void)check();
}

static void note_end(const struct sync_result *res, void *userdata)
{
	assert_int_equal(res->error, 0);
	*(bool *)userdata = true;
}

/* What is made in a directory while it is listed for the first time is waited for: its events
 * come before anybody knows whose they are. */
static void test_made_while_listed(void **state)
{
	struct sync *sy = b.sync;
	struct scan_listing l = {0};
	struct scan_dir d;
	struct item *list;
	uint32_t n;
	bool over = false;

	(void)state;
	sh("mkdir d");
	brain_sync(&b);
	n = node_of("d");
	deaf("d");
	shadow_dir(&sy->shadow, n)->wd = 0;
	/* A worker's part is done here: it has read the names, and is not back yet. */
	b.queued = SESSION_BULK_HIGH;
	list = dirty_mark(&sy->dirty, ITEM_LIST, n, "", 0, ITEM_SCAN, NULL);
	dirty_move(&sy->dirty, list, ITEM_LOOKING);
	sync_scan_dir(sy, n, &d);
	scan_list(sync_root_fd(sy), &d, sy->watch, &l);
	assert_int_equal(d.error, 0);
	sh("echo 1 >d/meanwhile");
	assert_int_equal(sync_barrier(sy, 0, 0, 20000, note_end, &over), 0);
	while (!list->bits)
		brain_turn(&b);
	plan_listed(sy, list, &d, &l);
	scan_listing_done(&l);
	free(d.path);
	b.queued = 0;
	sync_drained(sy);
	while (!over)
		brain_turn(&b);
	assert_non_null(brain_lookup(&b, "d/meanwhile"));
	(void)check();
}

/* A job's end waits for what it made in a directory that is known since before and not watched
 * yet: of that no event comes. */
static void test_made_before_watched(void **state)
{
	struct sync *sy = b.sync;
	bool over = false;
	uint64_t mark;

	(void)state;
	brain_sync(&b);
	b.queued = SESSION_BULK_HIGH;
	sh("mkdir d");
	while (!dirty_find(&sy->dirty, ITEM_NAME, SHADOW_ROOT, "d", 1))
		brain_turn(&b);
	mark = sync_mark(sy);
	sh("echo 1 >d/f");
	assert_int_equal(sync_barrier(sy, mark, 250, 20000, note_end, &over), 0);
	brain_run_ms(&b, 300);
	b.queued = 0;
	sync_drained(sy);
	while (!over)
		brain_turn(&b);
	assert_non_null(brain_lookup(&b, "d/f"));
	(void)check();
}

/* What a rule leaves out no more was there before the barrier as much as the rule's end. */
static void test_rule_ends(void **state)
{
	struct sync *sy = b.sync;
	bool over = false;

	(void)state;
	sh("mkdir -p 1/2/3/4; echo x >1/2/3/4/left-out; echo left-out >.limbignore");
	brain_sync(&b);
	assert_null(brain_lookup(&b, "1/2/3/4/left-out"));
	b.queued = SESSION_BULK_HIGH;
	sh("echo >.limbignore");
	assert_int_equal(sync_barrier(sy, 0, 0, 20000, note_end, &over), 0);
	brain_run_ms(&b, 300);
	b.queued = 0;
	sync_drained(sy);
	while (!over)
		brain_turn(&b);
	assert_non_null(brain_lookup(&b, "1/2/3/4/left-out"));
	(void)check();
}

/* The line is away: an answer at once. */
static void test_away(void **state)
{
	(void)state;
	brain_sync(&b);
	brain_detach(&b);
	brain_barrier(&b, 0, 0, 20000);
	assert_int_equal(b.result.error, ENOTCONN);
	brain_attach(&b);
	sh("echo 1 >f");
	(void)check();
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, start, teardown)
	const struct CMUnitTest tests[] = {
		T(test_quiet),
		T(test_restless_file),
		T(test_deadline),
		T(test_since_a_mark),
		T(test_many),
		T(test_away),
		T(test_rescan_meets_wanted),
		T(test_made_while_listed),
		T(test_made_before_watched),
		T(test_rule_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
