#include <fcntl.h>
#include <stdio.h>

#include "base/io.h"
#include "base/util.h"
#include "syncd/jobs-private.h"
#include "base/spool.h"

enum {
	PIECE_BYTES = 64 << 10,
	SETTLE_MS = 250,
	BARRIER_DEADLINE_MS = 5000,
};

static int output_fd(struct job *j, unsigned i)
{
	char path[sizeof(j->id) + 16];

	if (j->fds[i] < 0) {
		(void)snprintf(path, sizeof(path), "%s/%s", j->id, i == 0 ? "stdout" : "stderr");
		j->fds[i] = openat(j->jobs->jobs_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (j->fds[i] < 0)
			return -errno;
	}
	return j->fds[i];
}

/* One piece of a stream; what was left out is skipped, the offsets say so. */
static int send_piece(struct job *j, unsigned i)
{
	static uint8_t block[PIECE_BYTES];
	Limbwire__JobOutput m = LIMBWIRE__JOB_OUTPUT__INIT;
	uint64_t next = j->total[i];
	ssize_t n = 0;
	int fd, r;

	fd = output_fd(j, i);
	if (fd >= 0)
		n = spool_read(fd, j->sent[i], j->total[i], block, sizeof(block), &next);
	if (fd < 0 || n < 0) {
		if (log_limited(&j->jobs->limit, 5, 1000))
			(void)log_warning_errno(fd < 0 ? fd : (int)n, "output of job '%s' is lost",
						j->id);
		n = 0;
	}
	if (n == 0) {
		j->sent[i] = MAX(next, j->sent[i] + 1);
		return 0;
	}
	m.job = j->id;
	m.stream = 1 + i;
	m.offset = j->sent[i];
	m.eof = j->exit && j->sent[i] + (uint64_t)n == j->total[i];
	r = session_send(j->jobs->session, SESSION_OUTPUT, WIRE_JOB_OUTPUT, &m.base, block,
			 (size_t)n);
	if (r == 0)
		j->sent[i] += (uint64_t)n;
	return r;
}

static bool room(const struct jobs *js)
{
	return session_attached(js->session) &&
	       session_queued(js->session, SESSION_OUTPUT) <= SESSION_OUTPUT_HIGH;
}

/* In the last class: all output goes before it, and so do the changes that it covers. */
static void send_exit(struct job *j)
{
	if (!j->exit || !j->settled || j->exit_sent || j->forgotten || j->sent[0] < j->total[0] ||
	    j->sent[1] < j->total[1])
		return;
	if (session_send(j->jobs->session, SESSION_BULK, WIRE_JOB_EXIT, &j->exit->base, NULL, 0) ==
	    0)
		j->exit_sent = true;
}

/* ---- the barrier at the end ---- */

void job_waiter_drop(struct job *j)
{
	if (j->waiter)
		j->waiter->job = NULL;
	j->waiter = NULL;
}

static void take_unsettled(Limbwire__JobExit *e, const struct sync_result *res)
{
	e->unsettled = calloc(res->n_unsettled + 1, sizeof(*e->unsettled));
	if (!e->unsettled)
		return;
	for (size_t i = 0; i < res->n_unsettled; i++) {
		const Limbwire__Unsettled *from = &res->unsettled[i];
		Limbwire__Unsettled *to = malloc(sizeof(*to));

		if (!to)
			return;
		limbwire__unsettled__init(to);
		to->size_bytes = from->size_bytes;
		to->since_ns = from->since_ns;
		to->path.data = malloc(from->path.len + 1);
		if (to->path.data) {
			memcpy(to->path.data, from->path.data, from->path.len);
			to->path.len = from->path.len;
		}
		e->unsettled[e->n_unsettled++] = to;
	}
}

static void on_settled(const struct sync_result *res, void *userdata)
{
	struct job_waiter *w = userdata;
	struct job *j = w->job;

	free(w);
	if (!j)
		return;
	j->waiter = NULL;
	/* The line went down meanwhile: nothing was sent, so ask again at the next WELCOME. */
	if (!session_attached(j->jobs->session))
		return;
	j->settled = true;
	j->exit->number = res->number;
	take_unsettled(j->exit, res);
	job_pump(j);
}

/* The number at which it settled was the last session's: what the brain did not get comes
 * under other numbers, and again before the end that it belongs to. */
void job_unsettle(struct job *j)
{
	j->exit_sent = false;
	if (!j->settled || j->forgotten)
		return;
	j->settled = false;
	for (size_t i = 0; i < j->exit->n_unsettled; i++)
		limbwire__unsettled__free_unpacked(j->exit->unsettled[i], NULL);
	free(j->exit->unsettled);
	j->exit->unsettled = NULL;
	j->exit->n_unsettled = 0;
}

/* What became dirty since the job began belongs to it, and is sent before its end. */
static void settle(struct job *j)
{
	struct sync_result none = {.error = EIO};
	int r;

	if (!j->exit || j->settled || j->waiter || !session_attached(j->jobs->session))
		return;
	j->waiter = calloc(1, sizeof(*j->waiter));
	if (!j->waiter)
		return;
	j->waiter->job = j;
	r = sync_barrier(j->jobs->sync, j->mark, j->settle_ms ? j->settle_ms : SETTLE_MS,
			 BARRIER_DEADLINE_MS, on_settled, j->waiter);
	if (r < 0)
		on_settled(&none, j->waiter);
}

void job_ended(struct job *j, Limbwire__JobExit *exit)
{
	if (j->exit) {
		limbwire__job_exit__free_unpacked(exit, NULL);
		return;
	}
	j->exit = exit;
	j->state = JOB_ENDED;
	j->total[0] = exit->stdout_bytes;
	j->total[1] = exit->stderr_bytes;
	if (!session_attached(j->jobs->session) && j->record >= 0)
		(void)io_fdatasync(j->record, "jobs.sync");
	settle(j);
	job_pump(j);
}

/* ---- on the way ---- */

void job_pump(struct job *j)
{
	for (unsigned i = 0; i < 2; i++) {
		while (!j->forgotten && j->sent[i] < j->total[i] && room(j->jobs)) {
			if (send_piece(j, i) < 0)
				return;
		}
	}
	settle(j);
	send_exit(j);
}

/* A piece of each in turn, so that a loud job does not silence the others. */
void jobs_pump(struct jobs *js)
{
	bool more = true;

	while (more && room(js)) {
		more = false;
		for (struct job *j = js->first; j; j = j->next) {
			for (unsigned i = 0; i < 2; i++) {
				if (j->forgotten || j->sent[i] >= j->total[i] || !room(js))
					continue;
				if (send_piece(j, i) < 0)
					return;
				more = true;
			}
		}
	}
	for (struct job *j = js->first; j; j = j->next) {
		settle(j);
		send_exit(j);
	}
}
