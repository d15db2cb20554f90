#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "index-fixture.h"

/*
 * A model of the tree that is simple and keeps a full copy of itself at each
 * sequence: arrays, searched from the front. What the index says, now and of
 * the past, before and after a rebuild, must be what the copies say.
 */

enum {
	NODES = 48, /* ids 1 .. NODES-1 */
	ENTRIES = 128,
	NAMES = 9,
	OPS_MAX = 6,
	STEPS = 200,
};

struct m_node {
	uint8_t type; /* 0: none */
	bool used;    /* at some time */
	uint64_t version;
	uint32_t mode;
	int64_t mtime_ns;
	uint8_t owner_kind;
	uint32_t owner;
	uint64_t size;
	uint8_t sha256[SHA256_BYTES];
	uint32_t target; /* number in it, symlinks */
};

struct m_entry {
	uint64_t node; /* 0: free */
	uint64_t parent;
	unsigned name;
};

struct model {
	struct m_node nodes[NODES];
	struct m_entry entries[ENTRIES];
};

/* Bytes that sort or end in awkward ways. */
static char long_name[NODE_NAME_MAX + 1];
static const char *const names[NAMES] = {"a",	 "a\x01", "a\x01\x01", "ab",  "b",
					 "\xff", "a\xff", long_name,   "\x01"};

/* ---- the model's rules ---- */

static unsigned m_links(const struct model *m, uint64_t id)
{
	unsigned n = id == NODE_ROOT;

	for (size_t i = 0; i < ENTRIES; i++)
		n += m->entries[i].node == id;
	return n;
}

static struct m_entry *m_find(struct model *m, uint64_t parent, unsigned name)
{
	for (size_t i = 0; i < ENTRIES; i++) {
		struct m_entry *e = &m->entries[i];
		if (e->node && e->parent == parent && e->name == name)
			return e;
	}
	return NULL;
}

static bool m_is_dir(const struct model *m, uint64_t id)
{
	return id < NODES && m->nodes[id].type == NODE_TYPE_DIRECTORY;
}

/* Is `id` the directory `top` or somewhere beneath it? */
static bool m_beneath(const struct model *m, uint64_t id, uint64_t top)
{
	while (id != top) {
		size_t i = 0;
		while (i < ENTRIES && m->entries[i].node != id)
			i++;
		if (i == ENTRIES)
			return false;
		id = m->entries[i].parent;
	}
	return true;
}

static void m_set(struct model *m, uint64_t parent, unsigned name, uint64_t node)
{
	struct m_entry *e = m_find(m, parent, name);

	for (size_t i = 0; !e && i < ENTRIES; i++) {
		if (!m->entries[i].node)
			e = &m->entries[i];
	}
	assert_non_null(e);
	*e = (struct m_entry){.node = node, .parent = parent, .name = name};
}

static unsigned name_number(const char *name, size_t len)
{
	for (unsigned i = 0; i < NAMES; i++) {
		if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
			return i;
	}
	fail();
	return 0;
}

static bool m_put(struct model *m, const struct change_op *op, uint64_t seq)
{
	struct m_node *n = &m->nodes[op->node];

	if (n->type ? n->type != op->attr.type : n->used)
		return false;
	if (!n->type && !op->has_content) {
		n->size = 0;
		memset(n->sha256, 0, SHA256_BYTES);
		if (op->attr.type == NODE_TYPE_FILE)
			sha256("", 0, n->sha256);
	}
	n->type = op->attr.type;
	n->version = seq;
	if (!(op->attr.unheld & NODE_MASK_OWNER) || !n->used) {
		n->owner_kind = op->attr.uid_kind;
		n->owner = op->attr.uid;
	}
	n->used = true;
	n->mode = op->attr.mode;
	n->mtime_ns = op->attr.mtime_ns;
	if (op->has_content) {
		n->size = op->attr.content.size_bytes;
		memcpy(n->sha256, op->attr.content.sha256, SHA256_BYTES);
	}
	n->target = op->attr.target_len;
	return true;
}

