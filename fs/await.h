/*
 * await.h - answers that wait until the environment has made the change (class `strong`).
 *
 * Under the overlay's lock, before the entries are in the log, a waiter is made: so what limbd
 * says of them cannot come too early. The answer is given to it instead of to the kernel, and
 * a thread of its own hands it on:
 *
 *	0, or the environment's errno	limbd said that all up to its last entry is over
 *	EBUSY		there was another change to the same: it is a conflict, and listed
 *	EINTR		the caller has a signal
 *	ETIMEDOUT	AWAIT_MS passed, or AWAIT_AWAY_MS without a line, or limbd went away:
 *			nobody knows; the change goes on waiting, as one of class ordered would
 *
 * No thread that answers waits here, and no lock is held over an answer.  What the kernel
 * thought of the names is doubtful after an error, so it is told to ask again.
 *
 *	w = await_new(fs->await, first)		entries from this number on
 *	await_until(w, last)
 *	await_answer(w, req, &answer)		or await_drop(w)
 */
#ifndef FS_AWAIT_H
#define FS_AWAIT_H

#include "fs/ops.h"

#define AWAIT_MS 30000
#define AWAIT_AWAY_MS 5000

struct answer {
	enum { ANSWER_NOTHING, ANSWER_ENTRY, ANSWER_CREATE, ANSWER_ATTR, ANSWER_WRITE } kind;
	struct fuse_entry_param entry; /* its lookup is counted, and is not after an error */
	struct fuse_file_info fi;
	struct stat attr;
	double attr_timeout_s;
	size_t written;
};
/* r < 0: that error instead. */
void answer_give(struct fs *fs, fuse_req_t req, int r, const struct answer *a);

struct await;
struct waiter;

/* To limbd: somebody waits for an entry; all of these were refused, and their caller was told. */
struct await_words {
	void (*waits)(uint64_t last, void *userdata);
	void (*told)(uint64_t first, uint64_t last, void *userdata);
	void *userdata;
};
int await_start(struct fs *fs, const struct await_words *words, struct await **ret);
void await_stop(struct await *a); /* who waits gets ETIMEDOUT; NULL is fine */
void await_free(struct await *a); /* when nothing is asked any more */

struct waiter *await_new(struct await *a, uint64_t first); /* NULL: no memory */
void await_until(struct waiter *w, uint64_t last);
void await_name(struct waiter *w, uint64_t parent, const char *name); /* one that it changes */
/* Attributes in it do not count as known: they may be told of meanwhile. */
void await_answer(struct waiter *w, fuse_req_t req, const struct answer *a);
void await_drop(struct waiter *w); /* NULL is fine */

/* What limbd says. */
void await_refused(struct await *a, uint64_t number, int error);
void await_over(struct await *a, uint64_t number);
void await_lost(struct await *a); /* it went away */

/* Is all up to that over? */
bool await_is_over(struct await *a, uint64_t number);

#endif
