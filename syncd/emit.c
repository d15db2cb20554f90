#include "syncd/emit.h"

#include <sys/stat.h>

#include "base/clock.h"
#include "syncd/state.h"

/* Of names, ids and attributes without xattrs and target. */
enum { OP_BYTES = 256 };

int emit_init(struct emit *em)
{
	*em = (struct emit){.next_stream = 1};
	em->ops = calloc(EMIT_OPS_MAX, sizeof(*em->ops));
	buf_init(&em->bulk, WIRE_BULK_MAX);
	return em->ops ? 0 : -ENOMEM;
}

static void op_clear(struct emit_op *op)
{
	free(op->owned);
	op->owned = NULL;
}

void emit_drop(struct emit *em)
{
	for (size_t i = 0; i < em->n_ops; i++)
		op_clear(&em->ops[i]);
	em->n_ops = em->n_files = em->body_bytes = 0;
	buf_clear(&em->bulk);
}

void emit_done(struct emit *em)
{
	if (!em->ops)
		return;
	emit_drop(em);
	for (size_t i = 0; i < EMIT_OPS_MAX; i++)
		wire_attr_scratch_done(&em->ops[i].scratch);
	free(em->ops);
	buf_done(&em->bulk);
	*em = (struct emit){0};
}

void emit_flush(struct sync *sy)
{
	struct emit *em = &sy->emit;
	Limbwire__WireChange change = LIMBWIRE__WIRE_CHANGE__INIT;
	Limbwire__WireOp *ops[EMIT_OPS_MAX];

	if (!em->n_ops)
		return;
	for (size_t i = 0; i < em->n_ops; i++)
		ops[i] = &em->ops[i].wire;
	change.number = ++em->made;
	change.ops = ops;
	change.n_ops = em->n_ops;
	change.time_ns = clock_real_ns();
	change.origin = (Limb__Origin)em->origin;
	/* See the header for a failure. */
	(void)session_send(sy->session, SESSION_BULK, WIRE_CHANGE, &change.base,
			   buf_data(&em->bulk), buf_len(&em->bulk));
	em->bytes += buf_len(&em->bulk) + em->body_bytes;
	emit_drop(em);
	status_changed(sy);
}

/* Who made what is sent: whoever asked for it by APPLY, unless it is not what that left. */
static uint8_t origin_of(const struct sync *sy, const struct item *it)
{
	if (!it)
		return 0;
	return it->state == ITEM_VERIFYING ? it->origin : sync_made_by(sy, &it->st);
}

void emit_room(struct sync *sy, size_t n_ops, size_t bulk_bytes, size_t body_bytes)
{
	struct emit *em = &sy->emit;
	uint8_t origin = origin_of(sy, em->from);

	if (origin != em->origin)
		emit_flush(sy);
	em->origin = origin;
	if (em->n_ops + n_ops > EMIT_OPS_MAX || em->n_files >= EMIT_FILES_MAX ||
	    buf_len(&em->bulk) + bulk_bytes > EMIT_BULK_MAX ||
	    em->body_bytes + body_bytes + n_ops * OP_BYTES > EMIT_BODY_MAX)
		emit_flush(sy);
}

static void set_bytes(ProtobufCBinaryData *b, const void *data, size_t n)
{
	b->data = (uint8_t *)data;
	b->len = n;
}

static struct emit_op *op_new(struct emit *em, Limb__OpKind kind)
{
	struct emit_op *op = &em->ops[em->n_ops++];

	limb__op__init(&op->op);
	limbwire__wire_op__init(&op->wire);
	op->wire.op = &op->op;
	op->op.kind = kind;
	em->body_bytes += OP_BYTES;
	return op;
}

static void op_name(struct emit_op *op, const char *name, size_t len)
{
	memcpy(op->name, name, len);
	set_bytes(&op->op.name, op->name, len);
}

static uint64_t id_of(const struct sync *sy, uint32_t n)
{
	return shadow_node(&sy->shadow, n)->id;
}

