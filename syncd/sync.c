#include "syncd/sync.h"

#include <inotifytools/inotifytools.h>
#include <malloc.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/clock.h"
#include "syncd/apply.h"
#include "syncd/fill.h"
#include "syncd/plan.h"
#include "syncd/state.h"
#include "syncd/tree.h"
#include "syncd/work.h"

enum {
	GATHER_MS = 2,	    /* events of one action come together */
	ABSENT_MS = 20,	    /* the other half of a move may be on its way */
	ROUND_MAX_MS = 200, /* what waits for the end of a round waits no longer */
	SLOW_MS = 1000,
	POLL_MIN_MS = 1000,
	WANTED_MAX = 4096, /* captures waiting before listing goes on */
	SWEEP_PERIOD_S = 300,
};

/* Of TREE_GETs: apply has its own range of request ids. */
#define REQUEST_FIRST (1ull << 40)

/* ---- what is not part of the tree ---- */

/* st NULL = type not known: taken for a directory. */
bool sync_is_ignored(const struct sync *sy, uint32_t dir, const char *name, size_t len,
		     const struct stamp *st)
{
	cleanup_free char *path = NULL;
	bool is_dir = !st || S_ISDIR(st->mode);
	char text[256];

	if (st && is_dir && st->inode == sy->root.dir_st.inode &&
	    st->device == sy->root.dir_st.device)
		return true;
	if (apply_is_temp(name, len))
		return true;
	if (!sy->ignore.n)
		return false;
	memcpy(text, name, len);
	text[len] = '\0';
	path = shadow_path(&sy->shadow, dir, name, len);
	return path && ignore_match(&sy->ignore, text, path, is_dir);
}

static void ignore_set(struct sync *sy, const Limbwire__Welcome *w)
{
	ignore_done(&sy->ignore);
	for (size_t i = 0; i < w->n_ignore; i++)
		(void)ignore_add(&sy->ignore, w->ignore[i].data, w->ignore[i].len);
}

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
}

void sync_dir_came(uint32_t n, void *userdata)
{
	struct sync *sy = userdata;

	(void)dirty_mark(&sy->dirty, ITEM_LIST, n, "", 0, ITEM_SCAN | ITEM_DEEP, NULL);
}

void sync_scan_dir(const struct sync *sy, uint32_t dir, struct scan_dir *ret)
{
	const struct shadow_node *n = shadow_node(&sy->shadow, dir);
	bool known = !(n->flags & SHADOW_FOREIGN);

	*ret = (struct scan_dir){
		.dir = dir,
		.path = shadow_path(&sy->shadow, dir, "", 0),
		.inode = known ? n->inode : 0,
		.generation = known ? n->generation : 0,
		.device = sy->root.st.device,
		.mount = sy->root.st.mount,
	};
	if (dir == SHADOW_ROOT) {
		ret->inode = sy->root.st.inode;
		ret->generation = 0;
	}
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
	if (sync_is_ignored(sy, dir, ev->name, ev->len, NULL))
		return;
	sy->dirty.marks++;
	(void)dirty_mark(&sy->dirty, ITEM_NAME, dir, ev->name, ev->len,
			 ev->mask & (IN_MODIFY | IN_CLOSE_WRITE) ? ITEM_CONTENT : 0, NULL);
	if (ev->mask & (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO))
		plan_mark_own(sy, dir, NULL);
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
			sync_rescan(sy);
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
		}
	}
	sync_pump_soon(sy, pump_now ? 0 : GATHER_MS);
}

/* ---- scans ---- */

void sync_rescan(struct sync *sy)
{
	struct item *it;

	sy->rescan_again = false;
	if (!sy->filled)
		return;
	if (!sy->scanning) {
		sy->scanning = true;
		sy->status.ignored_names = sy->status.ignored_bytes = 0;
		if (!sy->first_scan)
			sy->status.rescans++;
	}
	it = dirty_mark(&sy->dirty, ITEM_LIST, SHADOW_ROOT, "", 0, ITEM_SCAN | ITEM_DEEP, NULL);
	(void)dirty_mark(&sy->dirty, ITEM_NAME, 0, "", 0, ITEM_SCAN, NULL);
	if (it)
		dirty_give(&sy->dirty, it, DIRTY_SCAN_BIT);
	status_changed(sy);
}

