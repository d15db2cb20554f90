/*
 * log.h - an append-only log of records in a directory of segments.
 *
 * Writing (one process, lock file `lock` in the directory; one thread):
 *
 *	log_open(dir_fd, &ids, LOG_CREATE, &log, &recovery);
 *	log_append(log, RECORD_CHANGE, body, n, &seq);	buffered, numbered
 *	log_append(...);
 *	log_write(log);					accepted: survives kill -9
 *	log_sync_begin(log, &s);			what a thread has to sync
 *	    r = log_sync_run(&s);			any thread; blocks
 *	log_sync_end(log, &s, r);			durable up to log_durable()
 *	log_close(log);
 *
 * Appends go on while a sync runs; they belong to the next, and there is one at
 * a time (the kernel reports an error to one of two).  After a failed
 * write or sync the log refuses everything with -EIO (what is on disk is
 * unknown) until it is opened again.  Times of records never go back.
 *
 * Reading needs no lock and may run beside a writer: it ends at the last
 * complete record, or where the caller says.
 */
#ifndef JOURNAL_LOG_H
#define JOURNAL_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "journal/record.h"

struct log;

struct log_ids {
	uint8_t log_id[16];
	uint8_t brain_id[16];
	uint64_t term;
};

struct log_recovery {
	uint64_t torn_tail_bytes; /* cut at open */
	uint64_t last_seq;
};

enum {
	LOG_CREATE = 1 << 0, /* make the first segment when the directory is empty */
};

/* dir_fd stays the caller's.  -EAGAIN: another writer has it.  -EBADMSG: damage
 * that is not a torn tail (log_verify says where).  -ESTALE: the log has a
 * higher term than ids->term, or other ids.  ret_recovery may be NULL. */
int log_open(int dir_fd, const struct log_ids *ids, unsigned flags, struct log **ret_log,
	     struct log_recovery *ret_recovery);
void log_close(struct log *log); /* NULL is fine; does not sync */
DEFINE_CLEANUP(struct log, log_close);

/* body without salt, at most RECORD_BODY_MAX - 16, else -E2BIG; time_ns 0 = now.
 * Writes by itself when much is buffered or the segment is full.  -ENOSPC, from
 * log_write() as well, has numbered nothing or keeps what is buffered: it may be
 * called again. */
int log_append(struct log *log, uint16_t type, const void *body, size_t n, int64_t time_ns,
	       uint64_t *ret_seq);
int log_write(struct log *log);

/* Drops the last records, those with a number above seq (recovery only: they
 * were never acknowledged).  -EBUSY while something is buffered or syncing. */
int log_truncate(struct log *log, uint64_t seq);

struct log_sync {
	int fds[4]; /* owned by this struct until log_sync_end */
	int n_fds;
	uint64_t seq;
};
/* Writes what is buffered first.  -EBUSY: the sync before has not ended. */
int log_sync_begin(struct log *log, struct log_sync *s);
int log_sync_run(const struct log_sync *s);
int log_sync_end(struct log *log, struct log_sync *s, int result);
int log_sync(struct log *log); /* the three at once, for tools and tests */

uint64_t log_last(const struct log *log);    /* last appended */
uint64_t log_written(const struct log *log); /* last accepted */
uint64_t log_durable(const struct log *log);
const uint8_t *
log_chain(const struct log *log); /* of the last appended; 32 bytes, lent until the next append */
uint64_t log_bytes(const struct log *log);
unsigned log_segments(const struct log *log);

/* ---- reading ---- */

struct log_reader;

struct log_record {
	uint16_t type;
	uint64_t seq;
	int64_t time_ns;
	const uint8_t *body; /* without salt; lent until the next call; NULL when purged */
	size_t n;
	uint8_t chain[SHA256_BYTES];
};

/* Positioned at the first record with a number >= seq (0 or 1: the first). */
int log_reader_open(int dir_fd, uint64_t seq, struct log_reader **ret);
void log_reader_free(struct log_reader *rd);
DEFINE_CLEANUP(struct log_reader, log_reader_free);
/* 1: *ret is the next record; 0: end (asked again, it sees what came since);
 * -EBADMSG: damage at this place. Headers, chain and body hashes are checked. */
int log_reader_next(struct log_reader *rd, struct log_record *ret);
void log_reader_ids(const struct log_reader *rd, struct log_ids *ret);
/* The last record that is not younger than time_ns; -ENOENT: all are. Reads a few
 * places of one segment, and judges headers alone. */
int log_seq_at(int dir_fd, int64_t time_ns, uint64_t *ret_seq);
/* One record, found in the same way: its body, without salt, appended. Its hash is checked, the
 * chain is not. -ENOENT; -ENODATA: it was purged. */
int log_read_one(int dir_fd, uint64_t seq, uint16_t *ret_type, int64_t *ret_time_ns,
		 struct buf *body); /* ret_time_ns may be NULL */

/* ---- verifying ---- */

enum log_problem_kind {
	LOG_PROBLEM_CHECKSUM,
	LOG_PROBLEM_CHAIN,
	LOG_PROBLEM_MISSING_RECORD,
	LOG_PROBLEM_SWAPPED,
	LOG_PROBLEM_MISSING_SEGMENT,
	LOG_PROBLEM_MISSING_TAIL,
	LOG_PROBLEM_ROLLED_BACK,
	LOG_PROBLEM_BAD_HEADER,
	LOG_PROBLEM_CONTENT,
};
const char *log_problem_name(enum log_problem_kind kind); /* as in the command-line contract */

struct log_problem {
	enum log_problem_kind kind;
	char segment[64]; /* file name */
	uint64_t offset;
	uint64_t seq; /* 0 = not known */
	char detail[160];
};

struct log_report {
	uint64_t records, first_seq, last_seq, segments, bytes, torn_tail_bytes;
	uint8_t head_hash[SHA256_BYTES]; /* chain of the last good record */
	struct log_problem *problems;
	size_t n_problems; /* at most 1000 kept */
	bool problems_cut;
};

/* Reads everything; never stops at the first problem.  `head` (seq and chain
 * that somebody outside remembers, e.g. the brain's log or the head file) makes a missing tail
 * and a roll-back visible; NULL = unknown.  each() (may be NULL) sees every good record. */
struct log_head {
	uint64_t seq;
	uint8_t chain[SHA256_BYTES];
};
typedef int (*log_each_fn)(const struct log_record *rec, void *userdata);
int log_verify(int dir_fd, const struct log_head *head, log_each_fn each, void *userdata,
	       struct log_report *ret);
void log_report_done(struct log_report *rep);

/* A file `head` in the directory holds sequence and chain of the last durable
 * record; the writer renews it at most once a second and at close, so it may
 * lag, never lead.  It is how a cut tail shows.  -ENOENT; -EBADMSG: it is
 * damaged and says nothing. */
int log_head_read(int dir_fd, struct log_head *ret);

#endif
