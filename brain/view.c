#include "brain/view.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/log.h"
#include "brain/accept.h"
#include "brain/fs-process.h"
#include "brain/link.h"

enum {
	SEEN_MS = 1000,
	LATE_STEP_MS = 100,
	CONNECT_TRIES = 100,
	CONNECT_PAUSE_MS = 50,
};

struct seen_wait {
	struct seen_wait *next;
	uint64_t seq;
	view_seen_fn fn;
	void *userdata;
	uint64_t late_ms;
	bool until_connected, behind;
};

struct view {
	struct env *env;
	char *path;
	int sock;
	bool connected, stopping;
	bool failed; /* limb-fs said that it cannot mount: nothing is mounted */
	uv_poll_t poll;
	bool poll_made;
	uv_process_t process;
	bool process_made, process_alive;
	uv_timer_t timer; /* connecting, then late waiters */
	unsigned tries;
	int pid;
	uint64_t seen, published;
	struct seen_wait *waits;
	uint8_t in[sizeof(struct view_frame)];
	size_t in_n;
	unsigned closing;
};

static void view_connect(struct view *v);

bool view_is_writable(const struct env *env)
{
	return env->work_mode &&
	       json_is_true(json_object_get(json_object_get(env->spec, "view"), "write"));
}

const char *view_path(const struct env *env)
{
	return env->view ? env->view->path : "";
}

const char *view_state(const struct env *env)
{
	const struct view *v = env->view;

	if (!v || v->failed)
		return "absent";
	return v->connected ? "mounted" : v->tries < CONNECT_TRIES ? "absent" : "stale";
}

int view_pid(const struct env *env)
{
	return env->view && env->view->connected ? env->view->pid : 0;
}

/* Who is told may begin a new wait, and close this view or start another one in its place:
 * callers look at v->stopping afterwards. */
static void waits_tell(struct view *v, bool all)
{
	struct seen_wait **p = &v->waits, *due = NULL, **end = &due, *w;
	uint64_t now = clock_mono_ms();

	while ((w = *p)) {
		bool seen = v->seen >= w->seq;

		if (!all && !seen && (v->connected || w->until_connected) && now < w->late_ms) {
			p = &w->next;
			continue;
		}
		*p = w->next;
		*end = w;
		end = &w->next;
		w->next = NULL;
		w->behind = !seen && v->tries < CONNECT_TRIES;
	}
	while ((w = due)) {
		due = w->next;
		w->fn(v->env, w->behind, w->userdata);
		free(w);
	}
}

static void view_tick(uv_timer_t *t);

/* Looks for those who waited too long, as long as anybody waits. */
static void waits_watch(struct view *v)
{
	if (v->connected && v->waits && !uv_is_active((uv_handle_t *)&v->timer))
		(void)uv_timer_start(&v->timer, view_tick, LATE_STEP_MS, LATE_STEP_MS);
}

static void view_disconnected(struct view *v)
{
	log_debug("environment '%s': its limb-fs went away", v->env->name);
	v->connected = false;
	v->in_n = 0;
	(void)uv_poll_stop(&v->poll);
	accept_drained(v->env, UINT64_MAX);
	if (v->stopping || v->env->brain->stopping)
		waits_tell(v, true);
	else
		view_start(v->env); /* who waits goes on waiting */
}

static void view_readable(uv_poll_t *p, int status, int events)
{
	struct view *v = container_of(p, struct view, poll);
	struct view_frame f;
	ssize_t n;

	(void)events;
	do {
		n = status < 0 ? status
			       : io_read_some(v->sock, v->in + v->in_n, sizeof(v->in) - v->in_n,
					      "view.read");
		if (n == -EAGAIN)
			return;
		if (n <= 0) {
			view_disconnected(v);
			return;
		}
		v->in_n += (size_t)n;
		if (v->in_n < sizeof(f))
			continue;
		memcpy(&f, v->in, sizeof(f));
		v->in_n = 0;
		if (f.kind == VIEW_SEEN) {
			v->seen = MAX(v->seen, f.seq);
			waits_tell(v, false);
			if (v->stopping)
				return;
		} else if (f.kind == VIEW_WROTE) {
			accept_kick(v->env);
		} else if (f.kind == VIEW_WAITS) {
			accept_now(v->env);
		} else if (f.kind == VIEW_TOLD) {
			accept_told(v->env, f.seq - MIN((uint64_t)f.arg, f.seq) + 1, f.seq);
		} else if (f.kind == VIEW_DRAINED) {
			accept_drained(v->env, f.seq);
			if (v->stopping)
				return;
		}
	} while (1);
}

