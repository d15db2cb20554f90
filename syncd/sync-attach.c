#include "syncd/state.h"

#include <stdio.h>

#include "base/clock.h"
#include "syncd/fill.h"
#include "syncd/saved.h"
#include "syncd/tree.h"

/* The root's state, and what an attach begins. */

enum { SWEEP_PERIOD_S = 300 };

/* Of TREE_GETs: apply has its own range of request ids. */
#define REQUEST_FIRST (1ull << 40)

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

void sync_unhalt(struct sync *sy)
{
	if (!sy->halted)
		return;
	sy->halted = false;
	status_clear_all(sy, "root_missing");
	status_clear_all(sy, "root_replaced");
	status_clear_all(sy, "root_emptied");
}

bool sync_mark_ok(const struct sync *sy)
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
	else if (!sync_mark_ok(sy))
		sync_halt(sy, "root_replaced", "the root does not carry this incarnation's mark");
	return !sy->halted;
}

/* ---- attach ---- */

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
	sy->filled = sy->held = sy->scanning = false;
	sy->rescan_again = false;
	status_clear_all(sy, "watch_limit");
	status_clear_all(sy, "mount_changed");
	status_clear_all(sy, "unreadable");
	r = shadow_init(&sy->shadow);
	if (r == 0)
		rules_forget(sy);
	if (r == 0)
		sync_start_watching(sy);
	return r;
}

static void forget_saved(struct sync *sy)
{
	saved_free(sy->saved);
	sy->saved = NULL;
}

static void ask_tree(struct sync *sy)
{
	Limbwire__TreeGet m = LIMBWIRE__TREE_GET__INIT;
	const uint8_t *hashes = NULL;
	size_t n = 0;

	m.request = sy->tree_request = MAX(sy->tree_request + 1, REQUEST_FIRST);
	sy->phase = PHASE_FILLING;
	fill_begin(sy);
	forget_saved(sy);
	if (sy->remember && saved_read(sy, &sy->saved) == 0)
		hashes = saved_hashes(sy->saved, &n);
	(void)session_send(sy->session, SESSION_CONTROL, WIRE_TREE_GET, &m.base, hashes, n);
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

void sync_begin(struct sync *sy)
{
	if (sy->in_flight) {
		sy->restart = true;
		return;
	}
	sy->restart = false;
	if (sy->phase == PHASE_RESTORE) {
		(void)sync_prepare_restore(sy);
		return;
	}
	if (open_root(sy) < 0)
		return;
	root_measure(&sy->root);
	if (sy->set_mark && root_set_mark(&sy->root, sy->mark) == 0)
		sy->set_mark = false;
	sync_unhalt(sy);
	if (!sync_root_ok(sy))
		return;
	if (sy->filled && sy->held) {
		sy->held = false;
		sync_run(sy);
		return;
	}
	if (sy->filled) {
		sy->phase = PHASE_RUNNING;
		sync_pump_soon(sy, 0);
		return;
	}
	if (reset_shadow(sy) == 0)
		ask_tree(sy);
}

int sync_prepare_restore(struct sync *sy)
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

void sync_run(struct sync *sy)
{
	sy->filled = true;
	sy->phase = PHASE_RUNNING;
	sy->first_scan = true;
	sy->status.scanned_files = sy->status.scanned_bytes = 0;
	sync_rescan(sy, NULL);
	if (!sy->accepted && shadow_dir(&sy->shadow, SHADOW_ROOT)->first &&
	    root_is_empty(&sy->root))
		sync_halt(sy, "root_emptied", "the root is empty, the journal's tree is not");
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
	sy->remember = session_has_trees(sy->session);
	if (w->environment_id.len == sizeof(sy->env))
		memcpy(sy->env, w->environment_id.data, sizeof(sy->env));
	sy->welcome_sweep_s = w->sweep_period_s ? w->sweep_period_s : SWEEP_PERIOD_S;
	sy->sweep_period_s = sy->welcome_sweep_s;
	sy->full = false; /* SETTINGS follows */
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
	go_back(sy, w->durable_number);
	rules_welcome(sy, w);
	sy->attached = true;
	sync_unhalt(sy);
	status_changed(sy);
	if (w->mode == LIMBWIRE__WELCOME__MODE__MODE_HOLD) {
		sy->phase = PHASE_IDLE;
	} else if (w->mode == LIMBWIRE__WELCOME__MODE__MODE_RESTORE) {
		sy->phase = PHASE_RESTORE;
		sy->filled = false;
		sy->restart = sy->in_flight > 0;
		if (!sy->restart)
			return sync_prepare_restore(sy);
	} else {
		sy->phase = PHASE_FILLING;
		sync_begin(sy);
	}
	return 0;
}

void sync_detached(struct sync *sy)
{
	if (!sy->attached)
		return;
	sy->attached = false;
	forget_saved(sy);
	if (sy->phase != PHASE_RUNNING && !sy->held)
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
		forget_saved(sy);
		sync_run(sy);
	}
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
