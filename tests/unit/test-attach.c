/* A root is obeyed only when it is the one that the journal knows; all 2,048 cases. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "brain/attach.h"

static struct attach_facts facts_of(unsigned bits)
{
	struct attach_facts f = {
		.root_missing = bits & 1,
		.root_empty = bits & 2,
		.has_mark = bits & 4,
		.mark_equal = (bits & 12) == 12,
		.shadow_incarnation = bits & 16 ? 7 : 0,
		.incarnation = bits & 32 ? 7 : 0,
		.fresh = bits & 64,
		.restoring = bits & 128,
		.known_files = bits & 256,
		.restarted = bits & 512,
		.unfinished = bits & 1024,
	};

	return f;
}

static void each(void (*check)(const struct attach_facts *f, const struct attach_decision *d))
{
	for (unsigned bits = 0; bits < 2048; bits++) {
		struct attach_facts f = facts_of(bits);
		struct attach_decision d = attach_judge(&f);

		check(&f, &d);
	}
}

static void obeys_only_the_known_root(const struct attach_facts *f, const struct attach_decision *d)
{
	if (d->mode != ATTACH_SYNC)
		return;
	assert_false(f->root_missing);
	assert_true(f->mark_equal || f->fresh || f->incarnation == 0);
	/* Half a rebuild has the mark, too; what it lacks would become deletions. */
	assert_true(!f->unfinished || f->fresh || f->incarnation == 0);
	/* Emptied while nobody watched: its emptiness would become deletions. */
	if (f->root_empty && f->known_files && !f->shadow_incarnation && f->incarnation)
		assert_true(f->fresh);
}

static void restores_only_what_was_made_for_it(const struct attach_facts *f,
					       const struct attach_decision *d)
{
	if (d->mode == ATTACH_RESTORE)
		assert_true(f->restoring && (f->fresh || f->incarnation == 0) && !f->root_missing);
}

static void holds_with_a_reason(const struct attach_facts *f, const struct attach_decision *d)
{
	(void)f;
	if (d->mode == ATTACH_HOLD) {
		assert_non_null(d->reason);
		assert_non_null(d->detail);
		assert_false(d->new_incarnation);
		assert_false(d->set_mark);
	}
}

static void marks_only_fresh_roots(const struct attach_facts *f, const struct attach_decision *d)
{
	if (d->set_mark)
		assert_true((f->fresh || f->incarnation == 0) && d->new_incarnation);
}

static void the_same_life_goes_on(const struct attach_facts *f, const struct attach_decision *d)
{
	if (d->mode == ATTACH_SYNC && f->incarnation && !f->fresh &&
	    f->shadow_incarnation == f->incarnation)
		assert_false(d->new_incarnation);
}

static void test_obeys(void **state)
{
	(void)state;
	each(obeys_only_the_known_root);
}

static void test_restores(void **state)
{
	(void)state;
	each(restores_only_what_was_made_for_it);
}

static void test_holds(void **state)
{
	(void)state;
	each(holds_with_a_reason);
}

static void test_marks(void **state)
{
	(void)state;
	each(marks_only_fresh_roots);
}

static void test_goes_on(void **state)
{
	(void)state;
	each(the_same_life_goes_on);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_obeys),	cmocka_unit_test(test_restores),
		cmocka_unit_test(test_holds),	cmocka_unit_test(test_marks),
		cmocka_unit_test(test_goes_on),
	};

	return cmocka_run_group_tests_name("attach", tests, NULL, NULL);
}
