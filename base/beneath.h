/*
 * beneath.h - opening what lies beneath a directory that somebody else
 * controls.
 *
 * No link is followed, no ".." leaves, no magic link is used, no matter what
 * the other side renames while we walk: openat2(2) with RESOLVE_BENEATH,
 * RESOLVE_NO_MAGICLINKS and RESOLVE_NO_SYMLINKS, or, where the kernel lacks
 * it (ENOSYS, EPERM from a filter), a walk of the components with O_NOFOLLOW.
 * LIMB_NO_OPENAT2=1 in the environment forces that walk, for tests.
 *
 * Paths are relative, of any length (walked in parts when longer than
 * PATH_MAX), bytes, never text.  Any ".." in them is -EXDEV, also one that
 * would stay beneath: what it means changes while others rename, so callers
 * resolve it before.
 */
#ifndef BASE_BENEATH_H
#define BASE_BENEATH_H

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Like openat; O_CLOEXEC and O_NOFOLLOW are added. "" or "." is root itself.
 * -ELOOP for a link on the way (or -ENOTDIR, if somebody replaces it at that
 * moment), -EXDEV for a way out, -EINVAL for absolute. */
int beneath_open(int root, const char *path, int flags, mode_t mode);

/* Opens the parent directory of path (O_PATH: good for *at() calls, not for
 * fsync or reading it) and points *ret_name at its last component (inside
 * `path`). -EINVAL for "", ".", a last component "..", and a '/' at the end. */
int beneath_open_parent(int root, const char *path, int *ret_fd, const char **ret_name);

/* True if `name` can be one directory entry: 1 to 255 bytes, no '/', no NUL,
 * not "." or "..". */
bool beneath_name_ok(const char *name, size_t n);

#endif
