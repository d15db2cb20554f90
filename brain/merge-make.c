/* `limb merge`: the fork's two trees into a plan, its steps into changes of the brain's side. */
#include "brain/merge-impl.h"

#include <stdio.h>

#include "brain/commit.h"

/* ---- ids ---- */

/* With a part of the paths a node can be made at its new name while its old one still stands:
 * from then on the fork's node is the one that was made, and under this bit the other. */
#define OLD (1ull << 62)

static struct mapped *map_at(struct merging *g, uint64_t node)
{
	size_t i = (size_t)(node * 0x9e3779b97f4a7c15ull >> 20) & g->map_mask;

	while (g->map[i].node && g->map[i].node != node)
		i = (i + 1) & g->map_mask;
	return &g->map[i];
}

static void map_put(struct merging *g, uint64_t node, uint64_t change, bool lost)
{
	struct mapped *m = map_at(g, node);
	uint64_t before = m->node ? m->id : node;

	*m = (struct mapped){node, INTENT_MADE | change, before, lost};
}

static int map_make(struct merging *g)
{
	size_t n = 64;

	while (n < 2 * (g->past.n_made + g->plan.n_steps))
		n *= 2;
	free(g->map);
	g->map = calloc(n, sizeof(*g->map));
	g->map_mask = n - 1;
	for (size_t i = 0; g->map && i < g->past.n_made; i++)
		map_put(g, g->past.made[i].node, g->past.made[i].change, !g->past.made[i].made);
	return g->map ? 0 : -ENOMEM;
}

/* What both had when it was forked has one id. */
static uint64_t id_of(struct merging *g, uint64_t node)
{
	const struct mapped *m = map_at(g, node & ~OLD);

	if (!m->node)
		return node & ~OLD;
	return node & OLD ? m->before : m->id;
}

static bool is_lost(struct merging *g, uint64_t node)
{
	const struct mapped *m = map_at(g, node);

	return m->node && m->lost;
}

/* In a tree that merge number `mark` took (0: the fork's first) it is not yet what a later one made
 * of it. */
static uint64_t node_then(struct merging *g, uint64_t node, size_t mark)
{
	const struct mapped *m = map_at(g, node);
	uint64_t last = mark ? g->past.marks[mark - 1].last : 0;

	return m->node && (m->id & ~INTENT_MADE) > last ? node | OLD : node;
}

/* ---- the trees ---- */

enum scope { SCOPE_OUT, SCOPE_WAY, SCOPE_IN };

/* way: it leads to what is asked for. */
static enum scope scope_of(char **paths, size_t n, const char *path, size_t len)
{
	enum scope best = n ? SCOPE_OUT : SCOPE_IN;

	for (size_t i = 0; i < n; i++) {
		size_t have = strlen(paths[i]);

		if (strncmp(paths[i], path, MIN(have, len)) != 0)
			continue;
		if (len == have || (len > have && path[have] == '/'))
			return SCOPE_IN;
		if (len < have && paths[i][len] == '/')
			best = SCOPE_WAY;
	}
	return best;
}

struct walk {
	struct merging *g;
	enum merge_side side;
	uint64_t at;
	size_t mark; /* WAS: index behind that of the merge that took this tree; 0: the fork's */
	struct index_walk_dirs dirs;
};

/* Which merge was the last that took what is at this path? Index + 1; 0: none did. */
static size_t taken_by(const struct merge_past *p, const char *path, size_t len)
{
	for (size_t i = p->n_marks; i-- > 0;)
		if (scope_of(p->marks[i].paths, p->marks[i].n_paths, path, len) == SCOPE_IN)
			return i + 1;
	return 0;
}

/* May something beneath it have been taken by this one? */
static bool leads_to(const struct merge_past *p, size_t mark, const char *path, size_t len)
{
	const struct merge_mark *m = &p->marks[mark - 1];

	return scope_of(m->paths, m->n_paths, path, len) != SCOPE_OUT;
}

static int walked(const char *path, size_t len, const struct index_node *n, uint32_t same_as,
		  void *userdata)
{
	struct walk *w = userdata;
	struct merging *g = w->g;
	enum scope scope = scope_of(g->paths, g->n_paths, path, len);
	size_t name, taken;
	uint64_t parent, node = w->side == MERGE_WAS ? node_then(g, n->id, w->mark) : n->id;
	int r;

	(void)same_as;
	r = index_walk_parent(&w->dirs, path, len, node, &parent, &name);
	if (r < 0)
		return r;
	if (scope == SCOPE_OUT)
		return n->n.type == NODE_TYPE_DIRECTORY ? INDEX_WALK_SKIP : 0;
	taken = w->side == MERGE_WAS && scope == SCOPE_IN ? taken_by(&g->past, path, len) : w->mark;
	if (taken > w->mark) /* and all beneath it */
		return n->n.type == NODE_TYPE_DIRECTORY ? INDEX_WALK_SKIP : 0;
	if (taken < w->mark) {
		/* An earlier one's, but the way to what this one took. */
		if (n->n.type != NODE_TYPE_DIRECTORY)
			return 0;
		if (!leads_to(&g->past, w->mark, path, len))
			return INDEX_WALK_SKIP;
	}
	return merge_plan_add(&g->plan, w->side, parent, path + name, len - name, node, n->n.type,
			      w->at, scope == SCOPE_WAY);
}

