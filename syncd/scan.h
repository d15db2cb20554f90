/*
 * scan.h - what statx says: of one name, and of all names of a directory; the
 * half of the sync that runs in worker threads and only reads.
 *
 * Directories are opened beneath the root and compared with what the shadow
 * says they are (struct scan_dir), so that whatever was put in their place is
 * not taken for them.  Nothing here changes the shadow; results go back to the
 * loop thread by value.
 */
#ifndef SYNCD_SCAN_H
#define SYNCD_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "syncd/shadow.h"

struct watch;

struct stamp {
	uint64_t inode, size, device, mount, blocks_bytes;
	int64_t mtime_ns, ctime_ns, btime_ns; /* btime 0 = unknown */
	uint32_t uid, gid, nlink, rdev_major, rdev_minor;
	uint16_t mode; /* S_IF... | 07777 */
};

/* name "" is the directory itself. No link is followed, nothing is mounted. */
int stamp_at(int dir, const char *name, struct stamp *ret);
int stamp_of(int fd, struct stamp *ret);
uint32_t stamp_generation(const struct stamp *st); /* folded birth time, never 0 if known */
/* The same file at rest: nothing that statx shows moved in between. */
bool stamp_same(const struct stamp *a, const struct stamp *b);

/* A directory to be opened, and what it must be. */
struct scan_dir {
	uint32_t dir;	/* shadow's node, for the caller */
	char *path;	/* from the root, owned by the caller */
	uint64_t inode; /* 0 = not known */
	uint32_t generation;
	uint64_t device, mount; /* the root's; device 0 = not compared */
	/* Out: */
	int error; /* -ENOENT, -ESTALE: another directory, -EXDEV: another device or mount, ... */
	int watch_error;
	int wd;
	struct stamp st;
};

/* For *at() calls only (O_PATH), or for reading. */
int scan_open(int root_fd, struct scan_dir *d, bool reading, int *ret_fd);

struct scan_name {
	struct stamp st;
	int error; /* of its statx */
	uint32_t name;
	uint8_t len;
};

struct scan_listing {
	struct scan_name *names;
	size_t n, cap;
	struct buf text; /* names, each ended by NUL */
};
void scan_listing_done(struct scan_listing *l);

/* Adds a watch if w is given, then lists. d->error says why there is nothing. */
void scan_list(int root_fd, struct scan_dir *d, struct watch *w, struct scan_listing *ret);

/* Is each name absent: before and after a listing that lacks it? names are NUL-terminated. */
struct scan_absent {
	const char *name;
	uint8_t len;
	bool confirmed;
	int error; /* why not, when the name was not simply there */
};
void scan_verify(int root_fd, struct scan_dir *d, struct scan_absent *names, size_t n);

#endif
