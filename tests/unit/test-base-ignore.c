/* What is left out is what git leaves out, and no pattern takes long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/ignore.h"
#include "base/util.h"
#include "scratch.h"

static uint64_t dice;

static unsigned roll(unsigned n)
{
	dice = dice * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(dice >> 33) % n;
}

static void append(char *text, const char *more)
{
	memcpy(text + strlen(text), more, strlen(more) + 1);
}

static bool out(const char *text, const char *path, bool is_dir)
{
	struct ignore ig = {0};
	bool r;

	assert_int_equal(ignore_add(&ig, "", text, strlen(text)), 0);
	r = ignore_covers(&ig, path, is_dir, NULL);
	ignore_done(&ig);
	return r;
}

static void lines(void **state)
{
	(void)state;
	assert_true(out("*.o\n", "a/b.o", false));
	assert_false(out("*.o\n", "a/b.oo", false));
	assert_true(out("build/\n", "a/build", true));
	assert_false(out("build/\n", "a/build", false));
	assert_true(out("build/\n", "a/build/x/y", false));
	assert_true(out("/build\n", "build", false));
	assert_false(out("/build\n", "a/build", false));
	assert_true(out("a/b\n", "a/b", false));
	assert_false(out("a/b\n", "x/a/b", false));
	assert_true(out("**/a/b\n", "x/y/a/b", false));
	assert_true(out("a/**/b\n", "a/b", false));
	assert_true(out("a/**/b\n", "a/x/y/b", false));
	assert_true(out("a/**\n", "a/x", false));
	assert_false(out("a/**\n", "a", true));
	assert_false(out("*.o\n!keep.o\n", "keep.o", false));
	assert_true(out("d\n!d/keep\n", "d/keep", false));
	assert_true(out("\\#a\n", "#a", false));
	assert_false(out("#a\n", "#a", false));
	assert_true(out("\\!a\n", "!a", false));
	assert_true(out("a  \n", "a", false));
	assert_true(out("a\\ \n", "a ", false));
	assert_true(out("a\r\n", "a", false));
	assert_true(out("\xef\xbb\xbf"
			"a",
			"a", false));
	assert_true(out("[a-c]?[!x]\n", "bzy", false));
	assert_false(out("[a-c]?[!x]\n", "bzx", false));
	assert_true(out("[[:digit:]]\n", "7", false));
	assert_true(out("[]]\n", "]", false));
	assert_false(out("[a\n", "[a", false));
	assert_false(out("\n\n/\n!\n!/\n\\\n", "a", false));
	assert_true(out("\xff*\n", "\xff\xfe", false));
}

static void nearest_file_first(void **state)
{
	struct ignore ig = {0};
	struct ignore_hit hit;

	(void)state;
	assert_int_equal(ignore_add(&ig, "", "*.log\nonly/\n", 12), 0);
	assert_int_equal(ignore_add(&ig, "a/b", "\n!keep.log\n/here\n", 17), 0);
	assert_true(ignore_match(&ig, "a/x.log", false, &hit));
	assert_int_equal(hit.rule->line, 1);
	assert_false(ignore_match(&ig, "a/b/keep.log", false, &hit));
	assert_int_equal(hit.rule->line, 2);
	assert_true(ignore_match(&ig, "a/b/here", false, NULL));
	assert_false(ignore_match(&ig, "a/b/c/here", false, NULL));
	assert_false(ignore_match(&ig, "here", false, NULL));
	assert_false(ignore_match(&ig, "a/bb/here", false, NULL));
	/* A person has the last word. */
	assert_int_equal(ignore_add(&ig, NULL, "keep.log\n!x.log\n", 16), 0);
	assert_true(ignore_match(&ig, "a/b/keep.log", false, &hit));
	assert_true(hit.file->person);
	assert_false(ignore_match(&ig, "a/x.log", false, NULL));
	ignore_done(&ig);
}

static void limits(void **state)
{
	cleanup_free char *big = malloc(IGNORE_TEXT_MAX + 2);
	struct ignore ig = {0};
	size_t n = 0;

	(void)state;
	memset(big, 'x', IGNORE_TEXT_MAX + 2);
	assert_int_equal(ignore_add(&ig, "", big, IGNORE_TEXT_MAX + 1), -E2BIG);
	/* A line that is too long says nothing. */
	assert_int_equal(ignore_add(&ig, "", big, IGNORE_TEXT_MAX), 0);
	assert_int_equal(ig.n_rules, 0);
	for (size_t i = 0; i + 1 < IGNORE_TEXT_MAX; i += 2)
		memcpy(big + i, "a\n", 2);
	assert_int_equal(ignore_add(&ig, "", big, IGNORE_TEXT_MAX), -E2BIG);
	for (; ignore_add(&ig, "d", "a\n", 2) == 0; n++)
		;
	assert_int_equal(n, IGNORE_FILES_MAX - 1);
	ignore_done(&ig);
}

