#include "syncd/barrier.h"

#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/file.h"
#include "syncd/maps.h"
#include "syncd/state.h"

#define COOKIES "cookies"

enum {
	TICK_MS = 20,
	COOKIE_LOST_MS = 2000, /* then everything is scanned instead */
	COSTLY_MS = 2000,
};

struct barrier {
	struct barrier *next;
	struct sync *sy;
	bool started, cookie_came, maps_done, assigned, maps_busy, dead;
	unsigned bit;
	int error;
	uint64_t since, cookie, start_ms, deadline_ms, marks;
	uint32_t settle_ms;
	pid_t below; /* whose mappings are looked at; 0: all */
	sync_done_fn done;
	void *userdata;
	Limbwire__Unsettled *unsettled;
	size_t n_unsettled;

	uv_work_t maps;
	uint64_t device;
	uint64_t *inodes;
	size_t n_inodes;
};

static void on_tick(uv_timer_t *t);

/* ---- cookies ---- */

static void cookies_watch(struct sync *sy)
{
	struct barriers *bs = &sy->barriers;
	uint32_t before;

	bs->cookie_wd = 0;
	if (bs->cookie_fd < 0) {
		(void)file_make_dir(sy->root.dir_fd, COOKIES);
		bs->cookie_fd = file_open_dir(sy->root.dir_fd, COOKIES);
	}
	if (bs->cookie_fd >= 0 && sy->watch)
		bs->cookie_wd = MAX(watch_add(sy->watch, bs->cookie_fd), 0);
	if (bs->cookie_wd)
		(void)watch_bind(sy->watch, bs->cookie_wd, UINT32_MAX, &before);
}

bool barrier_is_cookie(const struct sync *sy, int wd)
{
	return wd > 0 && wd == sy->barriers.cookie_wd;
}

void barrier_lost_watch(struct sync *sy)
{
	if (sy->barriers.cookie_fd >= 0)
		(void)close(sy->barriers.cookie_fd);
	sy->barriers.cookie_fd = -1;
	cookies_watch(sy);
}

