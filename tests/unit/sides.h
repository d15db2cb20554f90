/*
 * sides.h - a very small tree on which two sides make changes, and what a
 * reconciler sees of it.
 *
 *	ops_of(&tree, side, ops)	all that can be done on it
 *	op_do(&tree, &op, ...)		what the system would do
 *	drain(&both, intents, n)	the brain's changes into the environment's tree
 *
 * A content is a text of at most 15 letters, and its own hash.
 */
#ifndef TESTS_UNIT_SIDES_H
#define TESTS_UNIT_SIDES_H

#include <stdio.h>

#include "base/util.h"
#include "brain/reconcile.h"

enum { NODES = 20, ENTRIES = 24, NAMES = 2, OPS = 160, LOST = 8 };

struct t_node {
	uint64_t id; /* 0: free */
	uint8_t type;
	uint16_t mode;
	char text[16];
};

struct t_entry {
	uint64_t parent; /* 0: free */
	char name;
	uint64_t node;
};

struct tree {
	struct t_node nodes[NODES];
	struct t_entry entries[ENTRIES];
	uint64_t next;
};

static struct t_node *t_node(const struct tree *t, uint64_t id)
{
	for (unsigned i = 0; id && i < NODES; i++)
		if (t->nodes[i].id == id)
			return (struct t_node *)&t->nodes[i];
	return NULL;
}

static uint64_t t_lookup(const struct tree *t, uint64_t parent, char name)
{
	for (unsigned i = 0; i < ENTRIES; i++)
		if (t->entries[i].parent == parent && t->entries[i].name == name)
			return t->entries[i].node;
	return 0;
}

static unsigned t_names(const struct tree *t, uint64_t node)
{
	unsigned n = 0;

	for (unsigned i = 0; i < ENTRIES; i++)
		n += t->entries[i].parent && t->entries[i].node == node;
	return n;
}

static bool t_empty(const struct tree *t, uint64_t dir)
{
	for (unsigned i = 0; i < ENTRIES; i++)
		if (t->entries[i].parent == dir)
			return false;
	return true;
}

static void t_make(struct tree *t, uint64_t id, uint8_t type, const char *text)
{
	for (unsigned i = 0; i < NODES; i++) {
		if (t->nodes[i].id)
			continue;
		t->nodes[i] = (struct t_node){.id = id, .type = type, .mode = 0644};
		(void)snprintf(t->nodes[i].text, sizeof(t->nodes[i].text), "%s", text);
		return;
	}
	abort();
}

static void t_link(struct tree *t, uint64_t parent, char name, uint64_t node)
{
	for (unsigned i = 0; i < ENTRIES; i++) {
		if (t->entries[i].parent)
			continue;
		t->entries[i] = (struct t_entry){parent, name, node};
		return;
	}
	abort();
}

/* Takes the name away, and what then has none, with all beneath it. */
static void t_unlink(struct tree *t, uint64_t parent, char name)
{
	uint64_t node = t_lookup(t, parent, name);

	for (unsigned i = 0; i < ENTRIES; i++)
		if (t->entries[i].parent == parent && t->entries[i].name == name)
			t->entries[i].parent = 0;
	if (!node || t_names(t, node))
		return;
	for (unsigned i = 0; i < ENTRIES; i++)
		if (t->entries[i].parent == node)
			t_unlink(t, node, t->entries[i].name);
	t_node(t, node)->id = 0;
}

static bool t_beneath(const struct tree *t, uint64_t dir, uint64_t top)
{
	while (dir != NODE_ROOT && dir != top) {
		unsigned i = 0;

		while (i < ENTRIES && (!t->entries[i].parent || t->entries[i].node != dir))
			i++;
		if (i == ENTRIES)
			return false;
		dir = t->entries[i].parent;
	}
	return dir == top;
}

static void t_path(const struct tree *t, uint64_t parent, char name, char out[32])
{
	char rest[32];

	out[0] = name;
	out[1] = 0;
	while (parent != NODE_ROOT) {
		for (unsigned i = 0; i < ENTRIES; i++) {
			if (!t->entries[i].parent || t->entries[i].node != parent)
				continue;
			memcpy(rest, out, sizeof(rest));
			(void)snprintf(out, 32, "%c/%.29s", t->entries[i].name, rest);
			parent = t->entries[i].parent;
			break;
		}
	}
}

