#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/text.h"
#include "journal/node.h"

struct xattr {
	const char *name, *value;
	uint32_t value_len;
};

static uint32_t pack(uint8_t *p, const struct xattr *x, size_t n)
{
	uint8_t *start = p;

	for (size_t i = 0; i < n; i++) {
		put_le16(p, (uint16_t)strlen(x[i].name));
		memcpy(p + 2, x[i].name, strlen(x[i].name));
		p += 2 + strlen(x[i].name);
		put_le32(p, x[i].value_len);
		memcpy(p + 4, x[i].value, x[i].value_len);
		p += 4 + x[i].value_len;
	}
	return (uint32_t)(p - start);
}

static const struct xattr all_classes[] = {
	{"security.capability", "\1\2", 2},
	{"system.posix_acl_access", "\2\0", 2},
	{"trusted.t", "", 0},
	{"user.a", "1", 1},
	{"zzz", "z", 1},
};

static void add(struct node_hasher *h, const char *path, struct node n, uint32_t same_as)
{
	sha256("hello", 5, n.content.sha256);
	node_hasher_add(h, path, strlen(path), &n, same_as);
}

/* A tree with every type and every attribute, in canonical order. */
static void add_tree(struct node_hasher *h)
{
	uint8_t list[200];
	struct node file = {
		.type = NODE_TYPE_FILE,
		.mode = 04755,
		.uid_kind = NODE_OWNER_NUMBER,
		.uid = 1000,
		.gid_kind = NODE_OWNER_ROOT,
		.gid = 77, /* not hashed: root is no number */
		.mtime_ns = -1,
		.xattrs = list,
		.xattrs_len = pack(list, all_classes, ARRAY_SIZE(all_classes)),
		.inode = 99,
		.ctime_ns = 5,
	};

	add(h, "dir",
	    (struct node){.type = NODE_TYPE_DIRECTORY,
			  .mode = 02755,
			  .uid = 12,
			  .mtime_ns = 1500000000123456789},
	    0);
	add(h, "dir/a", file, 0);
	add(h, "dir/b\xff", file, 2);
	add(h, "l",
	    (struct node){.type = NODE_TYPE_SYMLINK,
			  .mode = 0700, /* hashed as 0777 */
			  .target = (const uint8_t *)"a b",
			  .target_len = 3},
	    0);
	add(h, "p", (struct node){.type = NODE_TYPE_FIFO, .mode = 0600}, 0);
	add(h, "s", (struct node){.type = NODE_TYPE_SOCKET, .mode = 0600}, 0);
	add(h, "z",
	    (struct node){.type = NODE_TYPE_BLOCK,
			  .mode = 0660,
			  .uid_kind = NODE_OWNER_ROOT,
			  .gid_kind = NODE_OWNER_NUMBER,
			  .gid = UINT32_MAX,
			  .rdev_major = 8,
			  .rdev_minor = 70000},
	    0);
}

