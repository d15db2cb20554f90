#include "brain/restore-names.h"

#include <stdio.h>

#include "base/util.h"
#include "journal/node.h"

const char *rplan_action_name(enum rplan_action a)
{
	static const char *const names[] = {
		[RPLAN_CREATED] = "create",    [RPLAN_REPLACED] = "replace",
		[RPLAN_REMOVED] = "remove",    [RPLAN_RENAMED] = "rename",
		[RPLAN_METADATA] = "metadata",
	};

	return names[a];
}

/* ---- steps ---- */

/* Where it is by now; malloc'ed. */
static char *path_of(const struct rname *parent, const char *name)
{
	size_t len = strlen(name);
	char *s, *at;

	for (const struct rname *x = parent; x; x = x->parent)
		len += strlen(x->name) + 1;
	s = malloc(len + 1);
	if (!s)
		return NULL;
	at = s + len;
	*at = 0;
	for (;;) {
		len = strlen(name);
		at -= len;
		memcpy(at, name, len);
		if (!parent)
			return s;
		*--at = '/';
		name = parent->name;
		parent = parent->parent;
	}
}

static struct rplan_step *step_new(struct rplan *p, enum rplan_kind kind)
{
	if (p->n_steps == p->cap_steps) {
		size_t cap = p->cap_steps ? p->cap_steps * 2 : 64;
		struct rplan_step *v = reallocarray(p->steps, cap, sizeof(*v));

		if (!v)
			return NULL;
		p->steps = v;
		p->cap_steps = cap;
	}
	p->steps[p->n_steps] = (struct rplan_step){.kind = kind};
	return &p->steps[p->n_steps++];
}

static int change_add(struct rplan *p, enum rplan_action action, const char *path, const char *from)
{
	struct rplan_change *c;

	if (p->n_changes == p->cap_changes) {
		size_t cap = p->cap_changes ? p->cap_changes * 2 : 64;

		c = reallocarray(p->changes, cap, sizeof(*c));
		if (!c)
			return -ENOMEM;
		p->changes = c;
		p->cap_changes = cap;
	}
	c = &p->changes[p->n_changes++];
	*c = (struct rplan_change){.action = action, .path = strdup(path)};
	if (from)
		c->from_path = strdup(from);
	return c->path && (!from || c->from_path) ? 0 : -ENOMEM;
}

static int step_add(struct rplan *p, enum rplan_kind kind, const struct rname *x, uint64_t node)
{
	struct rplan_step *s = step_new(p, kind);

	if (!s)
		return -ENOMEM;
	s->path = path_of(x->parent, x->name);
	s->is_dir = x->type == NODE_TYPE_DIRECTORY;
	s->node = node;
	return s->path ? 0 : -ENOMEM;
}

/* Something is going to come or go in it. */
static int touch(struct rplan *p, struct rname *dir)
{
	struct rplan_step *s;
	int r;

	if (!dir)
		return 0;
	dir->touched = true;
	if (dir->opened || dir->made || (dir->mode & 0300) == 0300)
		return 0;
	dir->opened = true;
	r = step_add(p, RPLAN_OPEN, dir, dir->node);
	if (r < 0)
		return r;
	s = &p->steps[p->n_steps - 1];
	s->mode = dir->mode | 0700;
	return 0;
}

static int move(struct rplan *p, struct rname *x, struct rname *parent, const char *name)
{
	char *own = strdup(name);
	struct rplan_step *s;
	int r;

	if (!own)
		return -ENOMEM;
	r = touch(p, x->parent);
	if (r == 0)
		r = touch(p, parent);
	if (r == 0)
		r = step_add(p, RPLAN_MOVE, x, x->node);
	if (r < 0) {
		free(own);
		return r;
	}
	s = &p->steps[p->n_steps - 1];
	s->to_path = path_of(parent, name);
	rname_unplace(p, x);
	free(x->name);
	x->name = own;
	x->parent = parent;
	x->moved = true;
	rname_place(p, x);
	return s->to_path ? 0 : -ENOMEM;
}

/* The older tree has its node at a place that was not come to yet. */
static bool is_wanted(const struct rplan *p, const struct rname *x)
{
	const struct rname *then = rname_of_node(p, RPLAN_THEN, x->node);

	if (!then || then->type != x->type)
		return false;
	for (; then; then = then->same)
		if (then->match)
			return false;
	return true;
}

static int step_aside(struct rplan *p, struct rname *x, struct rname *beside)
{
	char name[64];

	for (unsigned i = 0;; i++) {
		(void)snprintf(name, sizeof(name), RPLAN_ASIDE "%llx%.*u",
			       (unsigned long long)x->node, i ? 8 : 0, i);
		if (!rname_find(p, beside, name))
			return move(p, x, beside, name);
	}
}

static int drop(struct rplan *p, struct rname *x)
{
	int r = touch(p, x->parent);

	if (r == 0)
		r = step_add(p, RPLAN_REMOVE, x, 0);
	rname_unplace(p, x);
	x->gone = true;
	return r;
}

static bool lies_in(const struct rname *x, const struct rname *dir)
{
	for (; x; x = x->parent)
		if (x == dir)
			return true;
	return false;
}

