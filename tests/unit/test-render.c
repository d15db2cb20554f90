/* Results become text that people can read and that no name can forge. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "base/buf.h"
#include "bridge/exec-client.h"
#include "bridge/failure.h"
#include "bridge/progress.h"
#include "bridge/render.h"
#include "bridge/value.h"
#include "bridge/verbs.h"

static void shows(render_fn *render, bool nul, const char *json, const char *want, size_t n)
{
	json_t *o = json_loads(json, 0, NULL);
	char *text = NULL;
	size_t size = 0;
	struct render r = {.out = open_memstream(&text, &size), .nul = nul};

	assert_non_null(o);
	render(&r, o);
	assert_int_equal(fclose(r.out), 0);
	if (size != n || memcmp(text, want, n) != 0)
		fail_msg("shown:\n%s\nnot:\n%s", text, want);
	free(text);
	json_decref(o);
}
#define SHOWS(fn, json, want) shows(fn, false, json, want, strlen(want))

static void test_tables(void **state)
{
	SHOWS(render_ls,
	      "{\"environments\":[{\"environment\":\"a\",\"provider\":\"bwrap\",\"state\":\"live\","
	      "\"incarnation\":1,\"seq\":12345,\"age_ms\":5,\"root\":\"/w\",\"view\":\"/m/a\"},"
	      "{\"environment\":\"longer\",\"provider\":\"local\",\"state\":\"away\","
	      "\"incarnation\":12,\"seq\":1}]}",
	      "ENVIRONMENT  PROVIDER  STATE  INCARNATION    SEQ  HEARD  VIEW\n"
	      "a            bwrap     live             1  12345   5 ms  /m/a\n"
	      "longer       local     away            12      1      -  -\n");
	SHOWS(render_ls, "{\"environments\":[]}", "");
	SHOWS(render_state, "{\"environment\":\"a\",\"state\":\"stopped\",\"incarnation\":1}",
	      "a: stopped\n");
}

static void test_names_are_escaped(void **state)
{
	/* "\n" in a name, a terminal's escape, bytes that are not UTF-8 */
	SHOWS(render_ls,
	      "{\"environment\":\"a\",\"path\":\"\",\"entries\":[{\"name\":\"x\\ny\\u001b[2J\","
	      "\"mode\":\"0644\",\"type\":\"file\",\"size_bytes\":1},{\"name\":\"q\\ufffd\","
	      "\"name_base64\":\"cf8=\"}],\"truncated\":false,\"total\":2}",
	      "MODE  TYPE  OWNER  SIZE  MODIFIED  NAME\n"
	      "0644  file  -         1  -         x\\x0ay\\x1b[2J\n"
	      "-     -     -         -  -         q\\xff\n");
	shows(render_ls, true,
	      "{\"entries\":[{\"name\":\"x\\ny\"},{\"name\":\"q\\ufffd\",\"name_base64\":\"cf8=\"}]"
	      "}",
	      "x\ny\0q\xff\0", 7);
}

static void test_verify(void **state)
{
	SHOWS(render_verify,
	      "{\"equal\":true,\"journal\":{\"content\":\"sha256:aa\",\"full\":\"sha256:bb\"},"
	      "\"environment_side\":{\"content\":\"sha256:aa\"},\"files\":3,\"directories\":1,"
	      "\"bytes\":2048,\"differences\":[],\"unsupported\":[]}",
	      "journal      sha256:aa\nenvironment  sha256:aa\nequal\n"
	      "3 files, 1 directories, 2.0 KiB\n");
	SHOWS(render_verify,
	      "{\"equal\":false,\"journal\":{\"content\":\"sha256:aa\"},"
	      "\"environment_side\":{\"content\":\"sha256:ab\"},\"files\":3,\"directories\":1,"
	      "\"bytes\":20,\"differences\":[{\"path\":\"d/f\",\"field\":\"mode\","
	      "\"journal\":\"0644\",\"environment\":\"0600\"}],\"truncated\":true}",
	      "journal      sha256:aa\nenvironment  sha256:ab\ndiffer: 1 and more\n"
	      "3 files, 1 directories, 20 B\n"
	      "PATH  FIELD  JOURNAL  ENVIRONMENT\n"
	      "d/f   mode   0644     0600\n");
}

static void ids(const char *id, bool nul, const char *json, const char *want, size_t n)
{
	json_t *o = json_loads(json, 0, NULL);
	char *text = NULL;
	size_t size = 0;
	struct render r = {.out = open_memstream(&text, &size), .nul = nul};

	assert_non_null(o);
	render_ids(&r, o, id);
	assert_int_equal(fclose(r.out), 0);
	assert_int_equal(size, n);
	assert_memory_equal(text, want, n);
	free(text);
	json_decref(o);
}

static void test_ids(void **state)
{
	ids("environment", false, "{\"environment\":\"a\"}", "a\n", 2);
	ids("seq", true, "{\"seq\":17}", "17\0", 3);
	ids("list/", false, "{\"list\":[\"a\",\"b\"]}", "a\nb\n", 4);
	ids("list/name", false, "{\"list\":[{\"name\":\"a\"},{\"other\":1},{\"name\":\"b\"}]}",
	    "a\nb\n", 4);
	ids("x/name,y/name", false, "{\"y\":[{\"name\":\"b\"}]}", "b\n", 2);
	ids("environment", false, "{}", "", 0);
}

