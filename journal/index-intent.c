#include "journal/index-impl.h"

#include "base/text.h"

/*
 * Rows of the table intent; the key's first byte is their kind, a number (big-endian) follows:
 *
 *	\1 change	an INTENT that is not over: seq u64, time i64, error u32, u32 0, its body
 *	\2 change	what became of one: likewise, body of INTENT_END; only as long as there
 *			are others of kind 1, for which it counts
 *	\3 change	an open conflict: likewise, body of CONFLICT
 *	\4		highest number u64, open conflicts u64
 *	\5		of the newest INTENT from a view: epoch u64, number u64
 */
enum { ROW_BYTES = 24, COUNTS_BYTES = 16 };
enum { KIND_WAITS = 1, KIND_END = 2, KIND_CONFLICT = 3, KIND_COUNTS = 4, KIND_VIEW = 5 };

static void key_kind(struct key *k, uint8_t kind, uint64_t change)
{
	k->len = 9;
	k->b[0] = kind;
	put_be64(k->b + 1, change);
}

static int parse_row(const MDB_val *key, const MDB_val *v, struct index_intent *ret)
{
	const uint8_t *p = v->mv_data;

	if (key->mv_size != 9 || v->mv_size < ROW_BYTES)
		return -EBADMSG;
	*ret = (struct index_intent){
		.change = get_be64((const uint8_t *)key->mv_data + 1),
		.seq = get_le64(p),
		.time_ns = (int64_t)get_le64(p + 8),
		.error = (int)get_le32(p + 16),
		.body = p + ROW_BYTES,
		.n = v->mv_size - ROW_BYTES,
	};
	return 0;
}

/* ---- writing ---- */

static int put_row(struct index *ix, uint8_t kind, const struct index_intent *in)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	struct key k;
	uint8_t *p;
	int r;

	r = buf_reserve(&b, ROW_BYTES + in->n, &p);
	if (r < 0)
		return r;
	put_le64(p, in->seq);
	put_le64(p + 8, (uint64_t)in->time_ns);
	put_le32(p + 16, (uint32_t)in->error);
	put_le32(p + 20, 0);
	if (in->n)
		memcpy(p + ROW_BYTES, in->body, in->n);
	key_kind(&k, kind, in->change);
	return table_put(ix, TABLE_INTENT, &k, p, ROW_BYTES + in->n, 0);
}

static int get_counts(struct index *ix, uint64_t ret[2])
{
	struct key k;
	MDB_val v;
	int r;

	key_kind(&k, KIND_COUNTS, 0);
	r = table_get(ix, TABLE_INTENT, &k, &v);
	ret[0] = ret[1] = 0;
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (v.mv_size != COUNTS_BYTES)
		return -EBADMSG;
	ret[0] = get_le64(v.mv_data);
	ret[1] = get_le64((const uint8_t *)v.mv_data + 8);
	return 0;
}

static int put_counts(struct index *ix, const uint64_t counts[2])
{
	uint8_t row[COUNTS_BYTES];
	struct key k;

	put_le64(row, counts[0]);
	put_le64(row + 8, counts[1]);
	key_kind(&k, KIND_COUNTS, 0);
	return table_put(ix, TABLE_INTENT, &k, row, sizeof(row), 0);
}

static int number_taken(struct index *ix, uint64_t change)
{
	uint64_t counts[2];
	int r;

	r = get_counts(ix, counts);
	if (r < 0 || counts[0] >= change)
		return r;
	counts[0] = change;
	return put_counts(ix, counts);
}

/* The first row of a kind, -ENOENT. */
static int first_of(struct index *ix, uint8_t kind, struct key *ret)
{
	MDB_cursor *cursor;
	MDB_val key, v;
	int r;

	r = index_error(mdb_cursor_open(ix->writer.txn, ix->dbi[TABLE_INTENT], &cursor));
	if (r < 0)
		return r;
	key_kind(ret, kind, 0);
	key = key_val(ret);
	r = index_error(mdb_cursor_get(cursor, &key, &v, MDB_SET_RANGE));
	if (r >= 0 && (key.mv_size != 9 || *(const uint8_t *)key.mv_data != kind))
		r = -ENOENT;
	if (r >= 0)
		memcpy(ret->b, key.mv_data, key.mv_size);
	mdb_cursor_close(cursor);
	return r;
}

/* It waits no longer; with the last one goes what was kept for those after it. */
static int is_over(struct index *ix, uint64_t change)
{
	struct key k;
	int r;

	key_kind(&k, KIND_WAITS, change);
	r = table_del(ix, TABLE_INTENT, &k);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = first_of(ix, KIND_WAITS, &k);
	if (r != -ENOENT)
		return MIN(r, 0);
	while ((r = first_of(ix, KIND_END, &k)) >= 0) {
		r = table_del(ix, TABLE_INTENT, &k);
		if (r < 0)
			return r;
	}
	return r == -ENOENT ? 0 : r;
}

static int set_state(struct index *ix, uint64_t change, int error)
{
	_cleanup_(buf_done) struct buf body = BUF_INIT(0);
	struct index_intent in = {0};
	struct key k;
	MDB_val v, key;
	int r;

	key_kind(&k, KIND_WAITS, change);
	key = key_val(&k);
	r = table_get(ix, TABLE_INTENT, &k, &v);
	if (r >= 0)
		r = parse_row(&key, &v, &in);
	if (r >= 0)
		r = buf_add(&body, in.body, in.n);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	in.body = buf_data(&body);
	in.error = error;
	return put_row(ix, KIND_WAITS, &in);
}

