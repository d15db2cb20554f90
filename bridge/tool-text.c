/* Answers as a model reads them: short, and with what it has to know at the end. */
#include "bridge/tool-impl.h"

#include <string.h>

#include "base/util.h"

static const char *text_of(const json_t *o, const char *field)
{
	const char *s = json_string_value(json_object_get(o, field));

	return s ? s : "";
}

static long long integer_of(const json_t *o, const char *field)
{
	return (long long)json_integer_value(json_object_get(o, field));
}

static int add_stream(struct buf *b, const json_t *answer, const char *field, const char *title)
{
	const json_t *v = json_object_get(answer, field);
	const char *s = text_of(answer, field);
	size_t n = json_string_length(v);

	if (n == 0)
		return 0;
	(void)buf_printf(b, "%s", title);
	(void)buf_add(b, s, n);
	return s[n - 1] == '\n' ? 0 : buf_add_u8(b, '\n');
}

int tool_text_exec(struct buf *b, const json_t *answer)
{
	const char *state = text_of(answer, "state"), *error = text_of(answer, "error");
	const char *cwd = text_of(answer, "cwd");
	double seconds = (double)integer_of(answer, "duration_ms") / 1000;

	(void)add_stream(b, answer, "stdout", "");
	(void)add_stream(b, answer, "stderr", "[stderr]\n");
	if (strcmp(state, "unknown") == 0)
		(void)buf_printf(b,
				 "[outcome unknown: %s; it may have run, or run in part; nothing "
				 "runs it again by itself]\n",
				 text_of(answer, "detail"));
	else if (*error)
		(void)buf_printf(b, "[it could not be started: %s, %s]\n", error,
				 text_of(answer, "detail"));
	if (json_is_true(json_object_get(answer, "timed_out")))
		(void)buf_printf(b, "[ended: its timeout passed]\n");
	if (json_is_true(json_object_get(answer, "background")))
		(void)buf_printf(b, "[something that it started runs on in the background]\n");
	if (strcmp(state, "running") == 0)
		return buf_printf(b, "[still running, job %s, cwd %s]", text_of(answer, "job_id"),
				  cwd);
	if (!json_object_get(answer, "exit_code"))
		return buf_printf(b, "[job %s]", text_of(answer, "job_id"));
	return buf_printf(b, "[exit %lld%s%s, %.1f s, cwd %s]", integer_of(answer, "exit_code"),
			  *text_of(answer, "signal") ? " by " : "", text_of(answer, "signal"),
			  seconds, cwd);
}

int tool_text_job(struct buf *b, const json_t *answer)
{
	const char *state = text_of(answer, "state");
	const char *before = "stdout";
	const json_t *piece;
	size_t i;

	json_array_foreach(json_object_get(answer, "pieces"), i, piece)
	{
		const json_t *data = json_object_get(piece, "data");
		const char *stream = text_of(piece, "stream");

		if (strcmp(stream, before) != 0)
			(void)buf_printf(b, "%s[%s]\n", i ? "\n" : "", stream);
		before = stream;
		(void)buf_add(b, json_string_value(data), json_string_length(data));
	}
	if (json_object_get(answer, "left_out_bytes"))
		(void)buf_printf(b, "\n[%lld bytes left out]",
				 integer_of(answer, "left_out_bytes"));
	(void)buf_printf(b, "%s[job %s: %s",
			 json_array_size(json_object_get(answer, "pieces")) ? "\n" : "",
			 text_of(answer, "job_id"), state);
	if (json_object_get(answer, "exit_code"))
		(void)buf_printf(b, ", exit %lld", integer_of(answer, "exit_code"));
	if (*text_of(answer, "signal"))
		(void)buf_printf(b, " by %s", text_of(answer, "signal"));
	return buf_printf(b, "; go on with stdout_offset %lld, stderr_offset %lld]",
			  integer_of(answer, "stdout_offset"), integer_of(answer, "stderr_offset"));
}

int tool_text_read(struct buf *b, const json_t *answer)
{
	const json_t *v = json_object_get(answer, "content");
	bool text = !json_object_get(answer, "content_base64");

	if (text)
		(void)buf_add(b, json_string_value(v), json_string_length(v));
	else
		(void)buf_printf(b, "[%lld bytes, not text: see content_base64]",
				 integer_of(answer, "size_bytes"));
	if (json_is_true(json_object_get(answer, "changing")))
		(void)buf_printf(b, "\n[changed while it was read there: this may hold parts of "
				    "several moments; read it again when nothing writes it]");
	if (!text || !json_is_true(json_object_get(answer, "truncated")))
		return 0;
	return buf_printf(b, "\n[lines %lld to %lld of %lld bytes in all; go on with offset %lld]",
			  integer_of(answer, "first_line"),
			  integer_of(answer, "first_line") + integer_of(answer, "lines") - 1,
			  integer_of(answer, "size_bytes"), integer_of(answer, "next_offset"));
}

int tool_text_list(struct buf *b, const json_t *answer)
{
	const json_t *e;
	size_t i;

	json_array_foreach(json_object_get(answer, "entries"), i, e)
	{
		const char *type = text_of(e, "type"), *target = text_of(e, "symlink_target");

		(void)buf_printf(b, "%s %10lld  %s%s%s%s\n", text_of(e, "mode"),
				 integer_of(e, "size_bytes"), text_of(e, "name"),
				 strcmp(type, "directory") == 0 ? "/" : "", *target ? " -> " : "",
				 target);
	}
	if (json_is_true(json_object_get(answer, "truncated")))
		return buf_printf(b, "[the first %zu of %lld; set limit for more]",
				  json_array_size(json_object_get(answer, "entries")),
				  integer_of(answer, "total"));
	return buf_printf(b, "[%lld entries]", integer_of(answer, "total"));
}

int tool_text_search(struct buf *b, const json_t *answer)
{
	const json_t *m;
	size_t i;

	json_array_foreach(json_object_get(answer, "matches"), i, m)
	{
		(void)buf_printf(b, "%s", text_of(m, "path"));
		if (json_object_get(m, "line"))
			(void)buf_printf(b, ":%lld: %s", integer_of(m, "line"), text_of(m, "text"));
		(void)buf_add_u8(b, '\n');
	}
	return buf_printf(
		b, "[%zu matches%s%s]", json_array_size(json_object_get(answer, "matches")),
		json_is_true(json_object_get(answer, "truncated")) ? ", and more; stopped by " : "",
		text_of(answer, "stopped_by"));
}
