/* What becomes of the change that is next: reconcile.h over the index, in a helper thread. */
#include "brain/queue-impl.h"

#include "base/log.h"

enum { PIECE = 1 << 20 };

struct looking {
	struct queue *q;
	struct index_txn *t;
	uint64_t base_seq;
	bool merge;		  /* what is judged is of one */
	char name[NODE_NAME_MAX]; /* lent by tree_name */
	int r;			  /* what could not be read */
};

static uint64_t tree_lookup(void *ud, bool base, const struct intent_name *n)
{
	struct looking *l = ud;
	uint64_t node;
	int r;

	if (!base && ahead_entry(l->q->ahead, n, &node))
		return node;
	if (is_ahead(n->parent))
		return 0;
	r = index_lookup(l->t, n->parent, n->name, n->len, base ? l->base_seq : INDEX_NOW, &node);
	if (r < 0 && r != -ENOENT)
		l->r = r;
	return r < 0 ? 0 : node;
}

static bool get_node(struct looking *l, bool base, uint64_t id, struct index_node *ret)
{
	int r;

	if (is_ahead(id))
		return false;
	r = index_get_node(l->t, id, base ? l->base_seq : INDEX_NOW, ret);
	if (r < 0 && r != -ENOENT)
		l->r = r;
	return r == 0;
}

static bool tree_node(void *ud, bool base, uint64_t id, struct node *ret)
{
	struct looking *l = ud;
	struct index_node n = {0};
	bool there, known = false;
	struct node ahead;
	int links = 0;

	if (!base)
		known = ahead_node(l->q->ahead, id, &ahead, &links);
	there = get_node(l, base, id, &n);
	if (links < 0 || is_ahead(id)) /* the root has no name */
		there = (int)n.links + links > 0;
	if (!there)
		return false;
	*ret = known ? ahead : n.n;
	return true;
}

static uint32_t tree_links(void *ud, bool base, uint64_t id)
{
	struct looking *l = ud;
	struct index_node n = {0};
	struct node unused;
	int links = 0;

	if (!base)
		(void)ahead_node(l->q->ahead, id, &unused, &links);
	(void)get_node(l, base, id, &n);
	return (uint32_t)MAX(0, (int)n.links + links);
}

struct one_name {
	struct looking *l;
	struct intent_name *ret;
};

static int take_name(uint64_t parent, const char *name, size_t len, void *userdata)
{
	struct one_name *o = userdata;
	struct intent_name n = {parent, name, (uint16_t)len};
	uint64_t node;

	if (ahead_entry(o->l->q->ahead, &n, &node))
		return 0; /* it has that no more, or ahead_name() knows it */
	memcpy(o->l->name, name, MIN(len, sizeof(o->l->name)));
	*o->ret = (struct intent_name){parent, o->l->name, (uint16_t)len};
	return 1;
}

static bool tree_name(void *ud, uint64_t node, struct intent_name *ret)
{
	struct one_name o = {ud, ret};

	if (ahead_name(o.l->q->ahead, node, ret))
		return true;
	ret->len = 0;
	if (!is_ahead(node))
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
	uint64_t now;

	if (ahead_entry(c->l->q->ahead, &n, &now))
		return 0;
	c->found = c->each(&n, node, c->arg);
	return c->found;
}

static bool tree_list(void *ud, uint64_t dir,
		      bool (*each)(const struct intent_name *n, uint64_t node, void *arg),
		      void *arg)
{
	struct listing c = {ud, dir, each, arg, false};
	int r = 0;

	if (ahead_list(c.l->q->ahead, dir, each, arg))
		return true;
	if (!is_ahead(dir))
		r = index_list(c.l->t, dir, NULL, 0, INDEX_NOW, list_entry, &c);
	if (r < 0)
		c.l->r = r;
	return c.found || r < 0;
}

static uint64_t tree_alias(void *ud, uint64_t id)
{
	return alias_of(ahead_facts(((struct looking *)ud)->q->ahead), id);
}

