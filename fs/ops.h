/*
 * ops.h - the kernel's requests. Each is answered exactly once, from one read
 * transaction that ends before the reply; what was read is copied out.
 *
 * OPEN, OPENDIR and FLUSH are refused once with ENOSYS, and what is known may
 * be kept for ever: so nothing that is warm sends a message.
 */
#ifndef FS_OPS_H
#define FS_OPS_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "fs/fs.h"

#define OPS_FOREVER_S 1e9 /* timeouts of what is known as long as we say nothing else */
#define OPS_SHORT_S 1.0	  /* while the line to the environment is down */

/* The session's userdata is the struct fs. */
extern const struct fuse_lowlevel_ops ops_table;

/* ---- for ops*.c ---- */

static inline struct fs *ops_fs(fuse_req_t req)
{
	return fuse_req_userdata(req);
}
double ops_timeout_s(const struct fs *fs);
/* The text of a link as the mount shows it, appended. */
int ops_target(const struct fs *fs, struct index_txn *t, const struct index_node *n,
	       struct buf *out);
int ops_stat(const struct fs *fs, struct index_txn *t, const struct index_node *n,
	     struct stat *ret);

void ops_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void ops_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		     struct fuse_file_info *fi);
void ops_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void ops_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);

#endif
