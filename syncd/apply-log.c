#include "syncd/apply-log.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "base/beneath.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/io.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/util.h"
#include "syncd/scan.h"

#define LOG "apply-log"
#define NEW "apply-new"
#define BASE "apply-base"
#define MAGIC "LIMBAPL1"

enum {
	BLOCK = 16384,
	HEAD_BYTES = 8 + 8 + 8 + 4 + 4 + 8 + 8 + SHA256_BYTES,
	RECORD_MAX = 64 << 10,
};

struct entry {
	uint64_t root, inode, base_bytes, new_bytes;
	uint32_t generation;
	uint8_t sha256[SHA256_BYTES];
	char *path;
};

/* ---- the record ---- */

static int entry_store(const struct entry *e, int dir)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(RECORD_MAX);
	uint8_t head[HEAD_BYTES], check[SHA256_BYTES];
	size_t len = strlen(e->path);
	int r;

	memcpy(head, MAGIC, 8);
	put_le64(head + 8, e->root);
	put_le64(head + 16, e->inode);
	put_le32(head + 24, e->generation);
	put_le32(head + 28, (uint32_t)len);
	put_le64(head + 32, e->base_bytes);
	put_le64(head + 40, e->new_bytes);
	memcpy(head + 48, e->sha256, SHA256_BYTES);
	r = buf_add(&b, head, sizeof(head));
	if (r == 0)
		r = buf_add(&b, e->path, len);
	if (r < 0)
		return r == -E2BIG ? -ENAMETOOLONG : r;
	sha256(buf_data(&b), buf_len(&b), check);
	r = buf_add(&b, check, sizeof(check));
	return r < 0 ? r : file_replace(dir, LOG, buf_data(&b), buf_len(&b));
}

/* -EBADMSG: damaged. */
static int entry_load(struct entry *e, int dir)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(RECORD_MAX);
	uint8_t check[SHA256_BYTES];
	const uint8_t *p;
	size_t len;
	int r;

	r = file_read(dir, LOG, &b);
	if (r < 0)
		return r == -E2BIG ? -EBADMSG : r;
	if (buf_len(&b) < HEAD_BYTES + SHA256_BYTES)
		return -EBADMSG;
	p = buf_data(&b);
	len = buf_len(&b) - HEAD_BYTES - SHA256_BYTES;
	sha256(p, HEAD_BYTES + len, check);
	if (memcmp(check, p + HEAD_BYTES + len, sizeof(check)) != 0 || memcmp(p, MAGIC, 8) != 0 ||
	    get_le32(p + 28) != len || memchr(p + HEAD_BYTES, 0, len))
		return -EBADMSG;
	*e = (struct entry){
		.root = get_le64(p + 8),
		.inode = get_le64(p + 16),
		.generation = get_le32(p + 24),
		.base_bytes = get_le64(p + 32),
		.new_bytes = get_le64(p + 40),
		.path = strndup((const char *)p + HEAD_BYTES, len),
	};
	memcpy(e->sha256, p + 48, SHA256_BYTES);
	return e->path ? 0 : -ENOMEM;
}

static void copies_drop(int dir)
{
	(void)unlinkat(dir, NEW, 0);
	(void)unlinkat(dir, BASE, 0);
}

/* The record first, for ever: without it the others mean nothing. */
static int entry_drop(int dir)
{
	int r = io_unlinkat(dir, LOG, 0, "apply.log.unlink");

	if (r == 0)
		r = file_sync_dir(dir, ".");
	if (r < 0 && r != -ENOENT)
		return r;
	copies_drop(dir);
	return 0;
}

/* ---- bytes ---- */

