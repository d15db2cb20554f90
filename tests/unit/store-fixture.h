/*
 * store-fixture.h - a store to be tested: contents put into packs of it, and kept
 * beside for comparison. Random bytes come from content-fixture.h.
 */
#ifndef TESTS_UNIT_STORE_FIXTURE_H
#define TESTS_UNIT_STORE_FIXTURE_H

#include <errno.h>
#include <stdbool.h>

#include "journal/pack.h"
#include "journal/store.h"
#include "tests/unit/child.h"
#include "tests/unit/content-fixture.h"
#include "tests/unit/scratch.h"

struct content {
	uint8_t hash[SHA256_BYTES];
	uint8_t *data;
	size_t n;
	struct store_place place;
};

#define CONTENTS_MAX 4096
static struct content contents[CONTENTS_MAX];
static size_t n_contents;

struct test_pack {
	uint8_t id[16];
	int fd;
	uint64_t end;
};

static inline void contents_forget(size_t from)
{
	while (n_contents > from)
		free(contents[--n_contents].data);
}

static inline int store_test_setup(void **state)
{
	random_state = 11;
	return scratch_setup(state);
}

static inline int store_test_teardown(void **state)
{
	contents_forget(0);
	return scratch_teardown(state);
}

/* No assertions here: children call this as well. */
static inline int pack_begin(struct store *st, struct test_pack *p, uint64_t fill_bytes)
{
	const uint8_t env_id[16] = "an environment";

	p->end = PACK_HEADER_BYTES;
	return store_pack_create(st, env_id, fill_bytes, p->id, &p->fd);
}

/* One frame with n contents, the next of `contents`, of up to max bytes. */
static inline int frame_make(struct frame_builder *fb, struct test_pack *p, size_t n, size_t max,
			     struct frame *ret)
{
	for (size_t i = 0; i < n; i++) {
		struct content *c = &contents[n_contents++];
		int r;

		c->n = 1 + random_below(max);
		c->data = malloc(c->n);
		random_fill(c->data, c->n);
		sha256(c->data, c->n, c->hash);
		memcpy(c->place.hash, c->hash, SHA256_BYTES);
		memcpy(c->place.pack_id, p->id, 16);
		c->place.offset = p->end;
		c->place.len = (uint32_t)c->n;
		c->place.kind = FRAME_CHUNK;
		r = frame_builder_add(fb, FRAME_CHUNK, c->hash, c->data, c->n);
		if (r < 0)
			return r;
	}
	return frame_builder_finish(fb, ret);
}

static inline int frame_write(struct test_pack *p, const struct frame *f)
{
	if (pwrite(p->fd, f->bytes, f->n, (off_t)p->end) != (ssize_t)f->n)
		return -EIO;
	p->end += f->n;
	return 0;
}

/* Writes a frame of n contents and adds their places. */
static inline int pack_put(struct store *st, struct test_pack *p, size_t n, size_t max)
{
	_cleanup_(frame_builder_freep) struct frame_builder *fb = NULL;
	struct store_place places[FRAME_MEMBERS_MAX];
	struct frame f;
	int r;

	r = frame_builder_new(1, &fb);
	if (r >= 0)
		r = frame_make(fb, p, n, max, &f);
	if (r >= 0)
		r = frame_write(p, &f);
	for (size_t i = 0; r >= 0 && i < n; i++)
		places[i] = contents[n_contents - n + i].place;
	return r < 0 || !st ? r : store_add(st, places, n);
}

static inline int pack_close(struct store *st, struct test_pack *p)
{
	int r = store_pack_done(st, p->id, p->end);

	(void)close(p->fd);
	return r;
}

/* 0: it comes back; 1: wrong bytes; else the error. */
static inline int content_check(struct store *st, const struct content *c)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	int r = store_fetch(st, c->hash, &b);

	if (r < 0)
		return buf_len(&b) ? 2 : r;
	return buf_len(&b) == c->n && memcmp(buf_data(&b), c->data, c->n) == 0 ? 0 : 1;
}

static inline int contents_check(struct store *st, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++) {
		int r = content_check(st, &contents[i]);

		if (r != 0)
			return r;
	}
	return 0;
}

static inline const char *pack_path(const uint8_t id[16])
{
	static char path[64];
	size_t n = (size_t)snprintf(path, sizeof(path), "packs/");

	for (unsigned i = 0; i < 16; i++)
		n += (size_t)snprintf(path + n, sizeof(path) - n, "%02x", id[i]);
	(void)snprintf(path + n, sizeof(path) - n, ".pack");
	return path;
}

/* ---- with assertions ---- */

static inline struct store *open_store(enum store_mode mode)
{
	struct store *st;

	assert_int_equal(store_open(scratch, mode, &st), 0);
	return st;
}

static inline bool has(const char *path)
{
	return faccessat(scratch, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static inline void forget_index(void)
{
	for (unsigned i = 1; i < 10; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "index.%u", i);
		assert_int_equal(file_remove_tree(scratch, name), 0);
	}
}

#endif
