#include "journal/index-impl.h"

/*
 * Three kinds of rows in the table job, told apart by the first byte of the key:
 *
 *	id		start seq u64, end seq u64, start time i64, end time i64, length of
 *			the start's body u32, u32 0, body of the start, body of the end
 *	\1 key		id of the first job with this idempotency key
 *	\2 id		nothing: the job has no end yet
 *
 * The bodies are here, too, because the log is read from the head of a segment.
 */
enum { ROW_BYTES = 40, KIND_KEY = 1, KIND_OPEN = 2 };

static bool id_fits(const char *s)
{
	return s[0] > KIND_OPEN && strnlen(s, INDEX_KEY_MAX + 1) <= INDEX_KEY_MAX;
}

static void key_kind(struct key *k, uint8_t kind, const char *s)
{
	k->len = strlen(s) + 1;
	k->b[0] = kind;
	memcpy(k->b + 1, s, k->len - 1);
}

static int parse_row(const MDB_val *key, const MDB_val *v, struct index_job *ret)
{
	const uint8_t *p = v->mv_data;
	size_t n;

	if (v->mv_size < ROW_BYTES)
		return -EBADMSG;
	n = get_le32(p + 32);
	if (n > v->mv_size - ROW_BYTES)
		return -EBADMSG;
	*ret = (struct index_job){
		.id = key->mv_data,
		.id_len = key->mv_size,
		.start = {get_le64(p), (int64_t)get_le64(p + 16), p + ROW_BYTES, n},
		.end = {get_le64(p + 8), (int64_t)get_le64(p + 24), p + ROW_BYTES + n,
			v->mv_size - ROW_BYTES - n},
	};
	return 0;
}

/* ---- writing ---- */

static int put_row(struct index *ix, const struct key *k, const struct index_job *j)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	uint8_t *p;
	size_t n = ROW_BYTES + j->start.n + j->end.n;
	int r;

	r = buf_reserve(&b, n, &p);
	if (r < 0)
		return r;
	memset(p, 0, ROW_BYTES);
	put_le64(p, j->start.seq);
	put_le64(p + 8, j->end.seq);
	put_le64(p + 16, (uint64_t)j->start.time_ns);
	put_le64(p + 24, (uint64_t)j->end.time_ns);
	put_le32(p + 32, (uint32_t)j->start.n);
	if (j->start.n)
		memcpy(p + ROW_BYTES, j->start.body, j->start.n);
	if (j->end.n)
		memcpy(p + ROW_BYTES + j->start.n, j->end.body, j->end.n);
	return table_put(ix, TABLE_JOB, k, p, n, 0);
}

/* The first job with a key has it; what comes later was no job of its own. */
static int put_key(struct index *ix, const Limb__Record *body)
{
	const char *key = body->body_case == LIMB__RECORD__BODY_JOB_START ? body->job_start->key
									  : "";
	struct key k;
	MDB_val v;
	int r;

	if (!key[0] || strnlen(key, INDEX_KEY_MAX + 1) > INDEX_KEY_MAX)
		return 0;
	key_kind(&k, KIND_KEY, key);
	r = table_get(ix, TABLE_JOB, &k, &v);
	if (r != -ENOENT)
		return r;
	return table_put(ix, TABLE_JOB, &k, body->job, strlen(body->job), 0);
}

int job_apply(struct index *ix, const struct log_record *rec, const Limb__Record *body)
{
	struct index_job_record *to;
	struct index_job j = {0};
	struct key k, open;
	MDB_val v, key;
	int r;

	if (!id_fits(body->job))
		return 0;
	key_text(&k, body->job);
	key_kind(&open, KIND_OPEN, body->job);
	key = key_val(&k);
	r = table_get(ix, TABLE_JOB, &k, &v);
	if (r == 0)
		r = parse_row(&key, &v, &j);
	if (r < 0 && r != -ENOENT)
		return r;
	to = rec->type == RECORD_JOB_START ? &j.start : &j.end;
	*to = (struct index_job_record){rec->seq, rec->time_ns, rec->body, rec->body ? rec->n : 0};
	r = put_row(ix, &k, &j);
	if (r == 0 && rec->type == RECORD_JOB_START)
		r = put_key(ix, body);
	if (r < 0)
		return r;
	if (rec->type == RECORD_JOB_START && !j.end.seq)
		return table_put(ix, TABLE_JOB, &open, "", 1, 0);
	r = table_del(ix, TABLE_JOB, &open);
	return r == -ENOENT ? 0 : r;
}

