/*
 * fake-disk.h - what a loss of power leaves of one directory.
 *
 *	fake_disk_begin(&disk, dir_fd);		what is there now is on the disk
 *	io_set_observer(fake_disk_observe, &disk);
 *	... writes, syncs, renames ...
 *	fake_disk_crash(&disk, &seed, out_fd);	one of the possible remains
 *
 * A file's bytes are safe once it was synced; of what was written or cut since,
 * any subset survives, of a write any of its sectors or any first or last part.
 * Names are safe once the directory was synced; of what was renamed, made or
 * removed since, the first few survive.  Sync says nothing of the other kind.
 */
#ifndef TESTS_UNIT_FAKE_DISK_H
#define TESTS_UNIT_FAKE_DISK_H

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/util.h"

enum {
	FAKE_FILES_MAX = 256,
	FAKE_NAMES_MAX = 64,
	FAKE_OPS_MAX = 4096,
	FAKE_SECTOR_BYTES = 512,
};

struct fake_bytes {
	uint8_t *p;
	size_t n;
};

struct fake_op {
	int file;
	bool cut;
	uint64_t offset; /* of a write; the size after a cut */
	struct fake_bytes data;
};

struct fake_file {
	ino_t ino; /* 0: has no name any more */
	struct fake_bytes safe;
};

struct fake_name {
	char name[256];
	int file;
};

struct fake_names {
	struct fake_name v[FAKE_NAMES_MAX];
	int n;
};

struct fake_name_op {
	char from[256], to[256]; /* from "": made; to "": removed */
	int file;
};

struct fake_disk {
	struct fake_file files[FAKE_FILES_MAX];
	struct fake_op ops[FAKE_OPS_MAX];
	struct fake_name_op name_ops[FAKE_NAMES_MAX];
	struct fake_names safe, now;
	int n_files, n_ops, n_name_ops;
	unsigned long events;
	/* Called before each event, at a moment at which power may go. */
	void (*moment)(struct fake_disk *d);
};

/* xorshift; the same seed gives the same crashes. */
static inline uint32_t fake_random(uint64_t *seed, uint32_t below)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return (uint32_t)(*seed >> 16) % below;
}

static inline void fake_check(bool ok, const char *what)
{
	if (!ok) {
		perror(what);
		abort();
	}
}

static inline void fake_resize(struct fake_bytes *b, size_t n)
{
	uint8_t *p = realloc(b->p, n + 1);

	fake_check(p != NULL, "memory");
	if (n > b->n)
		memset(p + b->n, 0, n - b->n);
	b->p = p;
	b->n = n;
}

static inline void fake_put(struct fake_bytes *b, uint64_t offset, const uint8_t *p, size_t n)
{
	if (n == 0)
		return;
	if (offset + n > b->n)
		fake_resize(b, offset + n);
	memcpy(b->p + offset, p, n);
}

static inline int fake_name_find(const struct fake_names *l, const char *name)
{
	for (int i = 0; i < l->n; i++) {
		if (strcmp(l->v[i].name, name) == 0)
			return i;
	}
	return -1;
}

static inline void fake_name_remove(struct fake_names *l, const char *name)
{
	int i = fake_name_find(l, name);

	if (i >= 0)
		l->v[i] = l->v[--l->n];
}

static inline void fake_name_add(struct fake_names *l, const char *name, int file)
{
	fake_name_remove(l, name);
	fake_check(l->n < FAKE_NAMES_MAX, "too many names");
	(void)snprintf(l->v[l->n].name, sizeof(l->v[l->n].name), "%s", name);
	l->v[l->n++].file = file;
}

static inline void fake_names_apply(struct fake_names *l, const struct fake_name_op *op)
{
	if (op->from[0])
		fake_name_remove(l, op->from);
	if (op->to[0])
		fake_name_add(l, op->to, op->file);
}

static inline void fake_name_change(struct fake_disk *d, const char *from, const char *to, int file)
{
	struct fake_name_op *op = &d->name_ops[d->n_name_ops++];

	fake_check(d->n_name_ops < FAKE_NAMES_MAX, "too many names");
	(void)snprintf(op->from, sizeof(op->from), "%s", from);
	(void)snprintf(op->to, sizeof(op->to), "%s", to);
	op->file = file;
	fake_names_apply(&d->now, op);
}

static inline int fake_file_add(struct fake_disk *d, ino_t ino)
{
	fake_check(d->n_files < FAKE_FILES_MAX, "too many files");
	d->files[d->n_files] = (struct fake_file){.ino = ino};
	return d->n_files++;
}

static inline int fake_file_of(struct fake_disk *d, int fd)
{
	char link[64], path[4096];
	struct stat st;
	ssize_t n;
	int file;

	fake_check(fstat(fd, &st) == 0, "fstat");
	for (int i = 0; i < d->n_files; i++) {
		if (d->files[i].ino == st.st_ino)
			return i;
	}
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	fake_check(n > 0, "readlink");
	path[n] = '\0';
	file = fake_file_add(d, st.st_ino);
	fake_name_change(d, "", strrchr(path, '/') + 1, file);
	return file;
}

static inline void fake_op_apply(struct fake_bytes *b, const struct fake_op *op)
{
	if (op->cut)
		fake_resize(b, op->offset);
	else
		fake_put(b, op->offset, op->data.p, op->data.n);
}

static inline void fake_op_add(struct fake_disk *d, int file, const struct io_observation *o)
{
	struct fake_op *op = &d->ops[d->n_ops++];

	fake_check(d->n_ops < FAKE_OPS_MAX, "too many writes without a sync");
	*op = (struct fake_op){.file = file, .cut = o->event == IO_TRUNCATE, .offset = o->offset};
	if (o->event == IO_WRITE)
		fake_put(&op->data, 0, o->data, o->n);
}

