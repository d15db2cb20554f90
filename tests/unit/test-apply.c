/* Changes that the brain makes arrive whole or not at all, never through a link, and leave
 * nothing beside. */
#include "journal/node.h"
#include "syncd-client.h"

static struct client c;

static int setup(void **state)
{
	client_make(&c);
	client_join(&c);
	return 0;
}

/* Nothing is known at first; what the root has is found. */
static void join_syncing(void)
{
	Limbwire__TreePart part = LIMBWIRE__TREE_PART__INIT;

	c.mode = LIMBWIRE__WELCOME__MODE__MODE_SYNC;
	client_welcome(&c);
	part.request = ((Limbwire__TreeGet *)client_wait(&c, WIRE_TREE_GET))->request;
	part.last = true;
	client_send(&c, WIRE_TREE_PART, &part.base, NULL, 0);
}

static int setup_syncing(void **state)
{
	client_make(&c);
	(void)client_attach(&c);
	join_syncing();
	return 0;
}

/* The brain has heard all that was told until now: up to this number. */
static uint64_t barrier(void)
{
	Limbwire__Barrier m = LIMBWIRE__BARRIER__INIT;

	m.request = ++c.request;
	m.deadline_ms = CLIENT_PATIENCE_MS;
	client_send(&c, WIRE_BARRIER, &m.base, NULL, 0);
	return ((Limbwire__BarrierDone *)client_wait(&c, WIRE_BARRIER_DONE))->number;
}

static int teardown(void **state)
{
	char **names;
	size_t n;

	/* No temporary name stays behind. */
	assert_int_equal(file_list(AT_FDCWD, c.root, 1000, &names, &n), 0);
	for (size_t i = 0; i < n; i++)
		assert_int_not_equal(strncmp(names[i], ".limb-", 6), 0);
	file_names_free(names, n);
	client_remove(&c);
	return 0;
}

static const char *in_root(const char *name)
{
	static char path[2][600];
	static unsigned turn;

	turn = !turn;
	(void)snprintf(path[turn], sizeof(path[turn]), "%s/%s", c.root, name);
	return path[turn];
}

struct change {
	Limbwire__Apply__Kind kind;
	const char *path, *to, *bytes, *target;
	uint32_t mode, uid;
	int64_t mtime_ns;
	bool full, no_replace, no_attr, careful;
	uint64_t number, node, replaces, seen;
	uint32_t fields;
};

static uint32_t pushes;

static void push(const char *bytes)
{
	Limbwire__Push m = LIMBWIRE__PUSH__INIT;
	size_t half = strlen(bytes) / 2;

	m.push = ++pushes;
	client_send(&c, WIRE_PUSH, &m.base, bytes, half);
	m.offset = half;
	m.last = true;
	client_send(&c, WIRE_PUSH, &m.base, bytes + half, strlen(bytes) - half);
}

static uint64_t apply_ask(const struct change *x)
{
	Limbwire__Apply m = LIMBWIRE__APPLY__INIT;
	Limb__Attr attr = LIMB__ATTR__INIT;

	m.request = ++c.request;
	m.kind = x->kind;
	m.path = (ProtobufCBinaryData){strlen(x->path), (uint8_t *)x->path};
	if (x->to)
		m.to_path = (ProtobufCBinaryData){strlen(x->to), (uint8_t *)x->to};
	attr.type = x->kind == LIMBWIRE__APPLY__KIND__MKDIR ? LIMB__NODE_TYPE__NODE_DIRECTORY
		    : x->target				    ? LIMB__NODE_TYPE__NODE_SYMLINK
							    : LIMB__NODE_TYPE__NODE_FILE;
	attr.mode = x->mode;
	attr.uid = attr.gid = x->uid;
	attr.uid_kind = attr.gid_kind = x->uid ? LIMB__OWNER_KIND__OWNER_NUMBER
					       : LIMB__OWNER_KIND__OWNER_SELF;
	attr.mtime_ns = x->mtime_ns;
	if (x->target)
		attr.target = (ProtobufCBinaryData){strlen(x->target), (uint8_t *)x->target};
	m.attr = x->no_attr ? NULL : &attr;
	m.attr_defaults = !x->full;
	m.no_replace = x->no_replace;
	m.careful = x->careful;
	m.number = x->number;
	m.node = x->node;
	m.replaces = x->replaces;
	m.seen = x->seen;
	m.fields = x->fields;
	if (x->bytes) {
		push(x->bytes);
		m.push = pushes;
	}
	client_send(&c, WIRE_APPLY, &m.base, NULL, 0);
	return m.request;
}

