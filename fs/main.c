/*
 * limb-fs - the mounted view of one environment.
 *
 *	limb-fs --state STATE --environment ID --name NAME --mount PATH --look|--work
 * is started by limbd, answers from index and store by itself, and outlives it.
 *
 *	limb-fs --journal DIR [--environment NAME] [--work] [--foreground] MNT
 * mounts a copied state directory without a daemon.
 *
 * Exit: 0 unmounted (or, in the background, mounted), 2 usage, 125 could not.
 */
#include <fcntl.h>
#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "fs/control.h"
#include "fs/copy.h"
#include "fs/mountpoint.h"
#include "fs/session.h"

enum {
	EXIT_USAGE = 2,
	EXIT_COULD_NOT = 125,
	LOCK_MS = 5000, /* the one before may be about to end */
	LOCK_PAUSE_MS = 10,
};

static const char *arg_state, *arg_journal, *arg_environment, *arg_name, *arg_mount;
static bool arg_look, arg_work, arg_foreground;

static int wake_fd = -1;

static const char usage_text[] =
	"usage: limb-fs --state DIR --environment ID --name NAME --mount PATH --look|--work\n"
	"       limb-fs --journal DIR [--environment NAME] [--look|--work] [--foreground] MNT\n";

static bool parse_args(int argc, char **argv)
{
	static const struct option options[] = {
		{"state", required_argument, NULL, 's'},
		{"journal", required_argument, NULL, 'j'},
		{"environment", required_argument, NULL, 'e'},
		{"name", required_argument, NULL, 'n'},
		{"mount", required_argument, NULL, 'm'},
		{"look", no_argument, NULL, 'l'},
		{"work", no_argument, NULL, 'w'},
		{"foreground", no_argument, NULL, 'f'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'v'},
		{0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (c) {
		case 's': arg_state = optarg; break;
		case 'j': arg_journal = optarg; break;
		case 'e': arg_environment = optarg; break;
		case 'n': arg_name = optarg; break;
		case 'm': arg_mount = optarg; break;
		case 'l': arg_look = true; break;
		case 'w': arg_work = true; break;
		case 'f': arg_foreground = true; break;
		case 'h': (void)fputs(usage_text, stdout); exit(EXIT_SUCCESS);
		case 'v': (void)puts("limb-fs " PACKAGE_VERSION); exit(EXIT_SUCCESS);
		default: return false;
		}
	}
	if (arg_look && arg_work)
		return false;
	if (arg_journal && !arg_mount && optind == argc - 1)
		arg_mount = argv[optind++];
	if (optind != argc || !arg_mount || !arg_state == !arg_journal)
		return false;
	return arg_journal || (arg_environment && arg_name && (arg_look || arg_work));
}

/* ---- one mount ---- */

struct view {
	struct fs fs;
	int state_fd, env_fd, store_fd, lock_fd;
	char id[COPY_ID_HEX];
	char *path, *source_name;
	struct mountpoint mp;
	bool mounted;
	struct session *session;
	struct follow *follow;
	struct control *control;
};

static void view_init(struct view *v)
{
	*v = (struct view){.state_fd = -1, .env_fd = -1, .store_fd = -1, .lock_fd = -1};
	v->mp.fd = -1;
}

/* In this order: who waits for an answer gets it until nothing is asked any more. */
static void view_done(struct view *v)
{
	control_stop(v->control);
	if (v->mounted)
		(void)mountpoint_clear(v->path, v->source_name);
	follow_stop(v->follow);
	control_free(v->control);
	if (v->session)
		session_end(v->session);
	session_free(v->session);
	mountpoint_remove(&v->mp);
	mountpoint_done(&v->mp);
	dirs_free(v->fs.dirs);
	nodes_free(v->fs.nodes);
	source_close(v->fs.source);
	for (size_t i = 0; i < 4; i++) {
		int fd = (const int[]){v->state_fd, v->env_fd, v->store_fd, v->lock_fd}[i];
		if (fd >= 0)
			(void)close(fd);
	}
	free(v->path);
	free(v->source_name);
}

static int open_state(struct view *v)
{
	const char *dir = arg_state ? arg_state : arg_journal;
	char path[64];

	v->fs.state_fd = v->state_fd = file_open_dir(AT_FDCWD, dir);
	if (v->state_fd < 0)
		return log_error_errno(v->state_fd, "cannot open the state directory '%s'", dir);
	if (arg_journal) {
		int r = copy_find(v->state_fd, arg_environment, v->id);
		if (r == -ENOTUNIQ)
			return log_error_errno(r,
					       "'%s' holds several environments: say which with "
					       "--environment NAME",
					       dir);
		if (r < 0)
			return log_error_errno(r, "cannot find environment '%s' in '%s'",
					       arg_environment ? arg_environment : "", dir);
	} else if (strlen(arg_environment) == sizeof(v->id) - 1) {
		memcpy(v->id, arg_environment, sizeof(v->id));
	}
	(void)snprintf(path, sizeof(path), "envs/%s", v->id);
	v->env_fd = file_open_dir(v->state_fd, path);
	if (v->env_fd < 0)
		return log_error_errno(v->env_fd, "cannot open the environment in '%s'", dir);
	v->store_fd = file_open_dir(v->state_fd, "store/main");
	if (v->store_fd < 0)
		return log_error_errno(v->store_fd, "cannot open the store in '%s'", dir);
	return 0;
}

/* One limb-fs an environment. */
static int take_lock(struct view *v)
{
	const struct timespec pause = {.tv_nsec = LOCK_PAUSE_MS * 1000000};
	uint64_t end_ms = clock_mono_ms() + LOCK_MS;
	int r;

	while ((r = file_lock(v->env_fd, "fs.lock", &v->lock_fd)) == -EAGAIN &&
	       clock_mono_ms() < end_ms)
		(void)nanosleep(&pause, NULL);
	if (r < 0)
		return log_error_errno(r, "another limb-fs serves this environment");
	return 0;
}

static int open_source(struct view *v)
{
	int r;

	r = source_open(v->env_fd, v->store_fd, arg_state ? SOURCE_LIVE : SOURCE_COPY,
			&v->fs.source);
	if (r == -EBADMSG && arg_journal)
		return log_error_errno(r,
				       "the log in '%s' is damaged: limb journal verify says where",
				       arg_journal);
	if (r < 0)
		return log_error_errno(r, "cannot open the index of the environment");
	r = nodes_new(&v->fs.nodes);
	if (r >= 0)
		r = dirs_new(&v->fs.dirs);
	if (r < 0)
		return log_oom();
	attr_rules_init(&v->fs.rules, !arg_work, geteuid(), getegid());
	atomic_store(&v->fs.status.since_ms, clock_mono_ms());
	return 0;
}

static int prepare_mountpoint(struct view *v)
{
	char shown[256];
	int r;

	(void)text_escape_into(shown, sizeof(shown), arg_mount, strlen(arg_mount));
	r = mountpoint_resolve(arg_mount, &v->path);
	if (r < 0)
		return log_error_errno(r, "cannot use '%s' as a mount point", shown);
	if (asprintf(&v->source_name, "limbfs:%s%s", arg_journal ? "journal:" : "", v->id) < 0) {
		v->source_name = NULL;
		return log_oom();
	}
	r = mountpoint_clear(v->path, v->source_name);
	if (r == -EBUSY)
		return log_error_errno(r,
				       "something else is mounted at '%s': unmount it, or mount "
				       "elsewhere",
				       shown);
	if (r < 0)
		return log_error_errno(r, "cannot unmount a dead view from '%s'", shown);
	r = mountpoint_make(v->path, arg_state != NULL, &v->mp);
	if (r == -ENOTEMPTY)
		return log_error_errno(r, "'%s' is not empty: move away what is in it", shown);
	if (r < 0)
		return log_error_errno(r, "cannot make the mount point '%s'", shown);
	return 0;
}

static void tell_seen(uint64_t seq, void *userdata)
{
	const struct view *v = userdata;

	control_seen(seq, v->control); /* who asked did so by it */
}

static int mount_view(struct view *v)
{
	const char *why = "";
	int r;

	r = session_new(&v->fs, v->source_name, &v->session);
	if (r < 0)
		return log_error_errno(r, "cannot make a FUSE session");
	/* From the index as it is before the first answer. */
	r = follow_start(&v->fs, session_fuse(v->session), tell_seen, v, &v->follow);
	if (r < 0)
		return log_error_errno(r, "cannot start the thread that follows limbd");
	r = session_mount(v->session, v->path, &why);
	if (r < 0) {
		log_error("cannot mount '%s' (%s): %s", v->path, why,
			  geteuid() ? "a normal user needs fusermount3 (Debian: package fuse3)"
				    : "mounting needs CAP_SYS_ADMIN here");
		return r;
	}
	v->mounted = true;
	mountpoint_close_up(&v->mp);
	r = session_serve(v->session, wake_fd);
	if (r >= 0)
		session_read_ahead(v->path);
	return r;
}

static int view_open(struct view *v)
{
	const char *why;
	int r;

	r = session_probe(&why);
	if (r < 0) {
		log_error("no view: %s", why);
		return r;
	}
	r = open_state(v);
	if (r >= 0 && arg_state)
		r = take_lock(v);
	if (r >= 0)
		r = open_source(v);
	if (r >= 0)
		r = prepare_mountpoint(v);
	return r;
}

static int view_mount(struct view *v)
{
	int r;

	r = view_open(v);
	if (r >= 0)
		r = mount_view(v);
	if (r < 0 || !arg_state)
		return r;
	/* Who can connect has a mount. */
	r = control_open(v->env_fd, &v->control);
	return r < 0 ? log_error_errno(r, "cannot listen for limbd") : 0;
}

/* ---- the process ---- */

static void wake(int sig)
{
	(void)sig;
	(void)eventfd_write(wake_fd, 1);
}

/* Answers are made in buffers of up to 1 MiB. By default each of these would be mapped,
 * faulted in and unmapped: an eighth of all CPU time of a sequential read. */
static void set_malloc(void)
{
	(void)mallopt(M_MMAP_THRESHOLD, 4 << 20);
	(void)mallopt(M_TRIM_THRESHOLD, 8 << 20);
}

static int set_signals(void)
{
	const struct sigaction end = {.sa_handler = wake}, ignore = {.sa_handler = SIG_IGN};

	wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (wake_fd < 0 || sigaction(SIGTERM, &end, NULL) < 0 ||
	    sigaction(SIGINT, &end, NULL) < 0 || sigaction(SIGHUP, &end, NULL) < 0 ||
	    sigaction(SIGPIPE, &ignore, NULL) < 0)
		return -errno;
	return 0;
}

/* The parent ends with what the child has to say about the mount. */
static int go_background(int *ret_fd)
{
	char status = EXIT_COULD_NOT;
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid > 0) {
		(void)close(fds[1]);
		(void)!read(fds[0], &status, 1);
		_exit(status);
	}
	(void)close(fds[0]);
	(void)setsid();
	*ret_fd = fds[1];
	return 0;
}

