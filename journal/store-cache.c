#include "journal/store-cache.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "base/text.h"
#include "journal/pack.h"

struct pack {
	uint8_t id[16];
	int fd; /* -1 = free entry */
	unsigned refs;
	uint64_t used;
};

struct frame_entry {
	uint8_t pack_id[16];
	uint64_t offset;
	struct buf raw;
	struct frame_member *members;
	size_t n_members;
	atomic_bool *compared; /* one for each member */
	unsigned refs;	       /* the cache's own included; the last one frees */
	uint64_t used;
	bool loading; /* somebody reads it: who else wants it waits, and gets his result */
	int error;
};

struct store_cache {
	int packs_fd;
	pthread_mutex_t lock;
	pthread_cond_t loaded;
	uint64_t clock;
	struct pack packs[STORE_CACHE_PACKS];
	struct frame_entry *frames[STORE_CACHE_FRAMES];
};

const char *store_cache_pack_name(char out[STORE_PACK_NAME_BYTES], const uint8_t id[16])
{
	text_hex(out, id, 16);
	memcpy(out + 32, ".pack", 6);
	return out;
}

int store_cache_new(int packs_fd, struct store_cache **ret)
{
	struct store_cache *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->packs_fd = fcntl(packs_fd, F_DUPFD_CLOEXEC, 3);
	if (c->packs_fd < 0) {
		r = -errno;
		free(c);
		return r;
	}
	(void)pthread_mutex_init(&c->lock, NULL);
	(void)pthread_cond_init(&c->loaded, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(c->packs); i++)
		c->packs[i].fd = -1;
	*ret = c;
	return 0;
}

static void frame_free(struct frame_entry *f)
{
	if (!f)
		return;
	buf_done(&f->raw);
	free(f->members);
	free(f->compared);
	free(f);
}

void store_cache_free(struct store_cache *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(c->frames); i++)
		frame_free(c->frames[i]);
	for (size_t i = 0; i < ARRAY_SIZE(c->packs); i++)
		if (c->packs[i].fd >= 0)
			(void)close(c->packs[i].fd);
	(void)pthread_cond_destroy(&c->loaded);
	(void)pthread_mutex_destroy(&c->lock);
	(void)close(c->packs_fd);
	free(c);
}

/* ---- open packs; under the lock, but for the opening ---- */

static struct pack *find_pack(struct store_cache *c, const uint8_t id[16])
{
	for (size_t i = 0; i < ARRAY_SIZE(c->packs); i++)
		if (c->packs[i].fd >= 0 && memcmp(c->packs[i].id, id, 16) == 0)
			return &c->packs[i];
	return NULL;
}

static void close_removed(struct store_cache *c)
{
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(c->packs); i++) {
		struct pack *p = &c->packs[i];

		if (p->fd < 0 || p->refs > 0 || fstat(p->fd, &st) < 0 || st.st_nlink > 0)
			continue;
		(void)close(p->fd);
		p->fd = -1;
	}
}

void store_cache_close_removed(struct store_cache *c)
{
	(void)pthread_mutex_lock(&c->lock);
	close_removed(c);
	(void)pthread_mutex_unlock(&c->lock);
}

/* A free entry, or the one unused for longest, closed; NULL: all are being read. */
static struct pack *free_pack(struct store_cache *c)
{
	struct pack *best = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(c->packs); i++) {
		struct pack *p = &c->packs[i];

		if (p->fd < 0)
			return p;
		if (p->refs == 0 && (!best || p->used < best->used))
			best = p;
	}
	if (best) {
		(void)close(best->fd);
		best->fd = -1;
	}
	return best;
}

