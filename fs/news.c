#include "fs/news.h"

#include "base/log.h"
#include "fs/overlay.h"
#include "journal/index-view.h"

/* Beyond it the kernel's whole knowledge is compared, which costs less. */
#define ENTRIES_MAX 100000

void news_init(struct news *n, struct fs *fs, uint64_t since)
{
	*n = (struct news){.fs = fs, .since = since, .seq = since};
}

void news_done(struct news *n)
{
	buf_done(&n->names);
	free(n->entries);
	free(n->dirs);
	free(n->nodes);
}

/* ---- adding ---- */

static int grow(void *array, size_t n, size_t *room, size_t size)
{
	void **p = array, *more;

	if (n < *room)
		return 0;
	more = reallocarray(*p, MAX(*room * 2, (size_t)64), size);
	if (!more)
		return -ENOMEM;
	*room = MAX(*room * 2, (size_t)64);
	*p = more;
	return 0;
}

static int add_entry(struct news *n, uint64_t parent, const char *name, size_t len)
{
	size_t at = buf_len(&n->names);
	int r;

	r = grow(&n->entries, n->n_entries, &n->entries_room, sizeof(*n->entries));
	if (r >= 0)
		r = buf_add(&n->names, name, len);
	if (r >= 0)
		r = buf_add_u8(&n->names, 0);
	if (r < 0)
		return r;
	n->entries[n->n_entries++] =
		(struct news_entry){.parent = parent,
				    .shown = overlay_shown(n->fs->overlay, parent),
				    .name_at = at,
				    .len = len};
	return 0;
}

static int add_node(struct news *n, uint64_t id)
{
	int r;

	r = grow(&n->nodes, n->n_nodes, &n->nodes_room, sizeof(*n->nodes));
	if (r >= 0)
		n->nodes[n->n_nodes++] = (struct news_node){
			.id = id, .shown = overlay_shown(n->fs->overlay, id), .data = true};
	return r;
}

static int add_recent(const struct index_recent *e, void *userdata)
{
	struct news *n = userdata;
	struct overlay *ov = n->fs->overlay;
	uint64_t parent = overlay_shown(ov, e->parent), node = overlay_shown(ov, e->node);
	int r = 0;

	if (n->n_entries > ENTRIES_MAX || n->n_nodes > ENTRIES_MAX)
		return -EOVERFLOW;
	if (e->parent)
		dirs_drop(n->fs->dirs, parent);
	if (e->parent && nodes_known(n->fs->nodes, parent) &&
	    !overlay_masks_entry(ov, parent, e->name, e->name_len))
		r = add_entry(n, e->parent, e->name, e->name_len);
	if (r >= 0 && e->node && nodes_known(n->fs->nodes, node) && !overlay_masks_node(ov, node))
		r = add_node(n, e->node);
	return r;
}

/* ---- each once ---- */

static int compare_entries(const void *a, const void *b, void *userdata)
{
	const struct news_entry *x = a, *y = b;

	if (x->parent != y->parent)
		return x->parent < y->parent ? -1 : 1;
	return strcmp(news_name(userdata, x), news_name(userdata, y));
}

