#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/text.h"
#include "journal/store-table-internal.h"

/* Address space, not memory: room for some 500 million contents. */
#define MAP_BYTES (sizeof(size_t) > 4 ? (size_t)64 << 30 : (size_t)1 << 30)
#define READERS_MAX 1000
#define NAMES_MAX 1000000
#define INDEX_PREFIX "index."

const struct mark_kind store_table_mark = {.name = "state", .format = STORE_TABLE_FORMAT};

int store_table_error(int rc)
{
	switch (rc) {
	case MDB_SUCCESS: return 0;
	case MDB_NOTFOUND: return -ENOENT;
	case MDB_MAP_FULL: return -ENOSPC;
	case MDB_READERS_FULL: return -EAGAIN;
	default: return rc > 0 ? -rc : -EIO;
	}
}

/* ---- opening ---- */

static int open_env(struct store_table *t)
{
	mdb_filehandle_t fd;
	unsigned flags = MDB_NOTLS | MDB_NORDAHEAD | MDB_NOSYNC | (t->write ? 0 : MDB_RDONLY);
	char path[64];
	int r;

	r = store_table_error(mdb_env_create(&t->env));
	if (r < 0)
		return r;
	r = store_table_error(mdb_env_set_mapsize(t->env, MAP_BYTES));
	if (r >= 0)
		r = store_table_error(mdb_env_set_maxdbs(t->env, 3));
	if (r >= 0)
		r = store_table_error(mdb_env_set_maxreaders(t->env, READERS_MAX));
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", t->index_fd);
	r = store_table_error(mdb_env_open(t->env, path, flags, 0600));
	/* LMDB leaves its data file open over exec: no child of ours may have it. */
	if (r >= 0 && mdb_env_get_fd(t->env, &fd) == 0)
		(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	return r;
}

static int open_databases(struct store_table *t, unsigned create)
{
	MDB_txn *txn;
	int r;

	r = store_table_error(mdb_txn_begin(t->env, NULL, create ? 0 : MDB_RDONLY, &txn));
	if (r < 0)
		return r;
	r = store_table_error(mdb_dbi_open(txn, "places", create, &t->places));
	if (r >= 0)
		r = store_table_error(
			mdb_dbi_open(txn, "packs", create | MDB_INTEGERKEY, &t->packs_db));
	if (r >= 0)
		r = store_table_error(mdb_dbi_open(txn, "counts", create, &t->counts));
	if (r < 0) {
		mdb_txn_abort(txn);
		return r;
	}
	return store_table_error(mdb_txn_commit(txn));
}

static int table_new(int dir_fd, uint64_t number, bool write, struct store_table **ret)
{
	_cleanup_(store_table_closep) struct store_table *t = calloc(1, sizeof(*t));
	char name[MARK_INDEX_NAME_MAX];

	if (!t)
		return -ENOMEM;
	t->index_fd = -1;
	t->number = number;
	t->write = write;
	(void)pthread_mutex_init(&t->lock, NULL);
	t->dir_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 3);
	if (t->dir_fd < 0)
		return -errno;
	mark_index_name(name, number);
	t->index_fd = file_open_dir(dir_fd, name);
	if (t->index_fd < 0)
		return t->index_fd;
	*ret = take_ptr(&t);
	return 0;
}

void store_table_close(struct store_table *t)
{
	if (!t)
		return;
	if (t->env)
		mdb_env_close(t->env);
	if (t->index_fd >= 0)
		(void)close(t->index_fd);
	if (t->dir_fd >= 0)
		(void)close(t->dir_fd);
	(void)pthread_mutex_destroy(&t->lock);
	free(t->packs);
	free(t);
}

struct numbers {
	uint64_t v[64];
	size_t n;
};

