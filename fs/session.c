#include "fs/session.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "base/log.h"
#include "fs/mountpoint.h"
#include "fs/past.h"

enum {
	THREADS = 8,
	WAKE_SIGNAL = SIGUSR1,
	HEADER_OPCODE_AT = 4, /* fuse_in_header: u32 len, u32 opcode */
	WAKE_MS = 5,
	READ_AHEAD_KB = 1024,
};

struct session {
	struct fs *fs;
	struct fuse_session *se;
	bool mounted;
	int wake_fd;
	atomic_bool ending;
	unsigned n_threads;
	struct worker {
		struct session *s;
		pthread_t thread;
		atomic_bool ended;
	} workers[THREADS];
};

/* ---- what libfuse has to say ---- */

static char last_words[256];

static void say(enum fuse_log_level level, const char *fmt, va_list ap)
{
	(void)level;
	(void)vsnprintf(last_words, sizeof(last_words), fmt, ap);
	last_words[strcspn(last_words, "\n")] = '\0';
	log_debug("libfuse: %s", last_words);
}

int session_probe(const char **ret_why)
{
	cleanup_close int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		return 0;
	switch (errno) {
	case ENOENT:
	case ENODEV:
	case ENXIO:
		*ret_why =
			"there is no /dev/fuse here: load the kernel's module (modprobe fuse), or "
			"give the container that device";
		return -ENODEV;
	case EACCES:
	case EPERM:
		*ret_why = "/dev/fuse is not yours to open: as root, chmod 666 /dev/fuse";
		return -EACCES;
	default: *ret_why = strerror(errno); return -errno;
	}
}

/* ---- made ---- */

int session_new(struct fs *fs, const char *name, struct session **ret)
{
	_cleanup_(session_freep) struct session *s = calloc(1, sizeof(*s));
	const struct fuse_lowlevel_ops *table = fs->past      ? &past_ops_table
						: fs->overlay ? &ops_write_table
							      : &ops_table;
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	cleanup_free char *options = NULL;

	if (!s)
		return -ENOMEM;
	s->fs = fs;
	s->wake_fd = -1;
	fuse_set_log_func(say);
	if (asprintf(&options,
		     "%snosuid,nodev%s,default_permissions,subtype=" MOUNTPOINT_TYPE ",fsname=%s",
		     fs->overlay ? "" : "ro,", fs->rules.look ? ",noexec" : "", name) < 0) {
		options = NULL;
		return -ENOMEM;
	}
	if (fuse_opt_add_arg(&args, "limb-fs") == 0 && fuse_opt_add_arg(&args, "-o") == 0 &&
	    fuse_opt_add_arg(&args, options) == 0)
		s->se = fuse_session_new(&args, table, sizeof(*table), fs);
	fuse_opt_free_args(&args);
	if (!s->se)
		return -ENOMEM;
	*ret = take_ptr(&s);
	return 0;
}

/* fuse_session_unmount() is there to free what libfuse keeps, but whenever the connection
 * lives, held by who is still in the detached mount, it unmounts the path again: then that
 * is another's. A descriptor that polls as an error in place of /dev/fuse, which so is
 * closed, keeps it from that. */
static void let_go(struct fuse_session *se)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return;
	(void)close(fds[0]);
	if (dup3(fds[1], fuse_session_fd(se), O_CLOEXEC) >= 0)
		fuse_session_unmount(se);
	(void)close(fds[1]);
}

void session_free(struct session *s)
{
	if (!s)
		return;
	if (s->mounted)
		let_go(s->se);
	if (s->se)
		fuse_session_destroy(s->se);
	free(s);
}

struct fuse_session *session_fuse(struct session *s)
{
	return s->se;
}

int session_mount(struct session *s, const char *path, const char **ret_why)
{
	last_words[0] = '\0';
	s->mounted = fuse_session_mount(s->se, path) == 0;
	if (s->mounted)
		return 0;
	*ret_why = last_words;
	return -EIO;
}

/* ---- answered ---- */

static void count(struct status *st, const struct fuse_buf *buf)
{
	uint32_t opcode;

	if (buf->size < HEADER_OPCODE_AT + sizeof(opcode))
		return;
	memcpy(&opcode, (const char *)buf->mem + HEADER_OPCODE_AT, sizeof(opcode));
	atomic_fetch_add_explicit(&st->messages[opcode < STATUS_OPCODES ? opcode : 0], 1,
				  memory_order_relaxed);
}

static void *work(void *userdata)
{
	struct worker *w = userdata;
	struct session *s = w->s;
	struct fuse_buf buf = {0};
	int r;

	while (!atomic_load(&s->ending) && !fuse_session_exited(s->se)) {
		r = fuse_session_receive_buf(s->se, &buf);
		if (r == -EINTR || r == -EAGAIN)
			continue;
		if (r <= 0)
			break;
		count(&s->fs->status, &buf);
		fuse_session_process_buf(s->se, &buf);
	}
	free(buf.mem);
	atomic_store(&w->ended, true);
	(void)eventfd_write(s->wake_fd, 1);
	return NULL;
}

static void do_nothing(int sig)
{
	(void)sig;
}

int session_serve(struct session *s, int wake_fd)
{
	const struct sigaction wake = {.sa_handler = do_nothing};
	int r = 0;

	s->wake_fd = wake_fd;
	if (sigaction(WAKE_SIGNAL, &wake, NULL) < 0)
		return -errno;
	while (r >= 0 && s->n_threads < THREADS) {
		struct worker *w = &s->workers[s->n_threads];
		w->s = s;
		r = -pthread_create(&w->thread, NULL, work, w);
		if (r >= 0)
			s->n_threads++;
	}
	return s->n_threads > 0 ? 0 : r;
}

void session_read_ahead(const char *path)
{
	char name[64], text[16];
	struct stat st;
	int fd;

	if (geteuid() != 0 || stat(path, &st) < 0)
		return;
	(void)snprintf(name, sizeof(name), "/sys/class/bdi/%u:%u/read_ahead_kb", major(st.st_dev),
		       minor(st.st_dev));
	(void)snprintf(text, sizeof(text), "%d\n", READ_AHEAD_KB);
	fd = open(name, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	(void)!write(fd, text, strlen(text));
	(void)close(fd);
}

/* Threads may wait for a request for ever when somebody still holds the detached mount. A
 * signal that comes before the read is lost, so it is sent until it helps. */
void session_end(struct session *s)
{
	const struct timespec pause = {.tv_nsec = WAKE_MS * 1000000};

	atomic_store(&s->ending, true);
	for (unsigned i = 0; i < s->n_threads; i++) {
		struct worker *w = &s->workers[i];
		while (!atomic_load(&w->ended)) {
			(void)pthread_kill(w->thread, WAKE_SIGNAL);
			(void)nanosleep(&pause, NULL);
		}
		(void)pthread_join(w->thread, NULL);
	}
	s->n_threads = 0;
}
