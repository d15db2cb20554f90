/*
 * limb-provider-test - `limb provider test`: what limb-provider(7) promises, tried on
 * one executable, with a private directory and a root of our own, and limb-syncd.
 *
 *	limb-provider-test [--json | -q] PROVIDER SYNCD [TARGET]
 *
 * Prints a line for each check, or one JSON object; status 1 when one failed.
 */
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/text.h"
#include "base/util.h"
#include "wire/frame.h"

enum { DEADLINE_MS = 60000, GRACE_MS = 2000, ANSWER_MAX = 1 << 20, CONNECT_MS = 30000 };

static const char *arg_provider, *arg_syncd, *arg_target;
static bool arg_json, arg_quiet;

static char top[] = "/tmp/limb-provider-XXXXXX", id[33];
static json_t *checks;
static bool failed_one;

/* ---- saying ---- */

static bool check(const char *verb, const char *name, bool ok, const char *fmt, ...) _printf_(4, 5);
static bool check(const char *verb, const char *name, bool ok, const char *fmt, ...)
{
	char detail[600], shown[700];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(detail, sizeof(detail), fmt, ap);
	va_end(ap);
	text_escape_into(shown, sizeof(shown), detail, strlen(detail));
	failed_one = failed_one || !ok;
	(void)json_array_append_new(checks, json_pack("{s:s, s:s, s:s, s:s}", "verb", verb, "name",
						      name, "status", ok ? "ok" : "fail", "detail",
						      ok ? "" : shown));
	if (!arg_json && !arg_quiet)
		printf("%-5s %-8s %s%s%s\n", ok ? "ok" : "FAIL", verb, name, ok ? "" : ": ",
		       ok ? "" : shown);
	return ok;
}

/* ---- calling ---- */

struct called {
	int status; /* exit status; -1: it had to be killed, or was by a signal */
	json_t *answer;
};

static void called_done(struct called *c)
{
	json_decref(c->answer);
}

static json_t *request(json_t *extra)
{
	cleanup_free char *dir = NULL, *root = NULL;
	json_t *o;

	if (asprintf(&dir, "%s/dir", top) < 0 || asprintf(&root, "%s/root", top) < 0)
		return NULL;
	o = json_pack("{s:i, s:s, s:s, s:i, s:s, s:s, s:i, s:{s:s, s:s, s:s}}", "protocol", 1,
		      "environment", "contract", "id", id, "incarnation", 1, "brain",
		      "00000000000000000000000000000000", "dir", dir, "deadline_ms", DEADLINE_MS,
		      "spec", "provider", arg_provider, "root", root, "syncd", arg_syncd);
	if (arg_target)
		(void)json_object_set_new(json_object_get(o, "spec"), "target",
					  json_string(arg_target));
	if (extra)
		(void)json_object_update(o, extra);
	json_decref(extra);
	return o;
}

/* The answer of a process, until it has ended or the time is over. */
static int collect(pid_t pid, int fd, struct buf *b)
{
	uint64_t end = clock_mono_ms() + DEADLINE_MS + GRACE_MS;
	int status = 0;

	for (;;) {
		struct pollfd p = {fd, POLLIN, 0};
		bool over = waitpid(pid, &status, WNOHANG) == pid;
		char room[4096];
		ssize_t n = 0;

		while (poll(&p, 1, over ? 0 : 20) > 0 && (n = read(fd, room, sizeof(room))) > 0)
			(void)buf_add(b, room, (size_t)n);
		if (over)
			return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
		if (n == 0 && p.revents)
			(void)poll(NULL, 0, 5);
		if (clock_mono_ms() > end) {
			(void)kill(pid, SIGKILL);
			(void)waitpid(pid, &status, 0);
			return -1;
		}
	}
}

