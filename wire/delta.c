#include "wire/delta.h"

#include <librsync.h>

enum {
	BLOCK_MIN = 1 << 10,
	BLOCK_MAX = 128 << 10,
	BLOCK_STEP = 128,
	STRONG_BYTES = 16,
	SIG_HEADER = 12,
	OUT_BYTES = 64 << 10,
	SEGMENT_BYTES = 8 << 20,
	DELTA_MAGIC = RS_DELTA_MAGIC,
};

/* Commands of a delta. */
enum {
	OP_END = 0,
	OP_LITERAL_MAX = 64, /* 1 to 64: so many bytes follow */
	OP_LITERAL_N1 = 65,  /* a length of 1, 2, 4 or 8 bytes, then those */
	OP_COPY_N1_N1 = 69,  /* where, how many: each of 1, 2, 4 or 8 bytes */
	OP_COPY_LAST = 84,
};

size_t delta_block_bytes(uint64_t size)
{
	size_t block = BLOCK_MIN;

	while (block < BLOCK_MAX && (uint64_t)block * block < size)
		block += BLOCK_STEP;
	return block;
}

static uint64_t sig_bytes(uint64_t size)
{
	size_t block = delta_block_bytes(size);

	return SIG_HEADER + (size + block - 1) / block * (4 + STRONG_BYTES);
}

static int rs_error(rs_result rc)
{
	return rc == RS_MEM_ERROR ? -ENOMEM : -EBADMSG;
}

/* ---- making a signature ---- */

struct sig_maker {
	rs_job_t *job;
	uint64_t size, got;
	struct buf out;
};

int sig_maker_new(uint64_t size, struct sig_maker **ret)
{
	_cleanup_(sig_maker_freep) struct sig_maker *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	rs_trace_set_level(RS_LOG_EMERG);
	m->size = size;
	buf_init(&m->out, DELTA_SIG_MAX);
	m->job = rs_sig_begin(delta_block_bytes(size), STRONG_BYTES, RS_RK_BLAKE2_SIG_MAGIC);
	if (!m->job)
		return -ENOMEM;
	*ret = take_ptr(&m);
	return 0;
}

void sig_maker_free(struct sig_maker *m)
{
	if (!m)
		return;
	if (m->job)
		(void)rs_job_free(m->job);
	buf_done(&m->out);
	free(m);
}

static int sig_run(struct sig_maker *m, const void *data, size_t n, bool eof)
{
	rs_buffers_t b = {.next_in = (char *)data, .avail_in = n, .eof_in = eof};
	uint8_t *p;
	rs_result rc;
	int r;

	do {
		r = buf_reserve(&m->out, 4096, &p);
		if (r < 0)
			return r;
		b.next_out = (char *)p;
		b.avail_out = 4096;
		rc = rs_job_iter(m->job, &b);
		buf_commit(&m->out, 4096 - b.avail_out);
		if (rc != RS_DONE && rc != RS_BLOCKED)
			return rs_error(rc);
		if (rc == RS_BLOCKED && eof && b.avail_out == 4096)
			return -EBADMSG; /* would be for ever */
	} while (rc == RS_BLOCKED && (b.avail_in > 0 || b.avail_out == 0 || eof));
	return 0;
}

int sig_maker_add(struct sig_maker *m, const void *data, size_t n)
{
	m->got += n;
	if (m->got > m->size)
		return -EBADMSG;
	return n ? sig_run(m, data, n, false) : 0;
}

int sig_maker_end(struct sig_maker *m, struct buf *out)
{
	int r;

	r = sig_run(m, NULL, 0, true);
	if (r < 0)
		return r;
	if (m->got != m->size || buf_len(&m->out) != sig_bytes(m->size))
		return -EBADMSG;
	return buf_add(out, buf_data(&m->out), buf_len(&m->out));
}

/* ---- a signature in memory ---- */

struct delta_sig {
	rs_signature_t *sums;
	size_t block;
};

static uint32_t get_be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

