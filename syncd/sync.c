#include "syncd/sync.h"

#include <sys/stat.h>

#include "base/clock.h"
#include "syncd/apply.h"
#include "syncd/plan.h"
#include "syncd/saved.h"
#include "syncd/state.h"
#include "syncd/tree.h"
#include "syncd/work.h"

enum {
	ABSENT_MS = 20, /* the other half of a move may be on its way */
	LOST_MS = 5,
	SEEN_DEEP = 512,
	ROUND_MAX_MS = 200, /* what waits for the end of a round waits no longer */
	TOUCHED_MS = 3000,
	SLOW_MS = 1000,
	WANTED_MAX = 4096, /* captures waiting before listing goes on */
};

/* ---- what is not part of the tree ---- */

/* st NULL = type not known: only what is left out whatever it is. */
bool sync_is_ignored(const struct sync *sy, uint32_t dir, const char *name, size_t len,
		     const struct stamp *st)
{
	cleanup_free char *path = NULL;

	if (st && S_ISDIR(st->mode) && st->inode == sy->root.dir_st.inode &&
	    st->device == sy->root.dir_st.device)
		return true;
	if (apply_is_temp(name, len))
		return true;
	if (dir && (shadow_node(&sy->shadow, dir)->flags & SHADOW_IGNORED))
		return true;
	if (!sy->rules.said.n_rules || !dir)
		return false;
	path = shadow_path(&sy->shadow, dir, name, len);
	if (!path)
		return false;
	if (st)
		return ignore_match(&sy->rules.said, path, S_ISDIR(st->mode), NULL);
	return ignore_match(&sy->rules.said, path, false, NULL) &&
	       ignore_match(&sy->rules.said, path, true, NULL);
}

/* Where a directory was seen, which has that name only when the round is over. A hint, as all
 * paths are. */
static int seen_path(const struct sync *sy, uint32_t dir, unsigned deep, struct buf *out)
{
	const struct item *it = plan_late_of(sy, dir);
	uint32_t e = shadow_node(&sy->shadow, dir)->entries, above;
	const char *name;
	uint8_t len;
	int r;

	if (dir == SHADOW_ROOT)
		return 0;
	if (deep == SEEN_DEEP || (!it && !e))
		return -ENOENT;
	name = it ? it->name : shadow_name(&sy->shadow, e, &len);
	above = it ? it->dir : shadow_entry(&sy->shadow, e)->parent;
	r = seen_path(sy, above, deep + 1, out);
	if (r == 0 && buf_len(out))
		r = buf_add_u8(out, '/');
	return r < 0 ? r : buf_add(out, name, it ? it->len : len);
}

static char *dir_path(const struct sync *sy, uint32_t dir)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	char *path = NULL;

	if (sy->dirty.late_dirs && seen_path(sy, dir, 0, &b) == 0 && buf_to_str(&b, &path) == 0)
		return path;
	return shadow_path(&sy->shadow, dir, "", 0);
}

