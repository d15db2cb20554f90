/* The first rule that an environment breaks ends its limb-ingest: what it said before has
 * reached limbd, then which rule it was, then nothing. Here: changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/ingest-rig.h"

/* ---- names ---- */

static char long_name[257];
static const struct {
	const char *name;
	size_t len;
} bad_names[] = {
	{"", 0},     {".", 1},	  {"..", 2}, {"a/b", 3},       {"/", 1},
	{"../x", 4}, {"a\0b", 3}, {"\0", 1}, {long_name, 256},
};

static void link_name(struct rig *r, int i)
{
	struct rig_change c;

	rig_change_init(r, &c);
	(void)rig_add_link(&c, 1, "x", 10);
	c.ops[0].name = (ProtobufCBinaryData){bad_names[i].len, (uint8_t *)bad_names[i].name};
	rig_say_change(r, &c);
}

static void unlink_name(struct rig *r, int i)
{
	struct rig_change c;

	rig_change_init(r, &c);
	(void)rig_add_op(&c, LIMB__OP_KIND__OP_UNLINK);
	c.ops[0].parent = 1;
	c.ops[0].evidence = LIMB__EVIDENCE__EVIDENCE_ABSENT;
	c.ops[0].name = (ProtobufCBinaryData){bad_names[i].len, (uint8_t *)bad_names[i].name};
	rig_say_change(r, &c);
}

static void move_name(struct rig *r, int i)
{
	struct rig_change c;

	rig_change_init(r, &c);
	(void)rig_add_op(&c, LIMB__OP_KIND__OP_MOVE);
	c.ops[0].parent = c.ops[0].to_parent = 1;
	rig_set_name(&c.ops[0].name, "fine");
	c.ops[0].to_name = (ProtobufCBinaryData){bad_names[i].len, (uint8_t *)bad_names[i].name};
	rig_say_change(r, &c);
}

static void names(void **state)
{
	memset(long_name, 'n', 256);
	for (int i = 0; i < (int)ARRAY_SIZE(bad_names); i++) {
		rig_check_hostile(link_name, i, "wrong name");
		rig_check_hostile(unlink_name, i, "wrong name");
		rig_check_hostile(move_name, i, "wrong name");
	}
}

static void tree_name(struct rig *r, int i)
{
	Limbwire__TreeEntry e = LIMBWIRE__TREE_ENTRY__INIT, *es[] = {&e};
	Limbwire__TreePart m = LIMBWIRE__TREE_PART__INIT;
	Limb__Attr a = LIMB__ATTR__INIT;

	a.type = LIMB__NODE_TYPE__NODE_FIFO;
	e.attr = &a;
	e.name = (ProtobufCBinaryData){bad_names[i].len, (uint8_t *)bad_names[i].name};
	m.request = 1;
	m.entries = es;
	m.n_entries = 1;
	rig_say(r, WIRE_TREE_PART, &m.base, NULL, 0);
}

static void names_in_trees(void **state)
{
	memset(long_name, 'n', 256);
	for (int i = 0; i < (int)ARRAY_SIZE(bad_names); i++)
		rig_check_hostile(tree_name, i, "wrong name");
}

/* ---- content ---- */

enum lie {
	LIE_SIZE_SMALLER,
	LIE_SIZE_LARGER,
	LIE_HASH,
	LIE_HASH_LENGTH,
	LIE_DEPTH,
	LIE_ROOT,
	LIE_NO_BYTES,
	LIE_MORE_BYTES,
	LIE_DIRECTORY,
};

static const uint8_t text[] = "some text that is a file";

static void lying_content(struct rig *r, int lie)
{
	uint8_t root[SHA256_BYTES] = {1};
	struct rig_change c;

	rig_change_init(r, &c);
	(void)rig_add_inline(&c, 10, text, sizeof(text));
	switch ((enum lie)lie) {
	case LIE_SIZE_SMALLER: c.contents[0].size_bytes--; break;
	case LIE_SIZE_LARGER: c.contents[0].size_bytes++; break;
	case LIE_HASH: c.hashes[0][31] ^= 1; break;
	case LIE_HASH_LENGTH: c.contents[0].sha256.len = 31; break;
	case LIE_DEPTH: c.contents[0].depth = 1; break;
	case LIE_ROOT:
		c.contents[0].depth = 1;
		c.contents[0].root = (ProtobufCBinaryData){SHA256_BYTES, root};
		break;
	case LIE_NO_BYTES: buf_clear(&c.bulk); break;
	case LIE_MORE_BYTES: assert_int_equal(buf_add(&c.bulk, "x", 1), 0); break;
	case LIE_DIRECTORY: c.attrs[0].type = LIMB__NODE_TYPE__NODE_DIRECTORY; break;
	}
	rig_say_change(r, &c);
}

