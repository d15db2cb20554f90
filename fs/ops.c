#include "fs/ops.h"

#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/io.h"
#include "fs/look.h"
#include "fs/overlay.h"
#include "fs/reader.h"
#include "journal/index-view.h"

enum {
	BLOCK_BYTES = 4096,
	MAX_BACKGROUND = 64,
	READAHEAD_BYTES = 1 << 20,
};

double ops_timeout_s(const struct fs *fs)
{
	return atomic_load(&fs->status.away) ? OPS_SHORT_S : OPS_FOREVER_S;
}

void ops_init(void *userdata, struct fuse_conn_info *conn)
{
	const struct fs *fs = userdata;

	/* With ATOMIC_O_TRUNC a ">" would keep the old tail; AUTO_INVAL_DATA drops pages
	 * that are still good. Both are on unless said otherwise. */
	conn->want &= ~(unsigned)(FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_AUTO_INVAL_DATA |
				  FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_SPLICE_READ |
				  FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
	conn->want |= conn->capable &
		      (unsigned)(FUSE_CAP_READDIRPLUS | FUSE_CAP_CACHE_SYMLINKS |
				 FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_ASYNC_READ |
				 FUSE_CAP_NO_OPEN_SUPPORT | FUSE_CAP_NO_OPENDIR_SUPPORT);
	/* Set-id bits are the kernel's to clear, by a SETATTR that it sends. */
	conn->want &= ~(unsigned)(FUSE_CAP_HANDLE_KILLPRIV | FUSE_CAP_WRITEBACK_CACHE);
	/* The kernel keeps ACLs that it knows of. Where none are shown it need not know. */
	if (fs->rules.all_xattrs)
		conn->want |= conn->capable & FUSE_CAP_POSIX_ACL;
	conn->max_readahead = READAHEAD_BYTES;
	conn->max_background = MAX_BACKGROUND;
	conn->congestion_threshold = MAX_BACKGROUND * 3 / 4;
}

/* ---- names and attributes ---- */

/* Directories between the root and a link, by the name that has fewest. */
struct depth {
	struct index_txn *t;
	struct buf path;
	size_t least;
	bool any;
};

static int look_at_name(uint64_t parent, const char *name, size_t len, void *userdata)
{
	struct depth *d = userdata;
	const uint8_t *p;
	size_t depth = 0;
	int r;

	(void)name;
	(void)len;
	buf_clear(&d->path);
	r = index_path(d->t, parent, &d->path);
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	p = buf_data(&d->path);
	for (size_t i = 0; i < buf_len(&d->path); i++)
		depth += i == 0 || p[i] == '/';
	d->least = d->any ? MIN(d->least, depth) : depth;
	d->any = true;
	return 0;
}

int ops_target(const struct fs *fs, struct index_txn *t, const struct index_node *n, size_t depth,
	       struct buf *out)
{
	struct depth d = {.t = t, .least = depth};
	cleanup_free char *root = NULL;
	int r = 0;

	if (!fs->rules.look || look_target_plain(n->n.target, n->n.target_len))
		return buf_add(out, n->n.target, n->n.target_len);
	if (depth == SPOT_BY_NAME) {
		d.least = 0;
		r = index_names(t, n->id, look_at_name, &d);
		buf_done(&d.path);
	}
	if (r < 0)
		return r;
	r = index_root_path(t, &root);
	if (r < 0 && r != -ENOENT && r != -EBADMSG)
		return r;
	return look_target(n->n.target, n->n.target_len, root, d.least, out);
}

int ops_stat(const struct fs *fs, struct index_txn *t, const struct index_node *n, size_t depth,
	     struct stat *ret)
{
	_cleanup_(buf_done) struct buf target = BUF_INIT(0);
	size_t target_len = n->n.target_len;
	int r;

	if (fs->rules.look && n->n.type == NODE_TYPE_SYMLINK) {
		r = ops_target(fs, t, n, depth, &target);
		if (r == -ENOMEM)
			return r;
		if (r >= 0)
			target_len = buf_len(&target);
	}
	attr_stat(&fs->rules, n, target_len, ret);
	ret->st_ino = spot_inode(fs, n);
	return 0;
}

static int read_entry(const struct spot *dir, const char *name, struct fuse_entry_param *e)
{
	struct fs *fs = dir->fs;
	struct index_txn *t;
	struct index_node n;
	uint64_t seq, node;
	int r;

	spot_lock(dir);
	r = source_begin(fs->source, &t, &seq);
	if (r < 0) {
		spot_unlock(dir);
		return r;
	}
	r = spot_lookup(dir, t, name, strlen(name), &node);
	if (r >= 0)
		r = spot_get_node(dir, t, node, &n);
	if (r >= 0)
		r = ops_stat(fs, t, &n, dir->depth, &e->attr);
	if (r >= 0)
		r = spot_hold(dir, &n, &e->ino);
	source_end(fs->source, t);
	if (r >= 0 && fs->at == INDEX_NOW)
		r = nodes_hold(fs->nodes, seq, &e->ino, 1);
	spot_unlock(dir);
	return r;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	_cleanup_(spot_done) struct spot dir = {0};
	struct fuse_entry_param e = {0};
	int r;

	if (strlen(name) > NODE_NAME_MAX) {
		(void)fuse_reply_err(req, ENAMETOOLONG);
		return;
	}
	r = spot_get(req, parent, &dir);
	if (r >= 0) {
		do
			r = read_entry(&dir, name, &e);
		while (r == -EAGAIN);
		e.attr_timeout = e.entry_timeout = ops_timeout_s(dir.fs);
	}
	if (r == -ENOENT) {
		e.ino = 0;
		(void)fuse_reply_entry(req, &e);
	} else if (r < 0) {
		(void)fuse_reply_err(req, -r);
	} else if (fuse_reply_entry(req, &e) < 0) {
		spot_forget(dir.fs, e.ino, 1);
	}
}

void ops_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	spot_forget(fuse_req_userdata(req), ino, n);
	fuse_reply_none(req);
}

