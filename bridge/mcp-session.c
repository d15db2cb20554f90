/* The protocol: what is asked, in which era, and the shape of the answers. */
#include "bridge/mcp-impl.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define META "io.modelcontextprotocol/"

static const char modern_version[] = "2026-07-28";
static const char *const legacy_versions[] = {"2025-11-25", "2025-06-18", "2025-03-26",
					      "2024-11-05"};

static const char instructions[] =
	"limbfs runs commands and keeps files in environments (sandboxes, other machines) that may "
	"vanish: everything is in a journal on this machine. Name the environment in each call, or "
	"leave it out where there is only one. Paths are relative to its root. If an environment "
	"is "
	"lost, its files can still be read, and a person can bring it back with: limb rebuild "
	"NAME.";

struct request {
	const char *method;
	json_t *id, *params, *meta;
	bool modern;
};

/* ---- sending ---- */

int mcp_send(struct mcp *m, json_t *message)
{
	cleanup_free char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
	int r;

	json_decref(message);
	if (!text)
		return -ENOMEM;
	r = buf_add_str(&m->out, text);
	return r < 0 ? r : buf_add_u8(&m->out, '\n');
}

int mcp_send_error(struct mcp *m, const json_t *id, int code, json_t *data, const char *fmt, ...)
{
	cleanup_free char *text = NULL;
	json_t *error, *o;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0)
		text = NULL;
	error = json_pack("{s:i, s:s}", "code", code, "message", text ? text : "out of memory");
	if (data)
		(void)json_object_set_new(error, "data", data);
	o = json_pack("{s:s, s:o}", "jsonrpc", "2.0", "error", error);
	(void)json_object_set_new(o, "id", id ? json_deep_copy(id) : json_null());
	return mcp_send(m, o);
}

static json_t *server_info(void)
{
	return json_pack("{s:s, s:s, s:s}", "name", "limbfs", "title", "limbfs", "version",
			 PACKAGE_VERSION);
}

int mcp_send_result(struct mcp *m, const json_t *id, bool modern, json_t *result)
{
	if (modern && result) {
		json_t *meta = json_object_get(result, "_meta");

		if (!meta) {
			meta = json_object();
			(void)json_object_set_new(result, "_meta", meta);
		}
		(void)json_object_set_new(meta, META "serverInfo", server_info());
		(void)json_object_set_new(result, "resultType", json_string("complete"));
	}
	return mcp_send(m,
			json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result));
}

/* ---- methods ---- */

static json_t *versions_json(void)
{
	json_t *a = json_pack("[s]", modern_version);

	for (size_t i = 0; i < ARRAY_SIZE(legacy_versions); i++)
		(void)json_array_append_new(a, json_string(legacy_versions[i]));
	return a;
}

static int on_initialize(struct mcp *m, const struct request *q)
{
	const char *asked = json_string_value(json_object_get(q->params, "protocolVersion"));

	if (!asked)
		return mcp_send_error(m, q->id, MCP_BAD_PARAMS, NULL,
				      "initialize wants params.protocolVersion");
	m->version = legacy_versions[0];
	for (size_t i = 0; i < ARRAY_SIZE(legacy_versions); i++)
		if (strcmp(asked, legacy_versions[i]) == 0)
			m->version = legacy_versions[i];
	return mcp_send_result(m, q->id, false,
			       json_pack("{s:s, s:{s:{}}, s:o, s:s}", "protocolVersion", m->version,
					 "capabilities", "tools", "serverInfo", server_info(),
					 "instructions", instructions));
}

static int on_discover(struct mcp *m, const struct request *q)
{
	return mcp_send_result(m, q->id, true,
			       json_pack("{s:o, s:{s:{}}, s:s, s:i, s:s}", "supportedVersions",
					 versions_json(), "capabilities", "tools", "instructions",
					 instructions, "ttlMs", 3600000, "cacheScope", "public"));
}

