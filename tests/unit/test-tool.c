/* A tool is its verb: same effect, same parameters; what it is given is checked whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/util.h"
#include "bridge/failure.h"
#include "bridge/tool.h"

static bool verb_has(const struct verb *v, const char *param)
{
	for (size_t i = 0; i < VERB_ARGS_MAX && v->args[i].param; i++)
		if (strcmp(v->args[i].param, param) == 0)
			return true;
	for (const struct verb_flag *f = v->flags; f && f->name; f++)
		if (f->param && strcmp(f->param, param) == 0)
			return true;
	return false;
}

static void every_tool_is_a_verb(void **state)
{
	/* What the command line says by other means: NAME@POINT:PATH, how it prints. */
	static const char *const tools_only[] = {
		"name",	      "point",	  "limit",	  "wait_ms",	  "stdin",
		"stdin_text", TOOL_INPUT, "since_stdout", "since_stderr", "limit_bytes"};

	(void)state;
	for (size_t i = 0; i < tool_table_count; i++) {
		const struct tool *t = &tool_table[i];
		const struct verb *v = tool_verb(t);
		json_t *schema = tool_schema(t);

		if (!v)
			fail_msg("'%s' has no verb '%s'", t->name, t->verb);
		assert_ptr_equal(tool_find(t->name), t);
		assert_non_null(schema);
		for (size_t k = 0; k < TOOL_PARAMS_MAX && t->params[k].name; k++) {
			const char *param = t->params[k].param;
			bool known = !param || v->handler == HANDLE_TOOL || verb_has(v, param);

			for (size_t m = 0; m < ARRAY_SIZE(tools_only); m++)
				known = known || strcmp(param, tools_only[m]) == 0;
			if (!known)
				fail_msg("'%s': verb '%s' has no '%s'", t->name, v->name, param);
		}
		json_decref(schema);
	}
}

static void accepted(const char *tool, const char *arguments, const char *want)
{
	json_t *in = json_loads(arguments, JSON_ALLOW_NUL, NULL), *out = NULL;
	json_t *wanted = json_loads(want, 0, NULL);
	json_t *failure = tool_params(tool_find(tool), in, &out);

	assert_non_null(in);
	assert_non_null(wanted);
	if (failure)
		fail_msg("%s %s: %s", tool, arguments,
			 json_string_value(json_object_get(failure, "detail")));
	if (!json_equal(out, wanted))
		fail_msg("%s %s gives %s", tool, arguments, json_dumps(out, JSON_SORT_KEYS));
	json_decref(in);
	json_decref(out);
	json_decref(wanted);
}

static void refused(const char *tool, const char *arguments, const char *about)
{
	json_t *in = json_loads(arguments, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL), *out = NULL;
	json_t *failure = tool_params(tool_find(tool), in, &out), *result;
	const char *text;

	assert_non_null(in);
	if (!failure)
		fail_msg("%s %s was taken", tool, arguments);
	assert_int_equal(failure_exit(failure), EXIT_USAGE);
	result = tool_failure(failure);
	assert_true(json_is_true(json_object_get(result, "isError")));
	text = json_string_value(
		json_object_get(json_array_get(json_object_get(result, "content"), 0), "text"));
	if (!text || !strstr(text, about) || !strstr(text, "takes"))
		fail_msg("%s %s says: %s", tool, arguments, text);
	json_decref(result);
	json_decref(failure);
	json_decref(in);
}

#define EXEC "\"json\":true,\"outlive\":true,\"wait_ms\":45000,\"max_output_bytes\":30000"

static void arguments(void **state)
{
	(void)state;
	accepted("exec", "{\"command\":\"a b\"}",
		 "{" EXEC ",\"argv\":[\"/bin/sh\",\"-c\",\"a b\"]}");
	accepted("exec",
		 "{\"argv\":[\"a\",\"\"],\"environment\":\"x\",\"cwd\":\"d\",\"timeout_ms\":5.0,"
		 "\"env_vars\":{\"A\":\"b=c\"},\"background\":false,\"key\":null}",
		 "{" EXEC ",\"argv\":[\"a\",\"\"],\"name\":\"x\",\"cwd\":\"d\",\"timeout_ms\":5,"
		 "\"env\":[\"A=b=c\"],\"detach\":false}");
	accepted("exec", "{\"cmd\":\"x\",\"workdir\":\"d\",\"stdin\":\"a\\u0000b\"}",
		 "{" EXEC ",\"argv\":[\"/bin/sh\",\"-c\",\"x\"],\"cwd\":\"d\","
		 "\"stdin_text\":{\"base64\":\"YQBi\"}}");
	accepted("read_file", "{\"file_path\":\"a\",\"offset\":3,\"point\":\"HEAD~2\"}",
		 "{\"path\":\"a\",\"offset\":3,\"point\":\"HEAD~2\"}");
	accepted("edit_file",
		 "{\"path\":\"a\",\"edits\":[{\"oldText\":\"x\",\"newText\":\"\"},"
		 "{\"old_text\":\"y\",\"new_text\":\"z\",\"replace_all\":true}]}",
		 "{\"path\":\"a\",\"edits\":[{\"old_text\":\"x\",\"new_text\":\"\",\"replace_all\":"
		 "false},{\"old_text\":\"y\",\"new_text\":\"z\",\"replace_all\":true}]}");
	accepted(
		"edit_file", "{\"path\":\"a\",\"old_string\":\"x\",\"new_string\":\"y\"}",
		"{\"path\":\"a\",\"edits\":[{\"old_text\":\"x\",\"new_text\":\"y\",\"replace_all\":"
		"false}]}");
	accepted("list_environments", "{}", "{}");
	accepted("list_directory", "{}", "{\"follow\":true,\"limit\":1000,\"path\":\"\"}");
}