/* A synced copy in the private directory. */
static int keep_copy(int dir, const char *name, int from, uint64_t size_bytes, int *ret_fd,
		     uint8_t sha[SHA256_BYTES])
{
	cleanup_close int fd = -1;
	uint8_t block[BLOCK];
	struct sha256_ctx *ctx;
	int r = 0;

	(void)unlinkat(dir, name, 0);
	fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	ctx = sha256_new();
	for (uint64_t at = 0; r == 0 && at < size_bytes;) {
		size_t n = MIN((uint64_t)BLOCK, size_bytes - at);
		ssize_t k = io_pread_full(from, block, n, at, "apply.log.read");

		/* Shorter than it was: somebody writes it. */
		r = k < 0 ? (int)k : k < (ssize_t)n ? -EBUSY : 0;
		if (r < 0)
			break;
		sha256_update(ctx, block, n);
		r = io_pwrite_full(fd, block, n, at, "apply.log.copy");
		at += n;
	}
	sha256_final(ctx, sha);
	sha256_free(ctx);
	if (r == 0)
		r = io_fsync(fd, "apply.log.sync");
	if (r == 0)
		*ret_fd = take_fd(&fd);
	return r;
}

/* Only blocks that differ. */
static int write_ranges(int fd, int from, uint64_t size_bytes, const char *point)
{
	uint8_t want[BLOCK], have[BLOCK];
	ssize_t k;
	int r;

	for (uint64_t at = 0; at < size_bytes; at += BLOCK) {
		size_t n = MIN((uint64_t)BLOCK, size_bytes - at);

		k = io_pread_full(from, want, n, at, "apply.log.read");
		if (k < (ssize_t)n)
			return k < 0 ? (int)k : -EIO;
		k = io_pread_full(fd, have, n, at, "apply.log.read");
		if (k < 0)
			return (int)k;
		if (k == (ssize_t)n && memcmp(want, have, n) == 0)
			continue;
		r = io_pwrite_full(fd, want, n, at, point);
		if (r < 0)
			return r;
	}
	r = io_ftruncate(fd, size_bytes, point);
	return r < 0 ? r : io_fsync(fd, point);
}

/* Zeros after the end, as the file itself reads when it was made longer. */
static int read_padded(int fd, uint8_t block[BLOCK], uint64_t at)
{
	ssize_t n = io_pread_full(fd, block, BLOCK, at, "apply.log.read");

	if (n >= 0)
		memset(block + n, 0, BLOCK - (size_t)n);
	return n < 0 ? (int)n : 0;
}

/* 1: each byte is one of the old or of the new file; 0: somebody else's is there. */
static int is_torn_by_us(const struct entry *e, int fd, int base, int new_fd)
{
	uint8_t have[BLOCK], old[BLOCK], want[BLOCK];
	struct stat st;
	int r = 0;

	if (fstat(fd, &st) < 0)
		return -errno;
	if ((uint64_t)st.st_size < MIN(e->base_bytes, e->new_bytes) ||
	    (uint64_t)st.st_size > MAX(e->base_bytes, e->new_bytes))
		return 0;
	for (uint64_t at = 0; r == 0 && at < (uint64_t)st.st_size; at += BLOCK) {
		size_t n = MIN((uint64_t)BLOCK, (uint64_t)st.st_size - at);

		r = read_padded(fd, have, at);
		if (r == 0)
			r = read_padded(base, old, at);
		if (r == 0)
			r = read_padded(new_fd, want, at);
		for (size_t i = 0; r == 0 && i < n; i++)
			if (have[i] != old[i] && have[i] != want[i])
				return 0;
	}
	return r < 0 ? r : 1;
}

/* ---- mending ---- */

static int open_copy(int dir, const char *name, uint64_t size_bytes, int *ret_fd)
{
	cleanup_close int fd = -1;
	struct stat st;

	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ELOOP ? -EBADMSG : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != size_bytes)
		return -EBADMSG;
	*ret_fd = take_fd(&fd);
	return 0;
}

static int hash_is(int fd, const uint8_t sha[SHA256_BYTES])
{
	uint8_t block[BLOCK], hash[SHA256_BYTES];
	struct sha256_ctx *ctx = sha256_new();
	uint64_t at = 0;
	ssize_t n;

	while ((n = io_pread_full(fd, block, sizeof(block), at, "apply.log.read")) > 0) {
		sha256_update(ctx, block, (size_t)n);
		at += (uint64_t)n;
	}
	sha256_final(ctx, hash);
	sha256_free(ctx);
	if (n < 0)
		return (int)n;
	return memcmp(hash, sha, sizeof(hash)) == 0 ? 0 : -EBADMSG;
}

