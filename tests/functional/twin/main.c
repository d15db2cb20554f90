#include "tests/functional/twin/twin.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <sys/wait.h>

enum { LAST = 60, NOTE = 200, SWEEP = 2000 };

struct twin twin;

static char notes[LAST][NOTE];
static size_t n_notes;
static uint64_t arg_ops = 2000, arg_every;
static const char *arg_command;
static bool arg_hold, arg_compare;

/* splitmix64: any seed will do, and the next run has the same numbers. */
static uint64_t next(void)
{
	uint64_t z = twin.random += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

uint64_t below(uint64_t n)
{
	return n > 0 ? next() % n : 0;
}

bool one_in(uint64_t n)
{
	return below(n) == 0;
}

const uint8_t *some_bytes(size_t n)
{
	static uint8_t mem[SIZE_TOP];
	uint64_t word = next();

	for (size_t i = 0; i < n; i++) {
		if (i % 64 == 0)
			word = next() | 0x0101010101010101ull; /* no zeros: holes are told */
		mem[i] = (uint8_t)(word >> (i % 8 * 8));
	}
	return mem;
}

void note(const char *format, ...)
{
	char *line = notes[n_notes++ % LAST];
	va_list ap;
	int n = snprintf(line, NOTE, "%llu: ", (unsigned long long)twin.op);

	va_start(ap, format);
	(void)vsnprintf(line + n, NOTE - (size_t)n, format, ap);
	va_end(ap);
}

void differ(const char *format, ...)
{
	va_list ap;

	(void)printf("seed %llu\n", (unsigned long long)twin.seed);
	for (size_t i = n_notes > LAST ? n_notes - LAST : 0; i < n_notes; i++)
		(void)printf("  %s\n", notes[i % LAST]);
	(void)printf("difference: ");
	va_start(ap, format);
	(void)vprintf(format, ap);
	va_end(ap);
	(void)printf("\n");
	exit(1);
}

long result(long r)
{
	return r < 0 ? -errno : r;
}

static const char *said(long r)
{
	return r < 0 ? strerror((int)-r) : "";
}

void same(const outcome r, const char *what)
{
	if (r[VIEW] != r[NATIVE])
		differ("%s: view %ld %s, native %ld %s", what, r[VIEW], said(r[VIEW]), r[NATIVE],
		       said(r[NATIVE]));
}

static void run_command(void)
{
	pid_t pid;
	int status;

	slots_sync();
	if (!arg_hold)
		slots_close_all();
	(void)close(twin.dir[VIEW]);
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		(void)execl("/bin/sh", "sh", "-c", arg_command, NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0)
		differ("'%s' failed", arg_command);
	note("ran '%s'", arg_command);
}

static int open_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0) {
		(void)fprintf(stderr, "twin: cannot open '%s': %m\n", path);
		exit(2);
	}
	return fd;
}

static void run_one(void)
{
	const struct operation *of = one_in(3) ? name_operations : slot_operations;
	size_t n = of == name_operations ? n_name_operations : n_slot_operations, i;
	uint64_t sum = 0, at;

	for (i = 0; i < n; i++)
		sum += of[i].weight;
	at = below(sum);
	for (i = 0; at >= of[i].weight; i++)
		at -= of[i].weight;
	of[i].run();
}

static void run(char **dirs)
{
	uint64_t end = twin.op + arg_ops;

	twin.random = twin.seed;
	for (; twin.op < end; twin.op++) {
		if (arg_every && twin.op % arg_every == arg_every - 1) {
			run_command();
			twin.dir[VIEW] = open_dir(dirs[VIEW]);
		}
		run_one();
		if (twin.op % SWEEP == SWEEP - 1) {
			slots_sync(); /* what is only in a mapping has no time of its own yet */
			compare_trees(twin.dir[VIEW], twin.dir[NATIVE]);
		}
	}
	slots_sync();
	slots_close_all();
	compare_trees(twin.dir[VIEW], twin.dir[NATIVE]);
}

static bool parse(int argc, char **argv)
{
	static const struct option options[] = {
		{"seed", required_argument, NULL, 's'},
		{"ops", required_argument, NULL, 'o'},
		{"first", required_argument, NULL, 'f'},
		{"every", required_argument, NULL, 'e'},
		{"hold", no_argument, NULL, 'h'},
		{"compare", no_argument, NULL, 'c'},
		{0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (c) {
		case 's': twin.seed = strtoull(optarg, NULL, 10); break;
		case 'o': arg_ops = strtoull(optarg, NULL, 10); break;
		case 'f': twin.op = strtoull(optarg, NULL, 10); break;
		case 'e': arg_every = strtoull(optarg, NULL, 10); break;
		case 'h': arg_hold = true; break;
		case 'c': arg_compare = true; break;
		default: return false;
		}
	}
	if (arg_every && optind + 3 == argc)
		arg_command = argv[optind + 2];
	return optind + 2 + (arg_every > 0) == argc;
}

int main(int argc, char **argv)
{
	twin.seed = 1;
	if (!parse(argc, argv)) {
		(void)fprintf(stderr, "usage: twin VIEW NATIVE ..., see twin.h\n");
		return 2;
	}
	for (size_t i = 0; i < SIDES; i++)
		twin.dir[i] = open_dir(argv[optind + (int)i]);
	if (arg_compare)
		compare_trees(twin.dir[VIEW], twin.dir[NATIVE]);
	else
		run(argv + optind);
	return 0;
}
