/* Entries: what follows the fixed structs, read and made. */
#include "brain/entry.h"

#include <assert.h>

#include "base/util.h"

/* A struct of an entry is what it says on both sides only without holes. */
_Static_assert(sizeof(struct entry_attr) == 168, "layout");
_Static_assert(sizeof(struct entry_op) == 48 + sizeof(struct entry_attr), "layout");
_Static_assert(sizeof(struct entry_change) == 104, "layout");
_Static_assert(sizeof(struct entry_hello) == 176, "layout");
_Static_assert(sizeof(struct entry_status) == 144, "layout");
_Static_assert(sizeof(struct entry_job) == 168, "layout");
_Static_assert(sizeof(struct entry_tree_entry) == 32 + sizeof(struct entry_attr), "layout");

#define PADDED(n) ALIGN_UP((size_t)(n), (size_t)8)

/* ---- reading ---- */

void entry_cursor_init(struct entry_cursor *c, const struct entry_head *e)
{
	switch ((enum entry_type)e->type) {
	case ENTRY_CHANGE: {
		const struct entry_change *x = (const void *)e;
		*c = (struct entry_cursor){entry_tail(x), x->n_ops};
		return;
	}
	case ENTRY_TREE_PART: {
		const struct entry_tree_part *x = (const void *)e;
		*c = (struct entry_cursor){entry_tail(x), x->n};
		return;
	}
	case ENTRY_BARRIER_DONE: {
		const struct entry_barrier_done *x = (const void *)e;
		*c = (struct entry_cursor){entry_tail(x), x->n_unsettled};
		return;
	}
	case ENTRY_JOB_STARTED:
	case ENTRY_JOB_EXIT: {
		const struct entry_job *x = (const void *)e;
		*c = (struct entry_cursor){(const uint8_t *)(x + 1) + PADDED(x->detail_len),
					   x->n_unsettled};
		return;
	}
	case ENTRY_STATUS: {
		const struct entry_status *x = (const void *)e;
		*c = (struct entry_cursor){entry_tail(x), x->n_reasons};
		return;
	}
	case ENTRY_RESTORED: {
		const struct entry_restored *x = (const void *)e;
		*c = (struct entry_cursor){(const uint8_t *)(x + 1) + PADDED(x->detail_len),
					   x->n_unsupported};
		return;
	}
	case ENTRY_IGNORES: {
		const struct entry_ignores *x = (const void *)e;
		*c = (struct entry_cursor){entry_tail(x), x->n};
		return;
	}
	case ENTRY_PS_DONE: {
		const struct entry_ps_done *x = (const void *)e;
		*c = (struct entry_cursor){entry_tail(x), x->n};
		return;
	}
	default: *c = (struct entry_cursor){NULL, 0};
	}
}

/* The struct of the next part; the cursor stands behind it, before its bytes. */
static const void *next_struct(struct entry_cursor *c, size_t size)
{
	const void *p = c->p;

	if (c->left == 0)
		return NULL;
	c->left--;
	c->p += size;
	return p;
}

static void get_attr(const struct entry_attr *a, const uint8_t *tail, struct node *ret)
{
	*ret = (struct node){
		.type = a->type,
		.uid_kind = a->uid_kind,
		.gid_kind = a->gid_kind,
		.mode = a->mode,
		.uid = a->uid,
		.gid = a->gid,
		.mtime_ns = a->mtime_ns,
		.ctime_ns = a->ctime_ns,
		.inode = a->inode,
		.generation = a->generation,
		.device = a->device,
		.rdev_major = a->rdev_major,
		.rdev_minor = a->rdev_minor,
		.unheld = a->unheld,
		.torn = a->torn,
		.content =
			{
				.size_bytes = a->size_bytes,
				.depth = a->depth,
				.holes = a->holes,
			},
		.allocated_bytes = a->allocated_bytes,
		.target = a->target_len ? tail : NULL,
		.target_len = a->target_len,
		.xattrs = a->xattrs_len ? tail + a->target_len : NULL,
		.xattrs_len = a->xattrs_len,
	};
	memcpy(ret->content.sha256, a->sha256, SHA256_BYTES);
	memcpy(ret->content.root, a->root, SHA256_BYTES);
}

