#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "journal/arena.h"
#include "journal/body.h"
#include "journal/change.h"

static const uint8_t xattrs[] = {6, 0, 'u', 's', 'e', 'r', '.', 'a', 2, 0, 0, 0, 'x', 'y'};

static struct change_op put_file(uint64_t node)
{
	struct change_op op = {
		.kind = CHANGE_PUT,
		.node = node,
		.has_content = true,
		.base_version = 41,
		.attr =
			{
				.type = NODE_TYPE_FILE,
				.uid_kind = NODE_OWNER_NUMBER,
				.gid_kind = NODE_OWNER_ROOT,
				.mode = 04755,
				.uid = UINT32_MAX,
				.gid = 7,
				.mtime_ns = INT64_MIN,
				.ctime_ns = INT64_MAX,
				.inode = UINT64_MAX,
				.generation = 3,
				.device = 4,
				.unheld = NODE_MASK_NS,
				.torn = true,
				.content = {.size_bytes = 1 << 20, .depth = 2, .holes = true},
				.allocated_bytes = 4096,
				.xattrs = xattrs,
				.xattrs_len = sizeof(xattrs),
			},
	};

	memset(op.attr.content.sha256, 0xab, SHA256_BYTES);
	memset(op.attr.content.root, 0xcd, SHA256_BYTES);
	return op;
}

static void assert_bytes(const void *a, size_t a_len, const void *b, size_t b_len)
{
	assert_int_equal(a_len, b_len);
	if (a_len)
		assert_memory_equal(a, b, a_len);
}

static void assert_attr(const struct node *a, const struct node *b)
{
	assert_int_equal(node_compare(a, b, 0), 0);
	assert_int_equal(a->uid, b->uid);
	assert_int_equal(a->gid, b->gid);
	assert_true(a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns);
	assert_true(a->inode == b->inode && a->generation == b->generation);
	assert_true(a->device == b->device && a->unheld == b->unheld && a->torn == b->torn);
	assert_true(a->rdev_major == b->rdev_major && a->rdev_minor == b->rdev_minor);
	assert_true(a->allocated_bytes == b->allocated_bytes);
	assert_int_equal(a->content.depth, b->content.depth);
	assert_memory_equal(a->content.root, b->content.root, SHA256_BYTES);
}

static void assert_change(const struct change *a, const struct change *b)
{
	assert_true(a->incarnation == b->incarnation && a->number == b->number);
	assert_true(a->origin == b->origin && a->base_seq == b->base_seq);
	assert_true(a->origin_time_ns == b->origin_time_ns);
	assert_true(!a->task == !b->task && !a->job == !b->job);
	assert_string_equal(a->principal, b->principal);
	assert_int_equal(a->n_ops, b->n_ops);
	for (size_t i = 0; i < a->n_ops; i++) {
		const struct change_op *x = &a->ops[i], *y = &b->ops[i];
		assert_int_equal(x->kind, y->kind);
		assert_int_equal(x->evidence, y->evidence);
		assert_int_equal(x->has_content, y->has_content);
		assert_true(x->node == y->node && x->base_version == y->base_version);
		assert_true(x->parent == y->parent && x->to_parent == y->to_parent);
		assert_bytes(x->name, x->name_len, y->name, y->name_len);
		assert_bytes(x->to_name, x->to_name_len, y->to_name, y->to_name_len);
		if (x->kind == CHANGE_PUT)
			assert_attr(&x->attr, &y->attr);
	}
}

