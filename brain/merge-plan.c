#include "brain/merge-plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

enum { PATH_BYTES_MAX = 64 << 10, DEEP = 8192 };
#define ATTRS (NODE_FIELD_MODE | NODE_FIELD_UID | NODE_FIELD_GID | NODE_FIELD_XATTR)

struct mnode {
	struct mnode *next, *next_replaced;
	uint64_t id;
	uint64_t is_id; /* under which it is there now: its own, or of what replaced it */
	uint64_t at[2];
	uint8_t type;
	bool was, is, way, made;
	unsigned names;	 /* by the steps so far */
	unsigned moves;	 /* that are still to come */
	unsigned inside; /* of a removed directory: names that are still to leave it */
	uint64_t parent; /* of a directory, by the steps so far */
	struct mname *first[2], *left; /* left: names that go, not used yet */
};

struct mname {
	struct mname *chain;   /* of the same hash of (parent, name) */
	struct mname *next_of; /* in a list of its node's */
	uint64_t parent, node; /* ids as the plan has them */
	uint64_t at, raw;      /* raw: the node's id in the list */
	struct mnode *m;
	struct mop *op;
	uint16_t len;
	uint8_t type;
	bool way, stays, gone, placed;
	char name[];
};

struct mop {
	uint8_t kind;
	bool done;
	const struct mname *aside; /* it stepped aside, to beside this one */
	struct mname *from, *to;
	struct mnode *m;
};

void merge_plan_begin(struct merge_plan *p, merge_get_fn get, void *userdata)
{
	*p = (struct merge_plan){.get = get, .userdata = userdata};
}

static void step_done(struct merge_step *s)
{
	free(s->path);
	free(s->to_path);
	for (size_t i = 0; i < ARRAY_SIZE(s->lent); i++)
		free(s->lent[i]);
}

void merge_plan_done(struct merge_plan *p)
{
	for (int side = 0; side < 2; side++) {
		for (size_t i = 0; i < p->n[side]; i++)
			free(p->names[side][i]);
		free(p->names[side]);
		free(p->by_name[side]);
	}
	for (size_t i = 0; p->nodes && i <= p->hash; i++) {
		for (struct mnode *m = p->nodes[i], *next; m; m = next) {
			next = m->next;
			free(m);
		}
	}
	free(p->nodes);
	free(p->replaced);
	free(p->ops);
	for (size_t i = 0; i < p->n_steps; i++)
		step_done(&p->steps[i]);
	free(p->steps);
	*p = (struct merge_plan){0};
}

int merge_plan_add(struct merge_plan *p, enum merge_side side, uint64_t parent, const char *name,
		   size_t len, uint64_t node, uint8_t type, uint64_t at, bool way)
{
	struct mname *x;

	if (p->n[side] >= MERGE_NAMES_MAX || len > NODE_NAME_MAX)
		return -E2BIG;
	if (p->n[side] == p->cap[side]) {
		size_t cap = p->cap[side] ? p->cap[side] * 2 : 1024;
		struct mname **v = reallocarray(p->names[side], cap, sizeof(*v));

		if (!v)
			return -ENOMEM;
		p->names[side] = v;
		p->cap[side] = cap;
	}
	x = calloc(1, sizeof(*x) + len + 1);
	if (!x)
		return -ENOMEM;
	memcpy(x->name, name, len);
	x->len = (uint16_t)len;
	x->parent = parent;
	x->node = x->raw = node;
	x->type = type;
	x->at = at;
	x->way = way;
	p->names[side][p->n[side]++] = x;
	return 0;
}

/* ---- tables ---- */

static size_t hash_id(const struct merge_plan *p, uint64_t id)
{
	return (size_t)((id * 0x9e3779b97f4a7c15ull) >> 20) & p->hash;
}

static size_t hash_name(const struct merge_plan *p, uint64_t parent, const char *name, size_t len)
{
	uint64_t h = parent * 0x9e3779b97f4a7c15ull;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)name[i]) * 0x100000001b3ull;
	return (size_t)(h >> 20) & p->hash;
}

