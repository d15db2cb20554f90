#include "syncd/shadow.h"

#include <assert.h>
#include <sys/stat.h>

#include "syncd/shadow-table.h"

struct shadow_node *shadow_node(const struct shadow *sh, uint32_t n)
{
	return shadow_table_at(&sh->nodes, n);
}

struct shadow_entry *shadow_entry(const struct shadow *sh, uint32_t e)
{
	return shadow_table_at(&sh->entries, e);
}

struct shadow_dir *shadow_dir(const struct shadow *sh, uint32_t n)
{
	uint32_t d = shadow_node(sh, n)->dir;

	return d ? shadow_table_at(&sh->dirs, d) : NULL;
}

const char *shadow_name(const struct shadow *sh, uint32_t e, uint8_t *ret_len)
{
	const uint8_t *p;

	if (!shadow_entry(sh, e)->name) {
		*ret_len = 0;
		return "";
	}
	p = shadow_arena_at(sh, shadow_entry(sh, e)->name);
	*ret_len = p[0];
	return (const char *)p + 1;
}

static uint32_t hash_of_entry(const struct shadow *sh, uint32_t e)
{
	uint8_t len;
	const char *name = shadow_name(sh, e, &len);

	return shadow_hash_name(shadow_entry(sh, e)->parent, name, len);
}

static uint32_t hash_of_inode(const struct shadow *sh, uint32_t n)
{
	const struct shadow_node *node = shadow_node(sh, n);

	return (uint32_t)shadow_mix(node->inode + ((uint64_t)node->device << 48));
}

static uint32_t hash_of_id(const struct shadow *sh, uint32_t n)
{
	return (uint32_t)shadow_mix(shadow_node(sh, n)->id);
}

uint32_t shadow_find(const struct shadow *sh, uint32_t dir, const char *name, size_t len)
{
	const struct shadow_hash *h = &sh->by_name;

	if (!h->slots)
		return 0;
	for (uint32_t at = shadow_hash_name(dir, name, len) & h->mask; h->slots[at];
	     at = (at + 1) & h->mask) {
		const struct shadow_entry *e = shadow_entry(sh, h->slots[at]);
		const uint8_t *p = shadow_arena_at(sh, e->name);

		if (e->parent == dir && p[0] == len && memcmp(p + 1, name, len) == 0)
			return h->slots[at];
	}
	return 0;
}

/* *pos counts slots from the home slot, so that it survives between calls. */
uint32_t shadow_find_inode(const struct shadow *sh, uint16_t device, uint64_t inode, uint32_t *pos)
{
	const struct shadow_hash *h = &sh->by_inode;
	uint32_t home;

	if (!h->slots || inode == 0)
		return 0;
	home = (uint32_t)shadow_mix(inode + ((uint64_t)device << 48));
	for (;;) {
		uint32_t i = h->slots[(home + *pos) & h->mask];
		const struct shadow_node *n;

		if (!i)
			return 0;
		(*pos)++;
		n = shadow_node(sh, i);
		if (n->inode == inode && n->device == device)
			return i;
	}
}

uint32_t shadow_find_id(const struct shadow *sh, uint64_t id)
{
	const struct shadow_hash *h = &sh->by_id;

	if (!h->slots)
		return 0;
	for (uint32_t at = (uint32_t)shadow_mix(id) & h->mask; h->slots[at];
	     at = (at + 1) & h->mask)
		if (shadow_node(sh, h->slots[at])->id == id)
			return h->slots[at];
	return 0;
}

/* ---- nodes ---- */

static int index_node(struct shadow *sh, uint32_t n)
{
	struct shadow_node *node = shadow_node(sh, n);
	int r;

	if (node->inode) {
		r = shadow_hash_add(sh, &sh->by_inode, hash_of_inode, n);
		if (r < 0)
			return r;
	}
	if (node->dir) {
		r = shadow_hash_add(sh, &sh->by_id, hash_of_id, n);
		if (r < 0) {
			shadow_hash_remove(sh, &sh->by_inode, hash_of_inode, n);
			return r;
		}
		sh->n_dirs++;
	}
	sh->n_nodes++;
	return 0;
}

static void unindex_node(struct shadow *sh, uint32_t n)
{
	struct shadow_node *node = shadow_node(sh, n);

	if (node->inode)
		shadow_hash_remove(sh, &sh->by_inode, hash_of_inode, n);
	if (node->dir) {
		shadow_hash_remove(sh, &sh->by_id, hash_of_id, n);
		sh->n_dirs--;
	}
	sh->n_nodes--;
}

