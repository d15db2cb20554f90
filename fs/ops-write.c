/* Requests that write bytes. */
#include "fs/op.h"

#include <fcntl.h>

#include "base/io.h"
#include "fs/bytes.h"
#include "fs/keeper.h"

/* With the lock taken and a staging file open; op_begin() was called. seen: the kernel's pages,
 * of a mapping: nobody waits for these. */
static int begin_bytes(struct op *op, fuse_req_t req, fuse_ino_t ino, uint64_t size, bool seen,
		       int *ret_fd, struct onode **ret)
{
	struct fs *fs = fuse_req_userdata(req);
	int r, strong;

	for (;;) {
		r = strong = seen ? 0 : op_is_strong(fs, ino);
		if (r >= 0)
			r = bytes_stage(fs->overlay, ino, size, seen);
		if (r < 0) {
			*op = (struct op){.req = req, .fs = fs, .ov = fs->overlay};
			return r;
		}
		r = op_begin(op, req);
		if (r < 0)
			return r;
		*ret = overlay_find(op->ov, ino);
		r = bytes_open(op->ov, *ret);
		if (r >= 0) {
			*ret_fd = r;
			return strong ? op_wait_from(op, intent_last(op->ov->log) + 1) : 0;
		}
		op_end(op);
		if (r != -ESTALE)
			return r;
	}
}

/* What is waited for is a version at once. */
static int end_bytes(struct op *op, struct onode *o)
{
	int r = op->wait ? bytes_version(op->ov, op->t, o, true) : 0;

	if (r >= 0 && op->wait)
		await_until(op->wait, intent_last(op->ov->log));
	return r;
}

void ops_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off,
	       struct fuse_file_info *fi)
{
	bool append = fi->flags & O_APPEND && !fi->writepage;
	cleanup_close int fd = -1;
	struct onode *o = NULL;
	struct op op;
	int r = begin_bytes(&op, req, ino, UINT64_MAX, fi->writepage, &fd, &o);
	uint64_t at = (uint64_t)off;

	/* The kernel's end of the file may be older than what the environment has appended. */
	if (r >= 0 && append)
		at = o->n.content.size_bytes;
	if (r >= 0)
		r = io_pwrite_full(fd, data, size, at, "view.write");
	if (r >= 0) {
		bytes_changed(op.ov, o, MAX(o->n.content.size_bytes, at + size));
		keeper_wake(op.fs->keeper);
		if (at != (uint64_t)off)
			keeper_invalidate(op.fs->keeper, ino);
		r = end_bytes(&op, o);
	}
	op_answer_with(&op, r, &(struct answer){.kind = ANSWER_WRITE, .written = size});
}

int ops_set_size(fuse_req_t req, fuse_ino_t ino, uint64_t size, struct waiter **ret_wait)
{
	cleanup_close int fd = -1;
	struct onode *o = NULL;
	struct op op;
	int r = begin_bytes(&op, req, ino, size, false, &fd, &o);

	if (r >= 0)
		r = io_ftruncate(fd, size, "view.truncate");
	if (r >= 0) {
		bytes_changed(op.ov, o, size);
		keeper_wake(op.fs->keeper);
		r = end_bytes(&op, o);
	}
	op_end(&op);
	*ret_wait = r < 0 ? NULL : op.wait;
	if (r < 0)
		await_drop(op.wait);
	return r;
}

void ops_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
		   struct fuse_file_info *fi)
{
	cleanup_close int fd = -1;
	struct onode *o = NULL;
	uint64_t size = 0;
	struct op op;
	int r;

	(void)fi;
	if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) {
		(void)fuse_reply_err(req, EOPNOTSUPP);
		return;
	}
	r = begin_bytes(&op, req, ino, UINT64_MAX, false, &fd, &o);
	if (r >= 0 && fallocate(fd, mode, off, len) < 0)
		r = -errno;
	if (r >= 0) {
		size = o->n.content.size_bytes;
		if (!(mode & FALLOC_FL_KEEP_SIZE))
			size = MAX(size, (uint64_t)(off + len));
		bytes_changed(op.ov, o, size);
		keeper_wake(op.fs->keeper);
		r = end_bytes(&op, o);
	}
	op_answer(&op, r);
}

/* Everything that fsync returned for: the version, the entries before it, their directory. */
static int sync_node(struct op *op, fuse_ino_t ino, int strong, bool gone)
{
	struct overlay *ov = op->ov;
	struct onode *o = overlay_find(ov, ino);
	uint64_t number = 0;
	int r = 0;

	if (o && o->over && o->bytes == BYTES_STAGE)
		r = bytes_version(ov, op->t, o, gone);
	if (o && o->over && o->bytes == BYTES_DATA)
		number = o->data;
	if (r >= 0 && strong > 0 && number && !await_is_over(op->fs->await, number)) {
		r = op_wait_from(op, number);
		if (r >= 0)
			await_until(op->wait, number);
	}
	op_end(op);
	if (r >= 0 && number)
		r = bytes_sync(ov, number);
	return r < 0 ? r : intent_sync(ov->log);
}

void ops_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	/* What a mapping wrote nobody has waited for yet. While it is away it is durable here. */
	int r = -ENOENT, strong = op_is_strong(fuse_req_userdata(req), ino);
	struct op op;

	(void)datasync;
	(void)fi;
	/* The index may just be telling where its directory is. */
	for (unsigned i = 0; r == -ENOENT && i < BYTES_NAPS; i++) {
		if (i)
			(void)usleep(BYTES_NAP_MS * 1000);
		r = op_begin(&op, req);
		if (r >= 0)
			r = sync_node(&op, ino, strong, i == BYTES_NAPS - 1);
		if (op.wait)
			break;
	}
	op_answer(&op, r);
}
