#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "index-model.h"

/*
 * The model keeps a full copy of itself at each sequence. What the index says,
 * now and of the past, before and after a rebuild, must be what the copies say.
 */

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
	struct m_entry sorted[ENTRIES] = {0};
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

static struct model copies[STEPS + 1]; /* by sequence */

static bool m_had(uint64_t node, const uint8_t sha[SHA256_BYTES], uint64_t last)
{
	for (uint64_t at = 0; at <= last; at++) {
		const struct m_node *n = &copies[at].nodes[node];

		if (n->type == NODE_TYPE_FILE && memcmp(n->sha256, sha, SHA256_BYTES) == 0)
			return true;
	}
	return false;
}

/* A node's contents are found by their hash, whenever it had them, and nobody else's. */
static void check_contents(struct index_txn *t, uint64_t last)
{
	for (uint64_t at = 0; at <= last; at += 7) {
		for (uint64_t id = 1; id < NODES; id++) {
			const struct m_node *n = &copies[at].nodes[id];
			struct content_ref ref;
			uint64_t of = (at + id) % 2 ? id : 1 + (id * 7 + at) % (NODES - 1);

			if (n->type != NODE_TYPE_FILE)
				continue;
			if (!m_had(of, n->sha256, last)) {
				assert_int_equal(index_find_content(t, of, n->sha256, &ref),
						 -ENOENT);
				continue;
			}
			assert_int_equal(index_find_content(t, of, n->sha256, &ref), 0);
			assert_memory_equal(ref.sha256, n->sha256, SHA256_BYTES);
		}
	}
}

/* The entry of a name that went last is one that was there until then, and none went later. */
static void check_last_entries(struct index_txn *t, uint64_t at)
{
	for (uint64_t dir = 1; dir < NODES; dir++) {
		for (unsigned k = 0; k < NAMES; k++) {
			uint64_t died_m = 0, node = 0, died = 0;
			int r = index_last_entry(t, dir, names[k], strlen(names[k]), at, &node,
						 &died);

			for (uint64_t d = at; d && !died_m; d--) {
				const struct m_entry *e = m_find(&copies[d], dir, k);
				const struct m_entry *was = m_find(&copies[d - 1], dir, k);

				if (was && was->node && (!e || e->node != was->node))
					died_m = d;
			}
			if (r == -ENOENT) {
				assert_int_equal(died_m, 0);
				continue;
			}
			assert_int_equal(r, 0);
			assert_true(died && died <= at && died >= died_m);
			assert_non_null(m_find(&copies[died - 1], dir, k));
			assert_int_equal(m_find(&copies[died - 1], dir, k)->node, node);
		}
	}
}

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
		check_last_entries(t, at);
	}
	check_contents(t, last);
	check_tree(t, &copies[last], INDEX_NOW);
	check_lookups(t, &copies[last], INDEX_NOW);
	check_listings(t, &copies[last], INDEX_NOW);
	check_now(t, &copies[last]);
	index_read_end(t);
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
	unsigned rounds = getenv("LIMB_TEST_LONG") ? 200 : 5, share = 0, live = 0;

	for (unsigned round = 0; round < rounds; round++) {
		struct journal j;

		assert_int_equal(scratch_setup(state), 0);
		seed = 1000 + round;
		model_init(&copies[0]);
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
	assert_true(live / rounds >= 15);
}

/* The same tree hashes come from the past as came from it when it was now. */
static void hashes_of_the_past(void **state)
{
	static uint8_t content[STEPS + 1][SHA256_BYTES], full[STEPS + 1][SHA256_BYTES];
	uint8_t c[SHA256_BYTES], f[SHA256_BYTES];
	struct index_txn *t;
	struct journal j;

	seed = 5;
	model_init(&copies[0]);
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