static void release_node(struct shadow *sh, uint32_t n)
{
	struct shadow_node *node = shadow_node(sh, n);

	if (node->dir) {
		struct shadow_dir *d = shadow_table_at(&sh->dirs, node->dir);

		if (d->pins) {
			node->flags |= SHADOW_ZOMBIE;
			return;
		}
		shadow_table_free(&sh->dirs, node->dir);
	}
	shadow_table_free(&sh->nodes, n);
}

uint32_t shadow_add_node(struct shadow *sh, const struct shadow_node *st)
{
	uint32_t n = shadow_table_new(&sh->nodes);
	struct shadow_node *node;

	if (!n)
		return 0;
	node = shadow_node(sh, n);
	*node = *st;
	node->entries = node->dir = node->refs = 0;
	if (S_ISDIR(st->mode)) {
		node->dir = shadow_table_new(&sh->dirs);
		if (!node->dir) {
			shadow_table_free(&sh->nodes, n);
			return 0;
		}
	}
	if (index_node(sh, n) < 0) {
		release_node(sh, n);
		return 0;
	}
	return n;
}

void shadow_free_node(struct shadow *sh, uint32_t n)
{
	assert(!shadow_node(sh, n)->refs);
	unindex_node(sh, n);
	release_node(sh, n);
}

void shadow_set_node(struct shadow *sh, uint32_t n, const struct shadow_node *st)
{
	struct shadow_node *node = shadow_node(sh, n);
	uint32_t entries = node->entries, dir = node->dir, refs = node->refs;
	bool moves = node->inode != st->inode || node->device != st->device;
	uint32_t ignored = node->flags & SHADOW_IGNORED; /* not what was seen of it */

	if (moves && node->inode)
		shadow_hash_remove(sh, &sh->by_inode, hash_of_inode, n);
	*node = *st;
	node->entries = entries;
	node->dir = dir;
	node->refs = refs;
	node->flags = (node->flags & ~(uint32_t)SHADOW_IGNORED) | ignored;
	/* Without memory the inode is not found: a move becomes removal and creation. */
	if (moves && node->inode)
		(void)shadow_hash_add(sh, &sh->by_inode, hash_of_inode, n);
}

uint32_t shadow_names(const struct shadow *sh, uint32_t n)
{
	uint32_t count = 0;

	for (uint32_t e = shadow_node(sh, n)->entries; e; e = shadow_entry(sh, e)->same)
		count++;
	return count;
}

/* ---- entries ---- */

static void siblings_add(struct shadow *sh, uint32_t e)
{
	struct shadow_entry *en = shadow_entry(sh, e);
	struct shadow_dir *d = shadow_dir(sh, en->parent);

	en->prev = 0;
	en->next = d->first;
	if (d->first)
		shadow_entry(sh, d->first)->prev = e;
	d->first = e;
	d->children++;
}

static void siblings_remove(struct shadow *sh, uint32_t e)
{
	struct shadow_entry *en = shadow_entry(sh, e);
	struct shadow_dir *d = shadow_dir(sh, en->parent);

	if (en->prev)
		shadow_entry(sh, en->prev)->next = en->next;
	else
		d->first = en->next;
	if (en->next)
		shadow_entry(sh, en->next)->prev = en->prev;
	en->prev = en->next = 0;
	d->children--;
}

static void names_add(struct shadow *sh, uint32_t e)
{
	struct shadow_entry *en = shadow_entry(sh, e);
	struct shadow_node *n = shadow_node(sh, en->node);

	en->same = n->entries;
	n->entries = e;
}

static void names_remove(struct shadow *sh, uint32_t e)
{
	struct shadow_entry *en = shadow_entry(sh, e);
	uint32_t *at = &shadow_node(sh, en->node)->entries;

	while (*at && *at != e)
		at = &shadow_entry(sh, *at)->same;
	if (*at)
		*at = en->same;
	en->same = 0;
}

