#include "providers/sandbox.h"

#include <limits.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"

/* Enough to own files as anyone, to become anyone, and to end anyone's processes. */
const unsigned sandbox_capabilities[] = {
	CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID,
	CAP_KILL,  CAP_SETGID,	     CAP_SETUID, CAP_SETFCAP,
};
const size_t sandbox_capabilities_count = ARRAY_SIZE(sandbox_capabilities);

static const char *const capability_names[] = {
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID",
	"CAP_KILL",  "CAP_SETGID",	 "CAP_SETUID", "CAP_SETFCAP",
};

/* Not here: shadow, gshadow, ssh, sudoers, ssl/private, pki/tls/private, machine-id,
 * resolv.conf (there is no network), fstab, anything of a service. */
static const char *const etc_files[] = {
	"alternatives",
	"bash.bashrc",
	"bash_completion",
	"ca-certificates",
	"debian_version",
	"fonts",
	"gai.conf",
	"group",
	"host.conf",
	"inputrc",
	"issue",
	"ld.so.cache",
	"ld.so.conf",
	"ld.so.conf.d",
	"locale.alias",
	"locale.conf",
	"localtime",
	"login.defs",
	"lsb-release",
	"magic",
	"magic.mime",
	"mime.types",
	"nanorc",
	"networks",
	"nsswitch.conf",
	"os-release",
	"passwd",
	"perl",
	"pki/ca-trust",
	"pki/tls/certs",
	"profile",
	"profile.d",
	"protocols",
	"rpc",
	"services",
	"shells",
	"skel",
	"ssl/certs",
	"ssl/openssl.cnf",
	"terminfo",
	"timezone",
	"vim",
	"xml",
};

static const char *const system_dirs[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};

struct args {
	char **v;
	size_t n, cap;
	bool failed;
};

static void add(struct args *a, const char *s)
{
	if (a->n + 2 > a->cap) {
		size_t cap = a->cap ? 2 * a->cap : 256;
		char **v = reallocarray(a->v, cap, sizeof(*v));

		if (!v) {
			a->failed = true;
			return;
		}
		a->v = v;
		a->cap = cap;
	}
	a->v[a->n] = strdup(s);
	if (!a->v[a->n]) {
		a->failed = true;
		return;
	}
	a->v[++a->n] = NULL;
}

static void add2(struct args *a, const char *s, const char *t)
{
	add(a, s);
	add(a, t);
}

static void add3(struct args *a, const char *s, const char *t, const char *u)
{
	add(a, s);
	add(a, t);
	add(a, u);
}

static void add_number(struct args *a, const char *s, int n)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%d", n);
	add2(a, s, text);
}

const char *sandbox_home(void)
{
	static char home[PATH_MAX];
	const struct passwd *pw = getpwuid(geteuid());

	if (home[0])
		return home;
	if (geteuid() == 0)
		(void)snprintf(home, sizeof(home), "/root");
	else
		(void)snprintf(home, sizeof(home), "/home/%s",
			       pw && pw->pw_name[0] && !strchr(pw->pw_name, '/') ? pw->pw_name
										 : "limb");
	return home;
}

/* Said explicitly, a directory that a mount needs is not 0700. */
static void add_dir(struct args *a, const char *path)
{
	add2(a, "--perms", "0755");
	add2(a, "--dir", path);
}

/* Where /bin is a link to usr/bin it is one inside, too. */
static void add_system(struct args *a)
{
	add3(a, "--ro-bind", "/usr", "/usr");
	for (size_t i = 0; i < ARRAY_SIZE(system_dirs); i++) {
		char path[32], target[PATH_MAX];
		struct stat st;
		ssize_t n;

		(void)snprintf(path, sizeof(path), "/%s", system_dirs[i]);
		if (lstat(path, &st) < 0)
			continue;
		n = S_ISLNK(st.st_mode) ? readlink(path, target, sizeof(target) - 1) : -1;
		if (n > 0) {
			target[n] = '\0';
			add3(a, "--symlink", target, path);
		} else if (S_ISDIR(st.st_mode)) {
			add3(a, "--ro-bind", path, path);
		}
	}
	add_dir(a, "/etc");
	add_dir(a, "/etc/pki");
	add_dir(a, "/etc/pki/tls");
	add_dir(a, "/etc/ssl");
	for (size_t i = 0; i < ARRAY_SIZE(etc_files); i++) {
		char path[64];

		(void)snprintf(path, sizeof(path), "/etc/%s", etc_files[i]);
		add3(a, "--ro-bind-try", path, path);
	}
	add3(a, "--symlink", "/proc/self/mounts", "/etc/mtab");
}

