/*
 * entry.h - what limb-ingest and limbd say to each other over their socket:
 * bounded entries of fixed layout in host byte order (one machine, one build).
 *
 * limb-ingest alone parses what an environment sends; limbd gets these structs,
 * each with a head that names its type and whole length (at most ENTRY_MAX).
 * Variable parts follow the struct, their lengths in it; entry_*_ok() in entry.c
 * checks that they add up, and is the whole of limbd's parsing.
 *
 * limbd to limb-ingest: ENTRY_SEND carries ready wire frames, which limb-ingest
 * passes on unread; ENTRY_PACK hands over the descriptor of a fresh pack
 * (SCM_RIGHTS) and with it "finish the one before".  ENTRY_SEED lists contents
 * that this environment has stored before, which need no storing again.
 *
 * limb-ingest to limbd: ENTRY_PLACES (frames written to the pack: hash, offset)
 * always come before the ENTRY_CHANGE that needs them.
 */
#ifndef BRAIN_ENTRY_H
#define BRAIN_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"

#define ENTRY_MAX (2u << 20)
#define ENTRY_TEXT_MAX 512 /* details, reasons */
#define ENTRY_PATH_MAX (64u << 10)
#define ENTRY_JOB_MAX 63

enum entry_type {
	/* limbd -> limb-ingest */
	ENTRY_SEND = 1, /* bytes of wire frames follow */
	ENTRY_PACK = 2, /* struct entry_pack, one descriptor */
	ENTRY_SEED = 3, /* hashes of 32 bytes follow */
	ENTRY_STOP = 4,
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
	ENTRY_PACK_FULL = 33, /* struct entry_pack_full: the pack is at its seal size, send another */
	ENTRY_HOSTILE = 34,   /* struct entry_text: what rule was broken; limb-ingest ends */
	ENTRY_PONG = 35,
};

struct entry_head {
	uint32_t length; /* of the whole entry, head included, a multiple of 8 */
	uint16_t type;
	uint16_t reserved;
};

struct entry_pack {
	struct entry_head head;
	uint8_t pack_id[16];
	uint64_t offset; /* where frames begin */
	uint64_t seal_bytes;
	uint32_t zstd_level;
	uint32_t reserved;
};

struct entry_pack_full {
	struct entry_head head;
	uint64_t length;
};

/* A text of `len` bytes follows (not NUL-terminated, UTF-8 not promised). */
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
	uint32_t reserved;
	/* struct entry_op follow */
};

/* Paths follow: u32 length, u64 size, i64 since, bytes, padded to 8, each. */
struct entry_unsettled {
	uint32_t len; /* of the path */
	uint32_t reserved;
	uint64_t size_bytes;
	int64_t since_ns;
};
struct entry_barrier_done {
	struct entry_head head;
	uint64_t request, number;
	uint32_t quiet, n_unsettled; /* at most 100 */
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
	uint32_t n_reasons, reserved2; /* at most 32 struct entry_reason follow */
};

struct entry_tree_get {
	struct entry_head head;
	uint64_t request;
};

struct entry_tree_entry {
	uint32_t length; /* with its variable parts, multiple of 8 */
	uint32_t same_as;
	uint64_t node, parent;
	uint32_t error;
	uint16_t name_len, reserved;
	struct entry_attr attr;
	/* name, target, xattrs */
};
struct entry_tree_part {
	struct entry_head head;
	uint64_t request;
	uint32_t n, last;
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
	uint32_t n, reserved; /* u64 node ids follow, at most 256 */
};

struct entry_restored {
	struct entry_head head;
	uint64_t request, files, bytes;
	int32_t error;
	uint32_t detail_len;	/* follows, padded to 8 */
	uint32_t n_unsupported; /* at most 1000: u16 path length, u16 field length, path, field, padded to 8 */
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
	uint32_t detail_len;  /* JOB_STARTED: follows */
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

struct entry_job_list {
	struct entry_head head;
	uint32_t n, reserved; /* struct entry_job_known follow, at most 4096 */
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
	uint32_t argv_len; /* bytes follow: arguments, each ended by NUL; cut at 4096 */
	char job[ENTRY_JOB_MAX + 1];
	char state[8];
	uint64_t memory_bytes;
	int64_t started_ns;
};
struct entry_ps_done {
	struct entry_head head;
	uint64_t request;
	uint32_t n, reserved; /* at most 4096 */
};

#endif