static void test_numbers(void **state)
{
	char text[RENDER_SHORT_MAX];

	assert_string_equal(render_bytes_text(text, 0), "0 B");
	assert_string_equal(render_bytes_text(text, 1023), "1023 B");
	assert_string_equal(render_bytes_text(text, 1536), "1.5 KiB");
	assert_string_equal(render_bytes_text(text, 200.0 * 1024 * 1024), "200 MiB");
	assert_string_equal(render_ms_text(text, 999), "999 ms");
	assert_string_equal(render_ms_text(text, 1500), "1.5 s");
	assert_string_equal(render_ms_text(text, 600e3), "10 min");
	assert_string_equal(render_ms_text(text, 86400e3 * 3), "3 days");
}

static void test_progress(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	json_t *o = json_loads("{\"text\":\"copy\\u0007\",\"files\":10,\"bytes\":1048576,"
			       "\"total_files\":20,\"total_bytes\":2097152}",
			       0, NULL);
	static const char want[] = "copy\\x07: 10 of 20 files, 1.0 MiB, 1.0 MiB/s, 1.0 s left";

	assert_int_equal(progress_line(&b, o, 1000), 0);
	assert_int_equal(buf_len(&b), strlen(want));
	assert_memory_equal(buf_data(&b), want, strlen(want));
	json_decref(o);
}

/* The statuses of section 3 of the contract. */
static void test_exec_status(void **state)
{
	static const struct {
		const char *json;
		int status;
	} cases[] = {
		{"{\"state\":\"exited\",\"exit_code\":3,\"timed_out\":false}", 3},
		{"{\"state\":\"exited\",\"exit_code\":137,\"signal\":\"SIGKILL\"}", 137},
		{"{\"state\":\"exited\",\"exit_code\":124,\"timed_out\":true}", 124},
		{"{\"state\":\"exited\",\"timed_out\":true}", 124},
		{"{\"state\":\"exited\",\"exit_code\":127,\"error\":\"file_not_found\"}", 127},
		{"{\"state\":\"running\",\"timed_out\":false}", 0},
		{"{\"state\":\"unknown\",\"timed_out\":false}", 125},
		{"{}", 125},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		json_t *o = json_loads(cases[i].json, 0, NULL);

		assert_int_equal(exec_client_status(o), cases[i].status);
		json_decref(o);
	}
}

static void test_failures(void **state)
{
	json_t *f = failure_new("not_running", "do", "a \xff b");

	assert_string_equal(json_string_value(json_object_get(f, "detail")), "a \xef\xbf\xbd b");
	assert_int_equal(failure_exit(f), 125);
	json_object_set_new(f, "exit", json_integer(7));
	assert_int_equal(failure_exit(f), 7);
	json_decref(f);
	f = failure_new("timed_out", NULL, "x");
	assert_int_equal(failure_exit(f), 124);
	assert_int_equal(json_array_size(json_object_get(f, "next_steps")), 0);
	json_decref(f);
	f = failure_new("usage", NULL, "x");
	assert_int_equal(failure_exit(f), 2);
	json_decref(f);
}

static void test_values(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	json_t *o =
		json_pack("{s:o, s:o}", "p", value_text("a\xff", 2), "q", value_param("a\xff", 2));

	assert_string_equal(json_string_value(json_object_get(o, "p")), "a\xef\xbf\xbd");
	assert_string_equal(json_string_value(json_object_get(json_object_get(o, "q"), "base64")),
			    "Yf8=");
	json_object_set_new(o, "p_base64", json_string("Yf8="));
	assert_int_equal(value_bytes(&b, o, "p"), 0);
	assert_int_equal(buf_len(&b), 2);
	assert_memory_equal(buf_data(&b), "a\xff", 2);
	assert_int_equal(value_bytes(&b, o, "absent"), -ENOENT);
	json_decref(o);
}

/* No renderer stumbles over an object with nothing in it, or with the wrong types. */
static void test_robust(void **state)
{
	static const char *const objects[] = {
		"{}",
		"{\"environments\":7,\"entries\":{},\"differences\":\"x\",\"processes\":null}",
		"{\"environments\":[1,null,{\"reasons\":[1,{}],\"counts\":[]}],\"entries\":[3],"
		"\"journal\":1,\"differences\":[[]],\"processes\":[{\"argv\":[1,{}]}]}",
	};

	for (size_t i = 0; i < verb_table_count; i++) {
		for (size_t k = 0; verb_table[i].render && k < ARRAY_SIZE(objects); k++) {
			json_t *o = json_loads(objects[k], 0, NULL);
			struct render r = {.out = fopen("/dev/null", "w")};

			verb_table[i].render(&r, o);
			if (verb_table[i].id)
				render_ids(&r, o, verb_table[i].id);
			(void)fclose(r.out);
			json_decref(o);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tables),	    cmocka_unit_test(test_names_are_escaped),
		cmocka_unit_test(test_verify),	    cmocka_unit_test(test_ids),
		cmocka_unit_test(test_numbers),	    cmocka_unit_test(test_progress),
		cmocka_unit_test(test_exec_status), cmocka_unit_test(test_failures),
		cmocka_unit_test(test_values),	    cmocka_unit_test(test_robust),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
