#include "syncd/ps.h"

#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/util.h"
#include "syncd/proc.h"

enum {
	ARGV_BYTES = 4096, /* of each process */
	ARGS_MAX = 64,
	BYTES_MAX = 900 << 10, /* of the whole answer */
};

struct entry {
	Limbwire__PsDone__Process m;
	struct buf cmdline;
	ProtobufCBinaryData args[ARGS_MAX];
	char state[2];
};

static void read_proc_file(pid_t pid, const char *name, struct buf *b)
{
	char path[48];
	uint8_t *p;
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (buf_reserve(b, ARGV_BYTES, &p) == 0) {
		n = TEMP_FAILURE_RETRY(read(fd, p, ARGV_BYTES));
		if (n > 0)
			buf_commit(b, (size_t)n);
	}
	(void)close(fd);
}

static void fill_argv(struct entry *e)
{
	uint8_t *p = (uint8_t *)buf_data(&e->cmdline), *end = p + buf_len(&e->cmdline);

	e->m.argv = e->args;
	while (p < end && e->m.n_argv < ARGS_MAX) {
		size_t n = strnlen((char *)p, (size_t)(end - p));

		e->args[e->m.n_argv++] = (ProtobufCBinaryData){n, p};
		p += n + 1;
	}
}

/* Pages that are the process's own: the second number of statm. */
static uint64_t memory_of(pid_t pid)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	cleanup_free char *s = NULL;
	unsigned long long pages = 0;

	read_proc_file(pid, "statm", &b);
	if (buf_to_str(&b, &s) < 0 || sscanf(s, "%*u %llu", &pages) != 1)
		return 0;
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void fill(struct entry *e, const struct proc *p, int64_t boot_ns)
{
	long ticks = sysconf(_SC_CLK_TCK);

	limbwire__ps_done__process__init(&e->m);
	e->m.pid = (uint32_t)p->pid;
	e->m.ppid = (uint32_t)p->ppid;
	e->state[0] = p->state;
	e->m.state = e->state;
	e->m.memory_bytes = memory_of(p->pid);
	e->m.started_ns = boot_ns + (int64_t)(p->started_ticks * (1000000000ull / (uint64_t)ticks));
	buf_init(&e->cmdline, 2 * ARGV_BYTES);
	read_proc_file(p->pid, "cmdline", &e->cmdline);
	fill_argv(e);
}

static int64_t boot_time_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_BOOTTIME, &ts);
	return clock_real_ns() - clock_from_timespec(ts);
}

static bool own_sandbox(void)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	cleanup_free char *s = NULL;

	read_proc_file(1, "comm", &b);
	return buf_to_str(&b, &s) == 0 &&
	       (strcmp(s, "limb-syncd\n") == 0 || strcmp(s, "bwrap\n") == 0);
}

static const char *job_of(const struct proc *list, size_t n, pid_t pid,
			  const struct ps_holder *holders, size_t n_holders)
{
	for (size_t i = 0; i < n_holders; i++) {
		if (pid == holders[i].pid || proc_below(list, n, pid, holders[i].pid))
			return holders[i].job;
	}
	return NULL;
}

void ps_answer(struct session *session, uint64_t request, const struct ps_holder *holders,
	       size_t n_holders)
{
	Limbwire__PsDone done = LIMBWIRE__PS_DONE__INIT;
	cleanup_free struct proc *list = NULL;
	cleanup_free struct entry *entries = NULL;
	cleanup_free Limbwire__PsDone__Process **ptrs = NULL;
	int64_t boot_ns = boot_time_ns();
	bool all = own_sandbox();
	size_t n = 0, bytes = 0;
	int r;

	r = proc_list(&list, &n);
	if (r < 0) {
		(void)session_send_error(session, request, r, "processes");
		return;
	}
	entries = calloc(n, sizeof(*entries));
	ptrs = calloc(n, sizeof(*ptrs));
	for (size_t i = 0; entries && ptrs && i < n && bytes < BYTES_MAX; i++) {
		const char *job = job_of(list, n, list[i].pid, holders, n_holders);
		struct entry *e = &entries[done.n_processes];

		if (!all && !job)
			continue;
		fill(e, &list[i], boot_ns);
		e->m.job = (char *)(job ? job : "");
		bytes += protobuf_c_message_get_packed_size(&e->m.base) + 8;
		ptrs[done.n_processes++] = &e->m;
	}
	done.request = request;
	done.processes = ptrs;
	(void)session_send(session, SESSION_CONTROL, WIRE_PS_DONE, &done.base, NULL, 0);
	for (size_t i = 0; i < done.n_processes; i++)
		buf_done(&entries[i].cmdline);
}
