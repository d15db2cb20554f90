#include "brain/difference.h"

#include "wire/delta.h"

enum { SAMPLES = 8, SAMPLE_BLOCKS = 3 };

struct piece {
	uint8_t hash[SHA256_BYTES];
	uint64_t offset, len;
};

struct pieces {
	struct piece *v;
	size_t n, cap;
};

struct op {
	uint64_t from, bytes; /* a copy; bytes 0: the next `len` of the literals */
	size_t len;
};

struct difference {
	struct content_ref old, new;
	content_fetch_fn fetch;
	void *userdata;
	struct pieces have, want; /* have: by hash */
	size_t at;		  /* in want */
	uint64_t old_at;	  /* where the last copy ended */

	struct buf ops, literals;
	uint64_t run_from; /* of the part of `old` that a delta is against */
};

static int add_piece(const uint8_t *hash, uint64_t offset, uint64_t len, void *userdata)
{
	struct pieces *p = userdata;

	if (!hash)
		return -EOPNOTSUPP;
	if (p->n == p->cap) {
		size_t cap = p->cap ? p->cap * 2 : 64;
		struct piece *v = reallocarray(p->v, cap, sizeof(*v));

		if (!v)
			return -ENOMEM;
		p->v = v;
		p->cap = cap;
	}
	memcpy(p->v[p->n].hash, hash, SHA256_BYTES);
	p->v[p->n].offset = offset;
	p->v[p->n++].len = len;
	return 0;
}

static int by_hash(const void *a, const void *b)
{
	return memcmp(a, b, SHA256_BYTES);
}

static bool is_worth_it(const struct content_ref *ref)
{
	return !ref->holes && ref->size_bytes >= DELTA_PULL_MIN_BYTES &&
	       ref->size_bytes <= DIFFERENCE_MAX_BYTES;
}

int difference_new(const struct content_ref *old, const struct content_ref *new,
		   content_fetch_fn fetch, void *userdata, struct difference **ret)
{
	_cleanup_(difference_freep) struct difference *d = NULL;
	int r;

	if (!is_worth_it(old) || !is_worth_it(new))
		return -EOPNOTSUPP;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->old = *old;
	d->new = *new;
	d->fetch = fetch;
	d->userdata = userdata;
	r = content_walk(old, fetch, userdata, add_piece, &d->have);
	if (r == 0)
		r = content_walk(new, fetch, userdata, add_piece, &d->want);
	if (r < 0)
		return r;
	qsort(d->have.v, d->have.n, sizeof(*d->have.v), by_hash);
	*ret = take_ptr(&d);
	return 0;
}

void difference_free(struct difference *d)
{
	if (!d)
		return;
	free(d->have.v);
	free(d->want.v);
	buf_done(&d->ops);
	buf_done(&d->literals);
	free(d);
}

static const struct piece *find(const struct difference *d, const struct piece *p)
{
	return bsearch(p->hash, d->have.v, d->have.n, sizeof(*p), by_hash);
}

static int add_op(struct difference *d, uint64_t from, uint64_t bytes, size_t len)
{
	struct op op = {.from = from, .bytes = bytes, .len = len};

	return buf_add(&d->ops, &op, sizeof(op));
}

static int add_literal(struct difference *d, const void *p, size_t n)
{
	int r = buf_add(&d->literals, p, n);

	for (size_t some; r == 0 && n > 0; n -= some) {
		some = MIN(n, (size_t)DIFFERENCE_LITERAL_BYTES);
		r = add_op(d, 0, 0, some);
	}
	return r;
}

static int add_copy(struct difference *d, uint64_t from, uint64_t bytes)
{
	int r = 0;

	for (uint64_t some; r == 0 && bytes > 0; from += some, bytes -= some) {
		some = MIN(bytes, (uint64_t)DIFFERENCE_COPY_BYTES);
		r = add_op(d, from, some, 0);
	}
	return r;
}

/* ---- between equal chunks ---- */

static int take(uint64_t from, uint64_t bytes, const void *literal, size_t n, void *userdata)
{
	struct difference *d = userdata;

	return literal ? add_literal(d, literal, n) : add_copy(d, d->run_from + from, bytes);
}

