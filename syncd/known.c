#include "syncd/known.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/beneath.h"
#include "syncd/apply.h"
#include "syncd/plan.h"
#include "syncd/state.h"

enum { DEEP = 512 };

struct look {
	struct sync *sy;
	unsigned deep;
	bool ignored_too; /* what is ignored counts as known */
};

static int entry_known(struct look *l, int dir, uint32_t e);

/* A name of the directory that is being listed. */
static int name_known(struct look *l, int dir, uint32_t n, const char *name)
{
	size_t len = strlen(name);
	struct stamp st;
	uint32_t e;

	if (apply_is_temp(name, len))
		return 0;
	e = shadow_find(&l->sy->shadow, n, name, len);
	if (e)
		return entry_known(l, dir, e);
	if (l->ignored_too && stamp_at(dir, name, &st) == 0 &&
	    sync_is_ignored(l->sy, n, name, len, &st))
		return 0;
	/* Also what is ignored is not known: it would go unseen. */
	(void)dirty_mark(&l->sy->dirty, ITEM_NAME, n, name, len, 0, NULL);
	return -ESTALE;
}

static int directory_known(struct look *l, int dir, const char *name, uint32_t n)
{
	struct dirent *d;
	int fd, r = 0;
	DIR *list;

	if (l->deep == DEEP)
		return -ESTALE;
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	list = fd < 0 ? NULL : fdopendir(fd);
	if (!list) {
		if (fd >= 0)
			(void)close(fd);
		return -ESTALE;
	}
	l->deep++;
	while (r == 0 && (errno = 0, d = readdir(list))) {
		if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
			r = name_known(l, fd, n, d->d_name);
	}
	if (r == 0 && errno)
		r = -ESTALE;
	l->deep--;
	(void)closedir(list);
	return r;
}

static int entry_known(struct look *l, int dir, uint32_t e)
{
	struct sync *sy = l->sy;
	uint32_t n = shadow_entry(&sy->shadow, e)->node,
		 parent = shadow_entry(&sy->shadow, e)->parent;
	const struct shadow_node *node = shadow_node(&sy->shadow, n);
	cleanup_free char *path = NULL;
	const char *lent;
	struct stat st;
	char name[256];
	uint8_t len;

	lent = shadow_name(&sy->shadow, e, &len);
	memcpy(name, lent, len);
	name[len] = 0;
	path = shadow_path(&sy->shadow, parent, name, len);
	if (path && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    !(node->flags & (SHADOW_FOREIGN | SHADOW_UNKNOWN)) && sync_is_known(sy, path, &st))
		return S_ISDIR(st.st_mode) ? directory_known(l, dir, name, n) : 0;
	(void)dirty_mark(&sy->dirty, ITEM_NAME, parent, name, len, ITEM_CONTENT, NULL);
	return -ESTALE;
}

/* Is the node beneath n (or n)? One of its names is enough. */
static bool concerns(const struct shadow *sh, uint32_t node, uint32_t n)
{
	if (node == n)
		return true;
	for (uint32_t e = shadow_node(sh, node)->entries; e; e = shadow_entry(sh, e)->same)
		if (shadow_is_beneath(sh, shadow_entry(sh, e)->parent, n))
			return true;
	return false;
}

/* Was anything of it told after `seen`? */
static bool told_since(const struct sync *sy, uint32_t n, uint64_t seen)
{
	const struct shadow *sh = &sy->shadow;
	bool dir = shadow_dir(sh, n) != NULL;

	if (sy->undo.lost)
		return true;
	for (size_t i = sy->undo.end; i-- > sy->undo.start;) {
		const struct undo_record *rec = &sy->undo.records[i];

		if (rec->number <= seen)
			return false;
		if (rec->kind == UNDO_UNLINK)
			continue; /* what went is no reason to stay */
		if (rec->kind == UNDO_PUT
			    ? S_ISDIR(shadow_node(sh, rec->entry)->mode)
				      ? false
				      : concerns(sh, rec->entry, n)
			    : shadow_entry(sh, rec->entry)->node == n ||
				      (dir && shadow_is_beneath(
						      sh, shadow_entry(sh, rec->entry)->parent, n)))
			return true;
	}
	return false;
}

int known_check(struct sync *sy, const char *path, uint64_t node, uint64_t seen, enum known_how how)
{
	struct look l = {.sy = sy};
	cleanup_close int dir = -1;
	const char *name;
	struct stamp st;
	uint32_t e, n;
	int r = -ESTALE;

	e = sync_entry_at(sy, path, strlen(path));
	n = e ? shadow_entry(&sy->shadow, e)->node : 0;
	if (e && shadow_node(&sy->shadow, n)->id == node &&
	    beneath_open_parent(sy->root.fd, path, &dir, &name) == 0) {
		if (how == KNOWN_NODE)
			r = stamp_at(dir, name, &st) == 0 && plan_is_node(sy, n, &st) ? 0 : -ESTALE;
		else
			r = told_since(sy, n, seen) ? -ESTALE : entry_known(&l, dir, e);
	}
	if (r < 0)
		sync_touch(sy, path, strlen(path), 0);
	return r;
}

/* The first of its names that the shadow has not is left out by a rule. */
static bool leads_into_ignored(struct sync *sy, const char *path)
{
	uint32_t dir = SHADOW_ROOT, e;

	for (const char *s = path, *slash;; s = slash + 1) {
		cleanup_close int parent = -1;
		cleanup_free char *upto = NULL;
		const char *name;
		struct stamp st;
		size_t n;

		slash = strchr(s, '/');
		n = slash ? (size_t)(slash - s) : strlen(s);
		e = n <= NODE_NAME_MAX ? shadow_find(&sy->shadow, dir, s, n) : 0;
		if (!e) {
			upto = strndup(path, (size_t)(s - path) + n);
			return upto &&
			       beneath_open_parent(sy->root.fd, upto, &parent, &name) == 0 &&
			       stamp_at(parent, name, &st) == 0 &&
			       sync_is_ignored(sy, dir, s, n, &st);
		}
		dir = shadow_entry(&sy->shadow, e)->node;
		if (!slash || !shadow_dir(&sy->shadow, dir))
			return false;
	}
}

int known_told(struct sync *sy, const char *path)
{
	struct look l = {.sy = sy, .ignored_too = true};
	cleanup_close int dir = -1;
	const char *name;
	struct stamp st;
	uint32_t e;
	int r = -ESTALE;

	if (beneath_open_parent(sy->root.fd, path, &dir, &name) < 0 || stamp_at(dir, name, &st) < 0)
		return 0; /* nothing, or nothing that an APPLY could reach */
	e = sync_entry_at(sy, path, strlen(path));
	if (e)
		r = entry_known(&l, dir, e);
	else if (leads_into_ignored(sy, path))
		r = 0;
	if (r < 0)
		sync_touch(sy, path, strlen(path), 0);
	return r;
}
