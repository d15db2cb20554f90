#include "journal/store.h"

#include <fcntl.h>

#include "journal/pack.h"
#include "journal/store-cache.h"
#include "journal/store-internal.h"
#include "journal/store-walk.h"

/* More than these in one frame and the gap behind it are counted as one. */
#define PENDING_MAX 1100

struct problem {
	uint64_t offset;
	uint8_t hash[SHA256_BYTES];
	bool has_hash;
	int error;
};

/*
 * What is bad at the end of a pack that is being filled is a frame on its way, or
 * a torn tail: problems wait until a good frame, or the table, shows that they
 * are not.
 */
struct check {
	char name[STORE_PACK_NAME_BYTES];
	store_bad_fn bad;
	void *userdata;
	struct problem *pending; /* PENDING_MAX */
	size_t n_pending;
	uint64_t known; /* frames up to this offset were complete */
};

static void tell(struct check *c, const struct problem *p)
{
	c->bad(c->name, p->offset, p->has_hash ? p->hash : NULL, p->error, c->userdata);
}

static void note_bad(uint64_t offset, const uint8_t *hash, int error, void *userdata)
{
	struct check *c = userdata;
	struct problem p = {.offset = offset, .has_hash = hash != NULL, .error = error};

	if (hash)
		memcpy(p.hash, hash, SHA256_BYTES);
	if (offset <= c->known)
		tell(c, &p);
	else if (c->n_pending < PENDING_MAX)
		c->pending[c->n_pending++] = p;
}

static int note_good(const struct store_place *places, size_t n, void *userdata)
{
	struct check *c = userdata;

	for (size_t i = 0; i < c->n_pending; i++)
		tell(c, &c->pending[i]);
	c->n_pending = 0;
	return 0;
}

static void check_end(struct check *c, const struct store_file *file, uint64_t end)
{
	struct problem p = {.offset = end, .error = -EBADMSG};

	if (!file->sealed && end > c->known)
		return;
	if (c->n_pending == 0 && end != file->size_bytes)
		tell(c, &p);
	(void)note_good(NULL, 0, c);
}

static int check_pack(int packs_fd, const struct store_file *file, struct check *c)
{
	struct store_walk w = {.compare = true, .add = note_good, .bad = note_bad, .userdata = c};
	struct problem unreadable = {0};
	cleanup_close int fd = -1;
	uint64_t end = 0;
	int r;

	c->n_pending = 0;
	w.torn_tail = !file->sealed;
	memcpy(w.pack_id, file->pack_id, sizeof(w.pack_id));
	fd = openat(packs_fd, store_cache_pack_name(c->name, file->pack_id),
		    O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
	r = fd < 0 ? -errno : store_walk_pack(&w, fd, PACK_HEADER_BYTES, &end);
	if (r >= 0) {
		check_end(c, file, end);
		return 0;
	}
	if (r == -ENOMEM)
		return r;
	if (r == -ENOENT)
		return 0; /* removed since the listing */
	unreadable.offset = end;
	unreadable.error = r;
	(void)note_good(NULL, 0, c);
	tell(c, &unreadable);
	return 0;
}

static bool has_file(const struct store_file *files, size_t n, const uint8_t id[16])
{
	for (size_t i = 0; i < n; i++)
		if (memcmp(files[i].pack_id, id, 16) == 0)
			return true;
	return false;
}

/* Packs that the table knows and that are not there. */
static void check_gone(struct check *c, const struct store_file *files, size_t n_files,
		       const struct store_table_pack *packs, size_t n_packs)
{
	const struct problem gone = {.error = -ENOENT};

	for (size_t i = 0; i < n_packs; i++) {
		if (has_file(files, n_files, packs[i].id))
			continue;
		(void)store_cache_pack_name(c->name, packs[i].id);
		tell(c, &gone);
	}
}

static uint64_t known_of(const struct store_table_pack *packs, size_t n, const uint8_t id[16])
{
	for (size_t i = 0; i < n; i++)
		if (memcmp(packs[i].id, id, 16) == 0)
			return packs[i].known;
	return 0;
}

static int table_packs(struct store *st, struct store_table_pack **ret, size_t *ret_n)
{
	int r;

	*ret_n = 0;
	if (!st->table)
		return 0;
	(void)pthread_rwlock_rdlock(&st->table_lock);
	r = store_table_packs(st->table, ret, ret_n);
	(void)pthread_rwlock_unlock(&st->table_lock);
	return r;
}

int store_check(struct store *st, store_bad_fn bad, void *userdata)
{
	cleanup_free struct problem *pending = calloc(PENDING_MAX, sizeof(*pending));
	struct check c = {.bad = bad, .userdata = userdata, .pending = pending};
	cleanup_free struct store_table_pack *packs = NULL;
	cleanup_free struct store_file *files = NULL;
	size_t n_packs, n_files;
	int r;

	if (!pending)
		return -ENOMEM;
	/* In this order: what is in the table was a file before. */
	r = table_packs(st, &packs, &n_packs);
	if (r < 0)
		return r;
	r = store_walk_files(st->packs_fd, &files, &n_files);
	if (r < 0)
		return r;
	check_gone(&c, files, n_files, packs, n_packs);
	for (size_t i = 0; i < n_files; i++) {
		c.known = known_of(packs, n_packs, files[i].pack_id);
		r = check_pack(st->packs_fd, &files[i], &c);
		if (r < 0)
			return r;
	}
	return 0;
}