/* ---- reading ---- */

static int get(struct index_txn *t, const struct key *k, MDB_val *ret)
{
	MDB_val key = key_val(k);

	return index_error(mdb_get(t->txn, t->ix->dbi[TABLE_JOB], &key, ret));
}

int index_job(struct index_txn *t, const char *job, struct index_job *ret)
{
	MDB_val v, key = {.mv_size = strlen(job), .mv_data = (void *)(uintptr_t)job};
	struct key k;
	int r;

	if (!id_fits(job))
		return -ENOENT;
	key_text(&k, job);
	r = get(t, &k, &v);
	return r < 0 ? r : parse_row(&key, &v, ret);
}

int index_job_by_key(struct index_txn *t, const char *key, const char **ret_id, size_t *ret_len)
{
	struct key k;
	MDB_val v;
	int r;

	if (!key[0] || strnlen(key, INDEX_KEY_MAX + 1) > INDEX_KEY_MAX)
		return -ENOENT;
	key_kind(&k, KIND_KEY, key);
	r = get(t, &k, &v);
	if (r < 0)
		return r;
	*ret_id = v.mv_data;
	*ret_len = v.mv_size;
	return 0;
}

int index_jobs(struct index_txn *t, index_job_fn each, void *userdata)
{
	struct index_job j;
	MDB_cursor *cursor;
	MDB_val key, v;
	int r;

	r = index_error(mdb_cursor_open(t->txn, t->ix->dbi[TABLE_JOB], &cursor));
	if (r < 0)
		return r;
	for (MDB_cursor_op op = MDB_LAST;; op = MDB_PREV) {
		r = index_error(mdb_cursor_get(cursor, &key, &v, op));
		if (r < 0 || key.mv_size == 0 || *(const char *)key.mv_data <= KIND_OPEN)
			break;
		r = parse_row(&key, &v, &j);
		if (r >= 0)
			r = each(&j, userdata);
		if (r != 0)
			break;
	}
	mdb_cursor_close(cursor);
	return r == -ENOENT ? 0 : MIN(r, 0);
}

static int each_open(struct index_txn *t, MDB_cursor *cursor, index_job_fn each, void *userdata)
{
	uint8_t kind = KIND_OPEN;
	MDB_val key = {.mv_size = 1, .mv_data = &kind}, v, id;
	MDB_cursor_op op = MDB_SET_RANGE;
	struct index_job j;
	int r;

	for (;; op = MDB_NEXT) {
		r = index_error(mdb_cursor_get(cursor, &key, &v, op));
		if (r < 0 || key.mv_size < 2 || *(const char *)key.mv_data != KIND_OPEN)
			return r;
		id = (MDB_val){.mv_size = key.mv_size - 1, .mv_data = (char *)key.mv_data + 1};
		r = index_error(mdb_get(t->txn, t->ix->dbi[TABLE_JOB], &id, &v));
		if (r >= 0)
			r = parse_row(&id, &v, &j);
		if (r >= 0)
			r = each(&j, userdata);
		if (r != 0)
			return r;
	}
}

int index_jobs_open(struct index_txn *t, index_job_fn each, void *userdata)
{
	MDB_cursor *cursor;
	int r;

	r = index_error(mdb_cursor_open(t->txn, t->ix->dbi[TABLE_JOB], &cursor));
	if (r < 0)
		return r;
	r = each_open(t, cursor, each, userdata);
	mdb_cursor_close(cursor);
	return r == -ENOENT ? 0 : MIN(r, 0);
}