/* librsync is slow where nothing matches. */
static bool is_alike(struct delta_sig *sig, const struct buf *new, uint64_t old_bytes)
{
	size_t want = SAMPLE_BLOCKS * delta_block_bytes(old_bytes), n = buf_len(new);

	if (n < SAMPLES * want)
		return true;
	for (size_t i = 0; i < SAMPLES; i++)
		if (delta_sig_matches(sig, buf_data(new) + (n - want) / (SAMPLES - 1) * i, want))
			return true;
	return false;
}

/* `new` against the part of the old one where it should be. */
static int compare(struct difference *d, const struct buf *new, uint64_t from, uint64_t bytes)
{
	_cleanup_(buf_done) struct buf old = {0};
	_cleanup_(buf_done) struct buf sums = {0};
	_cleanup_(sig_maker_freep) struct sig_maker *m = NULL;
	_cleanup_(delta_sig_freep) struct delta_sig *sig = NULL;
	_cleanup_(delta_freep) struct delta *delta = NULL;
	int r;

	r = content_read(&d->old, from, bytes, d->fetch, d->userdata, &old);
	if (r == 0)
		r = sig_maker_new(bytes, &m);
	if (r == 0)
		r = sig_maker_add(m, buf_data(&old), buf_len(&old));
	if (r == 0)
		r = sig_maker_end(m, &sums);
	if (r == 0)
		r = delta_sig_load(buf_data(&sums), buf_len(&sums), bytes, &sig);
	d->run_from = from;
	if (r == 0 && !is_alike(sig, new, bytes))
		return add_literal(d, buf_data(new), buf_len(new));
	if (r == 0)
		r = delta_new(sig, take, d, &delta);
	if (r == 0)
		r = delta_add(delta, buf_data(new), buf_len(new));
	return r == 0 ? delta_end(delta) : r;
}

/* All chunks from here on that the old content does not have, and bounded. */
static int next_run(struct difference *d)
{
	_cleanup_(buf_done) struct buf new = {0};
	const struct piece *first = &d->want.v[d->at], *next = NULL;
	uint64_t bytes = 0, until;
	int r;

	for (; d->at < d->want.n && bytes < DIFFERENCE_RUN_BYTES; d->at++) {
		next = find(d, &d->want.v[d->at]);
		if (next)
			break;
		bytes += d->want.v[d->at].len;
	}
	r = content_read(&d->new, first->offset, bytes, d->fetch, d->userdata, &new);
	if (r < 0)
		return r;
	/* What is there between the neighbours, and not much more than this. */
	until = next ? next->offset : d->old.size_bytes;
	until = MIN(until, d->old_at + 2 * bytes);
	if (d->old_at >= until)
		return add_literal(d, buf_data(&new), buf_len(&new));
	r = compare(d, &new, d->old_at, until - d->old_at);
	if (!next)
		d->old_at = MIN(d->old_at + bytes, d->old.size_bytes);
	return r;
}

static int next_copy(struct difference *d, const struct piece *p)
{
	uint64_t from = p->offset, bytes = 0;

	while (p && p->offset == from + bytes && bytes < DIFFERENCE_COPY_BYTES) {
		bytes += p->len;
		p = ++d->at < d->want.n ? find(d, &d->want.v[d->at]) : NULL;
	}
	d->old_at = from + bytes;
	return add_copy(d, from, bytes);
}

int difference_next(struct difference *d, uint64_t *ret_copy_from, uint64_t *ret_copy_bytes,
		    struct buf *literal)
{
	struct op op;
	int r = 0;

	while (buf_len(&d->ops) == 0) {
		const struct piece *p;

		if (d->at == d->want.n)
			return 0;
		p = find(d, &d->want.v[d->at]);
		r = p ? next_copy(d, p) : next_run(d);
		if (r < 0)
			return r;
	}
	memcpy(&op, buf_data(&d->ops), sizeof(op));
	if (!op.bytes)
		r = buf_add(literal, buf_data(&d->literals), op.len);
	if (r < 0)
		return r;
	buf_consume(&d->ops, sizeof(op));
	buf_consume(&d->literals, op.len);
	*ret_copy_from = op.from;
	*ret_copy_bytes = op.bytes;
	return 1;
}
