#include "brain/keep.h"

#include "base/io.h"
#include "journal/pack.h"

enum { ZSTD_LEVEL = 1 };

struct keep {
	struct store *store;
	uint8_t env_id[16], pack_id[16];
	int fd; /* -1: no pack yet, or no more */
	uint64_t end;
	struct frame_builder *builder;
	struct content_writer *writer;
	struct store_place *places;
	size_t n_places, cap_places;
};

static int add_places(struct keep *k, const struct frame *f)
{
	if (k->n_places + f->n_members > k->cap_places) {
		size_t cap = MAX(k->n_places + f->n_members, k->cap_places * 2);
		struct store_place *p = reallocarray(k->places, cap, sizeof(*p));

		if (!p)
			return -ENOMEM;
		k->places = p;
		k->cap_places = cap;
	}
	for (size_t i = 0; i < f->n_members; i++) {
		struct store_place *p = &k->places[k->n_places++];

		memcpy(p->hash, f->members[i].hash, sizeof(p->hash));
		memcpy(p->pack_id, k->pack_id, sizeof(p->pack_id));
		p->offset = k->end;
		p->len = f->members[i].len;
		p->kind = f->members[i].kind;
	}
	return 0;
}

/* What is in the pack is durable and found; the pack is closed. */
static int pack_end(struct keep *k)
{
	int r;

	if (k->fd < 0)
		return 0;
	r = io_fdatasync(k->fd, "keep.sync");
	if (r == 0 && k->n_places)
		r = store_add(k->store, k->places, k->n_places);
	(void)store_pack_done(k->store, k->pack_id, r == 0 ? k->end : PACK_HEADER_BYTES);
	(void)close(take_fd(&k->fd));
	k->n_places = 0;
	return r;
}

static int frame_write(struct keep *k)
{
	struct frame f;
	int r = 0;

	if (frame_builder_empty(k->builder))
		return 0;
	if (k->fd >= 0 && k->end >= PACK_SEAL_BYTES)
		r = pack_end(k);
	if (r == 0 && k->fd < 0) {
		k->end = PACK_HEADER_BYTES;
		r = store_pack_create(k->store, k->env_id, 0, k->pack_id, &k->fd);
	}
	if (r < 0)
		return r;
	r = frame_builder_finish(k->builder, &f);
	if (r >= 0)
		r = io_pwrite_full(k->fd, f.bytes, f.n, k->end, "keep.write");
	if (r >= 0)
		r = add_places(k, &f);
	if (r >= 0)
		k->end += f.n;
	return MIN(r, 0);
}

static int piece(enum frame_kind kind, const uint8_t hash[SHA256_BYTES], const void *data, size_t n,
		 void *userdata)
{
	struct keep *k = userdata;
	int r;

	r = frame_builder_add(k->builder, kind, hash, data, n);
	if (r == -E2BIG) {
		r = frame_write(k);
		if (r == 0)
			r = frame_builder_add(k->builder, kind, hash, data, n);
	}
	return r > 0 ? frame_write(k) : r;
}

int keep_begin(struct brain *b, const uint8_t env_id[16], struct keep **ret)
{
	_cleanup_(keep_dropp) struct keep *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return -ENOMEM;
	k->store = b->store;
	k->fd = -1;
	memcpy(k->env_id, env_id, sizeof(k->env_id));
	r = frame_builder_new(ZSTD_LEVEL, &k->builder);
	if (r == 0)
		r = content_writer_new(piece, k, &k->writer);
	if (r < 0)
		return r;
	*ret = take_ptr(&k);
	return 0;
}

void keep_file_begin(struct keep *k)
{
	content_writer_begin(k->writer);
}

int keep_data(struct keep *k, const void *data, size_t n)
{
	return content_writer_data(k->writer, data, n);
}

int keep_file_end(struct keep *k, struct content_ref *ret)
{
	return content_writer_end(k->writer, ret);
}

int keep_end(struct keep *k)
{
	int r = frame_write(k);

	return r < 0 ? r : pack_end(k);
}

void keep_drop(struct keep *k)
{
	if (!k)
		return;
	if (k->fd >= 0) { /* nothing in it is named by anybody */
		(void)store_pack_done(k->store, k->pack_id, PACK_HEADER_BYTES);
		(void)close(k->fd);
	}
	frame_builder_free(k->builder);
	content_writer_free(k->writer);
	free(k->places);
	free(k);
}