/* -ESTALE: the path leads to something else, or others have written there. */
static int finish(const struct entry *e, int dir, int root)
{
	cleanup_close int fd = -1, base = -1, new_fd = -1;
	struct stamp st;
	int r;

	r = open_copy(dir, NEW, e->new_bytes, &new_fd);
	if (r == 0)
		r = open_copy(dir, BASE, e->base_bytes, &base);
	if (r == 0)
		r = hash_is(new_fd, e->sha256);
	if (r < 0)
		return r;
	fd = beneath_open(root, e->path, O_RDWR | O_NONBLOCK, 0);
	if (fd < 0)
		return fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP || fd == -EISDIR ? -ESTALE
											: fd;
	r = stamp_of(fd, &st);
	if (r < 0)
		return r;
	if (!S_ISREG(st.mode) || st.inode != e->inode || stamp_generation(&st) != e->generation)
		return -ESTALE;
	r = is_torn_by_us(e, fd, base, new_fd);
	if (r <= 0)
		return r < 0 ? r : -ESTALE;
	return write_ranges(fd, new_fd, e->new_bytes, "apply.mend");
}

int apply_log_mend(int dir, int root)
{
	struct entry e = {0};
	struct stat st;
	int r;

	r = entry_load(&e, dir);
	if (r == -ENOENT) {
		copies_drop(dir);
		return 0;
	}
	if (r == -EBADMSG) {
		log_warning("the apply log is damaged and is dropped");
		return entry_drop(dir);
	}
	if (r == 0 && fstat(root, &st) < 0)
		r = -errno;
	if (r == 0 && st.st_ino == e.root) {
		r = finish(&e, dir, root);
		if (r == 0)
			log_info("'%s' was half written and is whole now", e.path);
		else if (r == -ESTALE || r == -EBADMSG)
			(void)log_warning_errno(
				r, "'%s' may have been half written; it stays as it is", e.path);
		else
			(void)log_error_errno(r,
					      "cannot finish '%s', which is half written; the "
					      "next attach tries again",
					      e.path);
		if (r == 0 || r == -ESTALE || r == -EBADMSG)
			r = entry_drop(dir);
	}
	free(e.path);
	return r;
}

/* ---- writing ---- */

int apply_log_write(int dir, int root, const char *path, int fd, int from, uint64_t size_bytes)
{
	cleanup_close int base = -1, new_fd = -1;
	uint8_t sha[SHA256_BYTES];
	struct entry e = {.new_bytes = size_bytes, .path = (char *)path};
	struct stat root_st;
	struct stamp st;
	int r;

	/* One that could not be finished at its time. */
	r = apply_log_mend(dir, root);
	if (r == 0)
		r = stamp_of(fd, &st);
	if (r < 0)
		return r;
	if (!S_ISREG(st.mode))
		return -ESTALE;
	if (fstat(root, &root_st) < 0)
		return -errno;
	e.root = root_st.st_ino;
	e.inode = st.inode;
	e.generation = stamp_generation(&st);
	e.base_bytes = st.size;
	r = keep_copy(dir, NEW, from, size_bytes, &new_fd, e.sha256);
	if (r == 0)
		r = keep_copy(dir, BASE, fd, st.size, &base, sha);
	if (r == 0)
		r = entry_store(&e, dir);
	if (r < 0) {
		(void)entry_drop(dir);
		return r;
	}
	r = write_ranges(fd, new_fd, size_bytes, "apply.in_place");
	if (r < 0 && write_ranges(fd, base, st.size, "apply.back") < 0) {
		(void)log_error_errno(r, "'%s' is half written; the next attach tries again", path);
		return r;
	}
	(void)entry_drop(dir);
	return r;
}
