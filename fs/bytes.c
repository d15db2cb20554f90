#include "fs/bytes.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/io.h"
#include "fs/change.h"
#include "fs/reader.h"
#include "journal/index-view.h"

enum {
	PIECE = 1 << 20,
	QUIET_MIN_MS = 20,
};

/* What a staging file begins with. */
struct before {
	bool stage; /* there is one */
	enum onode_bytes bytes;
	uint64_t data, journal, seq;
	struct content_ref content;
	int fd;
};

static int find_before(struct overlay *ov, uint64_t id, bool seen, struct before *b)
{
	const struct onode *o;
	struct index_node n, old;
	struct index_txn *t;
	int r;

	*b = (struct before){.fd = -1};
	overlay_read_lock(ov);
	r = source_begin(ov->fs->source, &t, &b->seq);
	if (r < 0) {
		overlay_unlock(ov);
		return r;
	}
	o = overlay_find(ov, id);
	r = overlay_node(ov, t, id, &n);
	if (r >= 0 && n.n.type != NODE_TYPE_FILE)
		r = -EISDIR;
	if (r >= 0) {
		b->journal = overlay_journal(ov, id);
		b->content = n.n.content;
		b->bytes = o && o->over ? o->bytes : BYTES_INDEX;
		b->data = o ? o->data : 0;
		b->stage = b->bytes == BYTES_STAGE;
	}
	if (r >= 0 && seen && b->bytes == BYTES_INDEX && b->journal &&
	    index_get_node(t, b->journal, atomic_load(&ov->fs->status.seen), &old) >= 0)
		b->content = old.n.content;
	source_end(ov->fs->source, t);
	if (r >= 0 && b->bytes == BYTES_DATA)
		r = b->fd = overlay_bytes(ov, id);
	overlay_unlock(ov);
	return MIN(r, 0);
}

static int copy_old(struct overlay *ov, uint64_t id, const struct before *b, uint64_t size, int to)
{
	_cleanup_(buf_done) struct buf piece = BUF_INIT(0);
	uint64_t end = MIN(size, b->content.size_bytes);
	uint64_t at = 0;
	int r = 0;

	while (r >= 0 && at < end) {
		size_t n = (size_t)MIN(end - at, (uint64_t)PIECE);
		uint8_t *p;
		ssize_t got;

		buf_clear(&piece);
		if (b->fd >= 0) {
			r = buf_reserve(&piece, n, &p);
			got = r < 0 ? r : io_pread_full(b->fd, p, n, at, "bytes.read");
			if (got < 0)
				return (int)got;
			buf_commit(&piece, (size_t)got);
		} else {
			r = reader_read(ov->fs->source, id, &b->content, at, n, &piece);
		}
		if (r >= 0 && buf_len(&piece) == 0)
			return -EIO;
		if (r >= 0)
			r = io_pwrite_full(to, buf_data(&piece), buf_len(&piece), at,
					   "bytes.write");
		at += buf_len(&piece);
	}
	return r;
}

static bool is_still(struct overlay *ov, uint64_t id, const struct before *b)
{
	const struct onode *o = overlay_find(ov, id);
	enum onode_bytes bytes = o && o->over ? o->bytes : BYTES_INDEX;

	return bytes == b->bytes && (bytes != BYTES_DATA || o->data == b->data) &&
	       overlay_journal(ov, id) == b->journal;
}

/* Where it is: path and p for an entry; an unlinked file is nowhere. With `gone`, of one that the
 * environment took with its directory, where it was: that is no name in the tree that is shown. */
static int place(struct overlay *ov, struct index_txn *t, uint64_t id, bool gone, struct buf *path,
		 char name[NODE_NAME_MAX + 1], struct placed *p)
{
	const struct onode *o = overlay_find(ov, id);
	int r = overlay_name(ov, t, id, &p->parent, name);

	if (r >= 0)
		r = overlay_path(ov, t, id, path);
	if (r >= 0)
		p->name = name;
	if (r != -ENOENT || !gone || !o || !o->over || o->links == 0 || !o->path)
		return r;
	buf_clear(path);
	return buf_add_str(path, o->path);
}

/* Under the lock: the copy becomes the staging file. 1: it is not of now. */
static int install(struct overlay *ov, uint64_t id, const struct before *b, const char *temp,
		   uint64_t size)
{
	_cleanup_(buf_done) struct buf path = BUF_INIT(0);
	struct accepted e = {.kind = ACCEPTED_STAGE, .node = id, .journal = b->journal};
	struct placed p = {0};
	struct index_txn *t;
	char name[32], last[NODE_NAME_MAX + 1];
	uint64_t seq;
	int r;

	if (!is_still(ov, id, b))
		return 1;
	r = source_begin(ov->fs->source, &t, &seq);
	if (r < 0)
		return r;
	r = place(ov, t, id, true, &path, last, &p);
	if (r == -ENOENT) { /* unlinked: for its own sake only */
		buf_clear(&path);
		r = 0;
	}
	if (r >= 0)
		r = buf_add_u8(&path, 0);
	e.path = (const char *)buf_data(&path);
	e.base_seq = b->seq;
	e.has_base = true;
	e.base = b->content;
	accepted_stage_name(id, name);
	if (r >= 0)
		r = io_renameat(intent_dir(ov->log), temp, intent_dir(ov->log), name,
				"bytes.rename");
	if (r >= 0)
		r = change_make(ov, t, &e, &p);
	source_end(ov->fs->source, t);
	if (r >= 0) {
		struct onode *o = overlay_find(ov, id);

		overlay_count_bytes(ov, o, MIN(size, b->content.size_bytes));
		o->n.content.size_bytes = MIN(size, b->content.size_bytes);
		if (o->links == 0 && o->written) {
			o->written = false;
			ov->n_written--;
		}
	}
	return MIN(r, 0);
}

