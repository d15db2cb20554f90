#include "syncd/plan.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/backoff.h"
#include "base/clock.h"

enum {
	RACY_NS = 40 * 1000 * 1000, /* a tick of 10 ms, and room for a slow stat */
	SWEEP_REST_MS = 150,	    /* for the event of a change that the sweep saw first */
	RETRY_REST_MS = 20,
	RETRY_REST_MAX_MS = 1280,
	LOST_REST_MS = 1000,
	LOST_REST_MAX_MS = 16000,
	TRIES_MAX = 8,
	MASS_NODES = 1000,
	MASS_WINDOW_MS = 5000,
	MASS_SHOWN_MS = 60 * 1000,
};

/* ---- values ---- */

bool plan_is_boundary(const struct sync *sy, const struct stamp *st)
{
	return S_ISDIR(st->mode) &&
	       (st->device != sy->root.st.device || st->mount != sy->root.st.mount);
}

static uint8_t owner_kind(uint32_t id, uint32_t self)
{
	if (id == self)
		return NODE_OWNER_SELF;
	return id == 0 ? NODE_OWNER_ROOT : NODE_OWNER_NUMBER;
}

void plan_fill_node(const struct sync *sy, const struct stamp *st, struct node *ret)
{
	*ret = (struct node){
		.type = node_type_of_mode(st->mode),
		.mode = S_ISLNK(st->mode) ? 0777 : st->mode & 07777,
		.uid_kind = owner_kind(st->uid, sy->root.uid),
		.gid_kind = owner_kind(st->gid, sy->root.gid),
		.uid = st->uid,
		.gid = st->gid,
		.mtime_ns = st->mtime_ns,
		.ctime_ns = st->ctime_ns,
		.inode = st->inode,
		.generation = (uint64_t)st->btime_ns,
		.device = st->device == sy->root.st.device ? 0 : st->device,
		.unheld = sy->root.unheld,
	};
	if (S_ISCHR(st->mode) || S_ISBLK(st->mode)) {
		ret->rdev_major = st->rdev_major;
		ret->rdev_minor = st->rdev_minor;
	}
	if (S_ISREG(st->mode)) {
		ret->content.size_bytes = st->size;
		ret->allocated_bytes = st->blocks_bytes;
	}
}

uint64_t plan_size_of(const struct stamp *st)
{
	if (S_ISREG(st->mode) || S_ISLNK(st->mode))
		return st->size;
	if (S_ISCHR(st->mode) || S_ISBLK(st->mode))
		return makedev(st->rdev_major, st->rdev_minor);
	return 0;
}

static bool is_racy(const struct sync *sy, const struct stamp *st)
{
	return !sy->root.fine_stamps && clock_real_ns() - MAX(st->mtime_ns, st->ctime_ns) < RACY_NS;
}

void plan_fill_shadow(struct sync *sy, const struct stamp *st, struct shadow_node *ret)
{
	*ret = (struct shadow_node){
		.inode = st->inode,
		.size = plan_size_of(st),
		.mtime_ns = st->mtime_ns,
		.ctime_ns = st->ctime_ns,
		.uid = st->uid,
		.gid = st->gid,
		.generation = stamp_generation(st),
		.mode = st->mode,
		.device = shadow_device(&sy->shadow,
					st->device == sy->root.st.device ? 0 : st->device),
		.flags = S_ISREG(st->mode) && is_racy(sy, st) ? SHADOW_RACY : 0,
	};
	if (plan_is_boundary(sy, st))
		ret->flags |= SHADOW_BOUNDARY;
}

static uint16_t device_of(const struct sync *sy, const struct stamp *st)
{
	if (st->device == sy->root.st.device)
		return 0;
	for (uint32_t i = 0; i < sy->shadow.n_devices; i++)
		if (sy->shadow.devices[i] == st->device)
			return (uint16_t)(i + 1);
	return UINT16_MAX;
}

