/* One request that changes something. */
#include "fs/op.h"

#include <time.h>

#include "base/clock.h"
#include "fs/bytes.h"
#include "fs/change.h"
#include "fs/classes.h"

enum {
	WAIT_STEP_MS = 10,
	WAITERS_MAX = 4, /* of the threads that answer; limbd's news needs the others */
};

static bool has_room(struct overlay *ov)
{
	uint64_t limit_ms = classes_wait_ms(ov->fs->classes);
	bool room;

	overlay_read_lock(ov);
	room = intent_last(ov->log) - ov->done < INTENT_ENTRIES_MAX &&
	       ov->staged_bytes < INTENT_BYTES_MAX;
	if (limit_ms && ov->last_change > ov->done)
		room &= intent_age_ms(ov->log, clock_mono_ms()) < limit_ms;
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

int op_begin(struct op *op, fuse_req_t req)
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

void op_end(struct op *op)
{
	if (op->t) {
		source_end(op->fs->source, op->t);
		overlay_unlock(op->ov);
		op->t = NULL;
	}
	buf_done(&op->path);
	buf_done(&op->to_path);
}

void op_answer_with(struct op *op, int r, const struct answer *a)
{
	struct waiter *w = op->wait;

	if (r >= 0 && w && op->p.name)
		await_name(w, op->p.parent, op->p.name);
	if (r >= 0 && w && op->p.to_name)
		await_name(w, op->p.to_parent, op->p.to_name);
	op_end(op);
	op->wait = NULL;
	if (r >= 0 && w) {
		await_answer(w, op->req, a);
		return;
	}
	await_drop(w);
	answer_give(op->fs, op->req, r, a);
}

void op_answer(struct op *op, int r)
{
	op_answer_with(op, r, &(struct answer){.kind = ANSWER_NOTHING});
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

int op_find_at(struct op *op, uint64_t parent, const char *name)
{
	int r = find(op, parent, name, &op->path, &op->node);

	op->p.parent = parent;
	op->p.name = name;
	op->e.path = (const char *)buf_data(&op->path);
	return r;
}

int op_find_to(struct op *op, uint64_t parent, const char *name, uint64_t *ret_node)
{
	int r = find(op, parent, name, &op->to_path, ret_node);

	op->p.to_parent = parent;
	op->p.to_name = name;
	op->e.to_path = (const char *)buf_data(&op->to_path);
	return r;
}

/* ---- class strong ---- */

int op_wait_from(struct op *op, uint64_t first)
{
	if (!op->wait)
		op->wait = await_new(op->fs->await, first);
	return op->wait ? 0 : -ENOMEM;
}

/* 1, or that it cannot be now. */
static int strong(const struct fs *fs)
{
	return status_is_live(&fs->status) ? 1 : -EHOSTUNREACH;
}

static int is_strong(struct op *op, uint8_t kind, uint64_t node)
{
	struct classes *c = op->fs->classes;
	struct index_node n;
	bool dir;

	if (classes_plain(c))
		return 0;
	if (kind == ACCEPTED_CREATE)
		dir = op->e.n.type == NODE_TYPE_DIRECTORY;
	else
		dir = overlay_node(op->ov, op->t, node, &n) >= 0 && n.n.type == NODE_TYPE_DIRECTORY;
	if (classes_of(c, op->e.path, dir) != CLASS_STRONG &&
	    (!op->e.to_path || classes_of(c, op->e.to_path, dir) != CLASS_STRONG))
		return 0;
	return strong(op->fs);
}

int op_is_strong(struct fs *fs, uint64_t id)
{
	_cleanup_(buf_done) struct buf path = BUF_INIT(INDEX_PATH_MAX + 1);
	struct index_txn *t;
	uint64_t seq;
	int r;

	if (classes_plain(fs->classes))
		return 0;
	overlay_read_lock(fs->overlay);
	r = source_begin(fs->source, &t, &seq);
	if (r >= 0) {
		r = overlay_path(fs->overlay, t, id, &path);
		source_end(fs->source, t);
	}
	overlay_unlock(fs->overlay);
	if (r >= 0)
		r = buf_add_u8(&path, 0);
	if (r == -ENOENT) /* unlinked: nobody else will see it */
		return 0;
	if (r < 0)
		return r;
	if (classes_of(fs->classes, (const char *)buf_data(&path), false) != CLASS_STRONG)
		return 0;
	return strong(fs);
}

int op_make(struct op *op, uint8_t kind, uint64_t node)
{
	int r = is_strong(op, kind, node);

	if (r > 0)
		r = op_wait_from(op, intent_last(op->ov->log) + 1);
	if (r < 0)
		return r;
	op->e.kind = kind;
	op->e.node = node;
	op->e.journal = overlay_journal(op->ov, node);
	op->e.base_seq = op->seq;
	r = change_make(op->ov, op->t, &op->e, &op->p);
	if (r >= 0 && op->wait)
		await_until(op->wait, op->e.number);
	return r;
}

/* What is renamed is a version: the new name never leads to less than what was written. */
int op_version_of(struct op *op, uint64_t id)
{
	struct onode *o = overlay_find(op->ov, id);

	return o && o->bytes == BYTES_STAGE ? bytes_version(op->ov, op->t, o, false) : 0;
}

/* ---- owners ---- */

static uint8_t owner_kind(uint32_t id, uint32_t self)
{
	return id == self ? NODE_OWNER_SELF : id == 0 ? NODE_OWNER_ROOT : NODE_OWNER_NUMBER;
}

void op_set_uid(const struct fs *fs, struct node *n, uid_t uid)
{
	n->uid_kind = owner_kind(uid, fs->rules.uid);
	n->uid = uid;
}

void op_set_gid(const struct fs *fs, struct node *n, gid_t gid)
{
	n->gid_kind = owner_kind(gid, fs->rules.gid);
	n->gid = gid;
}
