#include "journal/index-view.h"

#include "journal/index-impl.h"

int index_read_begin_left(struct index *ix, struct index_txn **ret)
{
	struct index_txn *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	t->ix = ix;
	r = index_error(mdb_txn_begin(ix->env, NULL, MDB_RDONLY, &t->txn));
	if (r < 0) {
		free(t);
		return r;
	}
	*ret = t;
	return 0;
}

/* The row of past_node with the highest `died`. */
static int seek_last_past(struct index_txn *t, uint64_t node, MDB_val *ret)
{
	MDB_cursor *cursor;
	MDB_val key;
	struct key k;
	int r;

	r = txn_cursor(t, TABLE_PAST_NODE, &cursor);
	if (r < 0)
		return r;
	key_u64_pair(&k, node, UINT64_MAX);
	key = key_val(&k);
	r = index_error(mdb_cursor_get(cursor, &key, ret, MDB_SET_RANGE));
	if (r < 0 && r != -ENOENT)
		return r;
	r = index_error(mdb_cursor_get(cursor, &key, ret, r < 0 ? MDB_LAST : MDB_PREV));
	if (r < 0)
		return r;
	return key.mv_size == 16 && get_be64(key.mv_data) == node ? 0 : -ENOENT;
}

int index_last_node(struct index_txn *t, uint64_t node, struct index_node *ret)
{
	struct index_node n;
	uint64_t born;
	MDB_val v;
	int r;

	r = index_get_node(t, node, INDEX_NOW, ret);
	if (r != -ENOENT)
		return r;
	r = seek_last_past(t, node, &v);
	if (r >= 0)
		r = node_row_parse(v.mv_data, v.mv_size, &born, &n);
	if (r < 0)
		return r;
	n.id = node;
	n.links = 0;
	*ret = n;
	return 0;
}

int index_root_path(struct index_txn *t, char **ret)
{
	_cleanup_(arena_done) struct arena arena = ARENA_INIT(0);
	Limb__Record *rec;
	const void *body;
	char *path;
	size_t n;
	int r;

	r = index_meta_get(t, "incarnation_body", &body, &n);
	if (r >= 0)
		r = body_unpack(&arena, body, n, &rec);
	if (r < 0)
		return r;
	if (rec->body_case != LIMB__RECORD__BODY_INCARNATION_START ||
	    rec->incarnation_start->root[0] != '/')
		return -ENOENT;
	path = strdup(rec->incarnation_start->root);
	if (!path)
		return -ENOMEM;
	*ret = path;
	return 0;
}