static void scan_is_over(struct sync *sy)
{
	sy->scanning = sy->first_scan = false;
	if (sy->watch && !sy->lists_in_flight)
		watch_recount(sy->watch);
	status_changed(sy);
	/* What a large scan needed for a while. */
	(void)malloc_trim(0);
}

static void poll_some(struct sync *sy, uint64_t now_ms)
{
	if (!sy->n_polled || now_ms < sy->poll_due_ms || sy->dirty.lists)
		return;
	for (uint32_t i = 0; i < sy->n_polled; i++)
		(void)dirty_mark(&sy->dirty, ITEM_LIST, sy->polled[i], "", 0, ITEM_SCAN, NULL);
	/* A directory costs some 10 to 50 µs. */
	sy->poll_due_ms = now_ms + MAX((uint64_t)POLL_MIN_MS, (uint64_t)sy->n_polled * 2);
}

static void sweep_some(struct sync *sy)
{
	struct shadow *sh = &sy->shadow;
	uint32_t steps = sh->nodes.next;

	if (!sy->sweep_period_s || sy->scanning || sy->dirty.lists)
		return;
	sy->sweep_credit += (double)(sh->n_dirs + 1) / sy->sweep_period_s;
	for (; sy->sweep_credit >= 1 && steps; steps--) {
		uint32_t n = sy->sweep_at++;

		if (sy->sweep_at >= sh->nodes.next)
			sy->sweep_at = SHADOW_ROOT;
		if (n < SHADOW_ROOT || !shadow_node(sh, n)->dir || !shadow_attached(sh, n) ||
		    (shadow_node(sh, n)->flags & (SHADOW_BOUNDARY | SHADOW_MOUNTED)) ||
		    (n != SHADOW_ROOT && !shadow_node(sh, n)->entries))
			continue;
		(void)dirty_mark(&sy->dirty, ITEM_LIST, n, "", 0, ITEM_SCAN | ITEM_SWEEP, NULL);
		sy->sweep_credit -= 1;
	}
}

/* ---- the root ---- */

void sync_halt(struct sync *sy, const char *code, const char *detail)
{
	if (sy->halted && status_has(sy, code))
		return;
	sy->halted = true;
	status_set(sy, code, NULL, 0, detail);
	barriers_fail(sy, EIO);
	streams_detached(sy);
}

static void unhalt(struct sync *sy)
{
	if (!sy->halted)
		return;
	sy->halted = false;
	status_clear_all(sy, "root_missing");
	status_clear_all(sy, "root_replaced");
	status_clear_all(sy, "root_emptied");
}

static bool mark_ok(const struct sync *sy)
{
	uint8_t mark[ROOT_MARK_BYTES];

	if (!sy->has_mark)
		return true;
	return root_get_mark(&sy->root, mark) == 0 && memcmp(mark, sy->mark, sizeof(mark)) == 0;
}

bool sync_root_ok(struct sync *sy)
{
	int r = root_check(&sy->root);

	if (r == -ENOENT)
		sync_halt(sy, "root_missing", "the root directory is gone");
	else if (r == -ESTALE)
		sync_halt(sy, "root_replaced", "another directory stands in the root's place");
	else if (r < 0)
		sync_halt(sy, "root_missing", strerror(-r));
	else if (!mark_ok(sy))
		sync_halt(sy, "root_replaced", "the root does not carry this incarnation's mark");
	return !sy->halted;
}

/* ---- the pump: hands out work as long as the line takes it ---- */

bool sync_may_send(const struct sync *sy)
{
	return sy->phase == PHASE_RUNNING && sy->attached && !sy->halted && !sy->restart &&
	       !sy->closing;
}

static bool line_is_full(const struct sync *sy)
{
	return session_queued(sy->session, SESSION_BULK) >= SESSION_BULK_HIGH;
}

