/*
 * mcp-config.h - `limb mcp-config CLIENT`: what an agent's client reads to start `limb
 * mcp`, with absolute paths and with the places of this brain: such clients pass on
 * next to nothing of their own environment.
 */
#ifndef BRIDGE_MCP_CONFIG_H
#define BRIDGE_MCP_CONFIG_H

#include <stdbool.h>

#include "bridge/places.h"

/* The process's exit status; a failure is printed. environment may be NULL. */
int mcp_config_print(const struct places *places, const char *client, const char *environment,
		     bool json);

#endif
