/* What becomes of the change that is next: reconcile.h over the index, in a helper thread. */
#include "brain/queue-impl.h"

#include "base/log.h"

enum { PIECE = 1 << 20 };

struct looking {
	struct queue *q;
	struct index_txn *t;
	uint64_t base_seq;
	char name[NODE_NAME_MAX]; /* lent by tree_name */
	int r;			  /* what could not be read */
};

static uint64_t tree_lookup(void *ud, bool base, const struct intent_name *n)
{
	struct looking *l = ud;
	uint64_t node;
	int r;

	r = index_lookup(l->t, n->parent, n->name, n->len, base ? l->base_seq : INDEX_NOW, &node);
	if (r < 0 && r != -ENOENT)
		l->r = r;
	return r < 0 ? 0 : node;
}

static bool get_node(struct looking *l, bool base, uint64_t id, struct index_node *ret)
{
	int r = index_get_node(l->t, id, base ? l->base_seq : INDEX_NOW, ret);

	if (r < 0 && r != -ENOENT)
		l->r = r;
	return r == 0;
}

static bool tree_node(void *ud, bool base, uint64_t id, struct node *ret)
{
	struct index_node n;

	if (!get_node(ud, base, id, &n))
		return false;
	*ret = n.n;
	return true;
}

static uint32_t tree_links(void *ud, bool base, uint64_t id)
{
	struct index_node n;

	return get_node(ud, base, id, &n) ? n.links : 0;
}

struct one_name {
	struct looking *l;
	struct intent_name *ret;
};

static int take_name(uint64_t parent, const char *name, size_t len, void *userdata)
{
	struct one_name *o = userdata;

	memcpy(o->l->name, name, MIN(len, sizeof(o->l->name)));
	*o->ret = (struct intent_name){parent, o->l->name, (uint16_t)len};
	return 1;
}

static bool tree_name(void *ud, uint64_t node, struct intent_name *ret)
{
	struct one_name o = {ud, ret};

	ret->len = 0;
	(void)index_names(o.l->t, node, take_name, &o);
	return ret->len != 0;
}

struct listing {
	struct looking *l;
	uint64_t dir;
	bool (*each)(const struct intent_name *n, uint64_t node, void *arg);
	void *arg;
	bool found;
};

static int list_entry(const char *name, size_t len, uint64_t node, void *userdata)
{
	struct listing *c = userdata;
	struct intent_name n = {c->dir, name, (uint16_t)len};

	c->found = c->each(&n, node, c->arg);
	return c->found;
}

static bool tree_list(void *ud, uint64_t dir,
		      bool (*each)(const struct intent_name *n, uint64_t node, void *arg),
		      void *arg)
{
	struct listing c = {ud, dir, each, arg, false};
	int r = index_list(c.l->t, dir, NULL, 0, INDEX_NOW, list_entry, &c);

	if (r < 0)
		c.l->r = r;
	return c.found || r < 0;
}

static uint64_t tree_alias(void *ud, uint64_t id)
{
	return alias_of(((struct looking *)ud)->q, id);
}

static const struct intent_own *tree_own(void *ud, uint64_t id)
{
	const struct queue *q = ((struct looking *)ud)->q;
	/* Of a merge's author the view is a stranger. */
	const struct fact *f = fact_find(q->item->in.merge_last ? &q->merged : &q->facts, id);

	return f && f->has_own ? &f->own : NULL;
}

