/*
 * bench-probe - latencies that a shell is too slow to measure
 *
 *	bench-probe spawn N -- CMD ARG...		posix_spawn of CMD until it is waited for
 *	bench-probe sync-spawn N FILE -- CMD ARG...	the same, and in turn its peer: posix_spawn
 *							of true and two fdatasyncs of FILE, 256
 *							bytes appended before each
 *	bench-probe save N FILE SEEN			FILE is rewritten; until SEEN, the same file
 *							in a view, has the new bytes; and until a
 *							bare inotify loop beside it has read them
 *
 * Prints medians, and for save also the 99th percentiles: ours_p50 peer_p50 ours_p99
 * peer_p99, in microseconds; without a peer only what is ours.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	SAVED_BYTES = 1024,
	PATIENCE_US = 20 * 1000 * 1000,
	REST_US = 20 * 1000, /* between two saves */
	POLL_US = 50,
};

extern char **environ;

static void die(const char *what)
{
	fprintf(stderr, "bench-probe: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now_us(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void rest(unsigned us)
{
	struct timespec t = {0, us * 1000L};

	(void)nanosleep(&t, NULL);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double *samples_new(size_t n)
{
	double *s = calloc(n, sizeof(*s));

	if (!s)
		die("memory");
	return s;
}

/* Of sorted ones. */
static double percentile(const double *sorted, size_t n, unsigned percent)
{
	return sorted[(n - 1) * percent / 100];
}

static void spawn_wait(char *const *argv)
{
	posix_spawn_file_actions_t actions;
	int status;
	pid_t pid;

	(void)posix_spawn_file_actions_init(&actions);
	(void)posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	(void)posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	errno = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
	if (errno)
		die(argv[0]);
	if (waitpid(pid, &status, 0) < 0)
		die("waitpid");
	if (status) {
		fprintf(stderr, "bench-probe: %s: ended with status %#x\n", argv[0], status);
		exit(1);
	}
	(void)posix_spawn_file_actions_destroy(&actions);
}

static double peer_once(int fd)
{
	static const char block[256];
	char true_name[] = "true";
	char *const true_argv[] = {true_name, NULL};
	double begin = now_us();

	for (int i = 0; i < 2; i++)
		if (write(fd, block, sizeof(block)) != sizeof(block) || fdatasync(fd) < 0)
			die("the file to sync");
	spawn_wait(true_argv);
	return now_us() - begin;
}

static int spawns(size_t n, const char *file, char **argv)
{
	double *ours = samples_new(n), *peer = samples_new(n);
	int fd = -1;

	if (file) {
		fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
		if (fd < 0)
			die(file);
	}
	for (size_t i = 0; i < n; i++) {
		double begin = now_us();

		spawn_wait(argv);
		ours[i] = now_us() - begin;
		if (fd >= 0)
			peer[i] = peer_once(fd);
	}
	qsort(ours, n, sizeof(*ours), by_value);
	qsort(peer, n, sizeof(*peer), by_value);
	printf("%.0f", percentile(ours, n, 50));
	if (fd >= 0)
		printf(" %.0f", percentile(peer, n, 50));
	printf("\n");
	free(ours);
	free(peer);
	return 0;
}

/* ---- saves ---- */

struct shared {
	volatile double seen_us;
	volatile uint64_t seen;
};

static void fill(char *content, uint64_t number)
{
	memset(content, 'a' + (int)(number % 26), SAVED_BYTES);
	memcpy(content, &number, sizeof(number));
}

static bool has(const char *path, const char *wanted)
{
	char content[SAVED_BYTES];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool equal;

	if (fd < 0)
		return false;
	equal = read(fd, content, sizeof(content)) == sizeof(content) &&
		memcmp(content, wanted, sizeof(content)) == 0;
	(void)close(fd);
	return equal;
}

/* What a program without us would do. */
static void inotify_loop(const char *path, struct shared *shared)
{
	char buf[4096], content[SAVED_BYTES], *dir = strdup(path);
	int fd = inotify_init1(IN_CLOEXEC);

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!dir || fd < 0 || inotify_add_watch(fd, dirname(dir), IN_CLOSE_WRITE) < 0)
		die("inotify");
	shared->seen = 1;
	while (read(fd, buf, sizeof(buf)) > 0) {
		uint64_t number = shared->seen + 1;

		fill(content, number);
		if (!has(path, content))
			continue;
		shared->seen_us = now_us();
		__sync_synchronize();
		shared->seen = number;
	}
	_exit(1);
}

/* Returns when the file had its bytes: others may see them before close() returns. */
static double save(const char *path, const char *content)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	double written;

	if (fd < 0 || write(fd, content, SAVED_BYTES) != SAVED_BYTES)
		die(path);
	written = now_us();
	(void)close(fd);
	return written;
}

static void wait_for_loop(const struct shared *shared, uint64_t number)
{
	double begin = now_us();

	while (shared->seen < number) {
		if (now_us() - begin > PATIENCE_US) {
			fprintf(stderr, "bench-probe: the inotify loop saw nothing\n");
			exit(1);
		}
		rest(POLL_US);
	}
}

static int saves(size_t n, const char *path, const char *view)
{
	double *ours = samples_new(n), *peer = samples_new(n);
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char content[SAVED_BYTES];
	pid_t pid;

	if (shared == MAP_FAILED)
		die("mmap");
	(void)prctl(PR_SET_TIMERSLACK, 1000);
	pid = fork();
	if (pid < 0)
		die("fork");
	if (pid == 0)
		inotify_loop(path, shared);
	wait_for_loop(shared, 1);
	for (size_t i = 0; i < n; i++) {
		double saved;

		fill(content, i + 2);
		saved = save(path, content);
		while (!has(view, content)) {
			if (now_us() - saved > PATIENCE_US) {
				fprintf(stderr, "bench-probe: '%s' does not change\n", view);
				exit(1);
			}
			rest(POLL_US);
		}
		ours[i] = now_us() - saved;
		wait_for_loop(shared, i + 2);
		peer[i] = shared->seen_us - saved;
		rest(REST_US);
	}
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	qsort(ours, n, sizeof(*ours), by_value);
	qsort(peer, n, sizeof(*peer), by_value);
	printf("%.0f %.0f %.0f %.0f\n", percentile(ours, n, 50), percentile(peer, n, 50),
	       percentile(ours, n, 99), percentile(peer, n, 99));
	free(ours);
	free(peer);
	return 0;
}

int main(int argc, char **argv)
{
	size_t n = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;

	if (n > 0 && argc == 5 && strcmp(argv[1], "save") == 0)
		return saves(n, argv[3], argv[4]);
	if (n > 0 && argc > 4 && strcmp(argv[1], "spawn") == 0 && strcmp(argv[3], "--") == 0)
		return spawns(n, NULL, argv + 4);
	if (n > 0 && argc > 5 && strcmp(argv[1], "sync-spawn") == 0 && strcmp(argv[4], "--") == 0)
		return spawns(n, argv[3], argv + 5);
	fprintf(stderr, "usage: bench-probe spawn N -- CMD ARG...\n"
			"       bench-probe sync-spawn N FILE -- CMD ARG...\n"
			"       bench-probe save N FILE SEEN\n");
	return 2;
}
