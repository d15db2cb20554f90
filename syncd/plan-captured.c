#include "syncd/plan.h"

#include <sys/stat.h>

#include "base/clock.h"

/* plan.h's plan_captured(): what was read against what the brain has. */

enum {
	REST_MS = 20,
	SLOW_TRIES = 8, /* as if it had failed that often: again after a second */
	TAKEN_OPS = 3,	/* what goes, the name, and what is in the file: never parted */
};

static void refuse(struct sync *sy, struct item *it, int r)
{
	if (r == -ENOSPC)
		status_set(sy, "no_space", NULL, 0, "all node ids of this incarnation are used");
	sy->status.refused++;
	it->tries = SLOW_TRIES;
	plan_retry_later(sy, it);
}

/* A file that can be seen and not read: its attributes are sent if its bytes are surely those
 * that are known; otherwise the last known version stays, and the reason shows. */
static void captured_unreadable(struct sync *sy, struct item *it, const struct capture *c)
{
	uint32_t e = it->dir ? shadow_find(&sy->shadow, it->dir, it->name, it->len) : 0;
	struct shadow_node *old = NULL, sig;
	struct node node;
	uint32_t n;

	plan_path_reason(sy, "unreadable", it, strerror(-c->error));
	/* A name of old content is better than none. */
	if (it->taking) {
		n = plan_find_node(sy, &it->st);
		if (n && plan_adopt_name(sy, it, n) == 0)
			e = shadow_find(&sy->shadow, it->dir, it->name, it->len);
	}
	if (e) {
		n = shadow_entry(&sy->shadow, e)->node;
		old = shadow_node(&sy->shadow, n);
		if (plan_is_node(sy, n, &it->st) && old->size == plan_size_of(&it->st) &&
		    old->mtime_ns == it->st.mtime_ns && !plan_stat_equal(sy, old, &it->st)) {
			plan_fill_node(sy, &it->st, &node);
			node.unheld |= NODE_MASK_XATTR_USER;
			plan_fill_shadow(sy, &it->st, &sig);
			sig.id = old->id;
			sig.flags |= SHADOW_RACY;
			memcpy(sig.sha, old->sha, sizeof(sig.sha));
			(void)emit_put(sy, n, &sig, &node, NULL);
		}
	}
	dirty_done(&sy->dirty, it);
}

static bool has_unknown_names(const struct sync *sy, const struct item *it, const struct capture *c)
{
	uint32_t e = shadow_find(&sy->shadow, it->dir, it->name, it->len);

	return e && shadow_names(&sy->shadow, shadow_entry(&sy->shadow, e)->node) < c->st.nlink;
}

static void rest_or_done(struct sync *sy, struct item *it, const struct capture *c)
{
	/* Sending costs, too: 10 ns a byte. */
	uint64_t cost_ns = c->cost_ns + c->st.size * 10, now_ms = clock_mono_ms();
	uint64_t rest_ms = cost_ns * 9 / 1000000;

	if (c->torn) {
		/* Somebody waits for it: often enough to find it at rest. */
		if (it->bits)
			rest_ms = MIN(rest_ms, (uint64_t)REST_MS);
		dirty_retry(&sy->dirty, it);
		it->flags |= ITEM_CONTENT;
		dirty_rest(&sy->dirty, it, now_ms + MAX(rest_ms, (uint64_t)REST_MS));
		return;
	}
	/* It has a name that we do not know yet, and that may go (link, then unlink of a temporary
	 * name): no event would tell of the times that changes. */
	if (!S_ISDIR(c->st.mode) && c->st.nlink > 1 && it->tries == 0 && !it->again &&
	    has_unknown_names(sy, it, c)) {
		dirty_retry(&sy->dirty, it);
		dirty_rest(&sy->dirty, it, now_ms + REST_MS);
		return;
	}
	if (it->again) {
		dirty_done(&sy->dirty, it);
		if (rest_ms && !it->bits)
			dirty_rest(&sy->dirty, it, now_ms + rest_ms);
		return;
	}
	dirty_done(&sy->dirty, it);
}

static int update(struct sync *sy, uint32_t n, struct shadow_node *sig, const struct node *node,
		  const struct capture *c, const struct emit_content *content)
{
	struct shadow_node *old = shadow_node(&sy->shadow, n);
	bool same = !content ||
		    (!content->stream && old->size == sig->size && !(old->flags & SHADOW_TORN) &&
		     memcmp(old->sha, sig->sha, sizeof(sig->sha)) == 0);

	sig->id = old->id;
	sig->flags |= old->flags & SHADOW_MOUNTED;
	if (same && !c->torn && plan_stat_equal(sy, old, &c->st)) {
		/* Only doubt is settled. */
		if (!(sig->flags & SHADOW_RACY))
			old->flags &= ~(uint32_t)SHADOW_RACY;
		return 0;
	}
	if (S_ISREG(sig->mode) && !content) {
		memcpy(sig->sha, old->sha, sizeof(sig->sha));
		if (old->flags & SHADOW_TORN)
			sig->flags |= SHADOW_TORN;
	}
	return emit_put(sy, n, sig, node, same ? NULL : content);
}

