#include "syncd/state.h"

#include <inotifytools/inotifytools.h>
#include <malloc.h>
#include <stdio.h>

#include "base/clock.h"
#include "syncd/plan.h"

/* Where dirt comes from: events, listings of what is not watched, rescans, the sweep. */

enum {
	GATHER_MS = 2,	   /* events of one action come together */
	SAVES_AT_ONCE = 8, /* dirty names; more are worth gathering */
	POLL_MIN_MS = 1000,
};

/* ---- watched, polled ---- */

static void limit_reason(struct sync *sy)
{
	char detail[128];

	if (!sy->n_polled || !sy->watch) {
		status_clear_all(sy, "watch_limit");
		return;
	}
	(void)snprintf(detail, sizeof(detail), "no watches left (limit %d): the rest is polled",
		       sy->watch_limit ? (int)sy->watch_limit
				       : inotifytools_get_max_user_watches());
	status_set(sy, "watch_limit", NULL, 0, detail);
}

void sync_set_polled(struct sync *sy, uint32_t n, bool polled)
{
	struct shadow_dir *d = shadow_dir(&sy->shadow, n);
	uint32_t last;

	if (polled == (d->polled != 0))
		return;
	if (polled) {
		if (sy->n_polled == sy->polled_cap) {
			uint32_t cap = sy->polled_cap ? sy->polled_cap * 2 : 64;
			uint32_t *list = reallocarray(sy->polled, cap, sizeof(*list));

			if (!list)
				return; /* the sweep is left */
			sy->polled = list;
			sy->polled_cap = cap;
		}
		sy->polled[sy->n_polled++] = n;
		d->polled = sy->n_polled;
	} else {
		last = sy->polled[--sy->n_polled];
		sy->polled[d->polled - 1] = last;
		shadow_dir(&sy->shadow, last)->polled = d->polled;
		d->polled = 0;
	}
	if (sy->n_polled <= 1)
		limit_reason(sy);
	status_changed(sy);
}

void sync_dir_left(uint32_t n, void *userdata)
{
	struct sync *sy = userdata;
	struct shadow_dir *d = shadow_dir(&sy->shadow, n);

	if (d->wd && sy->watch)
		watch_remove(sy->watch, d->wd);
	d->wd = 0;
	sync_set_polled(sy, n, false);
	rules_dir_left(sy, n);
}

void sync_dir_came(uint32_t n, void *userdata)
{
	struct sync *sy = userdata;

	(void)dirty_mark(&sy->dirty, ITEM_LIST, n, "", 0, ITEM_SCAN | ITEM_DEEP, NULL);
}

/* ---- events ---- */

static void on_event(struct sync *sy, const struct watch_event *ev)
{
	uint32_t dir = ev->dir;

	if (!dir || !shadow_attached(&sy->shadow, dir))
		return;
	if (ev->mask & (IN_IGNORED | IN_UNMOUNT)) {
		if (ev->mask & IN_IGNORED)
			shadow_dir(&sy->shadow, dir)->wd = 0;
		(void)dirty_mark(&sy->dirty, ITEM_LIST, dir, "", 0, 0, NULL);
		plan_mark_own(sy, dir, NULL);
		sy->dirty.marks++;
		return;
	}
	if (!ev->len) {
		if (ev->mask & (IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF)) {
			plan_mark_own(sy, dir, NULL);
			sy->dirty.marks++;
		}
		return;
	}
	/* Of a name that is left out its directory's time tells, as of any. */
	if (ev->mask & (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO))
		plan_mark_own(sy, dir, NULL);
	if (sync_is_ignored(sy, dir, ev->name, ev->len,
			    &(struct stamp){.mode = ev->mask & IN_ISDIR ? S_IFDIR : S_IFREG}))
		return;
	sy->dirty.marks++;
	(void)dirty_mark(&sy->dirty, ITEM_NAME, dir, ev->name, ev->len,
			 ev->mask & (IN_MODIFY | IN_CLOSE_WRITE) ? ITEM_CONTENT : 0, NULL);
}

/* Rewritten in place, and closed: nothing is to be gathered. A new name may be about to
 * take the place of another. */
static bool is_save(const struct sync *sy, const struct watch_event *ev)
{
	return (ev->mask & IN_CLOSE_WRITE) && ev->len && ev->dir &&
	       sy->dirty.total <= SAVES_AT_ONCE && shadow_attached(&sy->shadow, ev->dir) &&
	       shadow_find(&sy->shadow, ev->dir, ev->name, ev->len);
}

