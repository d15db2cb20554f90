#include "journal/index-impl.h"

/* ---- tables ---- */

int index_error(int mdb_rc)
{
	switch (mdb_rc) {
	case MDB_SUCCESS: return 0;
	case MDB_NOTFOUND: return -ENOENT;
	case MDB_MAP_FULL: return -ENOSPC;
	case MDB_READERS_FULL: return -EAGAIN;
	case MDB_CORRUPTED:
	case MDB_PAGE_NOTFOUND:
	case MDB_INVALID:
	case MDB_VERSION_MISMATCH:
	case MDB_INCOMPATIBLE: return -EBADMSG;
	default: return mdb_rc > 0 ? -mdb_rc : -EIO;
	}
}

int table_get(struct index *ix, enum index_table t, const struct key *k, MDB_val *ret)
{
	MDB_val key = key_val(k);

	return index_error(mdb_get(ix->writer.txn, ix->dbi[t], &key, ret));
}

int table_put(struct index *ix, enum index_table t, const struct key *k, const void *p, size_t n,
	      unsigned flags)
{
	MDB_val key = key_val(k), v = {.mv_size = n, .mv_data = (void *)(uintptr_t)p};

	return index_error(mdb_put(ix->writer.txn, ix->dbi[t], &key, &v, flags));
}

int table_del(struct index *ix, enum index_table t, const struct key *k)
{
	MDB_val key = key_val(k);

	return index_error(mdb_del(ix->writer.txn, ix->dbi[t], &key, NULL));
}

int past_node_put(struct index *ix, uint64_t node, const void *row, size_t n, uint64_t died)
{
	struct node_row head;
	struct key k;
	int r;

	r = node_row_head(row, n, &head);
	if (r < 0 || head.born == died)
		return r;
	key_u64_pair(&k, node, died);
	return table_put(ix, TABLE_PAST_NODE, &k, row, n, 0);
}

int past_dirent_put(struct index *ix, uint64_t parent, const char *name, size_t len, uint64_t node,
		    uint64_t born, uint64_t died)
{
	uint8_t row[DIRENT_ROW_BYTES];
	struct key k;

	if (born == died)
		return 0;
	key_past_dirent(&k, parent, name, len, died);
	dirent_row_pack(row, node, born);
	return table_put(ix, TABLE_PAST_DIRENT, &k, row, sizeof(row), 0);
}

void counts_add(struct index *ix, uint64_t node, const struct node *n, int sign)
{
	struct index_counts *c = &ix->state.counts;
	uint64_t one = sign < 0 ? (uint64_t)-1 : 1;

	if (node == NODE_ROOT)
		return;
	switch (n->type) {
	case NODE_TYPE_FILE:
		c->files += one;
		c->bytes += sign < 0 ? -n->content.size_bytes : n->content.size_bytes;
		break;
	case NODE_TYPE_DIRECTORY: c->directories += one; break;
	case NODE_TYPE_SYMLINK: c->symlinks += one; break;
	default: c->others += one; break;
	}
}

/* ---- what a plan says, written ---- */

static bool node_changed(const struct plan_node *n)
{
	return n->put || n->links != n->old_links;
}

/* Rows are lent by pages that the first write may take away. */
static int keep_old_rows(struct index *ix)
{
	for (size_t i = 0; i < ix->plan.n_nodes; i++) {
		struct plan_node *n = &ix->plan.nodes[i];
		if (!n->old || !node_changed(n))
			continue;
		n->old = arena_copy(&ix->arena, n->old, n->old_len);
		if (!n->old)
			return -ENOMEM;
	}
	return 0;
}

static int write_name(struct index *ix, const struct plan_dirent *d)
{
	uint8_t none = 0;
	unsigned flags = 0;
	struct key k;

	key_name(&k, d->node, d->parent, d->name, d->len);
	if (d->node >= ix->names_next) {
		ix->names_next = d->node + 1;
		flags = MDB_APPEND;
	}
	return table_put(ix, TABLE_NAME, &k, &none, 0, flags);
}

