#include "brain/job-impl.h"

#include <signal.h>

#include "base/clock.h"
#include "base/sha256.h"
#include "brain/commit.h"
#include "brain/link.h"
#include "brain/shell.h"
#include "wire/wire.pb-c.h"

enum {
	SETTLE_MS = 250,
	JOBS_KEPT = 256,
	INPUT_BYTES = 256 << 10,
	WAITS_BYTES = 8 << 20, /* kept there of a stream whose reader is slower */
};

static void strv_free(char **v)
{
	for (char **p = v; p && *p; p++)
		free(*p);
	free(v);
}

/* A copy of v and, unless it is NULL, one more string. */
static char **strv_copy(char **v, const char *more)
{
	size_t n = 0, total;
	char **c;

	while (v && v[n])
		n++;
	total = n + (more != NULL);
	c = calloc(total + 1, sizeof(*c));
	for (size_t i = 0; c && i < total; i++) {
		c[i] = strdup(i < n ? v[i] : more);
		if (!c[i]) {
			strv_free(c);
			return NULL;
		}
	}
	return c;
}

void job_free(struct job *j)
{
	if (!j)
		return;
	strv_free(j->argv);
	strv_free(j->envp);
	strv_free(j->run);
	free(j->cwd);
	free(j->principal);
	free(j->key);
	free(j->shell);
	free(j->restart_of);
	free(j->error_detail);
	for (size_t i = 0; i < j->n_unsettled; i++)
		free(j->unsettled[i].path);
	free(j->unsettled);
	buf_done(&j->input);
	job_output_close(j);
	free(j);
}

struct job *job_find(struct brain *b, const char *id)
{
	for (struct job *j = b->jobs; j; j = j->next)
		if (strcmp(j->id, id) == 0)
			return j;
	return NULL;
}

int job_get(struct brain *b, const char *id, struct job **ret)
{
	struct job *j = job_find(b, id);
	int r = -ENOENT;

	if (j) {
		*ret = j;
		return 0;
	}
	for (struct env *env = b->envs; env && r == -ENOENT; env = env->next)
		r = job_load(env, id, ret);
	return r;
}

bool job_known(struct env *env, const char *id)
{
	struct job *j = job_find(env->brain, id);

	return j && j->env == env;
}

int job_by_key(struct env *env, const char *key, struct job **ret)
{
	char id[ENTRY_JOB_MAX + 1] = "";
	struct index_txn *t;
	const char *found;
	size_t n;
	int r;

	/* One whose record is not durable yet is in memory only. */
	for (struct job *j = env->brain->jobs; j; j = j->next) {
		if (j->env == env && j->key && strcmp(j->key, key) == 0) {
			*ret = j;
			return 0;
		}
	}
	r = env_read_begin(env, &t);
	if (r < 0)
		return r;
	r = index_job_by_key(t, key, &found, &n);
	if (r == 0 && n < sizeof(id))
		memcpy(id, found, n);
	index_read_end(t);
	return r < 0 ? r : job_load(env, id, ret);
}

bool job_is(const struct job *j, char *const *argv, const char *cwd)
{
	char **mine = j->argv;

	if (strcmp(j->cwd, cwd) != 0)
		return false;
	for (; *mine && *argv && strcmp(*mine, *argv) == 0; mine++, argv++)
		;
	return !*mine && !*argv;
}

struct env *job_env(const struct job *j)
{
	return j->env;
}

const char *job_id(const struct job *j)
{
	return j->id;
}

bool job_over(const struct job *j)
{
	return j->over;
}

bool job_has_terminal(const struct job *j)
{
	return j->tty;
}

bool job_reads_input(const struct job *j)
{
	return (j->stdin_open || j->tty) && !j->input_eof;
}

int job_error_code(const struct job *j)
{
	/* Only what execve said of the command is 126 or 127; a bad directory is ours to say. */
	if (!j->error_detail || strcmp(j->error_detail, "exec") != 0)
		return 125;
	return j->error == ENOENT ? 127 : j->error == EACCES || j->error == ENOEXEC ? 126 : 125;
}

int job_exit_code(const struct job *j)
{
	if (!j->over || j->unknown)
		return -1;
	if (j->error)
		return job_error_code(j);
	if (j->timed_out)
		return 124;
	return j->signal ? 128 + j->signal : j->exit_code;
}

