/* The tree as the brain sees it: the environment's, and over it what waits. */
#include "brain/queue-impl.h"

static uint32_t bucket(uint64_t parent, const char *name, size_t len)
{
	uint64_t h = parent * 0x9e3779b97f4a7c15ull;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)name[i]) * 0x100000001b3ull;
	return (uint32_t)(h >> 40) % BUCKETS;
}

void view_clear(struct queue *q)
{
	for (size_t i = 0; i < BUCKETS; i++) {
		struct seen *s;

		while ((s = q->view[i])) {
			q->view[i] = s->next;
			free(s);
		}
	}
	q->view_fresh = false;
}

static struct seen *view_find(struct queue *q, uint64_t parent, uint64_t node, const char *name,
			      size_t len)
{
	struct seen *s = q->view[bucket(parent ? parent : node, name, len)];

	while (s && (s->parent != parent || (!parent && s->node != node) || s->len != len ||
		     memcmp(s->name, name, len) != 0))
		s = s->next;
	return s;
}

static struct seen *view_make(struct queue *q, uint64_t parent, uint64_t node, const char *name,
			      size_t len)
{
	struct seen *s = view_find(q, parent, node, name, len), **b;

	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	b = &q->view[bucket(parent ? parent : node, name, len)];
	*s = (struct seen){*b, parent, node, name, (uint16_t)len, NULL, 0};
	*b = s;
	return s;
}

/* As ids of the environment, where it has one: what it is called last, also while the index does
 * not have that yet, and what has ended is still in the queue. Keys and answers go through it. */
static uint64_t here(const struct queue *q, uint64_t id)
{
	uint64_t alias = id ? alias_of(&q->facts, id) : 0;

	return alias && alias != FACT_GONE ? alias : id;
}

/* Names are counted, not what they became more or less: of what is under way the index may have
 * some already. */
static bool count_name(struct queue *q, uint64_t node, int more)
{
	struct seen *s = node ? view_make(q, 0, node, "", 0) : NULL;

	if (s)
		s->names += more;
	return s || !node;
}

static bool set_entry(struct queue *q, const struct intent_name *n, uint64_t node)
{
	struct seen *s = view_make(q, here(q, n->parent), 0, n->name, n->len);

	if (!s || !count_name(q, s->node, -1) || !count_name(q, node, 1))
		return false;
	s->node = node;
	return true;
}

static bool set_node(struct queue *q, uint64_t node, const struct node *n)
{
	struct seen *s = view_make(q, 0, node, "", 0);

	if (s)
		s->n = n;
	return s != NULL;
}

static bool view_add(struct queue *q, const struct item *it)
{
	const struct intent *in = &it->in;
	uint64_t made = INTENT_MADE | in->number;
	uint64_t node = here(q, in->kind == INTENT_CREATE ? made : in->node);

	switch (in->kind) {
	case INTENT_CREATE: return set_entry(q, &in->at, node) && set_node(q, node, &in->wanted);
	case INTENT_WRITE:
		/* Another node has its name as soon as it is made, and counts as this one only when
		 * its end is recorded. The view holds the name, too. */
		if (in->view_number && !set_entry(q, &in->at, node))
			return false;
		return set_node(q, node, &in->wanted);
	case INTENT_ATTR: return set_node(q, node, &in->wanted);
	case INTENT_REMOVE: return set_entry(q, &in->at, 0);
	case INTENT_MOVE: return set_entry(q, &in->at, 0) && set_entry(q, &in->to, node);
	case INTENT_LINK: return set_entry(q, &in->to, node);
	default: return true;
	}
}

void view_append(struct queue *q, const struct item *it)
{
	if (q->view_fresh && !it->error && !view_add(q, it))
		view_clear(q);
}

static int view_make_fresh(struct queue *q)
{
	if (q->view_fresh)
		return 0;
	view_clear(q);
	for (const struct item *it = q->head; it; it = it->next)
		if (!it->error && !view_add(q, it)) {
			view_clear(q);
			return -ENOMEM;
		}
	q->view_fresh = true;
	return 0;
}

static uint64_t child(struct queue *q, struct index_txn *t, uint64_t dir, const char *name,
		      size_t len)
{
	const struct seen *s = view_find(q, dir, 0, name, len);
	uint64_t node = 0;

	if (s)
		return s->node;
	if (!(dir & INTENT_MADE))
		(void)index_lookup(t, dir, name, len, INDEX_NOW, &node);
	return here(q, node);
}

struct naming {
	struct queue *q;
	uint32_t *links;
};

static int count_index_name(uint64_t parent, const char *name, size_t len, void *userdata)
{
	struct naming *of = userdata;

	*of->links += !view_find(of->q, here(of->q, parent), 0, name, len);
	return 0;
}

