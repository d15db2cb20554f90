#include "providers/userns.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/io.h"
#include "base/util.h"

enum { LINES_MAX = 340 }; /* user_namespaces(7) */

/* "inside outside count" of ours becomes "inside inside count": all that exist here. */
static int identity_of(const char *own_map, struct buf *out)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(64 * 1024);
	unsigned long first, parent, count;
	const char *p;
	int r, used;

	r = file_read(AT_FDCWD, own_map, &b);
	if (r >= 0)
		r = buf_add_u8(&b, 0);
	if (r < 0)
		return r;
	p = (const char *)buf_data(&b);
	for (int i = 0; i < LINES_MAX; i++, p += used) {
		if (sscanf(p, " %lu %lu %lu%n", &first, &parent, &count, &used) != 3)
			break;
		r = buf_printf(out, "%lu %lu %lu\n", first, first, count);
		if (r < 0)
			return r;
	}
	return buf_len(out) > 0 ? 0 : -ENODATA;
}

static int write_map(pid_t pid, const char *name)
{
	_cleanup_(buf_done) struct buf map = BUF_INIT(64 * 1024);
	char path[64];
	int r;

	(void)snprintf(path, sizeof(path), "/proc/self/%s", name);
	r = identity_of(path, &map);
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	{
		cleanup_close int fd = open(path, O_WRONLY | O_CLOEXEC);

		if (fd < 0)
			return -errno;
		return io_write_full(fd, buf_data(&map), buf_len(&map), "userns.map");
	}
}

static _Noreturn void hold_namespace(int tell)
{
	int r = 0;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (unshare(CLONE_NEWUSER) < 0)
		r = errno;
	if (write(tell, &r, sizeof(r)) != sizeof(r))
		_exit(1);
	for (;;)
		(void)pause();
}

static int adopt(pid_t pid, int told, int *ret_fd)
{
	char path[64];
	int r, fd;

	if (io_read_full(told, &r, sizeof(r), "userns.told") != sizeof(r))
		return -EIO;
	if (r != 0)
		return -r;
	r = write_map(pid, "uid_map");
	if (r >= 0)
		r = write_map(pid, "gid_map");
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

int userns_new_identity(int *ret_fd)
{
	int p[2], r;
	pid_t pid;

	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		hold_namespace(p[1]);
	r = pid < 0 ? -errno : 0;
	(void)close(p[1]);
	if (r >= 0)
		r = adopt(pid, p[0], ret_fd);
	(void)close(p[0]);
	if (pid > 0) {
		(void)kill(pid, SIGKILL);
		(void)TEMP_FAILURE_RETRY(waitpid(pid, NULL, 0));
	}
	return r;
}
