#include "syncd/place.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/util.h"

int place_open_dir(const struct place *p, int *ret_fd)
{
	int r;

	r = file_make_dirs(p->dir);
	if (r < 0)
		return r;
	r = file_open_dir(AT_FDCWD, p->dir);
	if (r < 0)
		return r;
	*ret_fd = r;
	return 0;
}

/* Calls bind or connect with the directory as the current one, for as long as
 * the call lasts. */
static int at_dir(int dir, const char *name, int fd,
		  int (*call)(int, const struct sockaddr *, socklen_t))
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int r = 0;

	if (strlen(name) >= sizeof(sa.sun_path))
		return -ENAMETOOLONG;
	memcpy(sa.sun_path, name, strlen(name) + 1);
	if (fchdir(dir) < 0)
		return -errno;
	if (call(fd, (const struct sockaddr *)&sa, sizeof(sa)) < 0)
		r = -errno;
	if (chdir("/") < 0 && r == 0)
		r = -errno;
	return r;
}

static int call_bind(int fd, const struct sockaddr *sa, socklen_t n)
{
	return bind(fd, sa, n);
}

static int call_connect(int fd, const struct sockaddr *sa, socklen_t n)
{
	return connect(fd, sa, n);
}

int place_listen(int dir, const char *name, int *ret_fd)
{
	cleanup_close int fd = -1;
	int r;

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/* The mode of a socket's name is that of the socket before bind. */
	if (fchmod(fd, 0600) < 0)
		return -errno;
	r = at_dir(dir, name, fd, call_bind);
	if (r < 0)
		return r;
	if (listen(fd, 16) < 0)
		return -errno;
	*ret_fd = take_fd(&fd);
	return 0;
}

int place_connect(int dir, const char *name, int *ret_fd)
{
	cleanup_close int fd = -1;
	int r;

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	r = at_dir(dir, name, fd, call_connect);
	if (r < 0)
		return r;
	*ret_fd = take_fd(&fd);
	return 0;
}

const char *self_path(void)
{
	static const char proc[] = "/proc/self/exe";
	const char *name = (const char *)getauxval(AT_EXECFN);

	return access(proc, X_OK) < 0 && name && name[0] == '/' ? name : proc;
}

void self_identify(struct self *ret)
{
	struct stat st;

	memset(ret, 0, sizeof(*ret));
	if (stat("/proc/self/exe", &st) < 0)
		return;
	ret->dev = st.st_dev;
	ret->ino = st.st_ino;
	ret->size_bytes = (uint64_t)st.st_size;
	ret->mtime_ns = clock_from_timespec(st.st_mtim);
}

int self_sha256(uint8_t out[SHA256_BYTES])
{
	cleanup_close int fd = -1;
	cleanup_free uint8_t *block = NULL;
	struct sha256_ctx *ctx;
	ssize_t n;
	enum { BLOCK = 256 << 10 };

	fd = open(self_path(), O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	block = malloc(BLOCK);
	if (!block)
		return -ENOMEM;
	ctx = sha256_new();
	while ((n = io_read_full(fd, block, BLOCK, "self.read")) > 0)
		sha256_update(ctx, block, (size_t)n);
	sha256_final(ctx, out);
	sha256_free(ctx);
	return n < 0 ? (int)n : 0;
}