/* Every value of a change with every kind of operation comes back as it was. */
static void a_change_comes_back(void **state)
{
	struct change_op ops[] = {
		put_file(UINT64_MAX),
		{.kind = CHANGE_PUT,
		 .node = 2,
		 .attr = {.type = NODE_TYPE_SYMLINK,
			  .mode = 0777,
			  .target = (const uint8_t *)"../\xff",
			  .target_len = 4}},
		{.kind = CHANGE_PUT,
		 .node = 3,
		 .attr = {.type = NODE_TYPE_CHAR, .rdev_major = UINT32_MAX, .rdev_minor = 255}},
		{.kind = CHANGE_LINK, .node = 2, .parent = 1, .name = "\n\xfe", .name_len = 2},
		{.kind = CHANGE_UNLINK,
		 .parent = 9,
		 .node = 4,
		 .name = "gone",
		 .name_len = 4,
		 .evidence = EVIDENCE_ABSENT_},
		{.kind = CHANGE_MOVE,
		 .parent = 1,
		 .name = "a",
		 .name_len = 1,
		 .to_parent = 8,
		 .to_name = "b",
		 .to_name_len = 1},
	};
	struct change c = {.incarnation = 3,
			   .number = UINT64_MAX,
			   .origin = ORIGIN_VIEW_,
			   .principal = "agent",
			   .base_seq = 17,
			   .origin_time_ns = -5,
			   .ops = ops,
			   .n_ops = ARRAY_SIZE(ops)};
	_cleanup_(buf_done) struct buf body = BUF_INIT(0);
	_cleanup_(change_unpacked_freep) struct change_unpacked *u = NULL;

	assert_int_equal(change_pack(&c, &body), 0);
	assert_int_equal(change_unpack(buf_data(&body), buf_len(&body), &u), 0);
	assert_change(change_unpacked_get(u), &c);
}

/* A change without operations (a barrier's) is a change. */
static void no_operations(void **state)
{
	struct change c = {.origin = ORIGIN_ENVIRONMENT_};
	_cleanup_(buf_done) struct buf body = BUF_INIT(0);
	_cleanup_(change_unpacked_freep) struct change_unpacked *u = NULL;

	assert_int_equal(change_pack(&c, &body), 0);
	assert_int_equal(change_unpack(buf_data(&body), buf_len(&body), &u), 0);
	assert_int_equal(change_unpacked_get(u)->n_ops, 0);
}

/* ---- what is refused ---- */

static void bad_kind(struct change *c)
{
	c->ops[0].kind = 5;
}
static void no_kind(struct change *c)
{
	c->ops[0].kind = 0;
}
static void bad_type(struct change *c)
{
	c->ops[0].attr.type = 8;
}
static void no_type(struct change *c)
{
	c->ops[0].attr.type = 0;
}
static void bad_mode(struct change *c)
{
	c->ops[0].attr.mode = 010000;
}
static void bad_owner(struct change *c)
{
	c->ops[0].attr.gid_kind = 3;
}
static void node_zero(struct change *c)
{
	c->ops[0].node = 0;
}
static void file_with_target(struct change *c)
{
	c->ops[0].attr.target = (const uint8_t *)"t";
	c->ops[0].attr.target_len = 1;
}
static void size_beyond_off_t(struct change *c)
{
	c->ops[0].attr.content.size_bytes = 1ull << 63;
}
static void empty_with_list(struct change *c)
{
	c->ops[0].attr.content.size_bytes = 0;
}
static void list_too_deep(struct change *c)
{
	c->ops[0].attr.content.depth = CONTENT_DEPTH_MAX + 1;
}
static void directory_with_content(struct change *c)
{
	c->ops[0].attr.type = NODE_TYPE_DIRECTORY;
}
static void link_without_target(struct change *c)
{
	c->ops[0].attr.type = NODE_TYPE_SYMLINK;
	c->ops[0].has_content = false;
}
static void target_with_nul(struct change *c)
{
	link_without_target(c);
	c->ops[0].attr.target = (const uint8_t *)"a\0b";
	c->ops[0].attr.target_len = 3;
}
static void target_too_long(struct change *c)
{
	static uint8_t target[NODE_TARGET_MAX + 1];

	link_without_target(c);
	memset(target, 'x', sizeof(target));
	c->ops[0].attr.target = target;
	c->ops[0].attr.target_len = sizeof(target);
}
static void xattrs_cut(struct change *c)
{
	c->ops[0].attr.xattrs_len--;
}
static void name_empty(struct change *c)
{
	c->ops[1].name_len = 0;
}
static void name_dot(struct change *c)
{
	c->ops[1].name = ".";
}
static void name_dotdot(struct change *c)
{
	c->ops[1].name = "..";
	c->ops[1].name_len = 2;
}
static void name_slash(struct change *c)
{
	c->ops[1].name = "/";
}
static void name_nul(struct change *c)
{
	c->ops[1].name = "\0";
}
static char long_name[256];
static void name_too_long(struct change *c)
{
	memset(long_name, 'n', sizeof(long_name));
	c->ops[1].name = long_name;
	c->ops[1].name_len = sizeof(long_name);
}
static void to_name_bad(struct change *c)
{
	c->ops[1].kind = CHANGE_MOVE;
	c->ops[1].to_name = "a/b";
	c->ops[1].to_name_len = 3;
}
static void link_to_zero(struct change *c)
{
	c->ops[1].node = 0;
}
static void bad_origin(struct change *c)
{
	c->origin = 6;
}
static void bad_evidence(struct change *c)
{
	c->ops[1].kind = CHANGE_UNLINK;
	c->ops[1].evidence = 5;
}
static char long_id[300];
static void id_too_long(struct change *c)
{
	memset(long_id, 'j', sizeof(long_id) - 1);
	c->job = long_id;
}