uint32_t shadow_link(struct shadow *sh, uint32_t dir, const char *name, size_t len, uint32_t n)
{
	uint32_t e;
	struct shadow_entry *en;

	assert(shadow_dir(sh, dir) && len > 0 && len < 256);
	e = shadow_table_new(&sh->entries);
	if (!e)
		return 0;
	en = shadow_entry(sh, e);
	en->node = n;
	en->parent = dir;
	en->name = shadow_arena_add(sh, name, len);
	if (!en->name || shadow_hash_add(sh, &sh->by_name, hash_of_entry, e) < 0) {
		if (en->name)
			shadow_free_name(sh, en->name);
		shadow_table_free(&sh->entries, e);
		return 0;
	}
	siblings_add(sh, e);
	names_add(sh, e);
	shadow_node(sh, n)->refs++;
	return e;
}

int shadow_move(struct shadow *sh, uint32_t e, uint32_t dir, const char *name, size_t len,
		uint32_t *ret_old_name)
{
	struct shadow_entry *en = shadow_entry(sh, e);
	uint32_t at = shadow_arena_add(sh, name, len);

	if (!at)
		return -ENOMEM;
	*ret_old_name = en->name;
	shadow_hash_remove(sh, &sh->by_name, hash_of_entry, e);
	siblings_remove(sh, e);
	en->parent = dir;
	en->name = at;
	/* Room was made by the removal. */
	(void)shadow_hash_add(sh, &sh->by_name, hash_of_entry, e);
	siblings_add(sh, e);
	return 0;
}

void shadow_move_back(struct shadow *sh, uint32_t e, uint32_t dir, uint32_t old_name)
{
	struct shadow_entry *en = shadow_entry(sh, e);

	shadow_hash_remove(sh, &sh->by_name, hash_of_entry, e);
	siblings_remove(sh, e);
	shadow_free_name(sh, en->name);
	en->parent = dir;
	en->name = old_name;
	(void)shadow_hash_add(sh, &sh->by_name, hash_of_entry, e);
	siblings_add(sh, e);
}

uint32_t shadow_next(const struct shadow *sh, uint32_t e, uint32_t top)
{
	const struct shadow_entry *en = shadow_entry(sh, e);
	const struct shadow_dir *d = shadow_dir(sh, en->node);

	if (d && d->first)
		return d->first;
	while (e != top) {
		en = shadow_entry(sh, e);
		if (en->next)
			return en->next;
		/* A directory has one name, the root none. */
		e = shadow_node(sh, en->parent)->entries;
	}
	return 0;
}

/* A name of a node that has others outside of the subtree is only taken from its list;
 * the node stays. The top entry's next is cut first, so that the walk stays inside. */
void shadow_detach(struct shadow *sh, uint32_t e, shadow_dir_fn left, void *userdata)
{
	shadow_hash_remove(sh, &sh->by_name, hash_of_entry, e);
	siblings_remove(sh, e);
	for (uint32_t i = e; i; i = shadow_next(sh, i, e)) {
		uint32_t n = shadow_entry(sh, i)->node;
		struct shadow_node *node = shadow_node(sh, n);

		if (node->dir) {
			node->flags |= SHADOW_DETACHED;
			unindex_node(sh, n);
			if (left)
				left(n, userdata);
			continue;
		}
		names_remove(sh, i);
		if (!node->entries) {
			node->flags |= SHADOW_DETACHED;
			unindex_node(sh, n);
		}
	}
}

void shadow_attach(struct shadow *sh, uint32_t e, shadow_dir_fn came, void *userdata)
{
	for (uint32_t i = e; i; i = shadow_next(sh, i, e)) {
		uint32_t n = shadow_entry(sh, i)->node;
		struct shadow_node *node = shadow_node(sh, n);

		if (node->flags & SHADOW_DETACHED) {
			node->flags &= ~(uint32_t)SHADOW_DETACHED;
			(void)index_node(sh, n);
		}
		if (node->dir) {
			if (came)
				came(n, userdata);
			continue;
		}
		names_add(sh, i);
	}
	(void)shadow_hash_add(sh, &sh->by_name, hash_of_entry, e);
	siblings_add(sh, e);
}

/* Children of a detached directory are still in the table of names, but nobody can ask
 * for them as long as the directory's index is not given out again. Post-order, without
 * recursion: a leaf goes, then its parent has become one. */
