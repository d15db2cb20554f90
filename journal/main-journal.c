/*
 * limb-journal - looks at journals without a daemon: verify and dump of the
 * command-line contract (`limb journal ...` executes it).
 */
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"
#include "base/text.h"
#include "journal/content-check.h"
#include "journal/index.h"
#include "journal/journal-place.h"
#include "journal/log-report.h"
#include "journal/log.h"
#include "journal/points.h"
#include "journal/record-json.h"
#include "journal/watch.h"

enum {
	STATUS_PROBLEMS = 1,
	STATUS_USAGE = 2,
	STATUS_COULD_NOT = 125,
};

static bool arg_json, arg_quiet;
static const char *arg_environment;
static const char *arg_dir;
static uint64_t arg_since;
static const char *arg_since_text; /* as it was written */

static const char usage_text[] =
	"limb-journal verify|dump|watch [--json] [-q] [--environment NAME] "
	"[--since SEQ] DIR";

/* One line for people, the error object for programs. */
static int fail(const char *code, const char *step, const char *fmt, ...) _printf_(3, 4);
static int fail(const char *code, const char *step, const char *fmt, ...)
{
	char detail[1024];
	json_t *o;
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(detail, sizeof(detail), fmt, ap);
	va_end(ap);
	log_error("%s%s%s", detail, step ? "; " : "", step ? step : "");
	if (arg_json) {
		o = json_pack("{s:s, s:s, s:[]}", "error", code, "detail", detail, "next_steps");
		if (o && step)
			(void)json_array_append_new(json_object_get(o, "next_steps"),
						    json_string(step));
		if (o) {
			(void)json_dumpf(o, stdout, JSON_COMPACT);
			(void)putchar('\n');
		}
		json_decref(o);
	}
	(void)fflush(stdout);
	return strcmp(code, "usage") == 0 ? STATUS_USAGE : STATUS_COULD_NOT;
}

static int fail_errno(int r, const char *what)
{
	char dir[256];
	const char *code = r == -EACCES || r == -EPERM ? "permission_denied"
			   : r == -ENOENT	       ? "file_not_found"
			   : r == -ENOTDIR	       ? "not_directory"
			   : r == -ENOSPC	       ? "no_space"
			   : r == -EPROTONOSUPPORT     ? "unsupported"
						       : "io_error";

	(void)text_escape_into(dir, sizeof(dir), arg_dir, strlen(arg_dir));
	return fail(code,
		    r == -EBADMSG	    ? "look at it with: limb journal verify"
		    : r == -EPROTONOSUPPORT ? "use a newer limbfs"
					    : NULL,
		    "%s '%s': %s", what, dir, r == -EBADMSG ? "it is damaged" : strerror(-r));
}

static int open_place(struct journal_place *place)
{
	enum journal_place_problem problem = JOURNAL_PLACE_NO_LOG;
	char dir[256], name[128] = "";
	int r;

	r = journal_place_open(arg_dir, arg_environment, place, &problem);
	if (r >= 0)
		return 0;
	if (r != -ENOENT)
		return fail_errno(r, "cannot look into");
	(void)text_escape_into(dir, sizeof(dir), arg_dir, strlen(arg_dir));
	if (arg_environment)
		(void)text_escape_into(name, sizeof(name), arg_environment,
				       strlen(arg_environment));
	switch (problem) {
	case JOURNAL_PLACE_SEVERAL:
		return fail("usage", "say which: --environment NAME",
			    "'%s' holds several environments", dir);
	case JOURNAL_PLACE_UNKNOWN:
		return fail("environment_not_found", "see which there are: limb ls",
			    "'%s' holds no environment '%s'", dir, name);
	default:
		return fail("file_not_found", "name a state directory, or envs/ID in one",
			    "'%s' holds no journal", dir);
	}
}

/* What was printed has to have arrived. */
static int finish(int status)
{
	if (fflush(stdout) != 0 || ferror(stdout))
		return fail("io_error", NULL, "cannot write to standard output");
	return status;
}

/* ---- verify ---- */

static json_t *problem_object(const struct log_problem *p)
{
	json_t *o = json_pack("{s:s, s:s, s:I, s:s}", "kind", log_problem_name(p->kind), "segment",
			      p->segment, "offset", (json_int_t)p->offset, "detail", p->detail);

	if (o && p->seq > 0)
		(void)json_object_set_new(o, "seq", json_integer((json_int_t)p->seq));
	return o;
}

