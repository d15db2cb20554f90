/*
 * log-fixture.h - logs of small text records, and the bytes of their files.
 */
#ifndef TESTS_UNIT_LOG_FIXTURE_H
#define TESTS_UNIT_LOG_FIXTURE_H

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/util.h"
#include "journal/log-private.h"
#include "journal/log.h"
#include "journal/segment.h"
#include "tests/unit/scratch.h"

/* As scratch_setup, where files and syncs cost nothing: thousands are made. */
static inline int fixture_setup(void **state)
{
	if (access("/dev/shm", W_OK) == 0)
		(void)setenv("TMPDIR", "/dev/shm", 0);
	return scratch_setup(state);
}

static const struct log_ids fixture_ids = {
	.log_id = {1, 2, 3},
	.brain_id = {4, 5, 6},
	.term = 1,
};

static inline struct log *fixture_open(int dir)
{
	struct log *log = NULL;

	assert_int_equal(log_open(dir, &fixture_ids, LOG_CREATE, &log, NULL), 0);
	return log;
}

static inline uint64_t fixture_append(struct log *log, const char *text)
{
	uint64_t seq = 0;

	assert_int_equal(log_append(log, RECORD_CHANGE, text, strlen(text), 0, &seq), 0);
	return seq;
}

/* Makes a log with the texts as its records, all durable. */
static inline void fixture_log(int dir, uint64_t seal_bytes, const char *const *texts, size_t n)
{
	struct log *log = fixture_open(dir);

	if (seal_bytes)
		log_set_seal_bytes(log, seal_bytes);
	for (size_t i = 0; i < n; i++)
		fixture_append(log, texts[i]);
	assert_int_equal(log_sync(log), 0);
	log_close(log);
}

/* What a reader sees, "A,B,C,"; its last result is returned. */
static inline int fixture_read(int dir, uint64_t from, char *out, size_t size)
{
	struct log_reader *rd = NULL;
	struct log_record rec;
	size_t used = 0;
	int r;

	out[0] = '\0';
	r = log_reader_open(dir, from, &rd);
	while (r >= 0 && (r = log_reader_next(rd, &rec)) > 0)
		used += (size_t)snprintf(out + used, size - used, "%.*s,",
					 rec.body ? (int)rec.n : 1,
					 rec.body ? (const char *)rec.body : "-");
	log_reader_free(rd);
	return r;
}

#define assert_log(dir, want)                                                  \
	do {                                                                   \
		char got_[4096];                                               \
		assert_int_equal(fixture_read(dir, 0, got_, sizeof(got_)), 0); \
		assert_string_equal(got_, want);                               \
	} while (0)

/* Nothing is wrong with it, as far as anybody remembers. */
static inline void assert_sound(int dir, uint64_t torn_bytes)
{
	struct log_report rep;
	struct log_head head = {0};

	(void)log_head_read(dir, &head);
	assert_int_equal(log_verify(dir, &head, NULL, NULL, &rep), 0);
	for (size_t i = 0; i < rep.n_problems; i++)
		print_message("# %s at %s:%lu: %s\n", log_problem_name(rep.problems[i].kind),
			      rep.problems[i].segment, (unsigned long)rep.problems[i].offset,
			      rep.problems[i].detail);
	assert_int_equal(rep.n_problems, 0);
	assert_int_equal(rep.torn_tail_bytes, torn_bytes);
	log_report_done(&rep);
}

/* ---- bytes of files ---- */

static inline uint8_t *fixture_load(int dir, const char *name, size_t *ret_n)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	struct stat st;
	uint8_t *p;

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	p = malloc((size_t)st.st_size + 1);
	assert_non_null(p);
	assert_int_equal(read(fd, p, (size_t)st.st_size), st.st_size);
	(void)close(fd);
	*ret_n = (size_t)st.st_size;
	return p;
}

static inline void fixture_store(int dir, const char *name, const uint8_t *p, size_t n)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, p, n), (ssize_t)n);
	(void)close(fd);
}

/* Places of the records in a segment's bytes; returns how many. */
static inline size_t fixture_places(const uint8_t *p, size_t n, size_t *offsets, size_t max)
{
	struct record_header h;
	size_t count = 0, at = SEGMENT_HEADER_BYTES;

	while (at + RECORD_HEADER_BYTES <= n && record_header_parse(p + at, &h) == RECORD_OK) {
		assert_true(count < max);
		offsets[count++] = at;
		at += record_size(h.body_len);
	}
	offsets[count] = at;
	return count;
}

#endif