static bool hand_out_one(struct sync *sy)
{
	const size_t *counts = sy->dirty.counts;
	bool more = counts[ITEM_READY] || counts[ITEM_LISTABLE];

	if (counts[ITEM_WANTED] >= WORK_CAPTURE_MAX || (counts[ITEM_WANTED] && !more))
		if (work_capture(sy))
			return true;
	if (counts[ITEM_READY] && work_look(sy))
		return true;
	if (counts[ITEM_LISTABLE] && counts[ITEM_WANTED] < WANTED_MAX && work_list(sy))
		return true;
	return counts[ITEM_WANTED] && work_capture(sy);
}

/* Everything that could still explain an absent or a replaced name has been looked at. */
static bool round_is_over(const struct sync *sy, uint64_t now_ms)
{
	const size_t *counts = sy->dirty.counts;
	struct item *late = dirty_first(&sy->dirty, ITEM_LATE);
	struct item *absent = dirty_first(&sy->dirty, ITEM_ABSENT);
	bool busy = counts[ITEM_READY] || counts[ITEM_LOOKING] || counts[ITEM_WANTED] ||
		    counts[ITEM_CAPTURING];

	if (sy->scanning)
		return !busy && !sy->dirty.lists;
	if (!busy)
		return true;
	return (late && now_ms - late->since_ms > ROUND_MAX_MS) ||
	       (absent && now_ms - absent->since_ms > ROUND_MAX_MS);
}

static void end_round(struct sync *sy, uint64_t now_ms)
{
	struct item *absent;

	if (!round_is_over(sy, now_ms))
		return;
	if (sy->dirty.counts[ITEM_LATE]) {
		plan_late(sy);
		return;
	}
	absent = dirty_first(&sy->dirty, ITEM_ABSENT);
	if (!absent)
		return;
	if (now_ms - absent->since_ms < ABSENT_MS && !(absent->bits & ~(1u << DIRTY_SCAN_BIT))) {
		sync_pump_soon(sy, ABSENT_MS - (now_ms - absent->since_ms));
		return;
	}
	if (sync_root_ok(sy))
		(void)work_verify(sy);
}

static void begin(struct sync *sy);

void sync_pump(struct sync *sy)
{
	uint64_t now_ms = clock_mono_ms(), next_ms;

	if (sy->restart && sy->in_flight == 0)
		begin(sy);
	if (!sync_may_send(sy))
		return;
	if (sy->rescan_again && sy->dirty.total < DIRTY_MAX / 2)
		sync_rescan(sy);
	sy->emit.from = NULL;
	next_ms = dirty_ripen(&sy->dirty, now_ms);
	for (int i = 0; i < 2; i++) {
		while (sy->in_flight < WORK_IN_FLIGHT_MAX && !line_is_full(sy) && hand_out_one(sy))
			;
		if (i == 0)
			end_round(sy, now_ms);
	}
	streams_pump(sy);
	/* Whatever comes next has to be read first: let go of what is there. */
	if (!sy->dirty.counts[ITEM_CAPTURING] && !sy->dirty.counts[ITEM_WANTED])
		emit_flush(sy);
	if (sy->scanning && sy->dirty.waiting[DIRTY_SCAN_BIT] == 0)
		scan_is_over(sy);
	barriers_check(sy);
	if (next_ms)
		sync_pump_soon(sy, next_ms > now_ms ? next_ms - now_ms : 0);
}

static void on_pump(uv_timer_t *t)
{
	struct sync *sy = t->data;

	sy->pump_due_ms = 0;
	sync_pump(sy);
}

void sync_pump_soon(struct sync *sy, uint64_t delay_ms)
{
	uint64_t due_ms = clock_mono_ms() + delay_ms;

	if (sy->closing || (sy->pump_due_ms && sy->pump_due_ms <= due_ms))
		return;
	sy->pump_due_ms = due_ms;
	(void)uv_timer_start(&sy->pump_timer, on_pump, delay_ms, 0);
}

