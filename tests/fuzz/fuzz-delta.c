/* Any signature and any two contents: a signature that is none is refused; what a delta copies
 * lies in the old content; and with the old one's own signature the new one comes out. */
#include "tests/fuzz/fuzz.h"
#include "wire/delta.h"

enum { CONTENT_MAX = 1 << 20 };

struct made {
	const uint8_t *old;
	size_t old_n;
	struct buf out;
};

static int sink(uint64_t from, uint64_t bytes, const void *literal, size_t n, void *userdata)
{
	struct made *m = userdata;

	if (literal)
		return buf_add(&m->out, literal, n);
	must(bytes > 0 && from <= m->old_n && bytes <= m->old_n - from);
	return buf_add(&m->out, m->old + from, (size_t)bytes);
}

static void make(struct delta_sig *sig, struct made *m, const uint8_t *new, size_t n, size_t piece,
		 bool own)
{
	_cleanup_(delta_freep) struct delta *d = NULL;
	int r;

	must(delta_new(sig, sink, m, &d) == 0);
	r = 0;
	for (size_t at = 0, part; r == 0 && at < n; at += part) {
		part = MIN(piece, n - at);
		r = delta_add(d, new + at, part);
	}
	if (r == 0)
		r = delta_end(d);
	if (own)
		must(r == 0 && buf_len(&m->out) == n &&
		     (n == 0 || memcmp(buf_data(&m->out), new, n) == 0));
}

/* Bytes that repeat, with what the input says in between. */
static size_t grow(struct fuzz_in *in, uint8_t *out)
{
	size_t n = 0;

	while (in->n > 0 && n < CONTENT_MAX) {
		uint8_t what = (uint8_t)fuzz_take(in, 1);
		size_t len = MIN((size_t)fuzz_take(in, 2) * (1 + (what & 3u)), CONTENT_MAX - n);

		if (what == 0xff)
			break;
		for (size_t i = 0; i < len; i++)
			out[n + i] = (uint8_t)((i * (what | 1u)) >> (what & 7));
		n += len;
	}
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t old[CONTENT_MAX], new[CONTENT_MAX];
	struct fuzz_in in = {data, size};
	_cleanup_(sig_maker_freep) struct sig_maker *maker = NULL;
	_cleanup_(buf_done) struct buf text = BUF_INIT(DELTA_SIG_MAX);
	_cleanup_(delta_sig_freep) struct delta_sig *sig = NULL;
	struct made m = {.old = old};
	uint8_t bend = (uint8_t)fuzz_take(&in, 1);
	size_t piece = 1 + fuzz_take(&in, 2), at = fuzz_take(&in, 2), n;
	int r;

	m.old_n = grow(&in, old);
	n = grow(&in, new);
	must(sig_maker_new(m.old_n, &maker) == 0);
	must(sig_maker_add(maker, old, m.old_n) == 0 && sig_maker_end(maker, &text) == 0);
	if (bend && buf_len(&text) > 0)
		((uint8_t *)(uintptr_t)buf_data(&text))[at % buf_len(&text)] ^= bend;
	r = delta_sig_load(buf_data(&text), buf_len(&text) - (bend == 0xff), m.old_n, &sig);
	must(r == 0 || (bend && r == -EBADMSG));
	buf_init(&m.out, 2 * CONTENT_MAX);
	if (r == 0)
		make(sig, &m, new, n, piece, !bend);
	buf_done(&m.out);
	return 0;
}