static struct mnode *node_find(const struct merge_plan *p, uint64_t id)
{
	struct mnode *m = p->nodes[hash_id(p, id)];

	while (m && m->id != id)
		m = m->next;
	return m;
}

static struct mnode *node_make(struct merge_plan *p, uint64_t id, uint8_t type)
{
	struct mnode *m = node_find(p, id);

	if (m)
		return m;
	m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	m->id = m->is_id = id;
	m->type = type;
	m->next = p->nodes[hash_id(p, id)];
	p->nodes[hash_id(p, id)] = m;
	return m;
}

static struct mname *name_find(const struct merge_plan *p, enum merge_side side, uint64_t parent,
			       const char *name, size_t len)
{
	struct mname *x = p->by_name[side][hash_name(p, parent, name, len)];

	while (x && (x->parent != parent || x->len != len || memcmp(x->name, name, len) != 0))
		x = x->chain;
	return x;
}

static void name_put(struct merge_plan *p, enum merge_side side, struct mname *x)
{
	struct mname **b = &p->by_name[side][hash_name(p, x->parent, x->name, x->len)];

	x->chain = *b;
	*b = x;
	if (!x->m->first[side]) {
		x->m->first[side] = x;
		x->m->at[side] = x->at;
	}
}

static int tables(struct merge_plan *p)
{
	size_t n = 1024;

	while (n < p->n[0] || n < p->n[1])
		n *= 2;
	p->hash = n - 1;
	p->nodes = calloc(n, sizeof(*p->nodes));
	p->replaced = calloc(n, sizeof(*p->replaced));
	for (int side = 0; side < 2; side++)
		p->by_name[side] = calloc(n, sizeof(*p->by_name[side]));
	return p->nodes && p->replaced && p->by_name[0] && p->by_name[1] ? 0 : -ENOMEM;
}

/* ---- which node is which ---- */

static int take_was(struct merge_plan *p)
{
	struct mnode *root = node_make(p, NODE_ROOT, NODE_TYPE_DIRECTORY);

	if (!root)
		return -ENOMEM;
	root->was = root->is = root->way = true;
	for (size_t i = 0; i < p->n[MERGE_WAS]; i++) {
		struct mname *x = p->names[MERGE_WAS][i];
		const struct mnode *up = node_find(p, x->parent);

		x->m = node_make(p, x->node, x->type);
		if (!x->m)
			return -ENOMEM;
		/* Told twice, as the way to several things; or in what another has replaced. */
		x->stays = !up || !up->was || name_find(p, MERGE_WAS, x->parent, x->name, x->len);
		if (x->stays)
			continue;
		x->m->was = true;
		x->m->way |= x->way;
		x->m->names++;
		x->m->parent = x->parent;
		name_put(p, MERGE_WAS, x);
	}
	/* What is there still by its own id is not replaced by anything. */
	for (size_t i = 0; i < p->n[MERGE_IS]; i++) {
		struct mnode *m = node_find(p, p->names[MERGE_IS][i]->node);

		if (m)
			m->is = true;
	}
	return 0;
}

static struct mnode *replaced_by(const struct merge_plan *p, uint64_t id)
{
	struct mnode *m = p->replaced[hash_id(p, id)];

	while (m && m->is_id != id)
		m = m->next_replaced;
	return m;
}

/* What had this name, and is nowhere now: it is this one. */
static struct mnode *adopt(struct merge_plan *p, const struct mname *x)
{
	struct mname *w = name_find(p, MERGE_WAS, x->parent, x->name, x->len);
	struct mnode *m = w ? w->m : NULL;

	if (!m || m->is || m->way || m->type != x->type ||
	    (m->type != NODE_TYPE_FILE && m->type != NODE_TYPE_DIRECTORY))
		return NULL;
	m->is = true;
	m->is_id = x->raw;
	m->next_replaced = p->replaced[hash_id(p, x->raw)];
	p->replaced[hash_id(p, x->raw)] = m;
	return m;
}

