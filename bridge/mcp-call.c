/* tools/call: each is one call of limbd, on a connection of its own. */
#include "bridge/mcp-impl.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/text.h"
#include "bridge/failure.h"

static void call_free(struct mcp_call *c)
{
	if (!c)
		return;
	client_free(c->client);
	json_decref(c->id);
	json_decref(c->token);
	json_decref(c->params);
	free(c);
}

/* ---- connections ---- */

static bool is_quiet(const struct client *c)
{
	char byte;

	return recv(client_fd(c), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static json_t *connection(struct mcp *m, struct client **ret)
{
	for (size_t i = 0; i < MCP_IDLE_MAX; i++) {
		struct client *c = take_ptr(&m->idle[i]);

		if (c && is_quiet(c)) {
			*ret = c;
			return NULL;
		}
		client_free(c); /* limbd was started again since */
	}
	return client_connect(m->places, ret);
}

static void give_back(struct mcp *m, struct client *c)
{
	for (size_t i = 0; i < MCP_IDLE_MAX; i++) {
		if (!m->idle[i]) {
			m->idle[i] = c;
			return;
		}
	}
	client_free(c);
}

/* ---- the end ---- */

static void unlink_call(struct mcp_call *c)
{
	struct mcp_call **p = &c->mcp->calls;

	while (*p != c)
		p = &(*p)->next;
	*p = c->next;
	c->mcp->n_calls--;
}

/* Steals the result, gives the connection back if it is still good. */
static int call_answer(struct mcp_call *c, json_t *result)
{
	struct mcp *m = c->mcp;
	int r = 0;

	unlink_call(c);
	if (c->client) {
		m->n_active--;
		if (!json_object_get(result, "isError") ||
		    !json_is_true(json_object_get(result, "isError")))
			give_back(m, take_ptr(&c->client));
	}
	if (c->cancelled)
		json_decref(result);
	else
		r = mcp_send_result(m, c->id, c->modern, result);
	call_free(c);
	return r;
}

static int call_fail(struct mcp_call *c, json_t *failure)
{
	json_t *result = tool_failure(failure);

	json_decref(failure);
	return call_answer(c, result);
}

uint64_t mcp_call_expires_ms(const struct mcp_call *c)
{
	return c->word_ms + (c->cancelled ? MCP_CANCELLED_MS : MCP_SILENT_MS);
}

int mcp_calls_expire(struct mcp *m)
{
	uint64_t now_ms = clock_mono_ms();
	struct mcp_call *c, *next;
	int r = 0;

	for (c = m->calls; r == 0 && c; c = next) {
		next = c->next;
		if (c->client && now_ms >= mcp_call_expires_ms(c))
			r = call_fail(c, failure_new("timed_out", "limb status",
						     "limbd has said nothing for %d s; whether "
						     "it was done is not known",
						     MCP_SILENT_MS / 1000));
	}
	return r;
}

/* ---- begin ---- */

static void notified(const char *method, const json_t *params, void *userdata)
{
	struct mcp_call *c = userdata;
	const char *text = json_string_value(json_object_get(params, "text"));

	c->word_ms = clock_mono_ms();

	if (strcmp(method, "progress") == 0)
		(void)mcp_call_progress(c, text);
}

static int call_send(struct mcp_call *c)
{
	bool pick = !json_object_get(c->params, "name") && !c->tool->everywhere &&
		    c->tool->params[0].type == TOOL_NAME;
	const json_t *in = json_object_get(c->params, TOOL_INPUT);
	_cleanup_(buf_done) struct buf input = BUF_INIT(0);
	int r = 0;

	if (pick && c->mcp->environment) {
		(void)json_object_set_new(c->params, "name", json_string(c->mcp->environment));
		pick = false;
	}
	c->picking = pick;
	c->call = (struct client_call){
		.method = pick ? "ls" : tool_verb(c->tool)->name,
		.params = pick ? json_object() : json_incref(c->params),
		.in_fd = -1,
		.out_fd = -1,
		.err_fd = -1,
		.notified = notified,
		.userdata = c,
	};
	if (in) {
		const char *base64 = json_string_value(json_object_get(in, "base64"));

		r = base64 ? text_unbase64(&input, base64, strlen(base64))
			   : buf_add(&input, json_string_value(in), json_string_length(in));
		c->call.in_data = buf_len(&input) ? buf_data(&input) : (const uint8_t *)"";
		c->call.in_n = buf_len(&input);
	}
	if (r == 0)
		r = client_begin(c->client, &c->call);
	json_decref(c->call.params);
	c->call.params = NULL;
	c->call.in_data = NULL;
	if (r == -E2BIG)
		return call_fail(c, failure_new("too_large", "move large files with limb cp",
						"the call is too large for limbd"));
	if (r < 0)
		return call_fail(c, failure_new("daemon_unreachable", "start it: limb up",
						"limbd cannot be asked: %s", strerror(-r)));
	return 0;
}

int mcp_calls_start(struct mcp *m)
{
	struct mcp_call *c, *next;
	int r = 0;

	for (c = m->calls; r == 0 && c && m->n_active < MCP_ACTIVE_MAX; c = next) {
		json_t *failure;

		next = c->next;
		if (c->client)
			continue;
		failure = connection(m, &c->client);
		if (failure) {
			r = call_fail(c, failure);
			continue;
		}
		m->n_active++;
		c->word_ms = clock_mono_ms();
		r = call_send(c);
	}
	return r;
}

static bool seen_before(struct mcp *m, json_t *id)
{
	for (size_t i = 0; i < MCP_IDS; i++)
		if (m->ids[i] && json_equal(m->ids[i], id))
			return true;
	json_decref(m->ids[m->next_id]);
	m->ids[m->next_id] = json_incref(id);
	m->next_id = (m->next_id + 1) % MCP_IDS;
	return false;
}

static int answer_failure(struct mcp *m, const json_t *id, bool modern, json_t *failure)
{
	json_t *result = tool_failure(failure);

	json_decref(failure);
	return mcp_send_result(m, id, modern, result);
}

int mcp_call_begin(struct mcp *m, json_t *id, json_t *params, bool modern)
{
	const char *name = json_string_value(json_object_get(params, "name"));
	const json_t *token = json_object_get(json_object_get(params, "_meta"), "progressToken");
	const struct tool *tool = name ? tool_find(name) : NULL;
	json_t *failure, *translated = NULL;
	struct mcp_call *c, **p;
	char shown[80];

	if (!tool)
		return mcp_send_error(
			m, id, MCP_BAD_PARAMS, NULL,
			name ? "there is no tool '%s'" : "params.name is missing%s",
			name ? text_escape_into(shown, sizeof(shown), name, strlen(name)) : "");
	/* Whoever sends a call again does not know whether it ran: it is not run twice. */
	if (seen_before(m, id))
		return mcp_send_error(m, id, MCP_INVALID_REQUEST, NULL,
				      "a call with this id was made before; it is not made again");
	failure = tool_params(tool, json_object_get(params, "arguments"), &translated);
	if (failure)
		return answer_failure(m, id, modern, failure);
	c = m->n_calls < MCP_CALLS_MAX ? calloc(1, sizeof(*c)) : NULL;
	if (!c) {
		json_decref(translated);
		return answer_failure(m, id, modern,
				      failure_new("quota_exceeded",
						  "wait for answers, then call again",
						  "%d calls are under way, and no more are taken",
						  MCP_CALLS_MAX));
	}
	c->mcp = m;
	c->id = json_incref(id);
	c->token = json_is_string(token) || json_is_integer(token)
			   ? json_incref((json_t *)(uintptr_t)token)
			   : NULL;
	c->modern = modern;
	c->tool = tool;
	c->params = translated;
	c->begun_ms = c->told_ms = clock_mono_ms();
	for (p = &m->calls; *p; p = &(*p)->next)
		;
	*p = c;
	m->n_calls++;
	return mcp_calls_start(m);
}

/* ---- under way ---- */

bool mcp_call_running(const struct mcp *m, const json_t *id)
{
	for (const struct mcp_call *c = m->calls; c; c = c->next)
		if (json_equal(c->id, id))
			return true;
	return false;
}

void mcp_call_cancel(struct mcp *m, const json_t *id)
{
	struct mcp_call *c = m->calls;

	while (c && !json_equal(c->id, id))
		c = c->next;
	if (!c || c->cancelled)
		return;
	c->cancelled = true;
	c->word_ms = clock_mono_ms();
	if (!c->client) {
		unlink_call(c);
		call_free(c);
	} else if (client_cancel(c->client) < 0) {
		(void)shutdown(client_fd(c->client), SHUT_RDWR);
	}
}

int mcp_call_progress(struct mcp_call *c, const char *text)
{
	uint64_t now_ms = clock_mono_ms();
	double seconds = (double)(now_ms - c->begun_ms) / 1000;
	char message[160];

	if (!c->token || c->cancelled || seconds <= c->progress)
		return 0;
	c->progress = seconds;
	c->told_ms = now_ms;
	if (text)
		(void)snprintf(message, sizeof(message), "%.100s, %.0f s", text, seconds);
	else
		(void)snprintf(message, sizeof(message), "%s runs, %.0f s", c->tool->name, seconds);
	return mcp_send(c->mcp,
			json_pack("{s:s, s:s, s:{s:O, s:f, s:s}}", "jsonrpc", "2.0", "method",
				  "notifications/progress", "params", "progressToken", c->token,
				  "progress", seconds, "message", message));
}

/* The only environment there is. */
static json_t *take_pick(struct mcp_call *c, const json_t *answer)
{
	const json_t *all = json_object_get(answer, "environments"), *e;
	_cleanup_(buf_done) struct buf names = BUF_INIT(4096);
	size_t i;

	if (json_array_size(all) == 1) {
		(void)json_object_set(c->params, "name",
				      json_object_get(json_array_get(all, 0), "environment"));
		return NULL;
	}
	if (json_array_size(all) == 0)
		return failure_new("environment_not_found", "make one: limb create NAME",
				   "there is no environment yet");
	json_array_foreach(all, i, e)(void)
		buf_printf(&names, "%s%s", i ? ", " : "",
			   json_string_value(json_object_get(e, "environment")));
	return failure_new("usage", "set the argument environment",
			   "there are several environments, say which: %.*s", (int)buf_len(&names),
			   (const char *)buf_data(&names));
}

int mcp_call_pump(struct mcp_call *c, short revents)
{
	enum client_outcome outcome;
	json_t *answer, *failure;
	int r;

	if (!client_pump(c->client, &c->call, revents, &outcome, &answer))
		return 0;
	if (outcome != CLIENT_RESULT)
		return call_fail(c, answer);
	if (c->picking && !c->cancelled) {
		failure = take_pick(c, answer);
		json_decref(answer);
		return failure ? call_fail(c, failure) : call_send(c);
	}
	r = call_answer(c, tool_result(c->tool, answer));
	json_decref(answer);
	return r;
}

void mcp_calls_drop(struct mcp *m)
{
	while (m->calls) {
		struct mcp_call *c = m->calls;

		unlink_call(c);
		call_free(c);
	}
	for (size_t i = 0; i < MCP_IDLE_MAX; i++)
		client_free(take_ptr(&m->idle[i]));
	for (size_t i = 0; i < MCP_IDS; i++)
		json_decref(m->ids[i]);
}