static void on_slow(uv_timer_t *t)
{
	struct sync *sy = t->data;

	if (!sy->attached || sy->phase == PHASE_IDLE || sy->phase == PHASE_RESTORE || sy->restart)
		return;
	if (sy->halted) {
		if (status_has(sy, "root_missing") ||
		    (status_has(sy, "root_replaced") && root_check(&sy->root) == 0 && mark_ok(sy)))
			begin(sy);
		return;
	}
	if (!sync_root_ok(sy) || sy->phase != PHASE_RUNNING)
		return;
	poll_some(sy, clock_mono_ms());
	sweep_some(sy);
	sync_pump(sy);
}

/* ---- attach ---- */

static void start_watching(struct sync *sy)
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

/* No work may be in flight: items are freed. */
static int reset_shadow(struct sync *sy)
{
	int r;

	barriers_fail(sy, EIO);
	emit_drop(&sy->emit);
	dirty_done_all(&sy->dirty);
	undo_done(&sy->undo, &sy->shadow);
	shadow_done(&sy->shadow);
	sy->n_polled = 0;
	sy->filled = sy->scanning = false;
	sy->rescan_again = false;
	status_clear_all(sy, "watch_limit");
	status_clear_all(sy, "mount_changed");
	status_clear_all(sy, "unreadable");
	r = shadow_init(&sy->shadow);
	if (r == 0)
		start_watching(sy);
	return r;
}

static void ask_tree(struct sync *sy)
{
	Limbwire__TreeGet m = LIMBWIRE__TREE_GET__INIT;

	m.request = sy->tree_request = MAX(sy->tree_request + 1, REQUEST_FIRST);
	sy->phase = PHASE_FILLING;
	fill_begin(sy);
	(void)session_send(sy->session, SESSION_CONTROL, WIRE_TREE_GET, &m.base, NULL, 0);
}

static int open_root(struct sync *sy)
{
	int r = root_check(&sy->root);

	if (r == 0)
		return 0;
	r = root_open(&sy->root);
	if (r < 0) {
		sync_halt(sy, "root_missing", strerror(-r));
		return r;
	}
	/* What we knew was another directory's. */
	sy->filled = false;
	return 0;
}

static int prepare_restore(struct sync *sy);

static void begin(struct sync *sy)
{
	if (sy->in_flight) {
		sy->restart = true;
		return;
	}
	sy->restart = false;
	if (sy->phase == PHASE_RESTORE) {
		(void)prepare_restore(sy);
		return;
	}
	if (open_root(sy) < 0)
		return;
	root_measure(&sy->root);
	if (sy->set_mark && root_set_mark(&sy->root, sy->mark) == 0)
		sy->set_mark = false;
	unhalt(sy);
	if (!sync_root_ok(sy))
		return;
	if (sy->filled) {
		sy->phase = PHASE_RUNNING;
		sync_pump_soon(sy, 0);
		return;
	}
	if (reset_shadow(sy) == 0)
		ask_tree(sy);
}

static void run(struct sync *sy)
{
	sy->filled = true;
	sy->phase = PHASE_RUNNING;
	sy->first_scan = true;
	sy->status.scanned_files = sy->status.scanned_bytes = 0;
	sync_rescan(sy);
	sync_pump_soon(sy, 0);
}

static void touched(uint32_t dir, const char *name, size_t len, void *userdata)
{
	struct sync *sy = userdata;

	(void)dirty_mark(&sy->dirty, ITEM_NAME, dir, name, len, ITEM_CONTENT, NULL);
}

/* The shadow as the brain has it: what it lacks is undone, and found again. */
static void go_back(struct sync *sy, uint64_t durable)
{
	struct undo_fns fns = {
		.touched = touched, .left = sync_dir_left, .came = sync_dir_came, .userdata = sy};

	emit_drop(&sy->emit);
	if (sy->filled &&
	    (durable > sy->emit.made || undo_rollback(&sy->undo, &sy->shadow, durable, &fns) < 0))
		sy->filled = false;
	sy->emit.made = sy->emit.durable = durable;
}

