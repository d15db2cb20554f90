/* What an environment says of jobs and processes. */
#include "brain/ingest-parts.h"

/* All arguments of a PS_DONE are shorter than its body: beside the structs they fit. */
_Static_assert(sizeof(struct entry_ps_done) + WIRE_BODY_MAX +
			       ENTRY_PROCESSES_MAX * (sizeof(struct entry_process) + 8) <
		       ENTRY_MAX,
	       "PS_DONE");

int ingest_job_id(struct ingest *in, const char *job, bool optional, char out[ENTRY_JOB_MAX + 1])
{
	size_t n = strspn(job, "abcdefghijklmnopqrstuvwxyz0123456789-");

	if (job[n] != '\0' || n > ENTRY_JOB_MAX || (n == 0 && !optional))
		return ingest_hostile(in, "wrong id of a job");
	memset(out, 0, ENTRY_JOB_MAX + 1);
	memcpy(out, job, n);
	return 0;
}

/* A text into a field of fixed size, cut. */
static void text_field(const char *s, char *out, size_t size)
{
	memcpy(out, s, strnlen(s, size - 1));
}

int ingest_on_job_started(struct ingest *in, const void *msg, const struct wframe *f)
{
	const Limbwire__JobStarted *m = msg;
	struct entry_job e = {
		.request = m->request,
		.pid = m->pid,
		.error = m->error,
		.detail_len = ingest_text_len(m->detail),
	};
	int r;

	if (m->request == 0)
		return ingest_hostile(in, "JOB_STARTED: no request");
	r = ingest_job_id(in, m->job, false, e.job);
	if (r < 0)
		return r;
	return entry_add(&in->held, ENTRY_JOB_STARTED, &e, sizeof(e), m->detail, e.detail_len);
}

int ingest_on_job_output(struct ingest *in, const void *msg, const struct wframe *f)
{
	const Limbwire__JobOutput *m = msg;
	struct entry_job_output e = {
		.stream = m->stream,
		.eof = m->eof,
		.offset = m->offset,
		.len = f->bulk_len,
	};
	int r;

	r = ingest_job_id(in, m->job, false, e.job);
	if (r < 0)
		return r;
	if (m->stream != 1 && m->stream != 2)
		return ingest_hostile(in, "JOB_OUTPUT: unknown stream");
	if (m->offset > (uint64_t)INT64_MAX - f->bulk_len)
		return ingest_hostile(in, "JOB_OUTPUT: offset out of range");
	return entry_add(&in->held, ENTRY_JOB_OUTPUT, &e, sizeof(e), f->bulk, f->bulk_len);
}

int ingest_on_job_input(struct ingest *in, const void *msg, const struct wframe *f)
{
	const Limbwire__JobInputHad *m = msg;
	struct entry_job_input e = {.bytes = m->bytes};
	int r;

	r = ingest_job_id(in, m->job, false, e.job);
	if (r < 0)
		return r;
	if (m->bytes > (uint64_t)INT64_MAX)
		return ingest_hostile(in, "JOB_INPUT_HAD: offset out of range");
	return entry_add(&in->held, ENTRY_JOB_INPUT, &e, sizeof(e), NULL, 0);
}

int ingest_on_job_exit(struct ingest *in, const void *msg, const struct wframe *f)
{
	const Limbwire__JobExit *m = msg;
	struct entry_job e = {
		.stdout_bytes = m->stdout_bytes,
		.stderr_bytes = m->stderr_bytes,
		.duration_ms = m->duration_ms,
		.number = m->number,
		.started_ns = m->started_ns,
		.ended_ns = m->ended_ns,
		.exit_code = m->exit_code,
		.signal = m->signal,
		.timed_out = m->timed_out,
		.unknown = m->unknown,
		.background = m->background,
		.n_unsettled = ingest_at_most(m->n_unsettled, ENTRY_UNSETTLED_MAX),
	};
	size_t at;
	int r;

	r = ingest_job_id(in, m->job, false, e.job);
	if (r < 0)
		return r;
	text_field(m->killed_by, e.killed_by, sizeof(e.killed_by));
	r = entry_begin(&in->held, ENTRY_JOB_EXIT, &e, sizeof(e), &at);
	if (r >= 0)
		r = ingest_add_unsettled(in, m->unsettled, m->n_unsettled);
	return r < 0 ? r : entry_end(&in->held, at);
}