/* Makes what was done to the file safe, or, with lose, as good as never done. */
static inline void fake_file_settle(struct fake_disk *d, int file, bool lose)
{
	int kept = 0;

	for (int i = 0; i < d->n_ops; i++) {
		if (d->ops[i].file != file) {
			d->ops[kept++] = d->ops[i];
			continue;
		}
		if (!lose)
			fake_op_apply(&d->files[file].safe, &d->ops[i]);
		free(d->ops[i].data.p);
	}
	d->n_ops = kept;
}

/* A failed sync: the kernel forgets that the pages were dirty. */
static inline void fake_disk_lose(struct fake_disk *d)
{
	for (int i = 0; i < d->n_files; i++)
		fake_file_settle(d, i, true);
}

static inline void fake_unlinked(struct fake_disk *d, const char *name)
{
	int i = fake_name_find(&d->now, name);

	if (i >= 0)
		d->files[d->now.v[i].file].ino = 0;
}

static inline void fake_renamed(struct fake_disk *d, const struct io_observation *o)
{
	int i = fake_name_find(&d->now, o->name);

	fake_check(i >= 0, o->name);
	fake_unlinked(d, o->to);
	fake_name_change(d, o->name, o->to, d->now.v[i].file);
}

static inline void fake_disk_observe(const struct io_observation *o, void *userdata)
{
	struct fake_disk *d = userdata;

	if (d->moment)
		d->moment(d);
	d->events++;
	switch (o->event) {
	case IO_WRITE:
	case IO_TRUNCATE: fake_op_add(d, fake_file_of(d, o->fd), o); break;
	case IO_SYNC: fake_file_settle(d, fake_file_of(d, o->fd), false); break;
	case IO_RENAME: fake_renamed(d, o); break;
	case IO_UNLINK:
		if (fake_name_find(&d->now, o->name) < 0)
			break;
		fake_unlinked(d, o->name);
		fake_name_change(d, o->name, "", -1);
		break;
	case IO_SYNC_DIR:
		d->safe = d->now;
		d->n_name_ops = 0;
		break;
	}
}

static inline void fake_disk_begin(struct fake_disk *d, int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fdopendir(fd);
	struct dirent *e;

	memset(d, 0, sizeof(*d));
	fake_check(stream != NULL, "fdopendir");
	while ((e = readdir(stream)) != NULL) {
		struct stat st;
		int file, in;

		if (e->d_name[0] == '.')
			continue;
		in = openat(dir, e->d_name, O_RDONLY | O_CLOEXEC);
		fake_check(in >= 0 && fstat(in, &st) == 0, e->d_name);
		file = fake_file_add(d, st.st_ino);
		fake_name_add(&d->now, e->d_name, file);
		fake_resize(&d->files[file].safe, (size_t)st.st_size);
		fake_check(read(in, d->files[file].safe.p, (size_t)st.st_size) == st.st_size,
			   e->d_name);
		(void)close(in);
	}
	(void)closedir(stream);
	d->safe = d->now;
}

static inline void fake_disk_done(struct fake_disk *d)
{
	fake_disk_lose(d);
	for (int i = 0; i < d->n_files; i++)
		free(d->files[i].safe.p);
}

static inline void fake_sectors(struct fake_bytes *b, const struct fake_op *op, uint64_t *seed)
{
	uint64_t at = op->offset, end = op->offset + op->data.n;

	while (at < end) {
		uint64_t next = MIN(end, (at / FAKE_SECTOR_BYTES + 1) * FAKE_SECTOR_BYTES);

		if (fake_random(seed, 2))
			fake_put(b, at, op->data.p + (at - op->offset), next - at);
		at = next;
	}
}

static inline void fake_some(struct fake_bytes *b, const struct fake_op *op, uint64_t *seed)
{
	size_t cut = fake_random(seed, (uint32_t)op->data.n + 1);

	switch (fake_random(seed, 5)) {
	case 0: break;
	case 1: fake_op_apply(b, op); break;
	case 2: op->cut ? (void)0 : fake_put(b, op->offset, op->data.p, cut); break;
	case 3:
		if (!op->cut)
			fake_put(b, op->offset + cut, op->data.p + cut, op->data.n - cut);
		break;
	default: op->cut ? fake_op_apply(b, op) : fake_sectors(b, op, seed); break;
	}
}

/* Writes one possible remain into the empty directory `out`. */
static inline void fake_disk_crash(const struct fake_disk *d, uint64_t *seed, int out)
{
	struct fake_names names = d->safe;
	int n = (int)fake_random(seed, (uint32_t)d->n_name_ops + 1);
	uint32_t how = fake_random(seed, 6); /* 0: all, 1: nothing, else: some */

	for (int i = 0; i < n; i++)
		fake_names_apply(&names, &d->name_ops[i]);
	for (int i = 0; i < names.n; i++) {
		struct fake_bytes b = {0};
		int fd, file = names.v[i].file;

		fake_put(&b, 0, d->files[file].safe.p, d->files[file].safe.n);
		for (int k = 0; k < d->n_ops; k++) {
			if (d->ops[k].file != file || how == 1)
				continue;
			if (how == 0)
				fake_op_apply(&b, &d->ops[k]);
			else
				fake_some(&b, &d->ops[k], seed);
		}
		fd = openat(out, names.v[i].name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		fake_check(fd >= 0 && (b.n == 0 || write(fd, b.p, b.n) == (ssize_t)b.n),
			   names.v[i].name);
		(void)close(fd);
		free(b.p);
	}
}

#endif
