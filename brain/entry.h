/*
 * entry.h - what limb-ingest and limbd say to each other over their socket:
 * bounded entries of fixed layout in host byte order (one machine, one build).
 *
 * limb-ingest alone parses what an environment sends; limbd gets these structs,
 * each with a head that names its type and whole length (at most ENTRY_MAX).
 * Variable parts follow the struct, their lengths in it; entry_check() judges
 * that they add up and that names, targets and lists are what they should be,
 * and is the whole of limbd's parsing.
 *
 *	while ((n = entry_whole(p, have)) > 0) {	p 8-byte aligned
 *		if (entry_check(e = p, &why) < 0) ...	that limb-ingest is broken
 *		entry_cursor_init(&c, e);
 *		while (entry_next_op(&c, &op)) ...	parts, lent as long as e
 *	}
 *
 * limbd to limb-ingest: ENTRY_SEND carries whole wire frames, which limb-ingest
 * passes on unread; ENTRY_START goes before the ENTRY_SEND with the WELCOME: a
 * CHANGE before it is hostile, the first one after it has durable_number + 1 or
 * less.  ENTRY_PACK hands over the descriptor of a fresh pack (SCM_RIGHTS, in the
 * sendmsg() that its first byte is in): one at the start, and one after each
 * ENTRY_PACK_FULL, so that it is clear which pack places are in.  ENTRY_SEAL asks for
 * that before the pack is full (in the middle of a content it is not heard).  Without a pack
 * the environment's first CHANGE or DATA waits, and all behind it.
 * ENTRY_SEED lists contents that this environment has stored before, which need
 * no storing again.  ENTRY_BASE_DATA answers ENTRY_BASE, in order.  ENTRY_STOP: send what is queued, then end.
 *
 * limb-ingest to limbd: ENTRY_PLACES (frames written to the pack: hash, offset)
 * always come before the ENTRY_CHANGE that needs them.  Changes come in the order
 * of their numbers, none left out; those that WELCOME counted are not repeated.
 * After ENTRY_HOSTILE, or an ENTRY_BYE, nothing comes.  limb-ingest answers PING
 * by itself.
 */
#ifndef BRAIN_ENTRY_H
#define BRAIN_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/sha256.h"
#include "journal/change.h"

#define ENTRY_MAX (2u << 20)
#define ENTRY_TEXT_MAX 512 /* details, reasons */
#define ENTRY_PATH_MAX (64u << 10)
#define ENTRY_JOB_MAX 63
#define ENTRY_SEED_MAX 16384 /* hashes; more in further entries only push out the first */
#define ENTRY_UNSETTLED_MAX 100
#define ENTRY_REASONS_MAX 32
#define ENTRY_PULL_MAX 256
#define ENTRY_UNSUPPORTED_MAX 1000
#define ENTRY_JOBS_MAX 4096
#define ENTRY_PROCESSES_MAX 4096
#define ENTRY_ARGV_MAX 4096
#define ENTRY_BASE_MAX (512u << 10) /* bytes of one ENTRY_BASE */

enum entry_type {
	/* limbd -> limb-ingest */
	ENTRY_SEND = 1, /* struct entry_send, wire frames */
	ENTRY_PACK = 2, /* struct entry_pack, one descriptor */
	ENTRY_SEED = 3, /* hashes of 32 bytes follow */
	ENTRY_STOP = 4,
	ENTRY_START = 5,     /* struct entry_start */
	ENTRY_SEAL = 6,	     /* the pack has enough: ENTRY_PACK_FULL, please */
	ENTRY_BASE_DATA = 7, /* struct entry_base_data, bytes */
	/* limb-ingest -> limbd */
	ENTRY_HELLO = 16,
	ENTRY_PLACES = 17,
	ENTRY_CHANGE = 18,
	ENTRY_BARRIER_DONE = 19,
	ENTRY_STATUS = 20,
	ENTRY_TREE_GET = 21,
	ENTRY_TREE_PART = 22,
	ENTRY_DONE = 23, /* ACCEPTED, APPLIED, FROZEN */
	ENTRY_PULL = 24,
	ENTRY_RESTORED = 25,
	ENTRY_JOB_STARTED = 26,
	ENTRY_JOB_OUTPUT = 27,
	ENTRY_JOB_EXIT = 28,
	ENTRY_JOB_LIST = 29,
	ENTRY_PS_DONE = 30,
	ENTRY_ERROR = 31,
	ENTRY_BYE = 32,
	ENTRY_PACK_FULL = 33, /* the pack is not written to any more, send another */
	ENTRY_HOSTILE = 34,   /* struct entry_text: what rule was broken; limb-ingest ends */
	ENTRY_PONG = 35,
	ENTRY_JOB_INPUT = 36,
	ENTRY_IGNORES = 38, /* struct entry_ignores */
	ENTRY_BASE = 37,    /* struct entry_base: part of a content that it has, please */
};

