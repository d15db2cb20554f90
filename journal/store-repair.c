#include "journal/store-repair.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/io.h"
#include "journal/pack.h"
#include "journal/store-cache.h"
#include "journal/store-walk.h"

/* Places gathered for one transaction: in order of hash they cost a fraction. */
#define BATCH_PLACES (256u << 10)
#define LOAD_ROUNDS 10

struct batch {
	struct store_table *table;
	struct store_place *places;
	size_t n;
	bool unseen; /* the table is being made: a crash leaves nothing of it */
};

static int batch_flush(struct batch *b)
{
	size_t n = b->n;

	b->n = 0;
	return store_table_add(b->table, b->places, n);
}

static int batch_add(const struct store_place *places, size_t n, void *userdata)
{
	struct batch *b = userdata;
	int r;

	if (b->n + n > BATCH_PLACES) {
		r = batch_flush(b);
		if (r < 0)
			return r;
	}
	memcpy(b->places + b->n, places, n * sizeof(*places));
	b->n += n;
	return 0;
}

static int open_pack(int packs_fd, const struct store_file *file, int flags)
{
	char name[STORE_PACK_NAME_BYTES];
	int fd;

	flags |= O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK;
	fd = openat(packs_fd, store_cache_pack_name(name, file->pack_id), flags);
	return fd < 0 ? -errno : fd;
}

/* A pack of a later version is refused; a damaged header hides no frame. */
static int check_header(int fd)
{
	uint8_t bytes[PACK_HEADER_BYTES];
	struct pack_header h;
	ssize_t n = io_pread_full(fd, bytes, sizeof(bytes), 0, "pack.read");
	int r;

	if (n < (ssize_t)sizeof(bytes))
		return n < 0 ? (int)n : 0;
	r = pack_header_parse(bytes, &h);
	return r == -EPROTONOSUPPORT ? r : 0;
}

/* The mode comes last: it says that all before is durable. Should it be lost, the pack
 * is looked at once more. */
int store_repair_seal(int fd, uint64_t length_bytes)
{
	int r;

	r = io_ftruncate(fd, length_bytes, "pack.truncate");
	if (r < 0)
		return r;
	r = io_fsync(fd, "pack.sync");
	if (r < 0)
		return r;
	return fchmod(fd, 0400) < 0 ? -errno : 0;
}

/* Whoever fills a pack holds a lock on it by its descriptor. */
static int is_busy(int fd)
{
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	return errno == EWOULDBLOCK ? 1 : -errno;
}

static int remove_empty(int packs_fd, struct store_table *t, const struct store_file *file)
{
	char name[STORE_PACK_NAME_BYTES];
	int r;

	r = io_unlinkat(packs_fd, store_cache_pack_name(name, file->pack_id), 0, "pack.remove");
	if (r < 0 && r != -ENOENT)
		return r;
	return store_table_remove_pack(t, file->pack_id);
}

static int walk_open(struct batch *b, const struct store_file *file, int fd, bool mend,
		     uint64_t from, uint64_t *ret_end)
{
	struct store_walk w = {
		.compare = true,
		.torn_tail = true,
		.mend = mend,
		.add = batch_add,
		.userdata = b,
	};
	int r;

	memcpy(w.pack_id, file->pack_id, sizeof(w.pack_id));
	r = store_walk_pack(&w, fd, from, ret_end);
	/* Not even what was known is there: look at all of it before cutting. */
	if (r >= 0 && *ret_end == from && from > PACK_HEADER_BYTES)
		r = store_walk_pack(&w, fd, PACK_HEADER_BYTES, ret_end);
	return r;
}

/* What was found is entered, but not mended: the next time starts where this did. */
static int walk_again_later(struct batch *b, const struct store_file *file, uint64_t known)
{
	struct store_table_pack pack = {.state = STORE_TABLE_OPEN, .known = known};
	int r;

	r = batch_flush(b);
	if (r < 0)
		return r;
	memcpy(pack.id, file->pack_id, sizeof(pack.id));
	return store_table_put_pack(b->table, &pack);
}

static int repair_open(struct batch *b, int packs_fd, const struct store_file *file, uint64_t known)
{
	cleanup_close int fd = open_pack(packs_fd, file, O_RDWR);
	uint64_t end = 0;
	int r, busy;

	if (fd < 0)
		return fd;
	busy = is_busy(fd);
	if (busy < 0)
		return busy;
	r = check_header(fd);
	if (r < 0)
		return r;
	r = walk_open(b, file, fd, !busy, MAX(known, (uint64_t)PACK_HEADER_BYTES), &end);
	if (r < 0)
		return r;
	if (busy)
		return walk_again_later(b, file, known);
	if (end == PACK_HEADER_BYTES)
		return remove_empty(packs_fd, b->table, file);
	r = store_repair_seal(fd, end);
	if (r < 0)
		return r;
	r = batch_flush(b);
	if (r < 0)
		return r;
	return store_table_set_state(b->table, file->pack_id, STORE_TABLE_SEALED);
}

