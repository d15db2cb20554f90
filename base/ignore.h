/*
 * ignore.h - names that are left out, as gitignore(5) writes them.
 *
 *	ignore_add(&ig, NULL, text, n)		what a person says, for the whole tree
 *	ignore_add(&ig, "a/b", text, n)		what a file in directory a/b says, for beneath it
 *	ignore_match(&ig, "a/b/c", false, &hit)
 *
 * The last line that matches decides; the file nearest to the name is asked first, after
 * what a person says. A directory that is left out is left out with all that is in it:
 * whoever walks a tree does not enter it, others ask ignore_covers().
 *
 * Texts may be hostile: matching costs at most (length of the path) x (length of the
 * pattern) steps; what is beyond the limits below is not taken, so that less is left out.
 * Many patterns and long paths may still be more than somebody else's text should cost:
 * whoever asks for whole trees gives a bound (ignore_bound), and looks whether it was met.
 */
#ifndef BASE_IGNORE_H
#define BASE_IGNORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	IGNORE_TEXT_MAX = 64 << 10, /* of one file; what is longer is not taken at all */
	IGNORE_PATTERN_MAX = 512,
	IGNORE_RULES_MAX = 4096, /* all together */
	IGNORE_FILES_MAX = 1024,
};

struct ignore_rule {
	const char *pattern; /* without '!', and without '/' at its end */
	uint16_t len;
	uint16_t plain; /* bytes at its beginning that mean themselves */
	uint32_t line;
	bool negative, dir_only, anchored;
};

struct ignore_file {
	char *dir; /* "" the root */
	char *text;
	bool person;
	struct ignore_rule *rules;
	size_t n;
};

struct ignore {
	struct ignore_file *files;
	size_t n_files, n_rules;
	uint64_t *left; /* steps; NULL: no bound. At 0 only plain names match */
};

struct ignore_hit {
	const struct ignore_file *file; /* NULL: no line says anything */
	const struct ignore_rule *rule;
};

void ignore_done(struct ignore *ig);
/* -E2BIG: it, or all together, is too much, and nothing of it is taken. A text ends before its
 * first NUL. */
int ignore_add(struct ignore *ig, const char *dir, const void *text, size_t len);
int ignore_copy(struct ignore *to, const struct ignore *from); /* without a bound */
/* For n names: a few seconds, and a few ten thousandths for each. left: lent. */
void ignore_bound(struct ignore *ig, uint64_t n, uint64_t *left);

/* path: from the root, no '/' at its ends. ret_hit may be NULL. True: it is left out. */
bool ignore_match(const struct ignore *ig, const char *path, bool is_dir,
		  struct ignore_hit *ret_hit);
/* The same for it or for what is above it. */
bool ignore_covers(const struct ignore *ig, const char *path, bool is_dir,
		   struct ignore_hit *ret_hit);

#endif
