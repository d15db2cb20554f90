/*
 * mark-fixture.h - the mark beside an LMDB file (journal/mark.h), made to tell
 * something else.
 */
#ifndef TESTS_UNIT_MARK_FIXTURE_H
#define TESTS_UNIT_MARK_FIXTURE_H

#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "tests/unit/scratch.h"

/* As if it had been written with or without `clean`, and (other_boot) before the machine was
 * started again. */
static inline void mark_edit(const char *path, bool other_boot, bool clean)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	cleanup_free char *text = NULL;
	uint8_t hash[SHA256_BYTES];
	char *check;

	assert_int_equal(file_read(scratch, path, &b), 0);
	assert_int_equal(buf_to_str(&b, &text), 0);
	if (other_boot)
		memset(strstr(text, "boot ") + 5, '0', 32);
	*(strstr(text, "clean ") + 6) = clean ? '1' : '0';
	check = strstr(text, "check ");
	sha256(text, (size_t)(check - text), hash);
	text_hex(check + 6, hash, 8);
	check[22] = '\n';
	assert_int_equal(file_replace(scratch, path, text, strlen(text)), 0);
}

#endif
