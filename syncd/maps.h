/*
 * maps.h - which files of a file system do processes map shared and writable.
 *
 * Stores to such a mapping raise no event, and only the first one after a
 * write-back moves the times.  What /proc does not let us read is not found; the
 * sweep and IN_CLOSE_WRITE (which comes when the last mapping goes) are left.
 */
#ifndef SYNCD_MAPS_H
#define SYNCD_MAPS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Inodes, each at most once, owned by the caller. device as stat has it; files whose path lies
 * beneath root_path count, too (overlay file systems show other devices). below: of this
 * process and its descendants only, if the kernel can list them; 0: of all. Any thread. */
int maps_find(uint64_t device, const char *root_path, pid_t below, uint64_t **ret_inodes,
	      size_t *ret_n);

#endif
