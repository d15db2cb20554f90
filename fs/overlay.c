#include "fs/overlay.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/io.h"
#include "fs/change.h"
#include "journal/index-view.h"

enum { SLOTS = 1 << 14, DEPTH_MAX = 8192 };

/* ---- the lock ---- */

void overlay_read_lock(struct overlay *ov)
{
	if (ov)
		(void)pthread_rwlock_rdlock(&ov->lock);
}

void overlay_lock(struct overlay *ov)
{
	if (ov)
		(void)pthread_rwlock_wrlock(&ov->lock);
}

void overlay_unlock(struct overlay *ov)
{
	if (ov)
		(void)pthread_rwlock_unlock(&ov->lock);
}

/* ---- tables ---- */

static size_t slot_of(const struct overlay *ov, uint64_t id)
{
	return (size_t)((id * 0x9e3779b97f4a7c15ull) >> 40) & (ov->n_slots - 1);
}

static size_t entry_slot(const struct overlay *ov, uint64_t dir, const char *name, size_t len)
{
	uint64_t h = dir * 0x9e3779b97f4a7c15ull;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)name[i]) * 0x100000001b3ull;
	return (size_t)(h >> 32) & (ov->n_slots - 1);
}

struct onode *overlay_find(struct overlay *ov, uint64_t id)
{
	struct onode *o = ov->nodes[slot_of(ov, id)];

	while (o && o->id != id)
		o = o->next;
	return o;
}

struct onode *overlay_make(struct overlay *ov, uint64_t id)
{
	struct onode *o = overlay_find(ov, id), **slot;

	if (o)
		return o;
	o = calloc(1, sizeof(*o));
	if (!o)
		return NULL;
	o->id = id;
	slot = &ov->nodes[slot_of(ov, id)];
	o->next = *slot;
	*slot = o;
	ov->n_nodes++;
	if (!(id & OVERLAY_MADE))
		overlay_set_journal(ov, o, id);
	return o;
}

static void unlink_journal(struct overlay *ov, struct onode *o)
{
	struct onode **p = &ov->journals[slot_of(ov, o->journal)];

	if (!o->journal)
		return;
	while (*p && *p != o)
		p = &(*p)->next_journal;
	if (*p)
		*p = o->next_journal;
	o->next_journal = NULL;
	o->journal = 0;
}

static struct onode *find_journal(const struct overlay *ov, uint64_t journal)
{
	struct onode *o = ov->journals[slot_of(ov, journal)];

	while (o && o->journal != journal)
		o = o->next_journal;
	return o;
}

void overlay_set_journal(struct overlay *ov, struct onode *o, uint64_t journal)
{
	struct onode *other = journal ? find_journal(ov, journal) : NULL, **slot;

	if (other == o && other)
		return;
	if (other)
		unlink_journal(ov, other);
	unlink_journal(ov, o);
	o->journal = journal;
	if (!journal)
		return;
	slot = &ov->journals[slot_of(ov, journal)];
	o->next_journal = *slot;
	*slot = o;
}

uint64_t overlay_journal(struct overlay *ov, uint64_t id)
{
	const struct onode *o = ov ? overlay_find(ov, id) : NULL;

	return o ? o->journal : id & OVERLAY_MADE ? 0 : id;
}

uint64_t overlay_shown(struct overlay *ov, uint64_t journal)
{
	const struct onode *o = ov ? find_journal(ov, journal) : NULL;

	return o ? o->id : journal;
}

struct oentry *overlay_entry(struct overlay *ov, uint64_t dir, const char *name, size_t len)
{
	struct oentry *e = ov->entries[entry_slot(ov, dir, name, len)];

	while (e && (e->parent != dir || e->len != len || memcmp(e->name, name, len) != 0))
		e = e->next;
	return e;
}

const struct oentry *overlay_entry_of(struct overlay *ov, uint64_t node)
{
	for (size_t i = 0; ov->n_entries && i < ov->n_slots; i++)
		for (const struct oentry *e = ov->entries[i]; e; e = e->next)
			if (e->node == node)
				return e;
	return NULL;
}

int overlay_set_entry(struct overlay *ov, uint64_t dir, const char *name, size_t len, uint64_t node,
		      uint64_t stamp)
{
	struct oentry *e = overlay_entry(ov, dir, name, len), **slot;
	struct onode *d = overlay_make(ov, dir);

	if (!d)
		return -ENOMEM;
	if (!e) {
		e = calloc(1, sizeof(*e) + len + 1);
		if (!e)
			return -ENOMEM;
		e->parent = dir;
		e->len = (uint16_t)len;
		memcpy(e->name, name, len);
		slot = &ov->entries[entry_slot(ov, dir, name, len)];
		e->next = *slot;
		*slot = e;
		e->sibling = d->entries;
		d->entries = e;
		ov->n_entries++;
	}
	e->node = node;
	e->stamp = stamp;
	dirs_drop(ov->fs->dirs, dir);
	return 0;
}

