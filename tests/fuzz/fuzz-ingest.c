/* Any frames through limb-ingest's machine: every entry that comes out is one that limbd
 * accepts, places lie in what was written, and nothing comes behind a broken rule. */
#include "brain/ingest.h"
#include "tests/fuzz/fuzz.h"

static uint64_t written;

static int write_pack(const void *data, size_t n, uint64_t offset, void *userdata)
{
	must(offset == written && n % 8 == 0);
	written += n;
	return 0;
}

static void give_pack(struct ingest *in)
{
	struct entry_pack pack = {
		.offset = PACK_HEADER_BYTES, .seal_bytes = 64 << 10, .zstd_level = 1};

	written = pack.offset;
	must(ingest_set_pack(in, &pack) == 0);
}

/* What limbd has of a content that a stream is made from: 1 MiB of one byte. */
static void give_base(struct ingest *in, const struct entry_base *asked)
{
	static uint8_t bytes[ENTRY_BASE_MAX];
	struct entry_base_data d = {.request = asked->request, .size_bytes = 1 << 20};
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	if (asked->offset < d.size_bytes)
		d.len = (uint32_t)MIN((uint64_t)asked->len, d.size_bytes - asked->offset);
	must(d.len <= sizeof(bytes));
	must(entry_add(&b, ENTRY_BASE_DATA, &d, sizeof(d), bytes, d.len) == 0);
	must(ingest_base_data(in, (const struct entry_base_data *)buf_data(&b)) == 0);
}

static void take_entries(struct ingest *in)
{
	struct entry_base asked;
	bool is_asked = false;

	struct buf *out = ingest_out(in);
	const char *why;
	ssize_t n;

	while (buf_len(out) > 0) {
		const struct entry_head *e = (const void *)buf_data(out);

		n = entry_whole(e, buf_len(out));
		must(n > 0 && entry_check(e, &why) == 0);
		if (e->type == ENTRY_BASE) {
			must(!is_asked);
			is_asked = true;
			asked = *(const struct entry_base *)e;
		}
		if (e->type == ENTRY_PLACES)
			must(((const struct entry_places *)e)->pack_end <= written);
		buf_consume(out, (size_t)n);
	}
	buf_clear(ingest_replies(in));
	if (is_asked)
		give_base(in, &asked);
}

static int feed(struct ingest *in, const struct wframe *f)
{
	int r, steps = 0;

	if (ingest_needs_pack(in, f))
		give_pack(in);
	r = ingest_frame(in, f);
	/* A hole may take minutes. */
	while (r == 0 && (r = ingest_work(in)) > 0 && steps++ < 40) {
		take_entries(in);
		r = 0;
	}
	return steps > 40 ? -ECANCELED : r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wframe_decoder d;
	struct ingest *in;
	struct wframe f;
	uint8_t *p;
	int r = 0;

	if (size > WIRE_READ_MAX - WIRE_START_BYTES)
		return 0;
	wframe_decoder_init(&d);
	must(wframe_decoder_reserve(&d, WIRE_START_BYTES + size, &p) == 0);
	memcpy(p, WIRE_START, WIRE_START_BYTES);
	if (size)
		memcpy(p + WIRE_START_BYTES, data, size);
	wframe_decoder_commit(&d, WIRE_START_BYTES + size);
	must(ingest_new(write_pack, NULL, &in) == 0);
	ingest_start(in, 0);
	while (r == 0 && !ingest_bye(in) && wframe_decoder_next(&d, &f) > 0) {
		r = feed(in, &f);
		take_entries(in);
	}
	must(r == 0 || r == -EPROTO || r == -ECANCELED);
	if (r == -EPROTO)
		must(ingest_why(in)[0] != '\0');
	if (r != -ECANCELED)
		must(ingest_flush(in) == 0);
	take_entries(in);
	ingest_free(in);
	wframe_decoder_done(&d);
	return 0;
}
