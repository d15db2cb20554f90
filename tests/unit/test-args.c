/* A command line becomes exactly the params that the contract has, or one usage error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "base/buf.h"
#include "bridge/args.h"
#include "bridge/failure.h"
#include "bridge/ref.h"
#include "tests/unit/scratch.h"

#define WORDS_MAX 16

/* Splits at blanks; "%XX" in a word is a byte. */
static int split(char *line, char *argv[WORDS_MAX])
{
	char *save = NULL;
	int n = 0;

	argv[n++] = (char *)"limb";
	for (char *p = strtok_r(line, " ", &save); p; p = strtok_r(NULL, " ", &save)) {
		char *to = p;

		assert_true(n < WORDS_MAX - 1);
		argv[n++] = p;
		for (const char *from = p; *from; from++) {
			unsigned byte;

			if (*from == '%' && sscanf(from + 1, "%2x", &byte) == 1) {
				*to++ = (char)byte;
				from += 2;
			} else {
				*to++ = *from;
			}
		}
		*to = '\0';
	}
	argv[n] = NULL;
	return n;
}

static json_t *parse(const char *line, struct args *args)
{
	static char *argv[WORDS_MAX], copy[512]; /* args point into them */

	(void)snprintf(copy, sizeof(copy), "%s", line);
	*args = (struct args){0};
	return args_parse(split(copy, argv), argv, args);
}

static void accepted(const char *line, const char *verb, const char *params)
{
	struct args args;
	json_t *failure = parse(line, &args), *want = json_loads(params, 0, NULL);

	assert_non_null(want);
	if (failure)
		fail_msg("'%s' was refused: %s", line,
			 json_string_value(json_object_get(failure, "detail")));
	assert_non_null(args.verb);
	assert_string_equal(args.verb->name, verb);
	if (!json_equal(args.params, want))
		fail_msg("'%s' gives %s, not %s", line, json_dumps(args.params, JSON_SORT_KEYS),
			 params);
	json_decref(want);
	args_done(&args);
}

static void refused(const char *line, const char *about)
{
	struct args args;
	json_t *failure = parse(line, &args);

	if (!failure)
		fail_msg("'%s' was accepted", line);
	assert_int_equal(failure_exit(failure), EXIT_USAGE);
	if (!strstr(json_string_value(json_object_get(failure, "detail")), about))
		fail_msg("'%s': '%s' does not say '%s'", line,
			 json_string_value(json_object_get(failure, "detail")), about);
	json_decref(failure);
	args_done(&args);
}

static void test_names(void **state)
{
	accepted("inspect a", "inspect", "{\"name\":\"a\"}");
	accepted("inspect 0_-", "inspect", "{\"name\":\"0_-\"}");
	accepted("inspect web~3", "inspect", "{\"name\":\"web~3\"}");
	refused("inspect", "NAME is missing");
	refused("inspect Web", "'Web' is not a name");
	refused("inspect _a", "not a name");
	refused("inspect a b", "one argument too many");
	refused("inspect a~", "not a name");
	refused("inspect a%0ab", "a\\x0ab");
	refused("inspect "
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
		"not a name");
	refused("nosuch", "no verb 'nosuch'");
	refused("journal nosuch x", "limb journal verify, limb journal dump");
	refused("", "no verb");
}

static void test_flags(void **state)
{
	struct args args;

	accepted("rm --force x --keep-journal", "rm",
		 "{\"name\":\"x\",\"force\":true,\"keep_journal\":true}");
	accepted("rm -f x", "rm", "{\"name\":\"x\",\"force\":true}");
	accepted("sync --timeout=2.5 x", "sync", "{\"name\":\"x\",\"timeout_ms\":2500}");
	accepted("sync x --timeout 60 --freeze", "sync",
		 "{\"name\":\"x\",\"timeout_ms\":60000,\"freeze\":true}");
	accepted("sync x --timeout 0.0001", "sync", "{\"name\":\"x\",\"timeout_ms\":1}");
	accepted("rebuild x --at consistent", "rebuild", "{\"name\":\"x\",\"at\":\"consistent\"}");
	accepted("verify x --paths a b --json", "verify",
		 "{\"name\":\"x\",\"paths\":[\"a\",\"b\"]}");
	accepted("verify --paths a -- x", "verify", "{\"name\":\"x\",\"paths\":[\"a\"]}");
	refused("sync x --timeout", "--timeout needs a value");
	refused("sync x --timeout -- 3", "--timeout needs a value");
	refused("sync x --timeout 1m", "'1m' is not a number of seconds");
	refused("sync x --timeout .", "not a number");
	refused("sync x --timeout 1.", "not a number");
	refused("sync x --timeout -1", "not a number");
	refused("sync x --freeze=1", "takes no value");
	refused("sync x --nosuch", "no flag '--nosuch'");
	refused("sync x -Z", "no flag '-Z'");
	refused("rebuild x --at a/b", "not a point");

	assert_null(parse("-q --state /s ls -z --json", &args));
	assert_true(args.quiet && args.nul && args.json);
	assert_string_equal(args.state, "/s");
	args_done(&args);
	assert_null(parse("ls -qz", &args));
	assert_true(args.quiet && args.nul);
	args_done(&args);
	assert_null(parse("create --help", &args));
	assert_true(args.help);
	args_done(&args);
}

