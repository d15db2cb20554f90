/*
 * tree.h - TREE_GET from the brain: what is there now, in canonical pre-order,
 * read from the file system and not from the shadow; with `hash` every byte is
 * read again, by two threads.
 *
 * One request at a time is answered; another one gets EBUSY.
 */
#ifndef SYNCD_TREE_H
#define SYNCD_TREE_H

#include "syncd/state.h"

void tree_drained(struct sync *sy);
void tree_detached(struct sync *sy);
void tree_free_all(struct sync *sy); /* none may be busy */

#endif
