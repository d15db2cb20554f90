#include "bridge/mcp-config.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "bridge/failure.h"
#include "bridge/value.h"

static json_t *program_args(const char *environment)
{
	return environment ? json_pack("[s, s, s]", "mcp", "--environment", environment)
			   : json_pack("[s]", "mcp");
}

static json_t *program_env(const struct places *places)
{
	return json_pack("{s:o, s:o}", "LIMB_STATE",
			 value_text(places->state, strlen(places->state)), "LIMB_SOCKET",
			 value_text(places->socket, strlen(places->socket)));
}

static int print_json(json_t *o)
{
	(void)json_dumpf(o, stdout, JSON_INDENT(2));
	(void)putchar('\n');
	json_decref(o);
	return 0;
}

static int print_object(const struct places *places, const char *program, const char *environment,
			const char *key, bool with_type)
{
	json_t *server = json_object();

	if (with_type)
		(void)json_object_set_new(server, "type", json_string("stdio"));
	(void)json_object_set_new(server, "command", value_text(program, strlen(program)));
	(void)json_object_set_new(server, "args", program_args(environment));
	(void)json_object_set_new(server, "env", program_env(places));
	return print_json(json_pack("{s:{s:o}}", key, "limbfs", server));
}

/* JSON's text is TOML's basic string, for what we write. */
static int print_toml_value(json_t *v)
{
	(void)json_dumpf(v, stdout, JSON_ENCODE_ANY);
	(void)putchar('\n');
	json_decref(v);
	return 0;
}

static int print_codex(const struct places *places, const char *program, const char *environment)
{
	printf("[mcp_servers.limbfs]\ncommand = ");
	(void)print_toml_value(value_text(program, strlen(program)));
	printf("args = ");
	(void)print_toml_value(program_args(environment));
	printf("startup_timeout_sec = 20\ntool_timeout_sec = 600\n\n"
	       "[mcp_servers.limbfs.env]\nLIMB_STATE = ");
	(void)print_toml_value(value_text(places->state, strlen(places->state)));
	printf("LIMB_SOCKET = ");
	return print_toml_value(value_text(places->socket, strlen(places->socket)));
}

int mcp_config_print(const struct places *places, const char *client, const char *environment,
		     bool json)
{
	char program[PATH_MAX], shown[80];
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);

	if (n <= 0)
		return failure_print(
			failure_new("io_error", NULL, "this program's path: %s", strerror(errno)),
			json);
	program[n] = '\0';
	if (strcmp(client, "claude") == 0)
		return print_object(places, program, environment, "mcpServers", true);
	if (strcmp(client, "cursor") == 0)
		return print_object(places, program, environment, "mcpServers", false);
	if (strcmp(client, "vscode") == 0)
		return print_object(places, program, environment, "servers", true);
	if (strcmp(client, "codex") == 0)
		return print_codex(places, program, environment);
	return failure_print(
		failure_new("usage", "choose claude, codex, cursor or vscode",
			    "limb does not know what '%s' reads",
			    text_escape_into(shown, sizeof(shown), client, strlen(client))),
		json);
}
