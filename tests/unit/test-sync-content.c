/* Bytes, holes, extended attributes, ignored names, and the tree as E tells it. */
#include "tests/unit/sync-fixture.h"

#include <sys/xattr.h>

static int start(void **state)
{
	int r = setup(state);

	if (r == 0)
		brain_start(&b, root, dir_fd);
	return r;
}

/* Every size around what is inline, whole and in pieces. */
static void test_sizes(void **state)
{
	(void)state;
	sh("for s in 0 1 4095 4096 65535 65536 262143 262144 262145 524288 524289 1048576 3000000; "
	   "do "
	   "head -c $s /dev/urandom >f$s; done");
	(void)check();
	sh("for f in f*; do printf x >>$f; done; truncate -s 100 f3000000");
	(void)check();
	assert_null(b.streams);
}

/* B34: a hole is sent as a hole. */
static void B34_sparse(void **state)
{
	(void)state;
	sh("truncate -s 1G hole; echo middle | dd of=hole bs=1 seek=500M conv=notrunc status=none; "
	   "truncate -s 1M empty");
	(void)check();
	assert_true(b.bytes < 1 << 20);
	assert_true(brain_lookup(&b, "hole")->n.content.holes);
	sh("echo end >>hole");
	(void)check();
	assert_true(b.bytes < 2 << 20);
}

/* A touched file is compared and not sent; a changed one is. */
static void test_only_attributes(void **state)
{
	(void)state;
	sh("head -c 100000 /dev/urandom >small; head -c 1000000 /dev/urandom >large");
	(void)check();
	reset_counts();
	sh("touch small large; chmod 600 small large; cat small >copy; cat copy >small");
	(void)check();
	assert_int_equal(b.contents, 1);
	assert_int_equal(b.bytes, 100000);
}

/* B32: extended attributes, sorted, without ours. */
static void B32_xattrs(void **state)
{
	static const uint8_t cap[20] = {0, 0, 0, 2, 0, 4};
	const struct bnode *n;
	const uint8_t *value;
	const char *name;
	uint32_t pos = 0, value_len;
	uint16_t name_len;
	int fd;

	(void)state;
	sh("echo 1 >f; mkdir d; ln -s f l; chmod 444 f");
	fd = openat(root_fd, "f", O_RDONLY | O_CLOEXEC);
	if (fsetxattr(fd, "user.b", "two", 3, 0) < 0) {
		print_message("# no extended attributes here\n");
		skip();
	}
	assert_int_equal(fsetxattr(fd, "user.a", "", 0, 0), 0);
	assert_int_equal(fsetxattr(fd, "user.limb.secret", "x", 1, 0), 0);
	(void)fsetxattr(fd, "security.capability", cap, sizeof(cap), 0);
	(void)close(fd);
	fd = openat(root_fd, "d", O_RDONLY | O_CLOEXEC);
	assert_int_equal(fsetxattr(fd, "user.d", "dir", 3, 0), 0);
	(void)close(fd);
	(void)check();
	n = brain_lookup(&b, "f");
	assert_true(node_xattrs_ok(n->n.xattrs, n->n.xattrs_len));
	while (node_xattrs_next(n->n.xattrs, n->n.xattrs_len, &pos, &name, &name_len, &value,
				&value_len) > 0)
		assert_true(name_len < 10 || memcmp(name, "user.limb.", 10) != 0);
	assert_true(n->n.xattrs_len >= 2 * 6 + 12 + 3);
	assert_int_equal(brain_lookup(&b, "d")->n.xattrs_len, 6 + 6 + 3);
	/* An attribute alone moves only ctime. */
	fd = openat(root_fd, "f", O_RDONLY | O_CLOEXEC);
	assert_int_equal(fremovexattr(fd, "user.b"), 0);
	(void)close(fd);
	reset_counts();
	(void)check();
	assert_int_equal(b.contents, 0);
	assert_true(b.puts > 0);
}

/* What is ignored is neither sent nor watched, and not taken for removed. */
static void test_ignored(void **state)
{
	(void)state;
	brain_detach(&b);
	b.ignore = "cache/";
	brain_attach(&b);
	sh("mkdir -p a/cache/x cache; echo 1 >a/cache/x/f; echo 2 >cache/g; echo 3 >a/f; echo 4 "
	   ">a/cachef");
	brain_sync(&b);
	assert_null(brain_lookup(&b, "cache"));
	assert_null(brain_lookup(&b, "a/cache"));
	assert_non_null(brain_lookup(&b, "a/cachef"));
	brain_run_ms(&b, 300);
	assert_int_equal(b.status->watches, 2);
}

struct walk {
	struct node_hasher *h;
	size_t n;
};

