/*
 * reader.h - bytes and holes of a file, from its content's reference.
 */
#ifndef FS_READER_H
#define FS_READER_H

#include "fs/source.h"

/* Appends up to n bytes from offset. -EIO: it cannot be read, and a line (not too many of
 * them) says why, with the node's id. */
int reader_read(struct source *s, uint64_t node, const struct content_ref *ref, uint64_t offset,
		size_t n, struct buf *out);

/* lseek(2) with SEEK_DATA or SEEK_HOLE: -ENXIO behind the end, -EIO as above. */
int reader_seek(struct source *s, uint64_t node, const struct content_ref *ref, uint64_t offset,
		bool hole, uint64_t *ret_offset);

#endif