static int compare_nodes(const void *a, const void *b)
{
	const struct news_node *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

static void sort(struct news *n)
{
	size_t k = 0;

	if (n->n_entries > 0)
		qsort_r(n->entries, n->n_entries, sizeof(*n->entries), compare_entries, n);
	for (size_t i = 0; i < n->n_entries; i++)
		if (k == 0 || compare_entries(&n->entries[k - 1], &n->entries[i], n) != 0)
			n->entries[k++] = n->entries[i];
	n->n_entries = k;

	k = 0;
	if (n->n_nodes > 0)
		qsort(n->nodes, n->n_nodes, sizeof(*n->nodes), compare_nodes);
	for (size_t i = 0; i < n->n_nodes; i++)
		if (k == 0 || n->nodes[k - 1].id != n->nodes[i].id)
			n->nodes[k++] = n->nodes[i];
	n->n_nodes = k;
}

static int list_dirs(struct news *n)
{
	n->dirs = malloc((n->n_entries + 1) * sizeof(*n->dirs));
	if (!n->dirs)
		return -ENOMEM;
	for (size_t i = 0; i < n->n_entries; i++)
		if (n->n_dirs == 0 || n->dirs[n->n_dirs - 1] != n->entries[i].shown)
			n->dirs[n->n_dirs++] = n->entries[i].shown;
	return 0;
}

/* ---- then and now ---- */

static void judge_entry(const struct news *n, struct index_txn *t, struct news_entry *e)
{
	struct index_node was;
	uint64_t old;

	/* Links 0: it has died. A directory would refuse while something in it is open. */
	if (index_lookup(t, e->parent, news_name(n, e), e->len, n->since, &old) >= 0 &&
	    index_last_node(t, old, &was) >= 0 && was.links == 0 &&
	    was.n.type != NODE_TYPE_DIRECTORY)
		e->dead = overlay_shown(n->fs->overlay, old);
	if (overlay_masks_node(n->fs->overlay, e->dead))
		e->dead = 0;
}

static bool same_data(const struct node *a, const struct node *b)
{
	if (a->type != b->type)
		return false;
	switch (a->type) {
	case NODE_TYPE_FILE:
		return a->content.size_bytes == b->content.size_bytes &&
		       memcmp(a->content.sha256, b->content.sha256, SHA256_BYTES) == 0;
	case NODE_TYPE_SYMLINK:
		return a->target_len == b->target_len &&
		       memcmp(a->target, b->target, a->target_len) == 0;
	default: return true;
	}
}

/* What the kernel has may be newer than `since`, but not than now. Were there two contents
 * in between, the last one being the first again, then pages may be of the middle one: so
 * "the same" needs that no version lies between. */
static void judge_node(const struct news *n, struct index_txn *t, struct news_node *d)
{
	struct index_node old, now, mid;

	if (index_last_node(t, d->id, &now) < 0 || index_get_node(t, d->id, n->since, &old) < 0 ||
	    !same_data(&old.n, &now.n))
		return;
	if (old.version == now.version) {
		d->data = false; /* links alone */
		return;
	}
	/* One PUT since: the version just before the last is the old one. */
	if (index_get_node(t, d->id, now.version - 1, &mid) >= 0 && mid.version == old.version)
		d->data = false;
}

/* ---- all that the kernel knows ---- */

struct comparison {
	struct news *n;
	struct index_txn *t;
	uint64_t dir;
	uint64_t other; /* the point that a listed name is compared with */
	bool blind;	/* nothing is known of then: all names */
};

static int compare_name(const char *name, size_t len, uint64_t node, void *userdata)
{
	const struct comparison *c = userdata;
	uint64_t other;
	int r;

	r = index_lookup(c->t, c->dir, name, len, c->other, &other);
	if (r < 0 && r != -ENOENT)
		return r;
	if (r >= 0 && other == node && !c->blind)
		return 0;
	return add_entry(c->n, c->dir, name, len);
}

static int compare_dir(struct news *n, uint64_t dir, bool blind)
{
	struct comparison c = {.n = n, .dir = dir, .other = n->since, .blind = blind};
	uint64_t seq;
	int r;

	r = source_begin(n->fs->source, &c.t, &seq);
	if (r < 0)
		return r;
	r = index_list(c.t, dir, NULL, 0, INDEX_NOW, compare_name, &c);
	c.other = INDEX_NOW;
	if (r >= 0 && !blind)
		r = index_list(c.t, dir, NULL, 0, n->since, compare_name, &c);
	source_end(n->fs->source, c.t);
	return r;
}

static int gather_all(struct news *n, bool blind)
{
	cleanup_free uint64_t *ids = NULL;
	size_t n_ids;
	int r;

	log_debug("comparing all that the kernel knows");
	n->n_entries = n->n_nodes = 0;
	buf_clear(&n->names);
	dirs_drop_all(n->fs->dirs);
	r = nodes_list(n->fs->nodes, &ids, &n_ids);
	if (r < 0)
		return r;
	r = compare_dir(n, NODE_ROOT, blind);
	if (r >= 0)
		r = add_node(n, NODE_ROOT);
	/* What is not a directory has no names in it. */
	for (size_t i = 0; r >= 0 && i < n_ids; i++) {
		uint64_t id = overlay_journal(n->fs->overlay, ids[i]);

		if (!id)
			continue;
		r = compare_dir(n, id, blind);
		if (r >= 0)
			r = add_node(n, id);
	}
	return r;
}

/* ---- all of it ---- */

static int judge(struct news *n, bool blind)
{
	struct index_txn *t;
	uint64_t seq;
	int r;

	if (blind)
		return 0;
	r = source_begin(n->fs->source, &t, &seq);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n->n_entries; i++)
		judge_entry(n, t, &n->entries[i]);
	for (size_t i = 0; i < n->n_nodes; i++)
		judge_node(n, t, &n->nodes[i]);
	source_end(n->fs->source, t);
	return 0;
}

static int gather(struct news *n)
{
	struct index_txn *t;
	bool blind;
	int r;

	r = source_begin(n->fs->source, &t, &n->seq);
	if (r < 0)
		return r;
	/* An index that went back (its log lost its end) says nothing of what was shown. */
	blind = n->seq < n->since;
	nodes_set_floor(n->fs->nodes, n->seq);
	dirs_set_floor(n->fs->dirs, n->seq);
	r = blind ? -EOVERFLOW : index_recent(t, n->since, add_recent, n);
	source_end(n->fs->source, t);
	if (r == -EOVERFLOW)
		r = gather_all(n, blind);
	if (r < 0)
		return r;
	sort(n);
	r = list_dirs(n);
	return r < 0 ? r : judge(n, blind);
}

int news_gather(struct news *n, uint64_t wanted)
{
	struct index_txn *t;
	uint64_t seq;
	int r;

	/* It may take a while, and who writes shall not wait for it. */
	r = source_begin_at_least(n->fs->source, wanted, &t, &seq);
	if (r < 0)
		return r;
	source_end(n->fs->source, t);
	overlay_read_lock(n->fs->overlay);
	r = gather(n);
	overlay_unlock(n->fs->overlay);
	return r;
}
