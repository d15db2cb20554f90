/*
 * point.h - a position in a log, as people and programs write it (CLI contract,
 * section 1):
 *
 *	POINT	digits, LABEL, RFC 3339 time, before:JOB, after:JOB, HEAD, HEAD~N, now
 *
 * The grammar only: what a point means in one log, its index knows (points.h).
 * Read from the left, the longest point that stands there: a time holds ':', and so
 * does before:JOB, so what follows a point (FILE = NAME@POINT:PATH) is never looked
 * for first.  Pure; looks at bytes only.
 */
#ifndef JOURNAL_POINT_H
#define JOURNAL_POINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum point_kind {
	POINT_SEQ,
	POINT_LABEL,
	POINT_TIME,
	POINT_BEFORE_JOB,
	POINT_AFTER_JOB,
	POINT_HEAD, /* seq automatic points back */
	POINT_NOW,
};

#define POINT_WORD_MAX 63

struct point {
	enum point_kind kind;
	uint64_t seq;
	int64_t time_ns;
	char word[POINT_WORD_MAX + 1]; /* the label, the job's id */
};

/* The length of the point at the start of s, 0: there is none (a number that no log can
 * have is none). */
size_t point_parse(const char *s, struct point *ret);
/* The whole of s. */
bool point_parse_all(const char *s, struct point *ret);

/* The length of the job's id at the start of s, 0: none. */
size_t point_job_length(const char *s);

#endif
