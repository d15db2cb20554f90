/*
 * look.h - what mode "look" makes of modes and link texts, as pure functions.
 *
 * In look mode files belong to a foreign user, so everybody is "other" to
 * them: the modes shown give all the owner's r and x, and nothing else.
 *
 * Links are shown so that, followed by the kernel, they cannot lead out of the
 * view: the text becomes at most as many ".." as there are directories between
 * the link and the view's root, and after those names only.  Each link that
 * lies on the way is of the same kind, so no chain of them leads out, either.
 * An absolute path beneath the environment's root points at the same place in
 * the view, another one at that path beneath the view's root, where there is
 * mostly nothing.
 */
#ifndef FS_LOOK_H
#define FS_LOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

uint32_t look_mode(uint8_t node_type, uint32_t mode);

/* Must look_target() be asked, or is the text shown as it is wherever it lies? */
bool look_target_plain(const void *target, size_t n);

/* Appends the text to show. root: path of the root in the environment, NULL: not known.
 * depth: directories between the view's root and the link (0: it lies in the root).
 * -ENAMETOOLONG: longer than a link can be. */
int look_target(const void *target, size_t n, const char *root, size_t depth, struct buf *out);

#endif