static void test_json_is_known_before_the_mistake(void **state)
{
	struct args args;
	json_t *failure = parse("sync --nosuch x --json", &args);

	assert_non_null(failure);
	assert_true(args.json);
	json_decref(failure);
	args_done(&args);
	/* the command's own flags are not ours */
	failure = parse("exec -e nonsense x -- a --json", &args);
	assert_non_null(failure);
	assert_false(args.json);
	json_decref(failure);
	args_done(&args);
}

static void test_exec(void **state)
{
	accepted("exec x -- ls -l --json", "exec",
		 "{\"name\":\"x\",\"argv\":[\"ls\",\"-l\",\"--json\"]}");
	accepted("exec x ls -l", "exec", "{\"name\":\"x\",\"argv\":[\"ls\",\"-l\"]}");
	accepted("exec -w a/b -e K=V -e L= x --timeout 1 -d -- -- true", "exec",
		 "{\"name\":\"x\",\"argv\":[\"--\",\"true\"],\"cwd\":\"a/"
		 "b\",\"env\":[\"K=V\",\"L=\"],"
		 "\"timeout_ms\":1000,\"detach\":true}");
	accepted("exec x --max-output 2K --key k --queue --despite-unapplied -t -- a", "exec",
		 "{\"name\":\"x\",\"argv\":[\"a\"],\"max_output_bytes\":2048,\"key\":\"k\","
		 "\"queue\":true,\"despite_unapplied\":true,\"tty\":true}");
	accepted("exec x -- a%ff b", "exec",
		 "{\"name\":\"x\",\"argv\":[{\"base64\":\"Yf8=\"},\"b\"]}");
	accepted("exec -wa x -- b", "exec", "{\"name\":\"x\",\"argv\":[\"b\"],\"cwd\":\"a\"}");
	refused("exec x", "CMD ARG... is missing");
	refused("exec x --", "is missing");
	refused("exec x -e LIMB_JOB=1 -- a", "LIMB_JOB");
	refused("exec x -e A -- a", "not a variable");
	refused("exec x -e =b -- a", "not a variable");
	refused("exec x --max-output 1x -- a", "not a number of bytes");
}

static void test_files(void **state)
{
	char cwd[4096], want[8192];

	assert_non_null(getcwd(cwd, sizeof(cwd)));
	accepted("ls", "ls", "{}");
	accepted("ls x", "ls", "{\"name\":\"x\",\"path\":\"\"}");
	accepted("ls x:a:b", "ls", "{\"name\":\"x\",\"path\":\"a:b\"}");
	accepted("ls x@before:j-1:a", "ls",
		 "{\"name\":\"x\",\"point\":\"before:j-1\",\"path\":\"a\"}");
	accepted("ls x@2026-01-02T03:04:05Z:06:a", "ls",
		 "{\"name\":\"x\",\"point\":\"2026-01-02T03:04:05Z\",\"path\":\"06:a\"}");
	accepted("ls x@12:34", "ls", "{\"name\":\"x\",\"point\":\"12\",\"path\":\"34\"}");
	accepted("ls x:%ff", "ls", "{\"name\":\"x\",\"path\":{\"base64\":\"/w==\"}}");
	refused("ls /x", "not a file of an environment");
	refused("ls x@:a", "not a file of an environment");
	accepted("rm x", "rm", "{\"name\":\"x\"}");
	accepted("rm x:", "rm", "{\"name\":\"x\",\"path\":\"\"}");
	accepted("rm x:a", "rm", "{\"name\":\"x\",\"path\":\"a\"}");
	refused("rm x@1:a", "the past");
	refused("rm x:a --force", "not for a file of one");
	accepted("accept x a/b", "accept", "{\"name\":\"x\",\"path\":\"a/b\"}");

	accepted("cp /h x:e", "cp", "{\"src\":\"/h\",\"dst\":\"x:e\",\"name\":\"x\"}");
	accepted("cp - x:e", "cp", "{\"src\":\"-\",\"dst\":\"x:e\",\"name\":\"x\"}");
	accepted("cp x@HEAD~2:e -", "cp",
		 "{\"src\":\"x:e\",\"point\":\"HEAD~2\",\"dst\":\"-\",\"name\":\"x\"}");
	(void)snprintf(want, sizeof(want), "{\"src\":\"%s/d/e\",\"dst\":\"x:e\",\"name\":\"x\"}",
		       cwd);
	accepted("cp d/e x:e", "cp", want);
	(void)snprintf(want, sizeof(want), "{\"src\":\"%s/d:e\",\"dst\":\"x:e\",\"name\":\"x\"}",
		       cwd);
	accepted("cp ./d:e x:e", "cp", want);
	refused("cp a b", "exactly one side");
	refused("cp x:a y:b", "exactly one side");
	refused("cp a x@1:b", "the past");
	refused("cp a", "DST is missing");
	accepted("mv x:a x:b", "mv", "{\"src\":\"x:a\",\"dst\":\"x:b\",\"name\":\"x\"}");
	refused("mv x:a y:b", "within one environment");
	refused("mv a x:b", "within one environment");
	refused("mv x@1:a x:b", "the past");
}

