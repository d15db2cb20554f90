/*
 * index-impl.h - what the files of the index share; for index*.c alone.
 *
 *	index-open.c	which index.N is opened, and the log behind it replayed
 *	index-env.c	LMDB, synced copies
 *	index-row.c	keys and rows as bytes
 *	index-plan.c	judges a change on an overlay of the tables, writes nothing
 *	index-apply.c	writes a planned change; records of the other types
 *	index-prune.c	removes what lies beneath a directory that died
 *	index-recent.c	what changed last, for followers
 *	index-read.c	nodes, names, paths; now and at a point
 *	index-walk.c	directories in order, trees, tree hashes
 *	index-point.c	points
 *	index-job.c	jobs
 *	index-intent.c	what the brain's side wants, and conflicts
 *
 * A row of `node` is born when its attributes, content or number of links
 * change; its version is the last PUT alone.  A closed row (or entry) lives in
 * the past table under the sequence at which it died, so that the state at P is
 * the row with born <= P < died.  Keys are big-endian; no name has a zero byte,
 * so "name, 0, died" sorts by name first.
 */
#ifndef JOURNAL_INDEX_IMPL_H
#define JOURNAL_INDEX_IMPL_H

#include <lmdb.h>
#include <stdatomic.h>

#include "base/util.h"
#include "journal/arena.h"
#include "journal/body.h"
#include "journal/index.h"
#include "journal/mark.h"

enum index_table {
	TABLE_META,
	TABLE_DIRENT,
	TABLE_NAME,
	TABLE_NODE,
	TABLE_PAST_DIRENT,
	TABLE_PAST_NODE,
	TABLE_POINT,
	TABLE_LABEL,
	TABLE_JOB,
	TABLE_INCARNATION,
	TABLE_RECENT,
	TABLE_INTENT,
	N_TABLES,
};

/* Followers get at most this many entries of one record; beyond it they look at all. */
#define RECENT_ENTRIES_MAX 4096

/* Kept as one row of `meta`, written once a commit. */
struct index_state {
	uint64_t seq;
	int64_t time_ns; /* of the record seq: with the chain, whether a log is ours */
	bool chain_known;
	uint8_t chain[SHA256_BYTES];
	uint8_t log_id[16];
	uint64_t next_used; /* above every node id in the log */
	uint64_t granted_end;
	uint64_t incarnation;
	uint64_t recent_floor; /* `recent` tells all that came after it */
	uint64_t refused;
	bool purged; /* a CHANGE had no body: what builds on it is skipped */
	struct index_counts counts;
};

struct plan_node {
	uint64_t id;
	const uint8_t *old; /* its row before the change; NULL: none */
	size_t old_len;
	uint32_t old_links, links;
	uint8_t type; /* 0: there is no such node */
	bool put;
	struct node *n; /* with put: what it became */
};

struct plan_dirent {
	uint64_t parent;
	const char *name;
	uint16_t len;
	uint64_t old_node, old_born; /* 0: there was none */
	uint64_t node;
};

/* An operation touches at most 4 nodes (both parents, the node, what the name held) and 2 names. */
struct plan {
	size_t n_nodes, n_dirents;
	struct plan_node nodes[4 * CHANGE_OPS_MAX];
	struct plan_dirent dirents[2 * CHANGE_OPS_MAX];
};

struct index_txn {
	struct index *ix;
	MDB_txn *txn;
	bool writer;
	bool state_loaded;
	struct index_state state;
	MDB_cursor *cursors[N_TABLES]; /* opened at first use */
};

struct index {
	enum index_mode mode;
	int dir_fd, lock_fd;
	uint64_t number;
	MDB_env *env;
	MDB_dbi dbi[N_TABLES];

	/* A reader looks now and then whether the writer has moved to another index. */
	struct mark mark;
	_Atomic uint64_t look_ms;
	_Atomic bool moved;

	/* The rest is the writer's. */
	bool failed; /* a commit failed: never marked clean */
	bool replaying;
	uint64_t replay_last; /* the log goes on to here at least */
	struct index_txn writer;
	struct index_state state; /* between begin and commit */
	bool touched;		  /* there is something to commit */
	bool spoilt;		  /* a record was half written */
	uint64_t names_next;	  /* no row of `name` is of this node or a higher one */
	uint64_t number_of;	  /* the incarnation whose number is cached */
	uint64_t highest_number;
	bool number_changed;
	struct arena arena;
	struct plan plan;
	struct buf recent; /* entries of the record at hand */
	size_t n_recent;
	struct buf row;
};

int index_error(int mdb_rc);

extern const struct mark_kind index_mark; /* index-open.c */

/* ---- index-env.c ---- */