/* A pattern that a backtracking matcher would need years for. */
static void hostile_patterns(void **state)
{
	char pattern[IGNORE_PATTERN_MAX + 2], path[4096];
	uint64_t begun_ms = clock_mono_ms();

	(void)state;
	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	for (size_t i = 0; i + 2 < IGNORE_PATTERN_MAX; i += 2)
		memcpy(pattern + i, "*a", 3);
	memcpy(pattern + IGNORE_PATTERN_MAX - 4, "b\n", 3);
	assert_false(out(pattern, path, false));
	for (size_t i = 100; i < sizeof(path) - 1; i += 100)
		path[i] = '/';
	for (size_t i = 0; i + 8 < IGNORE_PATTERN_MAX; i += 5)
		memcpy(pattern + i, "**/*a", 6);
	append(pattern, "b\n");
	assert_false(out(pattern, path, false));
	/* Generous: it is some 10 ms. */
	assert_true(clock_mono_ms() - begun_ms < 20000);
}

/* Whole trees have a bound, however many patterns and however long the paths. */
static void hostile_trees(void **state)
{
	cleanup_free char *text = calloc(1, IGNORE_TEXT_MAX);
	uint64_t left, begun;
	struct ignore ig = {0};
	unsigned asked = 0;
	char path[4096];

	(void)state;
	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	for (size_t i = 200; i < sizeof(path) - 1; i += 200)
		path[i] = '/';
	for (size_t i = 0; i + 512 < IGNORE_TEXT_MAX; i += 500) {
		for (size_t k = 0; k < 498; k += 2)
			memcpy(text + i + k, k ? "*a" : "/*", 2);
		memcpy(text + i + 498, "b\n", 2);
	}
	assert_int_equal(ignore_add(&ig, "", text, strlen(text)), 0);
	ignore_bound(&ig, 10, &left);
	begun = left;
	while (left) {
		assert_false(ignore_covers(&ig, path, false, NULL));
		asked++;
		assert_true(asked < 1000);
	}
	/* A tree that is as it should be does not come near it. */
	ignore_done(&ig);
	assert_int_equal(ignore_add(&ig, "", "[Bb]uild/\n**/x?/*.o\n*.py[co]\n", 30), 0);
	ignore_bound(&ig, 10, &left);
	for (int i = 0; i < 10; i++)
		assert_true(ignore_covers(&ig, "a/b/c/d/e/f/g.pyc", false, NULL));
	assert_true(begun - left < begun / 100);
	ignore_done(&ig);
}

static void text_ends_at_nul(void **state)
{
	struct ignore ig = {0}, copy = {0};

	(void)state;
	assert_int_equal(ignore_add(&ig, "", "a\n\0b\nc\n", 7), 0);
	assert_true(ignore_match(&ig, "a", false, NULL));
	assert_int_equal(ignore_copy(&copy, &ig), 0);
	assert_int_equal(copy.n_rules, ig.n_rules);
	assert_false(ignore_match(&ig, "c", false, NULL));
	ignore_done(&copy);
	ignore_done(&ig);
}

/* ---- beside git ---- */

static const char *const parts[] = {"a",    "b", "ab", "*",   "**",    "?",   "[ab]",
				    "[!a]", "/", "/",  "/",   "/",     "!",   "\\",
				    " ",    "#", ".o", "*.o", "a*",    "**/", "/**",
				    "[",    "]", "-",  "b*a", "[a-b]", "\\*", "[[:alpha:]]"};

static void some_text(char *text, size_t size)
{
	unsigned n_lines = 1 + roll(4);

	*text = 0;
	for (unsigned i = 0; i < n_lines; i++) {
		if (roll(5) == 0)
			append(text, "!");
		if (roll(5) == 0)
			append(text, "/");
		for (unsigned k = 1 + roll(4); k > 0; k--)
			append(text, parts[roll(ARRAY_SIZE(parts))]);
		if (roll(5) == 0)
			append(text, "/");
		append(text, "\n");
	}
	assert_true(strlen(text) < size);
}

static void write_to(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	(void)close(fd);
}

enum { PATHS = 60 };

struct path {
	char path[64];
	bool is_dir, out;
};