static int op_put(struct sync *sy, uint64_t id, const struct node *node,
		  const struct emit_content *content)
{
	struct emit *em = &sy->emit;
	struct node kept = *node;
	struct emit_op *op;
	uint8_t *owned = NULL;
	int r;

	if (node->target_len + node->xattrs_len) {
		owned = malloc(node->target_len + node->xattrs_len);
		if (!owned)
			return -ENOMEM;
		if (node->target_len)
			memcpy(owned, node->target, node->target_len);
		if (node->xattrs_len)
			memcpy(owned + node->target_len, node->xattrs, node->xattrs_len);
		kept.target = owned;
		kept.xattrs = owned + node->target_len;
	}
	if (content && !content->stream && node->content.size_bytes) {
		r = content->data ? buf_add(&em->bulk, content->data, node->content.size_bytes)
				  : -EINVAL;
		if (r < 0)
			goto fail;
	}
	op = op_new(em, LIMB__OP_KIND__OP_PUT);
	op->owned = owned;
	r = wire_attr_fill(&op->scratch, &kept);
	if (r < 0) {
		/* Half-made: the CHANGE must not go like this. */
		em->n_ops--;
		op->owned = NULL;
		goto fail;
	}
	op->op.node = id;
	op->op.attr = &op->scratch.attr;
	/* The hash inside lies in `kept`; it is copied so that it outlives this call. */
	if (content) {
		memcpy(op->to_name, kept.content.sha256, SHA256_BYTES);
		op->op.content = &op->scratch.content;
		set_bytes(&op->scratch.content.sha256, op->to_name, SHA256_BYTES);
		op->wire.stream = content->stream;
		em->used_stream = content->stream;
		em->n_files++;
	}
	em->body_bytes += node->target_len + node->xattrs_len;
	return 0;
fail:
	free(owned);
	return r;
}

static size_t bulk_of(const struct node *node, const struct emit_content *content)
{
	return content && !content->stream ? node->content.size_bytes : 0;
}

/* A file that lost one of its names has another ctime now, and no event tells of it. */
static void mark_survivors(struct sync *sy, const uint32_t *nodes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t e = shadow_node(&sy->shadow, nodes[i])->entries;
		const char *name;
		uint8_t len;

		if (!e)
			continue;
		name = shadow_name(&sy->shadow, e, &len);
		(void)dirty_mark(&sy->dirty, ITEM_NAME, shadow_entry(&sy->shadow, e)->parent, name,
				 len, 0, sy->emit.from);
	}
}

static void detach(struct sync *sy, uint32_t e)
{
	cleanup_free uint32_t *shared = NULL;
	size_t n = 0, cap = 0;

	for (uint32_t i = e; i; i = shadow_next(&sy->shadow, i, e)) {
		uint32_t node = shadow_entry(&sy->shadow, i)->node;

		if (shadow_node(&sy->shadow, node)->refs < 2)
			continue;
		if (n == cap) {
			uint32_t *more = reallocarray(shared, cap * 2 + 16, sizeof(*more));

			if (!more)
				break; /* the sweep is left */
			shared = more;
			cap = cap * 2 + 16;
		}
		shared[n++] = node;
	}
	shadow_detach(&sy->shadow, e, sync_dir_left, sy);
	undo_unlink(&sy->undo, &sy->shadow, sy->emit.made + 1, e);
	mark_survivors(sy, shared, n);
}

/* Whatever has the name loses it; a directory must go by an operation of its own. */
static void make_free(struct sync *sy, uint32_t dir, const char *name, size_t len)
{
	uint32_t e = shadow_find(&sy->shadow, dir, name, len);
	struct emit_op *op;

	if (!e)
		return;
	if (shadow_dir(&sy->shadow, shadow_entry(&sy->shadow, e)->node)) {
		op = op_new(&sy->emit, LIMB__OP_KIND__OP_UNLINK);
		op->op.parent = id_of(sy, dir);
		op->op.evidence = LIMB__EVIDENCE__EVIDENCE_REPLACED;
		op_name(op, name, len);
	}
	detach(sy, e);
}

