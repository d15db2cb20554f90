/* Requests that change something: made an entry of the intent log, then answered. */
#include "fs/ops.h"

#include <fcntl.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/sha256.h"
#include "fs/bytes.h"
#include "fs/change.h"
#include "fs/keeper.h"

enum {
	WAIT_STEP_MS = 10,
	WAITERS_MAX = 4, /* of the threads that answer; limbd's news needs the others */
};

/* One request: the lock and a transaction, from begin() to end(). */
struct op {
	fuse_req_t req;
	struct fs *fs;
	struct overlay *ov;
	struct index_txn *t;
	uint64_t seq;
	struct buf path, to_path;
	struct accepted e;
	struct placed p;
	uint64_t node; /* that `name` leads to; 0: nothing */
};

static bool has_room(struct overlay *ov)
{
	bool room;

	overlay_read_lock(ov);
	room = intent_last(ov->log) - ov->done < INTENT_ENTRIES_MAX &&
	       ov->staged_bytes < INTENT_BYTES_MAX;
	overlay_unlock(ov);
	return room;
}

/* Who writes faster than it is made waits, and then hears why. */
static int wait_for_room(fuse_req_t req, struct overlay *ov)
{
	const struct timespec pause = {.tv_nsec = WAIT_STEP_MS * 1000000};
	static atomic_uint waiters;
	uint64_t end_ms;
	int r = 0;

	if (has_room(ov))
		return 0;
	if (atomic_fetch_add(&waiters, 1) >= WAITERS_MAX) {
		(void)atomic_fetch_sub(&waiters, 1);
		return -EDQUOT;
	}
	end_ms = clock_mono_ms() + INTENT_WAIT_MS;
	while (r == 0 && !has_room(ov)) {
		if (fuse_req_interrupted(req))
			r = -EINTR;
		else if (clock_mono_ms() >= end_ms)
			r = -EDQUOT;
		else
			(void)nanosleep(&pause, NULL);
	}
	(void)atomic_fetch_sub(&waiters, 1);
	return r;
}

static int begin(struct op *op, fuse_req_t req)
{
	int r;

	*op = (struct op){.req = req, .fs = fuse_req_userdata(req)};
	op->ov = op->fs->overlay;
	buf_init(&op->path, INDEX_PATH_MAX);
	buf_init(&op->to_path, INDEX_PATH_MAX);
	r = wait_for_room(req, op->ov);
	if (r < 0)
		return r;
	overlay_lock(op->ov);
	r = source_begin(op->fs->source, &op->t, &op->seq);
	if (r < 0)
		overlay_unlock(op->ov);
	return r;
}

static void end(struct op *op)
{
	if (op->t) {
		source_end(op->fs->source, op->t);
		overlay_unlock(op->ov);
		op->t = NULL;
	}
	buf_done(&op->path);
	buf_done(&op->to_path);
}

static void answer(struct op *op, int r)
{
	end(op);
	(void)fuse_reply_err(op->req, r < 0 ? -r : 0);
}

/* The directory, and what its name leads to now: into p, path and node. */
static int find(struct op *op, uint64_t parent, const char *name, struct buf *path,
		uint64_t *ret_node)
{
	struct index_node dir;
	int r;

	if (strlen(name) > NODE_NAME_MAX)
		return -ENAMETOOLONG;
	r = overlay_node(op->ov, op->t, parent, &dir);
	if (r < 0)
		return r;
	if (dir.n.type != NODE_TYPE_DIRECTORY)
		return -ENOTDIR;
	r = overlay_path(op->ov, op->t, parent, path);
	if (r >= 0 && buf_len(path))
		r = buf_add_u8(path, '/');
	if (r >= 0)
		r = buf_add(path, name, strlen(name) + 1);
	if (r < 0)
		return r;
	r = overlay_lookup(op->ov, op->t, parent, name, strlen(name), ret_node);
	if (r == -ENOENT)
		*ret_node = 0;
	return r == -ENOENT ? 0 : r;
}

static int find_at(struct op *op, uint64_t parent, const char *name)
{
	int r = find(op, parent, name, &op->path, &op->node);

	op->p.parent = parent;
	op->p.name = name;
	op->e.path = (const char *)buf_data(&op->path);
	return r;
}

