#include "fs/dirs.h"

#include <pthread.h>

#include "base/sha256.h"
#include "fs/siphash.h"

enum {
	KEPT = 64,
	KEPT_BYTES = 64 << 20, /* the newest one may be larger */
	OFFSET_BITS = 62,
};

struct place {
	uint64_t offset;
	uint32_t name_at;
	uint32_t len;
};

struct listing {
	uint64_t space, dir;
	unsigned refs; /* the table's own included; the last one frees */
	uint64_t used;
	struct place *places;
	size_t n, room;
	struct buf names; /* NUL-terminated, end to end */
};

struct dirs {
	pthread_mutex_t lock;
	uint8_t key[16];
	uint64_t floor, clock;
	struct listing *kept[KEPT];
	dirs_list_fn list;
	void *list_userdata;
};

void dirs_set_list(struct dirs *d, dirs_list_fn list, void *userdata)
{
	d->list = list;
	d->list_userdata = userdata;
}

int dirs_new(struct dirs **ret)
{
	struct dirs *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	(void)pthread_mutex_init(&d->lock, NULL);
	random_bytes(d->key, sizeof(d->key));
	*ret = d;
	return 0;
}

static void listing_free(struct listing *l)
{
	if (!l)
		return;
	free(l->places);
	buf_done(&l->names);
	free(l);
}
DEFINE_CLEANUP(struct listing, listing_free);

void dirs_free(struct dirs *d)
{
	if (!d)
		return;
	for (size_t i = 0; i < KEPT; i++)
		listing_free(d->kept[i]);
	(void)pthread_mutex_destroy(&d->lock);
	free(d);
}

/* ---- making one ---- */

struct making {
	struct dirs *d;
	struct listing *l;
};

static uint64_t offset_of(const struct dirs *d, const char *name, size_t len)
{
	uint64_t offset = siphash(d->key, name, len) >> (64 - OFFSET_BITS);

	return MAX(offset, (uint64_t)DIRS_OFFSET_FIRST);
}

static int add_entry(const char *name, size_t len, uint64_t node, void *userdata)
{
	struct making *m = userdata;
	struct listing *l = m->l;
	size_t at = buf_len(&l->names);
	struct place *places;
	int r;

	(void)node;
	if (l->n == l->room) {
		size_t room = MAX(l->room * 2, (size_t)16);
		places = reallocarray(l->places, room, sizeof(*places));
		if (!places)
			return -ENOMEM;
		l->places = places;
		l->room = room;
	}
	r = buf_add(&l->names, name, len);
	if (r >= 0)
		r = buf_add_u8(&l->names, 0);
	if (r < 0)
		return r;
	l->places[l->n++] = (struct place){.offset = offset_of(m->d, name, len),
					   .name_at = (uint32_t)at,
					   .len = (uint32_t)len};
	return 0;
}

/* The index lists names in order, so name_at orders them, too. */
static int compare(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return x->name_at < y->name_at ? -1 : x->name_at > y->name_at;
}

static int make(struct dirs *d, struct index_txn *t, uint64_t at, uint64_t dir,
		struct listing **ret)
{
	_cleanup_(listing_freep) struct listing *l = calloc(1, sizeof(*l));
	struct making m = {.d = d, .l = l};
	int r;

	if (!l)
		return -ENOMEM;
	buf_init(&l->names, UINT32_MAX);
	l->dir = dir;
	l->refs = 1;
	r = d->list && at == INDEX_NOW ? d->list(d->list_userdata, t, dir, add_entry, &m)
				       : index_list(t, dir, NULL, 0, at, add_entry, &m);
	if (r < 0)
		return r;
	if (l->n > 0)
		qsort(l->places, l->n, sizeof(*l->places), compare);
	for (size_t i = 1; i < l->n; i++)
		l->places[i].offset = MAX(l->places[i].offset, l->places[i - 1].offset + 1);
	*ret = take_ptr(&l);
	return 0;
}

/* ---- the kept ones; under the lock ---- */

static size_t bytes_of(const struct listing *l)
{
	return sizeof(*l) + l->room * sizeof(*l->places) + l->names.cap;
}