unsigned jobs_running_in(const struct env *env)
{
	unsigned n = 0;

	for (struct job *j = env->brain->jobs; j; j = j->next)
		n += j->env == env && !j->ended;
	return n;
}

void jobs_kill(struct env *env)
{
	for (struct job *j = env->brain->jobs; j; j = j->next)
		if (j->env == env && !j->ended)
			(void)job_signal(j, SIGKILL, "limbfs");
}

/* ---- starting ---- */

static void job_make_id(char *out, size_t size)
{
	static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
	uint64_t ms = (uint64_t)(clock_real_ns() / 1000000);
	uint8_t rnd[8];
	char text[20];
	size_t n = 0;

	random_bytes(rnd, sizeof(rnd));
	for (int i = 8; i >= 0; i--)
		text[n++] = digits[(ms >> (5 * i)) & 31];
	for (size_t i = 0; i < sizeof(rnd); i++)
		text[n++] = digits[rnd[i] & 31];
	(void)snprintf(out, size, "j-%.*s", (int)n, text);
}

static ProtobufCBinaryData bytes_of(const char *s)
{
	return (ProtobufCBinaryData){strlen(s), (uint8_t *)s};
}

/* NULL-terminated strings as protobuf bytes; free the array only. */
static ProtobufCBinaryData *bytes_array(char **v, size_t *ret_n)
{
	ProtobufCBinaryData *a;
	size_t n = 0;

	while (v && v[n])
		n++;
	a = calloc(n + 1, sizeof(*a));
	for (size_t i = 0; a && i < n; i++)
		a[i] = bytes_of(v[i]);
	*ret_n = n;
	return a;
}

/* The buffer begins at input_had; what lies before input_sent is on its way. */
void job_send_input(struct job *j)
{
	Limbwire__JobInput m = LIMBWIRE__JOB_INPUT__INIT;
	uint64_t end = j->input_had + buf_len(&j->input);

	if (!j->started || j->ended || j->input_unknown || !link_up(j->env))
		return;
	m.job = j->id;
	while (j->input_sent < end) {
		size_t n = (size_t)MIN(end - j->input_sent, (uint64_t)INPUT_BYTES);

		m.offset = j->input_sent;
		if (link_send(j->env, WIRE_JOB_INPUT, &m.base,
			      buf_data(&j->input) + (j->input_sent - j->input_had), n) < 0)
			return;
		j->input_sent += n;
	}
	if (j->input_eof && !j->input_eof_sent) {
		m.offset = j->input_sent;
		m.eof = true;
		if (link_send(j->env, WIRE_JOB_INPUT, &m.base, NULL, 0) == 0)
			j->input_eof_sent = true;
	}
}

/* The environment has it up to here. The first time on a new line the rest goes again; what is
 * told of a job of an earlier limbd is where our input begins. */
void job_input_had(struct job *j, uint64_t bytes)
{
	uint64_t end = j->input_had + buf_len(&j->input);

	if (bytes >= j->input_had && bytes <= end)
		buf_consume(&j->input, (size_t)(bytes - j->input_had));
	else if (!j->input_unknown)
		return;
	j->input_had = bytes;
	j->input_sent = MAX(j->input_sent, bytes);
	if (j->input_unknown) {
		j->input_unknown = j->input_eof_sent = false;
		j->input_sent = bytes;
	}
	job_send_input(j);
	job_tell(j, JOB_INPUT);
}

int job_input(struct job *j, const void *data, size_t n, bool eof)
{
	if (j->ended || !job_reads_input(j))
		return -EPIPE;
	if (n && buf_add(&j->input, data, n) < 0)
		return -ENOBUFS;
	if (eof)
		j->input_eof = true;
	job_send_input(j);
	return 0;
}

size_t job_input_waiting(const struct job *j)
{
	return buf_len(&j->input);
}

static int send_signal(struct job *j, int signo, bool tree, const char *why)
{
	Limbwire__JobSignal m = LIMBWIRE__JOB_SIGNAL__INIT;

	if (j->ended)
		return -ESRCH;
	/* Its JOB_START waits to be durable; the environment does not know it yet. */
	if (!j->sent) {
		if (j->early.signo != SIGKILL) {
			j->early.signo = signo;
			j->early.tree = tree;
			j->early.why = why;
		}
		return 0;
	}
	m.job = j->id;
	m.signal = (uint32_t)signo;
	m.tree = tree;
	m.why = (char *)why;
	return link_send(j->env, WIRE_JOB_SIGNAL, &m.base, NULL, 0);
}