bool entry_next_op(struct entry_cursor *c, struct change_op *ret)
{
	const struct entry_op *op = next_struct(c, 0);
	const char *name;

	if (!op)
		return false;
	c->p += op->length;
	name = (const char *)(op + 1);
	*ret = (struct change_op){
		.kind = op->kind,
		.evidence = op->evidence,
		.has_content = op->attr.has_content,
		.node = op->node,
		.parent = op->parent,
		.to_parent = op->to_parent,
		.name = name,
		.to_name = name + op->name_len,
		.name_len = op->name_len,
		.to_name_len = op->to_name_len,
		.base_version = op->base_version,
	};
	if (op->kind == CHANGE_PUT)
		get_attr(&op->attr, (const uint8_t *)name + op->name_len + op->to_name_len,
			 &ret->attr);
	return true;
}

bool entry_next_tree(struct entry_cursor *c, const struct entry_tree_entry **ret, const char **name,
		     struct node *ret_node)
{
	const struct entry_tree_entry *t = next_struct(c, 0);

	if (!t)
		return false;
	c->p += t->length;
	*ret = t;
	*name = (const char *)(t + 1);
	get_attr(&t->attr, (const uint8_t *)(t + 1) + t->name_len, ret_node);
	return true;
}

bool entry_next_unsettled(struct entry_cursor *c, const struct entry_unsettled **ret,
			  const char **path)
{
	const struct entry_unsettled *u = next_struct(c, sizeof(*u));

	if (!u)
		return false;
	*ret = u;
	*path = (const char *)c->p;
	c->p += PADDED(u->len);
	return true;
}

bool entry_next_reason(struct entry_cursor *c, const struct entry_reason **ret, const char **detail,
		       const char **path)
{
	const struct entry_reason *reason = next_struct(c, sizeof(*reason));

	if (!reason)
		return false;
	*ret = reason;
	*detail = (const char *)c->p;
	*path = *detail + reason->detail_len;
	c->p += PADDED((size_t)reason->detail_len + reason->path_len);
	return true;
}

bool entry_next_unsupported(struct entry_cursor *c, const struct entry_unsupported **ret,
			    const char **path, const char **field)
{
	const struct entry_unsupported *u = next_struct(c, sizeof(*u));

	if (!u)
		return false;
	*ret = u;
	*path = (const char *)c->p;
	*field = *path + u->path_len;
	c->p += PADDED((size_t)u->path_len + u->field_len);
	return true;
}

bool entry_next_ignore(struct entry_cursor *c, const struct entry_ignore_file **ret,
		       const char **dir, const char **text)
{
	const struct entry_ignore_file *f = next_struct(c, sizeof(*f));

	if (!f)
		return false;
	*ret = f;
	*dir = (const char *)c->p;
	*text = *dir + f->dir_len;
	c->p += PADDED((size_t)f->dir_len + f->text_len);
	return true;
}

bool entry_next_process(struct entry_cursor *c, const struct entry_process **ret, const char **argv)
{
	const struct entry_process *p = next_struct(c, 0);

	if (!p)
		return false;
	c->p += p->length;
	*ret = p;
	*argv = (const char *)(p + 1);
	return true;
}

/* ---- making ---- */

static int add_zeros(struct buf *b, size_t n)
{
	static const uint8_t zeros[8];

	return buf_add(b, zeros, n);
}

static int pad(struct buf *b, size_t from)
{
	size_t n = buf_len(b) - from;

	return add_zeros(b, PADDED(n) - n);
}

int entry_begin(struct buf *b, uint16_t type, const void *e, size_t size, size_t *ret_at)
{
	size_t at = buf_len(b);
	uint8_t *p;
	int r;

	assert(at % 8 == 0 && size >= sizeof(struct entry_head));
	r = buf_reserve(b, size, &p);
	if (r < 0)
		return r;
	memcpy(p, e, size);
	*(struct entry_head *)p = (struct entry_head){.type = type};
	buf_commit(b, size);
	*ret_at = at;
	return 0;
}

int entry_end(struct buf *b, size_t at)
{
	struct entry_head *e;
	size_t n;
	int r;

	r = pad(b, at);
	if (r < 0)
		return r;
	n = buf_len(b) - at;
	if (n > ENTRY_MAX)
		return -E2BIG;
	e = (struct entry_head *)(b->mem + b->start + at);
	e->length = (uint32_t)n;
	return 0;
}

