#include "bridge/mcp-line.h"

#include <string.h>

void mcp_lines_init(struct mcp_lines *l, mcp_line_fn fn, void *userdata)
{
	*l = (struct mcp_lines){.fn = fn, .userdata = userdata};
	buf_init(&l->line, MCP_LINE_MAX);
}

void mcp_lines_done(struct mcp_lines *l)
{
	if (l)
		buf_done(&l->line);
}

static void begin_line(struct mcp_lines *l)
{
	/* What a large message needed is not kept for the small ones. */
	if (l->line.cap > 1 << 20)
		buf_done(&l->line);
	buf_clear(&l->line);
	l->kind = MCP_LINE_OK;
	l->some = l->string = l->escape = l->key = l->is_id = l->taking = false;
	l->values = 0;
	l->depth = 0;
	l->word_len = l->id_len = 0;
}

static void spoil(struct mcp_lines *l, enum mcp_line_kind kind)
{
	if (l->kind == MCP_LINE_OK)
		l->kind = kind;
	buf_done(&l->line);
	buf_init(&l->line, MCP_LINE_MAX);
}

static void take_id(struct mcp_lines *l, char c)
{
	if (l->id_len == sizeof(l->id))
		return;
	l->id[l->id_len++] = c;
}

static void in_string(struct mcp_lines *l, char c)
{
	if (l->taking)
		take_id(l, c);
	if (l->escape) {
		l->escape = false;
	} else if (c == '\\') {
		l->escape = true;
	} else if (c == '"') {
		l->string = false;
		if (l->depth == 1 && l->key)
			l->is_id = l->word_len == 2 && memcmp(l->word, "id", 2) == 0;
		return;
	}
	if (l->depth == 1 && l->key && l->word_len < sizeof(l->word))
		l->word[l->word_len++] = c;
}

static void open_bracket(struct mcp_lines *l, char c)
{
	l->values++;
	if (++l->depth > MCP_DEPTH_MAX)
		spoil(l, MCP_LINE_DEEP);
	l->key = l->depth == 1 && c == '{';
}

static void between(struct mcp_lines *l, char c)
{
	switch (c) {
	case '"':
		l->string = true;
		l->word_len = 0;
		break;
	case '{':
	case '[': open_bracket(l, c); break;
	case '}':
	case ']': l->depth -= l->depth > 0; break;
	case ',': l->values++; break;
	}
	if (l->depth > 1 || (l->depth == 1 && (c == '{' || c == '[')))
		return;
	if (c == ':') {
		l->key = false;
		/* Of two, the parser will refuse the message. */
		l->taking = l->is_id && l->id_len == 0;
		l->is_id = false;
	} else if (c == ',' || l->depth == 0) {
		l->taking = false;
		l->key = true;
	} else if (l->taking && c != ' ' && c != '\t' && c != '\r') {
		take_id(l, c);
	}
}

static int end_line(struct mcp_lines *l)
{
	struct mcp_line line = {.kind = l->kind};
	int r = 0;

	if (l->id_len && l->id_len < sizeof(l->id)) {
		line.id = l->id;
		line.id_len = l->id_len;
	}
	if (l->kind == MCP_LINE_OK) {
		line.text = (const char *)buf_data(&l->line);
		line.n = buf_len(&l->line);
	}
	if (l->some)
		r = l->fn(&line, l->userdata);
	begin_line(l);
	return r;
}

static void scan(struct mcp_lines *l, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (l->string) {
			in_string(l, p[i]);
			continue;
		}
		l->some = l->some || (p[i] != ' ' && p[i] != '\t' && p[i] != '\r');
		between(l, p[i]);
	}
	if (l->values > MCP_VALUES_MAX)
		spoil(l, MCP_LINE_COMPLEX);
}

int mcp_lines_feed(struct mcp_lines *l, const void *data, size_t n)
{
	const char *p = data, *end = p + n, *nl;
	int r = 0;

	while (r >= 0 && p < end) {
		nl = memchr(p, '\n', (size_t)(end - p));
		n = (size_t)((nl ? nl : end) - p);
		if (l->kind == MCP_LINE_OK) {
			r = buf_add(&l->line, p, n);
			if (r == -E2BIG) {
				spoil(l, MCP_LINE_LONG);
				r = 0;
			}
		}
		if (r == 0)
			scan(l, p, n);
		if (r == 0 && nl)
			r = end_line(l);
		p += n + (nl != NULL);
	}
	return r < 0 ? r : 0;
}

int mcp_lines_end(struct mcp_lines *l)
{
	return end_line(l);
}
