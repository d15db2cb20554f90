#include "journal/store-table-internal.h"

static void value_put(uint8_t out[STORE_TABLE_VALUE_BYTES], uint32_t num,
		      const struct store_place *p)
{
	put_le32(out, num);
	put_le32(out + 4, p->len | (uint32_t)p->kind << 24);
	put_le64(out + 8, p->offset);
}

static int put_content_bytes(struct store_table *t, MDB_txn *txn, uint64_t bytes)
{
	MDB_val key = {strlen("content_bytes"), (void *)"content_bytes"}, value;
	uint8_t v[8];

	put_le64(v, bytes);
	value = (MDB_val){sizeof(v), v};
	return store_table_error(mdb_put(txn, t->counts, &key, &value, 0));
}

static struct store_table_pack *find(struct store_table *t, const uint8_t id[16])
{
	/* The newest are asked for most. */
	for (size_t i = t->n_packs; i > 0; i--)
		if (memcmp(t->packs[i - 1].id, id, 16) == 0)
			return &t->packs[i - 1];
	return NULL;
}

int store_table_find_pack(struct store_table *t, const uint8_t id[16], struct store_table_pack *ret)
{
	const struct store_table_pack *p;

	(void)pthread_mutex_lock(&t->lock);
	p = find(t, id);
	if (p)
		*ret = *p;
	(void)pthread_mutex_unlock(&t->lock);
	return p ? 0 : -ENOENT;
}

static int write_mark(struct store_table *t, bool clean)
{
	MDB_envinfo info;
	int r;

	r = store_table_error(mdb_env_info(t->env, &info));
	if (r >= 0)
		r = mark_write(t->index_fd, &store_table_mark, 0, info.me_last_txnid, clean);
	if (r >= 0)
		t->clean = clean;
	return r;
}

static int begin(struct store_table *t, MDB_txn **ret)
{
	int r;

	if (t->clean) {
		r = write_mark(t, false);
		if (r < 0)
			return r;
	}
	t->generation++;
	return store_table_error(mdb_txn_begin(t->env, NULL, 0, ret));
}

static int end(MDB_txn *txn, int r)
{
	if (r < 0) {
		mdb_txn_abort(txn);
		return r;
	}
	return store_table_error(mdb_txn_commit(txn));
}

static int put_pack_record(struct store_table *t, MDB_txn *txn, const struct store_table_pack *p)
{
	uint32_t num = p->num;
	MDB_val key = {sizeof(num), &num}, value = {sizeof(*p), (void *)p};

	return store_table_error(mdb_put(txn, t->packs_db, &key, &value, 0));
}

static uint32_t free_number(const struct store_table *t)
{
	uint32_t num = 0;

	for (size_t i = 0; i < t->n_packs; i++)
		num = MAX(num, t->packs[i].num);
	return num + 1;
}

static int put_pack(struct store_table *t, const struct store_table_pack *pack)
{
	struct store_table_pack *old = find(t, pack->id), copy = *pack, *packs;
	MDB_txn *txn;
	int r;

	if (!old) {
		packs = reallocarray(t->packs, t->n_packs + 1, sizeof(*packs));
		if (!packs)
			return -ENOMEM;
		t->packs = packs;
	}
	copy.num = old ? old->num : free_number(t);
	copy.live = old ? old->live : 0;
	r = begin(t, &txn);
	if (r < 0)
		return r;
	r = end(txn, put_pack_record(t, txn, &copy));
	if (r < 0)
		return r;
	if (!old)
		old = &t->packs[t->n_packs++];
	*old = copy;
	return 0;
}

int store_table_put_pack(struct store_table *t, const struct store_table_pack *pack)
{
	int r;

	(void)pthread_mutex_lock(&t->lock);
	r = put_pack(t, pack);
	(void)pthread_mutex_unlock(&t->lock);
	return r;
}

