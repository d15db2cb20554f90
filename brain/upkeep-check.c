#include "brain/upkeep-check.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "brain/check.h"

enum {
	LOOK_MS = 100,	    /* how soon `stop` is seen */
	SILENT_MS = 120000, /* a frame takes some ms; a busy machine and an idle class more */
	READ_BYTES = 16 << 10,
};

static int spawn(const char *file, const char *uid, const struct store_merge_job *job, int out,
		 pid_t *ret)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	char length[24];
	char *argv[] = {(char *)file, (char *)"--check",
			length,	      uid ? (char *)"--uid" : NULL,
			(char *)uid,  NULL};
	sigset_t none;
	int r;

	(void)snprintf(length, sizeof(length), "%llu", (unsigned long long)job->length);
	if (posix_spawn_file_actions_init(&actions) != 0)
		return -ENOMEM;
	if (posix_spawnattr_init(&attr) != 0) {
		(void)posix_spawn_file_actions_destroy(&actions);
		return -ENOMEM;
	}
	(void)sigemptyset(&none);
	(void)posix_spawnattr_setsigmask(&attr, &none);
	(void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	r = posix_spawn_file_actions_adddup2(&actions, job->fd, STDIN_FILENO);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	if (r == 0)
		r = posix_spawn(ret, file, &actions, &attr, argv, environ);
	(void)posix_spawn_file_actions_destroy(&actions);
	(void)posix_spawnattr_destroy(&attr);
	return -r;
}

/* 0: it ended or was cut off; what it said is in b. */
static int listen_to(int fd, const atomic_bool *stop, struct buf *b)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint64_t until = clock_mono_ms() + SILENT_MS;
	uint8_t *to;
	ssize_t n;
	int r;

	for (;;) {
		if (atomic_load(stop))
			return -ECANCELED;
		if (clock_mono_ms() > until)
			return 0;
		if (poll(&p, 1, LOOK_MS) <= 0)
			continue;
		r = buf_reserve(b, READ_BYTES, &to);
		if (r < 0)
			return r == -E2BIG ? 0 : r;
		n = io_read_some(fd, to, READ_BYTES, "upkeep.read");
		if (n <= 0)
			return (int)n;
		buf_commit(b, (size_t)n);
		until = clock_mono_ms() + SILENT_MS;
	}
}

/* Only offsets that rise, and its last word says whether that was all. */
static void judge(const uint64_t *said, size_t n, struct store_merge_verdict *v)
{
	size_t i = 0;

	while (i < n && said[i] != CHECK_WHOLE && (i == 0 || said[i] > said[i - 1]))
		i++;
	v->good = said;
	v->n_good = i;
	v->whole = i + 1 == n && said[i] == CHECK_WHOLE;
}

int upkeep_check(const char *file, const char *uid, const struct store_merge_job *job,
		 const atomic_bool *stop, struct store_merge_verdict *ret)
{
	_cleanup_(buf_done) struct buf b =
		BUF_INIT((job->length / CHECK_FRAME_BYTES_MIN + 2) * 8 + READ_BYTES);
	cleanup_close int from = -1, to = -1;
	uint64_t *said;
	int pipes[2], status = 0, r;
	pid_t pid;
	size_t n;

	if (pipe2(pipes, O_CLOEXEC) < 0)
		return -errno;
	from = pipes[0];
	to = pipes[1];
	r = spawn(file, uid, job, to, &pid);
	if (r < 0)
		return r;
	(void)close(take_fd(&to));
	r = listen_to(from, stop, &b);
	(void)kill(pid, SIGKILL); /* it has ended, or is not heard any more */
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (r < 0)
		return r;
	n = buf_len(&b) / sizeof(*said);
	said = malloc((n + 1) * sizeof(*said));
	if (!said)
		return -ENOMEM;
	memcpy(said, buf_data(&b), n * sizeof(*said));
	judge(said, n, ret);
	if (!ret->whole)
		log_warning("a pack of %llu bytes is not what it says, or its check did not come "
			    "to its end (%s %d)",
			    (unsigned long long)job->length,
			    WIFSIGNALED(status) ? "signal" : "status",
			    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return 0;
}
