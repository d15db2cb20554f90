#include "syncd/state.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/beneath.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/sha256.h"
#include "syncd/fill.h"
#include "syncd/plan.h"

/* What apply made, and what a person accepts. */

enum { NAMES_MAX = 4096, HASH_MAX = 64 << 20 };

static void stamp_from_stat(const struct sync *sy, const struct stat *s, struct stamp *ret)
{
	*ret = (struct stamp){
		.inode = s->st_ino,
		.size = (uint64_t)s->st_size,
		.device = s->st_dev,
		.mount = sy->root.st.mount,
		.blocks_bytes = (uint64_t)s->st_blocks * 512,
		.mtime_ns = clock_from_timespec(s->st_mtim),
		.ctime_ns = clock_from_timespec(s->st_ctim),
		.uid = s->st_uid,
		.gid = s->st_gid,
		.nlink = (uint32_t)s->st_nlink,
		.rdev_major = major(s->st_rdev),
		.rdev_minor = minor(s->st_rdev),
		.mode = (uint16_t)s->st_mode,
	};
}

int sync_adopt(struct sync *sy, uint64_t parent, const char *name, size_t len, uint64_t node,
	       const struct node *n, const struct stat *st, bool ours)
{
	struct stamp stamp;

	stamp_from_stat(sy, st, &stamp);
	return fill_adopt(sy, parent, name, len, node, n, &stamp, ours && sy->root.fine_stamps);
}

int sync_restore_begins(struct sync *sy)
{
	bool again = sy->held;

	if (sy->phase != PHASE_RESTORE)
		return -EINVAL;
	if (sy->in_flight)
		return -EBUSY;
	sy->held = sy->filled = false;
	return again ? sync_prepare_restore(sy) : 0;
}

void sync_restore_held(struct sync *sy)
{
	if (sy->phase == PHASE_RESTORE)
		sy->held = sy->filled = true;
}

int sync_start(struct sync *sy)
{
	if (sy->phase != PHASE_RESTORE)
		return -EINVAL;
	if (!sync_root_ok(sy))
		return -EIO;
	sync_run(sy);
	return 0;
}

uint32_t sync_entry_at(const struct sync *sy, const char *path, size_t len)
{
	uint32_t dir = SHADOW_ROOT, e = 0;

	for (const char *end = path + len; path < end;) {
		const char *slash = memchr(path, '/', (size_t)(end - path));
		size_t n = (size_t)((slash ? slash : end) - path);

		e = n <= NODE_NAME_MAX ? shadow_find(&sy->shadow, dir, path, n) : 0;
		if (!e || !slash)
			return e;
		dir = shadow_entry(&sy->shadow, e)->node;
		if (!shadow_dir(&sy->shadow, dir))
			return 0;
		path = slash + 1;
	}
	return e;
}

static bool leads_to(const struct sync *sy, uint32_t e, const struct stat *st)
{
	cleanup_free char *path = NULL;
	cleanup_close int dir = -1;
	struct stat found;
	const char *name;
	uint8_t len;

	name = shadow_name(&sy->shadow, e, &len);
	path = shadow_path(&sy->shadow, shadow_entry(&sy->shadow, e)->parent, name, len);
	return path && beneath_open_parent(sy->root.fd, path, &dir, &name) == 0 &&
	       fstatat(dir, name, &found, AT_SYMLINK_NOFOLLOW) == 0 && found.st_dev == st->st_dev &&
	       found.st_ino == st->st_ino;
}

bool sync_has_all_names(const struct sync *sy, const char *path, const struct stat *st)
{
	uint32_t e = sy->filled && st->st_nlink <= NAMES_MAX ? sync_entry_at(sy, path, strlen(path))
							     : 0;
	nlink_t known = 0;

	if (!e)
		return false;
	e = shadow_node(&sy->shadow, shadow_entry(&sy->shadow, e)->node)->entries;
	for (; e && known < st->st_nlink; e = shadow_entry(&sy->shadow, e)->same) {
		if (leads_to(sy, e, st))
			known++;
	}
	return known == st->st_nlink;
}

