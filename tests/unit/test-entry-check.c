/* Whatever bytes come in place of an entry are refused, or read without leaving it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/entry-fixture.h"

static void heads(void **state)
{
	struct entry_head e = {.length = 16, .type = ENTRY_STOP};
	struct buf b = BUF_INIT(0);
	const char *why;

	assert_int_equal(entry_whole(&e, 0), 0);
	assert_int_equal(entry_whole(&e, 7), 0);
	assert_int_equal(entry_whole(&e, 8), 0);
	assert_int_equal(entry_whole(&e, 16), 16);
	assert_int_equal(entry_whole(&e, 17), 16);
	e.length = 0;
	assert_int_equal(entry_whole(&e, 8), -EBADMSG);
	e.length = 7;
	assert_int_equal(entry_whole(&e, 8), -EBADMSG);
	e.length = 12;
	assert_int_equal(entry_whole(&e, 8), -EBADMSG);
	e.length = ENTRY_MAX;
	assert_int_equal(entry_whole(&e, 8), 0);
	e.length = ENTRY_MAX + 8;
	assert_int_equal(entry_whole(&e, 8), -EBADMSG);

	e.length = 8;
	for (unsigned type = 0; type < 65536; type++) {
		e.type = (uint16_t)type;
		/* Those that are nothing but a head may be one. */
		assert_int_equal(entry_check(&e, &why),
				 type == ENTRY_SEED || type == ENTRY_STOP || type == ENTRY_SEAL
					 ? 0
					 : -EBADMSG);
	}
	buf_done(&b);
}

/* The entry of `type` in a series, copied to memory of its own size; free it. */
static struct entry_head *pick(const struct buf *all, uint16_t type)
{
	const uint8_t *p = buf_data(all), *end = p + buf_len(all);

	while (p < end) {
		const struct entry_head *e = (const void *)p;

		if (e->type == type) {
			struct entry_head *copy = malloc(e->length);

			assert_non_null(copy);
			memcpy(copy, e, e->length);
			return copy;
		}
		p += e->length;
	}
	fail_msg("no entry of type %u", type);
	return NULL;
}

/* One rule after the other: a struct bent by one field. */
static struct buf all = BUF_INIT(0);

