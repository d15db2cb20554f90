#include "brain/job-impl.h"

#include <fcntl.h>
#include <sys/stat.h>
#include "base/clock.h"
#include "base/file.h"
#include "base/sha256.h"
#include "brain/commit.h"
#include "brain/link.h"
#include "wire/wire.pb-c.h"

enum {
	START_MS = 15000,
	SETTLE_MS = 250,
	JOBS_KEPT = 256,
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

int job_open_files(struct job *j)
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

void job_send_input(struct job *j)
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

struct job *job_new(struct env *env, const char *id)
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

void job_link_in(struct job *j)
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

void job_tell(struct job *j, bool over)
{
	if (j->fn)
		j->fn(j, over, j->userdata);
}
