#include "syncd/init.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "syncd/daemon.h"
#include "syncd/proc.h"

enum {
	BACKOFF_MIN_MS = 20,
	BACKOFF_MAX_MS = 5000,
	STEADY_MS = 10000, /* a daemon that lived this long died for another reason */
	GRACE_MS = 2000,
};

static pid_t start_daemon(const struct place *p, const sigset_t *mask)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)sigprocmask(SIG_SETMASK, mask, NULL);
		daemon_exec(p);
	}
	return pid;
}

/* Reaps all that has ended; true if the daemon has. */
static bool reap(pid_t daemon)
{
	bool ended = false;
	pid_t pid;
	int status;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		ended = ended || pid == daemon;
	return ended;
}

static void signal_all(int sig)
{
	if (getpid() == 1)
		(void)kill(-1, sig);
	else
		(void)proc_signal_tree(getpid(), sig);
}

static void end_all(const sigset_t *set)
{
	uint64_t end = clock_mono_ms() + GRACE_MS;
	struct timespec tick = {0, 20 * 1000 * 1000};

	signal_all(SIGTERM);
	while (clock_mono_ms() < end) {
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD)
			return;
		(void)sigtimedwait(set, NULL, &tick);
	}
	signal_all(SIGKILL);
}

int init_run(const struct place *p)
{
	sigset_t set, before;
	uint64_t started, again = 0;
	unsigned failures = 0;
	pid_t daemon;

	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigprocmask(SIG_BLOCK, &set, &before);

	daemon = start_daemon(p, &before);
	started = clock_mono_ms();
	for (;;) {
		uint64_t now = clock_mono_ms();
		uint64_t left = again > now ? again - now : 0;
		struct timespec wait = {(time_t)(left / 1000), (long)(left % 1000) * 1000000};
		int sig;

		sig = again != 0 ? sigtimedwait(&set, NULL, &wait) : sigwaitinfo(&set, NULL);
		if (sig == SIGTERM || sig == SIGINT) {
			end_all(&set);
			return 0;
		}
		now = clock_mono_ms();
		if (reap(daemon) || daemon < 0) {
			log_warning("the daemon ended and is started again");
			if (now - started > STEADY_MS)
				failures = 0;
			again = now + backoff_ms(failures++, BACKOFF_MIN_MS, BACKOFF_MAX_MS);
			daemon = 0;
		}
		if (again != 0 && now >= again) {
			again = 0;
			daemon = start_daemon(p, &before);
			started = now;
		}
	}
}
