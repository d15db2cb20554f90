/* A restored tree is the same in everything; what cannot be the same is listed; what is already
 * there is replaced, and nothing outside of the root is touched. */
#include "tree-source.h"

static struct client c;
static char origin[220];

static int setup(void **state)
{
	client_make(&c);
	c.mode = LIMBWIRE__WELCOME__MODE__MODE_RESTORE;
	(void)snprintf(origin, sizeof(origin), "%s/origin", c.top);
	assert_int_equal(mkdir(origin, 0755), 0);
	client_join(&c);
	return 0;
}

static int teardown(void **state)
{
	client_remove(&c);
	return 0;
}

static const char *in(const char *dir, const char *name)
{
	static char path[4][600];
	static unsigned turn;

	turn = (turn + 1) % 4;
	(void)snprintf(path[turn], sizeof(path[turn]), "%.250s/%.300s", dir, name);
	return path[turn];
}

static void make_file(const char *dir, const char *name, const void *data, size_t n, mode_t mode)
{
	int fd = open(in(dir, name), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(io_write_full(fd, data, n, "test"), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	(void)close(fd);
}

static void make_sparse(const char *name)
{
	int fd = open(in(origin, name), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);

	assert_int_equal(io_pwrite_full(fd, "begin", 5, 0, "test"), 0);
	assert_int_equal(io_pwrite_full(fd, "middle", 6, 3 << 20, "test"), 0);
	assert_int_equal(ftruncate(fd, 9 << 20), 0);
	(void)close(fd);
}

static void set_time(const char *name, int64_t ns)
{
	struct timespec ts[2] = {{0, 0}, clock_to_timespec(ns)};

	assert_int_equal(utimensat(AT_FDCWD, in(origin, name), ts, AT_SYMLINK_NOFOLLOW), 0);
}

static void fill_origin(void)
{
	static uint8_t block[3 << 20];
	char longest[256];

	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (uint8_t)(i * 7 + i / 1000);
	memset(longest, 'n', 255);
	longest[255] = 0;
	make_file(origin, "small", "hello", 5, 0644);
	make_file(origin, "empty", "", 0, 0400);
	make_file(origin, "large", block, sizeof(block), 0755);
	make_file(origin, "edge", block, 256 << 10, 0600);
	make_file(origin, "edge+1", block, (256 << 10) + 1, 0600);
	make_file(origin, "none", "secret", 6, geteuid() == 0 ? 0 : 0400);
	make_file(origin, "bits", "x", 1, 06755);
	make_file(origin, "\xff\xfe bad\n\tname", "y", 1, 0644);
	make_file(origin, longest, "z", 1, 0644);
	make_sparse("sparse");
	assert_int_equal(mkdir(in(origin, "d"), 0755), 0);
	assert_int_equal(mkdir(in(origin, "d/locked"), 0755), 0);
	make_file(origin, "d/locked/f", "in", 2, 0444);
	assert_int_equal(mkdir(in(origin, "d/hollow"), 01777), 0);
	assert_int_equal(chmod(in(origin, "d/hollow"), 01777), 0);
	assert_int_equal(link(in(origin, "small"), in(origin, "d/again")), 0);
	assert_int_equal(link(in(origin, "small"), in(origin, "zz-third")), 0);
	assert_int_equal(symlink("d/../nowhere", in(origin, "link")), 0);
	assert_int_equal(symlink("/etc/passwd", in(origin, "abs")), 0);
	assert_int_equal(link(in(origin, "link"), in(origin, "link-again")), 0);
	assert_int_equal(mkfifo(in(origin, "fifo"), 0620), 0);
	assert_int_equal(chmod(in(origin, "fifo"), 0620), 0);
	assert_int_equal(mknod(in(origin, "sock"), S_IFSOCK | 0700, 0), 0);
	(void)setxattr(in(origin, "small"), "user.one", "1", 1, 0);
	(void)setxattr(in(origin, "d/locked/f"), "user.ro", "bytes\0more", 10, 0);
	(void)setxattr(in(origin, "d"), "user.dir", "", 0, 0);
	if (geteuid() == 0) {
		assert_int_equal(lchown(in(origin, "link"), 12345, 54321), 0);
		assert_int_equal(chown(in(origin, "d/hollow"), 1, 2), 0);
		assert_int_equal(chown(in(origin, "edge"), 65534, 65534), 0);
		(void)mknod(in(origin, "dev"), S_IFCHR | 0600, makedev(1, 3));
		(void)lsetxattr(in(origin, "link"), "trusted.t", "t", 1, 0);
	}
	assert_int_equal(chmod(in(origin, "d/locked"), 0555), 0);
	set_time("link", 1000000001);
	set_time("small", -5);
	set_time("sock", 1234567890123456789);
	set_time("d/locked/f", 4102444800999999999);
	set_time("d/locked", 777000000001);
	set_time("d", 888000000002);
}

/* What was adopted is known: no content, name or deletion is sent, only what an incarnation
 * has of its own (inodes, ctimes). */
static void expect_adopted(void)
{
	Limbwire__Barrier m = LIMBWIRE__BARRIER__INIT;

	m.request = ++c.request;
	m.deadline_ms = CLIENT_PATIENCE_MS;
	client_send(&c, WIRE_BARRIER, &m.base, NULL, 0);
	while (client_next(&c, CLIENT_PATIENCE_MS)) {
		Limbwire__WireChange *change;

		assert_int_not_equal(c.frame.type, WIRE_DATA);
		if (c.frame.type == WIRE_BARRIER_DONE)
			return;
		if (c.frame.type != WIRE_CHANGE)
			continue;
		change = limbwire__wire_change__unpack(NULL, c.frame.body_len, c.frame.body);
		for (size_t i = 0; i < change->n_ops; i++) {
			const Limb__Op *op = change->ops[i]->op;

			if (op->kind != LIMB__OP_KIND__OP_PUT || op->content)
				fail_msg("operation %d on '%.*s'", op->kind, (int)op->name.len,
					 op->name.data);
		}
		limbwire__wire_change__free_unpacked(change, NULL);
	}
	fail_msg("no BARRIER_DONE came");
}

static void test_everything(void **state)
{
	Limbwire__Restored *m;
	struct source s;

	fill_origin();
	source_open(&s, origin);
	m = source_restore(&s, &c, true);
	if (m->error != 0)
		fail_msg("error %d: %s", m->error, m->detail);
	for (size_t i = 0; i < m->n_unsupported; i++)
		print_message("# unsupported %.*s: %s\n", (int)m->unsupported[i]->path.len,
			      m->unsupported[i]->path.data, m->unsupported[i]->field);
	assert_int_equal(m->n_unsupported, 0);
	assert_true(m->bytes > 12 << 20);
	source_same(origin, c.root, true);
	source_close(&s);
	expect_adopted();
}

/* Many small files, many requests under way. */
static void test_many(void **state)
{
	char name[40], text[40];
	struct source s;

	for (unsigned d = 0; d < 20; d++) {
		(void)snprintf(name, sizeof(name), "d%u", d);
		assert_int_equal(mkdir(in(origin, name), 0755), 0);
		for (unsigned f = 0; f < 50; f++) {
			(void)snprintf(name, sizeof(name), "d%u/f%u", d, f);
			(void)snprintf(text, sizeof(text), "%u %u\n", d, f);
			make_file(origin, name, text, f % 9 == 0 ? 0 : strlen(text), 0644);
		}
	}
	source_open(&s, origin);
	assert_int_equal(source_restore(&s, &c, true)->error, 0);
	source_same(origin, c.root, true);
	assert_true(s.pulls > 10);
	source_close(&s);
	expect_adopted();
}

/* What was there before is gone, also what is in the way or leads out. */
static void leave_litter(void)
{
	make_file(c.root, "extra", "old", 3, 0644);
	make_file(c.root, "d", "a file where a directory is to be", 33, 0644);
	assert_int_equal(mkdir(in(c.root, "small"), 0700), 0);
	make_file(c.root, "small/x", "", 0, 0644);
	assert_int_equal(symlink(c.top, in(c.root, "large")), 0);
	assert_int_equal(mkdir(in(c.root, "old"), 0), 0);
	assert_int_equal(symlink("..", in(c.root, "up")), 0);
}

static void restore_over_litter(bool empty)
{
	Limbwire__Restored *m;
	struct source s;

	fill_origin();
	leave_litter();
	make_file(c.top, "outside", "kept", 4, 0644);
	source_open(&s, origin);
	m = source_restore(&s, &c, empty);
	if (m->error != 0)
		fail_msg("error %d: %s", m->error, m->detail);
	source_same(origin, c.root, true);
	source_close(&s);
	assert_int_equal(access(in(c.top, "outside"), F_OK), 0);
	expect_adopted();
}

static void test_emptied_first(void **state)
{
	restore_over_litter(true);
}

static void test_over_what_is_there(void **state)
{
	restore_over_litter(false);
}

/* A link where a directory of the tree is to be must not be walked through. */
static void test_link_instead_of_directory(void **state)
{
	struct source s;

	assert_int_equal(mkdir(in(origin, "d"), 0755), 0);
	make_file(origin, "d/f", "inside", 6, 0644);
	assert_int_equal(mkdir(in(c.top, "trap"), 0755), 0);
	assert_int_equal(symlink("../trap", in(c.root, "d")), 0);
	/* And one that is there is kept, without what it has too much. */
	assert_int_equal(mkdir(in(origin, "e"), 0755), 0);
	make_file(origin, "e/f", "new", 3, 0644);
	assert_int_equal(mkdir(in(c.root, "e"), 0700), 0);
	make_file(c.root, "e/f", "old", 3, 0600);
	make_file(c.root, "e/extra", "old", 3, 0600);
	source_open(&s, origin);
	assert_int_equal(source_restore(&s, &c, false)->error, 0);
	source_same(origin, c.root, true);
	source_close(&s);
	assert_int_not_equal(access(in(c.top, "trap/f"), F_OK), 0);
}

static void test_cut_and_again(void **state)
{
	Limbwire__Restore m = LIMBWIRE__RESTORE__INIT;
	struct source s;

	fill_origin();
	source_open(&s, origin);
	m.request = ++c.request;
	m.empty_root = true;
	client_send(&c, WIRE_RESTORE, &m.base, NULL, 0);
	source_send_tree(&s, &c, ((Limbwire__TreeGet *)client_wait(&c, WIRE_TREE_GET))->request);
	(void)client_wait(&c, WIRE_PULL);
	client_detach(&c);
	client_join(&c);
	assert_int_equal(source_restore(&s, &c, true)->error, 0);
	source_same(origin, c.root, true);
	source_close(&s);
	expect_adopted();
}

static void test_content_lost(void **state)
{
	Limbwire__Restored *m;
	struct source s;

	make_file(origin, "good", "good", 4, 0644);
	make_file(origin, "lost", "lost", 4, 0644);
	source_open(&s, origin);
	s.fail_node = s.nodes[2].node;
	m = source_restore(&s, &c, true);
	assert_int_equal(m->error, EIO);
	assert_string_equal(m->detail, "lost");
	assert_int_equal(m->n_unsupported, 1);
	assert_string_equal(m->unsupported[0]->field, "content");
	source_close(&s);
	assert_int_not_equal(access(in(c.root, "lost"), F_OK), 0);
}

/* ---- copies of what is there ---- */

enum { OLD_BYTES = 6 << 20, MORE_BYTES = 1000 };

static uint8_t old_bytes[OLD_BYTES], new_bytes[OLD_BYTES + MORE_BYTES];
static int lie;

static int setup_deltas(void **state)
{
	for (size_t i = 0; i < OLD_BYTES; i++)
		old_bytes[i] = (uint8_t)((i * 2654435761u) >> 13);
	memcpy(new_bytes, old_bytes, 3 << 20);
	memset(new_bytes + (3 << 20), 'n', MORE_BYTES);
	memcpy(new_bytes + (3 << 20) + MORE_BYTES, old_bytes + (3 << 20), 3 << 20);
	client_make(&c);
	c.mode = LIMBWIRE__WELCOME__MODE__MODE_RESTORE;
	c.capabilities = WIRE_CAP_DELTA;
	(void)snprintf(origin, sizeof(origin), "%s/origin", c.top);
	assert_int_equal(mkdir(origin, 0755), 0);
	client_join(&c);
	return 0;
}

static void say_part(Limbwire__PullData *m, uint64_t from, uint64_t copy, const void *bulk,
		     size_t n)
{
	m->copy_from = from;
	m->copy_bytes = copy;
	client_send(&c, WIRE_PULL_DATA, &m->base, bulk, n);
	m->offset += copy + n;
}

/* As it should be but for one thing; what comes after a lie is not looked at. */
static void answer_base(struct source *s, struct client *client, uint64_t request,
			const struct source_node *x, const ProtobufCBinaryData *sha, bool last)
{
	Limbwire__PullData m = LIMBWIRE__PULL_DATA__INIT;
	uint8_t hash[SHA256_BYTES];

	sha256(old_bytes, OLD_BYTES, hash);
	assert_int_equal(sha->len, SHA256_BYTES);
	assert_memory_equal(sha->data, hash, SHA256_BYTES);
	m.request = request;
	m.node = x->node;
	switch (lie) {
	case 1: say_part(&m, 1, 1000, NULL, 0), m.offset = 1000; break;
	case 2: say_part(&m, OLD_BYTES - 10, 1000, NULL, 0); break;
	case 3: say_part(&m, 0, (4 << 20) + 1, NULL, 0); break;
	case 4: say_part(&m, 0, 1000, old_bytes, 1000), m.offset = 1000; break;
	case 5: m.offset = 7; break;
	case 6: say_part(&m, UINT64_MAX, 1000, NULL, 0); break;
	case 7: m.hole_bytes = 10; break;
	default: break;
	}
	say_part(&m, m.offset, (3 << 20) - m.offset, NULL, 0);
	say_part(&m, 0, 0, new_bytes + (3 << 20), MORE_BYTES);
	m.last_of_node = lie == 8 || lie == 9;
	m.last = m.last_of_node && last;
	m.error = lie == 9 ? EIO : 0;
	say_part(&m, 3 << 20, 1 << 20, NULL, 0);
	if (m.last_of_node)
		return;
	m.last_of_node = true;
	m.last = last;
	say_part(&m, 4 << 20, lie == 10 ? (2 << 20) + 1 : 2 << 20, NULL, 0);
}

/* B56: whatever comes of copies is what the journal says, or is asked for whole. */
static void B56_copies_of_what_is_there(void **state)
{
	Limbwire__Restored *m;
	struct source s;

	for (lie = 0; lie <= 10; lie++) {
		if (lie)
			assert_int_equal(setup_deltas(state), 0);
		make_file(origin, "big", new_bytes, sizeof(new_bytes), 0644);
		make_file(origin, "other", "small", 5, 0644);
		make_file(c.root, "big", old_bytes, OLD_BYTES, 0600);
		source_open(&s, origin);
		s.answer_base = answer_base;
		m = source_restore(&s, &c, false);
		if (m->error != 0)
			fail_msg("lie %d: error %d: %s", lie, m->error, m->detail);
		source_same(origin, c.root, true);
		assert_int_equal(s.bases, 1);
		assert_int_equal(s.pulls, lie ? 2 : 1);
		source_close(&s);
		if (lie < 10)
			client_remove(&c);
	}
}

static void send_entry(Limbwire__TreeEntry *e, size_t n)
{
	Limbwire__TreePart part = LIMBWIRE__TREE_PART__INIT;
	Limbwire__Restore m = LIMBWIRE__RESTORE__INIT;
	Limbwire__TreeEntry *ptrs[3] = {e, e + 1, e + 2};

	m.request = ++c.request;
	m.empty_root = true;
	client_send(&c, WIRE_RESTORE, &m.base, NULL, 0);
	part.request = ((Limbwire__TreeGet *)client_wait(&c, WIRE_TREE_GET))->request;
	part.entries = ptrs;
	part.n_entries = n;
	part.last = true;
	client_send(&c, WIRE_TREE_PART, &part.base, NULL, 0);
}

/* Trees that nobody can mean are refused, and nothing is made. */
static void test_bad_trees(void **state)
{
	static const char *const names[] = {"", ".", "..", "a/b", "../x"};
	Limb__Attr dir = LIMB__ATTR__INIT, fifo = LIMB__ATTR__INIT;
	Limbwire__TreeEntry e[3] = {LIMBWIRE__TREE_ENTRY__INIT, LIMBWIRE__TREE_ENTRY__INIT,
				    LIMBWIRE__TREE_ENTRY__INIT};

	dir.type = LIMB__NODE_TYPE__NODE_DIRECTORY;
	dir.mode = 0755;
	fifo.type = LIMB__NODE_TYPE__NODE_FIFO;
	e[0].attr = e[2].attr = &dir;
	e[1].attr = &fifo;
	e[0].node = 1;
	e[1].node = 2;
	e[1].parent = 1;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		e[1].name = (ProtobufCBinaryData){strlen(names[i]), (uint8_t *)names[i]};
		send_entry(e, 2);
		assert_int_equal(((Limbwire__Restored *)client_wait(&c, WIRE_RESTORED))->error,
				 EBADMSG);
	}
	/* An entry below something that is no directory, or that is not there. */
	e[1].name = e[2].name = (ProtobufCBinaryData){1, (uint8_t *)"f"};
	e[2].parent = 2;
	send_entry(e, 3);
	assert_int_equal(((Limbwire__Restored *)client_wait(&c, WIRE_RESTORED))->error, EBADMSG);
	e[1].parent = 99;
	send_entry(e, 2);
	assert_int_equal(((Limbwire__Restored *)client_wait(&c, WIRE_RESTORED))->error, EBADMSG);
	/* No root first; nothing at all. */
	send_entry(e + 1, 1);
	assert_int_equal(((Limbwire__Restored *)client_wait(&c, WIRE_RESTORED))->error, EBADMSG);
	send_entry(e, 0);
	assert_int_equal(((Limbwire__Restored *)client_wait(&c, WIRE_RESTORED))->error, EBADMSG);
}

/* ---- what is there by content ---- */

static int setup_trees(void **state)
{
	client_make(&c);
	c.mode = LIMBWIRE__WELCOME__MODE__MODE_RESTORE;
	c.capabilities = WIRE_CAP_TREES;
	(void)snprintf(origin, sizeof(origin), "%s/origin", c.top);
	assert_int_equal(mkdir(origin, 0755), 0);
	client_join(&c);
	return 0;
}

/* The root, its directory `name`, which is said to be there, and `n` entries beneath it. */
static Limbwire__Restored *restore_had(const char *name, bool had, size_t n)
{
	Limbwire__TreeEntry e[8], *ptrs[8];
	Limbwire__TreePart part = LIMBWIRE__TREE_PART__INIT;
	Limbwire__Restore m = LIMBWIRE__RESTORE__INIT;
	Limb__Attr dir = LIMB__ATTR__INIT;
	Limbwire__TreeGet *get;

	m.request = ++c.request;
	client_send(&c, WIRE_RESTORE, &m.base, NULL, 0);
	get = client_wait(&c, WIRE_TREE_GET);
	assert_true(get->by_content);
	assert_int_equal(c.frame.bulk_len, 3 * 16);
	part.request = get->request;
	dir.type = LIMB__NODE_TYPE__NODE_DIRECTORY;
	dir.mode = 0755;
	for (size_t i = 0; i < n + 2; i++) {
		ptrs[i] = &e[i];
		limbwire__tree_entry__init(&e[i]);
		e[i].node = i ? 100 + i : 1;
		e[i].had = i > 1 || (i == 1 && had);
		e[i].parent = 1;
		e[i].attr = i < 2 ? &dir : NULL;
	}
	e[0].root = true;
	e[1].name = (ProtobufCBinaryData){strlen(name), (uint8_t *)name};
	part.entries = ptrs;
	part.n_entries = n + 2;
	part.last = true;
	client_send(&c, WIRE_TREE_PART, &part.base, NULL, 0);
	return client_wait(&c, WIRE_RESTORED);
}

static void what_is_there_is_kept_unsent(void **state)
{
	struct stat before, after;

	assert_int_equal(mkdir(in(c.root, "a"), 0700), 0);
	assert_int_equal(mkdir(in(c.root, "a/b"), 0750), 0);
	make_file(c.root, "a/b/x", "hello", 5, 0640);
	make_file(c.root, "a/y", "there", 5, 0600);
	make_file(c.root, "z", "not wanted", 10, 0600);
	assert_int_equal(stat(in(c.root, "a/b/x"), &before), 0);
	/* A brain that is wrong about it is not followed, and nothing is removed. */
	assert_int_not_equal(restore_had("a", true, 2)->error, 0);
	assert_int_not_equal(restore_had("a", true, 4)->error, 0);
	assert_int_not_equal(restore_had("a", false, 1)->error, 0);
	assert_int_not_equal(restore_had("b", true, 0)->error, 0);
	assert_int_not_equal(restore_had("z", true, 0)->error, 0);
	assert_int_equal(access(in(c.root, "z"), F_OK), 0);
	assert_int_equal(restore_had("a", true, 3)->error, 0);
	assert_int_equal(stat(in(c.root, "a/b/x"), &after), 0);
	assert_int_equal(after.st_ino, before.st_ino);
	assert_int_equal(after.st_ctim.tv_nsec, before.st_ctim.tv_nsec);
	assert_int_equal(stat(in(c.root, "a/b"), &after), 0);
	assert_int_equal(after.st_mode & 07777, 0750);
	assert_int_equal(stat(in(c.root, "a"), &after), 0);
	assert_int_equal(after.st_mode & 07777, 0755); /* its own were sent */
	assert_int_not_equal(access(in(c.root, "z"), F_OK), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_everything, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many, setup, teardown),
		cmocka_unit_test_setup_teardown(test_emptied_first, setup, teardown),
		cmocka_unit_test_setup_teardown(test_over_what_is_there, setup, teardown),
		cmocka_unit_test_setup_teardown(test_link_instead_of_directory, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cut_and_again, setup, teardown),
		cmocka_unit_test_setup_teardown(test_content_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(B56_copies_of_what_is_there, setup_deltas,
						teardown),
		cmocka_unit_test_setup_teardown(test_bad_trees, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_there_is_kept_unsent, setup_trees,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