/* The errno of APPLIED. */
static int apply(const struct change *x)
{
	uint64_t request = apply_ask(x);
	Limbwire__Done *done = client_wait(&c, WIRE_APPLIED);

	assert_int_equal(done->request, request);
	return done->error;
}

static bool file_is(const char *name, const char *bytes)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);

	return file_read(AT_FDCWD, in_root(name), &b) == 0 && buf_len(&b) == strlen(bytes) &&
	       (*bytes == 0 || memcmp(buf_data(&b), bytes, strlen(bytes)) == 0);
}

static void test_put(void **state)
{
	struct change x = {
		.kind = LIMBWIRE__APPLY__KIND__PUT, .path = "f", .bytes = "first", .mode = 0640};
	struct stat st, other;

	assert_int_equal(apply(&x), 0);
	assert_true(file_is("f", "first"));
	assert_int_equal(stat(in_root("f"), &st), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0640);

	x.bytes = "second and longer";
	x.full = true;
	x.mode = 04755;
	x.mtime_ns = 1234567890123456789;
	assert_int_equal(apply(&x), 0);
	assert_true(file_is("f", "second and longer"));
	assert_int_equal(stat(in_root("f"), &other), 0);
	assert_int_equal(other.st_mode, S_IFREG | 04755);
	assert_int_equal(clock_from_timespec(other.st_mtim), x.mtime_ns);
	assert_int_not_equal(other.st_ino, st.st_ino); /* exchanged, not rewritten */

	x.no_replace = true;
	x.bytes = "third";
	assert_int_equal(apply(&x), EEXIST);
	assert_true(file_is("f", "second and longer"));
	x.path = "empty";
	x.bytes = "";
	assert_int_equal(apply(&x), 0);
	assert_true(file_is("empty", ""));
}

/* ---- files with several names ---- */

enum { OLD_BYTES = 40000, NEW_BYTES = 30000 };

static char old_text[OLD_BYTES + 1], new_text[NEW_BYTES + 1];

static const char *outside(void)
{
	static char path[600];

	(void)snprintf(path, sizeof(path), "%s/outside", c.top);
	return path;
}

/* A file of the old text with the names a and b, both known. */
static void put_linked(void)
{
	struct change x = {
		.kind = LIMBWIRE__APPLY__KIND__PUT, .path = "a", .bytes = old_text, .mode = 0644};

	memset(old_text, 'o', OLD_BYTES);
	memset(new_text, 'n', NEW_BYTES);
	assert_int_equal(apply(&x), 0);
	assert_int_equal(link(in_root("a"), in_root("b")), 0);
	(void)barrier();
}

static struct change change_linked(void)
{
	return (struct change){
		.kind = LIMBWIRE__APPLY__KIND__PUT, .path = "a", .bytes = new_text, .mode = 0644};
}

static bool in_private(const char *name)
{
	char path[600];

	(void)snprintf(path, sizeof(path), "%s/%s", c.dir, name);
	return access(path, F_OK) == 0;
}

static bool nothing_kept(void)
{
	return !in_private("apply-log") && !in_private("apply-new") && !in_private("apply-base");
}

/* A file with two names stays one file. */
static void test_put_keeps_links(void **state)
{
	struct change x;
	struct stat before, after;

	put_linked();
	x = change_linked();
	assert_int_equal(stat(in_root("a"), &before), 0);
	assert_int_equal(apply(&x), 0);
	assert_true(file_is("a", new_text));
	assert_true(file_is("b", new_text));
	assert_int_equal(stat(in_root("b"), &after), 0);
	assert_int_equal(after.st_ino, before.st_ino);
	assert_int_equal(after.st_nlink, 2);
	x.bytes = "";
	assert_int_equal(apply(&x), 0);
	assert_true(file_is("b", ""));
	x.bytes = old_text;
	assert_int_equal(apply(&x), 0);
	assert_true(file_is("b", old_text));
	assert_true(nothing_kept());
}

/* Nothing outside of the root changes, and what else has the file keeps its bytes. */
static void test_put_link_outside(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	struct change x;
	struct stat st;

	put_linked();
	x = change_linked();
	assert_int_equal(link(in_root("a"), outside()), 0);
	assert_int_equal(apply(&x), 0);
	assert_true(file_is("a", new_text));
	assert_true(file_is("b", old_text));
	assert_int_equal(file_read(AT_FDCWD, outside(), &b), 0);
	assert_int_equal(buf_len(&b), OLD_BYTES);
	assert_int_equal(stat(in_root("a"), &st), 0);
	assert_int_equal(st.st_nlink, 1);
}

