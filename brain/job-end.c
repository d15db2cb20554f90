/* Jobs while they run and when they end: output, exit, what an earlier limbd left. */
#include "brain/job-impl.h"

#include <fcntl.h>
#include <signal.h>
#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "brain/commit.h"
#include "brain/link.h"
#include "brain/view.h"
#include "wire/wire.pb-c.h"

static void job_seen(struct env *env, bool behind, void *userdata)
{
	struct job *j = userdata;
	Limbwire__JobForget m = LIMBWIRE__JOB_FORGET__INIT;

	j->refs--;
	j->over = true;
	j->view_behind = behind;
	m.job = j->id;
	(void)link_send(env, WIRE_JOB_FORGET, &m.base, NULL, 0);
	job_tell(j, true);
}

static void job_end_durable(int r, uint64_t seq, void *userdata)
{
	struct job *j = userdata;

	j->refs--;
	if (r < 0) {
		j->unknown = true;
		j->over = true;
		job_tell(j, true);
		return;
	}
	j->seq = seq;
	/* A later limbd need not ask what became of it. Lost with the power it is only asked again. */
	(void)close(openat(j->dir_fd, "ended", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	j->refs++;
	view_wait_seen(j->env, seq, job_seen, j);
}

/* Everything about the end is known: record it once. */
void job_finish(struct job *j)
{
	Limb__Record rec = LIMB__RECORD__INIT;
	Limb__JobEnd e = LIMB__JOB_END__INIT;

	j->ended = true;
	e.exit_code = j->exit_code;
	e.signal = (uint32_t)j->signal;
	e.timed_out = j->timed_out;
	e.unknown = j->unknown;
	e.killed_by = j->killed_by;
	e.stdout_bytes = j->out_bytes[0];
	e.stderr_bytes = j->out_bytes[1];
	e.duration_ms = j->duration_ms;
	e.background = j->background;
	e.error = j->error_detail ? j->error_detail : (char *)"";
	rec.job = j->id;
	rec.incarnation = j->incarnation;
	rec.principal = j->principal ? j->principal : (char *)"";
	rec.origin = LIMB__ORIGIN__ORIGIN_BRAIN;
	rec.body_case = LIMB__RECORD__BODY_JOB_END;
	rec.job_end = &e;
	j->refs++;
	if (commit_submit(j->env, RECORD_JOB_END, &rec, job_end_durable, j) < 0)
		job_end_durable(-EIO, 0, j);
}

int job_on_started(struct env *env, const struct entry_head *e)
{
	const struct entry_job *m = (const struct entry_job *)e;
	struct job *j = job_find(env->brain, m->job);
	cleanup_free char *detail = NULL;

	if (!j || j->env != env || j->ended)
		return 0;
	if (m->error) {
		detail = strndup(entry_tail(m), MIN(m->detail_len, (uint32_t)ENTRY_TEXT_MAX));
		job_cannot_start(j, m->error, detail ? detail : "cannot start");
		return 0;
	}
	j->started = true;
	job_send_input(j);
	return 0;
}

static int job_ack(struct job *j)
{
	Limbwire__JobAck m = LIMBWIRE__JOB_ACK__INIT;

	m.job = j->id;
	m.stdout_offset = j->out_bytes[0];
	m.stderr_offset = j->out_bytes[1];
	return link_send(j->env, WIRE_JOB_ACK, &m.base, NULL, 0);
}

int job_on_output(struct env *env, const struct entry_head *e)
{
	const struct entry_job_output *m = (const struct entry_job_output *)e;
	struct job *j = job_find(env->brain, m->job);
	uint64_t have, skip;
	int s, r;

	if (!j || j->env != env || j->over || m->stream < 1 || m->stream > 2)
		return 0;
	s = (int)m->stream - 1;
	have = j->out_bytes[s];
	if (m->offset > have)
		return -EPROTO; /* a gap: it was never sent */
	skip = have - m->offset;
	if (skip >= m->len)
		return 0;
	r = io_pwrite_full(j->out_fd[s], (const uint8_t *)entry_tail(m) + skip, m->len - skip, have,
			   "job.output");
	if (r < 0) {
		(void)env_set_reason(env, "no_space", "cannot keep a job's output: %s",
				     strerror(-r));
		return r;
	}
	j->out_bytes[s] += m->len - skip;
	/* An acknowledgement a MiB is enough; the rest goes with the end. */
	if (have >> 20 != j->out_bytes[s] >> 20)
		(void)job_ack(j);
	job_tell(j, false);
	return 0;
}

static void job_take_unsettled(struct job *j, const struct entry_head *e)
{
	const struct entry_unsettled *u;
	struct entry_cursor c;
	const char *path;

	entry_cursor_init(&c, e);
	while (entry_next_unsettled(&c, &u, &path)) {
		struct unsettled *p = reallocarray(j->unsettled, j->n_unsettled + 1, sizeof(*p));

		if (!p)
			return;
		j->unsettled = p;
		p += j->n_unsettled;
		p->path = malloc(u->len + 1);
		if (!p->path)
			return;
		memcpy(p->path, path, u->len);
		p->path[u->len] = 0;
		p->len = u->len;
		p->size_bytes = u->size_bytes;
		p->since_ns = u->since_ns;
		j->n_unsettled++;
	}
}

int job_on_exit(struct env *env, const struct entry_head *e)
{
	const struct entry_job *m = (const struct entry_job *)e;
	struct job *j = job_find(env->brain, m->job);
	Limbwire__JobForget f = LIMBWIRE__JOB_FORGET__INIT;

	if (!j || j->env != env || j->over) {
		f.job = (char *)m->job;
		return link_send(env, WIRE_JOB_FORGET, &f.base, NULL, 0);
	}
	if (j->ended)
		return 0;
	j->exit_code = m->exit_code & 255;
	j->signal = (int)(m->signal & 127);
	j->timed_out = m->timed_out;
	j->unknown = m->unknown;
	j->background = m->background;
	j->duration_ms = m->duration_ms;
	j->ended_ns = m->ended_ns;
	memcpy(j->killed_by, m->killed_by, sizeof(j->killed_by));
	j->killed_by[sizeof(j->killed_by) - 1] = 0;
	job_take_unsettled(j, e);
	job_finish(j);
	return 0;
}

/* A job that an earlier limbd started: its files are here, its record is in the log. */
static void job_adopt(struct env *env, const struct entry_job_known *k)
{
	char path[ENTRY_JOB_MAX + 8];
	struct job *j;

	(void)snprintf(path, sizeof(path), "jobs/%s", k->job);
	if (strchr(k->job, '/') || faccessat(env->dir_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	j = job_new(env, k->job);
	if (!j)
		return;
	j->cwd = strdup("");
	j->recorded = j->sent = j->started = true;
	if (!j->cwd || job_open_files(j) < 0) {
		job_free(j);
		return;
	}
	job_link_in(j);
}

static void job_end_unknown(struct job *j)
{
	j->unknown = true;
	free(j->error_detail);
	j->error_detail =
		strdup("its environment was lost while it ran; whether it finished is not known");
	j->ended_ns = clock_real_ns();
	job_finish(j);
}

/* Once after limbd's start: jobs of an earlier limbd whose end was never recorded. */
static void job_adopt_unended(struct env *env)
{
	char **names, path[ENTRY_JOB_MAX + 16];
	size_t n;

	if (env->jobs_checked || file_list(env->dir_fd, "jobs", 1 << 20, &names, &n) < 0)
		return;
	env->jobs_checked = true;
	for (size_t i = 0; i < n; i++) {
		struct entry_job_known k = {0};

		if (strlen(names[i]) > ENTRY_JOB_MAX || job_find(env->brain, names[i]))
			continue;
		(void)snprintf(path, sizeof(path), "jobs/%s/ended", names[i]);
		if (faccessat(env->dir_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			continue;
		(void)snprintf(k.job, sizeof(k.job), "%s", names[i]);
		job_adopt(env, &k);
	}
	file_names_free(names, n);
}

static bool job_listed(const struct entry_job_list *l, const char *id)
{
	const struct entry_job_known *k = entry_tail(l);

	for (uint32_t i = 0; i < l->n; i++)
		if (strcmp(k[i].job, id) == 0)
			return true;
	return false;
}

/* What limb-syncd holds. A job that we know and it does not is over, its outcome unknown; one
 * whose START was recorded but never sent was never run, and never runs by itself. */
int job_on_list(struct env *env, const struct entry_head *e)
{
	const struct entry_job_list *l = (const struct entry_job_list *)e;
	const struct entry_job_known *k = entry_tail(l);

	for (uint32_t i = 0; i < l->n; i++)
		if (!job_find(env->brain, k[i].job))
			job_adopt(env, &k[i]);
	job_adopt_unended(env);
	for (struct job *j = env->brain->jobs; j; j = j->next) {
		/* JOB_LIST was made before what this session started. */
		if (j->env != env || j->ended || !j->sent || j->sent_in == env->session)
			continue;
		if (job_listed(l, j->id)) {
			j->started = true;
			(void)job_ack(j);
			job_send_input(j);
			continue;
		}
		job_end_unknown(j);
	}
	return 0;
}

void jobs_lost(struct env *env)
{
	for (struct job *j = env->brain->jobs; j; j = j->next)
		if (j->env == env && !j->ended && j->recorded)
			job_end_unknown(j);
}

void job_line_lost(struct env *env)
{
	/* Jobs run on; JOB_LIST after the next WELCOME says which. */
	(void)env;
}

void jobs_drop_env(struct env *env)
{
	struct job **p = &env->brain->jobs, *j;

	while ((j = *p)) {
		if (j->env != env) {
			p = &j->next;
			continue;
		}
		*p = j->next;
		if (!j->over) {
			j->unknown = true;
			j->over = true;
			job_tell(j, true);
		}
		job_free(j);
	}
}