#define REFUSED(type, struct_type, bend, rule)                                         \
	do {                                                                           \
		struct entry_head *e_ = pick(&all, type);                              \
		struct_type *x = (void *)e_;                                           \
		const char *why_ = "";                                                 \
                                                                                       \
		bend;                                                                  \
		if (entry_check(e_, &why_) == 0)                                       \
			fail_msg("taken: %s", #bend);                                  \
		if (!strstr(why_, rule))                                               \
			fail_msg("%s: refused for '%s', not '%s'", #bend, why_, rule); \
		free(e_);                                                              \
	} while (0)

#define OP(i) nth_op(x, i)
static struct entry_op *nth_op(struct entry_change *c, unsigned i)
{
	struct entry_op *op = (void *)(c + 1);

	while (i-- > 0)
		op = (void *)((uint8_t *)op + op->length);
	return op;
}

/* In make_change() ops 0 and 8 are a PUT of a link, 4 of a file; 1 LINK, 2 UNLINK, 3 MOVE. */
static void changes_that_break_a_rule(void **state)
{
	make_all(&all);
#define BAD(bend, rule) REFUSED(ENTRY_CHANGE, struct entry_change, bend, rule)
	BAD(x->n_ops = 0, "number of operations");
	BAD(x->n_ops = CHANGE_OPS_MAX + 1, "number of operations");
	BAD(x->n_ops = 8, "longer than what is in it");
	BAD(x->n_ops = 10, "longer than the entry");
	BAD(x->number = 0, "number");
	BAD(memset(x->job, 'j', sizeof(x->job)), "job");
	BAD(OP(0)->kind = 0, "kind");
	BAD(OP(0)->kind = 5, "kind");
	BAD(OP(1)->length += 4, "length of a part");
	BAD(OP(1)->length = 8, "length of a part");
	BAD(OP(1)->length = 0, "length of a part");
	BAD(OP(8)->length = UINT32_MAX - 7, "longer than the entry");
	BAD(OP(1)->name_len = 0, "wrong name");
	BAD(OP(1)->name_len = UINT16_MAX, "longer than the entry");
	BAD(((char *)(OP(1) + 1))[2] = '/', "wrong name");
	BAD(((char *)(OP(1) + 1))[2] = 0, "wrong name");
	BAD((OP(1)->name_len = 2, memcpy(OP(1) + 1, "..", 2)), "wrong name");
	BAD(OP(2)->to_name_len = 1, "wrong name");
	BAD(OP(4)->name_len = 1, "wrong name");
	BAD(OP(4)->node = 0, "no node");
	BAD(OP(1)->node = 0, "no node");
	BAD(OP(1)->node = NODE_ROOT, "root");
	BAD(OP(1)->parent = 0, "no parent");
	BAD(OP(2)->parent = 0, "no parent");
	BAD(OP(3)->to_parent = 0, "no parent");
	BAD(OP(2)->evidence = 0, "evidence");
	BAD(OP(2)->evidence = 5, "evidence");
	BAD(OP(4)->attr.type = 0, "type");
	BAD(OP(4)->attr.type = 8, "type");
	BAD(OP(4)->attr.mode = 010000, "mode");
	BAD(OP(4)->attr.uid_kind = 3, "owner");
	BAD(OP(4)->attr.gid_kind = 3, "owner");
	BAD(OP(4)->attr.size_bytes = 1ull << 63, "content out of range");
	BAD(OP(4)->attr.depth = CONTENT_DEPTH_MAX + 1, "content out of range");
	BAD(OP(0)->attr.has_content = 1, "not a file");
	BAD(OP(4)->attr.target_len = 1, "target");
	BAD(OP(0)->attr.target_len = 0, "target");
	BAD(OP(0)->attr.target_len = NODE_TARGET_MAX + 1, "target");
	BAD(OP(0)->attr.type = NODE_TYPE_FIFO, "target");
	BAD(*(char *)(OP(0) + 1) = 0, "NUL");
	BAD(OP(4)->attr.xattrs_len -= 1, "extended attributes");
	BAD(OP(4)->attr.xattrs_len = UINT32_MAX, "longer than the entry");
	BAD(OP(4)->attr.xattrs_len = 0, "part longer");
	BAD(*(char *)(OP(4) + 1) = 7, "extended attributes");
#undef BAD
	buf_done(&all);
}

static void others_that_break_a_rule(void **state)
{
	make_all(&all);
	REFUSED(ENTRY_TREE_PART, struct entry_tree_part, x->n = 3, "longer than what is in it");
	REFUSED(ENTRY_TREE_PART, struct entry_tree_part, x->n = 5, "longer than the entry");
	REFUSED(ENTRY_TREE_PART, struct entry_tree_part,
		((struct entry_tree_entry *)(x + 1))->attr.type = 0, "no attributes");
	REFUSED(ENTRY_BARRIER_DONE, struct entry_barrier_done, x->n_unsettled = 101, "too many");
	REFUSED(ENTRY_BARRIER_DONE, struct entry_barrier_done, x->n_unsettled = 3, "longer");
	REFUSED(ENTRY_BARRIER_DONE, struct entry_barrier_done,
		((struct entry_unsettled *)(x + 1))->len = UINT32_MAX, "longer than the entry");
	REFUSED(ENTRY_BARRIER_DONE, struct entry_barrier_done,
		((char *)((struct entry_unsettled *)(x + 1) + 1))[1] = 0, "path");
	REFUSED(ENTRY_JOB_EXIT, struct entry_job, memset(x->job, 'j', sizeof(x->job)),
		"without end");
	REFUSED(ENTRY_JOB_EXIT, struct entry_job, memset(x->killed_by, 'j', 12), "without end");
	REFUSED(ENTRY_JOB_EXIT, struct entry_job, x->detail_len = ENTRY_TEXT_MAX + 1, "too long");
	REFUSED(ENTRY_JOB_STARTED, struct entry_job, x->n_unsettled = 1, "longer than the entry");
	REFUSED(ENTRY_STATUS, struct entry_status, x->n_reasons = 33, "too many");
	REFUSED(ENTRY_STATUS, struct entry_status,
		memset(((struct entry_reason *)(x + 1))->code, 'c', 32), "wrong reason");
	REFUSED(ENTRY_STATUS, struct entry_status,
		((struct entry_reason *)(x + 1))->path_len = UINT32_MAX, "wrong reason");
	REFUSED(ENTRY_RESTORED, struct entry_restored, x->n_unsupported = 1001, "too long");
	REFUSED(ENTRY_RESTORED, struct entry_restored, x->n_unsupported = 3, "longer");
	REFUSED(ENTRY_PS_DONE, struct entry_ps_done, x->n = 4097, "too many");
	REFUSED(ENTRY_PS_DONE, struct entry_ps_done, x->n = 3, "longer");
	REFUSED(ENTRY_PS_DONE, struct entry_ps_done,
		((struct entry_process *)(x + 1))->argv_len = 7, "arguments");
	REFUSED(ENTRY_PS_DONE, struct entry_ps_done,
		memset(((struct entry_process *)(x + 1))->state, 'S', 8), "without end");
	REFUSED(ENTRY_PLACES, struct entry_places, x->n = 3, "longer than the entry");
	REFUSED(ENTRY_PLACES, struct entry_places, x->n = 1, "longer than what is in it");
	REFUSED(ENTRY_PLACES, struct entry_places, x->pack_end = 128, "place");
	REFUSED(ENTRY_PLACES, struct entry_places, ((struct entry_place *)(x + 1))->kind = 3,
		"kind");
	REFUSED(ENTRY_PLACES, struct entry_places, ((struct entry_place *)(x + 1))->len = 0,
		"place");
	REFUSED(ENTRY_PLACES, struct entry_places,
		((struct entry_place *)(x + 1))->len = FRAME_RAW_MAX + 1, "place");
	REFUSED(ENTRY_PLACES, struct entry_places, ((struct entry_place *)(x + 1))->offset = 63,
		"place");
	REFUSED(ENTRY_HELLO, struct entry_hello, memset(x->syncd_version, 'v', 36), "version");
	REFUSED(ENTRY_ERROR, struct entry_text, x->len = ENTRY_TEXT_MAX + 1, "too long");
	REFUSED(ENTRY_ERROR, struct entry_text, x->len = 9, "longer than the entry");
	REFUSED(ENTRY_HOSTILE, struct entry_text, x->len = 0, "longer than what is in it");
	REFUSED(ENTRY_DONE, struct entry_done, x->len = UINT32_MAX, "too long");
	REFUSED(ENTRY_PULL, struct entry_pull, x->n = ENTRY_PULL_MAX + 1, "too many");
	REFUSED(ENTRY_PULL, struct entry_pull, x->n = 3, "longer");
	REFUSED(ENTRY_JOB_OUTPUT, struct entry_job_output, x->stream = 0, "stream");
	REFUSED(ENTRY_JOB_OUTPUT, struct entry_job_output, x->stream = 3, "stream");
	REFUSED(ENTRY_JOB_OUTPUT, struct entry_job_output, x->offset = 1ull << 63, "offset");
	REFUSED(ENTRY_JOB_OUTPUT, struct entry_job_output, x->len = UINT32_MAX, "longer");
	REFUSED(ENTRY_JOB_INPUT, struct entry_job_input, x->bytes = 1ull << 63, "offset");
	REFUSED(ENTRY_JOB_INPUT, struct entry_job_input, memset(x->job, 'j', sizeof(x->job)),
		"without end");
	REFUSED(ENTRY_JOB_LIST, struct entry_job_list, x->n = 4097, "too many");
	REFUSED(ENTRY_JOB_LIST, struct entry_job_list, x->n = 2, "longer");
	REFUSED(ENTRY_PACK, struct entry_pack, x->offset = 0, "offset");
	REFUSED(ENTRY_SEND, struct entry_send, x->len = 9, "longer than the entry");
	REFUSED(ENTRY_SEND, struct entry_send, x->len = 0, "longer than what is in it");
	REFUSED(ENTRY_SEND, struct entry_send, x->len = UINT32_MAX, "longer than the entry");
	buf_done(&all);
}

/* Each byte of each entry changed, and each length cut: refused, or read inside of it. */
static void every_byte_changed(void **state)
{
	static const uint8_t flips[] = {0x01, 0x80, 0xff};
	const uint8_t *p, *end;
	unsigned taken = 0, refused = 0;

	make_all(&all);
	p = buf_data(&all);
	end = p + buf_len(&all);
	while (p < end) {
		size_t n = ((const struct entry_head *)p)->length;
		struct entry_head *e = malloc(n);
		const char *why;

		assert_non_null(e);
		for (size_t i = sizeof(*e); i < n; i++) {
			for (size_t k = 0; k < ARRAY_SIZE(flips); k++) {
				memcpy(e, p, n);
				((uint8_t *)e)[i] ^= flips[k];
				if (entry_check(e, &why) < 0) {
					refused++;
					continue;
				}
				(void)read_parts(e);
				taken++;
			}
		}
		free(e);
		for (size_t cut = sizeof(*e); cut < n; cut += 8) {
			e = malloc(cut);
			memcpy(e, p, cut);
			e->length = (uint32_t)cut;
			if (entry_check(e, &why) == 0)
				(void)read_parts(e);
			free(e);
		}
		p += n;
	}
	assert_true(taken > 100);
	assert_true(refused > 100);
	buf_done(&all);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(heads),
		cmocka_unit_test(changes_that_break_a_rule),
		cmocka_unit_test(others_that_break_a_rule),
		cmocka_unit_test(every_byte_changed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
