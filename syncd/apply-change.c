/* apply.h's APPLY: one change of each kind but PUT. */
#include "syncd/apply-impl.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "base/beneath.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/util.h"
#include "syncd/apply.h"
#include "syncd/attrs.h"
#include "wire/attr.h"

/* As they came from the brain, or those of a new file with the mode. */
static uint32_t give_attrs(const struct change *c, int dir, const char *name, int fd)
{
	mode_t mode = c->node.mode;

	if (!c->m->attr)
		return 0;
	if (!c->m->attr_defaults)
		return attrs_set(dir, name, fd, &c->node, false);
	if (c->node.type == NODE_TYPE_SYMLINK)
		return 0;
	return (fd >= 0 ? fchmod(fd, mode) : fchmodat(dir, name, mode, AT_SYMLINK_NOFOLLOW)) < 0
		       ? NODE_FIELD_MODE
		       : 0;
}

/* What an owner may set and could not is an error: somebody asked for it. */
int apply_give_attrs(const struct change *c, int dir, const char *name, int fd)
{
	uint32_t failed = give_attrs(c, dir, name, fd);

	if (c->m->lenient)
		return 0;
	return failed & ~(uint32_t)NODE_FIELD_XATTR ? -EPERM : failed ? -EOPNOTSUPP : 0;
}

bool apply_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       memcmp(&a->st_mtim, &b->st_mtim, sizeof(a->st_mtim)) == 0;
}

int apply_rename(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
	if (syscall(SYS_renameat2, from_dir, from, to_dir, to, flags) == 0)
		return 0;
	return -errno;
}

int apply_move_into_place(int dir, const char *temp, const char *name, bool no_replace)
{
	struct stat st;
	int r;

	r = apply_rename(dir, temp, dir, name, RENAME_NOREPLACE);
	if (r == 0 || (r == -EEXIST && no_replace))
		return r;
	if (r == -EINVAL) { /* a file system without flags */
		if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && no_replace)
			return -EEXIST;
		return renameat(dir, temp, dir, name) < 0 ? -errno : 0;
	}
	if (r != -EEXIST)
		return r;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	r = apply_rename(dir, temp, dir, name, RENAME_EXCHANGE);
	if (r == -EINVAL)
		return renameat(dir, temp, dir, name) < 0 ? -errno : 0;
	if (r < 0)
		return r;
	/* What was there has the temporary name now; somebody may have made it a directory. */
	if (fstatat(dir, temp, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)) {
		(void)apply_rename(dir, temp, dir, name, RENAME_EXCHANGE);
		(void)unlinkat(dir, temp, 0);
		return -EISDIR;
	}
	return unlinkat(dir, temp, 0) < 0 ? -errno : 0;
}

static int apply_mkdir(const struct change *c, int dir, const char *name)
{
	if (mkdirat(dir, name, 0700) < 0) {
		struct stat st;

		if (errno != EEXIST || c->m->no_replace)
			return -errno;
		if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
		if (!S_ISDIR(st.st_mode))
			return -EEXIST;
		if (c->m->attr_defaults)
			return 0;
	}
	if (!c->m->attr)
		return fchmodat(dir, name, 0755, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
	return apply_give_attrs(c, dir, name, -1);
}

/* A symlink, or whatever else has no bytes and no entries. */
static int apply_special(const struct change *c, int dir, const char *name)
{
	char temp[APPLY_TEMP_BYTES + 1];
	int r;

	if (c->node.type == NODE_TYPE_FILE || c->node.type == NODE_TYPE_DIRECTORY)
		return -EBADMSG;
	apply_temp_name(temp);
	r = attrs_make_special(dir, temp, &c->node);
	if (r < 0)
		return r;
	r = apply_give_attrs(c, dir, temp, -1);
	if (r == 0)
		r = apply_move_into_place(dir, temp, name, c->m->no_replace);
	if (r < 0)
		(void)unlinkat(dir, temp, 0);
	return r;
}

/* One entry, and only what the brain was told of. It steps aside to be judged: what somebody
 * wrote to it since the look goes back. */
static int remove_known(const struct change *c, int dir, const char *name, const struct stat *st)
{
	char temp[APPLY_TEMP_BYTES + 1];
	struct stat now;
	int r;

	if (!c->m->left && !sync_is_known(c->sync, c->path, st))
		return -ESTALE;
	if (S_ISDIR(st->st_mode))
		return unlinkat(dir, name, AT_REMOVEDIR) < 0 ? -errno : 0;
	apply_temp_name(temp);
	r = apply_rename(dir, name, dir, temp, RENAME_NOREPLACE);
	if (r == -EINVAL) /* a file system without flags */
		return unlinkat(dir, name, 0) < 0 ? -errno : 0;
	if (r < 0)
		return r;
	if (fstatat(dir, temp, &now, AT_SYMLINK_NOFOLLOW) == 0 && !apply_same_file(st, &now) &&
	    apply_rename(dir, temp, dir, name, RENAME_NOREPLACE) == 0)
		return -ESTALE;
	return unlinkat(dir, temp, 0) < 0 ? -errno : 0;
}

static int apply_remove(const struct change *c, int dir, const char *name)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return c->m->careful || c->m->left ? remove_known(c, dir, name, &st)
					   : file_remove_tree(dir, name);
}

