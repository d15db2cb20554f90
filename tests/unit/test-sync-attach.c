/* Lines break, limb-syncd dies, roots go: nothing is lost, sent twice or removed by mistake. */
#include "tests/unit/sync-fixture.h"

#include <sys/mount.h>
#include <sys/xattr.h>

static void make_tree(void)
{
	sh("for i in {1..20}; do mkdir d$i; for j in {1..20}; do echo $i $j >d$i/f$j; done; done; "
	   "ln d1/f1 d2/second; ln -s x link; head -c 600000 /dev/urandom >large");
}

static void restart(void)
{
	brain_kill_syncd(&b);
	brain_new_syncd(&b, root, dir_fd);
	brain_attach(&b);
}

/* What did not change is neither sent nor read again. */
static void test_restart_sends_nothing(void **state)
{
	(void)state;
	make_tree();
	brain_start(&b, root, dir_fd);
	(void)check();
	reset_counts();
	restart();
	(void)check();
	assert_int_equal(b.changes, 0);
	sh("echo new >>d3/f3; rm d4/f4; mkdir n");
	restart();
	(void)check();
	assert_int_equal(b.contents, 1);
	assert_int_equal(b.unlinks, 1);
}

/* A line that comes back finds the shadow in memory. */
static void test_reattach(void **state)
{
	(void)state;
	make_tree();
	brain_start(&b, root, dir_fd);
	(void)check();
	reset_counts();
	brain_detach(&b);
	sh_live("echo away >>d1/f2; mv d5 d6/d5; rm -r d7");
	brain_attach(&b);
	(void)check();
	assert_int_equal(b.tree_request, 0);
	assert_int_equal(b.contents, 1);
	assert_int_equal(b.moves, 1);
}

/* CHANGEs that got lost are taken back and made again, whatever they were. */
static void test_lost_changes(void **state)
{
	(void)state;
	make_tree();
	brain_start(&b, root, dir_fd);
	(void)check();
	for (int round = 0; round < 6; round++) {
		char command[512];

		(void)snprintf(
			command, sizeof(command),
			"r=%d; echo $r >>d1/f$r; mv d2/f$r d3/g$r; rm d4/f$r; mkdir -p n$r/m; "
			"echo x >n$r/m/f; mv d1$r n$r; ln d5/f$r d6/l$r; rm -r d9/f$r; "
			"echo r >t; mv t d8/f$r; head -c 300000 /dev/urandom >large; chmod 600 "
			"d5/f$r",
			round + 1);
		b.drop = true;
		sh_live(command);
		brain_run_ms(&b, 100);
		brain_detach(&b);
		if (round & 1)
			sh("rm -rf n*/m; mv d3 d3x; mv d3x d3; touch d8");
		b.drop = false;
		brain_attach(&b);
		(void)check();
	}
}

/* What is in doubt stays in memory only until it is durable. */
static void test_late_acknowledgement(void **state)
{
	(void)state;
	brain_start(&b, root, dir_fd);
	b.no_ack = true;
	make_tree();
	(void)check();
	sh("rm -r d1 d2; mv d3 d4/d3; echo x >>d5/f1");
	(void)check();
	/* The brain had it all: the numbers say so. */
	brain_detach(&b);
	brain_attach(&b);
	reset_counts();
	(void)check();
	assert_int_equal(b.contents, 0);
	b.no_ack = false;
	(void)check();
}

/* B11: killed again and again during the first scan; each life goes on where the last ended. */
static void B11_interrupted_first_scan(void **state)
{
	uint64_t before = 0;

	(void)state;
	make_tree();
	brain_start(&b, root, dir_fd);
	for (int i = 0; i < 20; i++) {
		for (int turns = 0; turns < i * 2; turns++)
			brain_turn(&b);
		assert_true(b.number >= before);
		before = b.number;
		if (i & 1) {
			restart();
		} else {
			brain_detach(&b);
			brain_attach(&b);
		}
		assert_int_equal(b.unlinks, 0);
	}
	assert_true(check() > 400);
	assert_int_equal(b.unlinks, 0);
}

