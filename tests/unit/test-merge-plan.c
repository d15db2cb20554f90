/*
 * What was done in a fork, made into steps, makes the old tree into the new one: whatever
 * was made, written, renamed, linked and removed, in any order.  What is still there keeps its
 * node, and nothing is removed that is needed elsewhere.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/util.h"
#include "brain/merge-plan.h"

enum { NODES = 400, NAMES = 400, ROUNDS = 20000, WAS_AT = 1, IS_AT = 2 };

struct entry {
	uint64_t parent, node; /* node 0: none */
	char name[40];
};

struct tree {
	struct entry e[NAMES];
	struct node n[NODES]; /* type 0: none */
	uint64_t next;
};

static struct tree was, is, now;
static uint64_t seed;

static unsigned rnd(unsigned n)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(seed >> 33) % n;
}

static struct entry *entry_at(struct tree *t, uint64_t parent, const char *name)
{
	for (size_t i = 0; i < NAMES; i++)
		if (t->e[i].node && t->e[i].parent == parent && strcmp(t->e[i].name, name) == 0)
			return &t->e[i];
	return NULL;
}

static void entry_add(struct tree *t, uint64_t parent, const char *name, uint64_t node)
{
	assert_null(entry_at(t, parent, name));
	for (size_t i = 0; i < NAMES; i++) {
		if (t->e[i].node)
			continue;
		t->e[i].parent = parent;
		t->e[i].node = node;
		(void)snprintf(t->e[i].name, sizeof(t->e[i].name), "%s", name);
		return;
	}
	fail();
}

static unsigned links(const struct tree *t, uint64_t node)
{
	unsigned n = 0;

	for (size_t i = 0; i < NAMES; i++)
		n += t->e[i].node == node;
	return n;
}

static void entry_remove(struct tree *t, struct entry *e)
{
	uint64_t node = e->node;

	e->node = 0;
	if (links(t, node))
		return;
	for (size_t i = 0; i < NAMES; i++)
		if (t->e[i].node && t->e[i].parent == node)
			entry_remove(t, &t->e[i]);
	t->n[node].type = 0;
}

static bool beneath(const struct tree *t, uint64_t dir, uint64_t top)
{
	while (dir != NODE_ROOT) {
		uint64_t up = 0;

		if (dir == top)
			return true;
		for (size_t i = 0; i < NAMES && !up; i++)
			if (t->e[i].node == dir)
				up = t->e[i].parent;
		assert_int_not_equal(up, 0);
		dir = up;
	}
	return false;
}

static struct entry *any_entry(struct tree *t)
{
	size_t n = 0;

	for (size_t i = 0; i < NAMES; i++)
		n += t->e[i].node != 0;
	if (!n)
		return NULL;
	n = rnd((unsigned)n);
	for (size_t i = 0; i < NAMES; i++)
		if (t->e[i].node && n-- == 0)
			return &t->e[i];
	return NULL;
}

static uint64_t any_dir(struct tree *t)
{
	for (int i = 0; i < 6; i++) {
		struct entry *e = any_entry(t);

		if (e && t->n[e->node].type == NODE_TYPE_DIRECTORY)
			return e->node;
	}
	return NODE_ROOT;
}

static uint64_t make(struct tree *t, uint64_t parent, const char *name, uint8_t type)
{
	uint64_t id = t->next++;

	assert_true(id < NODES);
	t->n[id] = (struct node){.type = type, .mode = type == NODE_TYPE_DIRECTORY ? 0755 : 0644};
	if (type == NODE_TYPE_FILE) {
		t->n[id].content.size_bytes = 1 + rnd(5);
		t->n[id].content.sha256[0] = (uint8_t)rnd(200);
	}
	entry_add(t, parent, name, id);
	return id;
}

static void any_op(struct tree *t)
{
	static const char *const names[] = {"a", "b", "c", "d"};
	const char *name = names[rnd(ARRAY_SIZE(names))];
	uint64_t dir = any_dir(t);
	struct entry *e = any_entry(t), *over = entry_at(t, dir, name);
	bool is_dir = e && t->n[e->node].type == NODE_TYPE_DIRECTORY;

	switch (rnd(8)) {
	case 0:
	case 1:
		if (!over)
			(void)make(t, dir, name, rnd(3) ? NODE_TYPE_FILE : NODE_TYPE_DIRECTORY);
		return;
	case 2: /* rename, maybe over something */
		if (!e || e == over || (over && over->node == e->node) ||
		    (is_dir && beneath(t, dir, e->node)) ||
		    (over && beneath(t, e->parent, over->node)))
			return;
		{
			uint64_t node = e->node;

			if (over)
				entry_remove(t, over);
			entry_add(t, dir, name, node);
			e->node = 0;
		}
		return;
	case 3:
		if (e && !is_dir && !over)
			entry_add(t, dir, name, e->node);
		return;
	case 4:
		if (e)
			entry_remove(t, e);
		return;
	case 5:
		if (e && !is_dir)
			t->n[e->node].content.sha256[0] = (uint8_t)rnd(200);
		return;
	case 6:
		if (e)
			t->n[e->node].mode = is_dir ? 0500 + rnd(2) * 0255 : 0600 + rnd(7);
		return;
	default: /* replaced by another */
		if (over && !beneath(t, dir, over->node)) {
			uint8_t type = t->n[over->node].type;

			entry_remove(t, over);
			(void)make(t, dir, name, type);
		}
	}
}

