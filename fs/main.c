/*
 * limb-fs - the mounted view of one environment, or of the past of all.
 *
 *	limb-fs --state STATE --environment ID --name NAME --mount PATH --look|--work [--write]
 * is started by limbd, answers from index and store by itself, and outlives it.
 *
 *	limb-fs --state STATE --past ID --mount PATH
 * is, too: all environments as they were, MNT/.at/NAME@POINT (past.h). ID is the brain's.
 *
 *	limb-fs --journal DIR [--environment NAME] [--at POINT] [--work] [--foreground] MNT
 * mounts a copied state directory without a daemon (`limb mount`).
 *
 * Exit: 0 unmounted (or, in the background, mounted), 2 usage, 125 could not.
 */
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
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
#include "fs/await.h"
#include "fs/classes.h"
#include "fs/control.h"
#include "fs/copy.h"
#include "fs/keeper.h"
#include "fs/mountpoint.h"
#include "fs/past.h"
#include "fs/session.h"
#include "journal/points.h"

enum {
	EXIT_USAGE = 2,
	EXIT_COULD_NOT = 125,
	LOCK_MS = 5000, /* the one before may be about to end */
	LOCK_PAUSE_MS = 10,
};

static const char *arg_state, *arg_journal, *arg_environment, *arg_name, *arg_mount, *arg_past,
	*arg_at;
static bool arg_look, arg_work, arg_write, arg_foreground, arg_json, arg_quiet;
static struct point at_point; /* what arg_at says */
static bool at_consistent;

static int wake_fd = -1;

static const char usage_text[] =
	"usage: limb-fs --state DIR --environment ID --name NAME --mount PATH\n"
	"               --look|--work [--write]\n"
	"       limb-fs --state DIR --past ID --mount PATH\n"
	"       limb-fs --journal DIR [--environment NAME] [--at POINT] [--look|--work]\n"
	"               [--foreground] [--json|-q] MNT\n";

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
		{"write", no_argument, NULL, 'W'},
		{"foreground", no_argument, NULL, 'f'},
		{"past", required_argument, NULL, 'p'},
		{"at", required_argument, NULL, 'a'},
		{"json", no_argument, NULL, 'J'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'v'},
		{0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "q", options, NULL)) >= 0) {
		switch (c) {
		case 's': arg_state = optarg; break;
		case 'j': arg_journal = optarg; break;
		case 'e': arg_environment = optarg; break;
		case 'n': arg_name = optarg; break;
		case 'm': arg_mount = optarg; break;
		case 'l': arg_look = true; break;
		case 'w': arg_work = true; break;
		case 'W': arg_write = true; break;
		case 'f': arg_foreground = true; break;
		case 'p': arg_past = optarg; break;
		case 'a': arg_at = optarg; break;
		case 'J': arg_json = true; break;
		case 'q': arg_quiet = true; break;
		case 'h': (void)fputs(usage_text, stdout); exit(EXIT_SUCCESS);
		case 'v': (void)puts("limb-fs " PACKAGE_VERSION); exit(EXIT_SUCCESS);
		default: return false;
		}
	}
	if ((arg_look && arg_work) || (arg_write && (!arg_work || !arg_state || arg_past)))
		return false;
	if (arg_journal && !arg_mount && optind == argc - 1)
		arg_mount = argv[optind++];
	if (optind != argc || !arg_mount || !arg_state == !arg_journal)
		return false;
	at_consistent = arg_at && strcmp(arg_at, "consistent") == 0;
	if (arg_at && !at_consistent && !point_parse_all(arg_at, &at_point))
		return false;
	if (arg_journal)
		return !arg_past;
	if (arg_at || arg_json || arg_quiet)
		return false;
	return arg_past ? !arg_environment && !arg_look && !arg_work
			: arg_environment && arg_name && (arg_look || arg_work);
}

/* ---- what is said ---- */

static char failed_status = EXIT_COULD_NOT;

/* One line for people, the error object for programs. Returns r. */
static int fail(int r, const char *code, const char *step, const char *fmt, ...) _printf_(4, 5);
static int fail(int r, const char *code, const char *step, const char *fmt, ...)
{
	char detail[1024];
	va_list ap;
	json_t *o;

	va_start(ap, fmt);
	(void)vsnprintf(detail, sizeof(detail), fmt, ap);
	va_end(ap);
	log_error("%s%s%s", detail, step ? "; " : "", step ? step : "");
	if (strcmp(code, "usage") == 0)
		failed_status = EXIT_USAGE;
	if (!arg_json)
		return r;
	o = json_pack("{s:s, s:s, s:[]}", "error", code, "detail", detail, "next_steps");
	if (step)
		(void)json_array_append_new(json_object_get(o, "next_steps"), json_string(step));
	(void)json_dumpf(o, stdout, JSON_COMPACT);
	(void)putchar('\n');
	(void)fflush(stdout);
	json_decref(o);
	return r;
}