static bool m_link(struct model *m, const struct change_op *op)
{
	unsigned name = name_number(op->name, op->name_len);
	struct m_entry *e = m_find(m, op->parent, name);

	if (!m_is_dir(m, op->parent) || !m->nodes[op->node].type || op->node == NODE_ROOT)
		return false;
	if (e && e->node == op->node)
		return true;
	if (m_is_dir(m, op->node) &&
	    (m_links(m, op->node) > 0 || m_beneath(m, op->parent, op->node)))
		return false;
	m_set(m, op->parent, name, op->node);
	return true;
}

static bool m_unlink(struct model *m, const struct change_op *op)
{
	struct m_entry *e = m_find(m, op->parent, name_number(op->name, op->name_len));

	if (!e || (op->node && op->node != e->node))
		return false;
	e->node = 0;
	return true;
}

static bool m_move(struct model *m, const struct change_op *op)
{
	unsigned to_name = name_number(op->to_name, op->to_name_len);
	struct m_entry *e = m_find(m, op->parent, name_number(op->name, op->name_len));
	uint64_t node = e ? e->node : 0;

	if (!e || (op->node && op->node != node) || !m_is_dir(m, op->to_parent))
		return false;
	if (e == m_find(m, op->to_parent, to_name))
		return true;
	if (m_is_dir(m, node) && m_beneath(m, op->to_parent, node))
		return false;
	e->node = 0;
	m_set(m, op->to_parent, to_name, node);
	return true;
}

/* Nodes without names go, and with a directory its entries, until nothing goes. */
static void m_bury(struct model *m)
{
	for (bool again = true; again;) {
		again = false;
		for (uint64_t id = 2; id < NODES; id++) {
			if (!m->nodes[id].type || m_links(m, id))
				continue;
			m->nodes[id].type = 0;
			for (size_t i = 0; i < ENTRIES; i++) {
				if (m->entries[i].parent == id)
					m->entries[i].node = 0;
			}
			again = true;
		}
	}
}

static bool m_apply(struct model *m, const struct change *c, uint64_t seq)
{
	for (size_t i = 0; i < c->n_ops; i++) {
		const struct change_op *op = &c->ops[i];
		bool ok = false;
		switch (op->kind) {
		case CHANGE_PUT: ok = m_put(m, op, seq); break;
		case CHANGE_LINK: ok = m_link(m, op); break;
		case CHANGE_UNLINK: ok = m_unlink(m, op); break;
		case CHANGE_MOVE: ok = m_move(m, op); break;
		}
		if (!ok)
			return false;
	}
	m_bury(m);
	return true;
}

/* A node that was put and never named has not been in the tree: its id may come again. */
static void m_forget_unseen(struct model *m, const struct model *before)
{
	for (uint64_t id = 2; id < NODES; id++) {
		if (!m->nodes[id].type && !before->nodes[id].used)
			m->nodes[id] = (struct m_node){0};
	}
}

/* ---- comparing ---- */

struct m_line {
	char path[4096];
	size_t len;
	uint64_t node;
	uint32_t same_as;
};

struct lines {
	struct m_line *v;
	size_t n, at;
	const struct model *m;
};

static int by_name(const void *a, const void *b)
{
	const struct m_entry *x = a, *y = b;

	return strcmp(names[x->name], names[y->name]);
}

static void m_walk(const struct model *m, uint64_t dir, const char *prefix, struct lines *out)
{
	struct m_entry sorted[ENTRIES];
	size_t n = 0;

	for (size_t i = 0; i < ENTRIES; i++) {
		if (m->entries[i].node && m->entries[i].parent == dir)
			sorted[n++] = m->entries[i];
	}
	qsort(sorted, n, sizeof(sorted[0]), by_name);
	for (size_t i = 0; i < n; i++) {
		struct m_line *l = &out->v[out->n++];
		char path[4096];
		l->node = sorted[i].node;
		l->same_as = 0;
		for (size_t k = 0; k + 1 < out->n && !l->same_as; k++) {
			if (out->v[k].node == l->node)
				l->same_as = (uint32_t)k + 1;
		}
		l->len = (size_t)snprintf(l->path, sizeof(l->path), "%s%s%s", prefix,
					  *prefix ? "/" : "", names[sorted[i].name]);
		assert_true(l->len < sizeof(l->path));
		memcpy(path, l->path, l->len + 1);
		if (m_is_dir(m, l->node))
			m_walk(m, l->node, path, out);
	}
}

