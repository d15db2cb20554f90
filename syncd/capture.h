/*
 * capture.h - one entry as it is: attributes, target, extended attributes, and
 * the bytes of small files.  Runs in worker threads.
 *
 * A file is taken by stat, read, stat, and again if it moved; one that never
 * rests is marked torn.  Nothing but regular files is ever opened.  Large and
 * sparse files are left to stream.h.
 */
#ifndef SYNCD_CAPTURE_H
#define SYNCD_CAPTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/sha256.h"
#include "syncd/scan.h"

enum {
	CAPTURE_INLINE_MAX = 256 * 1024,
	CAPTURE_SPARSE_MIN = 64 * 1024, /* holes of smaller files are not kept */
};

struct capture {
	const char *name; /* NUL-terminated; "" = the directory itself */
	struct stamp expect;
	bool mapped;	 /* write dirty mappings back first */
	bool unread;	 /* while it is as expected its bytes are known; then it stays true */
	uint32_t unheld; /* kinds of attributes that are not read */

	/* Out: */
	int error; /* -ENOENT, -ESTALE: another node, -EACCES ... */
	bool large, torn, holes;
	struct stamp st;
	uint8_t sha[SHA256_BYTES]; /* files, links */
	uint32_t kept;		   /* kinds of xattrs that could not be read */
	size_t content, content_len;
	size_t target, target_len; /* in text */
	size_t xattrs, xattrs_len; /* in text */
	uint64_t cost_ns;
};

/* dir: any descriptor of the directory. Appends to bulk and text. */
void capture_entry(int dir, struct capture *c, struct buf *bulk, struct buf *text);
/* -ESTALE if it is not the expected regular file; sets c->st. */
int capture_open(int dir, struct capture *c, int *ret_fd);
int capture_xattrs(int dir, int fd, struct capture *c, struct buf *text);
bool capture_is_sparse(const struct stamp *st);

#endif
