/* apply.h's PUT: a file beside its name, then in its place. */
#include "syncd/apply-impl.h"

#include <fcntl.h>
#include <stdio.h>

#include "base/io.h"
#include "base/sha256.h"
#include "base/util.h"
#include "syncd/apply-log.h"
#include "syncd/attrs.h"

static int copy_bytes(int from, int to, uint64_t size_bytes)
{
	off_t in = 0, out = 0;
	ssize_t n;

	while ((n = copy_file_range(from, &in, to, &out, 1 << 30, 0)) > 0)
		;
	if (n < 0 && errno != EXDEV && errno != EINVAL && errno != ENOSYS)
		return -errno;
	while (n != 0) {
		uint8_t block[16384];

		n = io_pread_full(from, block, sizeof(block), (uint64_t)in, "apply.read");
		if (n < 0)
			return (int)n;
		if (n > 0 && io_pwrite_full(to, block, (size_t)n, (uint64_t)in, "apply.copy") < 0)
			return -EIO;
		in += n;
	}
	return io_ftruncate(to, size_bytes, "apply.size");
}

/* A name for the pushed bytes beside the target; a copy when they are on another device. */
static int name_push(const struct change *c, int dir, const char *temp)
{
	cleanup_close int fd = -1;
	char path[40];
	int r;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", c->push->fd);
	if (linkat(AT_FDCWD, path, dir, temp, AT_SYMLINK_FOLLOW) == 0) {
		fd = openat(dir, temp, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	} else {
		fd = openat(dir, temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		r = fd < 0 ? -errno : copy_bytes(c->push->fd, fd, c->push->size_bytes);
		if (r < 0)
			return r;
	}
	return fd < 0 ? -errno : apply_give_attrs(c, dir, temp, fd);
}

/* A file with several names, or one that is mounted, stays: its bytes are replaced, not it. */
static int put_in_place(const struct change *c, int dir, const char *name)
{
	cleanup_close int fd = -1;
	int r;

	fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = apply_log_write(sync_private_fd(c->sync), c->root, c->path, fd, c->push->fd,
			    c->push->size_bytes);
	return r < 0 || c->m->keep_attr ? r : apply_give_attrs(c, dir, name, fd);
}

int apply_hash_check(const struct change *c, int dir, const char *name)
{
	cleanup_close int fd = -1;
	uint8_t hash[SHA256_BYTES], block[16384];
	struct sha256_ctx *ctx;
	struct stat st;
	uint64_t at = 0;
	ssize_t n;

	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ELOOP ? -ESTALE : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ESTALE;
	ctx = sha256_new();
	do {
		n = io_pread_full(fd, block, sizeof(block), at, "apply.base");
		if (n > 0)
			sha256_update(ctx, block, (size_t)n);
		at += n > 0 ? (uint64_t)n : 0;
	} while (n == (ssize_t)sizeof(block));
	sha256_final(ctx, hash);
	sha256_free(ctx);
	if (n < 0)
		return (int)n;
	return memcmp(hash, c->m->base_sha256.data, sizeof(hash)) == 0 ? 0 : -ESTALE;
}

/* May what is there go? st: as it was seen before anything was done. */
static int judge(const struct change *c, int dir, const char *name, const struct stat *st)
{
	struct stat now;

	if (c->based)
		return apply_hash_check(c, dir, name);
	if (fstatat(dir, name, &now, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? -ESTALE : -errno;
	return apply_same_file(&now, st) ? 0 : -ESTALE;
}

/* Exchanges the two, and judges what came out: if it is not the base it goes back. Whoever
 * wrote into our file before that has the last word, as over the file that was there. */
static int exchange_base(const struct change *c, int dir, const char *temp, const char *name,
			 const struct stat *own, const struct stat *was)
{
	struct stat st;
	int r;

	r = apply_rename(dir, temp, dir, name, RENAME_EXCHANGE);
	if (r < 0)
		return r;
	r = judge(c, dir, temp, was);
	if (r == 0)
		return unlinkat(dir, temp, 0) < 0 ? -errno : 0;
	if (apply_rename(dir, temp, dir, name, RENAME_EXCHANGE) < 0) {
		/* The name was taken away meanwhile. */
		(void)apply_rename(dir, temp, dir, name, RENAME_NOREPLACE);
		return r;
	}
	if (fstatat(dir, temp, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    (st.st_ino != own->st_ino || st.st_size != own->st_size ||
	     memcmp(&st.st_mtim, &own->st_mtim, sizeof(st.st_mtim)) != 0))
		(void)apply_rename(dir, temp, dir, name, RENAME_EXCHANGE);
	(void)unlinkat(dir, temp, 0);
	return r;
}

static int put_over_base(const struct change *c, int dir, const char *temp, const char *name,
			 const struct stat *was)
{
	struct stat own;
	int r;

	if (fstatat(dir, temp, &own, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	r = exchange_base(c, dir, temp, name, &own, was);
	if (r == -ENOENT) { /* the file that was there is not any more */
		(void)unlinkat(dir, temp, 0);
		return -ESTALE;
	}
	if (r != -EINVAL)
		return r;
	/* A file system without the flag: what is between the look and the rename is lost. */
	r = judge(c, dir, name, was);
	if (r == 0)
		return apply_move_into_place(dir, temp, name, false);
	(void)unlinkat(dir, temp, 0); /* ours yet: nothing was exchanged */
	return r;
}

static int keep_attrs(int dir, const char *name, const char *temp, const struct stat *st)
{
	/* The owner first: it takes set-id bits away. Not ours to give is no reason to refuse. */
	if (fchownat(dir, temp, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0 && errno != EPERM)
		return -errno;
	attrs_copy_xattrs(dir, name, temp);
	return fchmodat(dir, temp, st->st_mode & 07777, 0) < 0 ? -errno : 0;
}

static int first_look(const struct change *c, int dir, const char *name, const struct stat *st)
{
	if (c->based)
		return apply_hash_check(c, dir, name);
	if (!c->m->careful || c->m->no_replace)
		return 0;
	return S_ISREG(st->st_mode) && sync_is_known(c->sync, c->path, st) ? 0 : -ESTALE;
}

int apply_put(const struct change *c, int dir, const char *name)
{
	char temp[APPLY_TEMP_BYTES + 1];
	bool keep, judged = c->m->careful && !c->m->no_replace;
	struct stat st = {0};
	int r;

	if (!c->push || !c->push->last)
		return -EBADMSG;
	if (c->push->error < 0)
		return c->push->error;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (c->m->no_replace)
			return -EEXIST;
		if (S_ISDIR(st.st_mode))
			return -EISDIR;
	}
	keep = c->m->keep_attr && S_ISREG(st.st_mode);
	r = first_look(c, dir, name, &st);
	if (r < 0)
		return r;
	/* With a name elsewhere it is not only ours: this one gets a file of its own. */
	if (S_ISREG(st.st_mode) && st.st_nlink > 1 && sync_has_all_names(c->sync, c->path, &st))
		return put_in_place(c, dir, name);
	apply_temp_name(temp);
	r = name_push(c, dir, temp);
	if (r == 0 && keep)
		r = keep_attrs(dir, name, temp, &st);
	if (r == 0)
		r = c->based || judged ? put_over_base(c, dir, temp, name, &st)
				       : apply_move_into_place(dir, temp, name, c->m->no_replace);
	if (r == -EBUSY) /* something is mounted on it */
		r = put_in_place(c, dir, name);
	if (r < 0 && r != -ESTALE) /* that one has gone, or is not ours */
		(void)unlinkat(dir, temp, 0);
	return r;
}
