#include "syncd/state.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/beneath.h"
#include "base/clock.h"
#include "syncd/fill.h"
#include "syncd/plan.h"

/* What apply made, and what a person accepts. */

enum { NAMES_MAX = 4096 };

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
	       const struct node *n, const struct stat *st)
{
	struct stamp stamp;

	stamp_from_stat(sy, st, &stamp);
	return fill_adopt(sy, parent, name, len, node, n, &stamp);
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

/* The entry at a path; 0 = the root, or nothing there. */
static uint32_t entry_at(const struct sync *sy, const char *path, size_t len)
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
	uint32_t e = sy->filled && st->st_nlink <= NAMES_MAX ? entry_at(sy, path, strlen(path)) : 0;
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

void sync_touch(struct sync *sy, const char *path, size_t len)
{
	uint32_t dir = SHADOW_ROOT, e;
	const char *end = path + len;

	if (!sy->filled)
		return;
	for (;;) {
		const char *slash = memchr(path, '/', (size_t)(end - path));
		size_t n = (size_t)((slash ? slash : end) - path);

		if (n == 0 || n > NODE_NAME_MAX)
			break;
		e = shadow_find(&sy->shadow, dir, path, n);
		if (!slash || !e || !shadow_dir(&sy->shadow, shadow_entry(&sy->shadow, e)->node)) {
			(void)dirty_mark(&sy->dirty, ITEM_NAME, dir, path, n, ITEM_CONTENT, NULL);
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
			sync_rescan(sy);
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
	char name[256];
	uint8_t name_len;

	if (len == 0 || (len == 1 && path[0] == '.')) {
		accept_root(sy);
		answer_accept(sy, a, 0, "");
		return;
	}
	e = entry_at(sy, path, len);
	n = e ? shadow_entry(&sy->shadow, e)->node : 0;
	if (!e || !(shadow_node(&sy->shadow, n)->flags & SHADOW_MOUNTED) || !sync_may_send(sy)) {
		answer_accept(sy, a, ENOENT, "nothing to accept there");
		return;
	}
	parent = shadow_entry(&sy->shadow, e)->parent;
	memcpy(name, shadow_name(&sy->shadow, e, &name_len), 255);
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