static void contents_that_are_not_what_was_said(void **state)
{
	/* The first byte too few: what is left over of the bulk is no content. */
	rig_check_hostile(lying_content, LIE_SIZE_SMALLER, "SHA-256");
	rig_check_hostile(lying_content, LIE_SIZE_LARGER, "longer than the bytes");
	rig_check_hostile(lying_content, LIE_HASH, "SHA-256");
	rig_check_hostile(lying_content, LIE_HASH_LENGTH, "32 bytes");
	rig_check_hostile(lying_content, LIE_DEPTH, "root");
	rig_check_hostile(lying_content, LIE_ROOT, "list of chunks");
	rig_check_hostile(lying_content, LIE_NO_BYTES, "longer than the bytes");
	rig_check_hostile(lying_content, LIE_MORE_BYTES, "bytes of no content");
	rig_check_hostile(lying_content, LIE_DIRECTORY, "not a file");
}

/* A file of 1 MiB said to be one of 1 GiB. */
static void claim_of_a_gigabyte(struct rig *r, int arg)
{
	static uint8_t data[1 << 20];
	struct rig_change c;

	rig_change_init(r, &c);
	(void)rig_add_inline(&c, 10, data, sizeof(data));
	c.contents[0].size_bytes = 1u << 30;
	rig_say_change(r, &c);
}

static void claim_of_everything(struct rig *r, int arg)
{
	struct rig_change c;

	rig_change_init(r, &c);
	(void)rig_add_inline(&c, 10, text, sizeof(text));
	c.contents[0].size_bytes = UINT64_MAX;
	rig_say_change(r, &c);
}

static void sizes_that_are_claimed(void **state)
{
	rig_check_hostile(claim_of_a_gigabyte, 0, "longer than the bytes");
	rig_check_hostile(claim_of_everything, 0, "size out of range");
}

/* ---- streams ---- */

enum stream_fault {
	STREAM_ZERO,
	STREAM_UNKNOWN,
	STREAM_UNENDED,
	STREAM_TWICE,
	STREAM_AFTER_END,
	STREAM_GAP,
	STREAM_BACK,
	STREAM_STARTS_LATE,
	STREAM_BYTES_AND_HOLE,
	STREAM_HOLE_TOO_LARGE,
	STREAM_TOO_MANY,
	STREAM_TOO_MANY_ENDED,
	STREAM_WITHOUT_CONTENT,
	STREAM_LYING_SIZE,
	STREAM_LYING_HASH,
};

static void say_stream_change(struct rig *r, uint32_t stream, int lie)
{
	struct rig_change c;
	size_t i;

	rig_change_init(r, &c);
	i = rig_add_file(&c, 10, "abcdef", 6);
	c.wops[i].stream = stream;
	if (lie == STREAM_LYING_SIZE)
		c.contents[i].size_bytes = 1ull << 40;
	if (lie == STREAM_LYING_HASH)
		c.hashes[i][0] ^= 1;
	if (lie == STREAM_WITHOUT_CONTENT)
		c.ops[i].content = NULL;
	rig_say_change(r, &c);
}

static void bad_stream(struct rig *r, int fault)
{
	switch ((enum stream_fault)fault) {
	case STREAM_ZERO: rig_say_data(r, 0, 0, "abc", 3, 0, false); break;
	case STREAM_UNKNOWN: say_stream_change(r, 1, 0); break;
	case STREAM_UNENDED:
		rig_say_data(r, 1, 0, "abcdef", 6, 0, false);
		say_stream_change(r, 1, 0);
		break;
	case STREAM_TWICE:
		rig_say_data(r, 1, 0, "abcdef", 6, 0, true);
		say_stream_change(r, 1, 0);
		r->number++;
		say_stream_change(r, 1, 0);
		break;
	case STREAM_AFTER_END:
		rig_say_data(r, 1, 0, "abcdef", 6, 0, true);
		rig_say_data(r, 1, 6, "g", 1, 0, false);
		break;
	case STREAM_GAP:
		rig_say_data(r, 1, 0, "abc", 3, 0, false);
		rig_say_data(r, 1, 4, "def", 3, 0, false);
		break;
	case STREAM_BACK:
		rig_say_data(r, 1, 0, "abc", 3, 0, false);
		rig_say_data(r, 1, 0, "abc", 3, 0, false);
		break;
	case STREAM_STARTS_LATE: rig_say_data(r, 1, UINT64_MAX, "abc", 3, 0, false); break;
	case STREAM_BYTES_AND_HOLE: rig_say_data(r, 1, 0, "abc", 3, 4096, false); break;
	case STREAM_HOLE_TOO_LARGE: rig_say_data(r, 1, 0, NULL, 0, UINT64_MAX, true); break;
	case STREAM_TOO_MANY:
		for (uint32_t i = 1; i <= 9; i++)
			rig_say_data(r, i, 0, "abc", 3, 0, false);
		break;
	case STREAM_TOO_MANY_ENDED:
		for (uint32_t i = 1; i <= 65; i++)
			rig_say_data(r, i, 0, "abc", 3, 0, true);
		break;
	case STREAM_WITHOUT_CONTENT:
	case STREAM_LYING_SIZE:
	case STREAM_LYING_HASH:
		rig_say_data(r, 1, 0, "abcdef", 6, 0, true);
		say_stream_change(r, 1, fault);
		break;
	}
}

