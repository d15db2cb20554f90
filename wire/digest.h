/*
 * digest.h - a tree as one hash for each directory, made of all that lies beneath it:
 * so two sides find out what is equal without sending it (PROTOCOL, TREE_GET).
 *
 *	digest_new(root, each, userdata, &d)
 *	digest_add(d, depth, &e)	in pre-order, a directory's names bytewise
 *	digest_end(d)			the root's is the last
 *
 * each() is called for a directory when all beneath it has been added.  The hash of a
 * directory says nothing of its own attributes, but of those of its entries: what makes
 * them what they are there (node, inode, generation, device, ctime), size, the first bytes of
 * the content's SHA-256, whether it is torn.  Mode, owner and mtime are those that the inode
 * had at that ctime, or a stat will tell.
 */
#ifndef WIRE_DIGEST_H
#define WIRE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"
#include "base/util.h"
#include "journal/node.h"

#define DIGEST_BYTES 16
#define DIGESTS_MAX 65536 /* of one TREE_GET: they fill its bulk */

struct digest_entry {
	uint64_t node, inode, device;
	uint64_t size; /* of a file or a link's target; devices: the number; else 0 */
	int64_t ctime_ns;
	uint32_t generation; /* digest_generation() */
	uint8_t type;	     /* enum node_type */
	bool torn;
	uint8_t name_len;
	const char *name;
	const uint8_t *sha;	   /* DIGEST_BYTES of a file's or a target's SHA-256; else NULL */
	const uint8_t *attributes; /* by content: DIGEST_BYTES of all that there is to it */
};

typedef int (*digest_fn)(uint64_t dir, const uint8_t hash[DIGEST_BYTES], void *userdata);

struct digest;
int digest_new(uint64_t root, digest_fn each, void *userdata, struct digest **ret);
void digest_free(struct digest *d);
DEFINE_CLEANUP(struct digest, digest_free);
/* depth 0: in the root. -EINVAL: not beneath the directory added last; or what each() says. */
int digest_add(struct digest *d, size_t depth, const struct digest_entry *e);
int digest_end(struct digest *d);

/* A birth time, folded; never 0 if it is known. */
static inline uint32_t digest_generation(uint64_t btime_ns)
{
	return btime_ns ? (uint32_t)(btime_ns * 0x9e3779b97f4a7c15ull >> 32) | 1 : 0;
}

/* All but the name, as the journal has it; sha holds a target's hash. */
void digest_of_node(uint64_t id, const struct node *n, uint8_t sha[SHA256_BYTES],
		    struct digest_entry *ret);

/* By content: what a restore would have to make, and where. Directories are known by their
 * paths, nothing by an inode or a node. odd, if not 0: no two sides have this in common (a
 * file with several names). */
uint64_t digest_path(const char *path, size_t len);
void digest_of_content(const char *path, size_t len, const struct node *n, uint64_t odd,
		       struct sha256_ctx *sha, uint8_t hash[SHA256_BYTES],
		       struct digest_entry *ret);

#endif