static void hash_dir(struct walk *w, struct bnode *dir, const char *path)
{
	cleanup_free struct bname **list = NULL;
	size_t n = brain_children(dir, &list);

	for (size_t i = 0; i < n; i++) {
		struct bnode *c = list[i]->node;
		char sub[8192];

		(void)snprintf(sub, sizeof(sub), "%s%s%s", path, *path ? "/" : "", list[i]->name);
		w->n++;
		if (c->names > 1 && !c->number)
			c->number = (uint32_t)w->n;
		node_hasher_add(w->h, sub, strlen(sub), &c->n,
				c->names > 1 && c->number != w->n ? c->number : 0);
		hash_dir(w, c, sub);
	}
}

/* The tree hash of what E reads now is that of what the brain has. */
static void test_tree_get(void **state)
{
	struct walk model = {.h = node_hasher_new(0)}, told = {.h = node_hasher_new(0)};
	Limbwire__TreeGet get = LIMBWIRE__TREE_GET__INIT;
	uint8_t content[2][32], full[2][32];
	_cleanup_(buf_done) struct buf xattrs = BUF_INIT(1 << 20);
	char *paths[4096];
	size_t n = 0;

	(void)state;
	sh("for i in {1..40}; do mkdir -p d$i/s; for j in {1..20}; do echo $i $j >d$i/s/f$j; done; "
	   "done; "
	   "ln d1/s/f1 d2/other; ln -s x l; mkfifo p; head -c 2000000 /dev/urandom >large; "
	   "truncate -s 1M h");
	(void)check();
	for (unsigned h = 0; h < BRAIN_HASH; h++)
		for (struct bnode *x = b.nodes[h]; x; x = x->hash_next)
			x->number = 0;
	hash_dir(&model, brain_node(&b, NODE_ROOT), "");
	node_hasher_final(model.h, content[0], full[0]);

	get.request = 99;
	get.hash = true;
	get.deadline_ms = 20000;
	sync_on_tree_get(b.sync, &get);
	while (!b.answered && (!b.n_parts || !b.parts[b.n_parts - 1]->last))
		brain_turn(&b);
	assert_false(b.answered);
	for (size_t i = 0; i < b.n_parts; i++) {
		assert_int_equal(b.parts[i]->request, 99);
		for (size_t j = 0; j < b.parts[i]->n_entries; j++) {
			Limbwire__TreeEntry *e = b.parts[i]->entries[j];
			char path[8192];
			const char *why;
			struct node v;

			assert_int_equal(e->error, 0);
			(void)snprintf(path, sizeof(path), "%s%s%.*s",
				       e->parent ? paths[e->parent] : "", e->parent ? "/" : "",
				       (int)e->name.len, e->name.data);
			paths[++n] = strdup(path);
			buf_clear(&xattrs);
			assert_int_equal(wire_attr_parse(e->attr, e->content, &xattrs, &v, &why),
					 0);
			node_hasher_add(told.h, path, strlen(path), &v, e->same_as);
		}
	}
	node_hasher_final(told.h, content[1], full[1]);
	assert_int_equal(n, model.n);
	assert_memory_equal(content[0], content[1], 32);
	assert_memory_equal(full[0], full[1], 32);
	while (n)
		free(paths[n--]);
	node_hasher_free(model.h);
	node_hasher_free(told.h);
}

/* Another file with the same bytes takes the name, small, large, and larger than a message. */
static void test_same_bytes(void **state)
{
	(void)state;
	sh("head -c 1000 /dev/urandom >f1; head -c 300000 /dev/urandom >f2; "
	   "head -c 3000000 /dev/urandom >f3");
	(void)check();
	for (int i = 0; i < 3; i++) {
		sh("for f in f1 f2 f3; do cp $f ../new; mv ../new $f; done");
		(void)check();
	}
	sh("rm f1 f2 f3");
	(void)check();
}

static void deltas_on(void)
{
	brain_detach(&b);
	b.deltas = true;
	brain_attach(&b);
	brain_wait_running(&b);
}

/* What is kept of the test's only large file. */
static void kept_sh(const char *command)
{
	char all[512];

	(void)snprintf(all, sizeof(all), "cd /proc/%d/fd/%d/signatures && %s", (int)getpid(),
		       dir_fd, command);
	sh(all);
}

