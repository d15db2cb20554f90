/*
 * dirs.h - directories in an order that outlives changes, for READDIR without
 * OPENDIR.
 *
 * There is no open directory to hang a snapshot on, so the place in a stream
 * is in the offset alone.  It is a keyed hash of the name, and a listing goes
 * in order of these: whatever comes or goes meanwhile, a name that stays is
 * met exactly once, also after telldir and seekdir.  (Names that hash alike
 * take the numbers behind; with 62 bits that is as good as never.)
 *
 * Sorted listings of the directories read last are kept, so that a large one
 * is read once and not once for each of its replies.  They hold names only:
 * what a name means is looked up when it is given out.
 *
 *	dirs_get(d, t, seq, dir, &l);
 *	for (i = listing_seek(l, offset); i < listing_count(l); i++)
 *		listing_entry(l, i, &name, &len)	-> its own offset
 *	dirs_put(d, l);
 *
 * The follower calls dirs_set_floor() before it drops what changed, so that no
 * listing made before is kept.  Functions are for any thread.
 */
#ifndef FS_DIRS_H
#define FS_DIRS_H

#include "journal/index.h"

#define DIRS_OFFSET_FIRST 16 /* smaller ones are for "." and ".." */

struct dirs;
int dirs_new(struct dirs **ret);
void dirs_free(struct dirs *d);
DEFINE_CLEANUP(struct dirs, dirs_free);

/* By what a live directory is listed, in place of index_list(). Before the first dirs_get(). */
typedef int (*dirs_list_fn)(void *userdata, struct index_txn *t, uint64_t dir, index_entry_fn each,
			    void *arg);
void dirs_set_list(struct dirs *d, dirs_list_fn list, void *userdata);

struct listing;
int dirs_get(struct dirs *d, struct index_txn *t, uint64_t seq, uint64_t dir, struct listing **ret);
/* How it was at a point, in one of several trees; space 0 and INDEX_NOW: dirs_get(). */
int dirs_get_at(struct dirs *d, struct index_txn *t, uint64_t seq, uint64_t space, uint64_t at,
		uint64_t dir, struct listing **ret);
void dirs_put(struct dirs *d, struct listing *l);

size_t listing_count(const struct listing *l);
size_t listing_seek(const struct listing *l, uint64_t offset); /* the first one behind it */
/* Its offset; the name (NUL-terminated) holds until dirs_put. */
uint64_t listing_entry(const struct listing *l, size_t i, const char **ret_name, size_t *ret_len);

void dirs_set_floor(struct dirs *d, uint64_t seq);
void dirs_drop(struct dirs *d, uint64_t dir);
void dirs_drop_all(struct dirs *d);

#endif
