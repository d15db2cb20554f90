/*
 * keeper.h - a thread of the writable view that answers no request: makes versions of what
 * nobody writes any more, empties the view for a barrier, tells the kernel what an answer
 * could not.
 *
 *	keeper_start(fs, se, mount_path, drained, ud, &k);
 *	keeper_wake(k)			something was written
 *	keeper_invalidate(k, id)	its size is not what the kernel thinks
 *	keeper_forget_name(k, dir, name)  it leads where the kernel does not think
 *	keeper_drain(k, token)		all that was written until now, also through mappings,
 *					is in the log -> drained(token, last, ud)
 *	keeper_stop(k)			while requests are still answered
 */
#ifndef FS_KEEPER_H
#define FS_KEEPER_H

#include "fs/overlay.h"
#include "fs/ops.h"

struct keeper;
typedef void (*keeper_fn)(uint64_t token, void *userdata);

int keeper_start(struct fs *fs, struct fuse_session *se, const char *mount_path, keeper_fn drained,
		 void *userdata, struct keeper **ret);
void keeper_stop(struct keeper *k); /* both: NULL is fine */
void keeper_free(struct keeper *k); /* when nothing is asked any more */

/* Any thread. */
void keeper_wake(struct keeper *k);
void keeper_invalidate(struct keeper *k, uint64_t id);
void keeper_forget_name(struct keeper *k, uint64_t dir, const char *name);
void keeper_drain(struct keeper *k, uint64_t token);

#endif
