#include "bridge/exec-client.h"

#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <termios.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/text.h"
#include "bridge/failure.h"
#include "bridge/logs-client.h"
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

struct session {
	struct client *client;
	int terminal; /* ours, when it is raw; -1 */
};

static void terminal_take(struct session *s)
{
	if (s->terminal < 0 && terminal_raw())
		s->terminal = STDIN_FILENO;
}

/* attach learns only from limbd that the job has a terminal. */
static void notified(const char *method, const json_t *params, void *userdata)
{
	struct session *s = userdata;

	if (strcmp(method, "job") != 0 || !json_is_true(json_object_get(params, "tty")) ||
	    isatty(STDIN_FILENO) != 1)
		return;
	terminal_take(s);
	if (s->terminal >= 0)
		(void)client_send_size(s->client, s->terminal);
}

/* ---- results ---- */

/* The command did not run, or nobody knows what became of it. */
static void print_error(const json_t *result)
{
	const char *error = json_string_value(json_object_get(result, "error"));
	const char *detail = json_string_value(json_object_get(result, "detail"));

	if (error)
		failure_log(detail ? detail : error, NULL);
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
		logs_client_left_out(result);
		if (json_is_true(json_object_get(result, "timed_out")))
			log_error("the command was ended: its --timeout passed");
		else if (state && strcmp(state, "unknown") == 0 &&
			 !json_object_get(result, "error"))
			log_error("nobody knows how job %s ended; what it wrote: limb logs %s",
				  json_string_value(json_object_get(result, "job_id")),
				  json_string_value(json_object_get(result, "job_id")));
		print_error(result);
	}
	if (fflush(stdout) != 0 || ferror(stdout)) {
		(void)log_error_errno(-errno, "cannot write to stdout");
		return EXIT_COULD_NOT;
	}
	/* exec -d has done what was asked; who waited has not seen the end. */
	if (strcmp(args->verb->name, "exec") != 0 && state && strcmp(state, "running") == 0)
		return EXIT_DEADLINE;
	return exec_client_status(result);
}

/* As any filter whose reader is gone. */
static int die_of_pipe(void)
{
	(void)signal(SIGPIPE, SIG_DFL);
	(void)raise(SIGPIPE);
	return 128 + SIGPIPE;
}

/* Nothing will ever come from it: the job gets its own, and nobody is woken for its end. */
static bool is_null_device(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && major(st.st_rdev) == 1 &&
	       minor(st.st_rdev) == 3;
}

/* Whose stdin is the job's: of exec all; attach only where a person sits, as the end of a
 * script's input is not meant for the job. */
static bool takes_stdin(const struct args *args, bool tty)
{
	bool terminal = isatty(STDIN_FILENO) == 1;

	switch (args->verb->name[0]) {
	case 'a': return terminal && !args->json;
	case 'w': return false;
	default: return tty || !((args->json && terminal) || is_null_device(STDIN_FILENO));
	}
}

int exec_client_run(struct client *c, const struct args *args)
{
	bool shell = strcmp(args->verb->name, "shell") == 0;
	bool git = strcmp(args->verb->name, "git") == 0;
	bool tty = given(args, "tty") || ((shell || (git && !args->json)) &&
					  isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1);
	/* With --json a person's terminal is no input that anybody meant. */
	bool in = takes_stdin(args, tty), detach = given(args, "detach");
	struct session session = {.client = c, .terminal = -1};
	struct client_call call = {
		.method = git ? "exec" : args->verb->name,
		.params = args->params,
		.in_fd = in && !detach ? STDIN_FILENO : -1,
		.out_fd = STDOUT_FILENO,
		.err_fd = STDERR_FILENO,
		.terminal = &session.terminal,
		.notified = notified,
		.userdata = &session,
	};
	enum client_outcome outcome;
	json_t *answer = NULL;
	int status;

	if (git &&
	    json_array_insert_new(json_object_get(args->params, "argv"), 0, json_string("git")) < 0)
		return log_oom(), EXIT_COULD_NOT;
	/* What a detached job reads comes by `limb input`. */
	if (json_object_set_new(args->params, "json", json_boolean(args->json)) < 0 ||
	    json_object_set_new(args->params, "stdin", json_boolean(in || detach)) < 0 ||
	    json_object_set_new(args->params, "outlive", json_boolean(!tty)) < 0 ||
	    json_object_set_new(args->params, "tty", json_boolean(tty)) < 0)
		return log_oom(), EXIT_COULD_NOT;
	if (tty) {
		add_terminal(args->params);
		if (call.in_fd >= 0)
			terminal_take(&session);
	}
	outcome = client_call(c, &call, &answer);
	if (session.terminal >= 0)
		terminal_restore();
	switch (outcome) {
	case CLIENT_FAILED: return failure_print(answer, args->json);
	case CLIENT_INTERRUPTED: return 128 + client_signal(c);
	case CLIENT_PIPE_CLOSED: return die_of_pipe();
	case CLIENT_RESULT: break;
	}
	status = print_result(args, answer);
	json_decref(answer);
	return status;
}
