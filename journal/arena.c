#include "journal/arena.h"

#include "base/util.h"

#define BLOCK_FIRST_BYTES (8u << 10)
#define BLOCK_MAX_BYTES (1u << 20)

struct arena_block {
	struct arena_block *older;
	size_t used, size;
	_Alignas(16) uint8_t mem[];
};

static struct arena_block *add_block(struct arena *a, size_t n)
{
	size_t size = a->blocks ? MIN(a->blocks->size * 2, BLOCK_MAX_BYTES) : BLOCK_FIRST_BYTES;
	struct arena_block *b;

	size = MAX(size, n);
	b = malloc(sizeof(*b) + size);
	if (!b)
		return NULL;
	b->older = a->blocks;
	b->used = 0;
	b->size = size;
	a->blocks = b;
	return b;
}

void *arena_alloc(struct arena *a, size_t n)
{
	struct arena_block *b = a->blocks;

	if (n > SIZE_MAX / 2)
		return NULL;
	n = ALIGN_UP(n, 8);
	if (a->limit && n > a->limit - a->used)
		return NULL;
	if (!b || b->size - b->used < n) {
		b = add_block(a, n);
		if (!b)
			return NULL;
	}
	b->used += n;
	a->used += n;
	return b->mem + b->used - n;
}

void *arena_copy(struct arena *a, const void *data, size_t n)
{
	void *p = arena_alloc(a, n);

	if (p && n)
		memcpy(p, data, n);
	return p;
}

static void free_blocks(struct arena_block *b, struct arena_block *end)
{
	while (b != end) {
		struct arena_block *older = b->older;
		free(b);
		b = older;
	}
}

void arena_reset(struct arena *a)
{
	struct arena_block *first = a->blocks;

	if (!first)
		return;
	while (first->older)
		first = first->older;
	free_blocks(a->blocks, first);
	first->used = 0;
	a->blocks = first;
	a->used = 0;
}

void arena_done(struct arena *a)
{
	if (!a)
		return;
	free_blocks(a->blocks, NULL);
	a->blocks = NULL;
	a->used = 0;
}
