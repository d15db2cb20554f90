/* Changes of all kinds that the brain makes: what they may not pass over, and made once. */
#include "apply-client.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void test_tree(void **state)
{
	struct change dir = {.kind = LIMBWIRE__APPLY__KIND__MKDIR, .path = "d", .mode = 01777};
	struct change link_ = {.kind = LIMBWIRE__APPLY__KIND__SYMLINK,
			       .path = "d/l",
			       .target = "../x y",
			       .mode = 0777};
	struct change put = {
		.kind = LIMBWIRE__APPLY__KIND__PUT, .path = "d/f", .bytes = "x", .mode = 0600};
	struct change move = {.kind = LIMBWIRE__APPLY__KIND__MOVE, .path = "d", .to = "e"};
	struct change attr = {.kind = LIMBWIRE__APPLY__KIND__ATTR,
			      .path = "e/f",
			      .mode = 0444,
			      .mtime_ns = 5,
			      .full = true};
	struct change gone = {.kind = LIMBWIRE__APPLY__KIND__REMOVE, .path = "e"};
	char target[100] = "";
	struct stat st;

	assert_int_equal(apply(&dir), 0);
	assert_int_equal(stat(in_root("d"), &st), 0);
	assert_int_equal(st.st_mode, S_IFDIR | 01777);
	assert_int_equal(apply(&dir), 0); /* it is there already */
	dir.no_replace = true;
	assert_int_equal(apply(&dir), EEXIST);
	assert_int_equal(apply(&link_), 0);
	assert_int_equal(readlink(in_root("d/l"), target, sizeof(target)), 6);
	assert_string_equal(target, "../x y");
	link_.target = "other";
	assert_int_equal(apply(&link_), 0);
	assert_int_equal(readlink(in_root("d/l"), target, sizeof(target)), 5);
	assert_int_equal(apply(&put), 0);
	assert_int_equal(apply(&move), 0);
	assert_int_equal(apply(&move), ENOENT);
	assert_true(file_is("e/f", "x"));
	assert_int_equal(apply(&attr), 0);
	assert_int_equal(stat(in_root("e/f"), &st), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0444);
	assert_int_equal(clock_from_timespec(st.st_mtim), 5);
	assert_int_equal(apply(&gone), 0);
	assert_int_not_equal(lstat(in_root("e"), &st), 0);
	assert_int_equal(apply(&gone), ENOENT);
}

static void write_file(const char *path, const char *bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, strlen(bytes)), strlen(bytes));
	(void)close(fd);
}

/* The brain knows all that is there. */
static void settle(void)
{
	Limbwire__Barrier m = LIMBWIRE__BARRIER__INIT;

	m.request = ++c.request;
	m.deadline_ms = 20000;
	client_send(&c, WIRE_BARRIER, &m.base, NULL, 0);
	(void)client_wait(&c, WIRE_BARRIER_DONE);
}

/* Careful: what was not told of is not lost, whatever is asked for. */
static void test_careful(void **state)
{
	struct change put = {.kind = LIMBWIRE__APPLY__KIND__PUT,
			     .path = "f",
			     .bytes = "brain",
			     .mode = 0600,
			     .careful = true};
	struct change gone = {.kind = LIMBWIRE__APPLY__KIND__REMOVE, .path = "f", .careful = true};
	struct change attr = {
		.kind = LIMBWIRE__APPLY__KIND__ATTR, .path = "f", .mode = 0640, .careful = true};
	struct stat st;

	assert_int_equal(mkdir(in_root("d"), 0755), 0);
	write_file(in_root("f"), "one");
	write_file(in_root("d/in"), "x");
	assert_int_equal(link(in_root("f"), outside()), 0);
	settle();
	/* By a name of which no event tells. */
	write_file(outside(), "two");
	assert_int_equal(apply(&put), ESTALE);
	assert_int_equal(apply(&gone), ESTALE);
	assert_int_equal(apply(&attr), ESTALE);
	assert_true(file_is("f", "two"));
	write_file(in_root("f"), "two");
	settle();
	assert_int_equal(apply(&attr), 0);
	settle();
	assert_int_equal(apply(&put), 0);
	assert_true(file_is("f", "brain"));
	/* What it did itself is not told of yet either. */
	settle();
	assert_int_equal(apply(&gone), 0);
	assert_int_not_equal(lstat(in_root("f"), &st), 0);
	/* One entry only. */
	gone.path = "d";
	assert_int_equal(apply(&gone), ENOTEMPTY);
	gone.path = "d/in";
	assert_int_equal(apply(&gone), 0);
	gone.path = "d";
	assert_int_equal(apply(&gone), 0);
	/* What is not there is not replaced. */
	put.path = "none";
	assert_int_equal(apply(&put), ESTALE);
	put.no_replace = true;
	assert_int_equal(apply(&put), 0);
	assert_int_equal(apply(&put), EEXIST);
}

