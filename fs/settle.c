#include "fs/settle.h"

#include "journal/index-view.h"

void settle_init(struct settle *s)
{
	*s = (struct settle){0};
}

void settle_done(struct settle *s)
{
	for (size_t i = 0; i < s->n_entries; i++)
		free(s->entries[i].name);
	free(s->entries);
	free(s->nodes);
}

/* Of list, which has n of that size, one more. NULL: no memory. */
static void *more_of(void *list, size_t n, size_t *room, size_t size)
{
	size_t want = MAX(*room * 2, (size_t)64);

	if (n < *room)
		return list;
	list = reallocarray(list, want, size);
	if (list)
		*room = want;
	return list;
}

static int tell_entry(struct settle *s, uint64_t parent, const char *name)
{
	struct settle_entry *list =
		more_of(s->entries, s->n_entries, &s->entries_room, sizeof(*list));

	if (!list)
		return -ENOMEM;
	s->entries = list;
	list[s->n_entries] = (struct settle_entry){parent, strdup(name)};
	return list[s->n_entries++].name ? 0 : -ENOMEM;
}

static int tell_node(struct settle *s, uint64_t id, bool data)
{
	struct settle_node *list = more_of(s->nodes, s->n_nodes, &s->nodes_room, sizeof(*list));

	if (!list)
		return -ENOMEM;
	s->nodes = list;
	list[s->n_nodes++] = (struct settle_node){id, data};
	return 0;
}

/* What the index has by a name of the shown tree. 0: nothing; UINT64_MAX: its directory is not
 * in the index yet. */
static uint64_t in_index(struct overlay *ov, struct index_txn *t, uint64_t parent, const char *name,
			 size_t len)
{
	uint64_t dir = overlay_journal(ov, parent), node;

	if (!dir)
		return UINT64_MAX;
	return index_lookup(t, dir, name, len, INDEX_NOW, &node) < 0 ? 0 : node;
}

/* What the view's node has become, by the name that it has: in the index it may be another
 * one, as files are replaced there. */
static void find_journal(struct overlay *ov, struct index_txn *t, uint64_t id, uint64_t found)
{
	struct onode *o = overlay_find(ov, id);
	const struct onode *other;
	struct index_node n;

	if (!found || found == UINT64_MAX || overlay_journal(ov, id) == found)
		return;
	if (index_get_node(t, found, INDEX_NOW, &n) < 0)
		return;
	/* Where it still is what it was there, somebody else has put another in its place. */
	if (overlay_journal(ov, id)) {
		struct index_node was;

		if (index_get_node(t, overlay_journal(ov, id), INDEX_NOW, &was) >= 0)
			return;
	}
	o = overlay_make(ov, id);
	other = overlay_find(ov, found);
	if (!o || (o->over && o->n.type != n.n.type) || (other && (other->over || other->entries)))
		return;
	if (!o->numbered && overlay_node(ov, t, id, &n) >= 0) {
		o->numbered = true;
		o->inode = n.n.inode;
	}
	overlay_set_journal(ov, o, found);
}

static int settle_entry(struct settle *s, struct overlay *ov, struct index_txn *t, struct oentry *e,
			bool *ret_gone)
{
	uint64_t found = in_index(ov, t, e->parent, e->name, e->len);
	uint64_t shown = e->node, parent = e->parent;
	struct onode *dir;
	int r = 0;

	*ret_gone = found != UINT64_MAX;
	if (!*ret_gone)
		return 0;
	if (e->node)
		find_journal(ov, t, e->node, found);
	if ((found ? overlay_shown(ov, found) : 0) != shown)
		r = tell_entry(s, e->parent, e->name);
	overlay_drop_entry(ov, e);
	dir = overlay_find(ov, parent);
	if (dir)
		overlay_tidy(ov, dir);
	return r;
}

/* The directories of some come later in the table: so again, until nothing moves. What then
 * is left lies in what was never made. */
static int settle_entries(struct settle *s, struct overlay *ov, struct index_txn *t, uint64_t done)
{
	bool moved = true, gone;
	int r = 0;

	while (r >= 0 && moved) {
		moved = false;
		for (size_t i = 0; r >= 0 && i < ov->n_slots; i++) {
			struct oentry *e = ov->entries[i], *next;

			for (; r >= 0 && e; e = next) {
				next = e->next;
				if (e->stamp > done)
					continue;
				r = settle_entry(s, ov, t, e, &gone);
				moved |= gone;
			}
		}
	}
	return r;
}

static bool has_entry(struct overlay *ov, const struct onode *o)
{
	const struct oentry *e = o->name ? overlay_entry(ov, o->parent, o->name, strlen(o->name))
					 : NULL;

	return (e && e->node == o->id) || overlay_entry_of(ov, o->id);
}

/* Its name is newer than it, or lies in what is: nothing else says what it is until then. What the
 * journal called it may have been replaced meanwhile. */
static bool is_awaited(struct overlay *ov, struct index_txn *t, const struct onode *o)
{
	struct index_node n;

	if (o->links == 0 || (o->journal && index_get_node(t, o->journal, INDEX_NOW, &n) >= 0))
		return false;
	return has_entry(ov, o);
}

