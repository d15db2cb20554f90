/* Whatever is done below a watched root, the brain's tree is equal after a barrier. */
#include "syncd/maps.h"
#include "tests/unit/sync-fixture.h"

#include <sys/mman.h>
#include <sys/wait.h>

static int start(void **state)
{
	int r = setup(state);

	if (r == 0)
		brain_start(&b, root, dir_fd);
	return r;
}

/* B01: what is made right after its directory is not missed. */
static void B01_new_directories(void **state)
{
	(void)state;
	(void)check();
	sh_live("for i in {1..200}; do mkdir -p d$i/x/y; echo $i >d$i/x/y/f; done");
	assert_int_equal(check(), 800);
}

/* B02: an overflow of the queue is counted, and everything is looked at again. */
static void B02_overflow(void **state)
{
	(void)state;
	sh("mkdir old; cd old; for i in {1..500}; do echo $i >f$i; done");
	(void)check();
	sh("kill -STOP $PPID; mkdir new; cd old; for i in {1..9000}; do : >g$i; done; "
	   "rm g1* f4*; echo x >g2; echo y >f300; mv f7 ../new; kill -CONT $PPID");
	(void)check();
	brain_run_ms(&b, 300);
	assert_true(b.status->overflows > 0);
}

/* B03: out of watches the rest is polled, and the state says so. */
static void B03_watch_limit(void **state)
{
	(void)state;
	brain_detach(&b);
	b.watch_limit = 20;
	b.incarnation++;
	brain_attach(&b);
	sh("for i in {1..60}; do mkdir d$i; echo $i >d$i/f; done");
	(void)check();
	brain_wait_reason(&b, "watch_limit");
	/* The counts are those of the last STATUS; the next one follows when they change. */
	for (int i = 0; i < 500 && (b.status->watches > 20 || b.status->polled_directories < 40);
	     i++)
		brain_run_ms(&b, 10);
	assert_true(b.status->watches <= 20);
	assert_true(b.status->polled_directories >= 40);
	sh("for i in {1..60}; do echo new >>d$i/f; echo x >d$i/g; done");
	(void)check();
	/* Without a barrier, too. */
	sh("echo later >>d59/f");
	for (int i = 0; i < 3000 && brain_lookup(&b, "d59/f")->n.content.size_bytes != 13; i++)
		brain_turn(&b);
	assert_int_equal(brain_lookup(&b, "d59/f")->n.content.size_bytes, 13);
}

/* B04: paths come from the tree, not from what a watch was made with. */
static void B04_parent_renamed(void **state)
{
	(void)state;
	sh("mkdir -p a1/a2/a3/a4/a5/a6/a7/a8/a9");
	(void)check();
	reset_counts();
	sh("mv a1 b1; mv b1 c1; echo deep >c1/a2/a3/a4/a5/a6/a7/a8/a9/f; "
	   "mkdir a1; echo x >a1/g; mkdir -p a1/a2; echo y >a1/a2/h");
	(void)check();
	assert_int_equal(b.unlinks, 0);
}

