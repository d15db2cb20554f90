/* A merge's plan: which names are made, moved and removed, in an order in which it can be done. */
#include "brain/merge-plan-impl.h"

#include <errno.h>
#include <stdlib.h>

/* ---- what has to be done ---- */

static void count_inside(const struct merge_plan *p, const struct mname *x, int by)
{
	for (struct mnode *d = mplan_dir(p, x); d && mplan_is_dead(d) && d->first[MERGE_WAS];
	     d = mplan_dir(p, d->first[MERGE_WAS]))
		d->inside += (unsigned)by;
}

static struct mop *op_add(struct merge_plan *p, uint8_t kind, struct mnode *m, struct mname *from,
			  struct mname *to)
{
	struct mop *op = &p->ops[p->n_ops++];

	*op = (struct mop){.kind = kind, .m = m, .from = from, .to = to};
	if (from)
		from->op = op;
	if (from && !mplan_is_dead(m))
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
		if (!x->stays && !x->op && !mplan_is_dead(mplan_dir(p, x)))
			(void)op_add(p, INTENT_REMOVE, x->m, x, NULL);
	}
	for (size_t i = 0; i < p->n_ops; i++)
		p->ops[i].m->made = false;
	return 0;
}

/* ---- their order ---- */

static const struct mname *held(const struct merge_plan *p, const struct mname *to)
{
	const struct mname *x = mplan_name(p, MERGE_WAS, to->parent, to->name, to->len);

	if (x && !x->gone)
		return x;
	x = mplan_name(p, MERGE_IS, to->parent, to->name, to->len);
	return x && x->placed ? x : NULL;
}

static bool is_there(const struct merge_plan *p, uint64_t dir)
{
	const struct mnode *m = mplan_node(p, dir);

	return m && (m->was || m->made);
}

static bool is_beneath(const struct merge_plan *p, uint64_t dir, const struct mnode *top)
{
	for (unsigned i = 0; i < MERGE_DEEP && dir != NODE_ROOT; i++) {
		const struct mnode *m = mplan_node(p, dir);

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
	return mplan_is_dead(over->m) && over->op && over->op->kind == INTENT_REMOVE &&
	       over->m->type != NODE_TYPE_DIRECTORY && op->m->type != NODE_TYPE_DIRECTORY;
}

static bool is_ready(const struct merge_plan *p, const struct mop *op)
{
	const struct mname *over;

	if (op->kind == INTENT_REMOVE)
		return mplan_is_dead(op->m) ? op->m->inside == 0 : op->m->names > 1;
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
	int r = mplan_emit(p, op, over);

	if (r < 0)
		return r;
	op->done = true;
	if (over) {
		over->op->done = true;
		over->op->from->gone = true;
	}
	if (op->from && !op->aside) {
		op->from->gone = true;
		if (!mplan_is_dead(op->m))
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
	struct mop *op = NULL;
	int r;

	for (size_t i = 0; !op && i < p->n_ops; i++)
		if (!p->ops[i].done && p->ops[i].kind == INTENT_MOVE && !p->ops[i].aside)
			op = &p->ops[i];
	if (!op)
		return -EIO;
	op->aside = op->from;
	while (mplan_is_dead(mplan_dir(p, op->aside)))
		op->aside = mplan_dir(p, op->aside)->first[MERGE_WAS];
	r = mplan_emit_aside(p, op);
	op->m->parent = op->aside->parent;
	op->from->gone = true;
	count_inside(p, op->from, -1);
	return r;
}

int mplan_order(struct merge_plan *p)
{
	size_t left, before;
	int r = ops_make(p);

	left = p->n_ops;
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
