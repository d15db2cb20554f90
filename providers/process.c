#include "providers/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "base/util.h"

enum { ENVIRON_MAX = 256 * 1024, KILL_PAUSE_MS = 5 };

/* A small file of /proc/PID, NUL-terminated. */
static int read_proc(pid_t pid, const char *name, struct buf *b)
{
	char path[64];
	int r;

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	r = file_read(AT_FDCWD, path, b);
	return r < 0 ? r : buf_add_u8(b, 0);
}

/* Fields 3 (state), 4 (ppid) and 22 (starttime) of proc(5) stat; the name before
 * them may hold blanks and brackets. */
static int read_stat(pid_t pid, char *ret_state, pid_t *ret_parent, uint64_t *ret_start)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(4096);
	unsigned long long start;
	const char *p;
	int parent, r;

	r = read_proc(pid, "stat", &b);
	if (r < 0)
		return -ESRCH;
	p = strrchr((const char *)buf_data(&b), ')');
	if (!p || sscanf(p,
			 ") %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
			 "%*d %*d %llu",
			 ret_state, &parent, &start) != 3)
		return -EPROTO;
	*ret_parent = parent;
	*ret_start = start;
	return 0;
}

int process_identify(pid_t pid, struct process *ret)
{
	uint64_t start;
	pid_t parent;
	char state;
	int r;

	if (pid <= 0)
		return -ESRCH;
	r = read_stat(pid, &state, &parent, &start);
	if (r < 0)
		return r;
	if (state == 'Z' || state == 'X')
		return -ESRCH;
	*ret = (struct process){.pid = pid, .start_ticks = start};
	return 0;
}

bool process_alive(const struct process *p)
{
	struct process now;

	return process_identify(p->pid, &now) == 0 && now.start_ticks == p->start_ticks;
}

int process_open(const struct process *p)
{
	int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);

	if (fd < 0)
		return -errno;
	/* Looked at after the descriptor holds it, the number cannot be another's. */
	if (!process_alive(p)) {
		(void)close(fd);
		return -ESRCH;
	}
	return fd;
}

static int boot_id_text(char out[33])
{
	uint8_t id[16];
	int r = clock_boot_id(id);

	if (r >= 0)
		text_hex(out, id, sizeof(id));
	return r;
}

int process_save(int dir, const char *name, const struct process *p)
{
	cleanup_free char *text = NULL;
	char boot[33] = "";
	json_t *o;

	(void)boot_id_text(boot);
	o = json_pack("{s:i, s:I, s:s}", "pid", (int)p->pid, "start_ticks",
		      (json_int_t)p->start_ticks, "boot_id", boot);
	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	return text ? file_replace(dir, name, text, strlen(text)) : -ENOMEM;
}

int process_load(int dir, const char *name, struct process *ret)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(4096);
	const char *saved_boot;
	char boot[33] = "";
	json_int_t start;
	json_t *o;
	int pid, r;

	r = file_read(dir, name, &b);
	if (r < 0)
		return r;
	(void)boot_id_text(boot);
	o = json_loadb((const char *)buf_data(&b), buf_len(&b), 0, NULL);
	r = json_unpack(o, "{s:i, s:I, s:s}", "pid", &pid, "start_ticks", &start, "boot_id",
			&saved_boot);
	if (r < 0 || strcmp(boot, saved_boot) != 0 || pid <= 1)
		r = -ENOENT;
	else
		*ret = (struct process){.pid = pid, .start_ticks = (uint64_t)start};
	json_decref(o);
	return r;
}

int process_end(const struct process *p, int sig, uint64_t end_ms)
{
	cleanup_close int fd = -1;
	struct pollfd pfd = {.events = POLLIN};
	uint64_t now;

	fd = process_open(p);
	if (fd < 0)
		return fd == -ESRCH ? 0 : fd;
	if (syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0) < 0 && errno != ESRCH)
		return -errno;
	pfd.fd = fd;
	do {
		now = clock_mono_ms();
		if (now >= end_ms)
			return -ETIMEDOUT;
	} while (poll(&pfd, 1, (int)MIN(end_ms - now, (uint64_t)60000)) <= 0);
	return 0;
}

/* The value of the mark in its environment, NUL-terminated, appended to b. */
static int read_mark(pid_t pid, struct buf *b)
{
	_cleanup_(buf_done) struct buf env = BUF_INIT(ENVIRON_MAX);
	static const char name[] = PROCESS_MARK "=";
	const char *p, *end;
	int r;

	r = read_proc(pid, "environ", &env);
	if (r < 0)
		return r;
	p = (const char *)buf_data(&env);
	for (end = p + buf_len(&env); p < end; p += strlen(p) + 1)
		if (strncmp(p, name, strlen(name)) == 0)
			return buf_add(b, p + strlen(name), strlen(p + strlen(name)) + 1);
	return -ENOENT;
}

static bool mark_matches(const char *found, const char *wanted)
{
	size_t n = strlen(wanted);

	if (n > 0 && wanted[n - 1] == ' ')
		return strncmp(found, wanted, n) == 0;
	return strcmp(found, wanted) == 0;
}

/* Calls fn for each number in /proc. */
static int each_pid(bool (*fn)(pid_t pid, void *userdata), void *userdata)
{
	DIR *d = opendir("/proc");
	struct dirent *e;

	if (!d)
		return -errno;
	while ((e = readdir(d))) {
		uint64_t pid;

		if (text_parse_u64(e->d_name, INT32_MAX, &pid) == 0 && fn((pid_t)pid, userdata))
			break;
	}
	(void)closedir(d);
	return 0;
}

