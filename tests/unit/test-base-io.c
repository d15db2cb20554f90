#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/io.h"
#include "base/util.h"
#include "tests/unit/child.h"
#include "tests/unit/scratch.h"

#define IOV(text)                                                       \
	{                                                               \
		.iov_base = (char[]){text}, .iov_len = sizeof(text) - 1 \
	}

static int open_new(const char *name, int flags)
{
	int fd = openat(scratch, name, O_RDWR | O_CREAT | O_CLOEXEC | flags, 0600);

	assert_true(fd >= 0);
	return fd;
}

/* Writes and reads are whole, at the position or at an offset; a short count of
 * a read is the end of the file. */
static void whole_transfers(void **state)
{
	cleanup_close int fd = open_new("f", 0);
	char got[16] = "";

	assert_int_equal(io_write_full(fd, "hello ", 6, "t"), 0);
	assert_int_equal(io_write_full(fd, "world", 5, "t"), 0);
	assert_int_equal(io_write_full(fd, NULL, 0, "t"), 0);
	assert_int_equal(io_pwrite_full(fd, "J", 1, 0, "t"), 0);
	assert_int_equal(io_pread_full(fd, got, 5, 6, "t"), 5);
	assert_string_equal(got, "world");
	assert_int_equal(io_pread_full(fd, got, 16, 9, "t"), 2);
	assert_int_equal(io_pread_full(fd, got, 16, 100, "t"), 0);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_int_equal(io_read_full(fd, got, 16, "t"), 11);
	assert_memory_equal(got, "Jello world", 11);
	assert_int_equal(io_read_full(fd, got, 16, "t"), 0);
}

