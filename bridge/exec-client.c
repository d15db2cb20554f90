#include "bridge/exec-client.h"

#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/text.h"
#include "bridge/failure.h"
#include "bridge/value.h"

int exec_client_status(const json_t *result)
{
	const char *state = json_string_value(json_object_get(result, "state"));
	const json_t *code = json_object_get(result, "exit_code");

	if (json_is_integer(code))
		return (int)json_integer_value(code) & 255;
	if (json_is_true(json_object_get(result, "timed_out")))
		return EXIT_DEADLINE;
	return state && strcmp(state, "running") == 0 ? 0 : EXIT_COULD_NOT;
}

static bool given(const struct args *args, const char *param)
{
	return json_is_true(json_object_get(args->params, param));
}

/* ---- terminal ---- */

static struct termios saved_terminal;

/* Keys go to the command's terminal as they are, ^C too. */
static bool terminal_raw(void)
{
	struct termios raw;

	if (tcgetattr(STDIN_FILENO, &saved_terminal) < 0)
		return false;
	raw = saved_terminal;
	cfmakeraw(&raw);
	return tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

static void terminal_restore(void)
{
	(void)tcsetattr(STDIN_FILENO, TCSADRAIN, &saved_terminal);
}

static void add_terminal(json_t *params)
{
	struct winsize ws;
	const char *term = getenv("TERM");

	if (ioctl(STDIN_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_row && ws.ws_col) {
		(void)json_object_set_new(params, "rows", json_integer(ws.ws_row));
		(void)json_object_set_new(params, "cols", json_integer(ws.ws_col));
	}
	if (term && text_utf8_ok(term, strlen(term)))
		(void)json_object_set_new(params, "term", json_string(term));
}

/* ---- results ---- */

/* The command did not run (126, 127: `detail` is then the step that failed), or nobody
 * knows what became of it. */
static void print_error(const struct args *args, const json_t *result)
{
	const char *error = json_string_value(json_object_get(result, "error"));
	const char *detail = json_string_value(json_object_get(result, "detail"));
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	json_t *command;
	char shown[512];

	if (!error)
		return;
	if (detail && strcmp(detail, "cwd") == 0) {
		log_error("the command cannot start in its directory: %s", error);
		return;
	}
	command = json_pack("{s:O}", "argv",
			    json_array_get(json_object_get(args->params, "argv"), 0));
	if (detail && strchr(detail, ' '))
		log_error("%s", text_escape_into(shown, sizeof(shown), detail, strlen(detail)));
	else if (value_bytes(&b, command, "argv") >= 0)
		log_error("cannot run '%s': %s",
			  text_escape_into(shown, sizeof(shown), buf_data(&b), buf_len(&b)), error);
	else
		log_error("cannot run the command: %s", error);
	json_decref(command);
}

static int print_result(const struct args *args, const json_t *result)
{
	const char *state = json_string_value(json_object_get(result, "state"));
	const struct render r = {.out = stdout, .nul = args->nul};

	if (args->json) {
		(void)json_dumpf(result, stdout, JSON_COMPACT);
		(void)fputc('\n', stdout);
	} else {
		if (given(args, "detach") || args->quiet)
			render_ids(&r, result, "job_id");
		if (json_is_true(json_object_get(result, "timed_out")))
			log_error("the command was ended: its --timeout passed");
		else if (state && strcmp(state, "unknown") == 0 &&
			 !json_object_get(result, "error"))
			log_error("nobody knows how job %s ended; see: limb inspect NAME",
				  json_string_value(json_object_get(result, "job_id")));
		print_error(args, result);
	}
	if (fflush(stdout) != 0 || ferror(stdout)) {
		(void)log_error_errno(-errno, "cannot write to stdout");
		return EXIT_COULD_NOT;
	}
	return exec_client_status(result);
}

/* As any filter whose reader is gone. */
static int die_of_pipe(void)
{
	(void)signal(SIGPIPE, SIG_DFL);
	(void)raise(SIGPIPE);
	return 128 + SIGPIPE;
}

int exec_client_run(struct client *c, const struct args *args)
{
	bool tty = given(args, "tty"), detach = given(args, "detach"), raw = false;
	/* With --json a person's terminal is no input that anybody meant. */
	bool in = !detach && !(args->json && isatty(STDIN_FILENO) == 1);
	struct client_call call = {
		.method = "exec",
		.params = args->params,
		.in_fd = in ? STDIN_FILENO : -1,
		.out_fd = STDOUT_FILENO,
		.err_fd = STDERR_FILENO,
	};
	enum client_outcome outcome;
	json_t *answer = NULL;
	int status;

	if (json_object_set_new(args->params, "json", json_boolean(args->json)) < 0 ||
	    json_object_set_new(args->params, "stdin", json_boolean(in)) < 0)
		return log_oom(), EXIT_COULD_NOT;
	if (tty) {
		add_terminal(args->params);
		raw = in && terminal_raw();
	}
	outcome = client_call(c, &call, &answer);
	if (raw)
		terminal_restore();
	switch (outcome) {
	case CLIENT_FAILED: return failure_print(answer, args->json);
	case CLIENT_INTERRUPTED: return EXIT_INTERRUPTED;
	case CLIENT_PIPE_CLOSED: return die_of_pipe();
	case CLIENT_RESULT: break;
	}
	status = print_result(args, answer);
	json_decref(answer);
	return status;
}
