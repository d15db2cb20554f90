#include "syncd/kept.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/io.h"
#include "syncd/state.h"

#define MAGIC "limbsig1"

enum {
	HEADER_BYTES = 64,
	SAMPLES = 16,
	SAMPLES_WANTED = 4,
	SAMPLE_BLOCKS = 3,
	FILES_MAX = 1 << 16,
	OP_LITERAL_MAX = 1 << 20, /* what goes beside one DATA */
	OPS_MAX_BYTES = 64 << 20,
	GROWN_MAX = 2,
	WORN_BYTES = 256 << 10,
	WORN_PART = 64,
	HOPELESS_BYTES = 4 << 20,
};

/* ---- files ---- */

static void name_of(uint64_t node, char out[24])
{
	(void)snprintf(out, 24, "%016llx", (unsigned long long)node);
}

static int open_dir(int private_fd)
{
	int fd = file_open_dir(private_fd, KEPT_DIR);

	if (fd != -ENOENT)
		return fd;
	if (mkdirat(private_fd, KEPT_DIR, 0700) < 0 && errno != EEXIST)
		return -errno;
	return file_open_dir(private_fd, KEPT_DIR);
}

static int load(int private_fd, uint64_t node, struct kept_version *v, struct delta_sig **ret)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(HEADER_BYTES + DELTA_SIG_MAX);
	cleanup_close int dir = file_open_dir(private_fd, KEPT_DIR);
	const uint8_t *p;
	char name[24];
	int r;

	if (dir < 0)
		return dir;
	name_of(node, name);
	r = file_read(dir, name, &b);
	if (r < 0)
		return r;
	p = buf_data(&b);
	if (buf_len(&b) < HEADER_BYTES || memcmp(p, MAGIC, 8) != 0)
		return -EBADMSG;
	v->node = get_le64(p + 8);
	v->size = get_le64(p + 16);
	v->worn = get_le64(p + 24) != 0;
	memcpy(v->sha, p + 32, SHA256_BYTES);
	if (v->node == 0)
		return -EBADMSG;
	return delta_sig_load(p + HEADER_BYTES, buf_len(&b) - HEADER_BYTES, v->size, ret);
}

static bool is_kept(int private_fd, uint64_t node)
{
	char path[64];

	(void)snprintf(path, sizeof(path), KEPT_DIR "/%016llx", (unsigned long long)node);
	return faccessat(private_fd, path, F_OK, 0) == 0;
}

struct file {
	char *name;
	int64_t time_ns;
	uint64_t bytes;
};

static int by_time(const void *a, const void *b)
{
	const struct file *x = a, *y = b;

	return (x->time_ns > y->time_ns) - (x->time_ns < y->time_ns);
}

