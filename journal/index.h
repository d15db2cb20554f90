/*
 * index.h - what the log says, as tables: the tree now, its past, points and
 * jobs of one environment.  LMDB, derived, rebuilt from the log at need.
 *
 * Tables (keys big-endian so that they sort):
 *	meta	 name -> value: format, state (applied seq + chain, counts ...)
 *	dirent	 parent u64, name -> node u64, born u64
 *	name	 node u64, parent u64, name -> nothing	(the way back, link sets)
 *	node	 node u64 -> born, version, links, struct node packed
 *	past_dirent  parent u64, name, 0, died u64 -> node, born
 *	past_node    node, died -> born, version, links, packed
 *	point	 seq -> Point; label -> seq;  job  id -> its records; key -> id
 *	intent	 what the brain's side wants and is not there yet; conflicts
 *	incarnation  u64 -> highest number;  recent  seq -> what changed
 * and beside index.N a file `index` that names the N and says whether that may
 * be trusted (mark.h). Who removes that file has the index made again.
 *
 * Writing (limbd only, one thread):
 *	index_open(dir_fd, INDEX_WRITE, log_dir_fd, &ix);  replays the log's rest
 *	index_begin(ix);			one write transaction
 *	  index_apply(ix, seq, time, type, body/change)	in order of seq
 *	index_commit(ix);			visible to readers; not synced
 *	index_close(ix);			syncs and marks clean
 *
 * Between begin and commit the writer's own lookups (index_writer_txn) see what was
 * applied.  A record that cannot be applied (unknown parent, a cycle, a bad name,
 * not a directory) is -EINVAL with nothing changed: limbd checks with
 * index_check_change() before it appends.  A replay passes such a record over, so
 * that it ends where the writer was (index_refused() counts).  After another
 * error the transaction can only be aborted; commit says -EIO.
 *
 * What operations mean here, beyond FORMAT 4:
 *  - Node 1, a directory, is there from the start, with one link and no name; it
 *    can be PUT, never named, moved or removed.
 *  - A PUT makes a node with an id that was never used; with origin environment,
 *    one below the highest node_grant_end of an INCARNATION. The type of a node
 *    never changes. Without content the file keeps what it had, or is empty.
 *    Attributes under attr.unheld keep their older value, if there is one.
 *  - UNLINK and MOVE refuse a name that is not there, or, when op.node is not 0,
 *    holds another node.
 *  - A directory has at most one name, and none beneath itself. (A move below
 *    more than 8192 directories is refused unseen.)
 *  - Whether a node has names is judged at the end of the change: only then do
 *    nodes without names die, and with a directory all that lies beneath it.
 *
 * Reading: index_read_begin/end around one request, never held longer; any
 * thread.  All values point into the map and hold until index_read_end (the
 * writer's: until the next apply).
 */
#ifndef JOURNAL_INDEX_H
#define JOURNAL_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "journal/change.h"
#include "journal/log.h"
#include "journal/node.h"

#define INDEX_FORMAT 4

struct index;
struct index_txn;

enum index_mode {
	INDEX_WRITE,
	INDEX_READ, /* beside a live writer; -ENOENT while there is none (yet) that can be trusted */
	INDEX_COPY, /* a copied state directory: read-only, no lock; -ESTALE when it needs a rebuild */
};

/* dir_fd: envs/ID.  INDEX_WRITE trusts index.N only when clean, or when its boot id is
 * this boot's; and only when its last record is in the log. Else it makes index.N+1, from
 * the last synced copy (index_sync) or from nothing; then replays the log behind the
 * applied seq. -EAGAIN: there is another writer; -EBADMSG: the log is damaged.
 * INDEX_COPY needs log_dir_fd to compare; INDEX_READ does not use it.
 * A process opens one index once, and does not use it after fork (LMDB's locks).
 * `progress` may be NULL, and is called first with the record behind which a replay begins; `last` is what is known of the log's end, and may grow. */
typedef void (*index_progress_fn)(uint64_t seq, uint64_t last, void *userdata);
int index_open(int dir_fd, enum index_mode mode, int log_dir_fd, index_progress_fn progress,
	       void *userdata, struct index **ret);
void index_close(struct index *ix);
DEFINE_CLEANUP(struct index, index_close);

int index_begin(struct index *ix);
/* Applies one record by type and body (used by replay and by limbd for all types).
 * Records that change nothing here have to come too: they advance index_seq(). */
int index_apply(struct index *ix, const struct log_record *rec);
/* The same for a change at hand, without unpacking. */
int index_apply_change(struct index *ix, uint64_t seq, int64_t time_ns, const struct change *c);
/* Would index_apply_change accept it? Judged inside the open write transaction: 0 or
 * -EINVAL, *ret_why a constant sentence. Ops are judged in order, each on the result of
 * those before it, on an overlay in memory: nothing is written. */