static int print_report_json(const struct log_report *rep, bool content)
{
	json_t *problems = json_array(), *o;
	char hex[2 * SHA256_BYTES + 1];

	for (size_t i = 0; i < rep->n_problems; i++)
		(void)json_array_append_new(problems, problem_object(&rep->problems[i]));
	o = json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:o}", "ok", rep->n_problems == 0,
		      "records", (json_int_t)rep->records, "first_seq", (json_int_t)rep->first_seq,
		      "last_seq", (json_int_t)rep->last_seq, "segments", (json_int_t)rep->segments,
		      "bytes", (json_int_t)rep->bytes, "torn_tail_bytes",
		      (json_int_t)rep->torn_tail_bytes, "content_checked", content, "problems",
		      problems);
	if (!o)
		return log_oom(), STATUS_COULD_NOT;
	if (rep->last_seq > 0) {
		text_hex(hex, rep->head_hash, SHA256_BYTES);
		(void)json_object_set_new(o, "head_hash", json_sprintf("sha256:%s", hex));
	}
	if (rep->problems_cut)
		(void)json_object_set_new(o, "truncated", json_true());
	(void)json_dumpf(o, stdout, JSON_COMPACT);
	(void)putchar('\n');
	json_decref(o);
	return 0;
}

static void print_report(const struct log_report *rep, bool content)
{
	char hex[2 * SHA256_BYTES + 1];

	text_hex(hex, rep->head_hash, SHA256_BYTES);
	printf("records   %" PRIu64 " (%" PRIu64 " to %" PRIu64 ")\n", rep->records, rep->first_seq,
	       rep->last_seq);
	printf("segments  %" PRIu64 ", %" PRIu64 " bytes\n", rep->segments, rep->bytes);
	if (rep->last_seq > 0)
		printf("head      sha256:%s\n", hex);
	printf("content   %s\n", content ? "checked" : "not checked: there is no store here");
	if (rep->torn_tail_bytes > 0)
		printf("torn tail %" PRIu64 " bytes, from a crash: limbd cuts it\n",
		       rep->torn_tail_bytes);
	for (size_t i = 0; i < rep->n_problems; i++) {
		const struct log_problem *p = &rep->problems[i];

		printf("%s at %s:%" PRIu64 ": %s\n", log_problem_name(p->kind), p->segment,
		       p->offset, p->detail);
	}
	if (rep->n_problems == 0)
		printf("ok\n");
	else
		printf("problems: %zu%s\n", rep->n_problems, rep->problems_cut ? " and more" : "");
}

/* NULL: it says nothing.  A damaged one is a problem of its own. */
static int read_head(int log_fd, struct log_head *head, const struct log_head **ret, bool *ret_bad)
{
	int r = log_head_read(log_fd, head);

	*ret = r >= 0 ? head : NULL;
	*ret_bad = r == -EBADMSG;
	return r == -ENOENT || r == -EBADMSG ? 0 : r;
}

static int verify_place(const struct journal_place *place, struct log_report *rep)
{
	_cleanup_(content_check_freep) struct content_check *check = NULL;
	const struct log_place at = {.segment = "head"};
	struct log_notes notes = {.report = rep};
	const struct log_head *known;
	struct log_head head;
	bool bad_head;
	int r;

	r = read_head(place->log_fd, &head, &known, &bad_head);
	if (r < 0)
		return r;
	r = content_check_new(&check);
	if (r < 0)
		return r;
	r = log_verify(place->log_fd, known, content_check_record, check, rep);
	if (r < 0)
		return r;
	if (bad_head)
		r = log_notes_problem(&notes, LOG_PROBLEM_BAD_HEADER, &at, 0,
				      "the file that remembers the end of the log is damaged");
	if (r >= 0 && place->store_fd >= 0)
		r = content_check_run(check, place->store_fd, place->log_fd, rep);
	return r;
}

static int verify(void)
{
	struct journal_place place = JOURNAL_PLACE_INIT;
	struct log_report rep = {0};
	bool content;
	int r, status;

	status = open_place(&place);
	if (status != 0)
		return status;
	r = verify_place(&place, &rep);
	content = place.store_fd >= 0;
	journal_place_done(&place);
	if (r < 0) {
		log_report_done(&rep);
		return fail_errno(r, "cannot verify");
	}
	if (arg_json)
		status = print_report_json(&rep, content);
	else if (!arg_quiet)
		print_report(&rep, content);
	if (status == 0)
		status = finish(rep.n_problems == 0 ? 0 : STATUS_PROBLEMS);
	log_report_done(&rep);
	return status;
}

/* ---- dump ---- */

/* "SEQ AT TYPE {the rest}" */
static int print_plain(json_t *o)
{
	const char *at = json_string_value(json_object_get(o, "at"));
	const char *type = json_string_value(json_object_get(o, "type"));

	printf("%" JSON_INTEGER_FORMAT " %s %s ", json_integer_value(json_object_get(o, "seq")), at,
	       type);
	(void)json_object_del(o, "seq");
	(void)json_object_del(o, "at");
	(void)json_object_del(o, "type");
	return json_dumpf(o, stdout, JSON_COMPACT);
}

static int print_record(const struct log_record *rec, struct record_paths *paths)
{
	json_t *o = NULL;
	int r;

	r = record_json(rec, paths, rec->seq > arg_since && !arg_quiet ? &o : NULL);
	if (r < 0)
		return r;
	if (rec->seq <= arg_since)
		return 0;
	if (arg_quiet)
		printf("%" PRIu64, rec->seq);
	else if (arg_json)
		(void)json_dumpf(o, stdout, JSON_COMPACT);
	else
		(void)print_plain(o);
	json_decref(o);
	return putchar('\n') == EOF ? -EIO : 0;
}