static const struct {
	const char *name;
	void (*spoil)(struct change *c);
} spoilers[] = {
	{"kind", bad_kind},
	{"no kind", no_kind},
	{"type", bad_type},
	{"no type", no_type},
	{"mode", bad_mode},
	{"owner", bad_owner},
	{"node 0", node_zero},
	{"file with target", file_with_target},
	{"size", size_beyond_off_t},
	{"empty with list", empty_with_list},
	{"depth", list_too_deep},
	{"directory with content", directory_with_content},
	{"no target", link_without_target},
	{"target with NUL", target_with_nul},
	{"target too long", target_too_long},
	{"xattrs cut", xattrs_cut},
	{"empty name", name_empty},
	{".", name_dot},
	{"..", name_dotdot},
	{"/", name_slash},
	{"NUL", name_nul},
	{"name too long", name_too_long},
	{"to_name", to_name_bad},
	{"link to 0", link_to_zero},
	{"origin", bad_origin},
	{"evidence", bad_evidence},
	{"id too long", id_too_long},
};

/* Each value beyond its limit is refused, with a reason, and nothing is packed. */
static void values_beyond_limits_are_refused(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(spoilers); i++) {
		struct change_op ops[] = {
			put_file(5),
			{.kind = CHANGE_LINK, .node = 5, .parent = 1, .name = "a", .name_len = 1},
		};
		struct change c = {.origin = 1, .ops = ops, .n_ops = 2};
		_cleanup_(buf_done) struct buf body = BUF_INIT(0);
		const char *why = NULL;

		assert_int_equal(change_judge(&c, &why), 0);
		spoilers[i].spoil(&c);
		if (change_judge(&c, &why) != -EINVAL || !why || !*why)
			fail_msg("accepted: %s", spoilers[i].name);
		assert_int_equal(change_pack(&c, &body), -EINVAL);
		assert_int_equal(buf_len(&body), 0);
	}
	struct change c = {.n_ops = CHANGE_OPS_MAX + 1};
	assert_int_equal(change_judge(&c, NULL), -EINVAL);
}