/* Each call gives back the errno of what failed. */
static void errors_come_back(void **state)
{
	cleanup_close int fd = openat(scratch, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct iovec iov = IOV("x");
	char c;

	assert_int_equal(io_write_full(-1, "x", 1, "t"), -EBADF);
	assert_int_equal(io_pwrite_full(-1, "x", 1, 0, "t"), -EBADF);
	assert_int_equal(io_write_some(-1, "x", 1, "t"), -EBADF);
	assert_int_equal(io_writev_some(-1, &iov, 1, "t"), -EBADF);
	assert_int_equal(io_fill_zeros(-1, 0, 1, "t"), -EBADF);
	assert_int_equal(io_fill_zeros(fd, 2, 1, "t"), -EINVAL);
	assert_int_equal(io_read_full(fd, &c, 1, "t"), -EISDIR);
	assert_int_equal(io_pread_full(fd, &c, 1, 0, "t"), -EISDIR);
	assert_int_equal(io_read_some(fd, &c, 1, "t"), -EISDIR);
	assert_int_equal(io_fsync(-1, "t"), -EBADF);
	assert_int_equal(io_fdatasync(-1, "t"), -EBADF);
	assert_int_equal(io_ftruncate(fd, 0, "t"), -EINVAL);
	assert_int_equal(io_renameat(scratch, "none", scratch, "x", "t"), -ENOENT);
	assert_int_equal(io_unlinkat(scratch, "none", 0, "t"), -ENOENT);
	assert_int_equal(io_unlinkat(scratch, "none", AT_REMOVEDIR, "t"), -ENOENT);
}

static void on_signal(int n)
{
	(void)n;
}

enum { PIPE_BYTES = 300000 };

struct drain {
	int fd;
	pthread_t other;
	size_t n, wrong;
};

/* Reads a pipe slowly enough that the writer blocks, with signals in between. */
static void *drain_pipe(void *arg)
{
	struct drain *d = arg;
	uint8_t part[997];
	ssize_t k;

	while ((k = TEMP_FAILURE_RETRY(read(d->fd, part, sizeof(part)))) > 0) {
		(void)pthread_kill(d->other, SIGUSR1);
		for (ssize_t i = 0; i < k; i++)
			d->wrong += part[i] != (uint8_t)((d->n + (size_t)i) * 7);
		d->n += (size_t)k;
	}
	return NULL;
}

static void *feed_pipe(void *arg)
{
	struct drain *d = arg;

	for (; d->n < 200; d->n++) {
		(void)pthread_kill(d->other, SIGUSR1);
		(void)usleep(100);
		if (write(d->fd, "x", 1) != 1)
			d->wrong++;
	}
	return NULL;
}

static void catch_signals(void)
{
	struct sigaction sa = {.sa_handler = on_signal}; /* no SA_RESTART */

	assert_int_equal(sigaction(SIGUSR1, &sa, NULL), 0);
}

/* A blocking pipe takes a write far beyond its size, whole and in order, in
 * spite of signals. */
static void writes_whole_through_signals(void **state)
{
	cleanup_free uint8_t *data = malloc(PIPE_BYTES);
	struct drain d = {.other = pthread_self()};
	pthread_t thread;
	int p[2];

	for (size_t i = 0; i < PIPE_BYTES; i++)
		data[i] = (uint8_t)(i * 7);
	catch_signals();
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	d.fd = p[0];
	assert_int_equal(pthread_create(&thread, NULL, drain_pipe, &d), 0);
	assert_int_equal(io_write_full(p[1], data, PIPE_BYTES, "t"), 0);
	assert_int_equal(close(p[1]), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(d.n, PIPE_BYTES);
	assert_int_equal(d.wrong, 0);
	(void)close(p[0]);
}

/* A read of a pipe that fills byte by byte is whole, in spite of signals. */
static void reads_whole_through_signals(void **state)
{
	struct drain d = {.other = pthread_self()};
	pthread_t thread;
	char got[200];
	int p[2];

	catch_signals();
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	d.fd = p[1];
	assert_int_equal(pthread_create(&thread, NULL, feed_pipe, &d), 0);
	assert_int_equal(io_read_full(p[0], got, sizeof(got), "t"), sizeof(got));
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(d.wrong, 0);
	(void)close(p[0]);
	(void)close(p[1]);
}

/* The _some calls never wait on a non-blocking descriptor, and may be short. */
static void some_never_waits(void **state)
{
	static char big[1 << 20];
	struct iovec iov[2] = {IOV("ab"), IOV("cd")};
	char got[8] = "";
	int p[2];

	assert_int_equal(pipe2(p, O_CLOEXEC | O_NONBLOCK), 0);
	assert_int_equal(io_read_some(p[0], got, 8, "t"), -EAGAIN);
	assert_int_equal(io_write_some(p[1], "xy", 2, "t"), 2);
	assert_int_equal(io_writev_some(p[1], iov, 2, "t"), 4);
	assert_int_equal(io_read_some(p[0], got, 7, "t"), 6);
	assert_string_equal(got, "xyabcd");
	assert_in_range(io_write_some(p[1], big, sizeof(big), "t"), 1, sizeof(big) - 1);
	assert_int_equal(io_write_some(p[1], big, sizeof(big), "t"), -EAGAIN);
	(void)close(p[0]);
	assert_ptr_not_equal(signal(SIGPIPE, SIG_IGN), SIG_ERR);
	assert_int_equal(io_write_some(p[1], "x", 1, "t"), -EPIPE);
	(void)close(p[1]);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	(void)close(p[1]);
	assert_int_equal(io_read_some(p[0], got, 8, "t"), 0);
	(void)close(p[0]);
}

/* Zeros are written over what was there, and only between the two ends. */
static void fills_zeros(void **state)
{
	const size_t from = 1000, to = 300001;
	cleanup_free uint8_t *data = malloc(to + 10);
	cleanup_close int fd = open_new("f", 0);

	memset(data, 0xaa, to + 10);
	assert_int_equal(io_pwrite_full(fd, data, 5000, 0, "t"), 0);
	assert_int_equal(io_fill_zeros(fd, from, to, "t"), 0);
	assert_int_equal(io_pread_full(fd, data, to + 10, 0, "t"), to);
	for (size_t i = 0; i < to; i++)
		assert_int_equal(data[i], i < from ? 0xaa : 0);
	assert_int_equal(io_fill_zeros(fd, to, to, "t"), 0);
}

/* Zeros are put behind the end that the file has by then: what another descriptor wrote
 * beyond the old end stays, and what it writes later goes where it says. */
static void appends_zeros(void **state)
{
	const size_t n = 300001;
	cleanup_free uint8_t *data = malloc(n + 20);
	cleanup_close int fd = open_new("f", 0);
	cleanup_close int other = openat(scratch, "f", O_WRONLY | O_CLOEXEC);

	assert_int_equal(io_write_full(fd, "ab", 2, "t"), 0);
	assert_int_equal(io_pwrite_full(other, "cdef", 4, 2, "t"), 0);
	assert_int_equal(io_append_zeros(fd, n, "t"), 0);
	assert_int_equal(io_pwrite_full(other, "gh", 2, 6, "t"), 0);
	assert_int_equal(io_write_full(fd, "CD", 2, "t"), 0); /* its own place is as before */
	assert_int_equal(io_pread_full(fd, data, n + 20, 0, "t"), n + 6);
	assert_memory_equal(data, "abCDefgh", 8);
	for (size_t i = 8; i < n + 6; i++)
		assert_int_equal(data[i], 0);
	assert_int_equal(io_append_zeros(fd, 0, "t"), 0);
	assert_int_equal(io_append_zeros(-1, 1, "t"), -EBADF);
}

/* Truncate, rename and unlink do what their system calls do. */
static void steps(void **state)
{
	cleanup_close int fd = open_new("a", 0);
	struct stat st;

	assert_int_equal(io_write_full(fd, "abcdef", 6, "t"), 0);
	assert_int_equal(io_fsync(fd, "t"), 0);
	assert_int_equal(io_fdatasync(fd, "t"), 0);
	assert_int_equal(io_ftruncate(fd, 3, "t"), 0);
	assert_int_equal(io_renameat(scratch, "a", scratch, "b", "t"), 0);
	assert_int_equal(scratch_is(scratch, "b", "abc"), 1);
	assert_int_equal(fstatat(scratch, "a", &st, 0), -1);
	assert_int_equal(io_unlinkat(scratch, "b", 0, "t"), 0);
	assert_int_equal(fstatat(scratch, "b", &st, 0), -1);
}

#ifdef LIMB_FAULTS

struct seen {
	enum io_event event;
	int fd;
	uint64_t offset;
	char data[16];
	size_t n;
	const char *name, *to;
};

static struct seen seen[16];
static size_t n_seen;

static void see(const struct io_observation *o, void *userdata)
{
	struct seen *s = &seen[n_seen++];

	assert_ptr_equal(userdata, seen);
	assert_in_range(n_seen, 1, ARRAY_SIZE(seen));
	*s = (struct seen){.event = o->event,
			   .fd = o->fd,
			   .offset = o->offset,
			   .n = o->n,
			   .name = o->name,
			   .to = o->to};
	if (o->n > 0)
		memcpy(s->data, o->data, MIN(o->n, sizeof(s->data)));
}

static int observe_teardown(void **state)
{
	io_set_observer(NULL, NULL);
	(void)fault_set(NULL);
	n_seen = 0;
	return scratch_teardown(state);
}

static void assert_write(size_t i, int fd, uint64_t offset, const char *data)
{
	assert_true(i < n_seen);
	assert_int_equal(seen[i].event, IO_WRITE);
	assert_int_equal(seen[i].fd, fd);
	assert_int_equal(seen[i].offset, offset);
	assert_int_equal(seen[i].n, strlen(data));
	assert_memory_equal(seen[i].data, data, strlen(data));
}

/* The observer sees each write at its absolute place, also of a file opened to
 * append. */
static void observer_sees_writes(void **state)
{
	cleanup_close int fd = open_new("f", 0), end = open_new("f", O_APPEND);
	struct iovec iov[2] = {IOV("ij"), IOV("k")};

	io_set_observer(see, seen);
	assert_int_equal(io_write_full(fd, "abc", 3, "t"), 0);
	assert_int_equal(io_write_some(fd, "de", 2, "t"), 2);
	assert_int_equal(io_pwrite_full(fd, "x", 1, 1, "t"), 0);
	assert_int_equal(io_write_full(end, "gh", 2, "t"), 0);
	assert_int_equal(io_writev_some(end, iov, 2, "t"), 3);
	assert_int_equal(io_fill_zeros(fd, 20, 23, "t"), 0);
	assert_int_equal(n_seen, 7);
	assert_write(0, fd, 0, "abc");
	assert_write(1, fd, 3, "de");
	assert_write(2, fd, 1, "x");
	assert_write(3, end, 5, "gh");
	assert_write(4, end, 7, "ij");
	assert_write(5, end, 9, "k");
	assert_int_equal(seen[6].offset, 20);
	assert_int_equal(seen[6].n, 3);
	assert_memory_equal(seen[6].data, "\0\0\0", 3);
}

/* It sees the steps too, tells a directory's sync from a file's, and is gone
 * when it is taken away. */
static void observer_sees_steps(void **state)
{
	cleanup_close int fd = open_new("f", 0);

	io_set_observer(see, seen);
	assert_int_equal(io_fsync(fd, "t"), 0);
	assert_int_equal(io_fdatasync(fd, "t"), 0);
	assert_int_equal(io_ftruncate(fd, 7, "t"), 0);
	assert_int_equal(io_renameat(scratch, "f", scratch, "g", "t"), 0);
	assert_int_equal(io_fsync(scratch, "t"), 0);
	assert_int_equal(io_unlinkat(scratch, "g", 0, "t"), 0);
	io_set_observer(NULL, NULL);
	assert_int_equal(io_fsync(fd, "t"), 0);
	assert_int_equal(n_seen, 6);
	assert_int_equal(seen[0].event, IO_SYNC);
	assert_int_equal(seen[1].event, IO_SYNC);
	assert_int_equal(seen[2].event, IO_TRUNCATE);
	assert_int_equal(seen[2].offset, 7);
	assert_int_equal(seen[3].event, IO_RENAME);
	assert_string_equal(seen[3].name, "f");
	assert_string_equal(seen[3].to, "g");
	assert_int_equal(seen[4].event, IO_SYNC_DIR);
	assert_int_equal(seen[4].fd, scratch);
	assert_int_equal(seen[5].event, IO_UNLINK);
	assert_string_equal(seen[5].name, "g");
}

/* What goes through a socket or a pipe is no change of a file. */
static void observer_sees_no_sockets(void **state)
{
	int s[2], p[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	io_set_observer(see, seen);
	assert_int_equal(io_write_full(s[0], "x", 1, "t"), 0);
	assert_int_equal(io_write_some(p[1], "x", 1, "t"), 1);
	assert_int_equal(n_seen, 0);
	for (int i = 0; i < 2; i++) {
		(void)close(s[i]);
		(void)close(p[i]);
	}
}

/* It sees of a faulted call what is really done: nothing for an error, half of
 * a write for a cut. */
static void observer_sees_what_is_done(void **state)
{
	cleanup_close int fd = open_new("f", 0);

	io_set_observer(see, seen);
	assert_int_equal(fault_set("e:1:error,c:1:cut"), 0);
	assert_int_equal(io_write_full(fd, "abcd", 4, "e"), -EIO);
	assert_int_equal(io_fsync(fd, "e"), 0);
	assert_int_equal(io_write_full(fd, "abcd", 4, "c"), -EIO);
	assert_int_equal(n_seen, 2);
	assert_int_equal(seen[0].event, IO_SYNC);
	assert_write(1, fd, 0, "ab");
}

/* The calls of io.h, each on a file "f" of 8 bytes, "01234567"; write_* leave
 * it longer. */
static int call_write(int fd)
{
	return io_write_full(fd, "ABCDEFGH", 8, "t");
}

static int call_pwrite(int fd)
{
	return io_pwrite_full(fd, "ABCDEFGH", 8, 8, "t");
}

static int call_write_some(int fd)
{
	return (int)io_write_some(fd, "ABCDEFGH", 8, "t");
}

static int call_writev(int fd)
{
	struct iovec iov[3] = {IOV("ABC"), IOV("DEF"), IOV("GH")};

	return (int)io_writev_some(fd, iov, 3, "t");
}

static int call_zeros(int fd)
{
	return io_fill_zeros(fd, 8, 16, "t");
}

static int call_truncate(int fd)
{
	return io_ftruncate(fd, 2, "t");
}

static int call_rename(int fd)
{
	return io_renameat(scratch, "f", scratch, "g", "t");
}

static int call_unlink(int fd)
{
	return io_unlinkat(scratch, "f", 0, "t");
}

static int call_fsync(int fd)
{
	return io_fsync(fd, "t");
}

static int call_fdatasync(int fd)
{
	return io_fdatasync(fd, "t");
}

static int call_read(int fd)
{
	char got[8];

	return (int)io_pread_full(fd, got, 8, 0, "t");
}

struct call {
	int (*fn)(int fd);
	off_t after_cut;  /* size of f then, -1 = there is no f */
	off_t after_kill; /* the same, and nothing is ever done by an error */
};

static const struct call calls[] = {
	{call_write, 12, 12},	{call_pwrite, 12, 12}, {call_write_some, 12, 12},
	{call_writev, 12, 12},	{call_zeros, 12, 12},  {call_truncate, 2, 8},
	{call_rename, -1, 8},	{call_unlink, -1, 8},  {call_fsync, 8, 8},
	{call_fdatasync, 8, 8}, {call_read, 8, 8},
};

static int make_f(void)
{
	int fd;

	(void)unlinkat(scratch, "g", 0);
	scratch_write(scratch, "f", "01234567");
	fd = openat(scratch, "f", O_RDWR | O_CLOEXEC);
	assert_int_equal(lseek(fd, 0, SEEK_END), 8);
	return fd;
}

static off_t size_of_f(void)
{
	struct stat st;

	return fstatat(scratch, "f", &st, 0) < 0 ? -1 : st.st_size;
}

static int call_in_child(void *arg)
{
	const struct call *c = arg;
	int fd = openat(scratch, "f", O_RDWR | O_CLOEXEC);

	if (fd < 0 || lseek(fd, 0, SEEK_END) != 8 || fault_set("t:1:kill") < 0)
		return 1;
	(void)c->fn(fd);
	return 2;
}

/* Of every call: an error does nothing, a cut does half (or the whole step) and
 * fails with the errno that was asked for, a kill does half (or none) and dies. */
static void faults_of_each_call(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		struct call c = calls[i];
		cleanup_close int fd = make_f();
		cleanup_close int again = -1, third = -1;

		print_message("# call %zu\n", i);
		assert_int_equal(fault_set("t:1:error=ENOSPC"), 0);
		assert_int_equal(c.fn(fd), -ENOSPC);
		assert_int_equal(size_of_f(), 8);

		again = make_f();
		assert_int_equal(fault_set("t:1:cut"), 0);
		assert_int_equal(c.fn(again), -EIO);
		assert_int_equal(size_of_f(), c.after_cut);

		third = make_f();
		assert_int_equal(child_run(call_in_child, &c), -SIGKILL);
		assert_int_equal(size_of_f(), c.after_kill);
	}
}

/* A cut of a writev puts the first half of its bytes, across the parts. */
static void cut_of_writev(void **state)
{
	cleanup_close int fd = open_new("f", 0);

	assert_int_equal(fault_set("t:1:cut"), 0);
	assert_int_equal(call_writev(fd), -EIO);
	assert_int_equal(scratch_is(scratch, "f", "ABCD"), 1);
}

#endif

#define WITH(setup, fn, teardown) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(scratch_setup, whole_transfers, scratch_teardown),
		WITH(scratch_setup, errors_come_back, scratch_teardown),
		cmocka_unit_test(writes_whole_through_signals),
		cmocka_unit_test(reads_whole_through_signals),
		cmocka_unit_test(some_never_waits),
		WITH(scratch_setup, fills_zeros, scratch_teardown),
		WITH(scratch_setup, appends_zeros, scratch_teardown),
		WITH(scratch_setup, steps, scratch_teardown),
#ifdef LIMB_FAULTS
		WITH(scratch_setup, observer_sees_writes, observe_teardown),
		WITH(scratch_setup, observer_sees_steps, observe_teardown),
		WITH(scratch_setup, observer_sees_no_sockets, observe_teardown),
		WITH(scratch_setup, observer_sees_what_is_done, observe_teardown),
		WITH(scratch_setup, faults_of_each_call, observe_teardown),
		WITH(scratch_setup, cut_of_writev, observe_teardown),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
