#include "journal/index-impl.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/io.h"

/* Address space, not memory; halved where there is less of it. */
#define MAP_BYTES (sizeof(size_t) > 4 ? (size_t)64 << 30 : (size_t)512 << 20)
#define MAP_BYTES_MIN ((size_t)256 << 20)
#define READERS_MAX 1000

static const char *const table_names[N_TABLES] = {
	[TABLE_META] = "meta",
	[TABLE_DIRENT] = "dirent",
	[TABLE_NAME] = "name",
	[TABLE_NODE] = "node",
	[TABLE_PAST_DIRENT] = "past_dirent",
	[TABLE_PAST_NODE] = "past_node",
	[TABLE_POINT] = "point",
	[TABLE_LABEL] = "label",
	[TABLE_JOB] = "job",
	[TABLE_INCARNATION] = "incarnation",
	[TABLE_RECENT] = "recent",
	[TABLE_INTENT] = "intent",
};

/* ---- LMDB ---- */

static int open_env_sized(struct index *ix, size_t map_bytes)
{
	mdb_filehandle_t fd;
	unsigned flags = MDB_NOTLS | MDB_NOSYNC;
	char name[MARK_INDEX_NAME_MAX], path[64];
	int r;

	if (ix->mode != INDEX_WRITE)
		flags |= MDB_RDONLY;
	if (ix->mode == INDEX_COPY)
		flags |= MDB_NOLOCK;
	r = index_error(mdb_env_create(&ix->env));
	if (r < 0)
		return r;
	r = index_error(mdb_env_set_mapsize(ix->env, map_bytes));
	if (r >= 0)
		r = index_error(mdb_env_set_maxdbs(ix->env, N_TABLES));
	if (r >= 0)
		r = index_error(mdb_env_set_maxreaders(ix->env, READERS_MAX));
	mark_index_name(name, ix->number);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", ix->dir_fd, name);
	if (r >= 0)
		r = index_error(mdb_env_open(ix->env, path, flags, 0600));
	/* LMDB leaves its data file open over exec: no child of ours may have it. */
	if (r >= 0 && mdb_env_get_fd(ix->env, &fd) == 0)
		(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	return r;
}

void index_env_close(struct index *ix)
{
	if (ix->env)
		mdb_env_close(ix->env);
	ix->env = NULL;
}

static int open_env(struct index *ix)
{
	size_t map_bytes = MAP_BYTES;
	int r;

	for (;;) {
		r = open_env_sized(ix, map_bytes);
		if (r >= 0)
			return r;
		index_env_close(ix);
		if (r != -ENOMEM || map_bytes <= MAP_BYTES_MIN)
			return r;
		map_bytes /= 2;
	}
}

static int put_meta(struct index *ix, MDB_txn *txn, const char *name, const void *p, size_t n)
{
	MDB_val key = {.mv_size = strlen(name), .mv_data = (void *)(uintptr_t)name};
	MDB_val v = {.mv_size = n, .mv_data = (void *)(uintptr_t)p};

	return index_error(mdb_put(txn, ix->dbi[TABLE_META], &key, &v, 0));
}

/* A root is there from the beginning, before anything is known of it. */
static int put_first_rows(struct index *ix, MDB_txn *txn)
{
	const struct node root = {.type = NODE_TYPE_DIRECTORY, .mode = 0755};
	const struct index_state state = {.next_used = NODE_ROOT + 1};
	uint8_t row[STATE_ROW_BYTES], format[4];
	MDB_val key, v;
	struct key k;
	int r;

	buf_clear(&ix->row);
	r = node_row_pack(&ix->row, 0, 0, 1, &root);
	if (r < 0)
		return r;
	key_u64(&k, NODE_ROOT);
	key = key_val(&k);
	v = (MDB_val){.mv_size = buf_len(&ix->row),
		      .mv_data = (void *)(uintptr_t)buf_data(&ix->row)};
	r = index_error(mdb_put(txn, ix->dbi[TABLE_NODE], &key, &v, 0));
	if (r < 0)
		return r;
	put_le32(format, INDEX_FORMAT);
	r = put_meta(ix, txn, "format", format, sizeof(format));
	if (r < 0)
		return r;
	state_row_pack(row, &state);
	return put_meta(ix, txn, "state", row, sizeof(row));
}

static int open_tables(struct index *ix, bool create)
{
	MDB_txn *txn;
	int r;

	r = index_error(mdb_txn_begin(ix->env, NULL, create ? 0 : MDB_RDONLY, &txn));
	if (r < 0)
		return r;
	for (size_t i = 0; r >= 0 && i < N_TABLES; i++)
		r = index_error(
			mdb_dbi_open(txn, table_names[i], create ? MDB_CREATE : 0, &ix->dbi[i]));
	if (r >= 0 && create)
		r = put_first_rows(ix, txn);
	if (r < 0) {
		mdb_txn_abort(txn);
		return r;
	}
	return index_error(mdb_txn_commit(txn));
}

int index_env_open(struct index *ix, uint64_t number, bool create)
{
	int r;

	ix->number = number;
	r = open_env(ix);
	if (r >= 0)
		r = open_tables(ix, create);
	if (r < 0)
		index_env_close(ix);
	return r;
}

/* ---- synced copies ---- */

int index_sync(struct index *ix)
{
	cleanup_close int dir = -1, fd = -1;
	char name[MARK_INDEX_NAME_MAX];
	int r;

	if (ix->mode != INDEX_WRITE)
		return -EBADFD;
	mark_index_name(name, ix->number);
	dir = file_open_dir(ix->dir_fd, name);
	if (dir < 0)
		return dir;
	fd = openat(dir, "copy.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	r = index_error(mdb_env_copyfd(ix->env, fd));
	if (r < 0)
		return r;
	r = io_fsync(fd, "index.copy.sync");
	if (r < 0)
		return r;
	r = io_renameat(dir, "copy.new", dir, "copy", "index.copy.rename");
	return r < 0 ? r : file_sync_dir(dir, ".");
}

int index_copied(struct index *ix, uint64_t *ret_seq)
{
	struct index copy = {.mode = INDEX_COPY};
	struct index_state state = {0};
	char name[MARK_INDEX_NAME_MAX], path[96];
	MDB_txn *txn;
	int r;

	if (ix->mode != INDEX_WRITE)
		return -EBADFD;
	mark_index_name(name, ix->number);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d/%s/copy", ix->dir_fd, name);
	r = index_error(mdb_env_create(&copy.env));
	if (r >= 0)
		r = index_error(mdb_env_set_maxdbs(copy.env, N_TABLES));
	if (r >= 0)
		r = index_error(mdb_env_open(
			copy.env, path, MDB_RDONLY | MDB_NOLOCK | MDB_NOSUBDIR | MDB_NOTLS, 0600));
	if (r >= 0)
		r = index_error(mdb_txn_begin(copy.env, NULL, MDB_RDONLY, &txn));
	if (r >= 0) {
		r = index_error(
			mdb_dbi_open(txn, table_names[TABLE_META], 0, &copy.dbi[TABLE_META]));
		if (r >= 0)
			r = get_state(&copy, txn, &state);
		mdb_txn_abort(txn);
	}
	index_env_close(&copy);
	if (r >= 0)
		*ret_seq = state.seq;
	return r;
}

static int copy_bytes(int from, int to)
{
	cleanup_free uint8_t *mem = malloc(1 << 20);
	ssize_t n;
	int r;

	if (!mem)
		return -ENOMEM;
	while ((n = io_read_full(from, mem, 1 << 20, "index.copy.read")) > 0) {
		r = io_write_full(to, mem, (size_t)n, "index.copy.write");
		if (r < 0)
			return r;
	}
	return (int)n;
}

/* Relative to the directory that holds the indexes. */
static void path_in(char out[64], uint64_t number, const char *name)
{
	char dir[MARK_INDEX_NAME_MAX];

	mark_index_name(dir, number);
	(void)snprintf(out, 64, "%s/%s", dir, name);
}

static int open_in(const struct index *ix, uint64_t number, const char *name, int flags)
{
	char path[64];
	int fd;

	path_in(path, number, name);
	fd = openat(ix->dir_fd, path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	return fd;
}

int env_take_copy(struct index *ix, uint64_t old, uint64_t number)
{
	cleanup_close int from = -1, to = -1;
	char copy[64], kept[64];
	int r;

	from = open_in(ix, old, "copy", O_RDONLY);
	if (from < 0)
		return from;
	to = open_in(ix, number, "data.mdb", O_WRONLY | O_CREAT | O_EXCL);
	if (to < 0)
		return to;
	r = copy_bytes(from, to);
	if (r < 0)
		return r;
	path_in(copy, old, "copy");
	path_in(kept, number, "copy");
	return linkat(ix->dir_fd, copy, ix->dir_fd, kept, 0) < 0 ? -errno : 0;
}

int index_reap_readers(struct index *ix)
{
	int dead = 0, r;

	r = index_error(mdb_reader_check(ix->env, &dead));
	return r < 0 ? r : dead;
}
