/* A merge's plan: what has to be done as steps, with paths, and nodes as they were and are. */
#include "brain/merge-plan-impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

enum { PATH_BYTES_MAX = 64 << 10 };
#define ATTRS (NODE_FIELD_MODE | NODE_FIELD_UID | NODE_FIELD_GID | NODE_FIELD_XATTR)

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
		const struct mnode *d = mplan_dir(p, u);

		u = d ? d->first[side] : NULL;
		if (!u || n > PATH_BYTES_MAX || deep++ > MERGE_DEEP)
			return -ENAMETOOLONG;
	}
	path = malloc(n + 1);
	if (!path)
		return -ENOMEM;
	at = path + n - strlen(last);
	memcpy(at, last, strlen(last) + 1);
	for (const struct mname *u = x; u->parent != NODE_ROOT;) {
		u = mplan_dir(p, u)->first[side];
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

int mplan_emit(struct merge_plan *p, const struct mop *op, const struct mname *over)
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

int mplan_emit_aside(struct merge_plan *p, const struct mop *op)
{
	struct merge_step *s = step_add(p, INTENT_MOVE, op->m);
	char name[ASIDE_BYTES];
	int r;

	if (!s)
		return -ENOMEM;
	s->parent = op->from->parent;
	s->to_parent = op->aside->parent;
	r = path_of(p, MERGE_WAS, op->from, op->from->name, &s->path);
	if (r == 0)
		r = path_of(p, MERGE_WAS, op->aside, aside_name(op->m, name), &s->to_path);
	if (r == 0)
		r = take_node(p, s, op->m, MERGE_WAS, &s->base);
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
int mplan_attrs(struct merge_plan *p, bool open)
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
