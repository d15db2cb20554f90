/* In look mode all may do what the owner may but write, and no link leads out. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/util.h"
#include "fs/look.h"
#include "journal/node.h"

static void modes(void **state)
{
	static const struct {
		uint8_t type;
		uint32_t mode, shown;
	} cases[] = {
		{NODE_TYPE_FILE, 0644, 0444},	    {NODE_TYPE_FILE, 0600, 0444},
		{NODE_TYPE_FILE, 0755, 0555},	    {NODE_TYPE_FILE, 04711, 0555},
		{NODE_TYPE_FILE, 0000, 0000},	    {NODE_TYPE_FILE, 0077, 0000},
		{NODE_TYPE_FILE, 0222, 0000},	    {NODE_TYPE_FILE, 0100, 0111},
		{NODE_TYPE_DIRECTORY, 01777, 0555}, {NODE_TYPE_DIRECTORY, 0300, 0111},
		{NODE_TYPE_SYMLINK, 0777, 0777},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(look_mode(cases[i].type, cases[i].mode), cases[i].shown);
}

static void texts(void **state)
{
	static const struct {
		const char *target, *root;
		size_t depth;
		const char *shown;
	} cases[] = {
		/* What stays in the link's directory is shown as it is. */
		{"file", "/r", 0, "file"},
		{"a//b/./c/", "/r", 0, "a//b/./c/"},
		{"..file", "/r", 0, "..file"},
		{".", "/r", 0, "."},
		/* Up, as far as there are directories. */
		{"..", "/r", 1, ".."},
		{"..", "/r", 0, "."},
		{"../x", "/r", 1, "../x"},
		{"../x", "/r", 0, "x"},
		{"../../../etc/passwd", "/r", 2, "../../etc/passwd"},
		{"./../x/", "/r", 3, "../x/"},
		{"../..", "/r", 1, ".."},
		{"../../", "/r", 5, "../../"},
		/* Behind a name, which may be a link itself, ".." takes that away. */
		{"a/../b", "/r", 3, "b"},
		{"a/../../b", "/r", 3, "../b"},
		{"a/..", "/r", 3, "."},
		{"a/b/../../../../c", "/r", 1, "../c"},
		{"a/../..", "/r", 0, "."},
		/* From the top: beneath the environment's root, or elsewhere. */
		{"/r/x", "/r", 0, "x"},
		{"/r/x", "/r", 2, "../../x"},
		{"/r", "/r", 2, "../.."},
		{"/r/", "/r", 0, "."},
		{"/r/a/../../r/x", "/r", 1, "../x"},
		{"//r//./x", "/r", 1, "../x"},
		{"/home/me/proj/x", "/home/me/proj/", 1, "../x"},
		{"/home/me/projer", "/home/me/proj", 1, "../home/me/projer"},
		{"/home/me", "/home/me/proj", 1, "../home/me"},
		{"/etc/passwd", "/r", 1, "../etc/passwd"},
		{"/etc/passwd", NULL, 0, "etc/passwd"},
		{"/../../etc", "/r", 0, "etc"},
		{"/", "/r", 0, "."},
		{"/", "/r", 2, "../.."},
		{"/r/x", "/", 1, "../r/x"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(buf_done) struct buf out = BUF_INIT(0);
		cleanup_free char *text = NULL;

		assert_int_equal(look_target(cases[i].target, strlen(cases[i].target),
					     cases[i].root, cases[i].depth, &out),
				 0);
		assert_int_equal(buf_to_str(&out, &text), 0);
		assert_string_equal(text, cases[i].shown);
	}
}

static void too_long(void **state)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(0);
	char target[NODE_TARGET_MAX + 1];

	(void)state;
	memset(target, 'x', sizeof(target));
	assert_int_equal(look_target(target, NODE_TARGET_MAX, "/r", 1, &out), 0);
	assert_int_equal(buf_len(&out), NODE_TARGET_MAX);
	target[0] = '/';
	assert_int_equal(look_target(target, NODE_TARGET_MAX, "/r", 10, &out), -ENAMETOOLONG);
	assert_int_equal(look_target("/x", 2, "/r", 2000, &out), -ENAMETOOLONG);
}

/* Any text, walked as the kernel does and with the worst link behind each name, ends inside:
 * ".." come first and are no more than depth, and it is not absolute. */
static void none_leads_out(void **state)
{
	static const char *const pieces[] = {"..", ".",	  "a",	 "/",  "//",
					     "r",  "..a", "/..", "/.", "/r"};
	unsigned seed = 1;

	(void)state;
	for (unsigned n = 0; n < 200000; n++) {
		_cleanup_(buf_done) struct buf out = BUF_INIT(0);
		cleanup_free char *text = NULL;
		size_t depth = n % 4, ups = 0;
		bool named = false;
		char target[128];
		size_t at = 0;

		target[0] = '\0';
		for (unsigned i = 0; i <= n % 9; i++) {
			seed = seed * 1103515245 + 12345;
			at += (size_t)snprintf(target + at, sizeof(target) - at, "%s",
					       pieces[seed / 65536 % ARRAY_SIZE(pieces)]);
		}
		assert_int_equal(
			look_target(target, strlen(target), n % 2 ? "/r" : NULL, depth, &out), 0);
		assert_int_equal(buf_to_str(&out, &text), 0);
		assert_true(text[0] != '/' && text[0] != '\0');
		for (const char *p = text; *p;) {
			size_t len = strcspn(p, "/");

			if (len == 2 && p[0] == '.' && p[1] == '.') {
				assert_false(named);
				ups++;
			} else if (len > 1 || (len == 1 && *p != '.')) {
				named = true;
			}
			p += len + (p[len] == '/');
		}
		assert_true(ups <= depth);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(modes),
		cmocka_unit_test(texts),
		cmocka_unit_test(too_long),
		cmocka_unit_test(none_leads_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
