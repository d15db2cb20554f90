#include "journal/index-impl.h"

#include <fcntl.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"

#define NAMES_MAX 100000
#define LOOK_MS 1000

/* Records in one transaction of a replay: enough that a page is written once for many
 * records, few enough that changed pages (in memory until then) stay below some 100 MB. */
#define REPLAY_RECORDS 20000
#define REPLAY_BYTES (32u << 20)

const struct mark_kind index_mark = {.name = "index", .format = INDEX_FORMAT};

/* ---- the log behind it ---- */

static int read_state(struct index *ix, struct index_state *ret)
{
	MDB_txn *txn;
	int r;

	r = index_error(mdb_txn_begin(ix->env, NULL, MDB_RDONLY, &txn));
	if (r < 0)
		return r;
	r = get_state(ix, txn, ret);
	mdb_txn_abort(txn);
	return r;
}

/* Of a change that was applied without its record the chain is not known. Its time may
 * have been raised in the log, never lowered. */
static bool is_record(const struct index_state *s, const struct log_record *rec)
{
	if (rec->seq != s->seq)
		return false;
	if (s->chain_known)
		return memcmp(rec->chain, s->chain, SHA256_BYTES) == 0;
	return rec->time_ns >= s->time_ns;
}

/* Is the last record that the index knows in this log? 1: yes, and the reader (NULL: the
 * log is empty) stands behind it; 0: no, so the index tells of something else. */
static int find_place(struct index *ix, int log_dir_fd, struct log_reader **ret)
{
	static const uint8_t no_id[16]; /* the log was empty when the index was made */
	_cleanup_(log_reader_freep) struct log_reader *rd = NULL;
	struct index_state s;
	struct log_record rec;
	struct log_ids ids;
	int r;

	*ret = NULL;
	r = read_state(ix, &s);
	if (r < 0)
		return r == -EBADMSG || r == -ENOENT ? 0 : r;
	r = log_reader_open(log_dir_fd, s.seq, &rd);
	if (r == -ENOENT)
		return s.seq == 0;
	if (r < 0)
		return r;
	if (s.seq > 0) {
		log_reader_ids(rd, &ids);
		if (memcmp(s.log_id, no_id, sizeof(no_id)) != 0 &&
		    memcmp(s.log_id, ids.log_id, sizeof(s.log_id)) != 0)
			return 0;
		r = log_reader_next(rd, &rec);
		if (r < 0)
			return r;
		if (r == 0 || !is_record(&s, &rec))
			return 0;
	}
	*ret = take_ptr(&rd);
	return 1;
}

static int replay_record(struct index *ix, const struct log_record *rec)
{
	int r;

	r = index_apply(ix, rec);
	if (r != -EINVAL)
		return r;
	/* The same as when it was new: nothing changed. */
	ix->state.refused++;
	state_advance(ix, rec);
	return 0;
}

/* One transaction. 1: there may be more. */
static int replay_some(struct index *ix, struct log_reader *rd)
{
	struct log_record rec;
	struct log_ids ids;
	size_t bytes = 0;
	int r;

	r = index_begin(ix);
	if (r < 0)
		return r;
	log_reader_ids(rd, &ids);
	ix->touched = memcmp(ix->state.log_id, ids.log_id, sizeof(ids.log_id)) != 0;
	memcpy(ix->state.log_id, ids.log_id, sizeof(ids.log_id));
	for (unsigned n = 0; n < REPLAY_RECORDS && bytes < REPLAY_BYTES; n++) {
		r = log_reader_next(rd, &rec);
		if (r <= 0)
			break;
		bytes += rec.n;
		r = replay_record(ix, &rec);
		if (r < 0)
			break;
		r = 1;
	}
	if (r < 0) {
		index_abort(ix);
		return r;
	}
	int more = r;
	r = index_commit(ix);
	return r < 0 ? r : more;
}

static int replay(struct index *ix, struct log_reader *rd, int log_dir_fd,
		  index_progress_fn progress, void *userdata)
{
	struct log_head head = {0};
	struct index_state from;
	int r;

	if (!rd)
		return 0;
	if (log_head_read(log_dir_fd, &head) < 0)
		head.seq = 0;
	ix->replaying = true;
	ix->replay_last = head.seq;
	r = read_state(ix, &from);
	if (r >= 0 && progress)
		progress(from.seq, MAX(head.seq, from.seq), userdata);
	if (r < 0)
		return r;
	do {
		r = replay_some(ix, rd);
		if (r >= 0 && progress)
			progress(ix->state.seq, MAX(head.seq, ix->state.seq), userdata);
	} while (r > 0);
	ix->replaying = false;
	return r;
}

