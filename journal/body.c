#include "journal/body.h"

#include <errno.h>

#include "base/util.h"
#include "journal/record.h"

#define ARENA_BASE_BYTES (128u << 10)
#define ARENA_BYTES_PER_BYTE 8

static void *body_alloc(void *arena, size_t n)
{
	return arena_alloc(arena, n);
}

static void body_free(void *arena, void *p)
{
	(void)arena;
	(void)p;
}

int body_unpack(struct arena *a, const uint8_t *body, size_t n, Limb__Record **ret)
{
	ProtobufCAllocator allocator = {body_alloc, body_free, a};
	Limb__Record *rec;

	if (!body || n > RECORD_BODY_MAX)
		return -EBADMSG;
	a->limit = a->used + ARENA_BASE_BYTES + n * ARENA_BYTES_PER_BYTE;
	rec = limb__record__unpack(&allocator, n, body);
	if (!rec)
		return -EBADMSG;
	*ret = rec;
	return 0;
}

static int take_bytes(ProtobufCBinaryData b, const char **ret, uint16_t *ret_len)
{
	if (b.len > NODE_NAME_MAX)
		return -EBADMSG;
	*ret = (const char *)b.data;
	*ret_len = (uint16_t)b.len;
	return 0;
}

static int take_content(const Limb__Content *c, struct node *n)
{
	struct content_ref *ref = &n->content;

	if (c->sha256.len != SHA256_BYTES || c->depth > CONTENT_DEPTH_MAX ||
	    c->root.len != (c->depth ? SHA256_BYTES : 0))
		return -EBADMSG;
	ref->size_bytes = c->size_bytes;
	memcpy(ref->sha256, c->sha256.data, SHA256_BYTES);
	if (c->depth)
		memcpy(ref->root, c->root.data, SHA256_BYTES);
	ref->depth = (uint8_t)c->depth;
	ref->holes = c->holes;
	n->torn = c->torn;
	n->allocated_bytes = c->allocated_bytes;
	return 0;
}

static int take_xattrs(struct arena *a, const Limb__Attr *attr, struct node *n)
{
	size_t total = 0;
	uint8_t *p;

	for (size_t i = 0; i < attr->n_xattrs; i++) {
		const Limb__Xattr *x = attr->xattrs[i];
		if (x->name.len == 0 || x->name.len > NODE_NAME_MAX ||
		    x->value.len > NODE_XATTRS_MAX)
			return -EBADMSG;
		total += 2 + x->name.len + 4 + x->value.len;
		if (total > NODE_XATTRS_MAX)
			return -EBADMSG;
	}
	if (total == 0)
		return 0;
	p = arena_alloc(a, total);
	if (!p)
		return -ENOMEM;
	n->xattrs = p;
	n->xattrs_len = (uint32_t)total;
	for (size_t i = 0; i < attr->n_xattrs; i++) {
		const Limb__Xattr *x = attr->xattrs[i];
		put_le16(p, (uint16_t)x->name.len);
		memcpy(p + 2, x->name.data, x->name.len);
		p += 2 + x->name.len;
		put_le32(p, (uint32_t)x->value.len);
		if (x->value.len)
			memcpy(p + 4, x->value.data, x->value.len);
		p += 4 + x->value.len;
	}
	return 0;
}

static int take_attr(struct arena *a, const Limb__Attr *attr, struct node *n)
{
	if ((unsigned)attr->type > UINT8_MAX || (unsigned)attr->uid_kind > UINT8_MAX ||
	    (unsigned)attr->gid_kind > UINT8_MAX || attr->rdev_major > UINT32_MAX ||
	    attr->rdev_minor > UINT32_MAX || attr->target.len > NODE_TARGET_MAX)
		return -EBADMSG;
	n->type = (uint8_t)attr->type;
	n->mode = attr->mode;
	n->uid_kind = (uint8_t)attr->uid_kind;
	n->uid = attr->uid;
	n->gid_kind = (uint8_t)attr->gid_kind;
	n->gid = attr->gid;
	n->mtime_ns = attr->mtime_ns;
	n->ctime_ns = attr->ctime_ns;
	n->inode = attr->inode;
	n->generation = attr->generation;
	n->device = attr->device;
	n->rdev_major = (uint32_t)attr->rdev_major;
	n->rdev_minor = (uint32_t)attr->rdev_minor;
	n->unheld = attr->unheld;
	n->target = attr->target.data;
	n->target_len = (uint32_t)attr->target.len;
	return take_xattrs(a, attr, n);
}

static int take_op(struct arena *a, const Limb__Op *in, struct change_op *op)
{
	int r;

	if ((unsigned)in->kind > UINT8_MAX || (unsigned)in->evidence > UINT8_MAX)
		return -EBADMSG;
	op->kind = (uint8_t)in->kind;
	op->evidence = (uint8_t)in->evidence;
	op->node = in->node;
	op->parent = in->parent;
	op->to_parent = in->to_parent;
	op->base_version = in->base_version;
	r = take_bytes(in->name, &op->name, &op->name_len);
	if (r < 0)
		return r;
	r = take_bytes(in->to_name, &op->to_name, &op->to_name_len);
	if (r < 0)
		return r;
	if (in->attr) {
		r = take_attr(a, in->attr, &op->attr);
		if (r < 0)
			return r;
	}
	if (in->content) {
		op->has_content = true;
		return take_content(in->content, &op->attr);
	}
	return 0;
}

static const char *take_id(const char *s)
{
	return s && s[0] ? s : NULL;
}

int body_to_change(struct arena *a, const Limb__Record *rec, struct change *ret)
{
	const Limb__Change *in = rec->body_case == LIMB__RECORD__BODY_CHANGE ? rec->change : NULL;
	struct change c = {
		.incarnation = rec->incarnation,
		.number = rec->number,
		.principal = take_id(rec->principal),
		.job = take_id(rec->job),
		.task = take_id(rec->task),
		.base_seq = rec->base_seq,
		.origin_time_ns = rec->origin_time_ns,
	};
	int r;

	if (!in || in->n_ops > CHANGE_OPS_MAX || (unsigned)rec->origin > UINT8_MAX)
		return -EBADMSG;
	c.origin = (uint8_t)rec->origin;
	c.n_ops = in->n_ops;
	c.ops = arena_alloc(a, sizeof(*c.ops) * in->n_ops);
	if (!c.ops)
		return -ENOMEM;
	memset(c.ops, 0, sizeof(*c.ops) * in->n_ops);
	for (size_t i = 0; i < in->n_ops; i++) {
		r = take_op(a, in->ops[i], &c.ops[i]);
		if (r < 0)
			return r;
	}
	r = change_judge(&c, NULL);
	if (r < 0)
		return -EBADMSG;
	*ret = c;
	return 0;
}