/* A file that changed comes as what changed of it; what was cut off or appended, too. */
static void test_deltas(void **state)
{
	(void)state;
	deltas_on();
	sh("head -c 8000000 /dev/urandom >f; head -c 900000 /dev/urandom >below");
	(void)check();
	assert_true(b.bytes >= 8900000);
	reset_counts();
	sh("head -c 4000000 f >g; echo between >>g; tail -c +4000001 f >>g; cat g >f; rm g; "
	   "echo x >>below");
	(void)check();
	/* g may have been seen */
	sh("truncate -s 7000000 f");
	reset_counts();
	(void)check();
	assert_in_range(b.bytes, 1, 20000);
	reset_counts();
	sh("echo more >>f");
	(void)check();
	assert_in_range(b.bytes, 1, 20000);
	reset_counts();
	sh("printf other | dd of=f bs=1 seek=5000 conv=notrunc status=none");
	(void)check();
	assert_in_range(b.bytes, 1, 20000);
	assert_true(b.copied > 20000000);
	assert_int_equal(b.refusals, 0);
	assert_null(b.streams);
}

/* A file that takes the name of another is like that one, and then like itself. */
static void test_delta_of_another_node(void **state)
{
	char moved[256];

	(void)state;
	deltas_on();
	sh("head -c 8000000 /dev/urandom >f");
	(void)check();
	for (int i = 0; i < 3; i++) {
		(void)snprintf(
			moved, sizeof(moved),
			"d=$(mktemp -d -p \"$PWD/..\"); cp f $d/f; echo %d >>$d/f; mv $d/f f; "
			"rmdir $d",
			i);
		reset_counts();
		sh(moved);
		(void)check();
		assert_in_range(b.bytes, 1, 20000);
	}
}

/* Whatever the brain says of what came out, and whatever is kept, the file arrives. */
static void test_delta_in_doubt(void **state)
{
	(void)state;
	deltas_on();
	sh("head -c 3000000 /dev/urandom >f");
	(void)check();
	b.forget = true;
	reset_counts();
	sh("echo 1 >>f");
	(void)check();
	assert_int_equal(b.refusals, 1);
	assert_true(b.bytes >= 3000000);
	b.forget = false;
	/* its sums are of another version than it says, which the brain has, too */
	sh("cp f ../v1; (printf y; cat ../v1) >../v2; cat ../v2 >f");
	(void)check();
	kept_sh("sum=$(sha256sum ../../root/f | cut -c 1-64 | sed 's/../\\\\x&/g'); "
		"printf \"$sum\" | dd of=$(ls) bs=1 seek=32 conv=notrunc status=none");
	reset_counts();
	sh("cat ../v1 >f; echo 2 >>f");
	(void)check();
	assert_true(b.copied >= 3000000);
	assert_true(b.bytes >= 3000000);
	/* damaged in every way */
	for (int i = 0; i < 4; i++) {
		static const char *const damage[] = {
			"truncate -s 10 $(ls)",
			"echo x >>$(ls)",
			"printf xxxxxxxx | dd of=$(ls) conv=notrunc status=none",
			"rm $(ls)",
		};

		kept_sh(damage[i]);
		sh("echo 3 >>f");
		reset_counts();
		(void)check();
		assert_true(b.bytes >= 3000000);
	}
	reset_counts();
	sh("echo 4 >>f");
	(void)check();
	assert_in_range(b.bytes, 1, 20000);
}

/* Rewritten, or most of it: whole, and the next one is like that. */
static void test_delta_of_nothing(void **state)
{
	(void)state;
	deltas_on();
	sh("head -c 8000000 /dev/urandom >f");
	(void)check();
	reset_counts();
	sh("head -c 8000001 /dev/urandom | dd of=f conv=notrunc bs=1M iflag=fullblock status=none");
	(void)check();
	assert_true(b.bytes >= 8000000);
	assert_int_equal(b.copied, 0);
	reset_counts();
	sh("truncate -s 40000000 f");
	(void)check();
	sh("echo 1 >>f");
	(void)check();
	assert_int_equal(b.copied, 0); /* holes go as holes */
}

/* The line falls at any moment. */
static void test_delta_and_a_lost_line(void **state)
{
	(void)state;
	deltas_on();
	sh("head -c 20000000 /dev/urandom >f");
	(void)check();
	for (int i = 0; i < 30; i++) {
		sh("printf abc | dd of=f bs=1 seek=10000000 conv=notrunc status=none; echo x >>f");
		for (int k = 0; k < i; k++)
			brain_turn(&b);
		brain_detach(&b);
		b.done_stream = 0;
		brain_turn(&b);
		brain_attach(&b);
	}
	(void)check();
	assert_null(b.streams);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, start, teardown)
	const struct CMUnitTest tests[] = {
		T(test_sizes),
		T(B34_sparse),
		T(test_only_attributes),
		T(B32_xattrs),
		T(test_ignored),
		T(test_tree_get),
		T(test_same_bytes),
		T(test_deltas),
		T(test_delta_of_another_node),
		T(test_delta_in_doubt),
		T(test_delta_of_nothing),
		T(test_delta_and_a_lost_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