/* ---- which index ---- */

static int remove_others(struct index *ix, uint64_t keep)
{
	char **names;
	uint64_t number;
	size_t n;
	int r;

	r = file_list(ix->dir_fd, ".", NAMES_MAX, &names, &n);
	if (r < 0)
		return r;
	for (size_t i = 0; r >= 0 && i < n; i++) {
		if (strncmp(names[i], "index.", 6) == 0 &&
		    text_parse_u64(names[i] + 6, UINT64_MAX, &number) >= 0 && number != keep)
			r = file_remove_tree(ix->dir_fd, names[i]);
	}
	file_names_free(names, n);
	return r;
}

static int make_dir(struct index *ix, uint64_t number)
{
	char name[MARK_INDEX_NAME_MAX];
	int r;

	mark_index_name(name, number);
	r = file_remove_tree(ix->dir_fd, name);
	return r < 0 ? r : file_make_dir(ix->dir_fd, name);
}

/* Opens index.NUMBER as the synced copy of index.OLD. 0: there is none that helps. */
static int open_copy(struct index *ix, uint64_t old, uint64_t number, int log_dir_fd,
		     struct log_reader **ret_rd)
{
	int r;

	r = make_dir(ix, number);
	if (r < 0)
		return r;
	if (env_take_copy(ix, old, number) < 0 || index_env_open(ix, number, false) < 0)
		return 0;
	r = find_place(ix, log_dir_fd, ret_rd);
	if (r <= 0)
		index_env_close(ix);
	return r;
}

static int open_empty(struct index *ix, uint64_t number, int log_dir_fd, struct log_reader **ret_rd)
{
	int r;

	r = make_dir(ix, number);
	if (r >= 0)
		r = index_env_open(ix, number, true);
	if (r >= 0)
		r = find_place(ix, log_dir_fd, ret_rd);
	return MIN(r, 0);
}

struct opening {
	int log_dir_fd;
	index_progress_fn progress;
	void *userdata;
};

static int finish_new(struct index *ix, const struct opening *o, struct log_reader *rd)
{
	int r;

	r = replay(ix, rd, o->log_dir_fd, o->progress, o->userdata);
	if (r >= 0)
		r = mark_write(ix->dir_fd, &index_mark, ix->number, 0, false);
	return r < 0 ? r : remove_others(ix, ix->number);
}

/* A new index beside old (0: none), from its synced copy if there is one, else from the
 * log's beginning. */
static int make_new(struct index *ix, const struct opening *o, uint64_t old)
{
	_cleanup_(log_reader_freep) struct log_reader *rd = NULL;
	int r = 0;

	if (old > 0)
		r = open_copy(ix, old, old + 1, o->log_dir_fd, &rd);
	if (r > 0) {
		r = finish_new(ix, o, rd);
		if (r >= 0 || !ix->spoilt)
			return r;
		index_env_close(ix);
		log_reader_free(take_ptr(&rd));
		r = 0;
	}
	if (r >= 0)
		r = open_empty(ix, old + 1, o->log_dir_fd, &rd);
	return r < 0 ? r : finish_new(ix, o, rd);
}

/* 1: index.N is open and has all of the log; 0: it does not fit the log, or is damaged. */
static int go_on(struct index *ix, const struct opening *o, const struct mark *m)
{
	_cleanup_(log_reader_freep) struct log_reader *rd = NULL;
	int r;

	if (index_env_open(ix, m->number, false) < 0)
		return 0;
	r = find_place(ix, o->log_dir_fd, &rd);
	/* Before the first write. */
	if (r > 0 && m->clean) {
		r = mark_write(ix->dir_fd, &index_mark, m->number, 0, false);
		r = r < 0 ? r : 1;
	}
	if (r > 0) {
		r = replay(ix, rd, o->log_dir_fd, o->progress, o->userdata);
		if (r >= 0)
			return 1;
		r = ix->spoilt ? 0 : r;
	}
	index_env_close(ix);
	return r;
}