/* *ret_pack is NULL when the descriptor is the caller's alone. */
static int pack_acquire(struct store_cache *c, const uint8_t id[16], struct pack **ret_pack,
			int *ret_fd)
{
	char name[STORE_PACK_NAME_BYTES];
	struct pack *p;
	int fd;

	(void)pthread_mutex_lock(&c->lock);
	p = find_pack(c, id);
	if (p) {
		p->refs++;
		p->used = ++c->clock;
		*ret_fd = p->fd;
	}
	(void)pthread_mutex_unlock(&c->lock);
	*ret_pack = p;
	if (p)
		return 0;

	fd = openat(c->packs_fd, store_cache_pack_name(name, id),
		    O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	(void)pthread_mutex_lock(&c->lock);
	/* One that is opened anew may have what was in others before. */
	close_removed(c);
	if (!find_pack(c, id))
		p = free_pack(c);
	if (p) {
		memcpy(p->id, id, 16);
		p->fd = fd;
		p->refs = 1;
		p->used = ++c->clock;
	}
	(void)pthread_mutex_unlock(&c->lock);
	*ret_pack = p;
	*ret_fd = fd;
	return 0;
}

static void pack_release(struct store_cache *c, struct pack *p, int fd)
{
	if (!p) {
		(void)close(fd);
		return;
	}
	(void)pthread_mutex_lock(&c->lock);
	p->refs--;
	(void)pthread_mutex_unlock(&c->lock);
}

/* ---- frames ---- */

static struct frame_entry **find_frame(struct store_cache *c, const struct store_place *place)
{
	for (size_t i = 0; i < ARRAY_SIZE(c->frames); i++) {
		struct frame_entry *f = c->frames[i];

		if (f && f->offset == place->offset && memcmp(f->pack_id, place->pack_id, 16) == 0)
			return &c->frames[i];
	}
	return NULL;
}

/* Under the lock. */
static void frame_unref(struct frame_entry *f)
{
	if (f && --f->refs == 0)
		frame_free(f);
}

static void frame_release(struct store_cache *c, struct frame_entry *f)
{
	(void)pthread_mutex_lock(&c->lock);
	frame_unref(f);
	(void)pthread_mutex_unlock(&c->lock);
}

/* The next one who wants it reads it again. */
static void frame_drop(struct store_cache *c, struct frame_entry *f)
{
	(void)pthread_mutex_lock(&c->lock);
	for (size_t i = 0; i < ARRAY_SIZE(c->frames); i++) {
		if (c->frames[i] == f) {
			c->frames[i] = NULL;
			frame_unref(f);
			break;
		}
	}
	(void)pthread_mutex_unlock(&c->lock);
}

static struct frame_entry **oldest_frame(struct store_cache *c)
{
	struct frame_entry **oldest = &c->frames[0];

	for (size_t i = 0; i < ARRAY_SIZE(c->frames); i++) {
		if (!c->frames[i])
			return &c->frames[i];
		if (c->frames[i]->used < (*oldest)->used)
			oldest = &c->frames[i];
	}
	return oldest;
}

/* Under the lock. */
static void frame_insert(struct store_cache *c, struct frame_entry *f)
{
	struct frame_entry **slot = oldest_frame(c);

	frame_unref(*slot);
	*slot = f;
	f->refs++;
	f->used = ++c->clock;
}

static int frame_load(struct store_cache *c, struct frame_entry *f)
{
	struct pack *p;
	int r, fd = -1;

	r = pack_acquire(c, f->pack_id, &p, &fd);
	if (r < 0)
		return r;
	r = frame_read(fd, f->offset, &f->raw, &f->members, &f->n_members);
	pack_release(c, p, fd);
	if (r < 0)
		return r;
	f->compared = calloc(f->n_members, sizeof(*f->compared));
	return f->compared ? 0 : -ENOMEM;
}

static int frame_new(const struct store_place *place, struct frame_entry **ret)
{
	struct frame_entry *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	buf_init(&f->raw, FRAME_RAW_MAX);
	memcpy(f->pack_id, place->pack_id, 16);
	f->offset = place->offset;
	f->refs = 1;
	f->loading = true;
	*ret = f;
	return 0;
}

/* One thread reads a frame, however many want it: neighbours in a file are asked for at the
 * same time and lie in the same frame. */
static int frame_acquire(struct store_cache *c, const struct store_place *place,
			 struct frame_entry **ret)
{
	struct frame_entry **found, *f = NULL;
	bool mine;
	int r = 0;

	(void)pthread_mutex_lock(&c->lock);
	found = find_frame(c, place);
	mine = !found;
	if (found) {
		f = *found;
		f->refs++;
		f->used = ++c->clock;
	} else {
		r = frame_new(place, &f);
		if (r >= 0)
			frame_insert(c, f);
	}
	while (r >= 0 && !mine && f->loading)
		(void)pthread_cond_wait(&c->loaded, &c->lock);
	(void)pthread_mutex_unlock(&c->lock);
	if (r < 0)
		return r;

	if (mine) {
		r = frame_load(c, f);
		(void)pthread_mutex_lock(&c->lock);
		f->loading = false;
		f->error = r;
		(void)pthread_cond_broadcast(&c->loaded);
		(void)pthread_mutex_unlock(&c->lock);
	}
	if (f->error < 0) {
		r = f->error;
		frame_drop(c, f);
		frame_release(c, f);
		return r;
	}
	*ret = f;
	return 0;
}

static int member_copy(struct frame_entry *f, const uint8_t hash[SHA256_BYTES], struct buf *out)
{
	const uint8_t *data = buf_data(&f->raw);
	uint8_t actual[SHA256_BYTES];

	for (size_t i = 0; i < f->n_members; data += f->members[i++].len) {
		const struct frame_member *m = &f->members[i];

		if (memcmp(m->hash, hash, SHA256_BYTES) != 0)
			continue;
		if (!atomic_load_explicit(&f->compared[i], memory_order_relaxed)) {
			sha256(data, m->len, actual);
			if (memcmp(actual, hash, SHA256_BYTES) != 0)
				return -EBADMSG;
			atomic_store_explicit(&f->compared[i], true, memory_order_relaxed);
		}
		return buf_add(out, data, m->len);
	}
	return -EBADMSG;
}

int store_cache_fetch(struct store_cache *c, const struct store_place *place, struct buf *out)
{
	struct frame_entry *f;
	int r;

	r = frame_acquire(c, place, &f);
	if (r < 0)
		return r;
	r = member_copy(f, place->hash, out);
	if (r == -EBADMSG)
		frame_drop(c, f);
	frame_release(c, f);
	return r;
}
