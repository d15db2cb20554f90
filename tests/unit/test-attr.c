/* A node that goes through its messages and bytes comes back the same, and a message that
 * breaks a rule is refused with the rule named and the buffer left alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "wire/attr.h"

static void fill_file(struct node *n, const uint8_t *xattrs, uint32_t xattrs_len)
{
	*n = (struct node){
		.type = NODE_TYPE_FILE,
		.uid_kind = NODE_OWNER_NUMBER,
		.gid_kind = NODE_OWNER_ROOT,
		.mode = 07755,
		.uid = UINT32_MAX,
		.gid = 12,
		.mtime_ns = INT64_MIN,
		.ctime_ns = -1,
		.inode = UINT64_MAX,
		.generation = 1,
		.device = 2,
		.unheld = NODE_MASK_NS | NODE_MASK_YEARS,
		.torn = true,
		.allocated_bytes = 4096,
		.xattrs = xattrs,
		.xattrs_len = xattrs_len,
	};
	n->content.size_bytes = INT64_MAX;
	n->content.depth = CONTENT_DEPTH_MAX;
	n->content.holes = true;
	memset(n->content.sha256, 1, SHA256_BYTES);
	memset(n->content.root, 2, SHA256_BYTES);
}

static void assert_same(const struct node *a, const struct node *b)
{
	struct node x = *a, y = *b;

	assert_int_equal(a->target_len, b->target_len);
	assert_int_equal(a->xattrs_len, b->xattrs_len);
	if (a->target_len)
		assert_memory_equal(a->target, b->target, a->target_len);
	if (a->xattrs_len)
		assert_memory_equal(a->xattrs, b->xattrs, a->xattrs_len);
	x.target = y.target = NULL;
	x.xattrs = y.xattrs = NULL;
	assert_int_equal(x.type, y.type);
	assert_int_equal(x.uid_kind, y.uid_kind);
	assert_int_equal(x.gid_kind, y.gid_kind);
	assert_int_equal(x.mode, y.mode);
	assert_int_equal(x.uid, y.uid);
	assert_int_equal(x.gid, y.gid);
	assert_true(x.mtime_ns == y.mtime_ns && x.ctime_ns == y.ctime_ns);
	assert_true(x.inode == y.inode && x.generation == y.generation && x.device == y.device);
	assert_int_equal(x.rdev_major, y.rdev_major);
	assert_int_equal(x.rdev_minor, y.rdev_minor);
	assert_int_equal(x.unheld, y.unheld);
	assert_int_equal(x.torn, y.torn);
	assert_true(x.allocated_bytes == y.allocated_bytes);
	assert_true(x.content.size_bytes == y.content.size_bytes);
	assert_int_equal(x.content.depth, y.content.depth);
	assert_int_equal(x.content.holes, y.content.holes);
	assert_memory_equal(x.content.sha256, y.content.sha256, SHA256_BYTES);
	assert_memory_equal(x.content.root, y.content.root, SHA256_BYTES);
}

/* Through the bytes of the messages, not only the structs. */
static void round_trip(const struct node *n)
{
	struct wire_attr_scratch s = {0};
	struct buf xattrs = BUF_INIT(0);
	const char *why = NULL;
	Limb__Content *c = NULL;
	uint8_t *bytes;
	struct node back;
	Limb__Attr *a;
	size_t len;

	assert_int_equal(wire_attr_fill(&s, n), 0);
	len = limb__attr__get_packed_size(&s.attr);
	bytes = malloc(len + 1);
	limb__attr__pack(&s.attr, bytes);
	a = limb__attr__unpack(NULL, len, bytes);
	free(bytes);
	if (n->type == NODE_TYPE_FILE) {
		len = limb__content__get_packed_size(&s.content);
		bytes = malloc(len + 1);
		limb__content__pack(&s.content, bytes);
		c = limb__content__unpack(NULL, len, bytes);
		free(bytes);
	}
	assert_non_null(a);
	assert_int_equal(buf_add(&xattrs, "before", 6), 0);
	assert_int_equal(wire_attr_parse(a, c, &xattrs, &back, &why), 0);
	assert_int_equal(buf_len(&xattrs), 6 + n->xattrs_len);
	assert_same(n, &back);
	limb__attr__free_unpacked(a, NULL);
	if (c)
		limb__content__free_unpacked(c, NULL);
	buf_done(&xattrs);
	wire_attr_scratch_done(&s);
}

