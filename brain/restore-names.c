#include "brain/restore-names.h"

#include "base/util.h"
#include "journal/node.h"

void rplan_begin(struct rplan *p, rplan_diff_fn diff, void *userdata)
{
	*p = (struct rplan){.diff = diff, .userdata = userdata};
}

void rname_free(struct rname *x)
{
	if (!x)
		return;
	free(x->name);
	free(x);
}

void rplan_done(struct rplan *p)
{
	for (int side = 0; side < 2; side++) {
		for (size_t i = 0; i < p->n[side]; i++)
			rname_free(p->names[side][i]);
		free(p->names[side]);
		free(p->by_node[side]);
	}
	free(p->by_path);
	for (size_t i = 0; i < p->n_steps; i++) {
		free(p->steps[i].path);
		free(p->steps[i].to_path);
	}
	free(p->steps);
	for (size_t i = 0; i < p->n_changes; i++) {
		free(p->changes[i].path);
		free(p->changes[i].from_path);
	}
	free(p->changes);
	free(p->blocked);
	*p = (struct rplan){0};
}

int rname_push(struct rplan *p, enum rplan_side side, struct rname *x)
{
	if (p->n[side] == RPLAN_NAMES_MAX)
		return -E2BIG;
	if (p->n[side] == p->cap[side]) {
		size_t cap = p->cap[side] ? p->cap[side] * 2 : 64;
		struct rname **v = reallocarray(p->names[side], cap, sizeof(*v));

		if (!v)
			return -ENOMEM;
		p->names[side] = v;
		p->cap[side] = cap;
	}
	p->names[side][p->n[side]++] = x;
	return 0;
}

struct rname *rname_new(const char *path, size_t len, uint64_t node, uint8_t type)
{
	struct rname *x = calloc(1, sizeof(*x) + len + 1);
	const char *slash;

	if (!x)
		return NULL;
	memcpy(x->path, path, len);
	slash = strrchr(x->path, '/');
	x->was = x->path;
	x->name = strdup(slash ? slash + 1 : x->path);
	x->node = node;
	x->type = type;
	if (!x->name) {
		free(x);
		return NULL;
	}
	return x;
}

int rplan_add(struct rplan *p, enum rplan_side side, const char *path, size_t len, uint64_t node,
	      uint8_t type, uint32_t mode, uint32_t links, bool way)
{
	struct rname *x = rname_new(path, len, node, type);
	int r;

	if (!x)
		return -ENOMEM;
	x->mode = mode;
	x->links = links;
	x->way = way;
	r = rname_push(p, side, x);
	if (r < 0)
		rname_free(x);
	return r;
}

/* ---- tables ---- */

static size_t hash_of(const struct rname *parent, const char *name)
{
	uint64_t h = (uint64_t)(uintptr_t)parent * 0x9e3779b97f4a7c15ull;

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 0x100000001b3ull;
	return (size_t)(h ^ (h >> 29));
}

struct rname *rname_find(const struct rplan *p, const struct rname *parent, const char *name)
{
	struct rname *x = p->by_path[hash_of(parent, name) & p->mask];

	while (x && (x->parent != parent || strcmp(x->name, name) != 0))
		x = x->chain;
	return x;
}

void rname_place(struct rplan *p, struct rname *x)
{
	struct rname **at = &p->by_path[hash_of(x->parent, x->name) & p->mask];

	x->chain = *at;
	*at = x;
}

void rname_unplace(struct rplan *p, struct rname *x)
{
	struct rname **at = &p->by_path[hash_of(x->parent, x->name) & p->mask];

	while (*at != x)
		at = &(*at)->chain;
	*at = x->chain;
}

static struct rname **node_slot(const struct rplan *p, enum rplan_side side, uint64_t node)
{
	return &p->by_node[side][(node * 0x9e3779b97f4a7c15ull >> 20) & p->mask];
}

/* The first name of a node; slots are probed in turn. */
struct rname *rname_of_node(const struct rplan *p, enum rplan_side side, uint64_t node)
{
	struct rname **at = node_slot(p, side, node), **end = p->by_node[side] + p->mask + 1;

	while (*at && (*at)->node != node)
		at = at + 1 == end ? p->by_node[side] : at + 1;
	return *at;
}

static void node_add(struct rplan *p, enum rplan_side side, struct rname *x)
{
	struct rname **at = node_slot(p, side, x->node), **end = p->by_node[side] + p->mask + 1;

	while (*at && (*at)->node != x->node)
		at = at + 1 == end ? p->by_node[side] : at + 1;
	if (!*at) {
		*at = x;
		return;
	}
	x->same = (*at)->same;
	(*at)->same = x;
}

/* Parents, by pre-order: the last one whose path leads to it. -EINVAL: no such list. */
static int link_up_names(struct rplan *p, enum rplan_side side)
{
	struct rname *above = NULL;

	for (size_t i = 0; i < p->n[side]; i++) {
		struct rname *x = p->names[side][i];
		size_t len;

		for (; above; above = above->parent) {
			len = strlen(above->path);
			if (strncmp(x->path, above->path, len) == 0 && x->path[len] == '/')
				break;
			above->end = i;
		}
		x->parent = above;
		x->end = p->n[side];
		if (strcmp(x->name, above ? x->path + strlen(above->path) + 1 : x->path) != 0 ||
		    (above && above->type != NODE_TYPE_DIRECTORY))
			return -EINVAL;
		above = x;
		node_add(p, side, x);
		if (side == RPLAN_NOW)
			rname_place(p, x);
	}
	for (; above; above = above->parent)
		above->end = p->n[side];
	return 0;
}

int rname_tables(struct rplan *p)
{
	size_t size = 64;
	int r;

	/* What is made has a name here, too. */
	while (size < 2 * (p->n[0] + p->n[1]))
		size *= 2;
	p->mask = size - 1;
	p->by_path = calloc(size, sizeof(*p->by_path));
	p->by_node[0] = calloc(size, sizeof(*p->by_node[0]));
	p->by_node[1] = calloc(size, sizeof(*p->by_node[1]));
	if (!p->by_path || !p->by_node[0] || !p->by_node[1])
		return -ENOMEM;
	r = link_up_names(p, RPLAN_THEN);
	return r < 0 ? r : link_up_names(p, RPLAN_NOW);
}