/* Opens index.NUMBER, which exists; with `create` its tables are made. */
int index_env_open(struct index *ix, uint64_t number, bool create);
void index_env_close(struct index *ix);
/* Begins index.NUMBER, an empty directory, with the synced copy in index.OLD, and keeps
 * that as its own. */
int env_take_copy(struct index *ix, uint64_t old, uint64_t number);

/* ---- index-open.c ---- */

/* A reader: has the writer put another index.N in place? Looked at once a second. */
bool index_moved(struct index *ix);

/* ---- index-row.c ---- */

#define KEY_MAX (8 + 8 + NODE_NAME_MAX + 1 + 8)

struct key {
	size_t len;
	uint8_t b[KEY_MAX];
};

static inline MDB_val key_val(const struct key *k)
{
	return (MDB_val){.mv_size = k->len, .mv_data = (uint8_t *)(uintptr_t)k->b};
}

void key_u64(struct key *k, uint64_t a);
void key_u64_pair(struct key *k, uint64_t a, uint64_t b);
void key_dirent(struct key *k, uint64_t parent, const char *name, size_t len);
void key_name(struct key *k, uint64_t node, uint64_t parent, const char *name, size_t len);
void key_past_dirent(struct key *k, uint64_t parent, const char *name, size_t len, uint64_t died);

/* Rows of `node` and `past_node`. */
struct node_row {
	uint64_t born, version;
	uint32_t links;
	uint8_t type;
};
int node_row_head(const void *p, size_t len, struct node_row *ret); /* -EBADMSG */
int node_row_parse(const void *p, size_t len, uint64_t *ret_born, struct index_node *ret);
int node_row_pack(struct buf *b, uint64_t born, uint64_t version, uint32_t links,
		  const struct node *n);
void node_row_set(void *p, uint64_t born, uint32_t links); /* in place */

/* Rows of `dirent` and `past_dirent`. */
#define DIRENT_ROW_BYTES 16
void dirent_row_pack(uint8_t out[DIRENT_ROW_BYTES], uint64_t node, uint64_t born);
int dirent_row_parse(const MDB_val *v, uint64_t *ret_node, uint64_t *ret_born);

#define STATE_ROW_BYTES 148
void state_row_pack(uint8_t out[STATE_ROW_BYTES], const struct index_state *s);
int state_row_parse(const MDB_val *v, struct index_state *ret);

/* ---- index-plan.c ---- */

/* Plans c on the tables of the open write transaction: -EINVAL with *ret_why, else an
 * LMDB error. With `lenient` an operation that is refused is skipped and counted. */
int plan_change(struct index *ix, const struct change *c, bool lenient, unsigned *ret_skipped,
		const char **ret_why);

/* ---- index-apply.c ---- */

int table_get(struct index *ix, enum index_table t, const struct key *k, MDB_val *ret);
int table_put(struct index *ix, enum index_table t, const struct key *k, const void *p, size_t n,
	      unsigned flags);
int table_del(struct index *ix, enum index_table t, const struct key *k);
/* Moves the row that is now old to the past, unless the same record made it. */
int past_node_put(struct index *ix, uint64_t node, const void *row, size_t n, uint64_t died);
int past_dirent_put(struct index *ix, uint64_t parent, const char *name, size_t len, uint64_t node,
		    uint64_t born, uint64_t died);
void counts_add(struct index *ix, uint64_t node, const struct node *n, int sign);
/* Advances past a record that changes no tree. */
void state_advance(struct index *ix, const struct log_record *rec);

/* ---- index-prune.c ---- */

int prune(struct index *ix, uint64_t directory, uint64_t seq);

/* ---- index-recent.c ---- */

int recent_add_node(struct index *ix, uint64_t node);
int recent_add_entry(struct index *ix, uint64_t parent, const char *name, size_t len);
int recent_write(struct index *ix, uint64_t seq);
int recent_trim(struct index *ix);

/* ---- index-read.c ---- */

int txn_cursor(struct index_txn *t, enum index_table table, MDB_cursor **ret);
void txn_close_cursors(struct index_txn *t);
int txn_state(struct index_txn *t, const struct index_state **ret);
int get_state(struct index *ix, MDB_txn *txn, struct index_state *ret);

/* ---- index-point.c ---- */

void key_text(struct key *k, const char *s); /* at most 255 bytes */
int point_apply(struct index *ix, const struct log_record *rec, const Limb__Record *body);

/* ---- index-job.c ---- */

int job_apply(struct index *ix, const struct log_record *rec, const Limb__Record *body);

/* ---- index-intent.c ---- */

int intent_apply(struct index *ix, const struct log_record *rec, const Limb__Record *body);

#endif