/* As many names as are known, but one of them has left. */
static void test_put_link_left(void **state)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	struct change x;

	put_linked();
	x = change_linked();
	assert_int_equal(rename(in_root("b"), outside()), 0);
	assert_int_equal(apply(&x), 0);
	assert_true(file_is("a", new_text));
	assert_int_equal(file_read(AT_FDCWD, outside(), &b), 0);
	assert_int_equal(buf_len(&b), OLD_BYTES);
}

/* Of a root that is not watched no names are known. */
static void test_put_link_unknown(void **state)
{
	struct change x = {
		.kind = LIMBWIRE__APPLY__KIND__PUT, .path = "a", .bytes = "old", .mode = 0644};

	assert_int_equal(apply(&x), 0);
	assert_int_equal(link(in_root("a"), in_root("b")), 0);
	x.bytes = "new";
	assert_int_equal(apply(&x), 0);
	assert_true(file_is("a", "new"));
	assert_true(file_is("b", "old"));
}

#ifdef LIMB_FAULTS

/* Attached to a daemon with that plan; the file is there. */
static void begin_with(const char *plan)
{
	client_make(&c);
	assert_int_equal(setenv("LIMB_FAULT", plan, 1), 0);
	(void)client_attach(&c);
	assert_int_equal(unsetenv("LIMB_FAULT"), 0);
	join_syncing();
	put_linked();
}

/* The daemon is killed. The next one is looked at before it is welcomed, and so before it
 * looks at anything. */
static void die_in_the_middle(void)
{
	struct change x = change_linked();

	(void)apply_ask(&x);
	client_wait_closed(&c);
	client_detach(&c);
}

static void test_put_killed(void **state)
{
	static const struct {
		const char *plan;
		bool finished;
	} kills[] = {
		{"apply.log.copy:2:kill", false}, {"apply.log.sync:1:kill", false},
		{"apply.log.sync:2:kill", false}, {"apply.in_place:1:kill", true},
		{"apply.in_place:2:kill", true},  {"apply.in_place:3:kill", true},
		{"apply.in_place:4:kill", true},  {"apply.log.unlink:1:kill", true},
	};

	for (size_t i = 0; i < ARRAY_SIZE(kills); i++) {
		const char *want;
		struct stat st;

		begin_with(kills[i].plan);
		die_in_the_middle();
		assert_true(file_is("a", old_text) || in_private("apply-log"));
		(void)client_attach(&c);
		want = kills[i].finished ? new_text : old_text;
		if (!file_is("a", want) || !file_is("b", want))
			fail_msg("%s: torn", kills[i].plan);
		assert_int_equal(stat(in_root("a"), &st), 0);
		assert_int_equal(st.st_nlink, 2);
		assert_true(nothing_kept());
		join_syncing();
		barrier();
		client_remove(&c);
	}
}

/* Somebody has written there since: that is the file. */
static void test_put_killed_then_written(void **state)
{
	cleanup_close int fd = -1;
	_cleanup_(buf_done) struct buf torn = BUF_INIT(0), now = BUF_INIT(0);

	begin_with("apply.in_place:1:kill");
	die_in_the_middle();
	fd = open(in_root("b"), O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, "mine", 4, OLD_BYTES - 4), 4);
	assert_int_equal(file_read(AT_FDCWD, in_root("a"), &torn), 0);
	(void)client_attach(&c);
	assert_int_equal(file_read(AT_FDCWD, in_root("a"), &now), 0);
	assert_int_equal(buf_len(&now), OLD_BYTES);
	assert_memory_equal(buf_data(&now), buf_data(&torn), OLD_BYTES);
	assert_true(nothing_kept());
	client_remove(&c);
}

