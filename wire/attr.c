#include "wire/attr.h"

#include "base/util.h"

enum {
	MODE_MASK = 07777,
	XATTR_NAME_MAX_ = 255,
	XATTR_OVERHEAD = 2 + 4, /* lengths in the packed list */
	UNHELD_KNOWN = (NODE_MASK_YEARS << 1) - 1,
};

void wire_attr_scratch_done(struct wire_attr_scratch *s)
{
	if (!s)
		return;
	free(s->xattrs);
	free(s->xattr_ptrs);
	*s = (struct wire_attr_scratch){0};
}

static int xattrs_room(struct wire_attr_scratch *s, size_t n)
{
	Limb__Xattr **ptrs, *xattrs;
	size_t cap = MAX(n, s->xattrs_cap * 2);

	if (n <= s->xattrs_cap)
		return 0;
	xattrs = reallocarray(s->xattrs, cap, sizeof(*xattrs));
	if (!xattrs)
		return -ENOMEM;
	s->xattrs = xattrs;
	ptrs = reallocarray(s->xattr_ptrs, cap, sizeof(*ptrs));
	if (!ptrs)
		return -ENOMEM;
	s->xattr_ptrs = ptrs;
	s->xattrs_cap = cap;
	return 0;
}

static int fill_xattrs(struct wire_attr_scratch *s, const struct node *n)
{
	const uint8_t *value;
	const char *name;
	uint32_t pos = 0, value_len;
	uint16_t name_len;
	size_t count = 0;
	int r;

	while (node_xattrs_next(n->xattrs, n->xattrs_len, &pos, &name, &name_len, &value,
				&value_len) > 0) {
		r = xattrs_room(s, count + 1);
		if (r < 0)
			return r;
		limb__xattr__init(&s->xattrs[count]);
		s->xattrs[count].name.data = (uint8_t *)name;
		s->xattrs[count].name.len = name_len;
		s->xattrs[count].value.data = (uint8_t *)value;
		s->xattrs[count].value.len = value_len;
		count++;
	}
	/* Only now: the array may have moved while it grew. */
	for (size_t i = 0; i < count; i++)
		s->xattr_ptrs[i] = &s->xattrs[i];
	s->attr.xattrs = s->xattr_ptrs;
	s->attr.n_xattrs = count;
	return 0;
}

static void fill_content(struct wire_attr_scratch *s, const struct node *n)
{
	Limb__Content *c = &s->content;

	c->size_bytes = n->content.size_bytes;
	c->sha256.data = (uint8_t *)n->content.sha256;
	c->sha256.len = SHA256_BYTES;
	if (n->content.depth > 0) {
		c->root.data = (uint8_t *)n->content.root;
		c->root.len = SHA256_BYTES;
	}
	c->depth = n->content.depth;
	c->holes = n->content.holes;
	c->torn = n->torn;
	c->allocated_bytes = n->allocated_bytes;
}

int wire_attr_fill(struct wire_attr_scratch *s, const struct node *n)
{
	Limb__Attr *a = &s->attr;

	limb__attr__init(a);
	limb__content__init(&s->content);
	a->type = (Limb__NodeType)n->type;
	a->mode = n->mode;
	a->uid_kind = (Limb__OwnerKind)n->uid_kind;
	a->uid = n->uid;
	a->gid_kind = (Limb__OwnerKind)n->gid_kind;
	a->gid = n->gid;
	a->mtime_ns = n->mtime_ns;
	a->ctime_ns = n->ctime_ns;
	a->inode = n->inode;
	a->generation = n->generation;
	a->device = n->device;
	a->rdev_major = n->rdev_major;
	a->rdev_minor = n->rdev_minor;
	a->unheld = n->unheld;
	if (n->type == NODE_TYPE_SYMLINK) {
		a->target.data = (uint8_t *)n->target;
		a->target.len = n->target_len;
	}
	if (n->type == NODE_TYPE_FILE)
		fill_content(s, n);
	return fill_xattrs(s, n);
}

static int bad(const char **ret_why, const char *why)
{
	*ret_why = why;
	return -EBADMSG;
}

