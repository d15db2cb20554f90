/*
 * Several processes do what comes to their minds; the trees are equal whenever they pause.
 *
 * Except for hard links: what is changed through a second name that comes and goes between
 * two looks raises no event at the first name; the sweep finds it.
 */
#include "tests/unit/sync-fixture.h"

static int start(void **state)
{
	int r = setup(state);

	if (r == 0)
		brain_start(&b, root, dir_fd);
	return r;
}

static void test_random(void **state)
{
	unsigned rounds = getenv("LIMB_TEST_LONG") ? 300 : 15;

	(void)state;
	for (unsigned i = 0; i < rounds; i++) {
		char command[1024];

		(void)snprintf(
			command, sizeof(command),
			"RANDOM=%u; set +e; exec 2>/dev/null; p() { echo $((RANDOM %% "
			"5))/$((RANDOM %% 4)); }; "
			"mkdir -p 0 1 2 3 4; one() { case $((RANDOM %% 12)) in 0|1) echo $RANDOM "
			">$(p);; "
			"2) mkdir $(p);; 3) mv -T $(p) $(p);; 4) rm -r $(p);; 5) cp -a $(p) $(p);; "
			"6) ln -sfT x $(p);; 7) echo x >>$(p);; 8) chmod 7$((RANDOM %% 8))5 $(p);; "
			"9) mv -T $((RANDOM %% 5)) x$((RANDOM %% 5)); mv -T x$((RANDOM %% 5)) "
			"$((RANDOM %% 5));; "
			"10) chmod u=rwX,go= $(p);; 11) a=$(p); echo $RANDOM >t; mv -T t $a;; "
			"esac; }; "
			"(for i in {1..60}; do one; done) & RANDOM=%u; for i in {1..60}; do one; "
			"done; wait; true",
			i, i + 1000);
		sh_live(command);
		(void)check();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_random, start, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
