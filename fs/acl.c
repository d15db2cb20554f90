#include "fs/acl.h"

#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>

#include "base/util.h"

#define ACCESS "system.posix_acl_access"

enum { HEAD_BYTES = 4, ENTRY_BYTES = 8, ENTRIES_MAX = 8000 };

bool acl_is_access(const char *name)
{
	return strcmp(name, ACCESS) == 0;
}

static bool is_acl(const uint8_t *p, size_t n)
{
	return n >= HEAD_BYTES && get_le32(p) == POSIX_ACL_XATTR_VERSION &&
	       (n - HEAD_BYTES) % ENTRY_BYTES == 0 && n / ENTRY_BYTES <= ENTRIES_MAX;
}

int acl_mode(const void *acl, size_t n, uint32_t mode, uint32_t *ret_mode)
{
	const uint8_t *p = acl;
	bool mask = false, more = false;

	if (!is_acl(p, n))
		return -EINVAL;
	for (size_t at = HEAD_BYTES; at < n; at += ENTRY_BYTES) {
		uint32_t perm = get_le16(p + at + 2);

		if (perm > 7)
			return -EINVAL;
		switch (get_le16(p + at)) {
		case ACL_USER_OBJ: mode = (mode & ~0700u) | perm << 6; break;
		case ACL_GROUP_OBJ: mode = mask ? mode : (mode & ~0070u) | perm << 3; break;
		case ACL_MASK:
			mode = (mode & ~0070u) | perm << 3;
			mask = more = true;
			break;
		case ACL_OTHER: mode = (mode & ~0007u) | perm; break;
		case ACL_USER:
		case ACL_GROUP: more = true; break;
		default: return -EINVAL;
		}
	}
	*ret_mode = mode;
	return more;
}

static bool has_mask(const uint8_t *p, size_t n)
{
	for (size_t at = HEAD_BYTES; at < n; at += ENTRY_BYTES)
		if (get_le16(p + at) == ACL_MASK)
			return true;
	return false;
}

static void follow(uint8_t *p, size_t n, uint32_t mode)
{
	bool mask = has_mask(p, n);

	for (size_t at = HEAD_BYTES; at < n; at += ENTRY_BYTES) {
		switch (get_le16(p + at)) {
		case ACL_USER_OBJ: put_le16(p + at + 2, (uint16_t)(mode >> 6 & 7)); break;
		case ACL_GROUP_OBJ:
			if (!mask)
				put_le16(p + at + 2, (uint16_t)(mode >> 3 & 7));
			break;
		case ACL_MASK: put_le16(p + at + 2, (uint16_t)(mode >> 3 & 7)); break;
		case ACL_OTHER: put_le16(p + at + 2, (uint16_t)(mode & 7)); break;
		default: break;
		}
	}
}

int acl_follow_mode(const struct node *n, uint32_t mode, struct buf *xattrs)
{
	const uint8_t *value;
	cleanup_free uint8_t *acl = NULL;
	uint32_t len;
	int r;

	if (!node_xattrs_find(n->xattrs, n->xattrs_len, ACCESS, &value, &len) ||
	    !is_acl(value, len))
		return 0;
	acl = malloc(len);
	if (!acl)
		return -ENOMEM;
	memcpy(acl, value, len);
	follow(acl, len, mode);
	r = node_xattrs_set(n->xattrs, n->xattrs_len, ACCESS, acl, len, xattrs);
	return r < 0 ? r : 1;
}
