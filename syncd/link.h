/*
 * link.h - messages between the daemon and a job's holder, over a stream
 * socket: u32 type, u32 length, then that many bytes. Same machine, same build
 * or the one before: types are never renumbered.
 *
 * The daemon makes a holder ahead of need (SPARE), which prepares a directory
 * DIR/spare/NAME and says READY; a START makes it a job's. When the daemon goes
 * away the holder goes on, and comes back to DIR/s with GREET_HOLDER, HELLO.
 */
#ifndef SYNCD_LINK_H
#define SYNCD_LINK_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum link_type {
	LINK_START = 1,	  /* JobStart */
	LINK_ACK = 2,	  /* struct link_offsets */
	LINK_INPUT = 3,	  /* u64 offset, then bytes */
	LINK_SPILLED = 4, /* u64: the file "stdin" holds the input up to here */
	LINK_INPUT_EOF = 5,
	LINK_SIGNAL = 6, /* JobSignal */
	LINK_FORGET = 7, /* nobody wants the output any more */
	LINK_SPARE = 8,	 /* name of the spare directory, NUL, absolute name of the root */

	LINK_READY = 32,   /* u32: the holder's process id */
	LINK_HELLO = 33,   /* struct link_hello */
	LINK_STARTED = 34, /* JobStarted */
	LINK_OUTPUT = 35,  /* struct link_offsets: totals */
	LINK_EXIT = 36,	   /* JobExit */
};

struct link_offsets {
	uint64_t out[2];
};

#define LINK_JOB_MAX 64
struct link_hello {
	char job[LINK_JOB_MAX + 1];
	uint8_t ended;
	uint8_t forgotten;
	uint32_t holder_pid, pid;
	uint64_t input_bytes;
};

#define LINK_MESSAGE_MAX ((1u << 20) + 65536)

int link_add(struct buf *out, enum link_type type, const void *data, size_t n);
/* 1: a message, lent until `in` changes; take it out with buf_consume(in, *ret_bytes).
 * 0: more is needed; -EBADMSG. */
int link_next(const struct buf *in, uint32_t *ret_type, const uint8_t **ret_data, size_t *ret_n,
	      size_t *ret_bytes);
/* One read of what is there: the count, 0 at the end, -EAGAIN. */
ssize_t link_receive(int fd, struct buf *in);
/* Writes what goes; 0 also when some is left. */
int link_flush(int fd, struct buf *out);

#endif