static struct mnode *identity(struct merge_plan *p, const struct mname *x)
{
	struct mnode *m = node_find(p, x->raw);

	if (!m)
		m = replaced_by(p, x->raw);
	if (!m)
		m = adopt(p, x);
	if (!m)
		m = node_make(p, x->raw, x->type);
	return m;
}

static int take_is(struct merge_plan *p)
{
	for (size_t i = 0; i < p->n[MERGE_IS]; i++) {
		struct mname *x = p->names[MERGE_IS][i], *w;
		struct mnode *up = replaced_by(p, x->parent);

		if (up)
			x->parent = up->id;
		x->m = identity(p, x);
		if (!x->m)
			return -ENOMEM;
		x->m->is = true;
		x->m->way |= x->way;
		x->node = x->m->id;
		name_put(p, MERGE_IS, x);
		w = name_find(p, MERGE_WAS, x->parent, x->name, x->len);
		if (w && w->m == x->m)
			w->stays = x->stays = true;
	}
	for (size_t i = 0; i < p->n[MERGE_WAS]; i++) {
		struct mname *x = p->names[MERGE_WAS][i];

		if (x->way && !x->m->is)
			x->stays = x->m->is = true;
	}
	return 0;
}

/* ---- what has to be done ---- */

static bool is_dead(const struct mnode *m)
{
	return m->was && !m->is;
}

static struct mnode *dir_of(const struct merge_plan *p, const struct mname *x)
{
	return node_find(p, x->parent);
}

static void count_inside(const struct merge_plan *p, const struct mname *x, int by)
{
	for (struct mnode *d = dir_of(p, x); d && is_dead(d) && d->first[MERGE_WAS];
	     d = dir_of(p, d->first[MERGE_WAS]))
		d->inside += (unsigned)by;
}

static struct mop *op_add(struct merge_plan *p, uint8_t kind, struct mnode *m, struct mname *from,
			  struct mname *to)
{
	struct mop *op = &p->ops[p->n_ops++];

	*op = (struct mop){.kind = kind, .m = m, .from = from, .to = to};
	if (from)
		from->op = op;
	if (from && !is_dead(m))
		count_inside(p, from, 1);
	return op;
}

static int ops_make(struct merge_plan *p)
{
	struct mname *x;

	p->ops = calloc(p->n[0] + p->n[1] + 1, sizeof(*p->ops));
	if (!p->ops)
		return -ENOMEM;
	for (size_t i = p->n[MERGE_WAS]; i-- > 0;) {
		x = p->names[MERGE_WAS][i];
		if (x->stays)
			continue;
		x->next_of = x->m->left;
		x->m->left = x;
	}
	for (size_t i = 0; i < p->n[MERGE_IS]; i++) {
		struct mnode *m;

		x = p->names[MERGE_IS][i];
		m = x->m;
		if (x->stays)
			continue;
		if (!m->was && !m->made) {
			m->made = true;
			(void)op_add(p, INTENT_CREATE, m, NULL, x);
		} else if (m->left) {
			m->moves++;
			(void)op_add(p, INTENT_MOVE, m, m->left, x);
			m->left = m->left->next_of;
		} else {
			(void)op_add(p, INTENT_LINK, m, NULL, x);
		}
	}
	for (size_t i = 0; i < p->n[MERGE_WAS]; i++) {
		x = p->names[MERGE_WAS][i];
		/* With a removed directory goes what is in it. */
		if (!x->stays && !x->op && !is_dead(dir_of(p, x)))
			(void)op_add(p, INTENT_REMOVE, x->m, x, NULL);
	}
	for (size_t i = 0; i < p->n_ops; i++)
		p->ops[i].m->made = false;
	return 0;
}

/* ---- steps ---- */

static struct merge_step *step_add(struct merge_plan *p, uint8_t kind, const struct mnode *m)
{
	struct merge_step *s;

