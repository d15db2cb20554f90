/*
 * proof.h - an environment has what its changes name: not by a hash that its
 * limb-ingest says, but by the bytes.
 *
 * A content that several environments have is kept once, so whoever names it in a
 * change can have it back.  limb-ingest reads what an environment sends and may have
 * been taken over; so each content that it says it has stored is read from its pack
 * and hashed, in a helper thread, before the entry is taken, and a chunk list may
 * only name what was proven before it.  A change may name what this line has proven;
 * what limb-ingest does not store again it has stored over the same line.
 *
 * Several entries are checked at once, ahead of the one that is to be taken, while what
 * was taken before them becomes durable.
 *
 *	looked = proof_ahead(p, env, bytes, n);	entries that have come, not looked at before
 *	r = proof_places(p, places);		1: go on; 0: asked again by link_resume()
 *	proof_has(p, hash)
 */
#ifndef BRAIN_PROOF_H
#define BRAIN_PROOF_H

#include "brain/entry.h"
#include "brain/env.h"

struct proof;

int proof_new(struct proof **ret);
void proof_free(struct proof *p); /* also while a thread works for it */

/* Of whole entries, none of which was taken, begins to check those that are ENTRY_PLACES.
 * Returns the bytes of those that need not be given again: 0 while a thread works. */
size_t proof_ahead(struct proof *p, struct env *env, const uint8_t *bytes, size_t n);
/* The entries are taken in their order. Negative: it is not what it says (-EBADMSG), or it
 * cannot be read. */
int proof_places(struct proof *p, const struct entry_places *e);
/* One that the environment's journal names: what was proven when it came there. */
int proof_add(struct proof *p, const uint8_t hash[SHA256_BYTES]);
bool proof_has(struct proof *p, const uint8_t hash[SHA256_BYTES]);

#endif