static void streams(void **state)
{
	rig_check_hostile(bad_stream, STREAM_ZERO, "no stream");
	rig_check_hostile(bad_stream, STREAM_UNKNOWN, "unknown stream");
	rig_check_hostile(bad_stream, STREAM_UNENDED, "has not ended");
	rig_check_hostile(bad_stream, STREAM_AFTER_END, "ended");
	rig_check_hostile(bad_stream, STREAM_GAP, "offset 4 where 3");
	rig_check_hostile(bad_stream, STREAM_BACK, "offset 0 where 3");
	rig_check_hostile(bad_stream, STREAM_STARTS_LATE, "where 0 was due");
	rig_check_hostile(bad_stream, STREAM_BYTES_AND_HOLE, "both");
	rig_check_hostile(bad_stream, STREAM_HOLE_TOO_LARGE, "hole too large");
	rig_check_hostile(bad_stream, STREAM_TOO_MANY, "more than 8 streams");
	rig_check_hostile(bad_stream, STREAM_TOO_MANY_ENDED, "64 streams");
	rig_check_hostile(bad_stream, STREAM_WITHOUT_CONTENT, "without content");
	rig_check_hostile(bad_stream, STREAM_LYING_SIZE, "6 bytes, not");
	rig_check_hostile(bad_stream, STREAM_LYING_HASH, "SHA-256");
}

static void a_stream_counts_once(void **state)
{
	struct rig r;

	rig_start(&r);
	bad_stream(&r, STREAM_TWICE);
	(void)rig_change_entry(&r, 1);
	rig_hostile(&r, "number 3 where 2");
	rig_start(&r);
	rig_say_data(&r, 1, 0, "abcdef", 6, 0, true);
	say_stream_change(&r, 1, 0);
	say_stream_change(&r, 1, 0);
	(void)rig_change_entry(&r, 1);
	rig_hostile(&r, "unknown stream");
}

/* ---- changes ---- */

enum change_fault {
	CHANGE_GAP,
	CHANGE_ZERO,
	CHANGE_NO_OPS,
	CHANGE_65_OPS,
	CHANGE_KIND,
	CHANGE_NO_OP,
	CHANGE_NO_NODE,
	CHANGE_NO_ATTR,
	CHANGE_TYPE,
	CHANGE_MODE,
	CHANGE_TARGET_LONG,
	CHANGE_TARGET_NUL,
	CHANGE_XATTRS_LARGE,
	CHANGE_XATTRS_UNSORTED,
	CHANGE_NO_PARENT,
	CHANGE_LINK_ROOT,
	CHANGE_NO_EVIDENCE,
	CHANGE_EVIDENCE_UNKNOWN,
	CHANGE_CONTENT_OF_LINK,
	CHANGE_JOB,
	CHANGE_JOB_LONG,
};

