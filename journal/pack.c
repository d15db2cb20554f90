#include "journal/pack.h"

#include <zstd.h>

#include "journal/pack-format.h"

/* At level 1 the tables are made to stay in the nearest cache, and short matches are not looked
 * for: a quarter less time for 3 (sources) to 8 (words at random) per cent more bytes. */
enum { FAST_LEVEL = 1, FAST_HASH_LOG = 13, FAST_MIN_MATCH = 6 };

/* What saves less than this part is stored as it is: reading it costs more. */
#define GAIN_MIN_PART 32

void pack_header_seal(const struct pack_header *h, uint8_t out[PACK_HEADER_BYTES])
{
	memset(out, 0, PACK_HEADER_BYTES);
	memcpy(out, PACK_MAGIC, 8);
	put_le32(out + 8, PACK_VERSION);
	put_le32(out + 12, PACK_HEADER_BYTES);
	memcpy(out + 16, h->pack_id, 16);
	memcpy(out + 32, h->env_id, 16);
	put_check(out, 56, out + 56);
}

struct frame_builder {
	ZSTD_CCtx *zstd;
	size_t n_raw, n_members;
	struct frame_member members[FRAME_MEMBERS_MAX];
	bool finished; /* the frame is lent: the next add starts another */
	uint8_t *raw;  /* FRAME_RAW_MAX */
	uint8_t *out;  /* header, table, payload, padding */
};

#define OUT_BYTES (FRAME_HEADER_BYTES + FRAME_MEMBERS_MAX * FRAME_MEMBER_BYTES + FRAME_RAW_MAX + 8)

static bool set_level(ZSTD_CCtx *zstd, int level)
{
	if (ZSTD_isError(ZSTD_CCtx_setParameter(zstd, ZSTD_c_compressionLevel, level)))
		return false;
	return level != FAST_LEVEL ||
	       (!ZSTD_isError(ZSTD_CCtx_setParameter(zstd, ZSTD_c_hashLog, FAST_HASH_LOG)) &&
		!ZSTD_isError(ZSTD_CCtx_setParameter(zstd, ZSTD_c_minMatch, FAST_MIN_MATCH)));
}

int frame_builder_new(int zstd_level, struct frame_builder **ret)
{
	_cleanup_(frame_builder_freep) struct frame_builder *fb = calloc(1, sizeof(*fb));

	if (!fb)
		return -ENOMEM;
	fb->raw = malloc(FRAME_RAW_MAX);
	fb->out = malloc(OUT_BYTES);
	fb->zstd = ZSTD_createCCtx();
	if (!fb->raw || !fb->out || !fb->zstd)
		return -ENOMEM;
	if (!set_level(fb->zstd, zstd_level))
		return -EINVAL;
	*ret = take_ptr(&fb);
	return 0;
}

void frame_builder_free(struct frame_builder *fb)
{
	if (!fb)
		return;
	(void)ZSTD_freeCCtx(fb->zstd);
	free(fb->raw);
	free(fb->out);
	free(fb);
}

static void drop_finished(struct frame_builder *fb)
{
	if (!fb->finished)
		return;
	fb->finished = false;
	fb->n_raw = 0;
	fb->n_members = 0;
}

int frame_builder_add(struct frame_builder *fb, enum frame_kind kind,
		      const uint8_t hash[SHA256_BYTES], const void *data, size_t n)
{
	struct frame_member *m;

	drop_finished(fb);
	if (n == 0 || n > FRAME_RAW_MAX || (kind != FRAME_CHUNK && kind != FRAME_LIST))
		return -EINVAL;
	/* A large content beside small ones would make each of them dear to read. */
	if (fb->n_members == FRAME_MEMBERS_MAX ||
	    (fb->n_members > 0 && fb->n_raw + n > 2 * FRAME_TARGET))
		return -E2BIG;

	m = &fb->members[fb->n_members++];
	memcpy(m->hash, hash, SHA256_BYTES);
	m->len = (uint32_t)n;
	m->kind = (uint8_t)kind;
	memcpy(fb->raw + fb->n_raw, data, n);
	fb->n_raw += n;
	return fb->n_raw >= FRAME_TARGET || fb->n_members == FRAME_MEMBERS_MAX;
}

bool frame_builder_empty(const struct frame_builder *fb)
{
	return fb->finished || fb->n_members == 0;
}

/* Writes the payload; returns its length as stored. */
static size_t put_payload(struct frame_builder *fb, uint8_t *out, enum codec *ret_codec)
{
	size_t room = fb->n_raw - fb->n_raw / GAIN_MIN_PART;
	size_t n = ZSTD_compress2(fb->zstd, out, room, fb->raw, fb->n_raw);

	if (!ZSTD_isError(n) && n < fb->n_raw) {
		*ret_codec = CODEC_ZSTD;
		return n;
	}
	/* No room: it does not shrink enough. */
	memcpy(out, fb->raw, fb->n_raw);
	*ret_codec = CODEC_STORED;
	return fb->n_raw;
}

int frame_builder_finish(struct frame_builder *fb, struct frame *ret)
{
	size_t table = fb->n_members * FRAME_MEMBER_BYTES, stored, total;
	uint8_t *h = fb->out, *p = fb->out + FRAME_HEADER_BYTES;
	enum codec codec;

	if (frame_builder_empty(fb))
		return -ENODATA;
	for (size_t i = 0; i < fb->n_members; i++, p += FRAME_MEMBER_BYTES) {
		memset(p, 0, FRAME_MEMBER_BYTES);
		memcpy(p, fb->members[i].hash, SHA256_BYTES);
		put_le32(p + 32, fb->members[i].len);
		p[36] = fb->members[i].kind;
	}
	stored = put_payload(fb, p, &codec);
	total = ALIGN_UP(FRAME_HEADER_BYTES + table + stored, 8);
	memset(p + stored, 0, total - (FRAME_HEADER_BYTES + table + stored));

	memset(h, 0, FRAME_HEADER_BYTES);
	memcpy(h, FRAME_MAGIC, 4);
	h[4] = FRAME_VERSION;
	h[5] = (uint8_t)codec;
	put_le16(h + 6, (uint16_t)fb->n_members);
	put_le32(h + 8, (uint32_t)stored);
	put_le32(h + 12, (uint32_t)fb->n_raw);
	put_check(h + FRAME_HEADER_BYTES, table, h + 16);
	put_check(h, 32, h + 32);

	fb->finished = true;
	*ret = (struct frame){
		.bytes = fb->out,
		.n = total,
		.members = fb->members,
		.n_members = fb->n_members,
	};
	return 0;
}