static bool is_ours(pid_t pid)
{
	char path[32];
	struct stat st;

	(void)snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	return stat(path, &st) == 0 && st.st_uid == geteuid();
}

/* How many pid namespaces it has a number in, counted from that of /proc, and the
 * innermost number. */
static int read_depth(pid_t pid, unsigned *ret_depth, int *ret_inner)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(64 * 1024);
	unsigned depth = 0;
	const char *p;
	char *end;
	int r;

	r = read_proc(pid, "status", &b);
	if (r < 0)
		return -ESRCH;
	p = strstr((const char *)buf_data(&b), "\nNSpid:");
	if (!p)
		return -ENODATA;
	for (p += 7; *p == '\t' || *p == ' '; p = end) {
		*ret_inner = (int)strtol(p, &end, 10);
		if (end == p)
			break;
		depth++;
	}
	*ret_depth = depth;
	return depth > 0 ? 0 : -ENODATA;
}

static unsigned own_depth(void)
{
	static unsigned depth;
	int inner;

	if (depth == 0 && read_depth(getpid(), &depth, &inner) < 0)
		depth = 1;
	return depth;
}

struct search {
	const char *mark;
	process_fn fn;
	void *userdata;
};

static bool search_one(pid_t pid, void *userdata)
{
	_cleanup_(buf_done) struct buf mark = BUF_INIT(4096);
	const struct search *s = userdata;
	struct process p;
	unsigned depth;
	int inner;

	/* Identified before it is read: what is read then is of this process or none. */
	if (pid == getpid() || !is_ours(pid) || process_identify(pid, &p) < 0 ||
	    read_depth(pid, &depth, &inner) < 0 || depth != own_depth() ||
	    read_mark(pid, &mark) < 0 || !mark_matches((const char *)buf_data(&mark), s->mark) ||
	    !process_alive(&p))
		return false;
	return s->fn(&p, (const char *)buf_data(&mark), s->userdata);
}

int process_each_marked(const char *mark, process_fn fn, void *userdata)
{
	struct search s = {.mark = mark, .fn = fn, .userdata = userdata};

	return each_pid(search_one, &s);
}

/* ---- whole trees ---- */

struct tree {
	struct row {
		struct process p;
		pid_t parent;
		bool doomed;
	} * rows;
	size_t n, cap;
};

static bool tree_add(pid_t pid, void *userdata)
{
	struct tree *t = userdata;
	struct row row = {.p.pid = pid};
	char state;

	if (read_stat(pid, &state, &row.parent, &row.p.start_ticks) < 0 || state == 'Z' ||
	    pid == getpid())
		return false;
	if (t->n == t->cap) {
		size_t cap = t->cap ? 2 * t->cap : 256;
		struct row *rows = reallocarray(t->rows, cap, sizeof(*rows));

		if (!rows)
			return true;
		t->rows = rows;
		t->cap = cap;
	}
	t->rows[t->n++] = row;
	return false;
}

static bool tree_doom(const struct process *p, const char *mark, void *userdata)
{
	struct tree *t = userdata;

	for (size_t i = 0; i < t->n; i++)
		if (t->rows[i].p.pid == p->pid && t->rows[i].p.start_ticks == p->start_ticks)
			t->rows[i].doomed = true;
	return false;
}

static bool tree_spread(struct tree *t)
{
	bool changed = false;

	for (size_t i = 0; i < t->n; i++)
		for (size_t k = 0; !t->rows[i].doomed && k < t->n; k++)
			if (t->rows[k].doomed && t->rows[k].p.pid == t->rows[i].parent)
				t->rows[i].doomed = changed = true;
	return changed;
}

static size_t tree_signal(const struct tree *t, int sig)
{
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++) {
		int fd = t->rows[i].doomed ? process_open(&t->rows[i].p) : -1;

		if (fd < 0)
			continue;
		n++;
		(void)syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0);
		(void)close(fd);
	}
	return n;
}

int process_kill_marked(const char *mark, uint64_t end_ms)
{
	size_t left;

	do {
		struct tree t = {0};
		int r = each_pid(tree_add, &t);

		if (r >= 0)
			r = process_each_marked(mark, tree_doom, &t);
		while (r >= 0 && tree_spread(&t))
			;
		/* Stopped first, so that none forks away from under the kill. */
		(void)tree_signal(&t, SIGSTOP);
		left = tree_signal(&t, SIGKILL);
		free(t.rows);
		if (r < 0)
			return r;
		if (left > 0)
			(void)poll(NULL, 0, KILL_PAUSE_MS);
	} while (left > 0 && clock_mono_ms() < end_ms);
	return left > 0 ? -ETIMEDOUT : 0;
}

/* ---- pid namespaces ---- */

struct child_search {
	pid_t parent;
	struct process found;
};

static bool child_one(pid_t pid, void *userdata)
{
	struct child_search *s = userdata;
	struct process p;
	unsigned depth;
	pid_t parent;
	char state;
	int inner;

	p.pid = pid;
	if (read_stat(pid, &state, &parent, &p.start_ticks) < 0 || state == 'Z' ||
	    parent != s->parent || read_depth(pid, &depth, &inner) < 0 ||
	    depth != own_depth() + 1 || inner != 1)
		return false;
	s->found = p;
	return true;
}

int process_child_init(pid_t parent, struct process *ret)
{
	struct child_search s = {.parent = parent};
	int r = each_pid(child_one, &s);

	if (r < 0)
		return r;
	if (s.found.pid == 0)
		return -ESRCH;
	*ret = s.found;
	return 0;
}
