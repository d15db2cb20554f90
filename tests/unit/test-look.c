/* What stands in a root is told by hashes that the brain can make, and given back with its
 * numbers and no others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "syncd/look.h"
#include "wire/attr.h"

static const struct {
	const char *path;
	uint8_t type;
	uint64_t size;
} tree[] = {
	{"a", NODE_TYPE_DIRECTORY, 0},	 {"a/b", NODE_TYPE_DIRECTORY, 0},
	{"a/b/x", NODE_TYPE_FILE, 10},	 {"a/b/y", NODE_TYPE_FILE, 20},
	{"a/c", NODE_TYPE_FILE, 30},	 {"d", NODE_TYPE_DIRECTORY, 0},
	{"e", NODE_TYPE_DIRECTORY, 0},	 {"e/link", NODE_TYPE_SYMLINK, 0},
	{"e/twice", NODE_TYPE_FILE, 40}, {"f", NODE_TYPE_FILE, 50},
};

static void node_of(size_t i, struct node *ret)
{
	*ret = (struct node){.type = tree[i].type, .mode = 0644, .mtime_ns = 77};
	ret->inode = 1000 + i;
	ret->ctime_ns = 99;
	ret->content.size_bytes = tree[i].size;
	ret->content.sha256[0] = (uint8_t)i;
	if (tree[i].type == NODE_TYPE_SYMLINK) {
		ret->target = (const uint8_t *)"nowhere";
		ret->target_len = 7;
	}
}

static struct look *made(void)
{
	struct look *l;

	assert_int_equal(look_new(&l), 0);
	for (size_t i = 0; i < ARRAY_SIZE(tree); i++) {
		Limbwire__TreeEntry m = LIMBWIRE__TREE_ENTRY__INIT;
		struct wire_attr_scratch ws = {0};
		const char *name = strrchr(tree[i].path, '/');
		struct node n;

		node_of(i, &n);
		assert_int_equal(wire_attr_fill(&ws, &n), 0);
		name = name ? name + 1 : tree[i].path;
		m.name = (ProtobufCBinaryData){strlen(name), (uint8_t *)name};
		m.attr = &ws.attr;
		m.content = n.type == NODE_TYPE_FILE ? &ws.content : NULL;
		assert_int_equal(look_add(l, tree[i].path, &m, &n,
					  strcmp(tree[i].path, "e/twice") == 0 ? 5 : 0),
				 0);
		wire_attr_scratch_done(&ws);
	}
	assert_int_equal(look_finish(l), 0);
	return l;
}

struct found {
	const struct look *l;
	uint64_t had[8];
	size_t n;
};

static int on_dir(uint64_t dir, const uint8_t hash[DIGEST_BYTES], void *userdata)
{
	struct found *f = userdata;
	const uint8_t *hashes;
	size_t bytes;

	hashes = look_hashes(f->l, &bytes);
	for (size_t i = 0; i < bytes; i += DIGEST_BYTES)
		if (memcmp(hashes + i, hash, DIGEST_BYTES) == 0)
			f->had[f->n++] = dir;
	return 0;
}

/* The brain's side, of the same tree but for what change() does. */
static void find(struct found *f, const struct look *l, void (*change)(size_t i, struct node *n))
{
	struct sha256_ctx *sha = sha256_new();
	struct digest *d;

	*f = (struct found){.l = l};
	assert_int_equal(digest_new(NODE_ROOT, on_dir, f, &d), 0);
	for (size_t i = 0; i < ARRAY_SIZE(tree); i++) {
		uint8_t hash[SHA256_BYTES];
		struct digest_entry e;
		size_t depth = 0;
		struct node n;

		node_of(i, &n);
		n.inode += 5000; /* of another machine */
		n.ctime_ns++;
		if (change)
			change(i, &n);
		for (const char *p = tree[i].path; *p; p++)
			depth += *p == '/';
		digest_of_content(tree[i].path, strlen(tree[i].path), &n,
				  strcmp(tree[i].path, "e/twice") == 0 ? 6 : 0, sha, hash, &e);
		assert_int_equal(digest_add(d, depth, &e), 0);
	}
	assert_int_equal(digest_end(d), 0);
	digest_free(d);
	sha256_free(sha);
}

