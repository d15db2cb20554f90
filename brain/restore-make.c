/* `limb restore`'s helper threads: the two trees into a plan, its steps into frames. */
#include "brain/restore-impl.h"

#include <stdio.h>
#include <sys/stat.h>

#include "base/text.h"
#include "brain/link.h"
#include "wire/attr.h"
#include "wire/wire.pb-c.h"

enum {
	PIECE = 512 << 10,
	FRAMES_HIGH = 1 << 20,
};

/* ---- the plan ---- */

struct walk {
	struct restoring *g;
	struct index_txn *t;
	enum rplan_side side;
	uint64_t at;
	const char *below; /* where the walk began; NULL: the root */
	struct buf path;
};

static bool is_left_out(const struct walk *w, const char *path, size_t len,
			const struct index_node *n)
{
	cleanup_free char *text = w->g->ignore.n_rules ? strndup(path, len) : NULL;

	if (text && ignore_covers(&w->g->ignore, text, n->n.type == NODE_TYPE_DIRECTORY, NULL))
		return true;
	return (w->g->env->unheld & NODE_MASK_DEVICE) &&
	       (n->n.type == NODE_TYPE_CHAR || n->n.type == NODE_TYPE_BLOCK);
}

static int add(struct walk *w, const char *path, size_t len, const struct index_node *n, bool way)
{
	if (is_left_out(w, path, len, n))
		return 0;
	if (w->g->ignore_left == 0)
		return -EOVERFLOW;
	return rplan_add(&w->g->plan, w->side, path, len, n->id, n->n.type, n->n.mode, n->links,
			 way);
}

static int walked(const char *path, size_t len, const struct index_node *n, uint32_t same_as,
		  void *userdata)
{
	struct walk *w = userdata;
	int r;

	(void)same_as;
	if (!w->below)
		return add(w, path, len, n, false);
	buf_clear(&w->path);
	r = buf_add(&w->path, w->below, strlen(w->below));
	if (r == 0)
		r = buf_add_u8(&w->path, '/');
	if (r == 0)
		r = buf_add(&w->path, path, len);
	return r < 0 ? r : add(w, (const char *)buf_data(&w->path), buf_len(&w->path), n, false);
}

/* The directories that lead to a path, as far as the path before did not have them. */
static int add_way(struct walk *w, const char *path, const char *before)
{
	struct index_node n;
	uint64_t node;
	int r;

	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		size_t len = (size_t)(slash - path);

		if (before && strncmp(path, before, len) == 0 && before[len] == '/')
			continue;
		r = index_lookup_path(w->t, path, len, w->at, &node);
		if (r == 0)
			r = index_get_node(w->t, node, w->at, &n);
		if (r == 0)
			r = add(w, path, len, &n, true);
		if (r == 0 && n.n.type != NODE_TYPE_DIRECTORY)
			return -ENOTDIR;
		if (r < 0)
			return r;
	}
	return 0;
}

static int add_subtree(struct walk *w, const char *path)
{
	size_t len = strlen(path);
	struct index_node n;
	uint64_t node;
	int r;

	r = index_lookup_path(w->t, path, len, w->at, &node);
	if (r == 0)
		r = index_get_node(w->t, node, w->at, &n);
	if (r == 0)
		r = add(w, path, len, &n, false);
	if (r < 0 || n.n.type != NODE_TYPE_DIRECTORY)
		return r;
	w->below = path;
	return index_walk(w->t, node, w->at, walked, w);
}

/* found: how many of the paths there are. */
static int add_side(struct restoring *g, struct index_txn *t, enum rplan_side side, uint64_t at,
		    size_t *found)
{
	struct walk w = {.g = g, .t = t, .side = side, .at = at};
	int r = 0;

	buf_init(&w.path, 2 * INDEX_PATH_MAX);
	if (!g->paths)
		r = index_walk(t, NODE_ROOT, at, walked, &w);
	for (size_t i = 0; r == 0 && i < g->n_paths; i++) {
		r = add_way(&w, g->paths[i], i ? g->paths[i - 1] : NULL);
		if (r == 0)
			r = add_subtree(&w, g->paths[i]);
		if (r == 0)
			(*found)++;
		/* Of a name that is not there the other side may have something to say. */
		if (r == -ENOENT || r == -ENOTDIR)
			r = 0;
	}
	buf_done(&w.path);
	return r;
}

struct differ {
	struct restoring *g;
	struct index_txn *t;
};

static int differs(uint64_t then, uint64_t now, void *userdata)
{
	struct differ *d = userdata;
	struct index_node a, b;
	int r;

	r = index_get_node(d->t, then, d->g->at, &a);
	if (r == 0)
		r = index_get_node(d->t, now, INDEX_NOW, &b);
	return r < 0 ? r : (int)node_compare(&a.n, &b.n, d->g->env->unheld);
}

int restore_plan(struct restoring *g)
{
	struct differ d = {.g = g};
	size_t found = 0;
	int r;

	rplan_done(&g->plan);
	r = env_read_begin(g->env, &d.t);
	if (r < 0)
		return r;
	rplan_begin(&g->plan, differs, &d);
	r = add_side(g, d.t, RPLAN_THEN, g->at, &found);
	if (r == 0)
		r = add_side(g, d.t, RPLAN_NOW, INDEX_NOW, &found);
	if (r == 0 && g->paths && !found)
		r = -ENOENT;
	if (r == 0)
		r = rplan_make(&g->plan);
	index_read_end(d.t);
	return r;
}

/* ---- the frames ---- */

