#include "journal/index-impl.h"

/*
 * One row a record: seq -> entries end to end, each either
 *	1, node u64		or	2, parent u64, length u8, name
 */
enum { RECENT_NODE = 1, RECENT_ENTRY = 2 };

static bool is_wanted(struct index *ix)
{
	return ix->n_recent++ < RECENT_ENTRIES_MAX;
}

int recent_add_node(struct index *ix, uint64_t node)
{
	uint8_t *p;
	int r;

	if (!is_wanted(ix))
		return 0;
	r = buf_reserve(&ix->recent, 9, &p);
	if (r < 0)
		return r;
	p[0] = RECENT_NODE;
	put_le64(p + 1, node);
	buf_commit(&ix->recent, 9);
	return 0;
}

int recent_add_entry(struct index *ix, uint64_t parent, const char *name, size_t len)
{
	uint8_t *p;
	int r;

	if (!is_wanted(ix))
		return 0;
	r = buf_reserve(&ix->recent, 10 + len, &p);
	if (r < 0)
		return r;
	p[0] = RECENT_ENTRY;
	put_le64(p + 1, parent);
	p[9] = (uint8_t)len;
	memcpy(p + 10, name, len);
	buf_commit(&ix->recent, 10 + len);
	return 0;
}

static bool is_too_old(const struct index *ix, uint64_t seq)
{
	return ix->replaying && seq + INDEX_RECENT <= ix->replay_last;
}

int recent_write(struct index *ix, uint64_t seq)
{
	size_t n = ix->n_recent;
	struct key k;
	int r = 0;

	if (n > RECENT_ENTRIES_MAX || (n > 0 && is_too_old(ix, seq))) {
		ix->state.recent_floor = seq;
	} else if (n > 0) {
		key_u64(&k, seq);
		r = table_put(ix, TABLE_RECENT, &k, buf_data(&ix->recent), buf_len(&ix->recent),
			      MDB_APPEND);
	}
	buf_clear(&ix->recent);
	ix->n_recent = 0;
	return r;
}

int recent_trim(struct index *ix)
{
	struct index_state *s = &ix->state;
	MDB_cursor *cursor;
	MDB_val key, v;
	int r;

	if (s->seq > INDEX_RECENT)
		s->recent_floor = MAX(s->recent_floor, s->seq - INDEX_RECENT);
	r = txn_cursor(&ix->writer, TABLE_RECENT, &cursor);
	while (r >= 0) {
		r = index_error(mdb_cursor_get(cursor, &key, &v, MDB_FIRST));
		if (r < 0)
			break;
		if (key.mv_size != 8)
			return -EBADMSG;
		if (get_be64(key.mv_data) > s->recent_floor)
			return 0;
		r = index_error(mdb_cursor_del(cursor, 0));
	}
	return r == -ENOENT ? 0 : r;
}

static int give_row(uint64_t seq, const MDB_val *v, index_recent_fn each, void *userdata)
{
	const uint8_t *p = v->mv_data, *end = p + v->mv_size;
	int r;

	while (p < end) {
		struct index_recent e = {.seq = seq};
		if (p[0] == RECENT_NODE && end - p >= 9) {
			e.node = get_le64(p + 1);
			p += 9;
		} else if (p[0] == RECENT_ENTRY && end - p >= 10 && end - p - 10 >= p[9]) {
			e.parent = get_le64(p + 1);
			e.name = (const char *)p + 10;
			e.name_len = p[9];
			p += 10 + p[9];
		} else {
			return -EBADMSG;
		}
		r = each(&e, userdata);
		if (r != 0)
			return r;
	}
	return 0;
}

/* Rows from the cursor's place on: as each() says, or 0 at the end. */
static int give_rows(MDB_cursor *cursor, uint64_t first, index_recent_fn each, void *userdata)
{
	MDB_cursor_op op = MDB_SET_RANGE;
	MDB_val key, v;
	struct key k;
	int r;

	key_u64(&k, first);
	key = key_val(&k);
	for (;;) {
		r = index_error(mdb_cursor_get(cursor, &key, &v, op));
		if (r < 0)
			return r == -ENOENT ? 0 : r;
		if (key.mv_size != 8)
			return -EBADMSG;
		r = give_row(get_be64(key.mv_data), &v, each, userdata);
		if (r != 0)
			return r;
		op = MDB_NEXT;
	}
}

int index_recent(struct index_txn *t, uint64_t since, index_recent_fn each, void *userdata)
{
	const struct index_state *s;
	MDB_cursor *cursor;
	int r;

	r = txn_state(t, &s);
	if (r < 0)
		return r;
	if (since < s->recent_floor)
		return -EOVERFLOW;
	if (since >= s->seq)
		return 0;
	r = index_error(mdb_cursor_open(t->txn, t->ix->dbi[TABLE_RECENT], &cursor));
	if (r < 0)
		return r;
	r = give_rows(cursor, since + 1, each, userdata);
	mdb_cursor_close(cursor);
	return MIN(r, 0);
}