int job_signal(struct job *j, int signo, const char *why)
{
	return send_signal(j, signo, false, why);
}

int job_end(struct job *j, int signo, const char *why)
{
	return send_signal(j, signo, true, why);
}

int job_resize(struct job *j, uint32_t rows, uint32_t cols)
{
	Limbwire__JobSignal m = LIMBWIRE__JOB_SIGNAL__INIT;

	if (j->ended || !j->tty)
		return -ESRCH;
	j->rows = rows;
	j->cols = cols;
	if (!j->sent)
		return 0;
	m.job = j->id;
	m.rows = rows;
	m.cols = cols;
	return link_send(j->env, WIRE_JOB_SIGNAL, &m.base, NULL, 0);
}

static int job_send_start(struct job *j)
{
	Limbwire__JobStart m = LIMBWIRE__JOB_START__INIT;
	cleanup_free ProtobufCBinaryData *argv = NULL, *envp = NULL;

	argv = bytes_array(j->run ? j->run : j->argv, &m.n_argv);
	envp = bytes_array(j->envp, &m.n_env);
	if (!argv || !envp)
		return -ENOMEM;
	m.job = j->id;
	/* Answered by job; nobody waits for this number, but 0 would mean: no answer. */
	m.request = UINT64_MAX;
	m.argv = argv;
	m.env = envp;
	m.cwd = bytes_of(j->cwd);
	m.timeout_ms = j->timeout_ms;
	m.tty = j->tty;
	m.rows = j->rows;
	m.cols = j->cols;
	m.stdin_open = j->stdin_open;
	m.settle_ms = SETTLE_MS;
	m.output_limit_bytes = j->waits ? WAITS_BYTES : JOB_KEPT_BYTES;
	m.output_waits = j->waits;
	j->sent = true;
	j->sent_in = j->env->session;
	return link_send(j->env, WIRE_JOB_START, &m.base, NULL, 0);
}

void job_cannot_start(struct job *j, int error, const char *detail)
{
	j->ended = true;
	j->error = error;
	j->ended_ns = clock_real_ns();
	free(j->error_detail);
	j->error_detail = strdup(detail);
	job_finish(j);
}

static void job_recorded(int r, uint64_t seq, void *userdata)
{
	struct job *j = userdata;

	(void)seq;
	if (job_gone(j))
		return;
	j->recorded = r == 0;
	if (r == 0)
		r = job_send_start(j);
	if (r < 0)
		job_cannot_start(j, EIO, "the environment's line fell before it could start");
	else if (j->early.signo)
		(void)send_signal(j, j->early.signo, j->early.tree, j->early.why);
}

static int job_record_start(struct job *j)
{
	Limb__Record rec = LIMB__RECORD__INIT;
	Limb__JobStart s = LIMB__JOB_START__INIT;
	cleanup_free ProtobufCBinaryData *argv = NULL;
	cleanup_free char **names = NULL;
	cleanup_free char *text = NULL;
	size_t n = 0, bytes = 0, used = 0;
	int r;

	argv = bytes_array(j->argv, &s.n_argv);
	for (; j->envp[n]; n++)
		bytes += strlen(j->envp[n]) + 1;
	names = calloc(n + 1, sizeof(*names));
	text = malloc(bytes + 1);
	if (!argv || !names || !text)
		return -ENOMEM;
	/* Names of variables only: a value may be a secret. */
	for (size_t i = 0; i < n; i++) {
		size_t len = strcspn(j->envp[i], "=");

		names[i] = text + used;
		memcpy(names[i], j->envp[i], len);
		names[i][len] = 0;
		used += len + 1;
	}
	s.argv = argv;
	s.cwd = bytes_of(j->cwd);
	s.env_names = names;
	s.n_env_names = n;
	s.timeout_ms = j->timeout_ms;
	s.tty = j->tty;
	s.key = j->key ? j->key : (char *)"";
	s.shell = j->shell ? j->shell : (char *)"";
	s.stdin_open = j->stdin_open;
	s.restart_of = j->restart_of ? j->restart_of : (char *)"";
	rec.job = j->id;
	rec.principal = j->principal ? j->principal : (char *)"";
	rec.origin = LIMB__ORIGIN__ORIGIN_BRAIN;
	rec.body_case = LIMB__RECORD__BODY_JOB_START;
	rec.job_start = &s;
	r = commit_submit(j->env, RECORD_JOB_START, &rec, job_recorded, j);
	if (r == 0)
		j->refs++;
	return r;
}

