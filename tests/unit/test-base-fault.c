#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/util.h"

#ifdef LIMB_FAULTS

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tests/unit/child.h"
#include "tests/unit/scratch.h"

static enum fault_kind visit(const char *name)
{
	int err = -1;

	return fault_visit(name, &err);
}

/* A plan hits the count'th visit of its point, once, and no other point. */
static void hits_one_visit(void **state)
{
	int err = -1;

	assert_int_equal(fault_set("a.b:3:error"), 0);
	assert_int_equal(visit("a.b"), FAULT_NONE);
	assert_int_equal(visit("a"), FAULT_NONE);
	assert_int_equal(visit("a.bc"), FAULT_NONE);
	assert_int_equal(visit("a.b"), FAULT_NONE);
	assert_int_equal(fault_visit("a.b", &err), FAULT_ERROR);
	assert_int_equal(err, EIO);
	assert_int_equal(visit("a.b"), FAULT_NONE);
}

/* Each kind comes out as written, an errno may be named, and rules of one plan
 * count apart. */
static void kinds_and_errnos(void **state)
{
	int err = -1;

	assert_int_equal(fault_set("a:1:cut,b:1:kill,a:2:error=ENOSPC,c:1:cut=EDQUOT"), 0);
	assert_int_equal(fault_visit("a", &err), FAULT_CUT);
	assert_int_equal(err, EIO);
	assert_int_equal(visit("b"), FAULT_KILL);
	assert_int_equal(fault_visit("a", &err), FAULT_ERROR);
	assert_int_equal(err, ENOSPC);
	assert_int_equal(fault_visit("c", &err), FAULT_CUT);
	assert_int_equal(err, EDQUOT);
}

/* "*" counts the visits of all points together. */
static void star_counts_all(void **state)
{
	assert_int_equal(fault_set("*:3:cut"), 0);
	assert_int_equal(visit("a"), FAULT_NONE);
	assert_int_equal(visit("b"), FAULT_NONE);
	assert_int_equal(visit("c"), FAULT_CUT);
	assert_int_equal(visit("c"), FAULT_NONE);
}

/* A new plan starts its counts anew, and no plan does nothing. */
static void set_restarts(void **state)
{
	assert_int_equal(fault_set("a:2:error"), 0);
	assert_int_equal(visit("a"), FAULT_NONE);
	assert_int_equal(fault_set("a:2:error"), 0);
	assert_int_equal(visit("a"), FAULT_NONE);
	assert_int_equal(visit("a"), FAULT_ERROR);
	assert_int_equal(fault_set("a:1:error"), 0);
	assert_int_equal(fault_set(NULL), 0);
	assert_int_equal(visit("a"), FAULT_NONE);
}

