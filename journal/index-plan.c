#include "journal/index-impl.h"

/* A directory is moved only where the way up to the root is this short: it is walked
 * to see that no cycle closes, and what an environment says must not cost us seconds. */
#define MOVE_DEPTH_MAX 8192

/* Ids at and above are refused: the counter of ids must never come near its end. */
#define NODE_ID_END (1ull << 62)

struct planning {
	struct index *ix;
	struct plan *plan;
	const struct change *c;
	const char *why;
};

static int refuse(struct planning *p, const char *why)
{
	p->why = why;
	return -EINVAL;
}

/* ---- the overlay ---- */

static struct plan_node *find_node(struct plan *plan, uint64_t id)
{
	for (size_t i = plan->n_nodes; i-- > 0;) {
		if (plan->nodes[i].id == id)
			return &plan->nodes[i];
	}
	return NULL;
}

static int get_node(struct planning *p, uint64_t id, struct plan_node **ret)
{
	struct plan_node *n = find_node(p->plan, id);
	struct node_row row;
	struct key k;
	MDB_val v;
	int r;

	if (n) {
		*ret = n;
		return 0;
	}
	n = &p->plan->nodes[p->plan->n_nodes];
	*n = (struct plan_node){.id = id};
	/* A higher id than any before: no need to look. */
	if (id < p->ix->state.next_used) {
		key_u64(&k, id);
		r = table_get(p->ix, TABLE_NODE, &k, &v);
		if (r < 0 && r != -ENOENT)
			return r;
		if (r == 0) {
			r = node_row_head(v.mv_data, v.mv_size, &row);
			if (r < 0)
				return r;
			n->old = v.mv_data;
			n->old_len = v.mv_size;
			n->links = n->old_links = row.links;
			n->type = row.type;
		}
	}
	p->plan->n_nodes++;
	*ret = n;
	return 0;
}

static struct plan_dirent *find_dirent(struct plan *plan, uint64_t parent, const char *name,
				       size_t len)
{
	for (size_t i = plan->n_dirents; i-- > 0;) {
		struct plan_dirent *d = &plan->dirents[i];
		if (d->parent == parent && d->len == len && memcmp(d->name, name, len) == 0)
			return d;
	}
	return NULL;
}

static int get_dirent(struct planning *p, uint64_t parent, const char *name, uint16_t len,
		      struct plan_dirent **ret)
{
	struct plan_dirent *d = find_dirent(p->plan, parent, name, len);
	struct key k;
	MDB_val v;
	int r;

	if (d) {
		*ret = d;
		return 0;
	}
	d = &p->plan->dirents[p->plan->n_dirents];
	*d = (struct plan_dirent){.parent = parent, .name = name, .len = len};
	key_dirent(&k, parent, name, len);
	r = table_get(p->ix, TABLE_DIRENT, &k, &v);
	if (r < 0 && r != -ENOENT)
		return r;
	if (r == 0) {
		r = dirent_row_parse(&v, &d->old_node, &d->old_born);
		if (r < 0)
			return r;
		d->node = d->old_node;
	}
	p->plan->n_dirents++;
	*ret = d;
	return 0;
}

/* ---- cycles ---- */

/* The directory that holds directory id now, by the overlay; 0: it has no name. */
static int parent_of(struct planning *p, uint64_t id, uint64_t *ret)
{
	const struct plan *plan = p->plan;
	struct plan_dirent *d;
	const uint8_t *row_key;
	MDB_cursor *cursor;
	MDB_val key, v;
	struct key k;
	int r;

	*ret = 0;
	for (size_t i = 0; i < plan->n_dirents; i++) {
		if (plan->dirents[i].node == id) {
			*ret = plan->dirents[i].parent;
			return 0;
		}
	}
	r = txn_cursor(&p->ix->writer, TABLE_NAME, &cursor);
	if (r < 0)
		return r;
	key_u64(&k, id);
	key = key_val(&k);
	r = index_error(mdb_cursor_get(cursor, &key, &v, MDB_SET_RANGE));
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	row_key = key.mv_data;
	if (key.mv_size < 17 || get_be64(row_key) != id)
		return 0;
	d = find_dirent(p->plan, get_be64(row_key + 8), (const char *)row_key + 16,
			key.mv_size - 16);
	if (!d || d->node == id)
		*ret = get_be64(row_key + 8);
	return 0;
}

