/*
 * io.h - system calls that move or keep data, whole and restartable, each
 * with the name of its fault point (fault.h) as its last argument.
 *
 * All return 0 or a count on success and a negative errno otherwise; none
 * returns a short count except where it says so.  EINTR is retried.  A failed
 * fsync is reported once by the kernel and must be treated by the caller as
 * "unknown, and not durable" for ever (see fsync(2), NOTES).
 *
 * Of what is one step (sync, truncate, rename, unlink) a fault of kind "cut"
 * does all and then fails, "kill" does nothing and dies; transfers are halved.
 *
 * In builds with --enable-faults io_set_observer() sees each change of a file
 * before it is made (writes to sockets and pipes are not shown): this is how
 * tests simulate loss of power (what was not followed by a sync on the same
 * file is dropped).
 */
#ifndef BASE_IO_H
#define BASE_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

int io_write_full(int fd, const void *data, size_t n, const char *point);
int io_pwrite_full(int fd, const void *data, size_t n, uint64_t offset, const char *point);

/* Reads until n bytes or end of file; returns the count (short = end of file). */
ssize_t io_read_full(int fd, void *data, size_t n, const char *point);
ssize_t io_pread_full(int fd, void *data, size_t n, uint64_t offset, const char *point);

/* One read(2)/write(2) on a possibly non-blocking descriptor: count, 0 at end
 * of file (read), -EAGAIN. */
ssize_t io_read_some(int fd, void *data, size_t n, const char *point);
ssize_t io_write_some(int fd, const void *data, size_t n, const char *point);
ssize_t io_writev_some(int fd, const struct iovec *iov, int n, const char *point);

int io_fsync(int fd, const char *point);
int io_fdatasync(int fd, const char *point);
int io_syncfs(int fd, const char *point);
int io_ftruncate(int fd, uint64_t size_bytes, const char *point);
int io_renameat(int from_dir, const char *from, int to_dir, const char *to, const char *point);
int io_unlinkat(int dir, const char *name, int flags, const char *point);

/* Extends fd with written zeros (not only fallocate'd) to size_bytes, so that
 * later fdatasyncs have no metadata to write.  Not synced. */
int io_fill_zeros(int fd, uint64_t from, uint64_t to, const char *point);
/* The same at the file's end, wherever that is by then: for a file that another process
 * writes, whose bytes are before its end and so are never written over. */
int io_append_zeros(int fd, uint64_t n_bytes, const char *point);

#ifdef LIMB_FAULTS
enum io_event { IO_WRITE, IO_SYNC, IO_TRUNCATE, IO_RENAME, IO_UNLINK, IO_SYNC_DIR };
struct io_observation {
	enum io_event event;
	int fd;		  /* IO_WRITE, IO_SYNC, IO_TRUNCATE; else the directory */
	const void *data; /* IO_WRITE */
	size_t n;
	uint64_t offset;  /* IO_WRITE: absolute; IO_TRUNCATE: new size */
	const char *name; /* IO_RENAME: from; IO_UNLINK */
	int to_dir;	  /* IO_RENAME */
	const char *to;
};
typedef void (*io_observer_fn)(const struct io_observation *o, void *userdata);
void io_set_observer(io_observer_fn fn, void *userdata); /* any thread may call it back */
#endif

#endif