/* What goes wrong with a copy is mostly that it is not what was meant. */
static int fail_errno(int r, const char *what, const char *path)
{
	char shown[256];

	(void)text_escape_into(shown, sizeof(shown), path, strlen(path));
	return fail(r,
		    r == -ENOENT		  ? "file_not_found"
		    : r == -EACCES || r == -EPERM ? "permission_denied"
						  : "io_error",
		    NULL, "%s '%s': %s", what, shown, strerror(-r));
}

/* ---- one mount ---- */

struct view {
	struct fs fs;
	int state_fd, env_fd, store_fd,
		lock_fd; /* env_fd: of what is served, for lock and socket */
	char id[COPY_ID_HEX];
	char *path, *source_name;
	struct mountpoint mp;
	bool mounted;
	struct past *past; /* NULL: fs is what is served */
	uint64_t seq;	   /* what a copy shows */
	struct session *session;
	struct follow *follow;
	struct control *control;
	struct overlay *overlay;
	struct keeper *keeper;
	struct await *await;
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
	await_stop(v->await); /* the keeper may wait for who waits here */
	keeper_stop(v->keeper);
	follow_stop(v->follow);
	control_free(v->control);
	if (v->session)
		session_end(v->session);
	session_free(v->session);
	mountpoint_remove(&v->mp);
	mountpoint_done(&v->mp);
	await_free(v->await);
	keeper_free(v->keeper);
	classes_free(v->fs.classes);
	overlay_free(v->overlay);
	dirs_free(v->fs.dirs);
	nodes_free(v->fs.nodes);
	past_free(v->past);
	source_close(v->fs.source);
	contents_close(v->fs.contents);
	for (size_t i = 0; i < 4; i++) {
		int fd = (const int[]){v->state_fd, v->env_fd, v->store_fd, v->lock_fd}[i];
		if (fd >= 0)
			(void)close(fd);
	}
	free(v->path);
	free(v->source_name);
}

static int find_in_copy(struct view *v)
{
	char shown[256];
	int r = copy_find(v->state_fd, arg_environment, v->id);

	if (r >= 0)
		return 0;
	(void)text_escape_into(shown, sizeof(shown), arg_journal, strlen(arg_journal));
	if (r == -ENOTUNIQ)
		return fail(r, "usage", "say which with --environment NAME",
			    "'%s' holds several environments", shown);
	if (arg_environment && r == -ENOENT)
		return fail(r, "environment_not_found", "say another with --environment NAME",
			    "'%s' holds no environment '%s'", shown, arg_environment);
	if (arg_environment)
		return fail(r, "environment_not_found", NULL,
			    "cannot find environment '%s' in '%s': %s", arg_environment, shown,
			    strerror(-r));
	return fail(r, "file_not_found", NULL, "'%s' holds no environment", shown);
}

/* The brain's own directory of that name has lock and socket, as an environment's has. */
static int open_past_dir(struct view *v)
{
	int r = file_make_dir(v->state_fd, "past");

	if (r >= 0)
		r = v->env_fd = file_open_dir(v->state_fd, "past");
	return r < 0 ? log_error_errno(r, "cannot make 'past' in '%s'", arg_state) : 0;
}

static int open_state(struct view *v)
{
	const char *dir = arg_state ? arg_state : arg_journal;
	char path[64];
	int r;

	v->fs.state_fd = v->state_fd = file_open_dir(AT_FDCWD, dir);
	if (v->state_fd < 0)
		return fail_errno(v->state_fd, "cannot open the state directory", dir);
	if (arg_journal) {
		r = find_in_copy(v);
		if (r < 0)
			return r;
	} else if (!arg_past && strlen(arg_environment) == sizeof(v->id) - 1) {
		memcpy(v->id, arg_environment, sizeof(v->id));
	}
	v->store_fd = file_open_dir(v->state_fd, "store/main");
	if (v->store_fd < 0)
		return fail_errno(v->store_fd, "cannot open the store in", dir);
	r = contents_open(v->store_fd, arg_state ? STORE_READ : STORE_COPY, &v->fs.contents);
	if (r < 0)
		return log_oom();
	if (arg_past)
		return open_past_dir(v);
	(void)snprintf(path, sizeof(path), "envs/%s", v->id);
	v->env_fd = file_open_dir(v->state_fd, path);
	return v->env_fd < 0 ? fail_errno(v->env_fd, "cannot open the environment in", dir) : 0;
}

