/*
 * Two sides change one tree: whatever each of them does, in up to two steps, no
 * version is lost, nothing is deleted without somebody's having seen and deleted
 * it, the end is the same when a step is looked at twice, and where one side did
 * nothing the other's tree is what comes out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "sides.h"

struct env_seq {
	struct tree after;
	struct op ops[2];
	unsigned n;
};

struct brain_seq {
	struct tree after;
	struct op ops[2];
	struct t_intent intents[2];
	unsigned n;
};

struct shape {
	const char *name;
	/* "type parent name" of node 2, 3 ...; type l: a link to the node named by a digit */
	const char *nodes[6];
};

static const struct shape shapes[] = {
	{"empty", {NULL}},
	{"a file", {"f1a", NULL}},
	{"two files", {"f1a", "f1b", NULL}},
	{"a directory with a file", {"d1a", "f2a", NULL}},
	{"two directories, one file", {"d1a", "d1b", "f2a", NULL}},
	{"nested directories", {"d1a", "d2a", "f3a", NULL}},
	{"two files in nested directories", {"d1a", "d2b", "f2a", "f3a", NULL}},
	{"a file in each of two directories", {"d1a", "d1b", "f2a", "f3b", NULL}},
	{"nested directories, files in two", {"d1a", "d2a", "f1b", "f3a", NULL}},
	{"a full directory, a file", {"d1a", "f2a", "f2b", "f1b", NULL}},
	{"two names of one file", {"f1a", "d1b", "l3a2", NULL}},
};

static void shape_make(const struct shape *s, struct tree *t)
{
	uint64_t id = 2;

	*t = (struct tree){.next = 100};
	t_make(t, NODE_ROOT, NODE_TYPE_DIRECTORY, "");
	for (unsigned i = 0; s->nodes[i]; i++) {
		const char *n = s->nodes[i];
		char text[2] = {(char)('0' + id), 0};

		if (n[0] == 'l') {
			t_link(t, (uint64_t)(n[1] - '0'), n[2], (uint64_t)(n[3] - '0'));
			continue;
		}
		t_make(t, id, n[0] == 'd' ? NODE_TYPE_DIRECTORY : NODE_TYPE_FILE,
		       n[0] == 'd' ? "" : text);
		t_link(t, (uint64_t)(n[1] - '0'), n[2], id);
		id++;
	}
}

static const char *const env_letters[] = {"E", "F"}, *const brain_letters[] = {"X", "Y"};

static size_t env_all(const struct tree *base, struct env_seq **ret)
{
	struct env_seq *v = calloc(OPS * OPS, sizeof(*v));
	struct op first[OPS], second[OPS];
	size_t n = 0;

	assert_non_null(v);
	v[n++].after = *base;
	for (unsigned i = 0, n1 = ops_of(base, first); i < n1; i++) {
		struct env_seq *one = &v[n++];
		unsigned n2;

		*one = (struct env_seq){.after = *base, .ops = {first[i]}, .n = 1};
		op_do(&one->after, &first[i], one->after.next++, env_letters[0]);
		n2 = ops_of(&one->after, second);
		for (unsigned k = 0; k < n2; k++) {
			v[n] = *one;
			v[n].ops[v[n].n++] = second[k];
			op_do(&v[n].after, &second[k], v[n].after.next++, env_letters[1]);
			n++;
		}
	}
	*ret = v;
	return n;
}

static void brain_step(struct brain_seq *s, const struct op *op)
{
	unsigned i = s->n++;

	s->ops[i] = *op;
	as_intent(&s->after, op, i + 1, brain_letters[i], &s->intents[i]);
	op_do(&s->after, op, INTENT_MADE | (i + 1), brain_letters[i]);
}

static size_t brain_all(const struct tree *base, struct brain_seq **ret)
{
	struct brain_seq *v = calloc(OPS * OPS, sizeof(*v));
	struct op first[OPS], second[OPS];
	size_t n = 0;

	assert_non_null(v);
	v[n++].after = *base;
	for (unsigned i = 0, n1 = ops_of(base, first); i < n1; i++) {
		struct brain_seq *one = &v[n++];
		unsigned n2;

		one->after = *base;
		brain_step(one, &first[i]);
		n2 = ops_of(&one->after, second);
		for (unsigned k = 0; k < n2; k++) {
			v[n] = *one;
			brain_step(&v[n++], &second[k]);
		}
	}
	for (size_t i = 0; i < n; i++)
		for (unsigned k = 0; k < v[i].n; k++)
			bind(&v[i].intents[k]);
	*ret = v;
	return n;
}

