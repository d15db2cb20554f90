#include "brain/merge-plan-impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"

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

struct mnode *mplan_node(const struct merge_plan *p, uint64_t id)
{
	struct mnode *m = p->nodes[hash_id(p, id)];

	while (m && m->id != id)
		m = m->next;
	return m;
}

static struct mnode *node_make(struct merge_plan *p, uint64_t id, uint8_t type)
{
	struct mnode *m = mplan_node(p, id);

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

struct mname *mplan_name(const struct merge_plan *p, enum merge_side side, uint64_t parent,
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

bool mplan_is_dead(const struct mnode *m)
{
	return m->was && !m->is;
}

struct mnode *mplan_dir(const struct merge_plan *p, const struct mname *x)
{
	return mplan_node(p, x->parent);
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
		const struct mnode *up = mplan_node(p, x->parent);

		x->m = node_make(p, x->node, x->type);
		if (!x->m)
			return -ENOMEM;
		/* Told twice, as the way to several things; or in what another has replaced. */
		x->stays = !up || !up->was || mplan_name(p, MERGE_WAS, x->parent, x->name, x->len);
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
		struct mnode *m = mplan_node(p, p->names[MERGE_IS][i]->node);

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
	struct mname *w = mplan_name(p, MERGE_WAS, x->parent, x->name, x->len);
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
	struct mnode *m = mplan_node(p, x->raw);

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
		w = mplan_name(p, MERGE_WAS, x->parent, x->name, x->len);
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
		r = mplan_attrs(p, true);
	if (r == 0)
		r = mplan_order(p);
	return r < 0 ? r : mplan_attrs(p, false);
}
