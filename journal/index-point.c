#include "journal/index-impl.h"

/*
 * point: seq -> at_seq u64, time i64, consistent u8, label length u8, kind length
 * u8, label, kind, job.  label: label -> at_seq u64; the newest of a name counts.
 */
enum { POINT_FIXED_BYTES = 19 };

#define TEXT_MAX 255

void key_text(struct key *k, const char *s)
{
	k->len = strlen(s);
	memcpy(k->b, s, k->len);
}

static bool text_fits(const char *s)
{
	return strnlen(s, TEXT_MAX + 1) <= TEXT_MAX;
}

int point_apply(struct index *ix, const struct log_record *rec, const Limb__Record *body)
{
	uint8_t row[POINT_FIXED_BYTES + 3 * TEXT_MAX], *p = row + POINT_FIXED_BYTES;
	const Limb__Point *in = body->point;
	const char *texts[3];
	struct key k;
	int r;

	if (body->body_case != LIMB__RECORD__BODY_POINT || !text_fits(in->label) ||
	    !text_fits(in->kind) || !text_fits(body->job))
		return 0;
	texts[0] = in->label;
	texts[1] = in->kind;
	texts[2] = body->job;
	put_le64(row, in->at_seq ? in->at_seq : rec->seq);
	put_le64(row + 8, (uint64_t)rec->time_ns);
	row[16] = in->consistent;
	row[17] = (uint8_t)strlen(in->label);
	row[18] = (uint8_t)strlen(in->kind);
	for (int i = 0; i < 3; i++) {
		memcpy(p, texts[i], strlen(texts[i]));
		p += strlen(texts[i]);
	}
	key_u64(&k, rec->seq);
	r = table_put(ix, TABLE_POINT, &k, row, (size_t)(p - row), 0);
	if (r < 0 || !in->label[0])
		return r;
	key_text(&k, in->label);
	return table_put(ix, TABLE_LABEL, &k, row, 8, 0);
}

int index_label(struct index_txn *t, const char *label, uint64_t *ret_at_seq)
{
	MDB_val key = {.mv_size = strlen(label), .mv_data = (void *)(uintptr_t)label}, v;
	int r;

	if (!label[0] || !text_fits(label))
		return -ENOENT;
	r = index_error(mdb_get(t->txn, t->ix->dbi[TABLE_LABEL], &key, &v));
	if (r < 0)
		return r;
	if (v.mv_size != 8)
		return -EBADMSG;
	*ret_at_seq = get_le64(v.mv_data);
	return 0;
}

static int parse_point(const MDB_val *key, const MDB_val *v, struct index_point *ret)
{
	const uint8_t *p = v->mv_data;
	const char *text = (const char *)p + POINT_FIXED_BYTES;

	if (key->mv_size != 8 || v->mv_size < POINT_FIXED_BYTES ||
	    v->mv_size < POINT_FIXED_BYTES + (size_t)p[17] + p[18])
		return -EBADMSG;
	*ret = (struct index_point){
		.seq = get_be64(key->mv_data),
		.at_seq = get_le64(p),
		.time_ns = (int64_t)get_le64(p + 8),
		.consistent = p[16],
		.label = text,
		.label_len = p[17],
		.kind = text + p[17],
		.kind_len = p[18],
		.job = text + p[17] + p[18],
		.job_len = v->mv_size - POINT_FIXED_BYTES - p[17] - p[18],
	};
	return 0;
}

static int each_point(MDB_cursor *cursor, uint64_t before, index_point_fn each, void *userdata)
{
	MDB_cursor_op op;
	struct index_point point;
	MDB_val key, v;
	struct key k;
	int r;

	/* The last key below `before`: one step back from the first at or above it. */
	key_u64(&k, before);
	key = key_val(&k);
	r = index_error(mdb_cursor_get(cursor, &key, &v, MDB_SET_RANGE));
	if (r < 0 && r != -ENOENT)
		return r;
	op = r == -ENOENT ? MDB_LAST : MDB_PREV;
	for (;; op = MDB_PREV) {
		r = index_error(mdb_cursor_get(cursor, &key, &v, op));
		if (r < 0)
			return r == -ENOENT ? 0 : r;
		r = parse_point(&key, &v, &point);
		if (r >= 0)
			r = each(&point, userdata);
		if (r != 0)
			return r;
	}
}

int index_points(struct index_txn *t, uint64_t before, index_point_fn each, void *userdata)
{
	MDB_cursor *cursor;
	int r;

	r = index_error(mdb_cursor_open(t->txn, t->ix->dbi[TABLE_POINT], &cursor));
	if (r < 0)
		return r;
	r = each_point(cursor, before, each, userdata);
	mdb_cursor_close(cursor);
	return MIN(r, 0);
}
