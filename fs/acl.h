/*
 * acl.h - POSIX ACLs as extended attributes carry them, and the mode that goes with them: the
 * kernel asks for an ACL and for a mode, and who keeps both keeps them in step (acl(5)).
 * Pure.
 */
#ifndef FS_ACL_H
#define FS_ACL_H

#include "journal/node.h"

bool acl_is_access(const char *name); /* of an extended attribute */
/* The mode, which was `mode`, under that access ACL. 1; 0: the mode says all that is in it;
 * -EINVAL. */
int acl_mode(const void *acl, size_t n, uint32_t mode, uint32_t *ret_mode);
/* n's extended attributes with the access ACL that mode leaves, appended. 1; 0: it has none. */
int acl_follow_mode(const struct node *n, uint32_t mode, struct buf *xattrs);

#endif
