#include "syncd/watch.h"

#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>

#include "base/buf.h"
#include "base/fault.h"
#include "base/util.h"

#define MASK                                                                                \
	(IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_MODIFY | IN_CLOSE_WRITE | \
	 IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK)

enum {
	READ_BYTES = 256 * 1024,
	QUEUE_BYTES_MAX = 32 << 20, /* beyond, as if the kernel's queue had overflowed */
	GATHER_MS = 1, /* a storm of events wakes us a thousand times a second at most */
	MAP_MIN = 256,
};

struct slot {
	int wd;	      /* 0 = free */
	uint32_t dir; /* 0 = events came before it was bound */
	bool gone;    /* we removed it: its IN_IGNORED is on the way */
};

struct watch {
	int fd, stop_fd;
	uv_thread_t thread;
	uv_async_t async;
	watch_fn fn;
	void *userdata;
	atomic_uint limit, count;

	uv_mutex_t lock; /* guards queue and dropped; shared with the thread */
	struct buf queue;
	bool dropped;

	/* The loop's alone. */
	struct buf taken;
	size_t taken_at;
	bool taken_dropped;
	struct slot *map;
	uint32_t map_mask, map_used;
};

/* ---- the thread ---- */

/* n 0: what there was is lost. */
static void queue_add(struct watch *w, const uint8_t *p, size_t n)
{
	uv_mutex_lock(&w->lock);
	if (n == 0 || buf_add(&w->queue, p, n) < 0)
		w->dropped = true;
	uv_mutex_unlock(&w->lock);
}

/* As the kernel's queue does when it is full, which no test can do to us alone. */
static bool lose(void)
{
	int e;

	return fault_visit("watch.read", &e) != FAULT_NONE;
}

static void thread_main(void *arg)
{
	struct watch *w = arg;
	cleanup_free uint8_t *mem = malloc(READ_BYTES);
	struct pollfd fds[2] = {{.fd = w->stop_fd, .events = POLLIN},
				{.fd = w->fd, .events = POLLIN}};

	while (mem) {
		ssize_t n;

		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			return;
		if (fds[0].revents)
			return;
		n = read(w->fd, mem, READ_BYTES);
		if (n <= 0)
			continue;
		queue_add(w, mem, lose() ? 0 : (size_t)n);
		(void)uv_async_send(&w->async);
		if (poll(fds, 1, GATHER_MS) > 0)
			return;
	}
}

static void on_async(uv_async_t *async)
{
	struct watch *w = async->data;

	w->fn(w->userdata);
}

/* ---- the map ---- */

static uint32_t map_home(int wd)
{
	return (uint32_t)wd * 0x9e3779b1u >> 3;
}

static struct slot *map_find(const struct watch *w, int wd)
{
	for (uint32_t at = map_home(wd) & w->map_mask;; at = (at + 1) & w->map_mask) {
		if (w->map[at].wd == wd)
			return &w->map[at];
		if (!w->map[at].wd)
			return NULL;
	}
}

static struct slot *map_add(struct watch *w, int wd)
{
	uint32_t at;

	if ((w->map_used + 1) * 4 > (w->map_mask + 1) * 3) {
		struct slot *old = w->map, *map = calloc((w->map_mask + 1) * 2, sizeof(*map));
		uint32_t n = w->map_mask + 1;

		if (!map)
			return NULL;
		w->map = map;
		w->map_mask = n * 2 - 1;
		w->map_used = 0;
		for (uint32_t i = 0; i < n; i++)
			if (old[i].wd)
				*map_add(w, old[i].wd) = old[i];
		free(old);
	}
	for (at = map_home(wd) & w->map_mask; w->map[at].wd; at = (at + 1) & w->map_mask)
		;
	w->map[at] = (struct slot){.wd = wd};
	w->map_used++;
	return &w->map[at];
}

static void map_remove(struct watch *w, struct slot *s)
{
	uint32_t at = (uint32_t)(s - w->map);

	w->map_used--;
	for (uint32_t i = (at + 1) & w->map_mask; w->map[i].wd; i = (i + 1) & w->map_mask) {
		uint32_t home = map_home(w->map[i].wd) & w->map_mask;

		if (((i - home) & w->map_mask) >= ((i - at) & w->map_mask)) {
			w->map[at] = w->map[i];
			at = i;
		}
	}
	w->map[at] = (struct slot){0};
}

/* ---- the loop's side ---- */

bool watch_bind(struct watch *w, int wd, uint32_t dir, uint32_t *ret_before)
{
	struct slot *s = map_find(w, wd);
	bool early = s && s->dir == 0;

	*ret_before = s ? s->dir : 0;
	if (!s)
		s = map_add(w, wd);
	if (s)
		s->dir = dir;
	return early;
}

void watch_remove(struct watch *w, int wd)
{
	struct slot *s = map_find(w, wd);

	if (!s)
		s = map_add(w, wd);
	if (inotify_rm_watch(w->fd, wd) == 0) {
		/* Counted now: its IN_IGNORED may come after a recount. */
		atomic_fetch_sub(&w->count, 1);
		if (s) {
			s->dir = 0;
			s->gone = true;
		}
	} else if (s) {
		map_remove(w, s);
	}
}