/* Computed by a separate program (Python's hashlib and struct) from FORMAT 8. */
static const struct {
	uint32_t mask;
	const char *content, *full;
} expected[] = {
	{0, "574b1adc266036d5f82aac74bb249e912919a8b442b8cd5d8d0d8e564a5c3353",
	 "cfff89b68ade8d70df031af82e17779ca2b33089276feb0016713131f8889a80"},
	{NODE_MASK_OWNER, "574b1adc266036d5f82aac74bb249e912919a8b442b8cd5d8d0d8e564a5c3353",
	 "a0138fa4e4c9416bd7b63342ada36533aabe93530d9eb439fd4e8d8ba99dfc4e"},
	{NODE_MASK_SETID, "574b1adc266036d5f82aac74bb249e912919a8b442b8cd5d8d0d8e564a5c3353",
	 "eaad0980077c54c217a0f3caa21514167dcce60bfdc47e5aacbcae2e8fcb1ba7"},
	{NODE_MASK_XATTR_USER, "574b1adc266036d5f82aac74bb249e912919a8b442b8cd5d8d0d8e564a5c3353",
	 "111cecc8f0246e16cee064e2fc1d7f185b7dc2149dc390deb2ef9a50ccfb7d94"},
	{NODE_MASK_XATTR_TRUSTED,
	 "574b1adc266036d5f82aac74bb249e912919a8b442b8cd5d8d0d8e564a5c3353",
	 "588ea1229bd3c5451394403b173654492468633fe1898992fbee250e29593627"},
	{NODE_MASK_XATTR_ACL, "574b1adc266036d5f82aac74bb249e912919a8b442b8cd5d8d0d8e564a5c3353",
	 "99c3f0e34d6b35e0d1d80de804a734e2cb6c6697f3bc43493bc381c5dc7b83d7"},
	{NODE_MASK_NS, "574b1adc266036d5f82aac74bb249e912919a8b442b8cd5d8d0d8e564a5c3353",
	 "701e66c17a89bdb5e4ebf0c296967e20dee8c9783b1c00d5b674f823953ee46a"},
	{NODE_MASK_DEVICE, "7af4991e87361c0f5515394ebb435be74f56f52c3c0acfa02a5ff05278bc3f6c",
	 "67d47c460c4a6cc34b4713cd0fc96678f8899a0a0ae37fa055f7d2a1b2a72f0a"},
	{NODE_MASK_YEARS, "574b1adc266036d5f82aac74bb249e912919a8b442b8cd5d8d0d8e564a5c3353",
	 "e382e448c19a3016652de3015fb1cba8443dae6726ec6dfc4d88dc1ad78605c8"},
	{UINT32_MAX, "7af4991e87361c0f5515394ebb435be74f56f52c3c0acfa02a5ff05278bc3f6c",
	 "0b6ebb9ae7100ded12acd43cd94091b9b3ebf040ac4dfe5872ad9a2ef8386fc8"},
};

/* The hashes are those that FORMAT describes, under no mask, each bit and all. */
static void hashes_are_as_the_format_says(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
		struct node_hasher *h = node_hasher_new(expected[i].mask);
		uint8_t content[SHA256_BYTES], full[SHA256_BYTES];
		char text[2 * SHA256_BYTES + 1];

		assert_non_null(h);
		add_tree(h);
		node_hasher_final(h, content, full);
		node_hasher_free(h);
		text_hex(text, content, SHA256_BYTES);
		assert_string_equal(text, expected[i].content);
		text_hex(text, full, SHA256_BYTES);
		assert_string_equal(text, expected[i].full);
	}
}

/* Each difference is named by its own field, once, and only outside the mask. */
static void compare_names_the_field(void **state)
{
	uint8_t list[200], other_list[200];
	const struct node base = {
		.type = NODE_TYPE_FILE,
		.mode = 0644,
		.uid_kind = NODE_OWNER_NUMBER,
		.uid = 5,
		.mtime_ns = 1000000007,
		.xattrs = list,
		.xattrs_len = pack(list, all_classes, ARRAY_SIZE(all_classes)),
	};
	struct node n;

	assert_int_equal(node_compare(&base, &base, 0), 0);
/* hidden_by UINT32_MAX: no mask hides it. */
#define DIFFERS(change, field, hidden_by)                                  \
	do {                                                               \
		n = base;                                                  \
		change;                                                    \
		assert_int_equal(node_compare(&base, &n, 0), field);       \
		assert_int_equal(node_compare(&n, &base, 0), field);       \
		assert_int_equal(node_compare(&base, &n, hidden_by),       \
				 (hidden_by) == UINT32_MAX ? (field) : 0); \
	} while (0)
	DIFFERS(n.type = NODE_TYPE_FIFO, NODE_FIELD_TYPE, UINT32_MAX);
	DIFFERS(n.content.size_bytes = 1, NODE_FIELD_CONTENT, UINT32_MAX);
	DIFFERS(n.content.sha256[31] = 1, NODE_FIELD_CONTENT, UINT32_MAX);
	DIFFERS(n.content.holes = true, NODE_FIELD_HOLES, UINT32_MAX);
	DIFFERS(n.mode = 0645, NODE_FIELD_MODE, UINT32_MAX);
	DIFFERS(n.mode = 04644, NODE_FIELD_MODE, NODE_MASK_SETID);
	DIFFERS(n.uid = 6, NODE_FIELD_UID, NODE_MASK_OWNER);
	DIFFERS(n.uid_kind = NODE_OWNER_SELF, NODE_FIELD_UID, NODE_MASK_OWNER);
	DIFFERS(n.gid_kind = NODE_OWNER_ROOT, NODE_FIELD_GID, NODE_MASK_OWNER);
	DIFFERS(n.gid = 9, 0, NODE_MASK_OWNER); /* self: the number says nothing */
	DIFFERS(n.mtime_ns = 1000000008, NODE_FIELD_MTIME, NODE_MASK_NS);
	DIFFERS(n.mtime_ns = 2000000007, NODE_FIELD_MTIME, NODE_MASK_YEARS);
	DIFFERS(n.ctime_ns = 7, 0, UINT32_MAX);
	DIFFERS(n.inode = 7, 0, UINT32_MAX);

	struct xattr x[ARRAY_SIZE(all_classes)];
	static const uint32_t masks[] = {NODE_MASK_XATTR_TRUSTED, NODE_MASK_XATTR_ACL,
					 NODE_MASK_XATTR_TRUSTED, NODE_MASK_XATTR_USER, UINT32_MAX};
	for (size_t i = 0; i < ARRAY_SIZE(x); i++) {
		memcpy(x, all_classes, sizeof(x));
		x[i].value = "xx";
		x[i].value_len = 2;
		uint32_t len = pack(other_list, x, ARRAY_SIZE(x));
		DIFFERS((n.xattrs = other_list, n.xattrs_len = len), NODE_FIELD_XATTR, masks[i]);
	}
	DIFFERS(n.xattrs_len = 0, NODE_FIELD_XATTR, UINT32_MAX);
	/* Whole seconds are rounded down on both sides of 1970. */
	assert_int_equal(node_masked_mtime(-1, NODE_MASK_NS), -1000000000);
	assert_int_equal(node_masked_mtime(1999999999, NODE_MASK_NS), 1000000000);
	assert_true(node_masked_mtime(INT64_MIN, NODE_MASK_NS) == INT64_MIN);
#undef DIFFERS
}

