/* The checks of the kernel and of other programs. */
#include "bridge/doctor.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/io.h"
#include "base/text.h"

enum {
	SANDBOX_MS = 5000,
	WATCHES_FEW = 65536,
	INSTANCES_FEW = 32, /* one for each local environment */
};

#define FUSE_DEVICE makedev(10, 229)

void doctor_dev_fuse(const struct places *places, struct doctor_result *r)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	struct stat st;

	/* Containers mask what they do not give with /dev/null. */
	if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != FUSE_DEVICE)) {
		(void)close(fd);
		fd = -1;
		errno = ENODEV;
	}
	if (fd >= 0) {
		(void)close(fd);
		doctor_say(r, DOCTOR_OK, NULL, "/dev/fuse can be opened");
	} else if (errno == EACCES || errno == EPERM) {
		doctor_say(r, DOCTOR_FAIL, "sudo chmod 666 /dev/fuse",
			   "/dev/fuse may not be opened by uid %u: there will be no view",
			   (unsigned)geteuid());
	} else {
		doctor_say(r, DOCTOR_FAIL,
			   "sudo modprobe fuse; in a container, start it with --device /dev/fuse",
			   "/dev/fuse cannot be opened (%s): there will be no view",
			   strerror(errno));
	}
}

void doctor_fusermount3(const struct places *places, struct doctor_result *r)
{
	static const char install[] = "install fuse3 (on Debian: sudo apt-get install fuse3)";
	cleanup_free char *path = doctor_find("fusermount3");
	struct stat st;

	if (geteuid() == 0)
		doctor_say(r, DOCTOR_OK, NULL,
			   path ? "%s (root mounts without it)" : "%sroot mounts without it",
			   path ? path : "");
	else if (!path)
		doctor_say(r, DOCTOR_FAIL, install,
			   "fusermount3 is not in PATH: only root could mount the view");
	else if (stat(path, &st) < 0 || !(st.st_mode & S_ISUID) || st.st_uid != 0)
		doctor_say(r, DOCTOR_WARN, install, "%s is not set-uid root: mounting may fail",
			   path);
	else
		doctor_say(r, DOCTOR_OK, NULL, "%s", path);
}

/* errno of making a user namespace and giving it one id. */
static int make_user_namespace(const void *arg)
{
	char map[64];
	unsigned uid = (unsigned)geteuid();
	int fd, n;

	if (unshare(CLONE_NEWUSER) < 0)
		return errno;
	n = snprintf(map, sizeof(map), "%u %u 1\n", uid, uid);
	fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, map, (size_t)n) != n)
		return errno;
	/* AppArmor lets one be made and takes away what it is for. */
	return unshare(CLONE_NEWNS) < 0 ? errno : 0;
}

static const char *namespace_step(void)
{
	if (access("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", F_OK) == 0)
		return "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0";
	if (access("/proc/sys/kernel/unprivileged_userns_clone", F_OK) == 0)
		return "sudo sysctl kernel.unprivileged_userns_clone=1";
	return "sudo sysctl user.max_user_namespaces=10000; in a container, ask who runs it";
}

void doctor_user_namespaces(const struct places *places, struct doctor_result *r)
{
	int e = doctor_try(make_user_namespace, NULL, SANDBOX_MS);

	if (e == 0)
		doctor_say(r, DOCTOR_OK, NULL, "user namespaces can be made");
	else
		doctor_say(r, DOCTOR_FAIL, namespace_step(),
			   "a user namespace cannot be made (%s): the provider bwrap will not work",
			   abs(e) == ENOSPC ? "none is allowed, or too many are there"
					    : strerror(abs(e)));
}

static int run_sandbox(const void *program)
{
	int null = open("/dev/null", O_RDWR);

	(void)dup2(null, 0);
	(void)dup2(null, 1);
	(void)dup2(null, 2);
	(void)execl(program, "bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc",
		    "--unshare-uts", "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc",
		    "--dev", "/dev", "true", NULL);
	return 125;
}

void doctor_bwrap(const struct places *places, struct doctor_result *r)
{
	cleanup_free char *path = doctor_find("bwrap");
	int status;

	if (!path) {
		doctor_say(r, DOCTOR_FAIL,
			   "install bubblewrap (on Debian: sudo apt-get install bubblewrap)",
			   "bwrap is not in PATH: environments need --provider local");
		return;
	}
	status = doctor_try(run_sandbox, path, SANDBOX_MS);
	if (status == 0)
		doctor_say(r, DOCTOR_OK, NULL, "%s makes a sandbox", path);
	else
		doctor_say(r, DOCTOR_FAIL, "try: bwrap --unshare-all --ro-bind / / true",
			   "%s cannot make a sandbox here (%s)", path,
			   status == -ETIMEDOUT ? "it hangs" : "see what it says");
}

/* A number in /proc/sys; -1. */
static long long read_number(const char *path)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(64);
	long long v = -1;

	if (file_read(AT_FDCWD, path, &b) < 0 || buf_add_u8(&b, 0) < 0)
		return -1;
	return sscanf((const char *)buf_data(&b), "%lld", &v) == 1 ? v : -1;
}

void doctor_inotify_watches(const struct places *places, struct doctor_result *r)
{
	long long max = read_number("/proc/sys/fs/inotify/max_user_watches");

	if (max < 0)
		doctor_say(r, DOCTOR_WARN, NULL, "the limit of inotify watches is not known");
	else if (max < WATCHES_FEW)
		doctor_say(r, DOCTOR_WARN, "sudo sysctl fs.inotify.max_user_watches=524288",
			   "%lld directories can be watched, the rest is polled", max);
	else
		doctor_say(r, DOCTOR_OK, NULL, "%lld directories can be watched", max);
}

void doctor_inotify_instances(const struct places *places, struct doctor_result *r)
{
	static const char step[] = "sudo sysctl fs.inotify.max_user_instances=1024";
	long long max = read_number("/proc/sys/fs/inotify/max_user_instances");
	int fds[INSTANCES_FEW], n, e = 0;

	for (n = 0; n < INSTANCES_FEW; n++) {
		fds[n] = inotify_init1(IN_CLOEXEC);
		if (fds[n] < 0) {
			e = errno;
			break;
		}
	}
	for (int i = 0; i < n; i++)
		(void)close(fds[i]);
	if (n == 0)
		doctor_say(r, DOCTOR_FAIL, step,
			   "no inotify instance is to be had: %s (limit %lld)", strerror(e), max);
	else if (n < INSTANCES_FEW)
		doctor_say(r, DOCTOR_WARN, step,
			   "%d inotify instances are left of %lld: each environment here needs one",
			   n, max);
	else
		doctor_say(r, DOCTOR_OK, NULL, "enough inotify instances (limit %lld)", max);
}

void doctor_openat2(const struct places *places, struct doctor_result *r)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_BENEATH};
	int fd = (int)syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof(how));

	if (fd >= 0) {
		(void)close(fd);
		doctor_say(r, DOCTOR_OK, NULL, "openat2 works");
	} else if (errno == ENOSYS || errno == EPERM) {
		doctor_say(r, DOCTOR_WARN, NULL,
			   "openat2 does not work (%s): paths are walked step by step",
			   strerror(errno));
	} else {
		/* the kernel knows it, only this directory does not suit */
		doctor_say(r, DOCTOR_OK, NULL, "openat2 works");
	}
}
