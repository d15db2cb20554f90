#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "syncd/holder-private.h"
#include "syncd/proc.h"
#include "syncd/record.h"

enum {
	READ_BYTES = 64 << 10,
	GRACE_MS = 2000, /* between SIGTERM and SIGKILL */
	KILL_EACH_MS = 10,
	KILL_SLOW_MS = 1000,
	KILL_GIVE_UP_MS = 5000, /* something sleeps in the kernel: report the end all the same */
	LINGER_MS = 50,		/* others may still be about to end when the command has */
};

/* ---- what we say ---- */

void holder_tell(struct holder *h, enum link_type type, const void *data, size_t n)
{
	if (h->link >= 0)
		(void)link_add(&h->out, type, data, n);
}

void holder_tell_message(struct holder *h, enum link_type type, const ProtobufCMessage *m)
{
	cleanup_free uint8_t *p = NULL;
	size_t n = protobuf_c_message_get_packed_size(m);

	p = malloc(n + 1);
	if (p)
		holder_tell(h, type, p, protobuf_c_message_pack(m, p));
}

/* Totals only, so what a slow daemon has not read yet need not be told twice. */
void holder_tell_output(struct holder *h)
{
	struct link_offsets o = {{h->spools[0].total, h->spools[1].total}};

	if (!h->output_news || buf_len(&h->out) > 0 || h->reported)
		return;
	h->output_news = false;
	holder_tell(h, LINK_OUTPUT, &o, sizeof(o));
}

void holder_tell_started(struct holder *h)
{
	Limbwire__JobStarted m = LIMBWIRE__JOB_STARTED__INIT;

	m.job = h->job->job;
	m.pid = (uint32_t)h->pid;
	holder_tell_message(h, LINK_STARTED, &m.base);
}

static void fill_exit(const struct holder *h, Limbwire__JobExit *m)
{
	m->job = h->job->job;
	if (WIFSIGNALED(h->status)) {
		m->signal = (uint32_t)WTERMSIG(h->status);
		m->exit_code = 128 + WTERMSIG(h->status);
	} else {
		m->exit_code = WEXITSTATUS(h->status);
	}
	m->timed_out = h->timed_out;
	m->stdout_bytes = h->spools[0].total;
	m->stderr_bytes = h->spools[1].total;
	m->duration_ms = clock_mono_ms() - h->started_ms;
	m->background = !h->none_left || h->pipes[0] >= 0 || h->pipes[1] >= 0;
	m->killed_by = (char *)h->killed_by;
	m->started_ns = h->started_ns;
	m->ended_ns = clock_real_ns();
}

/* The record before the word: after kill -9 of everything it is still known. Loss of power
 * matters only until the brain has journaled it, so it is synced by whoever finds that the
 * word goes nowhere: here no daemon, there no brain. */
static void report_end(struct holder *h)
{
	Limbwire__JobExit m = LIMBWIRE__JOB_EXIT__INIT;
	int r;

	fill_exit(h, &m);
	h->reported = true;
	r = record_write(h->record, h->job->job, RECORD_END, &m.base);
	if (r < 0)
		(void)log_warning_errno(r, "cannot record the end of job '%s'", h->job->job);
	holder_tell_message(h, LINK_EXIT, &m.base);
	if (h->link >= 0)
		(void)link_flush(h->link, &h->out);
	else
		(void)io_fdatasync(h->record, "holder.sync");
}

/* ---- killing ---- */

void holder_timer_set(struct holder *h, enum timer t, uint64_t in_ms)
{
	h->due_ms[t] = clock_mono_ms() + in_ms;
}

void holder_kill(struct holder *h)
{
	if (!h->killing)
		holder_timer_set(h, TIMER_GIVE_UP, KILL_GIVE_UP_MS);
	h->killing = true;
	/* Without /proc there is at least the group. */
	if (proc_signal_tree(getpid(), SIGKILL) < 0)
		(void)kill(-h->pid, SIGKILL);
	holder_timer_set(h, TIMER_KILL, h->due_ms[TIMER_GIVE_UP] ? KILL_EACH_MS : KILL_SLOW_MS);
}

