#include "syncd/scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "base/beneath.h"
#include "syncd/watch.h"
#include "wire/digest.h"

enum { GETDENTS_BYTES = 64 * 1024 };

#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x1000
#endif

static int64_t ns_of(struct statx_timestamp t)
{
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int stamp_call(int dir, const char *name, int flags, struct stamp *ret)
{
	struct statx x;

	if (statx(dir, name, flags | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
		  STATX_BASIC_STATS | STATX_BTIME | STATX_MNT_ID, &x) < 0)
		return -errno;
	*ret = (struct stamp){
		.inode = x.stx_ino,
		.size = x.stx_size,
		.device = makedev(x.stx_dev_major, x.stx_dev_minor),
		.mount = x.stx_mask & STATX_MNT_ID ? x.stx_mnt_id : 0,
		.blocks_bytes = x.stx_blocks * 512,
		.mtime_ns = ns_of(x.stx_mtime),
		.ctime_ns = ns_of(x.stx_ctime),
		.btime_ns = x.stx_mask & STATX_BTIME ? ns_of(x.stx_btime) : 0,
		.uid = x.stx_uid,
		.gid = x.stx_gid,
		.nlink = x.stx_nlink,
		.rdev_major = x.stx_rdev_major,
		.rdev_minor = x.stx_rdev_minor,
		.mode = x.stx_mode,
	};
	return 0;
}

int stamp_at(int dir, const char *name, struct stamp *ret)
{
	return stamp_call(dir, name, *name ? 0 : AT_EMPTY_PATH, ret);
}

int stamp_of(int fd, struct stamp *ret)
{
	return stamp_call(fd, "", AT_EMPTY_PATH, ret);
}

uint32_t stamp_generation(const struct stamp *st)
{
	return digest_generation((uint64_t)st->btime_ns);
}

bool stamp_same(const struct stamp *a, const struct stamp *b)
{
	return a->inode == b->inode && a->device == b->device && a->mode == b->mode &&
	       a->size == b->size && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns &&
	       a->btime_ns == b->btime_ns;
}

/* O_NOATIME is for owners only; reading must leave no trace where it can. */
static int open_reading(int root_fd, const char *path)
{
	int flags = O_RDONLY | O_DIRECTORY | O_NONBLOCK;
	int r = beneath_open(root_fd, path, flags | O_NOATIME, 0);

	return r == -EPERM ? beneath_open(root_fd, path, flags, 0) : r;
}

int scan_open(int root_fd, struct scan_dir *d, bool reading, int *ret_fd)
{
	cleanup_close int fd = -1;
	int r;

	fd = reading ? open_reading(root_fd, d->path)
		     : beneath_open(root_fd, d->path, O_PATH | O_DIRECTORY, 0);
	if (fd < 0)
		return fd;
	r = stamp_of(fd, &d->st);
	if (r < 0)
		return r;
	if (d->device && (d->st.device != d->device || d->st.mount != d->mount))
		return -EXDEV;
	if (d->inode && (d->st.inode != d->inode ||
			 (d->generation && d->generation != stamp_generation(&d->st))))
		return -ESTALE;
	*ret_fd = take_fd(&fd);
	return 0;
}

/* ---- listing ---- */

struct dirent64_ {
	uint64_t d_ino;
	int64_t d_off;
	unsigned short d_reclen;
	unsigned char d_type;
	char d_name[];
};

typedef int (*name_fn)(const char *name, size_t len, void *userdata);

static int each_name_by(int fd, char *mem, name_fn fn, void *userdata)
{
	int r;

	if (lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	for (;;) {
		long n = syscall(SYS_getdents64, fd, mem, (size_t)GETDENTS_BYTES);

		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;
		for (long at = 0; at < n;) {
			const struct dirent64_ *e = (const void *)(mem + at);
			size_t len = strlen(e->d_name);

			at += e->d_reclen;
			/* What no entry can be is not asked about (".", "..", a broken server's). */
			if (!beneath_name_ok(e->d_name, len))
				continue;
			r = fn(e->d_name, len, userdata);
			if (r < 0)
				return r;
		}
	}
}

static int each_name(int fd, name_fn fn, void *userdata)
{
	char *mem = malloc(GETDENTS_BYTES);
	int r;

	if (!mem)
		return -ENOMEM;
	r = each_name_by(fd, mem, fn, userdata);
	free(mem);
	return r;
}

static int listing_add(const char *name, size_t len, void *userdata)
{
	struct scan_listing *l = userdata;
	int r;

	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 64;
		struct scan_name *names = reallocarray(l->names, cap, sizeof(*names));

		if (!names)
			return -ENOMEM;
		l->names = names;
		l->cap = cap;
	}
	l->names[l->n] =
		(struct scan_name){.name = (uint32_t)buf_len(&l->text), .len = (uint8_t)len};
	r = buf_add(&l->text, name, len + 1);
	if (r == 0)
		l->n++;
	return r;
}

void scan_listing_done(struct scan_listing *l)
{
	free(l->names);
	buf_done(&l->text);
	*l = (struct scan_listing){0};
}

void scan_list(int root_fd, struct scan_dir *d, struct watch *w, struct scan_listing *ret)
{
	cleanup_close int fd = -1;

	buf_init(&ret->text, 0);
	d->error = scan_open(root_fd, d, true, &fd);
	if (d->error < 0)
		return;
	if (w) {
		int r = watch_add(w, fd);

		d->wd = MAX(r, 0);
		d->watch_error = MIN(r, 0);
	}
	d->error = each_name(fd, listing_add, ret);
	for (size_t i = 0; d->error == 0 && i < ret->n; i++) {
		struct scan_name *s = &ret->names[i];

		s->error = stamp_at(fd, (const char *)buf_data(&ret->text) + s->name, &s->st);
	}
	/* The directory's own times, no older than the names. */
	if (d->error == 0)
		d->error = stamp_of(fd, &d->st);
}

/* ---- absence ---- */

static int absent_order(const void *a, const void *b)
{
	const struct scan_absent *x = *(struct scan_absent *const *)a;
	const struct scan_absent *y = *(struct scan_absent *const *)b;

	return strcmp(x->name, y->name);
}

struct verify {
	struct scan_absent **sorted;
	size_t n;
};

static int verify_seen(const char *name, size_t len, void *userdata)
{
	struct verify *v = userdata;
	struct scan_absent key = {.name = name}, *key_ptr = &key, **found;

	found = bsearch(&key_ptr, v->sorted, v->n, sizeof(*v->sorted), absent_order);
	if (found)
		(*found)->confirmed = false;
	return 0;
}

static void verify_ask(int fd, struct scan_absent *a)
{
	struct stamp st;
	int r = stamp_at(fd, a->name, &st);

	if (r == -ENOENT)
		return;
	a->confirmed = false;
	if (r < 0)
		a->error = r;
}

void scan_verify(int root_fd, struct scan_dir *d, struct scan_absent *names, size_t n)
{
	cleanup_free struct scan_absent **sorted = calloc(n, sizeof(struct scan_absent *));
	struct verify v = {.sorted = sorted, .n = n};
	cleanup_close int fd = -1;

	d->error = sorted ? scan_open(root_fd, d, true, &fd) : -ENOMEM;
	if (d->error < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		names[i].confirmed = true;
		sorted[i] = &names[i];
		verify_ask(fd, &names[i]);
	}
	qsort(sorted, n, sizeof(*sorted), absent_order);
	d->error = each_name(fd, verify_seen, &v);
	if (d->error < 0)
		return;
	for (size_t i = 0; i < n; i++)
		verify_ask(fd, &names[i]);
	/* It may have been removed, or gone elsewhere, while it was asked. */
	cleanup_close_fn(&fd);
	fd = -1;
	d->error = scan_open(root_fd, d, false, &fd);
}