static void check_node(const struct model *m, const struct index_node *n)
{
	const struct m_node *w = &m->nodes[n->id];

	assert_int_equal(n->n.type, w->type);
	assert_int_equal(n->version, w->version);
	assert_int_equal(n->links, m_links(m, n->id));
	assert_int_equal(n->n.mode, w->mode);
	assert_true(n->n.mtime_ns == w->mtime_ns);
	assert_int_equal(n->n.uid_kind, w->owner_kind);
	assert_int_equal(n->n.uid, w->owner);
	assert_int_equal(n->n.content.size_bytes, w->size);
	assert_memory_equal(n->n.content.sha256, w->sha256, SHA256_BYTES);
	assert_int_equal(n->n.target_len, w->target);
}

static int check_line(const char *path, size_t len, const struct index_node *n, uint32_t same_as,
		      void *userdata)
{
	struct lines *lines = userdata;
	const struct m_line *l = &lines->v[lines->at++];

	assert_true(lines->at <= lines->n);
	assert_int_equal(len, l->len);
	assert_memory_equal(path, l->path, len);
	assert_int_equal(n->id, l->node);
	assert_int_equal(same_as, l->same_as);
	check_node(lines->m, n);
	return 0;
}

static void check_lookups(struct index_txn *t, const struct model *m, uint64_t at)
{
	struct index_node n;
	uint64_t node;

	for (uint64_t id = 1; id < NODES; id++) {
		int r = index_get_node(t, id, at, &n);
		assert_int_equal(r, m->nodes[id].type ? 0 : -ENOENT);
		if (r == 0)
			check_node(m, &n);
		for (unsigned k = 0; k < NAMES; k++) {
			const struct m_entry *e = m_find((struct model *)(uintptr_t)m, id, k);
			r = index_lookup(t, id, names[k], strlen(names[k]), at, &node);
			assert_int_equal(r, e ? 0 : -ENOENT);
			if (e)
				assert_int_equal(node, e->node);
		}
	}
}

struct listing {
	const struct model *m;
	uint64_t dir;
	const char *after;
	size_t n, stop_at;
	char last[NODE_NAME_MAX + 1];
};

static int check_listed(const char *name, size_t len, uint64_t node, void *userdata)
{
	struct listing *l = userdata;
	struct m_entry *e = m_find((struct model *)(uintptr_t)l->m, l->dir, name_number(name, len));

	assert_non_null(e);
	assert_int_equal(e->node, node);
	memcpy(l->last, name, len);
	l->last[len] = 0;
	if (l->after)
		assert_true(strcmp(l->after, l->last) < 0);
	return ++l->n == l->stop_at;
}

/* Listed from behind any name, a directory gives the names above it; a callback's 1 ends it. */
static void check_listings(struct index_txn *t, const struct model *m, uint64_t at)
{
	for (uint64_t dir = 1; dir < NODES; dir++) {
		if (!m_is_dir(m, dir))
			continue;
		for (unsigned k = 0; k <= NAMES; k++) {
			struct listing l = {.m = m, .dir = dir};
			size_t above = 0;
			l.after = k < NAMES ? names[k] : NULL;
			for (size_t i = 0; i < ENTRIES; i++) {
				const struct m_entry *e = &m->entries[i];
				above += e->node && e->parent == dir &&
					 (!l.after || strcmp(names[e->name], l.after) > 0);
			}
			assert_int_equal(index_list(t, dir, l.after, l.after ? strlen(l.after) : 0,
						    at, check_listed, &l),
					 0);
			assert_int_equal(l.n, above);
			l.n = 0;
			l.stop_at = 1;
			assert_int_equal(index_list(t, dir, l.after, l.after ? strlen(l.after) : 0,
						    at, check_listed, &l),
					 0);
			assert_int_equal(l.n, above > 0);
		}
	}
}

static struct m_line line_space[4 * ENTRIES];

static void check_tree(struct index_txn *t, const struct model *m, uint64_t at)
{
	struct lines lines = {.v = line_space, .m = m};
	uint64_t node;

	m_walk(m, NODE_ROOT, "", &lines);
	assert_int_equal(index_walk(t, NODE_ROOT, at, check_line, &lines), 0);
	assert_int_equal(lines.at, lines.n);
	for (size_t i = 0; i < lines.n; i++) {
		assert_int_equal(index_lookup_path(t, lines.v[i].path, lines.v[i].len, at, &node),
				 0);
		assert_int_equal(node, lines.v[i].node);
	}
}