struct job *job_new(struct env *env, const char *id)
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->env = env;
	j->dir_fd = j->steps_fd = j->out[0].fd = j->out[1].fd = -1;
	buf_init(&j->input, 64 << 20);
	if (id)
		(void)snprintf(j->id, sizeof(j->id), "%s", id);
	else
		job_make_id(j->id, sizeof(j->id));
	j->incarnation = env->incarnation;
	j->started_ns = clock_real_ns();
	return j;
}

/* Ended jobs that nobody watches keep no descriptor, and are kept in memory only so long; their
 * files and records stay. */
static void jobs_prune(struct brain *b)
{
	struct job **p = &b->jobs, *j;
	unsigned n = 0;

	while ((j = *p)) {
		bool idle = j->over && !j->watches && !j->refs;

		if (idle && ++n > JOBS_KEPT) {
			*p = j->next;
			job_free(j);
			continue;
		}
		if (idle)
			job_output_close(j);
		p = &j->next;
	}
}

void job_link_in(struct job *j)
{
	jobs_prune(j->env->brain);
	j->next = j->env->brain->jobs;
	j->env->brain->jobs = j;
}

static char *copy(const char *s, bool *ok)
{
	char *c = s ? strdup(s) : NULL;

	*ok = *ok && (c || !s);
	return c;
}

int job_start(struct env *env, const struct job_spec *spec, struct job **ret)
{
	struct job *j = env->no_jobs || env->paused ? NULL : job_new(env, NULL);
	char own[ENTRY_JOB_MAX + 16];
	bool ok = true;
	int r = -ENOMEM;

	if (env->no_jobs || env->paused)
		return -EBUSY;
	if (!j)
		return -ENOMEM;
	j->argv = strv_copy(spec->argv, NULL);
	(void)snprintf(own, sizeof(own), "LIMB_JOB=%s", j->id);
	j->envp = strv_copy(spec->env, own);
	j->cwd = copy(spec->cwd, &ok);
	j->principal = copy(spec->principal, &ok);
	j->key = copy(spec->key, &ok);
	j->shell = copy(spec->shell, &ok);
	j->restart_of = copy(spec->restart_of, &ok);
	j->timeout_ms = spec->timeout_ms;
	j->stdin_open = spec->stdin_open;
	j->tty = spec->tty;
	j->waits = spec->waits;
	j->rows = spec->rows;
	j->cols = spec->cols;
	j->opened = true; /* there is no output yet */
	if (spec->shell) {
		j->run = shell_argv(env->inner_dir, spec->shell,
				    spec->shell_interactive ? NULL : spec->argv, spec->shell_set,
				    *spec->cwd);
		ok = ok && j->run;
	}
	if (ok && j->argv && j->envp)
		r = job_record_start(j);
	if (r < 0) {
		job_free(j);
		return r;
	}
	job_link_in(j);
	*ret = j;
	return 0;
}

/* ---- watching ---- */

void job_watch(struct job *j, struct job_watch *w)
{
	w->job = j;
	w->next = j->watches;
	j->watches = w;
}

void job_unwatch(struct job_watch *w)
{
	struct job *j = w->job;
	struct job_watch **p;

	if (!j)
		return;
	for (p = &j->watches; *p != w; p = &(*p)->next)
		;
	*p = w->next;
	w->job = NULL;
	/* What waited for it goes on. */
	if (j->waits && !j->ended && link_up(j->env))
		(void)job_output_ack(j, true);
}

void job_taken(struct job_watch *w)
{
	if (w->job->waits && !w->job->ended && link_up(w->job->env))
		(void)job_output_ack(w->job, false);
}

void job_tell(struct job *j, enum job_event event)
{
	for (struct job_watch *w = j->watches, *next; w; w = next) {
		next = w->next;
		w->fn(w, event);
	}
}