static void test_host_paths(void **state)
{
	char cwd[4096], want[8192];

	assert_non_null(getcwd(cwd, sizeof(cwd)));
	(void)snprintf(want, sizeof(want), "{\"name\":\"x\",\"from\":\"%s/p\"}", cwd);
	accepted("create x --from p/", "create", want);
	(void)snprintf(want, sizeof(want), "{\"name\":\"x\",\"root\":\"%s\"}", cwd);
	accepted("create x --root .", "create", want);
	accepted("create x --from /", "create", "{\"name\":\"x\",\"from\":\"/\"}");
	refused("create x --from=", "empty path");
	accepted("create x --provider ssh:me@there", "create",
		 "{\"name\":\"x\",\"provider\":\"ssh:me@there\"}");
	(void)snprintf(want, sizeof(want), "{\"name\":\"x\",\"provider\":\"%s/p:t/u\"}", cwd);
	accepted("create x --provider .//./p:t/u", "create", want);
	refused("create x --provider A", "not a provider");
	accepted("journal verify x", "journal verify", "{\"name\":\"x\"}");
	accepted("journal dump /d/ --since 7 --environment x", "journal dump",
		 "{\"dir\":\"/d\",\"since\":7,\"environment\":\"x\"}");
	refused("journal dump x --since -7", "not a whole number");
}

static void test_spec(void **state)
{
	char line[8192];

	scratch_write(scratch, "good", "{\"watch_limit\": 50}");
	scratch_write(scratch, "bad", "{\n\"watch_limit\": }");
	scratch_write(scratch, "list", "[]");
	(void)snprintf(line, sizeof(line), "create x --spec %s/good", scratch_path);
	accepted(line, "create", "{\"name\":\"x\",\"spec\":{\"watch_limit\":50}}");
	(void)snprintf(line, sizeof(line), "create x --spec %s/bad", scratch_path);
	refused(line, "line 2");
	(void)snprintf(line, sizeof(line), "create x --spec %s/list", scratch_path);
	refused(line, "no JSON object");
}

static void test_points(void **state)
{
	static const char *const good[] = {
		"0",	  "17",	 "a",		"_x.y-z",    "HEAD",
		"HEAD~1", "now", "before:j-a1", "after:j-0", "2026-11-29T20:22:02.5+01:00"};
	static const char *const bad[] = {"",	   "1a",       "a b",
					  "HEAD~", "before:x", "before:",
					  "a:b",   "~1",       "2026-13-01T00:00:00Z",
					  "-a"};

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		if (!ref_point_ok(good[i]))
			fail_msg("'%s' is a point", good[i]);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (ref_point_ok(bad[i]))
			fail_msg("'%s' is no point", bad[i]);
	assert_true(ref_job_ok("j-1a"));
	assert_false(ref_job_ok("j-"));
	assert_false(ref_job_ok("t-1"));
}

/* What the table promises to the code that walks over it. */
static void test_table(void **state)
{
	for (size_t i = 0; i < verb_table_count; i++) {
		const struct verb *v = &verb_table[i];
		_cleanup_(buf_done) struct buf b = BUF_INIT(0);
		bool optional = false;
		int words;
		char first[64];
		const char *space = strchr(v->name, ' ');

		(void)snprintf(first, sizeof(first), "%.*s",
			       (int)(space ? space - v->name : (ptrdiff_t)strlen(v->name)),
			       v->name);
		assert_ptr_equal(verb_named(v->name), v);
		if (v->handler == HANDLE_TOOL) {
			assert_null(verb_find(first, NULL, &words));
			continue;
		}
		assert_ptr_equal(verb_find(first, space ? space + 1 : NULL, &words), v);
		assert_int_equal(words, space ? 2 : 1);
		assert_int_equal(args_usage(&b, v), 0);
		for (size_t k = 0; k < VERB_ARGS_MAX && v->args[k].param; k++) {
			assert_true(v->args[k].optional || !optional);
			optional = v->args[k].optional;
		}
		for (const struct verb_flag *f = v->flags; f && f->name; f++) {
			assert_non_null(f->param);
			assert_int_equal(f->kind == VALUE_SWITCH, f->value == NULL);
			for (const struct verb_flag *c = verb_common_flags; c->name; c++) {
				assert_string_not_equal(f->name, c->name);
				assert_true(!f->letter || f->letter != c->letter);
			}
		}
		if (v->handler == HANDLE_DAEMON)
			assert_true(v->render && v->id);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_flags),
		cmocka_unit_test(test_json_is_known_before_the_mistake),
		cmocka_unit_test(test_exec),
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_host_paths),
		cmocka_unit_test_setup_teardown(test_spec, scratch_setup, scratch_teardown),
		cmocka_unit_test(test_points),
		cmocka_unit_test(test_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
