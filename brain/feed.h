/*
 * feed.h - what the environment asks of the journal: its tree (TREE_GET) and
 * the content of its nodes (PULL).
 *
 * One transfer at a time an environment, requests queue.  A helper thread walks
 * the index under one short read transaction into an unlinked file of ready
 * frames (a tree), or reads about a MiB of content into memory (a pull); the loop
 * passes on what fits into the line.  Only this environment's own nodes are
 * given out.
 */
#ifndef BRAIN_FEED_H
#define BRAIN_FEED_H

#include "brain/env.h"

int feed_on_tree_get(struct env *env, const struct entry_head *e);
int feed_on_pull(struct env *env, const struct entry_head *e);
void feed_drained(struct env *env); /* the line has room */
void feed_stop(struct env *env);    /* the line is gone */

#endif