int delta_sig_load(const void *data, size_t n, uint64_t size, struct delta_sig **ret)
{
	_cleanup_(delta_sig_freep) struct delta_sig *sig = NULL;
	rs_buffers_t b = {.next_in = (char *)data, .avail_in = n, .eof_in = 1};
	const uint8_t *p = data;
	rs_job_t *job;
	rs_result rc;

	/* librsync believes what the header says. */
	if (size > DELTA_MAX_BYTES || n != sig_bytes(size) ||
	    get_be32(p) != RS_RK_BLAKE2_SIG_MAGIC || get_be32(p + 4) != delta_block_bytes(size) ||
	    get_be32(p + 8) != STRONG_BYTES)
		return -EBADMSG;
	rs_trace_set_level(RS_LOG_EMERG);
	sig = calloc(1, sizeof(*sig));
	if (!sig)
		return -ENOMEM;
	job = rs_loadsig_begin(&sig->sums);
	if (!job)
		return -ENOMEM;
	sig->block = delta_block_bytes(size);
	rc = rs_job_iter(job, &b);
	(void)rs_job_free(job);
	if (rc == RS_DONE)
		rc = rs_build_hash_table(sig->sums);
	if (rc != RS_DONE)
		return rs_error(rc);
	*ret = take_ptr(&sig);
	return 0;
}

void delta_sig_free(struct delta_sig *sig)
{
	if (!sig)
		return;
	if (sig->sums)
		rs_free_sumset(sig->sums);
	free(sig);
}

static int note_copy(uint64_t copy_from, uint64_t copy_bytes, const void *literal, size_t n,
		     void *userdata)
{
	(void)copy_from;
	(void)copy_bytes;
	(void)n;
	if (!literal)
		*(bool *)userdata = true;
	return 0;
}

bool delta_sig_matches(struct delta_sig *sig, const void *data, size_t n)
{
	_cleanup_(delta_freep) struct delta *d = NULL;
	bool found = false;

	return delta_new(sig, note_copy, &found, &d) == 0 && delta_add(d, data, n) == 0 &&
	       delta_end(d) == 0 && found;
}

/* ---- a delta ---- */

/* librsync says nothing of a copy before it ends, so the new content is taken in segments, a
 * job each.  What a segment ends with and is not a copy may begin a block: it begins the next. */
struct delta {
	struct delta_sig *sig;
	rs_job_t *job;
	uint64_t fed;	 /* to this job */
	struct buf tail; /* the last literals: no more than a block of them */
	delta_sink_fn sink;
	void *userdata;
	bool begun, ended;   /* its magic, its last command */
	uint8_t command[17]; /* the one that is being read */
	unsigned have;
	uint64_t literal; /* bytes of it that are still to come */
	uint64_t copy_from, copy_bytes;
	uint8_t out[OUT_BYTES];
};

int delta_new(struct delta_sig *sig, delta_sink_fn sink, void *userdata, struct delta **ret)
{
	struct delta *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->sig = sig;
	d->sink = sink;
	d->userdata = userdata;
	d->job = rs_delta_begin(sig->sums);
	if (!d->job) {
		free(d);
		return -ENOMEM;
	}
	*ret = d;
	return 0;
}

void delta_free(struct delta *d)
{
	if (!d)
		return;
	if (d->job)
		(void)rs_job_free(d->job);
	buf_done(&d->tail);
	free(d);
}

/* All of the tail but `keep` bytes. */
static int flush_tail(struct delta *d, size_t keep)
{
	size_t n = buf_len(&d->tail);
	int r;

	if (n <= keep)
		return 0;
	r = d->sink(0, 0, buf_data(&d->tail), n - keep, d->userdata);
	buf_consume(&d->tail, n - keep);
	return r;
}

static int flush_copy(struct delta *d)
{
	uint64_t n = d->copy_bytes;

	d->copy_bytes = 0;
	return n ? d->sink(d->copy_from, n, NULL, 0, d->userdata) : 0;
}

static int add_copy(struct delta *d, uint64_t from, uint64_t n)
{
	int r;

	if (n == 0)
		return -EBADMSG;
	if (d->copy_bytes && d->copy_from + d->copy_bytes == from) {
		d->copy_bytes += n;
		return 0;
	}
	r = flush_copy(d);
	if (r == 0)
		r = flush_tail(d, 0);
	d->copy_from = from;
	d->copy_bytes = n;
	return r;
}

static uint64_t get_number(const uint8_t *p, unsigned n)
{
	uint64_t v = 0;

	while (n--)
		v = v << 8 | *p++;
	return v;
}