void sync_scan_dir(const struct sync *sy, uint32_t dir, struct scan_dir *ret)
{
	const struct shadow_node *n = shadow_node(&sy->shadow, dir);
	bool known = !(n->flags & SHADOW_FOREIGN);

	*ret = (struct scan_dir){
		.dir = dir,
		.path = dir_path(sy, dir),
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

/* ---- the pump: hands out work as long as the line takes it ---- */

bool sync_may_send(const struct sync *sy)
{
	return sy->phase == PHASE_RUNNING && sy->attached && !sy->halted && !sy->restart &&
	       !sy->closing;
}

bool sync_may_capture(struct sync *sy)
{
	uint64_t wait_ms;

	if (sy->full)
		return false;
	pace_took(&sy->pace, sy->emit.bytes - sy->paced_bytes);
	sy->paced_bytes = sy->emit.bytes;
	wait_ms = pace_wait_ms(&sy->pace, clock_mono_ms());
	if (wait_ms)
		sync_pump_soon(sy, wait_ms);
	return wait_ms == 0;
}

void sync_on_settings(struct sync *sy, const Limbwire__Settings *m)
{
	sy->sweep_period_s = m->sweep_period_s ? m->sweep_period_s : sy->welcome_sweep_s;
	sy->sweep_credit = 0;
	pace_set(&sy->pace, m->rate_bytes, clock_mono_ms());
	sy->full = m->full;
	if (sy->full)
		barriers_full(sy);
	status_changed(sy);
	sync_pump(sy);
}

static bool line_is_full(const struct sync *sy)
{
	return session_queued(sy->session, SESSION_BULK) >= SESSION_BULK_HIGH;
}

static bool hand_out_one(struct sync *sy)
{
	const size_t *counts = sy->dirty.counts;
	bool more = counts[ITEM_READY] || counts[ITEM_LISTABLE];

	if (!sync_may_capture(sy))
		return false;
	if (counts[ITEM_WANTED] >= WORK_CAPTURE_MAX || (counts[ITEM_WANTED] && !more))
		if (work_capture(sy))
			return true;
	if (counts[ITEM_READY] && work_look(sy))
		return true;
	if (counts[ITEM_LISTABLE] && counts[ITEM_WANTED] < WANTED_MAX && work_list(sy))
		return true;
	return counts[ITEM_WANTED] && work_capture(sy);
}

/* Changes of the brain's come in, which move things faster than they are looked at. A batch of them
 * ends, and a barrier waits behind it. */
static bool is_touched(const struct sync *sy, uint64_t now_ms)
{
	return now_ms - sy->touched_ms <= TOUCHED_MS;
}

/* Everything that could still explain an absent or a replaced name has been looked at. */
static bool round_is_over(const struct sync *sy, uint64_t now_ms)
{
	const size_t *counts = sy->dirty.counts;
	struct item *late = dirty_first(&sy->dirty, ITEM_LATE);
	struct item *absent = dirty_first(&sy->dirty, ITEM_ABSENT);
	bool busy = counts[ITEM_READY] || counts[ITEM_LOOKING] || counts[ITEM_WANTED] ||
		    counts[ITEM_CAPTURING];
	uint64_t since_ms = UINT64_MAX;

	if (sy->scanning)
		return !busy && !counts[ITEM_LISTABLE] && !sy->lists_in_flight;
	if (!busy)
		return true;
	if (late)
		since_ms = late->since_ms;
	if (absent)
		since_ms = MIN(since_ms, absent->since_ms);
	return since_ms != UINT64_MAX && !is_touched(sy, now_ms) &&
	       now_ms - since_ms > ROUND_MAX_MS;
}

/* Its own name, or one above, waits for the end of this round, too, and nobody has seen it
 * elsewhere. */
static bool is_beneath_unexplained(const struct sync *sy, uint32_t dir)
{
	for (unsigned i = 0; dir != SHADOW_ROOT; i++) {
		uint32_t e = shadow_node(&sy->shadow, dir)->entries;
		const struct item *it = plan_late_of(sy, dir);
		const char *name;
		uint8_t len;

		if (!e || i == SEEN_DEEP)
			return true;
		if (it) {
			dir = it->dir;
			continue;
		}
		name = shadow_name(&sy->shadow, e, &len);
		dir = shadow_entry(&sy->shadow, e)->parent;
		it = dirty_find(&sy->dirty, ITEM_NAME, dir, name, len);
		if (it && (it->state == ITEM_ABSENT || it->state == ITEM_LATE))
			return true;
	}
	return false;
}

/* The brain moved a directory, and in it names that are not looked at yet: what is missed may be
 * there. What the environment does by itself is told in less haste. */
static bool may_be_found(const struct sync *sy)
{
	static const enum item_state states[] = {ITEM_READY, ITEM_RESTING, ITEM_LOOKING};

	for (size_t i = 0; i < ARRAY_SIZE(states); i++)
		for (const struct item *it = dirty_first(&sy->dirty, states[i]); it;
		     it = dirty_after(&sy->dirty, it))
			if (it->lost && !is_beneath_unexplained(sy, it->dir))
				return true;
	return false;
}

static void end_round(struct sync *sy, uint64_t now_ms)
{
	bool held = sy->dirty.lost && is_touched(sy, now_ms);
	struct item *absent;

	if (sy->full || !round_is_over(sy, now_ms))
		return;
	if (sy->dirty.counts[ITEM_LATE]) {
		size_t n = plan_late(sy, held);

		held = held && (n > 0 || may_be_found(sy));
		if (held)
			dirty_look_for_lost(&sy->dirty);
		else if (n == 0)
			n = plan_late(sy, false);
		/* What is left waits for a file that is being read. */
		if (held || n > 0 || !sy->dirty.taking) {
			if (sy->dirty.counts[ITEM_LATE])
				sync_pump_soon(sy, LOST_MS);
			return;
		}
	}
	absent = dirty_first(&sy->dirty, ITEM_ABSENT);
	if (!absent)
		return;
	if (held && may_be_found(sy)) {
		dirty_look_for_lost(&sy->dirty);
		sync_pump_soon(sy, LOST_MS);
		return;
	}
	if (now_ms - absent->since_ms < ABSENT_MS && !(absent->bits & ~(1u << DIRTY_SCAN_BIT))) {
		sync_pump_soon(sy, ABSENT_MS - (now_ms - absent->since_ms));
		return;
	}
	if (sync_root_ok(sy))
		(void)work_verify(sy);
}

void sync_pump(struct sync *sy)
{
	uint64_t now_ms = clock_mono_ms(), next_ms;

	if (sy->restart && sy->in_flight == 0)
		sync_begin(sy);
	if (!sync_may_send(sy))
		return;
	if (sy->rescan_again && sy->dirty.total < DIRTY_MAX / 2)
		sync_rescan(sy, NULL);
	sy->emit.from = NULL;
	next_ms = dirty_ripen(&sy->dirty, now_ms);
	for (int i = 0; i < 2; i++) {
		while (sy->works < WORK_IN_FLIGHT_MAX && !line_is_full(sy) && hand_out_one(sy))
			;
		if (i == 0)
			end_round(sy, now_ms);
	}
	streams_pump(sy);
	/* Whatever comes next has to be read first: let go of what is there. But not while names are
	 * late that were exchanged: their content follows. */
	if (!sy->dirty.counts[ITEM_CAPTURING] && !sy->dirty.counts[ITEM_WANTED] &&
	    (!sy->dirty.counts[ITEM_LATE] || sy->dirty.taking))
		emit_flush(sy);
	if (sy->scanning && sy->dirty.waiting[DIRTY_SCAN_BIT] == 0)
		sync_scan_is_over(sy);
	rules_pump(sy);
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
		    (status_has(sy, "root_replaced") && root_check(&sy->root) == 0 &&
		     sync_mark_ok(sy)))
			sync_begin(sy);
		return;
	}
	if (!sync_root_ok(sy) || sy->phase != PHASE_RUNNING)
		return;
	sync_poll_some(sy, clock_mono_ms());
	sync_sweep_some(sy);
	sync_pump(sy);
	saved_consider(sy);
}