void overlay_drop_entry(struct overlay *ov, struct oentry *e)
{
	struct oentry **p = &ov->entries[entry_slot(ov, e->parent, e->name, e->len)];
	struct onode *d = overlay_find(ov, e->parent);

	while (*p != e)
		p = &(*p)->next;
	*p = e->next;
	p = &d->entries;
	while (*p != e)
		p = &(*p)->sibling;
	*p = e->sibling;
	ov->n_entries--;
	dirs_drop(ov->fs->dirs, e->parent);
	free(e);
}

/* ---- nodes ---- */

static void onode_free(struct onode *o)
{
	free((void *)(uintptr_t)o->n.target);
	free((void *)(uintptr_t)o->n.xattrs);
	free(o->name);
	free(o->path);
	free(o);
}

/* *p: its own, a copy from then on. */
static int set_bytes(const uint8_t **p, uint32_t *len, const void *from, size_t n)
{
	uint8_t *copy = n ? malloc(n) : NULL;

	if (n && !copy)
		return -ENOMEM;
	if (n)
		memcpy(copy, from, n);
	free((void *)(uintptr_t)*p);
	*p = copy;
	*len = (uint32_t)n;
	return 0;
}

int onode_set_target(struct onode *o, const void *target, size_t n)
{
	return set_bytes(&o->n.target, &o->n.target_len, target, n);
}

int onode_set_xattrs(struct onode *o, const void *xattrs, size_t n)
{
	return set_bytes(&o->n.xattrs, &o->n.xattrs_len, xattrs, n);
}

int onode_set_name(struct onode *o, uint64_t parent, const char *name, size_t len)
{
	char *copy = strndup(name, len);

	if (!copy)
		return -ENOMEM;
	free(o->name);
	o->name = copy;
	o->parent = parent;
	return 0;
}

int onode_set_path(struct onode *o, const char *path)
{
	char *copy = *path ? strdup(path) : NULL;

	if (*path && !copy)
		return -ENOMEM;
	free(o->path);
	o->path = copy;
	return 0;
}

void onode_drop_name(struct onode *o, uint64_t parent, const char *name)
{
	if (!o->name || o->parent != parent || strcmp(o->name, name) != 0)
		return;
	free(o->name);
	o->name = NULL;
}

static int take_node(struct onode *o, const struct index_node *from)
{
	const struct node *n = &from->n;
	const uint8_t *target, *xattrs;
	int r = onode_set_target(o, n->target, n->target_len);

	if (r >= 0)
		r = onode_set_xattrs(o, n->xattrs, n->xattrs_len);
	if (r < 0)
		return r;
	target = o->n.target;
	xattrs = o->n.xattrs;
	o->n = *n;
	o->n.target = target;
	o->n.xattrs = xattrs;
	o->links = from->links;
	return 0;
}

int overlay_take_over(struct overlay *ov, struct index_txn *t, uint64_t id, struct onode **ret)
{
	struct onode *o = overlay_find(ov, id);
	struct index_node n;
	int r;

	if (o && o->over) {
		*ret = o;
		return 0;
	}
	r = overlay_node(ov, t, id, &n);
	if (r < 0)
		return r;
	o = overlay_make(ov, id);
	if (!o)
		return -ENOMEM;
	r = take_node(o, &n);
	if (r < 0)
		return r;
	o->over = true;
	o->bytes = BYTES_INDEX;
	*ret = o;
	return 0;
}

void overlay_count_bytes(struct overlay *ov, struct onode *o, uint64_t size_bytes)
{
	ov->staged_bytes += size_bytes - o->file_bytes;
	o->file_bytes = size_bytes;
}

int overlay_keep_old(struct overlay *ov, struct onode *o)
{
	if (o->bytes != BYTES_DATA)
		return 0;
	if (ov->n_old == ov->old_room) {
		size_t room = MAX(ov->old_room * 2, (size_t)16);
		struct old_data *old = reallocarray(ov->old, room, sizeof(*old));

		if (!old)
			return -ENOMEM;
		ov->old = old;
		ov->old_room = room;
	}
	ov->old[ov->n_old++] = (struct old_data){o->data, o->file_bytes};
	o->file_bytes = 0; /* counted there now */
	return 0;
}

void overlay_drop_old(struct overlay *ov, uint64_t done)
{
	size_t k = 0;
	char name[32];

	for (size_t i = 0; i < ov->n_old; i++) {
		if (ov->old[i].number > done) {
			ov->old[k++] = ov->old[i];
			continue;
		}
		accepted_data_name(ov->old[i].number, name);
		(void)io_unlinkat(intent_dir(ov->log), name, 0, "overlay.unlink");
		ov->staged_bytes -= ov->old[i].size_bytes;
	}
	ov->n_old = k;
}