static int count_name(uint64_t parent, const char *name, size_t len, void *userdata)
{
	struct listing *l = userdata;
	struct m_entry *e = m_find((struct model *)(uintptr_t)l->m, parent, name_number(name, len));

	assert_non_null(e);
	assert_int_equal(e->node, l->dir);
	l->n++;
	return 0;
}

/* What only the present has: names of nodes, paths, counts. */
static void check_now(struct index_txn *t, const struct model *m)
{
	struct index_counts wanted = {0}, got;

	for (uint64_t id = 2; id < NODES; id++) {
		const struct m_node *n = &m->nodes[id];
		struct listing l = {.m = m, .dir = id};
		_cleanup_(buf_done) struct buf path = BUF_INIT(0);
		uint64_t node;

		assert_int_equal(index_names(t, id, count_name, &l), 0);
		assert_int_equal(l.n, n->type ? m_links(m, id) : 0);
		assert_int_equal(index_path(t, id, &path), n->type ? 0 : -ENOENT);
		if (!n->type)
			continue;
		assert_int_equal(index_lookup_path(t, (const char *)buf_data(&path), buf_len(&path),
						   INDEX_NOW, &node),
				 0);
		assert_int_equal(node, id);
		wanted.files += n->type == NODE_TYPE_FILE;
		wanted.directories += n->type == NODE_TYPE_DIRECTORY;
		wanted.symlinks += n->type == NODE_TYPE_SYMLINK;
		wanted.others += n->type == NODE_TYPE_FIFO;
		wanted.bytes += n->type == NODE_TYPE_FILE ? n->size : 0;
	}
	assert_int_equal(index_counts(t, &got), 0);
	assert_memory_equal(&got, &wanted, sizeof(got));
}

struct changed {
	bool nodes[NODES];
	bool entries[NODES][NAMES];
	uint64_t seq;
};

static int note_change(const struct index_recent *e, void *userdata)
{
	struct changed *c = userdata;

	assert_true(e->seq >= c->seq);
	c->seq = e->seq;
	if (e->node)
		c->nodes[e->node] = true;
	if (e->parent)
		c->entries[e->parent][name_number(e->name, e->name_len)] = true;
	return 0;
}

/* Whatever differs between a point and now is told to who asks for what came since. */
static void check_recent(struct index_txn *t, const struct model *then, const struct model *m,
			 uint64_t since)
{
	struct changed c = {.seq = since + 1};

	assert_int_equal(index_recent(t, since, note_change, &c), 0);
	for (uint64_t id = 1; id < NODES; id++) {
		if (then->nodes[id].version != m->nodes[id].version ||
		    then->nodes[id].type != m->nodes[id].type ||
		    (m->nodes[id].type && m_links(then, id) != m_links(m, id)))
			assert_true(c.nodes[id]);
		for (unsigned k = 0; k < NAMES; k++) {
			const struct m_entry *a = m_find((struct model *)(uintptr_t)then, id, k);
			const struct m_entry *b = m_find((struct model *)(uintptr_t)m, id, k);
			if ((a ? a->node : 0) != (b ? b->node : 0))
				assert_true(c.entries[id][k]);
		}
	}
}

/* ---- random changes ---- */

static unsigned seed;

static unsigned rnd(unsigned n)
{
	return (unsigned)rand_r(&seed) / 7 % n;
}

static uint64_t rnd_node(void)
{
	return 1 + rnd(NODES - 1);
}

static uint64_t rnd_live(const struct model *m)
{
	uint64_t id = rnd_node();

	for (int i = 0; i < 30 && !m->nodes[id].type; i++)
		id = rnd_node();
	return id;
}

static uint64_t rnd_fresh(const struct model *m)
{
	uint64_t id = rnd_node();

	for (int i = 0; i < 8 && m->nodes[id].used; i++)
		id = rnd_node();
	return id;
}

/* A directory more often than not, so that most operations are possible. */
static uint64_t rnd_dir(const struct model *m)
{
	for (int i = 0; i < 30; i++) {
		uint64_t id = rnd_node();
		if (m_is_dir(m, id))
			return id;
	}
	return rnd(4) ? NODE_ROOT : rnd_node();
}