static int settle_orphans(struct settle *s, struct overlay *ov, struct index_txn *t, uint64_t done)
{
	bool moved = true;
	int r = 0;

	while (r >= 0 && moved) {
		moved = false;
		for (size_t i = 0; r >= 0 && i < ov->n_slots; i++) {
			struct oentry *e = ov->entries[i], *next;

			for (; r >= 0 && e; e = next) {
				const struct onode *dir = overlay_find(ov, e->parent);

				next = e->next;
				/* Its directory is over, too, and is not in the index. */
				if (e->stamp > done || !dir || dir->stamp > done ||
				    is_awaited(ov, t, dir))
					continue;
				r = tell_entry(s, e->parent, e->name);
				overlay_drop_entry(ov, e);
				moved = true;
			}
		}
	}
	return r;
}

static int settle_node(struct settle *s, struct overlay *ov, struct index_txn *t, struct onode *o)
{
	struct content_ref had = o->n.content;
	bool file = o->n.type == NODE_TYPE_FILE, data = file;
	struct index_node n;
	uint64_t found;

	if (o->name && o->links > 0)
		find_journal(ov, t, o->id, in_index(ov, t, o->parent, o->name, strlen(o->name)));
	/* Made again with its directory, which was removed there. */
	if (o->path && o->links > 0 &&
	    index_lookup_path(t, o->path, strlen(o->path), INDEX_NOW, &found) >= 0)
		find_journal(ov, t, o->id, found);
	if (is_awaited(ov, t, o))
		return 0;
	/* Unlinked while it is open: its bytes are here alone. */
	if (o->links == 0 && nodes_known(ov->fs->nodes, o->id) &&
	    (!o->journal || o->bytes != BYTES_INDEX))
		return 0;
	overlay_drop_bytes(ov, o);
	o->over = false;
	if (file && overlay_node(ov, t, o->id, &n) >= 0)
		data = n.n.content.size_bytes != had.size_bytes ||
		       memcmp(n.n.content.sha256, had.sha256, SHA256_BYTES) != 0;
	return tell_node(s, o->id, data);
}

static int settle_nodes(struct settle *s, struct overlay *ov, struct index_txn *t, uint64_t done)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < ov->n_slots; i++) {
		struct onode *o = ov->nodes[i], *next;

		for (; r >= 0 && o; o = next) {
			next = o->next;
			if (o->over && o->stamp <= done &&
			    (o->bytes != BYTES_STAGE || o->links == 0) &&
			    (o->bytes != BYTES_DATA || o->data <= done))
				r = settle_node(s, ov, t, o);
			overlay_tidy(ov, o);
		}
	}
	return r;
}

/* A STAGE is over with its version: until then it has to be in the log. */
static uint64_t before_stages(struct overlay *ov, uint64_t done)
{
	for (size_t i = 0; ov->n_written && i < ov->n_slots; i++)
		for (const struct onode *o = ov->nodes[i]; o; o = o->next)
			if (o->written && o->bytes == BYTES_STAGE && o->stage <= done)
				done = o->stage - 1;
	return done;
}

/* What was told is kept until it can be taken: a replay begins with a pair of these. */
static int keep_told(struct overlay *ov, uint64_t done, uint64_t at)
{
	struct told *list;

	if (ov->n_told && done <= ov->told[ov->n_told - 1].number)
		return 0;
	list = more_of(ov->told, ov->n_told, &ov->told_room, sizeof(*list));
	if (!list)
		return -ENOMEM;
	ov->told = list;
	list[ov->n_told++] = (struct told){done, at};
	return 0;
}

/* The last one up to `limit`; false: there is none. */
static bool take_told(struct overlay *ov, uint64_t limit, struct told *ret)
{
	size_t n = 0;

	while (n < ov->n_told && ov->told[n].number <= limit)
		*ret = ov->told[n++];
	ov->n_told -= n;
	memmove(ov->told, ov->told + n, ov->n_told * sizeof(ov->told[0]));
	return n > 0;
}

int settle_gather(struct settle *s, struct overlay *ov, uint64_t done, uint64_t at)
{
	struct accepted e = {.kind = ACCEPTED_DONE, .path = "", .to_path = ""};
	struct index_txn *t;
	struct told told;
	uint64_t seq;
	int r = 0;

	overlay_lock(ov);
	if (done <= intent_last(ov->log) && done > ov->done)
		r = keep_told(ov, done, at);
	if (r < 0 || !take_told(ov, before_stages(ov, done), &told)) {
		overlay_unlock(ov);
		return r;
	}
	done = told.number;
	if (ov->done >= ov->last_change) { /* what came since says so itself */
		ov->done = done;
		overlay_unlock(ov);
		return 0;
	}
	r = source_begin(ov->fs->source, &t, &seq);
	if (r >= 0) {
		r = settle_entries(s, ov, t, done);
		if (r >= 0)
			r = settle_orphans(s, ov, t, done);
		if (r >= 0)
			r = settle_nodes(s, ov, t, done);
		source_end(ov->fs->source, t);
	}
	if (r >= 0) {
		ov->done = done;
		overlay_drop_old(ov, done);
		e.done = done;
		e.base_seq = told.at;
		/* Without it the next limb-fs only asks limbd again. */
		(void)intent_append(ov->log, &e);
		intent_done(ov->log, done);
	}
	overlay_unlock(ov);
	return r;
}