/* Its bytes are those that were sent? */
static bool same_bytes(const struct sync *sy, const struct shadow_node *n, const char *path)
{
	cleanup_close int dir = -1, fd = -1;
	uint8_t hash[SHA256_BYTES], block[16384];
	struct sha256_ctx *ctx;
	const char *name;
	uint64_t at = 0;
	ssize_t got;

	if (n->size > HASH_MAX || beneath_open_parent(sy->root.fd, path, &dir, &name) < 0)
		return false;
	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return false;
	ctx = sha256_new();
	do {
		got = io_pread_full(fd, block, sizeof(block), at, "apply.known");
		if (got > 0)
			sha256_update(ctx, block, (size_t)got);
		at += got > 0 ? (uint64_t)got : 0;
	} while (got == (ssize_t)sizeof(block));
	sha256_final(ctx, hash);
	sha256_free(ctx);
	return got >= 0 && memcmp(hash, n->sha, sizeof(n->sha)) == 0;
}

bool sync_is_known(const struct sync *sy, const char *path, const struct stat *st)
{
	uint32_t e = sy->filled ? sync_entry_at(sy, path, strlen(path)) : 0, n;
	struct shadow_node *node;
	struct stamp stamp;

	if (!e)
		return false;
	n = shadow_entry(&sy->shadow, e)->node;
	node = shadow_node(&sy->shadow, n);
	stamp_from_stat(sy, st, &stamp);
	if (!plan_is_node(sy, n, &stamp) ||
	    node->flags & (SHADOW_TORN | SHADOW_MOUNTED | SHADOW_UNREADABLE))
		return false;
	if (S_ISDIR(st->st_mode))
		return true;
	/* That a name came or went moves ctime, too. */
	if (st->st_nlink != shadow_names(&sy->shadow, n))
		stamp.ctime_ns = node->ctime_ns;
	if (!plan_stat_equal(sy, node, &stamp))
		return false;
	return !S_ISREG(st->st_mode) || !(node->flags & SHADOW_RACY) || same_bytes(sy, node, path);
}

/* What APPLY left: if it is another when it is captured, somebody else made that. Inodes that
 * share a slot cost each other the origin, and nothing else. */
enum { MADE_SLOTS = 8192 };

struct made {
	uint64_t inode;
	int64_t ctime_ns;
	uint8_t origin;
};

static struct made *made_slot(const struct sync *sy, uint64_t inode)
{
	return &sy->made[(inode * 0x9e3779b97f4a7c15ull >> 32) % MADE_SLOTS];
}

uint8_t sync_made_by(const struct sync *sy, const struct stamp *st)
{
	const struct made *m = sy->made ? made_slot(sy, st->inode) : NULL;

	return m && m->inode == st->inode && m->ctime_ns == st->ctime_ns ? m->origin : 0;
}

static void note_made(struct sync *sy, const struct stat *st, uint8_t origin)
{
	if (!sy->made)
		sy->made = calloc(MADE_SLOTS, sizeof(*sy->made));
	if (sy->made)
		*made_slot(sy, st->st_ino) =
			(struct made){st->st_ino, clock_from_timespec(st->st_ctim), origin};
}

/* False: it is gone. */
static bool note_origin(struct sync *sy, const char *path, uint8_t origin)
{
	cleanup_close int dir = -1;
	const char *name;
	struct made *m;
	struct stat st;

	if (!*path) {
		if (fstat(sy->root.fd, &st) < 0)
			return false;
		note_made(sy, &st, origin);
		return true;
	}
	if (beneath_open_parent(sy->root.fd, path, &dir, &name) < 0)
		return false;
	/* A directory that was made so and is filled now. */
	if (sy->made && fstat(dir, &st) == 0) {
		m = made_slot(sy, st.st_ino);
		if (m->inode == st.st_ino && m->origin == origin)
			m->ctime_ns = clock_from_timespec(st.st_ctim);
	}
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	note_made(sy, &st, origin);
	return true;
}

