#include "wire/frame.h"

#include <assert.h>
#include <lz4.h>
#include <stdio.h>
#include <zstd.h>

#include "wire/wire.pb-c.h"

/* A frame at its limits, and what one read may bring beside it. */
enum {
	FRAME_MAX = WIRE_HEADER_BYTES + WIRE_BODY_MAX + WIRE_BULK_MAX,
	PACKED_HEAD_BYTES = 4,
	ZSTD_LEVEL = 3,
	SKIPPED_TYPES = 0x80,
	/* Below this it gains nothing that is worth its time. */
	COMPRESS_MIN = 128,
};

struct header {
	uint8_t type, flags;
	uint32_t body_len, bulk_len;
};

static const char *const type_names[] = {
	[WIRE_HELLO] = "HELLO",
	[WIRE_WELCOME] = "WELCOME",
	[WIRE_PING] = "PING",
	[WIRE_PONG] = "PONG",
	[WIRE_ERROR] = "ERROR",
	[WIRE_BYE] = "BYE",
	[WIRE_CHANGE] = "CHANGE",
	[WIRE_DATA] = "DATA",
	[WIRE_DURABLE] = "DURABLE",
	[WIRE_BARRIER] = "BARRIER",
	[WIRE_BARRIER_DONE] = "BARRIER_DONE",
	[WIRE_STATUS] = "STATUS",
	[WIRE_TREE_GET] = "TREE_GET",
	[WIRE_TREE_PART] = "TREE_PART",
	[WIRE_ACCEPT] = "ACCEPT",
	[WIRE_ACCEPTED] = "ACCEPTED",
	[WIRE_APPLY] = "APPLY",
	[WIRE_APPLIED] = "APPLIED",
	[WIRE_PULL] = "PULL",
	[WIRE_PULL_DATA] = "PULL_DATA",
	[WIRE_RESTORE] = "RESTORE",
	[WIRE_RESTORED] = "RESTORED",
	[WIRE_DATA_DONE] = "DATA_DONE",
	[WIRE_IGNORES] = "IGNORES",
	[WIRE_SETTINGS] = "SETTINGS",
	[WIRE_JOB_START] = "JOB_START",
	[WIRE_JOB_STARTED] = "JOB_STARTED",
	[WIRE_JOB_OUTPUT] = "JOB_OUTPUT",
	[WIRE_JOB_ACK] = "JOB_ACK",
	[WIRE_JOB_INPUT] = "JOB_INPUT",
	[WIRE_JOB_SIGNAL] = "JOB_SIGNAL",
	[WIRE_JOB_EXIT] = "JOB_EXIT",
	[WIRE_JOB_FORGET] = "JOB_FORGET",
	[WIRE_JOB_LIST] = "JOB_LIST",
	[WIRE_PS] = "PS",
	[WIRE_PS_DONE] = "PS_DONE",
	[WIRE_FREEZE] = "FREEZE",
	[WIRE_FROZEN] = "FROZEN",
	[WIRE_JOB_INPUT_HAD] = "JOB_INPUT_HAD",
	[WIRE_PUSH] = "PUSH",
};

static const char *known_name(uint8_t type)
{
	return type < ARRAY_SIZE(type_names) ? type_names[type] : NULL;
}

const char *wframe_type_name(uint8_t type)
{
	static _Thread_local char unknown[16];

	if (known_name(type))
		return known_name(type);
	(void)snprintf(unknown, sizeof(unknown), "frame %u", type);
	return unknown;
}

void wframe_decoder_init(struct wframe_decoder *d)
{
	*d = (struct wframe_decoder){
		.in = BUF_INIT(FRAME_MAX + WIRE_READ_MAX),
		.bulk = BUF_INIT(WIRE_BULK_MAX),
	};
}

void wframe_decoder_done(struct wframe_decoder *d)
{
	if (!d)
		return;
	buf_done(&d->in);
	buf_done(&d->bulk);
	d->used = 0;
}

void wframe_decoder_trim(struct wframe_decoder *d)
{
	buf_consume(&d->in, d->used);
	d->used = 0;
	if (buf_len(&d->in) == 0)
		buf_done(&d->in);
	buf_done(&d->bulk);
}

int wframe_decoder_reserve(struct wframe_decoder *d, size_t n, uint8_t **ret)
{
	buf_consume(&d->in, d->used);
	d->used = 0;
	return buf_reserve(&d->in, n, ret);
}

