/*
 * tool.h - the MCP face of the verb table: each tool is a verb (verbs.h) with the
 * parameters that a model is shown, and what its answer looks like to one.
 *
 *	tool = tool_find("read_file");
 *	failure = tool_params(tool, arguments, &params);	checked, translated
 *	... limbd's answer to verb->name(params) ...
 *	result = tool_result(tool, answer);		content, structuredContent
 *
 * The effect, and with it the annotations, is the verb's; a parameter reaches limbd
 * under the verb's name for it.  Nothing here does I/O.
 */
#ifndef BRIDGE_TOOL_H
#define BRIDGE_TOOL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "bridge/verbs.h"

enum tool_type {
	TOOL_TEXT,
	TOOL_BYTES, /* text; what JSON cannot carry exactly goes as base64 */
	TOOL_INTEGER,
	TOOL_SWITCH,
	TOOL_TEXTS, /* a list of them, not empty */
	TOOL_VARIABLES,
	TOOL_EDITS,
	TOOL_NAME, /* of an environment */
	TOOL_POINT,
	TOOL_JOB,
	TOOL_PLACE, /* PROVIDER[:TARGET], of a provider that keeps what runs there in */
};

struct tool_param {
	const char *name;
	enum tool_type type;
	bool required;
	const char *param;   /* the verb's; NULL: tool_params() does more with it */
	const char *aliases; /* "file_path filename": taken, but not shown */
	long long min, max;  /* of an integer */
	const char *help;
};

/* One field of an answer. */
struct tool_field {
	const char *name;
	const char *schema; /* a JSON schema, as text */
	bool always;
};

#define TOOL_PARAMS_MAX 12

struct tool {
	const char *name, *title, *help;
	const char *verb;
	struct tool_param params[TOOL_PARAMS_MAX];
	const struct tool_field *fields;
	/* What the model reads, appended; NULL: the answer as JSON. */
	int (*text)(struct buf *b, const json_t *answer);
	bool everywhere; /* without an environment it is for all of them */
	/* What every call of it has beside what was asked, as JSON; NULL: nothing. */
	const char *fixed;
};

extern const struct tool tool_table[];
extern const size_t tool_table_count;

const struct tool *tool_find(const char *name);
const struct verb *tool_verb(const struct tool *tool);

/* The entry of tools/list; NULL without memory. */
json_t *tool_schema(const struct tool *tool);

/* NULL and the call's params, or a failure ("usage") that says how to call it right. */
json_t *tool_params(const struct tool *tool, const json_t *arguments, json_t **ret_params);
/* A parameter of the call for which stdin is there: its bytes are sent so. */
#define TOOL_INPUT "input"

/* The fields content, structuredContent, isError of a CallToolResult. */
json_t *tool_result(const struct tool *tool, const json_t *answer);
json_t *tool_failure(const json_t *failure);

#endif