void sync_touch(struct sync *sy, const char *path, size_t len, uint8_t origin)
{
	cleanup_free char *whole = strndup(path, len);
	uint32_t dir = SHADOW_ROOT, e;
	const char *end = path + len;
	struct item *it;
	bool there;

	if (!sy->filled)
		return;
	if (origin)
		sy->touched_ms = clock_mono_ms();
	there = origin && whole && note_origin(sy, whole, origin);
	for (;;) {
		const char *slash = memchr(path, '/', (size_t)(end - path));
		size_t n = (size_t)((slash ? slash : end) - path);

		if (n == 0 || n > NODE_NAME_MAX)
			break;
		e = shadow_find(&sy->shadow, dir, path, n);
		if (!slash || !e || !shadow_dir(&sy->shadow, shadow_entry(&sy->shadow, e)->node)) {
			it = dirty_mark(&sy->dirty, ITEM_NAME, dir, path, n, ITEM_CONTENT, NULL);
			if (it && !slash && !there)
				it->origin = origin;
			break;
		}
		dir = shadow_entry(&sy->shadow, e)->node;
		path = slash + 1;
	}
	plan_mark_own(sy, dir, NULL);
	sync_pump_soon(sy, 0);
}

/* ---- accept ---- */

static void answer_accept(struct sync *sy, const Limbwire__Accept *a, int error, const char *detail)
{
	Limbwire__Done m = LIMBWIRE__DONE__INIT;

	emit_flush(sy);
	m.request = a->request;
	m.error = error;
	m.detail = (char *)detail;
	m.number = sy->emit.made;
	(void)session_send(sy->session, SESSION_CONTROL, WIRE_ACCEPTED, &m.base, NULL, 0);
	sync_pump_soon(sy, 0);
}

static void accept_root(struct sync *sy)
{
	sy->accepted = true;
	if (root_check(&sy->root) == 0 && sync_mark_ok(sy)) {
		sync_unhalt(sy);
		if (sy->filled)
			sync_rescan(sy, NULL);
		return;
	}
	sync_unhalt(sy);
	sy->filled = false;
	sy->set_mark = sy->has_mark;
	sy->phase = PHASE_FILLING;
	sync_begin(sy);
}

void sync_on_accept(struct sync *sy, const Limbwire__Accept *a)
{
	const char *path = (const char *)a->path.data;
	size_t len = a->path.len;
	uint32_t e, n, parent;
	const char *lent;
	char name[256];
	uint8_t name_len;

	if (len == 0 || (len == 1 && path[0] == '.')) {
		accept_root(sy);
		answer_accept(sy, a, 0, "");
		return;
	}
	e = sync_entry_at(sy, path, len);
	n = e ? shadow_entry(&sy->shadow, e)->node : 0;
	if (!e || !(shadow_node(&sy->shadow, n)->flags & SHADOW_MOUNTED) || !sync_may_send(sy)) {
		answer_accept(sy, a, ENOENT, "nothing to accept there");
		return;
	}
	parent = shadow_entry(&sy->shadow, e)->parent;
	lent = shadow_name(&sy->shadow, e, &name_len);
	memcpy(name, lent, name_len);
	plan_removing(sy, shadow_count(&sy->shadow, e));
	sy->emit.from = NULL;
	(void)emit_unlink(sy, e, LIMB__EVIDENCE__EVIDENCE_ACCEPTED);
	{
		cleanup_free char *text = strndup(path, len);

		status_clear(sy, "mount_changed", text);
	}
	(void)dirty_mark(&sy->dirty, ITEM_NAME, parent, name, name_len, 0, NULL);
	answer_accept(sy, a, 0, "");
}