/* Is the SHA-256 of a's first bytes that of b? */
static bool tree_begins(void *ud, const struct content_ref *a, const struct content_ref *b)
{
	_cleanup_(buf_done) struct buf piece = BUF_INIT(PIECE + FRAME_RAW_MAX);
	struct looking *l = ud;
	uint8_t hash[SHA256_BYTES];
	struct sha256_ctx *ctx;
	uint64_t at = 0;
	int r = 0;

	if (b->size_bytes == 0)
		return true;
	if (a->size_bytes < b->size_bytes)
		return false;
	ctx = sha256_new();
	while (r == 0 && at < b->size_bytes) {
		buf_clear(&piece);
		r = content_read(a, at, (size_t)MIN(b->size_bytes - at, (uint64_t)PIECE),
				 store_fetch_fn, l->q->env->brain->store, &piece);
		if (r == 0 && buf_len(&piece) == 0)
			r = -EBADMSG;
		sha256_update(ctx, buf_data(&piece), buf_len(&piece));
		at += buf_len(&piece);
	}
	sha256_final(ctx, hash);
	sha256_free(ctx);
	if (r < 0)
		l->r = r;
	return r == 0 && memcmp(hash, b->sha256, sizeof(hash)) == 0;
}

static int path_to(struct index_txn *t, const struct intent_name *n, char **ret)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(INDEX_PATH_MAX);
	int r;

	if (!n->parent || !n->len)
		return 0;
	r = index_path(t, n->parent, &b);
	if (r == 0 && buf_len(&b))
		r = buf_add_u8(&b, '/');
	if (r == 0)
		r = buf_add(&b, n->name, n->len);
	return r < 0 ? r : buf_to_str(&b, ret);
}

/* What the answer needs of the environment's version. */
static int keep_other(struct looking *l, struct judged *j)
{
	struct index_node n;

	if (!j->plan.other || !get_node(l, false, j->plan.other, &n))
		return l->r;
	j->other = n.n;
	j->other_seq = n.version;
	j->other.xattrs = NULL;
	j->other.xattrs_len = 0;
	if (!n.n.target_len)
		return 0;
	j->target = malloc(n.n.target_len);
	if (!j->target)
		return -ENOMEM;
	memcpy(j->target, n.n.target, n.n.target_len);
	j->other.target = j->target;
	return 0;
}

void judged_done(struct judged *j)
{
	free(j->path);
	free(j->to_path);
	free(j->target);
	*j = (struct judged){0};
}

void judge(struct queue *q)
{
	static const struct rec_tree callbacks = {
		.lookup = tree_lookup,
		.node = tree_node,
		.links = tree_links,
		.name = tree_name,
		.list = tree_list,
		.alias = tree_alias,
		.own = tree_own,
		.begins = tree_begins,
	};
	struct looking l = {.q = q, .base_seq = q->item->base_seq};
	struct rec_tree tree = callbacks;
	struct judged *j = &q->judged;

	tree.userdata = &l;
	j->r = env_read_begin(q->env, &l.t);
	if (j->r < 0)
		return;
	j->seen = index_number(l.t, q->env->incarnation);
	/* It may be of before a record that was purged, or of an index begun anew. */
	l.base_seq = MIN(l.base_seq, index_seq(l.t));
	reconcile(&tree, &q->item->in, &j->plan);
	j->r = l.r;
	if (j->r == 0)
		j->r = path_to(l.t, &j->plan.at, &j->path);
	if (j->r == 0)
		j->r = path_to(l.t, &j->plan.to, &j->to_path);
	if (j->r == 0)
		j->r = keep_other(&l, j);
	index_read_end(l.t);
	/* Names were lent. */
	j->plan.at.name = j->plan.to.name = NULL;
}

/* The environment has said what became of it. */
void judge_made(struct queue *q)
{
	struct judged *j = &q->judged;
	const char *path = j->plan.step == STEP_PUT_NEW ? j->path : j->to_path, *slash;
	struct index_node n;
	struct index_txn *t;

	j->made = j->made_dir = 0;
	j->r = env_read_begin(q->env, &t);
	if (j->r < 0)
		return;
	if (!path)
		path = j->path;
	slash = strrchr(path, '/');
	(void)index_lookup_path(t, path, strlen(path), INDEX_NOW, &j->made);
	(void)index_lookup_path(t, path, slash ? (size_t)(slash - path) : 0, INDEX_NOW,
				&j->made_dir);
	if (j->made && index_get_node(t, j->made, INDEX_NOW, &n) == 0)
		j->made_node = n.n;
	j->made_node.target = j->made_node.xattrs = NULL;
	index_read_end(t);
}
