#include "journal/node.h"

#include <assert.h>

#include "base/sha256.h"
#include "base/util.h"

static const struct {
	char letter;
	mode_t mode;
	const char *name;
} types[] = {
	[NODE_TYPE_FILE] = {'f', S_IFREG, "file"},
	[NODE_TYPE_DIRECTORY] = {'d', S_IFDIR, "directory"},
	[NODE_TYPE_SYMLINK] = {'l', S_IFLNK, "symlink"},
	[NODE_TYPE_FIFO] = {'p', S_IFIFO, "fifo"},
	[NODE_TYPE_SOCKET] = {'s', S_IFSOCK, "socket"},
	[NODE_TYPE_CHAR] = {'c', S_IFCHR, "char"},
	[NODE_TYPE_BLOCK] = {'b', S_IFBLK, "block"},
};

char node_type_letter(uint8_t type)
{
	return type != NODE_TYPE_NONE && type < ARRAY_SIZE(types) ? types[type].letter : '?';
}

const char *node_type_name(uint8_t type)
{
	return type != NODE_TYPE_NONE && type < ARRAY_SIZE(types) ? types[type].name : "unknown";
}

uint8_t node_type_of_mode(mode_t st_mode)
{
	for (uint8_t i = NODE_TYPE_FILE; i < ARRAY_SIZE(types); i++) {
		if (types[i].mode == (st_mode & S_IFMT))
			return i;
	}
	return NODE_TYPE_NONE;
}

mode_t node_type_to_mode(uint8_t type)
{
	return type < ARRAY_SIZE(types) ? types[type].mode : 0;
}

/* ---- xattr lists ---- */

int node_xattrs_next(const uint8_t *p, uint32_t n, uint32_t *pos, const char **name,
		     uint16_t *name_len, const uint8_t **value, uint32_t *value_len)
{
	if (*pos >= n)
		return 0;
	*name_len = get_le16(p + *pos);
	*name = (const char *)p + *pos + 2;
	*value_len = get_le32(p + *pos + 2 + *name_len);
	*value = p + *pos + 2 + *name_len + 4;
	*pos += 2 + *name_len + 4 + *value_len;
	return 1;
}

static int compare_names(const char *a, size_t a_len, const char *b, size_t b_len)
{
	int r = memcmp(a, b, MIN(a_len, b_len));

	return r ? r : (a_len > b_len) - (a_len < b_len);
}

bool node_xattrs_ok(const uint8_t *p, uint32_t n)
{
	const char *before = NULL;
	uint16_t before_len = 0;

	if (n > NODE_XATTRS_MAX)
		return false;
	for (uint32_t pos = 0; pos < n;) {
		if (n - pos < 2)
			return false;
		uint16_t len = get_le16(p + pos);
		if (len == 0 || len > NODE_NAME_MAX || n - pos < 2u + len + 4)
			return false;
		const char *name = (const char *)p + pos + 2;
		uint32_t value_len = get_le32(p + pos + 2 + len);
		if (value_len > n - pos - 2 - len - 4)
			return false;
		if (memchr(name, 0, len))
			return false;
		if (before && compare_names(before, before_len, name, len) >= 0)
			return false;
		before = name;
		before_len = len;
		pos += 2 + len + 4 + value_len;
	}
	return true;
}

static bool starts_with(const char *s, size_t n, const char *prefix)
{
	size_t k = strlen(prefix);

	return n >= k && memcmp(s, prefix, k) == 0;
}

bool node_xattrs_find(const uint8_t *p, uint32_t n, const char *name, const uint8_t **ret_value,
		      uint32_t *ret_len)
{
	size_t name_len = strlen(name);
	uint32_t pos = 0, len;
	const uint8_t *v;
	const char *k;
	uint16_t klen;

	while (node_xattrs_next(p, n, &pos, &k, &klen, &v, &len) > 0)
		if (klen == name_len && memcmp(k, name, klen) == 0) {
			*ret_value = v;
			*ret_len = len;
			return true;
		}
	return false;
}