/* What a mount covers or uncovers is the same name in the tree: a directory. */
bool plan_is_node(const struct sync *sy, uint32_t n, const struct stamp *st)
{
	const struct shadow_node *node = shadow_node(&sy->shadow, n);
	uint32_t generation = stamp_generation(st);

	if ((node->mode & S_IFMT) != (st->mode & S_IFMT))
		return false;
	if (node->flags & SHADOW_FOREIGN)
		return true;
	if (S_ISDIR(st->mode) && ((node->flags & SHADOW_BOUNDARY) || plan_is_boundary(sy, st)))
		return true;
	return node->inode == st->inode && node->device == device_of(sy, st) &&
	       (!node->generation || !generation || node->generation == generation);
}

uint32_t plan_find_node(const struct sync *sy, const struct stamp *st)
{
	uint32_t pos = 0, n;

	if (plan_is_boundary(sy, st))
		return 0;
	while ((n = shadow_find_inode(&sy->shadow, device_of(sy, st), st->inode, &pos)))
		if (n != SHADOW_ROOT && shadow_node(&sy->shadow, n)->entries &&
		    plan_is_node(sy, n, st))
			return n;
	return 0;
}

/* By stat alone, under the mask: is there nothing to send? */
bool plan_stat_equal(const struct sync *sy, const struct shadow_node *n, const struct stamp *st)
{
	uint32_t unheld = sy->root.unheld, modes = 07777;
	int64_t unit_ns = unheld & NODE_MASK_NS ? 1000000000 : 1;

	if (unheld & NODE_MASK_SETID)
		modes = 0777;
	if (S_ISLNK(st->mode))
		modes = 0;
	if (n->flags & (SHADOW_FOREIGN | SHADOW_OURS))
		return false;
	if (!(unheld & NODE_MASK_OWNER) && (n->uid != st->uid || n->gid != st->gid))
		return false;
	return n->inode == st->inode && n->size == plan_size_of(st) &&
	       (n->mode & modes) == (st->mode & modes) &&
	       n->mtime_ns / unit_ns == st->mtime_ns / unit_ns && n->ctime_ns == st->ctime_ns &&
	       !!(n->flags & SHADOW_BOUNDARY) == plan_is_boundary(sy, st);
}

bool plan_is_equal(const struct sync *sy, uint32_t n, const struct stamp *st)
{
	const struct shadow_node *node = shadow_node(&sy->shadow, n);

	return !(node->flags & (SHADOW_RACY | SHADOW_TORN | SHADOW_MOUNTED)) &&
	       plan_stat_equal(sy, node, st);
}

bool plan_is_ours(const struct sync *sy, uint32_t n, const struct stamp *st)
{
	const struct shadow_node *node = shadow_node(&sy->shadow, n);

	return (node->flags & SHADOW_OURS) && S_ISREG(st->mode) && plan_is_node(sy, n, st) &&
	       node->ctime_ns == st->ctime_ns && node->mtime_ns == st->mtime_ns &&
	       node->size == st->size;
}

/* ---- small steps ---- */

void plan_path_reason(struct sync *sy, const char *code, const struct item *it, const char *detail)
{
	cleanup_free char *path =
		shadow_path(&sy->shadow, it->dir ? it->dir : SHADOW_ROOT, it->name, it->len);

	if (path)
		status_set(sy, code, path, 0, detail);
}

void plan_path_clear(struct sync *sy, const char *code, const struct item *it)
{
	cleanup_free char *path = NULL;

	if (!status_has(sy, code))
		return;
	path = shadow_path(&sy->shadow, it->dir ? it->dir : SHADOW_ROOT, it->name, it->len);
	if (path)
		status_clear(sy, code, path);
}

void plan_list_dir(struct sync *sy, const struct item *it, uint32_t n, bool deep)
{
	(void)dirty_mark(&sy->dirty, ITEM_LIST, n, "", 0,
			 (uint8_t)(ITEM_SCAN | (deep ? ITEM_DEEP : 0)), it);
}

void plan_mark_own(struct sync *sy, uint32_t dir, const struct item *from)
{
	uint32_t e = shadow_node(&sy->shadow, dir)->entries;
	const char *name;
	uint8_t len;

	if (dir == SHADOW_ROOT) {
		(void)dirty_mark(&sy->dirty, ITEM_NAME, 0, "", 0, 0, from);
		return;
	}
	if (!e)
		return;
	name = shadow_name(&sy->shadow, e, &len);
	(void)dirty_mark(&sy->dirty, ITEM_NAME, shadow_entry(&sy->shadow, e)->parent, name, len, 0,
			 from);
}