/* Targets belong to links and device numbers to devices. */
static void compare_links_and_devices(void **state)
{
	struct node a = {.type = NODE_TYPE_SYMLINK,
			 .mode = 0777,
			 .target = (const uint8_t *)"abc",
			 .target_len = 3},
		    b = a;

	b.mode = 0;
	assert_int_equal(node_compare(&a, &b, 0), 0);
	b.target = (const uint8_t *)"abd";
	assert_int_equal(node_compare(&a, &b, 0), NODE_FIELD_TARGET);
	b.target = a.target;
	b.target_len = 2;
	assert_int_equal(node_compare(&a, &b, 0), NODE_FIELD_TARGET);
	a = b = (struct node){.type = NODE_TYPE_CHAR, .rdev_major = 1, .rdev_minor = 2};
	b.rdev_minor = 3;
	assert_int_equal(node_compare(&a, &b, 0), NODE_FIELD_CONTENT);
	assert_int_equal(node_compare(&a, &b, NODE_MASK_DEVICE), 0);
}

/* A list is refused unless sorted, without doubles, whole, and within limits; and a
 * list that is cut anywhere is never read beyond its end. */
static void xattr_lists_are_judged(void **state)
{
	static const struct xattr doubles[] = {{"user.a", "1", 1}, {"user.a", "2", 1}},
				  unsorted[] = {{"user.b", "", 0}, {"user.a", "", 0}},
				  prefix[] = {{"user.a", "", 0}, {"user.ab", "", 0}},
				  empty[] = {{"", "", 0}};
	uint8_t p[400];
	uint32_t n, whole;

	assert_true(node_xattrs_ok(NULL, 0));
	assert_true(node_xattrs_ok(p, pack(p, prefix, 2)));
	assert_false(node_xattrs_ok(p, pack(p, doubles, 2)));
	assert_false(node_xattrs_ok(p, pack(p, unsorted, 2)));
	assert_false(node_xattrs_ok(p, pack(p, empty, 1)));
	n = pack(p, prefix, 2);
	p[2] = 0;
	assert_false(node_xattrs_ok(p, n));

	n = pack(p, all_classes, ARRAY_SIZE(all_classes));
	whole = 0;
	for (uint32_t cut = 1; cut <= n; cut++) {
		uint8_t *copy = malloc(cut); /* so that ASan sees its end */
		assert_non_null(copy);
		memcpy(copy, p, cut);
		whole += node_xattrs_ok(copy, cut);
		free(copy);
	}
	assert_int_equal(whole, ARRAY_SIZE(all_classes)); /* cut between entries only */

	uint8_t *large = calloc(1, NODE_XATTRS_MAX + 1);
	assert_non_null(large);
	put_le16(large, 1);
	large[2] = 'a';
	put_le32(large + 3, NODE_XATTRS_MAX - 7);
	assert_true(node_xattrs_ok(large, NODE_XATTRS_MAX));
	put_le32(large + 3, NODE_XATTRS_MAX - 6);
	assert_false(node_xattrs_ok(large, NODE_XATTRS_MAX + 1));
	put_le32(large + 3, UINT32_MAX);
	assert_false(node_xattrs_ok(large, NODE_XATTRS_MAX));
	free(large);
}