/* May directory id be put into directory parent? */
static int check_cycle(struct planning *p, uint64_t id, uint64_t parent)
{
	unsigned depth = 0;
	int r;

	while (parent != NODE_ROOT && parent != 0) {
		if (parent == id)
			return refuse(p, "a directory cannot be moved into itself");
		if (++depth > MOVE_DEPTH_MAX)
			return refuse(p, "directories are nested too deep");
		r = parent_of(p, parent, &parent);
		if (r < 0)
			return r;
	}
	return 0;
}

static bool has_entries_planned(const struct plan *plan, uint64_t directory)
{
	for (size_t i = 0; i < plan->n_dirents; i++) {
		if (plan->dirents[i].parent == directory)
			return true;
	}
	return false;
}

/* ---- PUT ---- */

static int was_used(struct planning *p, uint64_t id)
{
	MDB_cursor *cursor;
	MDB_val key, v;
	struct key k;
	int r;

	if (id >= p->ix->state.next_used)
		return 0;
	r = txn_cursor(&p->ix->writer, TABLE_PAST_NODE, &cursor);
	if (r < 0)
		return r;
	key_u64(&k, id);
	key = key_val(&k);
	r = index_error(mdb_cursor_get(cursor, &key, &v, MDB_SET_RANGE));
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	return key.mv_size == 16 && get_be64(key.mv_data) == id;
}

static int check_new_id(struct planning *p, uint64_t id)
{
	int r;

	if (id < 2 || id >= NODE_ID_END)
		return refuse(p, "not a node id");
	if (p->c->origin == ORIGIN_ENVIRONMENT_ && id >= p->ix->state.granted_end)
		return refuse(p, "the node id was never granted");
	r = was_used(p, id);
	if (r < 0)
		return r;
	return r > 0 ? refuse(p, "the node id was used before") : 0;
}

/* Merges two canonical lists: from `old` the classes under the mask, from `new_` the others. */
static int merge_xattrs(struct arena *a, const struct node *old, struct node *new_, uint32_t mask)
{
	const struct node *sources[] = {old, new_};
	const char *name[2] = {NULL, NULL};
	const uint8_t *value[2] = {NULL, NULL};
	uint16_t name_len[2] = {0, 0};
	uint32_t pos[2] = {0, 0}, start[2] = {0, 0}, value_len[2] = {0, 0}, n = 0;
	bool more[2] = {true, true}, ready[2] = {false, false};
	uint8_t *out = arena_alloc(a, (size_t)old->xattrs_len + new_->xattrs_len);

	if (!out)
		return -ENOMEM;
	for (;;) {
		for (int i = 0; i < 2; i++) {
			while (more[i] && !ready[i]) {
				start[i] = pos[i];
				more[i] = node_xattrs_next(
					sources[i]->xattrs, sources[i]->xattrs_len, &pos[i],
					&name[i], &name_len[i], &value[i], &value_len[i]);
				ready[i] = more[i] && !(node_xattr_class(name[i], name_len[i]) &
							mask) == (i == 1);
			}
		}
		if (!ready[0] && !ready[1])
			break;
		int i = !ready[0];
		if (ready[0] && ready[1]) {
			int c = memcmp(name[0], name[1], MIN(name_len[0], name_len[1]));
			i = c > 0 || (c == 0 && name_len[0] > name_len[1]);
		}
		memcpy(out + n, sources[i]->xattrs + start[i], pos[i] - start[i]);
		n += pos[i] - start[i];
		ready[i] = false;
	}
	/* Neither list alone was too long, both together may be: then nothing old is kept. */
	if (n <= NODE_XATTRS_MAX) {
		new_->xattrs = n ? out : NULL;
		new_->xattrs_len = n;
	}
	return 0;
}

static bool years_clamped(int64_t old_ns, int64_t new_ns)
{
	const int64_t second = 1000000000;

	return (old_ns < 0 && new_ns <= 0) ||
	       (old_ns / second > UINT32_MAX && new_ns / second >= INT32_MAX);
}

