#include "fs/mountpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/file.h"

#define MOUNTINFO_MAX (64u << 20)
#define STACKED_MAX 64

extern char **environ;

/* ---- what is mounted ---- */

/* Does the field (\ooo stands for a byte; ends at a blank) say the same as text? */
static bool field_is(const char *field, const char *text)
{
	while (*field && *field != ' ' && *field != '\n') {
		unsigned char c = (unsigned char)*field++;

		if (c == '\\' && field[0] && field[1] && field[2]) {
			c = (unsigned char)((field[0] - '0') * 64 + (field[1] - '0') * 8 +
					    (field[2] - '0'));
			field += 3;
		}
		if (c != (unsigned char)*text++)
			return false;
	}
	return *text == '\0';
}

static const char *next_field(const char *p)
{
	while (*p && *p != ' ' && *p != '\n')
		p++;
	return *p == ' ' ? p + 1 : p;
}

/* proc(5): id, parent, device, root, mount point, options, optional fields, "-", type,
 * source, options. */
static bool judge_line(const char *p, const char *path, const char *source, bool *ret_ours)
{
	for (unsigned i = 0; i < 4; i++)
		p = next_field(p);
	if (!field_is(p, path))
		return false;
	while (*p && *p != '\n' && !field_is(p, "-"))
		p = next_field(p);
	p = next_field(p);
	*ret_ours = field_is(p, "fuse." MOUNTPOINT_TYPE) && field_is(next_field(p), source);
	return true;
}

enum mountpoint_state mountpoint_judge(const char *mountinfo, const char *path, const char *source)
{
	enum mountpoint_state state = MOUNTPOINT_FREE;
	bool ours;

	for (const char *p = mountinfo; *p;) {
		if (judge_line(p, path, source, &ours))
			state = ours ? MOUNTPOINT_OURS : MOUNTPOINT_FOREIGN;
		p = strchr(p, '\n');
		if (!p)
			break;
		p++;
	}
	return state;
}

static int look(const char *path, const char *source, enum mountpoint_state *ret)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(MOUNTINFO_MAX);
	cleanup_free char *text = NULL;
	int r;

	r = file_read(AT_FDCWD, "/proc/self/mountinfo", &b);
	if (r >= 0)
		r = buf_to_str(&b, &text);
	if (r >= 0)
		*ret = mountpoint_judge(text, path, source);
	return r;
}

/* ---- unmounting ---- */

static int run_fusermount(const char *path)
{
	char *argv[] = {(char *)"fusermount3", (char *)"-u", (char *)"-z", (char *)"-q",
			(char *)"--",	       (char *)path, NULL};
	int status, r;
	pid_t pid;

	r = -posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ);
	if (r < 0)
		return r;
	do {
		r = waitpid(pid, &status, 0);
	} while (r < 0 && errno == EINTR);
	return r >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

int mountpoint_unmount(const char *path)
{
	if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) >= 0)
		return 0;
	if (errno != EPERM)
		return -errno;
	return run_fusermount(path);
}

int mountpoint_clear(const char *path, const char *source)
{
	enum mountpoint_state state;
	int r;

	for (unsigned i = 0; i < STACKED_MAX; i++) {
		r = look(path, source, &state);
		if (r < 0)
			return r;
		if (state == MOUNTPOINT_FREE)
			return 0;
		if (state == MOUNTPOINT_FOREIGN)
			return -EBUSY;
		r = mountpoint_unmount(path);
		if (r < 0)
			return r;
	}
	return -EBUSY;
}

/* ---- the directory ---- */

int mountpoint_resolve(const char *path, char **ret)
{
	cleanup_free char *copy = strdup(path), *parent = NULL, *joined = NULL;
	char *slash, *end;
	int r;

	if (!copy)
		return -ENOMEM;
	for (end = copy + strlen(copy); end > copy + 1 && end[-1] == '/';)
		*--end = '\0';
	slash = strrchr(copy, '/');
	if (!slash || !slash[1] || strcmp(slash + 1, ".") == 0 || strcmp(slash + 1, "..") == 0)
		return -EINVAL;
	*slash = '\0';
	if (slash > copy) {
		r = file_make_dirs(copy);
		if (r < 0)
			return r;
	}
	parent = realpath(slash > copy ? copy : "/", NULL);
	if (!parent)
		return -errno;
	if (asprintf(&joined, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent, slash + 1) < 0) {
		joined = NULL;
		return -ENOMEM;
	}
	*ret = take_ptr(&joined);
	return 0;
}

static void set_immutable(int fd, bool on)
{
	int flags;

	/* Where that does not exist, the mode has to do. */
	if (geteuid() != 0 || ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0)
		return;
	flags = on ? flags | FS_IMMUTABLE_FL : flags & ~FS_IMMUTABLE_FL;
	(void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
}

static int is_empty(int fd)
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *e;
	int n = 0;

	if (!d)
		return -errno;
	while (n == 0 && (e = readdir(d)))
		n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	(void)closedir(d);
	return n == 0;
}

/* Ready to be mounted on: fusermount3 asks for write permission. By way of a descriptor that
 * needs none itself. */
static int open_up(int path_fd, int *ret_fd)
{
	char path[64];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", path_fd);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0)
		set_immutable(fd, false);
	if (chmod(path, 0700) < 0 && fd < 0)
		return -errno;
	if (fd < 0)
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

/* A directory that is there: taken when it is one that we made (its mode says so), or is to
 * count as one. What has something in it is nobody's to cover. */
static int take_existing(int path_fd, bool always_ours, int *ret_fd)
{
	cleanup_close int fd = -1;
	struct stat st;
	int r;

	if (fstat(path_fd, &st) < 0)
		return -errno;
	if (!always_ours && (st.st_uid != geteuid() || (st.st_mode & 07777) != 0))
		return 0;
	r = open_up(path_fd, &fd);
	if (r >= 0)
		r = is_empty(fd);
	if (r == 0) {
		(void)fchmod(fd, st.st_mode & 07777);
		r = -ENOTEMPTY;
	}
	if (r > 0)
		*ret_fd = take_fd(&fd);
	return r;
}

int mountpoint_make(const char *path, bool always_ours, struct mountpoint *ret)
{
	cleanup_close int path_fd = -1, fd = -1;
	bool is_new = mkdir(path, 0700) == 0;
	struct mountpoint mp = {.fd = -1};
	int r;

	if (!is_new && errno != EEXIST)
		return -errno;
	path_fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (path_fd < 0)
		return -errno;
	r = is_new ? open_up(path_fd, &fd) : take_existing(path_fd, always_ours, &fd);
	if (r < 0)
		return r;
	mp.path = strdup(path);
	if (!mp.path)
		return -ENOMEM;
	mp.fd = take_fd(&fd);
	*ret = mp;
	return 0;
}

void mountpoint_close_up(struct mountpoint *mp)
{
	if (mp->fd < 0)
		return;
	(void)fchmod(mp->fd, 0);
	set_immutable(mp->fd, true);
}

void mountpoint_remove(struct mountpoint *mp)
{
	if (mp->fd < 0)
		return;
	set_immutable(mp->fd, false);
	(void)fchmod(mp->fd, 0700);
	(void)rmdir(mp->path);
}

void mountpoint_done(struct mountpoint *mp)
{
	free(take_ptr(&mp->path));
	if (mp->fd >= 0)
		(void)close(mp->fd);
	mp->fd = -1;
}
