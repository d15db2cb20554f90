/*
 * local - a provider without walls: the hands are processes of this machine,
 * the root is a directory of it.
 *
 * limb-syncd runs here as limbd's own user.  Nothing is isolated and nothing is
 * limited; this is for trying limbfs, and for work that one would do by hand.
 * A root is never removed: limbd owns those that it made, the others are the
 * user's.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/text.h"
#include "providers/process.h"
#include "providers/provider.h"

enum { SETTLE_MS = 5000, STOP_MS = 5000, PAUSE_MS = 5 };

/* The record of a made environment: limb-syncd's process, {} while there is none. */
static const char record[] = "local.json";

static json_t *info(const struct provider_call *call, json_t **ret)
{
	*ret = json_pack("{s:i, s:s, s:s, s:[s,s,s,s,s,s,s,s], s:[],"
			 " s:{s:s, s:s, s:s, s:s, s:s}, s:{s:s, s:s}}",
			 "protocol", 1, "name", "local", "version", PACKAGE_VERSION, "verbs",
			 "info", "create", "start", "stop", "delete", "status", "command", "list",
			 "isolation", "enforces", "cpu", "none", "memory", "none", "pids", "none",
			 "disk", "none", "network", "none", "keeps", "stop", "files", "pause",
			 "none");
	return NULL;
}

static json_t *create(const struct provider_call *call, json_t **ret)
{
	json_t *failure = provider_check_root(call, true);
	struct stat st;
	int r = 0;

	if (failure)
		return failure;
	if (!call->syncd)
		return provider_failure("usage", NULL, "spec.syncd is missing");
	if (fstatat(call->dir_fd, record, &st, 0) < 0)
		r = file_replace(call->dir_fd, record, "{}", 2);
	if (r < 0)
		return provider_failure_errno(r, "cannot write the record");
	*ret = json_pack("{s:s, s:s, s:s, s:s, s:s}", "handle", call->id, "root", call->root,
			 "host_root", call->root, "dir", call->dir, "syncd", call->syncd);
	return NULL;
}

/* Jobs' holders carry the mark, too, and outlive it. */
static bool is_daemon(pid_t pid)
{
	static const char begin[] = "limb-syncd\0daemon";
	_cleanup_(buf_done) struct buf b = BUF_INIT(64 << 10);
	char path[48];

	(void)snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	return file_read(AT_FDCWD, path, &b) >= 0 && buf_len(&b) >= sizeof(begin) &&
	       memcmp(buf_data(&b), begin, sizeof(begin)) == 0;
}

/* The marked limb-syncd: the oldest. */
static bool take_oldest(const struct process *p, const char *mark, void *userdata)
{
	struct process *oldest = userdata;

	if (!is_daemon(p->pid))
		return false;
	if (oldest->pid == 0 || p->start_ticks < oldest->start_ticks)
		*oldest = *p;
	return false;
}

static bool find_daemon(const struct provider_call *call, struct process *ret)
{
	struct process p = {0};

	if (process_load(call->dir_fd, record, &p) == 0 && process_alive(&p)) {
		*ret = p;
		return true;
	}
	/* limb-syncd replaces itself by a newer one, and starts anew after a crash. */
	p = (struct process){0};
	(void)process_each_marked(call->mark, take_oldest, &p);
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
	else if (find_daemon(call, &p))
		*ret = provider_status("Running", p.pid);
	else
		*ret = provider_status("Stopped", 0);
	return NULL;
}

static _Noreturn void become_daemon(const struct provider_call *call)
{
	char *argv[] = {(char *)"limb-syncd", (char *)"daemon", (char *)"--dir",
			(char *)call->dir,    (char *)"--root", (char *)call->root,
			(char *)"--env",      (char *)call->id, NULL};
	char **env = provider_environment(call, getenv("HOME"));

	if (env && provider_detach(call) >= 0) {
		provider_set_limits(0);
		(void)execve(call->syncd, argv, env);
	}
	_exit(127);
}

static json_t *did_not_start(const struct provider_call *call, int wait_status)
{
	char said[512];

	if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 127)
		return provider_failure("internal", "install limbfs again", "cannot run '%s'",
					call->syncd);
	return provider_failure("io_error", NULL, "limb-syncd did not start: %s",
				provider_log_tail(call, said, sizeof(said)));
}

/* Running when it is no longer us (named "local"), or has left the stage to one that it
 * forked. */
static json_t *wait_started(const struct provider_call *call, pid_t pid, struct process *ret)
{
	char path[48];
	int wait_status = 0;

	(void)snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	do {
		_cleanup_(buf_done) struct buf b = BUF_INIT(64);

		if (waitpid(pid, &wait_status, WNOHANG) == pid) {
			struct process p = {0};

			if (!WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != 0)
				return did_not_start(call, wait_status);
			(void)process_each_marked(call->mark, take_oldest, &p);
			if (p.pid == 0)
				return did_not_start(call, wait_status);
			*ret = p;
			return NULL;
		}
		if (file_read(AT_FDCWD, path, &b) >= 0 &&
		    !(buf_len(&b) == 6 && memcmp(buf_data(&b), "local\n", 6) == 0))
			return process_identify(pid, ret) == 0 ? NULL : did_not_start(call, 0);
		(void)poll(NULL, 0, PAUSE_MS);
	} while (clock_mono_ms() < call->end_ms);
	return provider_failure("timed_out", NULL, "limb-syncd did not start by the deadline");
}

