/* Requests that make, move and remove names. */
#include "fs/op.h"

#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/sha256.h"

/* ---- made anew ---- */

/* The entry for the reply; its lookup is counted. */
static int fill_entry(struct op *op, uint64_t id, struct fuse_entry_param *e)
{
	struct index_node n;
	int r = overlay_node(op->ov, op->t, id, &n);

	if (r >= 0)
		r = ops_stat(op->fs, op->t, &n, SPOT_BY_NAME, &e->attr);
	/* An answer that is older than the follower's floor says nothing of attributes. */
	if (r >= 0)
		r = nodes_hold(op->fs->nodes, UINT64_MAX, &id, 1);
	e->ino = r >= 0 ? id : 0;
	e->entry_timeout = ops_timeout_s(op->fs);
	e->attr_timeout = id & OVERLAY_MADE ? e->entry_timeout : 0;
	return r;
}

/* What another user makes in root's view is that user's. */
static int give_owner(struct op *op)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(op->req);
	struct node *n = &op->e.n;

	op->e.fields = 0;
	if (op->fs->rules.uid != 0)
		return 0;
	if (ctx->uid != op->fs->rules.uid) {
		op_set_uid(op->fs, n, ctx->uid);
		op->e.fields |= NODE_FIELD_UID;
	}
	if (ctx->gid != op->fs->rules.gid && n->gid_kind == NODE_OWNER_SELF) {
		op_set_gid(op->fs, n, ctx->gid);
		op->e.fields |= NODE_FIELD_GID;
	}
	return op->e.fields ? op_make(op, ACCEPTED_ATTR, op->e.node) : 0;
}

static int create(struct op *op, fuse_ino_t parent, const char *name, uint8_t type, mode_t mode,
		  const char *target, struct fuse_entry_param *ret)
{
	struct node *n = &op->e.n;
	struct index_node dir;
	int r = op_find_at(op, parent, name);

	if (r >= 0 && op->node)
		r = -EEXIST;
	if (r >= 0)
		r = overlay_node(op->ov, op->t, parent, &dir);
	if (r < 0)
		return r;
	n->type = type;
	n->mode = type == NODE_TYPE_SYMLINK ? 0777 : mode & 07777;
	n->mtime_ns = clock_real_ns();
	op_set_uid(op->fs, n, op->fs->rules.uid);
	op_set_gid(op->fs, n, op->fs->rules.gid);
	if (dir.n.mode & S_ISGID) {
		n->gid_kind = dir.n.gid_kind;
		n->gid = dir.n.gid;
		if (type == NODE_TYPE_DIRECTORY)
			n->mode |= S_ISGID;
	}
	if (target) {
		n->target = (const uint8_t *)target;
		n->target_len = (uint32_t)strlen(target);
	}
	if (type == NODE_TYPE_FILE)
		sha256("", 0, n->content.sha256);
	r = op_make(op, ACCEPTED_CREATE, op->ov->next_id);
	if (r >= 0)
		r = give_owner(op);
	return r < 0 ? r : fill_entry(op, op->e.node, ret);
}

static void answer_entry(struct op *op, int r, const struct fuse_entry_param *e)
{
	op_answer_with(op, r, &(struct answer){.kind = ANSWER_ENTRY, .entry = *e});
}

void ops_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		struct fuse_file_info *fi)
{
	struct fuse_entry_param e = {0};
	struct op op;
	int r = op_begin(&op, req);

	if (r >= 0)
		r = create(&op, parent, name, NODE_TYPE_FILE, mode, NULL, &e);
	/* Somebody else was faster, and O_EXCL was not asked for. */
	if (r == -EEXIST && !(fi->flags & O_EXCL))
		r = fill_entry(&op, op.node, &e);
	fi->keep_cache = 1;
	op_answer_with(&op, r, &(struct answer){.kind = ANSWER_CREATE, .entry = e, .fi = *fi});
}

void ops_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct fuse_entry_param e = {0};
	struct op op;
	int r;

	(void)rdev;
	/* Devices are not an environment's to make. */
	if (!S_ISREG(mode) && !S_ISFIFO(mode) && !S_ISSOCK(mode)) {
		(void)fuse_reply_err(req, EPERM);
		return;
	}
	r = op_begin(&op, req);
	if (r >= 0)
		r = create(&op, parent, name, node_type_of_mode(mode), mode, NULL, &e);
	answer_entry(&op, r, &e);
}

void ops_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct fuse_entry_param e = {0};
	struct op op;
	int r = op_begin(&op, req);

	if (r >= 0)
		r = create(&op, parent, name, NODE_TYPE_DIRECTORY, mode, NULL, &e);
	answer_entry(&op, r, &e);
}

void ops_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = {0};
	struct op op;
	int r = op_begin(&op, req);

	if (r >= 0 && strlen(target) > NODE_TARGET_MAX)
		r = -ENAMETOOLONG;
	if (r >= 0)
		r = create(&op, parent, name, NODE_TYPE_SYMLINK, 0777, target, &e);
	answer_entry(&op, r, &e);
}

/* ---- names ---- */