void wframe_decoder_commit(struct wframe_decoder *d, size_t n)
{
	buf_commit(&d->in, n);
}

static int fail(struct wframe_decoder *d, int r)
{
	d->error = r;
	return r;
}

/* Drops bytes before the start mark; d->noise is their number, so whether a mark comes too
 * late does not depend on how the bytes were fed. */
static int find_start(struct wframe_decoder *d)
{
	const uint8_t *p = buf_data(&d->in), *mark;
	size_t n = buf_len(&d->in), skip;

	mark = n < WIRE_START_BYTES ? NULL : memmem(p, n, WIRE_START, WIRE_START_BYTES);
	if (mark)
		skip = (size_t)(mark - p);
	else
		skip = n < WIRE_START_BYTES ? 0 : n - (WIRE_START_BYTES - 1);
	d->noise += skip;
	if (d->noise > WIRE_NOISE_MAX)
		return fail(d, -EPROTO);
	if (!mark) {
		buf_consume(&d->in, skip);
		return 0;
	}
	buf_consume(&d->in, skip + WIRE_START_BYTES);
	d->started = true;
	return 1;
}

static int parse_header(const uint8_t *p, struct header *ret)
{
	ret->type = p[0];
	ret->flags = p[1];
	ret->body_len = get_le32(p + 4);
	ret->bulk_len = get_le32(p + 8);
	if (ret->body_len > WIRE_BODY_MAX || ret->bulk_len > WIRE_BULK_MAX)
		return -E2BIG;
	if (ret->type >= SKIPPED_TYPES)
		return 0;
	if (!known_name(ret->type))
		return -EPROTONOSUPPORT;
	if (ret->flags > WIRE_FLAG_ZSTD || get_le16(p + 2) != 0 || get_le32(p + 12) != 0)
		return -EBADMSG;
	return 0;
}

static bool unpack(uint8_t flags, const uint8_t *p, size_t n, uint8_t *out, uint32_t raw)
{
	if (flags == WIRE_FLAG_LZ4)
		return LZ4_decompress_safe((const char *)p, (char *)out, (int)n, (int)raw) ==
		       (int)raw;
	return ZSTD_decompress(out, raw, p, n) == raw;
}

static int decompress(struct wframe_decoder *d, uint8_t flags, const uint8_t *p, uint32_t n,
		      uint32_t *ret_n)
{
	uint32_t raw;
	uint8_t *out;
	int r;

	if (n < PACKED_HEAD_BYTES)
		return -EBADMSG;
	raw = get_le32(p);
	if (raw == 0)
		return -EBADMSG;
	buf_clear(&d->bulk);
	r = buf_reserve(&d->bulk, raw, &out); /* -E2BIG above WIRE_BULK_MAX */
	if (r < 0)
		return r;
	if (!unpack(flags, p + PACKED_HEAD_BYTES, n - PACKED_HEAD_BYTES, out, raw))
		return -EBADMSG;
	buf_commit(&d->bulk, raw);
	*ret_n = raw;
	return 0;
}

int wframe_decoder_next(struct wframe_decoder *d, struct wframe *ret)
{
	struct wframe f;
	struct header h;
	const uint8_t *p;
	int r;

	if (d->error < 0)
		return d->error;
	buf_consume(&d->in, d->used);
	d->used = 0;
	if (!d->started) {
		r = find_start(d);
		if (r <= 0)
			return r;
	}
	for (;;) {
		size_t total;

		if (buf_len(&d->in) < WIRE_HEADER_BYTES)
			return 0;
		p = buf_data(&d->in);
		r = parse_header(p, &h);
		if (r < 0)
			return fail(d, r);
		total = WIRE_HEADER_BYTES + (size_t)h.body_len + h.bulk_len;
		if (buf_len(&d->in) < total)
			return 0;
		if (h.type < SKIPPED_TYPES) {
			d->used = total;
			break;
		}
		buf_consume(&d->in, total);
	}

	p += WIRE_HEADER_BYTES;
	f = (struct wframe){
		.type = h.type,
		.body = p,
		.body_len = h.body_len,
		.bulk = p + h.body_len,
		.bulk_len = h.bulk_len,
	};
	if (h.flags) {
		r = decompress(d, h.flags, f.bulk, h.bulk_len, &f.bulk_len);
		if (r < 0)
			return fail(d, r);
		f.bulk = buf_data(&d->bulk);
	}
	*ret = f;
	return 1;
}

