/* Whatever a kill or a loss of power leaves of a log: it opens, each record that was acknowledged
 * as durable is there, what is there is whole and in order, and it goes on from there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/io.h"
#include "tests/unit/child.h"
#include "tests/unit/fake-disk.h"
#include "tests/unit/log-fixture.h"
#include "tests/unit/scratch.h"

static int teardown(void **state)
{
	io_set_observer(NULL, NULL);
	(void)fault_set(NULL);
	return scratch_teardown(state);
}

static unsigned long rounds(unsigned long usual)
{
	return getenv("LIMB_TEST_LONG") ? usual * 50 : usual;
}

/* ---- loss of power at any moment ---- */

enum { RECORDS_MAX = 400 };

/* Of one run; shared with children. */
struct run {
	uint32_t marks[RECORDS_MAX]; /* of record i + 1: its body follows from it */
	size_t sizes[RECORDS_MAX];
	uint64_t n;	/* appended */
	uint64_t acked; /* by a sync that returned */
	uint64_t seed;
	unsigned moments_left; /* crashes in this round */
	unsigned one_in;
	int image; /* directory for remains */
};
static struct run *run_shared;
#define run (*run_shared)

/* For what children do, too: cmocka's assertions would go on with the next test in them. */
#define must(condition) fake_check(condition, #condition)

static void make_body(uint8_t *p, uint32_t mark, size_t n)
{
	/* Bytes that look like the beginning of a record, among others. */
	for (size_t i = 0; i < n; i++)
		p[i] = i % 64 < 4 ? (uint8_t) "LREC"[i % 64] : (uint8_t)(mark + i * 7);
}

static void assert_records(int dir, uint64_t at_least, uint64_t *ret_n)
{
	static uint8_t want[64 << 10];
	struct log_reader *rd = NULL;
	struct log_record rec;
	uint64_t n = 0;
	int r;

	assert_int_equal(log_reader_open(dir, 0, &rd), 0);
	while ((r = log_reader_next(rd, &rec)) > 0) {
		assert_int_equal(rec.seq, n + 1);
		assert_true(n < run.n);
		make_body(want, run.marks[n], run.sizes[n]);
		assert_int_equal(rec.n, run.sizes[n]);
		assert_non_null(rec.body);
		assert_memory_equal(rec.body, want, rec.n);
		n++;
	}
	assert_int_equal(r, 0);
	log_reader_free(rd);
	assert_true(n >= at_least);
	*ret_n = n;
}

static void empty_dir(int dir)
{
	char **names;
	size_t n;

	assert_int_equal(file_list(dir, ".", 1000, &names, &n), 0);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(unlinkat(dir, names[i], 0), 0);
	file_names_free(names, n);
}

static void crash_again(struct fake_disk *d);

/* What is in run.image must be a log with all that was acknowledged. */
static void check_image(bool nest)
{
	static struct fake_disk inner;
	struct log *log = NULL;
	uint64_t n, seq;

	if (nest) {
		fake_disk_begin(&inner, run.image);
		inner.moment = crash_again;
		io_set_observer(fake_disk_observe, &inner);
	}
	assert_int_equal(log_open(run.image, &fixture_ids, LOG_CREATE, &log, NULL), 0);
	io_set_observer(NULL, NULL);
	if (nest)
		fake_disk_done(&inner);
	assert_records(run.image, run.acked, &n);
	assert_int_equal(log_last(log), n);
	assert_int_equal(log_append(log, RECORD_POINT, "NEW", 3, 0, &seq), 0);
	assert_int_equal(log_write(log), 0);
	log_close(log);
	assert_int_equal(log_open(run.image, &fixture_ids, 0, &log, NULL), 0);
	assert_int_equal(log_last(log), n + 1);
	log_close(log);
	assert_sound(run.image, 0);
}