static int write_dirent(struct index *ix, uint64_t seq, const struct plan_dirent *d)
{
	uint8_t row[DIRENT_ROW_BYTES];
	struct key k;
	int r;

	r = recent_add_entry(ix, d->parent, d->name, d->len);
	if (r < 0)
		return r;
	if (d->old_node) {
		r = past_dirent_put(ix, d->parent, d->name, d->len, d->old_node, d->old_born, seq);
		if (r < 0)
			return r;
		key_name(&k, d->old_node, d->parent, d->name, d->len);
		r = table_del(ix, TABLE_NAME, &k);
		if (r < 0)
			return r;
	}
	key_dirent(&k, d->parent, d->name, d->len);
	if (!d->node)
		return table_del(ix, TABLE_DIRENT, &k);
	dirent_row_pack(row, d->node, seq);
	r = table_put(ix, TABLE_DIRENT, &k, row, sizeof(row), 0);
	return r < 0 ? r : write_name(ix, d);
}

/* The node is gone: its row goes to the past. */
static int close_node(struct index *ix, uint64_t seq, const struct plan_node *n)
{
	struct index_node before;
	uint64_t born;
	struct key k;
	int r;

	if (!n->old)
		return 0;
	r = node_row_parse(n->old, n->old_len, &born, &before);
	if (r < 0)
		return r;
	r = past_node_put(ix, n->id, n->old, n->old_len, seq);
	if (r < 0)
		return r;
	counts_add(ix, n->id, &before.n, -1);
	key_u64(&k, n->id);
	return table_del(ix, TABLE_NODE, &k);
}

static int put_node_row(struct index *ix, uint64_t node)
{
	unsigned flags = 0;
	struct key k;

	key_u64(&k, node);
	if (node >= ix->state.next_used) {
		ix->state.next_used = node + 1;
		flags = MDB_APPEND;
	}
	return table_put(ix, TABLE_NODE, &k, buf_data(&ix->row), buf_len(&ix->row), flags);
}

static int write_node(struct index *ix, uint64_t seq, const struct plan_node *n)
{
	struct index_node before = {0};
	uint64_t born;
	int r;

	if (n->old) {
		r = node_row_parse(n->old, n->old_len, &born, &before);
		if (r < 0)
			return r;
		r = past_node_put(ix, n->id, n->old, n->old_len, seq);
		if (r < 0)
			return r;
		counts_add(ix, n->id, &before.n, -1);
	}
	buf_clear(&ix->row);
	if (n->put)
		r = node_row_pack(&ix->row, seq, seq, n->links, n->n);
	else
		r = node_row_pack(&ix->row, seq, before.version, n->links, &before.n);
	if (r < 0)
		return r;
	counts_add(ix, n->id, n->put ? n->n : &before.n, 1);
	return put_node_row(ix, n->id);
}

static bool is_dead(const struct plan_node *n)
{
	return n->links == 0 && n->id != NODE_ROOT;
}

static int write_nodes(struct index *ix, uint64_t seq)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < ix->plan.n_nodes; i++) {
		const struct plan_node *n = &ix->plan.nodes[i];
		if (!node_changed(n))
			continue;
		if (n->old || !is_dead(n))
			r = recent_add_node(ix, n->id);
		if (r >= 0 && !is_dead(n))
			r = write_node(ix, seq, n);
	}
	/* Last, since what lies beneath a dead directory may be in the plan too. */
	for (size_t i = 0; r >= 0 && i < ix->plan.n_nodes; i++) {
		const struct plan_node *n = &ix->plan.nodes[i];
		if (!node_changed(n) || !is_dead(n))
			continue;
		if (n->type == NODE_TYPE_DIRECTORY)
			r = prune(ix, n->id, seq);
		if (r >= 0)
			r = close_node(ix, seq, n);
		/* An id is used by being named, even by a node that never was. */
		if (n->id >= ix->state.next_used)
			ix->state.next_used = n->id + 1;
	}
	return r;
}

static int write_plan(struct index *ix, uint64_t seq)
{
	int r;

	r = keep_old_rows(ix);
	for (size_t i = 0; r >= 0 && i < ix->plan.n_dirents; i++) {
		const struct plan_dirent *d = &ix->plan.dirents[i];
		if (d->node != d->old_node)
			r = write_dirent(ix, seq, d);
	}
	if (r >= 0)
		r = write_nodes(ix, seq);
	return r < 0 ? r : recent_write(ix, seq);
}

