#include "syncd/apply.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "base/beneath.h"
#include "base/file.h"
#include "base/io.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/util.h"
#include "syncd/apply-log.h"
#include "syncd/attrs.h"
#include "syncd/restore.h"
#include "wire/attr.h"

#define TEMP_PREFIX ".limb-"
#define TEMP_SUFFIX '~'
#define REQUEST_FIRST (1ull << 62) /* sync's begin at 2^40 */

enum {
	TEMP_DIGITS = 16,
	TEMP_BYTES = sizeof(TEMP_PREFIX) - 1 + TEMP_DIGITS + 1,
	PUSHES = 16,
	RESTORE_REQUESTS = 1 << 24,
};

struct push {
	uint32_t number; /* 0: free */
	int fd;
	uint64_t size_bytes;
	bool last;
	int error;
};

struct apply {
	uv_loop_t *loop;
	struct session *session;
	struct sync *sync;
	struct restore *restore;
	struct rtree held; /* what a RESTORE that holds has made, for the next one */
	uint64_t next_request;
	bool past; /* the restore under way is of an older tree */
	struct push pushes[PUSHES];
};

/* ---- temporary names ---- */

bool apply_is_temp(const char *name, size_t len)
{
	if (len != TEMP_BYTES || memcmp(name, TEMP_PREFIX, sizeof(TEMP_PREFIX) - 1) != 0 ||
	    name[len - 1] != TEMP_SUFFIX)
		return false;
	for (size_t i = sizeof(TEMP_PREFIX) - 1; i < len - 1; i++) {
		if (!strchr("0123456789abcdef", name[i]))
			return false;
	}
	return true;
}

static void temp_name(char out[TEMP_BYTES + 1])
{
	uint64_t random;

	random_bytes(&random, sizeof(random));
	(void)snprintf(out, TEMP_BYTES + 1, TEMP_PREFIX "%016llx%c", (unsigned long long)random,
		       TEMP_SUFFIX);
}

/* ---- PUSH ---- */

static void push_end(struct push *p)
{
	if (p->number != 0 && p->fd >= 0)
		(void)close(p->fd);
	*p = (struct push){.fd = -1};
}