static int find_to(struct op *op, uint64_t parent, const char *name, uint64_t *ret_node)
{
	int r = find(op, parent, name, &op->to_path, ret_node);

	op->p.to_parent = parent;
	op->p.to_name = name;
	op->e.to_path = (const char *)buf_data(&op->to_path);
	return r;
}

static int make(struct op *op, uint8_t kind, uint64_t node)
{
	op->e.kind = kind;
	op->e.node = node;
	op->e.journal = overlay_journal(op->ov, node);
	op->e.base_seq = op->seq;
	return change_make(op->ov, op->t, &op->e, &op->p);
}

/* ---- owners ---- */

static uint8_t owner_kind(const struct attr_rules *r, uint32_t id, uint32_t self)
{
	(void)r;
	return id == self ? NODE_OWNER_SELF : id == 0 ? NODE_OWNER_ROOT : NODE_OWNER_NUMBER;
}

static void set_uid(const struct fs *fs, struct node *n, uid_t uid)
{
	n->uid_kind = owner_kind(&fs->rules, uid, fs->rules.uid);
	n->uid = uid;
}

static void set_gid(const struct fs *fs, struct node *n, gid_t gid)
{
	n->gid_kind = owner_kind(&fs->rules, gid, fs->rules.gid);
	n->gid = gid;
}

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
	e->ino = id;
	e->entry_timeout = ops_timeout_s(op->fs);
	e->attr_timeout = id & OVERLAY_MADE ? e->entry_timeout : 0;
	return r;
}

static int create(struct op *op, fuse_ino_t parent, const char *name, uint8_t type, mode_t mode,
		  const char *target, struct fuse_entry_param *ret)
{
	struct node *n = &op->e.n;
	struct index_node dir;
	int r = find_at(op, parent, name);

	if (r >= 0 && op->node)
		r = -EEXIST;
	if (r >= 0)
		r = overlay_node(op->ov, op->t, parent, &dir);
	if (r < 0)
		return r;
	n->type = type;
	n->mode = type == NODE_TYPE_SYMLINK ? 0777 : mode & 07777;
	n->mtime_ns = clock_real_ns();
	set_uid(op->fs, n, op->fs->rules.uid);
	set_gid(op->fs, n, op->fs->rules.gid);
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
	r = make(op, ACCEPTED_CREATE, op->ov->next_id);
	return r < 0 ? r : fill_entry(op, op->e.node, ret);
}

static void answer_entry(struct op *op, int r, const struct fuse_entry_param *e)
{
	end(op);
	if (r < 0)
		(void)fuse_reply_err(op->req, -r);
	else if (fuse_reply_entry(op->req, e) < 0)
		spot_forget(op->fs, e->ino, 1);
}

void ops_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		struct fuse_file_info *fi)
{
	struct fuse_entry_param e = {0};
	struct op op;
	int r = begin(&op, req);

	if (r >= 0)
		r = create(&op, parent, name, NODE_TYPE_FILE, mode, NULL, &e);
	/* Somebody else was faster, and O_EXCL was not asked for. */
	if (r == -EEXIST && !(fi->flags & O_EXCL))
		r = fill_entry(&op, op.node, &e);
	end(&op);
	fi->keep_cache = 1;
	if (r < 0)
		(void)fuse_reply_err(req, -r);
	else if (fuse_reply_create(req, &e, fi) < 0)
		spot_forget(op.fs, e.ino, 1);
}

void ops_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct fuse_entry_param e = {0};
	struct op op;
	int r;

	(void)rdev;
	if (!S_ISREG(mode)) {
		(void)fuse_reply_err(req, EPERM);
		return;
	}
	r = begin(&op, req);
	if (r >= 0)
		r = create(&op, parent, name, NODE_TYPE_FILE, mode, NULL, &e);
	answer_entry(&op, r, &e);
}

void ops_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct fuse_entry_param e = {0};
	struct op op;
	int r = begin(&op, req);

	if (r >= 0)
		r = create(&op, parent, name, NODE_TYPE_DIRECTORY, mode, NULL, &e);
	answer_entry(&op, r, &e);
}