/* All index.N. */
static int list_numbers(int dir_fd, struct numbers *ret)
{
	char **names;
	uint64_t number;
	size_t n;
	int r;

	ret->n = 0;
	r = file_list(dir_fd, ".", NAMES_MAX, &names, &n);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n && ret->n < ARRAY_SIZE(ret->v); i++) {
		if (strncmp(names[i], INDEX_PREFIX, strlen(INDEX_PREFIX)) != 0 ||
		    text_parse_u64(names[i] + strlen(INDEX_PREFIX), UINT64_MAX - 1, &number) < 0)
			continue;
		ret->v[ret->n++] = number;
	}
	file_names_free(names, n);
	return 0;
}

int store_table_load_packs(struct store_table *t)
{
	struct store_table_pack *packs;
	MDB_cursor *cursor = NULL;
	MDB_val key, value;
	MDB_txn *txn;
	MDB_stat st;
	size_t n = 0;
	int r;

	r = store_table_error(mdb_txn_begin(t->env, NULL, MDB_RDONLY, &txn));
	if (r < 0)
		return r;
	r = store_table_error(mdb_stat(txn, t->packs_db, &st));
	if (r >= 0)
		r = store_table_error(mdb_cursor_open(txn, t->packs_db, &cursor));
	packs = r >= 0 ? calloc(st.ms_entries + 1, sizeof(*packs)) : NULL;
	if (r >= 0 && !packs)
		r = -ENOMEM;
	while (r >= 0 && n < st.ms_entries) {
		r = store_table_error(mdb_cursor_get(cursor, &key, &value, MDB_NEXT));
		if (r >= 0 && value.mv_size != sizeof(*packs))
			r = -EIO;
		if (r >= 0)
			memcpy(&packs[n++], value.mv_data, sizeof(*packs));
	}
	if (cursor)
		mdb_cursor_close(cursor);
	mdb_txn_abort(txn);
	if (r < 0) {
		free(packs);
		return r;
	}
	free(t->packs);
	t->packs = packs;
	t->n_packs = n;
	return 0;
}

static int open_number(int dir_fd, uint64_t number, bool write, struct store_table **ret)
{
	_cleanup_(store_table_closep) struct store_table *t = NULL;
	MDB_envinfo info;
	struct mark mark;
	int r;

	r = table_new(dir_fd, number, write, &t);
	if (r < 0)
		return r;
	r = mark_read(t->index_fd, &store_table_mark, &mark);
	if (r < 0)
		return r;
	if (!mark_trusted(t->index_fd, &mark, &store_table_mark))
		return -ESTALE;
	r = open_env(t);
	if (r < 0)
		return r;
	/* A copy made while its writer was at work: marked, but not what was marked. */
	if (write && mark.clean && mdb_env_info(t->env, &info) == 0 &&
	    info.me_last_txnid != mark.txn)
		return -ESTALE;
	r = open_databases(t, 0);
	if (r < 0)
		return r;
	if (write) {
		r = store_table_load_packs(t);
		if (r < 0)
			return r;
		(void)mdb_reader_check(t->env, NULL);
	}
	t->clean = mark.clean;
	*ret = take_ptr(&t);
	return 0;
}

/* What cannot be opened is not trusted, whatever the reason; but a reason that lies
 * with us and not with the table is no reason to make another. */
static bool our_trouble(int r)
{
	return r == -ENOMEM || r == -EMFILE || r == -ENFILE || r == -EACCES || r == -EAGAIN ||
	       r == -EPERM || r == -EROFS;
}

int store_table_open(int dir_fd, bool write, struct store_table **ret)
{
	struct numbers all;
	int r;

	r = list_numbers(dir_fd, &all);
	if (r < 0)
		return r;
	while (all.n > 0) {
		size_t newest = 0;

		for (size_t i = 1; i < all.n; i++)
			if (all.v[i] > all.v[newest])
				newest = i;
		r = open_number(dir_fd, all.v[newest], write, ret);
		if (r >= 0 || our_trouble(r))
			return r;
		all.v[newest] = all.v[--all.n];
	}
	return -ENOENT;
}

