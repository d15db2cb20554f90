/* Operations on open files, some of them mapped. */
#include "tests/functional/twin/twin.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { SLOTS = 8, MAP_BYTES = 256 << 10 };

struct slot {
	bool used, append;
	int fd[SIDES];
	uint8_t *map[SIDES]; /* NULL: not mapped */
	char path[PATH_ROOM];
};

static struct slot slots[SLOTS];

static void unmap(struct slot *s)
{
	for (size_t i = 0; i < SIDES && s->map[i]; i++) {
		(void)munmap(s->map[i], MAP_BYTES);
		s->map[i] = NULL;
	}
}

static void close_slot(struct slot *s)
{
	outcome r;

	unmap(s);
	for (size_t i = 0; i < SIDES; i++)
		r[i] = result(close(s->fd[i]));
	s->used = false;
	same(r, "close");
}

void slots_close_all(void)
{
	for (size_t i = 0; i < SLOTS; i++)
		if (slots[i].used)
			close_slot(&slots[i]);
}

void slots_sync(void)
{
	for (size_t i = 0; i < SLOTS; i++)
		for (size_t k = 0; k < SIDES; k++)
			if (slots[i].used && slots[i].map[k])
				(void)msync(slots[i].map[k], MAP_BYTES, MS_SYNC);
}

static struct slot *a_free_slot(void)
{
	struct slot *s = &slots[below(SLOTS)];

	if (s->used) {
		note("close %s", s->path);
		close_slot(s);
	}
	return s;
}

static void run_open(void)
{
	static const int some[] = {0,	    O_CREAT,  O_CREAT,		 O_CREAT | O_EXCL,
				   O_TRUNC, O_APPEND, O_CREAT | O_TRUNC, O_CREAT | O_APPEND};
	int flags = some[below(ARRAY_SIZE(some))] | O_RDWR | O_CLOEXEC | O_NONBLOCK;
	struct slot *s = a_free_slot();
	struct stat st;
	outcome r;

	if (flags & O_CREAT && !one_in(3))
		some_path(s->path);
	else
		some_path_of(one_in(20) ? S_IFDIR : S_IFREG, s->path);
	note("open %s %o", s->path, (unsigned)flags);
	for (size_t i = 0; i < SIDES; i++) {
		s->fd[i] = (int)result(openat(twin.dir[i], s->path, flags, 0644));
		r[i] = MIN(s->fd[i], 0);
	}
	same(r, "open");
	if (r[0] < 0)
		return;
	s->used = true;
	if (fstat(s->fd[NATIVE], &st) < 0 || !S_ISREG(st.st_mode)) { /* a FIFO */
		close_slot(s);
		return;
	}
	s->append = flags & O_APPEND;
}

/* One that is open; else opens one, which may fail: NULL. */
static struct slot *some_slot(void)
{
	size_t first = (size_t)below(SLOTS);

	for (size_t i = 0; i < SLOTS; i++)
		if (slots[(first + i) % SLOTS].used)
			return &slots[(first + i) % SLOTS];
	run_open();
	return NULL;
}

static off_t size_of(const struct slot *s)
{
	struct stat st[SIDES];
	outcome r;

	for (size_t i = 0; i < SIDES; i++)
		r[i] = fstat(s->fd[i], &st[i]) < 0 ? -errno : st[i].st_size;
	same(r, "size");
	return (off_t)MAX(r[0], 0);
}

/* Within the file mostly, at its end, or behind it. */
static off_t some_place(const struct slot *s)
{
	off_t size = size_of(s);

	if (one_in(4))
		return size;
	return (off_t)below(one_in(8) || size == 0 ? SIZE_TOP / 2 : (uint64_t)size);
}

static size_t some_length(void)
{
	return (size_t)below(one_in(2) ? 100 : one_in(4) ? SIZE_TOP / 2 : 9000) + 1;
}

/* Some bytes of some_slot(). */
static struct slot *some_range(off_t *ret_at, size_t *ret_n)
{
	struct slot *s = some_slot();

	if (!s)
		return NULL;
	*ret_at = some_place(s);
	*ret_n = some_length();
	return s;
}

static void run_write(void)
{
	const uint8_t *data;
	outcome r;
	off_t at;
	size_t n;
	struct slot *s = some_range(&at, &n);

	if (!s)
		return;
	data = some_bytes(n);
	note("write%s %s %lld+%zu", s->append ? " (append)" : "", s->path, (long long)at, n);
	for (size_t i = 0; i < SIDES; i++)
		r[i] = result(pwrite(s->fd[i], data, n, at));
	same(r, "write");
	(void)size_of(s);
}

static void compare_bytes(const uint8_t *a, const uint8_t *b, size_t n, off_t at)
{
	for (size_t i = 0; i < n; i++)
		if (a[i] != b[i])
			differ("byte %lld: view %02x, native %02x", (long long)at + (long long)i,
			       a[i], b[i]);
}

static void run_read(void)
{
	static uint8_t mem[SIDES][SIZE_TOP];
	outcome r;
	off_t at;
	size_t n;
	struct slot *s = some_range(&at, &n);

	if (!s)
		return;
	note("read %s %lld+%zu", s->path, (long long)at, n);
	for (size_t i = 0; i < SIDES; i++)
		r[i] = result(pread(s->fd[i], mem[i], n, at));
	same(r, "read");
	if (r[0] > 0)
		compare_bytes(mem[0], mem[1], (size_t)r[0], at);
}

static void map(struct slot *s)
{
	for (size_t i = 0; i < SIDES && !s->map[SIDES - 1]; i++) {
		s->map[i] = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd[i], 0);
		if (s->map[i] == MAP_FAILED)
			differ("mmap of side %zu: %m", i);
	}
}