static size_t index_of(const struct rplan *p, const struct rname *dir)
{
	size_t i = dir->end;

	while (p->names[RPLAN_NOW][--i] != dir)
		;
	return i;
}

/* The place of x is needed for something else, of which a person is told. */
static int clear(struct rplan *p, struct rname *x)
{
	struct rname **v = p->names[RPLAN_NOW];
	size_t first;
	int r = 0;

	if (is_wanted(p, x))
		return step_aside(p, x, x->parent);
	if (x->type != NODE_TYPE_DIRECTORY)
		return drop(p, x);
	first = index_of(p, x);
	for (size_t i = first + 1; r == 0 && i < x->end; i++) {
		if (v[i]->gone || !lies_in(v[i], x) || !is_wanted(p, v[i]))
			continue;
		r = step_aside(p, v[i], x->parent);
	}
	for (size_t i = x->end; r == 0 && --i > first;) {
		if (v[i]->gone || !lies_in(v[i], x))
			continue;
		r = drop(p, v[i]);
		if (r == 0)
			r = change_add(p, RPLAN_REMOVED, v[i]->was, NULL);
	}
	return r < 0 ? r : drop(p, x);
}

/* ---- what each name of the older tree needs ---- */

/* A name of its node that is there and may be moved: none of those that it is to have. */
static struct rname *movable(const struct rplan *p, const struct rname *then)
{
	struct rname *x = rname_of_node(p, RPLAN_NOW, then->node);

	for (; x; x = x->same) {
		const struct rname *t = then;

		if (x->gone || x->match || x->way || x->type != then->type)
			continue;
		/* `same` is a ring's remainder: begin at the first name. */
		for (t = rname_of_node(p, RPLAN_THEN, then->node); t; t = t->same)
			if (t != then && !x->moved && strcmp(t->path, x->was) == 0)
				break;
		if (!t)
			return x;
	}
	return NULL;
}

/* A name that it has and keeps, from which another can be linked. */
static struct rname *linkable(const struct rplan *p, const struct rname *then)
{
	struct rname *x;

	if (then->type == NODE_TYPE_DIRECTORY)
		return NULL;
	for (const struct rname *t = rname_of_node(p, RPLAN_THEN, then->node); t; t = t->same)
		if (t->match)
			return t->match;
	for (x = rname_of_node(p, RPLAN_NOW, then->node); x; x = x->same)
		if (!x->gone && !x->match && x->type == then->type)
			return x;
	return NULL;
}

static struct rname *made(struct rplan *p, struct rname *then, struct rname *parent, uint64_t node)
{
	struct rname *x = rname_new(then->path, strlen(then->path), node, then->type);

	if (!x || rname_push(p, RPLAN_NOW, x) < 0) {
		rname_free(x);
		return NULL;
	}
	x->parent = parent;
	x->made = true;
	x->end = p->n[RPLAN_NOW];
	x->match = then;
	then->match = x;
	rname_place(p, x);
	return x;
}

static int create(struct rplan *p, struct rname *then, struct rname *parent, bool replaces)
{
	struct rname *x;
	int r;

	r = touch(p, parent);
	x = r == 0 ? made(p, then, parent, 0) : NULL;
	if (!x)
		return r < 0 ? r : -ENOMEM;
	r = step_add(p,
		     then->type == NODE_TYPE_DIRECTORY ? RPLAN_MKDIR
		     : then->type == NODE_TYPE_FILE    ? RPLAN_CREATE
						       : RPLAN_SPECIAL,
		     x, then->node);
	return r < 0 ? r
		     : change_add(p, replaces ? RPLAN_REPLACED : RPLAN_CREATED, then->path, NULL);
}

static int link_to(struct rplan *p, struct rname *then, struct rname *parent, struct rname *from,
		   bool replaces)
{
	struct rplan_step *s;
	struct rname *x;
	int r;

	r = touch(p, parent);
	if (r == 0)
		r = step_add(p, RPLAN_LINK, from, then->node);
	if (r < 0)
		return r;
	s = &p->steps[p->n_steps - 1];
	s->to_path = path_of(parent, then->name);
	x = made(p, then, parent, from->node);
	if (!x || !s->to_path)
		return -ENOMEM;
	return change_add(p, replaces ? RPLAN_REPLACED : RPLAN_CREATED, then->path, NULL);
}

static bool is_where_it_was(const struct rname *x)
{
	for (; x; x = x->parent)
		if (x->moved || x->made)
			return false;
	return true;
}

static int compare_dir(struct rplan *p, const struct rname *then, struct rname *x, int fields)
{
	x->stale = true;
	/* The time alone tells that something came or went in it: finish_dirs() will know. */
	x->told = fields != NODE_FIELD_MTIME;
	return x->told ? change_add(p, RPLAN_METADATA, then->path, NULL) : 0;
}

