/* Any tree becomes any older one by the steps of a plan, each possible when its turn comes,
 * and what the older one never had in the list is not touched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/util.h"
#include "brain/restore-plan.h"
#include "journal/node.h"

enum { NAMES = 64, PATH = 96, ROUNDS = 8 };

struct thing {
	uint64_t node;
	uint8_t type;
	int content, mode, time;
};

struct name {
	char path[PATH];
	int thing;
};

struct tree {
	struct name names[NAMES];
	int n;
	struct thing things[400];
	int n_things;
};

static uint64_t next_node;
static int ticks;
static uint64_t dice;

static unsigned roll(unsigned n)
{
	dice = dice * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(dice >> 33) % n;
}

/* ---- a file system in an array ---- */

static int at(const struct tree *t, const char *path)
{
	for (int i = 0; i < t->n; i++)
		if (strcmp(t->names[i].path, path) == 0)
			return i;
	return -1;
}

static struct thing *thing(struct tree *t, int i)
{
	return &t->things[t->names[i].thing];
}

static bool beneath(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && path[n] == '/';
}

static int parent_of(const struct tree *t, const char *path, bool *ret_ok)
{
	char dir[PATH];
	char *slash;
	int i;

	(void)snprintf(dir, sizeof(dir), "%s", path);
	slash = strrchr(dir, '/');
	*ret_ok = true;
	if (!slash)
		return -1;
	*slash = 0;
	i = at(t, dir);
	*ret_ok = i >= 0 && t->things[t->names[i].thing].type == NODE_TYPE_DIRECTORY;
	return i;
}

static bool touch(struct tree *t, const char *path)
{
	bool ok;
	int i = parent_of(t, path, &ok);

	if (!ok)
		return false;
	if (i >= 0) {
		if ((thing(t, i)->mode & 0300) != 0300)
			return false;
		thing(t, i)->time = ++ticks;
	}
	return true;
}

static bool add(struct tree *t, const char *path, struct thing th)
{
	if (t->n == NAMES || t->n_things == (int)ARRAY_SIZE(t->things) || at(t, path) >= 0 ||
	    !touch(t, path))
		return false;
	(void)snprintf(t->names[t->n].path, PATH, "%s", path);
	t->names[t->n++].thing = t->n_things;
	t->things[t->n_things++] = th;
	return true;
}

static bool unlink_one(struct tree *t, const char *path)
{
	int i = at(t, path);

	for (int k = 0; k < t->n; k++)
		if (beneath(t->names[k].path, path))
			return false;
	if (i < 0 || !touch(t, path))
		return false;
	t->names[i] = t->names[--t->n];
	return true;
}

static bool rename_to(struct tree *t, const char *from, const char *to)
{
	size_t n = strlen(from);

	if (at(t, from) < 0 || at(t, to) >= 0 || beneath(to, from) || !touch(t, from) ||
	    !touch(t, to))
		return false;
	for (int i = 0; i < t->n; i++) {
		char moved[PATH * 2];

		if (strcmp(t->names[i].path, from) != 0 && !beneath(t->names[i].path, from))
			continue;
		(void)snprintf(moved, sizeof(moved), "%s%s", to, t->names[i].path + n);
		if (strlen(moved) >= PATH)
			return false;
		memcpy(t->names[i].path, moved, strlen(moved) + 1);
	}
	return true;
}

static bool link_to(struct tree *t, const char *from, const char *to)
{
	int i = at(t, from);

	if (i < 0 || thing(t, i)->type == NODE_TYPE_DIRECTORY || at(t, to) >= 0 || t->n == NAMES ||
	    !touch(t, to))
		return false;
	(void)snprintf(t->names[t->n].path, PATH, "%s", to);
	t->names[t->n++].thing = t->names[i].thing;
	return true;
}

/* ---- random trees ---- */

static void some_path(const struct tree *t, char out[PATH])
{
	char dir[PATH] = "";

	if (t->n && roll(3)) {
		const struct name *x = &t->names[roll((unsigned)t->n)];

		if (t->things[x->thing].type == NODE_TYPE_DIRECTORY && strlen(x->path) < PATH / 3)
			(void)snprintf(dir, sizeof(dir), "%s/", x->path);
	}
	(void)snprintf(out, PATH, "%.60s%c", dir, "abcde"[roll(5)]);
}