static void bad_change(struct rig *r, int fault)
{
	static uint8_t big[NODE_XATTRS_MAX];
	Limb__Xattr x[2] = {LIMB__XATTR__INIT, LIMB__XATTR__INIT}, *xs[] = {&x[0], &x[1]};
	struct rig_change c;

	rig_change_init(r, &c);
	rig_set_name(&x[0].name, "user.a");
	rig_set_name(&x[1].name, "user.b");
	(void)rig_add_inline(&c, 10, "text", 4);
	c.attrs[0].xattrs = xs;
	c.attrs[0].n_xattrs = 2;
	(void)rig_add_link(&c, 1, "name", 10);
	(void)rig_add_op(&c, LIMB__OP_KIND__OP_UNLINK);
	c.ops[2].parent = 1;
	c.ops[2].evidence = LIMB__EVIDENCE__EVIDENCE_ABSENT;
	rig_set_name(&c.ops[2].name, "gone");
	(void)rig_add_op(&c, LIMB__OP_KIND__OP_PUT);
	c.ops[3].node = 11;
	c.ops[3].attr = &c.attrs[3];
	c.attrs[3].type = LIMB__NODE_TYPE__NODE_SYMLINK;
	rig_set_name(&c.attrs[3].target, "target");
	memset(big, 'b', sizeof(big));
	switch ((enum change_fault)fault) {
	case CHANGE_GAP: c.change.number++; break;
	case CHANGE_ZERO: c.change.number = 0; break;
	case CHANGE_NO_OPS:
		c.change.n_ops = 0;
		buf_clear(&c.bulk);
		break;
	case CHANGE_65_OPS:
		while (c.change.n_ops < CHANGE_OPS_MAX + 1)
			(void)rig_add_link(&c, 1, "more", 10);
		break;
	case CHANGE_KIND: c.ops[1].kind = (Limb__OpKind)5; break;
	case CHANGE_NO_OP: c.wops[1].op = NULL; break;
	case CHANGE_NO_NODE: c.ops[3].node = 0; break;
	case CHANGE_NO_ATTR: c.ops[3].attr = NULL; break;
	case CHANGE_TYPE: c.attrs[0].type = (Limb__NodeType)8; break;
	case CHANGE_MODE: c.attrs[0].mode = 010000; break;
	case CHANGE_TARGET_LONG:
		c.attrs[3].target = (ProtobufCBinaryData){NODE_TARGET_MAX + 1, big};
		break;
	case CHANGE_TARGET_NUL:
		c.attrs[3].target = (ProtobufCBinaryData){5, (uint8_t *)"a\0b/c"};
		break;
	case CHANGE_XATTRS_LARGE: x[1].value = (ProtobufCBinaryData){sizeof(big) - 20, big}; break;
	case CHANGE_XATTRS_UNSORTED: rig_set_name(&x[1].name, "user.a"); break;
	case CHANGE_NO_PARENT: c.ops[1].parent = 0; break;
	case CHANGE_LINK_ROOT: c.ops[1].node = NODE_ROOT; break;
	case CHANGE_NO_EVIDENCE: c.ops[2].evidence = 0; break;
	case CHANGE_EVIDENCE_UNKNOWN: c.ops[2].evidence = (Limb__Evidence)5; break;
	case CHANGE_CONTENT_OF_LINK: c.ops[1].content = &c.contents[0]; break;
	case CHANGE_JOB: c.change.job = (char *)"../job"; break;
	case CHANGE_JOB_LONG:
		c.change.job =
			(char *)"j-34567890123456789012345678901234567890123456789012345678901234";
		break;
	}
	rig_say_change(r, &c);
}

static void changes(void **state)
{
	rig_check_hostile(bad_change, CHANGE_GAP, "number 3 where 2");
	rig_check_hostile(bad_change, CHANGE_ZERO, "number 0");
	rig_check_hostile(bad_change, CHANGE_NO_OPS, "0 operations");
	rig_check_hostile(bad_change, CHANGE_65_OPS, "65 operations");
	rig_check_hostile(bad_change, CHANGE_KIND, "kind");
	rig_check_hostile(bad_change, CHANGE_NO_OP, "kind");
	rig_check_hostile(bad_change, CHANGE_NO_NODE, "without a node");
	rig_check_hostile(bad_change, CHANGE_NO_ATTR, "no attributes");
	rig_check_hostile(bad_change, CHANGE_TYPE, "type");
	rig_check_hostile(bad_change, CHANGE_MODE, "mode");
	rig_check_hostile(bad_change, CHANGE_TARGET_LONG, "target");
	rig_check_hostile(bad_change, CHANGE_TARGET_NUL, "NUL");
	rig_check_hostile(bad_change, CHANGE_XATTRS_LARGE, "too large");
	rig_check_hostile(bad_change, CHANGE_XATTRS_UNSORTED, "sorted");
	rig_check_hostile(bad_change, CHANGE_NO_PARENT, "parent");
	rig_check_hostile(bad_change, CHANGE_LINK_ROOT, "root");
	rig_check_hostile(bad_change, CHANGE_NO_EVIDENCE, "evidence");
	rig_check_hostile(bad_change, CHANGE_EVIDENCE_UNKNOWN, "evidence");
	rig_check_hostile(bad_change, CHANGE_CONTENT_OF_LINK, "content or attributes with LINK");
	rig_check_hostile(bad_change, CHANGE_JOB, "job");
	rig_check_hostile(bad_change, CHANGE_JOB_LONG, "job");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),
		cmocka_unit_test(names_in_trees),
		cmocka_unit_test(contents_that_are_not_what_was_said),
		cmocka_unit_test(sizes_that_are_claimed),
		cmocka_unit_test(streams),
		cmocka_unit_test(a_stream_counts_once),
		cmocka_unit_test(changes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