void ops_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		spot_forget(fuse_req_userdata(req), forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	_cleanup_(spot_done) struct spot s = {0};
	struct index_txn *t;
	struct index_node n;
	struct stat st;
	uint64_t seq;
	int r;

	(void)fi;
	r = spot_get(req, ino, &s);
	if (r >= 0)
		r = spot_begin(&s, &t, &seq);
	if (r >= 0) {
		r = spot_node(&s, t, &n);
		if (r >= 0)
			r = ops_stat(s.fs, t, &n, s.depth, &st);
		spot_end(&s, t);
	}
	if (r < 0)
		(void)fuse_reply_err(req, -r);
	else
		(void)fuse_reply_attr(req, &st, ops_timeout_s(s.fs));
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	_cleanup_(buf_done) struct buf target = BUF_INIT(0);
	_cleanup_(spot_done) struct spot s = {0};
	struct index_txn *t;
	struct index_node n;
	uint64_t seq;
	int r;

	r = spot_get(req, ino, &s);
	if (r >= 0)
		r = spot_begin(&s, &t, &seq);
	if (r >= 0) {
		r = spot_node(&s, t, &n);
		if (r >= 0)
			r = n.n.type == NODE_TYPE_SYMLINK
				    ? ops_target(s.fs, t, &n, s.depth, &target)
				    : -EINVAL;
		spot_end(&s, t);
	}
	if (r >= 0)
		r = buf_add_u8(&target, 0);
	if (r < 0)
		(void)fuse_reply_err(req, -r);
	else
		(void)fuse_reply_readlink(req, (const char *)buf_data(&target));
}

/* ---- content ---- */

/* Above 0: its bytes are in this descriptor. */
static int read_content(const struct spot *s, struct content_ref *ret)
{
	struct index_txn *t;
	struct index_node n;
	uint64_t seq;
	int r, fd;

	r = spot_begin(s, &t, &seq);
	if (r < 0)
		return r;
	r = spot_node(s, t, &n);
	if (r >= 0) {
		if (n.n.type == NODE_TYPE_FILE)
			*ret = n.n.content;
		else
			r = -EISDIR;
	}
	if (r >= 0) {
		fd = overlay_bytes(s->fs->overlay, s->node);
		r = fd == -ENOENT ? 0 : fd;
	}
	spot_end(s, t);
	return r;
}

static int read_staged(int fd, off_t off, size_t size, struct buf *out)
{
	uint8_t *p;
	ssize_t n;
	int r = buf_reserve(out, size, &p);

	if (r < 0)
		return r;
	n = io_pread_full(fd, p, size, (uint64_t)off, "view.read");
	if (n > 0)
		buf_commit(out, (size_t)n);
	return n < 0 ? (int)n : 0;
}

