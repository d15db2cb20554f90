#include "base/obeyed.h"

#include <stdbool.h>
#include <string.h>

#include "base/util.h"

struct part {
	const char *p;
	size_t n;
};

static bool is(struct part part, const char *name)
{
	return part.n == strlen(name) && memcmp(part.p, name, part.n) == 0;
}

static bool ends_with(struct part part, const char *end)
{
	size_t n = strlen(end);

	return part.n >= n && memcmp(part.p + part.n - n, end, n) == 0;
}

static struct part last_of(const char *path, size_t len)
{
	const char *slash = memrchr(path, '/', len);
	const char *begin = slash ? slash + 1 : path;

	return (struct part){begin, (size_t)(path + len - begin)};
}

/* What is left when the last component is taken away. */
static size_t above(const char *path, size_t len)
{
	const char *slash = memrchr(path, '/', len);

	return slash ? (size_t)(slash - path) : 0;
}

/* Also those of submodules and work trees: .git/modules/x/config. */
static bool git_obeys(struct part name, struct part parent, bool in_git)
{
	if (is(name, ".git")) /* a file of that name leads to another repository */
		return true;
	/* Those that git comes with: it runs none by such a name. */
	if (ends_with(name, ".sample"))
		return false;
	return in_git && (is(name, "config") || is(name, "config.worktree") || is(name, "hooks") ||
			  is(parent, "hooks"));
}

const char *obeyed_by(const char *path, size_t len)
{
	static const struct {
		const char *name, *by;
	} files[] = {
		{".mcp.json", "an agent"},  {".envrc", "direnv"},
		{".exrc", "an editor"},	    {".nvimrc", "an editor"},
		{".nvim.lua", "an editor"}, {".dir-locals.el", "an editor"},
	};
	static const struct {
		const char *name, *by;
	} directories[] = {
		{".vscode", "an editor"}, {".idea", "an editor"},  {".zed", "an editor"},
		{".claude", "an agent"},  {".cursor", "an agent"}, {".codex", "an agent"},
		{".gemini", "an agent"},
	};
	struct part name = last_of(path, len);
	struct part parent = last_of(path, above(path, len));
	const char *by = NULL;
	bool in_git = false;

	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (is(name, files[i].name))
			return files[i].by;
	for (size_t n = len; n > 0; n = above(path, n)) {
		struct part part = last_of(path, n);

		in_git = in_git || (n < len && is(part, ".git"));
		for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
			if (is(part, directories[i].name))
				by = directories[i].by;
	}
	return git_obeys(name, parent, in_git) ? "git" : by;
}