struct entry_head {
	uint32_t length; /* of the whole entry, head included, a multiple of 8 */
	uint16_t type;
	uint16_t reserved;
};

struct entry_send {
	struct entry_head head;
	uint32_t len, reserved; /* bytes follow: whole frames */
};

struct entry_pack {
	struct entry_head head;
	uint8_t pack_id[16];
	uint64_t offset; /* where frames begin */
	uint64_t seal_bytes;
	uint32_t zstd_level;
	uint32_t reserved;
};

struct entry_start {
	struct entry_head head;
	uint64_t durable_number; /* as in WELCOME */
};

struct entry_pack_full {
	struct entry_head head;
	uint64_t length;
};

/* Of a content that the environment's own node has or had. */
struct entry_base {
	struct entry_head head;
	uint64_t request;
	uint64_t node;
	uint64_t offset;
	uint8_t sha256[SHA256_BYTES];
	uint32_t len;	/* at most ENTRY_BASE_MAX */
	uint32_t first; /* its first part: the hashes of its chunks come before as ENTRY_SEED */
};
struct entry_base_data {
	struct entry_head head;
	uint64_t request;
	uint64_t size_bytes; /* of the whole */
	int32_t error;	     /* positive errno: there is no such content, or it cannot be read */
	uint32_t len;	     /* bytes follow: short at the end of the content */
};

struct entry_pong {
	struct entry_head head;
	uint64_t id;
};

/* A text of `len` bytes follows (not NUL-terminated, UTF-8 not promised): ENTRY_ERROR,
 * ENTRY_BYE, ENTRY_HOSTILE. */
struct entry_text {
	struct entry_head head;
	uint64_t request;
	int32_t error; /* positive errno or 0 */
	uint32_t len;
};

struct entry_hello {
	struct entry_head head;
	uint32_t protocol_min, protocol_max;
	uint64_t capabilities;
	uint8_t syncd_sha256[32];
	uint8_t environment_id[16];
	uint8_t boot_id[16];
	uint8_t mark[16];
	uint64_t shadow_incarnation, shadow_number;
	uint32_t syncd_pid;
	uint32_t unheld;
	uint32_t self_uid, self_gid;
	uint8_t root_missing, root_empty, has_mark, static_build;
	char syncd_version[36]; /* NUL-terminated */
};

struct entry_place {
	uint8_t hash[SHA256_BYTES];
	uint64_t offset;
	uint32_t len;
	uint32_t kind;
};
struct entry_places {
	struct entry_head head;
	uint32_t n; /* struct entry_place follow */
	uint32_t reserved;
	uint64_t pack_end; /* bytes of the pack in use after them */
};

/* Attributes as in struct node, without pointers: target and xattrs follow. */
struct entry_attr {
	uint8_t type, uid_kind, gid_kind, torn;
	uint32_t mode, uid, gid, unheld;
	uint32_t reserved3;
	int64_t mtime_ns, ctime_ns;
	uint64_t inode, generation, device;
	uint32_t rdev_major, rdev_minor;
	uint64_t allocated_bytes, size_bytes;
	uint8_t sha256[SHA256_BYTES], root[SHA256_BYTES];
	uint8_t depth, holes, has_content, reserved;
	uint32_t target_len, xattrs_len;
	uint32_t reserved2;
};

