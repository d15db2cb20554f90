/* The contract's `exec` object. */
#include "brain/job-impl.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/text.h"
#include "brain/view.h"

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
