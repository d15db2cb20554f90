#include "journal/index-impl.h"

/*
 * A subtree of any depth and size goes entry by entry, in constant memory: down
 * to the first entry that is no filled directory, which is removed, and up again
 * by the directory's own name.
 */

struct pruning {
	struct index *ix;
	uint64_t seq;
	struct arena rows;
};

struct entry {
	uint64_t parent, node, born;
	uint16_t len;
	char name[NODE_NAME_MAX];
};

/* 1: *ret is the directory's first entry; 0: it is empty. */
static int first_entry(struct pruning *p, uint64_t directory, struct entry *ret)
{
	MDB_cursor *cursor;
	MDB_val key, v;
	struct key k;
	int r;

	r = txn_cursor(&p->ix->writer, TABLE_DIRENT, &cursor);
	if (r < 0)
		return r;
	key_u64(&k, directory);
	key = key_val(&k);
	r = index_error(mdb_cursor_get(cursor, &key, &v, MDB_SET_RANGE));
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (key.mv_size <= 8 || get_be64(key.mv_data) != directory)
		return 0;
	if (key.mv_size - 8 > NODE_NAME_MAX)
		return -EBADMSG;
	ret->parent = directory;
	ret->len = (uint16_t)(key.mv_size - 8);
	memcpy(ret->name, (const char *)key.mv_data + 8, ret->len);
	r = dirent_row_parse(&v, &ret->node, &ret->born);
	return r < 0 ? r : 1;
}

/* The entry that names a directory. */
static int entry_of(struct pruning *p, uint64_t directory, struct entry *ret)
{
	const uint8_t *name_key;
	MDB_cursor *cursor;
	MDB_val key, v;
	struct key k;
	int r;

	r = txn_cursor(&p->ix->writer, TABLE_NAME, &cursor);
	if (r < 0)
		return r;
	key_u64(&k, directory);
	key = key_val(&k);
	r = index_error(mdb_cursor_get(cursor, &key, &v, MDB_SET_RANGE));
	if (r < 0)
		return r;
	name_key = key.mv_data;
	if (key.mv_size <= 16 || key.mv_size - 16 > NODE_NAME_MAX ||
	    get_be64(name_key) != directory)
		return -EBADMSG;
	ret->parent = get_be64(name_key + 8);
	ret->len = (uint16_t)(key.mv_size - 16);
	memcpy(ret->name, name_key + 16, ret->len);
	key_dirent(&k, ret->parent, ret->name, ret->len);
	r = table_get(p->ix, TABLE_DIRENT, &k, &v);
	return r < 0 ? r : dirent_row_parse(&v, &ret->node, &ret->born);
}

/* A node loses one name, its last or one of several. */
static int drop_link(struct pruning *p, uint64_t node)
{
	struct index *ix = p->ix;
	struct index_node before;
	uint64_t born;
	struct key k;
	uint8_t *row;
	MDB_val v;
	int r;

	key_u64(&k, node);
	r = table_get(ix, TABLE_NODE, &k, &v);
	if (r < 0)
		return r;
	arena_reset(&p->rows);
	row = arena_copy(&p->rows, v.mv_data, v.mv_size);
	if (!row)
		return -ENOMEM;
	r = node_row_parse(row, v.mv_size, &born, &before);
	if (r < 0)
		return r;
	r = past_node_put(ix, node, row, v.mv_size, p->seq);
	if (r < 0)
		return r;
	r = recent_add_node(ix, node);
	if (r < 0)
		return r;
	if (before.links > 1) {
		node_row_set(row, p->seq, before.links - 1);
		return table_put(ix, TABLE_NODE, &k, row, v.mv_size, 0);
	}
	counts_add(ix, node, &before.n, -1);
	return table_del(ix, TABLE_NODE, &k);
}

static int remove_entry(struct pruning *p, const struct entry *e)
{
	struct index *ix = p->ix;
	struct key k;
	int r;

	r = past_dirent_put(ix, e->parent, e->name, e->len, e->node, e->born, p->seq);
	if (r < 0)
		return r;
	key_dirent(&k, e->parent, e->name, e->len);
	r = table_del(ix, TABLE_DIRENT, &k);
	if (r < 0)
		return r;
	key_name(&k, e->node, e->parent, e->name, e->len);
	r = table_del(ix, TABLE_NAME, &k);
	if (r < 0)
		return r;
	r = recent_add_entry(ix, e->parent, e->name, e->len);
	return r < 0 ? r : drop_link(p, e->node);
}

static int is_directory(struct pruning *p, uint64_t node)
{
	struct node_row row;
	struct key k;
	MDB_val v;
	int r;

	key_u64(&k, node);
	r = table_get(p->ix, TABLE_NODE, &k, &v);
	if (r >= 0)
		r = node_row_head(v.mv_data, v.mv_size, &row);
	return r < 0 ? r : row.type == NODE_TYPE_DIRECTORY;
}

static int prune_all(struct pruning *p, uint64_t top)
{
	uint64_t at = top;
	struct entry e;
	int r;

	for (;;) {
		r = first_entry(p, at, &e);
		if (r < 0)
			return r;
		if (r == 0) {
			if (at == top)
				return 0;
			r = entry_of(p, at, &e);
			if (r < 0)
				return r;
			at = e.parent;
		} else {
			r = is_directory(p, e.node);
			if (r < 0)
				return r;
			if (r > 0) {
				at = e.node;
				continue;
			}
		}
		r = remove_entry(p, &e);
		if (r < 0)
			return r;
	}
}

int prune(struct index *ix, uint64_t directory, uint64_t seq)
{
	struct pruning p = {.ix = ix, .seq = seq};
	int r;

	r = prune_all(&p, directory);
	arena_done(&p.rows);
	return r;
}