/* Directories a, b, ab and files in them, three deep. */
static size_t make_paths(struct path *v)
{
	static const char *const names[] = {"a", "b", "ab", "a.o", "b a", "[a]", "#a", "a*", "-"};
	size_t n = 0, dirs = 0;

	while (n < PATHS) {
		const char *above = n && roll(4) ? v[roll((unsigned)n)].path : "";
		struct path *p = &v[n];
		struct stat st;

		if (strlen(above) > 12 ||
		    (*above && (stat(above, &st) < 0 || !S_ISDIR(st.st_mode))))
			continue;
		(void)snprintf(p->path, sizeof(p->path), "%.12s%s%s", above, *above ? "/" : "",
			       names[roll(ARRAY_SIZE(names))]);
		if (lstat(p->path, &st) == 0) {
			if (++dirs > 1000)
				break;
			continue;
		}
		p->is_dir = roll(2);
		if (p->is_dir)
			assert_int_equal(mkdir(p->path, 0755), 0);
		else
			write_to(p->path, "");
		n++;
	}
	return n;
}

static int run(const char *command)
{
	FILE *f = popen(command, "r");
	char text[256];

	assert_non_null(f);
	while (fgets(text, sizeof(text), f))
		;
	return pclose(f);
}

static void ask_git(struct path *v, size_t n)
{
	char *line = NULL;
	size_t cap = 0;
	FILE *f = fopen("../asked", "w");

	for (size_t i = 0; i < n; i++)
		(void)fwrite(v[i].path, 1, strlen(v[i].path) + 1, f);
	(void)fclose(f);
	/* SOURCE, LINE, PATTERN, PATH: without PATTERN nothing matched. */
	f = popen("git -c core.excludesFile=/dev/null check-ignore --no-index -v -n --stdin -z "
		  "<../asked 2>/dev/null",
		  "r");
	assert_non_null(f);
	for (size_t i = 0; i < n; i++) {
		bool negative = false, hit = false;

		for (int field = 0; field < 4; field++) {
			ssize_t len = getdelim(&line, &cap, 0, f);

			assert_true(len > 0);
			if (field == 2) {
				hit = len > 1;
				negative = line[0] == '!';
			}
		}
		assert_string_equal(line, v[i].path);
		v[i].out = hit && !negative;
	}
	(void)pclose(f);
	free(line);
}

static void as_git_does(void **state)
{
	static struct path v[PATHS];
	unsigned cases = 0, differ = 0, outs = 0;
	char dir[PATH_MAX + 32];

	(void)state;
	if (run("git --version >/dev/null 2>&1") != 0) {
		print_message("# git is missing\n");
		skip();
	}
	for (unsigned seed = 1; seed <= 60; seed++) {
		char text[3][400];
		const char *dirs[3] = {"", "a", "a/b"};
		struct ignore ig = {0};
		size_t n;

		dice = seed;
		(void)snprintf(dir, sizeof(dir), "%s/%u", scratch_path, seed);
		assert_int_equal(mkdir(dir, 0755), 0);
		assert_int_equal(chdir(dir), 0);
		assert_int_equal(run("git init -q . 2>&1"), 0);
		n = make_paths(v);
		for (int i = 0; i < 3; i++) {
			char path[64];
			struct stat st;

			some_text(text[i], sizeof(text[i]));
			(void)snprintf(path, sizeof(path), "%s%s.gitignore", dirs[i],
				       *dirs[i] ? "/" : "");
			if (*dirs[i] && (stat(dirs[i], &st) < 0 || !S_ISDIR(st.st_mode)))
				continue;
			write_to(path, text[i]);
			assert_int_equal(ignore_add(&ig, dirs[i], text[i], strlen(text[i])), 0);
		}
		ask_git(v, n);
		for (size_t i = 0; i < n; i++) {
			bool ours = ignore_covers(&ig, v[i].path, v[i].is_dir, NULL);

			cases++;
			outs += ours;
			if (ours == v[i].out)
				continue;
			differ++;
			print_message("# seed %u, '%s'%s: git %s it\n# root: %s# a: %s# a/b: %s",
				      seed, v[i].path, v[i].is_dir ? " (directory)" : "",
				      v[i].out ? "leaves out" : "keeps", text[0], text[1], text[2]);
		}
		ignore_done(&ig);
		assert_int_equal(chdir("/"), 0);
	}
	print_message("# %u cases, %u left out\n", cases, outs);
	assert_int_equal(differ, 0);
	assert_true(cases >= 1000 && outs >= 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines),
		cmocka_unit_test(nearest_file_first),
		cmocka_unit_test(limits),
		cmocka_unit_test(hostile_patterns),
		cmocka_unit_test(hostile_trees),
		cmocka_unit_test(text_ends_at_nul),
		cmocka_unit_test_setup_teardown(as_git_does, scratch_setup, scratch_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