/* One limb-fs an environment, and one for the past. */
static int take_lock(struct view *v)
{
	const struct timespec pause = {.tv_nsec = LOCK_PAUSE_MS * 1000000};
	uint64_t end_ms = clock_mono_ms() + LOCK_MS;
	int r;

	while ((r = file_lock(v->env_fd, "fs.lock", &v->lock_fd)) == -EAGAIN &&
	       clock_mono_ms() < end_ms)
		(void)nanosleep(&pause, NULL);
	if (r < 0)
		return log_error_errno(r, "another limb-fs serves this already");
	return 0;
}

/* A copy's tree at a point: a session of the past that has one tree. */
static int open_at(struct view *v)
{
	cleanup_close int log_fd = file_open_dir(v->env_fd, "log");
	struct index_txn *t;
	uint64_t at = 0, seq;
	uint8_t id[16];
	int r = log_fd < 0 ? log_fd : source_begin(v->fs.source, &t, &seq);

	if (r >= 0) {
		r = at_consistent ? points_consistent(t, &at)
				  : points_find(t, log_fd, &at_point, &at);
		source_end(v->fs.source, t);
	}
	if (r >= 0)
		r = text_unhex(id, sizeof(id), v->id);
	if (r >= 0)
		r = past_new(v->state_fd, &v->past);
	if (r >= 0)
		r = past_show_tree(v->past, v->fs.source, id, &v->fs.rules, at);
	if (r == -ENOENT)
		return fail(r, "point_not_found", "limb journal dump shows what there is",
			    "the journal in '%s' has no point '%s'", arg_journal, arg_at);
	if (r < 0)
		return fail_errno(r, "cannot find that point in", arg_journal);
	v->seq = at;
	return 0;
}

static int open_past(struct view *v)
{
	int r = past_new(v->state_fd, &v->past);

	if (r >= 0)
		r = past_show_brain(v->past, v->fs.contents);
	return r < 0 ? log_error_errno(r, "cannot open what '%s' holds", arg_state) : 0;
}

static int list_shown(void *userdata, struct index_txn *t, uint64_t dir, index_entry_fn each,
		      void *arg)
{
	return overlay_list(userdata, t, dir, each, arg);
}

static int open_source(struct view *v)
{
	struct index_txn *t;
	int r;

	v->fs.at = INDEX_NOW;
	attr_rules_init(&v->fs.rules, !arg_work, geteuid(), getegid());
	atomic_store(&v->fs.status.since_ms, clock_mono_ms());
	if (arg_past)
		return open_past(v);
	r = source_open(v->env_fd, v->fs.contents, arg_state ? SOURCE_LIVE : SOURCE_COPY,
			&v->fs.source);
	if (r == -EBADMSG && arg_journal)
		return fail(r, "io_error", NULL,
			    "the log in '%s' is damaged: limb journal verify says where",
			    arg_journal);
	if (r < 0)
		return fail_errno(r, "cannot open the index of the environment in",
				  arg_state ? arg_state : arg_journal);
	r = nodes_new(&v->fs.nodes);
	if (r >= 0)
		r = dirs_new(&v->fs.dirs);
	if (r < 0)
		return log_oom();
	if (arg_at)
		return open_at(v);
	if (arg_write) {
		r = overlay_new(&v->fs, v->env_fd, &v->overlay);
		if (r < 0)
			return log_error_errno(r, "cannot open the intent log of the view");
		v->fs.overlay = v->overlay;
		v->fs.classes = classes_new();
		if (!v->fs.classes)
			return log_oom();
		r = classes_load(v->fs.classes, v->env_fd);
		if (r < 0)
			return log_error_errno(r, "cannot read the classes of the view");
		dirs_set_list(v->fs.dirs, list_shown, v->overlay);
	}
	r = source_begin(v->fs.source, &t, &v->seq);
	if (r >= 0)
		source_end(v->fs.source, t);
	return MIN(r, 0);
}

