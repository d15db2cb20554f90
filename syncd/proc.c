#include "syncd/proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/io.h"
#include "base/text.h"
#include "base/util.h"

enum {
	STAT_BYTES = 1024,
	PASSES_MAX = 1000,
	PASS_PAUSE_NS = 500 * 1000,
	STANDING_PASSES = 2,
	WAITING_PASSES = 40,
	KILL_PASSES = 20,
	DEPTH_MAX = 4096, /* a parent chain that is longer has changed under us */
	ENVIRON_MAX = 4 << 20,
};

/* "pid (comm) S ppid ... starttime": comm may hold anything, also ')'. */
static int parse_stat(char *s, struct proc *p)
{
	char *end = strrchr(s, ')');
	int ppid, session;

	if (!end)
		return -EBADMSG;
	if (sscanf(end + 1,
		   " %c %d %*d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
		   "%llu",
		   &p->state, &ppid, &session, &p->started_ticks) != 4)
		return -EBADMSG;
	p->ppid = ppid;
	p->session = session;
	return 0;
}

static int read_stat(int proc, const char *name, struct proc *p)
{
	cleanup_close int fd = -1;
	char path[32], text[STAT_BYTES];
	ssize_t n;

	(void)snprintf(path, sizeof(path), "%.12s/stat", name);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = io_read_full(fd, text, sizeof(text) - 1, "proc.stat");
	if (n < 0)
		return (int)n;
	text[n] = 0;
	return parse_stat(text, p);
}