static int conflict_changed(struct index *ix, const struct index_intent *in, bool open)
{
	uint64_t counts[2];
	struct key k;
	MDB_val v;
	bool was;
	int r;

	key_kind(&k, KIND_CONFLICT, in->change);
	r = table_get(ix, TABLE_INTENT, &k, &v);
	if (r < 0 && r != -ENOENT)
		return r;
	was = r >= 0;
	r = open ? put_row(ix, KIND_CONFLICT, in) : was ? table_del(ix, TABLE_INTENT, &k) : 0;
	if (r < 0 || was == open)
		return r;
	r = get_counts(ix, counts);
	if (r < 0)
		return r;
	counts[1] += open ? 1 : -(uint64_t)1;
	return put_counts(ix, counts);
}

static int decided(struct index *ix, const Limb__Decision *d)
{
	struct index_intent in = {0};

	if (text_parse_u64(d->key, UINT64_MAX, &in.change) < 0)
		return 0;
	if (strcmp(d->verb, "take") == 0)
		return conflict_changed(ix, &in, false);
	if (strcmp(d->verb, "drop") == 0)
		return is_over(ix, in.change);
	return strcmp(d->verb, "retry") == 0 ? set_state(ix, in.change, 0) : 0;
}

static int view_taken(struct index *ix, const Limb__Intent *in)
{
	uint8_t row[COUNTS_BYTES];
	struct key k;

	if (!in->view_number)
		return 0;
	put_le64(row, in->view_epoch);
	put_le64(row + 8, in->view_number);
	key_kind(&k, KIND_VIEW, 0);
	return table_put(ix, TABLE_INTENT, &k, row, sizeof(row), 0);
}

int intent_apply(struct index *ix, const struct log_record *rec, const Limb__Record *body)
{
	struct index_intent in = {
		.seq = rec->seq, .time_ns = rec->time_ns, .body = rec->body, .n = rec->n};
	int r;

	switch (body->body_case) {
	case LIMB__RECORD__BODY_INTENT:
		in.change = body->intent->change;
		r = put_row(ix, KIND_WAITS, &in);
		if (r >= 0)
			r = view_taken(ix, body->intent);
		return r < 0 ? r : number_taken(ix, in.change);
	case LIMB__RECORD__BODY_INTENT_END:
		in.change = body->intent_end->change;
		r = put_row(ix, KIND_END, &in);
		return r < 0 ? r : is_over(ix, in.change);
	case LIMB__RECORD__BODY_UNAPPLIED:
		return set_state(ix, body->unapplied->change, MAX(1, body->unapplied->error));
	case LIMB__RECORD__BODY_CONFLICT:
		in.change = body->conflict->change;
		return conflict_changed(ix, &in, true);
	case LIMB__RECORD__BODY_DECISION: return decided(ix, body->decision);
	default: return 0;
	}
}

/* ---- reading ---- */

static int each_row(struct index_txn *t, MDB_cursor *cursor, uint8_t kind, index_intent_fn each,
		    void *userdata)
{
	MDB_cursor_op op = MDB_SET_RANGE;
	struct index_intent in;
	MDB_val key, v;
	struct key k;
	int r;

	(void)t;
	key_kind(&k, kind, 0);
	key = key_val(&k);
	for (;; op = MDB_NEXT) {
		r = index_error(mdb_cursor_get(cursor, &key, &v, op));
		if (r < 0 || key.mv_size != 9 || *(const uint8_t *)key.mv_data != kind)
			return r == -ENOENT ? 0 : r;
		r = parse_row(&key, &v, &in);
		if (r >= 0)
			r = each(&in, userdata);
		if (r != 0)
			return r;
	}
}

static int rows_of(struct index_txn *t, uint8_t kind, index_intent_fn each, void *userdata)
{
	MDB_cursor *cursor;
	int r;

	r = index_error(mdb_cursor_open(t->txn, t->ix->dbi[TABLE_INTENT], &cursor));
	if (r < 0)
		return r;
	r = each_row(t, cursor, kind, each, userdata);
	mdb_cursor_close(cursor);
	return MIN(r, 0);
}

int index_intents(struct index_txn *t, index_intent_fn each, void *userdata)
{
	return rows_of(t, KIND_WAITS, each, userdata);
}

int index_intent_ends(struct index_txn *t, index_intent_fn each, void *userdata)
{
	return rows_of(t, KIND_END, each, userdata);
}

int index_conflicts(struct index_txn *t, index_intent_fn each, void *userdata)
{
	return rows_of(t, KIND_CONFLICT, each, userdata);
}

static uint64_t pair(struct index_txn *t, uint8_t kind, unsigned which)
{
	MDB_val key, v;
	struct key k;

	key_kind(&k, kind, 0);
	key = key_val(&k);
	if (mdb_get(t->txn, t->ix->dbi[TABLE_INTENT], &key, &v) != 0 || v.mv_size != COUNTS_BYTES)
		return 0;
	return get_le64((const uint8_t *)v.mv_data + (size_t)which * 8);
}

uint64_t index_last_change(struct index_txn *t)
{
	return pair(t, KIND_COUNTS, 0);
}

uint64_t index_conflict_count(struct index_txn *t)
{
	return pair(t, KIND_COUNTS, 1);
}

void index_view_place(struct index_txn *t, uint64_t *ret_epoch, uint64_t *ret_number)
{
	*ret_epoch = pair(t, KIND_VIEW, 0);
	*ret_number = pair(t, KIND_VIEW, 1);
}