/* ---- what can be done ---- */

struct op {
	uint8_t kind; /* enum intent_kind */
	uint8_t type; /* CREATE */
	bool append;
	uint64_t node, parent, to_parent;
	char name, to_name;
};

static bool can_move(const struct tree *t, const struct op *op)
{
	uint64_t over = t_lookup(t, op->to_parent, op->to_name);
	bool dir = t_node(t, op->node)->type == NODE_TYPE_DIRECTORY;

	if (over == op->node || t_beneath(t, op->to_parent, op->node))
		return false;
	if (!over)
		return true;
	if ((t_node(t, over)->type == NODE_TYPE_DIRECTORY) != dir)
		return false;
	return !dir || t_empty(t, over);
}

static unsigned ops_at(const struct tree *t, uint64_t dir, char name, struct op *ops, unsigned n)
{
	uint64_t node = t_lookup(t, dir, name);
	struct op op = {.node = node, .parent = dir, .name = name};

	if (!node) {
		op.kind = INTENT_CREATE;
		op.type = NODE_TYPE_FILE;
		ops[n++] = op;
		op.type = NODE_TYPE_DIRECTORY;
		ops[n++] = op;
		return n;
	}
	op.kind = INTENT_REMOVE;
	ops[n++] = op;
	op.kind = INTENT_ATTR;
	ops[n++] = op;
	if (t_node(t, node)->type == NODE_TYPE_FILE) {
		op.kind = INTENT_WRITE;
		ops[n++] = op;
		op.append = true;
		ops[n++] = op;
		op.append = false;
	}
	for (unsigned i = 0; i < NODES; i++) {
		if (!t->nodes[i].id || t->nodes[i].type != NODE_TYPE_DIRECTORY)
			continue;
		op.to_parent = t->nodes[i].id;
		for (op.to_name = 'a'; op.to_name < 'a' + NAMES; op.to_name++) {
			op.kind = INTENT_MOVE;
			if (can_move(t, &op))
				ops[n++] = op;
			op.kind = INTENT_LINK;
			if (t_node(t, node)->type == NODE_TYPE_FILE &&
			    !t_lookup(t, op.to_parent, op.to_name))
				ops[n++] = op;
		}
	}
	return n;
}

static unsigned ops_of(const struct tree *t, struct op ops[OPS])
{
	unsigned n = 0;

	for (unsigned i = 0; i < NODES; i++)
		if (t->nodes[i].id && t->nodes[i].type == NODE_TYPE_DIRECTORY)
			for (char name = 'a'; name < 'a' + NAMES; name++)
				n = ops_at(t, t->nodes[i].id, name, ops, n);
	return n;
}

static void t_write(struct t_node *n, const char *letter, bool append)
{
	size_t len = append ? strlen(n->text) : 0;

	(void)snprintf(n->text + len, sizeof(n->text) - len, "%s", letter);
}

/* `made` is the id of what it makes; `letter` what it writes. */
static void op_do(struct tree *t, const struct op *op, uint64_t made, const char *letter)
{
	struct t_node *n = t_node(t, op->node);

	switch (op->kind) {
	case INTENT_CREATE:
		t_make(t, made, op->type, op->type == NODE_TYPE_FILE ? letter : "");
		t_link(t, op->parent, op->name, made);
		break;
	case INTENT_WRITE: t_write(n, letter, op->append); break;
	case INTENT_REMOVE: t_unlink(t, op->parent, op->name); break;
	case INTENT_LINK: t_link(t, op->to_parent, op->to_name, op->node); break;
	case INTENT_ATTR: n->mode = letter[0] < 'M' ? 0600 : 0755; break;
	case INTENT_MOVE:
		if (t_lookup(t, op->to_parent, op->to_name))
			t_unlink(t, op->to_parent, op->to_name);
		t_link(t, op->to_parent, op->to_name, op->node);
		t_unlink(t, op->parent, op->name);
		break;
	default: abort();
	}
}

/* ---- the same as an intent ---- */

static void as_node(const struct t_node *from, struct node *ret)
{
	*ret = (struct node){.type = from->type, .mode = from->mode};
	ret->content.size_bytes = strlen(from->text);
	memcpy(ret->content.sha256, from->text, sizeof(from->text));
}