struct entry_op {
	uint32_t length; /* of this op with its variable parts, a multiple of 8 */
	uint8_t kind, evidence;
	uint16_t name_len, to_name_len;
	uint16_t reserved, reserved2, reserved3;
	uint64_t node, parent, to_parent, base_version;
	struct entry_attr attr; /* PUT, else zeros */
				/* name, to_name, target, xattrs follow end to end */
};
struct entry_change {
	struct entry_head head;
	uint64_t number;
	int64_t time_ns;
	uint64_t base_seq;
	uint32_t n_ops; /* at most CHANGE_OPS_MAX */
	char job[ENTRY_JOB_MAX + 1];
	uint32_t origin; /* enum change_origin as it says; 0: its own */
			 /* struct entry_op follow */
};

/* Each followed by its path, padded to 8; what is more than ENTRY_UNSETTLED_MAX is left out. */
struct entry_unsettled {
	uint32_t len; /* of the path */
	uint32_t reserved;
	uint64_t size_bytes;
	int64_t since_ns;
};
struct entry_barrier_done {
	struct entry_head head;
	uint64_t request, number;
	uint32_t quiet, n_unsettled; /* follow */
};

struct entry_reason {
	char code[32];
	int64_t since_ns;
	uint32_t detail_len, path_len; /* follow, padded to 8 together */
};
struct entry_status {
	struct entry_head head;
	uint64_t files, directories, watches, polled_directories, overflows, rescans;
	uint64_t pending_changes, pending_bytes, ignored_names, ignored_bytes, sweep_period_ms;
	uint64_t audit_differences, scanned_files, scanned_bytes, refused;
	uint8_t scanning, mount_changed, halted, reserved[5];
	uint32_t n_reasons, reserved2; /* struct entry_reason follow */
};

struct entry_tree_get {
	struct entry_head head;
	uint64_t request;
	uint32_t n, by_content; /* n hashes of DIGEST_BYTES follow, at most DIGESTS_MAX */
};

struct entry_tree_entry {
	uint32_t length; /* with its variable parts, multiple of 8 */
	uint32_t same_as;
	uint64_t node, parent;
	uint32_t error;
	uint16_t name_len, reserved;
	struct entry_attr attr;
	/* name (none: the root itself), target, xattrs */
};
struct entry_tree_part {
	struct entry_head head;
	uint64_t request;
	uint32_t n, last; /* one TREE_PART may come as several of these */
};

struct entry_done {
	struct entry_head head;
	uint64_t request, number;
	int32_t error;
	uint32_t len; /* detail follows */
};

struct entry_pull {
	struct entry_head head;
	uint64_t request;
	uint32_t n, reserved; /* struct entry_pull_node follow, at most ENTRY_PULL_MAX */
};
struct entry_pull_node {
	uint64_t node;
	uint32_t has_base, reserved;
	uint8_t base[SHA256_BYTES]; /* of what stands there, and may be copied from */
};

/* Each followed by the directory and the text, padded to 8 together. */
struct entry_ignore_file {
	uint32_t dir_len, text_len;
	uint32_t person, reserved;
};
struct entry_ignores {
	struct entry_head head;
	uint32_t n, reserved; /* struct entry_ignore_file follow */
};

struct entry_unsupported {
	uint32_t path_len; /* path and field follow, padded to 8 together */
	uint16_t field_len, reserved;
};
struct entry_restored {
	struct entry_head head;
	uint64_t request, files, bytes;
	int32_t error;
	uint32_t detail_len;	/* follows, padded to 8 */
	uint32_t n_unsupported; /* struct entry_unsupported follow; the rest is left out */
	uint32_t reserved;
};

struct entry_job {
	struct entry_head head;
	char job[ENTRY_JOB_MAX + 1];
	uint64_t request;
	uint64_t stdout_bytes, stderr_bytes, duration_ms, number;
	int64_t started_ns, ended_ns;
	int32_t exit_code, error;
	uint32_t signal, pid;
	uint8_t timed_out, unknown, background, running;
	char killed_by[12];
	uint32_t detail_len;  /* JOB_STARTED: follows, padded to 8 */
	uint32_t n_unsettled; /* JOB_EXIT: follow */
};

