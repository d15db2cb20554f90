/*
 * follow.h - tells the kernel what limbd says is new: a thread that answers no
 * request and holds no lock that an answer needs, since a notification waits
 * for requests that are under way.
 *
 *	follow_start(fs, se, seen, userdata, &f);	from the index as it is now
 *	follow_publish(f, seq);				any thread, any number of times
 *		-> seen(seq, userdata)			in the follower's thread
 *	follow_stop(f);				while requests are still answered
 *
 * One round takes all that the index has, not only up to what was published:
 * entries first, then directories, then other nodes.
 */
#ifndef FS_FOLLOW_H
#define FS_FOLLOW_H

#include "fs/ops.h"

struct follow;
typedef void (*follow_seen_fn)(uint64_t seq, void *userdata);

int follow_start(struct fs *fs, struct fuse_session *se, follow_seen_fn seen, void *userdata,
		 struct follow **ret);
void follow_publish(struct follow *f, uint64_t seq);
/* Of the view's log all up to number `done` is over, and the index shows it at seq. */
void follow_over(struct follow *f, uint64_t done, uint64_t seq);
void follow_stop(struct follow *f); /* NULL is fine */

#endif