/* quiet: what it complains about is what it is asked for. */
static void call_text(const char *verb, const char *text, bool quiet, struct called *ret)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(ANSWER_MAX);
	char *argv[] = {(char *)arg_provider, (char *)verb, NULL};
	int in[2], out[2];
	pid_t pid;

	*ret = (struct called){.status = -1};
	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 || (pid = fork()) < 0)
		return;
	if (pid == 0) {
		(void)signal(SIGPIPE, SIG_DFL);
		int null = quiet ? open("/dev/null", O_WRONLY | O_CLOEXEC) : 2;

		if (chdir("/") < 0 || dup2(in[0], 0) < 0 || dup2(out[1], 1) < 0 ||
		    dup2(null, 2) < 0)
			_exit(127);
		(void)execv(argv[0], argv);
		_exit(127);
	}
	(void)close(in[0]);
	(void)close(out[1]);
	(void)io_write_full(in[1], text, strlen(text), "contract.ask");
	(void)close(in[1]);
	ret->status = collect(pid, out[0], &b);
	(void)close(out[0]);
	ret->answer =
		json_loadb((const char *)buf_data(&b), buf_len(&b), JSON_REJECT_DUPLICATES, NULL);
}

static void call_said(const char *verb, json_t *extra, bool quiet, struct called *ret)
{
	json_t *o = request(extra);
	cleanup_free char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

	json_decref(o);
	call_text(verb, text ? text : "", quiet, ret);
}

static void call(const char *verb, json_t *extra, struct called *ret)
{
	call_said(verb, extra, false, ret);
}

static const char *field(const struct called *c, const char *name)
{
	const char *s = json_string_value(json_object_get(c->answer, name));

	return s ? s : "";
}

static const char *why(const struct called *c)
{
	static char text[400];

	if (c->status < 0)
		return "it did not end by its deadline, or by itself";
	if (!json_is_object(c->answer))
		return "its answer is no JSON object";
	(void)snprintf(text, sizeof(text), "status %d, %s%s%s", c->status,
		       *field(c, "status") ? field(c, "status") : field(c, "error"),
		       *field(c, "detail") ? ": " : "", field(c, "detail"));
	return text;
}

/* A verb whose answer is a status. */
static bool expect(const char *verb, const char *name, const char *wanted)
{
	_cleanup_(called_done) struct called c;

	call(verb, NULL, &c);
	return check(verb, name, c.status == 0 && strcmp(field(&c, "status"), wanted) == 0,
		     "%s, not %s", why(&c), wanted);
}

/* ---- the checks ---- */

static bool in_array(json_t *array, const char *word)
{
	json_t *e;
	size_t i;

	json_array_foreach(array, i, e)
	{
		if (json_is_string(e) && strcmp(json_string_value(e), word) == 0)
			return true;
	}
	return false;
}

static bool check_info(void)
{
	static const char *const needed[] = {"info",   "create", "start",   "stop",
					     "delete", "status", "command", "list"};
	_cleanup_(called_done) struct called c;
	json_t *verbs;

	call("info", NULL, &c);
	if (!check("info", "answers with one JSON object",
		   c.status == 0 && json_is_object(c.answer), "%s", why(&c)))
		return false;
	(void)check("info", "speaks protocol 1",
		    json_integer_value(json_object_get(c.answer, "protocol")) == 1,
		    "protocol is not 1");
	verbs = json_object_get(c.answer, "verbs");
	for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
		if (!in_array(verbs, needed[i]))
			(void)check("info", "names all verbs", false, "`%s` is not in verbs",
				    needed[i]);
	(void)check("info", "says what it keeps and enforces",
		    json_is_array(json_object_get(c.answer, "isolation")) &&
			    json_is_object(json_object_get(c.answer, "enforces")) &&
			    json_is_object(json_object_get(c.answer, "keeps")),
		    "isolation, enforces or keeps is missing");
	return true;
}