/* Bytes behind a command's first; negative: there is none such. */
static int parameter_bytes(uint8_t op)
{
	if (op <= OP_LITERAL_MAX)
		return 0;
	if (op < OP_COPY_N1_N1)
		return 1 << (op - OP_LITERAL_N1);
	if (op <= OP_COPY_LAST)
		return (1 << (op - OP_COPY_N1_N1) / 4) + (1 << (op - OP_COPY_N1_N1) % 4);
	return -EBADMSG;
}

static int run_command(struct delta *d)
{
	uint8_t op = d->command[0];
	unsigned where;

	if (op == OP_END) {
		d->ended = true;
		return 0;
	}
	if (op < OP_COPY_N1_N1) {
		d->literal = op <= OP_LITERAL_MAX ? op : get_number(d->command + 1, d->have - 1);
		return d->literal ? 0 : -EBADMSG;
	}
	where = 1u << (op - OP_COPY_N1_N1) / 4;
	return add_copy(d, get_number(d->command + 1, where),
			get_number(d->command + 1 + where, d->have - 1 - where));
}

static int take_byte(struct delta *d, uint8_t byte)
{
	int n;

	d->command[d->have++] = byte;
	if (!d->begun) {
		if (d->have < 4)
			return 0;
		d->begun = true;
		d->have = 0;
		return get_be32(d->command) == DELTA_MAGIC ? 0 : -EBADMSG;
	}
	n = parameter_bytes(d->command[0]);
	if (n >= 0 && d->have == 1 + (unsigned)n) {
		n = run_command(d);
		d->have = 0;
	}
	return n < 0 ? n : 0;
}

static int take_out(struct delta *d, const uint8_t *p, size_t n)
{
	int r = 0;

	while (n > 0 && r == 0) {
		size_t some = (size_t)MIN(d->literal, (uint64_t)n);

		if (d->ended)
			return -EBADMSG;
		if (some == 0) {
			r = take_byte(d, *p++);
			n--;
			continue;
		}
		r = flush_copy(d);
		if (r == 0)
			r = buf_add(&d->tail, p, some);
		if (r == 0)
			r = flush_tail(d, d->sig->block);
		d->literal -= some;
		p += some;
		n -= some;
	}
	return r;
}

static int delta_run(struct delta *d, const void *data, size_t n, bool eof)
{
	rs_buffers_t b = {.next_in = (char *)data, .avail_in = n, .eof_in = eof};
	rs_result rc;
	int r;

	do {
		b.next_out = (char *)d->out;
		b.avail_out = sizeof(d->out);
		rc = rs_job_iter(d->job, &b);
		if (rc != RS_DONE && rc != RS_BLOCKED)
			return rs_error(rc);
		if (rc == RS_BLOCKED && eof && b.avail_out == sizeof(d->out))
			return -EBADMSG; /* would be for ever */
		r = take_out(d, d->out, sizeof(d->out) - b.avail_out);
		if (r < 0)
			return r;
	} while (rc == RS_BLOCKED && (b.avail_in > 0 || b.avail_out == 0 || eof));
	return 0;
}

static int end_job(struct delta *d)
{
	int r;

	r = delta_run(d, NULL, 0, true);
	if (r < 0)
		return r;
	return d->ended && !d->literal && !d->have ? flush_copy(d) : -EBADMSG;
}

static int next_job(struct delta *d)
{
	_cleanup_(buf_done) struct buf again = {0};
	int r;

	r = end_job(d);
	again = d->tail;
	buf_init(&d->tail, 0);
	(void)rs_job_free(d->job);
	d->job = rs_delta_begin(d->sig->sums);
	if (!d->job)
		return -ENOMEM;
	d->begun = d->ended = false;
	d->fed = buf_len(&again);
	return r < 0 || d->fed == 0 ? r : delta_run(d, buf_data(&again), buf_len(&again), false);
}

int delta_add(struct delta *d, const void *data, size_t n)
{
	int r;

	if (n == 0)
		return 0;
	d->fed += n;
	r = delta_run(d, data, n, false);
	return r == 0 && d->fed >= SEGMENT_BYTES ? next_job(d) : r;
}

int delta_end(struct delta *d)
{
	int r;

	r = end_job(d);
	return r < 0 ? r : flush_tail(d, 0);
}
