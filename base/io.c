#include "base/io.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/util.h"

enum { ZEROS_BYTES = 128 * 1024 };

struct visit {
	enum fault_kind kind;
	int err;
};

/* Calls that are one step (sync, truncate, rename, unlink) have no half: a cut
 * does them and then fails, a kill dies before them. */
static bool visit_step(struct visit *v, const char *point)
{
	v->err = 0;
	v->kind = fault_visit(point, &v->err);
	return v->kind == FAULT_NONE || v->kind == FAULT_CUT;
}

/* How much of a transfer of n bytes is to be done before visit_end(). */
static size_t visit_some(struct visit *v, const char *point, size_t n)
{
	v->err = 0;
	v->kind = fault_visit(point, &v->err);
	if (v->kind == FAULT_NONE)
		return n;
	return v->kind == FAULT_ERROR ? 0 : n / 2;
}

static ssize_t visit_end(const struct visit *v, ssize_t r)
{
#ifdef LIMB_FAULTS
	if (v->kind == FAULT_KILL)
		fault_die();
#endif
	return v->kind == FAULT_NONE ? r : -v->err;
}

#ifdef LIMB_FAULTS

static io_observer_fn observer;
static void *observer_userdata;

void io_set_observer(io_observer_fn fn, void *userdata)
{
	observer_userdata = userdata;
	observer = fn;
}

static void observe(const struct io_observation *o)
{
	if (observer)
		observer(o, observer_userdata);
}

/* Where write(2) will put its bytes; -ESPIPE for what is not a file. */
static int64_t write_position(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	off_t at;

	at = lseek(fd, 0, SEEK_CUR);
	if (at < 0 || flags < 0)
		return -errno;
	if (flags & O_APPEND) {
		struct stat st;

		if (fstat(fd, &st) < 0)
			return -errno;
		at = st.st_size;
	}
	return at;
}

static void observe_pwrite(int fd, const void *data, size_t n, uint64_t offset)
{
	observe(&(struct io_observation){
		.event = IO_WRITE, .fd = fd, .data = data, .n = n, .offset = offset});
}

static void observe_write(int fd, const void *data, size_t n)
{
	int64_t at;

	if (!observer)
		return;
	at = write_position(fd);
	if (at >= 0)
		observe_pwrite(fd, data, n, (uint64_t)at);
}

static void observe_writev(int fd, const struct iovec *iov, int n)
{
	int64_t at;

	if (!observer)
		return;
	at = write_position(fd);
	for (int i = 0; at >= 0 && i < n; i++) {
		observe_pwrite(fd, iov[i].iov_base, iov[i].iov_len, (uint64_t)at);
		at += (int64_t)iov[i].iov_len;
	}
}

static void observe_sync(int fd)
{
	struct stat st;
	bool dir;

	if (!observer)
		return;
	dir = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
	observe(&(struct io_observation){.event = dir ? IO_SYNC_DIR : IO_SYNC, .fd = fd});
}

static void observe_truncate(int fd, uint64_t size_bytes)
{
	observe(&(struct io_observation){.event = IO_TRUNCATE, .fd = fd, .offset = size_bytes});
}

static void observe_rename(int from_dir, const char *from, int to_dir, const char *to)
{
	observe(&(struct io_observation){
		.event = IO_RENAME, .fd = from_dir, .name = from, .to_dir = to_dir, .to = to});
}

static void observe_unlink(int dir, const char *name)
{
	observe(&(struct io_observation){.event = IO_UNLINK, .fd = dir, .name = name});
}

#else

#define observe_pwrite(...) ((void)0)
#define observe_write(...) ((void)0)
#define observe_writev(...) ((void)0)
#define observe_sync(...) ((void)0)
#define observe_truncate(...) ((void)0)
#define observe_rename(...) ((void)0)
#define observe_unlink(...) ((void)0)

#endif

static ssize_t write_once(int fd, const void *data, size_t n)
{
	ssize_t w;

	observe_write(fd, data, n);
	w = TEMP_FAILURE_RETRY(write(fd, data, n));
	return w < 0 ? -errno : w;
}

