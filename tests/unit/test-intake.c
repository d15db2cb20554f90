/* The end of a barrier or a job that claims changes which did not come is refused, and its
 * environment is cut off. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "brain/intake.h"
#include "brain/job.h"

static struct env make_env(struct brain *b)
{
	return (struct env){.brain = b, .name = (char *)"e", .incarnation = 3, .last_number = 41};
}

static void up_to_what_came(void **state)
{
	struct brain b = {0};
	struct env env = make_env(&b);

	(void)state;
	assert_int_equal(intake_check_number(&env, 0), 0);
	assert_int_equal(intake_check_number(&env, 41), 0);
	assert_false(env.hostile);
	assert_int_equal(env.n_reasons, 0);
	assert_int_equal(intake_check_number(&env, 42), -EPROTO);
	assert_true(env.hostile);
	assert_true(env_has_reason(&env, "lies"));
	env_clear_reason(&env, NULL);
}

/* What is told apart by the number alone: no such job is known, and no line is up. */
static void end_of_a_job(void **state)
{
	struct brain b = {0};
	struct env env = make_env(&b);
	struct entry_job e = {.head = {sizeof(e), ENTRY_JOB_EXIT, 0}, .job = "j", .number = 41};

	(void)state;
	assert_int_equal(job_on_exit(&env, &e.head), -ENOTCONN);
	assert_false(env.hostile);
	e.number = UINT64_MAX;
	assert_int_equal(job_on_exit(&env, &e.head), -EPROTO);
	assert_true(env.hostile);
	env_clear_reason(&env, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(up_to_what_came),
		cmocka_unit_test(end_of_a_job),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
