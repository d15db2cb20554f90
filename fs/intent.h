/*
 * intent.h - the writable view's intent log: what programs wrote in the view, from the
 * moment in which they are told that it is done to the one in which the environment shows
 * it.  (The bytes: journal/accepted.h.  Off unless the spec says "view": {"write": true}.)
 *
 * Kinds: CREATE, REMOVE, MOVE, LINK, ATTR are one call each. A file's bytes go to a staging
 * file beside the log, stage.NODE, which STAGE announces; VERSION makes them data.NUMBER,
 * which never changes again: at fsync, rename, link, barrier (a drain), or when nobody has
 * written for a while.  DONE says up to which number all is over.
 *
 *	accepted   the entry, or the bytes in the staging file, are in a file: before the reply
 *	durable    fsync: a version, then data, log and directory are synced
 *	consumed   limbd has made an INTENT of it (its content is in the store), whose record
 *	           names epoch and number: so each entry is consumed once, whoever dies when
 *	applied    the environment's own change shows it; or it is a conflict, or unapplied
 *
 * Over what the index has lies the overlay (overlay.h): each name and node that an entry
 * changed, stamped with the number of the last such entry. When limbd says that all up to a
 * number is over, and in which record of the index it shows, what is stamped so goes, and
 * the kernel is told what is different now.  Refused or lost changes go in the same way.
 *
 * A file whose directory the environment removed has its version at the path of its STAGE.
 *
 * kill -9 of limb-fs: the next one cuts a torn tail, replays what is not over into its
 * overlay, and makes a version of each staging file that has none.  Of limbd: the log waits;
 * the next one goes on behind the last number in its records.  Of both: both.  Files that
 * were unlinked while open die with limb-fs.
 *
 * Limits: INTENT_ENTRIES_MAX entries that are not over, INTENT_BYTES_MAX bytes staged, and,
 * where the spec says one, how old the oldest of those entries is.  Beyond them writers wait INTENT_WAIT_MS, and then get EDQUOT.
 *
 *	intent_open(env_fd, &log);	cuts the tail
 *	intent_replay(log, each, ud);	all entries that there are
 *	intent_append(log, &e);		accepted; e.number is set
 *	intent_sync(log);		durable
 *	intent_done(log, number);	logs up to it may go
 *
 * Not for several threads at once, but for intent_sync(): who calls has the overlay's lock.
 */
#ifndef FS_INTENT_H
#define FS_INTENT_H

#include "journal/accepted.h"

#define INTENT_ENTRIES_MAX 50000
#define INTENT_BYTES_MAX (8ull << 30)
#define INTENT_WAIT_MS 5000

struct intent_log;
int intent_open(int env_fd, struct intent_log **ret);
void intent_close(struct intent_log *l);
DEFINE_CLEANUP(struct intent_log, intent_close);

typedef int (*intent_fn)(const struct accepted *e, void *userdata);
int intent_replay(struct intent_log *l, intent_fn each, void *userdata);

int intent_append(struct intent_log *l, struct accepted *e);
int intent_sync(struct intent_log *l);
void intent_done(struct intent_log *l, uint64_t number);

/* For how long the oldest has waited that was appended, and is not over; to some 1/32. */
uint64_t intent_age_ms(const struct intent_log *l, uint64_t now_ms);
/* Entries from before the log was opened wait, up to that number. */
void intent_waits(struct intent_log *l, uint64_t number, uint64_t now_ms);

int intent_dir(const struct intent_log *l);
uint64_t intent_last(const struct intent_log *l);
int intent_wake_fd(const struct intent_log *l); /* an eventfd: something was appended */

#endif