/* Limits at their exact value are accepted. */
static void values_at_limits_are_accepted(void **state)
{
	static uint8_t target[NODE_TARGET_MAX];
	static char name[NODE_NAME_MAX], id[CHANGE_ID_MAX + 1];
	struct change_op ops[CHANGE_OPS_MAX];
	_cleanup_(buf_done) struct buf body = BUF_INIT(0);
	_cleanup_(change_unpacked_freep) struct change_unpacked *u = NULL;

	memset(target, 't', sizeof(target));
	memset(name, 'n', sizeof(name));
	memset(id, 'i', sizeof(id) - 1);
	for (size_t i = 0; i < CHANGE_OPS_MAX; i++) {
		ops[i] = (struct change_op){.kind = CHANGE_PUT,
					    .node = i + 2,
					    .attr = {.type = NODE_TYPE_SYMLINK,
						     .mode = 07777,
						     .target = target,
						     .target_len = sizeof(target)}};
	}
	ops[1] = (struct change_op){
		.kind = CHANGE_LINK, .node = 2, .parent = 1, .name = name, .name_len = 255};
	struct change c = {
		.origin = 5, .ops = ops, .n_ops = CHANGE_OPS_MAX, .job = id, .principal = id};
	assert_int_equal(change_pack(&c, &body), 0);
	assert_int_equal(change_unpack(buf_data(&body), buf_len(&body), &u), 0);
	assert_change(change_unpacked_get(u), &c);
}

/* ---- hostile bodies ---- */

static int unpacks(const uint8_t *p, size_t n)
{
	struct change_unpacked *u = NULL;
	uint8_t *copy = malloc(n ? n : 1); /* so that ASan sees its end */
	int r;

	assert_non_null(copy);
	if (n)
		memcpy(copy, p, n);
	r = change_unpack(copy, n, &u);
	change_unpacked_free(u);
	free(copy);
	return r;
}

/* The spoiled values are refused in a body too, whoever packed it. */
static void bodies_are_judged(void **state)
{
	struct change_op ops[] = {put_file(5)};
	struct change c = {.origin = 1, .ops = ops, .n_ops = 1};
	_cleanup_(buf_done) struct buf body = BUF_INIT(0), spoiled = BUF_INIT(0);
	_cleanup_(arena_done) struct arena a = ARENA_INIT(0);
	Limb__Record *rec;
	uint8_t *p;

	assert_int_equal(change_pack(&c, &body), 0);
#define REFUSED(spoil)                                                                          \
	do {                                                                                    \
		assert_int_equal(body_unpack(&a, buf_data(&body), buf_len(&body), &rec), 0);    \
		Limb__Op *op = rec->change->ops[0];                                             \
		(void)op;                                                                       \
		spoil;                                                                          \
		buf_clear(&spoiled);                                                            \
		assert_int_equal(buf_reserve(&spoiled, limb__record__get_packed_size(rec), &p), \
				 0);                                                            \
		buf_commit(&spoiled, limb__record__pack(rec, p));                               \
		assert_int_equal(unpacks(buf_data(&spoiled), buf_len(&spoiled)), -EBADMSG);     \
	} while (0)
	REFUSED(op->kind = (Limb__OpKind)256 + CHANGE_PUT);
	REFUSED(op->attr->type = (Limb__NodeType)256 + NODE_TYPE_FILE);
	REFUSED(op->attr->uid_kind = (Limb__OwnerKind)3);
	REFUSED(op->attr->mode = 0x10000);
	REFUSED(op->attr->rdev_major = 1ull << 32);
	REFUSED(op->attr->xattrs[0]->name.len = 0);
	REFUSED((op->attr->n_xattrs = 2,
		 op->attr->xattrs = (Limb__Xattr *[]){op->attr->xattrs[0], op->attr->xattrs[0]}));
	REFUSED(op->attr = NULL);
	REFUSED(op->content->sha256.len = 31);
	REFUSED(op->content->root.len = 0);
	REFUSED(op->content->depth = 0);
	REFUSED(op->content->depth = 257);
	REFUSED(rec->origin = (Limb__Origin)257);
	REFUSED(rec->body_case = LIMB__RECORD__BODY__NOT_SET);
#undef REFUSED
	assert_int_equal(unpacks(buf_data(&body), buf_len(&body)), 0);
	assert_int_equal(change_unpack(NULL, 0, NULL), -EBADMSG);
	assert_int_equal(unpacks(NULL, 0), -EBADMSG);
}