static ssize_t pwrite_once(int fd, const void *data, size_t n, uint64_t offset)
{
	ssize_t w;

	observe_pwrite(fd, data, n, offset);
	w = TEMP_FAILURE_RETRY(pwrite(fd, data, n, (off_t)offset));
	return w < 0 ? -errno : w;
}

static int write_all(int fd, const uint8_t *p, size_t n)
{
	while (n > 0) {
		ssize_t w = write_once(fd, p, n);

		if (w < 0)
			return (int)w;
		if (w == 0)
			return -EIO;
		p += w;
		n -= (size_t)w;
	}
	return 0;
}

static int pwrite_all(int fd, const uint8_t *p, size_t n, uint64_t offset)
{
	while (n > 0) {
		ssize_t w = pwrite_once(fd, p, n, offset);

		if (w < 0)
			return (int)w;
		if (w == 0)
			return -EIO;
		p += w;
		n -= (size_t)w;
		offset += (size_t)w;
	}
	return 0;
}

int io_write_full(int fd, const void *data, size_t n, const char *point)
{
	struct visit v;
	size_t todo = visit_some(&v, point, n);

	return (int)visit_end(&v, write_all(fd, data, todo));
}

int io_pwrite_full(int fd, const void *data, size_t n, uint64_t offset, const char *point)
{
	struct visit v;
	size_t todo = visit_some(&v, point, n);

	return (int)visit_end(&v, pwrite_all(fd, data, todo, offset));
}

static ssize_t read_all(int fd, uint8_t *p, size_t n)
{
	size_t got = 0;

	while (got < n) {
		ssize_t k = TEMP_FAILURE_RETRY(read(fd, p + got, n - got));

		if (k < 0)
			return -errno;
		if (k == 0)
			break;
		got += (size_t)k;
	}
	return (ssize_t)got;
}

static ssize_t pread_all(int fd, uint8_t *p, size_t n, uint64_t offset)
{
	size_t got = 0;

	while (got < n) {
		ssize_t k = TEMP_FAILURE_RETRY(pread(fd, p + got, n - got, (off_t)(offset + got)));

		if (k < 0)
			return -errno;
		if (k == 0)
			break;
		got += (size_t)k;
	}
	return (ssize_t)got;
}

ssize_t io_read_full(int fd, void *data, size_t n, const char *point)
{
	struct visit v;
	size_t todo = visit_some(&v, point, n);

	return visit_end(&v, read_all(fd, data, todo));
}

ssize_t io_pread_full(int fd, void *data, size_t n, uint64_t offset, const char *point)
{
	struct visit v;
	size_t todo = visit_some(&v, point, n);

	return visit_end(&v, pread_all(fd, data, todo, offset));
}

ssize_t io_read_some(int fd, void *data, size_t n, const char *point)
{
	struct visit v;
	size_t todo = visit_some(&v, point, n);
	ssize_t k = 0;

	if (v.kind == FAULT_NONE || todo > 0) {
		k = TEMP_FAILURE_RETRY(read(fd, data, todo));
		if (k < 0)
			k = -errno;
	}
	return visit_end(&v, k);
}

ssize_t io_write_some(int fd, const void *data, size_t n, const char *point)
{
	struct visit v;
	size_t todo = visit_some(&v, point, n);
	ssize_t w = 0;

	if (v.kind == FAULT_NONE || todo > 0)
		w = write_once(fd, data, todo);
	return visit_end(&v, w);
}

static ssize_t writev_once(int fd, const struct iovec *iov, int n)
{
	ssize_t w;

	observe_writev(fd, iov, n);
	w = TEMP_FAILURE_RETRY(writev(fd, iov, n));
	return w < 0 ? -errno : w;
}

/* The first `todo` bytes of iov, for a cut. */
static ssize_t writev_part(int fd, const struct iovec *iov, int n, size_t todo)
{
	size_t done = 0;

	for (int i = 0; i < n && done < todo; i++) {
		size_t part = MIN(iov[i].iov_len, todo - done);
		ssize_t w = write_once(fd, iov[i].iov_base, part);

		if (w < 0)
			return w;
		done += (size_t)w;
		if ((size_t)w < part)
			break;
	}
	return (ssize_t)done;
}