struct t_intent {
	struct intent in;
	char names[2], paths[2][32];
};

static struct intent_name as_name(uint64_t parent, const char *name)
{
	return (struct intent_name){parent, name, 1};
}

/* What op makes of t, before it is done. */
static void as_intent(const struct tree *t, const struct op *op, uint64_t number,
		      const char *letter, struct t_intent *ret)
{
	struct intent *in = &ret->in;
	struct t_node after = {.type = op->type, .mode = 0644};

	*ret = (struct t_intent){.in = {.number = number, .kind = op->kind, .node = op->node},
				 .names = {op->name, op->to_name}};
	in->at.parent = op->parent;
	t_path(t, op->parent, op->name, ret->paths[0]);
	if (op->kind == INTENT_MOVE || op->kind == INTENT_LINK) {
		in->to.parent = op->to_parent;
		t_path(t, op->to_parent, op->to_name, ret->paths[1]);
		in->replaces = t_lookup(t, op->to_parent, op->to_name);
	}
	if (op->kind == INTENT_CREATE) {
		in->node = 0;
		if (op->type == NODE_TYPE_FILE)
			t_write(&after, letter, false);
	} else {
		after = *t_node(t, op->node);
		as_node(&after, &in->base);
		in->shared = t_names(t, op->node) > 1;
		if (op->kind == INTENT_WRITE)
			t_write(&after, letter, op->append);
		if (op->kind == INTENT_ATTR) {
			after.mode = 0755;
			in->fields = NODE_FIELD_MODE;
		}
	}
	as_node(&after, &in->wanted);
}

/* An intent's pointers are into what holds it. */
static void bind(struct t_intent *i)
{
	i->in.at = as_name(i->in.at.parent, &i->names[0]);
	i->in.to = as_name(i->in.to.parent, &i->names[1]);
	i->in.path = i->paths[0];
	i->in.to_path = i->paths[1];
}

/* ---- what the reconciler sees ---- */

struct alias {
	uint64_t from, to;
};

struct own {
	uint64_t node;
	char name;
	struct intent_own own;
};

struct both {
	const struct tree *base;
	struct tree env;
	struct alias aliases[8];
	struct own owns[12];
	unsigned n_aliases, n_owns, n_lost, n_waits;
	struct {
		const struct intent *in;
		enum rec_conflict kind;
		bool made; /* though listed */
	} lost[LOST];
};

static uint64_t b_lookup(void *ud, bool base, const struct intent_name *n)
{
	const struct both *b = ud;

	return t_lookup(base ? b->base : &b->env, n->parent, *n->name);
}

static bool b_node(void *ud, bool base, uint64_t node, struct node *ret)
{
	const struct both *b = ud;
	const struct t_node *n = t_node(base ? b->base : &b->env, node);

	if (n)
		as_node(n, ret);
	return n != NULL;
}

static bool b_name(void *ud, uint64_t node, struct intent_name *ret)
{
	const struct both *b = ud;

	for (unsigned i = 0; i < ENTRIES; i++) {
		const struct t_entry *e = &b->env.entries[i];

		if (!e->parent || e->node != node)
			continue;
		*ret = as_name(e->parent, &e->name);
		return true;
	}
	return false;
}

static uint32_t b_links(void *ud, bool base, uint64_t node)
{
	const struct both *b = ud;

	return t_names(base ? b->base : &b->env, node);
}

static bool b_list(void *ud, uint64_t dir,
		   bool (*each)(const struct intent_name *n, uint64_t node, void *arg), void *arg)
{
	const struct both *b = ud;

	for (unsigned i = 0; i < ENTRIES; i++) {
		const struct t_entry *e = &b->env.entries[i];
		struct intent_name n = as_name(e->parent, &e->name);

		if (e->parent == dir && each(&n, e->node, arg))
			return true;
	}
	return false;
}

static uint64_t b_alias(void *ud, uint64_t node)
{
	const struct both *b = ud;

	for (unsigned i = 0; i < b->n_aliases; i++)
		if (b->aliases[i].from == node)
			return b_alias(ud, b->aliases[i].to);
	return node & INTENT_MADE ? 0 : node;
}