int store_table_set_state(struct store_table *t, const uint8_t id[16],
			  enum store_table_pack_state state)
{
	struct store_table_pack *p, changed;
	int r = -ENOENT;

	(void)pthread_mutex_lock(&t->lock);
	p = find(t, id);
	if (p) {
		changed = *p;
		changed.state = (uint32_t)state;
		r = put_pack(t, &changed);
	}
	(void)pthread_mutex_unlock(&t->lock);
	return r;
}

static int remove_pack(struct store_table *t, const uint8_t id[16])
{
	struct store_table_pack *p = find(t, id);
	uint32_t num;
	MDB_val key = {sizeof(num), &num};
	MDB_txn *txn;
	int r;

	if (!p)
		return -ENOENT;
	if (p->live > 0) {
		struct store_table_pack gone = *p;

		gone.state = STORE_TABLE_GONE;
		return put_pack(t, &gone);
	}
	num = p->num;
	r = begin(t, &txn);
	if (r < 0)
		return r;
	r = end(txn, store_table_error(mdb_del(txn, t->packs_db, &key, NULL)));
	if (r >= 0)
		*p = t->packs[--t->n_packs];
	return r;
}

int store_table_remove_pack(struct store_table *t, const uint8_t id[16])
{
	int r;

	(void)pthread_mutex_lock(&t->lock);
	r = remove_pack(t, id);
	(void)pthread_mutex_unlock(&t->lock);
	return r;
}

/* A place was in the pack `num`, and is no more. */
static int count_off(struct store_table *t, MDB_txn *txn, uint32_t num)
{
	for (size_t i = t->n_packs; i > 0; i--) {
		struct store_table_pack *p = &t->packs[i - 1];

		if (p->num != num)
			continue;
		p->live -= p->live > 0;
		return put_pack_record(t, txn, p);
	}
	return 0;
}

/* 1: added, 0: there is one that stays. *ret_new: there was none, not even in a lost pack. */
static int put_place(struct store_table *t, MDB_txn *txn, const struct store_place *place,
		     uint32_t num, bool checked, bool *ret_new)
{
	uint8_t v[STORE_TABLE_VALUE_BYTES];
	MDB_val key = {SHA256_BYTES, (void *)place->hash}, value = {sizeof(v), v};
	struct store_table_pack pack;
	struct store_place old;
	int rc, r;

	value_put(v, num, place);
	rc = mdb_put(txn, t->places, &key, &value, MDB_NOOVERWRITE);
	*ret_new = rc == 0;
	if (rc != MDB_KEYEXIST)
		return rc == 0 ? 1 : store_table_error(rc);
	r = store_table_get_raw(t, txn, place->hash, &old, &pack);
	if (r < 0)
		return r;
	if (pack.num != 0 && pack.state != STORE_TABLE_GONE &&
	    (!checked || pack.state == STORE_TABLE_CHECKED))
		return 0;
	if (pack.num != 0) {
		r = count_off(t, txn, pack.num);
		if (r < 0)
			return r;
	}
	value = (MDB_val){sizeof(v), v};
	r = store_table_error(mdb_put(txn, t->places, &key, &value, 0));
	return r < 0 ? r : 1;
}

struct item {
	const struct store_place *place;
	uint32_t pack; /* its index in t->packs */
};

static int compare_items(const void *a, const void *b)
{
	const struct item *x = a, *y = b;
	int order = memcmp(x->place->hash, y->place->hash, SHA256_BYTES);

	/* Of two places for one hash the first that was given stays the first. */
	return order ? order : (x->place > y->place) - (x->place < y->place);
}

/* The places in the order of their hashes, so that each page is touched once. */
static int make_items(struct store_table *t, const struct store_place *places, size_t n,
		      struct item **ret)
{
	cleanup_free struct item *items = calloc(n, sizeof(*items));
	const struct store_table_pack *pack = NULL;