static struct thing new_thing(void)
{
	static const uint8_t types[] = {NODE_TYPE_FILE, NODE_TYPE_FILE, NODE_TYPE_DIRECTORY,
					NODE_TYPE_DIRECTORY, NODE_TYPE_SYMLINK};

	uint8_t type = types[roll(ARRAY_SIZE(types))];

	return (struct thing){.node = next_node++,
			      .type = type,
			      .content = type == NODE_TYPE_DIRECTORY ? 0 : (int)roll(4),
			      .mode = roll(8) ? 0700 : 0500,
			      .time = ++ticks};
}

static void remove_all(struct tree *t, const char *path)
{
	for (int i = 0; i < t->n;) {
		if (strcmp(t->names[i].path, path) == 0 || beneath(t->names[i].path, path))
			t->names[i] = t->names[--t->n];
		else
			i++;
	}
}

static void mutate(struct tree *t)
{
	char a[PATH], b[PATH];
	int i;

	some_path(t, a);
	some_path(t, b);
	i = at(t, a);
	switch (roll(8)) {
	case 0:
	case 1: (void)add(t, a, new_thing()); break;
	case 2:
		if (i >= 0 && touch(t, a))
			remove_all(t, a);
		break;
	case 3:
		if (i >= 0 && thing(t, i)->type == NODE_TYPE_FILE)
			thing(t, i)->content = 10 + (int)roll(5);
		break;
	case 4:
		if (i >= 0)
			thing(t, i)->mode = roll(3) ? 0700 : 0500;
		break;
	case 5:
		if (i >= 0 && strcmp(a, b) != 0 && !beneath(b, a) && !beneath(a, b) &&
		    at(t, b) >= 0)
			remove_all(t, b);
		(void)rename_to(t, a, b);
		break;
	case 6: (void)link_to(t, a, b); break;
	case 7: /* exchange */
		if (i >= 0 && at(t, b) >= 0 && rename_to(t, a, "t") && rename_to(t, b, a))
			(void)rename_to(t, "t", b);
		break;
	}
}

/* ---- plans ---- */

struct both {
	struct tree *then, *now;
};

static const struct thing *by_node(const struct tree *t, uint64_t node)
{
	for (int i = 0; i < t->n; i++)
		if (t->things[t->names[i].thing].node == node)
			return &t->things[t->names[i].thing];
	fail_msg("no node %llu", (unsigned long long)node);
	return NULL;
}

static int diff(uint64_t then, uint64_t now, void *userdata)
{
	const struct both *b = userdata;
	const struct thing *x = by_node(b->then, then), *y = by_node(b->now, now);

	assert_int_equal(x->type, y->type);
	return (x->content == y->content       ? 0
		: x->type == NODE_TYPE_SYMLINK ? NODE_FIELD_TARGET
					       : NODE_FIELD_CONTENT) |
	       (x->mode == y->mode ? 0 : NODE_FIELD_MODE) |
	       (x->time == y->time ? 0 : NODE_FIELD_MTIME);
}

static int by_path(const void *a, const void *b)
{
	const unsigned char *x = (const unsigned char *)((const struct name *)a)->path;
	const unsigned char *y = (const unsigned char *)((const struct name *)b)->path;

	/* Pre-order: '/' before all else. */
	while (*x && *x == *y) {
		x++;
		y++;
	}
	return (*x == '/' ? 1 : *x) - (*y == '/' ? 1 : *y);
}

static void add_all(struct rplan *p, enum rplan_side side, struct tree *t, const char *scope)
{
	qsort(t->names, (size_t)t->n, sizeof(*t->names), by_path);
	for (int i = 0; i < t->n; i++) {
		const char *path = t->names[i].path;
		struct thing *x = thing(t, i);
		bool way = scope && beneath(scope, path);
		uint32_t links = 0;

		if (scope && !way && strcmp(path, scope) != 0 && !beneath(path, scope))
			continue;
		for (int k = 0; k < t->n; k++)
			links += t->names[k].thing == t->names[i].thing;
		assert_int_equal(rplan_add(p, side, path, strlen(path), x->node, x->type,
					   (uint32_t)x->mode, links, way),
				 0);
	}
}

