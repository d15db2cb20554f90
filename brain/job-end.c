/* Jobs while they run and when they end: output, exit, what an earlier limbd left. */
#include "brain/job-impl.h"

#include "base/clock.h"
#include "brain/commit.h"
#include "brain/intake.h"
#include "brain/link.h"
#include "brain/view.h"
#include "wire/wire.pb-c.h"

bool job_gone(struct job *j)
{
	j->refs--;
	if (!j->gone)
		return false;
	if (!j->refs)
		job_free(j);
	return true;
}

static void job_seen(struct env *env, bool behind, void *userdata)
{
	struct job *j = userdata;
	Limbwire__JobForget m = LIMBWIRE__JOB_FORGET__INIT;

	if (job_gone(j))
		return;
	j->over = true;
	j->view_behind = behind;
	m.job = j->id;
	(void)link_send(env, WIRE_JOB_FORGET, &m.base, NULL, 0);
	job_tell(j, JOB_OVER);
}

static void job_end_durable(int r, uint64_t seq, void *userdata)
{
	struct job *j = userdata;

	if (job_gone(j))
		return;
	if (r < 0) {
		j->unknown = true;
		j->over = true;
		job_tell(j, JOB_OVER);
		return;
	}
	j->seq = seq;
	if (j->dir_fd >= 0)
		job_output_keep(j->env);
	j->refs++;
	view_wait_seen(j->env, seq, job_seen, j);
}

/* Everything about the end is known: record it once. */
void job_finish(struct job *j)
{
	Limb__Record rec = LIMB__RECORD__INIT;
	Limb__JobEnd e = LIMB__JOB_END__INIT;

	j->ended = true;
	/* What could not start has the code that exec gives for it. */
	e.exit_code = j->error ? job_error_code(j) : j->exit_code;
	e.signal = (uint32_t)j->signal;
	e.timed_out = j->timed_out;
	e.unknown = j->unknown;
	e.killed_by = j->killed_by;
	e.stdout_bytes = j->out[0].total;
	e.stderr_bytes = j->out[1].total;
	e.truncated = j->left_out;
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

int job_on_output(struct env *env, const struct entry_head *e)
{
	const struct entry_job_output *m = (const struct entry_job_output *)e;
	struct job *j = job_find(env->brain, m->job);
	int r;

	if (!j || j->env != env || j->over || m->stream < 1 || m->stream > 2)
		return 0;
	r = job_output_add(j, (int)m->stream, m->offset, entry_tail(m), m->len);
	if (r < 0) {
		(void)env_set_reason(env, "no_space", "cannot keep a job's output: %s",
				     strerror(-r));
		return r;
	}
	(void)job_output_ack(j, false);
	job_tell(j, JOB_MORE);
	return 0;
}

int job_on_input(struct env *env, const struct entry_head *e)
{
	const struct entry_job_input *m = (const struct entry_job_input *)e;
	struct job *j = job_find(env->brain, m->job);

	if (j && j->env == env)
		job_input_had(j, m->bytes);
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
	int r;

	r = intake_check_number(env, m->number);
	if (r < 0)
		return r;
	if (!j || j->env != env || j->over) {
		if (env->failed) /* maybe not recorded: it stays there for the next limbd */
			return 0;
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
	/* All output came before; what is counted beyond it was left out there. */
	for (int i = 0; i < 2; i++) {
		uint64_t total = i ? m->stderr_bytes : m->stdout_bytes;

		j->left_out |= total > j->out[i].total;
		j->out[i].total = MAX(j->out[i].total, total);
	}
	j->ended_ns = m->ended_ns;
	memcpy(j->killed_by, m->killed_by, sizeof(j->killed_by));
	j->killed_by[sizeof(j->killed_by) - 1] = 0;
	job_take_unsettled(j, e);
	/* What it deleted is meant. One that failed may have had its root deleted. */
	if (!j->unknown && j->exit_code == 0 && j->signal == 0)
		env->run = (struct removal_run){0};
	job_finish(j);
	return 0;
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
	for (struct job *j = env->brain->jobs; j; j = j->next) {
		/* JOB_LIST was made before what this session started. */
		if (j->env != env || j->ended || !j->sent || j->sent_in == env->session)
			continue;
		if (job_listed(l, j->id)) {
			j->started = true;
			(void)job_output_ack(j, true);
			/* JOB_INPUT_HAD says where to go on. */
			j->input_unknown = true;
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
		j->unknown |= !j->over;
		j->over = true;
		job_tell(j, JOB_GONE);
		j->gone = true;
		if (!j->refs)
			job_free(j);
	}
}
