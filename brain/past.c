#include "brain/past.h"

#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "brain/fs-process.h"
#include "brain/view-protocol.h"

enum {
	TRIES = 100,
	PAUSE_MS = 50,
	AGAIN_MS = 1000, /* one that died sooner than that is not started again at once */
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

static void give_up(struct past *p)
{
	p->tries = TRIES;
	tell_waiters(p);
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

static void start_anew(struct brain *b)
{
	past_close(b);
	past_start(b);
}

static void again(uv_timer_t *t)
{
	start_anew(container_of(t, struct past, timer)->brain);
}

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
	log_warning("the limb-fs of past views ended; it is started again");
	if (clock_mono_ms() - p->since_ms < AGAIN_MS)
		(void)uv_timer_start(&p->timer, again, AGAIN_MS, 0);
	else
		start_anew(p->brain);
}

static void on_exit_of(uv_process_t *process, int64_t status, int sig)
{
	struct past *p = container_of(process, struct past, process);

	p->process_alive = false;
	if (p->stopping || p->sock >= 0)
		return;
	log_warning("limb-fs ended (%s %d); there are no past views", sig ? "signal" : "status",
		    sig ? sig : (int)status);
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