/* What the incarnation could not hold keeps its older value. */
static int keep_unheld(struct arena *a, const struct node *old, struct node *n)
{
	const uint32_t xattr_classes = NODE_MASK_XATTR_USER | NODE_MASK_XATTR_TRUSTED |
				       NODE_MASK_XATTR_ACL;
	uint32_t mask = n->unheld;

	if (mask & NODE_MASK_OWNER) {
		n->uid_kind = old->uid_kind;
		n->uid = old->uid;
		n->gid_kind = old->gid_kind;
		n->gid = old->gid;
	}
	if (mask & NODE_MASK_SETID)
		n->mode = (n->mode & 0777) | (old->mode & 07000);
	if (mask & NODE_MASK_DEVICE) {
		n->rdev_major = old->rdev_major;
		n->rdev_minor = old->rdev_minor;
	}
	if ((mask & NODE_MASK_NS && node_masked_mtime(old->mtime_ns, NODE_MASK_NS) ==
					    node_masked_mtime(n->mtime_ns, NODE_MASK_NS)) ||
	    (mask & NODE_MASK_YEARS && years_clamped(old->mtime_ns, n->mtime_ns)))
		n->mtime_ns = old->mtime_ns;
	if (mask & xattr_classes && (old->xattrs_len || n->xattrs_len))
		return merge_xattrs(a, old, n, mask & xattr_classes);
	return 0;
}

static void keep_content(const struct node *old, struct node *n)
{
	n->content = old->content;
	n->torn = old->torn;
	n->allocated_bytes = old->allocated_bytes;
}

/* Content of a file that was never given any. */
static void set_empty(struct node *n)
{
	memset(&n->content, 0, sizeof(n->content));
	n->torn = false;
	n->allocated_bytes = 0;
	if (n->type == NODE_TYPE_FILE)
		sha256("", 0, n->content.sha256);
}

static int put_attr(struct planning *p, struct plan_node *pn, const struct change_op *op)
{
	struct arena *a = &p->ix->arena;
	struct index_node before;
	struct node *n, *old = NULL;
	uint64_t born;
	int r;

	if (pn->put) {
		old = pn->n;
	} else if (pn->old) {
		r = node_row_parse(pn->old, pn->old_len, &born, &before);
		if (r < 0)
			return r;
		old = &before.n;
	}
	n = arena_alloc(a, sizeof(*n));
	if (!n)
		return -ENOMEM;
	*n = op->attr;
	if (!op->has_content && old)
		keep_content(old, n);
	else if (!op->has_content)
		set_empty(n);
	if (old) {
		r = keep_unheld(a, old, n);
		if (r < 0)
			return r;
	}
	pn->n = n;
	pn->put = true;
	pn->type = n->type;
	return 0;
}

static int plan_put(struct planning *p, const struct change_op *op)
{
	struct plan_node *n;
	int r;

	r = get_node(p, op->node, &n);
	if (r < 0)
		return r;
	if (n->type == 0) {
		r = check_new_id(p, op->node);
		if (r < 0)
			return r;
	} else if (n->type != op->attr.type) {
		return refuse(p, "a node cannot change its type");
	}
	return put_attr(p, n, op);
}

/* ---- names ---- */

static int get_directory(struct planning *p, uint64_t id)
{
	struct plan_node *n;
	int r;

	r = get_node(p, id, &n);
	if (r < 0)
		return r;
	if (n->type == 0)
		return refuse(p, "there is no such parent");
	if (n->type != NODE_TYPE_DIRECTORY)
		return refuse(p, "the parent is not a directory");
	return 0;
}

/* The entry d will hold node (0: nothing): link counts follow. */
static int set_entry(struct planning *p, struct plan_dirent *d, uint64_t node)
{
	struct plan_node *before = NULL, *after = NULL;
	int r;

	if (d->node == node)
		return 0;
	if (d->node) {
		r = get_node(p, d->node, &before);
		if (r < 0)
			return r;
		if (before->type == 0 || before->links == 0)
			return -EBADMSG; /* the tables do not fit together */
	}
	if (node) {
		r = get_node(p, node, &after);
		if (r < 0)
			return r;
		if (after->links == UINT32_MAX)
			return refuse(p, "too many links");
	}
	if (before)
		before->links--;
	if (after)
		after->links++;
	d->node = node;
	return 0;
}

