/* Any frames in a pack, their tables and headers sealed right where the input says so: no read
 * gives bytes that are not those of the hash that was asked for, and a walk ends. */
#include <fcntl.h>
#include <sys/mman.h>

#include "journal/pack-format.h"
#include "journal/pack.h"
#include "tests/fuzz/fuzz.h"

static uint8_t pack[128 << 10];
static size_t used;
static int fd = -1;

static uint8_t *add(const void *p, size_t n)
{
	uint8_t *at = pack + used;

	n = MIN(n, sizeof(pack) - used);
	if (n)
		memcpy(at, p, n);
	used += n;
	return at;
}

/* Header, table and payload as they come; then the checks over the first two are made right. */
static void add_frame(struct fuzz_in *in, uint8_t what)
{
	uint8_t head[FRAME_HEADER_BYTES] = FRAME_MAGIC, *h;
	size_t members = fuzz_take(in, 1) % 8, raw = 0, n;
	const uint8_t *data;
	size_t table = used + FRAME_HEADER_BYTES;

	head[4] = FRAME_VERSION;
	head[5] = what & 1;
	put_le16(head + 6, (uint16_t)members);
	h = add(head, sizeof(head));
	for (size_t i = 0; i < members; i++) {
		uint8_t m[FRAME_MEMBER_BYTES] = {0};
		uint32_t len = (uint32_t)fuzz_take(in, 2);

		memset(m, (int)i + 1, SHA256_BYTES);
		put_le32(m + 32, len);
		m[36] = (uint8_t)(1 + fuzz_take(in, 1) % 3);
		raw += len;
		(void)add(m, sizeof(m));
	}
	n = fuzz_take_bytes(in, 4096, &data);
	if (what & 2 && members == 1) /* it has what it says */
		sha256(data, n, pack + table);
	(void)add(data, n);
	used = MIN(ALIGN_UP(used, 8u), sizeof(pack));
	if (used < table + members * FRAME_MEMBER_BYTES)
		return;
	put_le32(h + 8, what & 4 ? (uint32_t)fuzz_take(in, 4) : (uint32_t)n);
	put_le32(h + 12, what & 8 ? (uint32_t)fuzz_take(in, 4) : (uint32_t)raw);
	put_check(h + FRAME_HEADER_BYTES, members * FRAME_MEMBER_BYTES, h + 16);
	put_check(h, 32, h + 32);
}

static void make(struct fuzz_in *in)
{
	struct pack_header h = {.pack_id = {1}};

	pack_header_seal(&h, pack);
	used = PACK_HEADER_BYTES;
	while (in->n > 0 && used + FRAME_HEADER_BYTES + 8 * FRAME_MEMBER_BYTES < sizeof(pack)) {
		uint8_t what = (uint8_t)fuzz_take(in, 1);
		const uint8_t *raw;
		size_t n;

		if (what < 0xc0) {
			add_frame(in, what);
			continue;
		}
		n = fuzz_take_bytes(in, 4096, &raw);
		(void)add(raw, n);
		used = MIN(ALIGN_UP(used, 8u), sizeof(pack));
	}
}

static int each(uint64_t offset, const struct frame_info *info, const struct frame_member *members,
		size_t n, void *userdata)
{
	_cleanup_(buf_done) struct buf raw = BUF_INIT(FRAME_RAW_MAX);
	_cleanup_(buf_done) struct buf one = BUF_INIT(FRAME_RAW_MAX);
	cleanup_free struct frame_member *again = NULL;
	uint8_t hash[SHA256_BYTES];
	size_t n_again = 0;

	must(n == info->n_members && offset + info->total <= ALIGN_UP(used, 8u));
	if (frame_read(fd, offset, &raw, &again, &n_again) == 0) {
		must(buf_len(&raw) == info->raw_len && n_again == n);
		for (size_t i = 0; i < n; i++)
			must(memcmp(again[i].hash, members[i].hash, SHA256_BYTES) == 0 &&
			     again[i].len == members[i].len && again[i].kind == members[i].kind);
	}
	for (size_t i = 0; i < n; i++) {
		buf_clear(&one);
		if (frame_read_member(fd, offset, members[i].hash, &one) < 0)
			continue;
		sha256(buf_data(&one), buf_len(&one), hash);
		must(memcmp(hash, members[i].hash, SHA256_BYTES) == 0);
		must(buf_len(&one) == members[i].len);
	}
	(void)frame_compare(fd, offset);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};
	struct pack_header h;
	uint64_t end = 0;
	bool damaged;

	if (fd < 0)
		fd = memfd_create("pack", MFD_CLOEXEC);
	make(&in);
	must(fd >= 0 && ftruncate(fd, 0) == 0);
	must(pwrite(fd, pack, used, 0) == (ssize_t)used);
	must(pack_header_parse(pack, &h) == 0);
	must(pack_walk(fd, PACK_HEADER_BYTES, each, NULL, &end, &damaged) == 0);
	must(end >= PACK_HEADER_BYTES && end <= ALIGN_UP(used, 8u));
	must(pack_walk_sized(fd, used, PACK_HEADER_BYTES, each, NULL, &end, &damaged) == 0);
	return 0;
}
