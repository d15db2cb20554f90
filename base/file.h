/*
 * file.h - whole small files and directories of our own state.
 *
 * Replacing a file is one operation: write beside it, fsync, rename, fsync the
 * directory.  All names are relative to a directory descriptor (AT_FDCWD is
 * fine).  Files are made 0600 and directories 0700 whatever the umask.
 */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"

/* Replaces NAME by the given bytes, durably: after success the new content
 * survives loss of power, after failure the old content is there (or the new
 * one, not yet durable, if what failed is the sync of the directory). A crash
 * may leave NAME.tmp, which the next call reuses. */
int file_replace(int dir, const char *name, const void *data, size_t n);

/* Appends the whole file to b; -E2BIG if it exceeds b's limit. */
int file_read(int dir, const char *name, struct buf *b);

int file_sync_dir(int dir, const char *path); /* fsync of a directory */

/* mkdir, and fsync of the parent; existing directory = 0. After failure it was
 * not made. */
int file_make_dir(int dir, const char *name);
/* mkdir -p of a whole path, 0700. */
int file_make_dirs(const char *path);

/* Opens a directory O_RDONLY|O_DIRECTORY|O_CLOEXEC. */
int file_open_dir(int dir, const char *name);

/* Removes a tree without following links and without crossing a mount point
 * (-EXDEV then); absent = 0.  Works on directories without permission bits
 * (chmods its own) and on paths of any depth. -EINVAL unless the last
 * component is a name: "", ".", "..", a '/' at the end. */
int file_remove_tree(int dir, const char *name);

/* Names in a directory except . and .., sorted bytewise; free each and the
 * array (file_names_free). At most `limit` names, else -E2BIG. */
int file_list(int dir, const char *name, size_t limit, char ***ret_names, size_t *ret_n);
void file_names_free(char **names, size_t n);

/* Takes an exclusive lock on NAME (created 0600) without waiting; the lock
 * lives as long as *ret_fd. -EAGAIN if another process has it. */
int file_lock(int dir, const char *name, int *ret_fd);

#endif
