#include "wire/digest.h"

#include <sys/sysmacros.h>

enum { HEAD_MAX = 3 + NODE_NAME_MAX + 6 * 8 + DIGEST_BYTES };

struct level {
	uint64_t dir;
	struct sha256_ctx *sha;
	size_t head_len; /* of its entry in the directory above */
	uint8_t head[HEAD_MAX];
};

struct digest {
	digest_fn each;
	void *userdata;
	struct level *levels; /* those from n on keep their contexts */
	size_t n, cap;
};

static int push(struct digest *d, uint64_t dir, const uint8_t *head, size_t head_len)
{
	struct level *l;
	uint8_t id[8];

	if (d->n == d->cap) {
		size_t cap = d->cap ? d->cap * 2 : 32;

		l = reallocarray(d->levels, cap, sizeof(*l));
		if (!l)
			return -ENOMEM;
		memset(l + d->cap, 0, (cap - d->cap) * sizeof(*l));
		d->levels = l;
		d->cap = cap;
	}
	l = &d->levels[d->n];
	if (l->sha)
		sha256_reset(l->sha);
	else
		l->sha = sha256_new();
	if (!l->sha)
		return -ENOMEM;
	l->dir = dir;
	l->head_len = head_len;
	if (head_len)
		memcpy(l->head, head, head_len);
	put_le64(id, dir);
	sha256_update(l->sha, id, sizeof(id));
	d->n++;
	return 0;
}

static int pop(struct digest *d)
{
	struct level *l = &d->levels[--d->n];
	uint8_t hash[SHA256_BYTES];

	sha256_final(l->sha, hash);
	if (d->n > 0) {
		sha256_update(l[-1].sha, l->head, l->head_len);
		sha256_update(l[-1].sha, hash, DIGEST_BYTES);
	}
	return d->each(l->dir, hash, d->userdata);
}

int digest_new(uint64_t root, digest_fn each, void *userdata, struct digest **ret)
{
	struct digest *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return -ENOMEM;
	d->each = each;
	d->userdata = userdata;
	r = push(d, root, NULL, 0);
	if (r < 0) {
		digest_free(d);
		return r;
	}
	*ret = d;
	return 0;
}

void digest_free(struct digest *d)
{
	if (!d)
		return;
	for (size_t i = 0; i < d->cap; i++)
		sha256_free(d->levels[i].sha);
	free(d->levels);
	free(d);
}

static size_t head_of(const struct digest_entry *e, uint8_t head[HEAD_MAX])
{
	uint64_t numbers[] = {e->node, e->inode,     e->device, (uint64_t)e->ctime_ns,
			      e->size, e->generation};
	size_t n = 3;

	head[0] = e->type;
	head[1] = e->torn;
	head[2] = e->name_len;
	memcpy(head + n, e->name, e->name_len);
	n += e->name_len;
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++, n += 8)
		put_le64(head + n, numbers[i]);
	if (e->attributes) {
		memcpy(head + n, e->attributes, DIGEST_BYTES);
		n += DIGEST_BYTES;
	}
	return n;
}

int digest_add(struct digest *d, size_t depth, const struct digest_entry *e)
{
	static const uint8_t none[DIGEST_BYTES];
	uint8_t head[HEAD_MAX];
	size_t n;
	int r;

	while (d->n > depth + 1) {
		r = pop(d);
		if (r < 0)
			return r;
	}
	if (d->n != depth + 1)
		return -EINVAL;
	n = head_of(e, head);
	if (e->type == NODE_TYPE_DIRECTORY)
		return push(d, e->node, head, n);
	sha256_update(d->levels[depth].sha, head, n);
	sha256_update(d->levels[depth].sha, e->sha ? e->sha : none, DIGEST_BYTES);
	return 0;
}

int digest_end(struct digest *d)
{
	int r = 0;

	while (r >= 0 && d->n > 0)
		r = pop(d);
	return r;
}

void digest_of_node(uint64_t id, const struct node *n, uint8_t sha[SHA256_BYTES],
		    struct digest_entry *ret)
{
	*ret = (struct digest_entry){
		.node = id,
		.inode = n->inode,
		.device = n->device,
		.ctime_ns = n->ctime_ns,
		.generation = digest_generation(n->generation),
		.type = n->type,
		.torn = n->type == NODE_TYPE_FILE && n->torn,
	};
	if (n->type == NODE_TYPE_FILE) {
		ret->size = n->content.size_bytes;
		ret->sha = n->content.sha256;
	} else if (n->type == NODE_TYPE_SYMLINK) {
		ret->size = n->target_len;
		sha256(n->target, n->target_len, sha);
		ret->sha = sha;
	} else if (n->type == NODE_TYPE_CHAR || n->type == NODE_TYPE_BLOCK) {
		ret->size = makedev(n->rdev_major, n->rdev_minor);
	}
}

uint64_t digest_path(const char *path, size_t len)
{
	uint8_t hash[SHA256_BYTES];

	if (len == 0)
		return NODE_ROOT;
	sha256(path, len, hash);
	return get_le64(hash);
}

void digest_of_content(const char *path, size_t len, const struct node *n, uint64_t odd,
		       struct sha256_ctx *sha, uint8_t hash[SHA256_BYTES], struct digest_entry *ret)
{
	const char *slash = memrchr(path, '/', len);
	uint64_t numbers[] = {
		n->type,
		n->mode,
		n->uid_kind,
		n->uid_kind == NODE_OWNER_NUMBER ? n->uid : 0,
		n->gid_kind,
		n->gid_kind == NODE_OWNER_NUMBER ? n->gid : 0,
		(uint64_t)n->mtime_ns,
		n->rdev_major,
		n->rdev_minor,
		n->content.size_bytes,
		n->torn,
		n->target_len,
		n->xattrs_len,
		odd,
	};
	uint8_t b[sizeof(numbers)];

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		put_le64(b + i * 8, numbers[i]);
	sha256_reset(sha);
	sha256_update(sha, b, sizeof(b));
	if (n->type == NODE_TYPE_FILE)
		sha256_update(sha, n->content.sha256, SHA256_BYTES);
	if (n->target_len)
		sha256_update(sha, n->target, n->target_len);
	if (n->xattrs_len)
		sha256_update(sha, n->xattrs, n->xattrs_len);
	sha256_final(sha, hash);
	*ret = (struct digest_entry){
		.node = n->type == NODE_TYPE_DIRECTORY ? digest_path(path, len) : 0,
		.type = n->type,
		.name = slash ? slash + 1 : path,
		.name_len = (uint8_t)(slash ? path + len - slash - 1 : (ptrdiff_t)len),
		.attributes = hash,
	};
}
