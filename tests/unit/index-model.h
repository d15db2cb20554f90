/*
 * index-model.h - a tree that is simple: arrays, searched from the front; and
 * random changes to it.
 *
 *	model_init(&m);
 *	n = rnd_ops(&m, ops);		possible and impossible ones
 *	m_apply(&next, &change, seq)	false: it is impossible
 */
#ifndef TESTS_UNIT_INDEX_MODEL_H
#define TESTS_UNIT_INDEX_MODEL_H

#include "index-fixture.h"

enum {
	NODES = 200, /* ids 1 .. NODES-1 */
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

static inline void model_init(struct model *m)
{
	memset(long_name, 'n', NODE_NAME_MAX);
	*m = (struct model){
		.nodes[NODE_ROOT] = {.type = NODE_TYPE_DIRECTORY, .used = true, .mode = 0755}};
}

/* ---- the model's rules ---- */

static inline unsigned m_links(const struct model *m, uint64_t id)
{
	unsigned n = id == NODE_ROOT;

	for (size_t i = 0; i < ENTRIES; i++)
		n += m->entries[i].node == id;
	return n;
}

static inline struct m_entry *m_find(struct model *m, uint64_t parent, unsigned name)
{
	for (size_t i = 0; i < ENTRIES; i++) {
		struct m_entry *e = &m->entries[i];
		if (e->node && e->parent == parent && e->name == name)
			return e;
	}
	return NULL;
}

static inline bool m_is_dir(const struct model *m, uint64_t id)
{
	return id < NODES && m->nodes[id].type == NODE_TYPE_DIRECTORY;
}

/* Is `id` the directory `top` or somewhere beneath it? */
static inline bool m_beneath(const struct model *m, uint64_t id, uint64_t top)
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

static inline void m_set(struct model *m, uint64_t parent, unsigned name, uint64_t node)
{
	struct m_entry *e = m_find(m, parent, name);

	for (size_t i = 0; !e && i < ENTRIES; i++) {
		if (!m->entries[i].node)
			e = &m->entries[i];
	}
	assert_non_null(e);
	*e = (struct m_entry){.node = node, .parent = parent, .name = name};
}

static inline unsigned name_number(const char *name, size_t len)
{
	for (unsigned i = 0; i < NAMES; i++) {
		if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
			return i;
	}
	fail();
	return 0;
}

static inline bool m_put(struct model *m, const struct change_op *op, uint64_t seq)
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

static inline bool m_link(struct model *m, const struct change_op *op)
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

static inline bool m_unlink(struct model *m, const struct change_op *op)
{
	struct m_entry *e = m_find(m, op->parent, name_number(op->name, op->name_len));

	if (!e || (op->node && op->node != e->node))
		return false;
	e->node = 0;
	return true;
}

static inline bool m_move(struct model *m, const struct change_op *op)
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
static inline void m_bury(struct model *m)
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

static inline bool m_apply(struct model *m, const struct change *c, uint64_t seq)
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
static inline void m_forget_unseen(struct model *m, const struct model *before)
{
	for (uint64_t id = 2; id < NODES; id++) {
		if (!m->nodes[id].type && !before->nodes[id].used)
			m->nodes[id] = (struct m_node){0};
	}
}

/* ---- random changes ---- */

static unsigned seed;

static inline unsigned rnd(unsigned n)
{
	return (unsigned)rand_r(&seed) / 7 % n;
}

static inline uint64_t rnd_node(void)
{
	return 1 + rnd(NODES - 1);
}

static inline uint64_t rnd_live(const struct model *m)
{
	uint64_t id = rnd_node();

	for (int i = 0; i < 30 && !m->nodes[id].type; i++)
		id = rnd_node();
	return id;
}

static inline uint64_t rnd_fresh(const struct model *m)
{
	uint64_t id = rnd_node();

	for (int i = 0; i < 8 && m->nodes[id].used; i++)
		id = rnd_node();
	return id;
}

/* A directory more often than not, so that most operations are possible. */
static inline uint64_t rnd_dir(const struct model *m)
{
	for (int i = 0; i < 30; i++) {
		uint64_t id = rnd_node();
		if (m_is_dir(m, id))
			return id;
	}
	return rnd(4) ? NODE_ROOT : rnd_node();
}

static inline void rnd_entry(const struct model *m, uint64_t *parent, const char **name,
			     uint64_t *node)
{
	const struct m_entry *e = &m->entries[rnd(ENTRIES)];

	for (int i = 0; i < 30 && !e->node; i++)
		e = &m->entries[rnd(ENTRIES)];
	*parent = e->node ? e->parent : rnd_dir(m);
	*name = names[e->node ? e->name : rnd(NAMES)];
	*node = e->node;
}

static inline struct change_op rnd_put(const struct model *m, uint64_t id)
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

static inline size_t rnd_ops(const struct model *m, struct change_op *ops)
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

#endif
