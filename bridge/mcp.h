/*
 * mcp.h - an MCP server on two descriptors: newline-delimited JSON-RPC, the tools of
 * tool.h, each call one call of limbd.
 *
 * Both eras: revisions with a handshake (2025-11-25 and before), and 2026-07-28, whose
 * requests say everything themselves.  Nothing is asked of limbd, and nothing else is
 * done, before a tool is called: clients start such servers only to look.
 *
 * Calls run at the same time, each on a connection of its own; answers come in any
 * order.  A request that cannot be understood is answered and the session goes on.
 * At the end of the input what is under way has MCP_LINGER_MS to be answered;
 * commands that run on then are jobs of limbd, and run on.
 */
#ifndef BRIDGE_MCP_H
#define BRIDGE_MCP_H

#include "bridge/places.h"

#define MCP_LINGER_MS 1500

/* environment: where a call names none; NULL. 0 at the end of the input, or a negative errno
 * (-EPIPE: nobody reads the answers). */
int mcp_serve(const struct places *places, const char *environment, int in_fd, int out_fd);

#endif