static void add_xattr(struct buf *b, const char *name, const void *value, uint32_t len)
{
	uint8_t head[4];

	put_le16(head, (uint16_t)strlen(name));
	assert_int_equal(buf_add(b, head, 2), 0);
	assert_int_equal(buf_add_str(b, name), 0);
	put_le32(head, len);
	assert_int_equal(buf_add(b, head, 4), 0);
	assert_int_equal(buf_add(b, value, len), 0);
}

static void a_file_with_everything(void **state)
{
	struct buf xattrs = BUF_INIT(0);
	char name[32];
	struct node n;

	fill_file(&n, NULL, 0);
	round_trip(&n);
	for (int i = 0; i < 300; i++) {
		(void)snprintf(name, sizeof(name), "user.%03d", i);
		add_xattr(&xattrs, name, "value\0with NUL", (uint32_t)(i % 15));
	}
	fill_file(&n, buf_data(&xattrs), (uint32_t)buf_len(&xattrs));
	round_trip(&n);
	n.content.depth = 0;
	memset(n.content.root, 0, SHA256_BYTES);
	round_trip(&n);
	buf_done(&xattrs);
}

static void the_largest_list_of_xattrs(void **state)
{
	static uint8_t value[NODE_XATTRS_MAX];
	struct buf xattrs = BUF_INIT(0);
	struct node n;

	add_xattr(&xattrs, "user.x", value, NODE_XATTRS_MAX - 12);
	assert_int_equal(buf_len(&xattrs), NODE_XATTRS_MAX);
	fill_file(&n, buf_data(&xattrs), (uint32_t)buf_len(&xattrs));
	round_trip(&n);
	buf_done(&xattrs);
}

static void every_other_type(void **state)
{
	uint8_t target[NODE_TARGET_MAX];
	struct node n = {.mode = 0777, .mtime_ns = 5};

	memset(target, 0xff, sizeof(target));
	for (uint8_t type = NODE_TYPE_DIRECTORY; type <= NODE_TYPE_BLOCK; type++) {
		n.type = type;
		n.target = type == NODE_TYPE_SYMLINK ? target : NULL;
		n.target_len = type == NODE_TYPE_SYMLINK ? sizeof(target) : 0;
		n.rdev_major = type >= NODE_TYPE_CHAR ? UINT32_MAX : 0;
		n.rdev_minor = type >= NODE_TYPE_CHAR ? 255 : 0;
		round_trip(&n);
	}
}

/* ---- messages that break a rule ---- */

struct fixture {
	struct wire_attr_scratch s;
	struct buf list;
	uint8_t big[NODE_XATTRS_MAX + 1];
	struct node n; /* what s points into */
};

static struct fixture fx;

/* A file with two xattrs, in fx.s; each test bends one thing. */
static void fresh(void)
{
	wire_attr_scratch_done(&fx.s);
	buf_clear(&fx.list);
	add_xattr(&fx.list, "user.a", "1", 1);
	add_xattr(&fx.list, "user.b", "2", 1);
	fill_file(&fx.n, buf_data(&fx.list), (uint32_t)buf_len(&fx.list));
	fx.n.unheld = 0;
	assert_int_equal(wire_attr_fill(&fx.s, &fx.n), 0);
	assert_int_equal(fx.s.attr.n_xattrs, 2);
}

static void assert_refused(const Limb__Attr *a, const Limb__Content *c, const char *rule)
{
	struct buf xattrs = BUF_INIT(0);
	const char *why = NULL;
	struct node n = {.mode = 4242};

	assert_int_equal(wire_attr_parse(a, c, &xattrs, &n, &why), -EBADMSG);
	assert_non_null(why);
	if (!strstr(why, rule))
		fail_msg("refused for '%s', not for '%s'", why, rule);
	assert_int_equal(n.mode, 4242);
	assert_int_equal(buf_len(&xattrs), 0);
	buf_done(&xattrs);
}

#define REFUSED(bend, rule)                                      \
	do {                                                     \
		fresh();                                         \
		bend;                                            \
		assert_refused(&fx.s.attr, &fx.s.content, rule); \
	} while (0)

