/*
 * feed.h - what goes into a job's stdin: bytes by offset, kept until the
 * command takes them.
 *
 * The first 64 KiB come over the link and stay in memory; what is beyond the
 * daemon writes at its offset into the file "stdin" of the job's directory
 * (FEED_INLINE_BYTES decides which), so a command that does not read costs disk,
 * not memory.
 */
#ifndef SYNCD_FEED_H
#define SYNCD_FEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define FEED_INLINE_BYTES (64u << 10)

struct feed {
	int fd; /* the command's end; -1: closed */
	int dir, file;
	bool tty, eof;
	struct buf inlined; /* from offset `written` on, while that is below its end */
	uint64_t inline_end, spilled_end, written;
};

int feed_init(struct feed *f, int dir);		   /* dir is lent */
void feed_begin(struct feed *f, int fd, bool tty); /* takes fd; -1 = nothing is read */
void feed_close(struct feed *f);

void feed_add(struct feed *f, uint64_t offset, const void *data, size_t n);
void feed_spilled(struct feed *f, uint64_t end);
void feed_eof(struct feed *f);
uint64_t feed_received(const struct feed *f);

bool feed_wants(const struct feed *f); /* something to write, or an end to make */
void feed_write(struct feed *f);       /* when fd is writable */

#endif