/* A plan with a mistake is refused whole, and the old one stays. */
static void bad_plans(void **state)
{
	static const char *const bad[] = {
		"a",	       "a:1",	     ":1:error",   "a:0:error", "a:-1:error",
		"a:x:error",   "a:1x:error", "a:1:errors", "a:1:",	"a:1:error=",
		"a:1:error=E", "a:1:error,", ",",	   "a::error",	"a:1:error,b:1:x",
	};

	assert_int_equal(fault_set("a:1:error"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (fault_set(bad[i]) != -EINVAL)
			fail_msg("'%s' was taken", bad[i]);
	assert_int_equal(visit("a"), FAULT_ERROR);
}

enum { THREADS = 8, VISITS = 5000 };

static void *visit_often(void *arg)
{
	atomic_int *hits = arg;

	for (int i = 0; i < VISITS; i++)
		if (visit("a") != FAULT_NONE)
			atomic_fetch_add(hits, 1);
	return NULL;
}

/* Threads share a count: the last of all visits is hit, and by one only. */
static void counts_across_threads(void **state)
{
	pthread_t threads[THREADS];
	atomic_int hits = 0;

	assert_int_equal(fault_set("a:40000:error,a:40001:cut"), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, visit_often, &hits), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(hits, 1);
	assert_int_equal(visit("a"), FAULT_CUT);
}

static int die(void *arg)
{
	fault_die();
}

/* Death is by SIGKILL: no handler, no exit function, no flush. */
static void dies_by_sigkill(void **state)
{
	assert_int_equal(child_run(die, NULL), -SIGKILL);
}

/* This program again, as a child that only makes the visits of visit_all(). */
static int exec_again(void *arg)
{
	char *const *variables = arg;

	for (; *variables; variables++)
		if (putenv(*variables) != 0)
			return 99;
	(void)execl("/proc/self/exe", "test", "visits", (char *)NULL);
	return 99;
}

static int write_now(const char *path, const char *text)
{
	char all[FAULT_NOW_BYTES];
	cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	(void)snprintf(all, sizeof(all), "%-*s", FAULT_NOW_BYTES - 1, text);
	return fd >= 0 && pwrite(fd, all, sizeof(all), 0) == sizeof(all);
}

/* 20: what is written now holds now, and no longer than it stands there. */
static int change_now(void)
{
	const char *path = getenv("LIMB_FAULT_NOW");
	int64_t before = clock_real_ns();

	if (!write_now(path, "x.four:cut=EDQUOT clock:-3600") || visit("x.four") != FAULT_CUT ||
	    visit("x.four") != FAULT_CUT || visit("x.fou") != FAULT_NONE ||
	    clock_real_ns() > before - 3500ll * 1000000000)
		return 30;
	if (!write_now(path, "") || visit("x.four") != FAULT_NONE || clock_real_ns() < before)
		return 31;
	return 20;
}

/* Status 10 + number of the first point that was hit. */
static int visit_all(void)
{
	static const char *const points[] = {"x.one", "x.two", "x.one", "x.three"};

	for (int i = 0; i < (int)ARRAY_SIZE(points); i++)
		if (visit(points[i]) != FAULT_NONE)
			return 10 + i;
	return getenv("LIMB_FAULT_NOW") ? change_now() : 0;
}

/* LIMB_FAULT is the plan of a program that sets none. */
static void plan_from_environment(void **state)
{
	char plan[] = "LIMB_FAULT=x.one:2:error";
	char *variables[] = {plan, NULL};

	assert_int_equal(child_run(exec_again, variables), 12);
}

/* A LIMB_FAULT that cannot be read ends the program: the test that set it would
 * otherwise test nothing. */
static void bad_environment_aborts(void **state)
{
	char plan[] = "LIMB_FAULT=x.one:error:2";
	char *variables[] = {plan, NULL};

	assert_int_equal(child_run(exec_again, variables), -SIGABRT);
}

/* LIMB_FAULT_TRACE gets one line for each point, at its first visit. */
static void trace_names_points_once(void **state)
{
	char trace[PATH_MAX + 32];
	char *variables[] = {trace, NULL};

	(void)snprintf(trace, sizeof(trace), "LIMB_FAULT_TRACE=%s/trace", scratch_path);
	assert_int_equal(child_run(exec_again, variables), 0);
	assert_int_equal(scratch_is(scratch, "trace", "x.one\nx.two\nx.three\n"), 1);
	assert_int_equal(child_run(exec_again, variables), 0);
	assert_int_equal(
		scratch_is(scratch, "trace", "x.one\nx.two\nx.three\nx.one\nx.two\nx.three\n"), 1);
}

static void changes_while_it_runs(void **state)
{
	char path[PATH_MAX + 16], now[PATH_MAX + 32];
	char *variables[] = {now, NULL};

	(void)snprintf(path, sizeof(path), "%s/now", scratch_path);
	(void)snprintf(now, sizeof(now), "LIMB_FAULT_NOW=%s", path);
	assert_int_equal(child_run(exec_again, variables), -SIGABRT);
	assert_true(write_now(path, "x.two:error"));
	assert_int_equal(child_run(exec_again, variables), 11);
	assert_true(write_now(path, "nothing"));
	assert_int_equal(child_run(exec_again, variables), 20);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hits_one_visit),
		cmocka_unit_test(kinds_and_errnos),
		cmocka_unit_test(star_counts_all),
		cmocka_unit_test(set_restarts),
		cmocka_unit_test(bad_plans),
		cmocka_unit_test(counts_across_threads),
		cmocka_unit_test(dies_by_sigkill),
		cmocka_unit_test(plan_from_environment),
		cmocka_unit_test(bad_environment_aborts),
		cmocka_unit_test_setup_teardown(trace_names_points_once, scratch_setup,
						scratch_teardown),
		cmocka_unit_test_setup_teardown(changes_while_it_runs, scratch_setup,
						scratch_teardown),
	};

	if (argc == 2 && strcmp(argv[1], "visits") == 0)
		return visit_all();
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

/* Without --enable-faults a visit is a constant. */
static void nothing_happens(void **state)
{
	int err = 42;

	assert_int_equal(fault_visit("a", &err), FAULT_NONE);
	assert_int_equal(err, 42);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_happens)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
