/* The session's own: its root, in which names are found and none is listed, and the links there.
 * All else is answered as in a live view. */
#include "fs/ops.h"
#include "fs/past.h"

static struct past *past_of(fuse_req_t req)
{
	return ((struct fs *)fuse_req_userdata(req))->past;
}

static enum past_own own_of(fuse_req_t req, fuse_ino_t ino)
{
	cleanup_free char *target = NULL;
	struct stat st;

	return past_own(past_of(req), ino, &st, &target);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = {0};
	int r;

	if (own_of(req, parent) != PAST_ROOT) {
		ops_table.lookup(req, parent, name);
		return;
	}
	r = past_find(past_of(req), name, &e);
	/* A point that is none may become one: the kernel remembers nothing of it. */
	if (r < 0)
		(void)fuse_reply_err(req, -r);
	else if (fuse_reply_entry(req, &e) < 0)
		past_forget(past_of(req), e.ino, 1);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	cleanup_free char *target = NULL;
	struct stat st;

	if (past_own(past_of(req), ino, &st, &target) == PAST_TREE)
		ops_table.getattr(req, ino, fi);
	else
		(void)fuse_reply_attr(req, &st, OPS_FOREVER_S);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	cleanup_free char *target = NULL;
	struct stat st;

	if (past_own(past_of(req), ino, &st, &target) == PAST_TREE)
		ops_table.readlink(req, ino);
	else if (target)
		(void)fuse_reply_readlink(req, target);
	else
		(void)fuse_reply_err(req, EINVAL);
}

static void list_nothing(fuse_req_t req, size_t size, off_t off, bool plus)
{
	static const char *const names[] = {".", ".."};
	struct fuse_entry_param e = {.attr = {.st_ino = FUSE_ROOT_ID, .st_mode = S_IFDIR}};
	char mem[512];
	size_t used = 0;

	size = MIN(size, sizeof(mem));
	for (off_t i = off; i >= 0 && i < 2; i++) {
		size_t n = plus ? fuse_add_direntry_plus(req, mem + used, size - used, names[i], &e,
							 i + 1)
				: fuse_add_direntry(req, mem + used, size - used, names[i], &e.attr,
						    i + 1);

		if (n > size - used)
			break;
		used += n;
	}
	(void)fuse_reply_buf(req, mem, used);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	if (own_of(req, ino) == PAST_TREE)
		ops_table.readdir(req, ino, size, off, fi);
	else
		list_nothing(req, size, off, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			   struct fuse_file_info *fi)
{
	if (own_of(req, ino) == PAST_TREE)
		ops_table.readdirplus(req, ino, size, off, fi);
	else
		list_nothing(req, size, off, true);
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	if (own_of(req, ino) == PAST_TREE)
		ops_table.getxattr(req, ino, name, size);
	else
		(void)fuse_reply_err(req, ENODATA);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	if (own_of(req, ino) == PAST_TREE)
		ops_table.listxattr(req, ino, size);
	else if (size == 0)
		(void)fuse_reply_xattr(req, 0);
	else
		(void)fuse_reply_buf(req, NULL, 0);
}

const struct fuse_lowlevel_ops past_ops_table = {
	.init = ops_init,
	.lookup = op_lookup,
	.forget = ops_forget,
	.forget_multi = ops_forget_multi,
	.getattr = op_getattr,
	.readlink = op_readlink,
	.open = ops_refuse_open,
	.read = ops_read,
	.flush = ops_refuse_open,
	.opendir = ops_refuse_open,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.statfs = ops_statfs,
	.getxattr = op_getxattr,
	.listxattr = op_listxattr,
	.lseek = ops_lseek,
};
