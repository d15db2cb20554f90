#include "syncd/shadow-table.h"

enum {
	CHUNK_BITS = 10,
	CHUNK = 1 << CHUNK_BITS,
	ARENA_UNIT = 8,
	ARENA_CHUNK_BITS = 13, /* units: 64 KiB */
	ARENA_CHUNK = 1 << ARENA_CHUNK_BITS,
	HASH_MIN = 64,
};

/* ---- tables ---- */

void *shadow_table_at(const struct shadow_table *t, uint32_t i)
{
	return (uint8_t *)t->chunks[i >> CHUNK_BITS] + (size_t)(i & (CHUNK - 1)) * t->size;
}

uint32_t shadow_table_new(struct shadow_table *t)
{
	uint32_t i = t->free;
	void *p;

	if (i) {
		p = shadow_table_at(t, i);
		memcpy(&t->free, p, sizeof(t->free));
		memset(p, 0, t->size);
		return i;
	}
	if (t->next == 0)
		t->next = 1;
	i = t->next;
	if ((i >> CHUNK_BITS) >= t->n_chunks) {
		void **chunks = reallocarray(t->chunks, t->n_chunks + 1, sizeof(*chunks));

		if (!chunks)
			return 0;
		t->chunks = chunks;
		chunks[t->n_chunks] = calloc(CHUNK, t->size);
		if (!chunks[t->n_chunks])
			return 0;
		t->n_chunks++;
	}
	t->next++;
	return i;
}

void shadow_table_free(struct shadow_table *t, uint32_t i)
{
	void *p = shadow_table_at(t, i);

	memset(p, 0, t->size);
	memcpy(p, &t->free, sizeof(t->free));
	t->free = i;
}

void shadow_table_done(struct shadow_table *t)
{
	for (uint32_t i = 0; i < t->n_chunks; i++)
		free(t->chunks[i]);
	free(t->chunks);
	*t = (struct shadow_table){.size = t->size};
}

/* ---- names ---- */

uint8_t *shadow_arena_at(const struct shadow *sh, uint32_t at)
{
	return sh->arena[at >> ARENA_CHUNK_BITS] + (size_t)(at & (ARENA_CHUNK - 1)) * ARENA_UNIT;
}

static uint32_t arena_units(size_t len)
{
	return (uint32_t)((len + 1 + ARENA_UNIT - 1) / ARENA_UNIT);
}

uint32_t shadow_arena_add(struct shadow *sh, const char *name, size_t len)
{
	uint32_t units = arena_units(len), at = sh->arena_free[units];
	uint8_t *p;

	if (at) {
		memcpy(&sh->arena_free[units], shadow_arena_at(sh, at), sizeof(uint32_t));
	} else {
		/* A name lies in one chunk; the rest of a full one is lost. */
		uint32_t left = ARENA_CHUNK - (sh->arena_next & (ARENA_CHUNK - 1));

		if (sh->arena_chunks == 0 || left < units ||
		    (sh->arena_next >> ARENA_CHUNK_BITS) >= sh->arena_chunks) {
			uint8_t **arena =
				reallocarray(sh->arena, sh->arena_chunks + 1, sizeof(*arena));

			if (!arena)
				return 0;
			sh->arena = arena;
			arena[sh->arena_chunks] = malloc((size_t)ARENA_CHUNK * ARENA_UNIT);
			if (!arena[sh->arena_chunks])
				return 0;
			sh->arena_next = sh->arena_chunks << ARENA_CHUNK_BITS;
			if (sh->arena_chunks++ == 0)
				sh->arena_next = 1; /* 0 is none */
		}
		at = sh->arena_next;
		sh->arena_next += units;
	}
	p = shadow_arena_at(sh, at);
	p[0] = (uint8_t)len;
	memcpy(p + 1, name, len);
	return at;
}

void shadow_free_name(struct shadow *sh, uint32_t name)
{
	uint8_t *p = shadow_arena_at(sh, name);
	uint32_t units = arena_units(p[0]);

	memcpy(p, &sh->arena_free[units], sizeof(uint32_t));
	sh->arena_free[units] = name;
}

/* ---- hashes: linear probing, no tombstones ---- */

uint64_t shadow_mix(uint64_t x)
{
	x ^= x >> 32;
	x *= 0x9e3779b97f4a7c15ull;
	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9ull;
	return x ^ (x >> 32);
}

uint32_t shadow_hash_name(uint32_t dir, const char *name, size_t len)
{
	uint64_t h = shadow_mix(dir + 0x1234567ull * len), v;

	for (; len >= 8; name += 8, len -= 8) {
		memcpy(&v, name, 8);
		h = shadow_mix(h ^ v);
	}
	v = 0;
	memcpy(&v, name, len);
	return (uint32_t)shadow_mix(h ^ v);
}

static void hash_put(struct shadow_hash *h, uint32_t hash, uint32_t i)
{
	uint32_t at = hash & h->mask;

	while (h->slots[at])
		at = (at + 1) & h->mask;
	h->slots[at] = i;
	h->used++;
}

int shadow_hash_add(const struct shadow *sh, struct shadow_hash *h, shadow_hash_fn fn, uint32_t i)
{
	if (!h->slots || (uint64_t)(h->used + 1) * 4 > (uint64_t)(h->mask + 1) * 3) {
		uint32_t n = h->slots ? (h->mask + 1) * 2 : HASH_MIN;
		struct shadow_hash bigger = {.mask = n - 1};

		bigger.slots = calloc(n, sizeof(*bigger.slots));
		if (!bigger.slots)
			return -ENOMEM;
		for (uint32_t k = 0; h->slots && k <= h->mask; k++)
			if (h->slots[k])
				hash_put(&bigger, fn(sh, h->slots[k]), h->slots[k]);
		free(h->slots);
		*h = bigger;
	}
	hash_put(h, fn(sh, i), i);
	return 0;
}

/* Removes i if it is there; what follows moves up so that no gap cuts a run. */
void shadow_hash_remove(const struct shadow *sh, struct shadow_hash *h, shadow_hash_fn fn,
			uint32_t i)
{
	uint32_t at, next;

	if (!h->slots)
		return;
	at = fn(sh, i) & h->mask;
	while (h->slots[at] != i) {
		if (!h->slots[at])
			return;
		at = (at + 1) & h->mask;
	}
	h->used--;
	for (next = (at + 1) & h->mask; h->slots[next]; next = (next + 1) & h->mask) {
		uint32_t home = fn(sh, h->slots[next]) & h->mask;

		if (((next - home) & h->mask) >= ((next - at) & h->mask)) {
			h->slots[at] = h->slots[next];
			at = next;
		}
	}
	h->slots[at] = 0;
}