static void test_link_and_fifo(void **state)
{
	struct change put = {
		.kind = LIMBWIRE__APPLY__KIND__PUT, .path = "f", .bytes = "x", .mode = 0600};
	struct change link_ = {.kind = LIMBWIRE__APPLY__KIND__LINK, .path = "f", .to = "g"};
	struct stat st;

	assert_int_equal(apply(&put), 0);
	assert_int_equal(apply(&link_), 0);
	assert_int_equal(stat(in_root("g"), &st), 0);
	assert_int_equal(st.st_nlink, 2);
	assert_int_equal(apply(&link_), EEXIST);
	link_.to = "../g";
	assert_int_not_equal(apply(&link_), 0);
	link_.to = ".limb-0123456789abcdef~";
	assert_int_equal(apply(&link_), EINVAL);
	/* A file or a directory is no special entry. */
	link_ = (struct change){.kind = LIMBWIRE__APPLY__KIND__SYMLINK, .path = "s", .mode = 0600};
	assert_int_equal(apply(&link_), EBADMSG);
}

/* One node for each of these names, in the order in which they were told: ids are rising. */
static uint64_t node_of(unsigned nth)
{
	return CLIENT_FIRST_NODE + nth;
}

static uint64_t touch(const char *name, const char *bytes)
{
	assert_int_equal(file_replace(AT_FDCWD, in_root(name), bytes, strlen(bytes)), 0);
	return barrier();
}

/* Asked for again under its number, a change is not made again; under another, it is. */
static void test_numbers(void **state)
{
	struct change move = {
		.kind = LIMBWIRE__APPLY__KIND__MOVE, .path = "a", .to = "b", .number = 7};
	struct change back = {.kind = LIMBWIRE__APPLY__KIND__MOVE, .path = "b", .to = "a"};

	(void)touch("a", "1");
	assert_int_equal(apply(&move), 0);
	assert_int_equal(apply(&back), 0);
	assert_int_equal(apply(&move), 0);
	assert_true(file_is("a", "1"));
	move.number = 3; /* lower, as after a retry */
	assert_int_equal(apply(&move), 0);
	assert_true(file_is("b", "1"));
	assert_true(in_private("applied"));
	/* What is refused is not made, and may be asked for again. */
	move.number = 8;
	assert_int_equal(apply(&move), ENOENT);
	assert_int_equal(apply(&back), 0);
	assert_int_equal(apply(&move), 0);
	assert_true(file_is("b", "1"));
}

/* Whether a change was made can be asked for, and be said of one that needed nothing. */
static void test_asked(void **state)
{
	struct change ask = {.kind = LIMBWIRE__APPLY__KIND__ASK, .path = "a", .number = 7};
	struct change dir = {.kind = LIMBWIRE__APPLY__KIND__MKDIR, .path = "a", .number = 7};
	struct change nothing = {.kind = LIMBWIRE__APPLY__KIND__NOTHING, .path = "a", .number = 8};

	assert_int_equal(apply(&ask), ENOENT);
	assert_int_equal(access(in_root("a"), F_OK), -1);
	assert_int_equal(apply(&dir), 0);
	assert_int_equal(apply(&ask), 0);
	ask.number = 8;
	assert_int_equal(apply(&ask), ENOENT);
	assert_int_equal(apply(&nothing), 0);
	assert_int_equal(apply(&ask), 0);
	/* Many later they are known yet, as are all of a batch. */
	for (unsigned i = 0; i < 512; i++) {
		nothing.number = 100 + i;
		assert_int_equal(apply(&nothing), 0);
	}
	assert_int_equal(apply(&ask), 0);
}