static int stage_once(struct overlay *ov, uint64_t id, uint64_t size, bool seen)
{
	cleanup_close int fd = -1;
	struct before b;
	char temp[64];
	int r = find_before(ov, id, seen, &b);

	if (r < 0 || b.stage)
		return r;
	(void)snprintf(temp, sizeof(temp), "temp.%016llx.%d", (unsigned long long)id, gettid());
	fd = openat(intent_dir(ov->log), temp, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
		    0600);
	r = fd < 0 ? -errno : copy_old(ov, id, &b, size, fd);
	if (b.fd >= 0)
		(void)close(b.fd);
	if (r >= 0) {
		overlay_lock(ov);
		r = install(ov, id, &b, temp, size);
		overlay_unlock(ov);
	}
	if (r != 0 && fd >= 0)
		(void)io_unlinkat(intent_dir(ov->log), temp, 0, "bytes.unlink");
	return r;
}

int bytes_stage(struct overlay *ov, uint64_t id, uint64_t size, bool seen)
{
	int r;

	do
		r = stage_once(ov, id, size, seen);
	while (r > 0);
	return r;
}

int bytes_open(struct overlay *ov, const struct onode *o)
{
	char name[32];
	int fd;

	if (!o || !o->over || o->bytes != BYTES_STAGE)
		return -ESTALE;
	accepted_stage_name(o->id, name);
	fd = openat(intent_dir(ov->log), name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -EIO : fd;
}

void bytes_changed(struct overlay *ov, struct onode *o, uint64_t size_bytes)
{
	overlay_count_bytes(ov, o, size_bytes);
	o->n.content.size_bytes = size_bytes;
	o->n.mtime_ns = o->n.ctime_ns = clock_real_ns();
	o->write_ms = clock_mono_ms();
	o->quiet_ms = MAX(o->quiet_ms, (uint64_t)QUIET_MIN_MS);
	if (!o->written && o->links > 0) {
		o->written = true;
		ov->n_written++;
	}
}

static int hash_file(int fd, struct content_ref *ret)
{
	cleanup_free uint8_t *piece = malloc(PIECE);
	struct sha256_ctx *ctx;
	uint64_t at = 0;
	ssize_t n;

	if (!piece)
		return -ENOMEM;
	ctx = sha256_new();
	while ((n = io_pread_full(fd, piece, PIECE, at, "bytes.read")) > 0) {
		sha256_update(ctx, piece, (size_t)n);
		at += (uint64_t)n;
	}
	*ret = (struct content_ref){.size_bytes = at};
	sha256_final(ctx, ret->sha256);
	sha256_free(ctx);
	return n < 0 ? (int)n : 0;
}

/* The data's name comes before the entry and the staging file's goes after it: who finds both
 * knows which one counts by whether the entry is there. */
int bytes_version(struct overlay *ov, struct index_txn *t, struct onode *o, bool gone)
{
	_cleanup_(buf_done) struct buf path = BUF_INIT(0);
	struct accepted e = {.kind = ACCEPTED_VERSION, .node = o->id, .journal = o->journal};
	int dir = intent_dir(ov->log);
	char stage[32], data[32], name[NODE_NAME_MAX + 1];
	cleanup_close int fd = -1;
	struct placed p = {0};
	uint64_t size;
	int r;

	if (!o->over || o->bytes != BYTES_STAGE || o->links == 0)
		return 0;
	r = place(ov, t, o->id, gone, &path, name, &p);
	if (r >= 0)
		r = buf_add_u8(&path, 0);
	if (r >= 0)
		r = fd = bytes_open(ov, o);
	if (r >= 0)
		r = hash_file(fd, &e.n.content);
	if (r < 0)
		return r;
	e.path = (const char *)buf_data(&path);
	e.base_seq = o->base_seq;
	e.has_base = o->has_base;
	e.base = o->base;
	e.n.type = NODE_TYPE_FILE;
	e.n.mode = o->n.mode;
	e.n.mtime_ns = o->n.mtime_ns;
	accepted_stage_name(o->id, stage);
	accepted_data_name(intent_last(ov->log) + 1, data);
	(void)io_unlinkat(dir, data, 0, "bytes.unlink");
	if (linkat(dir, stage, dir, data, 0) < 0)
		return -errno;
	size = o->file_bytes;
	overlay_count_bytes(ov, o, 0);
	r = change_make(ov, t, &e, &p);
	if (r < 0) {
		(void)io_unlinkat(dir, data, 0, "bytes.unlink");
		return r;
	}
	overlay_count_bytes(ov, o, size);
	(void)io_unlinkat(dir, stage, 0, "bytes.unlink");
	return 0;
}

int bytes_sync(struct overlay *ov, uint64_t number)
{
	cleanup_close int fd = -1;
	char name[32];

	accepted_data_name(number, name);
	fd = openat(intent_dir(ov->log), name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno; /* limbd has it */
	return io_fdatasync(fd, "bytes.sync");
}