/* A copy of the root on another machine: everything is compared, no content sent. */
static void test_foreign_root(void **state)
{
	(void)state;
	make_tree();
	brain_start(&b, root, dir_fd);
	(void)check();
	brain_kill_syncd(&b);
	sh("cd ..; cp -a root copy; rm -r root; mv copy root; echo changed >root/d1/f3");
	(void)close(root_fd);
	root_fd = openat(scratch, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	b.incarnation++;
	b.set_mark = true;
	reset_counts();
	brain_new_syncd(&b, root, dir_fd);
	brain_attach(&b);
	(void)check();
	assert_int_equal(b.contents, 1);
	assert_int_equal(b.unlinks, 0);
}

static void adopt(struct bnode *dir, int fd, bool ours)
{
	for (struct bname *e = dir->children; e; e = e->next) {
		struct stat st;

		assert_int_equal(fstatat(fd, e->name, &st, AT_SYMLINK_NOFOLLOW), 0);
		assert_int_equal(sync_adopt(b.sync, dir->id, e->name, e->len, e->node->id,
					    &e->node->n, &st, ours),
				 0);
		if (e->node->children) {
			int sub = openat(fd, e->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

			adopt(e->node, sub, ours);
			(void)close(sub);
		}
	}
}

/* After a restore the nodes are those of the journal, on new inodes. */
static void restored_root(bool ours)
{
	struct bnode *n;
	struct stat st;

	make_tree();
	brain_start(&b, root, dir_fd);
	(void)check();
	brain_kill_syncd(&b);
	sh("cd ..; cp -a root copy; rm -r root; mv copy root");
	(void)close(root_fd);
	root_fd = openat(scratch, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	b.incarnation++;
	b.set_mark = b.restore = true;
	reset_counts();
	brain_new_syncd(&b, root, dir_fd);
	brain_attach(&b);
	brain_run_ms(&b, 50);
	assert_int_equal(b.changes, 0);
	n = brain_node(&b, NODE_ROOT);
	assert_int_equal(fstat(root_fd, &st), 0);
	assert_int_equal(sync_adopt(b.sync, 0, "", 0, NODE_ROOT, &n->n, &st, false), 0);
	adopt(n, root_fd, ours);
	sh("echo changed >d1/f3; mv d2 d22");
	assert_int_equal(sync_start(b.sync), 0);
	(void)check();
	assert_int_equal(b.contents, 1);
	assert_int_equal(b.moves, 1);
	assert_int_equal(b.unlinks, 0);
	/* The brain knows the new inodes: the next limb-syncd has nothing to say. */
	reset_counts();
	b.restore = false;
	restart();
	(void)check();
	assert_int_equal(b.changes, 0);
}

static void test_restored_root(void **state)
{
	(void)state;
	restored_root(false);
}

/* What was written there just now is read again only if somebody else has touched it since. */
static void test_restored_by_us(void **state)
{
	(void)state;
	restored_root(true);
}

/* Somebody puts other things there between a restore and the look at what it made. */
static void test_restored_and_swapped(void **state)
{
	struct bnode *n;
	struct stat st;

	(void)state;
	make_tree();
	brain_start(&b, root, dir_fd);
	(void)check();
	brain_kill_syncd(&b);
	sh("cd ..; cp -a root copy; rm -r root; mv copy root");
	(void)close(root_fd);
	root_fd = openat(scratch, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	b.incarnation++;
	b.set_mark = b.restore = true;
	brain_new_syncd(&b, root, dir_fd);
	brain_attach(&b);
	brain_run_ms(&b, 50);
	n = brain_node(&b, NODE_ROOT);
	assert_int_equal(fstat(root_fd, &st), 0);
	assert_int_equal(sync_adopt(b.sync, 0, "", 0, NODE_ROOT, &n->n, &st, false), 0);
	sh("rm d1/f3 large link; mkdir d1/f3; ln -s d1 large; echo file >link");
	adopt(n, root_fd, true);
	assert_int_equal(sync_start(b.sync), 0);
	(void)check();
}

static void expect_halt(const char *code)
{
	unsigned changes = b.changes;

	brain_wait_reason(&b, code);
	assert_true(b.status->halted);
	assert_int_equal(b.changes, changes);
	/* B24: nobody waits for what cannot come. */
	brain_barrier(&b, 0, 0, 10000);
	assert_int_equal(b.result.error, EIO);
}

/* B10: another directory, an empty one, none: nothing is removed from the journal. */
static void B10_B24_root_replaced(void **state)
{
	(void)state;
	make_tree();
	brain_start(&b, root, dir_fd);
	(void)check();
	sh("cd ..; mv root gone; mkdir root; echo stock >root/stock");
	expect_halt("root_replaced");
	sh("cd ../; rm -r root; mv gone root");
	brain_run_ms(&b, 1500);
	assert_false(b.status->halted);
	(void)check();
	assert_int_equal(b.unlinks, 0);
}

static void test_root_missing(void **state)
{
	(void)state;
	make_tree();
	brain_start(&b, root, dir_fd);
	(void)check();
	sh("cd ..; mv root gone");
	expect_halt("root_missing");
	sh("cd ..; mv gone root");
	brain_run_ms(&b, 1500);
	assert_false(b.status->halted);
	(void)check();
}

static void send_accept(const char *path)
{
	Limbwire__Accept a = LIMBWIRE__ACCEPT__INIT;

	a.request = 7;
	a.path.data = (uint8_t *)path;
	a.path.len = strlen(path);
	b.answered = false;
	sync_on_accept(b.sync, &a);
	assert_true(b.answered);
}

static void test_root_emptied(void **state)
{
	(void)state;
	make_tree();
	brain_start(&b, root, dir_fd);
	(void)check();
	brain_kill_syncd(&b);
	sh("rm -r *");
	brain_new_syncd(&b, root, dir_fd);
	brain_attach(&b);
	expect_halt("root_emptied");
	assert_int_equal(b.unlinks, 0);
	send_accept("");
	assert_int_equal(b.error, 0);
	assert_int_equal(check(), 0);
	/* Under watch it is what somebody did. */
	sh("echo 1 >f");
	(void)check();
	sh("rm f");
	assert_int_equal(check(), 0);
}

/* A fresh root without a mark is not the one that the journal knows. */
static void test_wrong_mark(void **state)
{
	(void)state;
	make_tree();
	b.set_mark = false;
	brain_init(&b);
	b.set_mark = false;
	brain_new_syncd(&b, root, dir_fd);
	brain_attach(&b);
	expect_halt("root_replaced");
}

/* Where there are no extended attributes the mark is kept beside. */
static void test_mark_is_set(void **state)
{
	char hex[33];

	(void)state;
	brain_start(&b, root, dir_fd);
	(void)check();
	assert_int_equal(fgetxattr(root_fd, "user.limb.mark", hex, sizeof(hex)), 32);
	assert_int_equal(brain_node(&b, NODE_ROOT)->n.xattrs_len, 0);
}

static int unmount_teardown(void **state)
{
	char path[PATH_MAX + 64];

	(void)snprintf(path, sizeof(path), "%s/d1", root);
	(void)umount2(path, MNT_DETACH);
	if (getuid() == 0 && seteuid(0) < 0)
		return -1;
	return teardown(state);
}

/* A mount over a known directory: kept, shown, and gone only by a person's word. */
/* What was to be said when the line fell is said over the next one. */
static void test_status_after_reattach(void **state)
{
	unsigned statuses;

	(void)state;
	make_tree();
	brain_start(&b, root, dir_fd);
	(void)check();
	brain_run_ms(&b, 600);
	sh("echo more >f-more");
	brain_sync(&b); /* and its status is due in a moment */
	brain_detach(&b);
	brain_run_ms(&b, 600);
	statuses = b.statuses;
	brain_attach(&b);
	for (int i = 0; i < 50 && b.statuses == statuses; i++)
		brain_run_ms(&b, 100);
	assert_int_not_equal(b.statuses, statuses);
}

static void test_mount_changed(void **state)
{
	char path[PATH_MAX + 64];

	(void)state;
	make_tree();
	brain_start(&b, root, dir_fd);
	(void)check();
	(void)snprintf(path, sizeof(path), "%s/d1", root);
	if (mount("limb-test", path, "tmpfs", 0, NULL) < 0) {
		print_message("# no mounts here\n");
		skip();
	}
	sh("echo inside >d1/other; touch d2/f2");
	sync_touch(b.sync, "d1", 2, 0);
	brain_sync(&b);
	brain_wait_reason(&b, "mount_changed");
	assert_true(b.status->mount_changed);
	assert_non_null(brain_lookup(&b, "d1/f1"));
	assert_null(brain_lookup(&b, "d1/other"));
	assert_int_equal(umount(path), 0);
	sh("echo under >d1/f1; touch d1");
	(void)check();
	brain_run_ms(&b, 300);
	assert_false(b.status->mount_changed);
	assert_int_equal(b.unlinks, 0);

	assert_int_equal(mount("limb-test", path, "tmpfs", 0, NULL), 0);
	sh("touch d2/f3");
	brain_sync(&b);
	sync_touch(b.sync, "d1", 2, 0);
	brain_wait_reason(&b, "mount_changed");
	send_accept("d1");
	assert_int_equal(b.error, 0);
	brain_sync(&b);
	assert_non_null(brain_lookup(&b, "d1"));
	assert_null(brain_lookup(&b, "d1/f1"));
	assert_true(brain_lookup(&b, "d1")->n.device != 0);
	assert_int_equal(umount(path), 0);
	sh("touch d1");
	(void)check();
}

/* B12: what may not be read is kept as it was last known. */
static void B12_unreadable(void **state)
{
	(void)state;
	if (geteuid() != 0) {
		print_message("# not root\n");
		skip();
	}
	make_tree();
	sh("chmod 755 ..; chown -R 65534:65534 . ../private");
	assert_int_equal(seteuid(65534), 0);
	brain_start(&b, root, dir_fd);
	(void)check();
	sh("chmod 000 d1; chmod 000 d2/f1; echo x >d3/f1");
	brain_sync(&b);
	brain_wait_reason(&b, "unreadable");
	assert_non_null(brain_lookup(&b, "d1/f5"));
	assert_int_equal(brain_lookup(&b, "d2/f1")->n.mode, 0);
	restart();
	brain_sync(&b);
	brain_wait_reason(&b, "unreadable");
	assert_non_null(brain_lookup(&b, "d1/f5"));
	assert_int_equal(b.unlinks, 0);
	sh("chmod 755 d1; chmod 644 d2/f1; echo y >>d1/f5");
	(void)check();
	brain_run_ms(&b, 300);
	assert_false(brain_has_reason(&b, "unreadable"));
	brain_kill_syncd(&b);
	assert_int_equal(seteuid(0), 0);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, unmount_teardown)
	const struct CMUnitTest tests[] = {
		T(test_restart_sends_nothing),
		T(test_reattach),
		T(test_lost_changes),
		T(test_late_acknowledgement),
		T(B11_interrupted_first_scan),
		T(test_foreign_root),
		T(test_restored_root),
		T(test_restored_by_us),
		T(test_restored_and_swapped),
		T(B10_B24_root_replaced),
		T(test_root_missing),
		T(test_root_emptied),
		T(test_wrong_mark),
		T(test_mark_is_set),
		T(test_status_after_reattach),
		T(test_mount_changed),
		T(B12_unreadable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
