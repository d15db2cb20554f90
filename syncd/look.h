/*
 * look.h - what stands in a root that a RESTORE is to overwrite, so that only what is
 * otherwise needs to be sent: of the rest the brain says the nodes' numbers.
 *
 *	look_new(&l); look_add(l, ...)	for each entry, in pre-order; bytes were read for it
 *	look_finish(l)			then look_hashes() go with TREE_GET, by_content
 *	look_enter(l, path, node)	the brain has a directory just so
 *	look_next(l, node, &m)		... and these are its entries' numbers, look_left() of them
 *
 * Memory: as the tree that is to be made, until that has come.
 */
#ifndef SYNCD_LOOK_H
#define SYNCD_LOOK_H

#include "wire/digest.h"
#include "wire/wire.pb-c.h"

struct look;
int look_new(struct look **ret);
void look_free(struct look *l);
DEFINE_CLEANUP(struct look, look_free);

/* n as m says it. odd, if not 0: it is not to be found equal to anything. */
int look_add(struct look *l, const char *path, const Limbwire__TreeEntry *m, const struct node *n,
	     uint64_t odd);
int look_finish(struct look *l);
const uint8_t *look_hashes(const struct look *l, size_t *ret_bytes);

/* -EBADMSG: its hash was not sent, or the one before is not at its end. */
int look_enter(struct look *l, const char *path, uint64_t node);
size_t look_left(const struct look *l);
/* The next entry beneath it, as B would have sent it; free_unpacked() it. */
int look_next(struct look *l, uint64_t node, Limbwire__TreeEntry **ret);

#endif
