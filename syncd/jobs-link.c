#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/util.h"
#include "syncd/jobs-private.h"
#include "syncd/proc.h"
#include "syncd/record.h"
#include "syncd/spawner.h"

enum {
	SPARES = 3,
	USED_DIRS_MAX = 8,
	REFILL_MS = 20, /* after the last start: the job comes first */
	REFILL_AFTER_FAILURE_MS = 500,
	REFILL_MAX_MS = 30 * 1000, /* a job that comes does not wait for it */
	FAILURES_MAX = 5,
	ORPHANS_MS = 20,
	LOST_MAX_MS = 5000, /* something sleeps in the kernel: its end is told all the same */
	SPAWNER_END_MS = 2000,
	JOBS_LISTED_MAX = 100000,
};

static void on_link(uv_poll_t *h, int status, int events);

/* ---- links ---- */

static void on_link_closed(uv_handle_t *h)
{
	struct holder_link *l = h->data;

	buf_done(&l->in);
	buf_done(&l->out);
	free(l);
}

void link_close(struct holder_link *l)
{
	struct holder_link **p;

	if (uv_is_closing((uv_handle_t *)&l->poll))
		return;
	for (p = &l->jobs->links; *p != l; p = &(*p)->next)
		;
	*p = l->next;
	l->jobs->n_spares -= l->spare;
	if (l->job)
		l->job->link = NULL;
	l->job = NULL;
	uv_close((uv_handle_t *)&l->poll, on_link_closed);
	(void)close(l->fd); /* the handle has let go of it */
}

/* Takes fd. */
static struct holder_link *link_new(struct jobs *js, int fd)
{
	struct holder_link *l = calloc(1, sizeof(*l));

	if (!l || uv_poll_init(js->loop, &l->poll, fd) < 0) {
		(void)close(fd);
		free(l);
		return NULL;
	}
	l->jobs = js;
	l->fd = fd;
	l->poll.data = l;
	buf_init(&l->in, 2 * LINK_MESSAGE_MAX);
	l->next = js->links;
	js->links = l;
	(void)uv_poll_start(&l->poll, UV_READABLE, on_link);
	return l;
}

static void link_send(struct holder_link *l)
{
	if (link_flush(l->fd, &l->out) < 0)
		return; /* its end is seen by reading */
	(void)uv_poll_start(
		&l->poll, buf_len(&l->out) > 0 ? UV_READABLE | UV_WRITABLE : UV_READABLE, on_link);
}

void job_tell(struct job *j, enum link_type type, const void *data, size_t n)
{
	if (!j->link) {
		(void)link_add(&j->waiting, type, data, n);
		return;
	}
	(void)link_add(&j->link->out, type, data, n);
	link_send(j->link);
}

void job_tell_message(struct job *j, enum link_type type, const ProtobufCMessage *m)
{
	cleanup_free uint8_t *p = malloc(protobuf_c_message_get_packed_size(m) + 1);

	if (p)
		job_tell(j, type, p, protobuf_c_message_pack(m, p));
}

/* ---- spares ---- */

static int ask_spawner(struct jobs *js, int link)
{
	int r = -EPIPE;

	if (js->spawner >= 0)
		r = spawner_ask(js->spawner, js->dir_fd, link);
	if (r == 0 || r == -EAGAIN)
		return r;
	if (js->spawner >= 0)
		(void)close(js->spawner);
	js->spawner = -1;
	/* One that is gone may have left jobs of its own. */
	js->elsewhere |= js->spawner_pid > 0;
	if (js->spawner_pid > 0)
		(void)waitpid(js->spawner_pid, NULL, WNOHANG);
	r = spawner_start(&js->spawner, &js->spawner_pid);
	sync_set_processes(js->sync, r < 0 || js->elsewhere ? 0 : js->spawner_pid);
	return r < 0 ? r : spawner_ask(js->spawner, js->dir_fd, link);
}

