/* Jobs made again of their records: after limbd's restart, and long after their end. */
#include "brain/job-impl.h"

#include "base/clock.h"
#include "base/log.h"
#include "journal/record.pb-c.h"

static char *text_of(const ProtobufCBinaryData *b)
{
	return strndup(b->len ? (const char *)b->data : "", b->len);
}

static char *text_or_null(const char *s)
{
	return s && *s ? strdup(s) : NULL;
}

static int take_start(struct job *j, const struct index_job_record *in)
{
	Limb__Record *rec = limb__record__unpack(NULL, in->n, in->body);
	const Limb__JobStart *s;
	int r = -EBADMSG;

	if (!rec || rec->body_case != LIMB__RECORD__BODY_JOB_START)
		goto out;
	s = rec->job_start;
	j->incarnation = rec->incarnation;
	j->started_ns = in->time_ns;
	j->principal = text_or_null(rec->principal);
	j->key = text_or_null(s->key);
	j->shell = text_or_null(s->shell);
	j->cwd = text_of(&s->cwd);
	j->timeout_ms = s->timeout_ms;
	j->tty = s->tty;
	j->stdin_open = s->stdin_open;
	j->argv = calloc(s->n_argv + 1, sizeof(*j->argv));
	r = j->argv && j->cwd ? 0 : -ENOMEM;
	for (size_t i = 0; r == 0 && i < s->n_argv; i++) {
		j->argv[i] = text_of(&s->argv[i]);
		if (!j->argv[i])
			r = -ENOMEM;
	}
out:
	if (rec)
		limb__record__free_unpacked(rec, NULL);
	return r;
}

/* What stopped it from starting is known by the code that it got. */
static int error_of(const Limb__JobEnd *e)
{
	if (!e->error[0] || e->unknown)
		return 0;
	if (strcmp(e->error, "exec") != 0)
		return EIO;
	return e->exit_code == 127 ? ENOENT : e->exit_code == 126 ? EACCES : EIO;
}

static int take_end(struct job *j, const struct index_job_record *in)
{
	Limb__Record *rec = limb__record__unpack(NULL, in->n, in->body);
	const Limb__JobEnd *e;

	if (!rec || rec->body_case != LIMB__RECORD__BODY_JOB_END) {
		if (rec)
			limb__record__free_unpacked(rec, NULL);
		return -EBADMSG;
	}
	e = rec->job_end;
	j->ended = j->over = true;
	j->ended_ns = in->time_ns;
	j->seq = in->seq;
	j->error = error_of(e);
	j->exit_code = e->exit_code & 255;
	j->signal = (int)(e->signal & 127);
	j->timed_out = e->timed_out;
	j->unknown = e->unknown;
	j->background = e->background;
	j->duration_ms = e->duration_ms;
	j->left_out = e->truncated;
	j->out[0].total = e->stdout_bytes;
	j->out[1].total = e->stderr_bytes;
	j->error_detail = text_or_null(e->error);
	(void)snprintf(j->killed_by, sizeof(j->killed_by), "%s", e->killed_by);
	limb__record__free_unpacked(rec, NULL);
	return 0;
}

struct job *job_of_records(struct env *env, const struct index_job *in)
{
	char id[ENTRY_JOB_MAX + 1];
	struct job *j;
	int r;

	if (in->id_len >= sizeof(id))
		return NULL;
	(void)snprintf(id, sizeof(id), "%.*s", (int)in->id_len, in->id);
	j = job_new(env, id);
	if (!j)
		return NULL;
	j->recorded = j->sent = true;
	r = in->start.n ? take_start(j, &in->start) : -EBADMSG;
	if (r == 0 && in->end.seq)
		r = in->end.n ? take_end(j, &in->end) : -EBADMSG;
	if (r == 0)
		return j;
	job_free(j);
	return NULL;
}

int job_load(struct env *env, const char *id, struct job **ret)
{
	struct index_txn *t;
	struct index_job in;
	struct job *j = NULL;
	int r;

	r = env_read_begin(env, &t);
	if (r < 0)
		return -ENOENT; /* its journal cannot be opened: status says so */
	r = index_job(t, id, &in);
	if (r == 0) {
		j = job_of_records(env, &in);
		r = j ? 0 : -EBADMSG;
	}
	index_read_end(t);
	if (r < 0)
		return r;
	job_link_in(j);
	*ret = j;
	return 0;
}

static int resume_one(const struct index_job *in, void *userdata)
{
	struct env *env = userdata;
	struct job *j = job_of_records(env, in);

	if (!j) {
		log_warning("environment '%s': the record of job '%.*s' cannot be read", env->name,
			    (int)in->id_len, in->id);
		return 0;
	}
	/* Until its limb-syncd has said what became of it, it runs. */
	job_output_open(j);
	job_link_in(j);
	return 0;
}

void jobs_resume(struct env *env)
{
	struct index_txn *t;
	int r;

	r = env_read_begin(env, &t);
	if (r == 0) {
		r = index_jobs_open(t, resume_one, env);
		index_read_end(t);
	}
	if (r < 0)
		(void)log_warning_errno(r, "environment '%s': its jobs cannot be listed",
					env->name);
}
