#include "journal/index-impl.h"

/* ---- entries of one directory, now or at a point ---- */

struct dir_iter {
	struct index_txn *t;
	uint64_t at;
	uint64_t dir;
	MDB_cursor *now, *past; /* past: NULL when at is now */
	/* The next visible entry of either; len 0: no more. */
	struct dir_entry {
		const char *name;
		size_t len;
		uint64_t node;
	} now_entry, past_entry;
};

static void dir_iter_done(struct dir_iter *it)
{
	if (it->now)
		mdb_cursor_close(it->now);
	if (it->past)
		mdb_cursor_close(it->past);
}

static int dir_iter_init(struct dir_iter *it, struct index_txn *t, uint64_t at)
{
	int r;

	*it = (struct dir_iter){.t = t, .at = at};
	r = index_error(mdb_cursor_open(t->txn, t->ix->dbi[TABLE_DIRENT], &it->now));
	if (r < 0 || at == INDEX_NOW)
		return r;
	return index_error(mdb_cursor_open(t->txn, t->ix->dbi[TABLE_PAST_DIRENT], &it->past));
}

static bool in_directory(const struct dir_iter *it, const MDB_val *key, size_t tail)
{
	return key->mv_size > 8 + tail && get_be64(key->mv_data) == it->dir;
}

/* Goes on until an entry that existed at the point. */
static int advance_now(struct dir_iter *it, MDB_val *key, MDB_cursor_op op)
{
	uint64_t node, born;
	MDB_val v;
	int r;

	it->now_entry.len = 0;
	for (;; op = MDB_NEXT) {
		r = index_error(mdb_cursor_get(it->now, key, &v, op));
		if (r < 0)
			return r == -ENOENT ? 0 : r;
		if (!in_directory(it, key, 0))
			return 0;
		r = dirent_row_parse(&v, &node, &born);
		if (r < 0)
			return r;
		if (born <= it->at)
			break;
	}
	it->now_entry = (struct dir_entry){
		.name = (const char *)key->mv_data + 8, .len = key->mv_size - 8, .node = node};
	return 0;
}

/* Closed entries of one name follow each other by `died`: the first that died after the
 * point is the only one that can have existed at it. */
static int advance_past(struct dir_iter *it, MDB_val *key)
{
	uint64_t node, born;
	const char *name;
	struct key k;
	size_t len;
	MDB_val v;
	int r;

	it->past_entry.len = 0;
	for (;;) {
		r = index_error(mdb_cursor_get(it->past, key, &v, MDB_SET_RANGE));
		if (r < 0)
			return r == -ENOENT ? 0 : r;
		if (!in_directory(it, key, 9))
			return 0;
		name = (const char *)key->mv_data + 8;
		len = key->mv_size - 8 - 9;
		if (len > NODE_NAME_MAX)
			return -EBADMSG;
		if (get_be64(name + len + 1) <= it->at) {
			key_past_dirent(&k, it->dir, name, len, it->at + 1);
		} else {
			r = dirent_row_parse(&v, &node, &born);
			if (r < 0)
				return r;
			if (born <= it->at)
				break;
			/* The next name: no name has a zero byte. */
			key_dirent(&k, it->dir, name, len);
			k.b[k.len++] = 1;
		}
		/* A row that is none (no zero byte behind its name) would be met for ever. */
		if (memcmp(k.b, key->mv_data, MIN(k.len, key->mv_size)) <= 0)
			return -EBADMSG;
		*key = key_val(&k);
	}
	it->past_entry = (struct dir_entry){.name = name, .len = len, .node = node};
	return 0;
}

/* To the first entry of dir behind the name `after` (len 0: of all). */
static int dir_iter_seek(struct dir_iter *it, uint64_t dir, const char *after, size_t len)
{
	struct key k;
	MDB_val key;
	int r;

	it->dir = dir;
	/* The lowest key above name: name with a zero byte. For past entries a 1, since
	 * there the zero byte ends the name. */
	key_dirent(&k, dir, after, len);
	if (len > 0)
		k.b[k.len++] = 0;
	key = key_val(&k);
	r = advance_now(it, &key, MDB_SET_RANGE);
	if (r < 0 || !it->past)
		return r;
	if (len > 0)
		k.b[k.len - 1] = 1;
	key = key_val(&k);
	return advance_past(it, &key);
}