static bool do_step(struct both *b, const struct rplan_step *s)
{
	struct tree *t = b->now;
	const struct thing *then;
	struct thing made;
	int i = at(t, s->path);

	if (s->kind == RPLAN_MOVE)
		return rename_to(t, s->path, s->to_path);
	if (s->kind == RPLAN_LINK)
		return link_to(t, s->path, s->to_path);
	if (s->kind == RPLAN_REMOVE)
		return unlink_one(t, s->path);
	if (s->kind == RPLAN_OPEN) {
		thing(t, i)->mode = (int)s->mode;
		return i >= 0;
	}
	then = by_node(b->then, s->node);
	made = *then;
	made.node = next_node++;
	switch (s->kind) {
	case RPLAN_MKDIR:
		made.mode = 0700;
		made.time = ++ticks;
		return add(t, s->path, made);
	case RPLAN_CREATE:
	case RPLAN_SPECIAL: return add(t, s->path, made);
	case RPLAN_REPLACE:
		if (i < 0 || thing(t, i)->type != NODE_TYPE_FILE)
			return false;
		thing(t, i)->content = then->content;
		break;
	default:
		if (i < 0 || thing(t, i)->type != then->type)
			return false;
	}
	thing(t, i)->mode = then->mode;
	thing(t, i)->time = then->time;
	return true;
}

static void dump(const struct tree *t, const char *what)
{
	for (int i = 0; i < t->n; i++) {
		const struct thing *x = &t->things[t->names[i].thing];

		print_message("# %s %s node %llu type %d content %d mode %o time %d\n", what,
			      t->names[i].path, (unsigned long long)x->node, x->type, x->content,
			      (unsigned)x->mode, x->time);
	}
}

static bool same(struct tree *a, struct tree *b)
{
	if (a->n != b->n)
		return false;
	qsort(a->names, (size_t)a->n, sizeof(*a->names), by_path);
	qsort(b->names, (size_t)b->n, sizeof(*b->names), by_path);
	for (int i = 0; i < a->n; i++) {
		const struct thing *x = thing(a, i), *y = thing(b, i);

		if (strcmp(a->names[i].path, b->names[i].path) != 0 || x->type != y->type ||
		    x->mode != y->mode || x->time != y->time || x->content != y->content)
			return false;
		for (int k = 0; k < i; k++)
			if ((a->names[k].thing == a->names[i].thing) !=
			    (b->names[k].thing == b->names[i].thing))
				return false;
	}
	return true;
}

/* The number of plans that it took. */
static int restore(struct both *b, const char *scope, unsigned seed)
{
	for (int round = 0; round < ROUNDS; round++) {
		struct rplan p;
		size_t n;
		bool more;
		int r;

		rplan_begin(&p, diff, b);
		add_all(&p, RPLAN_THEN, b->then, scope);
		add_all(&p, RPLAN_NOW, b->now, scope);
		r = rplan_make(&p);
		if (r == -ENOTDIR) {
			rplan_done(&p);
			return -1;
		}
		assert_int_equal(r, 0);
		for (size_t i = 0; i < p.n_steps; i++) {
			if (do_step(b, &p.steps[i]))
				continue;
			dump(b->then, "then");
			dump(b->now, "now");
			fail_msg("seed %u, round %d: step %d of %s %s is not possible", seed, round,
				 p.steps[i].kind, p.steps[i].path,
				 p.steps[i].to_path ? p.steps[i].to_path : "");
		}
		n = p.n_steps;
		more = p.more;
		assert_true(n == 0 || round > 0 || p.n_changes > 0 || more);
		rplan_done(&p);
		if (!n && !more)
			return round;
	}
	dump(b->then, "then");
	dump(b->now, "now");
	fail_msg("seed %u: not over after %d plans", seed, ROUNDS);
	return 0;
}

static void random_trees(void **state)
{
	static struct tree then, now;
	unsigned seeds = getenv("SEEDS") ? (unsigned)strtoul(getenv("SEEDS"), NULL, 10) : 3000;
	struct both b = {&then, &now};

	(void)state;
	for (unsigned seed = 1; seed <= seeds; seed++) {
		dice = seed;
		then = (struct tree){0};
		next_node = 2;
		for (unsigned i = roll(14); i > 0; i--)
			mutate(&then);
		now = then;
		for (unsigned i = 1 + roll(roll(2) ? 4 : 30); i > 0; i--)
			mutate(&now);
		(void)restore(&b, NULL, seed);
		if (!same(&then, &now)) {
			dump(&then, "then");
			dump(&now, "now");
			fail_msg("seed %u: another tree", seed);
		}
	}
}

