#include "journal/store-mem.h"

#define SLOTS_MIN 1024

struct slot {
	uint8_t hash[SHA256_BYTES];
	uint64_t offset;
	uint32_t len;
	uint32_t pack_kind; /* index of the pack, and kind in the top byte; 0 = free */
};

struct store_mem {
	uint64_t key[4];
	struct slot *slots;
	size_t n_slots, n_used; /* n_slots is a power of two, at most 2/3 used */
	uint64_t bytes;
	uint8_t (*packs)[16];
	size_t n_packs;
};

#define PACKS_MAX (1u << 24)

int store_mem_new(struct store_mem **ret)
{
	_cleanup_(store_mem_freep) struct store_mem *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	random_bytes(m->key, sizeof(m->key));
	m->n_slots = SLOTS_MIN;
	m->slots = calloc(m->n_slots, sizeof(*m->slots));
	if (!m->slots)
		return -ENOMEM;
	*ret = take_ptr(&m);
	return 0;
}

void store_mem_free(struct store_mem *m)
{
	if (!m)
		return;
	free(m->slots);
	free(m->packs);
	free(m);
}

static uint64_t fold(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* The slot of hash, or the free one where it belongs. */
static struct slot *find(const struct store_mem *m, struct slot *slots, size_t n_slots,
			 const uint8_t *hash)
{
	uint64_t h = fold(get_le64(hash) ^ m->key[0], get_le64(hash + 8) ^ m->key[1]) +
		     fold(get_le64(hash + 16) ^ m->key[2], get_le64(hash + 24) ^ m->key[3]);
	size_t i = h & (n_slots - 1);

	while (slots[i].pack_kind != 0 && memcmp(slots[i].hash, hash, SHA256_BYTES) != 0)
		i = (i + 1) & (n_slots - 1);
	return &slots[i];
}

static int grow(struct store_mem *m)
{
	size_t n = m->n_slots * 2;
	struct slot *slots = calloc(n, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; i < m->n_slots; i++)
		if (m->slots[i].pack_kind != 0)
			*find(m, slots, n, m->slots[i].hash) = m->slots[i];
	free(m->slots);
	m->slots = slots;
	m->n_slots = n;
	return 0;
}

/* Packs are entered one after the other: it is the last one or a new one. */
static int pack_index(struct store_mem *m, const uint8_t id[16], uint32_t *ret)
{
	uint8_t(*packs)[16];

	if (m->n_packs == 0 || memcmp(m->packs[m->n_packs - 1], id, 16) != 0) {
		if (m->n_packs == PACKS_MAX)
			return -E2BIG;
		packs = reallocarray(m->packs, m->n_packs + 1, sizeof(*packs));
		if (!packs)
			return -ENOMEM;
		m->packs = packs;
		memcpy(packs[m->n_packs++], id, 16);
	}
	*ret = (uint32_t)(m->n_packs - 1);
	return 0;
}

int store_mem_add(struct store_mem *m, const struct store_place *places, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct slot *s;
		uint32_t pack;
		int r;

		if (m->n_used >= m->n_slots - m->n_slots / 3) {
			r = grow(m);
			if (r < 0)
				return r;
		}
		r = pack_index(m, places[i].pack_id, &pack);
		if (r < 0)
			return r;
		s = find(m, m->slots, m->n_slots, places[i].hash);
		if (s->pack_kind != 0)
			continue;
		memcpy(s->hash, places[i].hash, SHA256_BYTES);
		s->offset = places[i].offset;
		s->len = places[i].len;
		s->pack_kind = pack | (uint32_t)places[i].kind << 24;
		m->n_used++;
		m->bytes += s->len;
	}
	return 0;
}

int store_mem_get(const struct store_mem *m, const uint8_t hash[SHA256_BYTES],
		  struct store_place *ret)
{
	const struct slot *s = find(m, m->slots, m->n_slots, hash);

	if (s->pack_kind == 0)
		return -ENOENT;
	memcpy(ret->hash, hash, SHA256_BYTES);
	memcpy(ret->pack_id, m->packs[s->pack_kind & (PACKS_MAX - 1)], 16);
	ret->offset = s->offset;
	ret->len = s->len;
	ret->kind = (uint8_t)(s->pack_kind >> 24);
	return 0;
}

void store_mem_counts(const struct store_mem *m, uint64_t *ret_contents, uint64_t *ret_bytes)
{
	*ret_contents = m->n_used;
	*ret_bytes = m->bytes;
}