static void say_mounted(int fd)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	const char status = EXIT_SUCCESS;

	for (int i = 0; null >= 0 && i < 3; i++)
		(void)dup2(null, i);
	if (null > 2)
		(void)close(null);
	(void)!write(fd, &status, 1);
	(void)close(fd);
}

static int make_absolute(void)
{
	char *p;

	if (arg_mount[0] == '/')
		return 0;
	p = realpath(".", NULL);
	if (!p)
		return -errno;
	/* Kept until the end. */
	if (asprintf((char **)&arg_mount, "%s/%s", p, arg_mount) < 0) {
		free(p);
		return -ENOMEM;
	}
	free(p);
	return 0;
}

int main(int argc, char **argv)
{
	int r, background_fd = -1;
	struct view v;

	log_init("limb-fs");
	set_malloc();
	view_init(&v);
	if (!parse_args(argc, argv)) {
		(void)fputs(usage_text, stderr);
		return EXIT_USAGE;
	}
	(void)umask(077);
	r = make_absolute();
	/* limbd watches its child, so that one does not fork. */
	if (r >= 0 && arg_journal && !arg_foreground)
		r = go_background(&background_fd);
	if (r >= 0)
		r = set_signals();
	if (r < 0) {
		(void)log_error_errno(r, "cannot start");
		return EXIT_COULD_NOT;
	}
	r = view_mount(&v);
	if (r >= 0) {
		/* No directory but the mounted one is kept from being unmounted. */
		(void)!chdir("/");
		if (background_fd >= 0)
			say_mounted(background_fd);
		control_run(v.control, &v.fs, v.follow, wake_fd);
	}
	view_done(&v);
	return r < 0 ? EXIT_COULD_NOT : EXIT_SUCCESS;
}
