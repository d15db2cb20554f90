/*
 * ids.h - node ids for a session that shows many trees: one for each node of a
 * tree that the kernel knows, from the first lookup to the last FORGET.
 *
 *	ids_hold(ids, &key, parent, &id);	the same id for the same key; counts
 *	e = ids_get(ids, id);			NULL: nobody has it
 *	ids_forget(ids, id, n, &key);		true: it was the last; key is what it meant
 *
 * An id is not used again for something else.  Not for several threads at once:
 * who calls has a lock.
 */
#ifndef FS_IDS_H
#define FS_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

#define IDS_FIRST 2 /* no id is smaller: 1 is the session's root */

struct ids_key {
	void *tree;
	uint64_t node;
	uint64_t depth; /* where one node is shown in several ways (links) */
};

struct ids_entry {
	struct ids_key key;
	uint64_t parent;
	uint64_t count; /* 0: free */
	uint32_t generation, next;
};

struct ids;
int ids_new(struct ids **ret);
void ids_free(struct ids *ids);
DEFINE_CLEANUP(struct ids, ids_free);

/* -ENOMEM. *ret_new (may be NULL): nobody had it before. */
int ids_hold(struct ids *ids, const struct ids_key *key, uint64_t parent, uint64_t *ret_id,
	     bool *ret_new);
/* Lent until the next call. */
const struct ids_entry *ids_get(const struct ids *ids, uint64_t id);
bool ids_forget(struct ids *ids, uint64_t id, uint64_t count, struct ids_key *ret_key);

#endif
