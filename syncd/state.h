/*
 * state.h - the state that the parts of the sync half share, all of it owned by
 * the loop's thread.  Included by them only.
 *
 *	events, scans   mark items dirty			sync.c, watch.c
 *	work            workers look, list, capture		work.c, scan.c, capture.c
 *	plan            compares with the shadow, decides	plan.c
 *	emit            changes the shadow and says so		emit.c, undo.c
 *
 * An item goes: ready, looking, wanted, capturing, done; or late and absent, when
 * only the rest of a round can tell a move from a removal.
 */
#ifndef SYNCD_STATE_H
#define SYNCD_STATE_H

#include "base/util.h"

#include <uv.h>

#include "syncd/barrier.h"
#include "syncd/dirty.h"
#include "syncd/emit.h"
#include "syncd/pace.h"
#include "syncd/root.h"
#include "syncd/rules.h"
#include "syncd/shadow.h"
#include "syncd/status.h"
#include "syncd/stream.h"
#include "syncd/sync.h"
#include "syncd/undo.h"
#include "syncd/watch.h"

enum sync_phase {
	PHASE_IDLE,    /* no WELCOME yet, or told to hold */
	PHASE_FILLING, /* TREE_GET asked */
	PHASE_RESTORE, /* apply makes the root */
	PHASE_RUNNING,
};

/* The two of struct sync, status' and the barriers'. */
enum { SYNC_TIMERS = 4 };

struct tree;
struct saved;

struct sync {
	uv_loop_t *loop;
	struct session *session;
	struct root root;
	struct shadow shadow;
	struct dirty dirty;
	struct watch *watch; /* NULL: everything is polled */
	struct emit emit;
	struct undo undo;
	struct barriers barriers;
	struct status status;
	struct streams streams;
	struct tree *trees; /* answers under way */

	enum sync_phase phase;
	bool attached; /* WELCOME has come over the line that is up */
	bool halted;
	bool accepted; /* a person said that the root is as it should be */
	bool filled;   /* the shadow is this incarnation's */
	bool held;     /* ... as a RESTORE left it; nothing is watched yet */
	bool scanning; /* the first scan after an attach, or a rescan */
	bool first_scan;
	bool rescan_again; /* names were dropped: scan again when there is room */
	bool restart;	   /* begin anew when no work is in flight */
	bool set_mark;	   /* the root is to get `mark` */
	bool fill_foreign;
	bool closing;
	pid_t processes; /* jobs are below it; 0: not known */
	/* The shadow's file (saved.h). */
	struct saved *saved; /* while the shadow is filled */
	bool remember;	     /* the line is worth it */
	bool saving;
	uint64_t saved_incarnation, saved_number; /* what it is of, if that is known */
	uint64_t save_due_ms;

	uint8_t env[16];
	uint64_t incarnation;
	uint64_t tree_request;
	uint64_t next_id, end_id;
	uint32_t sweep_period_s, welcome_sweep_s, watch_limit;
	bool full; /* the brain's journal is: nothing is captured, what changes stays dirty */
	struct pace pace;
	uint64_t paced_bytes; /* of emit.bytes */
	uint8_t mark[ROOT_MARK_BYTES];
	bool has_mark;
	struct rules rules;

	unsigned in_flight;		 /* all that threads hold, streams and walks too */
	unsigned works, lists_in_flight; /* bundles of items (work.h); those of listings */
	uv_timer_t pump_timer, slow_timer;
	unsigned closed_timers; /* at the end */
	uint64_t pump_due_ms;

	uint32_t *polled; /* directories without a watch */
	uint32_t n_polled, polled_cap;
	uint64_t poll_due_ms;

	uint64_t removed_ms; /* for mass_delete: a window of removals */
	uint64_t removed_nodes;
	uint64_t touched_ms; /* the brain's last change was made */

	struct made *made; /* what APPLY left, by inode; MADE_SLOTS, or NULL */

	uint64_t sweep_due_ms;
	uint32_t sweep_at; /* next node index */
	double sweep_credit;

	uint8_t hello_mark[ROOT_MARK_BYTES];
};

/* sync-watch.c */
void sync_start_watching(struct sync *sy);
void sync_scan_is_over(struct sync *sy);
void sync_poll_some(struct sync *sy, uint64_t now_ms);
void sync_sweep_some(struct sync *sy);

/* sync-apply.c: the origin of the APPLY that left it as it is; 0: none did. */
uint8_t sync_made_by(const struct sync *sy, const struct stamp *st);

/* sync-attach.c */
void sync_begin(struct sync *sy); /* when no work is in flight, else then */
int sync_prepare_restore(struct sync *sy);
void sync_run(struct sync *sy); /* the shadow is filled: scan */
void sync_unhalt(struct sync *sy);
bool sync_mark_ok(const struct sync *sy);

/* sync-apply.c: the shadow's entry at a path; 0 = the root, or nothing there. */
uint32_t sync_entry_at(const struct sync *sy, const char *path, size_t len);

/* All of them: */
void sync_pump_soon(struct sync *sy, uint64_t delay_ms);
void sync_pump(struct sync *sy);
bool sync_may_send(const struct sync *sy);
/* The brain takes content and records now: its journal is not full, and the rate allows it. */
bool sync_may_capture(struct sync *sy);
/* The root is there and ours; otherwise everything halts, with the reason shown. */
bool sync_root_ok(struct sync *sy);
void sync_halt(struct sync *sy, const char *code, const char *detail);
bool sync_is_ignored(const struct sync *sy, uint32_t dir, const char *name, size_t len,
		     const struct stamp *st);
/* Everything is looked at; from: the item that this derives from, or NULL. */
void sync_rescan(struct sync *sy, const struct item *from);
void sync_dir_left(uint32_t dir, void *userdata); /* shadow_dir_fn: a directory leaves the tree */
void sync_dir_came(uint32_t dir, void *userdata);
void sync_set_polled(struct sync *sy, uint32_t dir, bool polled);
void sync_scan_dir(const struct sync *sy, uint32_t dir, struct scan_dir *ret);

#endif
