#include "providers/words.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"

void words_done(struct words *w)
{
	for (size_t i = 0; i < w->n; i++)
		free(w->v[i]);
	free(w->v);
	*w = (struct words){0};
}

static int take(struct words *w, char *word)
{
	char **v = word ? reallocarray(w->v, w->n + 2, sizeof(*v)) : NULL;

	if (!v) {
		free(word);
		return -ENOMEM;
	}
	w->v = v;
	v[w->n++] = word;
	v[w->n] = NULL;
	return 0;
}

int words_add(struct words *w, const char *word)
{
	return take(w, strdup(word));
}

/* One word from *p on, without its quotes; *p comes after it. */
static int split_one(const char **p, struct buf *word)
{
	char quote = 0;
	const char *s;
	int r = 0;

	for (s = *p; *s && r >= 0 && (quote || !strchr(" \t\n", *s)); s++) {
		if (quote ? *s == quote : *s == '\'' || *s == '"') {
			quote = quote ? 0 : *s;
			continue;
		}
		if (*s == '\\' && quote != '\'' && s[1])
			s++;
		r = buf_add(word, s, 1);
	}
	*p = s;
	return r < 0 ? r : quote ? -EINVAL : 0;
}

int words_split(struct words *w, const char *line)
{
	while (*(line += strspn(line, " \t\n"))) {
		_cleanup_(buf_done) struct buf word = BUF_INIT(1 << 16);
		char *text;
		int r;

		r = split_one(&line, &word);
		if (r >= 0)
			r = buf_to_str(&word, &text);
		if (r >= 0)
			r = take(w, text);
		if (r < 0)
			return r;
	}
	return 0;
}

bool words_plain(const char *s)
{
	if (!*s)
		return false;
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			return false;
	return true;
}

int words_quote(struct buf *b, const char *word)
{
	static const char safe[] = "abcdefghijklmnopqrstuvwxyz0123456789"
				   "ABCDEFGHIJKLMNOPQRSTUVWXYZ_-+=./,:@%";
	int r;

	if (*word && !words_plain(word))
		return -EINVAL;
	if (*word && word[strspn(word, safe)] == '\0')
		return buf_add_str(b, word);
	r = buf_add_str(b, "\"$(printf %b \"");
	for (; *word && r >= 0; word++)
		r = buf_printf(b, "\\0%03o", (unsigned char)*word);
	return r < 0 ? r : buf_add_str(b, "\")\"");
}
