#include "brain/past.h"

#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "brain/fs-process.h"
#include "brain/view-protocol.h"

enum {
	TRIES = 100,
	PAUSE_MS = 50,
	STEADY_MS = 10000, /* one that lived this long died for another reason */
	AGAIN_MS = 1000,
	AGAIN_MAX_MS = 300 * 1000,
	SAID = 3, /* so many failures in a row are worth a line in the log */
};

struct waiter {
	struct waiter *next;
	void (*fn)(void *userdata);
	void *userdata;
};

struct past {
	struct brain *brain;
	char *path;
	int dir_fd, sock, pid; /* sock -1: not connected */
	unsigned tries;	       /* TRIES: there will be none */
	uint64_t since_ms;     /* monotonic: connected */
	uv_timer_t timer;
	uv_poll_t poll;
	uv_process_t process;
	bool poll_made, process_made, process_alive, stopping;
	struct waiter *waiters;
	unsigned closing;
};

static void try_to_connect(struct past *p);

static void say(struct past *p, enum view_message kind)
{
	struct view_frame f = {.kind = kind};

	if (p->sock >= 0)
		(void)!send(p->sock, &f, sizeof(f), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void tell_waiters(struct past *p)
{
	struct waiter *w;

	while ((w = p->waiters)) {
		p->waiters = w->next;
		w->fn(w->userdata);
		free(w);
	}
}

static void again(uv_timer_t *t)
{
	struct brain *b = container_of(t, struct past, timer)->brain;

	past_close(b);
	past_start(b);
}

static bool worth_saying(const struct past *p)
{
	return p->brain->past_failures < SAID;
}

/* The first time at once. */
static void start_later(struct past *p)
{
	unsigned n = p->brain->past_failures++;

	(void)uv_timer_start(&p->timer, again, n ? backoff_ms(n - 1, AGAIN_MS, AGAIN_MAX_MS) : 0,
			     0);
}

/* There is none for now. */
static void give_up(struct past *p)
{
	p->tries = TRIES;
	tell_waiters(p);
	start_later(p);
}

/* ---- the end ---- */

static void closed(uv_handle_t *h)
{
	struct past *p = h->data;

	if (--p->closing)
		return;
	if (p->sock >= 0)
		(void)close(p->sock);
	if (p->dir_fd >= 0)
		(void)close(p->dir_fd);
	free(p->path);
	free(p);
}

void past_close(struct brain *b)
{
	struct past *p = b->past;
	uv_handle_t *hs[3];
	unsigned n = 0;

	if (!p)
		return;
	b->past = NULL;
	p->stopping = true;
	tell_waiters(p);
	hs[n++] = (uv_handle_t *)&p->timer;
	if (p->poll_made)
		hs[n++] = (uv_handle_t *)&p->poll;
	if (p->process_made)
		hs[n++] = (uv_handle_t *)&p->process;
	p->closing = n;
	for (unsigned i = 0; i < n; i++) {
		hs[i]->data = p;
		uv_close(hs[i], closed);
	}
}

void past_stop(struct brain *b)
{
	struct past *p = b->past;

	if (!p)
		return;
	p->stopping = true;
	say(p, VIEW_QUIT);
	if (p->sock < 0 && p->process_alive)
		(void)uv_process_kill(&p->process, SIGTERM);
	past_close(b);
}

/* ---- one that dies ---- */

/* It says nothing, so what can be read is the end. */
static void at_end(uv_poll_t *poll, int status, int events)
{
	struct past *p = container_of(poll, struct past, poll);
	char rest[64];

	(void)events;
	if (status == 0 && recv(p->sock, rest, sizeof(rest), MSG_DONTWAIT) > 0)
		return;
	(void)uv_poll_stop(&p->poll);
	if (p->stopping || p->brain->stopping)
		return;
	if (clock_mono_ms() - p->since_ms > STEADY_MS)
		p->brain->past_failures = 0;
	if (worth_saying(p))
		log_warning("the limb-fs of past views ended; it is started again");
	start_later(p);
}

static void on_exit_of(uv_process_t *process, int64_t status, int sig)
{
	struct past *p = container_of(process, struct past, process);

	p->process_alive = false;
	if (p->stopping || p->sock >= 0)
		return;
	if (worth_saying(p))
		log_warning("limb-fs ended (%s %d); there are no past views",
			    sig ? "signal" : "status", sig ? sig : (int)status);
	give_up(p);
}

/* ---- the beginning ---- */

static int spawn(struct past *p)
{
	char id[33];
	const char *args[] = {"--state", p->brain->state_dir, "--past", id, "--mount", p->path,
			      NULL};
	int r;

	text_hex(id, p->brain->id, sizeof(p->brain->id));
	r = fs_process_spawn(p->brain, args, on_exit_of, &p->process);
	p->process_made = r != -ENOENT;
	p->process_alive = r == 0;
	return r;
}

static void tick(uv_timer_t *t)
{
	struct past *p = container_of(t, struct past, timer);

	if (p->tries < TRIES)
		try_to_connect(p);
}

static void try_to_connect(struct past *p)
{
	int r = fs_process_connect(p->dir_fd, &p->sock, &p->pid);

	if (r == 0) {
		p->since_ms = clock_mono_ms();
		r = uv_poll_init(p->brain->loop, &p->poll, p->sock);
		p->poll_made = r == 0;
		if (r == 0)
			(void)uv_poll_start(&p->poll, UV_READABLE | UV_DISCONNECT, at_end);
		tell_waiters(p);
		return;
	}
	if (p->tries++ == 0) {
		r = spawn(p);
		if (r < 0) {
			log_debug("no past views: %s", strerror(-r));
			give_up(p);
			return;
		}
	}
	if (p->tries == TRIES) {
		if (worth_saying(p))
			log_warning("limb-fs does not answer; there are no past views");
		give_up(p);
		return;
	}
	(void)uv_timer_start(&p->timer, tick, PAUSE_MS, 0);
}

void past_start(struct brain *b)
{
	struct past *p = calloc(1, sizeof(*p));
	int r = -ENOMEM;

	if (!p)
		return;
	p->brain = b;
	p->sock = p->dir_fd = -1;
	(void)uv_timer_init(b->loop, &p->timer);
	uv_unref((uv_handle_t *)&p->timer);
	b->past = p;
	if (asprintf(&p->path, "%s/.at", b->mount_dir) < 0)
		p->path = NULL;
	else
		r = file_make_dir(b->state_fd, "past");
	if (r >= 0)
		r = p->dir_fd = file_open_dir(b->state_fd, "past");
	if (r < 0) {
		log_warning_errno(r, "there are no past views");
		give_up(p);
		return;
	}
	try_to_connect(p);
}

void past_merged(struct brain *b)
{
	if (b->past)
		say(b->past, VIEW_MERGED);
}

void past_wait(struct brain *b, void (*fn)(void *userdata), void *userdata)
{
	struct past *p = b->past;
	struct waiter *w = NULL;

	if (p && p->sock < 0 && p->tries < TRIES)
		w = malloc(sizeof(*w));
	if (!w) {
		fn(userdata);
		return;
	}
	*w = (struct waiter){.next = p->waiters, .fn = fn, .userdata = userdata};
	p->waiters = w;
}