static int remove_name(struct op *op, fuse_ino_t parent, const char *name, bool dir)
{
	struct index_node n;
	int r = op_find_at(op, parent, name);

	if (r >= 0 && !op->node)
		r = -ENOENT;
	if (r >= 0)
		r = overlay_node(op->ov, op->t, op->node, &n);
	if (r < 0)
		return r;
	if (dir != (n.n.type == NODE_TYPE_DIRECTORY))
		return dir ? -ENOTDIR : -EISDIR;
	if (dir && !overlay_dir_is_empty(op->ov, op->t, op->node))
		return -ENOTEMPTY;
	op->e.has_base = n.n.type == NODE_TYPE_FILE;
	op->e.base = n.n.content;
	op->e.fields = !dir && n.links > 1 ? NODE_FIELD_LINKS : 0;
	return op_make(op, ACCEPTED_REMOVE, op->node);
}

void ops_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct op op;
	int r = op_begin(&op, req);

	if (r >= 0)
		r = remove_name(&op, parent, name, false);
	op_answer(&op, r);
}

void ops_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct op op;
	int r = op_begin(&op, req);

	if (r >= 0)
		r = remove_name(&op, parent, name, true);
	op_answer(&op, r);
}

static int judge_replaced(struct op *op, const struct index_node *from)
{
	struct index_node to;
	int r;

	if (!op->p.replaced)
		return 0;
	r = overlay_node(op->ov, op->t, op->p.replaced, &to);
	if (r < 0)
		return r;
	if (from->n.type == NODE_TYPE_DIRECTORY && to.n.type != NODE_TYPE_DIRECTORY)
		return -ENOTDIR;
	if (from->n.type != NODE_TYPE_DIRECTORY && to.n.type == NODE_TYPE_DIRECTORY)
		return -EISDIR;
	return to.n.type != NODE_TYPE_DIRECTORY ||
			       overlay_dir_is_empty(op->ov, op->t, op->p.replaced)
		       ? 0
		       : -ENOTEMPTY;
}

/* For the environment three changes, one after the other, and here one: nobody looks in between. */
static int exchange(struct op *op)
{
	const char *from = op->e.path, *to = op->e.to_path, *slash = strrchr(from, '/');
	int dir_len = slash ? (int)(slash - from) + 1 : 0;
	_cleanup_(buf_done) struct buf aside = BUF_INIT(0);
	const char *path, *name;
	struct placed p = op->p;
	uint64_t other = p.replaced;
	int r = 0;

	if (other == op->node)
		return 0;
	r = buf_printf(&aside, "%.*s.limb-exchange-%llx", dir_len, from,
		       (unsigned long long)intent_last(op->ov->log));
	if (r >= 0)
		r = buf_add_u8(&aside, 0);
	if (r >= 0)
		r = op_version_of(op, op->node);
	if (r >= 0)
		r = op_version_of(op, other);
	if (r < 0)
		return r;
	path = (const char *)buf_data(&aside);
	name = path + dir_len;
	op->e.to_path = path;
	op->p = (struct placed){p.parent, p.parent, p.name, name, 0};
	r = op_make(op, ACCEPTED_MOVE, op->node);
	if (r >= 0) {
		op->e.path = to;
		op->e.to_path = from;
		op->p = (struct placed){p.to_parent, p.parent, p.to_name, p.name, 0};
		r = op_make(op, ACCEPTED_MOVE, other);
	}
	if (r >= 0) {
		op->e.path = path;
		op->e.to_path = to;
		op->p = (struct placed){p.parent, p.to_parent, name, p.to_name, 0};
		r = op_make(op, ACCEPTED_MOVE, op->node);
	}
	op->p = p; /* what lies aside has a name of ours */
	return r;
}

static int move(struct op *op, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
		const char *to_name, unsigned flags)
{
	struct index_node n;
	int r;

	if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE))
		return -EINVAL;
	r = op_find_at(op, parent, name);
	if (r >= 0 && !op->node)
		r = -ENOENT;
	if (r >= 0)
		r = overlay_node(op->ov, op->t, op->node, &n);
	if (r >= 0)
		r = op_find_to(op, to_parent, to_name, &op->p.replaced);
	if (r >= 0 && op->p.replaced && (flags & RENAME_NOREPLACE))
		r = -EEXIST;
	if (r >= 0 && flags & RENAME_EXCHANGE)
		return op->p.replaced ? exchange(op) : -ENOENT;
	if (r < 0 || op->p.replaced == op->node)
		return r;
	r = judge_replaced(op, &n);
	if (r >= 0)
		r = op_version_of(op, op->node);
	return r < 0 ? r : op_make(op, ACCEPTED_MOVE, op->node);
}

void ops_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
		const char *to_name, unsigned flags)
{
	struct op op;
	int r = op_begin(&op, req);

	if (r >= 0)
		r = move(&op, parent, name, to_parent, to_name, flags);
	op_answer(&op, r);
}

static int make_link(struct op *op, fuse_ino_t ino, fuse_ino_t to_parent, const char *to_name)
{
	char name[NODE_NAME_MAX + 1];
	uint64_t parent, there;
	int r = op_find_to(op, to_parent, to_name, &there);

	if (r >= 0 && there)
		r = -EEXIST;
	if (r >= 0)
		r = overlay_name(op->ov, op->t, ino, &parent, name);
	if (r >= 0)
		r = op_find_at(op, parent, name);
	if (r >= 0)
		r = op_version_of(op, ino);
	if (r >= 0)
		r = op_make(op, ACCEPTED_LINK, ino);
	op->p.name = NULL;
	return r;
}

void ops_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t to_parent, const char *to_name)
{
	struct fuse_entry_param e = {0};
	struct op op;
	int r = op_begin(&op, req);

	if (r >= 0)
		r = make_link(&op, ino, to_parent, to_name);
	if (r >= 0)
		r = fill_entry(&op, ino, &e);
	answer_entry(&op, r, &e);
}
