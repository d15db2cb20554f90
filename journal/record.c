#include "journal/record.h"

#include <assert.h>
#include <string.h>

#include "base/util.h"

enum {
	CHECK_BYTES = 8,
	CHECK_OFFSET = 120, /* in both headers */
	CHAINED_BYTES = 64, /* of a record's header */
};

static const uint8_t segment_magic[8] = "LIMBLOG\n";
static const uint8_t record_magic[4] = "LREC";

static const char *const type_names[] = {
	[RECORD_GENESIS] = "genesis",	    [RECORD_INCARNATION] = "incarnation",
	[RECORD_CHANGE] = "change",	    [RECORD_JOB_START] = "job_start",
	[RECORD_JOB_END] = "job_end",	    [RECORD_POINT] = "point",
	[RECORD_STATE] = "state",	    [RECORD_DECISION] = "decision",
	[RECORD_CONFLICT] = "conflict",	    [RECORD_UNAPPLIED] = "unapplied",
	[RECORD_PURGE] = "purge",	    [RECORD_GC] = "gc",
	[RECORD_LEASE] = "lease",	    [RECORD_ENVIRONMENT] = "environment",
	[RECORD_PRINCIPAL] = "principal",   [RECORD_POLICY] = "policy",
	[RECORD_APPROVAL] = "approval",	    [RECORD_TASK] = "task",
	[RECORD_AUDIT] = "audit",	    [RECORD_INTENT] = "intent",
	[RECORD_INTENT_END] = "intent_end", [RECORD_IGNORE] = "ignore",
};

const char *record_type_name(uint16_t type)
{
	if (type >= ARRAY_SIZE(type_names) || !type_names[type])
		return "unknown";
	return type_names[type];
}

static void check_put(uint8_t *header)
{
	uint8_t hash[SHA256_BYTES];

	sha256(header, CHECK_OFFSET, hash);
	memcpy(header + CHECK_OFFSET, hash, CHECK_BYTES);
}

static bool check_ok(const uint8_t *header)
{
	uint8_t hash[SHA256_BYTES];

	sha256(header, CHECK_OFFSET, hash);
	return memcmp(header + CHECK_OFFSET, hash, CHECK_BYTES) == 0;
}

void segment_header_seal(const struct segment_header *h, uint8_t out[SEGMENT_HEADER_BYTES])
{
	memset(out, 0, SEGMENT_HEADER_BYTES);
	memcpy(out, segment_magic, sizeof(segment_magic));
	put_le32(out + 8, RECORD_VERSION);
	put_le32(out + 12, SEGMENT_HEADER_BYTES);
	memcpy(out + 16, h->log_id, sizeof(h->log_id));
	memcpy(out + 32, h->brain_id, sizeof(h->brain_id));
	put_le64(out + 48, h->term);
	put_le64(out + 56, h->first_seq);
	memcpy(out + 64, h->chain, SHA256_BYTES);
	put_le64(out + 96, (uint64_t)h->time_ns);
	put_le64(out + 104, h->tag);
	put_le64(out + 112, h->before_first_seq);
	check_put(out);
}

int segment_header_parse(const uint8_t in[SEGMENT_HEADER_BYTES], struct segment_header *ret)
{
	if (memcmp(in, segment_magic, sizeof(segment_magic)) != 0 || !check_ok(in))
		return -EBADMSG;
	if (get_le32(in + 8) != RECORD_VERSION)
		return -EPROTONOSUPPORT;
	if (get_le32(in + 12) != SEGMENT_HEADER_BYTES || get_le64(in + 56) == 0)
		return -EBADMSG;

	memcpy(ret->log_id, in + 16, sizeof(ret->log_id));
	memcpy(ret->brain_id, in + 32, sizeof(ret->brain_id));
	ret->term = get_le64(in + 48);
	ret->first_seq = get_le64(in + 56);
	memcpy(ret->chain, in + 64, SHA256_BYTES);
	ret->time_ns = (int64_t)get_le64(in + 96);
	ret->tag = get_le64(in + 104);
	ret->before_first_seq = get_le64(in + 112);
	return 0;
}

size_t record_size(uint32_t body_len)
{
	return RECORD_HEADER_BYTES + ALIGN_UP((size_t)body_len, 8);
}

static void chain_hash(const uint8_t before[SHA256_BYTES], const uint8_t *header,
		       uint8_t out[SHA256_BYTES])
{
	uint8_t both[SHA256_BYTES + CHAINED_BYTES];

	memcpy(both, before, SHA256_BYTES);
	memcpy(both + SHA256_BYTES, header, CHAINED_BYTES);
	sha256(both, sizeof(both), out);
}

/* The part of the header that the chain covers. */
static void put_chained(const struct record_header *h, uint8_t out[CHAINED_BYTES])
{
	memcpy(out, record_magic, sizeof(record_magic));
	out[4] = RECORD_VERSION;
	out[5] = 0;
	put_le16(out + 6, h->type);
	put_le32(out + 8, h->body_len);
	put_le32(out + 12, 0);
	put_le64(out + 16, h->seq);
	put_le64(out + 24, (uint64_t)h->time_ns);
	memcpy(out + 32, h->body_hash, SHA256_BYTES);
}

void record_header_seal(struct record_header *h, const uint8_t chain_before[SHA256_BYTES],
			const void *salted_body, uint8_t out[RECORD_HEADER_BYTES])
{
	assert(h->body_len >= RECORD_SALT_BYTES && h->body_len <= RECORD_BODY_MAX);
	assert(h->seq > 0);

	sha256(salted_body, h->body_len, h->body_hash);
	put_chained(h, out);
	chain_hash(chain_before, out, h->chain);
	memcpy(out + 64, h->chain, SHA256_BYTES);
	put_le64(out + 96, h->durable_seq);
	put_le64(out + 104, h->tag);
	put_le64(out + 112, 0);
	check_put(out);
}

bool record_magic_ok(const uint8_t *in)
{
	return memcmp(in, record_magic, sizeof(record_magic)) == 0;
}

enum record_verdict record_header_parse(const uint8_t in[RECORD_HEADER_BYTES],
					struct record_header *ret)
{
	if (get_le32(in) == 0)
		return RECORD_END;
	if (!record_magic_ok(in) || !check_ok(in))
		return RECORD_DAMAGED;
	if (in[4] != RECORD_VERSION)
		return RECORD_NEWER;

	ret->type = get_le16(in + 6);
	ret->body_len = get_le32(in + 8);
	ret->seq = get_le64(in + 16);
	ret->time_ns = (int64_t)get_le64(in + 24);
	memcpy(ret->body_hash, in + 32, SHA256_BYTES);
	memcpy(ret->chain, in + 64, SHA256_BYTES);
	ret->durable_seq = get_le64(in + 96);
	ret->tag = get_le64(in + 104);
	if (ret->seq == 0 || ret->body_len < RECORD_SALT_BYTES || ret->body_len > RECORD_BODY_MAX)
		return RECORD_DAMAGED;
	return RECORD_OK;
}

bool record_chain_ok(const struct record_header *h, const uint8_t chain_before[SHA256_BYTES])
{
	uint8_t chained[CHAINED_BYTES], chain[SHA256_BYTES];

	put_chained(h, chained);
	chain_hash(chain_before, chained, chain);
	return memcmp(chain, h->chain, SHA256_BYTES) == 0;
}

bool record_body_ok(const struct record_header *h, const void *salted_body)
{
	uint8_t hash[SHA256_BYTES];

	sha256(salted_body, h->body_len, hash);
	return memcmp(hash, h->body_hash, SHA256_BYTES) == 0;
}