static int cookie_make(struct sync *sy)
{
	char name[32];
	int fd;

	if (!sy->barriers.cookie_wd)
		cookies_watch(sy);
	if (!sy->barriers.cookie_wd)
		return -ENOTSUP;
	(void)snprintf(name, sizeof(name), "%llu", (unsigned long long)++sy->barriers.cookie);
	fd = openat(sy->barriers.cookie_fd, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	(void)close(fd);
	(void)unlinkat(sy->barriers.cookie_fd, name, 0);
	return 0;
}

/* ---- mappings ---- */

static void maps_work(uv_work_t *req)
{
	struct barrier *b = req->data;

	if (maps_find(b->device, b->sy->root.path, b->below, &b->inodes, &b->n_inodes) < 0)
		b->n_inodes = 0;
}

static void mark_mapped(struct sync *sy, uint64_t inode)
{
	uint32_t pos = 0, n;

	while ((n = shadow_find_inode(&sy->shadow, 0, inode, &pos))) {
		uint32_t e = shadow_node(&sy->shadow, n)->entries;
		const char *name;
		uint8_t len;

		if (!e || shadow_dir(&sy->shadow, n))
			continue;
		name = shadow_name(&sy->shadow, e, &len);
		(void)dirty_mark(&sy->dirty, ITEM_NAME, shadow_entry(&sy->shadow, e)->parent, name,
				 len, ITEM_CONTENT | ITEM_MAPPED, NULL);
	}
}

static void maybe_assign(struct barrier *b);
static void barrier_free(struct barrier *b);

static void maps_after(uv_work_t *req, int status)
{
	struct barrier *b = req->data;
	struct sync *sy = b->sy;

	b->maps_busy = false;
	sy->in_flight--;
	if (b->dead) {
		barrier_free(b);
		return;
	}
	for (size_t i = 0; status == 0 && i < b->n_inodes; i++)
		mark_mapped(sy, b->inodes[i]);
	b->maps_done = true;
	maybe_assign(b);
	sync_pump(sy);
}

/* ---- life ---- */

static void barrier_free(struct barrier *b)
{
	for (size_t i = 0; i < b->n_unsettled; i++)
		free(b->unsettled[i].path.data);
	free(b->unsettled);
	free(b->inodes);
	free(b);
}

int barriers_init(struct sync *sy)
{
	sy->barriers = (struct barriers){.cookie_fd = -1};
	sy->barriers.timer.data = sy;
	return uv_timer_init(sy->loop, &sy->barriers.timer);
}

static void unlink_barrier(struct sync *sy, struct barrier *b)
{
	struct barrier **at = &sy->barriers.first;

	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	if (!sy->barriers.first && !sy->closing)
		(void)uv_timer_stop(&sy->barriers.timer);
}

static void finish(struct barrier *b, int error)
{
	struct sync *sy = b->sy;
	struct sync_result res = {.error = error};

	if (b->assigned)
		dirty_release_all(&sy->dirty, b->bit);
	if (b->started)
		sy->barriers.bits &= ~(1u << b->bit);
	unlink_barrier(sy, b);
	emit_flush(sy);
	status_send_reasons(sy);
	res.number = sy->emit.made;
	res.quiet = error == 0 && b->n_unsettled == 0 && sy->dirty.marks == b->marks;
	res.unsettled = b->unsettled;
	res.n_unsettled = b->n_unsettled;
	b->done(&res, b->userdata);
	if (b->maps_busy)
		b->dead = true;
	else
		barrier_free(b);
}

void barriers_done(struct sync *sy)
{
	while (sy->barriers.first)
		finish(sy->barriers.first, ECANCELED);
	if (sy->barriers.cookie_fd >= 0)
		(void)close(sy->barriers.cookie_fd);
	sy->barriers.cookie_fd = -1;
}

void barriers_fail(struct sync *sy, int error)
{
	for (struct barrier *b = sy->barriers.first; b; b = b->next)
		if (!b->error)
			b->error = error;
	if (sy->barriers.first && !sy->closing)
		(void)uv_timer_start(&sy->barriers.timer, on_tick, 0, TICK_MS);
}

void barriers_full(struct sync *sy)
{
	for (struct barrier *b = sy->barriers.first; b; b = b->next)
		if (!b->error && !b->settle_ms)
			b->error = EDQUOT;
	if (sy->barriers.first && !sy->closing)
		(void)uv_timer_start(&sy->barriers.timer, on_tick, 0, TICK_MS);
}

static void maybe_assign(struct barrier *b)
{
	uint32_t patience_ms = b->settle_ms ? b->settle_ms : COSTLY_MS;
	uint64_t now_ms = clock_mono_ms();
	struct sync *sy = b->sy;
	struct item *it;

	if (!b->started || b->assigned || !b->cookie_came || !b->maps_done)
		return;
	b->assigned = true;
	b->marks = sy->dirty.marks;
	if (sy->rescan_again)
		sync_rescan(sy, NULL);
	dirty_assign(&sy->dirty, b->bit, b->since, sy->scanning);
	/* What only rests to keep its cost down is wanted now, if one more try fits. It rests for
	 * nine times what it costs. */
	for (it = dirty_first(&sy->dirty, ITEM_RESTING); it; it = dirty_after(&sy->dirty, it))
		if ((it->bits & (1u << b->bit)) &&
		    (it->tries == 0 || it->ripe_ms < now_ms + 9 * (uint64_t)patience_ms))
			it->ripe_ms = 0; /* stays in its list: moved to the end we met it again */
}

static void everything(struct barrier *b)
{
	struct sync *sy = b->sy;

	if (!sy->watch)
		sync_rescan(sy, NULL);
	else
		for (uint32_t i = 0; i < sy->n_polled; i++)
			(void)dirty_mark(&sy->dirty, ITEM_LIST, sy->polled[i], "", 0, ITEM_SCAN,
					 NULL);
}

static void barrier_start(struct barrier *b)
{
	struct sync *sy = b->sy;
	uint32_t usable = ~sy->barriers.bits & ~(1u << DIRTY_SCAN_BIT);

	if (!usable)
		return;
	b->bit = (unsigned)__builtin_ctz(usable);
	sy->barriers.bits |= 1u << b->bit;
	b->started = true;
	everything(b);
	b->maps.data = b;
	b->device = sy->root.st.device;
	if (uv_queue_work(sy->loop, &b->maps, maps_work, maps_after) == 0) {
		b->maps_busy = true;
		sy->in_flight++;
	} else {
		b->maps_done = true;
	}
	if (cookie_make(sy) == 0) {
		b->cookie = sy->barriers.cookie;
		return;
	}
	/* Without events nothing but a scan can tell. */
	if (sy->watch)
		sync_rescan(sy, NULL);
	b->cookie_came = true;
	maybe_assign(b);
}

void barrier_cookie(struct sync *sy, const char *name)
{
	unsigned long long number = strtoull(name, NULL, 10);

	for (struct barrier *b = sy->barriers.first; b; b = b->next) {
		if (b->started && !b->cookie_came && b->cookie <= number) {
			b->cookie_came = true;
			maybe_assign(b);
		}
	}
}

/* ---- ends ---- */

static void add_unsettled(struct barrier *b, const struct item *it)
{
	struct sync *sy = b->sy;
	Limbwire__Unsettled *u;
	char *path;

	if (b->n_unsettled == BARRIER_UNSETTLED_MAX || it->kind == ITEM_LIST || !it->dir)
		return;
	path = shadow_path(&sy->shadow, it->dir, it->name, it->len);
	u = path ? reallocarray(b->unsettled, b->n_unsettled + 1, sizeof(*u)) : NULL;
	if (!u) {
		free(path);
		return;
	}
	b->unsettled = u;
	u = &u[b->n_unsettled++];
	limbwire__unsettled__init(u);
	u->path.data = (uint8_t *)path;
	u->path.len = strlen(path);
	u->size_bytes = it->st.size;
	u->since_ns = clock_real_ns() - (int64_t)(clock_mono_ms() - it->since_ms) * 1000000;
}

static bool has_bit(const struct barrier *b, const struct item *it)
{
	return (it->bits | it->again_bits) & (1u << b->bit);
}

/* All that it waits for; nothing of it comes to an end while the brain's journal is full. */
static void add_all(struct barrier *b)
{
	struct sync *sy = b->sy;

	for (int s = 0; s < ITEM_STATES; s++)
		for (struct item *it = dirty_first(&sy->dirty, s); it;
		     it = dirty_after(&sy->dirty, it))
			if (has_bit(b, it))
				add_unsettled(b, it);
	dirty_release_all(&sy->dirty, b->bit);
}

/* What never rests, and what costs too much for a job to wait. */
static void settle(struct barrier *b, uint64_t now_ms)
{
	static const enum item_state waiting[] = {ITEM_LATE, ITEM_ABSENT};
	struct sync *sy = b->sy;
	struct item *it, *next;

	if (sy->full) {
		add_all(b);
		return;
	}
	for (it = dirty_first(&sy->dirty, ITEM_RESTING); it; it = dirty_after(&sy->dirty, it)) {
		if (has_bit(b, it) && it->tries > 0 && (it->flags & ITEM_CONTENT)) {
			add_unsettled(b, it);
			dirty_release(&sy->dirty, it, b->bit);
		}
	}
	for (it = dirty_first(&sy->dirty, ITEM_STREAM); it; it = next) {
		next = dirty_after(&sy->dirty, it);
		if (has_bit(b, it) && (stream_age_ms(sy, it) > COSTLY_MS ||
				       now_ms - b->start_ms > COSTLY_MS + b->settle_ms)) {
			add_unsettled(b, it);
			dirty_release(&sy->dirty, it, b->bit);
		}
	}
	/* And the names that wait for one of those to get its name. */
	if (!sy->dirty.taking || now_ms - b->start_ms <= COSTLY_MS + b->settle_ms)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(waiting); i++) {
		for (it = dirty_first(&sy->dirty, waiting[i]); it;
		     it = dirty_after(&sy->dirty, it)) {
			if (has_bit(b, it)) {
				add_unsettled(b, it);
				dirty_release(&sy->dirty, it, b->bit);
			}
		}
	}
}

