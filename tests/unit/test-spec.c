/* What a spec may say, of which provider. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "brain/spec.h"

static const char *judged(const char *provider, const char *text)
{
	static char room[SPEC_WHY_MAX];
	json_t *spec = json_loads(text, 0, NULL);
	const char *why;

	assert_non_null(spec);
	why = spec_judge(spec, provider, room);
	json_decref(spec);
	return why;
}

static void fine(void **state)
{
	static const char *const cases[][2] = {
		{"bwrap", "{}"},
		{"bwrap", "{\"limits\": {}}"},
		{"local", "{\"env\": {\"A\": \"\"}, \"view\": {\"write\": false, \"wait_s\": 1}}"},
		{"container", "{\"network\": true, \"image\": \"x\", \"limits\": {\"cpu\": 0.5}}"},
		{"command", "{\"command\": [\"a\"], \"path\": \"/x\"}"},
		{"ssh", "{\"path\": \"/x\", \"quota_bytes\": 1, \"watch_limit\": 0}"},
		{"ssh", "{\"ignore\": [\"x\"], \"audit\": \"full\", \"class\": \"strong\"}"},
		{"local", "{\"class\": \"eventual\", \"classes\": [{\"pattern\": \"/a/**/*.log\", "
			  "\"class\": \"ordered\"}]}"},
		{"/opt/theirs", "{\"anything\": {\"at\": [\"all\"]}, \"network\": 7}"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (judged(cases[i][0], cases[i][1]))
			fail_msg("%s: %s", cases[i][1], judged(cases[i][0], cases[i][1]));
}

static void refused(void **state)
{
	static const char *const cases[][3] = {
		{"bwrap", "{\"frob\": 1}", "`frob`"},
		{"bwrap", "{\"\": 1}", "``"},
		{"bwrap", "{\"env ignore\": 1}", "`env ignore`"},
		{"bwrap", "{\"quota\": 1}", "`quota`"},
		{"bwrap", "{\"bytes\": 1}", "`bytes`"},
		{"bwrap", "{\"network\": false}", "`network`"},
		{"local", "{\"image\": \"x\"}", "`image`"},
		{"ssh", "{\"command\": []}", "`command`"},
		{"local", "{\"a\\u001bb\": 1}", "\\x1b"},
		{"/opt/theirs", "{\"limits\": [1]}", "`limits`"},
		{"/opt/theirs", "{\"limits\": {\"cpu\": -1}}", "`limits`"},
		{"/opt/theirs", "{\"view\": {\"write\": 1}}", "`view`"},
		{"/opt/theirs", "{\"view\": {\"wait_s\": -1}}", "`view`"},
		{"/opt/theirs", "{\"env\": {\"A=\": \"\"}}", "`env`"},
		{"/opt/theirs", "{\"env\": {\"A\": 1}}", "`env`"},
		{"/opt/theirs", "{\"watch_limit\": -1}", "`watch_limit`"},
		{"local", "{\"class\": 1}", "`class`"},
		{"local", "{\"class\": \"strongest\"}", "`class`"},
		{"local", "{\"classes\": {}}", "`classes`"},
		{"local", "{\"classes\": [{\"pattern\": \"a\", \"class\": \"weak\"}]}", "class is"},
		{"local", "{\"classes\": [{\"pattern\": \"!a\", \"class\": \"strong\"}]}",
		 "pattern"},
		{"local", "{\"classes\": [{\"pattern\": \"a\\nb\", \"class\": \"strong\"}]}",
		 "pattern"},
		{"local", "{\"classes\": [{\"class\": \"strong\"}]}", "pattern"},
		{"/opt/theirs", "{\"sweep_s\": 2592001}", "`sweep_s`"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *why = judged(cases[i][0], cases[i][1]);

		if (!why || !strstr(why, cases[i][2]))
			fail_msg("%s: %s", cases[i][1], why ? why : "taken");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fine),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