void shadow_free_detached(struct shadow *sh, uint32_t e)
{
	uint32_t i = e;

	for (;;) {
		struct shadow_entry *en = shadow_entry(sh, i);
		struct shadow_node *node = shadow_node(sh, en->node);
		struct shadow_dir *d = shadow_dir(sh, en->node);
		uint32_t parent = en->parent, n = en->node;
		bool top = i == e;

		if (d && d->first) {
			i = d->first;
			continue;
		}
		if (!top) {
			shadow_hash_remove(sh, &sh->by_name, hash_of_entry, i);
			siblings_remove(sh, i);
		}
		if (node->dir)
			node->entries = 0;
		shadow_free_name(sh, en->name);
		shadow_table_free(&sh->entries, i);
		if (--node->refs == 0)
			release_node(sh, n);
		if (top)
			return;
		d = shadow_dir(sh, parent);
		i = d->first ? d->first : shadow_node(sh, parent)->entries;
	}
}

bool shadow_attached(const struct shadow *sh, uint32_t n)
{
	const struct shadow_node *node = shadow_node(sh, n);

	return !(node->flags & (SHADOW_DETACHED | SHADOW_ZOMBIE));
}

bool shadow_is_beneath(const struct shadow *sh, uint32_t n, uint32_t above)
{
	while (n != above) {
		uint32_t e = shadow_node(sh, n)->entries;

		if (n == SHADOW_ROOT || !e)
			return false;
		n = shadow_entry(sh, e)->parent;
	}
	return true;
}

uint64_t shadow_count(const struct shadow *sh, uint32_t e)
{
	uint64_t count = 0;

	for (uint32_t i = e; i; i = shadow_next(sh, i, e))
		count++;
	return count;
}

void shadow_pin(struct shadow *sh, uint32_t dir)
{
	shadow_dir(sh, dir)->pins++;
}

void shadow_unpin(struct shadow *sh, uint32_t dir)
{
	struct shadow_dir *d = shadow_dir(sh, dir);

	assert(d->pins > 0);
	if (--d->pins == 0 && (shadow_node(sh, dir)->flags & SHADOW_ZOMBIE))
		release_node(sh, dir);
}

char *shadow_path(const struct shadow *sh, uint32_t dir, const char *name, size_t len)
{
	size_t total = len + 1, at;
	char *path;

	for (uint32_t n = dir; n != SHADOW_ROOT;) {
		uint32_t e = shadow_node(sh, n)->entries;
		uint8_t part;

		if (!e || !shadow_attached(sh, n))
			return NULL;
		(void)shadow_name(sh, e, &part);
		total += (size_t)part + 1;
		n = shadow_entry(sh, e)->parent;
	}
	path = malloc(total);
	if (!path)
		return NULL;
	at = total - 1;
	path[at] = '\0';
	at -= len;
	if (len)
		memcpy(path + at, name, len);
	for (uint32_t n = dir; n != SHADOW_ROOT;) {
		uint32_t e = shadow_node(sh, n)->entries;
		uint8_t part;
		const char *s = shadow_name(sh, e, &part);

		if (path[at])
			path[--at] = '/';
		at -= part;
		memcpy(path + at, s, part);
		n = shadow_entry(sh, e)->parent;
	}
	memmove(path, path + at, total - at);
	return path;
}

uint16_t shadow_device(struct shadow *sh, uint64_t device)
{
	if (device == 0)
		return 0;
	for (uint32_t i = 0; i < sh->n_devices; i++)
		if (sh->devices[i] == device)
			return (uint16_t)(i + 1);
	/* More devices than slots share the last: inodes are hints only. */
	if (sh->n_devices == ARRAY_SIZE(sh->devices))
		return (uint16_t)sh->n_devices;
	sh->devices[sh->n_devices] = device;
	return (uint16_t)++sh->n_devices;
}

int shadow_init(struct shadow *sh)
{
	static const struct shadow_node root = {
		.id = 1, .mode = S_IFDIR | 0755, .flags = SHADOW_FOREIGN};

	*sh = (struct shadow){
		.nodes.size = sizeof(struct shadow_node),
		.entries.size = sizeof(struct shadow_entry),
		.dirs.size = sizeof(struct shadow_dir),
	};
	if (shadow_add_node(sh, &root) != SHADOW_ROOT) {
		shadow_done(sh);
		return -ENOMEM;
	}
	sh->n_nodes = sh->n_dirs = 0;
	return 0;
}

void shadow_done(struct shadow *sh)
{
	shadow_table_done(&sh->nodes);
	shadow_table_done(&sh->entries);
	shadow_table_done(&sh->dirs);
	free(sh->by_name.slots);
	free(sh->by_inode.slots);
	free(sh->by_id.slots);
	for (uint32_t i = 0; i < sh->arena_chunks; i++)
		free(sh->arena[i]);
	free(sh->arena);
	*sh = (struct shadow){0};
}
