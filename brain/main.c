/*
 * limbd - the brain daemon.
 *
 *	limbd --state DIR --mount DIR [--foreground]
 *
 * Started by `limb up`.  Reads its state, finds or starts what should run, answers
 * clients, and ends at SIGTERM, SIGINT or `limb down`; environments and views go on
 * without it.
 */
#include <dirent.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"
#include "brain/anew.h"
#include "brain/commit.h"
#include "brain/env.h"
#include "brain/job.h"
#include "brain/life.h"
#include "brain/link.h"
#include "brain/migrate.h"
#include "brain/past.h"
#include "brain/quota.h"
#include "brain/rpc-server.h"
#include "brain/state.h"
#include "brain/upkeep.h"
#include "brain/view.h"

static const char *arg_state, *arg_mount;
static bool arg_foreground;

static struct brain brain;
static uv_loop_t loop;
static uv_signal_t on_term, on_int, on_hup;

static int parse_args(int argc, char **argv)
{
	static const struct option options[] = {
		{"state", required_argument, NULL, 's'},
		{"mount", required_argument, NULL, 'm'},
		{"foreground", no_argument, NULL, 'f'},
		{"version", no_argument, NULL, 'V'},
		{NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (c) {
		case 's': arg_state = optarg; break;
		case 'm': arg_mount = optarg; break;
		case 'f': arg_foreground = true; break;
		case 'V': (void)printf("limbd %s\n", PACKAGE_VERSION); exit(0);
		default: return -EINVAL;
		}
	}
	if (!arg_state || !arg_mount || optind < argc || arg_state[0] != '/' ||
	    arg_mount[0] != '/') {
		(void)fputs("usage: limbd --state /DIR --mount /DIR [--foreground]; start it with: "
			    "limb up\n",
			    stderr);
		return -EINVAL;
	}
	return 0;
}

/* BUILD/brain/limbd has its helpers below BUILD; an installed one in pkglibexecdir. */
static char *find_helpers(bool *ret_build)
{
	char self[4096], *slash;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	*ret_build = false;
	if (n > 0) {
		self[n] = 0;
		slash = strrchr(self, '/');
		if (slash && slash - self > 6 && strncmp(slash - 6, "/brain", 6) == 0) {
			char *helper;

			slash[-6] = 0;
			if (asprintf(&helper, "%s/brain/limb-ingest", self) > 0) {
				*ret_build = access(helper, X_OK) == 0;
				free(helper);
			}
			if (*ret_build)
				return strdup(self);
		}
	}
	return strdup(LIMB_PKGLIBEXECDIR);
}

/* The log file takes over from the terminal once limbd is up. */
static int to_log_file(struct brain *b)
{
	int fd = openat(b->state_fd, "limbd.log",
			O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (fd < 0 || null < 0)
		return -errno;
	if (dup2(fd, STDERR_FILENO) < 0 || dup2(null, STDIN_FILENO) < 0 ||
	    dup2(null, STDOUT_FILENO) < 0)
		return -errno;
	(void)close(fd);
	(void)close(null);
	return 0;
}

static void check_commits(uv_check_t *h)
{
	commit_kick_all(container_of(h, struct brain, commit_check));
}

static void prepare_commits(uv_prepare_t *h)
{
	commit_kick_all(h->data);
}

static void stop_now(struct brain *b)
{
	b->stopping = true;
	for (struct env *env = b->envs; env; env = env->next) {
		link_stop(env, "limbd ends");
		view_close(env);
	}
	if (b->envs)
		past_close(b);
	else
		past_stop(b);
	uv_stop(b->loop);
}

static void on_signal(uv_signal_t *s, int signo)
{
	(void)signo;
	stop_now(s->data);
}

static void on_down(struct brain *b)
{
	rpc_server_stop(b);
	stop_now(b);
}

static void watch_signal(uv_signal_t *s, int signo)
{
	(void)uv_signal_init(&loop, s);
	s->data = &brain;
	(void)uv_signal_start(s, on_signal, signo);
	uv_unref((uv_handle_t *)s);
}

/* Threads that have what state_close() frees. */
static bool works(void)
{
	bool any = brain.pack_works || upkeep_busy(&brain);

	for (struct env *env = brain.envs; env; env = env->next)
		any |= env->threads || commit_busy(env);
	return any;
}

/* The rounds that run are finished: what was accepted becomes durable. */
static void drain(void)
{
	/* What works on the store has it to the end. */
	for (int i = 0; i < 500 || brain.pack_works || upkeep_busy(&brain); i++) {
		bool busy;

		commit_kick_all(&brain);
		busy = works();
		for (struct env *env = brain.envs; env; env = env->next)
			busy |= env->commit && !env->failed && !commit_idle(env);
		if (!busy)
			return;
		(void)uv_run(&loop, UV_RUN_NOWAIT);
		(void)usleep(2000);
	}
}

/* Views and .at are directories: whatever else is there is somebody's. */
static int judge_mount_dir(const char *path, char **ret_why)
{
	DIR *dir = opendir(path);
	const struct dirent *e;
	int r = 0;

	while (r == 0 && dir && (e = readdir(dir)))
		if (e->d_type != DT_DIR && e->d_type != DT_UNKNOWN)
			r = asprintf(ret_why,
				     "the views cannot be at '%s', where '%s' is; give a directory "
				     "for them alone with: limb up --mount DIR",
				     path, e->d_name) < 0
				    ? -ENOMEM
				    : -EEXIST;
	if (dir)
		(void)closedir(dir);
	return r;
}

static int run(void)
{
	static uv_prepare_t prepare;
	char *why = NULL;
	int r;

	r = judge_mount_dir(arg_mount, &why);
	if (r == 0)
		r = state_open(&brain, arg_state, arg_mount, &why);
	if (r == 0)
		r = rpc_server_start(&brain, &why);
	if (r < 0) {
		log_error("%s", why ? why : strerror(-r));
		free(why);
		return r;
	}
	r = file_make_dirs(brain.mount_dir);
	if (r < 0)
		log_warning_errno(r, "cannot make the mount directory '%s'; there will be no view",
				  brain.mount_dir);
	(void)uv_check_init(&loop, &brain.commit_check);
	(void)uv_check_start(&brain.commit_check, check_commits);
	(void)uv_timer_init(&loop, &brain.commit_timer);
	(void)uv_prepare_init(&loop, &prepare);
	prepare.data = &brain;
	(void)uv_prepare_start(&prepare, prepare_commits);
	watch_signal(&on_term, SIGTERM);
	watch_signal(&on_int, SIGINT);
	watch_signal(&on_hup, SIGHUP);
	if (!arg_foreground) {
		r = to_log_file(&brain);
		if (r < 0)
			return log_error_errno(r, "cannot open limbd.log in '%s'", brain.state_dir);
	}
	anew_start(&brain);
	for (struct env *env = brain.envs, *next; env; env = next) {
		next = env->next;
		if (env->failed)
			continue;
		if (env->creating && !env->root) {
			life_forget_unmade(env);
			continue;
		}
		if (env->creating && env->forked_from) {
			life_forget_fork(env);
			continue;
		}
		jobs_resume(env);
		if (!env->wanted)
			jobs_lost(env);
		migrate_recover(env);
		view_start(env); /* or found: one that outlived limbd */
		if (env->staged) {
			life_unstage(env, NULL, "internal", "limbd ended meanwhile", NULL);
			continue;
		}
		migrate_resume(env);
		life_revive(env);
	}
	past_start(&brain);
	quota_start(&brain);
	migrate_sweep_start(&brain);
	r = upkeep_start(&brain);
	if (r < 0)
		log_warning_errno(r, "the journal is not kept up");
	(void)uv_run(&loop, UV_RUN_DEFAULT);
	upkeep_stop(&brain);
	drain();
	rpc_server_stop(&brain);
	(void)uv_run(&loop, UV_RUN_NOWAIT);
	if (works()) { /* a long verify, a disk that does not answer */
		log_warning("a helper thread does not end; limbd ends without it");
		if (brain.anew)
			return 0;
		_exit(0);
	}
	state_close(&brain);
	upkeep_free(&brain);
	return 0;
}

int main(int argc, char **argv)
{
	cleanup_free char *helpers = NULL, *syncd = NULL;

	log_init("limbd");
	if (parse_args(argc, argv) < 0)
		return 2;
	brain.umask = umask(077);
	(void)signal(SIGPIPE, SIG_IGN);
	/* Commit rounds of many environments sync at once. */
	(void)setenv("UV_THREADPOOL_SIZE", "16", 0);
	if (uv_loop_init(&loop) < 0)
		return 125;
	helpers = find_helpers(&brain.in_build_tree);
	brain.loop = &loop;
	brain.helper_dir = helpers;
	brain.stopped = on_down;
	syncd = helpers ? brain_helper(&brain, "limb-syncd") : NULL;
	if (!syncd)
		return 125;
	brain.syncd_path = realpath(syncd, NULL);
	if (!brain.syncd_path)
		brain.syncd_path = strdup(syncd);
	if (run() < 0)
		return 125;
	anew_exec(&brain, argv);
	return brain.anew ? 125 : 0;
}
