/*
 * verify.h - both sides compared: the journal's tree against what stands in the
 * environment, with the bytes of both read again.
 *
 * A barrier; then the environment lists its tree with fresh hashes (TREE_GET)
 * into an unlinked file; a helper thread walks the index at the barrier's
 * sequence, reads each content from the packs, and merges the two lists in their
 * common order.  When changes came meanwhile it is done again, three times at most.
 */
#ifndef BRAIN_VERIFY_H
#define BRAIN_VERIFY_H

#include <jansson.h>

#include "brain/env.h"

/* What a restore over this very line has just read from the packs, checked and sent is not read
 * from them again (env->brought): the environment's hash of it says whether it is right.
 * durable: the environment's file system is synced first, so that what is equal stays so.
 * result: the contract's `verify` object (borrowed); when r < 0 NULL, but with -ENOENT the path of
 * `paths` that neither side has. */
typedef void (*verify_fn)(struct env *env, int r, json_t *result, void *userdata);
/* paths: an array of paths below the root (verb_path), each with what is beneath it; NULL: all.
 * Counts, hashes and differences are then of these only. -EOVERFLOW: see verify_what(). */
int verify_run(struct env *env, bool durable, json_t *paths, verify_fn fn, void *userdata);

/* What a person is told of a tree that could not be walked; what: for all other errors. */
static inline const char *verify_what(int r, const char *what)
{
	return r == -EOVERFLOW
		       ? "its .limbignore files take too long to match; make their patterns "
			 "fewer or simpler"
		       : what;
}

#endif