static void only_what_was_asked_for(void **state)
{
	static struct tree then, now, before;
	struct both b = {&then, &now};
	char scope[PATH];

	(void)state;
	for (unsigned seed = 1; seed <= 3000; seed++) {
		dice = seed;
		then = (struct tree){0};
		next_node = 2;
		for (unsigned i = 4 + roll(10); i > 0; i--)
			mutate(&then);
		now = then;
		for (unsigned i = 1 + roll(12); i > 0; i--)
			mutate(&now);
		some_path(roll(2) ? &then : &now, scope);
		before = now;
		if (restore(&b, scope, seed) < 0)
			continue;
		for (int i = 0; i < before.n; i++) {
			const char *path = before.names[i].path;
			const struct thing *x = thing(&before, i), *y;

			if (strcmp(path, scope) == 0 || beneath(path, scope) ||
			    beneath(scope, path))
				continue;
			assert_true(at(&now, path) >= 0);
			y = thing(&now, at(&now, path));
			assert_int_equal(x->node, y->node);
			assert_int_equal(x->type, y->type);
		}
		for (int i = 0; i < then.n; i++) {
			const char *path = then.names[i].path;

			if (strcmp(path, scope) != 0 && !beneath(path, scope))
				continue;
			assert_true(at(&now, path) >= 0);
			assert_int_equal(thing(&then, i)->type, thing(&now, at(&now, path))->type);
			assert_int_equal(thing(&then, i)->content,
					 thing(&now, at(&now, path))->content);
		}
	}
}

/* What is moved back is moved, not copied; an exchange needs one step aside. */
static void renames(void **state)
{
	static struct tree then, now;
	struct both b = {&then, &now};
	struct rplan p;

	(void)state;
	then = (struct tree){0};
	next_node = 2;
	assert_true(add(&then, "a", (struct thing){2, NODE_TYPE_FILE, 1, 0700, 1}));
	assert_true(add(&then, "b", (struct thing){3, NODE_TYPE_DIRECTORY, 0, 0700, 1}));
	assert_true(add(&then, "b/c", (struct thing){4, NODE_TYPE_FILE, 2, 0700, 1}));
	next_node = 5;
	now = then;
	assert_true(rename_to(&now, "a", "t") && rename_to(&now, "b", "a") &&
		    rename_to(&now, "t", "b"));
	rplan_begin(&p, diff, &b);
	add_all(&p, RPLAN_THEN, &then, NULL);
	add_all(&p, RPLAN_NOW, &now, NULL);
	assert_int_equal(rplan_make(&p), 0);
	assert_int_equal(p.n_changes, 2);
	for (size_t i = 0; i < p.n_changes; i++)
		assert_int_equal(p.changes[i].action, RPLAN_RENAMED);
	assert_string_equal(p.changes[0].path, "a");
	assert_string_equal(p.changes[0].from_path, "b");
	assert_string_equal(p.changes[1].path, "b");
	assert_string_equal(p.changes[1].from_path, "a");
	assert_int_equal(p.n_steps, 3);
	for (size_t i = 0; i < p.n_steps; i++) {
		assert_int_equal(p.steps[i].kind, RPLAN_MOVE);
		assert_true(do_step(&b, &p.steps[i]));
	}
	assert_true(same(&then, &now));
	rplan_done(&p);
}

static void nothing_to_do(void **state)
{
	static struct tree then;
	struct both b = {&then, &then};
	struct rplan p;

	(void)state;
	then = (struct tree){0};
	assert_true(add(&then, "d", (struct thing){2, NODE_TYPE_DIRECTORY, 0, 0500, 1}));
	rplan_begin(&p, diff, &b);
	add_all(&p, RPLAN_THEN, &then, NULL);
	add_all(&p, RPLAN_NOW, &then, NULL);
	assert_int_equal(rplan_make(&p), 0);
	assert_int_equal(p.n_steps + p.n_changes, 0);
	assert_false(p.more);
	rplan_done(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_to_do),
		cmocka_unit_test(renames),
		cmocka_unit_test(random_trees),
		cmocka_unit_test(only_what_was_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