int sync_welcome(struct sync *sy, const Limbwire__Welcome *w)
{
	if (sy->attached)
		sync_detached(sy);
	if (w->incarnation != sy->incarnation)
		sy->filled = false;
	sy->incarnation = w->incarnation;
	sy->sweep_period_s = w->sweep_period_s ? w->sweep_period_s : SWEEP_PERIOD_S;
	sy->watch_limit = w->watch_limit;
	if (sy->watch)
		watch_set_limit(sy->watch, w->watch_limit);
	sy->has_mark = w->mark.len == ROOT_MARK_BYTES;
	if (sy->has_mark)
		memcpy(sy->mark, w->mark.data, ROOT_MARK_BYTES);
	sy->set_mark = sy->has_mark && w->set_mark;
	/* Ids that we have given out in this range are not given out again. */
	if (sy->next_id < w->node_first || sy->next_id > w->node_end)
		sy->next_id = w->node_first;
	sy->end_id = w->node_end;
	ignore_set(sy, w);
	go_back(sy, w->durable_number);
	sy->attached = true;
	unhalt(sy);
	status_changed(sy);
	if (w->mode == LIMBWIRE__WELCOME__MODE__MODE_HOLD) {
		sy->phase = PHASE_IDLE;
	} else if (w->mode == LIMBWIRE__WELCOME__MODE__MODE_RESTORE) {
		sy->phase = PHASE_RESTORE;
		sy->filled = false;
		sy->restart = sy->in_flight > 0;
		if (!sy->restart)
			return prepare_restore(sy);
	} else {
		sy->phase = PHASE_FILLING;
		begin(sy);
	}
	return 0;
}

void sync_detached(struct sync *sy)
{
	if (!sy->attached)
		return;
	sy->attached = false;
	if (sy->phase != PHASE_RUNNING)
		sy->filled = false;
	sy->phase = PHASE_IDLE;
	sy->restart = false;
	streams_detached(sy);
	barriers_fail(sy, ENOTCONN);
	tree_detached(sy);
}

void sync_on_durable(struct sync *sy, uint64_t number)
{
	if (number > sy->emit.made || number < sy->emit.durable)
		return;
	sy->emit.durable = number;
	undo_commit(&sy->undo, &sy->shadow, number);
	status_changed(sy);
}

void sync_on_tree_part(struct sync *sy, const Limbwire__TreePart *part)
{
	_cleanup_(buf_done) struct buf scratch = BUF_INIT(NODE_XATTRS_MAX);
	int r = 0;

	if (sy->phase != PHASE_FILLING || sy->restart || part->request != sy->tree_request)
		return;
	for (size_t i = 0; r == 0 && i < part->n_entries; i++)
		r = fill_entry(sy, part->entries[i], &scratch);
	if (r < 0) {
		/* Without a shadow nothing can be compared: better nothing than half. */
		sync_halt(sy, "lies", "the brain's tree cannot be understood");
		return;
	}
	if (part->last) {
		fill_end(sy);
		run(sy);
	}
}

void sync_drained(struct sync *sy)
{
	tree_drained(sy);
	sync_pump(sy);
}

int sync_hello(struct sync *sy, Limbwire__Hello *hello)
{
	int r = root_check(&sy->root);

	/* A root that was replaced is looked at as it is now; what it was is halted by its mark. */
	if (r < 0 && sy->in_flight == 0 && root_open(&sy->root) == 0) {
		sy->filled = false;
		r = 0;
	}
	hello->shadow_incarnation = sy->filled ? sy->incarnation : 0;
	hello->shadow_number = sy->filled ? sy->emit.made : 0;
	hello->self_uid = sy->root.uid;
	hello->self_gid = sy->root.gid;
	hello->root_missing = r < 0;
	if (r < 0)
		return 0;
	root_measure(&sy->root);
	hello->unheld = sy->root.unheld;
	hello->root_empty = root_is_empty(&sy->root);
	if (root_get_mark(&sy->root, sy->hello_mark) == 0) {
		hello->mark.data = sy->hello_mark;
		hello->mark.len = ROOT_MARK_BYTES;
	}
	return 0;
}

int sync_root_fd(const struct sync *sy)
{
	return sy->root.fd >= 0 ? sy->root.fd : -ENOENT;
}