static int on_ping(struct mcp *m, const struct request *q)
{
	return mcp_send_result(m, q->id, false, json_object());
}

static int on_tools_list(struct mcp *m, const struct request *q)
{
	json_t *tools, *o;

	if (json_object_get(q->params, "cursor"))
		return mcp_send_error(m, q->id, MCP_BAD_PARAMS, NULL,
				      "there is one page of tools; leave the cursor out");
	tools = json_array();
	for (size_t i = 0; i < tool_table_count; i++)
		(void)json_array_append_new(tools, tool_schema(&tool_table[i]));
	o = json_pack("{s:o}", "tools", tools);
	if (q->modern) {
		(void)json_object_set_new(o, "ttlMs", json_integer(3600000));
		(void)json_object_set_new(o, "cacheScope", json_string("public"));
	}
	return mcp_send_result(m, q->id, q->modern, o);
}

static int on_tools_call(struct mcp *m, const struct request *q)
{
	return mcp_call_begin(m, q->id, q->params, q->modern);
}

static const struct method {
	const char *name;
	int (*fn)(struct mcp *m, const struct request *q);
	bool legacy, modern, early; /* early: before the handshake */
} methods[] = {
	{"initialize", on_initialize, true, false, true},
	{"ping", on_ping, true, false, true},
	{"server/discover", on_discover, false, true, false},
	{"tools/call", on_tools_call, true, true, false},
	{"tools/list", on_tools_list, true, true, false},
};

/* ---- requests ---- */

/* 0: go on; 1: it was answered. */
static int check_modern(struct mcp *m, const struct request *q)
{
	const json_t *version = json_object_get(q->meta, META "protocolVersion");
	const json_t *capabilities = json_object_get(q->meta, META "clientCapabilities");
	const char *asked = json_string_value(version);
	int r = 0;

	if (!asked || !json_is_object(capabilities))
		r = mcp_send_error(m, q->id, MCP_BAD_PARAMS, NULL,
				   "params._meta wants " META "protocolVersion and " META
				   "clientCapabilities");
	else if (strcmp(asked, modern_version) != 0)
		r = mcp_send_error(
			m, q->id, MCP_BAD_VERSION,
			json_pack("{s:o, s:O}", "supported", versions_json(), "requested", version),
			"this server does not speak that version");
	else
		return 0;
	return r < 0 ? r : 1;
}

static bool is_modern(const struct request *q)
{
	const char *key;
	json_t *v;

	if (strcmp(q->method, "initialize") == 0)
		return false;
	if (strcmp(q->method, "server/discover") == 0)
		return true;
	json_object_foreach(q->meta, key,
			    v) if (strcmp(key, META "protocolVersion") == 0 ||
				   strcmp(key, META "clientCapabilities") == 0) return true;
	return false;
}

