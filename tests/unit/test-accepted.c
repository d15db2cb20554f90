/* The intent log: what was appended is read back, up to the first byte that is not as written. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/io.h"
#include "journal/accepted.h"
#include "scratch.h"

enum { EPOCH = 0x1234567 };

static const uint8_t xattrs[] = "\6\0user.a\1\0\0\0b";

static struct accepted sample(uint64_t number)
{
	struct accepted e = {
		.number = number,
		.kind = ACCEPTED_CREATE,
		.node = 1ull << 61 | number,
		.journal = 17,
		.base_seq = 99,
		.path = "dir/name",
		.to_path = "other",
		.fields = 5 | NODE_FIELD_XATTR,
		.has_base = true,
	};

	e.n.type = NODE_TYPE_SYMLINK;
	e.n.mode = 0777;
	e.n.uid_kind = NODE_OWNER_NUMBER;
	e.n.uid = 1000;
	e.n.gid = 1001;
	e.n.mtime_ns = -5;
	e.n.target = (const uint8_t *)"to/there";
	e.n.target_len = 8;
	e.n.xattrs = xattrs;
	e.n.xattrs_len = sizeof(xattrs) - 1;
	e.n.content.size_bytes = 123;
	e.base.size_bytes = 45;
	memset(e.base.sha256, 7, SHA256_BYTES);
	return e;
}

static void assert_sample(const struct accepted *e, uint64_t number)
{
	struct accepted want = sample(number);

	assert_int_equal(e->number, number);
	assert_int_equal(e->kind, want.kind);
	assert_int_equal(e->node, want.node);
	assert_int_equal(e->journal, want.journal);
	assert_int_equal(e->base_seq, want.base_seq);
	assert_string_equal(e->path, want.path);
	assert_string_equal(e->to_path, want.to_path);
	assert_int_equal(e->fields, want.fields);
	assert_true(e->has_base);
	assert_int_equal(e->n.type, want.n.type);
	assert_int_equal(e->n.mode, want.n.mode);
	assert_int_equal(e->n.uid_kind, want.n.uid_kind);
	assert_int_equal(e->n.uid, want.n.uid);
	assert_int_equal(e->n.gid, want.n.gid);
	assert_int_equal(e->n.mtime_ns, want.n.mtime_ns);
	assert_int_equal(e->n.target_len, want.n.target_len);
	assert_memory_equal(e->n.target, want.n.target, want.n.target_len);
	assert_int_equal(e->n.xattrs_len, want.n.xattrs_len);
	assert_memory_equal(e->n.xattrs, xattrs, want.n.xattrs_len);
	assert_int_equal(e->n.content.size_bytes, want.n.content.size_bytes);
	assert_memory_equal(e->base.sha256, want.base.sha256, SHA256_BYTES);
}

static void encode(struct buf *b, uint64_t number)
{
	struct accepted e = sample(number);

	assert_int_equal(accepted_encode(&e, EPOCH, b), 0);
}

static void round_trip(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	struct accepted e;

	(void)state;
	encode(&b, 3);
	assert_int_equal(accepted_decode(buf_data(&b), buf_len(&b), EPOCH, &e), buf_len(&b));
	assert_sample(&e, 3);
	assert_int_equal(accepted_decode(buf_data(&b), buf_len(&b), EPOCH + 1, &e), -EBADMSG);
}

static void cut_anywhere(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	struct accepted e;

	(void)state;
	encode(&b, 3);
	for (size_t n = 0; n < buf_len(&b); n++) {
		cleanup_free uint8_t *part = malloc(n ? n : 1);

		memcpy(part, buf_data(&b), n);
		assert_int_equal(accepted_decode(part, n, EPOCH, &e), 0);
	}
}

static void flipped_anywhere(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	cleanup_free uint8_t *copy = NULL;
	struct accepted e;

	(void)state;
	encode(&b, 3);
	copy = malloc(buf_len(&b));
	for (size_t bit = 0; bit < buf_len(&b) * 8; bit++) {
		memcpy(copy, buf_data(&b), buf_len(&b));
		copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_true(accepted_decode(copy, buf_len(&b), EPOCH, &e) <= 0);
	}
}

/* Two logs of three entries each. */
static void write_logs(size_t *ret_second_len)
{
	for (uint64_t first = 1; first <= 4; first += 3) {
		_cleanup_(buf_done) struct buf b = BUF_INIT(0);
		uint8_t head[ACCEPTED_HEADER_BYTES];
		cleanup_close int fd = -1;
		char name[32];

		accepted_header(EPOCH, first, head);
		assert_int_equal(buf_add(&b, head, sizeof(head)), 0);
		for (uint64_t i = first; i < first + 3; i++)
			encode(&b, i);
		accepted_log_name(first, name);
		fd = openat(scratch, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		assert_true(fd >= 0);
		assert_int_equal(io_write_full(fd, buf_data(&b), buf_len(&b), "test"), 0);
		*ret_second_len = buf_len(&b);
	}
}

static size_t read_from(uint64_t epoch, uint64_t after, uint64_t first)
{
	_cleanup_(accepted_reader_closep) struct accepted_reader *rd = NULL;
	struct accepted e;
	size_t n = 0;

	assert_int_equal(accepted_reader_open(scratch, epoch, after, &rd), 0);
	while (accepted_next(rd, &e) > 0)
		assert_sample(&e, first + n++);
	return n;
}

static void from_any_number(void **state)
{
	size_t len;

	(void)state;
	write_logs(&len);
	assert_int_equal(read_from(0, 5, 1), 6);
	for (uint64_t after = 0; after <= 6; after++)
		assert_int_equal(read_from(EPOCH, after, after + 1), 6 - after);
}

/* What is appended later is read by the same reader, also when it was seen half written. */
static void tail_and_growth(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	_cleanup_(accepted_reader_closep) struct accepted_reader *rd = NULL;
	cleanup_close int fd = -1;
	struct accepted e;
	size_t len;

	(void)state;
	write_logs(&len);
	encode(&b, 7);
	fd = openat(scratch, "log.0000000000000004", O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(accepted_reader_open(scratch, EPOCH, 6, &rd), 0);
	for (size_t i = 0; i < buf_len(&b); i++) {
		assert_int_equal(accepted_next(rd, &e), 0);
		assert_int_equal(io_pwrite_full(fd, buf_data(&b) + i, 1, len + i, "test"), 0);
	}
	assert_int_equal(accepted_next(rd, &e), 1);
	assert_sample(&e, 7);
	assert_int_equal(accepted_next(rd, &e), 0);
}

static void damaged_in_the_middle(void **state)
{
	cleanup_close int fd = -1;
	size_t len;

	(void)state;
	write_logs(&len);
	fd = openat(scratch, "log.0000000000000004", O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(io_pwrite_full(fd, "x", 1, len / 2, "test"), 0);
	assert_true(read_from(EPOCH, 0, 1) < 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip),
		cmocka_unit_test(cut_anywhere),
		cmocka_unit_test(flipped_anywhere),
		cmocka_unit_test_setup_teardown(from_any_number, scratch_setup, scratch_teardown),
		cmocka_unit_test_setup_teardown(tail_and_growth, scratch_setup, scratch_teardown),
		cmocka_unit_test_setup_teardown(damaged_in_the_middle, scratch_setup,
						scratch_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
