/*
 * plan.h - what was seen against what the shadow has, and what follows: nothing,
 * a capture, a move, a link, a removal.
 *
 * A name that is new is a move when its inode is known and has no other name
 * left.  A name that holds another node than before waits until the rest of the
 * round has been looked at (ITEM_LATE), and so does a name that is gone
 * (ITEM_ABSENT): by then its node may have been found elsewhere.  A known file with
 * another content gets its new name once that is read, in one CHANGE with it.
 */
#ifndef SYNCD_PLAN_H
#define SYNCD_PLAN_H

#include "syncd/capture.h"
#include "syncd/state.h"

/* Results of work; each consumes its item. */
void plan_seen(struct sync *sy, struct item *it, const struct stamp *st);
void plan_missing(struct sync *sy, struct item *it);
void plan_listed(struct sync *sy, struct item *it, const struct scan_dir *d,
		 const struct scan_listing *l);
void plan_absent(struct sync *sy, struct item *it, bool confirmed, int error);
void plan_captured(struct sync *sy, struct item *it, const struct capture *c,
		   const uint8_t *content, const uint8_t *text, uint32_t stream);
void plan_dir_failed(struct sync *sy, struct item *it, const struct scan_dir *d);
/* error < 0 of looking at a name or capturing it. */
void plan_failed(struct sync *sy, struct item *it, int error);
bool plan_is_passing(int error); /* the next look will tell */

/* The directory's own attributes are to be looked at; from may be NULL. */
void plan_mark_own(struct sync *sy, uint32_t dir, const struct item *from);
/* ITEM_LATE. held, or there are new directories among them, which come first: but for those that
 * would take a node's last name. How many. */
size_t plan_late(struct sync *sy, bool held);
/* One of them under which this directory was seen; NULL: there is none. */
const struct item *plan_late_of(const struct sync *sy, uint32_t n);
/* The known node n has the item's name now. True: the brain is told of it together with what is in
 * the file, which is to be read first (plan_captured()). */
bool plan_take_name(struct sync *sy, struct item *it, uint32_t n);
int plan_adopt_name(struct sync *sy, struct item *it, uint32_t n); /* tells */
/* Nodes that names wait to be given to, late ones or once a file is read; sorted, malloc'ed. */
int plan_awaited(struct sync *sy, uint32_t **ret, size_t *ret_n);
bool plan_is_awaited(const uint32_t *awaited, size_t n, uint32_t node);
/* The node that has the item's name, or is to have it; 0: none is known. */
uint32_t plan_node_of(const struct sync *sy, const struct item *it);
/* It is a directory and would lie in itself. */
bool plan_would_cycle(const struct sync *sy, const struct item *it, uint32_t n);
/* Before removals are sent: says so when they are many. */
void plan_removing(struct sync *sy, uint64_t nodes);

/* The same file as the shadow's node? */
bool plan_is_node(const struct sync *sy, uint32_t n, const struct stamp *st);
bool plan_is_equal(const struct sync *sy, uint32_t n,
		   const struct stamp *st); /* and nothing to doubt */
uint32_t plan_find_node(const struct sync *sy, const struct stamp *st);
bool plan_is_boundary(const struct sync *sy, const struct stamp *st);
void plan_fill_node(const struct sync *sy, const struct stamp *st, struct node *ret);
void plan_fill_shadow(struct sync *sy, const struct stamp *st, struct shadow_node *ret);

/* ---- between plan*.c ---- */

/* By stat alone, under the mask: is there nothing to send? */
bool plan_stat_equal(const struct sync *sy, const struct shadow_node *n, const struct stamp *st);
/* A file whose bytes are known, as nobody has touched it since a restore wrote them. */
bool plan_is_ours(const struct sync *sy, uint32_t n, const struct stamp *st);
uint64_t plan_size_of(const struct stamp *st); /* as the shadow keeps it */
void plan_list_dir(struct sync *sy, const struct item *it, uint32_t n, bool deep);
void plan_retry_later(struct sync *sy, struct item *it);
void plan_path_reason(struct sync *sy, const char *code, const struct item *it, const char *detail);
void plan_path_clear(struct sync *sy, const char *code, const struct item *it);

#endif
