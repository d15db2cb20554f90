#include "bridge/logs-client.h"

#include <signal.h>
#include <stdio.h>

#include "base/log.h"
#include "bridge/failure.h"

void logs_client_left_out(const json_t *result)
{
	json_int_t n = json_integer_value(json_object_get(result, "left_out_bytes"));

	if (n > 0)
		log_warning("%lld bytes of the output are left out: its head and its tail are kept",
			    (long long)n);
}

static void print_line(const json_t *o)
{
	(void)json_dumpf(o, stdout, JSON_COMPACT);
	(void)fputc('\n', stdout);
	(void)fflush(stdout);
}

static void notified(const char *method, const json_t *params, void *userdata)
{
	(void)userdata;
	if (strcmp(method, "output") == 0)
		print_line(params);
}

int logs_client_run(struct client *c, const struct args *args)
{
	struct client_call call = {
		.method = args->verb->name,
		.params = args->params,
		.in_fd = -1,
		.out_fd = STDOUT_FILENO,
		.err_fd = STDERR_FILENO,
		.notified = notified,
	};
	json_t *answer = NULL;

	if (json_object_set_new(args->params, "json", json_boolean(args->json)) < 0)
		return log_oom(), EXIT_COULD_NOT;
	/* Lines are printed from within the call: a reader that is gone ends us there. */
	if (args->json)
		(void)signal(SIGPIPE, SIG_DFL);
	switch (client_call(c, &call, &answer)) {
	case CLIENT_FAILED: return failure_print(answer, args->json);
	case CLIENT_INTERRUPTED: return 128 + client_signal(c);
	case CLIENT_PIPE_CLOSED:
		(void)signal(SIGPIPE, SIG_DFL);
		(void)raise(SIGPIPE);
		return 128 + SIGPIPE;
	case CLIENT_RESULT: break;
	}
	if (args->json)
		print_line(answer);
	else
		logs_client_left_out(answer);
	json_decref(answer);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		(void)log_error_errno(-errno, "cannot write to stdout");
		return EXIT_COULD_NOT;
	}
	return 0;
}
