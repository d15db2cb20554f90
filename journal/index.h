/*
 * index.h - what the log says, as tables: the tree now, its past, points and
 * jobs of one environment.  LMDB, derived, rebuilt from the log at need.
 *
 * Tables (keys big-endian so that they sort):
 *	meta	 name -> value: format, log id, applied seq + chain, boot id, clean
 *	dirent	 parent u64, name -> node u64, born u64
 *	name	 node u64, parent u64, name -> born	(the way back, link sets)
 *	node	 node u64 -> version (= born), links, struct node packed
 *	past_dirent  parent, name-length u8.. , name, died u64 -> node, born
 *	past_node    node, died -> version, links, packed
 *	point	 seq -> Point; label -> seq;  job  id -> start/end seqs
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
 * index_check_change() before it appends.
 *
 * Reading: index_read_begin/end around one request, never held longer; any
 * thread.  All values point into the map and hold until index_read_end.
 */
#ifndef JOURNAL_INDEX_H
#define JOURNAL_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "journal/change.h"
#include "journal/log.h"
#include "journal/node.h"

#define INDEX_FORMAT 1

struct index;
struct index_txn;

enum index_mode {
	INDEX_WRITE,
	INDEX_READ, /* beside a live writer; -ENOENT while there is none yet */
	INDEX_COPY, /* a copied state directory: read-only, no lock; -ESTALE when it needs a rebuild */
};

/* dir_fd: envs/ID.  INDEX_WRITE trusts index.N only when clean, or when its boot id is
 * this boot's; else it makes a new one; then replays the log behind the applied seq.
 * `progress` may be NULL. */
typedef void (*index_progress_fn)(uint64_t seq, uint64_t last, void *userdata);
int index_open(int dir_fd, enum index_mode mode, int log_dir_fd, index_progress_fn progress,
	       void *userdata, struct index **ret);
void index_close(struct index *ix);
DEFINE_CLEANUP(struct index, index_close);

int index_begin(struct index *ix);
/* Applies one record by type and body (used by replay and by limbd for all types). */
int index_apply(struct index *ix, const struct log_record *rec);
/* The same for a change at hand, without unpacking. */
int index_apply_change(struct index *ix, uint64_t seq, int64_t time_ns, const struct change *c);
/* Would index_apply_change accept it? Judged inside the open write transaction: 0 or
 * -EINVAL, *ret_why a constant sentence. Ops are judged in order, each on the result of
 * those before it. */
int index_check_change(struct index *ix, const struct change *c, const char **ret_why);
int index_commit(struct index *ix);
void index_abort(struct index *ix);
int index_sync(struct index *ix); /* fsync of the map: a trusted point */

/* ---- reading; writer: inside begin/commit, with index_writer_txn ---- */

int index_read_begin(struct index *ix, struct index_txn **ret);
void index_read_end(struct index_txn *t);
struct index_txn *index_writer_txn(struct index *ix);

uint64_t index_seq(struct index_txn *t);	 /* last applied */
uint64_t index_next_node(struct index_txn *t); /* smallest id never used or granted */
uint64_t index_incarnation(struct index_txn *t);
uint64_t index_number(struct index_txn *t, uint64_t incarnation); /* highest number taken, 0 none */

#define INDEX_NOW UINT64_MAX

struct index_node {
	uint64_t id;
	uint64_t version; /* seq that made it */
	uint32_t links;	  /* names that point at it now */
	struct node n;	  /* lent until the end of the transaction */
};

/* at: INDEX_NOW or a sequence number. -ENOENT. */
int index_get_node(struct index_txn *t, uint64_t node, uint64_t at, struct index_node *ret);
int index_lookup(struct index_txn *t, uint64_t parent, const char *name, size_t len, uint64_t at,
		 uint64_t *ret_node);
/* Path from the root, components separated by '/', no link followed. -ENOENT, -ENOTDIR. */
int index_lookup_path(struct index_txn *t, const char *path, size_t len, uint64_t at,
		      uint64_t *ret_node);
/* Entries of a directory after the name `after` (NULL: from the first), bytewise order;
 * each() returns 0 to go on, 1 to stop. */
typedef int (*index_entry_fn)(const char *name, size_t len, uint64_t node, void *userdata);
int index_list(struct index_txn *t, uint64_t dir, const char *after, size_t after_len, uint64_t at,
	       index_entry_fn each, void *userdata);
/* Names of a node now. */
typedef int (*index_name_fn)(uint64_t parent, const char *name, size_t len, void *userdata);
int index_names(struct index_txn *t, uint64_t node, index_name_fn each, void *userdata);
/* One path of a node now ("" for the root), appended to out. -ENOENT when unlinked. */
int index_path(struct index_txn *t, uint64_t node, struct buf *out);

/* The tree at a point in canonical order (FORMAT 8), the root's entry left out.
 * path holds for the call. */
typedef int (*index_walk_fn)(const char *path, size_t len, const struct index_node *n,
			     uint32_t same_as, void *userdata);
int index_walk(struct index_txn *t, uint64_t from_node, uint64_t at, index_walk_fn each,
	       void *userdata);
int index_tree_hash(struct index_txn *t, uint64_t at, uint32_t mask, uint8_t content[SHA256_BYTES],
		    uint8_t full[SHA256_BYTES]);

struct index_counts {
	uint64_t files, directories, symlinks, others, bytes;
};
int index_counts(struct index_txn *t, struct index_counts *ret); /* now; kept, O(1) */

/* Nodes whose now-version is newer than `since`, in order of version, for a follower
 * (limb-fs): each(node, version, died). A table `recent` (seq, node, parent) of the last
 * INDEX_RECENT changes serves it; -EOVERFLOW when since is older than that: look at all. */
#define INDEX_RECENT 65536
struct index_recent {
	uint64_t seq;
	uint64_t node;	 /* its attributes or content changed, or it died (0 = none) */
	uint64_t parent; /* this directory's entry `name` changed (0 = none) */
	const char *name;
	size_t name_len;
};
typedef int (*index_recent_fn)(const struct index_recent *r, void *userdata);
int index_recent(struct index_txn *t, uint64_t since, index_recent_fn each, void *userdata);

/* meta values for limbd (small, by name). */
int index_meta_get(struct index_txn *t, const char *key, const void **ret, size_t *ret_n);

#endif
