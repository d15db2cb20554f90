#include "tests/functional/view-rig/rig.h"

#include <stdio.h>

void fail(int r, const char *what)
{
	(void)fprintf(stderr, "view-rig: error: %s: %s\n", what, strerror(r < 0 ? -r : r));
	exit(1);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int n_args;
		int (*run)(char **argv);
	} commands[] = {
		{"read", 2, run_read},
		{"crowd", 3, run_crowd},
		{"hold", 1, run_hold},
		{"list", 1, run_list},
	};

	if (argc == 6 && strcmp(argv[1], "limbd") == 0) {
		run_limbd(argv + 2);
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (argc == commands[i].n_args + 2 && strcmp(argv[1], commands[i].name) == 0)
			return commands[i].run(argv + 2);
	(void)fputs("usage: see rig.h\n", stderr);
	return 2;
}