void ops_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = {0};
	struct op op;
	int r = strlen(target) > NODE_TARGET_MAX ? -ENAMETOOLONG : begin(&op, req);

	if (strlen(target) > NODE_TARGET_MAX) {
		(void)fuse_reply_err(req, ENAMETOOLONG);
		return;
	}
	if (r >= 0)
		r = create(&op, parent, name, NODE_TYPE_SYMLINK, 0777, target, &e);
	answer_entry(&op, r, &e);
}

/* ---- names ---- */

static int remove_name(struct op *op, fuse_ino_t parent, const char *name, bool dir)
{
	struct index_node n;
	int r = find_at(op, parent, name);

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
	return make(op, ACCEPTED_REMOVE, op->node);
}

void ops_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct op op;
	int r = begin(&op, req);

	if (r >= 0)
		r = remove_name(&op, parent, name, false);
	answer(&op, r);
}

void ops_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct op op;
	int r = begin(&op, req);

	if (r >= 0)
		r = remove_name(&op, parent, name, true);
	answer(&op, r);
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

/* What is renamed is a version: the new name never leads to less than what was written. */
static int version_of(struct op *op, uint64_t id)
{
	struct onode *o = overlay_find(op->ov, id);

	return o && o->bytes == BYTES_STAGE ? bytes_version(op->ov, op->t, o) : 0;
}

static int move(struct op *op, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
		const char *to_name, unsigned flags)
{
	struct index_node n;
	int r;

	/* EXCHANGE would be three changes for the environment, and not one. */
	if (flags & ~(unsigned)RENAME_NOREPLACE)
		return -EINVAL;
	r = find_at(op, parent, name);
	if (r >= 0 && !op->node)
		r = -ENOENT;
	if (r >= 0)
		r = overlay_node(op->ov, op->t, op->node, &n);
	if (r >= 0)
		r = find_to(op, to_parent, to_name, &op->p.replaced);
	if (r >= 0 && op->p.replaced && (flags & RENAME_NOREPLACE))
		r = -EEXIST;
	if (r < 0 || op->p.replaced == op->node)
		return r;
	r = judge_replaced(op, &n);
	if (r >= 0)
		r = version_of(op, op->node);
	return r < 0 ? r : make(op, ACCEPTED_MOVE, op->node);
}

void ops_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to_parent,
		const char *to_name, unsigned flags)
{
	struct op op;
	int r = begin(&op, req);

	if (r >= 0)
		r = move(&op, parent, name, to_parent, to_name, flags);
	answer(&op, r);
}

static int make_link(struct op *op, fuse_ino_t ino, fuse_ino_t to_parent, const char *to_name)
{
	char name[NODE_NAME_MAX + 1];
	uint64_t parent, there;
	int r = find_to(op, to_parent, to_name, &there);

	if (r >= 0 && there)
		r = -EEXIST;
	if (r >= 0)
		r = overlay_name(op->ov, op->t, ino, &parent, name);
	if (r >= 0)
		r = find_at(op, parent, name);
	if (r >= 0)
		r = version_of(op, ino);
	if (r >= 0)
		r = make(op, ACCEPTED_LINK, ino);
	op->p.name = NULL;
	return r;
}

void ops_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t to_parent, const char *to_name)
{
	struct fuse_entry_param e = {0};
	struct op op;
	int r = begin(&op, req);

	if (r >= 0)
		r = make_link(&op, ino, to_parent, to_name);
	if (r >= 0)
		r = fill_entry(&op, ino, &e);
	answer_entry(&op, r, &e);
}

/* ---- bytes ---- */

/* With the lock taken and a staging file open; begin() was called. */
static int begin_bytes(struct op *op, fuse_req_t req, fuse_ino_t ino, uint64_t size, bool seen,
		       int *ret_fd, struct onode **ret)
{
	struct fs *fs = fuse_req_userdata(req);
	int r;

	for (;;) {
		r = bytes_stage(fs->overlay, ino, size, seen);
		if (r < 0) {
			*op = (struct op){.req = req, .fs = fs, .ov = fs->overlay};
			return r;
		}
		r = begin(op, req);
		if (r < 0)
			return r;
		*ret = overlay_find(op->ov, ino);
		r = bytes_open(op->ov, *ret);
		if (r >= 0) {
			*ret_fd = r;
			return 0;
		}
		end(op);
		if (r != -ESTALE)
			return r;
	}
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
	if (r >= 0)
		bytes_changed(op.ov, o, MAX(o->n.content.size_bytes, at + size));
	end(&op);
	if (r >= 0)
		keeper_wake(op.fs->keeper);
	if (r >= 0 && at != (uint64_t)off)
		keeper_invalidate(op.fs->keeper, ino);
	if (r < 0)
		(void)fuse_reply_err(req, -r);
	else
		(void)fuse_reply_write(req, size);
}

