/* The contract's `exec` and JOB objects. */
#include "brain/job-impl.h"

#include "base/clock.h"
#include "base/text.h"
#include "brain/view.h"

enum { READ_BYTES = 256 << 10 };

void job_put_text(json_t *o, const char *key, const void *data, size_t n)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	char key64[64];

	if (n == 0 || text_utf8_ok(data, n)) {
		(void)json_object_set_new(o, key, json_stringn(n ? data : "", n));
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

/* Appends from *at on, until `to` or where something was left out: true, and *at is behind it. */
static bool read_kept(struct job *j, int stream, uint64_t *at, uint64_t to, struct buf *out)
{
	uint64_t next;
	uint8_t *p;
	ssize_t n;

	while (*at < to) {
		size_t want = (size_t)MIN(to - *at, (uint64_t)READ_BYTES);

		if (buf_reserve(out, want, &p) < 0)
			return false;
		n = job_output_read(j, stream, *at, p, want, &next);
		if (n > 0) {
			buf_commit(out, (size_t)n);
			*at += (uint64_t)n;
		} else if (n == 0 && next > *at) {
			*at = next;
			return true;
		} else {
			return false;
		}
	}
	return false;
}

/* Head, a line that says what is left out, tail. */
static bool output_text(struct job *j, int stream, uint64_t max, struct buf *out)
{
	_cleanup_(buf_done) struct buf tail = BUF_INIT(0);
	uint64_t total = job_output_bytes(j, stream), at = 0, head_end, from;

	if (total <= max && !read_kept(j, stream, &at, total, out))
		return false;
	if (total > max)
		(void)read_kept(j, stream, &at, max / 2, out);
	head_end = buf_len(out);
	/* The tail is what there is in one piece up to the end. */
	at = MAX(at, total - MIN(total, max - max / 2));
	for (from = at; read_kept(j, stream, &at, total, &tail); from = at)
		buf_clear(&tail);
	(void)buf_printf(out, "\n[%llu bytes left out]\n", (unsigned long long)(from - head_end));
	(void)buf_add(out, buf_data(&tail), buf_len(&tail));
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
	job_put_text(o, "cwd", path, (size_t)n);
}

static void set(json_t *o, const char *key, json_t *v)
{
	(void)json_object_set_new(o, key, v);
}

static json_t *number(uint64_t n)
{
	return json_integer((json_int_t)n);
}

/* What both objects have, in their order. */
static void put_identity(json_t *o, const struct job *j)
{
	set(o, "job_id", json_string(j->id));
	set(o, "environment", json_string(j->env->name));
	set(o, "incarnation", number(j->incarnation));
	set(o, "state", json_string(!j->over ? "running" : j->unknown ? "unknown" : "exited"));
}

static void put_end(json_t *o, const struct job *j)
{
	int code = job_exit_code(j);
	char sig[24];

	if (code >= 0)
		set(o, "exit_code", json_integer(code));
	if (j->over && j->signal && !j->timed_out)
		set(o, "signal", json_string(signal_name(j->signal, sig, sizeof(sig))));
	set(o, "timed_out", json_boolean(j->timed_out));
}

static uint64_t duration_ms(const struct job *j)
{
	return j->ended ? j->duration_ms
			: (uint64_t)MAX((clock_real_ns() - j->started_ns) / 1000000, (int64_t)0);
}

static void put_unsettled(json_t *o, const struct job *j)
{
	json_t *list = json_array();
	char when[CLOCK_TEXT_MAX];

	for (size_t i = 0; i < j->n_unsettled; i++) {
		const struct unsettled *from = &j->unsettled[i];
		json_t *u = json_object();

		job_put_text(u, "path", from->path, from->len);
		set(u, "bytes", number(from->size_bytes));
		set(u, "since_at", json_string(clock_format(when, from->since_ns)));
		(void)json_array_append_new(list, u);
	}
	set(o, "unsettled", list);
}

static const char *error_code(const struct job *j)
{
	if (j->unknown)
		return "outcome_unknown";
	switch (j->error) {
	case 0: return NULL;
	case ENOENT: return "file_not_found";
	case EACCES: return "permission_denied";
	case ENOTDIR: return "not_directory";
	case EXDEV:
	case ELOOP: return "invalid_path";
	default: return "io_error";
	}
}

/* Why the first word of a command is none, where the errno alone would not say. */
static const char *why_no_program(const struct job *j)
{
	switch (j->error) {
	case ENOENT:
		return strchr(j->argv[0], '/')
			       ? "it, or the interpreter that it names, is not there"
			       : "no directory of its PATH has it";
	case EACCES: return "it is not a file that may be executed";
	case ENOEXEC: return "it is neither a program nor a script that begins with #!";
	default: return strerror(j->error);
	}
}

static const char *why_no_directory(const struct job *j)
{
	switch (j->error) {
	case ENOENT: return "there is no such directory";
	case ENOTDIR: return "that is no directory";
	case EXDEV:
	case ELOOP: return "it lies outside the root";
	case EIO: return "see limb ls"; /* known from the record, which has no number */
	default: return strerror(j->error);
	}
}

/* One sentence; what limb-syncd says is the step that failed, or a sentence already. */
static int error_text(const struct job *j, struct buf *b)
{
	const char *step = j->error_detail ? j->error_detail : "";
	char shown[512];

	if (strchr(step, ' '))
		return buf_printf(b, "%s", step);
	if (j->unknown)
		return buf_printf(
			b,
			"the command was lost with its sandbox, or with what watched it; "
			"whether it finished is not known (what it printed: limb logs %s)",
			j->id);
	if (strcmp(step, "cwd") == 0)
		return buf_printf(b, "the command cannot start in '%s': %s",
				  text_escape_into(shown, sizeof(shown), j->cwd, strlen(j->cwd)),
				  why_no_directory(j));
	(void)text_escape_into(shown, sizeof(shown), j->argv[0], strlen(j->argv[0]));
	if (strcmp(step, "exec") == 0)
		return buf_printf(b, "cannot run '%s': %s", shown, why_no_program(j));
	return buf_printf(b, "cannot run '%s': %s%s%s", shown, step, *step ? ": " : "",
			  strerror(j->error));
}

static void put_error(json_t *o, const struct job *j)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	const char *code = j->over ? error_code(j) : NULL;

	if (!code)
		return;
	set(o, "error", json_string(code));
	(void)error_text(j, &b);
	job_put_text(o, "detail", buf_data(&b), buf_len(&b));
}