void entry_drop(struct buf *b, size_t at)
{
	assert(at <= buf_len(b));
	b->end = b->start + at;
}

int entry_add(struct buf *b, uint16_t type, const void *e, size_t size, const void *tail,
	      size_t tail_len)
{
	size_t at;
	int r;

	r = entry_begin(b, type, e, size, &at);
	if (r < 0)
		return r;
	r = buf_add(b, tail, tail_len);
	if (r >= 0)
		r = entry_end(b, at);
	if (r < 0)
		entry_drop(b, at);
	return r;
}

int entry_add_part(struct buf *b, const void *part, size_t size, const void *x, size_t x_len,
		   const void *y, size_t y_len)
{
	size_t at = buf_len(b);
	int r;

	r = buf_add(b, part, size);
	if (r >= 0)
		r = buf_add(b, x, x_len);
	if (r >= 0)
		r = buf_add(b, y, y_len);
	if (r >= 0)
		r = pad(b, at);
	return r;
}

static void put_attr(struct entry_attr *a, const struct node *n, bool has_content)
{
	a->type = n->type;
	a->uid_kind = n->uid_kind;
	a->gid_kind = n->gid_kind;
	a->torn = n->torn;
	a->mode = n->mode;
	a->uid = n->uid;
	a->gid = n->gid;
	a->unheld = n->unheld;
	a->mtime_ns = n->mtime_ns;
	a->ctime_ns = n->ctime_ns;
	a->inode = n->inode;
	a->generation = n->generation;
	a->device = n->device;
	a->rdev_major = n->rdev_major;
	a->rdev_minor = n->rdev_minor;
	a->allocated_bytes = n->allocated_bytes;
	a->size_bytes = n->content.size_bytes;
	memcpy(a->sha256, n->content.sha256, SHA256_BYTES);
	memcpy(a->root, n->content.root, SHA256_BYTES);
	a->depth = n->content.depth;
	a->holes = n->content.holes;
	a->has_content = has_content;
	a->target_len = n->target_len;
	a->xattrs_len = n->xattrs_len;
}

/* Writes n bytes at *p and goes behind them. */
static void put(uint8_t **p, const void *data, size_t n)
{
	if (n)
		memcpy(*p, data, n);
	*p += n;
}

int entry_add_op(struct buf *b, const struct change_op *op)
{
	size_t n = sizeof(struct entry_op) + op->name_len + op->to_name_len, padded;
	const struct node *node = op->kind == CHANGE_PUT ? &op->attr : NULL;
	struct entry_op *e;
	uint8_t *p;
	int r;

	if (node)
		n += (size_t)node->target_len + node->xattrs_len;
	padded = PADDED(n);
	r = buf_reserve(b, padded, &p);
	if (r < 0)
		return r;
	e = (struct entry_op *)p;
	*e = (struct entry_op){
		.length = (uint32_t)padded,
		.kind = op->kind,
		.evidence = op->evidence,
		.name_len = op->name_len,
		.to_name_len = op->to_name_len,
		.node = op->node,
		.parent = op->parent,
		.to_parent = op->to_parent,
		.base_version = op->base_version,
	};
	p += sizeof(*e);
	put(&p, op->name, op->name_len);
	put(&p, op->to_name, op->to_name_len);
	if (node) {
		put_attr(&e->attr, node, op->has_content);
		put(&p, node->target, node->target_len);
		put(&p, node->xattrs, node->xattrs_len);
	}
	memset(p, 0, padded - n);
	buf_commit(b, padded);
	return 0;
}

int entry_add_tree(struct buf *b, const struct entry_tree_entry *e, const char *name,
		   size_t name_len, const struct node *n, bool has_content)
{
	struct entry_tree_entry t = *e;
	size_t total = sizeof(t) + name_len + n->target_len + n->xattrs_len;
	uint8_t *p;
	int r;

	t.length = (uint32_t)PADDED(total);
	t.name_len = (uint16_t)name_len;
	put_attr(&t.attr, n, has_content);
	r = buf_reserve(b, t.length, &p);
	if (r < 0)
		return r;
	put(&p, &t, sizeof(t));
	put(&p, name, name_len);
	put(&p, n->target, n->target_len);
	put(&p, n->xattrs, n->xattrs_len);
	memset(p, 0, t.length - total);
	buf_commit(b, t.length);
	return 0;
}
