/* A worker's word counts as far as it makes sense; and a copy of an index is made when it is
 * worth it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/file.h"
#include "brain/upkeep-check.h"
#include "brain/upkeep.h"
#include "tests/unit/store-fixture.h"

#define FRAMES 12

static const char *worker(void)
{
	static char path[4096];
	const char *top = getenv("LIMB_TOP_BUILDDIR");

	(void)snprintf(path, sizeof(path), "%s/brain/limb-ingest", top ? top : ".");
	return path;
}

/* A store with one sealed pack of FRAMES frames. */
static struct store *one_pack(struct store_merge_job *job, uint64_t offsets[FRAMES])
{
	const struct store_merge_pace none = {0};
	struct store *st = open_store(STORE_WRITE);
	struct test_pack p;

	assert_int_equal(pack_begin(st, &p, 0), 0);
	for (size_t i = 0; i < FRAMES; i++) {
		offsets[i] = p.end;
		assert_int_equal(pack_put(st, &p, 5, 3000), 0);
	}
	assert_int_equal(pack_close(st, &p), 0);
	assert_int_equal(store_merge_next(st, &none, job), 1);
	return st;
}

static void flip(const uint8_t pack_id[16], uint64_t at)
{
	uint8_t byte;
	int fd;

	assert_int_equal(fchmodat(scratch, pack_path(pack_id), 0600, 0), 0);
	fd = openat(scratch, pack_path(pack_id), O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
	(void)close(fd);
}

static void the_real_one(void **state)
{
	const atomic_bool stop = false;
	struct store_merge_verdict v;
	uint64_t offsets[FRAMES];
	struct store_merge_job job;
	struct store *st = one_pack(&job, offsets);

	assert_int_equal(upkeep_check(worker(), NULL, &job, &stop, &v), 0);
	assert_true(v.whole);
	assert_int_equal(v.n_good, FRAMES);
	assert_memory_equal(v.good, offsets, sizeof(offsets));
	free((void *)v.good);

	/* Bytes behind a header and its table of five. */
	flip(job.pack_id, offsets[3] + FRAME_HEADER_BYTES + 5 * FRAME_MEMBER_BYTES + 7);
	assert_int_equal(upkeep_check(worker(), NULL, &job, &stop, &v), 0);
	assert_false(v.whole);
	assert_int_equal(v.n_good, FRAMES - 1);
	assert_memory_equal(v.good + 3, offsets + 4, (FRAMES - 4) * sizeof(*offsets));
	free((void *)v.good);

	/* Behind a header that is none, nothing counts. */
	flip(job.pack_id, offsets[9]);
	assert_int_equal(upkeep_check(worker(), NULL, &job, &stop, &v), 0);
	assert_false(v.whole);
	assert_int_equal(v.n_good, 8);
	free((void *)v.good);
	store_merge_done(&job);
	store_close(st);
}

static void check_script(const struct store_merge_job *job, const char *code, size_t n_good,
			 bool whole)
{
	const atomic_bool stop = false;
	struct store_merge_verdict v;
	char text[256], path[64];

	(void)snprintf(text, sizeof(text), "#!/bin/sh\n%s\n", code);
	scratch_write(scratch, "worker", text);
	assert_int_equal(fchmodat(scratch, "worker", 0755, 0), 0);
	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d/worker", (int)getpid(), scratch);
	assert_int_equal(upkeep_check(path, NULL, job, &stop, &v), 0);
	assert_int_equal(v.n_good, n_good);
	assert_int_equal(v.whole, whole);
	free((void *)v.good);
}

static void others(void **state)
{
	const atomic_bool stop = true;
	struct store_merge_verdict v;
	uint64_t offsets[FRAMES];
	struct store_merge_job job;
	struct store *st = one_pack(&job, offsets);

	check_script(&job, "exit 0", 0, false);
	check_script(&job, "kill -SEGV $$", 0, false);
	check_script(&job, "printf '\\100\\0\\0\\0\\0\\0\\0\\0\\101\\0\\0'", 1, false);
	check_script(&job,
		     "printf '\\100\\0\\0\\0\\0\\0\\0\\0\\377\\377\\377\\377\\377\\377\\377\\377'",
		     1, true);
	check_script(&job, "printf '\\102\\0\\0\\0\\0\\0\\0\\0\\101\\0\\0\\0\\0\\0\\0\\0'", 1,
		     false);
	check_script(&job, "exec cat /dev/zero", 1, false);
	assert_int_equal(upkeep_check("/nothing/there", NULL, &job, &stop, &v), -ENOENT);
	assert_int_equal(upkeep_check(worker(), NULL, &job, &stop, &v), -ECANCELED);
	store_merge_done(&job);
	store_close(st);
}

static bool due(uint64_t records, uint64_t nodes, uint64_t since_ms, uint64_t idle_ms)
{
	const struct upkeep_copy_facts f = {records, nodes, since_ms, idle_ms, 20000};

	return upkeep_copy_due(&f);
}

static void copies(void **state)
{
	(void)state;
	assert_true(due(32, 0, UINT64_MAX, 20000));
	assert_false(due(31, 0, UINT64_MAX, 20000));
	assert_false(due(0, 0, UINT64_MAX, UINT64_MAX));
	/* The larger the index, the more has to be new. */
	assert_false(due(7000, 1000000, UINT64_MAX, 20000));
	assert_true(due(8000, 1000000, UINT64_MAX, 20000));
	assert_true(due(32, 0, 60000, 20000));
	assert_false(due(1u << 30, 0, 59999, 20000));
	assert_false(due(255, 0, UINT64_MAX, 19999));
	assert_true(due(256, 0, UINT64_MAX, 0));
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, store_test_setup, store_test_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_real_one),
		TEST(others),
		cmocka_unit_test(copies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
