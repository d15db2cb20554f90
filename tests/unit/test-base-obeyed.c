/* Which names are obeyed, and by whom. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/obeyed.h"
#include "base/util.h"

static void names(void **state)
{
	static const struct {
		const char *path, *by;
	} c[] = {
		{".git/config", "git"},
		{"a/b/.git/config", "git"},
		{"a/.git/hooks/pre-commit", "git"},
		{"a/.git/hooks", "git"},
		{".git/modules/x/config", "git"},
		{".git/modules/x/hooks/post-checkout", "git"},
		{".git/worktrees/w/config.worktree", "git"},
		{"a/.git", "git"},
		{".mcp.json", "an agent"},
		{"deep/.claude/commands/x.md", "an agent"},
		{".vscode", "an editor"},
		{"a/.vscode/tasks.json", "an editor"},
		{"a/.envrc", "direnv"},
		{"", NULL},
		{"config", NULL},
		{"hooks/pre-commit", NULL},
		{"git/config", NULL},
		{".git/HEAD", NULL},
		{".git/hooks/pre-commit.sample", NULL},
		{".git/objects/ab/config2", NULL},
		{"a.git", NULL},
		{".gitignore", NULL},
		{".envrc.example", NULL},
		{"src/vscode/tasks.json", NULL},
		{".git2/hooks/x", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
		const char *by = obeyed_by(c[i].path, strlen(c[i].path));

		if (!by != !c[i].by || (by && strcmp(by, c[i].by) != 0))
			fail_msg("'%s': %s, not %s", c[i].path, by ? by : "nobody",
				 c[i].by ? c[i].by : "nobody");
	}
}

/* Bytes behind the end are not looked at. */
static void ends_where_it_is_said(void **state)
{
	(void)state;
	assert_null(obeyed_by(".git/config", 4 + 1 + 5));
	assert_non_null(obeyed_by(".git/configuration", 4 + 1 + 6));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),
		cmocka_unit_test(ends_where_it_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
