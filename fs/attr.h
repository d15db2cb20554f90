/*
 * attr.h - a node's attributes as stat(2) shows them in a view: pure functions
 * of the node and of what the mount's mode says about owners and modes.
 *
 * Look mode shows a foreign owner and look_mode(); work mode shows the node's
 * own modes, with owner "self" as the user of the mount.  Inode numbers and
 * times are the environment's own; a node of which it has none, or that lies on
 * another device there (its numbers may be in use twice), has its node id with
 * ATTR_OWN_INODE.  A directory has 1 link, which says "not counted".
 */
#ifndef FS_ATTR_H
#define FS_ATTR_H

#include <stdbool.h>
#include <sys/stat.h>

#include "journal/index.h"

#define ATTR_OWN_INODE (1ull << 62)

struct attr_rules {
	bool look;
	uid_t uid; /* look: the foreign owner; work: who "self" is */
	gid_t gid;
	bool all_xattrs; /* user.* alone otherwise */
};

/* Rules of a mount that the user uid:gid makes. */
void attr_rules_init(struct attr_rules *r, bool look, uid_t uid, gid_t gid);

uint64_t attr_inode(const struct index_node *n);
/* target_len: of the link text that is shown. */
void attr_stat(const struct attr_rules *r, const struct index_node *n, size_t target_len,
	       struct stat *ret);

bool attr_xattr_shown(const struct attr_rules *r, const char *name, size_t n);

#endif