struct entry_job_output {
	struct entry_head head;
	char job[ENTRY_JOB_MAX + 1];
	uint32_t stream; /* 1, 2 */
	uint32_t eof;
	uint64_t offset;
	uint32_t len; /* bytes follow */
	uint32_t reserved;
};

struct entry_job_input {
	struct entry_head head;
	char job[ENTRY_JOB_MAX + 1];
	uint64_t bytes; /* of its input the environment has */
};

struct entry_job_list {
	struct entry_head head;
	uint32_t n, reserved; /* struct entry_job_known follow, at most ENTRY_JOBS_MAX */
};
struct entry_job_known {
	char job[ENTRY_JOB_MAX + 1];
	uint64_t stdout_bytes, stderr_bytes;
	uint32_t pid;
	uint32_t running;
};

struct entry_process {
	uint32_t length; /* with argv, multiple of 8 */
	uint32_t pid, ppid;
	uint32_t argv_len; /* bytes follow: arguments, each ended by NUL; cut at ENTRY_ARGV_MAX */
	char job[ENTRY_JOB_MAX + 1];
	char state[8];
	uint64_t memory_bytes;
	int64_t started_ns;
};
struct entry_ps_done {
	struct entry_head head;
	uint64_t request;
	uint32_t n, reserved; /* at most ENTRY_PROCESSES_MAX; of more the rest is left out */
};

/* ---- reading ---- */

/* Length of the entry at the head of n bytes at p; 0: it is not whole yet; -EBADMSG. */
ssize_t entry_whole(const void *p, size_t n);
/* Judges a whole entry of either direction: -EBADMSG, *ret_why (static text) says what. */
int entry_check(const struct entry_head *e, const char **ret_why);

/* What follows the struct of an entry that was checked, in order. */
struct entry_cursor {
	const uint8_t *p;
	uint32_t left; /* parts */
};
void entry_cursor_init(struct entry_cursor *c, const struct entry_head *e);
bool entry_next_op(struct entry_cursor *c, struct change_op *ret); /* CHANGE */
bool entry_next_tree(struct entry_cursor *c, const struct entry_tree_entry **ret, const char **name,
		     struct node *ret_node); /* TREE_PART */
bool entry_next_unsettled(struct entry_cursor *c, const struct entry_unsettled **ret,
			  const char **path); /* BARRIER_DONE, JOB_EXIT */
bool entry_next_reason(struct entry_cursor *c, const struct entry_reason **ret, const char **detail,
		       const char **path); /* STATUS */
bool entry_next_unsupported(struct entry_cursor *c, const struct entry_unsupported **ret,
			    const char **path, const char **field); /* RESTORED */
bool entry_next_ignore(struct entry_cursor *c, const struct entry_ignore_file **ret,
		       const char **dir, const char **text); /* IGNORES */
bool entry_next_process(struct entry_cursor *c, const struct entry_process **ret,
			const char **argv); /* PS_DONE */

/* The bytes right behind the struct: a text, a detail, job output, frames to send;
 * arrays: struct entry_place, struct entry_job_known, struct entry_pull_node, hashes. */
#define entry_tail(e) ((const void *)((e) + 1))

/* ---- making ---- */

/* One entry with one variable part (NULL: none); fills in the head of a copy of e. */
int entry_add(struct buf *b, uint16_t type, const void *e, size_t size, const void *tail,
	      size_t tail_len);

/* Or piece by piece: begin, parts, end. end() pads and writes the head; -E2BIG above
 * ENTRY_MAX. After any failure entry_drop() takes the whole entry out again. */
int entry_begin(struct buf *b, uint16_t type, const void *e, size_t size, size_t *ret_at);
int entry_end(struct buf *b, size_t at);
void entry_drop(struct buf *b, size_t at);
/* A struct and up to two variable parts behind it, padded to 8. */
int entry_add_part(struct buf *b, const void *part, size_t size, const void *x, size_t x_len,
		   const void *y, size_t y_len);
int entry_add_op(struct buf *b, const struct change_op *op);
/* e: number, parent, same_as and error filled in; the rest comes from name and n. */
int entry_add_tree(struct buf *b, const struct entry_tree_entry *e, const char *name,
		   size_t name_len, const struct node *n, bool has_content);

#endif