static void time_out(struct barrier *b)
{
	struct sync *sy = b->sy;

	for (int s = 0; b->assigned && s < ITEM_STATES; s++)
		for (struct item *it = dirty_first(&sy->dirty, s); it;
		     it = dirty_after(&sy->dirty, it))
			if (has_bit(b, it))
				add_unsettled(b, it);
	finish(b, ETIMEDOUT);
}

void barriers_check(struct sync *sy)
{
	struct barrier *b, *next;

	for (b = sy->barriers.first; b; b = next) {
		next = b->next;
		if (b->assigned && sy->dirty.waiting[b->bit] == 0)
			finish(b, 0);
	}
}

static void on_tick(uv_timer_t *t)
{
	struct sync *sy = t->data;
	uint64_t now_ms = clock_mono_ms();
	struct barrier *b, *next;

	for (b = sy->barriers.first; b; b = next) {
		next = b->next;
		if (b->error) {
			finish(b, b->error);
			continue;
		}
		if (now_ms >= b->deadline_ms) {
			time_out(b);
			continue;
		}
		if (!b->started && sync_may_send(sy))
			barrier_start(b);
		if (b->started && !b->cookie_came && now_ms - b->start_ms > COOKIE_LOST_MS) {
			sync_rescan(sy, NULL);
			b->cookie_came = true;
			maybe_assign(b);
		}
		if (b->assigned && b->settle_ms && now_ms - b->start_ms >= b->settle_ms)
			settle(b, now_ms);
	}
	sync_pump(sy);
}

int sync_barrier(struct sync *sy, uint64_t since_mark, uint32_t settle_ms, uint32_t deadline_ms,
		 sync_done_fn done, void *userdata)
{
	struct barrier *b = calloc(1, sizeof(*b)), **at = &sy->barriers.first;

	if (!b)
		return -ENOMEM;
	b->sy = sy;
	b->since = since_mark;
	b->below = since_mark ? sy->processes : 0;
	b->start_ms = clock_mono_ms();
	b->deadline_ms = b->start_ms + deadline_ms;
	b->settle_ms = settle_ms;
	b->done = done;
	b->userdata = userdata;
	while (*at)
		at = &(*at)->next;
	*at = b;
	/* While the shadow is being filled a barrier waits: on_tick() starts it then. */
	if (sy->halted)
		b->error = EIO;
	else if (sy->full && !settle_ms)
		b->error = EDQUOT;
	else if (!sy->attached || sy->phase == PHASE_IDLE || sy->closing)
		b->error = ENOTCONN;
	else if (sync_may_send(sy))
		barrier_start(b);
	(void)uv_timer_start(&sy->barriers.timer, on_tick, b->error ? 0 : TICK_MS, TICK_MS);
	sync_pump_soon(sy, 0);
	return 0;
}

uint64_t sync_mark(struct sync *sy)
{
	return sy->dirty.epoch++;
}

void sync_set_processes(struct sync *sy, pid_t above)
{
	sy->processes = above;
}
