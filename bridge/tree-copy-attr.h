/*
 * tree-copy-attr.h - owner, mode, times and extended attributes of one entry, from one
 * descriptor or name to another.  Order matters: a change of owner clears set-id
 * bits and file capabilities, and everything else changes times.
 */
#ifndef BRIDGE_TREE_COPY_ATTR_H
#define BRIDGE_TREE_COPY_ATTR_H

#include <sys/stat.h>

/* The count of attributes that the target refused (owner, each extended attribute)
 * or a negative errno. */
int tree_copy_attr_fd(int src, int dst, const struct stat *st);
/* For what is not opened: symlinks, fifos, sockets, devices. */
int tree_copy_attr_at(int src_dir, int dst_dir, const char *name, const struct stat *st);

#endif