	if (p->n_steps == p->cap_steps) {
		size_t cap = p->cap_steps ? p->cap_steps * 2 : 64;

		s = reallocarray(p->steps, cap, sizeof(*s));
		if (!s)
			return NULL;
		p->steps = s;
		p->cap_steps = cap;
	}
	s = &p->steps[p->n_steps++];
	*s = (struct merge_step){.kind = kind, .node = m->id};
	return s;
}

static int path_of(const struct merge_plan *p, enum merge_side side, const struct mname *x,
		   const char *last, char **ret)
{
	char *path, *at;
	size_t n = strlen(last);
	unsigned deep = 0;

	for (const struct mname *u = x; u->parent != NODE_ROOT; n += 1u + u->len) {
		const struct mnode *d = dir_of(p, u);

		u = d ? d->first[side] : NULL;
		if (!u || n > PATH_BYTES_MAX || deep++ > DEEP)
			return -ENAMETOOLONG;
	}
	path = malloc(n + 1);
	if (!path)
		return -ENOMEM;
	at = path + n - strlen(last);
	memcpy(at, last, strlen(last) + 1);
	for (const struct mname *u = x; u->parent != NODE_ROOT;) {
		u = dir_of(p, u)->first[side];
		*--at = '/';
		at -= u->len;
		memcpy(at, u->name, u->len);
	}
	*ret = path;
	return 0;
}

/* As it was, or is, with what it points to. */
static int take_node(struct merge_plan *p, struct merge_step *s, const struct mnode *m,
		     enum merge_side side, struct node *ret)
{
	void **lent = &s->lent[ret == &s->wanted ? 0 : 2];
	struct node n = {0};
	int r;

	r = p->get(side == MERGE_WAS ? m->id : m->is_id, m->at[side], &n, p->userdata);
	if (r < 0)
		return r;
	if (n.target_len) {
		lent[0] = malloc(n.target_len);
		if (!lent[0])
			return -ENOMEM;
		memcpy(lent[0], n.target, n.target_len);
	}
	if (n.xattrs_len) {
		lent[1] = malloc(n.xattrs_len);
		if (!lent[1])
			return -ENOMEM;
		memcpy(lent[1], n.xattrs, n.xattrs_len);
	}
	n.target = lent[0];
	n.xattrs = lent[1];
	*ret = n;
	return 0;
}

#define ASIDE_BYTES (sizeof(MERGE_ASIDE) + 20)

static const char *aside_name(const struct mnode *m, char out[ASIDE_BYTES])
{
	(void)snprintf(out, ASIDE_BYTES, "%s%llu", MERGE_ASIDE, (unsigned long long)m->id);
	return out;
}

static int emit(struct merge_plan *p, const struct mop *op, const struct mname *over)
{
	struct merge_step *s = step_add(p, op->kind, op->m);
	const struct mname *from = op->from, *to = op->to;
	char aside[ASIDE_BYTES];
	int r = 0;

	if (!s)
		return -ENOMEM;
	s->replaces = over ? over->node : 0;
	if (from && op->aside) {
		s->parent = op->aside->parent;
		r = path_of(p, MERGE_WAS, op->aside, aside_name(op->m, aside), &s->path);
	} else if (from) {
		s->parent = from->parent;
		r = path_of(p, MERGE_WAS, from, from->name, &s->path);
	}
	if (r == 0 && to && op->kind == INTENT_CREATE) {
		s->parent = to->parent;
		r = path_of(p, MERGE_IS, to, to->name, &s->path);
	} else if (r == 0 && to) {
		s->to_parent = to->parent;
		r = path_of(p, MERGE_IS, to, to->name, &s->to_path);
	}
	if (r == 0 && op->kind == INTENT_CREATE)
		r = take_node(p, s, op->m, MERGE_IS, &s->wanted);
	else if (r == 0)
		r = take_node(p, s, op->m, op->m->was ? MERGE_WAS : MERGE_IS, &s->base);
	/* What comes in it has to be let in; its own mode comes last. */
	if (r == 0 && op->kind == INTENT_CREATE && op->m->type == NODE_TYPE_DIRECTORY)
		s->wanted.mode |= 0700;
	s->shared = op->kind == INTENT_REMOVE && op->m->is;
	if (r == 0 && op->kind == INTENT_LINK && !s->path)
		r = path_of(p, MERGE_IS, to, to->name, &s->path);
	return r;
}