static void signal_tree(struct holder *h, int sig)
{
	if (proc_signal_tree(getpid(), sig) < 0)
		(void)kill(-h->pid, sig);
}

static void end_tree(struct holder *h, int sig)
{
	h->ending = true;
	signal_tree(h, sig);
	signal_tree(h, SIGCONT);
	holder_timer_set(h, TIMER_KILL, GRACE_MS);
}

void holder_timeout(struct holder *h)
{
	h->timed_out = true;
	(void)snprintf(h->killed_by, sizeof(h->killed_by), "timeout");
	end_tree(h, SIGTERM);
}

void holder_signal(struct holder *h, const Limbwire__JobSignal *m)
{
	struct winsize ws = {.ws_row = (unsigned short)m->rows, .ws_col = (unsigned short)m->cols};

	if (m->signal == 0) {
		if (h->job->tty && h->feed.fd >= 0)
			(void)ioctl(h->feed.fd, TIOCSWINSZ, &ws);
		return;
	}
	if (m->signal >= (uint32_t)NSIG)
		return;
	if (m->why && *m->why && !h->timed_out)
		(void)snprintf(h->killed_by, sizeof(h->killed_by), "%s", m->why);
	if (m->signal == SIGKILL)
		holder_kill(h);
	else if (m->tree)
		end_tree(h, (int)m->signal);
	else if (h->command_ended)
		signal_tree(h, (int)m->signal);
	else
		(void)kill(-h->pid, (int)m->signal);
}

/* ---- output ---- */

static void pipe_close(struct holder *h, unsigned i)
{
	(void)close(h->pipes[i]);
	h->pipes[i] = -1;
}

bool holder_pipe_read(struct holder *h, unsigned i)
{
	static uint8_t block[READ_BYTES];
	ssize_t n;

	n = io_read_some(h->pipes[i], block, sizeof(block), "holder.read");
	if (n == -EAGAIN)
		return false;
	if (n <= 0) { /* a terminal ends with EIO */
		pipe_close(h, i);
		return false;
	}
	if (!h->reported && !h->forgotten) {
		if (spool_add(&h->spools[i], block, (size_t)n) < 0)
			spool_skip(&h->spools[i], (size_t)n);
		h->output_news = true;
	}
	return true;
}

/* What the command wrote before it ended is in the pipes: at most their capacity, so
 * another writer cannot keep us here. */
static void pipes_drain(struct holder *h)
{
	for (unsigned i = 0; i < 2; i++) {
		int left = h->pipes[i] >= 0 ? fcntl(h->pipes[i], F_GETPIPE_SZ) : 0;

		for (left = left > 0 ? left : READ_BYTES; h->pipes[i] >= 0 && left > 0;) {
			uint64_t before = h->spools[i].total;

			if (!holder_pipe_read(h, i))
				break;
			left -= (int)(h->spools[i].total - before);
		}
	}
}

/* ---- the end ---- */

void holder_reap(struct holder *h)
{
	pid_t pid;
	int status;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == h->pid && !h->command_ended) {
			h->status = status;
			h->command_ended = true;
			h->due_ms[TIMER_TIMEOUT] = 0;
			feed_close(&h->feed);
			holder_timer_set(h, TIMER_LINGER, LINGER_MS);
		}
	}
	h->none_left = pid < 0 && errno == ECHILD;
}

void holder_consider_end(struct holder *h)
{
	bool lingered = h->due_ms[TIMER_LINGER] == 0;
	bool gave_up = h->killing && h->due_ms[TIMER_GIVE_UP] == 0;

	if (!h->command_ended || h->reported)
		return;
	pipes_drain(h);
	if (h->none_left && h->pipes[0] < 0 && h->pipes[1] < 0)
		report_end(h);
	else if (lingered && (h->none_left || gave_up || !(h->killing || h->ending)))
		report_end(h);
}
