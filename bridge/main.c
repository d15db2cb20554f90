/*
 * limb - the command line: parses, asks limbd, prints.
 *
 * Starts fast (libc only), keeps no state, and changes nothing by itself but
 * `up`, which starts limbd.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/text.h"
#include "bridge/args.h"
#include "bridge/client.h"
#include "bridge/exec-client.h"
#include "bridge/failure.h"
#include "bridge/logs-client.h"
#include "bridge/mcp-config.h"
#include "bridge/places.h"
#include "bridge/progress.h"
#include "bridge/up.h"

/* Descriptors 0 to 2 exist, so that nothing else gets their numbers. */
static void ensure_stdio(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		(void)close(fd);
}

static const char *text_param(const struct args *args, const char *param)
{
	return json_string_value(json_object_get(args->params, param));
}

/* Everything is printed and checked here, once: a full disk behind stdout is a failure. */
static int finish(const struct args *args, json_t *result)
{
	const struct verb *verb = args->verb;
	const struct render r = {.out = stdout, .nul = args->nul};
	int status = 0;

	if (args->json) {
		(void)json_dumpf(result, stdout, JSON_COMPACT);
		(void)fputc('\n', stdout);
	} else if (args->quiet && verb->id) {
		render_ids(&r, result, verb->id);
	} else if (verb->render) {
		verb->render(&r, result);
	}
	if (verb->unless && !json_is_true(json_object_get(result, verb->unless)))
		status = EXIT_NO;
	json_decref(result);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		if (errno == EPIPE) {
			(void)signal(SIGPIPE, SIG_DFL);
			(void)raise(SIGPIPE);
		}
		(void)log_error_errno(-errno, "cannot write the answer to stdout");
		return EXIT_COULD_NOT;
	}
	return status;
}

/* Whoever reads a copy is told that it may be an older version, wherever the copy itself goes. */
static void warn_unsynced(const json_t *answer)
{
	if (json_is_true(json_object_get(answer, "unsynced")))
		log_warning("'%s' could not be synced first: this is what was known of it at "
			    "%lld, an older version maybe; see: limb status",
			    json_string_value(json_object_get(answer, "environment")),
			    (long long)json_integer_value(json_object_get(answer, "seq")));
}

/* The same for what was written all the while that it was read there. */
static void warn_changing(const char *src, const json_t *answer)
{
	long long n = json_integer_value(json_object_get(answer, "changing"));
	char shown[256];

	if (n <= 0)
		return;
	text_escape_into(shown, sizeof(shown), src, strlen(src));
	if (json_integer_value(json_object_get(answer, "files")) == 1)
		log_warning("'%s' changed while it was read there: the copy may hold parts of "
			    "several moments; copy it again when nothing writes it",
			    shown);
	else
		log_warning("'%s': %lld of its files changed while they were read there: their "
			    "copies may hold parts of several moments; copy them again when "
			    "nothing writes them",
			    shown, n);
}

