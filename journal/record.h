/*
 * record.h - the fixed headers of segments and records (FORMAT 1 and 2), as
 * pure functions between bytes and values.
 *
 * No descriptor, no clock: record_seal() computes hashes, chain and checks of
 * a header from given values; record_header_parse() judges bytes.  The log
 * (log.h) does the I/O.  Bodies are protobuf (record.proto), made and read by
 * whoever appends and reads.
 */
#ifndef JOURNAL_RECORD_H
#define JOURNAL_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"

#define SEGMENT_HEADER_BYTES 128
#define RECORD_HEADER_BYTES 128
#define RECORD_SALT_BYTES 16
#define RECORD_BODY_MAX (16u << 20) /* salt included */
#define RECORD_VERSION 1

enum record_type {
	RECORD_GENESIS = 1,
	RECORD_INCARNATION = 2,
	RECORD_CHANGE = 3,
	RECORD_JOB_START = 4,
	RECORD_JOB_END = 5,
	RECORD_POINT = 6,
	RECORD_STATE = 7,
	RECORD_DECISION = 8,
	RECORD_CONFLICT = 9,
	RECORD_UNAPPLIED = 10,
	RECORD_PURGE = 11,
	RECORD_GC = 12,
	RECORD_LEASE = 13,
	RECORD_ENVIRONMENT = 14,
	RECORD_PRINCIPAL = 15,
	RECORD_POLICY = 16,
	RECORD_APPROVAL = 17,
	RECORD_TASK = 18,
	RECORD_AUDIT = 19,
	RECORD_INTENT = 20,
	RECORD_INTENT_END = 21,
	RECORD_IGNORE = 22,
};

/* "change", "job_start", ...; "unknown" for other numbers. */
const char *record_type_name(uint16_t type);

struct segment_header {
	uint8_t log_id[16];
	uint8_t brain_id[16];
	uint64_t term;
	uint64_t first_seq;
	uint8_t chain[SHA256_BYTES];
	int64_t time_ns;
	uint64_t tag;		   /* random; its records carry it too */
	uint64_t before_first_seq; /* of the segment before; 0: there is none */
};

void segment_header_seal(const struct segment_header *h, uint8_t out[SEGMENT_HEADER_BYTES]);
/* -EBADMSG: magic or check wrong; -EPROTONOSUPPORT: a version we do not know. */
int segment_header_parse(const uint8_t in[SEGMENT_HEADER_BYTES], struct segment_header *ret);

struct record_header {
	uint16_t type;
	uint32_t body_len; /* salt included, padding not */
	uint64_t seq;
	int64_t time_ns;
	uint8_t body_hash[SHA256_BYTES];
	uint8_t chain[SHA256_BYTES];
	uint64_t durable_seq; /* what was known to be synced when this was made */
	uint64_t tag;	      /* of its segment */
};

/* Bytes that header, salt, body and padding take. */
size_t record_size(uint32_t body_len);

/* Fills h->body_hash and h->chain from the salted body and the chain before,
 * and writes the header's bytes. h's other fields are given. */
void record_header_seal(struct record_header *h, const uint8_t chain_before[SHA256_BYTES],
			const void *salted_body, uint8_t out[RECORD_HEADER_BYTES]);

/* Could a record's header stand here?  For a quick search; says nothing more. */
bool record_magic_ok(const uint8_t *in);

enum record_verdict {
	RECORD_OK,
	RECORD_END,	/* zeros: nothing was written here */
	RECORD_DAMAGED, /* magic, check, or a value that no writer writes */
	RECORD_NEWER,	/* a version that we do not know */
};
/* Judges the header alone; the chain and the body are the caller's to compare. */
enum record_verdict record_header_parse(const uint8_t in[RECORD_HEADER_BYTES],
					struct record_header *ret);
bool record_chain_ok(const struct record_header *h, const uint8_t chain_before[SHA256_BYTES]);
bool record_body_ok(const struct record_header *h, const void *salted_body);

#endif
