#include "tests/functional/view-rig/rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#include "base/clock.h"
#include "base/io.h"
#include "brain/view-protocol.h"

enum {
	CONNECT_MS = 10000,
	SEEN_MS = 30000,
};

static int view = -1;

static void connect_view(const struct journal *j)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	uint64_t end_ms = clock_mono_ms() + CONNECT_MS;

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/fs.sock",
		       journal_env_fd(j));
	if (view >= 0)
		(void)close(view);
	view = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	while (connect(view, (struct sockaddr *)&a, sizeof(a)) < 0) {
		if (clock_mono_ms() > end_ms)
			fail(-errno, "connect");
		(void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	}
}

static void say(enum view_message kind, uint64_t seq)
{
	struct view_frame f = {.kind = kind, .seq = seq};
	int r;

	r = io_write_full(view, &f, sizeof(f), "rig.say");
	if (r < 0)
		fail(r, "say");
}

/* False: the view did not see it in time. */
static bool publish(uint64_t seq)
{
	struct pollfd p = {.fd = view, .events = POLLIN};
	struct view_frame f;

	say(VIEW_PUBLISH, seq);
	do {
		if (poll(&p, 1, SEEN_MS) <= 0)
			return false;
		if (io_read_full(view, &f, sizeof(f), "rig.seen") != sizeof(f))
			fail(-EPIPE, "seen");
	} while (f.kind != VIEW_SEEN || f.seq < seq);
	return true;
}

static void follow(struct journal *j)
{
	uint64_t seq = journal_follow(j);

	if (!publish(seq))
		fail(-ETIMEDOUT, "not seen");
}

/* Replaces SRC/NAME n times by rename; each content is one letter, many times. */
static void replace(struct journal *j, const char *src, const char *name, unsigned n)
{
	static char text[20000];
	char path[4096], temp[4096];
	uint64_t started_ms = clock_mono_ms();

	(void)snprintf(path, sizeof(path), "%s/%s", src, name);
	(void)snprintf(temp, sizeof(temp), "%s/%s.new", src, name);
	for (unsigned i = 0; i < n; i++) {
		int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

		memset(text, 'a' + (int)(i % 26), sizeof(text));
		if (fd < 0 || write(fd, text, 1 + i * 997 % sizeof(text)) < 0 ||
		    rename(temp, path) < 0)
			fail(-errno, path);
		(void)close(fd);
		follow(j);
	}
	(void)printf("replaced %u in %llu ms\n", n,
		     (unsigned long long)(clock_mono_ms() - started_ms));
}

/* Makes and removes files in SRC/churn, in turn, for some seconds. */
static void churn(struct journal *j, const char *src, unsigned seconds)
{
	uint64_t end_ms = clock_mono_ms() + seconds * 1000ull, n = 0, longest_ns = 0;
	char path[4096];

	for (; clock_mono_ms() < end_ms; n++) {
		uint64_t before_ns;
		int fd;

		(void)snprintf(path, sizeof(path), "%s/churn/churn-%llu", src,
			       (unsigned long long)(n / 2 % 50));
		if (n % 2 == 0) {
			fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
			if (fd < 0)
				fail(-errno, path);
			(void)close(fd);
		} else if (unlink(path) < 0) {
			fail(-errno, path);
		}
		before_ns = clock_mono_ns();
		follow(j);
		longest_ns = MAX(longest_ns, clock_mono_ns() - before_ns);
	}
	(void)printf("changed %llu, longest %llu ms\n", (unsigned long long)n,
		     (unsigned long long)(longest_ns / 1000000));
}

/* ---- a first look while it changes ---- */

struct looker {
	char path[4096];
	bool list;
};

static void *look_first(void *userdata)
{
	const struct looker *l = userdata;
	struct stat st;
	DIR *d;

	if (l->list) {
		d = opendir(l->path);
		while (d && readdir(d))
			;
		if (d)
			(void)closedir(d);
	} else {
		(void)stat(l->path, &st);
	}
	return NULL;
}

/* n times: a file that the kernel never saw grows while somebody looks at it for the first
 * time, somewhere in window_us from that. Whoever looks afterwards has to see the new size. */
static void race(struct journal *j, const char *src, const char *view_dir, unsigned n,
		 unsigned window_us)
{
	unsigned wrong = 0;

	for (unsigned i = 0; i < n; i++) {
		const struct timespec pause = {.tv_nsec = i * 7919l % window_us * 1000};
		struct looker l = {.list = i % 2};
		char path[4096], shown[4096];
		pthread_t thread;
		struct stat st;
		int fd;

		(void)snprintf(path, sizeof(path), "%s/race-%u", src, i);
		(void)snprintf(shown, sizeof(shown), "%s/race-%u/file", view_dir, i);
		(void)snprintf(l.path, sizeof(l.path), "%s/race-%u%s", view_dir, i,
			       l.list ? "" : "/file");
		if (mkdir(path, 0755) < 0)
			fail(-errno, path);
		(void)snprintf(path, sizeof(path), "%s/race-%u/file", src, i);
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		if (fd < 0 || write(fd, "x", 1) != 1)
			fail(-errno, path);
		follow(j);
		*strrchr(shown, '/') = '\0';
		(void)stat(shown, &st);
		*strchr(shown, '\0') = '/';
		if (pthread_create(&thread, NULL, look_first, &l) != 0)
			fail(-EAGAIN, "thread");
		(void)nanosleep(&pause, NULL);
		if (write(fd, "yz", 2) != 2)
			fail(-errno, path);
		follow(j);
		(void)pthread_join(thread, NULL);
		if (stat(shown, &st) < 0 || st.st_size != 3)
			wrong++;
		(void)close(fd);
		(void)unlink(path);
		*strrchr(path, '/') = '\0';
		(void)rmdir(path);
	}
	(void)printf("raced %u, wrong %u\n", n, wrong);
}

static void command(struct journal *j, const char *src, const char *line)
{
	uint64_t started_ns = clock_mono_ns();
	char name[256];
	unsigned n, m;

	if (strcmp(line, "connect") == 0) {
		connect_view(j);
		(void)puts("connected");
	} else if (strcmp(line, "sync") == 0) {
		follow(j);
		(void)printf("seen in %llu us\n",
			     (unsigned long long)(clock_mono_ns() - started_ns) / 1000);
	} else if (strcmp(line, "commit") == 0) {
		(void)printf("committed %llu\n", (unsigned long long)journal_follow(j));
		journal_sync(j);
	} else if (strcmp(line, "rebuild") == 0) {
		uint64_t seq = journal_rebuild(j);
		(void)puts(publish(seq) ? "rebuilt" : "not seen");
	} else if (sscanf(line, "stale %u", &n) == 1) {
		say(VIEW_STALE, n);
		(void)puts("said");
	} else if (sscanf(line, "replace %255s %u", name, &n) == 2) {
		replace(j, src, name, n);
	} else if (sscanf(line, "race %255s %u %u", name, &n, &m) == 3) {
		race(j, src, name, n, m);
	} else if (sscanf(line, "churn %u", &n) == 1) {
		churn(j, src, n);
	} else if (strcmp(line, "quit") == 0) {
		say(VIEW_QUIT, 0);
		(void)puts("said");
	} else {
		fail(-EINVAL, line);
	}
	(void)fflush(stdout);
}

void run_limbd(char **argv)
{
	struct journal *j = journal_open(argv[0], argv[1], argv[2], argv[3]);
	char line[512];

	(void)printf("ready %llu\n", (unsigned long long)journal_follow(j));
	(void)fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		command(j, argv[3], line);
	}
	journal_close(j);
}