/* ---- records ---- */

static int flush_number(struct index *ix)
{
	uint8_t row[8];
	struct key k;

	if (!ix->number_changed)
		return 0;
	ix->number_changed = false;
	key_u64(&k, ix->number_of);
	put_le64(row, ix->highest_number);
	return table_put(ix, TABLE_INCARNATION, &k, row, sizeof(row), 0);
}

/* The highest number of one incarnation, the one that speaks, is kept at hand. */
static int take_number(struct index *ix, uint64_t incarnation, uint64_t number)
{
	int r;

	if (incarnation == 0 || number == 0)
		return 0;
	if (incarnation != ix->number_of) {
		r = flush_number(ix);
		if (r < 0)
			return r;
		ix->highest_number = index_number(&ix->writer, incarnation);
		ix->number_of = incarnation;
	}
	if (number > ix->highest_number) {
		ix->highest_number = number;
		ix->number_changed = true;
	}
	return 0;
}

static void advance(struct index *ix, uint64_t seq, int64_t time_ns, const uint8_t *chain)
{
	ix->state.seq = seq;
	ix->state.time_ns = time_ns;
	ix->state.chain_known = chain != NULL;
	if (chain)
		memcpy(ix->state.chain, chain, SHA256_BYTES);
	ix->touched = true;
}

void state_advance(struct index *ix, const struct log_record *rec)
{
	advance(ix, rec->seq, rec->time_ns, rec->chain);
}

int index_check_change(struct index *ix, const struct change *c, const char **ret_why)
{
	const char *why = NULL;
	unsigned skipped;
	int r;

	if (!ix->writer.txn)
		return -EBADFD;
	arena_reset(&ix->arena);
	ix->arena.limit = 0;
	r = change_judge(c, &why);
	if (r >= 0)
		r = plan_change(ix, c, false, &skipped, &why);
	if (r == -EINVAL)
		*ret_why = why;
	return r;
}

/* A record is half written: nothing of this transaction may become visible. */
static int spoil(struct index *ix, int r)
{
	ix->spoilt = true;
	return r == -EINVAL || r == -ENOENT ? -EBADMSG : r;
}

/* c has been judged by itself. */
static int apply_change(struct index *ix, uint64_t seq, int64_t time_ns, const uint8_t *chain,
			const struct change *c)
{
	bool lenient = ix->replaying && ix->state.purged;
	unsigned skipped;
	const char *why;
	int r;

	r = plan_change(ix, c, lenient, &skipped, &why);
	if (r < 0)
		return r;
	r = write_plan(ix, seq);
	if (r >= 0)
		r = take_number(ix, c->incarnation, c->number);
	if (r < 0)
		return spoil(ix, r);
	ix->state.refused += skipped > 0;
	advance(ix, seq, time_ns, chain);
	return 0;
}

int index_apply_change(struct index *ix, uint64_t seq, int64_t time_ns, const struct change *c)
{
	int r;

	if (!ix->writer.txn)
		return -EBADFD;
	if (seq <= ix->state.seq)
		return -EINVAL;
	arena_reset(&ix->arena);
	ix->arena.limit = 0;
	r = change_judge(c, NULL);
	return r < 0 ? r : apply_change(ix, seq, time_ns, NULL, c);
}

static int put_meta(struct index *ix, const char *name, const void *p, size_t n)
{
	MDB_val key = {.mv_size = strlen(name), .mv_data = (void *)(uintptr_t)name};
	MDB_val v = {.mv_size = n, .mv_data = (void *)(uintptr_t)p};

	return index_error(mdb_put(ix->writer.txn, ix->dbi[TABLE_META], &key, &v, 0));
}

static int incarnation_apply(struct index *ix, const struct log_record *rec,
			     const Limb__Record *body)
{
	const Limb__Incarnation *in = body->incarnation_start;

	if (body->body_case != LIMB__RECORD__BODY_INCARNATION_START)
		return 0;
	ix->state.granted_end = MAX(ix->state.granted_end, in->node_grant_end);
	if (body->incarnation < ix->state.incarnation)
		return 0;
	ix->state.incarnation = body->incarnation;
	return put_meta(ix, "incarnation_body", rec->body, rec->n);
}

