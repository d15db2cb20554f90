/*
 * CHANGE, in three passes: every operation is judged, then content is taken in
 * and compared with what was said of it, then the entry is made.
 */
#include "brain/ingest-parts.h"

#include <inttypes.h>

#include "base/beneath.h"
#include "journal/chunk.h"
#include "wire/attr.h"

struct ops {
	struct change_op op[CHANGE_OPS_MAX];
	size_t n;
};

static const char *const kind_names[] = {
	[CHANGE_PUT] = "PUT",
	[CHANGE_LINK] = "LINK",
	[CHANGE_UNLINK] = "UNLINK",
	[CHANGE_MOVE] = "MOVE",
};

static int get_name(struct ingest *in, const ProtobufCBinaryData *name, const char **ret,
		    uint16_t *ret_len)
{
	if (!beneath_name_ok((const char *)name->data, name->len))
		return ingest_hostile(in, "CHANGE: wrong name");
	*ret = (const char *)name->data;
	*ret_len = (uint16_t)name->len;
	return 0;
}

/* ---- what each kind of operation needs; fields that it does not use are not taken ---- */

static int parse_put(struct ingest *in, const Limbwire__WireOp *w, struct change_op *op)
{
	const Limb__Op *m = w->op;
	const char *why = NULL;
	int r;

	if (m->node == 0)
		return ingest_hostile(in, "CHANGE: PUT without a node");
	r = wire_attr_parse(m->attr, m->content, &in->xattrs, &op->attr, &why);
	if (r == -EBADMSG || r == -E2BIG)
		return ingest_hostile(in, "CHANGE: %s", why);
	if (r < 0)
		return r;
	if (w->stream && !m->content)
		return ingest_hostile(in, "CHANGE: a stream without content");
	op->node = m->node;
	op->base_version = m->base_version;
	op->has_content = m->content != NULL;
	return 0;
}

static int parse_link(struct ingest *in, const Limbwire__WireOp *w, struct change_op *op)
{
	const Limb__Op *m = w->op;

	if (m->node == 0 || m->parent == 0)
		return ingest_hostile(in, "CHANGE: LINK without a node or parent");
	if (m->node == NODE_ROOT)
		return ingest_hostile(in, "CHANGE: a name for the root");
	op->node = m->node;
	op->parent = m->parent;
	return get_name(in, &m->name, &op->name, &op->name_len);
}

static int parse_unlink(struct ingest *in, const Limbwire__WireOp *w, struct change_op *op)
{
	const Limb__Op *m = w->op;

	if (m->parent == 0)
		return ingest_hostile(in, "CHANGE: UNLINK without a parent");
	if ((int)m->evidence <= EVIDENCE_NONE_ || (int)m->evidence > EVIDENCE_ACCEPTED_)
		return ingest_hostile(in, "CHANGE: UNLINK without evidence");
	op->node = m->node;
	op->parent = m->parent;
	op->evidence = (uint8_t)m->evidence;
	op->base_version = m->base_version;
	return get_name(in, &m->name, &op->name, &op->name_len);
}

static int parse_move(struct ingest *in, const Limbwire__WireOp *w, struct change_op *op)
{
	const Limb__Op *m = w->op;
	int r;

	if (m->parent == 0 || m->to_parent == 0)
		return ingest_hostile(in, "CHANGE: MOVE without a parent");
	op->node = m->node;
	op->parent = m->parent;
	op->to_parent = m->to_parent;
	op->base_version = m->base_version;
	r = get_name(in, &m->name, &op->name, &op->name_len);
	if (r < 0)
		return r;
	return get_name(in, &m->to_name, &op->to_name, &op->to_name_len);
}

static int (*const parsers[])(struct ingest *in, const Limbwire__WireOp *w,
			      struct change_op *op) = {
	[CHANGE_PUT] = parse_put,
	[CHANGE_LINK] = parse_link,
	[CHANGE_UNLINK] = parse_unlink,
	[CHANGE_MOVE] = parse_move,
};

static int parse_op(struct ingest *in, const Limbwire__WireOp *w, struct change_op *op)
{
	unsigned kind = w->op ? (unsigned)w->op->kind : 0;

	if (kind >= ARRAY_SIZE(parsers) || !parsers[kind])
		return ingest_hostile(in, "CHANGE: unknown kind of operation");
	if (kind != CHANGE_PUT && (w->op->content || w->op->attr || w->stream))
		return ingest_hostile(in, "CHANGE: content or attributes with %s",
				      kind_names[kind]);
	*op = (struct change_op){.kind = (uint8_t)kind};
	return parsers[kind](in, w, op);
}

static int parse_ops(struct ingest *in, const Limbwire__WireChange *m, const struct wframe *f,
		     struct ops *ops)
{
	uint8_t *room;
	int r;

