/*
 * node.h - a node's attributes and content as one value, shared by the index,
 * the wire, the view and the tree hashes.
 *
 * Variable parts (symlink target, xattr list) are pointers that the value does
 * not own: who fills a struct node says until when they hold.  The packed xattr
 * list is canonical (sorted bytewise by name): u16 length, name, u32 length,
 * value, little-endian, end to end.
 */
#ifndef JOURNAL_NODE_H
#define JOURNAL_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "journal/content.h"

#define NODE_ROOT 1ull
#define NODE_NAME_MAX 255
#define NODE_TARGET_MAX 4095
#define NODE_XATTRS_MAX (64u << 10) /* the whole packed list */

/* As record.proto's NodeType, OwnerKind. */
enum node_type {
	NODE_TYPE_NONE = 0,
	NODE_TYPE_FILE = 1,
	NODE_TYPE_DIRECTORY = 2,
	NODE_TYPE_SYMLINK = 3,
	NODE_TYPE_FIFO = 4,
	NODE_TYPE_SOCKET = 5,
	NODE_TYPE_CHAR = 6,
	NODE_TYPE_BLOCK = 7,
};
enum node_owner_kind { NODE_OWNER_SELF = 0, NODE_OWNER_ROOT = 1, NODE_OWNER_NUMBER = 2 };

/* Bits of what an incarnation cannot hold. */
enum node_mask {
	NODE_MASK_OWNER = 1 << 0, /* chown to others fails */
	NODE_MASK_SETID = 1 << 1, /* 07000 bits are lost */
	NODE_MASK_XATTR_USER = 1 << 2,
	NODE_MASK_XATTR_TRUSTED = 1 << 3, /* trusted.*, security.* (capabilities) */
	NODE_MASK_XATTR_ACL = 1 << 4,	  /* system.posix_acl_* */
	NODE_MASK_NS = 1 << 5,		  /* times coarser than ns */
	NODE_MASK_DEVICE = 1 << 6,	  /* no mknod of devices */
	NODE_MASK_YEARS = 1 << 7,	  /* times before 1970 or after 2106 are clamped */
};

struct node {
	uint8_t type;
	uint8_t uid_kind, gid_kind;
	uint32_t mode;	   /* 07777 */
	uint32_t uid, gid; /* meaningful for NODE_OWNER_NUMBER; the raw number otherwise */
	int64_t mtime_ns, ctime_ns;
	uint64_t inode, generation, device; /* the environment's own */
	uint32_t rdev_major, rdev_minor;
	uint32_t unheld;
	bool torn;
	struct content_ref content; /* files; zeros otherwise */
	uint64_t allocated_bytes;
	const uint8_t *target;
	uint32_t target_len;
	const uint8_t *xattrs;
	uint32_t xattrs_len;
};

/* The letter of FORMAT 8; '?' for NODE_TYPE_NONE. */
char node_type_letter(uint8_t type);
/* "file", "directory", ... of the command-line contract. */
const char *node_type_name(uint8_t type);
uint8_t node_type_of_mode(mode_t st_mode);
mode_t node_type_to_mode(uint8_t type); /* S_IFREG ... */

/* Packed xattr lists: judge one; walk one. */
bool node_xattrs_ok(const uint8_t *p, uint32_t n);
/* Next entry at *pos (start 0): 1 and the pieces, 0 at the end. The list must be ok. */
int node_xattrs_next(const uint8_t *p, uint32_t n, uint32_t *pos, const char **name,
		     uint16_t *name_len, const uint8_t **value, uint32_t *value_len);

/* The value of that name. False: the list has none. */
bool node_xattrs_find(const uint8_t *p, uint32_t n, const char *name, const uint8_t **ret_value,
		      uint32_t *ret_len);

/* Appends the list p with that value of name; value NULL: without it. -E2BIG: of its bound. */
int node_xattrs_set(const uint8_t *p, uint32_t n, const char *name, const void *value,
		    uint32_t value_len, struct buf *out);

/* The mask bit of the class that a name belongs to; 0 for names outside all classes. */
uint32_t node_xattr_class(const char *name, size_t n);

/* A time as the mask leaves it: whole seconds under NODE_MASK_NS (rounded down), 0 under
 * NODE_MASK_YEARS. */
int64_t node_masked_mtime(int64_t mtime_ns, uint32_t mask);

/* ---- tree hashes (FORMAT 8): a stream of entries in canonical order ---- */

struct node_hasher;
struct node_hasher *node_hasher_new(uint32_t mask); /* NULL: no memory */
void node_hasher_free(struct node_hasher *h);
/* path: from the root, bytes; same_as: number (from 1) of the first entry of this node, 0 = first. */
void node_hasher_add(struct node_hasher *h, const void *path, size_t path_len, const struct node *n,
		     uint32_t same_as);
void node_hasher_final(struct node_hasher *h, uint8_t content[SHA256_BYTES],
		       uint8_t full[SHA256_BYTES]);

/* Fields in which a and b differ under the mask: bits of enum node_field. Device
 * numbers count as content; links are not part of a struct node: the caller's. */
enum node_field {
	NODE_FIELD_TYPE = 1 << 0,
	NODE_FIELD_CONTENT = 1 << 1,
	NODE_FIELD_MODE = 1 << 2,
	NODE_FIELD_UID = 1 << 3,
	NODE_FIELD_GID = 1 << 4,
	NODE_FIELD_MTIME = 1 << 5,
	NODE_FIELD_TARGET = 1 << 6,
	NODE_FIELD_XATTR = 1 << 7,
	NODE_FIELD_LINKS = 1 << 8,
	NODE_FIELD_HOLES = 1 << 9,
};
uint32_t node_compare(const struct node *a, const struct node *b, uint32_t mask);
/* n gets these of `from`: MODE, UID, GID, MTIME and XATTR, which is lent as it is there. */
void node_set_fields(struct node *n, const struct node *from, uint32_t fields);
const char *node_field_name(enum node_field one_bit);

#endif
