/*
 * words.h - lists of words for exec: growing ones, and one line taken apart.
 *
 *	_cleanup_(words_done) struct words w = {0};
 *	r = words_split(&w, getenv("LIMB_SSH"));
 *	r = words_add(&w, "-T");
 *	execvp(w.v[0], w.v);
 */
#ifndef PROVIDERS_WORDS_H
#define PROVIDERS_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct words {
	char **v; /* NULL-terminated when n > 0 */
	size_t n;
};

void words_done(struct words *w);
int words_add(struct words *w, const char *word);
/* Adds the words of a line: blanks part them, '...', "..." and \ hold them together as in
 * a shell; nothing is expanded. -EINVAL: a quote that is not closed. */
int words_split(struct words *w, const char *line);

/* Appends `word` so that sh, csh and fish, of a text within '...', make it this word of
 * the sh that they start with it: plain where that is safe, else by printf(1). Words hold
 * no control characters: -EINVAL. */
int words_quote(struct buf *b, const char *word);

/* No control characters, not empty. */
bool words_plain(const char *s);

#endif
