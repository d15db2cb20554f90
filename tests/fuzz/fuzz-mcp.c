/* Any bytes, in any pieces, from an agent's program: what limb mcp says is lines of JSON-RPC, at
 * most one answer a line, whatever came before. No limbd is there. */
#include "bridge/mcp-impl.h"
#include "tests/fuzz/fuzz.h"

static const struct places nowhere = {.state = (char *)"/nonexistent",
				      .mount = (char *)"/nonexistent",
				      .socket = (char *)"/nonexistent/s"};

static size_t check_answers(struct mcp *m)
{
	const char *p = (const char *)buf_data(&m->out), *nl;
	size_t n = 0, left = buf_len(&m->out);

	for (; left > 0; n++) {
		json_t *o;

		nl = memchr(p, '\n', left);
		must(nl != NULL);
		o = json_loadb(p, (size_t)(nl - p), JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
		must(json_is_object(o) && json_object_get(o, "id") != NULL);
		must(!json_object_get(o, "result") != !json_object_get(o, "error"));
		json_decref(o);
		left -= (size_t)(nl + 1 - p);
		p = nl + 1;
	}
	buf_clear(&m->out);
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mcp m = {.places = &nowhere, .in_fd = -1, .out_fd = -1};
	size_t piece = 1 + (size > 0 ? data[0] : 0), lines = 1, answers = 0;
	int r = 0;

	mcp_lines_init(&m.lines, mcp_on_line, &m);
	buf_init(&m.out, 0);
	for (size_t at = MIN(size, (size_t)1); r == 0 && at < size; at += piece) {
		size_t n = MIN(piece, size - at);

		for (size_t i = 0; i < n; i++)
			lines += data[at + i] == '\n';
		r = mcp_lines_feed(&m.lines, data + at, n);
		answers += check_answers(&m);
	}
	if (r == 0)
		r = mcp_lines_end(&m.lines);
	answers += check_answers(&m);
	must(r == 0 && answers <= lines);
	must(m.n_active == 0);
	mcp_calls_drop(&m);
	mcp_lines_done(&m.lines);
	buf_done(&m.out);
	return 0;
}
