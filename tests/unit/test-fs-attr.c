/* What stat shows of a node in both modes, and which mount is ours. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/sysmacros.h>

#include "base/util.h"
#include "fs/attr.h"
#include "fs/mountpoint.h"

static struct index_node some_file(void)
{
	return (struct index_node){
		.id = 77,
		.links = 3,
		.n = {.type = NODE_TYPE_FILE,
		      .mode = 04751,
		      .uid_kind = NODE_OWNER_SELF,
		      .gid_kind = NODE_OWNER_NUMBER,
		      .uid = 5,
		      .gid = 6,
		      .mtime_ns = -1,
		      .ctime_ns = 1500000000,
		      .inode = 4711,
		      .content.size_bytes = 12345,
		      .allocated_bytes = 4097},
	};
}

static void work_mode(void **state)
{
	struct index_node n = some_file();
	struct attr_rules r;
	struct stat st;

	(void)state;
	attr_rules_init(&r, false, 1000, 1001);
	attr_stat(&r, &n, 0, &st);
	assert_int_equal(st.st_ino, 4711);
	assert_int_equal(st.st_mode, S_IFREG | 04751);
	assert_int_equal(st.st_nlink, 3);
	assert_int_equal(st.st_uid, 1000);
	assert_int_equal(st.st_gid, 6);
	assert_int_equal(st.st_size, 12345);
	assert_int_equal(st.st_blocks, 9);
	assert_int_equal(st.st_mtim.tv_sec, -1);
	assert_int_equal(st.st_mtim.tv_nsec, 999999999);
	assert_int_equal(st.st_ctim.tv_sec, 1);
	n.n.uid_kind = NODE_OWNER_ROOT;
	n.n.gid_kind = NODE_OWNER_SELF;
	attr_stat(&r, &n, 0, &st);
	assert_int_equal(st.st_uid, 0);
	assert_int_equal(st.st_gid, 1001);
}

static void look_mode_is_foreign(void **state)
{
	struct index_node n = some_file();
	struct attr_rules r;
	struct stat st;

	(void)state;
	attr_rules_init(&r, true, 1000, 1000);
	attr_stat(&r, &n, 0, &st);
	assert_int_equal(st.st_mode, S_IFREG | 0555);
	assert_int_equal(st.st_uid, 65534);
	assert_int_equal(st.st_gid, 65534);
	attr_rules_init(&r, true, 65534, 65534);
	attr_stat(&r, &n, 0, &st);
	assert_int_not_equal(st.st_uid, 65534);
	assert_int_not_equal(st.st_gid, 65534);
	assert_int_not_equal(st.st_uid, 0);
}

static void inodes(void **state)
{
	struct index_node n = some_file();

	(void)state;
	assert_int_equal(attr_inode(&n), 4711);
	n.n.device = 9;
	assert_int_equal(attr_inode(&n), 77 | ATTR_OWN_INODE);
	n.n.device = 0;
	n.n.inode = 0;
	assert_int_equal(attr_inode(&n), 77 | ATTR_OWN_INODE);
}

static void other_types(void **state)
{
	struct index_node n = some_file();
	struct attr_rules r;
	struct stat st;

	(void)state;
	attr_rules_init(&r, false, 0, 0);
	n.n.type = NODE_TYPE_SYMLINK;
	attr_stat(&r, &n, 17, &st);
	assert_int_equal(st.st_size, 17);
	n.n.type = NODE_TYPE_DIRECTORY;
	n.links = 1;
	attr_stat(&r, &n, 0, &st);
	assert_int_equal(st.st_nlink, 1);
	n.links = 0; /* gone, and open somewhere */
	attr_stat(&r, &n, 0, &st);
	assert_int_equal(st.st_nlink, 0);
	n.n.type = NODE_TYPE_CHAR;
	n.n.rdev_major = 1;
	n.n.rdev_minor = 300;
	attr_stat(&r, &n, 0, &st);
	assert_int_equal(st.st_mode & S_IFMT, S_IFCHR);
	assert_int_equal(st.st_rdev, makedev(1, 300));
	assert_int_equal(st.st_size, 0);
}

static void xattrs(void **state)
{
	struct attr_rules r;

	(void)state;
	attr_rules_init(&r, true, 0, 0);
	assert_true(attr_xattr_shown(&r, "user.x", 6));
	assert_false(attr_xattr_shown(&r, "user.", 5));
	assert_false(attr_xattr_shown(&r, "security.capability", 19));
	attr_rules_init(&r, false, 1000, 1000);
	assert_false(attr_xattr_shown(&r, "trusted.x", 9));
	attr_rules_init(&r, false, 0, 0);
	assert_true(attr_xattr_shown(&r, "security.capability", 19));
}

#define LINE(path, type, source) \
	"36 25 0:42 / " path " rw,nosuid shared:1 master:2 - " type " " source " rw,user_id=0\n"

static void mounts(void **state)
{
	static const struct {
		const char *text, *path;
		enum mountpoint_state judged;
	} cases[] = {
		{"", "/m/x", MOUNTPOINT_FREE},
		{LINE("/m/x", "fuse.limbfs", "limbfs:1"), "/m/x", MOUNTPOINT_OURS},
		{LINE("/m/x", "fuse.limbfs", "limbfs:1"), "/m", MOUNTPOINT_FREE},
		{LINE("/m/x", "fuse.limbfs", "limbfs:1"), "/m/x/y", MOUNTPOINT_FREE},
		{LINE("/m/x", "fuse.limbfs", "limbfs:12"), "/m/x", MOUNTPOINT_FOREIGN},
		{LINE("/m/x", "fuse.sshfs", "limbfs:1"), "/m/x", MOUNTPOINT_FOREIGN},
		{LINE("/m/x", "fuse.limbfsx", "limbfs:1"), "/m/x", MOUNTPOINT_FOREIGN},
		{LINE("/m/x", "ext4", "/dev/sda1"), "/m/x", MOUNTPOINT_FOREIGN},
		/* The topmost counts. */
		{LINE("/m/x", "ext4", "a") LINE("/m/x", "fuse.limbfs", "limbfs:1"), "/m/x",
		 MOUNTPOINT_OURS},
		{LINE("/m/x", "fuse.limbfs", "limbfs:1") LINE("/m/x", "ext4", "a")
			 LINE("/m", "ext4", "b"),
		 "/m/x", MOUNTPOINT_FOREIGN},
		/* No optional fields; names with blanks. */
		{"1 2 0:4 / /m/a\\040b\\134\\012 ro - fuse.limbfs limbfs:1 ro\n", "/m/a b\\\n",
		 MOUNTPOINT_OURS},
		{"1 2 0:4 / /m/a\\040b ro - fuse.limbfs limbfs:1 ro", "/m/a b", MOUNTPOINT_OURS},
		/* Damage is nobody's. */
		{"1 2 0:4 / /m/x", "/m/x", MOUNTPOINT_FOREIGN},
		{"1 2 0:4 / /m/x ro -", "/m/x", MOUNTPOINT_FOREIGN},
		{"1 2", "/m/x", MOUNTPOINT_FREE},
		{"\n\n", "/m/x", MOUNTPOINT_FREE},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(mountpoint_judge(cases[i].text, cases[i].path, "limbfs:1"),
				 cases[i].judged);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(work_mode), cmocka_unit_test(look_mode_is_foreign),
		cmocka_unit_test(inodes),    cmocka_unit_test(other_types),
		cmocka_unit_test(xattrs),    cmocka_unit_test(mounts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