static void add_tmpfs(struct args *a, const char *mode, const char *path)
{
	add2(a, "--perms", mode);
	add2(a, "--tmpfs", path);
}

/* The host's own settings. A sandbox whose root has every id is their owner, whatever
 * its capabilities; bwrap leaves them open where it may not write to them itself. */
static void add_proc(struct args *a)
{
	static const char *const dirs[] = {"acpi", "bus",      "driver", "fs",
					   "irq",  "pressure", "scsi",	 "sys"};
	static const char *const files[] = {"kcore",	   "keys",	    "latency_stats", "mtrr",
					    "sched_debug", "sysrq-trigger", "timer_list"};
	char path[64];

	add2(a, "--proc", "/proc");
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		(void)snprintf(path, sizeof(path), "/proc/%s", dirs[i]);
		if (access(path, F_OK) == 0)
			add3(a, "--ro-bind", path, path);
	}
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		(void)snprintf(path, sizeof(path), "/proc/%s", files[i]);
		if (access(path, F_OK) == 0)
			add3(a, "--ro-bind", "/dev/null", path);
	}
}

static void add_private(struct args *a)
{
	add_proc(a);
	add2(a, "--dev", "/dev");
	add_tmpfs(a, "1777", "/dev/shm");
	add_tmpfs(a, "1777", "/tmp");
	add_dir(a, "/var");
	add_dir(a, "/home");
	add_tmpfs(a, "1777", "/var/tmp");
	add3(a, "--symlink", "/run", "/var/run");
	add_tmpfs(a, "0755", "/run");
	add_tmpfs(a, "0700", sandbox_home());
}

static void add_ours(struct args *a, const struct provider_call *call)
{
	cleanup_free char *run = NULL;

	if (asprintf(&run, "%s/%s", call->dir, SANDBOX_RUN) < 0) {
		run = NULL;
		a->failed = true;
		return;
	}
	add3(a, "--bind", call->root, SANDBOX_ROOT);
	add3(a, "--bind", run, SANDBOX_DIR);
	add3(a, "--ro-bind", call->syncd, SANDBOX_SYNCD);
	add2(a, "--remount-ro", "/");
	add2(a, "--chdir", "/");
}

static void add_namespaces(struct args *a, const struct provider_call *call, int userns_fd)
{
	if (userns_fd >= 0)
		add_number(a, "--userns", userns_fd);
	else
		add(a, "--unshare-user");
	add(a, "--unshare-pid");
	add(a, "--unshare-ipc");
	add(a, "--unshare-uts");
	add(a, "--unshare-net");
	if (call->environment)
		add2(a, "--hostname", call->environment);
	add(a, "--new-session");
	add(a, "--as-pid-1");
	if (geteuid() != 0)
		return;
	add2(a, "--cap-drop", "ALL");
	for (size_t i = 0; i < ARRAY_SIZE(capability_names); i++)
		add2(a, "--cap-add", capability_names[i]);
}

char **sandbox_argv(const struct provider_call *call, const char *program, int userns_fd,
		    int info_fd, char **env)
{
	struct args a = {0};

	add(&a, program);
	add_number(&a, "--info-fd", info_fd);
	add_namespaces(&a, call, userns_fd);
	add_system(&a);
	add_private(&a);
	add_ours(&a, call);
	add(&a, "--clearenv");
	for (char **p = env; p && *p; p++) {
		cleanup_free char *name = strdup(*p);
		char *eq = name ? strchr(name, '=') : NULL;

		if (!eq) {
			a.failed = true;
			break;
		}
		*eq = '\0';
		add3(&a, "--setenv", name, eq + 1);
	}
	add2(&a, "--", SANDBOX_SYNCD);
	add(&a, "init");
	add2(&a, "--dir", SANDBOX_DIR);
	add2(&a, "--root", SANDBOX_ROOT);
	add2(&a, "--env", call->id);
	if (!a.failed)
		return a.v;
	provider_strv_free(a.v);
	return NULL;
}
