#include "journal/index-impl.h"

/* ---- transactions ---- */

int get_state(struct index *ix, MDB_txn *txn, struct index_state *ret)
{
	MDB_val key = {.mv_size = 5, .mv_data = (void *)(uintptr_t) "state"}, v;
	int r;

	r = index_error(mdb_get(txn, ix->dbi[TABLE_META], &key, &v));
	return r < 0 ? r : state_row_parse(&v, ret);
}

int index_read_begin(struct index *ix, struct index_txn **ret)
{
	struct index_txn *t;
	int r;

	if (ix->mode == INDEX_READ && index_moved(ix))
		return -ESTALE;
	t = calloc(1, sizeof(*t));
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

void txn_close_cursors(struct index_txn *t)
{
	for (size_t i = 0; i < N_TABLES; i++) {
		if (t->cursors[i])
			mdb_cursor_close(t->cursors[i]);
		t->cursors[i] = NULL;
	}
}

void index_read_end(struct index_txn *t)
{
	if (!t || t->writer)
		return;
	txn_close_cursors(t);
	mdb_txn_abort(t->txn);
	free(t);
}

struct index_txn *index_writer_txn(struct index *ix)
{
	return ix->writer.txn ? &ix->writer : NULL;
}

int txn_cursor(struct index_txn *t, enum index_table table, MDB_cursor **ret)
{
	int r = 0;

	if (!t->cursors[table])
		r = index_error(mdb_cursor_open(t->txn, t->ix->dbi[table], &t->cursors[table]));
	*ret = t->cursors[table];
	return r;
}

int txn_state(struct index_txn *t, const struct index_state **ret)
{
	int r;

	if (t->writer) {
		*ret = &t->ix->state;
		return 0;
	}
	if (!t->state_loaded) {
		r = get_state(t->ix, t->txn, &t->state);
		if (r < 0)
			return r;
		t->state_loaded = true;
	}
	*ret = &t->state;
	return 0;
}

static const struct index_state *state_or_zeros(struct index_txn *t)
{
	static const struct index_state zeros = {.next_used = 2};
	const struct index_state *s;

	return txn_state(t, &s) < 0 ? &zeros : s;
}

uint64_t index_seq(struct index_txn *t)
{
	return state_or_zeros(t)->seq;
}

uint64_t index_next_node(struct index_txn *t)
{
	const struct index_state *s = state_or_zeros(t);

	return MAX(s->next_used, s->granted_end);
}

uint64_t index_incarnation(struct index_txn *t)
{
	return state_or_zeros(t)->incarnation;
}

uint64_t index_refused(struct index_txn *t)
{
	return state_or_zeros(t)->refused;
}

static int get(struct index_txn *t, enum index_table table, const struct key *k, MDB_val *ret)
{
	MDB_val key = key_val(k);

	return index_error(mdb_get(t->txn, t->ix->dbi[table], &key, ret));
}

uint64_t index_number(struct index_txn *t, uint64_t incarnation)
{
	struct key k;
	MDB_val v;

	if (t->writer && t->ix->number_of == incarnation)
		return t->ix->highest_number;
	key_u64(&k, incarnation);
	if (get(t, TABLE_INCARNATION, &k, &v) < 0 || v.mv_size != 8)
		return 0;
	return get_le64(v.mv_data);
}

/* The node id of the last key below (end, ...) in a table whose keys begin with one; 0: none. */
static uint64_t last_id_below(struct index_txn *t, enum index_table table, uint64_t end)
{
	MDB_cursor *cursor;
	MDB_val key, v;
	struct key k;
	int r;

	if (txn_cursor(t, table, &cursor) < 0)
		return 0;
	key_u64(&k, end);
	key = key_val(&k);
	r = mdb_cursor_get(cursor, &key, &v, MDB_SET_RANGE);
	r = mdb_cursor_get(cursor, &key, &v, r == MDB_SUCCESS ? MDB_PREV : MDB_LAST);
	return r == MDB_SUCCESS && key.mv_size >= 8 ? get_be64(key.mv_data) : 0;
}

uint64_t index_node_used(struct index_txn *t, uint64_t first, uint64_t end)
{
	uint64_t now = last_id_below(t, TABLE_NODE, end);
	uint64_t past = last_id_below(t, TABLE_PAST_NODE, end);

	now = MAX(now, past);
	return MAX(now, first - 1);
}

int index_counts(struct index_txn *t, struct index_counts *ret)
{
	const struct index_state *s;
	int r;

	r = txn_state(t, &s);
	if (r >= 0)
		*ret = s->counts;
	return r;
}

int index_meta_get(struct index_txn *t, const char *key, const void **ret, size_t *ret_n)
{
	MDB_val k = {.mv_size = strlen(key), .mv_data = (void *)(uintptr_t)key}, v;
	int r;

	r = index_error(mdb_get(t->txn, t->ix->dbi[TABLE_META], &k, &v));
	if (r < 0)
		return r;
	*ret = v.mv_data;
	*ret_n = v.mv_size;
	return 0;
}

/* ---- nodes ---- */

/* The row of a past table with the smallest `died` above at, under a key that ends in
 * it. -ENOENT: none with that beginning. */
static int seek_past(struct index_txn *t, enum index_table table, struct key *k, MDB_val *ret)
{
	MDB_cursor *cursor;
	MDB_val key = key_val(k);
	int r;

	r = txn_cursor(t, table, &cursor);
	if (r < 0)
		return r;
	r = index_error(mdb_cursor_get(cursor, &key, ret, MDB_SET_RANGE));
	if (r < 0)
		return r;
	if (key.mv_size != k->len || memcmp(key.mv_data, k->b, k->len - 8) != 0)
		return -ENOENT;
	return 0;
}

int index_get_node(struct index_txn *t, uint64_t node, uint64_t at, struct index_node *ret)
{
	struct index_node n;
	uint64_t born;
	struct key k;
	MDB_val v;
	int r;

	key_u64(&k, node);
	r = get(t, TABLE_NODE, &k, &v);
	if (r >= 0)
		r = node_row_parse(v.mv_data, v.mv_size, &born, &n);
	if (r < 0 && r != -ENOENT)
		return r;
	if (at == INDEX_NOW && r < 0)
		return r;
	if (r < 0 || born > at) {
		key_u64_pair(&k, node, at + 1);
		r = seek_past(t, TABLE_PAST_NODE, &k, &v);
		if (r >= 0)
			r = node_row_parse(v.mv_data, v.mv_size, &born, &n);
		if (r < 0)
			return r;
		if (born > at)
			return -ENOENT;
	}
	n.id = node;
	*ret = n;
	return 0;
}

/* The row before the cursor's, of the same node. */
static int past_before(struct index_txn *t, const struct key *first, MDB_cursor_op op, MDB_val *ret)
{
	MDB_cursor *cursor;
	MDB_val key;
	int r;

	r = txn_cursor(t, TABLE_PAST_NODE, &cursor);
	if (r >= 0)
		r = index_error(mdb_cursor_get(cursor, &key, ret, op));
	if (r < 0)
		return r;
	return key.mv_size == first->len && memcmp(key.mv_data, first->b, 8) == 0 ? 0 : -ENOENT;
}

/* Puts the cursor behind the last of the node's rows. */
static MDB_cursor_op past_end(struct index_txn *t, uint64_t node)
{
	MDB_cursor *cursor;
	MDB_val key, v;
	struct key k;

	key_u64_pair(&k, node + 1, 0);
	key = key_val(&k);
	if (txn_cursor(t, TABLE_PAST_NODE, &cursor) < 0 ||
	    mdb_cursor_get(cursor, &key, &v, MDB_SET_RANGE) != 0)
		return MDB_LAST;
	return MDB_PREV;
}

static bool has_content(const MDB_val *row, const uint8_t sha[SHA256_BYTES], struct index_node *n)
{
	uint64_t born;

	return node_row_parse(row->mv_data, row->mv_size, &born, n) >= 0 &&
	       n->n.type == NODE_TYPE_FILE && memcmp(n->n.content.sha256, sha, SHA256_BYTES) == 0;
}

int index_find_content(struct index_txn *t, uint64_t node, const uint8_t sha256[SHA256_BYTES],
		       struct content_ref *ret)
{
	struct index_node n;
	MDB_cursor_op op;
	struct key k;
	MDB_val v;
	int r;

	key_u64(&k, node);
	r = get(t, TABLE_NODE, &k, &v);
	if (r < 0 && r != -ENOENT)
		return r;
	if (r == 0 && has_content(&v, sha256, &n)) {
		*ret = n.n.content;
		return 0;
	}
	key_u64_pair(&k, node, 0);
	op = past_end(t, node);
	for (size_t i = 0; i < INDEX_VERSIONS; i++, op = MDB_PREV) {
		r = past_before(t, &k, op, &v);
		if (r < 0)
			return r;
		if (has_content(&v, sha256, &n)) {
			*ret = n.n.content;
			return 0;
		}
	}
	return -ENOENT;
}

int index_lookup(struct index_txn *t, uint64_t parent, const char *name, size_t len, uint64_t at,
		 uint64_t *ret_node)
{
	uint64_t node, born;
	struct key k;
	MDB_val v;
	int r;

	if (len == 0 || len > NODE_NAME_MAX)
		return -ENOENT;
	key_dirent(&k, parent, name, len);
	r = get(t, TABLE_DIRENT, &k, &v);
	if (r >= 0)
		r = dirent_row_parse(&v, &node, &born);
	if (r < 0 && (r != -ENOENT || at == INDEX_NOW))
		return r;
	if (r < 0 || born > at) {
		/* A zero byte in a name would make another key of it. */
		if (at == INDEX_NOW || memchr(name, 0, len))
			return -ENOENT;
		key_past_dirent(&k, parent, name, len, at + 1);
		r = seek_past(t, TABLE_PAST_DIRENT, &k, &v);
		if (r >= 0)
			r = dirent_row_parse(&v, &node, &born);
		if (r < 0)
			return r;
		if (born > at)
			return -ENOENT;
	}
	*ret_node = node;
	return 0;
}

int index_last_entry(struct index_txn *t, uint64_t parent, const char *name, size_t len,
		     uint64_t at, uint64_t *ret_node, uint64_t *ret_died)
{
	MDB_cursor *cursor;
	MDB_val key, v;
	uint64_t born;
	struct key k;
	int r;

	if (len == 0 || len > NODE_NAME_MAX || memchr(name, 0, len))
		return -ENOENT;
	key_past_dirent(&k, parent, name, len, at == INDEX_NOW ? at : at + 1);
	r = txn_cursor(t, TABLE_PAST_DIRENT, &cursor);
	if (r < 0)
		return r;
	key = key_val(&k);
	r = mdb_cursor_get(cursor, &key, &v, MDB_SET_RANGE);
	r = index_error(mdb_cursor_get(cursor, &key, &v, r == MDB_SUCCESS ? MDB_PREV : MDB_LAST));
	if (r < 0)
		return r;
	if (key.mv_size != k.len || memcmp(key.mv_data, k.b, k.len - 8) != 0)
		return -ENOENT;
	r = dirent_row_parse(&v, ret_node, &born);
	if (r < 0)
		return r;
	*ret_died = get_be64((const uint8_t *)key.mv_data + k.len - 8);
	return 0;
}

int index_lookup_path(struct index_txn *t, const char *path, size_t len, uint64_t at,
		      uint64_t *ret_node)
{
	const char *end = path + len;
	uint64_t node = NODE_ROOT;
	struct index_node n;
	int r;

	while (path < end) {
		const char *slash = memchr(path, '/', (size_t)(end - path));
		size_t n_name = (size_t)((slash ? slash : end) - path);
		if (n_name > 0) {
			uint64_t parent = node;
			r = index_lookup(t, parent, path, n_name, at, &node);
			if (r == -ENOENT && index_get_node(t, parent, at, &n) >= 0 &&
			    n.n.type != NODE_TYPE_DIRECTORY)
				return -ENOTDIR;
			if (r < 0)
				return r;
		}
		path += n_name + 1;
		if (!slash)
			break;
	}
	*ret_node = node;
	return 0;
}

/* ---- the way back ---- */

/* Names of a node from the first on: as each() says, or 0 at the end. */
static int each_name(MDB_cursor *cursor, uint64_t node, index_name_fn each, void *userdata)
{
	MDB_cursor_op op = MDB_SET_RANGE;
	MDB_val key, v;
	struct key k;
	int r;

	key_u64(&k, node);
	key = key_val(&k);
	for (;;) {
		r = index_error(mdb_cursor_get(cursor, &key, &v, op));
		if (r < 0)
			return r == -ENOENT ? 0 : r;
		if (key.mv_size <= 16 || get_be64(key.mv_data) != node)
			return 0;
		r = each(get_be64((uint8_t *)key.mv_data + 8), (char *)key.mv_data + 16,
			 key.mv_size - 16, userdata);
		if (r != 0)
			return r;
		op = MDB_NEXT;
	}
}

int index_names(struct index_txn *t, uint64_t node, index_name_fn each, void *userdata)
{
	MDB_cursor *cursor;
	int r;

	r = index_error(mdb_cursor_open(t->txn, t->ix->dbi[TABLE_NAME], &cursor));
	if (r < 0)
		return r;
	r = each_name(cursor, node, each, userdata);
	mdb_cursor_close(cursor);
	return MIN(r, 0);
}

struct path_end {
	char *mem;
	size_t start; /* the path grows down from the end of mem */
	uint64_t parent;
};

static int prepend_name(uint64_t parent, const char *name, size_t len, void *userdata)
{
	struct path_end *p = userdata;

	if (p->start < len + 1)
		return -ENAMETOOLONG;
	if (p->start < INDEX_PATH_MAX)
		p->mem[--p->start] = '/';
	p->start -= len;
	memcpy(p->mem + p->start, name, len);
	p->parent = parent;
	return 1;
}

int index_path(struct index_txn *t, uint64_t node, struct buf *out)
{
	cleanup_free char *mem = malloc(INDEX_PATH_MAX);
	struct path_end p = {.mem = mem, .start = INDEX_PATH_MAX};
	MDB_cursor *cursor;
	int r;

	if (!mem)
		return -ENOMEM;
	r = txn_cursor(t, TABLE_NAME, &cursor);
	while (r >= 0 && node != NODE_ROOT) {
		r = each_name(cursor, node, prepend_name, &p);
		if (r == 0)
			r = -ENOENT;
		node = p.parent;
	}
	return r < 0 ? r : buf_add(out, mem + p.start, INDEX_PATH_MAX - p.start);
}
