/*
 * bwrap - a provider of bubblewrap sandboxes: own user, pid, ipc, uts, net and
 * mount namespaces, a read-only system (sandbox.h), no new privileges.
 *
 * As root the sandbox has every id (userns.h) and a few capabilities over them;
 * as a normal user it has that user's one id and none.  Its first process is
 * limb-syncd; with it, all of it dies.  `enter` is no verb of the contract: it is
 * how `command` gets a transport inside.
 */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "providers/enter.h"
#include "providers/process.h"
#include "providers/provider.h"
#include "providers/sandbox.h"
#include "providers/userns.h"

enum { INFO_MAX = 4096, TERM_MS = 5000, PAUSE_MS = 2 };

/* The record of a made environment: its first process, {} while there is none. */
static const char record[] = "bwrap.json";

static json_t *info(const struct provider_call *call, json_t **ret)
{
	*ret = json_pack("{s:i, s:s, s:s, s:[s,s,s,s,s,s,s,s], s:[s,s,s,s,s,s,s,s],"
			 " s:{s:s, s:s, s:s, s:s, s:s}, s:{s:s, s:s}}",
			 "protocol", 1, "name", "bwrap", "version", PACKAGE_VERSION, "verbs",
			 "info", "create", "start", "stop", "delete", "status", "command", "list",
			 "isolation", "user namespace", "pid namespace", "ipc namespace",
			 "uts namespace", "network namespace", "mount namespace",
			 "read-only system", "no new privileges", "enforces", "cpu", "none",
			 "memory", "none", "pids", geteuid() == 0 ? "none" : "kernel", "disk",
			 "none", "network", "kernel", "keeps", "stop", "files", "pause", "none");
	if (geteuid() != 0) /* the kernel does not count root's */
		(void)json_object_set_new(*ret, "limits",
					  json_pack("{s:i}", "pids", SANDBOX_PROCESSES));
	return NULL;
}

/* bwrap in PATH; that we have its name does no harm, ours is never there. */
static int find_bwrap(char path[PATH_MAX])
{
	const char *dirs = getenv("PATH");

	if (!dirs || !*dirs)
		dirs = "/usr/local/bin:/usr/bin:/bin";
	while (*dirs) {
		size_t n = strcspn(dirs, ":");

		if (n > 0 && dirs[0] == '/' &&
		    snprintf(path, PATH_MAX, "%.*s/bwrap", (int)n, dirs) < PATH_MAX &&
		    access(path, X_OK) == 0)
			return 0;
		dirs += n + (dirs[n] == ':');
	}
	return -ENOENT;
}

static json_t *make_run_dir(const struct provider_call *call)
{
	int r = file_make_dir(call->dir_fd, SANDBOX_RUN);

	return r < 0 ? provider_failure_errno(r, "cannot make the directory of limb-syncd") : NULL;
}

static json_t *create(const struct provider_call *call, json_t **ret)
{
	char path[PATH_MAX];
	json_t *failure;
	struct stat st;
	int r = 0;

	if (find_bwrap(path) < 0)
		return provider_failure("unsupported",
					"install bubblewrap, or create with --provider local",
					"bwrap is not in PATH");
	failure = provider_check_root(call, true);
	if (!failure)
		failure = make_run_dir(call);
	if (failure)
		return failure;
	if (fstatat(call->dir_fd, record, &st, 0) < 0)
		r = file_replace(call->dir_fd, record, "{}", 2);
	if (r < 0)
		return provider_failure_errno(r, "cannot write the record");
	*ret = json_pack("{s:s, s:s, s:s, s:s, s:s}", "handle", call->id, "root", SANDBOX_ROOT,
			 "host_root", call->root, "dir", SANDBOX_DIR, "syncd", SANDBOX_SYNCD);
	return NULL;
}

static bool take_init(const struct process *monitor, const char *mark, void *userdata)
{
	return process_child_init(monitor->pid, userdata) == 0;
}

/* By the record, or, if a crash came before it was written, by the mark of the
 * bwrap that waits for it. */
static bool find_init(const struct provider_call *call, struct process *ret)
{
	struct process p = {0};

	if (process_load(call->dir_fd, record, &p) < 0 || !process_alive(&p)) {
		p = (struct process){0};
		(void)process_each_marked(call->mark, take_init, &p);
	}
	if (p.pid == 0)
		return false;
	*ret = p;
	return true;
}

static json_t *status(const struct provider_call *call, json_t **ret)
{
	struct process p;
	struct stat st;

	if (fstatat(call->dir_fd, record, &st, 0) < 0)
		*ret = provider_status("NotFound", 0);
	else if (find_init(call, &p))
		*ret = provider_status("Running", p.pid);
	else
		*ret = provider_status("Stopped", 0);
	return NULL;
}

/* ---- start ---- */

static json_t *bwrap_failed(const struct provider_call *call)
{
	char said[512];

	return provider_failure("unsupported",
				"limb doctor says what is missing; or create with --provider local",
				"bwrap could not make the sandbox: %s",
				provider_log_tail(call, said, sizeof(said)));
}