static int get(uint64_t node, uint64_t at, struct node *ret, void *userdata)
{
	const struct tree *t = at == WAS_AT ? &was : &is;

	(void)userdata;
	if (node >= NODES || !t->n[node].type)
		return -ENOENT;
	*ret = t->n[node];
	return 0;
}

static void add_all(struct merge_plan *p, enum merge_side side, struct tree *t, uint64_t dir)
{
	for (size_t i = 0; i < NAMES; i++) {
		const struct entry *e = &t->e[i];

		if (!e->node || e->parent != dir)
			continue;
		assert_int_equal(merge_plan_add(p, side, dir, e->name, strlen(e->name), e->node,
						t->n[e->node].type,
						side == MERGE_WAS ? WAS_AT : IS_AT, false),
				 0);
		if (t->n[e->node].type == NODE_TYPE_DIRECTORY)
			add_all(p, side, t, e->node);
	}
}

static const char *last_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static void perform(const struct merge_step *s)
{
	struct entry *e = s->path ? entry_at(&now, s->parent, last_of(s->path)) : NULL, *over;
	struct node *n = &now.n[s->node];

	switch (s->kind) {
	case INTENT_CREATE:
		assert_true(s->parent == NODE_ROOT || now.n[s->parent].type);
		*n = s->wanted;
		entry_add(&now, s->parent, last_of(s->path), s->node);
		return;
	case INTENT_MOVE:
		assert_non_null(e);
		assert_int_equal(e->node, s->node);
		over = entry_at(&now, s->to_parent, last_of(s->to_path));
		assert_int_equal(over ? over->node : 0, s->replaces);
		assert_false(n->type == NODE_TYPE_DIRECTORY &&
			     beneath(&now, s->to_parent, s->node));
		if (over)
			entry_remove(&now, over);
		entry_add(&now, s->to_parent, last_of(s->to_path), s->node);
		e->node = 0;
		return;
	case INTENT_LINK:
		assert_true(links(&now, s->node) > 0);
		entry_add(&now, s->to_parent, last_of(s->to_path), s->node);
		return;
	case INTENT_REMOVE:
		assert_non_null(e);
		assert_int_equal(e->node, s->node);
		assert_true(!s->shared || links(&now, s->node) > 1);
		entry_remove(&now, e);
		return;
	case INTENT_WRITE:
		assert_int_equal(node_compare(n, &s->base, 0) & NODE_FIELD_CONTENT, 0);
		n->content = s->wanted.content;
		return;
	case INTENT_ATTR:
		assert_int_equal(s->fields, NODE_FIELD_MODE);
		assert_int_equal(n->mode, s->base.mode);
		n->mode = s->wanted.mode;
		return;
	default: fail();
	}
}

static uint64_t same[NODES]; /* node of `is`: that of `now` */

static void compare(uint64_t a, uint64_t b)
{
	size_t n = 0, m = 0;

	for (size_t i = 0; i < NAMES; i++) {
		const struct entry *e = &is.e[i], *o;

		m += now.e[i].node && now.e[i].parent == b;
		if (!e->node || e->parent != a)
			continue;
		n++;
		o = entry_at(&now, b, e->name);
		assert_non_null(o);
		assert_int_equal(node_compare(&is.n[e->node], &now.n[o->node], 0), 0);
		assert_int_equal(is.n[e->node].mode, now.n[o->node].mode);
		assert_true(!same[e->node] || same[e->node] == o->node);
		same[e->node] = o->node;
		/* What was there keeps its node. */
		if (was.n[e->node].type)
			assert_int_equal(e->node, o->node);
		assert_int_equal(links(&is, e->node), links(&now, o->node));
		if (is.n[e->node].type == NODE_TYPE_DIRECTORY)
			compare(e->node, o->node);
	}
	assert_int_equal(n, m);
}