/* What a batch makes is what its later changes are about, before anybody was told of it. */
static void test_batch(void **state)
{
	struct change dir = {.kind = LIMBWIRE__APPLY__KIND__MKDIR,
			     .path = "d",
			     .mode = 0700,
			     .number = 1,
			     .batch = 5};
	struct change put = {.kind = LIMBWIRE__APPLY__KIND__PUT,
			     .path = "d/t",
			     .bytes = "one",
			     .mode = 0600,
			     .no_replace = true,
			     .number = 2,
			     .batch = 5};
	struct change move = {.kind = LIMBWIRE__APPLY__KIND__MOVE,
			      .path = "d/t",
			      .to = "d/f",
			      .no_replace = true,
			      .number = 3,
			      .left = 2,
			      .batch = 5};
	struct change over = {.kind = LIMBWIRE__APPLY__KIND__MOVE,
			      .path = "d/t",
			      .to = "d/f",
			      .number = 5,
			      .left = 4,
			      .replaces_left = 3,
			      .base = "one",
			      .batch = 5};
	struct change attr = {.kind = LIMBWIRE__APPLY__KIND__ATTR,
			      .path = "d/f",
			      .mode = 0640,
			      .fields = NODE_FIELD_MODE,
			      .number = 6,
			      .left = 5,
			      .batch = 5};
	struct change rm = {.kind = LIMBWIRE__APPLY__KIND__REMOVE,
			    .path = "d/f",
			    .number = 7,
			    .left = 6,
			    .base = "two",
			    .batch = 5};
	struct change rmdir_ = {.kind = LIMBWIRE__APPLY__KIND__REMOVE,
				.path = "d",
				.number = 8,
				.left = 1,
				.batch = 5};

	assert_int_equal(apply(&dir), 0);
	assert_int_equal(apply(&put), 0);
	assert_int_equal(apply(&move), 0);
	assert_true(file_is("d/f", "one"));
	put.number = 4;
	put.bytes = "two";
	assert_int_equal(apply(&put), 0);
	assert_int_equal(apply(&over), 0);
	assert_true(file_is("d/f", "two"));
	assert_int_equal(apply(&attr), 0);
	assert_int_equal(apply(&rm), 0);
	assert_int_equal(apply(&rmdir_), 0);
	assert_int_equal(access(in_root("d"), F_OK), -1);
}

/* Somebody was there in between: the first that does not fit ends the batch. */
static void test_batch_ends(void **state)
{
	struct change put = {.kind = LIMBWIRE__APPLY__KIND__PUT,
			     .path = "f",
			     .bytes = "one",
			     .mode = 0600,
			     .number = 1,
			     .batch = 5};
	struct change rm = {.kind = LIMBWIRE__APPLY__KIND__REMOVE,
			    .path = "f",
			    .number = 2,
			    .left = 1,
			    .base = "one",
			    .batch = 5};
	struct change dir = {.kind = LIMBWIRE__APPLY__KIND__MKDIR,
			     .path = "d",
			     .mode = 0700,
			     .number = 3,
			     .batch = 5};
	struct change rmdir_ = {.kind = LIMBWIRE__APPLY__KIND__REMOVE,
				.path = "d",
				.number = 4,
				.left = 3,
				.batch = 6};
	struct change attr = {.kind = LIMBWIRE__APPLY__KIND__ATTR,
			      .path = "f",
			      .mode = 0640,
			      .fields = NODE_FIELD_MODE,
			      .number = 5};
	bool made = false;

	assert_int_equal(apply(&put), 0);
	write_file(in_root("f"), "two"); /* the same inode, and as long */
	assert_int_equal(apply(&rm), ESTALE);
	assert_true(file_is("f", "two"));
	assert_int_equal(apply(&dir), ECANCELED);
	assert_int_equal(access(in_root("d"), F_OK), -1);
	dir.batch = 6;
	assert_int_equal(apply(&dir), 0);
	write_file(in_root("d/new"), "x");
	assert_int_equal(apply(&rmdir_), ENOTEMPTY);
	assert_true(file_is("d/new", "x"));
	/* Another file of that name. */
	assert_int_equal(file_replace(AT_FDCWD, in_root("f"), "one", 3), 0);
	rm.batch = 7;
	assert_int_equal(apply(&rm), ESTALE);
	assert_true(file_is("f", "one"));
	rm.batch = 8;
	rm.left = 99; /* which nobody made */
	assert_int_equal(apply(&rm), ESTALE);
	/* Attributes: alone over whatever is in it, in a batch only over what was told. */
	attr.seen = barrier();
	write_file(in_root("f"), "more");
	for (unsigned i = 0; i < 8 && !made; i++) {
		attr.node = node_of(i);
		attr.batch = 0;
		attr.number = 20 + i;
		made = apply(&attr) == 0;
	}
	assert_true(made);
	write_file(in_root("f"), "longer");
	attr.batch = 9;
	attr.number = 40;
	assert_int_equal(apply(&attr), ESTALE);
}