/* ---- for apply ---- */

static int prepare_restore(struct sync *sy)
{
	int r;

	if (open_root(sy) < 0)
		return 0;
	root_measure(&sy->root);
	if (sy->set_mark && root_set_mark(&sy->root, sy->mark) == 0)
		sy->set_mark = false;
	r = reset_shadow(sy);
	sy->phase = PHASE_RESTORE;
	return r;
}

static void stamp_from_stat(const struct sync *sy, const struct stat *s, struct stamp *ret)
{
	*ret = (struct stamp){
		.inode = s->st_ino,
		.size = (uint64_t)s->st_size,
		.device = s->st_dev,
		.mount = sy->root.st.mount,
		.blocks_bytes = (uint64_t)s->st_blocks * 512,
		.mtime_ns = clock_from_timespec(s->st_mtim),
		.ctime_ns = clock_from_timespec(s->st_ctim),
		.uid = s->st_uid,
		.gid = s->st_gid,
		.nlink = (uint32_t)s->st_nlink,
		.rdev_major = major(s->st_rdev),
		.rdev_minor = minor(s->st_rdev),
		.mode = (uint16_t)s->st_mode,
	};
}

int sync_adopt(struct sync *sy, uint64_t parent, const char *name, size_t len, uint64_t node,
	       const struct node *n, const struct stat *st)
{
	struct stamp stamp;

	stamp_from_stat(sy, st, &stamp);
	return fill_adopt(sy, parent, name, len, node, n, &stamp);
}

int sync_start(struct sync *sy)
{
	if (sy->phase != PHASE_RESTORE)
		return -EINVAL;
	if (!sync_root_ok(sy))
		return -EIO;
	run(sy);
	return 0;
}

void sync_touch(struct sync *sy, const char *path, size_t len)
{
	uint32_t dir = SHADOW_ROOT, e;
	const char *end = path + len;

	if (!sy->filled)
		return;
	for (;;) {
		const char *slash = memchr(path, '/', (size_t)(end - path));
		size_t n = (size_t)((slash ? slash : end) - path);

		if (n == 0 || n > NODE_NAME_MAX)
			break;
		e = shadow_find(&sy->shadow, dir, path, n);
		if (!slash || !e || !shadow_dir(&sy->shadow, shadow_entry(&sy->shadow, e)->node)) {
			(void)dirty_mark(&sy->dirty, ITEM_NAME, dir, path, n, ITEM_CONTENT, NULL);
			break;
		}
		dir = shadow_entry(&sy->shadow, e)->node;
		path = slash + 1;
	}
	plan_mark_own(sy, dir, NULL);
	sync_pump_soon(sy, 0);
}

/* ---- accept ---- */

static void answer_accept(struct sync *sy, const Limbwire__Accept *a, int error, const char *detail)
{
	Limbwire__Done m = LIMBWIRE__DONE__INIT;

	emit_flush(sy);
	m.request = a->request;
	m.error = error;
	m.detail = (char *)detail;
	m.number = sy->emit.made;
	(void)session_send(sy->session, SESSION_CONTROL, WIRE_ACCEPTED, &m.base, NULL, 0);
	sync_pump_soon(sy, 0);
}

/* The entry at a path; 0 = the root, or nothing there. */
static uint32_t entry_at(const struct sync *sy, const char *path, size_t len)
{
	uint32_t dir = SHADOW_ROOT, e = 0;

	for (const char *end = path + len; path < end;) {
		const char *slash = memchr(path, '/', (size_t)(end - path));
		size_t n = (size_t)((slash ? slash : end) - path);

		e = n <= NODE_NAME_MAX ? shadow_find(&sy->shadow, dir, path, n) : 0;
		if (!e || !slash)
			return e;
		dir = shadow_entry(&sy->shadow, e)->node;
		if (!shadow_dir(&sy->shadow, dir))
			return 0;
		path = slash + 1;
	}
	return e;
}

