/*
 * sync.h - the half of limb-syncd that knows what the root looks like: watch,
 * scan, shadow, capture, barrier, tree.
 *
 * The shadow is a table of every entry as it was last captured: (parent, name),
 * node id, stat signature, 16 bytes of its SHA-256, whether the brain has it.
 * Events (watch.c, inotify in a thread of its own) and scans (scan.c)
 * only mark names and directories dirty; capture.c looks at what is dirty,
 * compares it with the shadow and sends CHANGEs; nothing is believed that statx
 * and the bytes do not say.
 *
 *	sync_new(loop, session, root path, private dir, &sy)
 *	sync_hello(sy, &hello)		fills root and shadow fields
 *	sync_welcome(sy, welcome)	begins, or goes on after a re-attach
 *	sync_on_durable(sy, number)
 *	sync_barrier(sy, ...)		answers through its callback
 *
 * The main thread owns everything here; readers of large files and the watcher
 * are threads that get and give messages.
 */
#ifndef SYNCD_SYNC_H
#define SYNCD_SYNC_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "journal/node.h"
#include "syncd/session.h"
#include "wire/wire.pb-c.h"

struct sync;

/* root: absolute path; dir_fd: private directory (cookies live in a watched directory
 * below it). Opens nothing below the root yet. */
int sync_new(uv_loop_t *loop, struct session *session, const char *root, int dir_fd,
	     struct sync **ret);
void sync_free(struct sync *sy);

int sync_root_fd(const struct sync
			 *sy); /* O_PATH-like descriptor of the root, lent; -ENOENT while missing */

/* Measures the root (missing, empty, mark, what its file system can hold) and fills the
 * shadow fields; strings are lent until the next call. */
int sync_hello(struct sync *sy, Limbwire__Hello *hello);
/* MODE_SYNC: resend above durable_number, or TREE_GET and scan. MODE_RESTORE, MODE_HOLD:
 * no CHANGE is sent until sync_start() / another WELCOME. */
int sync_welcome(struct sync *sy, const Limbwire__Welcome *w);
void sync_detached(struct sync *sy); /* transport gone; keeps watching and capturing */
void sync_on_durable(struct sync *sy, uint64_t number);
void sync_on_settings(struct sync *sy, const Limbwire__Settings *m);
void sync_on_data_done(struct sync *sy, const Limbwire__DataDone *m);
void sync_on_tree_part(struct sync *sy,
		       const Limbwire__TreePart *part); /* the shadow from the brain */
void sync_drained(struct sync *sy); /* bulk queue below its mark: go on sending */

/* ---- used by apply and restore ---- */

/* An entry that we made ourselves from the journal: goes into the shadow as had by the
 * brain (racy: it is looked at again). parent and node are journal ids; st from statx
 * after it was finished.  ours: it is a file that has had this ctime since its last byte was
 * written; where each change of a file moves its ctime it need not be read again. */
int sync_adopt(struct sync *sy, uint64_t parent, const char *name, size_t len, uint64_t node,
	       const struct node *n, const struct stat *st, bool ours);
/* RESTORE has come: what was adopted before is forgotten. -EINVAL: WELCOME said nothing of it. */
int sync_restore_begins(struct sync *sy);
/* After RESTORE: watch and scan begin. */
int sync_start(struct sync *sy);
/* After a RESTORE that holds: they begin with a WELCOME of MODE_SYNC. */
void sync_restore_held(struct sync *sy);
/* Are all names of this file beneath the root? The shadow's are counted, those that lead to it
 * still; a file with very many names is taken for one that has others. */
bool sync_has_all_names(const struct sync *sy, const char *path, const struct stat *st);
/* All that is there now, read and hashed, in pre-order; odd: nothing can be equal to it. The last
 * call has no entry, and error if it ended early; with a lost line there is none. */
typedef void (*sync_look_fn)(const Limbwire__TreeEntry *m, const char *path, const struct node *n,
			     uint64_t odd, int error, void *userdata);
int sync_look(struct sync *sy, sync_look_fn fn, void *userdata);
void sync_look_end(struct sync *sy, void *userdata); /* fn() is not called any more */
int sync_private_fd(const struct sync *sy);	     /* the private directory, lent */
/* Has the brain been told of what stands there, as st says it is? */
bool sync_is_known(const struct sync *sy, const char *path, const struct stat *st);
/* Look at this name soon: apply changed it on the brain's request. What is found as apply left
 * it is sent with that origin. */
void sync_touch(struct sync *sy, const char *path, size_t len, uint8_t origin);

/* ---- barriers ---- */

struct sync_result {
	uint64_t number;
	bool quiet;
	int error;			      /* 0, ETIMEDOUT, EIO ... */
	const Limbwire__Unsettled *unsettled; /* lent for the call */
	size_t n_unsettled;
};
typedef void (*sync_done_fn)(const struct sync_result *res, void *userdata);

/* A moment: what is dirty after it. Jobs take one before they start. */
uint64_t sync_mark(struct sync *sy);
/* Everything that became dirty between the mark (0: ever) and now is captured and sent;
 * then done(). settle_ms: how long a file may take to rest before it is `unsettled`
 * (0 = until the deadline). */
int sync_barrier(struct sync *sy, uint64_t since_mark, uint32_t settle_ms, uint32_t deadline_ms,
		 sync_done_fn done, void *userdata);

/* All jobs are descendants of this process; 0: not known. At the end of a job only their
 * mappings of files are looked at; a barrier from ever looks at all processes. */
void sync_set_processes(struct sync *sy, pid_t above);

/* ---- the rest ---- */

void sync_on_tree_get(struct sync *sy,
		      const Limbwire__TreeGet *get); /* verify: walks, hashes, answers */
void sync_on_accept(struct sync *sy, const Limbwire__Accept *a);
/* STATUS is sent by sync.c itself, at most every 250 ms when something changed and
 * every 5 s when not. */

#endif