static const struct intent_own *b_own(void *ud, uint64_t node)
{
	struct both *b = ud;

	for (unsigned i = 0; i < b->n_owns; i++)
		if (b->owns[i].node == node)
			return &b->owns[i].own;
	return NULL;
}

static bool b_begins(void *ud, const struct content_ref *a, const struct content_ref *b)
{
	(void)ud;
	return a->size_bytes >= b->size_bytes && memcmp(a->sha256, b->sha256, b->size_bytes) == 0;
}

/* ---- a plan, done ---- */

static struct intent_own *own_of(struct both *b, uint64_t node)
{
	struct intent_own *o = (struct intent_own *)b_own(b, node);

	if (o)
		return o;
	if (b->n_owns == ARRAY_SIZE(b->owns))
		abort();
	b->owns[b->n_owns] = (struct own){.node = node};
	return &b->owns[b->n_owns++].own;
}

static void own_name(struct both *b, uint64_t node, uint64_t parent, char name)
{
	struct intent_own *o = own_of(b, node);
	struct own *holder = container_of(o, struct own, own);

	holder->name = name;
	o->at = as_name(parent, &holder->name);
}

static void own_content(struct both *b, uint64_t node, const struct content_ref *wanted)
{
	struct intent_own *o = own_of(b, node);
	struct node now;

	if (!b_node(b, false, node, &now))
		abort();
	o->content = true;
	o->wanted = *wanted;
	o->got = now.content;
}

static void alias(struct both *b, uint64_t from, uint64_t to)
{
	if (from == to || from == 0)
		return;
	if (b->n_aliases == ARRAY_SIZE(b->aliases))
		abort();
	b->aliases[b->n_aliases++] = (struct alias){from, to};
}

/* The directory of a path, made where it is missing. */
static uint64_t make_dirs(struct both *b, const char *path, uint64_t gone)
{
	uint64_t dir = NODE_ROOT;

	for (; path[1] == '/'; path += 2) {
		uint64_t next = t_lookup(&b->env, dir, path[0]);

		if (!next) {
			next = b->env.next++;
			t_make(&b->env, next, NODE_TYPE_DIRECTORY, "");
			t_link(&b->env, dir, path[0], next);
			own_name(b, next, dir, path[0]);
			own_content(b, next, &(struct content_ref){0});
		}
		dir = next;
	}
	alias(b, gone, dir);
	return dir;
}

static const char *letters(const struct content_ref *c)
{
	return (const char *)c->sha256;
}

/* A file that is written gets another node there, unless it has several names. */
static struct t_node *replaced(struct both *b, const struct rec_plan *p)
{
	struct t_node old = *t_node(&b->env, p->node);
	uint64_t made = b->env.next;
	char name = *p->at.name;

	if (t_names(&b->env, p->node) > 1)
		return t_node(&b->env, p->node);
	b->env.next++;
	t_unlink(&b->env, p->at.parent, name);
	t_make(&b->env, made, old.type, old.text);
	t_node(&b->env, made)->mode = old.mode;
	t_link(&b->env, p->at.parent, name, made);
	if (p->placed)
		own_name(b, made, p->at.parent, name);
	alias(b, p->node, made);
	return t_node(&b->env, made);
}