/* The oldest go until the rest is within the bound. */
static void bound(int dir)
{
	cleanup_free struct file *files = NULL;
	uint64_t total = 0;
	char **names;
	size_t n;

	if (file_list(dir, ".", FILES_MAX, &names, &n) < 0)
		return;
	files = calloc(n + 1, sizeof(*files));
	for (size_t i = 0; files && i < n; i++) {
		struct stat st;

		files[i].name = names[i];
		if (fstatat(dir, names[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		files[i].time_ns = st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec;
		files[i].bytes = (uint64_t)st.st_size;
		total += files[i].bytes;
	}
	if (files && total > KEPT_BYTES_MAX) {
		qsort(files, n, sizeof(*files), by_time);
		for (size_t i = 0; i < n && total > KEPT_BYTES_MAX; i++) {
			(void)unlinkat(dir, files[i].name, 0);
			total -= files[i].bytes;
		}
	}
	file_names_free(names, n);
}

/* Not synced: what a crash leaves of it is refused, or is found out by what comes out. */
static int save(int private_fd, uint64_t node, const struct kept_version *v, const struct buf *sig)
{
	cleanup_close int dir = open_dir(private_fd), fd = -1;
	uint8_t header[HEADER_BYTES];
	char name[24], temp[32];
	int r;

	if (dir < 0)
		return dir;
	memcpy(header, MAGIC, 8);
	put_le64(header + 8, v->node);
	put_le64(header + 16, v->size);
	put_le64(header + 24, v->worn);
	memcpy(header + 32, v->sha, SHA256_BYTES);
	name_of(node, name);
	(void)snprintf(temp, sizeof(temp), "%s.tmp", name);
	fd = openat(dir, temp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = io_write_full(fd, header, sizeof(header), "kept.write");
	if (r >= 0)
		r = io_write_full(fd, buf_data(sig), buf_len(sig), "kept.write");
	if (r >= 0)
		r = io_renameat(dir, temp, dir, name, "kept.rename");
	if (r < 0)
		(void)unlinkat(dir, temp, 0);
	bound(dir);
	return r;
}

/* ---- a pass ---- */

void kept_init(struct kept *k)
{
	*k = (struct kept){.private_fd = -1};
	buf_init(&k->made, DELTA_SIG_MAX);
	buf_init(&k->ops, OPS_MAX_BYTES);
	buf_init(&k->literals, 0);
}

static void clear(struct kept *k)
{
	delta_free(take_ptr(&k->delta));
	delta_sig_free(take_ptr(&k->sig));
	sig_maker_free(take_ptr(&k->maker));
	buf_clear(&k->made);
	buf_clear(&k->ops);
	buf_clear(&k->literals);
	k->fed = k->literal_bytes = 0;
	k->hopeless = false;
}

void kept_done(struct kept *k)
{
	clear(k);
	buf_done(&k->made);
	buf_done(&k->ops);
	buf_done(&k->literals);
}

static int add_op(struct kept *k, struct kept_op op)
{
	return buf_add(&k->ops, &op, sizeof(op));
}

static int sink(uint64_t from, uint64_t bytes, const void *literal, size_t n, void *userdata)
{
	struct kept *k = userdata;
	struct kept_op *last;
	int r;

	if (!literal)
		return add_op(k, (struct kept_op){.from = from, .bytes = bytes});
	k->literal_bytes += n;
	r = buf_add(&k->literals, literal, n);
	if (r < 0)
		return r;
	last = buf_len(&k->ops) ? (struct kept_op *)(buf_data(&k->ops) + buf_len(&k->ops)) - 1
				: NULL;
	if (last && last->len && last->len + n <= OP_LITERAL_MAX) {
		last->len += n;
		return 0;
	}
	return add_op(k, (struct kept_op){.len = n});
}

/* librsync is slow where nothing matches: so some places are tried first. */
static bool is_like(struct kept *k, int fd, uint64_t size)
{
	size_t want = SAMPLE_BLOCKS * delta_block_bytes(k->base.size);
	cleanup_free uint8_t *bytes = malloc(want);
	unsigned found = 0;

	if (!bytes || size < want)
		return false;
	for (unsigned i = 0; i < SAMPLES && found < SAMPLES_WANTED; i++) {
		uint64_t at = (size - want) / (SAMPLES - 1) * i;

		if (io_pread_full(fd, bytes, want, at, "kept.sample") == (ssize_t)want &&
		    delta_sig_matches(k->sig, bytes, want))
			found++;
	}
	return found == SAMPLES_WANTED;
}

static void begin_delta(struct kept *k, int fd, uint64_t size)
{
	int r;

	r = load(k->private_fd, k->node, &k->base, &k->sig);
	if (r == 0 && size / GROWN_MAX <= k->base.size && is_like(k, fd, size))
		r = delta_new(k->sig, sink, k, &k->delta);
	if (!k->delta)
		delta_sig_free(take_ptr(&k->sig));
}

void kept_begin(struct kept *k, int fd, uint64_t size, bool sending)
{
	clear(k);
	if (!k->may || size < DELTA_MIN_BYTES || size > DELTA_MAX_BYTES)
		return;
	if (sending && !k->whole && k->node)
		begin_delta(k, fd, size);
	if (k->delta ? k->base.worn : sending || !k->node || !is_kept(k->private_fd, k->node))
		(void)sig_maker_new(size, &k->maker);
}

void kept_feed(struct kept *k, const void *data, size_t n)
{
	k->fed += n;
	if (k->delta &&
	    (delta_add(k->delta, data, n) < 0 || k->literal_bytes > k->fed / 2 + HOPELESS_BYTES))
		k->hopeless = true;
	if (k->maker && sig_maker_add(k->maker, data, n) < 0)
		sig_maker_free(take_ptr(&k->maker));
}

void kept_end(struct kept *k)
{
	if (k->delta && delta_end(k->delta) < 0)
		k->hopeless = true;
	if (k->maker && sig_maker_end(k->maker, &k->made) < 0)
		buf_clear(&k->made); /* it was torn */
}

/* ---- afterwards ---- */

struct keeping {
	uv_work_t work;
	struct sync *sy;
	int private_fd;
	uint64_t node, old; /* old: under which it lies; 0: it is new */
	struct kept_version version;
	struct buf sig;
};

static void do_keep(uv_work_t *work)
{
	struct keeping *k = work->data;
	cleanup_close int dir = -1;
	char from[24], to[24];

	/* Without it the next version goes whole: nobody need be told. */
	if (buf_len(&k->sig)) {
		(void)save(k->private_fd, k->node, &k->version, &k->sig);
		return;
	}
	dir = open_dir(k->private_fd);
	name_of(k->old, from);
	name_of(k->node, to);
	if (dir >= 0 && k->old != k->node)
		(void)renameat(dir, from, dir, to);
	if (dir >= 0 && k->version.worn) {
		cleanup_close int fd = openat(dir, to, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);

		if (fd >= 0)
			(void)io_pwrite_full(fd, "\1", 1, 24, "kept.write");
	}
}

static void keep_done(uv_work_t *work, int status)
{
	struct keeping *k = work->data;
	struct sync *sy = k->sy;

	(void)status;
	sy->in_flight--;
	buf_done(&k->sig);
	free(k);
	sync_pump(sy);
}

void kept_after(struct sync *sy, struct kept *k, uint64_t node, const uint8_t sha[SHA256_BYTES],
		uint64_t size)
{
	bool worn = k->literal_bytes > MAX((uint64_t)WORN_BYTES, size / WORN_PART);
	struct keeping *w;

	if (!node || (buf_len(&k->made) == 0 && !(k->delta && (worn || node != k->node))))
		return;
	w = calloc(1, sizeof(*w));
	if (!w)
		return;
	w->work.data = w;
	w->sy = sy;
	w->private_fd = k->private_fd;
	w->node = node;
	w->old = k->node;
	w->sig = k->made;
	buf_init(&k->made, 0);
	w->version = (struct kept_version){
		.node = node, .size = size, .worn = buf_len(&w->sig) == 0 && worn};
	memcpy(w->version.sha, sha, SHA256_BYTES);
	if (uv_queue_work(sy->loop, &w->work, do_keep, keep_done) < 0) {
		buf_done(&w->sig);
		free(w);
		return;
	}
	sy->in_flight++;
}