static int apply_body(struct index *ix, const struct log_record *rec, const Limb__Record *body)
{
	struct change c;
	int r;

	switch (rec->type) {
	case RECORD_CHANGE:
		r = body_to_change(&ix->arena, body, &c);
		if (r < 0)
			return r == -EBADMSG ? -EINVAL : r;
		ix->arena.limit = 0;
		return apply_change(ix, rec->seq, rec->time_ns, rec->chain, &c);
	case RECORD_INCARNATION: r = incarnation_apply(ix, rec, body); break;
	case RECORD_LEASE:
		r = incarnation_apply(ix, rec, body);
		if (r >= 0 && body->body_case == LIMB__RECORD__BODY_LEASE)
			ix->state.incarnation =
				MAX(ix->state.incarnation, body->lease->to_incarnation);
		break;
	case RECORD_POINT: r = point_apply(ix, rec, body); break;
	case RECORD_INTENT:
	case RECORD_INTENT_END:
	case RECORD_UNAPPLIED:
	case RECORD_CONFLICT:
	case RECORD_DECISION: r = intent_apply(ix, rec, body); break;
	case RECORD_JOB_START:
	case RECORD_JOB_END: r = job_apply(ix, rec, body); break;
	default: r = 0;
	}
	if (r >= 0)
		r = take_number(ix, body->incarnation, body->number);
	if (r < 0)
		return spoil(ix, r);
	state_advance(ix, rec);
	return 0;
}

int index_apply(struct index *ix, const struct log_record *rec)
{
	Limb__Record *body;
	int r;

	if (!ix->writer.txn)
		return -EBADFD;
	if (rec->seq <= ix->state.seq)
		return -EINVAL;
	if (!rec->body) {
		ix->state.purged |= rec->type == RECORD_CHANGE;
		state_advance(ix, rec);
		return 0;
	}
	arena_reset(&ix->arena);
	r = body_unpack(&ix->arena, rec->body, rec->n, &body);
	if (r == -EBADMSG)
		return -EINVAL;
	return r < 0 ? r : apply_body(ix, rec, body);
}

/* ---- transactions ---- */

int index_begin(struct index *ix)
{
	int r;

	if (ix->mode != INDEX_WRITE || ix->writer.txn)
		return -EBADFD;
	r = index_error(mdb_txn_begin(ix->env, NULL, 0, &ix->writer.txn));
	if (r < 0) {
		ix->writer.txn = NULL;
		return r;
	}
	r = get_state(ix, ix->writer.txn, &ix->state);
	if (r < 0) {
		index_abort(ix);
		return r;
	}
	ix->names_next = ix->state.next_used;
	ix->number_of = 0;
	ix->number_changed = false;
	ix->touched = ix->spoilt = false;
	ix->n_recent = 0;
	buf_clear(&ix->recent);
	return 0;
}

static int write_state(struct index *ix)
{
	uint8_t row[STATE_ROW_BYTES];
	int r;

	r = flush_number(ix);
	if (r >= 0)
		r = recent_trim(ix);
	if (r < 0)
		return r;
	state_row_pack(row, &ix->state);
	return put_meta(ix, "state", row, sizeof(row));
}

int index_commit(struct index *ix)
{
	MDB_txn *txn;
	int r;

	if (!ix->writer.txn)
		return -EBADFD;
	if (!ix->touched) {
		index_abort(ix);
		return 0;
	}
	r = ix->spoilt ? -EIO : write_state(ix);
	if (r < 0) {
		index_abort(ix);
		return r;
	}
	txn_close_cursors(&ix->writer);
	txn = ix->writer.txn;
	ix->writer.txn = NULL;
	r = index_error(mdb_txn_commit(txn));
	if (r < 0)
		ix->failed = true;
	return r;
}

void index_abort(struct index *ix)
{
	if (!ix->writer.txn)
		return;
	txn_close_cursors(&ix->writer);
	mdb_txn_abort(ix->writer.txn);
	ix->writer.txn = NULL;
}