static void on_events(void *userdata)
{
	struct sync *sy = userdata;
	bool pump_now = false;
	struct watch_event ev;

	while (watch_next(sy->watch, &ev)) {
		if (ev.wd < 0) {
			sy->status.overflows++;
			sy->dirty.marks++;
			status_changed(sy);
			sync_rescan(sy, NULL);
		} else if (barrier_is_cookie(sy, ev.wd)) {
			pump_now = true;
			if (ev.mask & IN_IGNORED)
				barrier_lost_watch(sy);
			else if (ev.mask & IN_CREATE)
				barrier_cookie(sy, ev.name);
		} else if (sy->dirty.total >= DIRTY_MAX) {
			/* Too many to remember each: everything is looked at later. */
			sy->rescan_again = true;
			sy->dirty.marks++;
			if ((ev.mask & IN_IGNORED) && ev.dir &&
			    shadow_attached(&sy->shadow, ev.dir))
				shadow_dir(&sy->shadow, ev.dir)->wd = 0;
		} else {
			on_event(sy, &ev);
			pump_now |= is_save(sy, &ev);
		}
	}
	sync_pump_soon(sy, pump_now ? 0 : GATHER_MS);
}

void sync_start_watching(struct sync *sy)
{
	int r;

	watch_free(sy->watch);
	sy->watch = NULL;
	r = watch_new(sy->loop, on_events, sy, &sy->watch);
	sy->barriers.cookie_wd = 0;
	status_clear_all(sy, "instance_limit");
	status_clear_all(sy, "polling");
	if (r == -EMFILE)
		status_set(sy, "instance_limit", NULL, 0,
			   "no inotify instance left: all is polled");
	else if (r < 0)
		status_set(sy, "polling", NULL, 0, "no events here: all is polled");
	else
		watch_set_limit(sy->watch, sy->watch_limit);
}

/* ---- scans ---- */

void sync_rescan(struct sync *sy, const struct item *from)
{
	struct item *it;

	sy->rescan_again = false;
	if (!sy->filled)
		return;
	if (!sy->scanning) {
		sy->scanning = true;
		if (!sy->first_scan)
			sy->status.rescans++;
	}
	it = dirty_mark(&sy->dirty, ITEM_LIST, SHADOW_ROOT, "", 0, ITEM_SCAN | ITEM_DEEP, from);
	(void)dirty_mark(&sy->dirty, ITEM_NAME, 0, "", 0, ITEM_SCAN, from);
	if (it)
		dirty_give(&sy->dirty, it, DIRTY_SCAN_BIT);
	status_changed(sy);
}

void sync_scan_is_over(struct sync *sy)
{
	sy->scanning = sy->first_scan = false;
	if (sy->watch && !sy->lists_in_flight)
		watch_recount(sy->watch);
	status_changed(sy);
	/* What a large scan needed for a while. */
	(void)malloc_trim(0);
}

static bool lists_are_due(const struct sync *sy)
{
	return sy->dirty.counts[ITEM_LISTABLE] || sy->lists_in_flight;
}

void sync_poll_some(struct sync *sy, uint64_t now_ms)
{
	if (!sy->n_polled || now_ms < sy->poll_due_ms || lists_are_due(sy))
		return;
	for (uint32_t i = 0; i < sy->n_polled; i++)
		(void)dirty_mark(&sy->dirty, ITEM_LIST, sy->polled[i], "", 0, ITEM_SCAN, NULL);
	/* A directory costs some 10 to 50 µs. */
	sy->poll_due_ms = now_ms + MAX((uint64_t)POLL_MIN_MS, (uint64_t)sy->n_polled * 2);
}

void sync_sweep_some(struct sync *sy)
{
	struct shadow *sh = &sy->shadow;
	uint32_t steps = sh->nodes.next;

	if (!sy->sweep_period_s || sy->scanning || lists_are_due(sy))
		return;
	sy->sweep_credit += (double)(sh->n_dirs + 1) / sy->sweep_period_s;
	for (; sy->sweep_credit >= 1 && steps; steps--) {
		uint32_t n = sy->sweep_at++;

		if (sy->sweep_at >= sh->nodes.next)
			sy->sweep_at = SHADOW_ROOT;
		if (n < SHADOW_ROOT || !shadow_node(sh, n)->dir || !shadow_attached(sh, n) ||
		    (shadow_node(sh, n)->flags &
		     (SHADOW_BOUNDARY | SHADOW_MOUNTED | SHADOW_IGNORED)) ||
		    (n != SHADOW_ROOT && !shadow_node(sh, n)->entries))
			continue;
		(void)dirty_mark(&sy->dirty, ITEM_LIST, n, "", 0, ITEM_SCAN | ITEM_SWEEP, NULL);
		sy->sweep_credit -= 1;
	}
}
