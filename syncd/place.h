/*
 * place.h - the private directory of limb-syncd, its sockets, and what our own
 * executable is.
 *
 *	DIR/s			the daemon's socket
 *	DIR/lock		held by the daemon
 *	DIR/log			what it has to say, bounded
 *	DIR/incarnation		the newest that WELCOME named
 *	DIR/apply-*		a file that is being written in place (apply-log.h)
 *	DIR/signatures/		of large files as they were sent (kept.h)
 *	DIR/shadow		of the tree, for the next daemon (saved.h)
 *	DIR/jobs/ID/		one job (holder.h)
 *
 * DIR lies outside the root and may be longer than a socket's address holds, so
 * sockets are bound and reached by way of the current directory; programs of
 * ours have "/" as theirs.
 *
 * Whoever connects to DIR/s says first what it wants (struct greeting); the
 * daemon answers with one byte. So a probe never takes the place of a transport.
 */
#ifndef SYNCD_PLACE_H
#define SYNCD_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sha256.h"

struct place {
	const char *dir;  /* absolute */
	const char *root; /* absolute; NULL for stop */
	uint8_t env[16];
};

/* Opens DIR, made with its parents if absent. */
int place_open_dir(const struct place *p, int *ret_fd);

/* A listening socket NAME in the directory, 0600; -EADDRINUSE if NAME exists.
 * Both leave the current directory at "/". Non-blocking, close-on-exec. */
int place_listen(int dir, const char *name, int *ret_fd);
/* -ENOENT, -ECONNREFUSED: nobody there. Blocking, close-on-exec. */
int place_connect(int dir, const char *name, int *ret_fd);

/* ---- greetings ---- */

struct self {
	uint64_t dev, ino, size_bytes;
	int64_t mtime_ns;
};
/* Zeros where there is no /proc: then two builds cannot be told apart. */
void self_identify(struct self *ret);
/* What to execute to run ourselves. */
const char *self_path(void);
/* SHA-256 of our executable. */
int self_sha256(uint8_t out[SHA256_BYTES]);

enum greeting_kind {
	GREET_ATTACH = 'A', /* stdin and stdout come along as descriptors where they can */
	GREET_STOP = 'S',   /* end, holders too */
	GREET_HOLDER = 'J', /* link.h from here on */
};

struct greeting {
	uint32_t magic; /* GREETING_MAGIC */
	uint32_t kind;
	struct self self;
};
#define GREETING_MAGIC 0x424d494cu

enum greeting_answer {
	ANSWER_RELAY = 'K', /* this socket is the stream from here on */
	ANSWER_TAKEN = 'P', /* we read and write the descriptors ourselves: keep the socket open */
	ANSWER_HASH = 'H',  /* send your SHA-256: our files differ */
	ANSWER_REPLACE = 'R', /* another build: we end, start yours */
	ANSWER_STOPPED = 'E', /* to GREET_STOP, when all is over */
};

#endif