int index_check_change(struct index *ix, const struct change *c, const char **ret_why);
int index_commit(struct index *ix);
void index_abort(struct index *ix);
/* A trusted point: writes a copy of the last commit beside the map and syncs it, from which
 * an open after a loss of power replays. It costs a write of the whole index (some 400 bytes
 * a node: a second a million nodes); any thread, but in the writer's own not between begin
 * and commit. */
int index_sync(struct index *ix);
/* The last record in that copy; -ENOENT: there is none. */
int index_copied(struct index *ix, uint64_t *ret_seq);
/* Frees what dead readers hold (they keep the file growing): each minute, and when a
 * limb-fs died. Returns how many there were. */
int index_reap_readers(struct index *ix);

/* ---- reading; writer: inside begin/commit, with index_writer_txn ---- */

/* -ESTALE: the writer has moved to another index.N (seen within a second): open again. */
int index_read_begin(struct index *ix, struct index_txn **ret);
void index_read_end(struct index_txn *t);
struct index_txn *index_writer_txn(struct index *ix); /* NULL outside begin/commit */

uint64_t index_seq(struct index_txn *t);       /* last applied */
uint64_t index_next_node(struct index_txn *t); /* smallest id never used or granted */
/* Highest id in [first, end) of a node that is or was in the tree; first - 1: none. */
uint64_t index_node_used(struct index_txn *t, uint64_t first, uint64_t end);
uint64_t index_incarnation(struct index_txn *t); /* the newest, by INCARNATION and LEASE; 0 none */
uint64_t index_number(struct index_txn *t, uint64_t incarnation); /* highest number taken, 0 none */
uint64_t index_refused(struct index_txn *t); /* records of the log passed over, whole or in part */

#define INDEX_NOW UINT64_MAX

struct index_node {
	uint64_t id;
	uint64_t version; /* seq of its last PUT */
	uint32_t links;	  /* names that point at it, at that point */
	struct node n;	  /* lent until the end of the transaction */
};

/* at: INDEX_NOW or a sequence number. -ENOENT. */
int index_get_node(struct index_txn *t, uint64_t node, uint64_t at, struct index_node *ret);
/* The content that a node has or had, by its SHA-256: of now and of its last INDEX_VERSIONS
 * states. The node may have died. -ENOENT. */
#define INDEX_VERSIONS 1024
int index_find_content(struct index_txn *t, uint64_t node, const uint8_t sha256[SHA256_BYTES],
		       struct content_ref *ret);
int index_lookup(struct index_txn *t, uint64_t parent, const char *name, size_t len, uint64_t at,
		 uint64_t *ret_node);
/* The entry of this name that went last with record `at` or before it: what it led to, and the
 * record with which it went. -ENOENT: none did. */
int index_last_entry(struct index_txn *t, uint64_t parent, const char *name, size_t len,
		     uint64_t at, uint64_t *ret_node, uint64_t *ret_died);
/* Path from the root, components separated by '/' (empty ones are passed over, so "" is the
 * root), no link followed. -ENOENT, -ENOTDIR. */
int index_lookup_path(struct index_txn *t, const char *path, size_t len, uint64_t at,
		      uint64_t *ret_node);
/* Entries of a directory after the name `after` (NULL: from the first), bytewise order;
 * each() returns 0 to go on, 1 to stop (the answer is 0 then), or an error to end with; so
 * do all callbacks here. */
typedef int (*index_entry_fn)(const char *name, size_t len, uint64_t node, void *userdata);
int index_list(struct index_txn *t, uint64_t dir, const char *after, size_t after_len, uint64_t at,
	       index_entry_fn each, void *userdata);
/* Names of a node now. */
typedef int (*index_name_fn)(uint64_t parent, const char *name, size_t len, void *userdata);
int index_names(struct index_txn *t, uint64_t node, index_name_fn each, void *userdata);
/* One path of a node now ("" for the root), appended to out. -ENOENT when unlinked,
 * -ENAMETOOLONG above INDEX_PATH_MAX. */
#define INDEX_PATH_MAX (64u << 10)
int index_path(struct index_txn *t, uint64_t node, struct buf *out);

/* The tree at a point in canonical order (FORMAT 8), the root's entry left out; paths and
 * numbers begin at from_node. path holds for the call. same_as: FORMAT 8. -ENOTDIR;
 * -ENAMETOOLONG above INDEX_PATH_MAX (each path is hashed: so a tree of nothing but
 * nested directories cannot cost hours). each() may return INDEX_WALK_SKIP: not into this
 * directory. */
#define INDEX_WALK_SKIP 2
typedef int (*index_walk_fn)(const char *path, size_t len, const struct index_node *n,
			     uint32_t same_as, void *userdata);