int ingest_on_job_list(struct ingest *in, const void *msg, const struct wframe *f)
{
	const Limbwire__JobList *m = msg;
	struct entry_job_list e = {.n = (uint32_t)m->n_jobs};
	size_t at;
	int r;

	if (m->n_jobs > ENTRY_JOBS_MAX)
		return ingest_hostile(in, "JOB_LIST: %zu jobs", m->n_jobs);
	r = entry_begin(&in->held, ENTRY_JOB_LIST, &e, sizeof(e), &at);
	for (size_t i = 0; i < m->n_jobs && r >= 0; i++) {
		const Limbwire__JobList__Job *j = m->jobs[i];
		struct entry_job_known known = {
			.stdout_bytes = j->stdout_bytes,
			.stderr_bytes = j->stderr_bytes,
			.pid = j->pid,
			.running = j->running,
		};

		r = ingest_job_id(in, j->job, false, known.job);
		if (r >= 0)
			r = buf_add(&in->held, &known, sizeof(known));
	}
	return r < 0 ? r : entry_end(&in->held, at);
}

/* Arguments, each ended by NUL, cut to what an entry holds. */
static int put_argv(struct ingest *in, const Limbwire__PsDone__Process *p, char out[ENTRY_ARGV_MAX],
		    uint32_t *ret_n)
{
	size_t n = 0;

	for (size_t i = 0; i < p->n_argv && n < ENTRY_ARGV_MAX; i++) {
		const ProtobufCBinaryData *arg = &p->argv[i];
		size_t part = MIN(arg->len, ENTRY_ARGV_MAX - n - 1);

		if (part && memchr(arg->data, '\0', part))
			return ingest_hostile(in, "PS_DONE: NUL in an argument");
		if (part)
			memcpy(out + n, arg->data, part);
		n += part;
		out[n++] = '\0';
	}
	*ret_n = (uint32_t)n;
	return 0;
}

static int add_process(struct ingest *in, const Limbwire__PsDone__Process *p)
{
	struct entry_process e = {
		.pid = p->pid,
		.ppid = p->ppid,
		.memory_bytes = p->memory_bytes,
		.started_ns = p->started_ns,
	};
	char argv[ENTRY_ARGV_MAX];
	int r;

	r = ingest_job_id(in, p->job, true, e.job);
	if (r >= 0)
		r = put_argv(in, p, argv, &e.argv_len);
	if (r < 0)
		return r;
	text_field(p->state, e.state, sizeof(e.state));
	e.length = (uint32_t)ALIGN_UP(sizeof(e) + e.argv_len, (size_t)8);
	return entry_add_part(&in->held, &e, sizeof(e), argv, e.argv_len, NULL, 0);
}

int ingest_on_ps_done(struct ingest *in, const void *msg, const struct wframe *f)
{
	const Limbwire__PsDone *m = msg;
	struct entry_ps_done e = {
		.request = m->request,
		.n = ingest_at_most(m->n_processes, ENTRY_PROCESSES_MAX),
	};
	size_t at;
	int r;

	if (m->request == 0)
		return ingest_hostile(in, "PS_DONE: no request");
	r = entry_begin(&in->held, ENTRY_PS_DONE, &e, sizeof(e), &at);
	for (size_t i = 0; i < e.n && r >= 0; i++)
		r = add_process(in, m->processes[i]);
	return r < 0 ? r : entry_end(&in->held, at);
}