/* Walking a list gives back what was packed. */
static void xattr_lists_are_walked(void **state)
{
	uint8_t p[400];
	uint32_t n = pack(p, all_classes, ARRAY_SIZE(all_classes)), pos = 0, value_len;
	const uint8_t *value;
	const char *name;
	uint16_t name_len;
	size_t i = 0;

	while (node_xattrs_next(p, n, &pos, &name, &name_len, &value, &value_len)) {
		assert_int_equal(name_len, strlen(all_classes[i].name));
		assert_memory_equal(name, all_classes[i].name, name_len);
		assert_int_equal(value_len, all_classes[i].value_len);
		assert_memory_equal(value, all_classes[i].value, value_len);
		i++;
	}
	assert_int_equal(i, ARRAY_SIZE(all_classes));
}

/* Types go to modes and back; unknown ones are said to be so. */
static void types_and_modes(void **state)
{
	static const char letters[] = "?fdlpscb";

	for (uint8_t t = NODE_TYPE_FILE; t <= NODE_TYPE_BLOCK; t++) {
		assert_int_equal(node_type_of_mode(node_type_to_mode(t) | 07777), t);
		assert_int_equal(node_type_letter(t), letters[t]);
	}
	assert_int_equal(node_type_of_mode(0644), NODE_TYPE_NONE);
	assert_int_equal(node_type_letter(0), '?');
	assert_int_equal(node_type_letter(8), '?');
	assert_int_equal(node_type_to_mode(200), 0);
	assert_string_equal(node_type_name(NODE_TYPE_DIRECTORY), "directory");
	assert_string_equal(node_type_name(9), "unknown");
	assert_string_equal(node_field_name(NODE_FIELD_MTIME), "mtime");
}

static void test_xattrs_set(void **state)
{
	_cleanup_(buf_done) struct buf a = BUF_INIT(0), b = BUF_INIT(0), c = BUF_INIT(0);
	static const char want[] = "\6\0user.a\2\0\0\0xx\7\0user.ab\0\0\0\0\6\0user.b\1\0\0\0y";
	static const char much[NODE_XATTRS_MAX];

	(void)state;
	assert_int_equal(node_xattrs_set(NULL, 0, "user.b", "y", 1, &a), 0);
	assert_int_equal(node_xattrs_set(buf_data(&a), (uint32_t)buf_len(&a), "user.a", "x", 1, &b),
			 0);
	buf_clear(&a);
	assert_int_equal(node_xattrs_set(buf_data(&b), (uint32_t)buf_len(&b), "user.ab", "", 0, &a),
			 0);
	buf_clear(&b);
	assert_int_equal(
		node_xattrs_set(buf_data(&a), (uint32_t)buf_len(&a), "user.a", "xx", 2, &b), 0);
	assert_int_equal(buf_len(&b), sizeof(want) - 1);
	assert_memory_equal(buf_data(&b), want, sizeof(want) - 1);
	assert_true(node_xattrs_ok(buf_data(&b), (uint32_t)buf_len(&b)));
	buf_clear(&a);
	assert_int_equal(
		node_xattrs_set(buf_data(&b), (uint32_t)buf_len(&b), "user.ab", NULL, 0, &a), 0);
	assert_int_equal(buf_len(&a), sizeof(want) - 1 - 13);
	assert_int_equal(node_xattrs_set(buf_data(&b), (uint32_t)buf_len(&b), "user.z", much,
					 NODE_XATTRS_MAX, &c),
			 -E2BIG);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(hashes_are_as_the_format_says),
		cmocka_unit_test(compare_names_the_field),
		cmocka_unit_test(compare_links_and_devices),
		cmocka_unit_test(xattr_lists_are_judged),
		cmocka_unit_test(xattr_lists_are_walked),
		cmocka_unit_test(types_and_modes),
		cmocka_unit_test(test_xattrs_set),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