static int call_daemon(const struct places *places, const struct args *args)
{
	struct client_call call = {
		.method = args->verb->name,
		.params = args->params,
		.in_fd = -1,
		.out_fd = STDOUT_FILENO,
		.err_fd = STDERR_FILENO,
		.notified = progress_notified,
	};
	const char *src = text_param(args, "src"), *dst = text_param(args, "dst");
	struct progress progress;
	enum client_outcome outcome;
	struct client *c = NULL;
	json_t *answer = NULL, *failure = client_connect(places, &c);
	struct args printed = *args;
	const struct verb *verb = args->verb;
	struct verb silent;
	bool answered;
	int interrupted;

	if (failure)
		return failure_print(failure, args->json);
	if (verb->handler == HANDLE_EXEC || verb->handler == HANDLE_LOGS) {
		int status = verb->handler == HANDLE_EXEC ? exec_client_run(c, args)
							  : logs_client_run(c, args);

		client_free(c);
		return status;
	}
	if (verb->handler == HANDLE_INPUT)
		call.in_fd = STDIN_FILENO;
	if (verb->handler == HANDLE_COPY && src && strcmp(src, "-") == 0)
		call.in_fd = STDIN_FILENO;
	/* The file is on stdout: nothing else goes there. */
	if (verb->handler == HANDLE_COPY && dst && strcmp(dst, "-") == 0) {
		silent = *verb;
		silent.render = NULL;
		silent.id = NULL;
		printed.verb = &silent;
		printed.json = false;
	}
	progress_init(&progress);
	call.userdata = &progress;
	outcome = client_call(c, &call, &answer);
	interrupted = 128 + client_signal(c);
	answered = client_answered(c);
	client_free(c);
	progress_end(&progress);
	switch (outcome) {
	case CLIENT_FAILED: return failure_print(answer, printed.json);
	case CLIENT_INTERRUPTED:
		log_error(answered ? "interrupted"
				   : "interrupted; what limbd has begun goes on: limb status");
		return interrupted;
	case CLIENT_PIPE_CLOSED:
		(void)signal(SIGPIPE, SIG_DFL);
		(void)raise(SIGPIPE);
		return 128 + SIGPIPE;
	case CLIENT_RESULT: break;
	}
	if (verb->handler == HANDLE_COPY) {
		warn_unsynced(answer);
		warn_changing(src ? src : "", answer);
	}
	return finish(&printed, answer);
}

/* One that was up already keeps its view where it is. */
static void warn_mount(const struct places *places, const json_t *result)
{
	const char *theirs = json_string_value(json_object_get(result, "mount"));
	cleanup_free char *a = theirs ? realpath(theirs, NULL) : NULL,
			  *b = realpath(places->mount, NULL);

	if (theirs && !(a && b && strcmp(a, b) == 0))
		log_warning("limbd was up already, and its view stays at '%s'; to have it at '%s': "
			    "limb down, then limb up --mount '%s'",
			    theirs, places->mount, places->mount);
}

static int call_up(const struct places *places, const struct args *args)
{
	json_t *result = NULL, *failure;
	int status;
	pid_t pid;

	failure = up_run(places, json_is_true(json_object_get(args->params, "foreground")), &result,
			 &pid);
	if (failure)
		return failure_print(failure, args->json);
	if (text_param(args, "mount"))
		warn_mount(places, result);
	status = finish(args, result);
	return pid > 0 ? up_wait(pid) : status;
}

static int call_down(const struct places *places, const struct args *args)
{
	json_t *result = NULL, *failure = down_run(places, args->params, &result);
	json_int_t pending;
	int status;

	if (failure)
		return failure_print(failure, args->json);
	pending = json_integer_value(json_object_get(result, "pending_bytes"));
	status = finish(args, result);
	if (pending <= 0 || status)
		return status;
	log_error("limbd ended, and %lld bytes that were written in environments are not durable "
		  "yet; they are brought in after: limb up",
		  (long long)pending);
	return EXIT_COULD_NOT;
}

/* ---- verbs that are programs of their own ---- */

static int run_program(const char *name, const char *build_dir, char **argv, bool json)
{
	cleanup_free char *path = places_program(name, build_dir);

	(void)signal(SIGPIPE, SIG_DFL);
	argv[0] = (char *)name;
	if (path)
		(void)execv(path, argv);
	return failure_print(failure_new("internal", "install limbfs again", "cannot run %s: %s",
					 name, strerror(errno)),
			     json);
}

static int run_doctor(const struct places *places, const struct args *args)
{
	char *argv[10], **p = argv + 1;

	*p++ = (char *)"--state";
	*p++ = places->state;
	*p++ = (char *)"--mount";
	*p++ = places->mount;
	*p++ = (char *)"--socket";
	*p++ = places->socket;
	if (args->json)
		*p++ = (char *)"--json";
	else if (args->quiet)
		*p++ = (char *)"-q";
	*p = NULL;
	return run_program("limb-doctor", "bridge", argv, args->json);
}

