#include "bridge/failure.h"

#include <string.h>

#include <stdarg.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/text.h"
#include "bridge/value.h"

static _Noreturn void no_memory(void)
{
	(void)log_oom();
	exit(EXIT_COULD_NOT);
}

json_t *failure_new(const char *code, const char *step, const char *fmt, ...)
{
	cleanup_free char *detail = NULL;
	json_t *steps = json_array(), *o = json_object();
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = vasprintf(&detail, fmt, ap);
	va_end(ap);
	if (r < 0) {
		detail = NULL;
		no_memory();
	}
	if (json_object_set_new(o, "error", json_string(code)) < 0 ||
	    json_object_set_new(o, "detail", value_text(detail, strlen(detail))) < 0 ||
	    (step && json_array_append_new(steps, value_text(step, strlen(step))) < 0) ||
	    json_object_set_new(o, "next_steps", steps) < 0)
		no_memory();
	return o;
}

const char *failure_code_of_errno(int r)
{
	switch (r < 0 ? -r : r) {
	case ENOSPC:
	case EDQUOT: return "no_space";
	case EACCES:
	case EPERM:
	case EROFS: return "permission_denied";
	case ENOENT: return "file_not_found";
	case ENOTDIR: return "not_directory";
	case EISDIR: return "is_directory";
	case ETIMEDOUT: return "timed_out";
	default: return "io_error";
	}
}

int failure_exit(const json_t *failure)
{
	const char *code = json_string_value(json_object_get(failure, "error"));
	json_int_t given = json_integer_value(json_object_get(failure, "exit"));

	if (given > 0 && given < 256)
		return (int)given;
	if (code && strcmp(code, "usage") == 0)
		return EXIT_USAGE;
	if (code && strcmp(code, "timed_out") == 0)
		return EXIT_DEADLINE;
	return EXIT_COULD_NOT;
}

/* Safe for a terminal; a backslash stays single, as names in a text are escaped already. */
static void add_safe(struct buf *b, const char *s)
{
	while (*s) {
		size_t n = strcspn(s, "\\");

		if (text_escape(b, s, n) < 0 || (s[n] && buf_add_u8(b, '\\') < 0))
			no_memory();
		s += n + (s[n] != '\0');
	}
}

void failure_log(const char *detail, const char *step)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	add_safe(&b, detail);
	if (step && !strstr(detail, step)) {
		if (buf_add_str(&b, strncmp(step, "limb ", 5) == 0 ? "; try: " : "; ") < 0)
			no_memory();
		add_safe(&b, step);
	}
	log_error("%.*s", (int)buf_len(&b), (const char *)buf_data(&b));
}

static void print_line(const json_t *failure)
{
	const json_t *detail = json_object_get(failure, "detail");

	if (!json_is_string(detail))
		detail = json_object_get(failure, "error");
	failure_log(json_is_string(detail) ? json_string_value(detail) : "internal",
		    json_string_value(json_array_get(json_object_get(failure, "next_steps"), 0)));
}

int failure_print(json_t *failure, bool json)
{
	int code = failure_exit(failure);

	print_line(failure);
	if (json) {
		(void)json_object_del(failure, "exit");
		(void)json_dumpf(failure, stdout, JSON_COMPACT);
		(void)fputc('\n', stdout);
		(void)fflush(stdout);
	}
	json_decref(failure);
	return code;
}