/* ---- what must hold ---- */

static bool has_text(const struct tree *t, const char *text)
{
	for (unsigned i = 0; i < NODES; i++) {
		const struct t_node *n = &t->nodes[i];

		if (n->id && n->type == NODE_TYPE_FILE && strcmp(n->text, text) == 0)
			return true;
	}
	return false;
}

/* Every letter of `text` that `who` wrote is in one file, in order. */
static bool has_letters(const struct tree *t, const char *text)
{
	for (unsigned i = 0; i < NODES; i++) {
		const char *p = text, *q = t->nodes[i].text;

		if (!t->nodes[i].id || t->nodes[i].type != NODE_TYPE_FILE)
			continue;
		for (; *q; q++)
			p += *p == *q;
		if (!*p)
			return true;
	}
	return false;
}

static const char *env_kept(const struct both *b, const struct tree *env)
{
	for (unsigned i = 0; i < NODES; i++) {
		const struct t_node *n = &env->nodes[i];

		if (n->id && n->type == NODE_TYPE_FILE && !has_text(b->base, n->text) &&
		    !has_letters(&b->env, n->text))
			return "a version of the environment's is gone";
	}
	return NULL;
}

static bool is_listed(const struct both *b, const char *text)
{
	for (unsigned i = 0; i < b->n_lost; i++)
		if (strcmp(letters(&b->lost[i].in->wanted.content), text) == 0)
			return true;
	return false;
}

static const char *brain_kept(const struct both *b, const struct tree *brain)
{
	for (unsigned i = 0; i < NODES; i++) {
		const struct t_node *n = &brain->nodes[i];

		if (n->id && n->type == NODE_TYPE_FILE && !has_text(b->base, n->text) &&
		    !has_letters(&b->env, n->text) && !is_listed(b, n->text))
			return "a version of the brain's is neither there nor listed";
	}
	return NULL;
}

/* One of its names is there on both sides; where it had but one, however that is called now. */
static bool both_have(const struct both *b, const struct tree *env, const struct tree *brain,
		      uint64_t node)
{
	unsigned names = 0;

	for (unsigned i = 0; i < ENTRIES; i++) {
		const struct t_entry *e = &b->base->entries[i];

		if (!e->parent || e->node != node)
			continue;
		names++;
		if (t_lookup(env, e->parent, e->name) == node &&
		    t_lookup(brain, e->parent, e->name) == node)
			return true;
	}
	return names == 1 && t_node(env, node) && t_node(brain, node);
}

static const char *deletions_meant(const struct both *b, const struct tree *env,
				   const struct tree *brain)
{
	for (unsigned i = 0; i < NODES; i++) {
		const struct t_node *n = &b->base->nodes[i];

		if (n->id && n->type == NODE_TYPE_FILE && both_have(b, env, brain, n->id) &&
		    !t_node(&b->env, b_alias((void *)b, n->id)))
			return "a file that both sides still had is gone";
	}
	return NULL;
}

/* A deletion was asked for by one side, and the other had an edit: the edit is in the tree,
 * unless its name is taken. */
static const char *edits_stay(const struct both *b)
{
	for (unsigned i = 0; i < b->n_lost; i++) {
		const struct intent *in = b->lost[i].in;

		if (b->lost[i].kind == CONFLICT_EDIT_DELETE && in->kind == INTENT_WRITE &&
		    !b->lost[i].made)
			return "a deletion has beaten an edit";
	}
	return NULL;
}

static bool same_below(const struct tree *a, uint64_t da, const struct tree *b, uint64_t db)
{
	for (char name = 'a'; name < 'a' + NAMES; name++) {
		uint64_t x = t_lookup(a, da, name), y = t_lookup(b, db, name);
		const struct t_node *nx = t_node(a, x), *ny = t_node(b, y);

		if (!nx != !ny)
			return false;
		if (!nx)
			continue;
		if (nx->type != ny->type || nx->mode != ny->mode || strcmp(nx->text, ny->text) != 0)
			return false;
		if (nx->type == NODE_TYPE_DIRECTORY && !same_below(a, x, b, y))
			return false;
	}
	return true;
}