/* ---- their order ---- */

static const struct mname *held(const struct merge_plan *p, const struct mname *to)
{
	const struct mname *x = name_find(p, MERGE_WAS, to->parent, to->name, to->len);

	if (x && !x->gone)
		return x;
	x = name_find(p, MERGE_IS, to->parent, to->name, to->len);
	return x && x->placed ? x : NULL;
}

static bool is_there(const struct merge_plan *p, uint64_t dir)
{
	const struct mnode *m = node_find(p, dir);

	return m && (m->was || m->made);
}

static bool is_beneath(const struct merge_plan *p, uint64_t dir, const struct mnode *top)
{
	for (unsigned i = 0; i < DEEP && dir != NODE_ROOT; i++) {
		const struct mnode *m = node_find(p, dir);

		if (m == top)
			return true;
		if (!m)
			return false;
		dir = m->parent;
	}
	return false;
}

static bool may_go_over(const struct mop *op, const struct mname *over)
{
	return is_dead(over->m) && over->op && over->op->kind == INTENT_REMOVE &&
	       over->m->type != NODE_TYPE_DIRECTORY && op->m->type != NODE_TYPE_DIRECTORY;
}

static bool is_ready(const struct merge_plan *p, const struct mop *op)
{
	const struct mname *over;

	if (op->kind == INTENT_REMOVE)
		return is_dead(op->m) ? op->m->inside == 0 : op->m->names > 1;
	if (!is_there(p, op->to->parent))
		return false;
	over = held(p, op->to);
	switch (op->kind) {
	case INTENT_CREATE: return !over;
	case INTENT_LINK: return !over && op->m->moves == 0 && (op->m->was || op->m->made);
	default:
		return (!over || may_go_over(op, over)) && (op->m->type != NODE_TYPE_DIRECTORY ||
							    !is_beneath(p, op->to->parent, op->m));
	}
}

static int perform(struct merge_plan *p, struct mop *op)
{
	const struct mname *over = op->kind == INTENT_MOVE ? held(p, op->to) : NULL;
	int r = emit(p, op, over);

	if (r < 0)
		return r;
	op->done = true;
	if (over) {
		over->op->done = true;
		over->op->from->gone = true;
	}
	if (op->from && !op->aside) {
		op->from->gone = true;
		if (!is_dead(op->m))
			count_inside(p, op->from, -1);
	}
	if (op->to) {
		op->to->placed = true;
		op->m->parent = op->to->parent;
	}
	op->m->made |= op->kind == INTENT_CREATE;
	op->m->moves -= op->kind == INTENT_MOVE;
	op->m->names += op->kind == INTENT_CREATE || op->kind == INTENT_LINK;
	op->m->names -= op->kind == INTENT_REMOVE;
	return 0;
}

/* Names that go in a circle: one of them steps aside, beside where it is, and out of what is to
 * be removed. */
static int step_aside(struct merge_plan *p)
{
	struct merge_step *s;
	struct mop *op = NULL;
	char name[ASIDE_BYTES];
	int r;

	for (size_t i = 0; !op && i < p->n_ops; i++)
		if (!p->ops[i].done && p->ops[i].kind == INTENT_MOVE && !p->ops[i].aside)
			op = &p->ops[i];
	if (!op)
		return -EIO;
	s = step_add(p, INTENT_MOVE, op->m);
	if (!s)
		return -ENOMEM;
	op->aside = op->from;
	while (is_dead(dir_of(p, op->aside)))
		op->aside = dir_of(p, op->aside)->first[MERGE_WAS];
	s->parent = op->from->parent;
	s->to_parent = op->aside->parent;
	r = path_of(p, MERGE_WAS, op->from, op->from->name, &s->path);
	if (r == 0)
		r = path_of(p, MERGE_WAS, op->aside, aside_name(op->m, name), &s->to_path);
	if (r == 0)
		r = take_node(p, s, op->m, MERGE_WAS, &s->base);
	op->m->parent = s->to_parent;
	op->from->gone = true;
	count_inside(p, op->from, -1);
	return r;
}