/* What a rebuild left that did not end: it has no mark. */
static void remove_unfinished(int dir_fd, uint64_t number)
{
	cleanup_close int fd = -1;
	struct mark mark;
	char name[MARK_INDEX_NAME_MAX];

	mark_index_name(name, number);
	fd = file_open_dir(dir_fd, name);
	if (fd >= 0 && mark_read(fd, &store_table_mark, &mark) == -ENOENT)
		(void)file_remove_tree(dir_fd, name);
}

int store_table_create(int dir_fd, struct store_table **ret)
{
	_cleanup_(store_table_closep) struct store_table *t = NULL;
	struct numbers all;
	uint64_t number = 0;
	char name[MARK_INDEX_NAME_MAX];
	int r;

	r = list_numbers(dir_fd, &all);
	if (r < 0)
		return r;
	for (size_t i = 0; i < all.n; i++) {
		number = MAX(number, all.v[i]);
		remove_unfinished(dir_fd, all.v[i]);
	}
	mark_index_name(name, ++number);
	r = file_make_dir(dir_fd, name);
	if (r < 0)
		return r;
	r = table_new(dir_fd, number, true, &t);
	if (r < 0)
		return r;
	r = open_env(t);
	if (r < 0)
		return r;
	r = open_databases(t, MDB_CREATE);
	if (r < 0)
		return r;
	*ret = take_ptr(&t);
	return 0;
}

int store_table_publish(struct store_table *t)
{
	struct numbers all;
	char name[MARK_INDEX_NAME_MAX];
	int r;

	r = store_table_sync(t, store_table_generation(t));
	if (r < 0)
		return r;
	r = list_numbers(t->dir_fd, &all);
	if (r < 0)
		return r;
	for (size_t i = 0; i < all.n; i++) {
		if (all.v[i] == t->number)
			continue;
		mark_index_name(name, all.v[i]);
		(void)file_remove_tree(t->dir_fd, name);
	}
	return 0;
}

bool store_table_replaced(const struct store_table *t)
{
	struct stat st;

	return fstat(t->index_fd, &st) < 0 || st.st_nlink == 0;
}

/* ---- reading ---- */

int store_table_get_raw(struct store_table *t, MDB_txn *txn, const uint8_t *hash,
			struct store_place *ret, struct store_table_pack *ret_pack)
{
	MDB_val key = {SHA256_BYTES, (void *)hash}, value;
	struct store_table_pack pack = {0};
	uint32_t num, len_kind;
	const uint8_t *p;
	int r;

	r = store_table_error(mdb_get(txn, t->places, &key, &value));
	if (r < 0)
		return r;
	if (value.mv_size != STORE_TABLE_VALUE_BYTES)
		return -EIO;
	p = value.mv_data;
	num = get_le32(p);
	len_kind = get_le32(p + 4);
	memcpy(ret->hash, hash, SHA256_BYTES);
	ret->offset = get_le64(p + 8);
	ret->len = len_kind & 0xffffff;
	ret->kind = (uint8_t)(len_kind >> 24);

	key = (MDB_val){sizeof(num), &num};
	r = store_table_error(mdb_get(txn, t->packs_db, &key, &value));
	if (r < 0 && r != -ENOENT)
		return r;
	if (r >= 0 && value.mv_size != sizeof(pack))
		return -EIO;
	if (r >= 0)
		memcpy(&pack, value.mv_data, sizeof(pack));
	memcpy(ret->pack_id, pack.id, sizeof(ret->pack_id));
	*ret_pack = pack;
	return 0;
}

int store_table_get_place(struct store_table *t, MDB_txn *txn, const uint8_t *hash,
			  struct store_place *ret)
{
	struct store_table_pack pack;
	int r;

	r = store_table_get_raw(t, txn, hash, ret, &pack);
	if (r < 0)
		return r;
	return pack.num == 0 || pack.state == STORE_TABLE_GONE ? -ENOENT : 0;
}

