/*
 * overlay.h - what was written in the view and is not seen back yet, laid over the index:
 * names and nodes, in memory, made again from the intent log after a crash.
 *
 * A node's id is the kernel's.  What the journal has is called by the journal's id; what the
 * view makes gets an id of its own (OVERLAY_MADE), and keeps it as long as the kernel knows
 * it: `journal` is then what it became.  (A file that an APPLY replaced becomes another node
 * of the journal, too, under its old id here.)
 *
 * All functions but the first group need the lock: to read, overlay_read_lock() from before
 * the read transaction until the answer counts as known (nodes_hold), to change,
 * overlay_lock(). Nobody holds it over a reply or a notification. They do nothing for a view
 * without an overlay (NULL).
 */
#ifndef FS_OVERLAY_H
#define FS_OVERLAY_H

#include <pthread.h>

#include "fs/fs.h"
#include "fs/intent.h"

#define OVERLAY_MADE (1ull << 61)

struct overlay;
/* What the log has is in it; the source must be open. */
int overlay_new(struct fs *fs, int env_fd, struct overlay **ret);
void overlay_free(struct overlay *ov);
DEFINE_CLEANUP(struct overlay, overlay_free);

void overlay_read_lock(struct overlay *ov);
void overlay_lock(struct overlay *ov);
void overlay_unlock(struct overlay *ov);

/* ---- the tree that is shown ---- */

/* As index_lookup(), index_last_node(), index_list(), index_names(); ids are the kernel's. */
int overlay_lookup(struct overlay *ov, struct index_txn *t, uint64_t dir, const char *name,
		   size_t len, uint64_t *ret);
int overlay_node(struct overlay *ov, struct index_txn *t, uint64_t id, struct index_node *ret);
/* Names may come that overlay_lookup() does not find. */
int overlay_list(struct overlay *ov, struct index_txn *t, uint64_t dir, index_entry_fn each,
		 void *userdata);
bool overlay_dir_is_empty(struct overlay *ov, struct index_txn *t, uint64_t dir);
/* One name of it. -ENOENT. */
int overlay_name(struct overlay *ov, struct index_txn *t, uint64_t id, uint64_t *ret_parent,
		 char ret_name[NODE_NAME_MAX + 1]);
/* Path from the root, appended. -ENOENT: it has no name (any more). */
int overlay_path(struct overlay *ov, struct index_txn *t, uint64_t id, struct buf *out);

/* The journal's id of a kernel's, 0: it has none; and the other way. */
uint64_t overlay_journal(struct overlay *ov, uint64_t id);
uint64_t overlay_shown(struct overlay *ov, uint64_t journal);
/* Does the overlay say what it is, whatever the index has? */
bool overlay_masks_entry(struct overlay *ov, uint64_t dir, const char *name, size_t len);
bool overlay_masks_node(struct overlay *ov, uint64_t id);

/* A descriptor of the staged bytes of a file, to read; -ENOENT: the index has them. */
int overlay_bytes(struct overlay *ov, uint64_t id);

/* ---- its parts, for intent's writers (change.h), settle.h, keeper.h ---- */

enum onode_bytes { BYTES_INDEX, BYTES_STAGE, BYTES_DATA };

struct oentry {
	struct oentry *next, *sibling;
	uint64_t parent, node; /* node 0: nothing there */
	uint64_t stamp;
	uint16_t len;
	char name[];
};

struct onode {
	struct onode *next, *next_journal;
	uint64_t id, journal;
	bool numbered; /* journal was another: it is shown with the inode number of that */
	uint64_t inode;
	uint64_t stamp;
	bool over;    /* n and links say what it is */
	bool written; /* since its last version; not for the keeper while unlinked */
	uint32_t links;
	struct node n; /* target and xattrs are its own */
	enum onode_bytes bytes;
	uint64_t data;	     /* BYTES_DATA: number */
	uint64_t file_bytes; /* of that file, or of the staging one, as counted */
	bool has_base;	     /* of the bytes in stage: what they replace */
	struct content_ref base;
	uint64_t base_seq;
	uint64_t stage, stage_ms;    /* its newest STAGE: number, when */
	uint64_t write_ms, quiet_ms; /* last write; how long without one makes a version */
	struct oentry *entries;	     /* of a directory */
	uint64_t parent;	     /* the name that it got last */
	char *name;
	char *path; /* where it was at its newest STAGE; NULL: nowhere */
};

struct overlay {
	struct fs *fs;
	struct intent_log *log;
	pthread_rwlock_t lock;
	struct onode **nodes, **journals;
	struct oentry **entries;
	size_t n_slots, n_nodes, n_entries, n_written;
	uint64_t next_id;
	uint64_t at;	      /* of the index: INDEX_NOW, but while the log is replayed */
	uint64_t done;	      /* up to this all is over */
	uint64_t last_change; /* number of the last entry that is one */
	uint64_t staged_bytes;
	struct told { /* by limbd, and not taken yet: all up to number is over, as of `at` */
		uint64_t number, at;
	} * told;
	size_t n_told, told_room;
	struct old_data { /* of versions that a newer one replaced; limbd may not have read them */
		uint64_t number, size_bytes;
	} * old;
	size_t n_old, old_room;
};

struct onode *overlay_find(struct overlay *ov, uint64_t id);
struct onode *overlay_make(struct overlay *ov, uint64_t id); /* NULL: no memory */
/* With `over`, filled from the index if it was not. */
int overlay_take_over(struct overlay *ov, struct index_txn *t, uint64_t id, struct onode **ret);
void overlay_set_journal(struct overlay *ov, struct onode *o, uint64_t journal);
struct oentry *overlay_entry(struct overlay *ov, uint64_t dir, const char *name, size_t len);
int overlay_set_entry(struct overlay *ov, uint64_t dir, const char *name, size_t len, uint64_t node,
		      uint64_t stamp);
void overlay_drop_entry(struct overlay *ov, struct oentry *e);
/* Any that leads to it, by a look at all: of several names the one that it got last may be gone. */
const struct oentry *overlay_entry_of(struct overlay *ov, uint64_t node);
/* Frees it if nothing needs it; the kernel may know it. */
void overlay_tidy(struct overlay *ov, struct onode *o);
void overlay_drop_bytes(struct overlay *ov, struct onode *o);
void overlay_count_bytes(struct overlay *ov, struct onode *o, uint64_t size_bytes);
/* Its data stays for limbd until all up to its number is over. */
int overlay_keep_old(struct overlay *ov, struct onode *o);
void overlay_drop_old(struct overlay *ov, uint64_t done);
int onode_set_target(struct onode *o, const void *target, size_t n);
int onode_set_xattrs(struct onode *o, const void *xattrs, size_t n);
int onode_set_name(struct onode *o, uint64_t parent, const char *name, size_t len);
int onode_set_path(struct onode *o, const char *path); /* "": nowhere */
/* It has that one no more: another may, and is not it. */
void onode_drop_name(struct onode *o, uint64_t parent, const char *name);

#endif