json_t *job_json_exec(struct job *j, uint64_t max, bool with_output)
{
	static const char *const keys[] = {"stdout", "stderr"};
	json_t *o = json_object();
	bool truncated = false;

	put_identity(o, j);
	put_end(o, j);
	for (int s = 0; s < 2; s++) {
		_cleanup_(buf_done) struct buf b = BUF_INIT(0);

		if (with_output && output_text(j, s + 1, MIN(max, (uint64_t)JOB_MAX_OUTPUT), &b))
			truncated = true;
		job_put_text(o, keys[s], buf_data(&b), buf_len(&b));
	}
	set(o, "truncated", json_boolean(truncated));
	set(o, "stdout_bytes", number(j->out[0].total));
	set(o, "stderr_bytes", number(j->out[1].total));
	set(o, "duration_ms", number(duration_ms(j)));
	put_cwd(o, j);
	if (j->over && j->seq)
		set(o, "seq", number(j->seq));
	set(o, "background", json_boolean(j->background));
	if (j->n_unsettled)
		put_unsettled(o, j);
	if (j->view_behind)
		set(o, "mounts_behind", json_pack("[s]", view_path(j->env)));
	put_error(o, j);
	return o;
}

/* ---- JOB ---- */

static void put_argv(json_t *o, const struct job *j)
{
	json_t *list = json_array(), *exact = json_array();
	bool all = true;

	for (char **p = j->argv; p && *p; p++) {
		json_t *one = json_object(), *b64;

		job_put_text(one, "a", *p, strlen(*p));
		b64 = json_object_get(one, "a_base64");
		all = all && !b64;
		(void)json_array_append(list, json_object_get(one, "a"));
		if (!b64) {
			_cleanup_(buf_done) struct buf b = BUF_INIT(0);

			(void)text_base64(&b, *p, strlen(*p));
			(void)json_array_append_new(
				exact, json_stringn((const char *)buf_data(&b), buf_len(&b)));
		} else {
			(void)json_array_append(exact, b64);
		}
		json_decref(one);
	}
	set(o, "argv", list);
	if (all)
		json_decref(exact);
	else
		set(o, "argv_base64", exact);
}

