#include "brain/job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/text.h"
#include "brain/commit.h"
#include "brain/link.h"
#include "brain/view.h"
#include "wire/wire.pb-c.h"

enum {
	START_MS = 15000,
	SETTLE_MS = 250,
	JOBS_KEPT = 256,
};

struct unsettled {
	char *path;
	size_t len;
	uint64_t size_bytes;
	int64_t since_ns;
};

struct job {
	struct job *next; /* brain->jobs */
	struct env *env;
	char id[ENTRY_JOB_MAX + 1];
	uint64_t incarnation;
	char **argv, **envp;
	char *cwd, *principal, *key;
	uint64_t timeout_ms;
	bool stdin_open, tty;
	bool recorded;	  /* JOB_START is durable */
	bool sent;	  /* the wire's JOB_START went out */
	uint64_t sent_in; /* ... in this session of the environment; 0: by an earlier limbd */
	bool started;
	bool ended; /* JOB_EXIT came, or it could not start */
	bool over;  /* its end is durable */

	int dir_fd, out_fd[2];
	uint64_t out_bytes[2];
	int64_t started_ns, ended_ns;

	/* its end */
	int exit_code, signal, error;
	bool timed_out, unknown, background;
	char killed_by[12];
	char *error_detail;
	uint64_t duration_ms, seq;
	struct unsettled *unsettled;
	size_t n_unsettled;
	bool view_behind;

	/* stdin that waits for the job's start */
	struct buf input;
	uint64_t input_sent;
	bool input_eof, input_eof_sent;