int store_table_get(struct store_table *t, const uint8_t hash[SHA256_BYTES],
		    struct store_place *ret)
{
	struct store_place place;
	MDB_txn *txn;
	int r;

	r = store_table_error(mdb_txn_begin(t->env, NULL, MDB_RDONLY, &txn));
	if (r < 0)
		return r;
	r = store_table_get_place(t, txn, hash, &place);
	mdb_txn_abort(txn);
	if (r >= 0)
		*ret = place;
	return r;
}

int store_table_is_spare(struct store_table *t, const uint8_t pack_id[16],
			 const struct frame_member *members, size_t n)
{
	struct store_table_pack pack;
	struct store_place place;
	MDB_txn *txn;
	int r;

	r = store_table_error(mdb_txn_begin(t->env, NULL, MDB_RDONLY, &txn));
	if (r < 0)
		return r;
	for (size_t i = 0; r >= 0 && i < n; i++) {
		r = store_table_get_raw(t, txn, members[i].hash, &place, &pack);
		if (r >= 0 &&
		    (pack.state != STORE_TABLE_CHECKED || memcmp(pack.id, pack_id, 16) == 0))
			r = -ENOENT;
	}
	mdb_txn_abort(txn);
	return r == -ENOENT ? 0 : r < 0 ? r : 1;
}

int store_table_is_used(struct store_table *t, const uint8_t pack_id[16], uint64_t offset,
			const struct frame_member *members, size_t n)
{
	struct store_place place;
	bool used = false;
	MDB_txn *txn;
	int r;

	r = store_table_error(mdb_txn_begin(t->env, NULL, MDB_RDONLY, &txn));
	if (r < 0)
		return r;
	for (size_t i = 0; r >= 0 && i < n && !used; i++) {
		r = store_table_get_place(t, txn, members[i].hash, &place);
		used = r >= 0 && place.offset == offset && memcmp(place.pack_id, pack_id, 16) == 0;
		r = r == -ENOENT ? 0 : r;
	}
	mdb_txn_abort(txn);
	return r < 0 ? r : used;
}

int store_table_get_content_bytes(struct store_table *t, MDB_txn *txn, uint64_t *ret)
{
	MDB_val key = {strlen("content_bytes"), (void *)"content_bytes"}, value;
	int r;

	r = store_table_error(mdb_get(txn, t->counts, &key, &value));
	if (r == -ENOENT) {
		*ret = 0;
		return 0;
	}
	if (r < 0)
		return r;
	if (value.mv_size != 8)
		return -EIO;
	*ret = get_le64(value.mv_data);
	return 0;
}

int store_table_counts(struct store_table *t, uint64_t *ret_contents, uint64_t *ret_bytes)
{
	MDB_txn *txn;
	MDB_stat st;
	int r;

	r = store_table_error(mdb_txn_begin(t->env, NULL, MDB_RDONLY, &txn));
	if (r < 0)
		return r;
	r = store_table_error(mdb_stat(txn, t->places, &st));
	if (r >= 0)
		r = store_table_get_content_bytes(t, txn, ret_bytes);
	mdb_txn_abort(txn);
	if (r >= 0)
		*ret_contents = st.ms_entries;
	return r;
}

int store_table_packs(struct store_table *t, struct store_table_pack **ret, size_t *ret_n)
{
	int r = 0;

	(void)pthread_mutex_lock(&t->lock);
	if (!t->write)
		r = store_table_load_packs(t);
	if (r >= 0) {
		*ret = malloc((t->n_packs + 1) * sizeof(**ret));
		if (*ret) {
			if (t->n_packs > 0)
				memcpy(*ret, t->packs, t->n_packs * sizeof(**ret));
			*ret_n = t->n_packs;
		} else {
			r = -ENOMEM;
		}
	}
	(void)pthread_mutex_unlock(&t->lock);
	return r;
}
