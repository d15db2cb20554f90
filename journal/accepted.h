/*
 * accepted.h - the intent log of a writable view: what limb-fs has accepted and limbd has
 * not consumed yet, as bytes (FORMAT 9).
 *
 * One writer (fs/intent.h) appends to envs/ID/intent/log.N, N the number of the file's
 * first entry; limbd (brain/accept.h) only reads.  An entry has a number, one more than
 * the one before it, and a check over epoch, number and body: a torn or damaged one ends
 * what is readable.
 *
 *	accepted_encode(&e, epoch, buf)			writing
 *	accepted_reader_open(dir_fd, epoch, after, &rd)	reading: entries behind `after`
 *	while (accepted_next(rd, &e) > 0) ...		lent until the next call
 *
 * accepted_next() answers 0 at the end of what is readable, and goes on there when it is
 * called again after more was appended.
 */
#ifndef JOURNAL_ACCEPTED_H
#define JOURNAL_ACCEPTED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/sha256.h"
#include "journal/node.h"

#define ACCEPTED_DIR "intent"
#define ACCEPTED_HEADER_BYTES 40
#define ACCEPTED_ENTRY_HEADER_BYTES 24
#define ACCEPTED_BODY_MAX (256u << 10)

/* Numbers are never reused. */
enum accepted_kind {
	ACCEPTED_STAGE = 1,   /* node's bytes are in stage.NODE from now on: a version comes */
	ACCEPTED_VERSION = 2, /* node's bytes of now are in data.NUMBER */
	ACCEPTED_CREATE = 3,  /* a file (empty), directory or link */
	ACCEPTED_REMOVE = 4,  /* fields NODE_FIELD_LINKS: it has another name, and stays */
	ACCEPTED_MOVE = 5,    /* over what was at to_path */
	ACCEPTED_LINK = 6,
	ACCEPTED_ATTR = 7, /* `fields` of `n` */
	ACCEPTED_DONE = 8, /* up to `done` it is over, and the index shows it at base_seq */
	ACCEPTED_KINDS
};

struct accepted {
	uint64_t number; /* set by the writer */
	uint8_t kind;
	uint64_t node;	   /* the view's id */
	uint64_t journal;  /* the journal's id of it, 0: it has none yet */
	uint64_t base_seq; /* of the index that the view had read */
	uint64_t done;
	const char *path, *to_path; /* from the root, NUL-terminated; "" where not used */
	uint32_t fields;	    /* ATTR, REMOVE: bits of enum node_field */
	/* CREATE: all; ATTR: the fields; VERSION: the content's size and SHA-256. */
	struct node n;
	/* VERSION, STAGE: what was there before; size and SHA-256. */
	bool has_base;
	struct content_ref base;
};

/* Appends the entry, header and all. -E2BIG. */
int accepted_encode(const struct accepted *e, uint64_t epoch, struct buf *out);
/* One entry at p: its length in bytes, 0: it is not whole, -EBADMSG: it is none (or not of
 * this epoch). ret points into p. */
int accepted_decode(const uint8_t *p, size_t n, uint64_t epoch, struct accepted *ret);

void accepted_header(uint64_t epoch, uint64_t first, uint8_t out[ACCEPTED_HEADER_BYTES]);
int accepted_header_parse(const uint8_t in[ACCEPTED_HEADER_BYTES], uint64_t *ret_epoch,
			  uint64_t *ret_first);

/* Names of files in the directory. */
void accepted_log_name(uint64_t first, char out[32]);
void accepted_stage_name(uint64_t node, char out[32]);
void accepted_data_name(uint64_t number, char out[32]);
/* The first numbers of all logs there, sorted; malloc'ed. */
int accepted_logs(int dir_fd, uint64_t **ret, size_t *ret_n);

struct accepted_reader;
/* Entries with numbers above `after` of that epoch; of another one: all. dir_fd stays the
 * caller's and open. -ENOENT: there is no log. */
int accepted_reader_open(int dir_fd, uint64_t epoch, uint64_t after, struct accepted_reader **ret);
void accepted_reader_close(struct accepted_reader *r);
DEFINE_CLEANUP(struct accepted_reader, accepted_reader_close);
uint64_t accepted_reader_epoch(const struct accepted_reader *r);
/* 1, 0, or an error. */
int accepted_next(struct accepted_reader *r, struct accepted *ret);
/* The log in which it stands, and the offset behind the last entry given out. */
void accepted_reader_place(const struct accepted_reader *r, uint64_t *ret_first,
			   uint64_t *ret_offset, uint64_t *ret_last);

#endif