ssize_t io_writev_some(int fd, const struct iovec *iov, int n, const char *point)
{
	struct visit v;
	size_t total = 0, todo;

	for (int i = 0; i < n; i++)
		total += iov[i].iov_len;
	todo = visit_some(&v, point, total);
	if (v.kind == FAULT_NONE)
		return writev_once(fd, iov, n);
	return visit_end(&v, writev_part(fd, iov, n, todo));
}

int io_fsync(int fd, const char *point)
{
	struct visit v;
	int r = 0;

	if (visit_step(&v, point)) {
		observe_sync(fd);
		if (TEMP_FAILURE_RETRY(fsync(fd)) < 0)
			r = -errno;
	}
	return (int)visit_end(&v, r);
}

int io_fdatasync(int fd, const char *point)
{
	struct visit v;
	int r = 0;

	if (visit_step(&v, point)) {
		observe_sync(fd);
		if (TEMP_FAILURE_RETRY(fdatasync(fd)) < 0)
			r = -errno;
	}
	return (int)visit_end(&v, r);
}

int io_syncfs(int fd, const char *point)
{
	struct visit v;
	int r = 0;

	if (visit_step(&v, point) && TEMP_FAILURE_RETRY(syncfs(fd)) < 0)
		r = -errno;
	return (int)visit_end(&v, r);
}

int io_ftruncate(int fd, uint64_t size_bytes, const char *point)
{
	struct visit v;
	int r = 0;

	if (visit_step(&v, point)) {
		observe_truncate(fd, size_bytes);
		if (TEMP_FAILURE_RETRY(ftruncate(fd, (off_t)size_bytes)) < 0)
			r = -errno;
	}
	return (int)visit_end(&v, r);
}

int io_renameat(int from_dir, const char *from, int to_dir, const char *to, const char *point)
{
	struct visit v;
	int r = 0;

	if (visit_step(&v, point)) {
		observe_rename(from_dir, from, to_dir, to);
		if (renameat(from_dir, from, to_dir, to) < 0)
			r = -errno;
	}
	return (int)visit_end(&v, r);
}

int io_unlinkat(int dir, const char *name, int flags, const char *point)
{
	struct visit v;
	int r = 0;

	if (visit_step(&v, point)) {
		observe_unlink(dir, name);
		if (unlinkat(dir, name, flags) < 0)
			r = -errno;
	}
	return (int)visit_end(&v, r);
}

int io_fill_zeros(int fd, uint64_t from, uint64_t to, const char *point)
{
	static uint8_t zeros[ZEROS_BYTES];
	struct visit v;
	uint64_t end;
	int r = 0;

	if (to < from)
		return -EINVAL;
	end = from + visit_some(&v, point, to - from);
	while (r == 0 && from < end) {
		size_t n = (size_t)MIN(end - from, (uint64_t)sizeof(zeros));

		r = pwrite_all(fd, zeros, n, from);
		from += n;
	}
	return (int)visit_end(&v, r);
}

static int append_once(int fd, const void *data, size_t n)
{
	struct iovec iov = {.iov_base = (void *)data, .iov_len = n};
	struct stat st;
	ssize_t w;

	if (fstat(fd, &st) == 0)
		observe_pwrite(fd, data, n, (uint64_t)st.st_size);
	w = TEMP_FAILURE_RETRY(pwritev2(fd, &iov, 1, 0, RWF_APPEND));
	if (w < 0)
		return -errno;
	return w ? (int)w : -EIO;
}

int io_append_zeros(int fd, uint64_t n_bytes, const char *point)
{
	static const uint8_t zeros[ZEROS_BYTES];
	struct visit v;
	uint64_t left = visit_some(&v, point, n_bytes);
	int r = 0;

	while (r >= 0 && left > 0) {
		r = append_once(fd, zeros, (size_t)MIN(left, (uint64_t)sizeof(zeros)));
		if (r > 0)
			left -= (uint64_t)r;
	}
	return (int)visit_end(&v, MIN(r, 0));
}