static int link_op(struct sync *sy, uint32_t dir, const char *name, size_t len, uint32_t n)
{
	struct emit_op *op;
	uint32_t e;

	e = shadow_link(&sy->shadow, dir, name, len, n);
	if (!e)
		return -ENOMEM;
	undo_link(&sy->undo, sy->emit.made + 1, e);
	op = op_new(&sy->emit, LIMB__OP_KIND__OP_LINK);
	op->op.node = id_of(sy, n);
	op->op.parent = id_of(sy, dir);
	op_name(op, name, len);
	return 0;
}

int emit_create(struct sync *sy, uint32_t dir, const char *name, size_t len,
		struct shadow_node *sig, const struct node *node,
		const struct emit_content *content)
{
	uint32_t n;
	int r;

	if (sy->next_id == 0 || sy->next_id >= sy->end_id)
		return -ENOSPC;
	emit_room(sy, 3, bulk_of(node, content), node->target_len + node->xattrs_len);
	sig->id = sy->next_id;
	n = shadow_add_node(&sy->shadow, sig);
	if (!n)
		return -ENOMEM;
	/* First what may fail: until then the name is as it was, here and there. */
	r = op_put(sy, sig->id, node, content);
	if (r < 0) {
		shadow_free_node(&sy->shadow, n);
		return r;
	}
	make_free(sy, dir, name, len);
	sy->next_id++;
	r = link_op(sy, dir, name, len, n);
	if (r < 0)
		/* A node without a name is gone at once, here as there. */
		shadow_free_node(&sy->shadow, n);
	return r;
}

int emit_put(struct sync *sy, uint32_t n, const struct shadow_node *sig, const struct node *node,
	     const struct emit_content *content)
{
	int r;

	emit_room(sy, 1, bulk_of(node, content), node->target_len + node->xattrs_len);
	r = op_put(sy, id_of(sy, n), node, content);
	if (r < 0)
		return r;
	undo_put(&sy->undo, &sy->shadow, sy->emit.made + 1, n);
	shadow_set_node(&sy->shadow, n, sig);
	return 0;
}

int emit_link(struct sync *sy, uint32_t dir, const char *name, size_t len, uint32_t n)
{
	emit_room(sy, 2, 0, 0);
	make_free(sy, dir, name, len);
	return link_op(sy, dir, name, len, n);
}

int emit_move(struct sync *sy, uint32_t e, uint32_t dir, const char *name, size_t len)
{
	struct shadow_entry *en = shadow_entry(&sy->shadow, e);
	uint32_t from = en->parent, old_name;
	char from_name[256];
	uint8_t from_len;
	const char *s = shadow_name(&sy->shadow, e, &from_len);
	struct emit_op *op;
	int r;

	memcpy(from_name, s, from_len);
	emit_room(sy, 2, 0, 0);
	make_free(sy, dir, name, len);
	r = shadow_move(&sy->shadow, e, dir, name, len, &old_name);
	if (r < 0)
		return r;
	undo_move(&sy->undo, &sy->shadow, sy->emit.made + 1, e, from, old_name);
	if (shadow_dir(&sy->shadow, en->node)) {
		rules_dir_moved(sy, en->node);
		dirty_look_for_lost(&sy->dirty);
	}
	op = op_new(&sy->emit, LIMB__OP_KIND__OP_MOVE);
	op->op.node = id_of(sy, en->node);
	op->op.parent = id_of(sy, from);
	op_name(op, from_name, from_len);
	op->op.to_parent = id_of(sy, dir);
	memcpy(op->to_name, name, len);
	set_bytes(&op->op.to_name, op->to_name, len);
	return 0;
}

int emit_unlink(struct sync *sy, uint32_t e, Limb__Evidence evidence)
{
	struct shadow_entry *en = shadow_entry(&sy->shadow, e);
	struct emit_op *op;
	const char *name;
	uint8_t len;

	emit_room(sy, 1, 0, 0);
	op = op_new(&sy->emit, LIMB__OP_KIND__OP_UNLINK);
	op->op.node = id_of(sy, en->node);
	op->op.parent = id_of(sy, en->parent);
	op->op.evidence = evidence;
	name = shadow_name(&sy->shadow, e, &len);
	op_name(op, name, len);
	detach(sy, e);
	return 0;
}