static void check_errors(void)
{
	_cleanup_(called_done) struct called unknown, garbage;

	call_said("no-such-verb", NULL, true, &unknown);
	(void)check("-", "an unknown verb fails with an error object",
		    unknown.status > 0 && *field(&unknown, "error"), "%s", why(&unknown));
	call_text("status", "this is no JSON", true, &garbage);
	(void)check("-", "input that is no JSON fails with an error object",
		    garbage.status > 0 && *field(&garbage, "error"), "%s", why(&garbage));
}

static bool check_create(struct called *first)
{
	_cleanup_(called_done) struct called again = {0};

	call("create", NULL, first);
	if (!check("create", "answers a handle and a root",
		   first->status == 0 && *field(first, "handle") && field(first, "root")[0] == '/',
		   "%s", why(first)))
		return false;
	call("create", NULL, &again);
	return check("create", "again, answers the same",
		     again.status == 0 && json_equal(first->answer, again.answer), "%s",
		     why(&again));
}

static void check_list(void)
{
	_cleanup_(called_done) struct called c;
	bool found = false;
	json_t *e;
	size_t i;

	call("list", NULL, &c);
	json_array_foreach(json_object_get(c.answer, "environments"), i, e)
	{
		const char *other = json_string_value(json_object_get(e, "id"));

		found = found || (other && strcmp(other, id) == 0);
	}
	(void)check("list", "has what runs", c.status == 0 && found, "%s",
		    c.status ? why(&c) : "it is not there");
}

/* Reads until limb-syncd's start mark: the stream is the one that argv has inside. */
static bool hears_syncd(int fd)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(WIRE_NOISE_MAX + (1 << 20));
	uint64_t end = clock_mono_ms() + CONNECT_MS;

	while (clock_mono_ms() < end) {
		struct pollfd p = {fd, POLLIN, 0};
		char room[4096];
		ssize_t n;

		if (poll(&p, 1, 100) <= 0)
			continue;
		n = read(fd, room, sizeof(room));
		if (n <= 0 || buf_add(&b, room, (size_t)n) < 0)
			return false;
		if (memmem(buf_data(&b), buf_len(&b), WIRE_START, WIRE_START_BYTES))
			return true;
	}
	return false;
}

/* Runs it; true if limb-syncd answers. Its end is that of its stdin. */
static bool try_line(json_t *argv, json_t *env, const char **ret_why)
{
	size_t n = json_array_size(argv);
	char **v = calloc(n + 1, sizeof(*v));
	int in[2], out[2], status;
	uint64_t end;
	bool heard, over;
	pid_t pid;

	for (size_t i = 0; v && i < n; i++)
		v[i] = (char *)json_string_value(json_array_get(argv, i));
	if (!v || pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 || (pid = fork()) < 0) {
		free(v);
		return false;
	}
	if (pid == 0) {
		(void)signal(SIGPIPE, SIG_DFL);
		if (chdir("/") < 0 || dup2(in[0], 0) < 0 || dup2(out[1], 1) < 0)
			_exit(127);
		for (size_t i = 0; i < json_array_size(env); i++)
			(void)putenv((char *)json_string_value(json_array_get(env, i)));
		(void)execvp(v[0], v);
		_exit(127);
	}
	(void)close(in[0]);
	(void)close(out[1]);
	heard = hears_syncd(out[0]);
	(void)close(in[1]);
	(void)close(out[0]);
	end = clock_mono_ms() + CONNECT_MS / 2;
	while (!(over = waitpid(pid, &status, WNOHANG) == pid) && clock_mono_ms() < end)
		(void)poll(NULL, 0, 10);
	if (!over) {
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, &status, 0);
	}
	free(v);
	*ret_why = !heard ? "limb-syncd is not heard on its stdout"
			  : "it goes on when its stdin has ended";
	return heard && over;
}