/* Another file under that name, and a root that is another one: neither is written. */
static void test_put_killed_then_replaced(void **state)
{
	char aside[600];

	begin_with("apply.in_place:1:kill");
	die_in_the_middle();
	(void)snprintf(aside, sizeof(aside), "%s/aside", c.top);
	assert_int_equal(rename(c.root, aside), 0);
	assert_int_equal(mkdir(c.root, 0755), 0);
	assert_int_equal(file_replace(AT_FDCWD, in_root("a"), old_text, OLD_BYTES), 0);
	(void)client_attach(&c);
	assert_true(file_is("a", old_text));
	assert_true(in_private("apply-log"));
	client_detach(&c);
	/* The first is back. */
	assert_int_equal(file_remove_tree(AT_FDCWD, c.root), 0);
	assert_int_equal(rename(aside, c.root), 0);
	(void)client_attach(&c);
	assert_true(file_is("a", new_text));
	assert_true(nothing_kept());
	client_remove(&c);

	begin_with("apply.in_place:1:kill");
	die_in_the_middle();
	assert_int_equal(unlink(in_root("a")), 0);
	assert_int_equal(file_replace(AT_FDCWD, in_root("a"), "another", 7), 0);
	(void)client_attach(&c);
	assert_true(file_is("a", "another"));
	assert_true(nothing_kept());
	client_remove(&c);
}

/* Each byte of the record counts, and so do the bytes that are to be written. */
static void test_put_killed_then_damaged(void **state)
{
	static const struct {
		const char *name;
		off_t at;
	} damage[] = {{"apply-log", 0},	 {"apply-log", 28}, {"apply-log", 40},
		      {"apply-log", 80}, {"apply-log", 90}, {"apply-new", 29999}};

	for (size_t i = 0; i < ARRAY_SIZE(damage); i++) {
		_cleanup_(buf_done) struct buf torn = BUF_INIT(0), now = BUF_INIT(0);
		cleanup_close int fd = -1;
		char path[600];
		uint8_t byte;

		begin_with("apply.in_place:1:kill");
		die_in_the_middle();
		(void)snprintf(path, sizeof(path), "%s/%s", c.dir, damage[i].name);
		fd = open(path, O_RDWR | O_CLOEXEC);
		assert_int_equal(pread(fd, &byte, 1, damage[i].at), 1);
		byte ^= 1;
		assert_int_equal(pwrite(fd, &byte, 1, damage[i].at), 1);
		assert_int_equal(file_read(AT_FDCWD, in_root("a"), &torn), 0);
		(void)client_attach(&c);
		assert_int_equal(file_read(AT_FDCWD, in_root("a"), &now), 0);
		assert_int_equal(buf_len(&now), buf_len(&torn));
		assert_memory_equal(buf_data(&now), buf_data(&torn), buf_len(&torn));
		assert_true(nothing_kept());
		join_syncing();
		barrier();
		client_remove(&c);
	}
}

/* What cannot be written to the end is taken back. */
static void test_put_no_space(void **state)
{
	struct change x;

	begin_with("apply.in_place:2:cut=ENOSPC");
	x = change_linked();
	assert_int_equal(apply(&x), ENOSPC);
	assert_true(file_is("a", old_text));
	assert_true(file_is("b", old_text));
	assert_true(nothing_kept());
	assert_int_equal(apply(&x), 0);
	assert_true(file_is("b", new_text));
	client_remove(&c);
}

#endif

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
	attr.fields = NODE_FIELD_XATTR;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_put, setup, teardown),
		cmocka_unit_test_setup_teardown(test_put_keeps_links, setup_syncing, teardown),
		cmocka_unit_test_setup_teardown(test_put_link_outside, setup_syncing, teardown),
		cmocka_unit_test_setup_teardown(test_put_link_left, setup_syncing, teardown),
		cmocka_unit_test_setup_teardown(test_put_link_unknown, setup, teardown),
#ifdef LIMB_FAULTS
		cmocka_unit_test(test_put_killed),
		cmocka_unit_test(test_put_killed_then_written),
		cmocka_unit_test(test_put_killed_then_replaced),
		cmocka_unit_test(test_put_killed_then_damaged),
		cmocka_unit_test(test_put_no_space),
#endif
		cmocka_unit_test_setup_teardown(test_tree, setup, teardown),
		cmocka_unit_test_setup_teardown(test_careful, setup_syncing, teardown),
		cmocka_unit_test_setup_teardown(test_link_and_fifo, setup, teardown),
		cmocka_unit_test_setup_teardown(test_numbers, setup_syncing, teardown),
		cmocka_unit_test_setup_teardown(test_known, setup_syncing, teardown),
		cmocka_unit_test_setup_teardown(test_known_trees, setup_syncing, teardown),
		cmocka_unit_test_setup_teardown(test_links_and_fields, setup, teardown),
		cmocka_unit_test_setup_teardown(test_move_replaces_or_not, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stays_beneath, setup, teardown),
		cmocka_unit_test_setup_teardown(test_put_needs_its_bytes, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