void plan_retry_later(struct sync *sy, struct item *it)
{
	unsigned tries = it->tries;

	dirty_retry(&sy->dirty, it);
	if (it->tries > 1)
		dirty_rest(&sy->dirty, it,
			   clock_mono_ms() + backoff_ms(tries, RETRY_REST_MS, RETRY_REST_MAX_MS));
}

/* The sweep saw it first: its event may still be on the way. True: judged later. */
static bool sweep_waits(struct sync *sy, struct item *it)
{
	const struct shadow_dir *d = it->dir ? shadow_dir(&sy->shadow, it->dir) : NULL;

	if (!(it->flags & ITEM_SWEEP) || !d || !d->wd)
		return false;
	if (it->tries == 0) {
		dirty_retry(&sy->dirty, it);
		dirty_rest(&sy->dirty, it, clock_mono_ms() + SWEEP_REST_MS);
		return true;
	}
	sy->status.audit_differences++;
	status_set(sy, "audit_difference", NULL, MASS_SHOWN_MS,
		   "the sweep found changes that no event had announced");
	it->flags &= (uint8_t)~ITEM_SWEEP;
	return false;
}

bool plan_is_passing(int error)
{
	return error == -ESTALE || error == -ENOTDIR || error == -ELOOP || error == -ENOMEM;
}

void plan_failed(struct sync *sy, struct item *it, int error)
{
	if (plan_is_passing(error)) {
		plan_retry_later(sy, it);
		return;
	}
	plan_path_reason(sy, "unreadable", it, strerror(-error));
	dirty_done(&sy->dirty, it);
}

/* The directory is not where the shadow has it, or not the same: its own name will tell. */
static void dir_is_stale(struct sync *sy, struct item *it)
{
	if (!it->dir || it->dir == SHADOW_ROOT) {
		(void)sync_root_ok(sy);
		plan_retry_later(sy, it);
		return;
	}
	plan_mark_own(sy, it->dir, it);
	dirty_set_lost(&sy->dirty, it, true);
	plan_retry_later(sy, it);
	/* It waits until its directory has been found; that may take a round. */
	if (it->tries > TRIES_MAX)
		dirty_rest(&sy->dirty, it,
			   clock_mono_ms() + backoff_ms(it->tries - TRIES_MAX - 1, LOST_REST_MS,
							LOST_REST_MAX_MS));
}

static void mount_changed(struct sync *sy, uint32_t n)
{
	cleanup_free char *path = shadow_path(&sy->shadow, n, "", 0);

	shadow_node(&sy->shadow, n)->flags |= SHADOW_MOUNTED;
	status_set(sy, "mount_changed", path, 0, "another file system is mounted here");
}

static void mount_is_back(struct sync *sy, uint32_t n)
{
	cleanup_free char *path = shadow_path(&sy->shadow, n, "", 0);

	shadow_node(&sy->shadow, n)->flags &= ~(uint32_t)SHADOW_MOUNTED;
	status_clear(sy, "mount_changed", path);
}

void plan_dir_failed(struct sync *sy, struct item *it, const struct scan_dir *d)
{
	cleanup_free char *path = NULL;

	if (!shadow_attached(&sy->shadow, d->dir)) {
		dirty_done(&sy->dirty, it);
		return;
	}
	switch (d->error) {
	case -ENOENT:
	case -ENOTDIR:
	case -ELOOP:
	case -ESTALE: dir_is_stale(sy, it); return;
	case -ENOMEM:
	case -EMFILE:
	case -ENFILE: plan_retry_later(sy, it); return;
	case -EXDEV:
		if (d->dir == SHADOW_ROOT)
			(void)sync_root_ok(sy);
		else if (shadow_dir(&sy->shadow, d->dir)->children)
			mount_changed(sy, d->dir);
		break;
	default:
		path = shadow_path(&sy->shadow, d->dir, "", 0);
		status_set(sy, "unreadable", path, 0, strerror(-d->error));
		shadow_node(&sy->shadow, d->dir)->flags |= SHADOW_UNREADABLE;
	}
	dirty_done(&sy->dirty, it);
}