static int set_size(fuse_req_t req, fuse_ino_t ino, uint64_t size)
{
	cleanup_close int fd = -1;
	struct onode *o = NULL;
	struct op op;
	int r = begin_bytes(&op, req, ino, size, false, &fd, &o);

	if (r >= 0)
		r = io_ftruncate(fd, size, "view.truncate");
	if (r >= 0)
		bytes_changed(op.ov, o, size);
	end(&op);
	if (r >= 0)
		keeper_wake(op.fs->keeper);
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
	}
	answer(&op, r);
	if (r >= 0)
		keeper_wake(op.fs->keeper);
}

/* Everything that fsync returned for: the version, the entries before it, their directory. */
static int sync_node(struct op *op, fuse_ino_t ino)
{
	struct overlay *ov = op->ov;
	struct onode *o = overlay_find(ov, ino);
	uint64_t number = 0;
	int r = 0;

	if (o && o->over && o->bytes == BYTES_STAGE)
		r = bytes_version(ov, op->t, o);
	if (o && o->over && o->bytes == BYTES_DATA)
		number = o->data;
	end(op);
	if (r >= 0 && number)
		r = bytes_sync(ov, number);
	return r < 0 ? r : intent_sync(ov->log);
}

void ops_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct op op;
	int r = begin(&op, req);

	(void)datasync;
	(void)fi;
	if (r >= 0)
		r = sync_node(&op, ino);
	answer(&op, r);
}

/* ---- attributes ---- */

static int set_attrs(struct op *op, fuse_ino_t ino, const struct stat *st, int valid)
{
	char name[NODE_NAME_MAX + 1];
	struct index_node n;
	uint64_t parent;
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
		set_uid(op->fs, &op->e.n, st->st_uid);
		op->e.fields |= NODE_FIELD_UID;
	}
	if (valid & FUSE_SET_ATTR_GID) {
		set_gid(op->fs, &op->e.n, st->st_gid);
		op->e.fields |= NODE_FIELD_GID;
	}
	if (valid & FUSE_SET_ATTR_MTIME) {
		op->e.n.mtime_ns =
			valid & FUSE_SET_ATTR_MTIME_NOW
				? clock_real_ns()
				: (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
		op->e.fields |= NODE_FIELD_MTIME;
	}
	if (!op->e.fields)
		return 0;
	if (ino == NODE_ROOT) {
		op->e.path = "";
	} else {
		r = overlay_name(op->ov, op->t, ino, &parent, name);
		if (r >= 0)
			r = find_at(op, parent, name);
		else if (r == -ENOENT) /* unlinked: nobody else will see it */
			op->e.path = "";
	}
	/* In the order in which they were made: the bytes that were written before it. */
	if (r >= 0)
		r = version_of(op, ino);
	if (r < 0 && r != -ENOENT)
		return r;
	return make(op, ACCEPTED_ATTR, ino);
}

void ops_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int valid,
		 struct fuse_file_info *fi)
{
	struct index_node n;
	struct stat st;
	struct op op;
	int r = 0;

	(void)fi;
	if (valid & FUSE_SET_ATTR_SIZE)
		r = set_size(req, ino, (uint64_t)attr->st_size);
	if (r < 0) {
		(void)fuse_reply_err(req, -r);
		return;
	}
	r = begin(&op, req);
	if (r >= 0)
		r = set_attrs(&op, ino, attr, valid);
	if (r >= 0)
		r = overlay_node(op.ov, op.t, ino, &n);
	if (r >= 0)
		r = ops_stat(op.fs, op.t, &n, SPOT_BY_NAME, &st);
	end(&op);
	if (r < 0)
		(void)fuse_reply_err(req, -r);
	else
		(void)fuse_reply_attr(req, &st, ops_timeout_s(op.fs));
}