static int on_request(struct mcp *m, struct request *q)
{
	const struct method *method = NULL;
	char shown[100];
	int r;

	q->modern = is_modern(q);
	if (mcp_call_running(m, q->id))
		return mcp_send_error(
			m, NULL, MCP_INVALID_REQUEST, NULL,
			"a request with this id is under way; it was not begun again");
	if (q->modern) {
		r = check_modern(m, q);
		if (r != 0)
			return MIN(r, 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
		if (strcmp(methods[i].name, q->method) == 0 &&
		    (q->modern ? methods[i].modern : methods[i].legacy))
			method = &methods[i];
	if (!method)
		return mcp_send_error(
			m, q->id, MCP_NO_METHOD, NULL, "there is no method '%s'",
			text_escape_into(shown, sizeof(shown), q->method, strlen(q->method)));
	if (!q->modern && !m->version && !method->early)
		return mcp_send_error(m, q->id, MCP_INVALID_REQUEST, NULL,
				      "begin with initialize, or say " META
				      "protocolVersion in params._meta");
	return method->fn(m, q);
}

static void on_notification(struct mcp *m, const char *method, const json_t *params)
{
	if (strcmp(method, "notifications/cancelled") == 0)
		mcp_call_cancel(m, json_object_get(params, "requestId"));
}

static bool id_ok(const json_t *id)
{
	return json_is_integer(id) || (json_is_string(id) && json_string_length(id) <= MCP_ID_MAX);
}

static int on_message(struct mcp *m, json_t *o)
{
	const char *jsonrpc = json_string_value(json_object_get(o, "jsonrpc"));
	json_t *id = json_object_get(o, "id"), *params = json_object_get(o, "params");
	json_t *meta = json_object_get(params, "_meta");
	struct request q = {
		.method = json_string_value(json_object_get(o, "method")),
		.id = id,
		.params = params,
		.meta = meta,
	};

	if (json_is_array(o))
		return mcp_send_error(m, NULL, MCP_INVALID_REQUEST, NULL,
				      "one message a line; batches are not taken");
	if (!json_is_object(o) || !jsonrpc || strcmp(jsonrpc, "2.0") != 0)
		return mcp_send_error(m, id_ok(id) ? id : NULL, MCP_INVALID_REQUEST, NULL,
				      "not a JSON-RPC 2.0 message");
	if (!q.method) {
		/* An answer to what we never asked is passed over. */
		if (json_object_get(o, "result") || json_object_get(o, "error"))
			return 0;
		return mcp_send_error(m, id_ok(id) ? id : NULL, MCP_INVALID_REQUEST, NULL,
				      "the method is missing");
	}
	if (!id) {
		on_notification(m, q.method, params);
		return 0;
	}
	if (!id_ok(id))
		return mcp_send_error(m, NULL, MCP_INVALID_REQUEST, NULL,
				      "an id is an integer or a text of at most %d bytes",
				      MCP_ID_MAX);
	if (params && !json_is_object(params))
		return mcp_send_error(m, id, MCP_BAD_PARAMS, NULL, "params is no object");
	if (meta && !json_is_object(meta))
		return mcp_send_error(m, id, MCP_BAD_PARAMS, NULL, "params._meta is no object");
	return on_request(m, &q);
}

/* ---- lines ---- */

static json_t *line_id(const struct mcp_line *line)
{
	json_t *id = line->id ? json_loadb(line->id, line->id_len, JSON_DECODE_ANY, NULL) : NULL;

	if (!id_ok(id)) {
		json_decref(id);
		return NULL;
	}
	return id;
}

static int on_bad_line(struct mcp *m, const struct mcp_line *line)
{
	json_t *id = line_id(line);
	int r;

	switch (line->kind) {
	case MCP_LINE_LONG:
		r = mcp_send_error(m, id, MCP_INVALID_REQUEST, NULL,
				   "a message has at most %u MiB; move large files with limb cp",
				   MCP_LINE_MAX >> 20);
		break;
	case MCP_LINE_DEEP:
		r = mcp_send_error(m, id, MCP_INVALID_REQUEST, NULL,
				   "a message has at most %d levels of brackets", MCP_DEPTH_MAX);
		break;
	default:
		r = mcp_send_error(m, id, MCP_INVALID_REQUEST, NULL,
				   "a message has at most %d values", MCP_VALUES_MAX);
	}
	json_decref(id);
	return r;
}

int mcp_on_line(const struct mcp_line *line, void *userdata)
{
	struct mcp *m = userdata;
	json_error_t e;
	json_t *o;
	int r;

	if (line->kind != MCP_LINE_OK)
		return on_bad_line(m, line);
	o = json_loadb(line->text, line->n,
		       JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &e);
	if (!o)
		return mcp_send_error(m, NULL, MCP_PARSE_ERROR, NULL, "not JSON: %s at byte %d",
				      e.text, e.position);
	r = on_message(m, o);
	json_decref(o);
	return r;
}