	if (!items)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		if (!pack || memcmp(pack->id, places[i].pack_id, 16) != 0)
			pack = find(t, places[i].pack_id);
		if (!pack)
			return -ENOENT;
		items[i].place = &places[i];
		items[i].pack = (uint32_t)(pack - t->packs);
	}
	qsort(items, n, sizeof(*items), compare_items);
	*ret = take_ptr(&items);
	return 0;
}

static int put_items(struct store_table *t, MDB_txn *txn, const struct item *items, size_t n,
		     bool checked)
{
	uint64_t bytes;
	bool new;
	int r;

	r = store_table_get_content_bytes(t, txn, &bytes);
	for (size_t i = 0; r >= 0 && i < n; i++) {
		struct store_table_pack *pack = &t->packs[items[i].pack];

		r = put_place(t, txn, items[i].place, pack->num, checked, &new);
		if (r <= 0)
			continue;
		pack->live++;
		if (new)
			bytes += items[i].place->len;
	}
	return r < 0 ? r : put_content_bytes(t, txn, bytes);
}

/* Notes how far each pack is known, in the writer's copy and in the table. */
static int put_known(struct store_table *t, MDB_txn *txn, const struct store_place *places,
		     size_t n)
{
	struct store_table_pack *pack = NULL;
	int r;

	for (size_t i = 0; i < n; i++) {
		if (!pack || memcmp(pack->id, places[i].pack_id, 16) != 0)
			pack = find(t, places[i].pack_id);
		if (pack->known < places[i].offset)
			pack->known = places[i].offset;
		if (i + 1 < n && memcmp(pack->id, places[i + 1].pack_id, 16) == 0)
			continue;
		r = put_pack_record(t, txn, pack);
		if (r < 0)
			return r;
	}
	return 0;
}

static bool places_ok(const struct store_place *places, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (places[i].len > 0xffffff)
			return false;
	return true;
}

static int add(struct store_table *t, const struct store_place *places, size_t n, bool checked)
{
	cleanup_free struct item *items = NULL;
	MDB_txn *txn;
	int r;

	r = make_items(t, places, n, &items);
	if (r < 0)
		return r;
	r = begin(t, &txn);
	if (r < 0)
		return r;
	r = put_items(t, txn, items, n, checked);
	if (r >= 0)
		r = put_known(t, txn, places, n);
	r = end(txn, r);
	if (r < 0)
		(void)store_table_load_packs(t); /* what is not known after all */
	return r;
}

static int add_locked(struct store_table *t, const struct store_place *places, size_t n,
		      bool checked)
{
	int r;

	if (n == 0)
		return 0;
	if (!places_ok(places, n))
		return -EINVAL;
	(void)pthread_mutex_lock(&t->lock);
	r = add(t, places, n, checked);
	(void)pthread_mutex_unlock(&t->lock);
	return r;
}

int store_table_add(struct store_table *t, const struct store_place *places, size_t n)
{
	return add_locked(t, places, n, false);
}

int store_table_add_checked(struct store_table *t, const struct store_place *places, size_t n)
{
	return add_locked(t, places, n, true);
}

uint64_t store_table_generation(struct store_table *t)
{
	uint64_t generation;

	(void)pthread_mutex_lock(&t->lock);
	generation = t->generation;
	(void)pthread_mutex_unlock(&t->lock);
	return generation;
}

bool store_table_clean(struct store_table *t)
{
	bool clean;

	(void)pthread_mutex_lock(&t->lock);
	clean = t->clean;
	(void)pthread_mutex_unlock(&t->lock);
	return clean;
}

int store_table_sync(struct store_table *t, uint64_t generation)
{
	int r;

	(void)mdb_reader_check(t->env, NULL);
	r = store_table_error(mdb_env_sync(t->env, 1));
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&t->lock);
	if (!t->clean && t->generation == generation)
		r = write_mark(t, true);
	(void)pthread_mutex_unlock(&t->lock);
	return r;
}
