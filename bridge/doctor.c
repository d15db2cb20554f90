#include "bridge/doctor.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"

const struct doctor_check doctor_checks[] = {
	{"dev_fuse", doctor_dev_fuse},
	{"fusermount3", doctor_fusermount3},
	{"user_namespaces", doctor_user_namespaces},
	{"bwrap", doctor_bwrap},
	{"inotify_watches", doctor_inotify_watches},
	{"inotify_instances", doctor_inotify_instances},
	{"openat2", doctor_openat2},
	{"state_dir", doctor_state_dir},
	{"disk", doctor_disk},
	{"mount_point", doctor_mount_point},
	{"stale_mount", doctor_stale_mount},
	{"limbd", doctor_limbd},
};
const size_t doctor_checks_count = ARRAY_SIZE(doctor_checks);

void doctor_result_done(struct doctor_result *r)
{
	if (!r)
		return;
	free(r->detail);
	free(r->step);
}

void doctor_say(struct doctor_result *r, enum doctor_status status, const char *step,
		const char *fmt, ...)
{
	va_list ap;

	doctor_result_done(r);
	*r = (struct doctor_result){.status = status, .step = step ? strdup(step) : NULL};
	va_start(ap, fmt);
	if (vasprintf(&r->detail, fmt, ap) < 0)
		r->detail = NULL;
	va_end(ap);
}

static int wait_child(pid_t pid, unsigned deadline_ms)
{
	uint64_t end = clock_mono_ms() + deadline_ms;
	int status;

	for (;;) {
		pid_t w = waitpid(pid, &status, WNOHANG);

		if (w == pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : -ECHILD;
		if (w < 0 && errno != EINTR)
			return -errno;
		if (clock_mono_ms() >= end)
			break;
		(void)poll(NULL, 0, 2);
	}
	/* One that hangs in a dead mount does not always end by this: it is left. */
	(void)kill(pid, SIGKILL);
	(void)poll(NULL, 0, 50);
	(void)waitpid(pid, NULL, WNOHANG);
	return -ETIMEDOUT;
}

int doctor_try(int (*fn)(const void *arg), const void *arg, unsigned deadline_ms)
{
	pid_t pid;

	(void)fflush(stdout);
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(fn(arg));
	}
	return wait_child(pid, deadline_ms);
}

char *doctor_find(const char *program)
{
	const char *dirs = getenv("PATH");

	if (!dirs || !*dirs)
		dirs = "/usr/local/bin:/usr/bin:/bin";
	while (*dirs) {
		size_t n = strcspn(dirs, ":");
		char *path = NULL;

		if (n > 0 && asprintf(&path, "%.*s/%s", (int)n, dirs, program) >= 0) {
			if (access(path, X_OK) == 0)
				return path;
			free(path);
		}
		dirs += n + (dirs[n] == ':');
	}
	return NULL;
}