/* One that is mapped, and what of it is within the file and the mapping; *ret_n 0: nothing. */
static struct slot *some_mapped(off_t *ret_at, size_t *ret_n)
{
	struct slot *s = some_slot();
	off_t size;

	if (!s)
		return NULL;
	map(s);
	size = MIN(size_of(s), (off_t)MAP_BYTES);
	*ret_at = (off_t)below((uint64_t)size);
	*ret_n = size > 0 ? MIN(some_length(), (size_t)(size - *ret_at)) : 0;
	return s;
}

static void run_map_read(void)
{
	off_t at;
	size_t n;
	struct slot *s = some_mapped(&at, &n);

	if (!s)
		return;
	note("read mapping %s %lld+%zu", s->path, (long long)at, n);
	compare_bytes(s->map[0] + at, s->map[1] + at, n, at);
}

static void run_map_write(void)
{
	const uint8_t *data;
	off_t at;
	size_t n;
	struct slot *s = some_mapped(&at, &n);

	if (!s)
		return;
	data = some_bytes(n);
	note("write mapping %s %lld+%zu", s->path, (long long)at, n);
	for (size_t i = 0; i < SIDES; i++)
		memcpy(s->map[i] + at, data, n);
	if (one_in(2)) {
		note("msync %s", s->path);
		slots_sync();
	}
}

static void run_unmap(void)
{
	struct slot *s = some_slot();

	if (!s)
		return;
	note("munmap %s", s->path);
	unmap(s);
}

static void run_ftruncate(void)
{
	struct slot *s = some_slot();
	off_t size;
	outcome r;

	if (!s)
		return;
	size = one_in(4) ? 0 : some_place(s);
	note("ftruncate %s %lld", s->path, (long long)size);
	for (size_t i = 0; i < SIDES; i++)
		r[i] = result(ftruncate(s->fd[i], size));
	same(r, "ftruncate");
	(void)size_of(s);
}

static void run_fallocate(void)
{
	static const int modes[] = {0,
				    FALLOC_FL_KEEP_SIZE,
				    FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				    FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				    FALLOC_FL_ZERO_RANGE,
				    FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE};
	int mode = modes[below(ARRAY_SIZE(modes))];
	outcome r;
	off_t at;
	size_t n;
	struct slot *s = some_range(&at, &n);

	if (!s)
		return;
	note("fallocate %s %x %lld+%zu", s->path, (unsigned)mode, (long long)at, n);
	for (size_t i = 0; i < SIDES; i++)
		r[i] = result(fallocate(s->fd[i], mode, at, (off_t)n));
	same(r, "fallocate");
	(void)size_of(s);
}

static void run_copy_range(void)
{
	struct slot *from = some_slot(), *to = some_slot();
	off_t at, to_at;
	outcome r;
	size_t n;

	if (!from || !to || to->append)
		return;
	at = some_place(from);
	to_at = some_place(to);
	n = some_length();
	note("copy_file_range %s %lld to %s %lld+%zu", from->path, (long long)at, to->path,
	     (long long)to_at, n);
	for (size_t i = 0; i < SIDES; i++) {
		off_t a = at, b = to_at;

		r[i] = result(copy_file_range(from->fd[i], &a, to->fd[i], &b, n, 0));
	}
	same(r, "copy_file_range");
	(void)size_of(to);
}

/* Where holes are is the file system's own: but what is called a hole is zeros, and what comes
 * first is where it is asked from. */
static void run_seek(void)
{
	struct slot *s = some_slot();
	static uint8_t mem[4096];
	off_t size, at, hole;
	ssize_t n;

	if (!s)
		return;
	slots_sync(); /* in FUSE what is only in a mapping is no data yet */
	size = size_of(s);
	at = some_place(s);
	note("seek %s %lld", s->path, (long long)at);
	hole = lseek(s->fd[VIEW], at, SEEK_HOLE);
	if (at >= size) {
		if (hole >= 0 || errno != ENXIO)
			differ("SEEK_HOLE behind the end: %lld", (long long)hole);
		return;
	}
	if (hole < at || hole > size)
		differ("SEEK_HOLE: %lld of %lld", (long long)hole, (long long)size);
	at = lseek(s->fd[VIEW], hole, SEEK_DATA);
	if (at < 0)
		at = size;
	for (; hole < at; hole += n) {
		n = pread(s->fd[NATIVE], mem, MIN(sizeof(mem), (size_t)(at - hole)), hole);
		if (n <= 0)
			break;
		for (ssize_t i = 0; i < n; i++)
			if (mem[i])
				differ("no hole at %lld", (long long)hole + i);
	}
}

static void run_fsync(void)
{
	bool data = one_in(2);
	struct slot *s = some_slot();
	outcome r;

	if (!s)
		return;
	note("f%ssync %s", data ? "data" : "", s->path);
	for (size_t i = 0; i < SIDES; i++)
		r[i] = result(data ? fdatasync(s->fd[i]) : fsync(s->fd[i]));
	same(r, "fsync");
}

static void run_close(void)
{
	struct slot *s = some_slot();

	if (!s)
		return;
	note("close %s", s->path);
	close_slot(s);
}

const struct operation slot_operations[] = {
	{12, run_open},	     {22, run_write}, {20, run_read},	  {6, run_map_read},
	{8, run_map_write},  {2, run_unmap},  {6, run_ftruncate}, {5, run_fallocate},
	{3, run_copy_range}, {4, run_seek},   {3, run_fsync},	  {4, run_close},
};
const size_t n_slot_operations = ARRAY_SIZE(slot_operations);