/* Nothing goes that the brain has not seen. */
static void test_known(void **state)
{
	struct change rm = {.kind = LIMBWIRE__APPLY__KIND__REMOVE, .path = "a"};
	struct change over = {.kind = LIMBWIRE__APPLY__KIND__MOVE, .path = "a", .to = "b"};
	uint64_t heard;

	(void)touch("a", "1");
	heard = touch("b", "2");
	rm.seen = over.seen = heard;
	rm.node = node_of(5);
	assert_int_equal(apply(&rm), ESTALE);
	rm.node = over.node = node_of(0);
	over.replaces = node_of(1);
	rm.seen = 0; /* it was told, but not yet heard */
	assert_int_equal(apply(&rm), ESTALE);
	rm.seen = heard;
	assert_int_equal(file_replace(AT_FDCWD, in_root("b"), "new", 3), 0);
	assert_int_equal(apply(&over), ESTALE);
	assert_true(file_is("b", "new"));
	over.path = "b"; /* another node has the name */
	assert_int_equal(apply(&over), ESTALE);
	assert_int_equal(apply(&rm), 0);
	assert_int_equal(access(in_root("a"), F_OK), -1);
}

static void test_known_trees(void **state)
{
	struct change rm = {.kind = LIMBWIRE__APPLY__KIND__REMOVE, .path = "d"};

	assert_int_equal(mkdir(in_root("d"), 0700), 0);
	(void)barrier();
	rm.seen = touch("d/f", "1");
	rm.node = node_of(0);
	assert_int_equal(file_replace(AT_FDCWD, in_root("d/new"), "x", 1), 0);
	assert_int_equal(apply(&rm), ESTALE);
	assert_true(file_is("d/new", "x"));
	rm.seen = barrier();
	assert_int_equal(file_replace(AT_FDCWD, in_root("d/f"), "2", 1), 0);
	assert_int_equal(apply(&rm), ESTALE);
	assert_true(file_is("d/f", "2"));
	rm.seen = barrier();
	assert_int_equal(apply(&rm), 0);
	assert_int_equal(access(in_root("d"), F_OK), -1);
}

/* Names fill the shadow's memory to its ends, where nothing but them may be read. */
static void test_known_long_names(void **state)
{
	struct change rm = {.kind = LIMBWIRE__APPLY__KIND__REMOVE, .path = "d"};
	char name[256];

	assert_int_equal(mkdir(in_root("d"), 0700), 0);
	rm.seen = barrier();
	rm.node = node_of(0);
	for (int i = 0; i < 400; i++) {
		(void)snprintf(name, sizeof(name), "d/%0200d", i);
		write_file(in_root(name), "");
	}
	rm.seen = barrier();
	assert_int_equal(apply(&rm), 0);
	assert_int_equal(access(in_root("d"), F_OK), -1);
}

static void test_links_and_fields(void **state)
{
	struct change put = {
		.kind = LIMBWIRE__APPLY__KIND__PUT, .path = "a", .bytes = "a", .mode = 0600};
	struct change more = {.kind = LIMBWIRE__APPLY__KIND__LINK, .path = "a", .to = "b"};
	struct change attr = {.kind = LIMBWIRE__APPLY__KIND__ATTR,
			      .path = "b",
			      .mode = 0444,
			      .mtime_ns = 5,
			      .fields = NODE_FIELD_MODE};
	struct stat st;

	assert_int_equal(apply(&put), 0);
	assert_int_equal(apply(&more), 0);
	assert_int_equal(apply(&more), EEXIST);
	assert_int_equal(apply(&attr), 0);
	assert_int_equal(stat(in_root("a"), &st), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0444);
	assert_int_equal(st.st_nlink, 2);
	assert_int_not_equal(clock_from_timespec(st.st_mtim), 5);
	attr.fields = NODE_FIELD_HOLES;
	assert_int_equal(apply(&attr), EOPNOTSUPP);
}

static void test_move_replaces_or_not(void **state)
{
	struct change put = {
		.kind = LIMBWIRE__APPLY__KIND__PUT, .path = "a", .bytes = "a", .mode = 0600};
	struct change move = {
		.kind = LIMBWIRE__APPLY__KIND__MOVE, .path = "a", .to = "b", .no_replace = true};

	assert_int_equal(apply(&put), 0);
	put.path = put.bytes = "b";
	assert_int_equal(apply(&put), 0);
	assert_int_equal(apply(&move), EEXIST);
	assert_true(file_is("b", "b"));
	move.to = "c";
	assert_int_equal(apply(&move), 0);
	move.path = "c";
	move.to = "b";
	move.no_replace = false;
	assert_int_equal(apply(&move), 0);
	assert_true(file_is("b", "a"));
}

