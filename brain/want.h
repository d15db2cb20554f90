/*
 * want.h - what the brain's side wants, by paths: made into intents over the tree that it
 * sees (queue.h), as the system would: rename(2), rm -r, open(O_CREAT).
 *
 * The errors are the system's, and nothing was added then, but for directories on the way.
 * fn is called once for the last intent, when it and all before it are durable; -EALREADY:
 * there is nothing to do.
 */
#ifndef BRAIN_WANT_H
#define BRAIN_WANT_H

#include "brain/queue.h"

enum want_flag {
	WANT_NO_REPLACE = 1 << 0,
	WANT_PARENTS = 1 << 1, /* directories on the way are made */
};

/* May its changes wait? It is away, and of a class that says so; else verb_live_env() tells. */
bool want_is_away(const struct env *env);

/* queue_seen() of what is not the root; with `parents` directories on the way that are not there
 * are made. */
int want_look(struct env *env, const char *path, bool parents, struct queue_entry *ret);
/* The same of the root, too; nothing is made. */
int want_look_any(struct env *env, const char *path, struct queue_entry *ret);
/* thing: type, mode, content or target. Of a file that is there the content alone changes. */
int want_put(struct env *env, const char *path, const struct node *thing, unsigned flags,
	     queue_durable_fn fn, void *userdata);
int want_remove(struct env *env, const char *path, queue_durable_fn fn, void *userdata);
int want_move(struct env *env, const char *from, const char *to, queue_durable_fn fn,
	      void *userdata);
/* Over nothing: -EEXIST. */
int want_link(struct env *env, const char *from, const char *to, queue_durable_fn fn,
	      void *userdata);
/* fields: bits of enum node_field, of wanted. The path may be that of the root. */
int want_attr(struct env *env, const char *path, const struct node *wanted, uint32_t fields,
	      queue_durable_fn fn, void *userdata);

#endif