static int compare(const struct dir_entry *a, const struct dir_entry *b)
{
	int r = memcmp(a->name, b->name, MIN(a->len, b->len));

	return r ? r : (a->len > b->len) - (a->len < b->len);
}

/* 1: *ret is the next entry; 0: the end. The name is the map's. */
static int dir_iter_next(struct dir_iter *it, struct dir_entry *ret)
{
	bool past;
	struct key k;
	MDB_val key;
	int r;

	if (!it->now_entry.len && !it->past_entry.len)
		return 0;
	past = !it->now_entry.len ||
	       (it->past_entry.len && compare(&it->past_entry, &it->now_entry) < 0);
	*ret = past ? it->past_entry : it->now_entry;
	if (past) {
		key_dirent(&k, it->dir, ret->name, ret->len);
		k.b[k.len++] = 1;
		key = key_val(&k);
		r = advance_past(it, &key);
	} else {
		r = advance_now(it, &key, MDB_NEXT);
	}
	return r < 0 ? r : 1;
}

static int list(struct dir_iter *it, uint64_t dir, const char *after, size_t after_len,
		index_entry_fn each, void *userdata)
{
	struct dir_entry e;
	int r;

	r = dir_iter_seek(it, dir, after, after ? after_len : 0);
	while (r >= 0) {
		r = dir_iter_next(it, &e);
		if (r <= 0)
			return r;
		r = each(e.name, e.len, e.node, userdata);
		if (r != 0)
			return MIN(r, 0);
	}
	return r;
}

int index_list(struct index_txn *t, uint64_t dir, const char *after, size_t after_len, uint64_t at,
	       index_entry_fn each, void *userdata)
{
	struct dir_iter it;
	int r;

	if (after_len > NODE_NAME_MAX)
		return -EINVAL;
	r = dir_iter_init(&it, t, at);
	if (r >= 0)
		r = list(&it, dir, after, after_len, each, userdata);
	dir_iter_done(&it);
	return r;
}

/* ---- which entry showed a node first ---- */

struct first_seen {
	struct {
		uint64_t node; /* 0: free */
		uint32_t number;
	} * slots;
	size_t n, size; /* size: a power of two */
};

static size_t slot_of(const struct first_seen *f, uint64_t node)
{
	size_t i = (size_t)(node * 0x9e3779b97f4a7c15ull >> 20) & (f->size - 1);

	while (f->slots[i].node && f->slots[i].node != node)
		i = (i + 1) & (f->size - 1);
	return i;
}

static int first_seen_grow(struct first_seen *f)
{
	struct first_seen larger = {.n = f->n, .size = f->size ? f->size * 2 : 256};

	larger.slots = calloc(larger.size, sizeof(larger.slots[0]));
	if (!larger.slots)
		return -ENOMEM;
	for (size_t i = 0; i < f->size; i++) {
		if (f->slots[i].node)
			larger.slots[slot_of(&larger, f->slots[i].node)] = f->slots[i];
	}
	free(f->slots);
	*f = larger;
	return 0;
}

/* The number of the node's first entry; 0: this one, number, is it. */
static int first_seen_add(struct first_seen *f, uint64_t node, uint32_t number, uint32_t *ret)
{
	size_t i;
	int r;

	if (f->n * 2 >= f->size) {
		r = first_seen_grow(f);
		if (r < 0)
			return r;
	}
	i = slot_of(f, node);
	*ret = f->slots[i].node ? f->slots[i].number : 0;
	if (*ret == 0) {
		f->slots[i].node = node;
		f->slots[i].number = number;
		f->n++;
	}
	return 0;
}

/* ---- trees ---- */

struct walk_level {
	uint64_t dir;
	size_t path_len; /* of the directory's own path */
};

struct walk {
	struct index_txn *t;
	uint64_t at;
	struct dir_iter it;
	struct first_seen seen;
	uint32_t number;
	struct walk_level *levels;
	size_t depth, cap;
	char *path;
	size_t path_len;
	index_walk_fn each;
	void *userdata;
};

static int push(struct walk *w, uint64_t dir)
{
	if (w->depth == w->cap) {
		size_t cap = w->cap ? w->cap * 2 : 64;
		struct walk_level *p = realloc(w->levels, cap * sizeof(*p));
		if (!p)
			return -ENOMEM;
		w->levels = p;
		w->cap = cap;
	}
	w->levels[w->depth++] = (struct walk_level){.dir = dir, .path_len = w->path_len};
	return dir_iter_seek(&w->it, dir, NULL, 0);
}

