#include "journal/store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/io.h"
#include "journal/pack.h"
#include "journal/store-cache.h"
#include "journal/store-internal.h"
#include "journal/store-repair.h"
#include "journal/store-walk.h"

#define MOVES_MAX 5

/* ---- opening ---- */

static bool is_temp(const char *name)
{
	size_t n = strlen(name);

	return n > 4 && strcmp(name + n - 4, ".tmp") == 0;
}

/* Packs that were not finished in the making. */
static int remove_temps(int packs_fd)
{
	char **names;
	size_t n;
	int r;

	r = file_list(packs_fd, ".", 1000000, &names, &n);
	if (r < 0)
		return r;
	for (size_t i = 0; r >= 0 && i < n; i++)
		if (is_temp(names[i]))
			r = io_unlinkat(packs_fd, names[i], 0, "pack.remove");
	file_names_free(names, n);
	return r;
}

static int open_write(struct store *st)
{
	bool made = false;
	int r;

	r = file_lock(st->dir_fd, "lock", &st->lock_fd);
	if (r < 0)
		return r;
	r = remove_temps(st->packs_fd);
	if (r < 0)
		return r;
	r = store_table_open(st->dir_fd, true, &st->table);
	if (r == -ENOENT) {
		made = true;
		r = store_table_create(st->dir_fd, &st->table);
	}
	if (r < 0)
		return r;
	r = store_repair_table(st->packs_fd, st->table, made);
	if (r < 0)
		return r;
	return made ? store_table_publish(st->table) : 0;
}

static int open_mode(struct store *st)
{
	int r;

	switch (st->mode) {
	case STORE_WRITE: return open_write(st);
	case STORE_READ: return store_table_open(st->dir_fd, false, &st->table);
	case STORE_COPY:
		r = store_mem_new(&st->mem);
		return r < 0 ? r : store_repair_load(st->packs_fd, st->mem);
	}
	return -EINVAL;
}

static void store_free(struct store *st)
{
	if (!st)
		return;
	store_cache_free(st->cache);
	store_table_close(st->table);
	store_mem_free(st->mem);
	if (st->packs_fd >= 0)
		(void)close(st->packs_fd);
	if (st->dir_fd >= 0)
		(void)close(st->dir_fd);
	if (st->lock_fd >= 0)
		(void)close(st->lock_fd);
	(void)pthread_rwlock_destroy(&st->table_lock);
	free(st);
}
DEFINE_CLEANUP(struct store, store_free);

int store_open(int dir_fd, enum store_mode mode, struct store **ret)
{
	_cleanup_(store_freep) struct store *st = calloc(1, sizeof(*st));
	int r;

	if (!st)
		return -ENOMEM;
	st->mode = mode;
	st->packs_fd = -1;
	st->lock_fd = -1;
	(void)pthread_rwlock_init(&st->table_lock, NULL);
	st->dir_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 3);
	if (st->dir_fd < 0)
		return -errno;
	if (mode == STORE_WRITE) {
		r = file_make_dir(dir_fd, "packs");
		if (r < 0)
			return r;
	}
	st->packs_fd = file_open_dir(dir_fd, "packs");
	if (st->packs_fd < 0)
		return st->packs_fd;
	r = store_cache_new(st->packs_fd, &st->cache);
	if (r < 0)
		return r;
	r = open_mode(st);
	if (r < 0)
		return r;
	*ret = take_ptr(&st);
	return 0;
}

void store_close(struct store *st)
{
	if (!st)
		return;
	/* What cannot be marked is made again next time. */
	if (st->mode == STORE_WRITE)
		(void)store_flush(st);
	store_free(st);
}

/* ---- packs ---- */

/* The file under its temporary name, durable. */
static int fill_pack(int fd, const struct pack_header *h, uint64_t fill_bytes)
{
	uint8_t bytes[PACK_HEADER_BYTES];
	int r;

	if (fchmod(fd, 0600) < 0)
		return -errno;
	/* Held until the last copy of the descriptor is closed: see store-repair.c. */
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return -errno;
	pack_header_seal(h, bytes);
	r = io_pwrite_full(fd, bytes, sizeof(bytes), 0, "pack.write");
	if (r < 0)
		return r;
	if (fill_bytes > PACK_HEADER_BYTES) {
		r = io_fill_zeros(fd, PACK_HEADER_BYTES, fill_bytes, "pack.fill");
		if (r < 0)
			return r;
	}
	return io_fsync(fd, "pack.sync");
}