static _Noreturn void become_bwrap(const struct provider_call *call, const char *program,
				   int userns_fd, int info_fd)
{
	/* Fixed numbers, because the arguments name them; what has them now (the private
	 * directory, perhaps) is used for the last time by provider_detach(). */
	enum { INFO_FD = 3, USERNS_FD = 4, MOVED_FD = 10 };
	char **env = provider_environment(call, sandbox_home());
	char **argv = sandbox_argv(call, program, userns_fd >= 0 ? USERNS_FD : -1, INFO_FD, env);
	int a = fcntl(info_fd, F_DUPFD_CLOEXEC, MOVED_FD), b = -1;

	if (userns_fd >= 0)
		b = fcntl(userns_fd, F_DUPFD_CLOEXEC, MOVED_FD);
	if (!argv || a < 0 || provider_detach(call) < 0 || dup2(a, INFO_FD) < 0 ||
	    (userns_fd >= 0 && dup2(b, USERNS_FD) < 0))
		_exit(126);
	provider_set_limits(SANDBOX_PROCESSES);
	(void)umask(022); /* a machine of its own, whoever started limbd */
	(void)execve(program, argv, env);
	_exit(127);
}

/* What bwrap says about itself, to the end of the pipe: the child's number. */
static int read_child_pid(int fd, uint64_t end_ms, pid_t *ret)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(INFO_MAX);
	ssize_t n = 1;
	json_t *o;
	int pid, r;

	while (n > 0) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		uint64_t now = clock_mono_ms();
		uint8_t *to;

		if (now >= end_ms || TEMP_FAILURE_RETRY(poll(&p, 1, (int)(end_ms - now))) <= 0)
			return -ETIMEDOUT;
		r = buf_reserve(&b, 512, &to);
		if (r < 0)
			return r;
		n = io_read_some(fd, to, 512, "bwrap.info");
		if (n < 0)
			return (int)n;
		buf_commit(&b, (size_t)n);
	}
	o = json_loadb((const char *)buf_data(&b), buf_len(&b), 0, NULL);
	r = json_unpack(o, "{s:i}", "child-pid", &pid);
	json_decref(o);
	if (r < 0 || pid <= 1)
		return -ENODATA;
	*ret = pid;
	return 0;
}

/* bwrap is named so until it has become limb-syncd; before that the sandbox is not
 * whole, and an error may still come. */
static json_t *wait_init(const struct provider_call *call, const struct process *init)
{
	char path[48];

	(void)snprintf(path, sizeof(path), "/proc/%d/comm", (int)init->pid);
	while (clock_mono_ms() < call->end_ms) {
		_cleanup_(buf_done) struct buf comm = BUF_INIT(64);

		if (!process_alive(init))
			return bwrap_failed(call);
		if (file_read(AT_FDCWD, path, &comm) >= 0 &&
		    !(buf_len(&comm) >= 5 && memcmp(buf_data(&comm), "bwrap", 5) == 0))
			return NULL;
		(void)poll(NULL, 0, PAUSE_MS);
	}
	return provider_failure("timed_out", NULL, "the sandbox did not start by the deadline");
}

static json_t *spawn(const struct provider_call *call, int userns_fd, struct process *ret)
{
	char program[PATH_MAX];
	pid_t monitor, child = 0;
	json_t *failure;
	int p[2], r;

	if (find_bwrap(program) < 0)
		return provider_failure("unsupported", "install bubblewrap",
					"bwrap is not in PATH");
	if (pipe2(p, O_CLOEXEC) < 0)
		return provider_failure_errno(-errno, "cannot make a pipe");
	monitor = fork();
	if (monitor == 0)
		become_bwrap(call, program, userns_fd, p[1]);
	(void)close(p[1]);
	r = monitor < 0 ? -errno : read_child_pid(p[0], call->end_ms, &child);
	(void)close(p[0]);
	if (r >= 0)
		r = process_identify(child, ret);
	if (r >= 0)
		r = process_save(call->dir_fd, record, ret);
	failure = r < 0 ? (monitor < 0 ? provider_failure_errno(r, "cannot fork")
				       : bwrap_failed(call))
			: wait_init(call, ret);
	if (!failure)
		return NULL;
	if (child > 0)
		(void)process_end(ret, SIGKILL, call->end_ms);
	if (monitor > 0)
		(void)kill(monitor, SIGKILL);
	return failure;
}

static json_t *start(const struct provider_call *call, json_t **ret)
{
	cleanup_close int userns_fd = -1;
	struct process init;
	json_t *failure;
	int r;

	if (find_init(call, &init)) {
		*ret = provider_status("Running", init.pid);
		return NULL;
	}
	failure = provider_check_root(call, false);
	if (!failure)
		failure = make_run_dir(call);
	if (failure)
		return failure;
	if (!call->syncd || access(call->syncd, R_OK) < 0)
		return provider_failure("internal", "install limbfs again",
					"there is no limb-syncd to run at spec.syncd");
	if (geteuid() == 0) {
		r = userns_new_identity(&userns_fd);
		if (r < 0)
			return provider_failure("unsupported",
						"allow user namespaces (limb doctor says how), or "
						"create with --provider local",
						"cannot make a user namespace: %s",
						r == -ENOSPC
							? "none is allowed, or too many are there"
							: strerror(-r));
	}
	failure = spawn(call, userns_fd, &init);
	if (failure)
		return failure;
	*ret = provider_status("Running", init.pid);
	return NULL;
}