static int order(struct merge_plan *p)
{
	size_t left = p->n_ops, before;
	int r = 0;

	while (r == 0 && left) {
		before = left;
		left = 0;
		for (size_t i = 0; r == 0 && i < p->n_ops; i++) {
			if (!p->ops[i].done && is_ready(p, &p->ops[i]))
				r = perform(p, &p->ops[i]);
		}
		for (size_t i = 0; i < p->n_ops; i++)
			left += !p->ops[i].done;
		if (r == 0 && left && left == before)
			r = step_aside(p);
	}
	return r;
}

/* ---- what is in them ---- */

static int attr_step(struct merge_plan *p, const struct mnode *m, uint8_t kind, uint32_t fields)
{
	const struct mname *x = m->first[MERGE_IS];
	struct merge_step *s = step_add(p, kind, m);
	int r;

	if (!s)
		return -ENOMEM;
	s->fields = fields;
	s->parent = x->parent;
	r = path_of(p, MERGE_IS, x, x->name, &s->path);
	if (r == 0)
		r = take_node(p, s, m, MERGE_IS, &s->wanted);
	if (r == 0)
		r = take_node(p, s, m, m->was ? MERGE_WAS : MERGE_IS, &s->base);
	if (r == 0 && !m->was)
		s->base.mode |= 0700;
	return r;
}

static int compare(struct merge_plan *p, const struct mnode *m, uint32_t *ret, uint32_t *ret_mode)
{
	struct node was, is;
	int r;

	r = p->get(m->is_id, m->at[MERGE_IS], &is, p->userdata);
	if (r < 0)
		return r;
	*ret_mode = is.mode;
	*ret = m->type == NODE_TYPE_DIRECTORY && (is.mode & 0700) != 0700 ? NODE_FIELD_MODE : 0;
	if (!m->was)
		return 0;
	r = p->get(m->id, m->at[MERGE_WAS], &was, p->userdata);
	if (r == 0)
		*ret = node_compare(&was, &is, p->mask);
	return r;
}

/* A directory that is closed by it waits until all in it is done. */
static int attrs(struct merge_plan *p, bool open)
{
	uint32_t fields, mode;
	int r = 0;

	for (size_t i = 0; r == 0 && i < p->n[MERGE_IS]; i++) {
		const struct mname *x = p->names[MERGE_IS][i];
		const struct mnode *m = x->m;
		bool dir = m->type == NODE_TYPE_DIRECTORY;

		if (m->first[MERGE_IS] != x || m->way || (!m->was && !dir))
			continue;
		r = compare(p, m, &fields, &mode);
		if (r < 0 || open != (dir && m->was && (mode & 0700) == 0700))
			continue;
		if (m->type == NODE_TYPE_FILE && fields & NODE_FIELD_CONTENT)
			r = attr_step(p, m, INTENT_WRITE, 0);
		fields &= ATTRS | (m->type == NODE_TYPE_FILE ? NODE_FIELD_MTIME : 0);
		if (m->type == NODE_TYPE_SYMLINK)
			fields &= ~(uint32_t)NODE_FIELD_MODE;
		if (r == 0 && fields)
			r = attr_step(p, m, INTENT_ATTR, fields);
	}
	return r;
}

int merge_plan_make(struct merge_plan *p, uint32_t mask)
{
	int r;

	p->mask = mask;
	r = tables(p);
	if (r == 0)
		r = take_was(p);
	if (r == 0)
		r = take_is(p);
	if (r == 0)
		r = ops_make(p);
	if (r == 0)
		r = attrs(p, true);
	if (r == 0)
		r = order(p);
	return r < 0 ? r : attrs(p, false);
}