/* Ours by name, or a path; what follows the first colon is its target. */
static int run_provider_test(const struct args *args)
{
	const char *provider = text_param(args, "provider"), *colon = strchr(provider, ':');
	cleanup_free char *name =
		strndup(provider, colon ? (size_t)(colon - provider) : strlen(provider));
	cleanup_free char *ours = NULL, *path = NULL,
			  *syncd = places_program("limb-syncd", "syncd");
	char *argv[6], **p = argv + 1, shown[256];

	if (name && !strchr(name, '/') && asprintf(&ours, "providers/%s", name) >= 0)
		path = places_program(ours, ".");
	if (!syncd || !name || (!path && !strchr(name, '/')))
		return failure_print(failure_new("file_not_found", "limb help provider test",
						 "there is no provider '%s'", name ? name : ""),
				     args->json);
	if (access(path ? path : name, X_OK) < 0) {
		text_escape_into(shown, sizeof(shown), name, strlen(name));
		return failure_print(failure_new(failure_code_of_errno(errno),
						 "a provider is an executable: limb-provider(7)",
						 "cannot run '%s': %s", shown, strerror(errno)),
				     args->json);
	}
	if (args->json)
		*p++ = (char *)"--json";
	else if (args->quiet)
		*p++ = (char *)"-q";
	*p++ = path ? path : name;
	*p++ = syncd;
	if (colon)
		*p++ = (char *)colon + 1;
	*p = NULL;
	return run_program("limb-provider-test", "providers", argv, args->json);
}

static int run_journal(const struct places *places, const struct args *args)
{
	const char *name = text_param(args, "name"), *dir = text_param(args, "dir");
	const char *environment = text_param(args, "environment");
	json_t *since = json_object_get(args->params, "since");
	char *argv[12], **p = argv + 1, number[24];
	const char *space = strchr(args->verb->name, ' ');

	*p++ = (char *)(space ? space + 1 : args->verb->name);
	if (args->json)
		*p++ = (char *)"--json";
	if (args->quiet)
		*p++ = (char *)"-q";
	if (json_is_string(since)) {
		*p++ = (char *)"--since";
		*p++ = (char *)json_string_value(since);
	} else if (since) {
		(void)snprintf(number, sizeof(number), "%lld",
			       (long long)json_integer_value(since));
		*p++ = (char *)"--since";
		*p++ = number;
	}
	if (!dir)
		environment = name;
	if (environment) {
		*p++ = (char *)"--environment";
		*p++ = (char *)environment;
	}
	*p++ = dir ? (char *)dir : places->state;
	*p = NULL;
	return run_program("limb-journal", "journal", argv, args->json);
}

