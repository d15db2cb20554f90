/*
 * ops.h - the kernel's requests. Each is answered exactly once, from one read
 * transaction that ends before the reply; what was read is copied out.
 *
 * OPEN, OPENDIR and FLUSH are refused once with ENOSYS, and what is known may
 * be kept for ever: so nothing that is warm sends a message.
 */
#ifndef FS_OPS_H
#define FS_OPS_H

#include "fs/spot.h"

#define OPS_FOREVER_S 1e9 /* timeouts of what is known as long as we say nothing else */
#define OPS_SHORT_S 1.0	  /* while the line to the environment is down */

/* The session's userdata is the struct fs: of the one tree, or of the session of the past. */
extern const struct fuse_lowlevel_ops ops_table;

/* ---- for ops*.c, past-ops.c ---- */

double ops_timeout_s(const struct fs *fs);
/* The text of a link as the mount shows it, appended. depth: as in struct spot. */
int ops_target(const struct fs *fs, struct index_txn *t, const struct index_node *n, size_t depth,
	       struct buf *out);
int ops_stat(const struct fs *fs, struct index_txn *t, const struct index_node *n, size_t depth,
	     struct stat *ret);
void ops_init(void *userdata, struct fuse_conn_info *conn);

void ops_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n);
void ops_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void ops_refuse_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ops_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void ops_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
void ops_statfs(fuse_req_t req, fuse_ino_t ino);
void ops_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void ops_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		     struct fuse_file_info *fi);
void ops_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void ops_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);

#endif