static int spare_new(struct jobs *js)
{
	_cleanup_(buf_done) struct buf m = BUF_INIT(0);
	struct holder_link *l;
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	(void)fcntl(pair[0], F_SETFL, O_NONBLOCK);
	r = ask_spawner(js, pair[1]);
	(void)close(pair[1]);
	if (r < 0) {
		(void)close(pair[0]);
		return r;
	}
	l = link_new(js, pair[0]);
	if (!l)
		return -ENOMEM;
	if (js->n_used_dirs > 0)
		memcpy(l->spare_name, js->used_dirs[--js->n_used_dirs], sizeof(l->spare_name));
	else
		(void)snprintf(l->spare_name, sizeof(l->spare_name), "n%u", ++js->spare_count);
	l->spare = true;
	js->n_spares++;
	r = buf_add(&m, l->spare_name, strlen(l->spare_name) + 1);
	if (r == 0)
		r = buf_add(&m, js->root, strlen(js->root) + 1);
	if (r == 0)
		r = link_add(&l->out, LINK_SPARE, buf_data(&m), buf_len(&m));
	if (r < 0) {
		link_close(l);
		return r;
	}
	link_send(l);
	return 0;
}

static unsigned queued_jobs(const struct jobs *js)
{
	unsigned n = 0;

	for (const struct job *j = js->first; j; j = j->next)
		n += j->state == JOB_QUEUED;
	return n;
}

static void fail_queued(struct jobs *js, int error)
{
	for (struct job *j = js->first, *next; j; j = next) {
		next = j->next;
		if (j->state != JOB_QUEUED)
			continue;
		/* Nothing has run and no directory names it: the brain may ask again. */
		j->state = JOB_FAILED;
		j->error = -error;
		(void)snprintf(j->detail, sizeof(j->detail), "no holder");
		job_answer_started(j, j->request);
		job_free(j);
	}
}

static void on_refill(uv_timer_t *h);

static uint64_t after_failures(const struct jobs *js)
{
	return backoff_ms(js->failures > 2 ? js->failures - 2 : 0, REFILL_AFTER_FAILURE_MS,
			  REFILL_MAX_MS);
}

static void refill(struct jobs *js)
{
	unsigned want = SPARES + queued_jobs(js);
	int r = 0;

	while (js->n_spares < want && r == 0 && !js->stopping)
		r = spare_new(js);
	if (r < 0 && r != -EAGAIN) {
		if (log_limited(&js->limit, 5, 1000))
			(void)log_warning_errno(r, "cannot make a holder for jobs");
		fail_queued(js, r);
		js->failures++;
		(void)uv_timer_start(&js->refill, on_refill, after_failures(js), 0);
	}
}

static void on_refill(uv_timer_t *h)
{
	refill(h->data);
}

/* ---- a job and its holder ---- */

static struct holder_link *ready_spare(struct jobs *js)
{
	for (struct holder_link *l = js->links; l; l = l->next) {
		if (l->spare && l->ready)
			return l;
	}
	return NULL;
}

/* What came while it had no holder. */
static void tell_waiting(struct job *j)
{
	if (buf_add(&j->link->out, buf_data(&j->waiting), buf_len(&j->waiting)) == 0)
		buf_clear(&j->waiting);
	link_send(j->link);
}

/* The directory gets the job's name before the holder hears of it: who finds the name
 * later knows that the job may have run. */