static int by_pid(const void *a, const void *b)
{
	const struct proc *x = a, *y = b;

	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

int proc_list(struct proc **ret, size_t *ret_n)
{
	cleanup_free struct proc *list = NULL;
	size_t n = 0, cap = 0;
	struct dirent *e;
	DIR *d;

	d = opendir("/proc");
	if (!d)
		return -errno;
	while ((e = readdir(d))) {
		uint64_t pid;

		if (text_parse_u64(e->d_name, INT32_MAX, &pid) < 0)
			continue;
		if (n == cap) {
			struct proc *more;

			cap = cap ? 2 * cap : 64;
			more = realloc(list, cap * sizeof(*list));
			if (!more) {
				(void)closedir(d);
				return -ENOMEM;
			}
			list = more;
		}
		list[n].pid = (pid_t)pid;
		if (read_stat(dirfd(d), e->d_name, &list[n]) == 0)
			n++;
	}
	(void)closedir(d);
	if (n == 0)
		return -ENOENT;
	qsort(list, n, sizeof(*list), by_pid);
	*ret = take_ptr(&list);
	*ret_n = n;
	return 0;
}

const struct proc *proc_find(const struct proc *list, size_t n, pid_t pid)
{
	struct proc key = {.pid = pid};

	return n > 0 ? bsearch(&key, list, n, sizeof(*list), by_pid) : NULL;
}

bool proc_below(const struct proc *list, size_t n, pid_t pid, pid_t ancestor)
{
	const struct proc *p = proc_find(list, n, pid);

	for (unsigned depth = 0; p && depth < DEPTH_MAX; depth++) {
		if (p->ppid == ancestor)
			return true;
		p = proc_find(list, n, p->ppid);
	}
	return false;
}

/* What one pass over the tree saw. */
struct pass {
	int fresh; /* reached, and not in the list before */
	bool running, waiting;
};

static struct pass signal_listed(const struct proc *list, size_t n, const struct proc *before,
				 size_t n_before, pid_t root, int sig)
{
	struct pass pass = {0};

	for (size_t i = 0; i < n; i++) {
		char state = list[i].state;

		if (state == 'Z' || state == 'X' || !proc_below(list, n, list[i].pid, root))
			continue;
		if (state == 'D')
			pass.waiting = true;
		else if (state != 'T' && state != 't')
			pass.running = true;
		if (kill(list[i].pid, sig) == 0 && !proc_find(before, n_before, list[i].pid))
			pass.fresh++;
	}
	return pass;
}

/*
 * A fork that has begun ends before the signal is taken, so its child may come late: only who is
 * seen standing forks no more. Two passes have to see that, as the child's number may be lower and
 * was gone by when its parent was looked at. Who waits in the kernel (D) is perhaps in the midst of
 * a fork, and perhaps in vfork() until its stopped child goes on: it has to do so for longer.
 */
static bool all_stand(const struct pass *pass, unsigned *quiet)
{
	*quiet = pass->fresh > 0 || pass->running ? 0 : *quiet + 1;
	return *quiet >= (pass->waiting ? WAITING_PASSES : STANDING_PASSES);
}

int proc_signal_tree(pid_t root, int sig)
{
	cleanup_free struct proc *before = NULL;
	struct timespec pause = {0, PASS_PAUSE_NS};
	size_t n_before = 0;
	unsigned quiet = 0;
	int r, count = 0;

	for (unsigned i = 0; i < PASSES_MAX; i++) {
		struct proc *list = NULL;
		struct pass pass;
		size_t n = 0;

		r = proc_list(&list, &n);
		if (r < 0)
			return r;
		pass = signal_listed(list, n, before, n_before, root, sig);
		free(before);
		before = list;
		n_before = n;
		count += pass.fresh;
		if (sig == SIGSTOP ? all_stand(&pass, &quiet) : sig != SIGKILL || pass.fresh == 0)
			return count;
		if (pass.fresh == 0)
			(void)nanosleep(&pause, NULL);
	}
	return -EAGAIN;
}

static bool environ_has(const struct buf *b, const char *name, const char *value)
{
	const char *p = (const char *)buf_data(b), *end = p + buf_len(b);
	size_t n = strlen(name);

	while (p < end) {
		size_t len = strnlen(p, (size_t)(end - p));

		if (len == n + 1 + strlen(value) && memcmp(p, name, n) == 0 && p[n] == '=' &&
		    memcmp(p + n + 1, value, len - n - 1) == 0)
			return true;
		p += len + 1;
	}
	return false;
}

/* Whose environment cannot be seen (-EAGAIN) may be in the midst of exec: its descriptors are closed
 * by then, and the new environment is not there yet. */
static int has_mark(pid_t pid, const char *name, const char *value)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(ENVIRON_MAX);
	char path[40];
	int r;

	(void)snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	r = file_read(AT_FDCWD, path, &b);
	if (r == -ENOENT || r == -ESRCH)
		return 0;
	if (r < 0 || buf_len(&b) == 0)
		return -EAGAIN;
	return environ_has(&b, name, value);
}

/* Keeps of the list those of the session that live; the count. */
static size_t keep_session(struct proc *list, size_t n, pid_t session)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		if (list[i].session == session && list[i].state != 'Z' && list[i].state != 'X')
			list[kept++] = list[i];
	}
	return kept;
}

int proc_kill_session(pid_t session, const char *name, const char *value)
{
	struct timespec pause = {0, PASS_PAUSE_NS};
	unsigned quiet = 0;
	bool ours = false;

	for (unsigned pass = 0; pass < KILL_PASSES; pass++) {
		cleanup_free struct proc *list = NULL;
		bool unseen = false;
		size_t n = 0;
		int r;

		r = proc_list(&list, &n);
		if (r < 0)
			return r;
		n = keep_session(list, n, session);
		/* Its number is nobody else's while any of it lives: one mark is enough for all. */
		for (size_t i = 0; i < n && !ours; i++) {
			r = has_mark(list[i].pid, name, value);
			ours = r > 0;
			unseen |= r < 0;
		}
		if (!ours && n > 0)
			return unseen ? -EAGAIN : 0;
		for (size_t i = 0; i < n; i++)
			(void)kill(list[i].pid, SIGKILL);
		quiet = n > 0 ? 0 : quiet + 1;
		if (quiet >= STANDING_PASSES)
			return 0;
		if (n > 0)
			(void)nanosleep(&pause, NULL);
	}
	return -EAGAIN;
}