static bool has(const struct found *f, const char *path)
{
	for (size_t i = 0; i < f->n; i++)
		if (f->had[i] == digest_path(path, strlen(path)))
			return true;
	return false;
}

static void change_y(size_t i, struct node *n)
{
	if (i == 3)
		n->content.sha256[31] ^= 1;
}
static void change_mode(size_t i, struct node *n)
{
	if (i == 1)
		n->mode = 0700;
}
static void change_mtime(size_t i, struct node *n)
{
	if (i == 4)
		n->mtime_ns++;
}
static void change_owner(size_t i, struct node *n)
{
	if (i == 7)
		n->uid_kind = NODE_OWNER_ROOT;
}
static void change_xattr(size_t i, struct node *n)
{
	if (i == 2) {
		n->xattrs = (const uint8_t *)"\x01\0x\x01\0\0\0y";
		n->xattrs_len = 8;
	}
}

static void hashes_say_what_is_equal(void **state)
{
	struct look *l = made();
	struct found f;

	(void)state;
	/* e has a file of several names, and so the root. */
	find(&f, l, NULL);
	assert_int_equal(f.n, 3);
	assert_true(has(&f, "a") && has(&f, "a/b") && has(&f, "d"));
	find(&f, l, change_y);
	assert_int_equal(f.n, 1);
	assert_true(has(&f, "d"));
	find(&f, l, change_mode);
	assert_int_equal(f.n, 2);
	assert_true(has(&f, "a/b"));
	find(&f, l, change_mtime);
	assert_int_equal(f.n, 2);
	assert_true(has(&f, "a/b"));
	find(&f, l, change_xattr);
	assert_int_equal(f.n, 1);
	find(&f, l, change_owner);
	assert_int_equal(f.n, 3);
	look_free(l);
}

static void next_is(struct look *l, uint64_t node, const char *name, uint64_t parent)
{
	Limbwire__TreeEntry *m;

	assert_int_equal(look_next(l, node, &m), 0);
	assert_int_equal(m->node, node);
	assert_int_equal(m->parent, parent);
	assert_int_equal(m->name.len, strlen(name));
	assert_memory_equal(m->name.data, name, m->name.len);
	assert_non_null(m->attr);
	assert_int_equal(m->attr->inode, 0);
	assert_int_equal(m->attr->ctime_ns, 0);
	assert_int_equal(m->attr->mtime_ns, 77);
	limbwire__tree_entry__free_unpacked(m, NULL);
}

static void entries_come_back(void **state)
{
	struct look *l = made();
	Limbwire__TreeEntry *m;

	(void)state;
	assert_int_equal(look_left(l), 0);
	assert_int_equal(look_next(l, 1, &m), -EBADMSG);
	assert_int_equal(look_enter(l, "a", 50), 0);
	assert_int_equal(look_left(l), 4);
	assert_int_equal(look_enter(l, "d", 60), -EBADMSG);
	next_is(l, 51, "b", 50);
	next_is(l, 52, "x", 51);
	next_is(l, 53, "y", 51);
	next_is(l, 54, "c", 50);
	assert_int_equal(look_next(l, 55, &m), -EBADMSG);
	assert_int_equal(look_enter(l, "d", 60), 0);
	assert_int_equal(look_left(l), 0);
	assert_int_equal(look_enter(l, "none", 61), -EBADMSG);
	assert_int_equal(look_enter(l, "f", 61), -EBADMSG);
	assert_int_equal(look_enter(l, "", NODE_ROOT), 0);
	assert_int_equal(look_left(l), ARRAY_SIZE(tree));
	look_free(l);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(hashes_say_what_is_equal),
		cmocka_unit_test(entries_come_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
