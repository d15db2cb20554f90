/*
 * ref.h - names, points and files as people write them (CLI contract, section 1):
 *
 *	NAME	[a-z0-9][a-z0-9_-]{0,62}, and NAME~N
 *	POINT	digits, LABEL, RFC 3339 time, before:JOB, after:JOB, HEAD, HEAD~N, now
 *	REF	NAME[@POINT]
 *	FILE	REF:PATH
 *
 * read left to right: a time holds ':' and so does before:JOB, so FILE is never
 * split at its first or last ':'.  Pure; looks at bytes only.
 */
#ifndef BRIDGE_REF_H
#define BRIDGE_REF_H

#include <stdbool.h>
#include <stddef.h>

struct ref {
	const char *name; /* these point into the text that was parsed */
	size_t name_len;
	const char *point; /* NULL: none given */
	size_t point_len;
	const char *path; /* NULL: there was no ':'; else to the end of the text */
};

bool ref_name_ok(const char *s);
bool ref_point_ok(const char *s);
bool ref_job_ok(const char *s);
/* REF or FILE. False: neither; *ret is untouched. */
bool ref_parse(const char *s, struct ref *ret);

#endif
