/* The first scan and every later one bring the brain's tree to what the root is. */
#include "tests/unit/sync-fixture.h"

static void make_file(const char *path, size_t size, unsigned seed)
{
	cleanup_close int fd =
		openat(root_fd, path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
	cleanup_free uint8_t *mem = malloc(size + 1);

	assert_true(fd >= 0);
	for (size_t i = 0; i < size; i++) {
		seed = seed * 1103515245 + 12345;
		mem[i] = (uint8_t)(seed >> 16);
	}
	assert_int_equal(write(fd, mem, size), size);
}

static void make_mixed(void)
{
	char path[64];

	for (int d = 0; d < 20; d++) {
		(void)snprintf(path, sizeof(path), "d%d", d);
		assert_int_equal(mkdirat(root_fd, path, 0755), 0);
		for (int f = 0; f < 30; f++) {
			(void)snprintf(path, sizeof(path), "d%d/f%d", d, f);
			make_file(path, (size_t)(f * f * 37), (unsigned)(d * 100 + f));
		}
	}
	make_file("large", 3 << 20, 5);
	make_file("empty", 0, 0);
	assert_int_equal(symlinkat("d1/f1", root_fd, "link"), 0);
	assert_int_equal(mkfifoat(root_fd, "fifo", 0600), 0);
	assert_int_equal(linkat(root_fd, "d1/f1", root_fd, "d2/second", 0), 0);
}

/* Everything of a mixed tree arrives, byte for byte, with its attributes. */
static void test_first_scan(void **state)
{
	(void)state;
	make_mixed();
	brain_start(&b, root, dir_fd);
	brain_sync(&b);
	assert_true(brain_compare(&b, root) > 600);
	assert_ptr_equal(brain_lookup(&b, "d1/f1"), brain_lookup(&b, "d2/second"));
}

/* More of what carries no content than one CHANGE holds. */
static void test_many_without_content(void **state)
{
	(void)state;
	sh("mkdir d{1..300}; for i in {1..300}; do ln -s $i d$i/l; done; mkdir -p "
	   "deep/{1..40}/{1..5}");
	brain_start(&b, root, dir_fd);
	assert_int_equal(check(), 841);
	assert_int_equal(b.contents, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_first_scan, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_without_content, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