static int add_xattr(struct buf *out, const char *name, size_t name_len, const void *value,
		     uint32_t value_len)
{
	uint8_t head[4];
	int r;

	put_le16(head, (uint16_t)name_len);
	r = buf_add(out, head, 2);
	if (r >= 0)
		r = buf_add(out, name, name_len);
	put_le32(head, value_len);
	if (r >= 0)
		r = buf_add(out, head, 4);
	return r < 0 ? r : buf_add(out, value, value_len);
}

int node_xattrs_set(const uint8_t *p, uint32_t n, const char *name, const void *value,
		    uint32_t value_len, struct buf *out)
{
	size_t name_len = strlen(name), start = buf_len(out);
	bool done = value == NULL;
	uint32_t pos = 0, len;
	const uint8_t *v;
	const char *k;
	uint16_t klen;
	int r = 0;

	while (r >= 0 && node_xattrs_next(p, n, &pos, &k, &klen, &v, &len) > 0) {
		int c = memcmp(k, name, MIN((size_t)klen, name_len));

		if (c == 0)
			c = klen < name_len ? -1 : klen > name_len;
		if (c >= 0 && !done) {
			r = add_xattr(out, name, name_len, value, value_len);
			done = true;
		}
		if (r >= 0 && c != 0)
			r = add_xattr(out, k, klen, v, len);
	}
	if (r >= 0 && !done)
		r = add_xattr(out, name, name_len, value, value_len);
	return r >= 0 && buf_len(out) - start > NODE_XATTRS_MAX ? -E2BIG : r;
}

uint32_t node_xattr_class(const char *name, size_t n)
{
	if (starts_with(name, n, "user."))
		return NODE_MASK_XATTR_USER;
	if (starts_with(name, n, "trusted.") || starts_with(name, n, "security."))
		return NODE_MASK_XATTR_TRUSTED;
	if (starts_with(name, n, "system.posix_acl_"))
		return NODE_MASK_XATTR_ACL;
	return 0;
}

/* The next entry outside the mask, as its packed bytes; false at the end. */
static bool next_unmasked(const struct node *n, uint32_t mask, uint32_t *pos,
			  const uint8_t **ret_entry, uint32_t *ret_len)
{
	const uint8_t *value;
	const char *name;
	uint16_t name_len;
	uint32_t value_len;

	for (;;) {
		uint32_t start = *pos;
		if (!node_xattrs_next(n->xattrs, n->xattrs_len, pos, &name, &name_len, &value,
				      &value_len))
			return false;
		if (node_xattr_class(name, name_len) & mask)
			continue;
		*ret_entry = n->xattrs + start;
		*ret_len = *pos - start;
		return true;
	}
}

/* ---- what a mask leaves ---- */

int64_t node_masked_mtime(int64_t mtime_ns, uint32_t mask)
{
	if (mask & NODE_MASK_YEARS)
		return 0;
	if (mask & NODE_MASK_NS) {
		int64_t rest = mtime_ns % 1000000000;
		if (rest < 0)
			rest += 1000000000;
		/* A time within the first second of int64_t has no whole second below it. */
		return mtime_ns < INT64_MIN + rest ? INT64_MIN : mtime_ns - rest;
	}
	return mtime_ns;
}

static uint32_t masked_mode(const struct node *n, uint32_t mask)
{
	if (n->type == NODE_TYPE_SYMLINK)
		return 0777;
	return n->mode & (mask & NODE_MASK_SETID ? 0777 : 07777);
}

static bool is_device(const struct node *n)
{
	return n->type == NODE_TYPE_CHAR || n->type == NODE_TYPE_BLOCK;
}

/* ---- hashes ---- */

struct node_hasher {
	uint32_t mask;
	struct sha256_ctx *content, *full;
};