static void attributes_that_break_a_rule(void **state)
{
	Limb__Attr *a = &fx.s.attr;

	assert_refused(NULL, NULL, "no attributes");
	REFUSED(a->type = 0, "type");
	REFUSED(a->type = 8, "type");
	REFUSED(a->type = (Limb__NodeType)-1, "type");
	REFUSED(a->type = (Limb__NodeType)257, "type");
	REFUSED(a->mode = 010000, "mode");
	REFUSED(a->uid_kind = 3, "owner");
	REFUSED(a->gid_kind = (Limb__OwnerKind)-1, "owner");
	REFUSED(a->rdev_major = 1ull << 32, "device");
	REFUSED(a->rdev_minor = 1ull << 32, "device");
	REFUSED(a->type = LIMB__NODE_TYPE__NODE_DIRECTORY, "not a file");
	REFUSED((a->target.data = fx.big, a->target.len = 1), "not a symlink");
}

static void targets_that_break_a_rule(void **state)
{
	Limb__Attr *a = &fx.s.attr;

	memset(fx.big, 'x', sizeof(fx.big));
	fresh();
	a->type = LIMB__NODE_TYPE__NODE_SYMLINK;
	assert_refused(a, NULL, "target empty");
	a->target.data = fx.big;
	a->target.len = NODE_TARGET_MAX + 1;
	assert_refused(a, NULL, "too long");
	a->target.len = 5;
	fx.big[4] = '\0';
	assert_refused(a, NULL, "NUL");
}

static void contents_that_break_a_rule(void **state)
{
	Limb__Content *c = &fx.s.content;

	REFUSED(c->size_bytes = 1ull << 63, "size");
	REFUSED(c->sha256.len = 31, "32 bytes");
	REFUSED((c->sha256.len = 0, c->sha256.data = NULL), "32 bytes");
	REFUSED(c->depth = CONTENT_DEPTH_MAX + 1, "depth");
	REFUSED(c->depth = 256, "depth");
	REFUSED(c->depth = 0, "root");
	REFUSED(c->root.len = 0, "root");
	REFUSED(c->root.len = 31, "root");
}

static void xattrs_that_break_a_rule(void **state)
{
	memset(fx.big, 'x', sizeof(fx.big));
	REFUSED(fx.s.xattrs[0].name.len = 0, "name");
	REFUSED((fx.s.xattrs[0].name.data = fx.big, fx.s.xattrs[0].name.len = 256), "name");
	REFUSED((fx.s.xattrs[0].name.data = (uint8_t *)"a\0b", fx.s.xattrs[0].name.len = 3),
		"name");
	REFUSED(fx.s.xattrs[1].name.data = (uint8_t *)"user.a", "sorted");
	REFUSED(fx.s.xattrs[1].name.data = (uint8_t *)"user.Z", "sorted");
	/* The first 6 bytes are equal: the longer name comes second. */
	REFUSED((fx.s.xattrs[0].name.data = (uint8_t *)"user.bc", fx.s.xattrs[0].name.len = 7),
		"sorted");
	REFUSED((fx.s.xattrs[0].value.data = fx.big,
		 fx.s.xattrs[0].value.len = NODE_XATTRS_MAX + 1),
		"large");
	/* Each is within, both are not: 2 * (6 + 6) bytes around 65,513. */
	REFUSED((fx.s.xattrs[0].value.data = fx.big,
		 fx.s.xattrs[0].value.len = NODE_XATTRS_MAX - 24),
		"large");
	wire_attr_scratch_done(&fx.s);
	buf_done(&fx.list);
}

static void unknown_bits_of_the_mask_are_dropped(void **state)
{
	Limb__Attr a = LIMB__ATTR__INIT;
	struct buf xattrs = BUF_INIT(0);
	const char *why;
	struct node n;

	a.type = LIMB__NODE_TYPE__NODE_FIFO;
	a.unheld = UINT32_MAX;
	a.rdev_major = 7; /* of no device */
	assert_int_equal(wire_attr_parse(&a, NULL, &xattrs, &n, &why), 0);
	assert_int_equal(n.unheld, 2 * NODE_MASK_YEARS - 1);
	assert_int_equal(n.rdev_major, 0);
	buf_done(&xattrs);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_with_everything),
		cmocka_unit_test(the_largest_list_of_xattrs),
		cmocka_unit_test(every_other_type),
		cmocka_unit_test(attributes_that_break_a_rule),
		cmocka_unit_test(targets_that_break_a_rule),
		cmocka_unit_test(contents_that_break_a_rule),
		cmocka_unit_test(xattrs_that_break_a_rule),
		cmocka_unit_test(unknown_bits_of_the_mask_are_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
