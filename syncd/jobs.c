#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

#include "base/file.h"
#include "base/io.h"
#include "base/util.h"
#include "syncd/feed.h"
#include "syncd/jobs-private.h"
#include "syncd/proc.h"
#include "syncd/ps.h"

enum {
	JOBS_MAX = 4096,
	WAITING_BYTES = 256 << 10,
	STOP_DEADLINE_MS = 8000,
};
#define INPUT_BYTES_MAX (1ull << 32) /* what a command has not read yet is on a disk of ours */

/* ---- the table ---- */

bool job_id_ok(const char *id)
{
	size_t n = strlen(id);

	return n > 0 && n <= LINK_JOB_MAX && id[0] != '-' && id[0] != '.' &&
	       strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") == n;
}

struct job *job_find(struct jobs *js, const char *id)
{
	for (struct job *j = js->first; j; j = j->next) {
		if (strcmp(j->id, id) == 0)
			return j;
	}
	return NULL;
}

struct job *job_new(struct jobs *js, const char *id)
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->jobs = js;
	(void)snprintf(j->id, sizeof(j->id), "%s", id);
	buf_init(&j->waiting, WAITING_BYTES);
	j->fds[0] = j->fds[1] = j->record = j->input_file = -1;
	j->next = js->first;
	js->first = j;
	js->n_jobs++;
	return j;
}

void job_free(struct job *j)
{
	int fds[] = {j->fds[0], j->fds[1], j->record, j->input_file};
	struct job **p;

	for (p = &j->jobs->first; *p != j; p = &(*p)->next)
		;
	*p = j->next;
	j->jobs->n_jobs--;
	if (j->link)
		link_close(j->link);
	job_waiter_drop(j);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		if (fds[i] >= 0)
			(void)close(fds[i]);
	}
	buf_done(&j->start);
	buf_done(&j->waiting);
	if (j->exit)
		limbwire__job_exit__free_unpacked(j->exit, NULL);
	free(j);
}

void job_forget(struct job *j)
{
	job_dir_recycle(j);
	job_free(j);
}

static struct job *job_known(struct jobs *js, const char *id)
{
	struct job *j = id ? job_find(js, id) : NULL;

	return j && !j->forgotten ? j : NULL;
}

unsigned jobs_running(const struct jobs *js)
{
	unsigned n = 0;

	for (const struct job *j = js->first; j; j = j->next)
		n += j->state == JOB_STARTING || j->state == JOB_RUNNING;
	return n;
}

unsigned jobs_held(const struct jobs *js)
{
	unsigned n = 0;

	for (const struct job *j = js->first; j; j = j->next)
		n += j->link || j->state == JOB_STARTING || j->state == JOB_RUNNING;
	return n;
}

/* ---- JOB_START ---- */

void job_answer_started(struct job *j, uint64_t request)
{
	Limbwire__JobStarted m = LIMBWIRE__JOB_STARTED__INIT;

	m.request = request;
	m.job = j->id;
	m.pid = j->pid;
	m.error = j->error;
	m.detail = j->detail;
	(void)session_send(j->jobs->session, SESSION_CONTROL, WIRE_JOB_STARTED, &m.base, NULL, 0);
}

static void refuse_start(struct jobs *js, const Limbwire__JobStart *m, int error,
			 const char *detail)
{
	Limbwire__JobStarted answer = LIMBWIRE__JOB_STARTED__INIT;

	answer.request = m->request;
	answer.job = m->job;
	answer.error = error;
	answer.detail = (char *)detail;
	(void)session_send(js->session, SESSION_CONTROL, WIRE_JOB_STARTED, &answer.base, NULL, 0);
}

/* Bytes of path after root and slashes, or NULL if path is not beneath it by name. */
static const uint8_t *strip_root(const ProtobufCBinaryData *path, const char *root)
{
	size_t n = root ? strlen(root) : 0;

	while (n > 1 && root[n - 1] == '/')
		n--;
	if (n == 0 || path->len < n || memcmp(path->data, root, n) != 0 ||
	    (path->len > n && path->data[n] != '/'))
		return NULL;
	while (n < path->len && path->data[n] == '/')
		n++;
	return path->data + n;
}