static void bad_arguments(void **state)
{
	(void)state;
	refused("exec", "{}", "exactly one");
	refused("exec", "[]", "no object");
	refused("exec", "{\"command\":\"a\",\"argv\":[\"b\"]}", "exactly one");
	refused("exec", "{\"command\":1}", "command");
	refused("exec", "{\"argv\":[]}", "argv");
	refused("exec", "{\"argv\":[\"a\",1]}", "argv");
	refused("exec", "{\"argv\":\"a\"}", "argv");
	refused("exec", "{\"command\":\"a\",\"timeout_ms\":0}", "timeout_ms");
	refused("exec", "{\"command\":\"a\",\"timeout_ms\":1.5}", "timeout_ms");
	refused("exec", "{\"command\":\"a\",\"timeout_ms\":\"5\"}", "timeout_ms");
	refused("exec", "{\"command\":\"a\",\"timeout_ms\":1e300}", "timeout_ms");
	refused("exec", "{\"command\":\"a\",\"env_vars\":{\"LIMB_X\":\"a\"}}", "LIMB_");
	refused("exec", "{\"command\":\"a\",\"env_vars\":{\"A=B\":\"a\"}}", "env_vars");
	refused("exec", "{\"command\":\"a\",\"env_vars\":[\"A=B\"]}", "env_vars");
	refused("exec", "{\"command\":\"a\",\"environment\":\"../x\"}", "environment");
	refused("exec", "{\"command\":\"a\",\"nonsense\":1}", "nonsense");
	refused("exec", "{\"command\":\"a\",\"cmd\":\"b\"}", "twice");
	refused("read_file", "{}", "path");
	refused("read_file", "{\"path\":\"a\",\"point\":\"a b\"}", "point");
	refused("edit_file", "{\"path\":\"a\",\"edits\":[]}", "edits");
	refused("edit_file", "{\"path\":\"a\",\"edits\":[{\"old_text\":\"\",\"new_text\":\"a\"}]}",
		"edits");
	refused("edit_file", "{\"path\":\"a\",\"edits\":[{\"old_text\":\"a\"}]}", "edits");
	refused("migrate", "{\"to\":\"local:/\"}", "person");
	refused("migrate", "{\"to\":\"command:sh\"}", "person");
	refused("migrate", "{\"to\":\"/tmp/x\"}", "person");
	refused("migrate", "{\"to\":\"bwra\"}", "person");
	refused("label_point", "{\"label\":\"a\\u0000\"}", "NUL");
}

static void a_bad_exit_is_a_result(void **state)
{
	const struct tool *exec = tool_find("exec");
	json_t *o = json_pack("{s:s, s:s, s:i, s:s, s:s}", "job_id", "j-1", "state", "exited",
			      "exit_code", 3, "stdout", "out", "stderr", "");
	json_t *r = tool_result(exec, o);

	(void)state;
	assert_true(json_is_false(json_object_get(r, "isError")));
	assert_non_null(strstr(json_string_value(json_object_get(
				       json_array_get(json_object_get(r, "content"), 0), "text")),
			       "out\n[exit 3, "));
	json_decref(r);
	(void)json_object_set_new(o, "error", json_string("file_not_found"));
	r = tool_result(exec, o);
	assert_true(json_is_true(json_object_get(r, "isError")));
	json_decref(r);
	/* It may have run: not an error of the call. */
	(void)json_object_set_new(o, "state", json_string("unknown"));
	r = tool_result(exec, o);
	assert_true(json_is_false(json_object_get(r, "isError")));
	assert_non_null(strstr(json_string_value(json_object_get(
				       json_array_get(json_object_get(r, "content"), 0), "text")),
			       "outcome unknown"));
	json_decref(r);
	json_decref(o);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_tool_is_a_verb),
		cmocka_unit_test(arguments),
		cmocka_unit_test(bad_arguments),
		cmocka_unit_test(a_bad_exit_is_a_result),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
