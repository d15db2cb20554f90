/*
 * root.h - the root directory itself: is it there, is it ours, what can it hold.
 *
 * The mark says which incarnation a directory belongs to: an extended attribute
 * user.limb.mark on it, or, where there are none, a file "mark" in the private
 * directory together with the root's inode and birth.
 *
 *	root_init(&rt, "/workspace", dir_fd)
 *	root_open(&rt)		-ENOENT, -ENOTDIR: missing
 *	root_measure(&rt)
 *	root_check(&rt)		each time before something is believed
 */
#ifndef SYNCD_ROOT_H
#define SYNCD_ROOT_H

#include <stdbool.h>
#include <stdint.h>

#include "syncd/scan.h"

enum { ROOT_MARK_BYTES = 16 };

struct root {
	char *path;
	int dir_fd;	     /* private directory, lent */
	int fd;		     /* -1 while missing */
	struct stamp st;     /* when it was opened */
	struct stamp dir_st; /* the private directory: never part of the tree */
	uint32_t unheld;     /* enum node_mask */
	bool measured;
	bool fine_stamps; /* two edits never leave equal times once they were looked at */
	uint32_t uid, gid;
};

int root_init(struct root *rt, const char *path, int dir_fd);
void root_done(struct root *rt);

/* Again, if it was open. What an apply left half written is finished (apply-log.h). */
int root_open(struct root *rt);
/* 0: the path still leads to the directory that is open; -ENOENT: to nothing;
 * -ESTALE: to another one. */
int root_check(const struct root *rt);
/* -ENODATA: no mark. */
int root_get_mark(const struct root *rt, uint8_t mark[ROOT_MARK_BYTES]);
int root_set_mark(const struct root *rt, const uint8_t mark[ROOT_MARK_BYTES]);
bool root_is_empty(const struct root *rt);
void root_measure(struct root *rt);

#endif
