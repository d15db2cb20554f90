/*
 * content-fixture.h - seeded random bytes, and the pieces of contents kept in
 * memory: a sink and a fetch callback.
 */
#ifndef TESTS_UNIT_CONTENT_FIXTURE_H
#define TESTS_UNIT_CONTENT_FIXTURE_H

#include <stdlib.h>
#include <string.h>

#include "journal/content.h"

static uint64_t random_state = 1;

static inline uint64_t random_next(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* From 0 to n - 1. */
static inline uint64_t random_below(uint64_t n)
{
	return random_next() % n;
}

static inline void random_fill(uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(random_next() >> 32);
}

struct piece {
	struct piece *next;
	uint8_t hash[SHA256_BYTES];
	enum frame_kind kind;
	size_t n;
	uint8_t data[];
};

struct pieces {
	struct piece *buckets[1 << 16];
	size_t n_chunks, n_lists, n_calls; /* distinct ones, and calls of the sink */
	uint64_t bytes;
	unsigned fail_at; /* this call of the sink fails with -EIO */
};

static inline struct pieces *pieces_new(void)
{
	return calloc(1, sizeof(struct pieces));
}

static inline void pieces_free(struct pieces *p)
{
	for (size_t i = 0; i < ARRAY_SIZE(p->buckets); i++) {
		while (p->buckets[i]) {
			struct piece *next = p->buckets[i]->next;

			free(p->buckets[i]);
			p->buckets[i] = next;
		}
	}
	free(p);
}

static inline struct piece *pieces_find(struct pieces *p, const uint8_t *hash)
{
	struct piece *x = p->buckets[get_le16(hash)];

	while (x && memcmp(x->hash, hash, SHA256_BYTES) != 0)
		x = x->next;
	return x;
}

static inline int pieces_sink(enum frame_kind kind, const uint8_t hash[SHA256_BYTES],
			      const void *data, size_t n, void *userdata)
{
	struct pieces *p = userdata;
	struct piece *x;

	if (++p->n_calls == p->fail_at)
		return -EIO;
	if (pieces_find(p, hash))
		return 0;
	x = malloc(sizeof(*x) + n);
	if (!x)
		return -ENOMEM;
	memcpy(x->hash, hash, SHA256_BYTES);
	memcpy(x->data, data, n);
	x->kind = kind;
	x->n = n;
	x->next = p->buckets[get_le16(hash)];
	p->buckets[get_le16(hash)] = x;
	p->bytes += n;
	if (kind == FRAME_CHUNK)
		p->n_chunks++;
	else
		p->n_lists++;
	return 0;
}

static inline int pieces_fetch(const uint8_t hash[SHA256_BYTES], struct buf *out, void *userdata)
{
	struct piece *x = pieces_find(userdata, hash);

	return x ? buf_add(out, x->data, x->n) : -ENOENT;
}

#endif
