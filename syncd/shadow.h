/*
 * shadow.h - the tree as the brain has been told it, in little memory.
 *
 * Nodes (what has content and attributes) and entries (names of them) live in
 * chunked tables and are known by 32-bit indices; 0 is none.  Names are packed
 * in an arena.  Found by (directory, name), by (device, inode) and, directories
 * only, by node id.  An inode is a hint: ids are given out again, so whoever
 * finds a node by it compares generation and type.
 *
 *	shadow_init(&sh);
 *	n = shadow_add_node(&sh, id, &sig);
 *	e = shadow_link(&sh, directory, name, len, n);
 *	shadow_detach(&sh, e)	  subtree no longer found; shadow_attach() undoes it,
 *				  shadow_free_detached() ends it
 *
 * Nothing here does I/O or knows the wire.  A detached subtree keeps its memory
 * because an UNLINK that the brain has not acknowledged may be rolled back
 * (undo.h).
 */
#ifndef SYNCD_SHADOW_H
#define SYNCD_SHADOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

enum {
	SHADOW_SHA_BYTES = 16,
	SHADOW_ROOT = 1, /* index of the root's node, always there */
};

enum shadow_flag {
	SHADOW_FOREIGN = 1 << 0, /* inode and ctime are another machine's: go by name */
	SHADOW_RACY =
		1 << 1, /* captured too soon after its last change: equal stat proves nothing */
	SHADOW_TORN = 1 << 2,	    /* the version sent never rested */
	SHADOW_DETACHED = 1 << 3,   /* on the node of an entry that is unlinked */
	SHADOW_ZOMBIE = 1 << 4,	    /* freed, but pinned */
	SHADOW_MOUNTED = 1 << 5,    /* another device or mount: kept, not entered */
	SHADOW_UNREADABLE = 1 << 6, /* its directory or content could not be read last time */
	SHADOW_SEEN = 1 << 7,	    /* scratch of one listing */
	SHADOW_BOUNDARY = 1 << 8,   /* directory captured as a mount point */
	SHADOW_IGNORED = 1 << 10,   /* directory that is left out by a rule */
	SHADOW_OURS = 1 << 11,	    /* written by a restore: bytes are known, stat is not told */
	SHADOW_UNKNOWN = 1 << 9,    /* content was never compared since it came from the brain */
};

struct shadow_node {
	uint64_t id; /* the journal's */
	uint64_t inode;
	uint64_t size; /* devices: the device number */
	int64_t mtime_ns, ctime_ns;
	uint8_t sha[SHADOW_SHA_BYTES]; /* of bytes, or of a link's target */
	uint32_t uid, gid;
	uint32_t generation; /* folded birth time, 0 = unknown */
	uint32_t flags;
	uint32_t entries; /* first of its names */
	uint32_t dir;	  /* directories: index of its struct shadow_dir */
	uint16_t mode;	  /* S_IF... | 07777 */
	uint16_t device;  /* 0 = the root's, else index + 1 in the table of devices */
	uint32_t refs;	  /* entries, detached ones too */
};

struct shadow_entry {
	uint32_t node, parent; /* nodes */
	uint32_t name;	       /* in the arena */
	uint32_t next, prev;   /* in the directory */
	uint32_t same;	       /* next name of the node */
};

struct shadow_dir {
	uint32_t first; /* child entry */
	uint32_t children;
	uint32_t pins;		/* work under way that holds the directory's index */
	int wd;			/* 0 = not watched */
	uint32_t polled;	/* position + 1 in the list of polled directories */
	uint32_t ignored_names; /* in it, when it was listed last */
	uint64_t ignored_bytes;
};

struct shadow_table {
	void **chunks;
	uint32_t n_chunks, next, free;
	uint32_t size;
};

struct shadow_hash {
	uint32_t *slots;
	uint32_t mask; /* slots - 1 */
	uint32_t used;
};

struct shadow {
	struct shadow_table nodes, entries, dirs;
	struct shadow_hash by_name, by_inode, by_id;
	uint8_t **arena;
	uint32_t arena_chunks, arena_next; /* unit of 8 bytes */
	uint32_t arena_free[34];
	uint64_t devices[64];
	uint32_t n_devices;
	uint64_t n_nodes, n_dirs; /* attached, without the root */
};

int shadow_init(struct shadow *sh); /* with a root of id 1, FOREIGN */
void shadow_done(struct shadow *sh);

struct shadow_node *shadow_node(const struct shadow *sh, uint32_t n);
struct shadow_entry *shadow_entry(const struct shadow *sh, uint32_t e);
struct shadow_dir *shadow_dir(const struct shadow *sh, uint32_t n); /* NULL if no directory */
const char *shadow_name(const struct shadow *sh, uint32_t e, uint8_t *ret_len); /* lent, no NUL */

/* 0 = not there. */
uint32_t shadow_find(const struct shadow *sh, uint32_t dir, const char *name, size_t len);
/* Attached nodes of that inode one after the other: start with *pos = 0; 0 = no more. */
uint32_t shadow_find_inode(const struct shadow *sh, uint16_t device, uint64_t inode, uint32_t *pos);
uint32_t shadow_find_id(const struct shadow *sh, uint64_t id); /* directories */

/* st has everything but entries, dir and refs. 0 = no memory. */
uint32_t shadow_add_node(struct shadow *sh, const struct shadow_node *st);
/* Frees a node without names. */
void shadow_free_node(struct shadow *sh, uint32_t n);
/* Changes inode and device, and all else but names, in place. */
void shadow_set_node(struct shadow *sh, uint32_t n, const struct shadow_node *st);

/* The name must be free. 0 = no memory. */
uint32_t shadow_link(struct shadow *sh, uint32_t dir, const char *name, size_t len, uint32_t n);
/* e gets another place; what was there must be gone. *ret_old_name may be given back to
 * shadow_move_back() or shadow_free_name(). */
int shadow_move(struct shadow *sh, uint32_t e, uint32_t dir, const char *name, size_t len,
		uint32_t *ret_old_name);
void shadow_move_back(struct shadow *sh, uint32_t e, uint32_t dir, uint32_t old_name);
void shadow_free_name(struct shadow *sh, uint32_t name);

/* Called for each directory that leaves or comes back. */
typedef void (*shadow_dir_fn)(uint32_t dir, void *userdata);
void shadow_detach(struct shadow *sh, uint32_t e, shadow_dir_fn left, void *userdata);
void shadow_attach(struct shadow *sh, uint32_t e, shadow_dir_fn came, void *userdata);
void shadow_free_detached(struct shadow *sh, uint32_t e);

/* Is the directory reachable from the root? */
bool shadow_attached(const struct shadow *sh, uint32_t n);
bool shadow_is_beneath(const struct shadow *sh, uint32_t n, uint32_t above); /* or equal */
uint64_t shadow_count(const struct shadow *sh, uint32_t e); /* nodes of a subtree */
uint32_t shadow_names(const struct shadow *sh, uint32_t n); /* how many */

/* The next entry of a subtree in pre-order: pass the one before, first `top` itself; top 0 = all. */
uint32_t shadow_next(const struct shadow *sh, uint32_t e, uint32_t top);

void shadow_pin(struct shadow *sh, uint32_t dir);
void shadow_unpin(struct shadow *sh, uint32_t dir);

/* "a/b/c", "" for the root; malloc'ed; NULL = no memory or detached. */
char *shadow_path(const struct shadow *sh, uint32_t dir, const char *name, size_t len);

/* Small number for a device; 0 is the root's (device 0). */
uint16_t shadow_device(struct shadow *sh, uint64_t device);

#endif
