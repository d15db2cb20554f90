#include "tests/functional/view-rig/rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/clock.h"

/* read FILE SECONDS: each content is one letter; exit 1 for a missing or a mixed one. */
int run_read(char **argv)
{
	uint64_t end_ms = clock_mono_ms() + strtoull(argv[1], NULL, 10) * 1000, n = 0;
	static char mem[65536];

	for (; clock_mono_ms() < end_ms; n++) {
		int fd = open(argv[0], O_RDONLY | O_CLOEXEC);
		ssize_t got = fd < 0 ? -1 : read(fd, mem, sizeof(mem));

		if (got < 0) {
			(void)printf("%s after %llu reads: %m\n", fd < 0 ? "open" : "read",
				     (unsigned long long)n);
			return 1;
		}
		for (ssize_t i = 1; i < got; i++) {
			if (mem[i] != mem[0]) {
				(void)printf("mixed at %zd of %zd: '%c' in '%c'\n", i, got, mem[i],
					     mem[0]);
				return 1;
			}
		}
		if (got == 0) {
			(void)puts("empty");
			return 1;
		}
		(void)close(fd);
	}
	(void)printf("%llu reads\n", (unsigned long long)n);
	return 0;
}

/* ---- crowd DIR THREADS SECONDS ---- */

static const char *crowd_dir;
static uint64_t crowd_end_ms;
static _Atomic uint64_t crowd_calls, crowd_longest_ns, crowd_missed;

static void timed(uint64_t before_ns)
{
	uint64_t ns = clock_mono_ns() - before_ns;
	uint64_t longest = atomic_load(&crowd_longest_ns);

	while (ns > longest && !atomic_compare_exchange_weak(&crowd_longest_ns, &longest, ns))
		;
	atomic_fetch_add(&crowd_calls, 1);
}

/* Files named stay-* do not change: each pass has to meet all of them once. */
static unsigned list_once(void)
{
	DIR *d = opendir(crowd_dir);
	const struct dirent *e;
	unsigned n = 0;

	while (d && (e = readdir(d)))
		n += strncmp(e->d_name, "stay-", 5) == 0;
	if (d)
		(void)closedir(d);
	return n;
}

static void *crowd(void *userdata)
{
	unsigned long self = (unsigned long)(uintptr_t)userdata, i = 0;
	unsigned first = 0, n;
	char path[4096];
	struct stat st;

	for (; clock_mono_ms() < crowd_end_ms; i++) {
		uint64_t before_ns = clock_mono_ns();

		(void)snprintf(path, sizeof(path), "%s/churn-%lu", crowd_dir, (i + self) % 50);
		switch (i % 4) {
		case 0: (void)stat(path, &st); break;
		case 1: (void)close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)); break;
		case 2: (void)close(open(path, O_RDONLY | O_CLOEXEC)); break;
		default:
			n = list_once();
			first = first ? first : n;
			if (n != first)
				atomic_fetch_add(&crowd_missed, 1);
		}
		timed(before_ns);
	}
	return NULL;
}

int run_crowd(char **argv)
{
	unsigned n = (unsigned)strtoul(argv[1], NULL, 10);
	pthread_t threads[64];

	crowd_dir = argv[0];
	crowd_end_ms = clock_mono_ms() + strtoull(argv[2], NULL, 10) * 1000;
	for (unsigned i = 0; i < MIN(n, 64u); i++)
		if (pthread_create(&threads[i], NULL, crowd, (void *)(uintptr_t)i) != 0)
			fail(-EAGAIN, "thread");
	for (unsigned i = 0; i < MIN(n, 64u); i++)
		(void)pthread_join(threads[i], NULL);
	(void)printf("%llu calls, longest %llu ms, %llu listings incomplete\n",
		     (unsigned long long)crowd_calls,
		     (unsigned long long)(crowd_longest_ns / 1000000),
		     (unsigned long long)crowd_missed);
	return crowd_missed || crowd_longest_ns > 5000000000ull;
}

/* hold FILE: opens and maps it; at each line on stdin prints it as the descriptor and as the
 * mapping show it. */
int run_hold(char **argv)
{
	static char mem[1 << 20];
	int fd = open(argv[0], O_RDONLY | O_CLOEXEC);
	const char *map;
	char line[16];

	if (fd < 0)
		fail(-errno, argv[0]);
	map = mmap(NULL, sizeof(mem), PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		fail(-errno, "mmap");
	(void)puts("held");
	(void)fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		ssize_t n = pread(fd, mem, sizeof(mem), 0);
		struct stat st;

		if (n < 0 || fstat(fd, &st) < 0)
			fail(-errno, "read");
		(void)printf("size %lld read %zd %s\n", (long long)st.st_size, n,
			     memcmp(map, mem, (size_t)n) == 0 ? "mapped alike" : "mapped other");
		(void)fwrite(mem, 1, (size_t)n, stdout);
		(void)putchar('\n');
		(void)fflush(stdout);
	}
	return 0;
}

/* list DIR: in small steps, one at each line on stdin; all names at the end, once each. */
int run_list(char **argv)
{
	DIR *d = opendir(argv[0]);
	const struct dirent *e;
	char line[64];
	long want, at;

	if (!d)
		fail(-errno, argv[0]);
	(void)puts("open");
	(void)fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		want = strtol(line, NULL, 10);
		while (want-- > 0) {
			/* Through the kernel each time, from where telldir says. */
			at = telldir(d);
			seekdir(d, at);
			e = readdir(d);
			if (!e) {
				(void)puts("end");
				(void)fflush(stdout);
				(void)closedir(d);
				return 0;
			}
			(void)puts(e->d_name);
		}
		(void)puts("-");
		(void)fflush(stdout);
	}
	(void)closedir(d);
	return 0;
}
