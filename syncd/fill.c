#include "syncd/fill.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/beneath.h"
#include "base/clock.h"
#include "syncd/saved.h"
#include "wire/attr.h"

enum {
	/* Coarse clocks: what changed this recently may have changed again in the same tick. */
	DOUBT_NS_PER_S = 1000000000,
	DOUBT_S = 600,
};

bool fill_is_doubtful(const struct sync *sy, int64_t ctime_ns)
{
	return !sy->root.fine_stamps &&
	       clock_real_ns() - ctime_ns < (int64_t)DOUBT_S * DOUBT_NS_PER_S;
}

static uint32_t owner_of(uint8_t kind, uint32_t number, uint32_t self)
{
	if (kind == NODE_OWNER_SELF)
		return self;
	return kind == NODE_OWNER_ROOT ? 0 : number;
}

static void to_shadow(struct sync *sy, uint64_t id, const struct node *n, struct shadow_node *ret)
{
	struct stamp born = {.btime_ns = (int64_t)n->generation};

	*ret = (struct shadow_node){
		.id = id,
		.inode = n->inode,
		.mtime_ns = n->mtime_ns,
		.ctime_ns = n->ctime_ns,
		.uid = owner_of(n->uid_kind, n->uid, sy->root.uid),
		.gid = owner_of(n->gid_kind, n->gid, sy->root.gid),
		.generation = stamp_generation(&born),
		.mode = (uint16_t)(node_type_to_mode(n->type) | n->mode),
		.device = shadow_device(&sy->shadow, n->device),
	};
	if (n->type == NODE_TYPE_FILE) {
		ret->size = n->content.size_bytes;
		memcpy(ret->sha, n->content.sha256, sizeof(ret->sha));
		if (n->torn)
			ret->flags |= SHADOW_TORN;
		if (fill_is_doubtful(sy, n->ctime_ns))
			ret->flags |= SHADOW_RACY;
	} else if (n->type == NODE_TYPE_SYMLINK) {
		uint8_t sha[SHA256_BYTES];

		ret->size = n->target_len;
		sha256(n->target, n->target_len, sha);
		memcpy(ret->sha, sha, sizeof(ret->sha));
	} else if (n->type == NODE_TYPE_CHAR || n->type == NODE_TYPE_BLOCK) {
		ret->size = makedev(n->rdev_major, n->rdev_minor);
	}
	if (n->type == NODE_TYPE_DIRECTORY && n->device)
		ret->flags |= SHADOW_BOUNDARY;
}

/* A second name of a node that is there already. */
static uint32_t find_known(const struct sync *sy, const struct shadow_node *sig)
{
	uint32_t pos = 0, n;

	while ((n = shadow_find_inode(&sy->shadow, sig->device, sig->inode, &pos)))
		if (shadow_node(&sy->shadow, n)->id == sig->id)
			return n;
	return 0;
}

static void forget_name(struct sync *sy, uint32_t e)
{
	shadow_detach(&sy->shadow, e, sync_dir_left, sy);
	shadow_free_detached(&sy->shadow, e);
}

int fill_add(struct sync *sy, uint32_t dir, const char *name, size_t len,
	     const struct shadow_node *sig, bool second_name, uint32_t *ret)
{
	uint32_t e = shadow_find(&sy->shadow, dir, name, len), n = 0;

	if (e) {
		n = shadow_entry(&sy->shadow, e)->node;
		if (shadow_node(&sy->shadow, n)->id == sig->id &&
		    (shadow_node(&sy->shadow, n)->mode & S_IFMT) == (sig->mode & S_IFMT)) {
			shadow_set_node(&sy->shadow, n, sig);
			*ret = n;
			return 0;
		}
		forget_name(sy, e);
		n = 0;
	}
	if (second_name && !S_ISDIR(sig->mode))
		n = find_known(sy, sig);
	if (n)
		shadow_set_node(&sy->shadow, n, sig);
	else
		n = shadow_add_node(&sy->shadow, sig);
	if (!n)
		return -ENOMEM;
	if (!shadow_link(&sy->shadow, dir, name, len, n)) {
		if (!shadow_node(&sy->shadow, n)->refs)
			shadow_free_node(&sy->shadow, n);
		return -ENOMEM;
	}
	*ret = n;
	return 0;
}