void watch_recount(struct watch *w)
{
	unsigned n = 0;

	for (uint32_t i = 0; i <= w->map_mask; i++)
		n += w->map[i].dir != 0;
	atomic_store(&w->count, n);
}

bool watch_next(struct watch *w, struct watch_event *ret)
{
	const struct inotify_event *e;
	struct slot *s;

	for (;;) {
		if (w->taken_at == buf_len(&w->taken)) {
			buf_clear(&w->taken);
			w->taken_at = 0;
			uv_mutex_lock(&w->lock);
			if (buf_len(&w->queue)) {
				struct buf swap = w->taken;

				w->taken = w->queue;
				w->queue = swap;
			}
			w->taken_dropped = w->dropped;
			w->dropped = false;
			uv_mutex_unlock(&w->lock);
			if (w->taken_dropped) {
				*ret = (struct watch_event){
					.wd = -1, .mask = IN_Q_OVERFLOW, .name = ""};
				return true;
			}
			if (!buf_len(&w->taken))
				return false;
		}
		e = (const void *)(buf_data(&w->taken) + w->taken_at);
		w->taken_at += sizeof(*e) + e->len;
		*ret = (struct watch_event){.wd = e->wd, .mask = e->mask, .cookie = e->cookie};
		ret->name = e->len ? e->name : "";
		ret->len = (uint8_t)strnlen(ret->name, NAME_MAX);
		if (e->wd <= 0)
			return true;
		s = map_find(w, e->wd);
		ret->dir = s ? s->dir : 0;
		if (e->mask & IN_IGNORED) {
			if (!s || !s->gone)
				atomic_fetch_sub(&w->count, 1);
			if (s)
				map_remove(w, s);
			return true;
		}
		/* A watch whose listing has not come back yet, or one that we removed: the
		 * IN_IGNORED that ends each watch takes it from the map again. */
		if (!s)
			(void)map_add(w, e->wd);
		return true;
	}
}

/* Several threads add: each takes its place below the limit first. */
int watch_add(struct watch *w, int dir_fd)
{
	unsigned limit = atomic_load(&w->limit);
	char path[32];
	int wd;

	if (atomic_fetch_add(&w->count, 1) >= limit && limit) {
		atomic_fetch_sub(&w->count, 1);
		return -ENOSPC;
	}
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", dir_fd);
	wd = inotify_add_watch(w->fd, path, MASK | IN_MASK_CREATE);
	if (wd >= 0)
		return wd;
	wd = -errno;
	atomic_fetch_sub(&w->count, 1);
	if (wd == -EEXIST || wd == -EINVAL) { /* EINVAL: before 4.18 */
		wd = inotify_add_watch(w->fd, path, MASK);
		return wd < 0 ? -errno : wd;
	}
	return wd;
}

void watch_set_limit(struct watch *w, uint32_t limit)
{
	atomic_store(&w->limit, limit);
}

uint32_t watch_count(const struct watch *w)
{
	return w ? atomic_load(&w->count) : 0;
}

int watch_new(uv_loop_t *loop, watch_fn on_events, void *userdata, struct watch **ret)
{
	struct watch *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	w->fn = on_events;
	w->userdata = userdata;
	buf_init(&w->queue, QUEUE_BYTES_MAX);
	buf_init(&w->taken, QUEUE_BYTES_MAX);
	w->map_mask = MAP_MIN - 1;
	w->map = calloc(MAP_MIN, sizeof(*w->map));
	w->stop_fd = -1;
	w->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	r = w->map ? -errno : -ENOMEM;
	if (w->fd < 0 || !w->map)
		goto out;
	w->stop_fd = eventfd(0, EFD_CLOEXEC);
	r = -errno;
	if (w->stop_fd < 0)
		goto out;
	r = uv_mutex_init(&w->lock);
	if (r < 0)
		goto out;
	r = uv_async_init(loop, &w->async, on_async);
	if (r < 0)
		goto out_lock;
	w->async.data = w;
	r = uv_thread_create(&w->thread, thread_main, w);
	assert(r == 0);
	*ret = w;
	return 0;
out_lock:
	uv_mutex_destroy(&w->lock);
out:
	if (w->fd >= 0)
		(void)close(w->fd);
	if (w->stop_fd >= 0)
		(void)close(w->stop_fd);
	free(w->map);
	free(w);
	return r;
}

static void on_closed(uv_handle_t *h)
{
	struct watch *w = h->data;

	uv_mutex_destroy(&w->lock);
	buf_done(&w->queue);
	buf_done(&w->taken);
	free(w->map);
	free(w);
}

void watch_free(struct watch *w)
{
	uint64_t one = 1;

	if (!w)
		return;
	(void)!write(w->stop_fd, &one, sizeof(one));
	(void)uv_thread_join(&w->thread);
	(void)close(w->fd);
	(void)close(w->stop_fd);
	uv_close((uv_handle_t *)&w->async, on_closed);
}