static void unref(struct listing *l)
{
	if (l && --l->refs == 0)
		listing_free(l);
}

static struct listing **find(struct dirs *d, uint64_t space, uint64_t dir)
{
	for (size_t i = 0; i < KEPT; i++)
		if (d->kept[i] && d->kept[i]->dir == dir && d->kept[i]->space == space)
			return &d->kept[i];
	return NULL;
}

/* An empty slot, made so if need be by dropping what was unused for longest. */
static struct listing **make_slot(struct dirs *d, size_t bytes)
{
	for (;;) {
		struct listing **oldest = NULL, **empty = NULL;
		size_t sum = bytes;

		for (size_t i = 0; i < KEPT; i++) {
			struct listing **l = &d->kept[i];
			if (!*l) {
				empty = l;
				continue;
			}
			sum += bytes_of(*l);
			if (!oldest || (*l)->used < (*oldest)->used)
				oldest = l;
		}
		if (empty && (sum <= KEPT_BYTES || !oldest))
			return empty;
		unref(*oldest);
		*oldest = NULL;
	}
}

static void keep(struct dirs *d, uint64_t seq, struct listing *l)
{
	struct listing **slot;

	if (seq < d->floor)
		return;
	slot = find(d, l->space, l->dir);
	if (slot) {
		unref(*slot);
		*slot = NULL;
	}
	slot = make_slot(d, bytes_of(l));
	*slot = l;
	l->refs++;
	l->used = ++d->clock;
}

int dirs_get(struct dirs *d, struct index_txn *t, uint64_t seq, uint64_t dir, struct listing **ret)
{
	return dirs_get_at(d, t, seq, 0, INDEX_NOW, dir, ret);
}

int dirs_get_at(struct dirs *d, struct index_txn *t, uint64_t seq, uint64_t space, uint64_t at,
		uint64_t dir, struct listing **ret)
{
	struct listing **kept, *l = NULL;
	int r;

	(void)pthread_mutex_lock(&d->lock);
	kept = find(d, space, dir);
	if (kept) {
		l = *kept;
		l->refs++;
		l->used = ++d->clock;
	}
	(void)pthread_mutex_unlock(&d->lock);
	if (!l) {
		r = make(d, t, at, dir, &l);
		if (r < 0)
			return r;
		l->space = space;
		(void)pthread_mutex_lock(&d->lock);
		keep(d, seq, l);
		(void)pthread_mutex_unlock(&d->lock);
	}
	*ret = l;
	return 0;
}

void dirs_put(struct dirs *d, struct listing *l)
{
	(void)pthread_mutex_lock(&d->lock);
	unref(l);
	(void)pthread_mutex_unlock(&d->lock);
}

void dirs_set_floor(struct dirs *d, uint64_t seq)
{
	(void)pthread_mutex_lock(&d->lock);
	d->floor = MAX(d->floor, seq);
	(void)pthread_mutex_unlock(&d->lock);
}

void dirs_drop(struct dirs *d, uint64_t dir)
{
	struct listing **l;

	(void)pthread_mutex_lock(&d->lock);
	l = find(d, 0, dir);
	if (l) {
		unref(*l);
		*l = NULL;
	}
	(void)pthread_mutex_unlock(&d->lock);
}

void dirs_drop_all(struct dirs *d)
{
	(void)pthread_mutex_lock(&d->lock);
	for (size_t i = 0; i < KEPT; i++) {
		unref(d->kept[i]);
		d->kept[i] = NULL;
	}
	(void)pthread_mutex_unlock(&d->lock);
}

/* ---- reading one ---- */

size_t listing_count(const struct listing *l)
{
	return l->n;
}

size_t listing_seek(const struct listing *l, uint64_t offset)
{
	size_t low = 0, high = l->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (l->places[mid].offset > offset)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

uint64_t listing_entry(const struct listing *l, size_t i, const char **ret_name, size_t *ret_len)
{
	*ret_name = (const char *)buf_data(&l->names) + l->places[i].name_at;
	*ret_len = l->places[i].len;
	return l->places[i].offset;
}