/* Back to the directory above, behind the name that was left. */
static int pop(struct walk *w)
{
	size_t child_len = w->levels[--w->depth].path_len;
	const struct walk_level *above;
	size_t start;

	if (w->depth == 0)
		return 0;
	above = &w->levels[w->depth - 1];
	start = above->path_len ? above->path_len + 1 : 0;
	w->path_len = above->path_len;
	return dir_iter_seek(&w->it, above->dir, w->path + start, child_len - start);
}

static int append_name(struct walk *w, const struct dir_entry *e)
{
	size_t start = w->levels[w->depth - 1].path_len;

	if (start + 1 + e->len > INDEX_PATH_MAX)
		return -ENAMETOOLONG;
	if (start)
		w->path[start++] = '/';
	memcpy(w->path + start, e->name, e->len);
	w->path_len = start + e->len;
	return 0;
}

static int visit(struct walk *w, const struct dir_entry *e)
{
	uint32_t same_as = 0;
	struct index_node n;
	int r;

	r = append_name(w, e);
	if (r < 0)
		return r;
	r = index_get_node(w->t, e->node, w->at, &n);
	if (r < 0)
		return r == -ENOENT ? -EBADMSG : r;
	if (w->number == UINT32_MAX)
		return -E2BIG;
	w->number++;
	if (n.links > 1) {
		r = first_seen_add(&w->seen, e->node, w->number, &same_as);
		if (r < 0)
			return r;
	}
	r = w->each(w->path, w->path_len, &n, same_as, w->userdata);
	if (r != 0)
		return r == INDEX_WALK_SKIP ? 0 : r;
	return n.n.type == NODE_TYPE_DIRECTORY ? push(w, e->node) : 0;
}

static int walk_all(struct walk *w, uint64_t from_node)
{
	struct dir_entry e;
	int r;

	r = push(w, from_node);
	while (r == 0 && w->depth > 0) {
		r = dir_iter_next(&w->it, &e);
		if (r > 0)
			r = visit(w, &e);
		else if (r == 0)
			r = pop(w);
	}
	return r;
}

int index_walk(struct index_txn *t, uint64_t from_node, uint64_t at, index_walk_fn each,
	       void *userdata)
{
	struct walk w = {.t = t, .at = at, .each = each, .userdata = userdata};
	struct index_node from;
	int r;

	r = index_get_node(t, from_node, at, &from);
	if (r < 0)
		return r;
	if (from.n.type != NODE_TYPE_DIRECTORY)
		return -ENOTDIR;
	w.path = malloc(INDEX_PATH_MAX);
	if (!w.path)
		return -ENOMEM;
	r = dir_iter_init(&w.it, t, at);
	if (r >= 0)
		r = walk_all(&w, from_node);
	dir_iter_done(&w.it);
	free(w.seen.slots);
	free(w.levels);
	free(w.path);
	return MIN(r, 0);
}

int index_walk_parent(struct index_walk_dirs *d, const char *path, size_t len, uint64_t node,
		      uint64_t *ret_parent, size_t *ret_name)
{
	size_t depth = 0, name = 0;

	for (size_t i = 0; i < len; i++) {
		if (path[i] == '/') {
			depth++;
			name = i + 1;
		}
	}
	if (depth + 2 > d->cap) {
		size_t cap = (depth + 2) * 2;
		uint64_t *p = reallocarray(d->nodes, cap, sizeof(*p));

		if (!p)
			return -ENOMEM;
		d->nodes = p;
		d->cap = cap;
	}
	d->nodes[0] = NODE_ROOT;
	d->nodes[depth + 1] = node;
	*ret_parent = d->nodes[depth];
	*ret_name = name;
	return 0;
}

static int hash_entry(const char *path, size_t len, const struct index_node *n, uint32_t same_as,
		      void *userdata)
{
	node_hasher_add(userdata, path, len, &n->n, same_as);
	return 0;
}

int index_tree_hash(struct index_txn *t, uint64_t at, uint32_t mask, uint8_t content[SHA256_BYTES],
		    uint8_t full[SHA256_BYTES])
{
	struct node_hasher *h = node_hasher_new(mask);
	int r;

	if (!h)
		return -ENOMEM;
	r = index_walk(t, NODE_ROOT, at, hash_entry, h);
	if (r >= 0)
		node_hasher_final(h, content, full);
	node_hasher_free(h);
	return MIN(r, 0);
}
