/*
 * mcp-line.h - the lines of an MCP client, cut out of a byte stream: one JSON-RPC
 * message each, any chunking.
 *
 *	mcp_lines_init(&l, fn, userdata);
 *	r = mcp_lines_feed(&l, data, n);	fn for each line that ended in it
 *	mcp_lines_end(&l);			the last one, if it has no newline
 *
 * Every byte goes once through a small machine that knows JSON's strings and
 * brackets.  So a message that is too long, too deep or made of too many values is
 * dropped while it comes, and its id is known all the same: it can be answered.
 * Pure; memory is bounded by MCP_LINE_MAX.
 */
#ifndef BRIDGE_MCP_LINE_H
#define BRIDGE_MCP_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define MCP_LINE_MAX (32u << 20)
#define MCP_DEPTH_MAX 64
#define MCP_VALUES_MAX 500000
#define MCP_ID_MAX 256

enum mcp_line_kind {
	MCP_LINE_OK,
	MCP_LINE_LONG,
	MCP_LINE_DEEP,
	MCP_LINE_COMPLEX, /* too many values */
};

struct mcp_line {
	enum mcp_line_kind kind;
	const char *text; /* MCP_LINE_OK: without the newline; lent for the call */
	size_t n;
	const char *id; /* the top-level "id" as it stands there, NULL: none, or too long */
	size_t id_len;
};

/* Less than 0 ends the feeding with it. Lines of nothing but white space are not told. */
typedef int (*mcp_line_fn)(const struct mcp_line *line, void *userdata);

struct mcp_lines {
	mcp_line_fn fn;
	void *userdata;
	struct buf line;

	enum mcp_line_kind kind;
	bool some; /* there was more than white space */
	uint64_t values;
	unsigned depth;
	bool string, escape;
	bool key;    /* at depth 1 the next string is a key */
	bool is_id;  /* the value at depth 1 belongs to "id" */
	bool taking; /* the bytes of the id */
	char word[4], id[MCP_ID_MAX];
	size_t word_len, id_len;
};

void mcp_lines_init(struct mcp_lines *l, mcp_line_fn fn, void *userdata);
void mcp_lines_done(struct mcp_lines *l);
int mcp_lines_feed(struct mcp_lines *l, const void *data, size_t n);
int mcp_lines_end(struct mcp_lines *l);

#endif
