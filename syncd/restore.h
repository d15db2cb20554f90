/*
 * restore.h - RESTORE: the root is made equal to a tree of the journal.
 *
 *	CLEAN	what is there goes, if it was asked for
 *	LOOK	what is there is read, if the line is a slow one (look.h)
 *	TREE	TREE_GET of our own, all entries kept
 *	DIRS	all directories, 0700; what is not of the tree goes
 *	CHECK	what is there already and equal stays (by its bytes, or because the restore
 *		before left it so), else it goes
 *	FILES	contents by PULL, at most 64 files outstanding; small ones are written by
 *		worker threads, large ones here, so that the disk slows the line down
 *	LINKS	further names of nodes
 *	ATTRS	of directories, the deepest first
 *	ADOPT	every entry into the shadow, a part per turn of the loop
 *
 * then RESTORED. What ends early leaves a part of the tree behind; the next
 * RESTORE begins from the beginning. Nothing is synced to disk unless asked for: the journal has
 * all of it.
 */
#ifndef SYNCD_RESTORE_H
#define SYNCD_RESTORE_H

#include <uv.h>

#include "syncd/restore-tree.h"
#include "syncd/session.h"
#include "syncd/sync.h"
#include "wire/wire.pb-c.h"

struct restore;

/* done() once, when it has answered (or cannot any more) and no thread works for it; then
 * it is gone. ok: the root is equal but for what was listed. tree: of one that holds, with
 * what it left on the disk; to be taken over, or left. */
typedef void (*restore_done_fn)(bool ok, struct rtree *tree, void *userdata);

/* request_first: request ids from here on are its own. base: what the one before left, or
 * NULL; lent until done(). */
int restore_new(uv_loop_t *loop, struct session *session, struct sync *sync,
		const Limbwire__Restore *m, const struct rtree *base, uint64_t request_first,
		restore_done_fn done, void *userdata, struct restore **ret);
void restore_cancel(struct restore *r, int error); /* ends soon, by done() */
void restore_disown(struct restore *r);		   /* cancelled, and nobody is there for done() */
bool restore_on_tree_part(struct restore *r, const Limbwire__TreePart *part);
bool restore_on_error(struct restore *r, const Limbwire__Error *m);
void restore_on_pull_data(struct restore *r, const Limbwire__PullData *m, const void *bulk,
			  size_t n);

#endif