/* ---- the rest ---- */

static json_t *end_sandbox(const struct provider_call *call)
{
	struct process init;
	int r = 0;

	while (r >= 0 && find_init(call, &init)) {
		r = process_end(&init, SIGTERM, MIN(clock_mono_ms() + TERM_MS, call->end_ms));
		if (r == -ETIMEDOUT)
			r = process_end(&init, SIGKILL, call->end_ms);
	}
	/* bwrap itself, which waits for it; without its child it ends, but see to it. */
	if (r >= 0)
		r = process_kill_marked(call->mark, call->end_ms);
	return r < 0 ? provider_failure_errno(r, "cannot end the sandbox") : NULL;
}

static json_t *stop(const struct provider_call *call, json_t **ret)
{
	json_t *failure = end_sandbox(call);
	struct stat st;
	int r;

	if (failure)
		return failure;
	if (fstatat(call->dir_fd, record, &st, 0) < 0) {
		*ret = provider_status("NotFound", 0);
		return NULL;
	}
	r = file_replace(call->dir_fd, record, "{}", 2);
	if (r < 0)
		return provider_failure_errno(r, "cannot write the record");
	*ret = provider_status("Stopped", 0);
	return NULL;
}

static json_t *delete (const struct provider_call *call, json_t **ret)
{
	json_t *failure = end_sandbox(call);

	if (failure)
		return failure;
	if (unlinkat(call->dir_fd, record, 0) < 0 && errno != ENOENT)
		return provider_failure_errno(-errno, "cannot remove the record");
	*ret = provider_status("NotFound", 0);
	return NULL;
}

/* [this program, enter, DIR, argv...] with limb-syncd's path as it is inside. */
static json_t *command(const struct provider_call *call, json_t **ret)
{
	json_t *argv = json_object_get(call->in, "argv"), *out, *word;
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	size_t i;

	if (!json_is_array(argv) || json_array_size(argv) == 0)
		return provider_failure("usage", NULL, "argv is missing");
	if (n <= 0)
		return provider_failure_errno(-errno, "cannot read /proc/self/exe");
	self[n] = '\0';
	out = json_pack("[s, s, s, s, s]", self, "enter", call->dir, call->mark, SANDBOX_SYNCD);
	json_array_foreach(argv, i, word)
	{
		if (i > 0)
			(void)json_array_append(out, word);
	}
	*ret = json_pack("{s:o}", "argv", out);
	return NULL;
}

static bool list_one(const struct process *p, const char *mark, void *userdata)
{
	char brain[128], id[128];

	if (sscanf(mark, "bwrap %127s %127s", brain, id) == 2)
		(void)json_array_append_new(userdata, json_pack("{s:s, s:s, s:s}", "id", id,
								"handle", id, "brain", brain));
	return false;
}

static json_t *list(const struct provider_call *call, json_t **ret)
{
	json_t *array = json_array();
	int r = process_each_marked("bwrap ", list_one, array);

	if (r < 0) {
		json_decref(array);
		return provider_failure_errno(r, "cannot list processes");
	}
	*ret = json_pack("{s:o}", "environments", array);
	return NULL;
}

/* enter DIR MARK PROGRAM ARG... */
static int enter(int argc, char **argv)
{
	struct provider_call call = {.provider = "bwrap", .dir_fd = -1};
	struct process init;
	char **env;
	int r;

	log_init("bwrap");
	if (argc < 5)
		return 2;
	call.mark = argv[3];
	r = file_open_dir(AT_FDCWD, argv[2]);
	if (r < 0)
		return log_error_errno(r, "cannot open '%s'", argv[2]), 125;
	call.dir_fd = r;
	env = provider_environment(&call, sandbox_home());
	if (!env)
		return log_oom(), 125;
	provider_set_limits(SANDBOX_PROCESSES);
	r = find_init(&call, &init) ? enter_run(&init, argv + 4, env) : -ESRCH;
	if (r < 0) {
		(void)log_error_errno(r, "cannot enter the sandbox");
		r = 125;
	}
	/* Half of us is in the sandbox: what runs at exit (a leak check, say) would hang. */
	_exit(r);
}

static const struct provider_verb verbs[] = {
	{"info", info, false},	    {"create", create, true}, {"start", start, true},
	{"stop", stop, true},	    {"delete", delete, true}, {"status", status, true},
	{"command", command, true}, {"list", list, false},
};

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "enter") == 0)
		return enter(argc, argv);
	return provider_main("bwrap", argc, argv, verbs, ARRAY_SIZE(verbs));
}
