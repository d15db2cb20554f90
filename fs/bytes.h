/*
 * bytes.h - the bytes of files that are written in the view: staging files, versions.
 *
 *	bytes_stage(ov, id, size, seen)		without the lock: id has a staging file, with
 *						what it had before, up to size
 *	overlay_lock(ov)
 *	  fd = bytes_open(ov, o)		-ESTALE: it has none (any more); stage again
 *	  ... write, truncate, bytes_changed(ov, o, size) ...
 *	  bytes_version(ov, t, o)		what it has now is a version
 *	overlay_unlock(ov)
 *	bytes_sync(ov, number)			data.NUMBER is on the disk
 */
#ifndef FS_BYTES_H
#define FS_BYTES_H

#include "fs/overlay.h"

/* size: no more of the old bytes is wanted. seen: what the kernel had been told of, not what
 * the index has by now: for pages that come from a mapping. */
int bytes_stage(struct overlay *ov, uint64_t id, uint64_t size, bool seen);
int bytes_open(struct overlay *ov, const struct onode *o);
void bytes_changed(struct overlay *ov, struct onode *o, uint64_t size_bytes);
/* 0 when there was nothing to do, too. -ENOENT: a directory on its way has no name in the tree
 * that is shown; with `gone` it is then a version of the path where it was when it was staged. */
int bytes_version(struct overlay *ov, struct index_txn *t, struct onode *o, bool gone);
/* The index may just be telling where its directory is: so often, and after so long, who cannot
 * wait tries again, the last time with `gone`. */
enum { BYTES_NAPS = 50, BYTES_NAP_MS = 20 };
int bytes_sync(struct overlay *ov, uint64_t number);

#endif