/* Nothing outside of the root, whatever the path or the links in it say. */
static void test_stays_beneath(void **state)
{
	static const char *const paths[] = {"out/f", "up/f", "../f", "d/../../f", "/etc/f", "",
					    ".",     "..",   "d/..", "d/",	  "d/."};
	struct change put = {.kind = LIMBWIRE__APPLY__KIND__PUT, .bytes = "bad", .mode = 0600};
	struct change gone = {.kind = LIMBWIRE__APPLY__KIND__REMOVE};
	char path[600];

	(void)snprintf(path, sizeof(path), "%s/f", c.top);
	assert_int_equal(mkdir(in_root("d"), 0755), 0);
	assert_int_equal(symlink(c.top, in_root("out")), 0);
	assert_int_equal(symlink("..", in_root("up")), 0);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		put.path = gone.path = paths[i];
		assert_int_not_equal(apply(&put), 0);
		assert_int_not_equal(apply(&gone), 0);
	}
	assert_int_not_equal(access(path, F_OK), 0);
	assert_int_equal(access(in_root("d"), F_OK), 0);
	/* A link at the end is replaced, its target is not. */
	(void)snprintf(path, sizeof(path), "%s/target", c.top);
	assert_int_equal(symlink(path, in_root("last")), 0);
	put.path = "last";
	assert_int_equal(apply(&put), 0);
	assert_true(file_is("last", "bad"));
	assert_int_not_equal(access(path, F_OK), 0);
	/* A directory is not replaced by a file. */
	put.path = "d";
	assert_int_equal(apply(&put), EISDIR);
	/* Not a name of ours. */
	put.path = ".limb-0123456789abcdef~";
	assert_int_equal(apply(&put), EINVAL);
}

static void test_put_needs_its_bytes(void **state)
{
	struct change put = {.kind = LIMBWIRE__APPLY__KIND__PUT, .path = "f", .mode = 0600};

	Limbwire__Apply half = LIMBWIRE__APPLY__INIT;
	Limbwire__Push m = LIMBWIRE__PUSH__INIT;

	assert_int_equal(apply(&put), EBADMSG);
	/* Some have come, not the last. */
	half.push = m.push = ++pushes;
	client_send(&c, WIRE_PUSH, &m.base, "half", 4);
	half.request = ++c.request;
	half.kind = LIMBWIRE__APPLY__KIND__PUT;
	half.path = (ProtobufCBinaryData){1, (uint8_t *)"f"};
	client_send(&c, WIRE_APPLY, &half.base, NULL, 0);
	assert_int_equal(((Limbwire__Done *)client_wait(&c, WIRE_APPLIED))->error, EBADMSG);
	assert_int_not_equal(access(in_root("f"), F_OK), 0);
}

/* As on a file system that does not know renameat2's flags. */
static void without_flags(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[4])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {ARRAY_SIZE(code), code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		_exit(126);
}

static int setup_without_flags(void **state)
{
	client_make(&c);
	c.before_exec = without_flags;
	client_join(&c);
	return 0;
}

static int setup_syncing_without_flags(void **state)
{
	client_make(&c);
	c.before_exec = without_flags;
	(void)client_attach(&c);
	join_syncing();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_tree, setup, teardown),
		cmocka_unit_test_setup_teardown(test_careful, setup_syncing, teardown),
		cmocka_unit_test_setup_teardown(test_link_and_fifo, setup, teardown),
		cmocka_unit_test_setup_teardown(test_numbers, setup_syncing, teardown),
		cmocka_unit_test_setup_teardown(test_asked, setup_syncing, teardown),
		cmocka_unit_test_setup_teardown(test_batch, setup_syncing, teardown),
		cmocka_unit_test_setup_teardown(test_batch, setup_syncing_without_flags, teardown),
		cmocka_unit_test_setup_teardown(test_batch_ends, setup_syncing, teardown),
		cmocka_unit_test_setup_teardown(test_known, setup_syncing, teardown),
		cmocka_unit_test_setup_teardown(test_known_trees, setup_syncing, teardown),
		cmocka_unit_test_setup_teardown(test_known_long_names, setup_syncing, teardown),
		cmocka_unit_test_setup_teardown(test_links_and_fields, setup, teardown),
		cmocka_unit_test_setup_teardown(test_move_replaces_or_not, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stays_beneath, setup, teardown),
		cmocka_unit_test_setup_teardown(test_put_needs_its_bytes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_tree, setup_without_flags, teardown),
		cmocka_unit_test_setup_teardown(test_careful, setup_syncing_without_flags,
						teardown),
		cmocka_unit_test_setup_teardown(test_link_and_fifo, setup_without_flags, teardown),
		cmocka_unit_test_setup_teardown(test_known, setup_syncing_without_flags, teardown),
		cmocka_unit_test_setup_teardown(test_move_replaces_or_not, setup_without_flags,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