/* Length of the form written at out, its head included; 0 when it would not be smaller. */
static size_t try_compress(enum wire_compress how, uint8_t *out, const void *bulk, size_t n)
{
	size_t room, got;
	int r;

	if (n < COMPRESS_MIN)
		return 0;
	room = n - PACKED_HEAD_BYTES - 1;
	put_le32(out, (uint32_t)n);
	out += PACKED_HEAD_BYTES;
	if (how == WIRE_ZSTD) {
		got = ZSTD_compress(out, room, bulk, n, ZSTD_LEVEL);
		return ZSTD_isError(got) ? 0 : got + PACKED_HEAD_BYTES;
	}
	r = LZ4_compress_default(bulk, (char *)out, (int)n, (int)room);
	return r <= 0 ? 0 : (size_t)r + PACKED_HEAD_BYTES;
}

int wframe_encode(struct buf *out, uint8_t type, const void *body, size_t body_len,
		  const void *bulk, size_t bulk_len, enum wire_compress compress)
{
	size_t stored = 0;
	uint8_t *p;
	int r;

	if (body_len > WIRE_BODY_MAX || bulk_len > WIRE_BULK_MAX)
		return -E2BIG;
	r = buf_reserve(out, WIRE_HEADER_BYTES + body_len + bulk_len, &p);
	if (r < 0)
		return r;
	memset(p, 0, WIRE_HEADER_BYTES);
	p[0] = type;
	put_le32(p + 4, (uint32_t)body_len);
	if (body_len)
		memcpy(p + WIRE_HEADER_BYTES, body, body_len);
	if (compress)
		stored = try_compress(compress, p + WIRE_HEADER_BYTES + body_len, bulk, bulk_len);
	if (stored) {
		p[1] = (uint8_t)compress;
	} else {
		stored = bulk_len;
		if (bulk_len)
			memcpy(p + WIRE_HEADER_BYTES + body_len, bulk, bulk_len);
	}
	put_le32(p + 8, (uint32_t)stored);
	buf_commit(out, WIRE_HEADER_BYTES + body_len + stored);
	return 0;
}

int wframe_pack(struct buf *out, enum wire_type type, const ProtobufCMessage *msg, const void *bulk,
		size_t bulk_len, enum wire_compress compress)
{
	cleanup_free uint8_t *body = NULL;
	size_t n = msg ? protobuf_c_message_get_packed_size(msg) : 0;

	if (n > WIRE_BODY_MAX)
		return -E2BIG;
	body = malloc(n ? n : 1);
	if (!body)
		return -ENOMEM;
	if (msg)
		(void)protobuf_c_message_pack(msg, body);
	return wframe_encode(out, (uint8_t)type, body, n, bulk, bulk_len, compress);
}

int wframe_pack_tree(struct buf *out, const Limbwire__TreePart *part)
{
	Limbwire__TreePart outer = LIMBWIRE__TREE_PART__INIT, inner = LIMBWIRE__TREE_PART__INIT;
	cleanup_free uint8_t *bulk = NULL;
	size_t n;

	inner.entries = part->entries;
	inner.n_entries = part->n_entries;
	n = limbwire__tree_part__get_packed_size(&inner);
	bulk = malloc(n ? n : 1);
	if (!bulk)
		return -ENOMEM;
	(void)limbwire__tree_part__pack(&inner, bulk);
	outer.request = part->request;
	outer.last = part->last;
	outer.in_bulk = true;
	return wframe_pack(out, WIRE_TREE_PART, &outer.base, bulk, n, WIRE_ZSTD);
}

int wframe_unpack_tree(const Limbwire__TreePart *part, const void *bulk, size_t n,
		       ProtobufCAllocator *allocator, Limbwire__TreePart **ret)
{
	Limbwire__TreePart *inner;

	*ret = NULL;
	if (!part->in_bulk)
		return n ? -EBADMSG : 0;
	inner = limbwire__tree_part__unpack(allocator, n, bulk);
	if (!inner || part->n_entries || inner->in_bulk) {
		if (inner)
			limbwire__tree_part__free_unpacked(inner, allocator);
		return -EBADMSG;
	}
	inner->request = part->request;
	inner->last = part->last;
	*ret = inner;
	return 0;
}