int index_walk(struct index_txn *t, uint64_t from_node, uint64_t at, index_walk_fn each,
	       void *userdata);
/* Which directory an entry of a walk from the root is in, told each in its order. *ret_name: where
 * in the path its name begins. `nodes` is the caller's to free. */
struct index_walk_dirs {
	uint64_t *nodes;
	size_t cap;
};
int index_walk_parent(struct index_walk_dirs *d, const char *path, size_t len, uint64_t node,
		      uint64_t *ret_parent, size_t *ret_name);
int index_tree_hash(struct index_txn *t, uint64_t at, uint32_t mask, uint8_t content[SHA256_BYTES],
		    uint8_t full[SHA256_BYTES]);

struct index_counts {
	uint64_t files, directories, symlinks, others, bytes;
};
/* Now; kept, O(1). The root is left out; bytes are sizes of files, each node once. */
int index_counts(struct index_txn *t, struct index_counts *ret);

/* What changed after `since`, in order of seq, for a follower (limb-fs): a node whose
 * attributes, content or number of links changed, or an entry of a directory. A table
 * `recent` of the last INDEX_RECENT records serves it; -EOVERFLOW when since is older than
 * that, or when one record changed very much (a large subtree removed): look at all. */
#define INDEX_RECENT 65536
struct index_recent {
	uint64_t seq;
	uint64_t node;	 /* it changed or died (0 = none) */
	uint64_t parent; /* this directory's entry `name` changed (0 = none) */
	const char *name;
	size_t name_len;
};
typedef int (*index_recent_fn)(const struct index_recent *r, void *userdata);
int index_recent(struct index_txn *t, uint64_t since, index_recent_fn each, void *userdata);

/* ---- points and jobs ---- */

struct index_point {
	uint64_t seq;			/* of the POINT record */
	uint64_t at_seq;		/* the position that it marks */
	int64_t time_ns;		/* when it was recorded */
	const char *label, *kind, *job; /* bytes, not NUL-terminated; length 0: none */
	size_t label_len, kind_len, job_len;
	bool consistent;
};
typedef int (*index_point_fn)(const struct index_point *p, void *userdata);
/* Points recorded before seq `before` (INDEX_NOW: all), the newest first. */
int index_points(struct index_txn *t, uint64_t before, index_point_fn each, void *userdata);
/* The position of the newest point with this label; -ENOENT. */
int index_label(struct index_txn *t, const char *label, uint64_t *ret_at_seq);
/* A job's records. seq 0: there is none (yet). Bodies as in the log, lent. */
struct index_job_record {
	uint64_t seq;
	int64_t time_ns;
	const uint8_t *body;
	size_t n;
};
struct index_job {
	const char *id; /* not NUL-terminated */
	size_t id_len;
	struct index_job_record start, end;
};
int index_job(struct index_txn *t, const char *job, struct index_job *ret); /* -ENOENT */
/* The first job that was started with this key: id_len and id. */
#define INDEX_KEY_MAX 200
int index_job_by_key(struct index_txn *t, const char *key, const char **ret_id, size_t *ret_len);
typedef int (*index_job_fn)(const struct index_job *job, void *userdata);
/* All, by id, the last one first: ids of jobs begin with their time. */
int index_jobs(struct index_txn *t, index_job_fn each, void *userdata);
/* Those without an end. */
int index_jobs_open(struct index_txn *t, index_job_fn each, void *userdata);

/* ---- changes of the brain's side ---- */

/* Bodies (`Record`) as in the log, lent. */
struct index_intent {
	uint64_t change; /* its number */
	uint64_t seq;
	int64_t time_ns;
	int error; /* errno for which it was refused (unapplied); 0: it waits */
	const uint8_t *body;
	size_t n;
};
typedef int (*index_intent_fn)(const struct index_intent *in, void *userdata);
/* Those that wait or are unapplied, in order of number. */
int index_intents(struct index_txn *t, index_intent_fn each, void *userdata);
/* INTENT_END bodies, as long as an intent waits; error is 0. */
int index_intent_ends(struct index_txn *t, index_intent_fn each, void *userdata);
/* Conflicts that nobody has resolved; body is that of CONFLICT. */
int index_conflicts(struct index_txn *t, index_intent_fn each, void *userdata);
uint64_t index_conflict_count(struct index_txn *t);
uint64_t index_last_change(struct index_txn *t); /* highest number given to an intent, 0 none */
/* Of the newest intent that came from a view, the entry of its log (accepted.h); 0: none did. */
void index_view_place(struct index_txn *t, uint64_t *ret_epoch, uint64_t *ret_number);

/* Values of the table meta by name: "format" u32; "incarnation_body", the body of the newest
 * INCARNATION record. -ENOENT. */
int index_meta_get(struct index_txn *t, const char *key, const void **ret, size_t *ret_n);

#endif
