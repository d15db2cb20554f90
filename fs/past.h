/*
 * past.h - one FUSE session that shows many trees, each as it was at a point, which
 * never changes: MNT/.at/NAME@POINT of all environments of a brain, or one tree of a
 * copied state directory.
 *
 *	past_new(state_fd, &p);
 *	past_show_brain(p, contents);		names are found as they are looked up
 *	  or past_show_tree(p, source, ...);	the session's root is this tree
 *	... session_new(past_session(p), ...), threads answer ...
 *	timeout_ms = past_tick(p);		the main thread, again and again
 *	past_free(p);
 *
 * A name in the session's root is NAME@POINT.  Where the point is a number, a
 * label, a time or a job's, it is the tree's root.  HEAD, HEAD~N, now and
 * consistent go on meaning something else, so these are links to NAME@SEQ, the
 * position that they had when they were looked up.  Nothing is listed there.
 *
 * Names are the brain's log's (registry.h), asked again a second after they were
 * answered, so a removed environment is gone and a new one is there without a
 * word from limbd.  What is open goes on as long as the kernel knows it.
 *
 * An index is opened when something cold is asked of it, and closed after a minute
 * without: with nothing open there is no wakeup.
 */
#ifndef FS_PAST_H
#define FS_PAST_H

#include "fs/spot.h"

struct past;
int past_new(int state_fd, struct past **ret);
void past_free(struct past *p);
DEFINE_CLEANUP(struct past, past_free);

/* Both lent until past_free(). */
int past_show_brain(struct past *p, struct contents *contents);
/* -ENOENT: the tree has no such position. */
int past_show_tree(struct past *p, struct source *source, const uint8_t env_id[16],
		   const struct attr_rules *rules, uint64_t at);

struct fs *past_session(struct past *p); /* the session's userdata */

/* Closes what was not used for a while. Milliseconds until it is to be called again, or -1: not
 * before past_fd() is readable, which it clears. */
int past_tick(struct past *p);
int past_fd(const struct past *p);

/* ---- for spot.c, past-ops.c ---- */

int past_get(struct past *p, fuse_ino_t ino, struct spot *ret); /* -ESTALE */
void past_put(struct past *p, struct spot *s);
int past_hold(const struct spot *dir, const struct index_node *n, fuse_ino_t *ret_ino);
void past_forget(struct past *p, fuse_ino_t ino, uint64_t count);
/* Of a file the number stands for its version, of a directory for its point: tools take equal
 * device and number for equal content. */
uint64_t past_inode(const struct fs *tree, const struct index_node *n);

/* What lies in the session's root by that name, held once. -ENOENT. */
int past_find(struct past *p, const char *name, struct fuse_entry_param *ret);

enum past_own { PAST_TREE, PAST_ROOT, PAST_LINK };
/* Is it something of the session's own? Its attributes, and a link's text (malloc'ed). */
enum past_own past_own(struct past *p, fuse_ino_t ino, struct stat *ret, char **ret_target);

extern const struct fuse_lowlevel_ops past_ops_table;

#endif