/* Two bytes an operation: without a bound this body would cost gigabytes. */
static void a_small_body_cannot_cost_much(void **state)
{
	size_t n = 4 << 20, head = 0;
	uint8_t *p = malloc(n + 16);
	_cleanup_(arena_done) struct arena a = ARENA_INIT(0);
	Limb__Record *rec;

	assert_non_null(p);
	p[head++] = ((18 << 3 | 2) & 0x7f) | 0x80; /* field 18 (change), by length */
	p[head++] = 1;
	for (size_t v = n;; v >>= 7) {
		p[head++] = (uint8_t)(v & 0x7f) | (v > 0x7f ? 0x80 : 0);
		if (v <= 0x7f)
			break;
	}
	for (size_t i = 0; i < n; i += 2) {
		p[head + i] = 1 << 3 | 2; /* ops */
		p[head + i + 1] = 0;
	}
	assert_int_equal(body_unpack(&a, p, head + n, &rec), -EBADMSG);
	assert_true(a.used <= (128u << 10) + 8 * (head + n));
	assert_int_equal(unpacks(p, head + n), -EBADMSG);
	free(p);
}

/* A body cut or altered anywhere is refused or gives values within limits; it never
 * reads or writes beyond its memory. */
static void damaged_bodies(void **state)
{
	struct change_op ops[] = {
		put_file(5),
		{.kind = CHANGE_LINK, .node = 5, .parent = 1, .name = "ab", .name_len = 2}};
	struct change c = {.origin = 1, .job = "j-1", .ops = ops, .n_ops = 2};
	_cleanup_(buf_done) struct buf body = BUF_INIT(0);
	unsigned seed = 1, refused = 0;

	assert_int_equal(change_pack(&c, &body), 0);
	for (size_t cut = 0; cut < buf_len(&body); cut++)
		refused += unpacks(buf_data(&body), cut) == -EBADMSG;
	assert_true(refused > buf_len(&body) / 2);
	for (unsigned i = 0; i < 20000; i++) {
		uint8_t p[512];
		size_t n = buf_len(&body);
		assert_true(n < sizeof(p));
		memcpy(p, buf_data(&body), n);
		for (unsigned k = 0; k <= i % 3; k++)
			p[(unsigned)rand_r(&seed) % n] = (uint8_t)rand_r(&seed);
		struct change_unpacked *u = NULL;
		if (change_unpack(p, n, &u) == 0)
			assert_int_equal(change_judge(change_unpacked_get(u), NULL), 0);
		change_unpacked_free(u);
	}
}

/* Pieces of an arena keep their place and content; its limit holds; a reset gives all back. */
static void arenas(void **state)
{
	struct arena a = ARENA_INIT(100000);
	uint32_t *p[1000];

	for (int round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < 1000; i++) {
			p[i] = arena_alloc(&a, 12 + i % 60);
			assert_non_null(p[i]);
			assert_int_equal((uintptr_t)p[i] % 8, 0);
			memset(p[i], 0xee, 12 + i % 60);
			*p[i] = i;
		}
		for (uint32_t i = 0; i < 1000; i++)
			assert_int_equal(*p[i], i);
		assert_null(arena_alloc(&a, 100000));
		assert_null(arena_alloc(&a, SIZE_MAX - 3));
		arena_reset(&a);
		assert_int_equal(a.used, 0);
	}
	assert_memory_equal(arena_copy(&a, "abc", 3), "abc", 3);
	arena_done(&a);
	arena_done(NULL);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_change_comes_back),
		cmocka_unit_test(no_operations),
		cmocka_unit_test(values_beyond_limits_are_refused),
		cmocka_unit_test(values_at_limits_are_accepted),
		cmocka_unit_test(bodies_are_judged),
		cmocka_unit_test(a_small_body_cannot_cost_much),
		cmocka_unit_test(damaged_bodies),
		cmocka_unit_test(arenas),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
