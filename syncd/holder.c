#include "syncd/holder.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "syncd/command.h"
#include "syncd/holder-private.h"
#include "syncd/place.h"
#include "syncd/record.h"

enum {
	RECONNECT_MS = 100,
	RECONNECT_MAX_MS = 500,
};

/* ---- what we hear ---- */

static void on_start(struct holder *h, const uint8_t *data, size_t n)
{
	Limbwire__JobStarted m = LIMBWIRE__JOB_STARTED__INIT;
	struct command c;
	int r;

	if (h->job)
		return;
	h->job = limbwire__job_start__unpack(NULL, n, data);
	if (!h->job)
		return;
	h->started_ns = clock_real_ns();
	h->started_ms = clock_mono_ms();
	r = command_start(h->job, h->root, &c);
	m.job = h->job->job;
	if (r < 0) {
		m.error = -r;
		m.detail = (char *)c.failed;
	} else {
		h->pid = c.pid;
		m.pid = (uint32_t)c.pid;
		h->pipes[0] = c.out[0];
		h->pipes[1] = c.out[1];
		feed_begin(&h->feed, c.in, h->job->tty);
	}
	holder_tell_message(h, LINK_STARTED, &m.base);
	if (h->link >= 0)
		(void)link_flush(h->link, &h->out);
	(void)record_write(h->record, h->job->job, RECORD_BEGIN, &m.base);
	if (r < 0) {
		h->reported = h->command_ended = h->none_left = true;
		return;
	}
	for (unsigned i = 0; i < 2; i++)
		h->spools[i].limit_bytes = h->job->output_waits ? 0 : h->job->output_limit_bytes;
	if (h->job->timeout_ms > 0)
		holder_timer_set(h, TIMER_TIMEOUT, h->job->timeout_ms);
}

static void on_forget(struct holder *h)
{
	h->forgotten = true;
	for (unsigned i = 0; i < 2; i++)
		(void)io_ftruncate(h->spools[i].fd, 0, "holder.forget");
}

static int on_message(struct holder *h, uint32_t type, const uint8_t *data, size_t n)
{
	Limbwire__JobSignal *signal;
	struct link_offsets o;

	if (type == LINK_START) {
		on_start(h, data, n);
		return 0;
	}
	if (!h->job)
		return -EPROTO;
	switch (type) {
	case LINK_ACK:
		if (n != sizeof(o))
			return -EBADMSG;
		memcpy(&o, data, sizeof(o));
		spool_ack(&h->spools[0], o.out[0]);
		spool_ack(&h->spools[1], o.out[1]);
		return 0;
	case LINK_INPUT:
		if (n < 8)
			return -EBADMSG;
		feed_add(&h->feed, get_le64(data), data + 8, n - 8);
		return 0;
	case LINK_SPILLED:
		if (n != 8)
			return -EBADMSG;
		feed_spilled(&h->feed, get_le64(data));
		return 0;
	case LINK_INPUT_EOF: feed_eof(&h->feed); return 0;
	case LINK_SIGNAL:
		signal = limbwire__job_signal__unpack(NULL, n, data);
		if (signal) {
			holder_signal(h, signal);
			limbwire__job_signal__free_unpacked(signal, NULL);
		}
		return 0;
	case LINK_FORGET: on_forget(h); return 0;
	default: return 0; /* a newer daemon's */
	}
}

static void link_lost(struct holder *h)
{
	(void)close(h->link);
	h->link = -1;
	buf_clear(&h->in);
	buf_clear(&h->out);
	h->reconnect_ms = RECONNECT_MS;
	if (h->job) /* a spare ends with its daemon */
		holder_timer_set(h, TIMER_RECONNECT, 0);
}

static void on_link(struct holder *h)
{
	const uint8_t *data;
	size_t n, bytes;
	uint32_t type;
	ssize_t got;
	int r;

	got = link_receive(h->link, &h->in);
	if (got == -EAGAIN)
		return;
	if (got <= 0) {
		link_lost(h);
		return;
	}
	while ((r = link_next(&h->in, &type, &data, &n, &bytes)) > 0) {
		r = on_message(h, type, data, n);
		if (r < 0)
			break;
		buf_consume(&h->in, bytes);
	}
	if (r < 0)
		link_lost(h);
}

