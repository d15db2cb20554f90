/*
 * ignore.h - names that are not part of the tree: WELCOME's patterns.
 *
 * Without '/' a pattern is a name anywhere; with one, a path from the root; with
 * one at its end it means directories only.  fnmatch(3), bytes.
 */
#ifndef SYNCD_IGNORE_H
#define SYNCD_IGNORE_H

#include <stdbool.h>
#include <stddef.h>

struct ignore {
	char **patterns;
	size_t n;
};

void ignore_done(struct ignore *ig);
int ignore_add(struct ignore *ig, const void *pattern, size_t len);
int ignore_copy(struct ignore *to, const struct ignore *from);
bool ignore_match(const struct ignore *ig, const char *name, const char *path, bool is_dir);

#endif