/* One PUSH of the content from g->offset on, past a hole in front of it; 1: that was the last. */
static int put_piece(struct restoring *g, uint32_t push, const struct content_ref *ref)
{
	_cleanup_(buf_done) struct buf bytes = BUF_INIT(PIECE + FRAME_RAW_MAX);
	Limbwire__Push m = LIMBWIRE__PUSH__INIT;
	struct store *store = g->env->brain->store;
	uint64_t n = 0;
	bool hole = false;
	int r = 0;

	m.push = push;
	if (g->offset < ref->size_bytes)
		r = content_extent(ref, g->offset, PIECE, store_fetch_fn, store, &hole, &n);
	if (r < 0)
		return r;
	if (hole) {
		/* A PUSH begins at 0. */
		r = g->offset ? 0
			      : wframe_pack(&g->frames, WIRE_PUSH, &m.base, NULL, 0,
					    g->env->compress);
		g->offset += n;
		if (r < 0 || g->offset < ref->size_bytes)
			return r;
		n = 0;
	}
	if (n)
		r = content_read(ref, g->offset, n, store_fetch_fn, store, &bytes);
	if (r == 0 && buf_len(&bytes) != n)
		r = -EBADMSG;
	if (r < 0)
		return r;
	m.offset = g->offset;
	m.last = g->offset + n >= ref->size_bytes;
	g->offset += n;
	r = wframe_pack(&g->frames, WIRE_PUSH, &m.base, buf_data(&bytes), n, g->env->compress);
	return r < 0 ? r : m.last;
}

/* 1: all of it is in frames. */
static int put_content(struct restoring *g, uint32_t push, const struct content_ref *ref)
{
	int r = 0;

	if (!g->begun)
		g->offset = 0;
	g->begun = true;
	while (r == 0 && buf_len(&g->frames) < FRAMES_HIGH)
		r = put_piece(g, push, ref);
	return r;
}

static const Limbwire__Apply__Kind wire_kinds[] = {
	[RPLAN_OPEN] = LIMBWIRE__APPLY__KIND__ATTR,
	[RPLAN_MKDIR] = LIMBWIRE__APPLY__KIND__MKDIR,
	[RPLAN_CREATE] = LIMBWIRE__APPLY__KIND__PUT,
	[RPLAN_REPLACE] = LIMBWIRE__APPLY__KIND__PUT,
	[RPLAN_SPECIAL] = LIMBWIRE__APPLY__KIND__SYMLINK,
	[RPLAN_LINK] = LIMBWIRE__APPLY__KIND__LINK,
	[RPLAN_MOVE] = LIMBWIRE__APPLY__KIND__MOVE,
	[RPLAN_REMOVE] = LIMBWIRE__APPLY__KIND__REMOVE,
	[RPLAN_ATTR] = LIMBWIRE__APPLY__KIND__ATTR,
};

static int put_apply(struct restoring *g, const struct restore_slot *slot,
		     const struct rplan_step *s, const struct node *n)
{
	Limbwire__Apply m = LIMBWIRE__APPLY__INIT;
	struct wire_attr_scratch scratch = {0};
	Limb__Attr attr = LIMB__ATTR__INIT;
	int r = 0;

	m.request = slot->request;
	m.kind = wire_kinds[s->kind];
	m.path = (ProtobufCBinaryData){strlen(s->path), (uint8_t *)s->path};
	if (s->to_path)
		m.to_path = (ProtobufCBinaryData){strlen(s->to_path), (uint8_t *)s->to_path};
	m.no_replace = s->kind != RPLAN_REPLACE;
	/* A directory is changed by what is done in it: what it was is not asked. */
	m.careful = !s->is_dir || s->kind == RPLAN_REMOVE;
	m.lenient = true;
	m.origin = LIMB__ORIGIN__ORIGIN_RESTORE;
	m.deadline_ms = RESTORE_ASK_MS - 1000;
	if (m.kind == LIMBWIRE__APPLY__KIND__PUT)
		m.push = slot->push;
	if (n) {
		r = wire_attr_fill(&scratch, n);
		m.attr = &scratch.attr;
	} else if (s->kind == RPLAN_OPEN || s->kind == RPLAN_MKDIR) {
		attr.type = LIMB__NODE_TYPE__NODE_DIRECTORY;
		attr.mode = s->kind == RPLAN_OPEN ? s->mode : 0700;
		m.attr = &attr;
		m.attr_defaults = true;
	}
	if (r == 0)
		r = wframe_pack(&g->frames, WIRE_APPLY, &m.base, NULL, 0, g->env->compress);
	wire_attr_scratch_done(&scratch);
	return r;
}

/* 1: the step's frames are all there. */
static int put_step(struct restoring *g, struct index_txn *t, const struct restore_slot *slot)
{
	const struct rplan_step *s = &g->plan.steps[slot->step];
	bool with_node = s->kind == RPLAN_CREATE || s->kind == RPLAN_REPLACE ||
			 s->kind == RPLAN_SPECIAL || s->kind == RPLAN_ATTR;
	struct index_node n;
	int r = with_node ? index_get_node(t, s->node, g->at, &n) : 0;

	if (r == 0 && (s->kind == RPLAN_CREATE || s->kind == RPLAN_REPLACE)) {
		r = put_content(g, slot->push, &n.n.content);
		if (r <= 0)
			return r;
	}
	if (r >= 0)
		r = put_apply(g, slot, s, with_node ? &n.n : NULL);
	g->begun = false;
	return r < 0 ? r : 1;
}

int restore_frames(struct restoring *g)
{
	struct index_txn *t;
	int r;

	r = env_read_begin(g->env, &t);
	if (r < 0)
		return r;
	while (g->n_made < g->n_slots && buf_len(&g->frames) < FRAMES_HIGH) {
		r = put_step(g, t, &g->slots[g->n_made]);
		if (r < 0)
			break;
		if (r > 0)
			g->n_made++;
	}
	index_read_end(t);
	return r < 0 ? r : 0;
}