static int facts_of(struct queue *q, struct index_txn *t, uint64_t node, struct queue_entry *ret)
{
	const struct seen *s = view_find(q, 0, node, "", 0);
	struct index_node in = {0};
	int r;

	if (!(node & INTENT_MADE)) {
		r = index_get_node(t, node, INDEX_NOW, &in);
		if (r < 0 && !(r == -ENOENT && s && s->n))
			return r;
		ret->n = in.n;
	}
	if (s && s->n)
		ret->n = *s->n;
	ret->links = (uint32_t)MAX(0, s ? s->names : 0);
	if (ret->n.type != NODE_TYPE_DIRECTORY && in.links) {
		struct naming of = {q, &ret->links};

		(void)index_names(t, node, count_index_name, &of);
	}
	/* The transaction ends before the caller looks. */
	buf_clear(&q->target);
	buf_clear(&q->xattrs);
	r = buf_add(&q->xattrs, ret->n.xattrs, ret->n.xattrs_len);
	if (r < 0)
		return r;
	ret->n.xattrs = buf_data(&q->xattrs);
	if (!ret->n.target_len)
		return 0;
	r = buf_add(&q->target, ret->n.target, ret->n.target_len);
	ret->n.target = buf_data(&q->target);
	return r;
}

static int walk(struct queue *q, struct index_txn *t, const char *path, struct queue_entry *ret,
		size_t *ret_missing)
{
	const char *at = path;
	int r;

	*ret = (struct queue_entry){.node = NODE_ROOT, .name = path};
	for (;;) {
		r = facts_of(q, t, ret->node, ret);
		if (r < 0 || !*at)
			return r;
		if (ret->n.type != NODE_TYPE_DIRECTORY)
			return -ENOTDIR;
		ret->parent = ret->node;
		ret->name = at;
		ret->len = (uint16_t)MIN(strcspn(at, "/"), (size_t)NODE_NAME_MAX + 1);
		if (ret->len > NODE_NAME_MAX)
			return -ENAMETOOLONG;
		if (ret_missing)
			*ret_missing = (size_t)(at - path) + ret->len;
		ret->node = child(q, t, ret->parent, at, ret->len);
		at += ret->len;
		at += *at == '/';
		if (!ret->node) {
			ret->n = (struct node){0};
			return *at ? -ENOENT : 0;
		}
	}
}

int queue_seen(struct env *env, const char *path, struct queue_entry *ret, size_t *ret_missing)
{
	struct queue *q = env->queue;
	struct index_txn *t;
	int r;

	if (!q)
		return -EIO;
	r = view_make_fresh(q);
	if (r == 0)
		r = env_read_begin(env, &t);
	if (r < 0)
		return r;
	r = walk(q, t, path, ret, ret_missing);
	index_read_end(t);
	return r;
}

struct emptiness {
	struct queue *q;
	uint64_t dir;
	bool found;
};

static int any_child(const char *name, size_t len, uint64_t node, void *userdata)
{
	struct emptiness *e = userdata;
	const struct seen *s = view_find(e->q, e->dir, 0, name, len);

	(void)node;
	e->found = !s || s->node;
	return e->found;
}

bool queue_dir_is_empty(struct env *env, uint64_t dir)
{
	struct queue *q = env->queue;
	struct emptiness e = {.q = q, .dir = dir};
	struct index_txn *t;

	if (!q || view_make_fresh(q) < 0)
		return false;
	for (size_t i = 0; i < BUCKETS; i++)
		for (const struct seen *s = q->view[i]; s; s = s->next)
			if (s->parent == dir && s->node)
				return false;
	if (dir & INTENT_MADE || env_read_begin(env, &t) < 0)
		return true;
	(void)index_list(t, dir, NULL, 0, INDEX_NOW, any_child, &e);
	index_read_end(t);
	return !e.found;
}

static bool is_above(const char *dir, const char *path)
{
	size_t n = strlen(dir);

	return strncmp(dir, path, n) == 0 && path[n] == '/';
}

bool queue_find(const struct env *env, const char *path, struct queue_change *ret)
{
	const struct item *exact = NULL, *above = NULL, *it;

	for (it = env->queue ? env->queue->head : NULL; it; it = it->next) {
		const char *to = it->to_path ? it->to_path : "";

		if (strcmp(it->path, path) == 0 || strcmp(to, path) == 0)
			exact = it;
		else if (is_above(it->path, path) || is_above(to, path))
			above = it;
	}
	it = exact ? exact : above;
	if (it)
		*ret = (struct queue_change){.change = it->in.number,
					     .seq = it->durable ? it->seq : 0,
					     .kind = it->in.kind,
					     .error = it->error,
					     .path = it->path,
					     .since_ns = it->since_ns};
	return it != NULL;
}
