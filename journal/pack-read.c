#include "journal/pack.h"

#include <pthread.h>
#include <sys/stat.h>
#include <zstd.h>

#include "base/io.h"
#include "journal/pack-format.h"

#define TABLE_BYTES_MAX (FRAME_MEMBERS_MAX * FRAME_MEMBER_BYTES)
/* Read at once with a header: most frames' tables fit. */
#define HEAD_BYTES 2048

int pack_header_parse(const uint8_t in[PACK_HEADER_BYTES], struct pack_header *ret)
{
	if (memcmp(in, PACK_MAGIC, 8) != 0 || !check_ok(in, 56, in + 56))
		return -EBADMSG;
	if (get_le32(in + 8) != PACK_VERSION || get_le32(in + 12) != PACK_HEADER_BYTES)
		return -EPROTONOSUPPORT;
	memcpy(ret->pack_id, in + 16, 16);
	memcpy(ret->env_id, in + 32, 16);
	return 0;
}

int frame_header_parse(const uint8_t in[FRAME_HEADER_BYTES], struct frame_info *ret)
{
	static const uint8_t zeros[FRAME_HEADER_BYTES];
	struct frame_info info;

	if (memcmp(in, zeros, sizeof(zeros)) == 0)
		return -ENODATA;
	if (memcmp(in, FRAME_MAGIC, 4) != 0 || !check_ok(in, 32, in + 32))
		return -EBADMSG;
	if (in[4] != FRAME_VERSION)
		return -EPROTONOSUPPORT;
	info.codec = in[5];
	info.n_members = get_le16(in + 6);
	info.stored_len = get_le32(in + 8);
	info.raw_len = get_le32(in + 12);
	if (info.n_members == 0 || info.n_members > FRAME_MEMBERS_MAX || info.raw_len == 0 ||
	    info.raw_len > FRAME_RAW_MAX || info.stored_len == 0)
		return -EBADMSG;
	switch (info.codec) {
	case CODEC_STORED:
		if (info.stored_len != info.raw_len)
			return -EBADMSG;
		break;
	case CODEC_ZSTD:
		if (info.stored_len >= info.raw_len)
			return -EBADMSG;
		break;
	default: return -EBADMSG;
	}
	info.total = (uint32_t)ALIGN_UP(
		FRAME_HEADER_BYTES + info.n_members * FRAME_MEMBER_BYTES + info.stored_len, 8u);
	*ret = info;
	return 0;
}

/* ---- per-thread memory of readers ---- */

struct scratch {
	ZSTD_DCtx *zstd;
	uint8_t *bytes; /* table and payload as stored */
	size_t cap;
};

static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;
static int scratch_error;

static void scratch_free(void *p)
{
	struct scratch *s = p;

	if (!s)
		return;
	(void)ZSTD_freeDCtx(s->zstd);
	free(s->bytes);
	free(s);
}

static void scratch_setup(void)
{
	scratch_error = -pthread_key_create(&scratch_key, scratch_free);
}

static int scratch_get(size_t n, struct scratch **ret)
{
	struct scratch *s;
	uint8_t *bytes;

	(void)pthread_once(&scratch_once, scratch_setup);
	if (scratch_error < 0)
		return scratch_error;
	s = pthread_getspecific(scratch_key);
	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s || pthread_setspecific(scratch_key, s) != 0) {
			free(s);
			return -ENOMEM;
		}
	}
	if (!s->zstd)
		s->zstd = ZSTD_createDCtx();
	if (!s->zstd)
		return -ENOMEM;
	if (s->cap < n) {
		bytes = realloc(s->bytes, n);
		if (!bytes)
			return -ENOMEM;
		s->bytes = bytes;
		s->cap = n;
	}
	*ret = s;
	return 0;
}

/* ---- reading ---- */

static int read_exact(int fd, void *data, size_t n, uint64_t offset)
{
	ssize_t r = io_pread_full(fd, data, n, offset, "pack.read");

	if (r < 0)
		return (int)r;
	return (size_t)r == n ? 0 : -EBADMSG;
}

static int members_parse(const uint8_t *table, const struct frame_info *info,
			 const uint8_t check[CHECK_BYTES], struct frame_member *members)
{
	size_t n = info->n_members;
	uint64_t sum = 0;

	if (!check_ok(table, n * FRAME_MEMBER_BYTES, check))
		return -EBADMSG;
	for (size_t i = 0; i < n; i++, table += FRAME_MEMBER_BYTES) {
		memcpy(members[i].hash, table, SHA256_BYTES);
		members[i].len = get_le32(table + 32);
		members[i].kind = table[36];
		if (members[i].len == 0 ||
		    (members[i].kind != FRAME_CHUNK && members[i].kind != FRAME_LIST))
			return -EBADMSG;
		sum += members[i].len;
	}
	return sum == info->raw_len ? 0 : -EBADMSG;
}

static int put_raw(const struct frame_info *info, struct scratch *s, const uint8_t *payload,
		   struct buf *raw)
{
	uint8_t *out;
	size_t n;
	int r;

	r = buf_reserve(raw, info->raw_len, &out);
	if (r < 0)
		return r;
	if (info->codec == CODEC_STORED) {
		memcpy(out, payload, info->raw_len);
	} else {
		n = ZSTD_decompressDCtx(s->zstd, out, info->raw_len, payload, info->stored_len);
		if (ZSTD_isError(n) || n != info->raw_len)
			return -EBADMSG;
	}
	buf_commit(raw, info->raw_len);
	return 0;
}