static bool killed_by_known(const char *s)
{
	static const char *const known[] = {"memory", "pids", "disk", "timeout", "user", "limbfs"};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (strcmp(known[i], s) == 0)
			return true;
	return false;
}

static void put_string(json_t *o, const char *key, const char *s)
{
	if (s)
		job_put_text(o, key, s, strlen(s));
}

json_t *job_json(struct job *j)
{
	json_t *o = json_object();
	char when[CLOCK_TEXT_MAX];

	put_identity(o, j);
	put_argv(o, j);
	put_cwd(o, j);
	set(o, "tty", json_boolean(j->tty));
	put_end(o, j);
	if (j->over && (j->signal || j->timed_out) && killed_by_known(j->killed_by))
		set(o, "killed_by", json_string(j->killed_by));
	set(o, "started_at", json_string(clock_format(when, j->started_ns)));
	if (j->over)
		set(o, "ended_at", json_string(clock_format(when, j->ended_ns)));
	set(o, "duration_ms", number(duration_ms(j)));
	set(o, "stdout_bytes", number(j->out[0].total));
	set(o, "stderr_bytes", number(j->out[1].total));
	set(o, "truncated", json_boolean(j->left_out));
	set(o, "principal", json_string(j->principal ? j->principal : ""));
	put_string(o, "key", j->key);
	put_string(o, "shell", j->shell);
	if (j->over && j->seq)
		set(o, "seq", number(j->seq));
	put_error(o, j);
	return o;
}

/* ---- lists ---- */

struct list {
	struct env *env;
	json_t **jobs; /* with their ids in the object; newest first is by id */
	size_t n, cap, limit;
	bool all, more;
};

static void list_add(struct list *l, json_t *job)
{
	if (l->n == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 64;
		json_t **p = reallocarray(l->jobs, cap, sizeof(*p));

		if (!p) {
			json_decref(job);
			return;
		}
		l->jobs = p;
		l->cap = cap;
	}
	l->jobs[l->n++] = job;
}

static int list_ended(const struct index_job *in, void *userdata)
{
	struct list *l = userdata;
	char id[ENTRY_JOB_MAX + 1];
	struct job *j;

	(void)snprintf(id, sizeof(id), "%.*s", (int)MIN(in->id_len, sizeof(id) - 1), in->id);
	if (job_known(l->env, id))
		return 0; /* listed from memory */
	if (l->n >= l->limit) {
		l->more = true;
		return 1;
	}
	j = job_of_records(l->env, in);
	if (j)
		list_add(l, job_json(j));
	job_free(j);
	return 0;
}

static int by_id(const void *a, const void *b)
{
	const char *x = json_string_value(json_object_get(*(json_t *const *)a, "job_id"));
	const char *y = json_string_value(json_object_get(*(json_t *const *)b, "job_id"));

	return strcmp(y, x);
}

static void list_env(struct list *all, struct brain *b, struct env *env)
{
	struct list l = {.env = env, .limit = all->limit};
	struct index_txn *t;

	for (struct job *j = b->jobs; j; j = j->next)
		if (j->env == env && (all->all || !j->over))
			list_add(all, job_json(j));
	if (!all->all || env_read_begin(env, &t) < 0)
		return;
	(void)index_jobs(t, list_ended, &l);
	index_read_end(t);
	for (size_t i = 0; i < l.n; i++)
		list_add(all, l.jobs[i]);
	free(l.jobs);
	all->more |= l.more;
}

json_t *job_json_list(struct brain *b, struct env *env, bool all, size_t limit, bool *ret_more)
{
	struct list l = {.all = all, .limit = limit};
	json_t *array = json_array();

	for (struct env *e = b->envs; e; e = e->next)
		if (!env || e == env)
			list_env(&l, b, e);
	if (l.n)
		qsort(l.jobs, l.n, sizeof(*l.jobs), by_id);
	for (size_t i = 0; i < l.n; i++) {
		if (i < limit)
			(void)json_array_append(array, l.jobs[i]);
		json_decref(l.jobs[i]);
	}
	*ret_more = l.more || l.n > limit;
	free(l.jobs);
	return array;
}