static int prepare_mountpoint(struct view *v)
{
	char shown[256];
	int r;

	(void)text_escape_into(shown, sizeof(shown), arg_mount, strlen(arg_mount));
	r = mountpoint_resolve(arg_mount, &v->path);
	if (r < 0)
		return fail_errno(r, "cannot mount at", arg_mount);
	if (asprintf(&v->source_name, "limbfs:%s%s",
		     arg_journal ? "journal:"
		     : arg_past	 ? "past:"
				 : "",
		     arg_past ? arg_past : v->id) < 0) {
		v->source_name = NULL;
		return log_oom();
	}
	r = mountpoint_clear(v->path, v->source_name);
	if (r == -EBUSY)
		return fail(r, "io_error", "unmount it, or mount elsewhere",
			    "something else is mounted at '%s'", shown);
	if (r < 0)
		return fail_errno(r, "cannot unmount a dead view from", arg_mount);
	r = mountpoint_make(v->path, arg_state != NULL, &v->mp);
	if (r == -ENOTEMPTY)
		return fail(r, "io_error", NULL, "'%s' is not empty: move away what is in it",
			    shown);
	return r < 0 ? fail_errno(r, "cannot make the mount point", arg_mount) : 0;
}

static void tell_seen(uint64_t seq, void *userdata)
{
	const struct view *v = userdata;

	control_seen(seq, v->control); /* who asked did so by it */
}

static void tell_drained(uint64_t token, void *userdata)
{
	const struct view *v = userdata;

	control_drained(token, v->control); /* who asked did so by it */
}

static void tell_waits(uint64_t last, void *userdata)
{
	const struct view *v = userdata;

	control_waits(last, v->control); /* there was a limbd */
}

static void tell_told(uint64_t first, uint64_t last, void *userdata)
{
	const struct view *v = userdata;

	control_told(first, last, v->control);
}

static int mount_view(struct view *v)
{
	const struct await_words words = {tell_waits, tell_told, v};
	const char *why = "";
	int r;

	r = session_new(v->past ? past_session(v->past) : &v->fs, v->source_name, &v->session);
	if (r < 0)
		return log_error_errno(r, "cannot make a FUSE session");
	/* From the index as it is before the first answer. The past does not change. */
	if (!v->past)
		r = follow_start(&v->fs, session_fuse(v->session), tell_seen, v, &v->follow);
	if (r >= 0 && v->overlay)
		r = await_start(&v->fs, &words, &v->await);
	if (r < 0)
		return log_error_errno(r, "cannot start the threads that hear limbd");
	v->fs.await = v->await;
	r = session_mount(v->session, v->path, &why);
	if (r < 0)
		return fail(r, "permission_denied",
			    geteuid() ? "a normal user needs fusermount3 (Debian: package fuse3)"
				      : "mounting needs CAP_SYS_ADMIN here",
			    "cannot mount '%s' (%s)", v->path, why);
	v->mounted = true;
	mountpoint_close_up(&v->mp);
	r = session_serve(v->session, wake_fd);
	if (r >= 0 && v->overlay)
		r = keeper_start(&v->fs, session_fuse(v->session), v->path, tell_drained, v,
				 &v->keeper);
	v->fs.keeper = v->keeper;
	if (r >= 0)
		session_read_ahead(v->path);
	return r;
}

static int view_open(struct view *v)
{
	const char *why;
	int r;

	r = session_probe(&why);
	if (r < 0)
		return fail(r, "unsupported", NULL, "no view: %s", why);
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

/* What `limb mount` answers. */
static void say_result(const struct view *v)
{
	_cleanup_(buf_done) struct buf text = BUF_INIT(0);
	json_t *o;

	if (!arg_journal)
		return;
	if (!arg_json) {
		(void)text_escape(&text, v->path, strlen(v->path));
		printf("%.*s", (int)buf_len(&text), (const char *)buf_data(&text));
		printf(arg_quiet ? "\n" : ": as of record %llu\n", (unsigned long long)v->seq);
		return;
	}
	(void)text_utf8_replace(&text, v->path, strlen(v->path));
	o = json_pack("{s:s%, s:i, s:I}", "mount", (const char *)buf_data(&text), buf_len(&text),
		      "pid", (int)getpid(), "seq", (json_int_t)v->seq);
	if (!text_utf8_ok(v->path, strlen(v->path))) {
		buf_clear(&text);
		(void)text_base64(&text, v->path, strlen(v->path));
		(void)json_object_set_new(
			o, "mount_base64",
			json_stringn((const char *)buf_data(&text), buf_len(&text)));
	}
	(void)json_dumpf(o, stdout, JSON_COMPACT);
	(void)putchar('\n');
	json_decref(o);
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
	if (arg_journal)
		log_init("limb");
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
		say_result(&v);
		(void)fflush(stdout);
		if (background_fd >= 0)
			say_mounted(background_fd);
		control_run(v.control, v.past ? past_session(v.past) : &v.fs, v.follow, wake_fd);
	}
	view_done(&v);
	if (r < 0 && background_fd >= 0)
		(void)!write(background_fd, &failed_status, 1);
	return r < 0 ? failed_status : EXIT_SUCCESS;
}
