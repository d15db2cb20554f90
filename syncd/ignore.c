#include "syncd/ignore.h"

#include <fnmatch.h>

#include "base/util.h"

enum { PATTERN_MAX = 1024 };

void ignore_done(struct ignore *ig)
{
	for (size_t i = 0; i < ig->n; i++)
		free(ig->patterns[i]);
	free(ig->patterns);
	*ig = (struct ignore){0};
}

int ignore_add(struct ignore *ig, const void *pattern, size_t len)
{
	char **patterns;

	if (len == 0 || len >= PATTERN_MAX)
		return -EINVAL;
	patterns = reallocarray(ig->patterns, ig->n + 1, sizeof(*patterns));
	if (!patterns)
		return -ENOMEM;
	ig->patterns = patterns;
	patterns[ig->n] = strndup(pattern, len);
	if (!patterns[ig->n])
		return -ENOMEM;
	ig->n++;
	return 0;
}

int ignore_copy(struct ignore *to, const struct ignore *from)
{
	for (size_t i = 0; i < from->n; i++) {
		int r = ignore_add(to, from->patterns[i], strlen(from->patterns[i]));

		if (r < 0)
			return r;
	}
	return 0;
}

static bool match_one(const char *pattern, const char *name, const char *path, bool is_dir)
{
	size_t n = strlen(pattern);
	char text[PATTERN_MAX];

	memcpy(text, pattern, n + 1);
	if (text[n - 1] == '/') {
		if (!is_dir)
			return false;
		text[n - 1] = '\0';
	}
	if (strchr(text, '/'))
		return fnmatch(text + (text[0] == '/'), path, FNM_PATHNAME) == 0;
	return fnmatch(text, name, 0) == 0;
}

bool ignore_match(const struct ignore *ig, const char *name, const char *path, bool is_dir)
{
	for (size_t i = 0; i < ig->n; i++)
		if (match_one(ig->patterns[i], name, path, is_dir))
			return true;
	return false;
}