struct node_hasher *node_hasher_new(uint32_t mask)
{
	struct node_hasher *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->mask = mask;
	h->content = sha256_new();
	h->full = sha256_new();
	if (!h->content || !h->full) {
		node_hasher_free(h);
		return NULL;
	}
	return h;
}

void node_hasher_free(struct node_hasher *h)
{
	if (!h)
		return;
	sha256_free(h->content);
	sha256_free(h->full);
	free(h);
}

static void add_both(struct node_hasher *h, const void *data, size_t n)
{
	sha256_update(h->content, data, n);
	sha256_update(h->full, data, n);
}

static void add_content(struct node_hasher *h, const struct node *n)
{
	uint8_t b[1 + SHA256_BYTES];
	bool device = !(h->mask & NODE_MASK_DEVICE);

	switch (n->type) {
	case NODE_TYPE_FILE:
		b[0] = (n->mode & 0100) != 0;
		memcpy(b + 1, n->content.sha256, SHA256_BYTES);
		add_both(h, b, sizeof(b));
		break;
	case NODE_TYPE_SYMLINK:
		put_le32(b, n->target_len);
		add_both(h, b, 4);
		add_both(h, n->target, n->target_len);
		break;
	case NODE_TYPE_CHAR:
	case NODE_TYPE_BLOCK:
		put_le64(b, device ? n->rdev_major : 0);
		put_le64(b + 8, device ? n->rdev_minor : 0);
		add_both(h, b, 16);
		break;
	default: break;
	}
}

static void put_owner(uint8_t out[5], uint8_t kind, uint32_t number, uint32_t mask)
{
	if (mask & NODE_MASK_OWNER)
		kind = 0;
	out[0] = kind;
	put_le32(out + 1, kind == NODE_OWNER_NUMBER ? number : 0);
}

static void add_full(struct node_hasher *h, const struct node *n, uint32_t same_as)
{
	uint8_t b[4 + 5 + 5 + 8 + 4 + 4];
	uint32_t total = 0, pos = 0, len;
	const uint8_t *entry;

	while (next_unmasked(n, h->mask, &pos, &entry, &len))
		total += len;
	put_le32(b, masked_mode(n, h->mask));
	put_owner(b + 4, n->uid_kind, n->uid, h->mask);
	put_owner(b + 9, n->gid_kind, n->gid, h->mask);
	put_le64(b + 14, (uint64_t)node_masked_mtime(n->mtime_ns, h->mask));
	put_le32(b + 22, same_as);
	put_le32(b + 26, total);
	sha256_update(h->full, b, sizeof(b));
	pos = 0;
	while (next_unmasked(n, h->mask, &pos, &entry, &len))
		sha256_update(h->full, entry, len);
}

void node_hasher_add(struct node_hasher *h, const void *path, size_t path_len, const struct node *n,
		     uint32_t same_as)
{
	uint8_t b[5];

	assert(path_len <= UINT32_MAX);
	b[0] = (uint8_t)node_type_letter(n->type);
	put_le32(b + 1, (uint32_t)path_len);
	add_both(h, b, sizeof(b));
	add_both(h, path, path_len);
	add_content(h, n);
	add_full(h, n, same_as);
}

void node_hasher_final(struct node_hasher *h, uint8_t content[SHA256_BYTES],
		       uint8_t full[SHA256_BYTES])
{
	sha256_final(h->content, content);
	sha256_final(h->full, full);
}

/* ---- comparing ---- */

static bool owners_equal(uint8_t a_kind, uint32_t a, uint8_t b_kind, uint32_t b)
{
	return a_kind == b_kind && (a_kind != NODE_OWNER_NUMBER || a == b);
}

