/*
 * replay.c - a main() for fuzzers outside of fuzzing builds.
 *
 * Runs LLVMFuzzerTestOneInput() once on nothing and once on each file of
 * tests/data/fuzz/NAME, where the program is fuzz-NAME, and prints TAP.  A
 * finding's input, put there, stays tested.
 */
#include <dirent.h>
#include <err.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void replay(const char *path)
{
	uint8_t *data;
	size_t n;
	long size;
	FILE *f = fopen(path, "re");

	if (!f || fseek(f, 0, SEEK_END) < 0 || (size = ftell(f)) < 0)
		err(1, "cannot read '%s'", path);
	rewind(f);
	/* Of exactly this size, so that AddressSanitizer sees a read past the end. */
	data = malloc((size_t)size);
	if (!data && size > 0)
		err(1, "cannot read '%s'", path);
	n = fread(data, 1, (size_t)size, f);
	if (n != (size_t)size)
		err(1, "cannot read '%s'", path);
	fclose(f);
	LLVMFuzzerTestOneInput(data, n);
	free(data);
}

static int not_hidden(const struct dirent *d)
{
	return d->d_name[0] != '.';
}

int main(int argc, char **argv)
{
	const char *top = getenv("LIMB_TOP_SRCDIR"), *name = strrchr(argv[0], '/');
	struct dirent **entries = NULL;
	char *dir, *path;
	int n, i;

	name = name ? name + 1 : argv[0];
	if (strncmp(name, "fuzz-", 5) == 0)
		name += 5;
	if (asprintf(&dir, "%s/tests/data/fuzz/%s", top ? top : ".", name) < 0)
		err(1, "out of memory");
	n = scandir(dir, &entries, not_hidden, alphasort);
	if (n < 0)
		n = 0;
	printf("1..%d\n", n + 1);
	LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
	puts("ok 1 - empty input");
	for (i = 0; i < n; i++) {
		if (asprintf(&path, "%s/%s", dir, entries[i]->d_name) < 0)
			err(1, "out of memory");
		replay(path);
		printf("ok %d - %s\n", i + 2, entries[i]->d_name);
		fflush(stdout);
		free(path);
		free(entries[i]);
	}
	free(entries);
	free(dir);
	return 0;
}
