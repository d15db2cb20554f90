#include "fs/ops.h"

#include "base/clock.h"
#include "fs/overlay.h"
#include "journal/index-view.h"

enum {
	OFFSET_DOT = 1,
	OFFSET_DOT_DOT = 2,
	/* What an entry takes in a READDIR reply at least; bounds how many nodes it holds. */
	ENTRY_BYTES_MIN = 24,
	PLUS_BYTES_MIN = 152,
};

/* One reply in the making. */
struct filling {
	fuse_req_t req;
	struct spot dir;
	struct index_txn *t;
	bool plus;
	char *mem;
	size_t size, used;
	uint64_t *held; /* nodes that the reply makes known */
	size_t n_held;
};

/* 1: added; 0: there is no room. */
static int add(struct filling *f, const char *name, const struct fuse_entry_param *e,
	       uint64_t offset)
{
	char *p = f->mem + f->used;
	size_t room = f->size - f->used, n;

	n = f->plus ? fuse_add_direntry_plus(f->req, p, room, name, e, (off_t)offset)
		    : fuse_add_direntry(f->req, p, room, name, &e->attr, (off_t)offset);
	if (n > room)
		return 0;
	f->used += n;
	if (f->plus && e->ino)
		f->held[f->n_held++] = e->ino;
	return 1;
}

/* These have no node id, so the kernel takes no attributes from them and counts nothing. */
static int add_dot(struct filling *f, const char *name, uint64_t node, uint64_t offset)
{
	struct fuse_entry_param e = {0};
	struct spot s = f->dir;
	struct index_node n;
	int r;

	s.node = node;
	r = spot_node(&s, f->t, &n);
	if (r < 0)
		return r;
	e.attr.st_ino = spot_inode(s.fs, &n);
	e.attr.st_mode = S_IFDIR;
	return add(f, name, &e, offset);
}

static int note_parent(uint64_t parent, const char *name, size_t len, void *userdata)
{
	(void)name;
	(void)len;
	*(uint64_t *)userdata = parent;
	return 1;
}

static int note_shown_parent(struct filling *f, uint64_t *ret)
{
	char name[NODE_NAME_MAX + 1];
	int r = f->dir.node == NODE_ROOT
			? -ENOENT
			: overlay_name(f->dir.fs->overlay, f->t, f->dir.node, ret, name);

	if (r == -ENOENT)
		*ret = f->dir.node;
	return r == -ENOENT ? 0 : r;
}

static int add_dots(struct filling *f, uint64_t offset)
{
	uint64_t parent = f->dir.parent ? f->dir.parent : f->dir.node;
	int r = 1;

	if (offset < OFFSET_DOT)
		r = add_dot(f, ".", f->dir.node, OFFSET_DOT);
	if (r > 0 && offset < OFFSET_DOT_DOT) {
		if (f->dir.fs->overlay)
			r = note_shown_parent(f, &parent);
		else if (f->dir.fs->at == INDEX_NOW)
			r = index_names(f->t, f->dir.node, note_parent, &parent);
		if (r >= 0)
			r = add_dot(f, "..", parent, OFFSET_DOT_DOT);
	}
	return r;
}

static int add_name(struct filling *f, const char *name, size_t len, uint64_t offset)
{
	const struct fs *fs = f->dir.fs;
	struct fuse_entry_param e = {0};
	struct index_node n;
	uint64_t node;
	int r;

	/* The listing may be older than this transaction. */
	r = spot_lookup(&f->dir, f->t, name, len, &node);
	if (r >= 0)
		r = spot_get_node(&f->dir, f->t, node, &n);
	if (r < 0)
		return r == -ENOENT ? 1 : r;
	if (!f->plus) {
		e.attr.st_ino = spot_inode(fs, &n);
		e.attr.st_mode = node_type_to_mode(n.n.type);
		return add(f, name, &e, offset);
	}
	e.attr_timeout = e.entry_timeout = ops_timeout_s(fs);
	r = ops_stat(fs, f->t, &n, f->dir.depth, &e.attr);
	if (r >= 0)
		r = spot_hold(&f->dir, &n, &e.ino);
	if (r >= 0)
		r = add(f, name, &e, offset);
	if (r <= 0 && e.ino && fs->past)
		spot_forget(f->dir.fs, e.ino, 1);
	return r;
}

static int fill_from(struct filling *f, uint64_t seq, uint64_t offset)
{
	struct fs *fs = f->dir.fs;
	struct listing *l;
	const char *name;
	size_t len;
	int r;

	r = add_dots(f, offset);
	if (r <= 0)
		return r;
	r = dirs_get_at(fs->dirs, f->t, seq, fs->space, fs->at, f->dir.node, &l);
	if (r < 0)
		return r;
	for (size_t i = listing_seek(l, offset); i < listing_count(l); i++) {
		uint64_t at = listing_entry(l, i, &name, &len);
		r = add_name(f, name, len, at);
		if (r <= 0)
			break;
	}
	dirs_put(fs->dirs, l);
	return r;
}

static int fill(struct filling *f, uint64_t offset)
{
	struct fs *fs = f->dir.fs;
	uint64_t seq;
	int r;

	do {
		f->used = f->n_held = 0;
		spot_lock(&f->dir);
		r = source_begin(fs->source, &f->t, &seq);
		if (r >= 0) {
			r = fill_from(f, seq, offset);
			source_end(fs->source, f->t);
		}
		/* What was read before an error is good, as in read(2). */
		if (r >= 0 || f->used)
			r = fs->past ? 0 : nodes_hold(fs->nodes, seq, f->held, f->n_held);
		spot_unlock(&f->dir);
	} while (r == -EAGAIN);
	return r;
}

static void answer(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, bool plus)
{
	size_t most = size / (plus ? PLUS_BYTES_MIN : ENTRY_BYTES_MIN) + 1;
	cleanup_free uint64_t *held = malloc(most * sizeof(*held));
	cleanup_free char *mem = malloc(size);
	struct filling f = {
		.req = req,
		.plus = plus,
		.mem = mem,
		.size = size,
		.held = held,
	};
	int r;

	r = held && mem ? spot_get(req, ino, &f.dir) : -ENOMEM;
	if (r >= 0)
		r = fill(&f, (uint64_t)offset);
	if (r < 0) {
		(void)fuse_reply_err(req, -r);
	} else if (fuse_reply_buf(req, mem, f.used) < 0) {
		for (size_t i = 0; i < f.n_held; i++)
			spot_forget(f.dir.fs, held[i], 1);
	}
	spot_done(&f.dir);
}

void ops_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)fi;
	answer(req, ino, size, off, false);
}

void ops_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	(void)fi;
	answer(req, ino, size, off, true);
}