	job_watch_fn fn;
	void *userdata;
	unsigned refs; /* commits under way */
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

static void job_free(struct job *j)
{
	if (!j)
		return;
	strv_free(j->argv);
	strv_free(j->envp);
	free(j->cwd);
	free(j->principal);
	free(j->key);
	free(j->error_detail);
	for (size_t i = 0; i < j->n_unsettled; i++)
		free(j->unsettled[i].path);
	free(j->unsettled);
	buf_done(&j->input);
	for (size_t i = 0; i < 2; i++)
		if (j->out_fd[i] >= 0)
			(void)close(j->out_fd[i]);
	if (j->dir_fd >= 0)
		(void)close(j->dir_fd);
	free(j);
}

struct job *job_find(struct brain *b, const char *id)
{
	for (struct job *j = b->jobs; j; j = j->next)
		if (strcmp(j->id, id) == 0)
			return j;
	return NULL;
}

bool job_known(struct env *env, const char *id)
{
	struct job *j = job_find(env->brain, id);

	return j && j->env == env;
}

const char *job_id(const struct job *j)
{
	return j->id;
}

bool job_over(const struct job *j)
{
	return j->over;
}

uint64_t job_output_bytes(const struct job *j, int stream)
{
	return j->out_bytes[stream - 1];
}

int job_output_fd(const struct job *j, int stream)
{
	return j->out_fd[stream - 1] >= 0 ? j->out_fd[stream - 1] : -ENOENT;
}

int job_exit_code(const struct job *j)
{
	if (!j->over || j->unknown)
		return -1;
	/* Only what execve said of the command is 126 or 127; a bad directory is ours to say. */
	if (j->error && !(j->error_detail && strcmp(j->error_detail, "exec") == 0))
		return 125;
	if (j->error)
		return j->error == ENOENT			   ? 127
		       : j->error == EACCES || j->error == ENOEXEC ? 126
								   : 125;
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

static int job_open_files(struct job *j)
{
	static const char *const names[] = {"stdout", "stderr"};
	cleanup_close int jobs = -1;
	int r;

	r = file_make_dir(j->env->dir_fd, "jobs");
	if (r < 0)
		return r;
	jobs = file_open_dir(j->env->dir_fd, "jobs");
	if (jobs < 0)
		return jobs;
	if (mkdirat(jobs, j->id, 0700) < 0 && errno != EEXIST)
		return -errno;
	j->dir_fd = file_open_dir(jobs, j->id);
	if (j->dir_fd < 0)
		return j->dir_fd;
	for (size_t i = 0; i < 2; i++) {
		struct stat st;

		j->out_fd[i] = openat(j->dir_fd, names[i],
				      O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (j->out_fd[i] < 0 || fstat(j->out_fd[i], &st) < 0)
			return -errno;
		j->out_bytes[i] = (uint64_t)st.st_size;
	}
	return 0;
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

static void job_finish(struct job *j);

static void job_send_input(struct job *j)
{
	Limbwire__JobInput m = LIMBWIRE__JOB_INPUT__INIT;

	if (!j->started || j->ended || !link_up(j->env))
		return;
	m.job = j->id;
	while (buf_len(&j->input)) {
		size_t n = MIN(buf_len(&j->input), (size_t)(256 << 10));

		m.offset = j->input_sent;
		if (link_send(j->env, WIRE_JOB_INPUT, &m.base, buf_data(&j->input), n) < 0)
			return;
		j->input_sent += n;
		buf_consume(&j->input, n);
	}
	if (j->input_eof && !j->input_eof_sent) {
		m.offset = j->input_sent;
		m.eof = true;
		if (link_send(j->env, WIRE_JOB_INPUT, &m.base, NULL, 0) == 0)
			j->input_eof_sent = true;
	}
}

void job_input(struct job *j, const void *data, size_t n, bool eof)
{
	if (j->ended)
		return;
	if (n)
		(void)buf_add(&j->input, data, n);
	if (eof)
		j->input_eof = true;
	job_send_input(j);
}

void job_signal(struct job *j, int signo, const char *why)
{
	Limbwire__JobSignal m = LIMBWIRE__JOB_SIGNAL__INIT;

	if (j->ended)
		return;
	m.job = j->id;
	m.signal = (uint32_t)signo;
	m.why = (char *)why;
	(void)link_send(j->env, WIRE_JOB_SIGNAL, &m.base, NULL, 0);
}

static int job_send_start(struct job *j)
{
	Limbwire__JobStart m = LIMBWIRE__JOB_START__INIT;
	cleanup_free ProtobufCBinaryData *argv = NULL, *envp = NULL;

	argv = bytes_array(j->argv, &m.n_argv);
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
	m.stdin_open = j->stdin_open;
	m.settle_ms = SETTLE_MS;
	j->sent = true;
	j->sent_in = j->env->session;
	return link_send(j->env, WIRE_JOB_START, &m.base, NULL, 0);
}

static void job_cannot_start(struct job *j, int error, const char *detail)
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
	j->refs--;
	j->recorded = r == 0;
	if (r == 0)
		r = job_send_start(j);
	if (r < 0)
		job_cannot_start(j, EIO, "the environment's line fell before it could start");
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

static struct job *job_new(struct env *env, const char *id)
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->env = env;
	j->dir_fd = j->out_fd[0] = j->out_fd[1] = -1;
	buf_init(&j->input, 64 << 20);
	if (id)
		(void)snprintf(j->id, sizeof(j->id), "%s", id);
	else
		job_make_id(j->id, sizeof(j->id));
	j->incarnation = env->incarnation;
	j->started_ns = clock_real_ns();
	return j;
}

/* Ended jobs that nobody watches are kept in memory only so long; their files and records
 * stay. */
static void jobs_prune(struct brain *b)
{
	struct job **p = &b->jobs, *j;
	unsigned n = 0;

	while ((j = *p)) {
		if (j->over && !j->fn && !j->refs && ++n > JOBS_KEPT) {
			*p = j->next;
			job_free(j);
			continue;
		}
		p = &j->next;
	}
}

static void job_link_in(struct job *j)
{
	jobs_prune(j->env->brain);
	j->next = j->env->brain->jobs;
	j->env->brain->jobs = j;
}

int job_start(struct env *env, const struct job_spec *spec, job_watch_fn fn, void *userdata,
	      struct job **ret)
{
	struct job *j = job_new(env, NULL);
	char own[ENTRY_JOB_MAX + 16];
	int r = -ENOMEM;

	if (!j)
		return -ENOMEM;
	j->argv = strv_copy(spec->argv, NULL);
	(void)snprintf(own, sizeof(own), "LIMB_JOB=%s", j->id);
	j->envp = strv_copy(spec->env, own);
	j->cwd = strdup(spec->cwd);
	if (spec->principal)
		j->principal = strdup(spec->principal);
	if (spec->key)
		j->key = strdup(spec->key);
	if (!j->argv || !j->envp || !j->cwd)
		goto fail;
	j->timeout_ms = spec->timeout_ms;
	j->stdin_open = spec->stdin_open;
	j->tty = spec->tty;
	j->fn = fn;
	j->userdata = userdata;
	r = job_open_files(j);
	if (r < 0)
		goto fail;
	r = job_record_start(j);
	if (r < 0)
		goto fail;
	job_link_in(j);
	*ret = j;
	return 0;
fail:
	job_free(j);
	return r;
}

void job_unwatch(struct job *j)
{
	j->fn = NULL;
	j->userdata = NULL;
}

static void job_tell(struct job *j, bool over)
{
	if (j->fn)
		j->fn(j, over, j->userdata);
}

/* ---- ending ---- */

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
static void job_finish(struct job *j)
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

/* ---- JSON ---- */

static void put_text(json_t *o, const char *key, const void *data, size_t n)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	char key64[64];

	if (text_utf8_ok(data, n)) {
		(void)json_object_set_new(o, key, json_stringn(data, n));
		return;
	}
	if (text_utf8_replace(&b, data, n) == 0)
		(void)json_object_set_new(o, key,
					  json_stringn((const char *)buf_data(&b), buf_len(&b)));
	buf_clear(&b);
	(void)snprintf(key64, sizeof(key64), "%s_base64", key);
	if (text_base64(&b, data, n) == 0)
		(void)json_object_set_new(o, key64,
					  json_stringn((const char *)buf_data(&b), buf_len(&b)));
}

/* Head, a line that says what is left out, tail. */
static bool output_text(struct job *j, int s, uint64_t max, struct buf *out)
{
	uint64_t total = j->out_bytes[s], head = MIN(total, max), tail = 0;
	uint8_t *p;
	ssize_t n;

	if (total > max) {
		head = max / 2;
		tail = max - head;
	}
	if (buf_reserve(out, head + 1, &p) < 0)
		return false;
	n = io_pread_full(j->out_fd[s], p, head, 0, "job.read");
	buf_commit(out, n > 0 ? (size_t)n : 0);
	if (total <= max)
		return false;
	(void)buf_printf(out, "\n[%llu bytes left out]\n", (unsigned long long)(total - max));
	if (buf_reserve(out, tail + 1, &p) < 0)
		return true;
	n = io_pread_full(j->out_fd[s], p, tail, total - tail, "job.read");
	buf_commit(out, n > 0 ? (size_t)n : 0);
	return true;
}

static const char *signal_name(int sig, char *room, size_t size)
{
	const char *abbrev = sigabbrev_np(sig);

	if (abbrev)
		(void)snprintf(room, size, "SIG%s", abbrev);
	else
		(void)snprintf(room, size, "SIG%d", sig);
	return room;
}

/* Where it ran, as the environment's own absolute path. */
static void put_cwd(json_t *o, const struct job *j)
{
	cleanup_free char *path = NULL;
	const char *root = j->env->root ? j->env->root : "";
	int n;

	if (j->cwd[0] == '/')
		n = asprintf(&path, "%s", j->cwd);
	else
		n = asprintf(&path, "%s%s%s", root, *j->cwd ? "/" : "", j->cwd);
	if (n < 0) {
		path = NULL;
		return;
	}
	put_text(o, "cwd", path, (size_t)n);
}

json_t *job_json_exec(struct job *j, uint64_t max, bool with_output)
{
	static const char *const keys[] = {"stdout", "stderr"};
	json_t *o = json_object(), *list;
	bool truncated = false;
	char sig[24], when[CLOCK_TEXT_MAX];
	int code = job_exit_code(j);

	(void)json_object_set_new(o, "job_id", json_string(j->id));
	(void)json_object_set_new(o, "environment", json_string(j->env->name));
	(void)json_object_set_new(o, "incarnation", json_integer((json_int_t)j->incarnation));
	(void)json_object_set_new(o, "state",
				  json_string(!j->over	   ? "running"
					      : j->unknown ? "unknown"
							   : "exited"));
	if (code >= 0)
		(void)json_object_set_new(o, "exit_code", json_integer(code));
	if (j->over && j->signal && !j->timed_out)
		(void)json_object_set_new(o, "signal",
					  json_string(signal_name(j->signal, sig, sizeof(sig))));
	(void)json_object_set_new(o, "timed_out", json_boolean(j->timed_out));
	for (int s = 0; s < 2; s++) {
		_cleanup_(buf_done) struct buf b = BUF_INIT(0);

		if (with_output) {
			if (output_text(j, s, max, &b))
				truncated = true;
			put_text(o, keys[s], buf_data(&b), buf_len(&b));
		} else {
			(void)json_object_set_new(o, keys[s], json_string(""));
		}
	}
	(void)json_object_set_new(o, "truncated", json_boolean(truncated));
	(void)json_object_set_new(o, "stdout_bytes", json_integer((json_int_t)j->out_bytes[0]));
	(void)json_object_set_new(o, "stderr_bytes", json_integer((json_int_t)j->out_bytes[1]));
	(void)json_object_set_new(o, "duration_ms", json_integer((json_int_t)j->duration_ms));
	put_cwd(o, j);
	if (j->over && j->seq)
		(void)json_object_set_new(o, "seq", json_integer((json_int_t)j->seq));
	(void)json_object_set_new(o, "background", json_boolean(j->background));
	if (j->n_unsettled) {
		list = json_array();
		for (size_t i = 0; i < j->n_unsettled; i++) {
			json_t *u = json_object();

			put_text(u, "path", j->unsettled[i].path, j->unsettled[i].len);
			(void)json_object_set_new(
				u, "bytes", json_integer((json_int_t)j->unsettled[i].size_bytes));
			(void)json_object_set_new(
				u, "since_at",
				json_string(clock_format(when, j->unsettled[i].since_ns)));
			(void)json_array_append_new(list, u);
		}
		(void)json_object_set_new(o, "unsettled", list);
	}
	if (j->view_behind)
		(void)json_object_set_new(o, "mounts_behind", json_pack("[s]", view_path(j->env)));
	if (j->over && j->unknown) {
		(void)json_object_set_new(o, "error", json_string("outcome_unknown"));
		put_text(o, "detail", j->error_detail ? j->error_detail : "",
			 j->error_detail ? strlen(j->error_detail) : 0);
	}
	if (j->error) {
		(void)json_object_set_new(o, "error",
					  json_string(j->error == ENOENT    ? "file_not_found"
						      : j->error == EACCES  ? "permission_denied"
						      : j->error == ENOTDIR ? "not_directory"
						      : j->error == EXDEV || j->error == ELOOP
							      ? "invalid_path"
							      : "io_error"));
		put_text(o, "detail", j->error_detail ? j->error_detail : "",
			 j->error_detail ? strlen(j->error_detail) : 0);
	}
	return o;
}
