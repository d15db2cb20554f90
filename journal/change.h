/*
 * change.h - a change as values: the operations of one CHANGE record, and
 * their protobuf form.
 *
 * limbd fills a struct change from what limb-ingest hands it, packs it into a
 * record's body, appends that to the log and applies it to the index; a rebuild
 * of the index unpacks the same bodies.  Both ways give the index the same
 * values.
 */
#ifndef JOURNAL_CHANGE_H
#define JOURNAL_CHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "journal/node.h"

enum change_op_kind { CHANGE_PUT = 1, CHANGE_LINK = 2, CHANGE_UNLINK = 3, CHANGE_MOVE = 4 };

/* As record.proto's Origin and Evidence. */
enum change_origin {
	ORIGIN_ENVIRONMENT_ = 1,
	ORIGIN_VIEW_ = 2,
	ORIGIN_BRAIN_ = 3,
	ORIGIN_RESTORE_ = 4,
	ORIGIN_MERGE_ = 5,
};
const char *change_origin_name(int origin); /* environment view brain restore merge */

enum change_evidence {
	EVIDENCE_NONE_ = 0,
	EVIDENCE_ABSENT_ = 1,
	EVIDENCE_REPLACED_ = 2,
	EVIDENCE_ASKED_ = 3,
	EVIDENCE_ACCEPTED_ = 4,
};

#define CHANGE_OPS_MAX 64
#define CHANGE_ID_MAX 255 /* bytes of principal, job, task */

struct change_op {
	uint8_t kind;
	uint8_t evidence; /* UNLINK */
	bool has_content; /* PUT: node.content is new; else the content stays */
	uint64_t node;
	uint64_t parent, to_parent;
	const char *name, *to_name; /* bytes, not NUL-terminated; lent */
	uint16_t name_len, to_name_len;
	uint64_t base_version;
	struct node attr; /* PUT */
};

struct change {
	uint64_t incarnation, number;
	uint8_t origin;
	const char *principal, *job, *task; /* NULL = none; lent */
	uint64_t base_seq;
	int64_t origin_time_ns;
	struct change_op *ops; /* lent */
	size_t n_ops;
};

/* Are all values within their limits, by themselves (names by beneath_name_ok, types,
 * modes, targets, xattrs, counts)? 0 or -EINVAL and, unless NULL, *ret_why a constant
 * sentence. Whether the tree can take it is index_check_change()'s to say. */
int change_judge(const struct change *c, const char **ret_why);
const char *change_judge_attr(const struct node *n); /* the same for one node; NULL = fine */

/* Appends the record body (protobuf `Record` with `change`). -EINVAL as change_judge. */
int change_pack(const struct change *c, struct buf *body);

/* The values of a CHANGE record's body. Owns everything inside; judged as by
 * change_judge; -EBADMSG. What a hostile body can make it allocate is bounded by a
 * small multiple of the body's length. */
struct change_unpacked;
int change_unpack(const uint8_t *body, size_t n, struct change_unpacked **ret);
const struct change *change_unpacked_get(const struct change_unpacked *u);
void change_unpacked_free(struct change_unpacked *u);
DEFINE_CLEANUP(struct change_unpacked, change_unpacked_free);

#endif
