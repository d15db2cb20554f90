/* Any bytes as the body of a record: it is refused, or what it says as a change is packed and
 * read again the same; and it can always be shown. */
#include "base/buf.h"
#include "journal/body.h"
#include "journal/record-json.h"
#include "tests/fuzz/fuzz.h"

#define BODY_MAX (RECORD_BODY_MAX - RECORD_SALT_BYTES)

static bool same_bytes(const void *a, size_t a_len, const void *b, size_t b_len)
{
	return a_len == b_len && (a_len == 0 || memcmp(a, b, a_len) == 0);
}

/* What an operation of its kind has; the rest of a message is not kept. */
static void same_op(const struct change_op *a, const struct change_op *b)
{
	must(a->kind == b->kind && a->node == b->node && a->base_version == b->base_version);
	if (a->kind == CHANGE_UNLINK)
		must(a->evidence == b->evidence);
	if (a->kind == CHANGE_MOVE) {
		must(a->to_parent == b->to_parent);
		must(same_bytes(a->to_name, a->to_name_len, b->to_name, b->to_name_len));
	}
	if (a->kind != CHANGE_PUT) {
		must(a->parent == b->parent);
		must(same_bytes(a->name, a->name_len, b->name, b->name_len));
		return;
	}
	must(a->has_content == b->has_content);
	must(same_bytes(a->attr.target, a->attr.target_len, b->attr.target, b->attr.target_len));
	must(same_bytes(a->attr.xattrs, a->attr.xattrs_len, b->attr.xattrs, b->attr.xattrs_len));
	must(node_compare(&a->attr, &b->attr, 0) == 0);
}

static void read_change(const uint8_t *data, size_t size)
{
	_cleanup_(change_unpacked_freep) struct change_unpacked *u = NULL, *again = NULL;
	_cleanup_(buf_done) struct buf body = BUF_INIT(BODY_MAX);
	const struct change *a, *b;
	const char *why = NULL;
	int r;

	r = change_unpack(data, size, &u);
	must(r == 0 || r == -EBADMSG || r == -ENOMEM);
	if (r < 0)
		return;
	a = change_unpacked_get(u);
	must(change_judge(a, &why) == 0);
	r = change_pack(a, &body);
	if (r == -E2BIG)
		return;
	must(r == 0);
	must(change_unpack(buf_data(&body), buf_len(&body), &again) == 0);
	b = change_unpacked_get(again);
	must(a->n_ops == b->n_ops && a->incarnation == b->incarnation && a->number == b->number);
	for (size_t i = 0; i < a->n_ops; i++)
		same_op(&a->ops[i], &b->ops[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct log_record rec = {.seq = 2, .body = data + 1, .n = size - 1};
	struct record_paths *paths;
	json_t *o = NULL;
	char *text;

	if (size < 1 || size > BODY_MAX)
		return 0;
	read_change(data + 1, size - 1);
	paths = record_paths_new();
	must(paths != NULL);
	rec.type = data[0];
	must(record_json(&rec, paths, &o) == 0);
	text = json_dumps(o, JSON_COMPACT);
	must(text != NULL);
	free(text);
	json_decref(o);
	record_paths_free(paths);
	return 0;
}
