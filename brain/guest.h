/*
 * guest.h - another place of an environment: where it is about to move, or where
 * it was.
 *
 * A guest is a struct env without a log, a view or a name in the list, attached
 * by a line of its own.  What it says of files is never the environment's word: a
 * place to move to says none (RESTORE holds it), and from one that was left the
 * first such word ends the line (guest_spoke): it is late, and goes to a fork
 * (late.h).
 */
#ifndef BRAIN_GUEST_H
#define BRAIN_GUEST_H

#include "brain/entry.h"
#include "brain/env.h"

/* From link.c: what a guest may say is handled like anybody's. */
bool guest_may_say(const struct env *guest, const struct entry_head *e);
int guest_says(struct env *guest, const struct entry_head *e); /* the rest */
/* From attach.c. A place to move to has to be empty, or to carry an older copy: life_attached()
 * with ATTACH_RESTORE, or, its reason set, with ATTACH_HOLD. */
int guest_on_hello(struct env *guest, const struct entry_hello *h);

/* Its line ends; it is freed when nothing uses it any more. */
void guest_free(struct env *guest);
/* Its own root and its private directory on this machine, in the background. */
#define GUEST_GONE "gone." /* what they are named until they are removed */
void guest_remove_dirs(struct env *guest);
void guest_remove_rest(struct env *env); /* ... what an earlier limbd did not come to remove */
int guest_make_dirs(struct env *guest);

#endif