static int open_write(struct index *ix, const struct opening *o)
{
	struct mark m;
	int r, found;

	r = file_lock(ix->dir_fd, "index.lock", &ix->lock_fd);
	if (r < 0)
		return r;
	found = mark_read(ix->dir_fd, &index_mark, &m);
	if (found < 0 && found != -ENOENT)
		return found;
	r = remove_others(ix, found >= 0 ? m.number : 0);
	if (r < 0)
		return r;
	if (found >= 0 && mark_trusted(ix->dir_fd, &m, &index_mark)) {
		r = go_on(ix, o, &m);
		if (r != 0)
			return MIN(r, 0);
	}
	ix->spoilt = false;
	return make_new(ix, o, found >= 0 && mark_fits(&m, &index_mark) ? m.number : 0);
}

static int open_read(struct index *ix)
{
	int r;

	r = mark_read(ix->dir_fd, &index_mark, &ix->mark);
	if (r < 0)
		return r;
	if (!mark_trusted(ix->dir_fd, &ix->mark, &index_mark))
		return -ENOENT;
	atomic_store(&ix->look_ms, clock_mono_ms() + LOOK_MS);
	return index_env_open(ix, ix->mark.number, false);
}

static int open_finished_copy(struct index *ix, int log_dir_fd)
{
	_cleanup_(log_reader_freep) struct log_reader *rd = NULL;
	struct log_record rec;
	struct mark m;
	int r;

	r = mark_read(ix->dir_fd, &index_mark, &m);
	if (r < 0)
		return r == -ENOENT ? -ESTALE : r;
	if (!m.clean || !mark_fits(&m, &index_mark) || index_env_open(ix, m.number, false) < 0)
		return -ESTALE;
	r = find_place(ix, log_dir_fd, &rd);
	if (r <= 0)
		return r < 0 ? r : -ESTALE;
	r = rd ? log_reader_next(rd, &rec) : 0;
	return r > 0 ? -ESTALE : r;
}

bool index_moved(struct index *ix)
{
	uint64_t now = clock_mono_ms();
	struct mark m;
	int r;

	if (now < atomic_load(&ix->look_ms))
		return atomic_load(&ix->moved);
	atomic_store(&ix->look_ms, now + LOOK_MS);
	r = mark_read(ix->dir_fd, &index_mark, &m);
	if (r == -ENOENT || (r >= 0 && (m.number != ix->mark.number || m.dev != ix->mark.dev ||
					m.ino != ix->mark.ino)))
		atomic_store(&ix->moved, true);
	return atomic_load(&ix->moved);
}

int index_open(int dir_fd, enum index_mode mode, int log_dir_fd, index_progress_fn progress,
	       void *userdata, struct index **ret)
{
	_cleanup_(index_closep) struct index *ix = calloc(1, sizeof(*ix));
	const struct opening o = {log_dir_fd, progress, userdata};
	int r;

	if (!ix)
		return -ENOMEM;
	ix->mode = mode;
	ix->failed = true; /* until it is open */
	ix->lock_fd = -1;
	ix->writer.ix = ix;
	ix->writer.writer = true;
	ix->dir_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 3);
	if (ix->dir_fd < 0)
		return -errno;
	switch (mode) {
	case INDEX_WRITE: r = open_write(ix, &o); break;
	case INDEX_READ: r = open_read(ix); break;
	case INDEX_COPY: r = open_finished_copy(ix, log_dir_fd); break;
	default: r = -EINVAL;
	}
	if (r < 0)
		return r;
	ix->failed = false;
	*ret = take_ptr(&ix);
	return 0;
}

void index_close(struct index *ix)
{
	bool clean;

	if (!ix)
		return;
	index_abort(ix);
	clean = ix->mode == INDEX_WRITE && ix->env && !ix->failed;
	clean = clean && mdb_env_sync(ix->env, 1) == MDB_SUCCESS;
	index_env_close(ix);
	/* Unmarked it is merely not trusted after a loss of power. */
	if (clean)
		(void)mark_write(ix->dir_fd, &index_mark, ix->number, 0, true);
	if (ix->lock_fd >= 0)
		(void)close(ix->lock_fd);
	if (ix->dir_fd >= 0)
		(void)close(ix->dir_fd);
	arena_done(&ix->arena);
	buf_done(&ix->recent);
	buf_done(&ix->row);
	free(ix);
}