/* Power goes again while the log recovers. */
static void crash_again(struct fake_disk *d)
{
	int outer = run.image;
	char name[] = "again";

	if (fake_random(&run.seed, 3) != 0)
		return;
	io_set_observer(NULL, NULL);
	assert_int_equal(mkdirat(scratch, name, 0700), 0);
	run.image = openat(scratch, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fake_disk_crash(d, &run.seed, run.image);
	check_image(false);
	empty_dir(run.image);
	(void)close(run.image);
	assert_int_equal(unlinkat(scratch, name, AT_REMOVEDIR), 0);
	run.image = outer;
	io_set_observer(fake_disk_observe, d);
}

static void crash_now(struct fake_disk *d)
{
	if (run.moments_left == 0 || fake_random(&run.seed, run.one_in) != 0)
		return;
	run.moments_left--;
	io_set_observer(NULL, NULL);
	fake_disk_crash(d, &run.seed, run.image);
	check_image(fake_random(&run.seed, 4) == 0);
	empty_dir(run.image);
	io_set_observer(fake_disk_observe, d);
}

static int append_some(struct log *log)
{
	static const size_t sizes[] = {0, 1, 8, 100, 300, 600, 5000, 20000};
	static uint8_t body[64 << 10];
	uint32_t mark = fake_random(&run.seed, UINT32_MAX);
	size_t size = sizes[fake_random(&run.seed, ARRAY_SIZE(sizes))];
	int r;

	if (run.n >= RECORDS_MAX)
		return 0;
	/* Written down first: a crash may come inside. */
	run.marks[run.n] = mark;
	run.sizes[run.n] = size;
	run.n++;
	make_body(body, mark, size);
	r = log_append(log, RECORD_CHANGE, body, size, 0, NULL);
	if (r < 0)
		run.n--;
	return r;
}

static int sync_some(struct log *log)
{
	struct log_sync s;
	uint64_t n;
	int r, k;

	r = log_sync_begin(log, &s);
	if (r < 0)
		return r;
	n = run.n;
	k = 0;
	if (fake_random(&run.seed, 2) == 0)
		k = append_some(log); /* belongs to the next */
	r = log_sync_end(log, &s, log_sync_run(&s));
	if (r < 0)
		return r;
	must(log_durable(log) == n);
	run.acked = n;
	return k;
}

static struct log *open_run(int dir)
{
	struct log *log = NULL;

	assert_int_equal(log_open(dir, &fixture_ids, LOG_CREATE, &log, NULL), 0);
	log_set_seal_bytes(log, 40000);
	log_set_head_interval(log, 0);
	return log;
}

/* Drops some that nobody was told of, as recovery does. */
static void truncate_some(struct log *log)
{
	uint64_t to = run.acked + fake_random(&run.seed, (uint32_t)(run.n - run.acked) + 1);

	assert_int_equal(log_write(log), 0);
	assert_int_equal(log_truncate(log, to), 0);
	assert_int_equal(log_last(log), to);
	run.n = to;
}

static void work(int dir, unsigned steps)
{
	struct log *log = open_run(dir);

	for (unsigned i = 0; i < steps; i++) {
		switch (fake_random(&run.seed, 12)) {
		case 0:
		case 1:
		case 2: assert_int_equal(sync_some(log), 0); break;
		case 3: assert_int_equal(log_write(log), 0); break;
		case 4:
			assert_int_equal(log_write(log), 0);
			log_close(log);
			log = open_run(dir);
			break;
		case 5:
			if (fake_random(&run.seed, 3) == 0)
				truncate_some(log);
			break;
		default: assert_int_equal(append_some(log), 0); break;
		}
	}
	assert_int_equal(sync_some(log), 0);
	log_close(log);
}

static int make_dir(const char *name)
{
	int fd;

	assert_int_equal(mkdirat(scratch, name, 0700), 0);
	fd = openat(scratch, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void test_power_loss(void **state)
{
	static struct fake_disk disk;
	unsigned long n = rounds(20);
	int dir = make_dir("log");

	run.image = make_dir("image");
	for (unsigned long i = 0; i < n; i++) {
		run.seed = 0x9e3779b97f4a7c15 * (i + 1);
		run.n = run.acked = 0;
		run.moments_left = 12;
		run.one_in = 10;
		fake_disk_begin(&disk, dir);
		disk.moment = crash_now;
		io_set_observer(fake_disk_observe, &disk);
		work(dir, 80);
		io_set_observer(NULL, NULL);
		fake_disk_done(&disk);
		assert_sound(dir, 0);
		empty_dir(dir);
		empty_dir(run.image);
	}
	(void)close(dir);
	(void)close(run.image);
}

/* After a sync failed, the pages count as clean though the disk never got them; a log that is
 * opened again and says "durable" has written them again. */
static void B58_lost_pages(void **state)
{
	static struct fake_disk disk;
	int dir = make_dir("log");
	struct log *log;
	uint64_t n;

	run.image = make_dir("image");
	for (unsigned long i = 0; i < rounds(10); i++) {
		run.seed = 0x9e3779b97f4a7c15 * (i + 1);
		run.n = run.acked = 0;
		fake_disk_begin(&disk, dir);
		io_set_observer(fake_disk_observe, &disk);
		log = open_run(dir);
		for (int k = 0; k < 8; k++)
			assert_int_equal(append_some(log), 0);
		if (i % 2)
			assert_int_equal(sync_some(log), 0);
		assert_int_equal(append_some(log), 0);
		n = log_durable(log);
		assert_int_equal(fault_set("log.sync:1:error"), 0);
		assert_int_equal(log_sync(log), -EIO);
		assert_int_equal(fault_set(NULL), 0);
		assert_int_equal(log_durable(log), n);
		fake_disk_lose(&disk);
		log_close(log);

		log = open_run(dir);
		assert_int_equal(log_last(log), run.n);
		if (i % 3)
			assert_int_equal(append_some(log), 0);
		assert_int_equal(log_sync(log), 0);
		assert_int_equal(log_durable(log), run.n);
		io_set_observer(NULL, NULL);
		run.acked = run.n;
		for (int k = 0; k < 6; k++) {
			fake_disk_crash(&disk, &run.seed, run.image);
			check_image(false);
			empty_dir(run.image);
		}
		log_close(log);
		fake_disk_done(&disk);
		empty_dir(dir);
	}
	(void)close(dir);
	(void)close(run.image);
}

/* A segment got its name and no more: before anything in it counts as durable, the name is. */
static void B58_unsynced_name(void **state)
{
	static struct fake_disk disk;
	int dir = make_dir("log");
	struct log *log;

	run.image = make_dir("image");
	run.seed = 0x9e3779b97f4a7c15;
	run.n = run.acked = 0;
	fake_disk_begin(&disk, dir);
	io_set_observer(fake_disk_observe, &disk);
	log = open_run(dir);
	log_set_seal_bytes(log, 100);
	assert_int_equal(append_some(log), 0);
	assert_int_equal(log_sync(log), 0);
	run.acked = run.n;
	assert_int_equal(fault_set("log.dir.sync:1:error"), 0);
	assert_int_equal(append_some(log), -EIO);
	assert_int_equal(fault_set(NULL), 0);
	log_close(log);

	log = open_run(dir);
	assert_int_equal(log_segments(log), 2);
	assert_int_equal(append_some(log), 0);
	assert_int_equal(log_sync(log), 0);
	io_set_observer(NULL, NULL);
	run.acked = run.n;
	for (int k = 0; k < 10; k++) {
		fake_disk_crash(&disk, &run.seed, run.image);
		check_image(false);
		empty_dir(run.image);
	}
	log_close(log);
	fake_disk_done(&disk);
	(void)close(dir);
	(void)close(run.image);
}

/* ---- B58: what is synced before what ---- */

static struct {
	char text[4096];
	size_t used;
} order;

static const char *base_of(int fd, char *path, size_t size)
{
	char link[64];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, size - 1);
	if (n < 0)
		return "?";
	path[n] = '\0';
	return strrchr(path, '/') + 1;
}

static void note(const struct io_observation *o, void *userdata)
{
	static const char *const words[] = {
		[IO_WRITE] = "write", [IO_SYNC] = "sync",     [IO_TRUNCATE] = "cut",
		[IO_RENAME] = "name", [IO_UNLINK] = "remove", [IO_SYNC_DIR] = "sync-dir",
	};
	char path[PATH_MAX], line[600];
	const char *what = o->event == IO_RENAME     ? o->to
			   : o->event == IO_UNLINK   ? o->name
			   : o->event == IO_SYNC_DIR ? "."
						     : base_of(o->fd, path, sizeof(path));
	size_t last;
	int n;

	(void)userdata;
	n = snprintf(line, sizeof(line), "%s %s\n", words[o->event], what);
	last = order.used >= (size_t)n ? order.used - (size_t)n : 0;
	if (strcmp(order.text + last, line) == 0)
		return; /* several writes of one thing */
	assert_true(order.used + (size_t)n < sizeof(order.text));
	memcpy(order.text + order.used, line, (size_t)n + 1);
	order.used += (size_t)n;
}

static void begin_order(void)
{
	order.used = 0;
	order.text[0] = '\0';
	io_set_observer(note, NULL);
}

static void B58_order(void **state)
{
	struct log *log;

	begin_order();
	log = fixture_open(scratch);
	assert_string_equal(order.text, "write head\n"
					"sync head\n"
					"sync-dir .\n"
					"remove segment.tmp\n"
					"write segment.tmp\n"
					"sync segment.tmp\n"
					"name 0000000000000001.log\n"
					"sync-dir .\n");
	log_set_seal_bytes(log, 500);
	fixture_append(log, "A");
	fixture_append(log, "B");
	begin_order();
	fixture_append(log, "C");
	assert_string_equal(order.text, "write 0000000000000001.log\n"
					"cut 0000000000000001.log\n"
					"sync 0000000000000001.log\n"
					"write segment.tmp\n"
					"sync segment.tmp\n"
					"name 0000000000000003.log\n"
					"sync-dir .\n"
					"write head\n");
	begin_order();
	assert_int_equal(log_sync(log), 0);
	assert_string_equal(order.text, "write 0000000000000003.log\n"
					"sync 0000000000000003.log\n");
	begin_order();
	log_close(log);
	assert_string_equal(order.text, "write head\n"
					"sync head\n");
	assert_int_equal(log_open(scratch, &fixture_ids, 0, &log, NULL), 0);
	begin_order();
	assert_int_equal(log_truncate(log, 1), 0);
	assert_string_equal(order.text, "sync 0000000000000001.log\n"
					"write head\n"
					"sync head\n"
					"remove 0000000000000003.log\n"
					"sync-dir .\n"
					"cut 0000000000000001.log\n"
					"sync 0000000000000001.log\n");
	io_set_observer(NULL, NULL);
	log_close(log);
}

/* ---- every fault point ---- */

/* What is there, of what was appended: at least what was acknowledged. */
static struct log *open_under_faults(int dir, int *ret)
{
	struct log *log = NULL;

	*ret = log_open(dir, &fixture_ids, LOG_CREATE, &log, NULL);
	if (*ret < 0) {
		must(*ret == -EIO || *ret == -ENOSPC);
		return NULL;
	}
	log_set_seal_bytes(log, 3000);
	log_set_head_interval(log, 0);
	must(log_last(log) >= run.acked && log_last(log) <= run.n);
	run.n = log_last(log);
	return log;
}

/* After a failure a log refuses, or may be tried again; "durable" says no more than it did. */
static void after_failure(struct log *log)
{
	uint64_t durable = log_durable(log);
	int r = append_some(log);

	must(r == -EIO || r == -ENOSPC || r == 0);
	must(log_durable(log) == durable);
}

/* Visits all points and goes on by opening again; returns how many things failed. */
static unsigned work_under_faults(int dir)
{
	struct log *log = NULL;
	unsigned failed = 0;
	int r = 0;

	for (unsigned i = 0; i < 30; i++) {
		if (!log)
			log = open_under_faults(dir, &r);
		if (!log) {
			failed++;
			continue;
		}
		if (i == 15 || i == 23) {
			/* A crash inside leaves the old end, or the new one. */
			r = log_write(log);
			if (r >= 0)
				r = log_truncate(log, run.acked);
			if (r >= 0)
				run.n = run.acked;
		} else {
			r = i % 4 == 3 ? sync_some(log) : append_some(log);
		}
		if (r < 0) {
			failed++;
			after_failure(log);
		} else if (i % 8 != 6) {
			continue;
		}
		(void)log_write(log);
		log_close(log);
		log = NULL;
	}
	log_close(log);
	return failed;
}

static int killed_work(void *arg)
{
	(void)work_under_faults(*(int *)arg);
	return 0;
}

static void faults(const char *kind)
{
	bool kill = strcmp(kind, "kill") == 0;
	int dir = make_dir("log");
	unsigned n, quiet = 0;

	/* Some may fail and nothing is lost; a long row of them: it is through. */
	for (n = 1; quiet < 50; n++) {
		bool failed;
		char plan[64];
		struct log *log;
		uint64_t count;

		run.seed = 0x9e3779b97f4a7c15;
		run.n = run.acked = 0;
		(void)snprintf(plan, sizeof(plan), "*:%u:%s", n, kind);
		assert_int_equal(fault_set(plan), 0);
		failed = kill ? child_run(killed_work, &dir) == -SIGKILL
			      : work_under_faults(dir) > 0;
		quiet = failed ? 0 : quiet + 1;
		assert_int_equal(fault_set(NULL), 0);
		assert_int_equal(log_open(dir, &fixture_ids, LOG_CREATE, &log, NULL), 0);
		assert_records(dir, run.acked, &count);
		assert_int_equal(log_last(log), count);
		log_close(log);
		assert_sound(dir, 0);
		empty_dir(dir);
	}
	assert_true(n > 150); /* it did visit points */
	(void)close(dir);
}

static void B58_errors(void **state)
{
	faults("error");
}

static void B58_cuts(void **state)
{
	faults("cut");
}

static void test_no_space(void **state)
{
	faults("error=ENOSPC");
}

static void test_kills(void **state)
{
	faults("kill");
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_power_loss), TEST(B58_lost_pages), TEST(B58_unsynced_name),
		TEST(B58_order),       TEST(B58_errors),     TEST(B58_cuts),
		TEST(test_no_space),   TEST(test_kills),
	};

	const int flags = MAP_SHARED | MAP_ANONYMOUS;

	/* cppcheck-suppress invalidFunctionArg */
	run_shared = mmap(NULL, sizeof(run), PROT_READ | PROT_WRITE, flags, -1, 0);
	if (run_shared == MAP_FAILED)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
