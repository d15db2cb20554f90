#include "journal/store-merge.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/io.h"
#include "journal/pack.h"
#include "journal/store-cache.h"
#include "journal/store-internal.h"
#include "journal/store-walk.h"

/* Places in one transaction: who appends meanwhile waits for its end, some 2 ms. */
#define BATCH_PLACES 512u
/* Bytes copied between two pauses; synced as often, so that no sync of others finds many. */
#define COPY_BYTES (1u << 20)
#define ROOM_BYTES (64u << 20)

static int pause_here(const struct store_merge_pace *pace)
{
	return pace->wait && pace->wait(pace->userdata) != 0 ? -ECANCELED : 0;
}

int store_open_pack(struct store *st, const uint8_t id[16])
{
	char name[STORE_PACK_NAME_BYTES];
	int fd;

	fd = openat(st->packs_fd, store_cache_pack_name(name, id),
		    O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

int store_pack_read(struct store *st, const uint8_t pack_id[16])
{
	return store_open_pack(st, pack_id);
}

/* The table forgets it first: a crash in between leaves a pack that is entered again, and that
 * nothing needs. */
static int remove_pack(struct store *st, const uint8_t id[16])
{
	char name[STORE_PACK_NAME_BYTES];
	int r;

	r = store_table_remove_pack(st->table, id);
	if (r < 0)
		return r;
	r = io_unlinkat(st->packs_fd, store_cache_pack_name(name, id), 0, "merge.remove");
	store_cache_close_removed(st->cache);
	atomic_fetch_add(&st->n_removed, 1);
	return r == -ENOENT ? 0 : r;
}

uint64_t store_merge_removed(struct store *st)
{
	return atomic_load(&st->n_removed);
}

/* ---- what is not needed ---- */

struct spare {
	struct store *st;
	const struct store_merge_pace *pace;
	const uint8_t *pack_id;
	bool spare;
};

static int each_spare(uint64_t offset, const struct frame_info *info,
		      const struct frame_member *members, size_t n, void *userdata)
{
	struct spare *s = userdata;
	int r;

	(void)offset;
	(void)info;
	r = store_table_is_spare(s->st->table, s->pack_id, members, n);
	s->spare = r > 0;
	if (r <= 0)
		return r < 0 ? r : 1; /* enough is known */
	return pause_here(s->pace);
}

/* 1: all that it has is in checked packs, too. What cannot be read to its end is kept. */
static int is_spare(struct store *st, const struct store_merge_pace *pace,
		    const struct store_merge_job *job)
{
	struct spare s = {.st = st, .pace = pace, .pack_id = job->pack_id};
	bool damaged;
	uint64_t end;
	int r;

	r = pack_walk(job->fd, PACK_HEADER_BYTES, each_spare, &s, &end, &damaged);
	if (r < 0)
		return r == -ECANCELED ? r : 0;
	return s.spare && !damaged && end == job->length;
}

static int open_job(struct store *st, const uint8_t id[16], struct store_merge_job *job)
{
	struct stat sb;
	int r;

	memcpy(job->pack_id, id, sizeof(job->pack_id));
	job->fd = store_open_pack(st, id);
	if (job->fd < 0)
		return job->fd;
	/* A limb-ingest that keeps its descriptor could write after it was checked: whoever
	 * fills a pack holds a lock on it until the last copy of that is closed. */
	if (flock(job->fd, LOCK_EX | LOCK_NB) < 0)
		r = errno == EWOULDBLOCK ? -EBUSY : -errno;
	else
		r = fstat(job->fd, &sb) < 0 ? -errno : 0;
	if (r < 0) {
		store_merge_done(job);
		return r;
	}
	job->length = (uint64_t)sb.st_size;
	return 0;
}

void store_merge_done(struct store_merge_job *job)
{
	if (job->fd >= 0)
		(void)close(job->fd);
	job->fd = -1;
}

/* 1: it is to be checked; 0: it is gone, or not to be had now. */
static int look_at(struct store *st, const struct store_merge_pace *pace,
		   const struct store_table_pack *pack, struct store_merge_job *job)
{
	int r;

	if (pack->state != STORE_TABLE_SEALED)
		return store_table_is_sealed(pack) && pack->live == 0 ? remove_pack(st, pack->id)
								      : 0;
	r = open_job(st, pack->id, job);
	if (r == -EBUSY || r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	r = is_spare(st, pace, job);
	if (r == 0)
		return 1;
	store_merge_done(job);
	return r < 0 ? r : remove_pack(st, pack->id);
}

int store_merge_next(struct store *st, const struct store_merge_pace *pace,
		     struct store_merge_job *ret)
{
	cleanup_free struct store_table_pack *packs = NULL;
	struct store_merge_job job = {.fd = -1};
	size_t n;
	int r;

	if (st->mode != STORE_WRITE)
		return -EROFS;
	r = store_table_packs(st->table, &packs, &n);
	for (size_t i = 0; r >= 0 && i < n; i++) {
		r = look_at(st, pace, &packs[i], &job);
		if (r > 0) {
			*ret = job;
			return 1;
		}
		/* What cannot be had of one pack stops no other. */
		if (r != -ECANCELED)
			r = 0;
	}
	return r;
}

/* ---- what was checked ---- */

struct enter {
	struct store *st;
	const struct store_merge_pace *pace;
	const struct store_merge_job *job;
	const struct store_merge_verdict *v; /* NULL: all frames are good */
	size_t next;			     /* of v->good */
	uint64_t contents;
	int error; /* ours, not the pack's */
	bool bad;
	struct store_place places[BATCH_PLACES];
	size_t n;
};

static int enter_flush(struct enter *e)
{
	size_t n = e->n;
	int r;

	e->n = 0;
	r = store_table_add_checked(e->st->table, e->places, n);
	if (r >= 0)
		r = pause_here(e->pace);
	e->error = r;
	return r;
}

static bool is_good(struct enter *e, uint64_t offset)
{
	if (!e->v)
		return true;
	while (e->next < e->v->n_good && e->v->good[e->next] < offset)
		e->next++;
	return e->next < e->v->n_good && e->v->good[e->next] == offset;
}

static int each_enter(uint64_t offset, const struct frame_info *info,
		      const struct frame_member *members, size_t n, void *userdata)
{
	struct enter *e = userdata;
	int r;

	(void)info;
	e->contents += n;
	if (!is_good(e, offset)) {
		e->bad = true;
		return 0;
	}
	for (size_t i = 0; i < n; i++) {
		struct store_place *p = &e->places[e->n];

		memcpy(p->hash, members[i].hash, SHA256_BYTES);
		memcpy(p->pack_id, e->job->pack_id, sizeof(p->pack_id));
		p->offset = offset;
		p->len = members[i].len;
		p->kind = members[i].kind;
		if (++e->n < BATCH_PLACES)
			continue;
		r = enter_flush(e);
		if (r < 0)
			return r;
	}
	return 0;
}

static int enter(struct store *st, const struct store_merge_pace *pace,
		 const struct store_merge_job *job, const struct store_merge_verdict *v)
{
	cleanup_free struct enter *e = calloc(1, sizeof(*e));
	struct store_table_pack pack;
	bool damaged = false;
	uint64_t end = 0;
	int r;

	if (!e)
		return -ENOMEM;
	*e = (struct enter){.st = st, .pace = pace, .job = job, .v = v};
	r = pack_walk(job->fd, PACK_HEADER_BYTES, each_enter, e, &end, &damaged);
	if (r < 0 && e->error == 0 && r != -ENOMEM) {
		damaged = true; /* what cannot be read is not what it says, either */
		r = 0;
	}
	if (r >= 0)
		r = enter_flush(e);
	if (r >= 0)
		r = store_table_find_pack(st->table, job->pack_id, &pack);
	if (r < 0)
		return r;
	/* A frame brings along what is not needed: a merged pack would look half empty at once. */
	pack.contents = v ? e->contents : pack.live;
	pack.state = e->bad || damaged || end != job->length || (v && !v->whole)
			     ? STORE_TABLE_DOUBTFUL
			     : STORE_TABLE_CHECKED;
	return store_table_put_pack(st->table, &pack);
}

int store_merge_checked(struct store *st, const struct store_merge_pace *pace,
			const struct store_merge_job *job, const struct store_merge_verdict *v)
{
	return enter(st, pace, job, v);
}

/* ---- several packs into one ---- */

static unsigned size_class(uint64_t length)
{
	unsigned class = 0;

	while (length > 64u << 10) {
		length /= 4;
		class ++;
	}
	return class;
}

size_t store_merge_choose(const struct store_merge_pack *packs, size_t n, bool *chosen)
{
	unsigned count[32] = {0};
	uint64_t sum = 0;
	size_t n_chosen = 0;

	for (size_t i = 0; i < n; i++)
		if (packs[i].length < STORE_MERGE_SMALL_BYTES)
			count[size_class(packs[i].length)]++;
	for (size_t i = 0; i < n; i++) {
		bool half = packs[i].live * 2 <= packs[i].contents;
		bool small = packs[i].length < STORE_MERGE_SMALL_BYTES &&
			     count[size_class(packs[i].length)] >= STORE_MERGE_SEVERAL;

		chosen[i] = (half || small) && sum + packs[i].length <= PACK_SEAL_BYTES;
		if (!chosen[i])
			continue;
		sum += packs[i].length;
		n_chosen++;
	}
	return n_chosen;
}

struct copy {
	struct store *st;
	const struct store_merge_pace *pace;
	const uint8_t *from_id;
	int from, to;
	uint64_t end, synced;
	bool unreadable; /* what went wrong lies with the source */
	uint8_t *bytes;	 /* of one frame */
	size_t cap;
};

static int copy_frame(struct copy *c, uint64_t offset, size_t n)
{
	uint8_t *bytes;
	ssize_t got;
	int r;

	if (c->cap < n) {
		bytes = realloc(c->bytes, n);
		if (!bytes)
			return -ENOMEM;
		c->bytes = bytes;
		c->cap = n;
	}
	got = io_pread_full(c->from, c->bytes, n, offset, "merge.read");
	if (got < 0 || (size_t)got != n) {
		c->unreadable = true;
		return got < 0 ? (int)got : -EBADMSG;
	}
	r = io_pwrite_full(c->to, c->bytes, n, c->end, "merge.write");
	if (r < 0)
		return r;
	c->end += n;
	if (c->end - c->synced < COPY_BYTES)
		return 0;
	c->synced = c->end;
	r = io_fdatasync(c->to, "merge.sync");
	return r < 0 ? r : pause_here(c->pace);
}

static int each_copy(uint64_t offset, const struct frame_info *info,
		     const struct frame_member *members, size_t n, void *userdata)
{
	struct copy *c = userdata;
	int r;

	r = store_table_is_used(c->st->table, c->from_id, offset, members, n);
	return r <= 0 ? r : copy_frame(c, offset, info->total);
}

static int copy_pack(struct copy *c, const uint8_t id[16])
{
	cleanup_close int fd = store_open_pack(c->st, id);
	bool damaged;
	uint64_t end;
	int r;

	c->unreadable = fd < 0;
	if (fd < 0)
		return fd;
	c->from_id = id;
	c->from = fd;
	r = pack_walk(fd, PACK_HEADER_BYTES, each_copy, c, &end, &damaged);
	if (r >= 0 && damaged) {
		c->unreadable = true;
		r = -EBADMSG;
	}
	return r;
}

/* Copies what is needed of all. One that does not read any more is left as it is from now on. */
static int copy_packs(struct copy *c, const struct store_table_pack *packs, const bool *chosen,
		      size_t n)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < n; i++) {
		if (!chosen[i])
			continue;
		r = copy_pack(c, packs[i].id);
		if (r < 0 && c->unreadable)
			(void)store_table_set_state(c->st->table, packs[i].id,
						    STORE_TABLE_DOUBTFUL);
	}
	return r;
}

/* Merging takes room before it gives any; what environments need comes first. */
static bool has_room(struct store *st, const struct store_merge_pack *packs, const bool *chosen,
		     size_t n)
{
	uint64_t needed = ROOM_BYTES;
	struct statvfs fs;

	for (size_t i = 0; i < n; i++)
		needed += chosen[i] ? 2 * packs[i].length : 0;
	return fstatvfs(st->packs_fd, &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize >= needed;
}

/* The new pack is synced before the table hears of it, and takes its places while the old ones
 * count as unchecked: so they give way, and go by the next store_merge_next(). */
static int take_over(struct store *st, const struct store_merge_pace *pace, const uint8_t id[16],
		     const struct store_table_pack *packs, const bool *chosen, size_t n)
{
	struct store_merge_job job = {.fd = -1};
	int r;

	r = open_job(st, id, &job);
	for (size_t i = 0; r >= 0 && i < n; i++)
		if (chosen[i])
			r = store_table_set_state(st->table, packs[i].id, STORE_TABLE_SEALED);
	if (r >= 0)
		r = enter(st, pace, &job, NULL);
	store_merge_done(&job);
	return r;
}

static int merge(struct store *st, const struct store_merge_pace *pace,
		 const struct store_table_pack *packs, const bool *chosen, size_t n)
{
	static const uint8_t nobody[16];
	struct copy c = {.st = st, .pace = pace, .end = PACK_HEADER_BYTES, .to = -1};
	uint8_t id[16];
	int r, q;

	r = store_pack_create(st, nobody, 0, id, &c.to);
	if (r < 0)
		return r;
	r = copy_packs(&c, packs, chosen, n);
	free(c.bytes);
	/* Of a copy that did not come to its end nothing is known to be needed. */
	q = store_pack_done(st, id, r < 0 ? PACK_HEADER_BYTES : c.end);
	(void)close(c.to);
	if (r < 0 || q < 0 || c.end == PACK_HEADER_BYTES)
		return r < 0 ? r : q;
	return take_over(st, pace, id, packs, chosen, n);
}

int store_merge_packs(struct store *st, const struct store_merge_pace *pace)
{
	cleanup_free struct store_table_pack *packs = NULL;
	cleanup_free struct store_merge_pack *facts = NULL;
	cleanup_free bool *chosen = NULL;
	size_t n_all, n = 0;
	int r;

	if (st->mode != STORE_WRITE)
		return -EROFS;
	r = store_table_packs(st->table, &packs, &n_all);
	if (r < 0)
		return r;
	facts = calloc(n_all + 1, sizeof(*facts));
	chosen = calloc(n_all + 1, sizeof(*chosen));
	if (!facts || !chosen)
		return -ENOMEM;
	for (size_t i = 0; i < n_all; i++) {
		char name[STORE_PACK_NAME_BYTES];
		struct stat sb;

		if (packs[i].state != STORE_TABLE_CHECKED || packs[i].live == 0 ||
		    fstatat(st->packs_fd, store_cache_pack_name(name, packs[i].id), &sb,
			    AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		facts[n] = (struct store_merge_pack){(uint64_t)sb.st_size, packs[i].live,
						     packs[i].contents};
		packs[n++] = packs[i];
	}
	if (store_merge_choose(facts, n, chosen) == 0 || !has_room(st, facts, chosen, n))
		return 0;
	r = merge(st, pace, packs, chosen, n);
	return r < 0 ? r : 1;
}

/* ---- when a place fails ---- */

struct search {
	int fd;
	const uint8_t *hash;
	struct buf *out;
};

static int each_search(uint64_t offset, const struct frame_info *info,
		       const struct frame_member *members, size_t n, void *userdata)
{
	struct search *s = userdata;

	(void)info;
	for (size_t i = 0; i < n; i++)
		if (memcmp(members[i].hash, s->hash, SHA256_BYTES) == 0)
			return frame_read_member(s->fd, offset, s->hash, s->out) == 0 ? 1 : 0;
	return 0;
}

int store_search(struct store *st, const uint8_t hash[SHA256_BYTES], struct buf *out)
{
	struct search s = {.hash = hash, .out = out};
	cleanup_free struct store_file *files = NULL;
	size_t n;
	int r;

	r = store_walk_files(st->packs_fd, &files, &n);
	for (size_t i = 0; r >= 0 && i < n; i++) {
		cleanup_close int fd = store_open_pack(st, files[i].pack_id);
		bool damaged;
		uint64_t end;

		if (fd < 0)
			continue;
		s.fd = fd;
		r = pack_walk(fd, PACK_HEADER_BYTES, each_search, &s, &end, &damaged);
		if (r == 1)
			return 0;
		r = 0; /* of another pack it may be had */
	}
	return r < 0 ? r : -ENOENT;
}