void plan_captured(struct sync *sy, struct item *it, const struct capture *c,
		   const uint8_t *content, const uint8_t *text, uint32_t stream)
{
	struct emit_content sent = {.data = content, .stream = stream};
	bool is_file = S_ISREG(c->st.mode), deep = it->flags & ITEM_DEEP;
	uint32_t e = 0, n = 0, taken = 0;
	struct shadow_node sig;
	struct node node;
	int r;

	sy->emit.from = it;
	if (c->error == -ENOENT) {
		plan_missing(sy, it);
		return;
	}
	if (c->error < 0) {
		if (plan_is_passing(c->error))
			plan_failed(sy, it, c->error);
		else
			captured_unreadable(sy, it, c);
		return;
	}
	if (it->dir && !shadow_attached(&sy->shadow, it->dir)) {
		dirty_done(&sy->dirty, it);
		return;
	}
	it->st = c->st;
	if (c->large) {
		dirty_move(&sy->dirty, it, ITEM_STREAM);
		return;
	}
	if (it->dir) {
		e = shadow_find(&sy->shadow, it->dir, it->name, it->len);
		n = e ? shadow_entry(&sy->shadow, e)->node : 0;
	} else {
		n = SHADOW_ROOT;
	}
	if (!n || !plan_is_node(sy, n, &c->st))
		taken = plan_find_node(sy, &c->st);
	/* The tree has changed while it was read: judge it again. */
	if ((n && !plan_is_node(sy, n, &c->st) && !(it->flags & ITEM_REPLACES)) ||
	    (taken && !it->taking)) {
		if (!dirty_is_stale(&sy->dirty, it))
			dirty_move(&sy->dirty, it, ITEM_LATE);
		return;
	}
	if (taken)
		n = taken;
	/* It was taken for a file whose bytes are known, and is another by now. */
	if (c->unread ? !n || !plan_is_ours(sy, n, &c->st)
		      : is_file && c->st.size && !content && !stream &&
				(!n || !plan_is_node(sy, n, &c->st))) {
		dirty_retry(&sy->dirty, it);
		it->flags |= ITEM_CONTENT;
		return;
	}
	plan_fill_node(sy, &c->st, &node);
	plan_fill_shadow(sy, &c->st, &sig);
	node.torn = c->torn;
	node.unheld |= c->kept;
	if (c->torn)
		sig.flags |= SHADOW_TORN;
	memcpy(sig.sha, c->sha, sizeof(sig.sha));
	if (is_file)
		memcpy(node.content.sha256, c->sha, SHA256_BYTES);
	node.content.holes = c->holes;
	node.target = text + c->target;
	node.target_len = (uint32_t)c->target_len;
	node.xattrs = text + c->xattrs;
	node.xattrs_len = (uint32_t)c->xattrs_len;
	if (taken) {
		emit_room(sy, TAKEN_OPS, content ? c->st.size : 0,
			  node.target_len + node.xattrs_len);
		if (plan_adopt_name(sy, it, taken) < 0) {
			plan_retry_later(sy, it);
			return;
		}
	}
	if (n && plan_is_node(sy, n, &c->st)) {
		deep |= !!(shadow_node(&sy->shadow, n)->flags & SHADOW_FOREIGN);
		/* A stream that was only hashed: its bytes are those that are known. */
		r = update(sy, n, &sig, &node, c, is_file && (content || stream) ? &sent : NULL);
	} else {
		r = emit_create(sy, it->dir, it->name, it->len, &sig, &node,
				is_file ? &sent : NULL);
		e = r == 0 ? shadow_find(&sy->shadow, it->dir, it->name, it->len) : 0;
		n = e ? shadow_entry(&sy->shadow, e)->node : 0;
		deep = true;
	}
	if (r < 0) {
		refuse(sy, it, r);
		return;
	}
	/* A scan may have met it since its look, and only that finds what no event told of. */
	if (n && deep && S_ISDIR(c->st.mode) && !plan_is_boundary(sy, &c->st))
		plan_list_dir(sy, it, n, true);
	if (sy->scanning && is_file) {
		sy->status.scanned_files++;
		sy->status.scanned_bytes += c->st.size;
	}
	plan_path_clear(sy, "unreadable", it);
	rest_or_done(sy, it, c);
}
