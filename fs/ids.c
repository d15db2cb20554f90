#include "fs/ids.h"

enum { ROOM_MIN = 256, NONE = UINT32_MAX };

/* Entries stay in their places, so an id is a place and a generation; chains of places by
 * hash of the key, and one of the free ones. */
struct ids {
	struct ids_entry *entries;
	uint32_t *heads; /* room of them, a power of two */
	uint32_t room, used, first_free;
};

int ids_new(struct ids **ret)
{
	struct ids *ids = calloc(1, sizeof(*ids));

	if (!ids)
		return -ENOMEM;
	ids->first_free = NONE;
	*ret = ids;
	return 0;
}

void ids_free(struct ids *ids)
{
	if (!ids)
		return;
	free(ids->entries);
	free(ids->heads);
	free(ids);
}

static uint32_t *head(const struct ids *ids, const struct ids_key *k)
{
	uint64_t h = ((uint64_t)(uintptr_t)k->tree >> 4) ^ (k->node * 0x9e3779b97f4a7c15ull) ^
		     (k->depth << 50);

	h *= 0x9e3779b97f4a7c15ull;
	return &ids->heads[(h >> 32) & (ids->room - 1)];
}

static bool same(const struct ids_key *a, const struct ids_key *b)
{
	return a->tree == b->tree && a->node == b->node && a->depth == b->depth;
}

static int grow(struct ids *ids)
{
	uint32_t room = ids->room ? ids->room * 2 : ROOM_MIN;
	struct ids_entry *entries;
	uint32_t *heads;

	if (room == 0)
		return -ENOMEM;
	entries = reallocarray(ids->entries, room, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	ids->entries = entries;
	heads = reallocarray(ids->heads, room, sizeof(*heads));
	if (!heads)
		return -ENOMEM;
	ids->heads = heads;
	for (uint32_t i = 0; i < room; i++)
		heads[i] = NONE;
	for (uint32_t i = ids->room; i < room; i++)
		entries[i] = (struct ids_entry){.next = i + 1 < room ? i + 1 : ids->first_free};
	ids->first_free = ids->room;
	ids->room = room;
	/* There were no free ones, or there would be no growing. */
	for (uint32_t i = 0; i < ids->used; i++) {
		uint32_t *h = head(ids, &entries[i].key);

		entries[i].next = *h;
		*h = i;
	}
	return 0;
}

static uint64_t id_of(const struct ids *ids, uint32_t at)
{
	return ((uint64_t)ids->entries[at].generation << 32) + at + IDS_FIRST;
}

int ids_hold(struct ids *ids, const struct ids_key *key, uint64_t parent, uint64_t *ret_id,
	     bool *ret_new)
{
	uint32_t *h, at = NONE;
	struct ids_entry *e;
	int r;

	if (ids->room)
		for (at = *head(ids, key); at != NONE && !same(&ids->entries[at].key, key);)
			at = ids->entries[at].next;
	if (ret_new)
		*ret_new = at == NONE;
	if (at != NONE) {
		ids->entries[at].count++;
		*ret_id = id_of(ids, at);
		return 0;
	}
	if (ids->first_free == NONE) {
		r = grow(ids);
		if (r < 0)
			return r;
	}
	at = ids->first_free;
	e = &ids->entries[at];
	h = head(ids, key);
	ids->first_free = e->next;
	*e = (struct ids_entry){.key = *key,
				.parent = parent,
				.count = 1,
				.generation = e->generation + 1,
				.next = *h};
	*h = at;
	ids->used++;
	*ret_id = id_of(ids, at);
	return 0;
}

static uint32_t find(const struct ids *ids, uint64_t id)
{
	uint64_t at = (id & UINT32_MAX) - IDS_FIRST;

	if (id < IDS_FIRST || at >= ids->room || !ids->entries[at].count ||
	    id_of(ids, (uint32_t)at) != id)
		return NONE;
	return (uint32_t)at;
}

const struct ids_entry *ids_get(const struct ids *ids, uint64_t id)
{
	uint32_t at = find(ids, id);

	return at == NONE ? NULL : &ids->entries[at];
}

bool ids_forget(struct ids *ids, uint64_t id, uint64_t count, struct ids_key *ret_key)
{
	uint32_t at = find(ids, id), *p;
	struct ids_entry *e;

	if (at == NONE)
		return false;
	e = &ids->entries[at];
	if (e->count > count) {
		e->count -= count;
		return false;
	}
	for (p = head(ids, &e->key); *p != at;)
		p = &ids->entries[*p].next;
	*p = e->next;
	*ret_key = e->key;
	e->count = 0;
	e->next = ids->first_free;
	ids->first_free = at;
	ids->used--;
	return true;
}