static void rnd_entry(const struct model *m, uint64_t *parent, const char **name, uint64_t *node)
{
	const struct m_entry *e = &m->entries[rnd(ENTRIES)];

	for (int i = 0; i < 30 && !e->node; i++)
		e = &m->entries[rnd(ENTRIES)];
	*parent = e->node ? e->parent : rnd_dir(m);
	*name = names[e->node ? e->name : rnd(NAMES)];
	*node = e->node;
}

static struct change_op rnd_put(const struct model *m, uint64_t id)
{
	static const uint8_t types[] = {NODE_TYPE_DIRECTORY, NODE_TYPE_DIRECTORY, NODE_TYPE_FILE,
					NODE_TYPE_FILE,	     NODE_TYPE_SYMLINK,	  NODE_TYPE_FIFO};
	uint8_t type = m->nodes[id].type && rnd(10) ? m->nodes[id].type : types[rnd(6)];
	struct change_op op = op_put(id, type, type == NODE_TYPE_SYMLINK ? "target" : NULL);

	op.attr.mode = rnd(010000);
	op.attr.mtime_ns = (int64_t)rnd(1000000) - 500000;
	op.attr.uid_kind = NODE_OWNER_NUMBER;
	op.attr.uid = rnd(5);
	op.attr.unheld = rnd(3) ? 0 : NODE_MASK_OWNER;
	op.attr.target_len = op.attr.target_len ? 1 + rnd(6) : 0;
	if (type == NODE_TYPE_FILE && rnd(3)) {
		op.has_content = true;
		op.attr.content.size_bytes = rnd(1000);
		op.attr.content.sha256[0] = (uint8_t)rnd(256);
	}
	return op;
}

/* Mostly a name that is free in the directory: else trees do not grow. */
static const char *rnd_name(const struct model *m, uint64_t dir)
{
	unsigned name = rnd(NAMES);

	for (int i = 0; i < 8 && rnd(12) && m_find((struct model *)(uintptr_t)m, dir, name); i++)
		name = rnd(NAMES);
	return names[name];
}

static size_t rnd_ops(const struct model *m, struct change_op *ops)
{
	uint64_t parent, dir = rnd_dir(m), id = rnd_node(), gone;
	const char *name, *to_name = rnd_name(m, dir);

	switch (rnd(9)) {
	case 0:
	case 1:
	case 2: /* make something */
		id = rnd_fresh(m);
		ops[0] = rnd_put(m, id);
		ops[1] = op_link(dir, to_name, id);
		return 2;
	case 3: ops[0] = rnd_put(m, rnd(5) ? rnd_live(m) : id); return 1;
	case 4: ops[0] = op_link(dir, to_name, rnd(5) ? rnd_live(m) : id); return 1;
	case 5:
		rnd_entry(m, &parent, &name, &gone);
		/* A whole subtree now and then only. */
		if (m_is_dir(m, gone) && rnd(6)) {
			ops[0] = rnd_put(m, gone);
			return 1;
		}
		ops[0] = op_unlink(parent, name);
		ops[0].node = rnd(8) ? 0 : id;
		return 1;
	default:
		rnd_entry(m, &parent, &name, &gone);
		ops[0] = op_move(parent, name, dir, to_name);
		return 1;
	}
}

static struct model copies[STEPS + 1]; /* by sequence */

static void check_all(struct journal *j, uint64_t last)
{
	struct index_txn *t;

	assert_int_equal(index_read_begin(j->ix, &t), 0);
	assert_int_equal(index_seq(t), last);
	assert_int_equal(index_refused(t), 0);
	for (uint64_t at = 0; at <= last; at++) {
		check_tree(t, &copies[at], at);
		check_recent(t, &copies[at], &copies[last], at);
	}
	for (uint64_t at = 0; at <= last; at += 1 + rnd(10)) {
		check_lookups(t, &copies[at], at);
		check_listings(t, &copies[at], at);
	}
	check_tree(t, &copies[last], INDEX_NOW);
	check_lookups(t, &copies[last], INDEX_NOW);
	check_listings(t, &copies[last], INDEX_NOW);
	check_now(t, &copies[last]);
	index_read_end(t);
}

static void first_model(void)
{
	memset(long_name, 'n', NODE_NAME_MAX);
	memset(&copies[0], 0, sizeof(copies[0]));
	copies[0].nodes[NODE_ROOT] =
		(struct m_node){.type = NODE_TYPE_DIRECTORY, .used = true, .mode = 0755};
}