static const struct intent_own *tree_own(void *ud, uint64_t id)
{
	const struct looking *l = ud;
	/* Of a merge's author the view is a stranger. */
	const struct fact *f = fact_find(l->merge ? &l->q->merged : ahead_facts(l->q->ahead), id);

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

/* A path in the tree that is foreseen; n->name may be l->name. NULL where there is none. */
static int path_to(struct looking *l, const struct intent_name *n, char **ret)
{
	cleanup_free char *mem = NULL;
	struct intent_name up = *n;
	size_t at = INDEX_PATH_MAX;

	if (!n->parent || !n->len)
		return 0;
	mem = malloc(INDEX_PATH_MAX);
	if (!mem)
		return -ENOMEM;
	for (mem[--at] = 0;;) {
		if (at < (size_t)up.len + 1)
			return -ENAMETOOLONG;
		at -= up.len;
		memcpy(mem + at, up.name, up.len);
		if (up.parent == NODE_ROOT)
			break;
		mem[--at] = '/';
		if (!tree_name(l, up.parent, &up))
			return -ENOENT;
	}
	*ret = strdup(mem + at);
	return *ret ? 0 : -ENOMEM;
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

/* ---- judging ---- */

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

static bool any_entry(const struct intent_name *n, uint64_t node, void *arg)
{
	(void)n;
	(void)node;
	(void)arg;
	return true;
}

/* Is it known what the tree and the facts are when this is made? */
static bool is_plain(struct looking *l, const struct item *it, const struct judged *j)
{
	const struct rec_plan *p = &j->plan;
	struct node n;

	if (l->merge || p->conflict || p->by_path ||
	    (p->verdict != REC_APPLY && p->verdict != REC_DONE))
		return false;
	if (p->verdict == REC_DONE)
		return it->in.kind != INTENT_CREATE && p->node == tree_alias(l, it->in.node);
	switch (p->step) {
	case STEP_PUT_NEW: return it->in.kind == INTENT_CREATE && j->path;
	case STEP_PUT_OVER: return j->path && tree_links(l, false, p->node) == 1;
	case STEP_REMOVE:
		return j->path && tree_node(l, false, p->node, &n) &&
		       (n.type != NODE_TYPE_DIRECTORY || !tree_list(l, p->node, any_entry, NULL));
	case STEP_MOVE:
	case STEP_LINK: return j->path && j->to_path;
	case STEP_ATTR: return j->path;
	default: return false;
	}
}

/* What it is about may be the work of an earlier change of the batch, which has no node yet. */
static void find_left(struct looking *l, struct judged *j)
{
	const struct rec_plan *p = &j->plan;
	struct node n;

	if (p->verdict != REC_APPLY || p->step == STEP_PUT_NEW || p->step == STEP_PUT_OVER)
		return;
	j->left = ahead_left(l->q->ahead, p->node);
	if (p->step == STEP_MOVE && p->replaces)
		j->replaces_left = ahead_left(l->q->ahead, p->replaces);
	if ((p->step == STEP_REMOVE && j->left && tree_node(l, false, p->node, &n)) ||
	    (j->replaces_left && tree_node(l, false, p->replaces, &n)))
		j->goes = n.content;
	if (j->goes.size_bytes == 0)
		sha256("", 0, j->goes.sha256);
}

/* Of what the batch has touched already nobody knows what its time will be, nor what a change of
 * owner or of ACLs does to its mode: what is wanted is set, even if it seems to be so. */
static void set_all(struct looking *l, const struct item *it, struct rec_plan *p)
{
	const struct intent_own *own = tree_own(l, p->node);
	struct node now;

	if (it->in.kind != INTENT_ATTR || p->conflict ||
	    (p->verdict != REC_APPLY && p->verdict != REC_DONE) ||
	    !ahead_touched(l->q->ahead, p->node) || !tree_node(l, false, p->node, &now))
		return;
	p->verdict = REC_APPLY;
	p->step = STEP_ATTR;
	p->fields |= it->in.fields;
	/* As in reconcile: a time of a view is for what the brain had, or wrote. */
	if (it->in.view_number && now.type == NODE_TYPE_FILE && !(own && own->content) &&
	    memcmp(now.content.sha256, it->in.base.content.sha256, SHA256_BYTES) != 0)
		p->fields &= ~(uint32_t)NODE_FIELD_MTIME;
	if (!p->fields)
		p->verdict = REC_DONE;
}

static int judge_one(struct looking *l, const struct item *it, struct judged *j)
{
	struct rec_tree tree = callbacks;
	char name[NODE_NAME_MAX];
	struct node now;
	int r;

	tree.userdata = l;
	l->r = 0;
	l->merge = it->in.merge_last != 0;
	/* It may be of before a record that was purged, or of an index begun anew. */
	l->base_seq = MIN(it->base_seq, index_seq(l->t));
	reconcile(&tree, &it->in, &j->plan);
	set_all(l, it, &j->plan);
	if (j->plan.at.name == l->name) {
		memcpy(name, l->name, sizeof(name));
		j->plan.at.name = name;
	}
	r = l->r;
	if (r == 0)
		r = path_to(l, &j->plan.at, &j->path);
	if (r == 0 && j->plan.step == STEP_ATTR && j->plan.node == NODE_ROOT) {
		j->path = strdup("");
		r = j->path ? 0 : -ENOMEM;
	}
	if (r == 0)
		r = path_to(l, &j->plan.to, &j->to_path);
	if (r == 0)
		r = keep_other(l, j);
	j->plain = r == 0 && is_plain(l, it, j);
	if (j->plain) {
		find_left(l, j);
		r = ahead_take(l->q->ahead, it, j,
			       tree_node(l, false, j->plan.node, &now) ? &now : NULL);
	}
	/* Names were lent. */
	j->plan.at.name = j->plan.to.name = NULL;
	return r < 0 ? r : l->r;
}

static int begin(struct queue *q, struct looking *l)
{
	int r;

	*l = (struct looking){.q = q};
	ahead_free(take_ptr(&q->ahead));
	r = ahead_new(&q->facts, &q->ahead);
	return r < 0 ? r : env_read_begin(q->env, &l->t);
}

void judge(struct queue *q)
{
	struct looking l;
	size_t i;

	q->r = begin(q, &l);
	if (q->r < 0)
		return;
	q->seen = index_number(l.t, q->env->incarnation);
	for (i = 0; i < q->n_parts; i++) {
		struct judged *j = &q->parts[i].j;

		j->r = judge_one(&l, q->parts[i].it, j);
		if (j->r < 0 || !j->plain)
			break;
	}
	/* What cannot go with others is judged again, as the first. */
	if (i < q->n_parts && i > 0)
		judged_done(&q->parts[i].j);
	q->n_parts = i > 0 ? i : 1;
	index_read_end(l.t);
}

/* ---- the environment has said what became of it ---- */

/* What was to be made, or was there and moved, as the environment calls it; 0: it is not there.
 * Of a batch it sees the end alone, and calls anew what lost its name to another meanwhile. */
static uint64_t node_there(struct looking *l, uint64_t id, unsigned deep)
{
	struct index_node now;
	struct intent_name n;
	uint64_t node = 0, old;

	id = id ? alias_of(ahead_facts(l->q->ahead), id) : 0;
	if (id == FACT_GONE)
		return 0;
	old = is_ahead(id) ? 0 : id;
	if (!id || get_node(l, false, id, &now) || deep > INDEX_PATH_MAX / 2 ||
	    !ahead_name(l->q->ahead, id, &n))
		return old;
	n.parent = node_there(l, n.parent, deep + 1);
	if (n.parent)
		(void)index_lookup(l->t, n.parent, n.name, n.len, INDEX_NOW, &node);
	return node ? node : old;
}

static void plain_made(struct looking *l, struct judged *j)
{
	const struct facts *f = ahead_facts(l->q->ahead);
	uint64_t node = j->plan.node;

	j->passed = is_ahead(j->made) && alias_of(f, j->made) != j->made;
	j->made = node_there(l, j->made, 0);
	j->made_dir = node_there(l, j->made_dir, 0);
	j->plan.replaces = node_there(l, j->plan.replaces, 0);
	/* What was replaced since is the later change's to tell of. */
	if (is_ahead(node))
		j->plan.node = alias_of(f, node) == node ? node_there(l, node, 0) : 0;
	else if (node && alias_of(f, node) == node)
		j->plan.node = node_there(l, node, 0);
	j->was = j->plan.node != node && !is_ahead(node) ? node : 0;
	if (j->plan.verdict == REC_DONE) {
		j->plan.at.parent = node_there(l, j->plan.at.parent, 0);
		j->plan.to.parent = node_there(l, j->plan.to.parent, 0);
	}
}

static void alone_made(struct looking *l, struct judged *j)
{
	const char *path = j->plan.step == STEP_PUT_NEW ? j->path : j->to_path, *slash;

	j->made = j->made_dir = 0;
	if (!path)
		path = j->path;
	slash = strrchr(path, '/');
	(void)index_lookup_path(l->t, path, strlen(path), INDEX_NOW, &j->made);
	(void)index_lookup_path(l->t, path, slash ? (size_t)(slash - path) : 0, INDEX_NOW,
				&j->made_dir);
}

static struct intent_name last_name(uint64_t parent, const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;

	path = slash ? slash + 1 : path;
	return (struct intent_name){parent, path, (uint16_t)(path ? strlen(path) : 0)};
}

/* Those that were made, again, and not those that were foreseen behind them. */
static int make_again(struct looking *l)
{
	struct queue *q = l->q;
	int r = 0;

	for (size_t i = 0; r == 0 && i < q->n_parts; i++) {
		struct judged *j = &q->parts[i].j;

		if (!j->plain)
			continue;
		j->plan.at = last_name(j->plan.at.parent, j->path);
		j->plan.to = last_name(j->plan.to.parent, j->to_path);
		r = ahead_take(q->ahead, q->parts[i].it, j, NULL);
	}
	return r;
}

void judge_made(struct queue *q)
{
	struct looking l;

	q->r = begin(q, &l);
	if (q->r < 0)
		return;
	q->r = make_again(&l);
	for (size_t i = 0; q->r == 0 && i < q->n_parts; i++) {
		struct judged *j = &q->parts[i].j;

		if (j->plain)
			plain_made(&l, j);
		else if (j->plan.verdict == REC_APPLY)
			alone_made(&l, j);
	}
	index_read_end(l.t);
}

/* ---- found made ---- */

static enum rec_step step_of(const struct item *it)
{
	static const enum rec_step steps[] = {
		[INTENT_CREATE] = STEP_PUT_NEW, [INTENT_WRITE] = STEP_PUT_OVER,
		[INTENT_REMOVE] = STEP_REMOVE,	[INTENT_MOVE] = STEP_MOVE,
		[INTENT_LINK] = STEP_LINK,	[INTENT_ATTR] = STEP_ATTR,
	};

	return steps[it->in.kind];
}

static struct intent_name name_ahead(struct looking *l, const struct intent_name *n)
{
	return (struct intent_name){tree_alias(l, n->parent), n->name, n->len};
}

/* As it must have been judged, for it was made with others. */
static int find_one(struct looking *l, const struct item *it, struct judged *j)
{
	struct rec_plan *p = &j->plan;
	struct index_node now;

	*p = (struct rec_plan){.verdict = REC_APPLY, .step = step_of(it), .placed = true};
	j->plain = true;
	j->path = strdup(it->path);
	j->to_path = strdup(it->to_path);
	if (!j->path || !j->to_path)
		return -ENOMEM;
	p->node = it->in.node ? tree_alias(l, it->in.node) : 0;
	p->at = name_ahead(l, &it->in.at);
	p->to = name_ahead(l, &it->in.to);
	p->replaces = it->in.replaces ? tree_alias(l, it->in.replaces) : 0;
	p->dropped = p->step == STEP_REMOVE;
	/* Written in place, or there was nothing to do. */
	if (p->step == STEP_PUT_OVER && get_node(l, false, p->node, &now))
		p->verdict = REC_DONE;
	if (it->in.kind != INTENT_CREATE && !p->node)
		p->verdict = REC_DONE;
	return p->verdict == REC_APPLY ? ahead_take(l->q->ahead, it, j, NULL) : 0;
}

static int find_all(struct looking *l)
{
	struct queue *q = l->q;
	int r = 0;

	for (size_t i = 0; r == 0 && i < q->n_parts; i++)
		r = find_one(l, q->parts[i].it, &q->parts[i].j);
	return r;
}

/* A move whose number was not kept any more: what it moves is not where it was, and where it
 * goes there is something. All others can be judged again. */
static int find_moved(struct looking *l)
{
	struct queue *q = l->q;
	const struct item *it = q->perhaps;
	uint64_t node;

	if (!it || it->in.kind != INTENT_MOVE || q->n_parts == PARTS_MAX)
		return 0;
	node = tree_alias(l, it->in.node);
	if (!is_ahead(node) || node_there(l, node, 0))
		return 0;
	q->parts[q->n_parts++].it = q->perhaps;
	if (find_one(l, it, &q->parts[q->n_parts - 1].j) == 0 && node_there(l, node, 0))
		return 0;
	/* Nor is it there: all that was foreseen goes, and comes again without it. */
	for (size_t i = 0; i < q->n_parts; i++)
		judged_done(&q->parts[i].j);
	q->n_parts--;
	ahead_free(take_ptr(&q->ahead));
	return ahead_new(&q->facts, &q->ahead) < 0 ? -ENOMEM : find_all(l);
}

void judge_found(struct queue *q)
{
	struct looking l;

	q->r = begin(q, &l);
	if (q->r < 0)
		return;
	q->r = find_all(&l);
	if (q->r == 0)
		q->r = find_moved(&l);
	for (size_t i = 0; q->r == 0 && i < q->n_parts; i++)
		plain_made(&l, &q->parts[i].j);
	index_read_end(l.t);
}
