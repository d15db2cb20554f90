/*
 * had.h - which directories of a tree the environment says that it has just as the
 * journal does, by their hashes (wire/digest.h), with all that lies beneath them.
 *
 * For a helper thread: one walk of the index.  What the environment says is not believed, it
 * is only compared: at worst it does not get what it lacks.
 */
#ifndef BRAIN_HAD_H
#define BRAIN_HAD_H

#include "journal/index.h"
#include "wire/digest.h"

struct had {
	uint64_t *dirs; /* sorted */
	size_t n;
};

/* n hashes, which are sorted in place. by_content: directories are told by digest_path(). */
int had_find(struct index_txn *t, uint64_t at, uint8_t (*hashes)[DIGEST_BYTES], size_t n,
	     bool by_content, struct had *ret);
bool had_is(const struct had *had, uint64_t dir);
void had_done(struct had *had);

#endif