int frame_read(int fd, uint64_t offset, struct buf *raw, struct frame_member **ret_members,
	       size_t *ret_n)
{
	cleanup_free struct frame_member *members = NULL;
	uint8_t header[FRAME_HEADER_BYTES];
	struct frame_info info;
	struct scratch *s;
	size_t table;
	int r;

	r = read_exact(fd, header, sizeof(header), offset);
	if (r < 0)
		return r;
	r = frame_header_parse(header, &info);
	if (r < 0)
		return r == -ENODATA ? -EBADMSG : r;
	table = info.n_members * FRAME_MEMBER_BYTES;
	r = scratch_get(table + info.stored_len, &s);
	if (r < 0)
		return r;
	r = read_exact(fd, s->bytes, table + info.stored_len, offset + sizeof(header));
	if (r < 0)
		return r;
	members = malloc(info.n_members * sizeof(*members));
	if (!members)
		return -ENOMEM;
	r = members_parse(s->bytes, &info, header + 16, members);
	if (r < 0)
		return r;
	r = put_raw(&info, s, s->bytes + table, raw);
	if (r < 0)
		return r;
	*ret_members = take_ptr(&members);
	*ret_n = info.n_members;
	return 0;
}

int frame_compare(int fd, uint64_t offset)
{
	_cleanup_(buf_done) struct buf raw = BUF_INIT(FRAME_RAW_MAX);
	cleanup_free struct frame_member *members = NULL;
	uint8_t actual[SHA256_BYTES];
	const uint8_t *data;
	size_t n;
	int r;

	r = frame_read(fd, offset, &raw, &members, &n);
	if (r < 0)
		return r == -EBADMSG ? 0 : r;
	data = buf_data(&raw);
	for (size_t i = 0; i < n; data += members[i++].len) {
		sha256(data, members[i].len, actual);
		if (memcmp(actual, members[i].hash, SHA256_BYTES) != 0)
			return 0;
	}
	return 1;
}

int frame_read_member(int fd, uint64_t offset, const uint8_t hash[SHA256_BYTES], struct buf *out)
{
	_cleanup_(buf_done) struct buf raw = BUF_INIT(FRAME_RAW_MAX);
	cleanup_free struct frame_member *members = NULL;
	uint8_t actual[SHA256_BYTES];
	size_t n, at = 0;
	int r;

	r = frame_read(fd, offset, &raw, &members, &n);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; at += members[i++].len) {
		if (memcmp(members[i].hash, hash, SHA256_BYTES) != 0)
			continue;
		sha256(buf_data(&raw) + at, members[i].len, actual);
		if (memcmp(actual, hash, SHA256_BYTES) != 0)
			return -EBADMSG;
		return buf_add(out, buf_data(&raw) + at, members[i].len);
	}
	return -ENOENT;
}

/* ---- walking ---- */

struct walk {
	uint8_t head[HEAD_BYTES];
	uint8_t table[TABLE_BYTES_MAX];
	struct frame_member members[FRAME_MEMBERS_MAX];
};

/* Header and table of the frame at offset, in a file of `size` bytes. */
static int read_head(int fd, uint64_t offset, uint64_t size, struct walk *w, struct frame_info *ret)
{
	const uint8_t *table = w->head + FRAME_HEADER_BYTES;
	size_t n_table;
	ssize_t n;
	int r;

	n = io_pread_full(fd, w->head, sizeof(w->head), offset, "pack.read");
	if (n < 0)
		return (int)n;
	if (n == 0)
		return -ENODATA;
	if (n < FRAME_HEADER_BYTES) {
		for (ssize_t i = 0; i < n; i++)
			if (w->head[i] != 0)
				return -EBADMSG;
		return -ENODATA;
	}
	r = frame_header_parse(w->head, ret);
	if (r < 0)
		return r;
	if (ret->total > size - offset)
		return -EBADMSG;
	n_table = ret->n_members * FRAME_MEMBER_BYTES;
	if (FRAME_HEADER_BYTES + n_table > (size_t)n) {
		r = read_exact(fd, w->table, n_table, offset + FRAME_HEADER_BYTES);
		if (r < 0)
			return r;
		table = w->table;
	}
	return members_parse(table, ret, w->head + 16, w->members);
}

int pack_walk_sized(int fd, uint64_t size, uint64_t offset, pack_each_fn each, void *userdata,
		    uint64_t *ret_end, bool *ret_damaged)
{
	cleanup_free struct walk *w = malloc(sizeof(*w));
	struct frame_info info;
	int r;

	if (!w)
		return -ENOMEM;
	for (;;) {
		r = offset < size ? read_head(fd, offset, size, w, &info) : -ENODATA;
		*ret_end = offset;
		*ret_damaged = r == -EBADMSG;
		if (r < 0)
			return r == -EBADMSG || r == -ENODATA ? 0 : r;
		r = each(offset, &info, w->members, info.n_members, userdata);
		if (r != 0)
			return r;
		offset += info.total;
	}
}

int pack_walk(int fd, uint64_t offset, pack_each_fn each, void *userdata, uint64_t *ret_end,
	      bool *ret_damaged)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	return pack_walk_sized(fd, (uint64_t)st.st_size, offset, each, userdata, ret_end,
			       ret_damaged);
}