static json_t *start(const struct provider_call *call, json_t **ret)
{
	json_t *failure = provider_check_root(call, false);
	struct process p;
	pid_t pid;
	int r;

	if (find_daemon(call, &p)) {
		json_decref(failure);
		*ret = provider_status("Running", p.pid);
		return NULL;
	}
	if (failure)
		return failure;
	if (!call->syncd || access(call->syncd, X_OK) < 0)
		return provider_failure("internal", "install limbfs again",
					"there is no limb-syncd to run at spec.syncd");
	pid = fork();
	if (pid < 0)
		return provider_failure_errno(-errno, "cannot fork");
	if (pid == 0)
		become_daemon(call);
	failure = wait_started(call, pid, &p);
	if (failure)
		return failure;
	r = process_save(call->dir_fd, record, &p);
	if (r < 0)
		return provider_failure_errno(r, "cannot write the record");
	*ret = provider_status("Running", p.pid);
	return NULL;
}

/* limb-syncd ends its jobs itself, in order; what is left then is killed. */
static int stop_everything(const struct provider_call *call)
{
	uint64_t patience = MIN(clock_mono_ms() + STOP_MS, call->end_ms);
	struct process p;
	int wait_status;
	pid_t pid;

	if (find_daemon(call, &p) && call->syncd && access(call->syncd, X_OK) == 0 &&
	    (pid = fork()) >= 0) {
		if (pid == 0) {
			char *argv[] = {(char *)"limb-syncd", (char *)"stop", (char *)"--dir",
					(char *)call->dir, NULL};
			char **env = provider_environment(call, NULL);

			if (env && provider_detach(call) >= 0)
				(void)execve(call->syncd, argv, env);
			_exit(127);
		}
		while (waitpid(pid, &wait_status, WNOHANG) == 0 && clock_mono_ms() < patience)
			(void)poll(NULL, 0, PAUSE_MS);
	}
	return process_kill_marked(call->mark, call->end_ms);
}

static json_t *stop(const struct provider_call *call, json_t **ret)
{
	struct stat st;
	int r = stop_everything(call);

	if (r < 0)
		return provider_failure_errno(r, "cannot end all processes");
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
	int r = stop_everything(call);

	if (r >= 0 && unlinkat(call->dir_fd, record, 0) < 0 && errno != ENOENT)
		r = -errno;
	if (r < 0)
		return provider_failure_errno(r, "cannot remove the environment");
	*ret = provider_status("NotFound", 0);
	return NULL;
}

static json_t *command(const struct provider_call *call, json_t **ret)
{
	json_t *argv = json_object_get(call->in, "argv");
	cleanup_free char **env = provider_environment(call, getenv("HOME"));
	json_t *list = json_array();

	if (!json_is_array(argv) || json_array_size(argv) == 0) {
		json_decref(list);
		return provider_failure("usage", NULL, "argv is missing");
	}
	for (char **p = env; p && *p; p++) {
		(void)json_array_append_new(list, json_string(*p));
		free(*p);
	}
	*ret = json_pack("{s:O, s:o}", "argv", argv, "env", list);
	return NULL;
}

static bool list_one(const struct process *p, const char *mark, void *userdata)
{
	char brain[128], id[128];
	json_t *o, *other;
	size_t i;

	if (sscanf(mark, "local %127s %127s", brain, id) != 2)
		return false;
	json_array_foreach((json_t *)userdata, i, other)
	{
		if (strcmp(json_string_value(json_object_get(other, "id")), id) == 0)
			return false;
	}
	o = json_pack("{s:s, s:s, s:s}", "id", id, "handle", id, "brain", brain);
	(void)json_array_append_new(userdata, o);
	return false;
}

static json_t *list(const struct provider_call *call, json_t **ret)
{
	json_t *array = json_array();
	int r = process_each_marked("local ", list_one, array);

	if (r < 0) {
		json_decref(array);
		return provider_failure_errno(r, "cannot list processes");
	}
	*ret = json_pack("{s:o}", "environments", array);
	return NULL;
}

static const struct provider_verb verbs[] = {
	{"info", info, false},	    {"create", create, true}, {"start", start, true},
	{"stop", stop, true},	    {"delete", delete, true}, {"status", status, true},
	{"command", command, true}, {"list", list, false},
};

int main(int argc, char **argv)
{
	return provider_main("local", argc, argv, verbs, ARRAY_SIZE(verbs));
}