static void view_say_of(struct view *v, enum view_message kind, uint32_t arg, uint64_t seq)
{
	struct view_frame f = {.kind = kind, .arg = arg, .seq = seq};

	/* A full socket loses nothing: the next PUBLISH carries a higher number. That it is
	 * closed, by a limb-fs that ends, the poll tells; then another one is started. */
	if (v->connected)
		(void)!send(v->sock, &f, sizeof(f), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void view_say(struct view *v, enum view_message kind, uint64_t seq)
{
	view_say_of(v, kind, 0, seq);
}

void view_publish(struct env *env, uint64_t seq)
{
	struct view *v = env->view;

	if (!v || seq <= v->published)
		return;
	v->published = seq;
	view_say(v, VIEW_PUBLISH, seq);
}

void view_set_stale(struct env *env, bool stale)
{
	if (env->view)
		view_say(env->view, VIEW_STALE, stale);
}

bool view_over(struct env *env, uint64_t number, uint64_t seq)
{
	if (!env->view || !env->view->connected)
		return false;
	view_publish(env, seq);
	view_say(env->view, VIEW_OVER_AT, seq);
	view_say(env->view, VIEW_OVER, number);
	return true;
}

bool view_drain(struct env *env, uint64_t token)
{
	if (!env->view || !env->view->connected)
		return false;
	view_say(env->view, VIEW_DRAIN, token);
	return true;
}

void view_refused(struct env *env, uint64_t number, int error)
{
	if (env->view)
		view_say_of(env->view, VIEW_REFUSED, (uint32_t)error, number);
}

void view_classes(struct env *env)
{
	if (env->view)
		view_say(env->view, VIEW_CLASSES, 0);
}

void view_merged(struct env *env)
{
	if (env->view)
		view_say(env->view, VIEW_MERGED, 0);
}

void view_wait_seen(struct env *env, uint64_t seq, view_seen_fn fn, void *userdata)
{
	struct view *v = env->view;
	struct seen_wait *w;

	/* One that is being started may be mounted already, and warm: it has to say so, too. */
	if (!v || (!v->connected && v->tries >= CONNECT_TRIES) || v->seen >= seq ||
	    !(w = calloc(1, sizeof(*w)))) {
		fn(env, false, userdata);
		return;
	}
	w->seq = seq;
	w->fn = fn;
	w->userdata = userdata;
	w->late_ms = clock_mono_ms() + SEEN_MS;
	w->until_connected = !v->connected;
	w->next = v->waits;
	v->waits = w;
	waits_watch(v);
}

void view_wait_connected(struct env *env, view_seen_fn fn, void *userdata)
{
	struct view *v = env->view;
	struct seen_wait *w;

	if (v && v->connected) {
		view_wait_seen(env, env_seq(env), fn, userdata);
		return;
	}
	if (!v || v->tries >= CONNECT_TRIES || !(w = calloc(1, sizeof(*w)))) {
		fn(env, false, userdata);
		return;
	}
	w->seq = env_seq(env);
	w->fn = fn;
	w->userdata = userdata;
	w->late_ms = clock_mono_ms() + CONNECT_TRIES * CONNECT_PAUSE_MS;
	w->until_connected = true;
	w->next = v->waits;
	v->waits = w;
}

/* ---- starting ---- */

static void view_exit(uv_process_t *p, int64_t status, int sig)
{
	struct view *v = container_of(p, struct view, process);

	v->process_alive = false;
	if (!v->stopping)
		log_warning("environment '%s': limb-fs ended (%s %d); its view is absent",
			    v->env->name, sig ? "signal" : "status", sig ? sig : (int)status);
	if (!v->stopping && !v->connected && !sig && status == 125) {
		v->failed = true;
		v->tries = CONNECT_TRIES;
		waits_tell(v, true);
	}
}

static int view_spawn(struct view *v)
{
	struct env *env = v->env;
	const char *args[] = {"--state",
			      env->brain->state_dir,
			      "--environment",
			      env->id_hex,
			      "--name",
			      env->name,
			      "--mount",
			      v->path,
			      env->work_mode ? "--work" : "--look",
			      view_is_writable(env) ? "--write" : NULL,
			      NULL};
	int r;

	if (v->process_made)
		return -EBUSY;
	r = fs_process_spawn(env->brain, args, view_exit, &v->process);
	v->process_made = r != -ENOENT;
	if (r == 0) {
		v->process_alive = true;
		v->pid = v->process.pid;
	}
	return r;
}

static void view_tick(uv_timer_t *t)
{
	struct view *v = container_of(t, struct view, timer);

	if (v->connected) {
		waits_tell(v, false);
		if (!v->stopping && !v->waits)
			(void)uv_timer_stop(t);
		return;
	}
	waits_tell(v, v->stopping || v->tries >= CONNECT_TRIES);
	if (!v->stopping && v->tries < CONNECT_TRIES)
		view_connect(v);
}

static void view_connect(struct view *v)
{
	int r;

	v->tries++;
	r = fs_process_connect(v->env->dir_fd, &v->sock, &v->pid);
	if (r < 0) {
		if (v->tries == 1) {
			r = view_spawn(v);
			if (r < 0) {
				log_debug("environment '%s': no view: %s", v->env->name,
					  strerror(-r));
				v->tries = CONNECT_TRIES;
				waits_tell(v, true);
				return;
			}
		}
		(void)uv_timer_start(&v->timer, view_tick, CONNECT_PAUSE_MS, 0);
		return;
	}
	r = uv_poll_init(v->env->brain->loop, &v->poll, v->sock);
	if (r < 0) {
		(void)close(v->sock);
		v->sock = -1;
		return;
	}
	v->poll_made = true;
	v->connected = true;
	v->seen = 0;
	(void)uv_poll_start(&v->poll, UV_READABLE | UV_DISCONNECT, view_readable);
	(void)uv_timer_stop(&v->timer);
	waits_watch(v);
	v->published = env_seq(v->env);
	view_say(v, VIEW_PUBLISH, v->published);
	view_say(v, VIEW_CLASSES, 0); /* while nobody was there to hear it */
	view_say(v, VIEW_STALE, !link_up(v->env));
	accept_connected(v->env);
}

static void view_closed(uv_handle_t *h)
{
	struct view *v = h->data;

	if (--v->closing)
		return;
	if (v->sock >= 0)
		(void)close(v->sock);
	free(v->path);
	free(v);
}

void view_close(struct env *env)
{
	struct view *v = env->view;
	uv_handle_t *hs[3];
	unsigned n = 0;

	if (!v)
		return;
	v->stopping = true;
	env->view = NULL;
	waits_tell(v, true);
	hs[n++] = (uv_handle_t *)&v->timer;
	if (v->poll_made)
		hs[n++] = (uv_handle_t *)&v->poll;
	if (v->process_made)
		hs[n++] = (uv_handle_t *)&v->process;
	v->closing = n;
	for (unsigned i = 0; i < n; i++) {
		hs[i]->data = v;
		uv_close(hs[i], view_closed);
	}
}

void view_stop(struct env *env)
{
	if (!env->view)
		return;
	env->view->stopping = true;
	view_say(env->view, VIEW_QUIT, 0);
	/* It has no line to be told by while it starts. */
	if (!env->view->connected && env->view->process_alive)
		(void)uv_process_kill(&env->view->process, SIGTERM);
	view_close(env);
}

void view_start(struct env *env)
{
	struct seen_wait *waits = env->view ? take_ptr(&env->view->waits) : NULL;
	struct view *v;

	view_close(env);
	v = calloc(1, sizeof(*v));
	if (!v || asprintf(&v->path, "%s/%s", env->brain->mount_dir, env->name) < 0) {
		while (waits) {
			struct seen_wait *w = waits;

			waits = w->next;
			w->fn(env, false, w->userdata);
			free(w);
		}
		free(v);
		return;
	}
	v->env = env;
	v->sock = -1;
	v->waits = waits;
	for (struct seen_wait *w = waits; w; w = w->next)
		w->until_connected = true;
	(void)uv_timer_init(env->brain->loop, &v->timer);
	env->view = v;
	view_connect(v);
}