static void steps_make_the_new_tree(void **state)
{
	struct merge_plan p;
	size_t steps = 0;

	(void)state;
	for (unsigned round = 0; round < ROUNDS; round++) {
		seed = round;
		was = (struct tree){.next = 2};
		for (unsigned i = 0, n = rnd(25); i < n; i++)
			any_op(&was);
		is = was;
		for (unsigned i = 0, n = rnd(12); i < n; i++)
			any_op(&is);
		now = was;
		memset(same, 0, sizeof(same));
		merge_plan_begin(&p, get, NULL);
		add_all(&p, MERGE_WAS, &was, NODE_ROOT);
		add_all(&p, MERGE_IS, &is, NODE_ROOT);
		assert_int_equal(merge_plan_make(&p, 0), 0);
		for (size_t i = 0; i < p.n_steps; i++)
			perform(&p.steps[i]);
		compare(NODE_ROOT, NODE_ROOT);
		steps += p.n_steps;
		merge_plan_done(&p);
	}
	assert_true(steps > ROUNDS);
}

/* Two directories and two files that change names with each other. */
static void names_in_a_circle(void **state)
{
	struct merge_plan p;
	uint64_t d, e, f, g;

	(void)state;
	was = (struct tree){.next = 2};
	d = make(&was, NODE_ROOT, "d", NODE_TYPE_DIRECTORY);
	e = make(&was, NODE_ROOT, "e", NODE_TYPE_DIRECTORY);
	f = make(&was, d, "f", NODE_TYPE_FILE);
	g = make(&was, e, "g", NODE_TYPE_FILE);
	now = is = was;
	entry_at(&is, NODE_ROOT, "d")->node = e;
	entry_at(&is, NODE_ROOT, "e")->node = d;
	entry_at(&is, d, "f")->node = g;
	entry_at(&is, e, "g")->node = f;
	memset(same, 0, sizeof(same));
	merge_plan_begin(&p, get, NULL);
	add_all(&p, MERGE_WAS, &was, NODE_ROOT);
	add_all(&p, MERGE_IS, &is, NODE_ROOT);
	assert_int_equal(merge_plan_make(&p, 0), 0);
	assert_int_equal(p.n_steps, 6);
	for (size_t i = 0; i < p.n_steps; i++)
		perform(&p.steps[i]);
	compare(NODE_ROOT, NODE_ROOT);
	merge_plan_done(&p);
}

/* An editor's save is a write; what nobody touched is no step. */
static void a_save_is_a_write(void **state)
{
	struct merge_plan p;

	(void)state;
	was = (struct tree){.next = 2};
	(void)make(&was, NODE_ROOT, "other", NODE_TYPE_FILE);
	(void)make(&was, NODE_ROOT, "f", NODE_TYPE_FILE);
	is = was;
	entry_remove(&is, entry_at(&is, NODE_ROOT, "f"));
	is.n[make(&is, NODE_ROOT, "f", NODE_TYPE_FILE)].content.sha256[1] = 1;
	merge_plan_begin(&p, get, NULL);
	add_all(&p, MERGE_WAS, &was, NODE_ROOT);
	add_all(&p, MERGE_IS, &is, NODE_ROOT);
	assert_int_equal(merge_plan_make(&p, 0), 0);
	assert_int_equal(p.n_steps, 1);
	assert_int_equal(p.steps[0].kind, INTENT_WRITE);
	assert_int_equal(p.steps[0].node, 3);
	assert_string_equal(p.steps[0].path, "f");
	merge_plan_done(&p);
}

/* A `way` is made if it is missing, and never removed. */
static void a_way_is_only_made(void **state)
{
	struct merge_plan p;

	(void)state;
	was = (struct tree){.next = 2};
	is = was;
	is.n[make(&is, NODE_ROOT, "d", NODE_TYPE_DIRECTORY)].mode = 0700;
	(void)make(&is, 2, "x", NODE_TYPE_FILE);
	for (int back = 0; back < 2; back++) {
		merge_plan_begin(&p, get, NULL);
		(void)merge_plan_add(&p, back ? MERGE_WAS : MERGE_IS, NODE_ROOT, "d", 1, 2,
				     NODE_TYPE_DIRECTORY, IS_AT, true);
		(void)merge_plan_add(&p, back ? MERGE_WAS : MERGE_IS, 2, "x", 1, 3, NODE_TYPE_FILE,
				     IS_AT, false);
		assert_int_equal(merge_plan_make(&p, 0), 0);
		assert_int_equal(p.n_steps, back ? 1 : 2);
		assert_int_equal(p.steps[0].kind, back ? INTENT_REMOVE : INTENT_CREATE);
		assert_string_equal(p.steps[0].path, back ? "d/x" : "d");
		merge_plan_done(&p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_make_the_new_tree),
		cmocka_unit_test(names_in_a_circle),
		cmocka_unit_test(a_save_is_a_write),
		cmocka_unit_test(a_way_is_only_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
