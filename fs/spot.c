#include "fs/spot.h"

#include "fs/overlay.h"
#include "fs/past.h"
#include "journal/index-view.h"

int spot_get(fuse_req_t req, fuse_ino_t ino, struct spot *ret)
{
	struct fs *fs = fuse_req_userdata(req);

	if (fs->past)
		return past_get(fs->past, ino, ret);
	*ret = (struct spot){.fs = fs, .node = ino, .depth = SPOT_BY_NAME};
	return 0;
}

void spot_done(struct spot *s)
{
	if (s->fs && s->fs->past)
		past_put(s->fs->past, s);
	s->fs = NULL;
}

int spot_node(const struct spot *s, struct index_txn *t, struct index_node *ret)
{
	if (s->fs->overlay)
		return overlay_node(s->fs->overlay, t, s->node, ret);
	if (s->fs->at == INDEX_NOW)
		return index_last_node(t, s->node, ret);
	return index_get_node(t, s->node, s->fs->at, ret);
}

int spot_lookup(const struct spot *s, struct index_txn *t, const char *name, size_t len,
		uint64_t *ret_node)
{
	if (s->fs->overlay)
		return overlay_lookup(s->fs->overlay, t, s->node, name, len, ret_node);
	return index_lookup(t, s->node, name, len, s->fs->at, ret_node);
}

int spot_get_node(const struct spot *s, struct index_txn *t, uint64_t node, struct index_node *ret)
{
	if (s->fs->overlay)
		return overlay_node(s->fs->overlay, t, node, ret);
	return index_get_node(t, node, s->fs->at, ret);
}

int spot_path(const struct spot *s, struct index_txn *t, struct buf *out)
{
	int r;

	if (s->fs->overlay)
		r = overlay_path(s->fs->overlay, t, s->node, out);
	else
		r = s->fs->at == INDEX_NOW ? index_path(t, s->node, out) : -ENOENT;
	return r < 0 ? r : buf_add_u8(out, 0);
}

void spot_lock(const struct spot *s)
{
	overlay_read_lock(s->fs->overlay);
}

void spot_unlock(const struct spot *s)
{
	overlay_unlock(s->fs->overlay);
}

int spot_begin(const struct spot *s, struct index_txn **ret, uint64_t *ret_seq)
{
	int r;

	spot_lock(s);
	r = source_begin(s->fs->source, ret, ret_seq);
	if (r < 0)
		spot_unlock(s);
	return r;
}

void spot_end(const struct spot *s, struct index_txn *t)
{
	source_end(s->fs->source, t);
	spot_unlock(s);
}

uint64_t spot_inode(const struct fs *fs, const struct index_node *n)
{
	return fs->past ? past_inode(fs, n) : attr_inode(n);
}

int spot_hold(const struct spot *s, const struct index_node *n, fuse_ino_t *ret_ino)
{
	if (s->fs->past)
		return past_hold(s, n, ret_ino);
	*ret_ino = n->id;
	return 0;
}

void spot_forget(struct fs *session, fuse_ino_t ino, uint64_t count)
{
	if (session->past)
		past_forget(session->past, ino, count);
	else
		nodes_forget(session->nodes, ino, count);
}