/* B05: a byte stored through a mapping is there before a barrier ends. */
static void B05_mapped(void **state)
{
	uint8_t *p;
	int fd;

	(void)state;
	sh("head -c 100000 /dev/zero >mapped");
	fd = openat(root_fd, "mapped", O_RDWR | O_CLOEXEC);
	p = mmap(NULL, 100000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	p[0] = 1;
	(void)check();
	for (int i = 0; i < 5; i++) {
		p[5000]++;
		(void)check();
	}
	assert_int_equal(munmap(p, 100000), 0);
	assert_int_equal(close(fd), 0);
	(void)check();
}

static bool maps_has(uint64_t device, pid_t below, uint64_t inode)
{
	uint64_t *list;
	bool has = false;
	size_t n;

	assert_int_equal(maps_find(device, "/nowhere", below, &list, &n), 0);
	for (size_t i = 0; i < n; i++)
		has |= list[i] == inode;
	free(list);
	return has;
}

/* Mappings are found in a process, in its descendants, and not elsewhere when only those count. */
static void test_mapped_below(void **state)
{
	struct stat st;
	pid_t child;
	int fd, p[2], end[2];
	char c;
	void *m;

	(void)state;
	sh("head -c 4096 /dev/zero >below");
	fd = openat(root_fd, "below", O_RDWR | O_CLOEXEC);
	assert_int_equal(fstat(fd, &st), 0);
	m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(m, MAP_FAILED);
	assert_int_equal(pipe(p), 0);
	assert_int_equal(pipe(end), 0);
	/* The grandchild keeps the mapping, the child does not. */
	child = fork();
	if (child == 0) {
		pid_t grandchild = fork();

		if (grandchild != 0)
			(void)munmap(m, 4096);
		if (grandchild != 0 && write(p[1], "x", 1) == 1)
			(void)waitpid(grandchild, NULL, 0);
		else
			c = (char)read(end[0], &c, 1);
		_exit(0);
	}
	assert_int_equal(read(p[0], &c, 1), 1);
	assert_true(maps_has(st.st_dev, 0, st.st_ino));
	assert_true(maps_has(st.st_dev, getpid(), st.st_ino));
	assert_true(maps_has(st.st_dev, child, st.st_ino));
	assert_int_equal(munmap(m, 4096), 0);
	assert_true(maps_has(st.st_dev, child, st.st_ino));
	assert_int_equal(write(end[1], "y", 1), 1);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_false(maps_has(st.st_dev, getpid(), st.st_ino));
	(void)close(p[0]);
	(void)close(p[1]);
	(void)close(end[0]);
	(void)close(end[1]);
	(void)close(fd);
	(void)check();
}

/* B06: each change is seen without a barrier, one after the other. */
static void B06_one_after_the_other(void **state)
{
	char text[16];

	(void)state;
	(void)check();
	for (int i = 0; i < 200; i++) {
		uint8_t sha[32];
		int turns = 0, fd = openat(root_fd, "counter", O_CREAT | O_TRUNC | O_WRONLY, 0644);
		int n = snprintf(text, sizeof(text), "%d\n", i);

		assert_int_equal(write(fd, text, (size_t)n), n);
		(void)close(fd);
		sha256(text, (size_t)n, sha);
		for (;;) {
			struct bnode *f = brain_lookup(&b, "counter");

			if (f && memcmp(f->n.content.sha256, sha, 32) == 0)
				break;
			brain_turn(&b);
			assert_true(++turns < 1000);
		}
	}
	(void)check();
}

/* B07: a large tree goes while its neighbours are made; what is many is said before. */
static void B07_mass_delete(void **state)
{
	(void)state;
	sh("for i in {1..60}; do mkdir -p node/m$i; for j in {1..40}; do : >node/m$i/f$j; done; "
	   "done");
	(void)check();
	reset_counts();
	sh_live("rm -r node & for i in {1..20}; do echo $i >s$i; sleep 0.01; done; wait");
	assert_int_equal(check(), 20);
	assert_true(b.unlinks_labelled > 0);
	brain_run_ms(&b, 300);
	assert_int_equal(b.status->watches, 1);
}

/* B08: moved in from outside, and out again. */
static void B08_moved_in_and_out(void **state)
{
	(void)state;
	sh("mkdir ../out; echo one >../out/one; mkdir ../out/dir; "
	   "for i in {1..100}; do echo $i >../out/dir/$i; done");
	(void)check();
	sh("mv ../out/one ../out/dir .");
	assert_int_equal(check(), 102);
	sh("echo more >>dir/7; mv one dir ../out");
	assert_int_equal(check(), 0);
	sh("echo outside >../out/dir/8; mv ../out/dir back");
	assert_int_equal(check(), 101);
}

/* B09: replaced by a rename, again and again. */
static void B09_atomic_saves(void **state)
{
	(void)state;
	sh("echo 0 >f");
	(void)check();
	for (int i = 0; i < 20; i++) {
		sh("n=$(cat f); sed -i s/.*/$((n + 1))/ f; cp -p f f~; echo $((n + 1)) >g; mv g f");
		(void)check();
	}
}

/* B13: a link in a directory's place takes nothing with it. */
static void B13_directory_becomes_link(void **state)
{
	(void)state;
	sh("mkdir a b; echo 1 >a/f; echo 2 >b/f");
	(void)check();
	sh("rm -r a; ln -s b a");
	(void)check();
	sh("rm a");
	assert_int_equal(check(), 2);
}

/* B14, B22: names come and go while the first scan runs. */
static void B14_B22_busy_first_scan(void **state)
{
	pid_t pid;

	(void)state;
	sh("for i in {1..60}; do mkdir -p d$i; for j in {1..30}; do echo $i $j >d$i/f$j; done; "
	   "done");
	pid = sh_start("for k in {1..40}; do for i in 3 30 55; do echo $k >d$i/t; mv d$i/t d$i/u; "
		       "rm d$i/u; rm -rf e$i; cp -r d$i e$i; done; done");
	brain_detach(&b);
	b.incarnation++;
	brain_attach(&b);
	for (int i = 0; i < 20; i++) {
		brain_barrier(&b, 0, 0, 20000);
		assert_true(b.result.error == 0 || b.result.error == ENOTCONN);
		brain_turn(&b);
	}
	sh_end(pid);
	(void)check();
}

/* B20: same size, same mtime, other bytes. */
static void B20_hidden_edits(void **state)
{
	(void)state;
	sh("echo 111 >f; touch -d @1000000000 f; echo a >g");
	(void)check();
	sh("echo 222 >f; touch -d @1000000000 f; echo b >g; echo c >g");
	(void)check();
	sh("touch -d '1969-01-01' f; touch -d '2200-01-01 00:00:00.123456789' g");
	(void)check();
}

/* B26, B28, B29: names and targets are bytes. */
static void B26_B28_B29_odd_names(void **state)
{
	(void)state;
	sh("touch $'new\\nline' $'\\xff\\xfe' -- -rf 'back\\slash' $'q\"$(x)' 'trailing ' "
	   "$'\\xc3\\xa9' "
	   "$'e\\xcc\\x81'; ln -s .. loop; ln -s loop2 loop2; ln -s nowhere dangling; "
	   "ln -s $(printf 'x%.0s' {1..4095}) long; touch $(printf 'n%.0s' {1..255}); "
	   "mkdir $(printf 'd%.0s' {1..250})");
	assert_int_equal(check(), 14);
	sh("for f in *; do mv -- \"$f\" \"$(printf %s \"$f\" | head -c 250)+\"; done");
	assert_int_equal(check(), 14);
}

/* B27: special files are entries like others, and nobody opens them. */
static void B27_special_files(void **state)
{
	(void)state;
	sh("mkfifo p; for i in {1..100}; do echo $i >f$i; done; "
	   "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'; "
	   "mknod null c 1 3 || true");
	assert_true(check() >= 102);
	sh("rm f1; mkfifo f1; rm p; echo file >p");
	(void)check();
}

/* B30: paths longer than the system takes. */
static void B30_deep_paths(void **state)
{
	(void)state;
	sh("n=$(printf 'd%.0s' {1..200}); for i in {1..40}; do mkdir $n; cd $n; done; echo deep "
	   ">f");
	assert_int_equal(check(), 41);
	sh("n=$(printf 'd%.0s' {1..200}); for i in {1..40}; do cd $n; done; echo deeper >>f; mkdir "
	   "e; "
	   "echo 1 >e/g");
	assert_int_equal(check(), 43);
	sh("mv d* renamed");
	assert_int_equal(check(), 43);
	sh("rm -r renamed");
	assert_int_equal(check(), 0);
}

/* B31: all bits of a mode, and a change of nothing but the mode. */
static void B31_modes(void **state)
{
	(void)state;
	/* What has no mode at all only root can read. */
	sh("for m in 4755 2755 1777 0444 $([ $(id -u) != 0 ] || echo 000); do"
	   " echo $m >f$m; mkdir d$m; chmod $m f$m d$m; done");
	(void)check();
	reset_counts();
	sh("chmod 600 f4755; chmod 4711 f0444; chmod 755 d0444; test ! -d d000 || chmod 755 d000");
	(void)check();
	assert_int_equal(b.contents, 0);
}

/* B33: two names of one file stay one. */
static void B33_hard_links(void **state)
{
	(void)state;
	sh("mkdir d; echo 1 >f1; ln f1 d/f2; ln f1 f3");
	(void)check();
	assert_ptr_equal(brain_lookup(&b, "f1"), brain_lookup(&b, "d/f2"));
	sh("echo 2 >>d/f2");
	(void)check();
	sh("rm f1; mv f3 d/f4; ln d/f4 f1");
	(void)check();
	assert_ptr_equal(brain_lookup(&b, "f1"), brain_lookup(&b, "d/f2"));
	sh("echo other >g; mv g d/f2");
	(void)check();
	assert_ptr_not_equal(brain_lookup(&b, "f1"), brain_lookup(&b, "d/f2"));
	assert_ptr_equal(brain_lookup(&b, "f1"), brain_lookup(&b, "d/f4"));
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, start, teardown)
	const struct CMUnitTest tests[] = {
		T(B01_new_directories),
		T(B02_overflow),
		T(B03_watch_limit),
		T(B04_parent_renamed),
		T(B05_mapped),
		T(test_mapped_below),
		T(B06_one_after_the_other),
		T(B07_mass_delete),
		T(B08_moved_in_and_out),
		T(B09_atomic_saves),
		T(B13_directory_becomes_link),
		T(B14_B22_busy_first_scan),
		T(B20_hidden_edits),
		T(B26_B28_B29_odd_names),
		T(B27_special_files),
		T(B30_deep_paths),
		T(B31_modes),
		T(B33_hard_links),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