/* Random changes until the log has `last` records; the share of refused ones is returned. */
static unsigned run(struct journal *j, uint64_t first, uint64_t last)
{
	unsigned refused = 0, tried = 0;
	uint64_t at = first;

	while (at < last) {
		struct change_op ops[2 * OPS_MAX];
		struct change c = {.origin = ORIGIN_VIEW_, .ops = ops};
		struct model next = copies[at];
		unsigned groups = rnd(4) ? 1 : 1 + rnd(OPS_MAX);
		bool commit = rnd(3) == 0;

		for (unsigned i = 0; i < groups; i++)
			c.n_ops += rnd_ops(&copies[at], ops + c.n_ops);
		bool ok = m_apply(&next, &c, at + 1);
		if (!index_writer_txn(j->ix))
			assert_int_equal(index_begin(j->ix), 0);
		assert_int_equal(journal_apply(j, &c), ok ? 0 : -EINVAL);
		tried++;
		refused += !ok;
		if (ok) {
			m_forget_unseen(&next, &copies[at]);
			copies[++at] = next;
		}
		/* The writer sees what it applied; readers what was committed. */
		if (at % 10 == 0) {
			check_tree(index_writer_txn(j->ix), &copies[at], INDEX_NOW);
			check_now(index_writer_txn(j->ix), &copies[at]);
		}
		if (commit || at == last)
			assert_int_equal(index_commit(j->ix), 0);
	}
	return 100 * refused / tried;
}

/* After random changes, each state is what the model's copy of it is: live, after a clean
 * close, after a rebuild from the log, and after going on from there. */
static void every_state_is_the_models(void **state)
{
	unsigned rounds = getenv("LIMB_TEST_LONG") ? 400 : 12, share = 0, live = 0;

	for (unsigned round = 0; round < rounds; round++) {
		struct journal j;

		assert_int_equal(scratch_setup(state), 0);
		seed = 1000 + round;
		first_model();
		journal_open(&j);
		share += run(&j, 0, STEPS / 2);
		check_all(&j, STEPS / 2);
		journal_close(&j);

		journal_open(&j);
		share += run(&j, STEPS / 2, STEPS);
		check_all(&j, STEPS);
		journal_close(&j);
		for (uint64_t id = 2; id < NODES; id++)
			live += copies[STEPS].nodes[id].type != 0;

		assert_int_equal(unlinkat(scratch, "index", 0), 0);
		journal_open(&j);
		check_all(&j, STEPS);
		journal_close(&j);
		assert_int_equal(scratch_teardown(state), 0);
	}
	/* A run that refuses nearly all, or nothing, or has no tree left, tests little. */
	assert_in_range(share / (2 * rounds), 5, 70);
	assert_true(live / rounds >= 10);
}

/* The same tree hashes come from the past as came from it when it was now. */
static void hashes_of_the_past(void **state)
{
	static uint8_t content[STEPS + 1][SHA256_BYTES], full[STEPS + 1][SHA256_BYTES];
	uint8_t c[SHA256_BYTES], f[SHA256_BYTES];
	struct index_txn *t;
	struct journal j;

	seed = 5;
	first_model();
	journal_open(&j);
	for (uint64_t at = 0; at < STEPS; at++) {
		(void)run(&j, at, at + 1);
		assert_int_equal(index_read_begin(j.ix, &t), 0);
		assert_int_equal(index_tree_hash(t, INDEX_NOW, 0, content[at + 1], full[at + 1]),
				 0);
		index_read_end(t);
	}
	assert_memory_not_equal(content[STEPS], content[STEPS / 2], SHA256_BYTES);
	assert_int_equal(index_read_begin(j.ix, &t), 0);
	for (uint64_t at = 1; at <= STEPS; at++) {
		assert_int_equal(index_tree_hash(t, at, 0, c, f), 0);
		assert_memory_equal(c, content[at], SHA256_BYTES);
		assert_memory_equal(f, full[at], SHA256_BYTES);
	}
	index_read_end(t);
	journal_close(&j);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_state_is_the_models),
		cmocka_unit_test_setup_teardown(hashes_of_the_past, scratch_setup,
						scratch_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