int fill_adopt(struct sync *sy, uint64_t parent, const char *name, size_t len, uint64_t id,
	       const struct node *n, const struct stamp *st, bool ours)
{
	struct shadow_node sig;
	uint32_t dir, made;

	to_shadow(sy, id, n, &sig);
	if (st && (st->mode & S_IFMT) != (sig.mode & S_IFMT)) {
		/* Somebody has put another thing there since it was made, which the scan will find. */
		sig.inode = 0;
		sig.flags |= SHADOW_FOREIGN;
	} else if (st) {
		uint8_t sha[SHADOW_SHA_BYTES];

		memcpy(sha, sig.sha, sizeof(sha));
		plan_fill_shadow(sy, st, &sig);
		sig.id = id;
		memcpy(sig.sha, sha, sizeof(sha));
		/* The node is the one that is here; its ctime is still the journal's, so that the
		 * first scan compares the bytes and tells the brain the inode and the times. */
		if (ours)
			sig.flags |= SHADOW_OURS;
		else
			sig.ctime_ns = n->ctime_ns;
	}
	if (len == 0) {
		shadow_set_node(&sy->shadow, SHADOW_ROOT, &sig);
		return 0;
	}
	dir = shadow_find_id(&sy->shadow, parent);
	if (!dir || !beneath_name_ok(name, len))
		return -EINVAL;
	return fill_add(sy, dir, name, len, &sig, true, &made);
}

/* Inodes are worth something only if the root is the one that the journal knows. */
static bool is_same_root(const struct sync *sy, const struct shadow_node *sig)
{
	uint32_t generation = stamp_generation(&sy->root.st);

	return sig->inode == sy->root.st.inode &&
	       (!sig->generation || !generation || sig->generation == generation);
}

void fill_begin(struct sync *sy)
{
	sy->fill_foreign = true;
}

static int fill_had(struct sync *sy, uint32_t dir)
{
	if (!sy->saved || !shadow_dir(&sy->shadow, dir))
		return -EBADMSG;
	if (dir == SHADOW_ROOT) {
		/* What the file says is what there is. */
		sy->saved_incarnation = sy->incarnation;
		sy->saved_number = sy->emit.durable;
	}
	return saved_fill(sy, sy->saved, dir);
}

int fill_entry(struct sync *sy, const Limbwire__TreeEntry *m, struct buf *scratch)
{
	const char *why = NULL;
	struct shadow_node sig;
	struct node node;
	uint32_t dir, n;
	int r;

	buf_clear(scratch);
	r = wire_attr_parse(m->attr, m->content, scratch, &node, &why);
	if (r < 0)
		return r;
	to_shadow(sy, m->node, &node, &sig);
	if (m->root || m->name.len == 0) {
		if (node.type != NODE_TYPE_DIRECTORY)
			return -EBADMSG;
		sig.flags &= ~(uint32_t)SHADOW_BOUNDARY;
		sig.device = 0;
		sy->fill_foreign = !is_same_root(sy, &sig);
		if (sy->fill_foreign)
			sig.flags |= SHADOW_FOREIGN;
		shadow_set_node(&sy->shadow, SHADOW_ROOT, &sig);
		return m->had ? fill_had(sy, SHADOW_ROOT) : 0;
	}
	if (!beneath_name_ok((const char *)m->name.data, m->name.len))
		return -EBADMSG;
	dir = shadow_find_id(&sy->shadow, m->parent);
	if (!dir)
		return -EBADMSG;
	r = fill_add(sy, dir, (const char *)m->name.data, m->name.len, &sig, m->same_as != 0, &n);
	return r == 0 && m->had ? fill_had(sy, n) : r;
}

void fill_end(struct sync *sy)
{
	struct shadow *sh = &sy->shadow;

	if (!sy->fill_foreign)
		return;
	/* Names only: an inode of another machine would be taken for one of ours. */
	for (uint32_t e = shadow_dir(sh, SHADOW_ROOT)->first; e; e = shadow_next(sh, e, 0)) {
		uint32_t n = shadow_entry(sh, e)->node;
		struct shadow_node sig = *shadow_node(sh, n);

		sig.inode = 0;
		sig.flags |= SHADOW_FOREIGN;
		shadow_set_node(sh, n, &sig);
	}
}
