#include "syncd/maps.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

#include "base/buf.h"
#include "base/util.h"

enum {
	MAPS_BYTES_MAX = 4 << 20, /* of one process */
	READ_BYTES = 64 * 1024,
	INODES_MAX = 100 * 1000,
	PATH_BYTES = 4096,
	PIDS_MAX = 64 * 1024,
};

/* linux/fs.h of 6.11. A kernel without it answers ENOTTY, and /proc/PID/maps is read: the
 * same, but the kernel writes a line for every mapping of every process. */
struct map_query {
	uint64_t size, flags, address;
	uint64_t start, end, map_flags, page_size, offset, inode;
	uint32_t major, minor, name_size, build_id_size;
	uint64_t name, build_id;
};
#define MAP_QUERY _IOWR('f', 17, struct map_query)
enum {
	MAP_QUERY_WRITABLE = 0x02,
	MAP_QUERY_SHARED = 0x08,
	MAP_QUERY_OR_NEXT = 0x10,
	MAP_QUERY_FILE = 0x20,
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

static bool is_beneath(const struct found *f, const char *path)
{
	return strncmp(path, f->root, f->root_len) == 0 && path[f->root_len] == '/';
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
	if (makedev(major, minor) != f->device && !is_beneath(f, path))
		return 0;
	return add(f, inode);
}

/* -ENOTTY: the kernel cannot be asked. */
static int ask(struct found *f, int fd)
{
	char name[PATH_BYTES];
	struct map_query q = {0};
	int r;

	for (;;) {
		q = (struct map_query){
			.size = sizeof(q),
			.flags = MAP_QUERY_WRITABLE | MAP_QUERY_SHARED | MAP_QUERY_OR_NEXT |
				 MAP_QUERY_FILE,
			.address = q.end,
			.name_size = sizeof(name),
			.name = (uintptr_t)name,
		};
		name[0] = '\0';
		if (ioctl(fd, MAP_QUERY, &q) < 0) {
			if (errno == ENOTTY || errno == EINVAL || errno == ENAMETOOLONG)
				return -ENOTTY;
			return 0; /* no more of them, or it is gone */
		}
		if (q.inode == 0 ||
		    (makedev(q.major, q.minor) != f->device && !is_beneath(f, name)))
			continue;
		r = add(f, q.inode);
		if (r < 0)
			return r;
	}
}

static int one_process(struct found *f, int proc, const char *pid)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(MAPS_BYTES_MAX);
	cleanup_close int fd = -1;
	char path[64], *line, *end;
	uint8_t *p;
	ssize_t n;
	int r;

	(void)snprintf(path, sizeof(path), "%.20s/maps", pid);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	r = ask(f, fd);
	if (r != -ENOTTY)
		return r;
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
		*end = '\0';
		r = one_line(f, line);
		if (r < 0)
			return r;
	}
	return 0;
}

static int all_processes(struct found *f, DIR *proc)
{
	struct dirent *e;
	int r = 0;

	while (r == 0 && (e = readdir(proc)))
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
			r = one_process(f, dirfd(proc), e->d_name);
	return r;
}

/* ---- the descendants of one ---- */

struct pids {
	pid_t *list;
	size_t n, cap;
};

static int add_pid(struct pids *p, pid_t pid)
{
	if (p->n == PIDS_MAX)
		return -E2BIG;
	if (p->n == p->cap) {
		size_t cap = p->cap ? 2 * p->cap : 64;
		pid_t *list = reallocarray(p->list, cap, sizeof(*list));

		if (!list)
			return -ENOMEM;
		p->list = list;
		p->cap = cap;
	}
	p->list[p->n++] = pid;
	return 0;
}

/* Adds the children of one thread; -ENOENT: it is gone, or the kernel does not list them. */
static int add_children(struct pids *p, int proc, pid_t pid, const char *tid)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(PIDS_MAX * 8);
	cleanup_close int fd = -1;
	char path[64], *s, *end;
	uint8_t *room;
	ssize_t n;
	int r = 0;

	(void)snprintf(path, sizeof(path), "%d/task/%.20s/children", (int)pid, tid);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	do {
		r = buf_reserve(&b, READ_BYTES, &room);
		if (r < 0)
			return r;
		n = read(fd, room, READ_BYTES);
		if (n > 0)
			buf_commit(&b, (size_t)n);
	} while (n > 0);
	r = buf_add_u8(&b, '\0');
	for (s = (char *)b.mem + b.start; r == 0; s = end) {
		long child = strtol(s, &end, 10);

		if (end == s)
			break;
		r = add_pid(p, (pid_t)child);
	}
	return r;
}

/* Every thread has children of its own. */
static int add_all_children(struct pids *p, int proc, pid_t pid)
{
	char path[32];
	struct dirent *e;
	int fd, r = 0;
	DIR *tasks;

	(void)snprintf(path, sizeof(path), "%d/task", (int)pid);
	fd = openat(proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	tasks = fd < 0 ? NULL : fdopendir(fd);
	if (!tasks) {
		if (fd >= 0)
			(void)close(fd);
		return fd < 0 ? -errno : -ENOMEM;
	}
	while (r >= 0 && (e = readdir(tasks)))
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
			r = add_children(p, proc, pid, e->d_name);
	(void)closedir(tasks);
	return r;
}

static int processes_below(struct found *f, int proc, pid_t below)
{
	struct pids p = {0};
	char name[16];
	int r;

	r = add_pid(&p, below);
	if (r == 0)
		r = add_all_children(&p, proc, below);
	for (size_t i = 0; r == 0 && i < p.n; i++) {
		(void)snprintf(name, sizeof(name), "%d", (int)p.list[i]);
		r = one_process(f, proc, name);
		if (r < 0 || i == 0)
			continue;
		r = add_all_children(&p, proc, p.list[i]);
		if (r == -ENOENT || r == -ESRCH) /* it has ended meanwhile */
			r = 0;
	}
	free(p.list);
	return r;
}

int maps_find(uint64_t device, const char *root_path, pid_t below, uint64_t **ret_inodes,
	      size_t *ret_n)
{
	struct found f = {.device = device, .root = root_path, .root_len = strlen(root_path)};
	DIR *proc = opendir("/proc");
	int r = -ENOENT;

	if (!proc)
		return -errno;
	if (below > 0)
		r = processes_below(&f, dirfd(proc), below);
	if (r < 0)
		r = all_processes(&f, proc);
	(void)closedir(proc);
	if (r < 0) {
		free(f.inodes);
		return r;
	}
	*ret_inodes = f.inodes;
	*ret_n = f.n;
	return 0;
}