static int add_tree(struct merging *g, enum merge_side side, uint64_t at, size_t mark)
{
	struct walk w = {.g = g, .side = side, .at = at, .mark = mark};
	int r = index_walk(g->t, NODE_ROOT, at, walked, &w);

	free(w.dirs.nodes);
	return r;
}

static int plan_get(uint64_t node, uint64_t at, struct node *ret, void *userdata)
{
	struct merging *g = userdata;
	struct index_node n;
	int r = index_get_node(g->t, node & ~OLD, at, &n);

	if (r == 0)
		*ret = n.n;
	return r;
}

int merge_plan_read(struct merging *g)
{
	size_t whole = 0;
	int r;

	r = merge_past_read(g->into->log_fd, g->forked_seq, g->from->id_hex, 0, &g->past);
	if (r == 0)
		r = map_make(g);
	if (r == 0)
		r = env_read_begin(g->from, &g->t);
	if (r < 0)
		return r;
	g->to = index_seq(g->t);
	merge_plan_begin(&g->plan, plan_get, g);
	for (size_t i = 0; i < g->past.n_marks; i++)
		if (!g->past.marks[i].n_paths)
			whole = i + 1;
	r = add_tree(g, MERGE_WAS, whole ? g->past.marks[whole - 1].to : g->base, whole);
	for (size_t i = whole; r == 0 && i < g->past.n_marks; i++)
		r = add_tree(g, MERGE_WAS, g->past.marks[i].to, i + 1);
	if (r == 0)
		r = add_tree(g, MERGE_IS, g->to, 0);
	if (r == 0)
		r = merge_plan_make(&g->plan, g->from->unheld | g->into->unheld);
	index_read_end(g->t);
	return r;
}

/* ---- the changes ---- */

static struct intent_name name_at(struct merging *g, uint64_t parent, const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL, *name = slash ? slash + 1 : path;

	return (struct intent_name){name ? id_of(g, parent) : 0, name,
				    (uint16_t)(name ? strlen(name) : 0)};
}

/* What could not be made before is made now, if there is something new in it. */
static bool is_change(struct merging *g, const struct merge_step *s)
{
	return !is_lost(g, s->node) || s->kind == INTENT_CREATE || s->kind == INTENT_WRITE;
}

static int add_step(struct merging *g, const struct merge_step *s, queue_durable_fn fn)
{
	struct intent in = {
		.kind = s->kind,
		.at = name_at(g, s->parent, s->path),
		.to = name_at(g, s->to_parent, s->to_path),
		.path = s->path,
		.to_path = s->to_path,
		.replaces = s->replaces ? id_of(g, s->replaces) : 0,
		.shared = s->shared,
		.fields = s->fields,
		.wanted = s->wanted,
		.base = s->base,
		.base_seq = g->forked_seq,
		.merge_last = g->last,
		.merge_node = s->node,
	};
	int r;

	if (in.kind == INTENT_WRITE && is_lost(g, s->node))
		in.kind = INTENT_CREATE;
	if (in.kind != INTENT_CREATE)
		in.node = id_of(g, s->node);
	r = queue_add(g->into, &in, fn, fn ? g : NULL);
	if (r == 0 && in.kind == INTENT_CREATE)
		map_put(g, s->node, in.number, false);
	return r;
}

static int record_mark(struct merging *g)
{
	struct merge_mark m = {.first = g->first,
			       .last = g->last,
			       .to = g->to,
			       .paths = g->paths,
			       .n_paths = g->n_paths};
	cleanup_free char *text = merge_mark_text(&m);
	Limb__Record rec = LIMB__RECORD__INIT;
	Limb__Decision d = LIMB__DECISION__INIT;

	if (!text)
		return -ENOMEM;
	d.verb = (char *)"merge";
	d.key = g->from->id_hex;
	d.value = text;
	rec.origin = LIMB__ORIGIN__ORIGIN_BRAIN;
	rec.body_case = LIMB__RECORD__BODY_DECISION;
	rec.decision = &d;
	return commit_submit(g->into, RECORD_DECISION, &rec, NULL, NULL);
}

size_t merge_count(struct merging *g)
{
	size_t n = 0;

	for (size_t i = 0; i < g->plan.n_steps; i++)
		n += is_change(g, &g->plan.steps[i]);
	return n;
}

int merge_add(struct merging *g, queue_durable_fn fn)
{
	uint64_t left = g->last - g->first + 1;
	int r = map_make(g);

	if (r == 0)
		r = queue_merge_known(g->into, &g->past, g->last);
	if (r == 0)
		r = record_mark(g);
	for (size_t i = 0; r == 0 && i < g->plan.n_steps; i++)
		if (is_change(g, &g->plan.steps[i]))
			r = add_step(g, &g->plan.steps[i], --left ? NULL : fn);
	return r;
}