static int make_pack(struct store *st, const struct pack_header *h, uint64_t fill_bytes,
		     int *ret_fd)
{
	char name[STORE_PACK_NAME_BYTES], temp[STORE_PACK_NAME_BYTES + 4];
	cleanup_close int fd = -1;
	int r;

	(void)store_cache_pack_name(name, h->pack_id);
	memcpy(temp, name, strlen(name));
	memcpy(temp + strlen(name), ".tmp", 5);
	fd = openat(st->packs_fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	r = fill_pack(fd, h, fill_bytes);
	if (r >= 0)
		r = io_renameat(st->packs_fd, temp, st->packs_fd, name, "pack.create");
	if (r < 0) {
		(void)unlinkat(st->packs_fd, temp, 0);
		return r;
	}
	r = io_fsync(st->packs_fd, "store.dir.sync");
	if (r < 0)
		return r;
	*ret_fd = take_fd(&fd);
	return 0;
}

int store_pack_create(struct store *st, const uint8_t env_id[16], uint64_t fill_bytes,
		      uint8_t ret_id[16], int *ret_fd)
{
	struct store_table_pack pack = {.state = STORE_TABLE_OPEN};
	cleanup_close int fd = -1;
	struct pack_header h;
	int r;

	if (st->mode != STORE_WRITE)
		return -EROFS;
	random_bytes(h.pack_id, sizeof(h.pack_id));
	memcpy(h.env_id, env_id, sizeof(h.env_id));
	r = make_pack(st, &h, fill_bytes, &fd);
	if (r < 0)
		return r;
	memcpy(pack.id, h.pack_id, sizeof(pack.id));
	r = store_table_put_pack(st->table, &pack);
	if (r < 0)
		return r;
	memcpy(ret_id, h.pack_id, sizeof(h.pack_id));
	*ret_fd = take_fd(&fd);
	return 0;
}

static int remove_pack(struct store *st, const char *name, const uint8_t pack_id[16])
{
	int r;

	r = io_unlinkat(st->packs_fd, name, 0, "pack.remove");
	if (r < 0)
		return r;
	return store_table_remove_pack(st->table, pack_id);
}

int store_pack_done(struct store *st, const uint8_t pack_id[16], uint64_t length_bytes)
{
	char name[STORE_PACK_NAME_BYTES];
	struct store_table_pack pack;
	cleanup_close int fd = -1;
	struct stat sb;
	int r;

	if (st->mode != STORE_WRITE)
		return -EROFS;
	r = store_table_find_pack(st->table, pack_id, &pack);
	if (r < 0)
		return r;
	if (pack.state != STORE_TABLE_OPEN)
		return -EALREADY;
	fd = openat(st->packs_fd, store_cache_pack_name(name, pack_id),
		    O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, &sb) < 0)
		return -errno;
	if (length_bytes < PACK_HEADER_BYTES || (pack.known && length_bytes <= pack.known) ||
	    length_bytes > (uint64_t)sb.st_size)
		return -EINVAL;
	if (length_bytes == PACK_HEADER_BYTES)
		return remove_pack(st, name, pack_id);
	r = store_repair_seal(fd, length_bytes);
	if (r < 0)
		return r;
	return store_table_set_state(st->table, pack_id, STORE_TABLE_SEALED);
}

int store_add(struct store *st, const struct store_place *places, size_t n)
{
	return st->mode == STORE_WRITE ? store_table_add(st->table, places, n) : -EROFS;
}

