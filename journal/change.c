#include "journal/change.h"

#include "base/beneath.h"
#include "base/util.h"
#include "journal/arena.h"
#include "journal/body.h"

static const char *const origin_names[] = {
	[ORIGIN_ENVIRONMENT_] = "environment", [ORIGIN_VIEW_] = "view",	  [ORIGIN_BRAIN_] = "brain",
	[ORIGIN_RESTORE_] = "restore",	       [ORIGIN_MERGE_] = "merge",
};

const char *change_origin_name(int origin)
{
	if (origin <= 0 || origin >= (int)ARRAY_SIZE(origin_names))
		return "unknown";
	return origin_names[origin];
}

/* ---- judging ---- */

static const char *judge_content(const struct node *n)
{
	static const uint8_t zeros[SHA256_BYTES];
	const struct content_ref *c = &n->content;

	if (n->type != NODE_TYPE_FILE)
		return "only files have content";
	if (c->size_bytes > INT64_MAX || n->allocated_bytes > INT64_MAX)
		return "a size is too large";
	if (c->depth > CONTENT_DEPTH_MAX)
		return "the chunk list is too deep";
	if (c->depth == 0 && memcmp(c->root, zeros, SHA256_BYTES) != 0)
		return "a chunk list without a depth";
	if (c->depth > 0 && c->size_bytes == 0)
		return "an empty file has no chunk list";
	return NULL;
}

const char *change_judge_attr(const struct node *n)
{
	if (n->type < NODE_TYPE_FILE || n->type > NODE_TYPE_BLOCK)
		return "no such node type";
	if (n->mode > 07777)
		return "mode has bits above 07777";
	if (n->uid_kind > NODE_OWNER_NUMBER || n->gid_kind > NODE_OWNER_NUMBER)
		return "no such kind of owner";
	if (n->type == NODE_TYPE_SYMLINK) {
		if (n->target_len == 0 || n->target_len > NODE_TARGET_MAX)
			return "the target of a link has 1 to 4095 bytes";
		if (memchr(n->target, 0, n->target_len))
			return "the target of a link has no zero byte";
	} else if (n->target_len) {
		return "only links have targets";
	}
	if (n->xattrs_len && !node_xattrs_ok(n->xattrs, n->xattrs_len))
		return "the list of extended attributes is not canonical";
	return NULL;
}

static const char *judge_op(const struct change_op *op)
{
	const char *why;

	switch (op->kind) {
	case CHANGE_PUT:
		if (op->node == 0)
			return "a node has no number";
		why = change_judge_attr(&op->attr);
		if (why)
			return why;
		return op->has_content ? judge_content(&op->attr) : NULL;
	case CHANGE_LINK:
		if (op->node == 0)
			return "a node has no number";
		break;
	case CHANGE_UNLINK:
		if (op->evidence > EVIDENCE_ACCEPTED_)
			return "no such evidence";
		break;
	case CHANGE_MOVE:
		if (!beneath_name_ok(op->to_name, op->to_name_len))
			return "not a name";
		break;
	default: return "no such operation";
	}
	return beneath_name_ok(op->name, op->name_len) ? NULL : "not a name";
}

static bool id_ok(const char *s)
{
	return !s || strnlen(s, CHANGE_ID_MAX + 1) <= CHANGE_ID_MAX;
}

static const char *judge(const struct change *c)
{
	if (c->n_ops > CHANGE_OPS_MAX)
		return "too many operations";
	if (c->origin > ORIGIN_MERGE_)
		return "no such origin";
	if (!id_ok(c->principal) || !id_ok(c->job) || !id_ok(c->task))
		return "an id is too long";
	for (size_t i = 0; i < c->n_ops; i++) {
		const char *why = judge_op(&c->ops[i]);
		if (why)
			return why;
	}
	return NULL;
}

int change_judge(const struct change *c, const char **ret_why)
{
	const char *why = judge(c);

	if (!why)
		return 0;
	if (ret_why)
		*ret_why = why;
	return -EINVAL;
}

/* ---- packing ---- */

static ProtobufCBinaryData bytes(const void *p, size_t n)
{
	return (ProtobufCBinaryData){.len = n, .data = (uint8_t *)(uintptr_t)p};
}

static char *id_text(const char *s)
{
	return s ? (char *)(uintptr_t)s : (char *)protobuf_c_empty_string;
}

static int pack_xattrs(struct arena *a, const struct node *n, Limb__Attr *attr)
{
	const uint8_t *value;
	const char *name;
	uint16_t name_len;
	uint32_t value_len, pos = 0, count = 0;
	Limb__Xattr *x;

	while (node_xattrs_next(n->xattrs, n->xattrs_len, &pos, &name, &name_len, &value,
				&value_len))
		count++;
	if (count == 0)
		return 0;
	x = arena_alloc(a, count * sizeof(*x));
	attr->xattrs = arena_alloc(a, count * sizeof(attr->xattrs[0]));
	if (!x || !attr->xattrs)
		return -ENOMEM;
	pos = 0;
	for (;
	     node_xattrs_next(n->xattrs, n->xattrs_len, &pos, &name, &name_len, &value, &value_len);
	     x++) {
		limb__xattr__init(x);
		x->name = bytes(name, name_len);
		x->value = bytes(value, value_len);
		attr->xattrs[attr->n_xattrs++] = x;
	}
	return 0;
}

