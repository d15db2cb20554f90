#include "syncd/maps.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/sysmacros.h>

#include "base/buf.h"
#include "base/util.h"

enum {
	MAPS_BYTES_MAX = 4 << 20, /* of one process */
	READ_BYTES = 64 * 1024,
	INODES_MAX = 100 * 1000,
};

struct found {
	uint64_t device;
	const char *root;
	size_t root_len;
	uint64_t *inodes;
	size_t n, cap;
};

static int add(struct found *f, uint64_t inode)
{
	for (size_t i = 0; i < f->n; i++)
		if (f->inodes[i] == inode)
			return 0;
	if (f->n == f->cap) {
		size_t cap = f->cap ? f->cap * 2 : 16;
		uint64_t *inodes;

		if (cap > INODES_MAX)
			return -E2BIG;
		inodes = reallocarray(f->inodes, cap, sizeof(*inodes));
		if (!inodes)
			return -ENOMEM;
		f->inodes = inodes;
		f->cap = cap;
	}
	f->inodes[f->n++] = inode;
	return 0;
}

/* "7f...-7f... rw-s 00001000 fe:00 1234    /path" (proc_pid_maps(5)) */
static int one_line(struct found *f, char *line)
{
	char *perms = strchr(line, ' ');
	unsigned long long offset, inode;
	unsigned major, minor;
	int path_at = 0;
	const char *path;

	if (!perms || strnlen(perms, 6) < 6 || perms[2] != 'w' || perms[4] != 's')
		return 0;
	if (sscanf(perms + 5, "%llx %x:%x %llu %n", &offset, &major, &minor, &inode, &path_at) < 4)
		return 0;
	if (inode == 0)
		return 0;
	path = perms + 5 + path_at;
	if (makedev(major, minor) != f->device &&
	    (strncmp(path, f->root, f->root_len) != 0 || path[f->root_len] != '/'))
		return 0;
	return add(f, inode);
}

static int one_process(struct found *f, int proc, const char *pid)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(MAPS_BYTES_MAX);
	cleanup_close int fd = -1;
	char path[64], *line, *end;
	uint8_t *p;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "%.20s/maps", pid);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	do {
		if (buf_reserve(&b, READ_BYTES, &p) < 0)
			break;
		n = read(fd, p, READ_BYTES);
		if (n > 0)
			buf_commit(&b, (size_t)n);
	} while (n > 0);
	if (buf_len(&b) == 0 || buf_add_u8(&b, '\0') < 0)
		return 0;
	for (line = (char *)b.mem + b.start; (end = strchr(line, '\n')); line = end + 1) {
		int r;

		*end = '\0';
		r = one_line(f, line);
		if (r < 0)
			return r;
	}
	return 0;
}

int maps_find(uint64_t device, const char *root_path, uint64_t **ret_inodes, size_t *ret_n)
{
	struct found f = {.device = device, .root = root_path, .root_len = strlen(root_path)};
	struct dirent *e;
	int r = 0;
	DIR *proc = opendir("/proc");

	if (!proc)
		return -errno;
	while (r == 0 && (e = readdir(proc)))
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
			r = one_process(&f, dirfd(proc), e->d_name);
	(void)closedir(proc);
	if (r < 0) {
		free(f.inodes);
		return r;
	}
	*ret_inodes = f.inodes;
	*ret_n = f.n;
	return 0;
}