void ops_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(0);
	_cleanup_(spot_done) struct spot s = {0};
	cleanup_close int fd = -1;
	struct content_ref ref;
	int r;

	(void)fi;
	r = spot_get(req, ino, &s);
	if (r >= 0)
		r = read_content(&s, &ref);
	if (r > 0)
		r = read_staged(fd = r, off, size, &out);
	else if (r == 0)
		r = reader_read(s.fs->source, s.node, &ref, (uint64_t)off, size, &out);
	if (r < 0)
		(void)fuse_reply_err(req, -r);
	else
		(void)fuse_reply_buf(req, (const char *)buf_data(&out), buf_len(&out));
}

void ops_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	_cleanup_(spot_done) struct spot s = {0};
	cleanup_close int fd = -1;
	struct content_ref ref;
	uint64_t found;
	int r;

	(void)fi;
	r = whence == SEEK_DATA || whence == SEEK_HOLE ? spot_get(req, ino, &s) : -EINVAL;
	if (r >= 0)
		r = read_content(&s, &ref);
	if (r > 0) {
		fd = r;
		off = lseek(fd, off, whence);
		found = (uint64_t)off;
		r = off < 0 ? -errno : 0;
	} else if (r == 0)
		r = reader_seek(s.fs->source, s.node, &ref, (uint64_t)off, whence == SEEK_HOLE,
				&found);
	if (r < 0)
		(void)fuse_reply_err(req, -r);
	else
		(void)fuse_reply_lseek(req, (off_t)found);
}

/* ---- the file system ---- */

/* What the tree holds, and what is free where its journal lies. */
void ops_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct fs *fs = fuse_req_userdata(req);
	struct index_counts c = {0};
	struct statvfs here = {0}, st = {0};
	struct index_txn *t;
	uint64_t seq, files;
	int r;

	(void)ino;
	r = fs->source ? source_begin(fs->source, &t, &seq) : 0;
	if (r >= 0 && fs->source) {
		r = index_counts(t, &c);
		source_end(fs->source, t);
	}
	if (r >= 0 && fstatvfs(fs->state_fd, &here) < 0)
		r = -errno;
	if (r < 0) {
		(void)fuse_reply_err(req, -r);
		return;
	}
	files = c.files + c.directories + c.symlinks + c.others + 1;
	st.f_bsize = st.f_frsize = BLOCK_BYTES;
	st.f_bfree = here.f_bfree * here.f_frsize / BLOCK_BYTES;
	st.f_bavail = here.f_bavail * here.f_frsize / BLOCK_BYTES;
	st.f_blocks = st.f_bfree + c.bytes / BLOCK_BYTES + 1;
	st.f_ffree = MAX(here.f_ffree, (fsfilcnt_t)1); /* 0 on file systems without a limit */
	st.f_favail = MAX(here.f_favail, (fsfilcnt_t)1);
	st.f_files = st.f_ffree + files;
	st.f_namemax = NODE_NAME_MAX;
	(void)fuse_reply_statfs(req, &st);
}

void ops_refuse_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	(void)fi;
	(void)fuse_reply_err(req, ENOSYS);
}

/* What a view that is read and one that is written have in common. */
#define READ_OPS                                                                            \
	.init = ops_init, .lookup = op_lookup, .forget = ops_forget,                        \
	.forget_multi = ops_forget_multi, .getattr = op_getattr, .readlink = op_readlink,   \
	.open = ops_refuse_open, .read = ops_read, .flush = ops_refuse_open,                \
	.opendir = ops_refuse_open, .readdir = ops_readdir, .readdirplus = ops_readdirplus, \
	.statfs = ops_statfs, .getxattr = ops_getxattr, .listxattr = ops_listxattr,         \
	.lseek = ops_lseek

const struct fuse_lowlevel_ops ops_table = {READ_OPS};

const struct fuse_lowlevel_ops ops_write_table = {
	READ_OPS,
	.setattr = ops_setattr,
	.setxattr = ops_setxattr,
	.removexattr = ops_removexattr,
	.create = ops_create,
	.mknod = ops_mknod,
	.mkdir = ops_mkdir,
	.symlink = ops_symlink,
	.unlink = ops_unlink,
	.rmdir = ops_rmdir,
	.rename = ops_rename,
	.link = ops_link,
	.write = ops_write,
	.fallocate = ops_fallocate,
	.fsync = ops_fsync,
	.fsyncdir = ops_fsync,
};