static int run_mount(const struct args *args)
{
	static const char *const values[] = {"journal", "environment", "at"};
	static const char *const switches[] = {"look", "work", "foreground"};
	const char *directory = text_param(args, "directory");
	char *argv[20], **p = argv + 1, names[ARRAY_SIZE(values)][16],
			more[ARRAY_SIZE(switches)][16];

	if (!text_param(args, "journal") || !directory)
		return failure_print(
			failure_new("usage", "limb help mount",
				    "--journal DIR is missing, or a path is not UTF-8"),
			args->json);
	if (json_object_get(args->params, "look") && json_object_get(args->params, "work"))
		return failure_print(failure_new("usage", "limb help mount",
						 "--look and --work exclude each other"),
				     args->json);
	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		if (!text_param(args, values[i]))
			continue;
		(void)snprintf(names[i], sizeof(names[i]), "--%s", values[i]);
		*p++ = names[i];
		*p++ = (char *)text_param(args, values[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(switches); i++) {
		if (!json_is_true(json_object_get(args->params, switches[i])))
			continue;
		(void)snprintf(more[i], sizeof(more[i]), "--%s", switches[i]);
		*p++ = more[i];
	}
	if (args->json)
		*p++ = (char *)"--json";
	else if (args->quiet)
		*p++ = (char *)"-q";
	*p++ = (char *)"--";
	*p++ = (char *)directory;
	*p = NULL;
	return run_program("limb-fs", "fs", argv, args->json);
}

static int run_mcp(const struct places *places, const struct args *args)
{
	const char *environment = text_param(args, "environment");
	char *argv[10], **p = argv + 1;

	*p++ = (char *)"--state";
	*p++ = places->state;
	*p++ = (char *)"--mount";
	*p++ = places->mount;
	*p++ = (char *)"--socket";
	*p++ = places->socket;
	if (environment) {
		*p++ = (char *)"--environment";
		*p++ = (char *)environment;
	}
	*p = NULL;
	return run_program("limb-mcp", "bridge", argv, args->json);
}

/* ---- help ---- */

static void help_flags(const struct verb_flag *f)
{
	for (; f && f->name; f++) {
		cleanup_free char *left = NULL;

		if (asprintf(&left, "%c%c%s--%s%s%s", f->letter ? '-' : ' ',
			     f->letter ? f->letter : ' ', f->letter ? ", " : "  ", f->name,
			     f->value ? " " : "", f->value ? f->value : "") < 0)
			left = NULL;
		printf("  %-34s %s\n", left ? left : f->name, f->help);
	}
}

static int help_verb(const struct verb *verb)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);

	if (args_usage(&b, verb) < 0)
		return log_oom(), EXIT_COULD_NOT;
	printf("%.*s\n%s (%s)\n", (int)buf_len(&b), (const char *)buf_data(&b), verb->help,
	       verb_effect_text(verb->effect));
	help_flags(verb->flags);
	help_flags(verb_common_flags);
	return 0;
}

static int help_all(void)
{
	printf("usage: limb [--state DIR] VERB [flags] ARG...\n");
	for (size_t i = 0; i < verb_table_count; i++)
		if (verb_table[i].handler != HANDLE_TOOL)
			printf("  %-16s %s\n", verb_table[i].name, verb_table[i].help);
	printf("flags of every verb:\n");
	help_flags(verb_common_flags);
	return 0;
}

static int help(const struct args *args)
{
	const char *first = text_param(args, "verb"), *second = text_param(args, "word");
	const struct verb *verb = args->verb;
	int words;

	if (verb && verb->handler != HANDLE_HELP)
		return help_verb(verb);
	if (!first)
		return help_all();
	verb = verb_find(first, second, &words);
	if (verb)
		return help_verb(verb);
	return failure_print(args_no_verb(first), args->json);
}

static int run(const struct args *args)
{
	_cleanup_(places_done) struct places places = {0};
	json_t *failure;

	if (args->version) {
		printf("limb %s\n", PACKAGE_VERSION);
		return 0;
	}
	if (!args->verb || args->help || args->verb->handler == HANDLE_HELP)
		return help(args);
	failure = places_find(&places, args->state, text_param(args, "mount"));
	if (failure)
		return failure_print(failure, args->json);
	switch (args->verb->handler) {
	case HANDLE_UP: return call_up(&places, args);
	case HANDLE_DOWN: return call_down(&places, args);
	case HANDLE_DOCTOR: return run_doctor(&places, args);
	case HANDLE_MCP: return run_mcp(&places, args);
	case HANDLE_MCP_CONFIG:
		return mcp_config_print(&places, text_param(args, "client"),
					text_param(args, "environment"), args->json);
	case HANDLE_PROVIDER_TEST: return run_provider_test(args);
	case HANDLE_JOURNAL: return run_journal(&places, args);
	case HANDLE_MOUNT: return run_mount(args);
	default: return call_daemon(&places, args);
	}
}

int main(int argc, char **argv)
{
	_cleanup_(args_done) struct args args = {0};
	json_t *failure;

	log_init("limb");
	ensure_stdio();
	(void)signal(SIGPIPE, SIG_IGN);
	failure = args_parse(argc, argv, &args);
	if (failure)
		return failure_print(failure, args.json);
	return run(&args);
}