void sync_on_data_done(struct sync *sy, const Limbwire__DataDone *m)
{
	streams_on_done(sy, m);
	sync_pump(sy);
}

void sync_drained(struct sync *sy)
{
	tree_drained(sy);
	sync_pump(sy);
}

int sync_root_fd(const struct sync *sy)
{
	return sy->root.fd >= 0 ? sy->root.fd : -ENOENT;
}

int sync_private_fd(const struct sync *sy)
{
	return sy->root.dir_fd;
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

	if (++sy->closed_timers < SYNC_TIMERS)
		return;
	dirty_free(&sy->dirty);
	undo_done(&sy->undo, &sy->shadow);
	shadow_done(&sy->shadow);
	free(sy->made);
	emit_done(&sy->emit);
	status_done(sy);
	root_done(&sy->root);
	rules_done(&sy->rules);
	free(sy->polled);
	free(sy);
}

/* Runs the loop until workers have come back; handles are closed by the loop. */
void sync_free(struct sync *sy)
{
	uv_timer_t *timers[SYNC_TIMERS];

	if (!sy)
		return;
	timers[0] = &sy->pump_timer;
	timers[1] = &sy->status.timer;
	timers[2] = &sy->barriers.timer;
	timers[3] = &sy->slow_timer;
	sync_detached(sy);
	sy->closing = true;
	barriers_done(sy);
	while (sy->in_flight)
		(void)uv_run(sy->loop, UV_RUN_ONCE);
	streams_detached(sy);
	saved_last(sy);
	tree_free_all(sy);
	watch_free(sy->watch);
	sy->watch = NULL;
	/* libuv does not say in which order they end. */
	for (size_t i = 0; i < ARRAY_SIZE(timers); i++) {
		timers[i]->data = sy;
		uv_close((uv_handle_t *)timers[i], on_closed);
	}
}