/* An absolute directory is made relative to the root; false if it lies elsewhere. */
static bool relative_cwd(const struct jobs *js, ProtobufCBinaryData *cwd)
{
	const uint8_t *p;

	if (cwd->len == 0 || cwd->data[0] != '/')
		return true;
	p = strip_root(cwd, js->root);
	if (!p) {
		cleanup_free char *real = realpath(js->root, NULL);

		p = strip_root(cwd, real);
	}
	if (!p)
		return false;
	cwd->len -= (size_t)(p - cwd->data);
	cwd->data = (uint8_t *)p;
	return true;
}

static int pack_start(struct job *j, const Limbwire__JobStart *m, const ProtobufCBinaryData *cwd)
{
	Limbwire__JobStart copy = *m;
	uint8_t *p;
	size_t n;
	int r;

	copy.cwd = *cwd;
	n = limbwire__job_start__get_packed_size(&copy);
	r = buf_reserve(&j->start, n, &p);
	if (r == 0)
		buf_commit(&j->start, limbwire__job_start__pack(&copy, p));
	return r;
}

/* What never ran and was not forgotten makes room first. */
static void forget_a_failure(struct jobs *js)
{
	struct job *oldest = NULL;

	for (struct job *j = js->first; j; j = j->next) {
		if (j->state == JOB_FAILED)
			oldest = j;
	}
	if (oldest)
		job_forget(oldest);
}

void jobs_on_start(struct jobs *js, const Limbwire__JobStart *m)
{
	ProtobufCBinaryData cwd = m->cwd;
	struct job *j;

	if (!m->job || !job_id_ok(m->job) || m->n_argv == 0) {
		refuse_start(js, m, EINVAL, "malformed");
		return;
	}
	j = job_find(js, m->job);
	if (j) {
		/* Known: answered as the first time, never started again. */
		if (j->state == JOB_QUEUED || j->state == JOB_STARTING)
			j->request = m->request;
		else
			job_answer_started(j, m->request);
		return;
	}
	if (js->n_jobs >= JOBS_MAX)
		forget_a_failure(js);
	if (js->n_jobs >= JOBS_MAX || js->stopping) {
		refuse_start(js, m, EAGAIN, js->stopping ? "stopping" : "too many jobs");
		return;
	}
	if (!relative_cwd(js, &cwd)) {
		refuse_start(js, m, EXDEV, "cwd");
		return;
	}
	j = job_new(js, m->job);
	if (!j || pack_start(j, m, &cwd) < 0) {
		if (j)
			job_free(j);
		refuse_start(js, m, ENOMEM, "memory");
		return;
	}
	j->request = m->request;
	j->settle_ms = m->settle_ms;
	j->mark = sync_mark(js->sync);
	job_place(j);
}

/* ---- the rest of what the brain says ---- */

void jobs_on_ack(struct jobs *js, const Limbwire__JobAck *m)
{
	struct job *j = job_known(js, m->job);
	const uint64_t acked[2] = {m->stdout_offset, m->stderr_offset};
	struct link_offsets o;

	if (!j)
		return;
	for (unsigned i = 0; i < 2; i++) {
		if (acked[i] <= j->total[i])
			j->acked[i] = MAX(j->acked[i], acked[i]);
		j->sent[i] = MAX(j->sent[i], j->acked[i]);
		o.out[i] = j->acked[i];
	}
	job_tell(j, LINK_ACK, &o, sizeof(o));
	job_pump(j);
}

