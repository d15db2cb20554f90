/* What the files of mcp.h share; nobody else includes it. */
#ifndef BRIDGE_MCP_IMPL_H
#define BRIDGE_MCP_IMPL_H

#include <jansson.h>

#include "bridge/client.h"
#include "bridge/mcp-line.h"
#include "bridge/mcp.h"
#include "bridge/tool.h"

enum {
	MCP_ACTIVE_MAX = 32, /* calls of limbd at the same time */
	MCP_CALLS_MAX = 256, /* with those that wait */
	MCP_IDLE_MAX = 4,    /* connections kept */
	MCP_IDS = 1024,	     /* of calls, remembered */
	MCP_OUT_HIGH = 64 << 20,
	MCP_SILENT_MS = 600000, /* limbd says nothing of a call: it is stuck */
	MCP_CANCELLED_MS = 5000,
};

enum mcp_error {
	MCP_PARSE_ERROR = -32700,
	MCP_INVALID_REQUEST = -32600,
	MCP_NO_METHOD = -32601,
	MCP_BAD_PARAMS = -32602,
	MCP_INTERNAL = -32603,
	MCP_BAD_VERSION = -32022,
};

struct mcp;

struct mcp_call {
	struct mcp_call *next;
	struct mcp *mcp;
	json_t *id, *token; /* token: of progress, NULL */
	bool modern;
	const struct tool *tool;
	json_t *params;
	struct client *client; /* NULL: waits for its turn */
	struct client_call call;
	bool picking; /* its environment is being looked for */
	bool cancelled;
	uint64_t begun_ms, told_ms;
	uint64_t word_ms; /* of limbd's last word about it, or of its being cancelled */
	double progress;
};

struct mcp {
	const struct places *places;
	const char *environment;
	int in_fd, out_fd;
	const char *version; /* of the handshake; NULL: there was none */
	struct mcp_lines lines;
	struct buf out;
	struct mcp_call *calls; /* in order of arrival */
	size_t n_calls, n_active;
	struct client *idle[MCP_IDLE_MAX];
	json_t *ids[MCP_IDS]; /* a ring */
	size_t next_id;
	bool eof;
	uint64_t end_ms;
};

/* mcp-session.c: messages. */
int mcp_on_line(const struct mcp_line *line, void *mcp);
int mcp_send(struct mcp *m, json_t *message); /* steals */
int mcp_send_error(struct mcp *m, const json_t *id, int code, json_t *data, const char *fmt, ...)
	_printf_(5, 6);
/* Adds what an answer of the era has to have; steals result. */
int mcp_send_result(struct mcp *m, const json_t *id, bool modern, json_t *result);

/* mcp-call.c: tools/call. */
int mcp_call_begin(struct mcp *m, json_t *id, json_t *params, bool modern);
int mcp_calls_start(struct mcp *m); /* those that wait, as far as there is room */
void mcp_call_cancel(struct mcp *m, const json_t *id);
bool mcp_call_running(const struct mcp *m, const json_t *id);
int mcp_call_pump(struct mcp_call *c, short revents);
/* Ends the calls of which limbd has said nothing for too long. */
int mcp_calls_expire(struct mcp *m);
uint64_t mcp_call_expires_ms(const struct mcp_call *c); /* monotonic */
int mcp_call_progress(struct mcp_call *c, const char *text);
void mcp_calls_drop(struct mcp *m);

#endif
