#include "fs/attr.h"

#include <sys/sysmacros.h>

#include "base/clock.h"
#include "fs/look.h"

enum {
	NOBODY = 65534,
	OTHER_NOBODY = 65533,
	BLOCK_BYTES = 4096,
};

void attr_rules_init(struct attr_rules *r, bool look, uid_t uid, gid_t gid)
{
	*r = (struct attr_rules){.look = look, .uid = uid, .gid = gid};
	if (look) {
		r->uid = uid == NOBODY ? OTHER_NOBODY : NOBODY;
		r->gid = gid == NOBODY ? OTHER_NOBODY : NOBODY;
	}
	r->all_xattrs = !look && uid == 0;
}

uint64_t attr_inode(const struct index_node *n)
{
	return n->n.inode && n->n.device == 0 ? n->n.inode : n->id | ATTR_OWN_INODE;
}

static uint32_t owner(uint8_t kind, uint32_t number, uint32_t self)
{
	switch (kind) {
	case NODE_OWNER_SELF: return self;
	case NODE_OWNER_ROOT: return 0;
	default: return number;
	}
}

static uint64_t size_of(const struct index_node *n, size_t target_len)
{
	switch (n->n.type) {
	case NODE_TYPE_FILE: return n->n.content.size_bytes;
	case NODE_TYPE_SYMLINK: return target_len;
	case NODE_TYPE_DIRECTORY: return BLOCK_BYTES;
	default: return 0;
	}
}

void attr_stat(const struct attr_rules *r, const struct index_node *n, size_t target_len,
	       struct stat *ret)
{
	const struct node *a = &n->n;
	uint32_t mode = r->look ? look_mode(a->type, a->mode) : a->mode;

	memset(ret, 0, sizeof(*ret));
	ret->st_ino = attr_inode(n);
	ret->st_mode = node_type_to_mode(a->type) | (mode & 07777);
	ret->st_nlink = a->type == NODE_TYPE_DIRECTORY ? MIN(n->links, 1u) : n->links;
	ret->st_uid = r->look ? r->uid : owner(a->uid_kind, a->uid, r->uid);
	ret->st_gid = r->look ? r->gid : owner(a->gid_kind, a->gid, r->gid);
	ret->st_rdev = makedev(a->rdev_major, a->rdev_minor);
	ret->st_size = (off_t)size_of(n, target_len);
	ret->st_blksize = BLOCK_BYTES;
	ret->st_blocks = (blkcnt_t)(a->allocated_bytes / 512 + (a->allocated_bytes % 512 != 0));
	ret->st_mtim = clock_to_timespec(a->mtime_ns);
	ret->st_ctim = clock_to_timespec(a->ctime_ns);
	ret->st_atim = ret->st_mtim;
}

bool attr_xattr_shown(const struct attr_rules *r, const char *name, size_t n)
{
	return r->all_xattrs || (n > 5 && memcmp(name, "user.", 5) == 0);
}
