/*
 * limb-copy SRC DST - copies the directory SRC to DST, which is new or empty
 * (tree-copy.h says what is kept).
 *
 * On stdout one JSON object a line, every 250 ms and at the end: {"files",
 * "bytes"}, the last one with "done":true and all counts.  On stderr one line for
 * each entry that is not as it was.  Status 0: copied, but for those lines; 2:
 * usage; 125: not copied, and the last object has "detail".  Ends when nobody reads its stdout any more.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "bridge/tree-copy.h"
#include "bridge/value.h"

enum { STATUS_USAGE = 2, STATUS_FAILED = 125, SHOWN_MAX = 1024 };

static int say(const char *text, int n)
{
	return io_write_full(STDOUT_FILENO, text, (size_t)n, "copy.progress");
}

static int progress(const struct tree_copy *c, void *userdata)
{
	char line[128];

	return say(line,
		   snprintf(line, sizeof(line), "{\"files\":%" PRIu64 ",\"bytes\":%" PRIu64 "}\n",
			    c->files, c->bytes));
}

static int finish(const struct tree_copy *c)
{
	char line[512];

	return say(line,
		   snprintf(line, sizeof(line),
			    "{\"files\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"directories\":%" PRIu64
			    ",\"symlinks\":%" PRIu64 ",\"others\":%" PRIu64
			    ",\"unreadable\":%" PRIu64 ",\"mounts\":%" PRIu64
			    ",\"not_kept\":%" PRIu64 ",\"done\":true}\n",
			    c->files, c->bytes, c->directories, c->symlinks, c->others,
			    c->unreadable, c->mounts, c->not_kept));
}

static void report(const char *path, size_t n, const char *why, void *userdata)
{
	char shown[SHOWN_MAX];

	log_warning("'%s' is left out: %s", text_escape_into(shown, sizeof(shown), path, n), why);
}

/* Why there is no copy: on stderr, and on stdout for who started us. */
static int refuse(const char *detail)
{
	json_t *o = json_pack("{s:o}", "detail", value_text(detail, strlen(detail)));
	char *line = o ? json_dumps(o, JSON_COMPACT) : NULL;

	log_error("%s", detail);
	if (line && say(line, (int)strlen(line)) >= 0)
		(void)say("\n", 1);
	free(line);
	json_decref(o);
	return STATUS_FAILED;
}

static int failed(int r, const char *what, const char *path)
{
	char shown[SHOWN_MAX], detail[SHOWN_MAX + 256];

	(void)snprintf(detail, sizeof(detail), "%s '%s': %s", what,
		       text_escape_into(shown, sizeof(shown), path, strlen(path)), strerror(-r));
	return refuse(detail);
}

static int is_empty(int fd)
{
	char **names = NULL;
	size_t n = 0;
	int r = file_list(fd, ".", 1, &names, &n);

	if (r < 0 && r != -E2BIG)
		return r;
	if (r >= 0)
		file_names_free(names, n);
	return r >= 0 && n == 0;
}

/* DST opened, made if absent, and its parent. */
static int open_target(const char *path, int *ret_parent, int *ret_dst, const char **ret_name)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	cleanup_free char *parent = NULL;
	cleanup_close int parent_fd = -1, dst = -1;

	if (*name == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return -EINVAL;
	if (slash == path)
		parent = strdup("/");
	else
		parent = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
	if (!parent)
		return -ENOMEM;
	parent_fd = file_open_dir(AT_FDCWD, parent);
	if (parent_fd < 0)
		return parent_fd;
	if (mkdirat(parent_fd, name, 0700) < 0 && errno != EEXIST)
		return -errno;
	dst = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (dst < 0)
		return -errno;
	*ret_parent = take_fd(&parent_fd);
	*ret_dst = take_fd(&dst);
	*ret_name = name;
	return 0;
}

static int run(const char *src_path, const char *dst_path)
{
	cleanup_close int src = -1, parent = -1, dst = -1;
	struct tree_copy c = {.progress = progress, .report = report};
	const char *name = NULL;
	int r;

	src = file_open_dir(AT_FDCWD, src_path);
	if (src < 0)
		return failed(src, "cannot open", src_path);
	r = open_target(dst_path, &parent, &dst, &name);
	if (r < 0)
		return failed(r, "cannot make", dst_path);
	if (tree_copy_is_beneath(dst, src) != 0 || tree_copy_is_beneath(src, dst) != 0) {
		(void)unlinkat(parent, name, AT_REMOVEDIR);
		return refuse("one of the two directories lies in the other");
	}
	r = is_empty(dst);
	if (r <= 0)
		return failed(r < 0 ? r : -ENOTEMPTY, "cannot copy into", dst_path);
	r = tree_copy_run(&c, src, parent, name, dst);
	if (r < 0)
		return failed(r, "cannot finish the copy in", dst_path);
	return finish(&c) < 0 ? STATUS_FAILED : 0;
}

int main(int argc, char **argv)
{
	log_init("limb-copy");
	(void)signal(SIGPIPE, SIG_IGN);
	if (argc != 3) {
		log_error("usage: limb-copy SRC DST");
		return STATUS_USAGE;
	}
	return run(argv[1], argv[2]);
}