static int enter_sealed(struct batch *b, int packs_fd, const struct store_file *file,
			uint64_t known)
{
	struct store_walk w = {.add = batch_add, .userdata = b};
	cleanup_close int fd = open_pack(packs_fd, file, O_RDONLY);
	uint64_t end;
	int r;

	if (fd < 0)
		return fd;
	r = check_header(fd);
	if (r < 0)
		return r;
	memcpy(w.pack_id, file->pack_id, sizeof(w.pack_id));
	r = store_walk_pack(&w, fd, MAX(known, (uint64_t)PACK_HEADER_BYTES), &end);
	if (r >= 0 && !b->unseen)
		r = batch_flush(b);
	return r < 0 ? r : store_table_set_state(b->table, file->pack_id, STORE_TABLE_SEALED);
}

static int repair_file(struct batch *b, int packs_fd, const struct store_file *file)
{
	struct store_table_pack pack = {.state = STORE_TABLE_OPEN};
	int r;

	r = store_table_find_pack(b->table, file->pack_id, &pack);
	if (r >= 0 && store_table_is_sealed(&pack))
		return 0;
	if (r < 0 || pack.state == STORE_TABLE_GONE) {
		memcpy(pack.id, file->pack_id, sizeof(pack.id));
		pack.state = STORE_TABLE_OPEN;
		pack.known = 0;
		r = store_table_put_pack(b->table, &pack);
		if (r < 0)
			return r;
	}
	return file->sealed ? enter_sealed(b, packs_fd, file, pack.known)
			    : repair_open(b, packs_fd, file, pack.known);
}

static bool has_file(const struct store_file *files, size_t n, const uint8_t id[16])
{
	for (size_t i = 0; i < n; i++)
		if (memcmp(files[i].pack_id, id, 16) == 0)
			return true;
	return false;
}

static int note_gone(struct store_table *t, const struct store_file *files, size_t n)
{
	cleanup_free struct store_table_pack *packs = NULL;
	size_t n_packs;
	int r;

	r = store_table_packs(t, &packs, &n_packs);
	for (size_t i = 0; r >= 0 && i < n_packs; i++) {
		if (packs[i].state == STORE_TABLE_GONE || has_file(files, n, packs[i].id))
			continue;
		packs[i].state = STORE_TABLE_GONE;
		r = store_table_put_pack(t, &packs[i]);
	}
	return r;
}

int store_repair_table(int packs_fd, struct store_table *t, bool unseen)
{
	cleanup_free struct store_file *files = NULL;
	cleanup_free struct store_place *places = calloc(BATCH_PLACES, sizeof(*places));
	struct batch b = {.table = t, .places = places, .unseen = unseen};
	size_t n;
	int r;

	if (!places)
		return -ENOMEM;
	r = store_walk_files(packs_fd, &files, &n);
	if (r < 0)
		return r;
	r = note_gone(t, files, n);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		r = repair_file(&b, packs_fd, &files[i]);
		/* Where the disk does not read, the contents are missing and no more. */
		if (r < 0 && r != -EIO)
			return r;
	}
	return batch_flush(&b);
}

/* ---- copies ---- */

static int mem_add(const struct store_place *places, size_t n, void *userdata)
{
	return store_mem_add(userdata, places, n);
}

static int load_pack(int packs_fd, const struct store_file *file, struct store_mem *m)
{
	struct store_walk w = {
		.compare = !file->sealed,
		.torn_tail = !file->sealed,
		.add = mem_add,
		.userdata = m,
	};
	cleanup_close int fd = open_pack(packs_fd, file, O_RDONLY);
	uint64_t end;
	int r;

	if (fd < 0)
		return fd;
	r = check_header(fd);
	if (r < 0)
		return r;
	memcpy(w.pack_id, file->pack_id, sizeof(w.pack_id));
	r = store_walk_pack(&w, fd, PACK_HEADER_BYTES, &end);
	return r == -EIO ? 0 : r;
}

int store_repair_load(int packs_fd, struct store_mem *m)
{
	cleanup_free struct store_file *files = NULL;
	bool gone = false;
	size_t n;
	int r;

	/* A limbd at work merges packs: what vanishes while they are read is in another. */
	for (unsigned round = 0; round == 0 || (gone && round < LOAD_ROUNDS); round++) {
		free(take_ptr(&files));
		gone = false;
		r = store_walk_files(packs_fd, &files, &n);
		for (size_t i = 0; r >= 0 && i < n; i++) {
			r = load_pack(packs_fd, &files[i], m);
			gone |= r == -ENOENT;
			r = r == -ENOENT ? 0 : r;
		}
		if (r < 0)
			return r;
	}
	return 0;
}