/* Each directory on the way; what is there already is left as it is, also if it is none. */
static int make_parents(const struct change *c, char *path)
{
	for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		cleanup_close int dir = -1;
		const char *name;
		bool made;
		int r;

		*slash = 0;
		r = beneath_open_parent(c->root, path, &dir, &name);
		made = r == 0 && mkdirat(dir, name, 0755) == 0;
		if (r == 0 && !made && errno != EEXIST)
			r = -errno;
		if (made)
			sync_touch(c->sync, path, strlen(path), (uint8_t)c->m->origin);
		*slash = '/';
		if (r < 0)
			return r;
	}
	return 0;
}

/* With the directories on its way, where those are asked for. */
static int open_parent(const struct change *c, char *path, int *ret_dir, const char **ret_name)
{
	int r = beneath_open_parent(c->root, path, ret_dir, ret_name);

	if (r == -ENOENT && c->m->make_parents) {
		r = make_parents(c, path);
		if (r == 0)
			r = beneath_open_parent(c->root, path, ret_dir, ret_name);
	}
	if (r == 0 && apply_is_temp(*ret_name, strlen(*ret_name)))
		r = -EINVAL;
	return r;
}

static int move_to(const struct change *c, int dir, const char *name, int to_dir, const char *to)
{
	struct stat st;
	int r;

	r = apply_rename(dir, name, to_dir, to, c->m->no_replace ? RENAME_NOREPLACE : 0);
	if (r != -EINVAL)
		return r;
	/* A file system without flags; or it would lie in itself, which this finds, too. */
	if (c->m->no_replace && fstatat(to_dir, to, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	return renameat(dir, name, to_dir, to) < 0 ? -errno : 0;
}

/* Another name: instead of the one it has, or beside it. */
static int apply_name(const struct change *c, int dir, const char *name)
{
	cleanup_close int to_dir = -1;
	const char *to;
	int r;

	r = open_parent(c, c->to_path, &to_dir, &to);
	if (r < 0)
		return r;
	if (c->m->kind == LIMBWIRE__APPLY__KIND__MOVE)
		return move_to(c, dir, name, to_dir, to);
	return linkat(dir, name, to_dir, to, 0) < 0 ? -errno : 0;
}

int apply_change_dir(const struct change *c, const char *path, int *ret_dir, const char **ret_name)
{
	if (*path)
		return beneath_open_parent(c->root, path, ret_dir, ret_name);
	*ret_name = ".";
	*ret_dir = fcntl(c->root, F_DUPFD_CLOEXEC, 0);
	return *ret_dir < 0 ? -errno : 0;
}

static int apply_attr(const struct change *c, int dir, const char *name)
{
	cleanup_close int fd = -1;
	struct stat st;

	if (!c->m->attr)
		return -EBADMSG;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (node_type_of_mode(st.st_mode) != c->node.type)
		return -ESTALE;
	if (c->m->careful && !sync_is_known(c->sync, c->path, &st))
		return -ESTALE;
	if (c->m->fields)
		return attrs_set_some(dir, name, &st, &c->node, c->m->fields);
	if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
		fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	return apply_give_attrs(c, dir, name, fd);
}

int apply_change_make(const struct change *c)
{
	cleanup_close int dir = -1;
	const char *name;
	int r;

	r = *c->path ? open_parent(c, c->path, &dir, &name) : apply_change_dir(c, "", &dir, &name);
	if (r < 0)
		return r;
	switch (c->m->kind) {
	case LIMBWIRE__APPLY__KIND__MKDIR: return apply_mkdir(c, dir, name);
	case LIMBWIRE__APPLY__KIND__PUT: return apply_put(c, dir, name);
	case LIMBWIRE__APPLY__KIND__SYMLINK: return apply_special(c, dir, name);
	case LIMBWIRE__APPLY__KIND__REMOVE: return apply_remove(c, dir, name);
	case LIMBWIRE__APPLY__KIND__MOVE:
	case LIMBWIRE__APPLY__KIND__LINK: return apply_name(c, dir, name);
	case LIMBWIRE__APPLY__KIND__ATTR: return apply_attr(c, dir, name);
	default: return -EOPNOTSUPP;
	}
}

static int path_of(const ProtobufCBinaryData *b, bool root_too, char **ret)
{
	if ((b->len == 0 && !root_too) || (b->len && memchr(b->data, 0, b->len)))
		return -EINVAL;
	*ret = b->len ? strndup((const char *)b->data, b->len) : strdup("");
	return *ret ? 0 : -ENOMEM;
}

int apply_change_read(struct change *c, const Limbwire__Apply *m, struct sync *sync,
		      struct push *push, const char **ret_why)
{
	bool root_too = m->kind == LIMBWIRE__APPLY__KIND__ATTR ||
			m->kind == LIMBWIRE__APPLY__KIND__NOTHING ||
			m->kind == LIMBWIRE__APPLY__KIND__ASK;
	int r;

	*c = (struct change){.m = m, .sync = sync, .root = sync_root_fd(sync), .push = push};
	buf_init(&c->xattrs, NODE_XATTRS_MAX);
	if (c->root < 0)
		return c->root;
	c->based = m->base_sha256.len > 0;
	if (c->based && m->base_sha256.len != SHA256_BYTES)
		return -EINVAL;
	/* The root is neither made, nor moved, nor removed. */
	r = path_of(&m->path, root_too, &c->path);
	if (r == 0 &&
	    (m->kind == LIMBWIRE__APPLY__KIND__MOVE || m->kind == LIMBWIRE__APPLY__KIND__LINK))
		r = path_of(&m->to_path, false, &c->to_path);
	if (r == 0 && m->attr)
		r = wire_attr_parse(m->attr, NULL, &c->xattrs, &c->node, ret_why);
	return r;
}

void apply_change_done(struct change *c)
{
	free(c->path);
	free(c->to_path);
	buf_done(&c->xattrs);
}
