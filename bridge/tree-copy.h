/*
 * tree-copy.h - a whole tree into an empty directory, as it is: `limb create --from`.
 *
 *	struct tree_copy c = {.progress = fn, .report = fn};
 *	r = tree_copy_run(&c, src_fd, dst_parent_fd, "root", dst_fd);
 *
 * Kept: names as bytes at any depth, types, hard links also across directories,
 * holes, symlinks as text, modes (07777), ns mtimes and atimes, extended
 * attributes, owners where we may give them, devices where we may make them.
 * Works by descriptors: no name is looked up by path, no link is followed, so
 * whoever changes the source meanwhile spoils his own copy only.
 *
 * What cannot be read or made is reported, counted and left out; so are the
 * contents of mount points below the source.  Nothing is synced.
 */
#ifndef BRIDGE_TREE_COPY_H
#define BRIDGE_TREE_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct tree_copy {
	/* Now and then, at most every 250 ms; a negative errno ends the copy. */
	int (*progress)(const struct tree_copy *c, void *userdata);
	/* One entry that is not as it was: its path from the source (bytes), and why. */
	void (*report)(const char *path, size_t n, const char *why, void *userdata);
	void *userdata;

	uint64_t files, directories, symlinks, others, bytes;
	uint64_t unreadable; /* reported: left out, or a directory without its entries */
	uint64_t mounts;     /* reported: mount points, made as empty directories */
	uint64_t not_kept;   /* owners and attributes that the target refused */

	/* private */
	struct frame *frames;
	size_t depth, cap;
	int links_fd, parent_fd;
	char *links_name;
	dev_t device;
	uint64_t next_progress_ms;
	uint8_t *block;
};

/* dst is the open, empty directory `name` in dst_parent. 0, or why the copy is not
 * complete (-ENOSPC ...); what was made stays. */
int tree_copy_run(struct tree_copy *c, int src, int dst_parent, const char *name, int dst);

/* 1 if inside is outside or lies beneath it, by walking up; 0 if not. */
int tree_copy_is_beneath(int inside, int outside);

#endif