static int dump_log(int log_fd)
{
	_cleanup_(record_paths_freep) struct record_paths *paths = record_paths_new();
	_cleanup_(log_reader_freep) struct log_reader *rd = NULL;
	struct log_record rec;
	int r;

	if (!paths)
		return -ENOMEM;
	r = log_reader_open(log_fd, 0, &rd);
	if (r < 0)
		return r;
	while ((r = log_reader_next(rd, &rec)) > 0) {
		r = print_record(&rec, paths);
		if (r < 0)
			return r;
	}
	return r;
}

static int dump(void)
{
	struct journal_place place = JOURNAL_PLACE_INIT;
	int r, status;

	status = open_place(&place);
	if (status != 0)
		return status;
	r = dump_log(place.log_fd);
	journal_place_done(&place);
	if (r < 0)
		return fail_errno(r, "cannot go on reading");
	return finish(0);
}

/* ---- watch ---- */

static volatile int watch_stop;

static void stop_watching(int sig)
{
	(void)sig;
	watch_stop = 1;
}

static int find_since(int log_fd, uint64_t *ret)
{
	cleanup_close int env_fd = openat(log_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(index_closep) struct index *ix = NULL;
	struct index_txn *t;
	struct point p;
	int r;

	if (!point_parse_all(arg_since_text, &p))
		return fail("usage", usage_text, "--since is no point");
	if (p.kind == POINT_SEQ) {
		*ret = p.seq;
		return 0;
	}
	r = index_open(env_fd, INDEX_READ, -1, NULL, NULL, &ix);
	if (r >= 0)
		r = index_read_begin(ix, &t);
	if (r < 0)
		return fail("io_error", "limb up", "the index cannot be read: %s", strerror(-r));
	r = points_find(t, log_fd, &p, ret);
	index_read_end(t);
	if (r == -ENOENT) {
		char step[128];

		(void)snprintf(step, sizeof(step), "see which there are: limb points %s",
			       arg_environment ? arg_environment : "NAME");
		return fail("point_not_found", step, "its journal has no point '%s'",
			    arg_since_text);
	}
	return r < 0 ? fail_errno(r, "cannot look into") : 0;
}

static int watch(void)
{
	/* A wait is to end. */
	const struct sigaction stop = {.sa_handler = stop_watching};
	struct journal_place place = JOURNAL_PLACE_INIT;
	uint64_t since = WATCH_FROM_NOW;
	int r, status;

	status = open_place(&place);
	if (status == 0 && arg_since_text)
		status = find_since(place.log_fd, &since);
	if (status == 0) {
		(void)sigaction(SIGINT, &stop, NULL);
		(void)sigaction(SIGTERM, &stop, NULL);
		r = watch_run(place.log_fd, since, arg_json, &watch_stop);
		if (r == -EPIPE) /* nobody reads any more */
			return 0;
		if (r == -ENOENT)
			status = fail("environment_not_found", NULL, "'%s' was removed",
				      arg_environment ? arg_environment : "the environment");
		else
			status = r < 0 ? fail_errno(r, "cannot go on reading") : finish(0);
	}
	journal_place_done(&place);
	return status;
}

/* ---- the command line ---- */

static int parse(int argc, char **argv)
{
	bool arg_watch = argc > 1 && strcmp(argv[1], "watch") == 0;
	static const struct option options[] = {
		{"json", no_argument, NULL, 'j'},
		{"environment", required_argument, NULL, 'e'},
		{"since", required_argument, NULL, 's'},
		{0},
	};
	int c;

	/* The error object is asked for wherever the flag stands. */
	for (int i = 1; i < argc; i++)
		arg_json = arg_json || strcmp(argv[i], "--json") == 0;
	opterr = 0;
	while ((c = getopt_long(argc, argv, "q", options, NULL)) != -1) {
		switch (c) {
		case 'j': break;
		case 'q': arg_quiet = true; break;
		case 'e': arg_environment = optarg; break;
		case 's':
			arg_since_text = optarg;
			if (text_parse_u64(optarg, INT64_MAX, &arg_since) < 0 && !arg_watch)
				return fail("usage", usage_text,
					    "--since is not a sequence number");
			break;
		default: return fail("usage", usage_text, "what is '%s'?", argv[optind - 1]);
		}
	}
	if (argc - optind != 2)
		return fail("usage", usage_text, "a verb and a directory are needed");
	arg_dir = argv[optind + 1];
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(void);
	} verbs[] = {
		{"verify", verify},
		{"dump", dump},
		{"watch", watch},
	};
	int status;

	log_init("limb");
	status = parse(argc, argv);
	if (status != 0)
		return status;
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
		if (strcmp(argv[optind], verbs[i].name) == 0)
			return verbs[i].run();
	}
	return fail("usage", usage_text, "there is no verb '%s'", argv[optind]);
}