/* ---- one name ---- */

static void seen_same(struct sync *sy, struct item *it, uint32_t n)
{
	struct shadow_node *node = shadow_node(&sy->shadow, n);
	const struct shadow_dir *d = shadow_dir(&sy->shadow, n);
	bool content = (it->flags & ITEM_CONTENT) && S_ISREG(it->st.mode);

	if (d) {
		bool boundary = plan_is_boundary(sy, &it->st);

		if (boundary && !(node->flags & SHADOW_BOUNDARY) && d->children) {
			mount_changed(sy, n);
			dirty_done(&sy->dirty, it);
			return;
		}
		if (node->flags & SHADOW_MOUNTED) {
			mount_is_back(sy, n);
			plan_list_dir(sy, it, n, true);
		}
		if (!boundary && ((it->flags & ITEM_DEEP) || (!d->wd && !d->polled)))
			plan_list_dir(sy, it, n, true);
		it->flags &= (uint8_t)~ITEM_DEEP;
	}
	if (!content && !(node->flags & (SHADOW_RACY | SHADOW_TORN)) &&
	    plan_stat_equal(sy, node, &it->st)) {
		dirty_done(&sy->dirty, it);
		return;
	}
	if (!plan_stat_equal(sy, node, &it->st) && sweep_waits(sy, it))
		return;
	dirty_move(&sy->dirty, it, ITEM_WANTED);
}

/* A directory, and a file with one link, has one name only: the old one is gone. Of a file
 * with several names it is not known which one went; LINK is right in any case. */
int plan_adopt_name(struct sync *sy, struct item *it, uint32_t n)
{
	struct shadow_node *node = shadow_node(&sy->shadow, n);

	if (S_ISDIR(it->st.mode) || it->st.nlink == 1)
		return emit_move(sy, node->entries, it->dir, it->name, it->len);
	return emit_link(sy, it->dir, it->name, it->len, n);
}

bool plan_would_cycle(const struct sync *sy, const struct item *it, uint32_t n)
{
	return S_ISDIR(it->st.mode) && shadow_is_beneath(&sy->shadow, it->dir, n);
}

/* What is in it is not what the brain has: alone the MOVE would show old content under a name that
 * never had it. */
static bool is_in_doubt(const struct sync *sy, const struct item *it, uint32_t n)
{
	const struct shadow_node *node = shadow_node(&sy->shadow, n);

	return S_ISREG(it->st.mode) &&
	       ((node->flags & (SHADOW_RACY | SHADOW_TORN)) || node->size != it->st.size ||
		node->mtime_ns != it->st.mtime_ns);
}

uint32_t plan_node_of(const struct sync *sy, const struct item *it)
{
	uint32_t e;

	if (it->taking)
		return plan_find_node(sy, &it->st);
	e = shadow_find(&sy->shadow, it->dir, it->name, it->len);
	return e ? shadow_entry(&sy->shadow, e)->node : 0;
}

bool plan_take_name(struct sync *sy, struct item *it, uint32_t n)
{
	const struct shadow_dir *d = shadow_dir(&sy->shadow, n);

	sy->emit.from = it;
	if (plan_would_cycle(sy, it, n)) {
		if (it->tries >= TRIES_MAX) {
			sync_rescan(sy, it);
			dirty_done(&sy->dirty, it);
			return false;
		}
		plan_retry_later(sy, it);
		return false;
	}
	if (is_in_doubt(sy, it, n)) {
		dirty_move(&sy->dirty, it, ITEM_WANTED);
		dirty_set_taking(&sy->dirty, it, true);
		return true;
	}
	if (plan_adopt_name(sy, it, n) < 0) {
		plan_retry_later(sy, it);
		return false;
	}
	if (d && ((it->flags & ITEM_DEEP) || !d->wd))
		plan_list_dir(sy, it, n, true);
	it->flags &= (uint8_t)~ITEM_DEEP;
	dirty_move(&sy->dirty, it, ITEM_WANTED);
	return false;
}

