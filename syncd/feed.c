#include "syncd/feed.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <termios.h>

#include "base/io.h"
#include "base/util.h"

enum { BLOCK = 32 << 10, PUNCH_STEP = 1 << 20 };

int feed_init(struct feed *f, int dir)
{
	*f = (struct feed){.fd = -1, .file = -1, .dir = dir};
	buf_init(&f->inlined, FEED_INLINE_BYTES);
	/* The directory may have been another job's. */
	return unlinkat(dir, "stdin", 0) < 0 && errno != ENOENT ? -errno : 0;
}

void feed_begin(struct feed *f, int fd, bool tty)
{
	f->fd = fd;
	f->tty = tty;
}

void feed_close(struct feed *f)
{
	if (f->fd >= 0)
		(void)close(f->fd);
	if (f->file >= 0)
		(void)close(f->file);
	f->fd = f->file = -1;
	buf_done(&f->inlined);
}

void feed_add(struct feed *f, uint64_t offset, const void *data, size_t n)
{
	if (f->fd < 0 || f->eof || offset > f->inline_end || offset + n <= f->inline_end)
		return;
	n -= (size_t)(f->inline_end - offset);
	data = (const uint8_t *)data + (f->inline_end - offset);
	if (buf_add(&f->inlined, data, n) == 0)
		f->inline_end += n;
}

void feed_spilled(struct feed *f, uint64_t end)
{
	if (f->file < 0)
		f->file = openat(f->dir, "stdin", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (f->file >= 0 && !f->eof)
		f->spilled_end = MAX(f->spilled_end, end);
}

void feed_eof(struct feed *f)
{
	f->eof = true;
}

uint64_t feed_received(const struct feed *f)
{
	return MAX(f->inline_end, f->spilled_end);
}

bool feed_wants(const struct feed *f)
{
	return f->fd >= 0 && (f->written < feed_received(f) || f->eof);
}

static void punch(struct feed *f, uint64_t before)
{
	if (before / PUNCH_STEP != f->written / PUNCH_STEP)
		(void)fallocate(f->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				(off_t)(f->written / PUNCH_STEP * PUNCH_STEP));
}

/* A terminal has no end to close; its end-of-file character says it. */
static void make_end(struct feed *f)
{
	struct termios t;
	uint8_t c = 4;

	f->eof = false;
	if (!f->tty) {
		feed_close(f);
		return;
	}
	if (tcgetattr(f->fd, &t) == 0)
		c = t.c_cc[VEOF];
	(void)io_write_some(f->fd, &c, 1, "feed.eof");
}

void feed_write(struct feed *f)
{
	uint8_t block[BLOCK];
	const uint8_t *p = buf_data(&f->inlined);
	size_t want = buf_len(&f->inlined);
	ssize_t n;

	if (f->fd < 0)
		return;
	if (f->written == feed_received(f)) {
		if (f->eof)
			make_end(f);
		return;
	}
	if (f->written >= f->inline_end) {
		want = (size_t)MIN((uint64_t)sizeof(block), f->spilled_end - f->written);
		n = io_pread_full(f->file, block, want, f->written, "feed.read");
		if (n <= 0) {
			feed_close(f);
			return;
		}
		p = block;
		want = (size_t)n;
	}
	n = io_write_some(f->fd, p, want, "feed.write");
	if (n == -EAGAIN)
		return;
	if (n < 0) { /* nobody reads it any more */
		feed_close(f);
		return;
	}
	if (f->written < f->inline_end) {
		buf_consume(&f->inlined, (size_t)n);
		f->written += (uint64_t)n;
	} else {
		uint64_t before = f->written;

		f->written += (uint64_t)n;
		punch(f, before);
	}
}
