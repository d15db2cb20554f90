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
/* The same, for a view with an overlay. */
extern const struct fuse_lowlevel_ops ops_write_table;

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

/* ops-attr.c */
void ops_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int valid,
		 struct fuse_file_info *fi);
void ops_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		  int flags);
void ops_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

/* ops-name.c */
void ops_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		struct fuse_file_info *fi);
void ops_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void ops_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void ops_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void ops_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void ops_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void ops_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
		const char *to_name, unsigned flags);
void ops_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t to_parent, const char *to_name);

/* ops-write.c */
struct waiter;
/* *ret_wait: who has to be answered when it is made, or NULL (await.h). */
int ops_set_size(fuse_req_t req, fuse_ino_t ino, uint64_t size, struct waiter **ret_wait);
void ops_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off,
	       struct fuse_file_info *fi);
void ops_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
		   struct fuse_file_info *fi);
void ops_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);

#endif
