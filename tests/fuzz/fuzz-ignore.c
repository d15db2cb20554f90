/* Any texts in any directories, and any paths: what is added is a part of what was given; the
 * answer names a line that is in force there; asking twice, asking a copy and asking with a bound
 * that is not met are the same; and a path written with backslashes is matched by itself. */
#include "base/ignore.h"
#include "tests/fuzz/fuzz.h"

enum { FILES_MAX = 6, PATHS_MAX = 12, PATH_BYTES_MAX = 300 };

/* One that ignore_match() takes: not empty, no '/' at its ends. */
static bool take_path(struct fuzz_in *in, char *out)
{
	const uint8_t *p;
	size_t n = fuzz_take_bytes(in, PATH_BYTES_MAX, &p);

	while (n > 0 && *p == '/') {
		p++;
		n--;
	}
	while (n > 0 && p[n - 1] == '/')
		n--;
	memcpy(out, p, n);
	out[n] = 0;
	out[strcspn(out, "\n")] = 0;
	n = strlen(out);
	while (n > 0 && out[n - 1] == '/')
		out[--n] = 0;
	return n > 0;
}

static bool is_beneath(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return n == 0 || (strncmp(path, dir, n) == 0 && path[n] == '/');
}

static void check_hit(const struct ignore *ig, const char *path, bool is_dir, bool left_out,
		      const struct ignore_hit *hit)
{
	must((hit->file != NULL) == (hit->rule != NULL));
	must(left_out == (hit->rule && !hit->rule->negative));
	if (!hit->rule)
		return;
	must(hit->file >= ig->files && hit->file < ig->files + ig->n_files);
	must(hit->rule >= hit->file->rules && hit->rule < hit->file->rules + hit->file->n);
	must(is_beneath(path, hit->file->dir));
	must(is_dir || !hit->rule->dir_only);
}

static bool covers_slowly(const struct ignore *ig, const char *path, bool is_dir)
{
	char part[PATH_BYTES_MAX + 1];

	for (size_t i = 1; path[i]; i++) {
		if (path[i] != '/')
			continue;
		memcpy(part, path, i);
		part[i] = 0;
		if (ignore_match(ig, part, true, NULL))
			return true;
	}
	return ignore_match(ig, path, is_dir, NULL);
}

static void ask(const struct ignore *ig, const struct ignore *copy, const struct ignore *bounded,
		const char *path, bool is_dir)
{
	struct ignore_hit hit = {0};
	bool left_out = ignore_match(ig, path, is_dir, &hit);

	check_hit(ig, path, is_dir, left_out, &hit);
	must(ignore_match(copy, path, is_dir, NULL) == left_out);
	must(ignore_match(bounded, path, is_dir, NULL) == left_out || *bounded->left == 0);
	must(ignore_covers(ig, path, is_dir, NULL) == covers_slowly(ig, path, is_dir));
}

static void matches_itself(const char *path)
{
	struct ignore ig = {0};
	char line[2 * PATH_BYTES_MAX + 2];
	size_t n = 0;

	line[n++] = '/';
	for (const char *c = path; *c; c++) {
		if (strchr("*?[\\ \r", *c))
			line[n++] = '\\';
		line[n++] = *c;
	}
	must(ignore_add(&ig, NULL, line, n) == 0);
	/* A line end of another system's, or too long a line, is none. */
	if (ig.n_rules == 1 && path[strlen(path) - 1] != '\r')
		must(ignore_match(&ig, path, false, NULL));
	ignore_done(&ig);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};
	struct ignore ig = {0}, copy = {0}, bounded = {0};
	char dir[PATH_BYTES_MAX + 1], path[PATH_BYTES_MAX + 1];
	unsigned n_files = fuzz_take(&in, 1) % FILES_MAX;
	const uint8_t *text;
	uint64_t left;
	size_t n;

	for (unsigned i = 0; i < n_files; i++) {
		bool person = fuzz_take(&in, 1) & 1, root = !take_path(&in, dir);
		int r;

		n = fuzz_take_bytes(&in, IGNORE_TEXT_MAX + 10, &text);
		r = ignore_add(&ig, person ? NULL : root ? "" : dir, text, n);
		must(r == 0 || (r == -E2BIG && n > IGNORE_RULES_MAX));
	}
	must(ig.n_rules <= IGNORE_RULES_MAX && ig.n_files <= n_files);
	must(ignore_copy(&copy, &ig) == 0 && copy.n_rules == ig.n_rules);
	must(ignore_copy(&bounded, &ig) == 0);
	ignore_bound(&bounded, 0, &left);
	left = left >> (fuzz_take(&in, 1) & 63);
	for (unsigned i = 0; i < PATHS_MAX && take_path(&in, path); i++) {
		ask(&ig, &copy, &bounded, path, fuzz_take(&in, 1) & 1);
		matches_itself(path);
	}
	ignore_done(&ig);
	ignore_done(&copy);
	ignore_done(&bounded);
	return 0;
}