void plan_seen(struct sync *sy, struct item *it, const struct stamp *st)
{
	uint32_t e, n;

	sy->emit.from = it;
	if (st != &it->st)
		it->st = *st;
	it->flags |= ITEM_LOOKED;
	dirty_set_lost(&sy->dirty, it, false);
	if (!it->dir) {
		seen_same(sy, it, SHADOW_ROOT);
		return;
	}
	if (rules_is_name(it->name, it->len) && shadow_attached(&sy->shadow, it->dir))
		rules_look(sy, it, st, false);
	if (!shadow_attached(&sy->shadow, it->dir) ||
	    sync_is_ignored(sy, it->dir, it->name, it->len, st)) {
		dirty_done(&sy->dirty, it);
		return;
	}
	e = shadow_find(&sy->shadow, it->dir, it->name, it->len);
	if (e) {
		n = shadow_entry(&sy->shadow, e)->node;
		if (plan_is_node(sy, n, st))
			seen_same(sy, it, n);
		else if (!sweep_waits(sy, it) && !dirty_is_stale(&sy->dirty, it))
			dirty_move(&sy->dirty, it, ITEM_LATE);
		return;
	}
	if (sweep_waits(sy, it))
		return;
	n = plan_find_node(sy, st);
	if (!n)
		dirty_move(&sy->dirty, it, ITEM_WANTED);
	else if (!dirty_is_stale(&sy->dirty, it))
		(void)plan_take_name(sy, it, n);
}

void plan_missing(struct sync *sy, struct item *it)
{
	struct stamp st = {0};
	uint32_t e = 0;

	dirty_set_lost(&sy->dirty, it, false);
	if (it->dir && rules_is_name(it->name, it->len))
		rules_look(sy, it, NULL, false);
	if (it->dir && shadow_attached(&sy->shadow, it->dir))
		e = shadow_find(&sy->shadow, it->dir, it->name, it->len);
	if (!e) {
		plan_path_clear(sy, "unreadable", it);
		dirty_done(&sy->dirty, it);
		return;
	}
	/* What was known before a rule came is not removed by it. */
	st.mode = shadow_node(&sy->shadow, shadow_entry(&sy->shadow, e)->node)->mode;
	if (sync_is_ignored(sy, it->dir, it->name, it->len, &st)) {
		dirty_done(&sy->dirty, it);
		return;
	}
	if (sweep_waits(sy, it) || dirty_is_stale(&sy->dirty, it))
		return;
	it->since_ms = clock_mono_ms();
	dirty_move(&sy->dirty, it, ITEM_ABSENT);
}

/* ---- removals ---- */

void plan_removing(struct sync *sy, uint64_t nodes)
{
	uint64_t now_ms = clock_mono_ms();

	if (!nodes)
		return;
	if (now_ms - sy->removed_ms > MASS_WINDOW_MS) {
		sy->removed_ms = now_ms;
		sy->removed_nodes = 0;
	}
	sy->removed_nodes += nodes;
	if (sy->removed_nodes <= MASS_NODES &&
	    sy->removed_nodes * 2 <= sy->shadow.n_nodes + sy->removed_nodes - nodes)
		return;
	/* Small trees lose half of themselves all the time. */
	if (sy->removed_nodes < 10)
		return;
	if (!status_has(sy, "mass_delete")) {
		emit_flush(sy);
		status_set(sy, "mass_delete", NULL, MASS_SHOWN_MS,
			   "many entries were removed at once");
		status_send(sy);
	}
}

void plan_absent(struct sync *sy, struct item *it, bool confirmed, int error)
{
	uint32_t e = 0;

	if (shadow_attached(&sy->shadow, it->dir))
		e = shadow_find(&sy->shadow, it->dir, it->name, it->len);
	if (!e) {
		dirty_done(&sy->dirty, it);
		return;
	}
	if (!confirmed) {
		if (error < 0)
			plan_failed(sy, it, error);
		else
			dirty_retry(&sy->dirty, it);
		return;
	}
	plan_path_clear(sy, "unreadable", it);
	sy->emit.from = it;
	(void)emit_unlink(sy, e, LIMB__EVIDENCE__EVIDENCE_ABSENT);
	dirty_done(&sy->dirty, it);
}