/* Comes back to whatever daemon there is now, and says all that it must know. */
static void reconnect(struct holder *h)
{
	struct greeting g = {.magic = GREETING_MAGIC, .kind = GREET_HOLDER};
	struct link_hello hello = {
		.ended = h->reported,
		.forgotten = h->forgotten,
		.holder_pid = (uint32_t)getpid(),
		.pid = (uint32_t)h->pid,
		.input_bytes = feed_received(&h->feed),
	};
	int fd, r;

	r = place_connect(h->dir, "s", &fd);
	if (r == 0) {
		r = io_write_full(fd, &g, sizeof(g), "holder.greet");
		if (r < 0)
			(void)close(fd);
	}
	if (r < 0) {
		h->reconnect_ms = MIN(2 * h->reconnect_ms, (uint64_t)RECONNECT_MAX_MS);
		holder_timer_set(h, TIMER_RECONNECT, h->reconnect_ms);
		return;
	}
	(void)fcntl(fd, F_SETFL, O_NONBLOCK);
	h->link = fd;
	(void)snprintf(hello.job, sizeof(hello.job), "%s", h->job->job);
	holder_tell(h, LINK_HELLO, &hello, sizeof(hello));
	holder_tell_started(h);
	h->output_news = true;
	if (h->reported) {
		Limbwire__JobExit *m = record_read(h->record, h->job->job, RECORD_END);

		if (m) {
			holder_tell_message(h, LINK_EXIT, &m->base);
			limbwire__job_exit__free_unpacked(m, NULL);
		}
	}
}

/* ---- the loop ---- */

static void run_timers(struct holder *h, uint64_t now)
{
	for (unsigned t = 0; t < TIMERS; t++) {
		if (h->due_ms[t] == 0 || h->due_ms[t] > now)
			continue;
		h->due_ms[t] = 0;
		switch ((enum timer)t) {
		case TIMER_TIMEOUT: holder_timeout(h); break;
		case TIMER_KILL:
			if (!h->none_left)
				holder_kill(h);
			break;
		case TIMER_RECONNECT: reconnect(h); break;
		case TIMER_GIVE_UP:
		case TIMER_LINGER:
		case TIMERS: break; /* holder_consider_end() sees them */
		}
	}
}

static int next_timer_ms(const struct holder *h, uint64_t now)
{
	uint64_t first = UINT64_MAX;

	for (unsigned t = 0; t < TIMERS; t++) {
		if (h->due_ms[t] != 0)
			first = MIN(first, h->due_ms[t]);
	}
	if (first == UINT64_MAX)
		return -1;
	return first <= now ? 0 : (int)MIN(first - now, (uint64_t)INT32_MAX);
}

static void on_signals(struct holder *h)
{
	struct signalfd_siginfo info;

	while (read(h->sigfd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGTERM && h->job) {
			(void)snprintf(h->killed_by, sizeof(h->killed_by), "limbfs");
			holder_kill(h);
		}
	}
	if (h->job)
		holder_reap(h);
}

static bool finished(const struct holder *h)
{
	if (!h->job)
		return h->link < 0;
	return h->reported && h->none_left && (h->link < 0 || buf_len(&h->out) == 0);
}

/* Where the command is to wait for its reader, its pipe is left full. Once it is over, all
 * that it wrote is taken. */
static bool has_room(const struct holder *h, unsigned i)
{
	const struct spool *s = &h->spools[i];

	return !h->job || !h->job->output_waits || h->command_ended || h->forgotten ||
	       s->total - s->acked < h->job->output_limit_bytes;
}