static bool xattrs_equal(const struct node *a, const struct node *b, uint32_t mask)
{
	uint32_t a_pos = 0, b_pos = 0, a_len = 0, b_len = 0;
	const uint8_t *a_entry, *b_entry;

	for (;;) {
		bool more_a = next_unmasked(a, mask, &a_pos, &a_entry, &a_len);
		bool more_b = next_unmasked(b, mask, &b_pos, &b_entry, &b_len);
		if (!more_a || !more_b)
			return more_a == more_b;
		if (a_len != b_len || memcmp(a_entry, b_entry, a_len) != 0)
			return false;
	}
}

static uint32_t compare_content(const struct node *a, const struct node *b, uint32_t mask)
{
	const struct content_ref *x = &a->content, *y = &b->content;

	if (is_device(a))
		return !(mask & NODE_MASK_DEVICE) && (a->rdev_major != b->rdev_major ||
						      a->rdev_minor != b->rdev_minor)
			       ? NODE_FIELD_CONTENT
			       : 0;
	if (a->type == NODE_TYPE_SYMLINK)
		return a->target_len != b->target_len ||
				       (a->target_len &&
					memcmp(a->target, b->target, a->target_len) != 0)
			       ? NODE_FIELD_TARGET
			       : 0;
	if (a->type != NODE_TYPE_FILE)
		return 0;
	if (x->size_bytes != y->size_bytes || memcmp(x->sha256, y->sha256, SHA256_BYTES) != 0)
		return NODE_FIELD_CONTENT;
	/* The same bytes under another list of chunks: the holes are elsewhere. */
	if (x->holes != y->holes || (x->holes && memcmp(x->root, y->root, SHA256_BYTES) != 0))
		return NODE_FIELD_HOLES;
	return 0;
}

uint32_t node_compare(const struct node *a, const struct node *b, uint32_t mask)
{
	uint32_t fields = 0;

	if (a->type != b->type)
		fields |= NODE_FIELD_TYPE;
	else
		fields |= compare_content(a, b, mask);
	if (masked_mode(a, mask) != masked_mode(b, mask) && a->type == b->type)
		fields |= NODE_FIELD_MODE;
	if (!(mask & NODE_MASK_OWNER)) {
		if (!owners_equal(a->uid_kind, a->uid, b->uid_kind, b->uid))
			fields |= NODE_FIELD_UID;
		if (!owners_equal(a->gid_kind, a->gid, b->gid_kind, b->gid))
			fields |= NODE_FIELD_GID;
	}
	if (node_masked_mtime(a->mtime_ns, mask) != node_masked_mtime(b->mtime_ns, mask))
		fields |= NODE_FIELD_MTIME;
	if (!xattrs_equal(a, b, mask))
		fields |= NODE_FIELD_XATTR;
	return fields;
}

void node_set_fields(struct node *n, const struct node *from, uint32_t fields)
{
	if (fields & NODE_FIELD_MODE)
		n->mode = from->mode;
	if (fields & NODE_FIELD_UID) {
		n->uid_kind = from->uid_kind;
		n->uid = from->uid;
	}
	if (fields & NODE_FIELD_GID) {
		n->gid_kind = from->gid_kind;
		n->gid = from->gid;
	}
	if (fields & NODE_FIELD_MTIME)
		n->mtime_ns = from->mtime_ns;
	if (fields & NODE_FIELD_XATTR) {
		n->xattrs = from->xattrs;
		n->xattrs_len = from->xattrs_len;
	}
}

const char *node_field_name(enum node_field one_bit)
{
	switch (one_bit) {
	case NODE_FIELD_TYPE: return "type";
	case NODE_FIELD_CONTENT: return "content";
	case NODE_FIELD_MODE: return "mode";
	case NODE_FIELD_UID: return "uid";
	case NODE_FIELD_GID: return "gid";
	case NODE_FIELD_MTIME: return "mtime";
	case NODE_FIELD_TARGET: return "target";
	case NODE_FIELD_XATTR: return "xattr";
	case NODE_FIELD_LINKS: return "links";
	case NODE_FIELD_HOLES: return "holes";
	}
	return "unknown";
}
