#include "syncd/plan.h"

#include <sys/stat.h>

#include "base/clock.h"

/* plan.h's plan_listed(): a directory's names against the shadow's. */

/* Mark of one listing on an entry: indices never reach the top bit. */
#define SEEN (1u << 31)

static void note_watch(struct sync *sy, const struct item *list, const struct scan_dir *d)
{
	uint32_t n = list->dir;
	struct shadow_dir *dir = shadow_dir(&sy->shadow, n);
	uint32_t before = 0;

	if (!sy->watch || d->wd == 0) {
		if (!dir->wd)
			sync_set_polled(sy, n, true);
		return;
	}
	if (dir->wd && dir->wd != d->wd)
		watch_remove(sy->watch, dir->wd);
	dir->wd = d->wd;
	sync_set_polled(sy, n, false);
	/* Events came before we knew whose they were; who waits for this listing waits for what they
	 * told. */
	if (watch_bind(sy->watch, d->wd, n, &before))
		(void)dirty_mark(&sy->dirty, ITEM_LIST, n, "", 0, 0, list);
	/* One inode, two directories: only one of them is still where it was. */
	if (before && before != n && shadow_attached(&sy->shadow, before)) {
		shadow_dir(&sy->shadow, before)->wd = 0;
		(void)dirty_mark(&sy->dirty, ITEM_LIST, before, "", 0, 0, list);
	}
}

static bool looks_equal(struct sync *sy, struct item *list, uint32_t n, const struct stamp *st);

static void one_name(struct sync *sy, struct item *list, uint32_t dir, const char *name,
		     const struct scan_name *s)
{
	uint32_t e = shadow_find(&sy->shadow, dir, name, s->len);
	uint8_t flags = (uint8_t)(ITEM_SCAN | (list->flags & (ITEM_SWEEP | ITEM_DEEP)));
	struct item *it;

	if (e)
		shadow_entry(&sy->shadow, e)->same |= SEEN;
	if (s->error == 0 && e && looks_equal(sy, list, shadow_entry(&sy->shadow, e)->node, &s->st))
		return;
	it = dirty_mark(&sy->dirty, ITEM_NAME, dir, name, s->len, flags, list);
	/* Seen just now: no need to look again, unless somebody is at it already. */
	if (it && s->error == 0 && it->state == ITEM_READY) {
		it->st = s->st;
		it->flags |= ITEM_LOOKED;
	}
}

/* The frequent case without an item: same node, equal stat, nothing to doubt. */
static bool looks_equal(struct sync *sy, struct item *list, uint32_t n, const struct stamp *st)
{
	const struct shadow_dir *d = shadow_dir(&sy->shadow, n);

	if (!plan_is_node(sy, n, st) || !plan_is_equal(sy, n, st))
		return false;
	if (!d)
		return true;
	if (plan_is_boundary(sy, st))
		return true;
	if ((list->flags & ITEM_DEEP) || (!d->wd && !d->polled))
		(void)dirty_mark(&sy->dirty, ITEM_LIST, n, "", 0, (uint8_t)(ITEM_SCAN | ITEM_DEEP),
				 list);
	return true;
}

static void mark_absent(struct sync *sy, struct item *list, uint32_t dir)
{
	uint32_t next;

	for (uint32_t e = shadow_dir(&sy->shadow, dir)->first; e; e = next) {
		struct shadow_entry *en = shadow_entry(&sy->shadow, e);
		const char *name;
		uint8_t len;

		next = en->next;
		if (en->same & SEEN) {
			en->same &= ~SEEN;
			continue;
		}
		name = shadow_name(&sy->shadow, e, &len);
		(void)dirty_mark(&sy->dirty, ITEM_NAME, dir, name, len,
				 (uint8_t)(ITEM_SCAN | (list->flags & ITEM_SWEEP)), list);
	}
}

static bool is_emptied(const struct sync *sy, uint32_t dir, const struct scan_listing *l)
{
	const struct shadow_dir *d = shadow_dir(&sy->shadow, dir);

	return dir == SHADOW_ROOT && l->n == 0 && d->children && !d->wd && !sy->accepted;
}

/* Before anything else in it is judged. */
static void look_for_rules(struct sync *sy, const struct item *it, const struct scan_listing *l)
{
	const char *text = (const char *)buf_data(&l->text);
	const struct stamp *st = NULL;

	for (size_t i = 0; i < l->n && !st; i++) {
		const struct scan_name *s = &l->names[i];

		if (s->error == 0 && rules_is_name(text + s->name, s->len))
			st = &s->st;
	}
	rules_look(sy, it, st, it->flags & ITEM_DEEP);
}

void plan_listed(struct sync *sy, struct item *it, const struct scan_dir *d,
		 const struct scan_listing *l)
{
	struct shadow_node *node = shadow_node(&sy->shadow, it->dir);
	const char *text = (const char *)buf_data(&l->text);
	uint32_t dir = it->dir, ignored_names = 0;
	uint64_t ignored_bytes = 0;

	/* A rule came while it was being listed. */
	if (node->flags & SHADOW_IGNORED) {
		if (d->wd && sy->watch)
			watch_remove(sy->watch, d->wd);
		dirty_done(&sy->dirty, it);
		return;
	}
	if (d->error < 0 || !shadow_attached(&sy->shadow, dir)) {
		if (d->wd && shadow_attached(&sy->shadow, dir))
			note_watch(sy, it, d);
		else if (d->wd)
			watch_remove(sy->watch, d->wd);
		plan_dir_failed(sy, it, d);
		return;
	}
	if (is_emptied(sy, dir, l)) {
		sync_halt(sy, "root_emptied", "the root is empty, the journal's tree is not");
		dirty_retry(&sy->dirty, it);
		return;
	}
	if (dir == SHADOW_ROOT)
		sy->accepted = false;
	note_watch(sy, it, d);
	if (node->flags & SHADOW_UNREADABLE) {
		cleanup_free char *path = shadow_path(&sy->shadow, dir, "", 0);

		node->flags &= ~(uint32_t)SHADOW_UNREADABLE;
		status_clear(sy, "unreadable", path);
	}
	look_for_rules(sy, it, l);
	for (size_t i = 0; i < l->n; i++) {
		const struct scan_name *s = &l->names[i];

		if (!sync_is_ignored(sy, dir, text + s->name, s->len, s->error ? NULL : &s->st)) {
			one_name(sy, it, dir, text + s->name, s);
			continue;
		}
		ignored_names++;
		ignored_bytes += s->error == 0 && S_ISREG(s->st.mode) ? s->st.size : 0;
	}
	rules_count(sy, dir, ignored_names, ignored_bytes);
	mark_absent(sy, it, dir);
	/* What changed in it before the watch was there raised no event. */
	if (!plan_is_equal(sy, dir, &d->st))
		plan_mark_own(sy, dir, it);
	dirty_done(&sy->dirty, it);
}
