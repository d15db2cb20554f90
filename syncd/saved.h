/*
 * saved.h - the shadow in a file of the private directory, for slow lines: a limb-syncd that
 * starts tells the brain what it remembers, as one hash for each directory, and is sent only
 * what is otherwise.
 *
 *	saved_read(sy, &saved)		what the file has; its hashes go with TREE_GET
 *	saved_fill(sy, saved, dir)	... the brain says that a directory is as there
 *	saved_consider(sy)		each second: written when all is quiet and something is new
 *
 * The file is a guess and nothing else.  What of it is used is what the brain finds equal to
 * the journal's tree, so the shadow is the one that the whole tree would have made, whatever
 * the file is: old, damaged, of another incarnation, made up.
 *
 *	SHADOW_FILE_START, the environment's id, number of entries u64; struct saved_entry and
 *	the name of each, in pre-order, a directory's names bytewise; SHA-256 of all before
 *
 * in this machine's byte order.  About 100 bytes an entry.
 */
#ifndef SYNCD_SAVED_H
#define SYNCD_SAVED_H

#include "syncd/state.h"
#include "wire/digest.h"

struct saved;
/* -ENOENT, or -EBADMSG: there is none that can be used. */
int saved_read(struct sync *sy, struct saved **ret);
void saved_free(struct saved *s);
/* Those of the upper directories if there are too many. */
const uint8_t *saved_hashes(const struct saved *s, size_t *ret_bytes);
/* All that is beneath this directory of the shadow. -EBADMSG: its hash was not sent. */
int saved_fill(struct sync *sy, const struct saved *s, uint32_t dir);

void saved_consider(struct sync *sy);
/* At the end, when no thread works any more: what is not written yet is. */
void saved_last(struct sync *sy);

#endif
