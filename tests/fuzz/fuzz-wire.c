/* Any bytes, in any pieces, through the frame decoder; bodies of CHANGE through the
 * attributes' rules. The first two bytes say how the rest is fed. */
#include "tests/fuzz/fuzz.h"
#include "wire/attr.h"
#include "wire/frame.h"
#include "wire/wire.pb-c.h"

static void parse_attrs(const struct wframe *f)
{
	struct buf xattrs = BUF_INIT(2 * WIRE_BODY_MAX);
	struct wire_attr_scratch s = {0};
	Limbwire__WireChange *m;
	const char *why = NULL;
	struct node n;
	int r;

	m = limbwire__wire_change__unpack(NULL, f->body_len, f->body);
	for (size_t i = 0; m && i < m->n_ops; i++) {
		if (!m->ops[i]->op)
			continue;
		buf_clear(&xattrs);
		r = wire_attr_parse(m->ops[i]->op->attr, m->ops[i]->op->content, &xattrs, &n, &why);
		must(r == 0 || why);
		if (r < 0)
			continue;
		must(node_xattrs_ok(n.xattrs, n.xattrs_len));
		must(wire_attr_fill(&s, &n) == 0);
	}
	if (m)
		limbwire__wire_change__free_unpacked(m, NULL);
	wire_attr_scratch_done(&s);
	buf_done(&xattrs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t piece = 1 + (size > 1 ? get_le16(data) : 0), part;
	struct wframe_decoder d;
	struct wframe f;
	int r = 0;

	wframe_decoder_init(&d);
	for (size_t at = MIN(size, (size_t)2); at < size && r >= 0; at += part) {
		uint8_t *p;

		part = MIN(piece, size - at);
		must(wframe_decoder_reserve(&d, part, &p) == 0);
		memcpy(p, data + at, part);
		wframe_decoder_commit(&d, part);
		while ((r = wframe_decoder_next(&d, &f)) > 0) {
			must(f.body_len <= WIRE_BODY_MAX && f.bulk_len <= WIRE_BULK_MAX);
			if (f.type == WIRE_CHANGE)
				parse_attrs(&f);
		}
	}
	if (r < 0)
		must(wframe_decoder_next(&d, &f) == r);
	wframe_decoder_done(&d);
	return 0;
}