/* A file without a name, in the file system of the root. */
static int unnamed_file(int root)
{
	char name[TEMP_BYTES + 1];
	int fd;

	fd = openat(root, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
		return fd < 0 ? -errno : fd;
	temp_name(name);
	fd = openat(root, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	(void)unlinkat(root, name, 0);
	return fd;
}

static struct push *push_find(struct apply *ap, uint32_t number)
{
	for (unsigned i = 0; i < PUSHES; i++) {
		if (ap->pushes[i].number == number)
			return &ap->pushes[i];
	}
	return NULL;
}

void apply_on_push(struct apply *ap, const Limbwire__Push *m, const void *bulk, size_t n)
{
	struct push *p;
	int root;

	if (m->push == 0)
		return;
	p = push_find(ap, m->push);
	if (!p) {
		/* With none free the oldest goes: its APPLY does not come, or finds nothing. */
		if (m->offset != 0)
			return;
		p = push_find(ap, 0);
		if (!p) {
			p = &ap->pushes[0];
			for (unsigned i = 1; i < PUSHES; i++)
				if (ap->pushes[i].number < p->number)
					p = &ap->pushes[i];
			push_end(p);
		}
		*p = (struct push){.number = m->push, .fd = -1};
		root = sync_root_fd(ap->sync);
		p->fd = root < 0 ? root : unnamed_file(root);
		if (p->fd < 0)
			p->error = p->fd;
	}
	if (p->error == 0 && (p->last || m->offset < p->size_bytes || m->offset > INT64_MAX - n))
		p->error = -EBADMSG;
	if (p->error == 0 && n > 0) /* what was skipped is a hole */
		p->error = io_pwrite_full(p->fd, bulk, n, m->offset, "apply.push");
	p->size_bytes = MAX(p->size_bytes, m->offset + n);
	p->last = m->last;
	if (p->error == 0 && p->last)
		p->error = io_ftruncate(p->fd, p->size_bytes, "apply.size");
}

/* ---- APPLY ---- */

struct change {
	const Limbwire__Apply *m;
	struct sync *sync;
	int root;
	char *path, *to_path;
	struct node node; /* attributes, if there are any */
	struct buf xattrs;
	struct push *push;
	bool based; /* there is a base_sha256 */
};

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

/* What an owner may set and could not is an error here: somebody asked for it. */
static int attrs_error(uint32_t failed)
{
	return failed & ~(uint32_t)NODE_FIELD_XATTR ? -EPERM : failed ? -EOPNOTSUPP : 0;
}

static int rename2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
	if (syscall(SYS_renameat2, from_dir, from, to_dir, to, flags) == 0)
		return 0;
	return -errno;
}

/* Puts what stands under a temporary name in the place of `name`; never of a directory. */
static int move_into_place(int dir, const char *temp, const char *name, bool no_replace)
{
	struct stat st;
	int r;

	r = rename2(dir, temp, dir, name, RENAME_NOREPLACE);
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
	r = rename2(dir, temp, dir, name, RENAME_EXCHANGE);
	if (r == -EINVAL)
		return renameat(dir, temp, dir, name) < 0 ? -errno : 0;
	if (r < 0)
		return r;
	/* What was there has the temporary name now; somebody may have made it a directory. */
	if (fstatat(dir, temp, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)) {
		(void)rename2(dir, temp, dir, name, RENAME_EXCHANGE);
		(void)unlinkat(dir, temp, 0);
		return -EISDIR;
	}
	return unlinkat(dir, temp, 0) < 0 ? -errno : 0;
}

static int copy_bytes(int from, int to, uint64_t size_bytes)
{
	off_t in = 0, out = 0;
	ssize_t n;

	while ((n = copy_file_range(from, &in, to, &out, 1 << 30, 0)) > 0)
		;
	if (n < 0 && errno != EXDEV && errno != EINVAL && errno != ENOSYS)
		return -errno;
	while (n != 0) {
		uint8_t block[16384];

		n = io_pread_full(from, block, sizeof(block), (uint64_t)in, "apply.read");
		if (n < 0)
			return (int)n;
		if (n > 0 && io_pwrite_full(to, block, (size_t)n, (uint64_t)in, "apply.copy") < 0)
			return -EIO;
		in += n;
	}
	return io_ftruncate(to, size_bytes, "apply.size");
}

/* A name for the pushed bytes beside the target; a copy when they are on another device. */
static int name_push(const struct change *c, int dir, const char *temp)
{
	cleanup_close int fd = -1;
	char path[40];
	int r;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", c->push->fd);
	if (linkat(AT_FDCWD, path, dir, temp, AT_SYMLINK_FOLLOW) == 0) {
		fd = openat(dir, temp, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	} else {
		fd = openat(dir, temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		r = fd < 0 ? -errno : copy_bytes(c->push->fd, fd, c->push->size_bytes);
		if (r < 0)
			return r;
	}
	return fd < 0 ? -errno : attrs_error(give_attrs(c, dir, temp, fd));
}

/* A file with several names, or one that is mounted, stays: its bytes are replaced, not it. */
static int put_in_place(const struct change *c, int dir, const char *name)
{
	cleanup_close int fd = -1;
	int r;

	fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = apply_log_write(sync_private_fd(c->sync), c->root, c->path, fd, c->push->fd,
			    c->push->size_bytes);
	return r < 0 || c->m->keep_attr ? r : attrs_error(give_attrs(c, dir, name, fd));
}

/* Is this a file with the content that the change was made from? */
static int base_check(const struct change *c, int dir, const char *name)
{
	cleanup_close int fd = -1;
	uint8_t hash[SHA256_BYTES], block[16384];
	struct sha256_ctx *ctx;
	struct stat st;
	uint64_t at = 0;
	ssize_t n;

	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ELOOP ? -ESTALE : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ESTALE;
	ctx = sha256_new();
	do {
		n = io_pread_full(fd, block, sizeof(block), at, "apply.base");
		if (n > 0)
			sha256_update(ctx, block, (size_t)n);
		at += n > 0 ? (uint64_t)n : 0;
	} while (n == (ssize_t)sizeof(block));
	sha256_final(ctx, hash);
	sha256_free(ctx);
	if (n < 0)
		return (int)n;
	return memcmp(hash, c->m->base_sha256.data, sizeof(hash)) == 0 ? 0 : -ESTALE;
}

/* Exchanges the two, and judges what came out: if it is not the base it goes back. Whoever
 * wrote into our file before that has the last word, as over the file that was there. */
static int exchange_base(const struct change *c, int dir, const char *temp, const char *name,
			 const struct stat *own)
{
	struct stat st;
	int r;

	r = rename2(dir, temp, dir, name, RENAME_EXCHANGE);
	if (r < 0)
		return r;
	r = base_check(c, dir, temp);
	if (r == 0)
		return unlinkat(dir, temp, 0) < 0 ? -errno : 0;
	if (rename2(dir, temp, dir, name, RENAME_EXCHANGE) < 0) {
		/* The name was taken away meanwhile. */
		(void)rename2(dir, temp, dir, name, RENAME_NOREPLACE);
		return r;
	}
	if (fstatat(dir, temp, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    (st.st_ino != own->st_ino || st.st_size != own->st_size ||
	     memcmp(&st.st_mtim, &own->st_mtim, sizeof(st.st_mtim)) != 0))
		(void)rename2(dir, temp, dir, name, RENAME_EXCHANGE);
	(void)unlinkat(dir, temp, 0);
	return r;
}

static int put_over_base(const struct change *c, int dir, const char *temp, const char *name)
{
	struct stat own;
	int r;

	if (fstatat(dir, temp, &own, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	r = exchange_base(c, dir, temp, name, &own);
	if (r == -ENOENT) { /* the file that was there is not any more */
		(void)unlinkat(dir, temp, 0);
		return -ESTALE;
	}
	if (r != -EINVAL)
		return r;
	/* A file system without the flag: what is between the look and the rename is lost. */
	r = base_check(c, dir, name);
	if (r == 0)
		return move_into_place(dir, temp, name, false);
	(void)unlinkat(dir, temp, 0); /* ours yet: nothing was exchanged */
	return r;
}

static int keep_attrs(int dir, const char *temp, const struct stat *st)
{
	/* The owner first: it takes set-id bits away. Not ours to give is no reason to refuse. */
	if (fchownat(dir, temp, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0 && errno != EPERM)
		return -errno;
	return fchmodat(dir, temp, st->st_mode & 07777, 0) < 0 ? -errno : 0;
}

static int apply_put(const struct change *c, int dir, const char *name)
{
	char temp[TEMP_BYTES + 1];
	struct stat st = {0};
	bool keep;
	int r;

	if (!c->push || !c->push->last)
		return -EBADMSG;
	if (c->push->error < 0)
		return c->push->error;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (c->m->no_replace)
			return -EEXIST;
		if (S_ISDIR(st.st_mode))
			return -EISDIR;
	}
	keep = c->m->keep_attr && S_ISREG(st.st_mode);
	if (c->based) {
		r = base_check(c, dir, name);
		if (r < 0)
			return r;
	}
	/* With a name elsewhere it is not only ours: this one gets a file of its own. */
	if (S_ISREG(st.st_mode) && st.st_nlink > 1 && sync_has_all_names(c->sync, c->path, &st))
		return put_in_place(c, dir, name);
	temp_name(temp);
	r = name_push(c, dir, temp);
	if (r == 0 && keep)
		r = keep_attrs(dir, temp, &st);
	if (r == 0)
		r = c->based ? put_over_base(c, dir, temp, name)
			     : move_into_place(dir, temp, name, c->m->no_replace);
	if (r == -EBUSY) /* something is mounted on it */
		r = put_in_place(c, dir, name);
	if (r < 0 && r != -ESTALE) /* that one has gone, or is not ours */
		(void)unlinkat(dir, temp, 0);
	return r;
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
	return attrs_error(give_attrs(c, dir, name, -1));
}

static int apply_symlink(const struct change *c, int dir, const char *name)
{
	char temp[TEMP_BYTES + 1];
	int r;

	if (c->node.type != NODE_TYPE_SYMLINK)
		return -EBADMSG;
	temp_name(temp);
	r = attrs_make_special(dir, temp, &c->node);
	if (r < 0)
		return r;
	r = attrs_error(give_attrs(c, dir, temp, -1));
	if (r == 0)
		r = move_into_place(dir, temp, name, c->m->no_replace);
	if (r < 0)
		(void)unlinkat(dir, temp, 0);
	return r;
}

static int apply_remove(int dir, const char *name)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return file_remove_tree(dir, name);
}

static int apply_move(const struct change *c, int dir, const char *name)
{
	cleanup_close int to_dir = -1;
	const char *to;
	int r;

	r = beneath_open_parent(c->root, c->to_path, &to_dir, &to);
	if (r < 0)
		return r;
	r = rename2(dir, name, to_dir, to, c->m->no_replace ? RENAME_NOREPLACE : 0);
	if (r == -EINVAL && !c->m->no_replace)
		r = renameat(dir, name, to_dir, to) < 0 ? -errno : 0;
	return r;
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
	if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
		fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	return attrs_error(give_attrs(c, dir, name, fd));
}

/* Each directory on the way; what is there already is left as it is, also if it is none. */
static int make_parents(struct sync *sy, int root, char *path)
{
	for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		cleanup_close int dir = -1;
		const char *name;
		bool made;
		int r;

		*slash = 0;
		r = beneath_open_parent(root, path, &dir, &name);
		made = r == 0 && mkdirat(dir, name, 0755) == 0;
		if (r == 0 && !made && errno != EEXIST)
			r = -errno;
		if (made)
			sync_touch(sy, path, strlen(path));
		*slash = '/';
		if (r < 0)
			return r;
	}
	return 0;
}

static int change_make(struct apply *ap, const struct change *c)
{
	cleanup_close int dir = -1;
	const char *name;
	int r;

	r = beneath_open_parent(c->root, c->path, &dir, &name);
	if (r == -ENOENT && c->m->make_parents) {
		r = make_parents(ap->sync, c->root, c->path);
		if (r == 0)
			r = beneath_open_parent(c->root, c->path, &dir, &name);
	}
	if (r < 0)
		return r;
	if (apply_is_temp(name, strlen(name)))
		return -EINVAL;
	switch (c->m->kind) {
	case LIMBWIRE__APPLY__KIND__MKDIR: return apply_mkdir(c, dir, name);
	case LIMBWIRE__APPLY__KIND__PUT: return apply_put(c, dir, name);
	case LIMBWIRE__APPLY__KIND__SYMLINK: return apply_symlink(c, dir, name);
	case LIMBWIRE__APPLY__KIND__REMOVE: return apply_remove(dir, name);
	case LIMBWIRE__APPLY__KIND__MOVE: return apply_move(c, dir, name);
	case LIMBWIRE__APPLY__KIND__ATTR: return apply_attr(c, dir, name);
	default: return -EOPNOTSUPP;
	}
}

static int path_of(const ProtobufCBinaryData *b, char **ret)
{
	if (b->len == 0 || memchr(b->data, 0, b->len))
		return -EINVAL;
	*ret = strndup((const char *)b->data, b->len);
	return *ret ? 0 : -ENOMEM;
}

static int change_read(struct apply *ap, const Limbwire__Apply *m, struct change *c,
		       const char **ret_why)
{
	int r;

	c->m = m;
	c->sync = ap->sync;
	c->root = sync_root_fd(ap->sync);
	if (c->root < 0)
		return c->root;
	if (m->push != 0)
		c->push = push_find(ap, m->push);
	c->based = m->base_sha256.len > 0;
	if (c->based && m->base_sha256.len != SHA256_BYTES)
		return -EINVAL;
	r = path_of(&m->path, &c->path);
	if (r == 0 && m->kind == LIMBWIRE__APPLY__KIND__MOVE)
		r = path_of(&m->to_path, &c->to_path);
	buf_init(&c->xattrs, NODE_XATTRS_MAX);
	if (r == 0 && m->attr)
		r = wire_attr_parse(m->attr, NULL, &c->xattrs, &c->node, ret_why);
	return r;
}

void apply_on_apply(struct apply *ap, const Limbwire__Apply *m)
{
	Limbwire__Done done = LIMBWIRE__DONE__INIT;
	struct change c = {0};
	const char *why = "";
	int r;

	r = ap->restore ? -EBUSY : change_read(ap, m, &c, &why);
	if (r == 0)
		r = change_make(ap, &c);
	if (r == 0 && c.path)
		sync_touch(ap->sync, c.path, strlen(c.path));
	if (r == 0 && c.to_path)
		sync_touch(ap->sync, c.to_path, strlen(c.to_path));
	done.request = m->request;
	done.error = -r;
	done.detail = (char *)why;
	(void)session_send(ap->session, SESSION_CONTROL, WIRE_APPLIED, &done.base, NULL, 0);
	if (c.push)
		push_end(c.push);
	free(c.path);
	free(c.to_path);
	buf_done(&c.xattrs);
}

/* ---- RESTORE ---- */

static void on_restored(bool ok, struct rtree *tree, void *userdata)
{
	struct apply *ap = userdata;
	int r;

	ap->restore = NULL;
	rtree_done(&ap->held);
	if (!ok || ap->past)
		return;
	if (tree) {
		ap->held = *tree;
		*tree = (struct rtree){0};
		ap->held.base = NULL;
		if (rtree_sort(&ap->held) < 0)
			rtree_done(&ap->held);
		sync_restore_held(ap->sync);
		return;
	}
	r = sync_start(ap->sync);
	if (r < 0)
		(void)log_warning_errno(r, "cannot watch what was restored");
}

void apply_on_restore(struct apply *ap, const Limbwire__Restore *m)
{
	Limbwire__Restored answer = LIMBWIRE__RESTORED__INIT;
	int r;

	r = ap->restore
		    ? -EBUSY
		    : restore_new(ap->loop, ap->session, ap->sync, m, ap->held.n ? &ap->held : NULL,
				  ap->next_request, on_restored, ap, &ap->restore);
	ap->next_request += RESTORE_REQUESTS;
	if (r == 0) {
		ap->past = m->past;
		return;
	}
	answer.request = m->request;
	answer.error = -r;
	answer.detail = (char *)(r == -EBUSY ? "another restore is under way" : "root");
	(void)session_send(ap->session, SESSION_CONTROL, WIRE_RESTORED, &answer.base, NULL, 0);
}

bool apply_on_tree_part(struct apply *ap, const Limbwire__TreePart *part)
{
	if (ap->restore && restore_on_tree_part(ap->restore, part))
		return true;
	return part->request >= REQUEST_FIRST; /* of a restore that is over */
}

bool apply_on_error(struct apply *ap, const Limbwire__Error *m)
{
	if (ap->restore && restore_on_error(ap->restore, m))
		return true;
	return m->request >= REQUEST_FIRST;
}

void apply_on_pull_data(struct apply *ap, const Limbwire__PullData *m, const void *bulk, size_t n)
{
	if (ap->restore)
		restore_on_pull_data(ap->restore, m, bulk, n);
}

void apply_detached(struct apply *ap)
{
	if (ap->restore)
		restore_cancel(ap->restore, -ENOTCONN);
	else
		rtree_done(&ap->held);
	for (unsigned i = 0; i < PUSHES; i++)
		push_end(&ap->pushes[i]);
}

/* ---- begin and end ---- */

int apply_new(uv_loop_t *loop, struct session *session, struct sync *sync, struct apply **ret)
{
	struct apply *ap = calloc(1, sizeof(*ap));

	if (!ap)
		return -ENOMEM;
	ap->loop = loop;
	ap->session = session;
	ap->sync = sync;
	ap->next_request = REQUEST_FIRST;
	for (unsigned i = 0; i < PUSHES; i++)
		ap->pushes[i].fd = -1;
	*ret = ap;
	return 0;
}

void apply_free(struct apply *ap)
{
	if (!ap)
		return;
	apply_detached(ap);
	if (ap->restore) /* a thread still works for it, and may look at what is held */
		restore_disown(ap->restore);
	else
		rtree_done(&ap->held);
	free(ap);
}