static void hand_over(struct job *j, struct holder_link *l)
{
	struct jobs *js = j->jobs;
	char path[sizeof(j->id) + 16];

	if (renameat2(js->spare_fd, l->spare_name, js->jobs_fd, j->id, 1 /* RENAME_NOREPLACE */) <
		    0 &&
	    (errno != EINVAL || renameat(js->spare_fd, l->spare_name, js->jobs_fd, j->id) < 0)) {
		j->state = JOB_FAILED;
		j->error = errno;
		(void)snprintf(j->detail, sizeof(j->detail), "job directory");
		job_answer_started(j, j->request);
		job_free(j);
		return;
	}
	l->spare = false;
	js->n_spares--;
	l->job = j;
	j->link = l;
	j->holder_pid = l->pid;
	j->state = JOB_STARTING;
	job_tell(j, LINK_START, buf_data(&j->start), buf_len(&j->start));
	buf_done(&j->start);
	tell_waiting(j);
	(void)snprintf(path, sizeof(path), "%s/record", j->id);
	j->record = openat(js->jobs_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	(void)uv_timer_start(&js->refill, on_refill, REFILL_MS, 0);
}

void job_place(struct job *j)
{
	struct holder_link *l = ready_spare(j->jobs);

	j->state = JOB_QUEUED;
	if (l)
		hand_over(j, l);
	else
		refill(j->jobs);
}

static void on_ready(struct holder_link *l, uint32_t pid)
{
	struct jobs *js = l->jobs;

	l->ready = true;
	l->pid = pid;
	js->failures = 0;
	for (struct job *j = js->first; j; j = j->next) {
		if (j->state == JOB_QUEUED) {
			hand_over(j, l);
			return;
		}
	}
}

static void on_started(struct job *j, const uint8_t *data, size_t n)
{
	Limbwire__JobStarted *m = limbwire__job_started__unpack(NULL, n, data);

	if (!m)
		return;
	j->pid = m->pid;
	if (j->state == JOB_STARTING || j->state == JOB_QUEUED) {
		j->state = m->error != 0 ? JOB_FAILED : JOB_RUNNING;
		j->error = m->error;
		(void)snprintf(j->detail, sizeof(j->detail), "%s", m->detail ? m->detail : "");
	}
	limbwire__job_started__free_unpacked(m, NULL);
	if (j->request != 0)
		job_answer_started(j, take_request(j));
}

/* ---- what holders say ---- */

static void on_hello(struct holder_link *l, const uint8_t *data, size_t n)
{
	struct link_hello hello;
	struct job *j;

	if (n != sizeof(hello))
		return;
	memcpy(&hello, data, sizeof(hello));
	hello.job[sizeof(hello.job) - 1] = 0;
	j = job_find(l->jobs, hello.job);
	if (!j) {
		/* Its directory is gone, and with it whoever wanted to know. */
		(void)link_add(&l->out, LINK_FORGET, NULL, 0);
		link_send(l);
		return;
	}
	if (j->link)
		link_close(j->link);
	j->link = l;
	l->job = j;
	j->holder_pid = hello.holder_pid;
	j->pid = hello.pid;
	j->input_bytes = MAX(j->input_bytes, hello.input_bytes);
	job_say_input(j);
	tell_waiting(j);
	if (j->jobs->freeze_signal)
		(void)proc_signal_tree((pid_t)j->holder_pid, j->jobs->freeze_signal);
	if (j->jobs->stopping)
		job_kill(j);
}

static void on_output(struct job *j, const uint8_t *data, size_t n)
{
	struct link_offsets o;

	if (n != sizeof(o) || j->exit)
		return;
	memcpy(&o, data, sizeof(o));
	for (unsigned i = 0; i < 2; i++)
		j->total[i] = MAX(j->total[i], o.out[i]);
	job_pump(j);
}

static void on_message(struct holder_link *l, uint32_t type, const uint8_t *data, size_t n)
{
	Limbwire__JobExit *exit;

	if (!l->job) {
		if (type == LINK_READY && n == 4)
			on_ready(l, get_le32(data));
		else if (type == LINK_HELLO)
			on_hello(l, data, n);
		return;
	}
	switch (type) {
	case LINK_STARTED: on_started(l->job, data, n); break;
	case LINK_OUTPUT: on_output(l->job, data, n); break;
	case LINK_EXIT:
		exit = limbwire__job_exit__unpack(NULL, n, data);
		if (exit)
			job_ended(l->job, exit);
		break;
	default: break;
	}
}

static void on_link_lost(struct holder_link *l)
{
	struct jobs *js = l->jobs;
	struct job *j = l->job;
	bool was_spare = l->spare;

	link_close(l);
	if (was_spare) {
		if (++js->failures >= FAILURES_MAX)
			fail_queued(js, -EAGAIN);
		(void)uv_timer_start(&js->refill, on_refill,
				     js->failures > 1 ? after_failures(js) : REFILL_MS, 0);
	} else if (j) {
		jobs_watch_ends(js);
	}
}

static void on_link(uv_poll_t *h, int status, int events)
{
	struct holder_link *l = h->data;
	const uint8_t *data;
	size_t n, bytes;
	uint32_t type;
	ssize_t got;
	int r = 0;

	if (events & UV_WRITABLE)
		link_send(l);
	if (status == 0 && !(events & UV_READABLE))
		return;
	got = status < 0 ? status : link_receive(l->fd, &l->in);
	if (got == -EAGAIN)
		return;
	while (got > 0 && !uv_is_closing((uv_handle_t *)h) &&
	       (r = link_next(&l->in, &type, &data, &n, &bytes)) > 0) {
		on_message(l, type, data, n);
		buf_consume(&l->in, bytes);
	}
	if ((got <= 0 || r < 0) && !uv_is_closing((uv_handle_t *)h))
		on_link_lost(l);
}

/* ---- holders that are gone ---- */

/* The spawner kills what was below the holder; unless that died, too. True when nothing of it
 * runs any more. */
static bool job_is_over(struct job *j)
{
	Limbwire__JobStarted *begin;

	if (j->pid == 0 && j->record >= 0) {
		begin = record_read(j->record, j->id, RECORD_BEGIN);
		j->pid = begin ? begin->pid : 0;
		limbwire__job_started__free_unpacked(begin, NULL);
	}
	if (j->lost_ms == 0)
		j->lost_ms = clock_mono_ms();
	return j->pid == 0 || proc_kill_session((pid_t)j->pid, "LIMB_JOB", j->id) != -EAGAIN ||
	       clock_mono_ms() - j->lost_ms > LOST_MAX_MS;
}

static Limbwire__JobExit *unknown_exit(const struct job *j)
{
	Limbwire__JobExit *exit = malloc(sizeof(*exit));
	struct stat st;
	char path[sizeof(j->id) + 16];

	if (!exit)
		return NULL;
	limbwire__job_exit__init(exit);
	exit->job = strdup(j->id);
	exit->unknown = true;
	exit->ended_ns = clock_real_ns();
	for (unsigned i = 0; i < 2; i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", j->id, i == 0 ? "stdout" : "stderr");
		if (fstatat(j->jobs->jobs_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
			st.st_size = 0;
		*(i == 0 ? &exit->stdout_bytes : &exit->stderr_bytes) =
			MAX((uint64_t)st.st_size, j->total[i]);
	}
	return exit;
}

/* What the record says, now that nobody writes it any more; false: to be called again. */
static bool holder_died(struct job *j)
{
	Limbwire__JobExit *exit = j->record >= 0 ? record_read(j->record, j->id, RECORD_END) : NULL;

	if (!exit) {
		if (!job_is_over(j))
			return false;
		log_warning("the holder of job '%s' died: its end is unknown", j->id);
		exit = unknown_exit(j);
		if (!exit)
			return false;
	}
	if (j->request != 0)
		job_answer_started(j, take_request(j));
	job_ended(j, exit);
	return true;
}

/* Jobs without a link: their holder comes back, or its lock is free. A holder's socket
 * closes a moment before its lock does. */
static void on_orphans(uv_timer_t *h)
{
	struct jobs *js = h->data;
	bool any = false;

	for (struct job *j = js->first, *next; j; j = next) {
		next = j->next;
		if (j->link || j->state == JOB_QUEUED || (j->state == JOB_FAILED && !j->forgotten))
			continue;
		if (j->record >= 0 && record_locked(j->record)) {
			any = true;
			continue;
		}
		if (j->forgotten)
			job_forget(j);
		else if (!j->exit && !holder_died(j))
			any = true;
	}
	if (js->stopped && jobs_held(js) == 0) {
		void (*stopped)(void *userdata) = take_ptr(&js->stopped);

		(void)uv_timer_stop(&js->stop_deadline);
		stopped(js->stopped_userdata);
	} else if (!any && !js->stopping) {
		(void)uv_timer_stop(h);
	}
}

void jobs_watch_ends(struct jobs *js)
{
	(void)uv_timer_start(&js->orphans, on_orphans, 0, ORPHANS_MS);
}

static void adopt_dir(struct jobs *js, const char *id)
{
	Limbwire__JobStarted *begin;
	char path[LINK_JOB_MAX + 16];
	struct job *j;

	j = job_id_ok(id) ? job_new(js, id) : NULL;
	if (!j)
		return;
	(void)snprintf(path, sizeof(path), "%s/record", j->id);
	j->record = openat(js->jobs_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	j->state = JOB_RUNNING;
	begin = j->record >= 0 ? record_read(j->record, id, RECORD_BEGIN) : NULL;
	if (!begin)
		return;
	j->pid = begin->pid;
	if (begin->error != 0) {
		j->state = JOB_FAILED;
		j->error = begin->error;
		(void)snprintf(j->detail, sizeof(j->detail), "%s",
			       begin->detail ? begin->detail : "");
	}
	limbwire__job_started__free_unpacked(begin, NULL);
}

void jobs_adopt_dirs(struct jobs *js)
{
	char **names;
	size_t n;
	int r;

	r = file_list(js->jobs_fd, ".", JOBS_LISTED_MAX, &names, &n);
	if (r < 0) {
		(void)log_warning_errno(r, "cannot list the jobs of an earlier daemon");
		return;
	}
	for (size_t i = 0; i < n; i++)
		adopt_dir(js, names[i]);
	file_names_free(names, n);
	js->elsewhere |= n > 0;
	if (n > 0)
		jobs_watch_ends(js);
}

void jobs_adopt(struct jobs *js, int fd)
{
	(void)fcntl(fd, F_SETFL, O_NONBLOCK);
	(void)link_new(js, fd);
}

/* ---- directories ---- */

void job_dir_recycle(struct job *j)
{
	struct jobs *js = j->jobs;
	char name[sizeof(js->used_dirs[0])];

	if (js->n_used_dirs < USED_DIRS_MAX) {
		(void)snprintf(name, sizeof(name), "n%u", ++js->spare_count);
		if (renameat(js->jobs_fd, j->id, js->spare_fd, name) == 0) {
			memcpy(js->used_dirs[js->n_used_dirs++], name, sizeof(name));
			return;
		}
	}
	(void)file_remove_tree(js->jobs_fd, j->id);
}

/* ---- begin and end ---- */

static int open_made_dir(int dir, const char *name)
{
	int r = file_make_dir(dir, name);

	return r < 0 ? r : file_open_dir(dir, name);
}

int jobs_dirs_open(struct jobs *js)
{
	int r;

	js->used_dirs = calloc(USED_DIRS_MAX, sizeof(js->used_dirs[0]));
	if (!js->used_dirs)
		return -ENOMEM;
	js->jobs_fd = open_made_dir(js->dir_fd, "jobs");
	if (js->jobs_fd < 0)
		return js->jobs_fd;
	/* An earlier daemon's spares end with it. */
	r = file_remove_tree(js->dir_fd, "spare");
	if (r < 0)
		return r;
	js->spare_fd = open_made_dir(js->dir_fd, "spare");
	return js->spare_fd < 0 ? js->spare_fd : 0;
}

void jobs_link_begin(struct jobs *js)
{
	(void)uv_timer_init(js->loop, &js->refill);
	(void)uv_timer_init(js->loop, &js->orphans);
	js->refill.data = js->orphans.data = js;
	(void)uv_timer_start(&js->refill, on_refill, 0, 0);
}

void jobs_link_end(struct jobs *js)
{
	while (js->links)
		link_close(js->links);
	if (js->spawner >= 0)
		(void)close(js->spawner);
	js->spawner = -1;
}

/* It ends after its last holder, and then nothing writes into DIR any more. */
void jobs_spawner_wait(struct jobs *js)
{
	uint64_t end = clock_mono_ms() + SPAWNER_END_MS;
	struct timespec tick = {0, 2 * 1000 * 1000};

	while (js->spawner_pid > 0 && clock_mono_ms() < end) {
		if (waitpid(js->spawner_pid, NULL, WNOHANG) != 0)
			return;
		(void)nanosleep(&tick, NULL);
	}
}