static Limb__Content *pack_content(struct arena *a, const struct node *n)
{
	const struct content_ref *ref = &n->content;
	Limb__Content *c = arena_alloc(a, sizeof(*c));

	if (!c)
		return NULL;
	limb__content__init(c);
	c->size_bytes = ref->size_bytes;
	c->sha256 = bytes(ref->sha256, SHA256_BYTES);
	if (ref->depth)
		c->root = bytes(ref->root, SHA256_BYTES);
	c->depth = ref->depth;
	c->holes = ref->holes;
	c->torn = n->torn;
	c->allocated_bytes = n->allocated_bytes;
	return c;
}

static int pack_put(struct arena *a, const struct change_op *op, Limb__Op *out)
{
	const struct node *n = &op->attr;
	Limb__Attr *attr = arena_alloc(a, sizeof(*attr));

	if (!attr)
		return -ENOMEM;
	limb__attr__init(attr);
	out->attr = attr;
	attr->type = (Limb__NodeType)n->type;
	attr->mode = n->mode;
	attr->uid_kind = (Limb__OwnerKind)n->uid_kind;
	attr->uid = n->uid;
	attr->gid_kind = (Limb__OwnerKind)n->gid_kind;
	attr->gid = n->gid;
	attr->mtime_ns = n->mtime_ns;
	attr->ctime_ns = n->ctime_ns;
	attr->inode = n->inode;
	attr->generation = n->generation;
	attr->device = n->device;
	attr->rdev_major = n->rdev_major;
	attr->rdev_minor = n->rdev_minor;
	attr->target = bytes(n->target, n->target_len);
	attr->unheld = n->unheld;
	if (op->has_content) {
		out->content = pack_content(a, n);
		if (!out->content)
			return -ENOMEM;
	}
	return pack_xattrs(a, n, attr);
}

static int pack_op(struct arena *a, const struct change_op *op, Limb__Op *out)
{
	limb__op__init(out);
	out->kind = (Limb__OpKind)op->kind;
	out->node = op->node;
	out->base_version = op->base_version;
	if (op->kind == CHANGE_PUT)
		return pack_put(a, op, out);
	out->parent = op->parent;
	out->name = bytes(op->name, op->name_len);
	if (op->kind == CHANGE_MOVE) {
		out->to_parent = op->to_parent;
		out->to_name = bytes(op->to_name, op->to_name_len);
	}
	if (op->kind == CHANGE_UNLINK)
		out->evidence = (Limb__Evidence)op->evidence;
	return 0;
}

static int append_record(const Limb__Record *rec, struct buf *body)
{
	size_t n = limb__record__get_packed_size(rec);
	uint8_t *p;
	int r;

	r = buf_reserve(body, n, &p);
	if (r < 0)
		return r;
	buf_commit(body, limb__record__pack(rec, p));
	return 0;
}

int change_pack(const struct change *c, struct buf *body)
{
	Limb__Record rec = LIMB__RECORD__INIT;
	Limb__Change change = LIMB__CHANGE__INIT;
	Limb__Op ops[CHANGE_OPS_MAX], *pointers[CHANGE_OPS_MAX];
	_cleanup_(arena_done) struct arena a = ARENA_INIT(0);
	int r;

	r = change_judge(c, NULL);
	if (r < 0)
		return r;
	for (size_t i = 0; i < c->n_ops; i++) {
		r = pack_op(&a, &c->ops[i], &ops[i]);
		if (r < 0)
			return r;
		pointers[i] = &ops[i];
	}
	change.ops = pointers;
	change.n_ops = c->n_ops;
	rec.incarnation = c->incarnation;
	rec.number = c->number;
	rec.origin = (Limb__Origin)c->origin;
	rec.principal = id_text(c->principal);
	rec.job = id_text(c->job);
	rec.task = id_text(c->task);
	rec.base_seq = c->base_seq;
	rec.origin_time_ns = c->origin_time_ns;
	rec.body_case = LIMB__RECORD__BODY_CHANGE;
	rec.change = &change;
	return append_record(&rec, body);
}

/* ---- unpacking ---- */

struct change_unpacked {
	struct arena arena;
	struct change change;
};

int change_unpack(const uint8_t *body, size_t n, struct change_unpacked **ret)
{
	_cleanup_(change_unpacked_freep) struct change_unpacked *u = NULL;
	Limb__Record *rec;
	int r;

	u = calloc(1, sizeof(*u));
	if (!u)
		return -ENOMEM;
	r = body_unpack(&u->arena, body, n, &rec);
	if (r < 0)
		return r;
	r = body_to_change(&u->arena, rec, &u->change);
	if (r < 0)
		return r;
	*ret = take_ptr(&u);
	return 0;
}

const struct change *change_unpacked_get(const struct change_unpacked *u)
{
	return &u->change;
}

void change_unpacked_free(struct change_unpacked *u)
{
	if (!u)
		return;
	arena_done(&u->arena);
	free(u);
}