static void check_command(const struct called *made, const char *name)
{
	_cleanup_(called_done) struct called c;
	cleanup_free char *dir = NULL;
	const char *text = "no argv";
	json_t *argv;
	bool ok;

	if (asprintf(&dir, "%s/dir", top) < 0)
		dir = NULL;
	argv = json_pack("[s,s,s,s,s,s,s,s,s]",
			 *field(made, "syncd") ? field(made, "syncd") : arg_syncd, "attach",
			 "--dir", *field(made, "dir") ? field(made, "dir") : dir, "--root",
			 field(made, "root"), "--env", id, "--wait");
	call("command", json_pack("{s:o}", "argv", argv), &c);
	argv = json_object_get(c.answer, "argv");
	ok = c.status == 0 && json_array_size(argv) > 0 &&
	     try_line(argv, json_object_get(c.answer, "env"), &text);
	(void)check("command", name, ok, "%s", c.status ? why(&c) : text);
}

/* What is in the root, where it is here. */
static void check_files(const struct called *made, bool put, const char *verb, const char *name)
{
	const char *root = field(made, "host_root");
	cleanup_free char *path = NULL;
	int fd;

	if (!*root || asprintf(&path, "%s/kept", root) < 0)
		return;
	if (put) {
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		if (fd >= 0)
			(void)close(fd);
	}
	(void)check(verb, name, access(path, F_OK) == 0, "'%s' is not there", path);
}

static void check_life(const struct called *made)
{
	if (!expect("start", "starts", "Running"))
		return;
	(void)expect("start", "again, changes nothing", "Running");
	(void)expect("status", "says that it runs", "Running");
	check_command(made, "leads to limb-syncd");
	check_command(made, "leads there again");
	check_list();
	check_files(made, true, "start", "the root that it says is the one that it has");
	(void)expect("stop", "stops", "Stopped");
	(void)expect("stop", "again, changes nothing", "Stopped");
	(void)expect("status", "says that it is stopped", "Stopped");
	check_files(made, false, "stop", "files stay");
	(void)expect("start", "starts what was stopped", "Running");
	check_command(made, "leads to limb-syncd after a stop");
}

static void run_all(void)
{
	_cleanup_(called_done) struct called made = {0};

	if (!check_info())
		return;
	check_errors();
	(void)expect("status", "says NotFound of what was never made", "NotFound");
	(void)expect("delete", "of what was never made is no error", "NotFound");
	if (check_create(&made))
		check_life(&made);
	(void)expect("delete", "removes it, running or not", "NotFound");
	(void)expect("delete", "again, is no error", "NotFound");
	(void)expect("status", "says NotFound afterwards", "NotFound");
	check_files(&made, false, "delete", "a root that was given stays");
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {NULL}};
	cleanup_free char *root = NULL;
	uint8_t random[16];
	json_t *all;
	int c;

	log_init("limb");
	(void)signal(SIGPIPE, SIG_IGN);
	while ((c = getopt_long(argc, argv, "q", options, NULL)) >= 0) {
		arg_json = arg_json || c == 'j';
		arg_quiet = arg_quiet || c == 'q';
	}
	if (argc - optind < 2 || argc - optind > 3) {
		log_error("run it as: limb provider test EXECUTABLE[:TARGET]");
		return 2;
	}
	arg_provider = argv[optind];
	arg_syncd = argv[optind + 1];
	arg_target = argv[optind + 2];
	if (access(arg_provider, X_OK) < 0)
		return log_error_errno(-errno, "cannot run '%s'", arg_provider), 125;
	random_bytes(random, sizeof(random));
	text_hex(id, random, sizeof(random));
	if (!mkdtemp(top) || asprintf(&root, "%s/root", top) < 0 || mkdir(root, 0755) < 0)
		return log_error_errno(-errno, "cannot make a directory in /tmp"), 125;
	checks = json_array();
	run_all();
	all = json_pack("{s:b, s:o}", "ok", !failed_one, "checks", checks);
	if (arg_json && (json_dumpf(all, stdout, JSON_COMPACT) < 0 || putchar('\n') == EOF))
		return 125;
	json_decref(all);
	(void)file_remove_tree(AT_FDCWD, top);
	return failed_one ? 1 : 0;
}