void overlay_drop_bytes(struct overlay *ov, struct onode *o)
{
	char name[32];

	if (o->bytes == BYTES_STAGE)
		accepted_stage_name(o->id, name);
	else if (o->bytes == BYTES_DATA)
		accepted_data_name(o->data, name);
	else
		return;
	(void)io_unlinkat(intent_dir(ov->log), name, 0, "overlay.unlink");
	o->bytes = BYTES_INDEX;
	overlay_count_bytes(ov, o, 0);
	ov->n_written -= o->written;
	o->written = false;
}

void overlay_tidy(struct overlay *ov, struct onode *o)
{
	struct onode **p = &ov->nodes[slot_of(ov, o->id)];

	if (o->over || o->entries)
		return;
	/* Its id means something else than the journal's of that number. */
	if (o->journal != o->id && nodes_known(ov->fs->nodes, o->id))
		return;
	overlay_drop_bytes(ov, o);
	unlink_journal(ov, o);
	while (*p != o)
		p = &(*p)->next;
	*p = o->next;
	ov->n_nodes--;
	onode_free(o);
}

/* ---- the tree that is shown ---- */

int overlay_lookup(struct overlay *ov, struct index_txn *t, uint64_t dir, const char *name,
		   size_t len, uint64_t *ret)
{
	const struct oentry *e = overlay_entry(ov, dir, name, len);
	uint64_t journal, node;
	int r;

	if (e) {
		*ret = e->node;
		return e->node ? 0 : -ENOENT;
	}
	journal = overlay_journal(ov, dir);
	if (!journal)
		return -ENOENT;
	r = index_lookup(t, journal, name, len, ov->at, &node);
	if (r < 0)
		return r;
	*ret = overlay_shown(ov, node);
	return 0;
}

int overlay_node(struct overlay *ov, struct index_txn *t, uint64_t id, struct index_node *ret)
{
	const struct onode *o = overlay_find(ov, id);
	uint64_t journal = o ? o->journal : id & OVERLAY_MADE ? 0 : id;
	int r;

	if (o && o->over) {
		*ret = (struct index_node){.id = id, .links = o->links, .n = o->n};
		return 0;
	}
	if (!journal)
		return -ESTALE;
	r = ov->at == INDEX_NOW ? index_last_node(t, journal, ret)
				: index_get_node(t, journal, ov->at, ret);
	if (r < 0)
		return r;
	ret->id = id;
	/* What the view made, or wrote, keeps its number as long as somebody may have seen that: who
	 * has it open compares. */
	if (id & OVERLAY_MADE)
		ret->n.inode = 0;
	else if (o && o->numbered)
		ret->n.inode = o->inode;
	return 0;
}

int overlay_list(struct overlay *ov, struct index_txn *t, uint64_t dir, index_entry_fn each,
		 void *userdata)
{
	const struct onode *o = overlay_find(ov, dir);
	uint64_t journal = overlay_journal(ov, dir), node;
	int r = journal ? index_list(t, journal, NULL, 0, INDEX_NOW, each, userdata) : 0;

	for (const struct oentry *e = o ? o->entries : NULL; r >= 0 && e; e = e->sibling) {
		if (!e->node ||
		    (journal && index_lookup(t, journal, e->name, e->len, INDEX_NOW, &node) >= 0))
			continue;
		r = each(e->name, e->len, e->node, userdata);
	}
	return r;
}

struct emptiness {
	struct overlay *ov;
	uint64_t dir;
	bool found;
};

static int any_name(const char *name, size_t len, uint64_t node, void *userdata)
{
	struct emptiness *c = userdata;
	const struct oentry *e = overlay_entry(c->ov, c->dir, name, len);

	(void)node;
	c->found = !e || e->node;
	return c->found;
}

bool overlay_dir_is_empty(struct overlay *ov, struct index_txn *t, uint64_t dir)
{
	struct emptiness c = {ov, dir, false};

	return overlay_list(ov, t, dir, any_name, &c) >= 0 && !c.found;
}

bool overlay_masks_entry(struct overlay *ov, uint64_t dir, const char *name, size_t len)
{
	return ov && overlay_entry(ov, dir, name, len);
}

bool overlay_masks_node(struct overlay *ov, uint64_t id)
{
	const struct onode *o = ov ? overlay_find(ov, id) : NULL;

	return o && o->over;
}

struct naming {
	struct overlay *ov;
	struct index_txn *t;
	uint64_t id, parent;
	char *name;
	bool found;
};