static void accept_root(struct sync *sy)
{
	sy->accepted = true;
	if (root_check(&sy->root) == 0 && mark_ok(sy)) {
		unhalt(sy);
		if (sy->filled)
			sync_rescan(sy);
		return;
	}
	unhalt(sy);
	sy->filled = false;
	sy->set_mark = sy->has_mark;
	sy->phase = PHASE_FILLING;
	begin(sy);
}

void sync_on_accept(struct sync *sy, const Limbwire__Accept *a)
{
	const char *path = (const char *)a->path.data;
	size_t len = a->path.len;
	uint32_t e, n, parent;
	char name[256];
	uint8_t name_len;

	if (len == 0 || (len == 1 && path[0] == '.')) {
		accept_root(sy);
		answer_accept(sy, a, 0, "");
		return;
	}
	e = entry_at(sy, path, len);
	n = e ? shadow_entry(&sy->shadow, e)->node : 0;
	if (!e || !(shadow_node(&sy->shadow, n)->flags & SHADOW_MOUNTED) || !sync_may_send(sy)) {
		answer_accept(sy, a, ENOENT, "nothing to accept there");
		return;
	}
	parent = shadow_entry(&sy->shadow, e)->parent;
	memcpy(name, shadow_name(&sy->shadow, e, &name_len), 255);
	plan_removing(sy, shadow_count(&sy->shadow, e));
	sy->emit.from = NULL;
	(void)emit_unlink(sy, e, LIMB__EVIDENCE__EVIDENCE_ACCEPTED);
	{
		cleanup_free char *text = strndup(path, len);

		status_clear(sy, "mount_changed", text);
	}
	(void)dirty_mark(&sy->dirty, ITEM_NAME, parent, name, name_len, 0, NULL);
	answer_accept(sy, a, 0, "");
}

/* ---- life ---- */

int sync_new(uv_loop_t *loop, struct session *session, const char *root, int dir_fd,
	     struct sync **ret)
{
	struct sync *sy = calloc(1, sizeof(*sy));
	int r;

	if (!sy)
		return -ENOMEM;
	sy->loop = loop;
	sy->session = session;
	sy->sweep_period_s = SWEEP_PERIOD_S;
	r = root_init(&sy->root, root, dir_fd);
	if (r == 0)
		r = shadow_init(&sy->shadow);
	if (r == 0)
		r = dirty_init(&sy->dirty, &sy->shadow);
	if (r == 0)
		r = emit_init(&sy->emit);
	if (r < 0) {
		emit_done(&sy->emit);
		dirty_free(&sy->dirty);
		shadow_done(&sy->shadow);
		root_done(&sy->root);
		free(sy);
		return r;
	}
	(void)uv_timer_init(loop, &sy->pump_timer);
	(void)uv_timer_init(loop, &sy->slow_timer);
	sy->pump_timer.data = sy->slow_timer.data = sy;
	(void)barriers_init(sy);
	status_init(sy);
	(void)uv_timer_start(&sy->slow_timer, on_slow, SLOW_MS, SLOW_MS);
	*ret = sy;
	return 0;
}

static void on_closed(uv_handle_t *h)
{
	struct sync *sy = h->data;

	dirty_free(&sy->dirty);
	undo_done(&sy->undo, &sy->shadow);
	shadow_done(&sy->shadow);
	emit_done(&sy->emit);
	status_done(sy);
	root_done(&sy->root);
	ignore_done(&sy->ignore);
	free(sy->polled);
	free(sy);
}

/* Runs the loop until workers have come back; handles are closed by the loop. */
void sync_free(struct sync *sy)
{
	if (!sy)
		return;
	sync_detached(sy);
	sy->closing = true;
	barriers_done(sy);
	while (sy->in_flight)
		(void)uv_run(sy->loop, UV_RUN_ONCE);
	streams_detached(sy);
	tree_free_all(sy);
	watch_free(sy->watch);
	sy->watch = NULL;
	uv_close((uv_handle_t *)&sy->pump_timer, NULL);
	uv_close((uv_handle_t *)&sy->status.timer, NULL);
	uv_close((uv_handle_t *)&sy->barriers.timer, NULL);
	uv_close((uv_handle_t *)&sy->slow_timer, on_closed);
}