	if (m->n_ops == 0 || m->n_ops > CHANGE_OPS_MAX)
		return ingest_hostile(in, "CHANGE: %zu operations", m->n_ops);
	/* The list of an operation is 7 bytes in the buffer for 5 in the body at worst, and
	 * with room for all of them the buffer stays where it is. */
	buf_clear(&in->xattrs);
	r = buf_reserve(&in->xattrs, 2 * (size_t)f->body_len, &room);
	if (r < 0)
		return r;
	for (ops->n = 0; ops->n < m->n_ops; ops->n++) {
		r = parse_op(in, m->ops[ops->n], &ops->op[ops->n]);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- content ---- */

static int take_inline(struct ingest *in, const uint8_t *p, size_t n, struct content_ref *ret)
{
	struct content_ref ref = {.size_bytes = n};
	int r;

	/* One chunk (FORMAT 5): hashed and stored where it lies. */
	if (n <= CHUNK_AVG) {
		sha256(p, n, ref.sha256);
		r = n ? ingest_store_put(FRAME_CHUNK, ref.sha256, p, n, &in->store) : 0;
		if (r >= 0)
			*ret = ref;
		return r;
	}
	if (!in->writer) {
		r = content_writer_new(ingest_store_put, &in->store, &in->writer);
		if (r < 0)
			return r;
	}
	content_writer_begin(in->writer);
	r = content_writer_data(in->writer, p, n);
	if (r >= 0)
		r = content_writer_end(in->writer, ret);
	return r < 0 ? ingest_content_error(in, r) : 0;
}

/* What was said of the content against what it is; what it is goes into the journal. */
static int compare(struct ingest *in, const Limb__Content *said, const struct content_ref *is)
{
	if (said->size_bytes != is->size_bytes)
		return ingest_hostile(in, "CHANGE: content has %" PRIu64 " bytes, not %" PRIu64,
				      is->size_bytes, said->size_bytes);
	if (memcmp(said->sha256.data, is->sha256, SHA256_BYTES) != 0)
		return ingest_hostile(in, "CHANGE: content has another SHA-256");
	if (said->depth &&
	    (said->depth != is->depth || memcmp(said->root.data, is->root, SHA256_BYTES) != 0))
		return ingest_hostile(in, "CHANGE: content has another list of chunks");
	return 0;
}

static int take_contents(struct ingest *in, const Limbwire__WireChange *m, const struct wframe *f,
			 struct ops *ops)
{
	const uint8_t *p = f->bulk;
	uint64_t left = f->bulk_len;
	int r;

	for (size_t i = 0; i < ops->n; i++) {
		const Limb__Content *said = m->ops[i]->op->content;
		struct content_ref *ref = &ops->op[i].attr.content;

		if (!ops->op[i].has_content)
			continue;
		if (m->ops[i]->stream) {
			r = streams_take(in, m->ops[i]->stream, ref);
		} else if (said->size_bytes > left) {
			return ingest_hostile(in, "CHANGE: contents longer than the bytes sent");
		} else {
			r = take_inline(in, p, (size_t)said->size_bytes, ref);
			p += said->size_bytes;
			left -= said->size_bytes;
		}
		if (r >= 0)
			r = compare(in, said, ref);
		if (r < 0)
			return r;
	}
	if (left > 0)
		return ingest_hostile(in, "CHANGE: bytes of no content");
	return 0;
}

/* ---- the whole ---- */

static int add_change(struct ingest *in, const Limbwire__WireChange *m, const struct ops *ops,
		      const char job[ENTRY_JOB_MAX + 1])
{
	struct entry_change change = {
		.number = m->number,
		.time_ns = m->time_ns,
		.base_seq = m->base_seq,
		.n_ops = (uint32_t)ops->n,
		.origin = (uint32_t)m->origin,
	};
	size_t at;
	int r;

	memcpy(change.job, job, sizeof(change.job));
	r = entry_begin(&in->held, ENTRY_CHANGE, &change, sizeof(change), &at);
	if (r < 0)
		return r;
	for (size_t i = 0; i < ops->n && r >= 0; i++)
		r = entry_add_op(&in->held, &ops->op[i]);
	if (r >= 0)
		r = entry_end(&in->held, at);
	if (r < 0)
		entry_drop(&in->held, at);
	return r;
}

int ingest_on_change(struct ingest *in, const void *msg, const struct wframe *f)
{
	const Limbwire__WireChange *m = msg;
	char job[ENTRY_JOB_MAX + 1];
	struct ops ops;
	int r;

	if (!in->started)
		return ingest_hostile(in, "CHANGE: before WELCOME");
	if (m->number == 0 || m->number > in->next_number)
		return ingest_hostile(in, "CHANGE: number %" PRIu64 " where %" PRIu64 " was due",
				      m->number, in->next_number);
	if ((unsigned)m->origin > ORIGIN_MERGE_)
		return ingest_hostile(in, "CHANGE: unknown origin");
	r = ingest_job_id(in, m->job, true, job);
	if (r >= 0)
		r = parse_ops(in, m, f, &ops);
	if (r >= 0)
		r = take_contents(in, m, f, &ops);
	if (r < 0)
		return r;
	if (m->number < in->next_number)
		return 0; /* taken before, sent again */
	r = add_change(in, m, &ops, job);
	if (r >= 0)
		in->next_number++;
	return r;
}