/* Beyond what a holder keeps in memory, input goes into a file. */
static int spill(struct job *j, const Limbwire__JobInput *m, const void *bulk, size_t n)
{
	char path[sizeof(j->id) + 16];
	uint8_t end[8];
	int r;

	if (m->offset + n > INPUT_BYTES_MAX)
		return -ENOSPC;
	if (j->input_file < 0) {
		(void)snprintf(path, sizeof(path), "%s/stdin", j->id);
		j->input_file = openat(j->jobs->jobs_fd, path,
				       O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (j->input_file < 0)
			return -errno;
	}
	r = io_pwrite_full(j->input_file, bulk, n, m->offset, "jobs.input");
	if (r < 0)
		return r;
	put_le64(end, m->offset + n);
	job_tell(j, LINK_SPILLED, end, sizeof(end));
	return 0;
}

static int add_input(struct job *j, const Limbwire__JobInput *m, const void *bulk, size_t n)
{
	cleanup_free uint8_t *p = NULL;

	if (m->offset + n > FEED_INLINE_BYTES)
		return spill(j, m, bulk, n);
	p = malloc(8 + n);
	if (!p)
		return -ENOMEM;
	put_le64(p, m->offset);
	memcpy(p + 8, bulk, n);
	job_tell(j, LINK_INPUT, p, 8 + n);
	return 0;
}

void job_say_input(struct job *j)
{
	Limbwire__JobInputHad m = LIMBWIRE__JOB_INPUT_HAD__INIT;

	m.job = j->id;
	m.bytes = j->input_bytes;
	if (session_attached(j->jobs->session))
		(void)session_send(j->jobs->session, SESSION_CONTROL, WIRE_JOB_INPUT_HAD, &m.base,
				   NULL, 0);
}

void jobs_on_input(struct jobs *js, const Limbwire__JobInput *m, const void *bulk, size_t n)
{
	struct job *j = job_known(js, m->job);
	int r;

	if (!j || j->exit || m->offset + n < m->offset)
		return;
	/* A piece is missing; only the holder knows while it is away. */
	if (j->link && m->offset > j->input_bytes)
		return;
	if (m->offset + n > j->input_bytes) {
		r = add_input(j, m, bulk, n);
		if (r < 0) {
			(void)session_send_error(js->session, 0, r, "input of a job");
			job_tell(j, LINK_INPUT_EOF, NULL, 0);
			return;
		}
		j->input_bytes = m->offset + n;
		job_say_input(j);
	}
	if (m->eof)
		job_tell(j, LINK_INPUT_EOF, NULL, 0);
}

void jobs_on_signal(struct jobs *js, const Limbwire__JobSignal *m)
{
	struct job *j = job_known(js, m->job);

	if (j)
		job_tell_message(j, LINK_SIGNAL, &m->base);
}

void jobs_on_forget(struct jobs *js, const Limbwire__JobForget *m)
{
	struct job *j = job_known(js, m->job);

	if (!j || (j->state != JOB_ENDED && j->state != JOB_FAILED))
		return;
	j->forgotten = true;
	/* Something lives on in the background: the directory waits for its end. */
	job_tell(j, LINK_FORGET, NULL, 0);
	jobs_watch_ends(js);
}

void jobs_on_ps(struct jobs *js, const Limbwire__Ps *m)
{
	cleanup_free struct ps_holder *holders = calloc(js->n_jobs + 1, sizeof(*holders));
	size_t n = 0;

	for (struct job *j = js->first; holders && j; j = j->next) {
		if (j->holder_pid != 0)
			holders[n++] = (struct ps_holder){(pid_t)j->holder_pid, j->id};
	}
	ps_answer(js->session, m->request, holders, n);
}

int jobs_freeze(struct jobs *js, bool freeze)
{
	int r, first = 0;

	js->freeze_signal = freeze ? SIGSTOP : SIGCONT;
	for (struct job *j = js->first; j; j = j->next) {
		if (j->holder_pid == 0 || !j->link)
			continue;
		r = proc_signal_tree((pid_t)j->holder_pid, js->freeze_signal);
		if (r < 0 && first == 0)
			first = r;
	}
	return first;
}

void jobs_drained(struct jobs *js)
{
	jobs_pump(js);
}

void jobs_detached(struct jobs *js)
{
	for (struct job *j = js->first; j; j = j->next) {
		if (!j->settled)
			job_waiter_drop(j);
	}
}

static int send_list(struct jobs *js)
{
	Limbwire__JobList list = LIMBWIRE__JOB_LIST__INIT;
	cleanup_free Limbwire__JobList__Job *jobs = calloc(js->n_jobs + 1, sizeof(*jobs));
	cleanup_free Limbwire__JobList__Job **ptrs = calloc(js->n_jobs + 1, sizeof(*ptrs));

	if (!jobs || !ptrs)
		return -ENOMEM;
	for (struct job *j = js->first; j; j = j->next) {
		Limbwire__JobList__Job *m = &jobs[list.n_jobs];

		if (j->forgotten || j->state == JOB_FAILED)
			continue;
		limbwire__job_list__job__init(m);
		m->job = j->id;
		m->running = !j->exit;
		m->pid = j->pid;
		m->stdout_bytes = j->total[0];
		m->stderr_bytes = j->total[1];
		ptrs[list.n_jobs++] = m;
	}
	list.jobs = ptrs;
	return session_send(js->session, SESSION_CONTROL, WIRE_JOB_LIST, &list.base, NULL, 0);
}

void jobs_welcome(struct jobs *js)
{
	(void)send_list(js);
	for (struct job *j = js->first; j; j = j->next) {
		job_unsettle(j);
		/* Else its holder has not come back yet, and knows. */
		if ((j->link || j->state == JOB_QUEUED) && !j->forgotten)
			job_say_input(j);
		for (unsigned i = 0; i < 2; i++)
			j->sent[i] = j->acked[i];
	}
	jobs_pump(js);
}

/* ---- begin and end ---- */

static void on_stop_deadline(uv_timer_t *h)
{
	struct jobs *js = h->data;
	void (*stopped)(void *userdata) = take_ptr(&js->stopped);

	log_warning("not all jobs ended in %d s", STOP_DEADLINE_MS / 1000);
	if (stopped)
		stopped(js->stopped_userdata);
}

void job_kill(struct job *j)
{
	Limbwire__JobSignal m = LIMBWIRE__JOB_SIGNAL__INIT;

	m.signal = SIGKILL;
	m.why = (char *)"limbfs";
	job_tell_message(j, LINK_SIGNAL, &m.base);
}

void jobs_stop(struct jobs *js, void (*done)(void *userdata), void *userdata)
{
	js->stopping = true;
	js->stopped = done;
	js->stopped_userdata = userdata;
	for (struct job *j = js->first; j; j = j->next)
		job_kill(j);
	for (struct holder_link *l = js->links, *next; l; l = next) {
		next = l->next;
		if (l->spare)
			link_close(l);
	}
	jobs_watch_ends(js);
	(void)uv_timer_start(&js->stop_deadline, on_stop_deadline, STOP_DEADLINE_MS, 0);
}

int jobs_new(uv_loop_t *loop, struct session *session, struct sync *sync, const char *root,
	     int dir_fd, struct jobs **ret)
{
	struct jobs *js = calloc(1, sizeof(*js));
	int r;

	if (!js)
		return -ENOMEM;
	*js = (struct jobs){.loop = loop,
			    .session = session,
			    .sync = sync,
			    .dir_fd = dir_fd,
			    .jobs_fd = -1,
			    .spare_fd = -1,
			    .spawner = -1};
	js->root = strdup(root);
	r = js->root ? jobs_dirs_open(js) : -ENOMEM;
	if (r < 0) {
		free(js->root);
		free(js->used_dirs);
		free(js);
		return r;
	}
	(void)uv_timer_init(loop, &js->stop_deadline);
	js->stop_deadline.data = js;
	jobs_link_begin(js);
	jobs_adopt_dirs(js);
	*ret = js;
	return 0;
}

static void on_closed(uv_handle_t *h)
{
	struct jobs *js = h->data;

	if (--js->open_handles > 0)
		return;
	if (js->jobs_fd >= 0)
		(void)close(js->jobs_fd);
	if (js->spare_fd >= 0)
		(void)close(js->spare_fd);
	free(js->used_dirs);
	free(js->root);
	free(js);
}

void jobs_free(struct jobs *js)
{
	if (!js)
		return;
	while (js->first)
		job_free(js->first);
	jobs_link_end(js);
	if (js->stopping)
		jobs_spawner_wait(js);
	js->open_handles = 3;
	uv_close((uv_handle_t *)&js->refill, on_closed);
	uv_close((uv_handle_t *)&js->orphans, on_closed);
	uv_close((uv_handle_t *)&js->stop_deadline, on_closed);
}