/* What the table knows of open packs must not be lost while the table is trusted. */
static int sync_open_packs(struct store *st)
{
	cleanup_free struct store_table_pack *packs = NULL;
	size_t n;
	int r;

	r = store_table_packs(st->table, &packs, &n);
	for (size_t i = 0; r >= 0 && i < n; i++) {
		char name[STORE_PACK_NAME_BYTES];
		cleanup_close int fd = -1;

		if (packs[i].state != STORE_TABLE_OPEN)
			continue;
		fd = openat(st->packs_fd, store_cache_pack_name(name, packs[i].id),
			    O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		if (fd < 0 && errno == ENOENT)
			continue; /* done in the meantime, and empty */
		r = fd < 0 ? -errno : io_fdatasync(fd, "pack.sync");
	}
	return r;
}

int store_flush(struct store *st)
{
	uint64_t generation;
	int r;

	if (st->mode != STORE_WRITE)
		return -EROFS;
	if (store_table_clean(st->table))
		return 0;
	generation = store_table_generation(st->table);
	r = sync_open_packs(st);
	if (r < 0)
		return r;
	return store_table_sync(st->table, generation);
}

/* ---- reading ---- */

static int lookup(struct store *st, const uint8_t hash[SHA256_BYTES], struct store_place *ret)
{
	int r;

	(void)pthread_rwlock_rdlock(&st->table_lock);
	r = st->mem ? store_mem_get(st->mem, hash, ret) : store_table_get(st->table, hash, ret);
	(void)pthread_rwlock_unlock(&st->table_lock);
	return r;
}

static bool is_replaced(struct store *st)
{
	bool replaced;

	(void)pthread_rwlock_rdlock(&st->table_lock);
	replaced = store_table_replaced(st->table);
	(void)pthread_rwlock_unlock(&st->table_lock);
	return replaced;
}

/* 1: the writer has made another table, and it is open now. */
static int follow_table(struct store *st)
{
	struct store_table *t;
	int r = 0;

	if (st->mode != STORE_READ || !is_replaced(st))
		return 0;
	(void)pthread_rwlock_wrlock(&st->table_lock);
	/* Unless another thread was faster. */
	if (store_table_replaced(st->table)) {
		r = store_table_open(st->dir_fd, false, &t);
		if (r >= 0) {
			store_table_close(st->table);
			st->table = t;
		}
	}
	(void)pthread_rwlock_unlock(&st->table_lock);
	return r < 0 ? r : 1;
}

int store_lookup(struct store *st, const uint8_t hash[SHA256_BYTES], struct store_place *ret)
{
	int r;

	r = lookup(st, hash, ret);
	if (r == -ENOENT && follow_table(st) > 0)
		r = lookup(st, hash, ret);
	return r;
}

/* What looked like a copy is at work: the packs are read again. */
static int reload(struct store *st)
{
	_cleanup_(store_mem_freep) struct store_mem *m = NULL;
	struct store_mem *old;
	int r;

	r = store_mem_new(&m);
	if (r >= 0)
		r = store_repair_load(st->packs_fd, m);
	if (r < 0)
		return r;
	(void)pthread_rwlock_wrlock(&st->table_lock);
	old = st->mem;
	st->mem = take_ptr(&m);
	(void)pthread_rwlock_unlock(&st->table_lock);
	store_mem_free(old);
	return 0;
}

static bool same_place(const struct store_place *a, const struct store_place *b)
{
	return a->offset == b->offset && memcmp(a->pack_id, b->pack_id, 16) == 0;
}

int store_fetch(struct store *st, const uint8_t hash[SHA256_BYTES], struct buf *out)
{
	struct store_place place, again;
	unsigned tries = 0;
	int r;

	r = store_lookup(st, hash, &place);
	if (r < 0)
		return r;
	r = store_cache_fetch(st->cache, &place, out);
	/* The pack is gone: its contents may have moved, and again while this is done. */
	while (r == -ENOENT && tries++ < MOVES_MAX) {
		(void)(st->mode == STORE_COPY ? reload(st) : follow_table(st));
		r = lookup(st, hash, &again);
		if (r < 0 || same_place(&place, &again))
			return -ENOENT;
		place = again;
		r = store_cache_fetch(st->cache, &place, out);
	}
	/* A damaged place, or one that a hostile environment made, hides no right one. */
	if (r == -EBADMSG && store_search(st, hash, out) == 0)
		r = 0;
	return r;
}

int store_fetch_fn(const uint8_t hash[SHA256_BYTES], struct buf *out, void *userdata)
{
	return store_fetch(userdata, hash, out);
}

void store_close_removed(struct store *st)
{
	store_cache_close_removed(st->cache);
}

int store_counts(struct store *st, struct store_counts *ret)
{
	cleanup_free struct store_file *files = NULL;
	struct store_counts c = {0};
	size_t n;
	int r;

	r = store_walk_files(st->packs_fd, &files, &n);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++)
		c.pack_bytes += files[i].size_bytes;
	c.packs = n;
	if (st->mem) {
		store_mem_counts(st->mem, &c.contents, &c.content_bytes);
	} else {
		(void)pthread_rwlock_rdlock(&st->table_lock);
		r = store_table_counts(st->table, &c.contents, &c.content_bytes);
		(void)pthread_rwlock_unlock(&st->table_lock);
		if (r < 0)
			return r;
	}
	*ret = c;
	return 0;
}