static void turn(struct holder *h)
{
	enum { SIGNALS, LINK, OUT0, OUT1, IN };
	struct pollfd p[] = {
		[SIGNALS] = {h->sigfd, POLLIN, 0},
		[LINK] = {h->link, (short)(POLLIN | (buf_len(&h->out) > 0 ? POLLOUT : 0)), 0},
		[OUT0] = {has_room(h, 0) ? h->pipes[0] : -1, POLLIN, 0},
		[OUT1] = {has_room(h, 1) ? h->pipes[1] : -1, POLLIN, 0},
		[IN] = {feed_wants(&h->feed) ? h->feed.fd : -1, POLLOUT, 0},
	};

	if (poll(p, ARRAY_SIZE(p), next_timer_ms(h, clock_mono_ms())) < 0)
		return;
	for (unsigned i = 0; i < 2; i++) {
		if (p[OUT0 + i].revents && h->pipes[i] >= 0)
			(void)holder_pipe_read(h, i);
	}
	if (p[IN].revents)
		feed_write(&h->feed);
	if (p[LINK].revents & (POLLIN | POLLHUP | POLLERR))
		on_link(h);
	if (p[SIGNALS].revents)
		on_signals(h);
	run_timers(h, clock_mono_ms());
	holder_consider_end(h);
	holder_tell_output(h);
	if (h->link >= 0 && link_flush(h->link, &h->out) < 0)
		link_lost(h);
}

/* ---- the beginning ---- */

static int open_spool(int dir, const char *name, struct spool *s)
{
	s->fd = openat(dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (s->fd < 0)
		return -errno;
	return ftruncate(s->fd, 0) < 0 ? -errno : 0;
}

/* All that costs an inode is made here, ahead of the job: on some file systems that
 * takes longer than starting a program. */
static int prepare(struct holder *h, const char *name)
{
	cleanup_close int spare = -1;
	int r;

	spare = file_open_dir(h->dir, "spare");
	if (spare < 0)
		return spare;
	if (mkdirat(spare, name, 0700) < 0 && errno != EEXIST)
		return -errno;
	h->job_dir = file_open_dir(spare, name);
	if (h->job_dir < 0)
		return h->job_dir;
	r = record_prepare(h->job_dir, &h->record);
	if (r == 0)
		r = open_spool(h->job_dir, "stdout", &h->spools[0]);
	if (r == 0)
		r = open_spool(h->job_dir, "stderr", &h->spools[1]);
	if (r == 0)
		r = feed_init(&h->feed, h->job_dir);
	return r;
}

static int wait_for_name(struct holder *h)
{
	const uint8_t *data;
	size_t n, bytes, len;
	uint32_t type;
	ssize_t got;
	int r;

	while ((r = link_next(&h->in, &type, &data, &n, &bytes)) == 0) {
		got = link_receive(h->link, &h->in);
		if (got <= 0)
			return got < 0 ? (int)got : -EPIPE;
	}
	if (r < 0)
		return r;
	len = n > 0 ? strnlen((const char *)data, n) : 0;
	if (type != LINK_SPARE || len + 1 >= n || data[n - 1] != 0)
		return -EPROTO;
	h->root = strdup((const char *)data + len + 1);
	if (!h->root)
		return -ENOMEM;
	r = prepare(h, (const char *)data);
	buf_consume(&h->in, bytes);
	return r;
}

int holder_main(int dir, int link)
{
	static struct holder h;
	uint8_t pid[4];
	sigset_t set;
	int r;

	h = (struct holder){
		.dir = dir, .job_dir = -1, .link = link, .record = -1, .pipes = {-1, -1}};
	h.spools[0].fd = h.spools[1].fd = h.feed.fd = -1;
	buf_init(&h.in, 2 * LINK_MESSAGE_MAX);
	(void)setsid();
	(void)prctl(PR_SET_NAME, "limb-holder");
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	(void)sigaddset(&set, SIGTERM);
	(void)sigprocmask(SIG_SETMASK, &set, NULL);
	h.sigfd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (h.sigfd < 0)
		return 1;
	r = wait_for_name(&h);
	if (r < 0) {
		if (r != -EPIPE)
			(void)log_error_errno(r, "cannot prepare for a job");
		return 1;
	}
	(void)fcntl(h.link, F_SETFL, O_NONBLOCK);
	put_le32(pid, (uint32_t)getpid());
	holder_tell(&h, LINK_READY, pid, sizeof(pid));
	while (!finished(&h))
		turn(&h);
	return 0;
}