static int is_name(struct naming *c, uint64_t parent, const char *name, size_t len)
{
	uint64_t node;

	if (overlay_lookup(c->ov, c->t, parent, name, len, &node) < 0 || node != c->id)
		return 0;
	memcpy(c->name, name, len);
	c->name[len] = 0;
	c->parent = parent;
	c->found = true;
	return 1;
}

static int index_name(uint64_t parent, const char *name, size_t len, void *userdata)
{
	struct naming *c = userdata;

	return is_name(c, overlay_shown(c->ov, parent), name, len);
}

int overlay_name(struct overlay *ov, struct index_txn *t, uint64_t id, uint64_t *ret_parent,
		 char ret_name[NODE_NAME_MAX + 1])
{
	const struct onode *o = overlay_find(ov, id);
	struct naming c = {.ov = ov, .t = t, .id = id, .name = ret_name};
	const struct oentry *e;
	uint64_t journal = overlay_journal(ov, id);

	if (o && o->name)
		(void)is_name(&c, o->parent, o->name, strlen(o->name));
	if (!c.found && journal)
		(void)index_names(t, journal, index_name, &c);
	if (!c.found && (e = overlay_entry_of(ov, id)))
		(void)is_name(&c, e->parent, e->name, e->len);
	*ret_parent = c.parent;
	return c.found ? 0 : -ENOENT;
}

int overlay_path(struct overlay *ov, struct index_txn *t, uint64_t id, struct buf *out)
{
	char name[NODE_NAME_MAX + 1];
	_cleanup_(buf_done) struct buf path = BUF_INIT(INDEX_PATH_MAX), old = BUF_INIT(0);
	int r = 0;

	for (unsigned depth = 0; r >= 0 && id != NODE_ROOT; depth++) {
		if (depth > DEPTH_MAX)
			return -ELOOP;
		r = overlay_name(ov, t, id, &id, name);
		if (r < 0)
			return r;
		buf_clear(&old);
		r = buf_add(&old, buf_data(&path), buf_len(&path));
		buf_clear(&path);
		if (r >= 0)
			r = buf_add_str(&path, name);
		if (r >= 0 && buf_len(&old))
			r = buf_add_u8(&path, '/');
		if (r >= 0)
			r = buf_add(&path, buf_data(&old), buf_len(&old));
	}
	if (r < 0)
		return r == -E2BIG ? -ENAMETOOLONG : r;
	return buf_add(out, buf_data(&path), buf_len(&path));
}

int overlay_bytes(struct overlay *ov, uint64_t id)
{
	const struct onode *o = ov ? overlay_find(ov, id) : NULL;
	char name[32];
	int fd;

	if (!o || !o->over || o->bytes == BYTES_INDEX)
		return -ENOENT;
	if (o->bytes == BYTES_STAGE)
		accepted_stage_name(id, name);
	else
		accepted_data_name(o->data, name);
	fd = openat(intent_dir(ov->log), name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -EIO : fd;
}

/* ---- made, freed ---- */

int overlay_new(struct fs *fs, int env_fd, struct overlay **ret)
{
	_cleanup_(overlay_freep) struct overlay *ov = calloc(1, sizeof(*ov));
	pthread_rwlockattr_t attr;
	int r;

	if (!ov)
		return -ENOMEM;
	ov->fs = fs;
	ov->at = INDEX_NOW;
	ov->n_slots = SLOTS;
	(void)pthread_rwlockattr_init(&attr);
	(void)pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	(void)pthread_rwlock_init(&ov->lock, &attr);
	(void)pthread_rwlockattr_destroy(&attr);
	ov->nodes = calloc(SLOTS, sizeof(*ov->nodes));
	ov->journals = calloc(SLOTS, sizeof(*ov->journals));
	ov->entries = calloc(SLOTS, sizeof(*ov->entries));
	if (!ov->nodes || !ov->journals || !ov->entries)
		return -ENOMEM;
	r = intent_open(env_fd, &ov->log);
	if (r < 0)
		return r;
	r = change_replay(ov);
	if (r < 0)
		return r;
	/* How long they had waited before is forgotten. */
	if (ov->last_change > ov->done)
		intent_waits(ov->log, ov->last_change, clock_mono_ms());
	*ret = take_ptr(&ov);
	return 0;
}

void overlay_free(struct overlay *ov)
{
	if (!ov)
		return;
	for (size_t i = 0; i < ov->n_slots; i++) {
		struct oentry *e;
		struct onode *o;

		while (ov->entries && (e = ov->entries[i])) {
			ov->entries[i] = e->next;
			free(e);
		}
		while (ov->nodes && (o = ov->nodes[i])) {
			ov->nodes[i] = o->next;
			onode_free(o);
		}
	}
	free(ov->old);
	free(ov->told);
	free(ov->entries);
	free(ov->nodes);
	free(ov->journals);
	intent_close(ov->log);
	(void)pthread_rwlock_destroy(&ov->lock);
	free(ov);
}