static int parse_content(const Limb__Content *c, struct node *n, const char **ret_why)
{
	struct content_ref *ref = &n->content;

	if (n->type != NODE_TYPE_FILE)
		return bad(ret_why, "content of what is not a file");
	if (c->size_bytes > INT64_MAX)
		return bad(ret_why, "content size out of range");
	if (c->sha256.len != SHA256_BYTES)
		return bad(ret_why, "content hash is not 32 bytes");
	if (c->depth > CONTENT_DEPTH_MAX)
		return bad(ret_why, "content depth out of range");
	if (c->root.len != (c->depth ? SHA256_BYTES : 0u))
		return bad(ret_why, "content root does not fit its depth");
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

static int parse_target(const Limb__Attr *a, struct node *n, const char **ret_why)
{
	if (n->type != NODE_TYPE_SYMLINK) {
		if (a->target.len)
			return bad(ret_why, "target of what is not a symlink");
		return 0;
	}
	if (a->target.len == 0 || a->target.len > NODE_TARGET_MAX)
		return bad(ret_why, "symlink target empty or too long");
	if (memchr(a->target.data, '\0', a->target.len))
		return bad(ret_why, "NUL in a symlink target");
	n->target = a->target.data;
	n->target_len = (uint32_t)a->target.len;
	return 0;
}

static int name_order(const ProtobufCBinaryData *a, const ProtobufCBinaryData *b)
{
	int r = memcmp(a->data, b->data, MIN(a->len, b->len));

	if (r != 0)
		return r;
	return a->len < b->len ? -1 : a->len > b->len;
}

/* Judges every entry before a byte is appended, so a refusal leaves the buffer alone. */
static int measure_xattrs(const Limb__Attr *a, size_t *ret_total, const char **ret_why)
{
	size_t total = 0;

	for (size_t i = 0; i < a->n_xattrs; i++) {
		const Limb__Xattr *x = a->xattrs[i];

		if (x->name.len == 0 || x->name.len > XATTR_NAME_MAX_ ||
		    memchr(x->name.data, '\0', x->name.len))
			return bad(ret_why, "bad name of an extended attribute");
		if (x->value.len > NODE_XATTRS_MAX)
			return bad(ret_why, "extended attributes too large");
		total += XATTR_OVERHEAD + x->name.len + x->value.len;
		if (total > NODE_XATTRS_MAX)
			return bad(ret_why, "extended attributes too large");
		if (i > 0 && name_order(&a->xattrs[i - 1]->name, &x->name) >= 0)
			return bad(ret_why, "extended attributes not sorted");
	}
	*ret_total = total;
	return 0;
}

static int parse_xattrs(const Limb__Attr *a, struct buf *out, struct node *n, const char **ret_why)
{
	size_t total;
	uint8_t *p;
	int r;

	r = measure_xattrs(a, &total, ret_why);
	if (r < 0 || total == 0)
		return r;
	r = buf_reserve(out, total, &p);
	if (r < 0) {
		*ret_why = "extended attributes too large";
		return r;
	}
	n->xattrs = p;
	n->xattrs_len = (uint32_t)total;
	for (size_t i = 0; i < a->n_xattrs; i++) {
		const Limb__Xattr *x = a->xattrs[i];

		put_le16(p, (uint16_t)x->name.len);
		memcpy(p + 2, x->name.data, x->name.len);
		p += 2 + x->name.len;
		put_le32(p, (uint32_t)x->value.len);
		if (x->value.len)
			memcpy(p + 4, x->value.data, x->value.len);
		p += 4 + x->value.len;
	}
	buf_commit(out, total);
	return 0;
}

int wire_attr_parse(const Limb__Attr *a, const Limb__Content *c, struct buf *xattrs_out,
		    struct node *ret, const char **ret_why)
{
	struct node n = {0};
	int r;

	if (!a)
		return bad(ret_why, "no attributes");
	if ((int)a->type < NODE_TYPE_FILE || (int)a->type > NODE_TYPE_BLOCK)
		return bad(ret_why, "unknown type of node");
	if (a->mode > MODE_MASK)
		return bad(ret_why, "mode out of range");
	if ((unsigned)a->uid_kind > NODE_OWNER_NUMBER || (unsigned)a->gid_kind > NODE_OWNER_NUMBER)
		return bad(ret_why, "unknown kind of owner");
	if (a->rdev_major > UINT32_MAX || a->rdev_minor > UINT32_MAX)
		return bad(ret_why, "device number out of range");
	n.type = (uint8_t)a->type;
	n.mode = a->mode;
	n.uid_kind = (uint8_t)a->uid_kind;
	n.uid = a->uid;
	n.gid_kind = (uint8_t)a->gid_kind;
	n.gid = a->gid;
	n.mtime_ns = a->mtime_ns;
	n.ctime_ns = a->ctime_ns;
	n.inode = a->inode;
	n.generation = a->generation;
	n.device = a->device;
	n.unheld = a->unheld & UNHELD_KNOWN;
	if (n.type == NODE_TYPE_CHAR || n.type == NODE_TYPE_BLOCK) {
		n.rdev_major = (uint32_t)a->rdev_major;
		n.rdev_minor = (uint32_t)a->rdev_minor;
	}
	r = parse_target(a, &n, ret_why);
	if (r < 0)
		return r;
	if (c) {
		r = parse_content(c, &n, ret_why);
		if (r < 0)
			return r;
	}
	r = parse_xattrs(a, xattrs_out, &n, ret_why);
	if (r < 0)
		return r;
	*ret = n;
	return 0;
}