static bool is_whole(const struct tree *t)
{
	for (unsigned i = 0; i < NODES; i++) {
		if (t->nodes[i].id > NODE_ROOT && !t_names(t, t->nodes[i].id))
			return false;
	}
	for (unsigned i = 0; i < ENTRIES; i++) {
		const struct t_entry *e = &t->entries[i];

		if (e->parent && (!t_node(t, e->parent) || !t_node(t, e->node) ||
				  !t_beneath(t, e->parent, NODE_ROOT)))
			return false;
	}
	return true;
}

static const char *judge(const struct env_seq *e, const struct brain_seq *s, struct both *b)
{
	const char *why;

	if (!drain(b, (struct t_intent *)s->intents, s->n))
		return "a plan cannot be done, or is made twice";
	if (!is_whole(&b->env))
		return "the tree is none";
	why = env_kept(b, &e->after);
	if (!why)
		why = brain_kept(b, &s->after);
	if (!why)
		why = deletions_meant(b, &e->after, &s->after);
	if (!why)
		why = edits_stay(b);
	if (!why && e->n == 0 && (b->n_lost || !same_below(&b->env, 1, &s->after, 1)))
		why = "nobody else did anything, and it is not what the brain made";
	if (!why && s->n == 0 && !same_below(&b->env, 1, &e->after, 1))
		why = "the brain did nothing";
	return why;
}

static void say_op(const char *who, const struct op *op)
{
	static const char *const kinds[] = {"",	    "create", "write", "remove",
					    "move", "link",   "chmod"};

	print_message("  %s: %s%s%s %llx/%c node %llx -> %llx/%c\n", who,
		      op->append ? "append-" : "", op->type == NODE_TYPE_DIRECTORY ? "mkdir-" : "",
		      kinds[op->kind], (unsigned long long)op->parent, op->name,
		      (unsigned long long)op->node, (unsigned long long)op->to_parent,
		      op->to_name ? op->to_name : '-');
}

static void say_tree(const char *what, const struct tree *t)
{
	print_message("  %s:", what);
	for (unsigned i = 0; i < ENTRIES; i++) {
		const struct t_entry *e = &t->entries[i];
		const struct t_node *n = t_node(t, e->node);

		if (e->parent)
			print_message(" %llx/%c=%llx(%c:%s)", (unsigned long long)e->parent,
				      e->name, (unsigned long long)e->node,
				      n ? node_type_letter(n->type) : '?', n ? n->text : "");
	}
	print_message("\n");
}

static void say(const struct shape *shape, const struct env_seq *e, const struct brain_seq *s,
		const struct both *b, const char *why)
{
	print_message("%s: %s\n", shape->name, why);
	for (unsigned i = 0; i < e->n; i++)
		say_op("environment", &e->ops[i]);
	for (unsigned i = 0; i < s->n; i++)
		say_op("brain", &s->ops[i]);
	say_tree("base", b->base);
	say_tree("environment's", &e->after);
	say_tree("brain's", &s->after);
	say_tree("came out", &b->env);
	for (unsigned i = 0; i < b->n_lost; i++)
		print_message("  listed: change %llu, kind %d%s\n",
			      (unsigned long long)b->lost[i].in->number, (int)b->lost[i].kind,
			      b->lost[i].made ? ", made" : "");
}

static void test_all_pairs(void **state)
{
	uint64_t pairs = 0, conflicts = 0;
	unsigned bad = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
		struct brain_seq *brains;
		struct env_seq *envs;
		size_t n_envs, n_brains;
		struct tree base;

		shape_make(&shapes[i], &base);
		n_envs = env_all(&base, &envs);
		n_brains = brain_all(&base, &brains);
		for (size_t k = 0; k < n_envs && bad < 5; k++) {
			for (size_t m = 0; m < n_brains && bad < 5; m++) {
				struct both b;
				const char *why;

				memset(&b, 0, offsetof(struct both, lost));
				b.base = &base;
				b.env = envs[k].after;
				why = judge(&envs[k], &brains[m], &b);
				pairs++;
				conflicts += b.n_lost > 0;
				if (why) {
					say(&shapes[i], &envs[k], &brains[m], &b, why);
					bad++;
				}
			}
		}
		free(envs);
		free(brains);
	}
	print_message("%llu pairs, %llu with a conflict\n", (unsigned long long)pairs,
		      (unsigned long long)conflicts);
	assert_int_equal(bad, 0);
	/* Not everything is one, nor nothing. */
	assert_true(conflicts > pairs / 100 && conflicts < pairs / 4 * 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_pairs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
