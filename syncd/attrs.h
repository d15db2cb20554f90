/*
 * attrs.h - giving an entry its owner, mode, extended attributes and time.
 *
 * In this order, because each destroys another: owner (clears setuid bits and
 * capabilities), extended attributes (need write permission, which the mode may
 * take), mode, time. What the system refuses is not an error: the bits of enum
 * node_field that could not be given are returned.
 */
#ifndef SYNCD_ATTRS_H
#define SYNCD_ATTRS_H

#include <stdint.h>

#include "journal/node.h"

/* fd: of the entry, open for reading or writing, or -1; then it is named by (dir, name) and
 * never followed. is_new: it is known to have our owner and no attributes yet. */
uint32_t attrs_set(int dir, const char *name, int fd, const struct node *n, bool is_new);

/* What `to`, which is new, has not of `from` yet. Not what a write takes away, and not what cannot
 * be had or given. */
void attrs_copy_xattrs(int dir, const char *from, const char *to);

/* These fields alone (mode, owner, time, extended attributes; -EOPNOTSUPP for others) of what st says is there. */
int attrs_set_some(int dir, const char *name, const struct stat *st, const struct node *n,
		   uint32_t fields);

/* mknod and its kin for all types but files and directories; 0600 where there is a mode. */
int attrs_make_special(int dir, const char *name, const struct node *n);

#endif