/* False: the plan cannot be done. */
static bool plan_do(struct both *b, const struct intent *in, struct rec_plan *p)
{
	const struct intent_name *goal = p->step == STEP_PUT_NEW ? &p->at : &p->to;
	char name = goal->len ? *goal->name : 0;
	uint64_t dir = goal->parent, made;
	struct t_node *n;

	if (p->by_path)
		dir = make_dirs(b,
				in->kind == INTENT_MOVE || in->kind == INTENT_LINK ? in->to_path
										   : in->path,
				p->gone);
	n = t_node(&b->env, p->node);
	switch (p->step) {
	case STEP_PUT_NEW:
		if (t_lookup(&b->env, dir, name) || !t_node(&b->env, dir))
			return false;
		made = b->env.next++;
		if (in->kind == INTENT_LINK)
			t_make(&b->env, made, in->base.type, letters(&in->base.content));
		else if (in->kind == INTENT_WRITE)
			t_make(&b->env, made, in->base.type, letters(&in->wanted.content));
		else
			t_make(&b->env, made, in->wanted.type, letters(&in->wanted.content));
		t_node(&b->env, made)->mode =
			(uint16_t)(in->kind == INTENT_CREATE ? in->wanted.mode : in->base.mode);
		t_link(&b->env, dir, name, made);
		own_name(b, made, dir, name);
		own_content(b, made,
			    in->kind == INTENT_LINK ? &in->base.content : &in->wanted.content);
		alias(b, in->kind == INTENT_CREATE ? INTENT_MADE | in->number : in->node, made);
		return true;
	case STEP_PUT_OVER:
		if (!n)
			return false;
		n = replaced(b, p);
		t_write(n, letters(&in->wanted.content), false);
		own_content(b, n->id, &in->wanted.content);
		return true;
	case STEP_JOIN:
		if (!n)
			return false;
		n = replaced(b, p);
		t_write(n, letters(&in->wanted.content) + in->base.content.size_bytes, true);
		own_content(b, n->id, &in->wanted.content);
		return true;
	case STEP_REMOVE:
		if (t_lookup(&b->env, p->at.parent, *p->at.name) != p->node)
			return false;
		t_unlink(&b->env, p->at.parent, *p->at.name);
		return true;
	case STEP_MOVE:
		if (t_lookup(&b->env, p->at.parent, *p->at.name) != p->node ||
		    t_lookup(&b->env, dir, name) != p->replaces ||
		    t_beneath(&b->env, dir, p->node) ||
		    (p->replaces && t_node(&b->env, p->replaces)->type == NODE_TYPE_DIRECTORY &&
		     !t_empty(&b->env, p->replaces)))
			return false;
		if (p->replaces) {
			t_unlink(&b->env, dir, name);
			own_of(b, p->replaces)->dropped = true;
		}
		t_link(&b->env, dir, name, p->node);
		t_unlink(&b->env, p->at.parent, *p->at.name);
		own_name(b, p->node, dir, name);
		return true;
	case STEP_LINK:
		if (t_lookup(&b->env, dir, name) || !n)
			return false;
		t_link(&b->env, dir, name, p->node);
		own_name(b, p->node, dir, name);
		return true;
	case STEP_ATTR:
		if (!n)
			return false;
		n->mode = (uint16_t)in->wanted.mode;
		return true;
	default: return false;
	}
}

static const struct rec_tree b_tree = {
	.lookup = b_lookup,
	.node = b_node,
	.name = b_name,
	.links = b_links,
	.list = b_list,
	.alias = b_alias,
	.own = b_own,
	.begins = b_begins,
};

static void note(struct both *b, const struct intent *in, enum rec_conflict kind, bool made)
{
	if (b->n_lost == LOST)
		abort();
	b->lost[b->n_lost].in = in;
	b->lost[b->n_lost].made = made;
	b->lost[b->n_lost++].kind = kind;
}

/* False: a plan cannot be done, or is not the same when it is looked at again. */
static bool drain(struct both *b, struct t_intent *intents, unsigned n)
{
	struct rec_tree t = b_tree;
	struct rec_plan p, again;

	t.userdata = b;
	for (unsigned i = 0; i < n; i++) {
		const struct intent *in = &intents[i].in;

		reconcile(&t, in, &p);
		if (p.conflict || p.verdict == REC_WAIT)
			note(b, in, p.conflict, p.verdict == REC_APPLY);
		if (p.verdict == REC_DONE && in->kind == INTENT_CREATE) {
			alias(b, INTENT_MADE | in->number, p.node);
			/* A directory that was there may have in it what the brain did not see. */
			if (in->wanted.type != NODE_TYPE_DIRECTORY) {
				own_name(b, p.node, p.at.parent, *in->at.name);
				own_content(b, p.node, &in->wanted.content);
			}
		}
		if (p.astray && p.node)
			own_of(b, p.node)->astray = true;
		if (p.dropped)
			own_of(b, p.node)->dropped = true;
		if (p.verdict != REC_APPLY)
			continue;
		if (!plan_do(b, in, &p))
			return false;
		reconcile(&t, in, &again);
		if (again.verdict == REC_APPLY || again.verdict == REC_WAIT)
			return false;
	}
	return true;
}

#endif
