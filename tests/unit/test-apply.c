/* Changes that the brain makes arrive whole or not at all, never through a link, and leave
 * nothing beside. */
#include "apply-client.h"

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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