static int plan_link(struct planning *p, const struct change_op *op)
{
	struct plan_dirent *d;
	struct plan_node *n;
	int r;

	r = get_directory(p, op->parent);
	if (r < 0)
		return r;
	r = get_node(p, op->node, &n);
	if (r < 0)
		return r;
	if (n->type == 0)
		return refuse(p, "there is no such node");
	if (op->node == NODE_ROOT)
		return refuse(p, "the root has no name");
	r = get_dirent(p, op->parent, op->name, op->name_len, &d);
	if (r < 0)
		return r;
	if (d->node == op->node)
		return 0;
	if (n->type == NODE_TYPE_DIRECTORY) {
		if (n->links > 0)
			return refuse(p, "a directory cannot have two names");
		if (n->old || has_entries_planned(p->plan, op->node) || op->parent == op->node) {
			r = check_cycle(p, op->node, op->parent);
			if (r < 0)
				return r;
		}
	}
	return set_entry(p, d, op->node);
}

/* The entry that an operation takes away; op->node, if given, is what it must hold. */
static int get_source(struct planning *p, const struct change_op *op, struct plan_dirent **ret)
{
	int r;

	r = get_directory(p, op->parent);
	if (r < 0)
		return r;
	r = get_dirent(p, op->parent, op->name, op->name_len, ret);
	if (r < 0)
		return r;
	if ((*ret)->node == 0)
		return refuse(p, "there is no such name");
	if (op->node != 0 && (*ret)->node != op->node)
		return refuse(p, "the name is another node's");
	return 0;
}

static int plan_unlink(struct planning *p, const struct change_op *op)
{
	struct plan_dirent *d;
	int r;

	r = get_source(p, op, &d);
	return r < 0 ? r : set_entry(p, d, 0);
}

static int plan_move(struct planning *p, const struct change_op *op)
{
	struct plan_dirent *from, *to;
	struct plan_node *n;
	uint64_t node;
	int r;

	r = get_source(p, op, &from);
	if (r < 0)
		return r;
	r = get_directory(p, op->to_parent);
	if (r < 0)
		return r;
	r = get_dirent(p, op->to_parent, op->to_name, op->to_name_len, &to);
	if (r < 0)
		return r;
	if (from == to)
		return 0;
	node = from->node;
	r = get_node(p, node, &n);
	if (r < 0)
		return r;
	if (n->type == NODE_TYPE_DIRECTORY && op->parent != op->to_parent) {
		r = check_cycle(p, node, op->to_parent);
		if (r < 0)
			return r;
	}
	/* First what was there loses the name: node itself may be it. */
	r = set_entry(p, to, 0);
	if (r >= 0)
		r = set_entry(p, from, 0);
	if (r >= 0)
		r = set_entry(p, to, node);
	return r;
}

static int plan_op(struct planning *p, const struct change_op *op)
{
	switch (op->kind) {
	case CHANGE_PUT: return plan_put(p, op);
	case CHANGE_LINK: return plan_link(p, op);
	case CHANGE_UNLINK: return plan_unlink(p, op);
	case CHANGE_MOVE: return plan_move(p, op);
	default: return refuse(p, "no such operation");
	}
}

int plan_change(struct index *ix, const struct change *c, bool lenient, unsigned *ret_skipped,
		const char **ret_why)
{
	struct planning p = {.ix = ix, .plan = &ix->plan, .c = c};
	int r;

	*ret_skipped = 0;
	ix->plan.n_nodes = ix->plan.n_dirents = 0;
	for (size_t i = 0; i < c->n_ops; i++) {
		r = plan_op(&p, &c->ops[i]);
		if (r == -EINVAL && lenient) {
			(*ret_skipped)++;
			continue;
		}
		if (r < 0) {
			*ret_why = r == -EINVAL ? p.why : NULL;
			return r;
		}
	}
	return 0;
}