/* The two are one: what differs in it? 1: it has to be made anew. */
static int compare(struct rplan *p, struct rname *then, struct rname *x)
{
	bool here = is_where_it_was(x), content;
	int fields, r;

	then->match = x;
	x->match = then;
	/* A further name of what was compared already. */
	for (struct rname *t = rname_of_node(p, RPLAN_THEN, then->node); t; t = t->same)
		if (t != then && t->match && t->match->node == x->node)
			return 0;
	fields = p->diff(then->node, x->node, p->userdata);
	if (fields <= 0)
		return fields;
	fields &= ~(NODE_FIELD_LINKS | NODE_FIELD_HOLES);
	if (!fields)
		return 0;
	if (then->type == NODE_TYPE_DIRECTORY)
		return compare_dir(p, then, x, fields);
	content = fields & (NODE_FIELD_CONTENT | NODE_FIELD_TARGET);
	if (content && here && then->type != NODE_TYPE_FILE) {
		then->match = x->match = NULL;
		return 1;
	}
	r = change_add(p, content ? RPLAN_REPLACED : RPLAN_METADATA, then->path, NULL);
	if (r == 0 && here && content)
		r = touch(p, x->parent);
	if (r == 0 && here)
		r = step_add(p, content ? RPLAN_REPLACE : RPLAN_ATTR, x, then->node);
	p->more = p->more || !here;
	return r;
}

/* Nothing else is to become of the thing that has the name now, and no name of it is elsewhere. */
static bool may_be_taken(const struct rplan *p, const struct rname *then, const struct rname *x)
{
	uint32_t names = 0;

	if (x->type != then->type || x->match || is_wanted(p, x))
		return false;
	if (x->type == NODE_TYPE_DIRECTORY)
		return true;
	for (const struct rname *y = rname_of_node(p, RPLAN_NOW, x->node); y; y = y->same, names++)
		if (y->match)
			return false;
	return names == x->links;
}

static int do_way(struct rplan *p, struct rname *then, struct rname *parent, struct rname *x)
{
	if (!x)
		return create(p, then, parent, false);
	if (x->type != NODE_TYPE_DIRECTORY) {
		p->blocked = strdup(then->path);
		return p->blocked ? -ENOTDIR : -ENOMEM;
	}
	then->match = x;
	x->match = then;
	return 0;
}

/* The thing that has the name now becomes the one of then. */
static int take(struct rplan *p, struct rname *then, struct rname *parent, struct rname *x)
{
	int r = compare(p, then, x);

	if (r <= 0)
		return r;
	r = drop(p, x);
	return r < 0 ? r : create(p, then, parent, true);
}

static int do_name(struct rplan *p, struct rname *then)
{
	struct rname *parent = then->parent ? then->parent->match : NULL, *x, *from;
	bool replaces = false;
	int r = 0;

	x = rname_find(p, parent, then->name);
	if (then->way)
		return do_way(p, then, parent, x);
	if (x && x->node == then->node && x->type == then->type)
		return take(p, then, parent, x);
	from = linkable(p, then);
	if (x && from && from->match && from->node == x->node && !x->match) {
		then->match = x;
		x->match = then;
		return 0;
	}
	if (x && !from && !movable(p, then) && may_be_taken(p, then, x))
		return take(p, then, parent, x);
	if (x) {
		replaces = !is_wanted(p, x);
		r = clear(p, x);
		if (r < 0)
			return r;
	}
	from = movable(p, then);
	if (from) {
		r = move(p, from, parent, then->name);
		if (r == 0)
			r = change_add(p, RPLAN_RENAMED, then->path, from->was);
		return r < 0 ? r : compare(p, then, from);
	}
	from = linkable(p, then);
	return from ? link_to(p, then, parent, from, replaces) : create(p, then, parent, replaces);
}

/* ---- the end: what the older tree does not have, and its directories' attributes ---- */

static int remove_rest(struct rplan *p, size_t n)
{
	int r = 0;

	for (size_t i = n; r == 0 && i-- > 0;) {
		struct rname *x = p->names[RPLAN_NOW][i];

		if (x->match || x->gone || x->way)
			continue;
		r = change_add(p, RPLAN_REMOVED, x->was, NULL);
		if (r == 0 && is_where_it_was(x))
			r = drop(p, x);
		else
			p->more = true;
	}
	return r;
}

static int finish_dirs(struct rplan *p)
{
	int r = 0;

	for (size_t i = p->n[RPLAN_THEN]; r == 0 && i-- > 0;) {
		struct rname *then = p->names[RPLAN_THEN][i], *x = then->match;

		if (then->type != NODE_TYPE_DIRECTORY || (then->way && !x->made))
			continue;
		if (x->stale && !x->told && !x->touched)
			r = change_add(p, RPLAN_METADATA, then->path, NULL);
		if (r == 0 && (x->touched || x->stale || x->made))
			r = step_add(p, RPLAN_ATTR, x, then->node);
	}
	return r;
}

int rplan_make(struct rplan *p)
{
	size_t n = p->n[RPLAN_NOW];
	int r = rname_tables(p);

	for (size_t i = 0; r == 0 && i < p->n[RPLAN_THEN]; i++)
		r = do_name(p, p->names[RPLAN_THEN][i]);
	if (r == 0)
		r = remove_rest(p, n);
	return r < 0 ? r : finish_dirs(p);
}
