/* Requests that set attributes. */
#include "fs/op.h"

#include <sys/xattr.h>

#include "base/clock.h"
#include "fs/acl.h"

/* op->e.n and fields are the attributes of ino from now on. */
static int make_attrs(struct op *op, fuse_ino_t ino)
{
	char name[NODE_NAME_MAX + 1];
	uint64_t parent;
	int r = 0;

	if (ino == NODE_ROOT) {
		op->e.path = "";
	} else {
		r = overlay_name(op->ov, op->t, ino, &parent, name);
		if (r >= 0)
			r = op_find_at(op, parent, name);
		else if (r == -ENOENT) /* unlinked: nobody else will see it */
			op->e.path = "";
	}
	/* In the order in which they were made: the bytes that were written before it. */
	if (r >= 0)
		r = op_version_of(op, ino);
	if (r < 0 && r != -ENOENT)
		return r;
	r = op_make(op, ACCEPTED_ATTR, ino);
	op->p.name = NULL;
	return r;
}

static void take_xattrs(struct op *op, const struct buf *xattrs)
{
	op->e.n.xattrs = buf_data(xattrs);
	op->e.n.xattrs_len = (uint32_t)buf_len(xattrs);
	op->e.fields |= NODE_FIELD_XATTR;
}

static int set_attrs(struct op *op, fuse_ino_t ino, const struct stat *st, int valid)
{
	_cleanup_(buf_done) struct buf xattrs = BUF_INIT(0);
	struct index_node n;
	int r = overlay_node(op->ov, op->t, ino, &n);

	if (r < 0)
		return r;
	op->e.n = n.n;
	op->e.n.target_len = 0;
	if (valid & FUSE_SET_ATTR_MODE) {
		op->e.n.mode = st->st_mode & 07777;
		op->e.fields |= NODE_FIELD_MODE;
	}
	if (valid & FUSE_SET_ATTR_UID) {
		op_set_uid(op->fs, &op->e.n, st->st_uid);
		op->e.fields |= NODE_FIELD_UID;
	}
	if (valid & FUSE_SET_ATTR_GID) {
		op_set_gid(op->fs, &op->e.n, st->st_gid);
		op->e.fields |= NODE_FIELD_GID;
	}
	if (valid & FUSE_SET_ATTR_MTIME) {
		op->e.n.mtime_ns =
			valid & FUSE_SET_ATTR_MTIME_NOW
				? clock_real_ns()
				: (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
		op->e.fields |= NODE_FIELD_MTIME;
	}
	if (op->e.fields & NODE_FIELD_MODE) {
		r = acl_follow_mode(&n.n, op->e.n.mode, &xattrs);
		if (r < 0)
			return r;
		if (r > 0)
			take_xattrs(op, &xattrs);
	}
	return op->e.fields ? make_attrs(op, ino) : 0;
}

void ops_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int valid,
		 struct fuse_file_info *fi)
{
	struct answer answer = {.kind = ANSWER_ATTR};
	struct waiter *wait = NULL;
	struct index_node n;
	struct op op;
	int r = 0;

	(void)fi;
	if (valid & FUSE_SET_ATTR_SIZE)
		r = ops_set_size(req, ino, (uint64_t)attr->st_size, &wait);
	if (r < 0) {
		(void)fuse_reply_err(req, -r);
		return;
	}
	r = op_begin(&op, req);
	op.wait = wait;
	if (r >= 0)
		r = set_attrs(&op, ino, attr, valid);
	if (r >= 0)
		r = overlay_node(op.ov, op.t, ino, &n);
	if (r >= 0)
		r = ops_stat(op.fs, op.t, &n, SPOT_BY_NAME, &answer.attr);
	answer.attr_timeout_s = ops_timeout_s(op.fs);
	op_answer_with(&op, r, &answer);
}

/* ---- extended attributes ---- */

/* value NULL: without it */
static int change_xattr(struct op *op, fuse_ino_t ino, const char *name, const char *value,
			size_t size, int flags)
{
	_cleanup_(buf_done) struct buf xattrs = BUF_INIT(0);
	struct index_node n;
	const uint8_t *old;
	uint32_t old_len;
	bool has;
	int r = overlay_node(op->ov, op->t, ino, &n);

	if (r < 0)
		return r;
	has = node_xattrs_find(n.n.xattrs, n.n.xattrs_len, name, &old, &old_len);
	if (has && flags & XATTR_CREATE)
		return -EEXIST;
	if (!has && (flags & XATTR_REPLACE || !value))
		return -ENODATA;
	op->e.n = n.n;
	op->e.n.target_len = 0;
	if (value && acl_is_access(name)) {
		r = acl_mode(value, size, n.n.mode, &op->e.n.mode);
		if (r < 0)
			return r;
		op->e.fields |= NODE_FIELD_MODE;
		if (r == 0) /* it says no more than the mode does */
			value = NULL;
	}
	r = node_xattrs_set(n.n.xattrs, n.n.xattrs_len, name, value, (uint32_t)size, &xattrs);
	if (r < 0)
		return r == -E2BIG ? -ENOSPC : r;
	take_xattrs(op, &xattrs);
	return make_attrs(op, ino);
}

static void set_xattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
		      size_t size, int flags)
{
	const struct fs *fs = fuse_req_userdata(req);
	struct op op;
	int r;

	if (strlen(name) > NODE_NAME_MAX)
		r = -ERANGE;
	else if (strncmp(name, "user.limb.", 10) == 0)
		r = -EPERM; /* what the view says of itself */
	else if (!attr_xattr_shown(&fs->rules, name, strlen(name)) ||
		 !node_xattr_class(name, strlen(name)))
		r = -EOPNOTSUPP;
	else
		r = 0;
	if (r < 0) {
		(void)fuse_reply_err(req, -r);
		return;
	}
	r = op_begin(&op, req);
	if (r >= 0)
		r = change_xattr(&op, ino, name, value, size, flags);
	op_answer(&op, r);
}

void ops_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		  int flags)
{
	set_xattr(req, ino, name, value ? value : "", size, flags);
}

void ops_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	set_xattr(req, ino, name, NULL, 0, 0);
}
