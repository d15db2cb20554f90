#include "brain/rpc-server.h"

#include <stdarg.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/text.h"

enum {
	BACKLOG = 64,
	CLIENTS_MAX = 1024,
};

struct client {
	struct rpc_server *server;
	struct client *next;
	uv_pipe_t pipe;
	struct buf in;
	struct call *call;
	size_t queued;
	bool closing, paused;
};

struct rpc_server {
	struct brain *brain;
	uv_pipe_t listener;
	struct client *clients;
	unsigned n_clients;
	bool stopping;
};

struct out {
	uv_write_t req;
	struct client *client;
	size_t n;
	uint8_t bytes[];
};

/* ---- sending ---- */

static void client_close(struct client *c);

static void out_done(uv_write_t *w, int status)
{
	struct out *o = container_of(w, struct out, req);
	struct client *c = o->client;
	bool was_high = c->queued >= RPC_QUEUE_HIGH;

	c->queued -= o->n;
	free(o);
	if (status < 0) {
		client_close(c);
		return;
	}
	if (was_high && c->queued < RPC_QUEUE_HIGH && !c->closing && c->call && c->call->on_drained)
		c->call->on_drained(c->call);
}

static void client_send(struct client *c, enum rpc_kind kind, const void *data, size_t n)
{
	struct out *o;
	uv_buf_t b;

	if (!c || c->closing || n > RPC_FRAME_MAX)
		return;
	o = malloc(sizeof(*o) + RPC_HEADER_BYTES + n);
	if (!o) {
		client_close(c);
		return;
	}
	o->client = c;
	o->n = RPC_HEADER_BYTES + n;
	memset(o->bytes, 0, RPC_HEADER_BYTES);
	put_le32(o->bytes, (uint32_t)n);
	o->bytes[4] = (uint8_t)kind;
	if (n)
		memcpy(o->bytes + RPC_HEADER_BYTES, data, n);
	c->queued += o->n;
	b = uv_buf_init((char *)o->bytes, (unsigned)o->n);
	if (uv_write(&o->req, (uv_stream_t *)&c->pipe, &b, 1, out_done) < 0) {
		c->queued -= o->n;
		free(o);
		client_close(c);
	}
}

static void client_send_json(struct client *c, json_t *o)
{
	char *text;

	if (!c || c->closing)
		return;
	text = json_dumps(o, JSON_COMPACT);
	if (!text || strlen(text) > RPC_FRAME_MAX) {
		free(text);
		client_close(c);
		return;
	}
	client_send(c, RPC_JSON, text, strlen(text));
	free(text);
}

/* ---- calls ---- */

static void call_end(struct call *call)
{
	call_pause(call, false);
	if (call->client)
		call->client->call = NULL;
	json_decref(call->id);
	json_decref(call->params);
	free(call);
}

void call_ok(struct call *call, json_t *result)
{
	json_t *o = json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", call->id, "result",
			      result ? result : json_object());

	client_send_json(call->client, o);
	json_decref(o);
	call_end(call);
}

static int exit_of(const char *code)
{
	if (strcmp(code, "usage") == 0)
		return 2;
	return strcmp(code, "timed_out") == 0 ? 124 : 125;
}

/* A step's NAME is the environment that the failure is about. */
static json_t *step_json(const char *step, const char *env)
{
	const char *name = env ? strstr(step, "NAME") : NULL;

	return name ? json_sprintf("%.*s%s%s", (int)(name - step), step, env, name + 4)
		    : json_string(step);
}

static void call_vfail(struct call *call, const char *code, json_t *fields, const char *env,
		       const char *next_step, const char *fmt, va_list ap)
{
	cleanup_free char *detail = NULL;
	json_t *data, *o, *steps = json_array();

	if (vasprintf(&detail, fmt, ap) < 0)
		detail = NULL;
	if (next_step)
		(void)json_array_append_new(steps, step_json(next_step, env));
	data = json_pack("{s:s, s:s, s:o, s:i}", "error", code, "detail", detail ? detail : code,
			 "next_steps", steps, "exit", exit_of(code));
	if (!data) /* a name that is not UTF-8 got into the text */
		data = json_pack("{s:s, s:s, s:[], s:i}", "error", code, "detail", code,
				 "next_steps", "exit", exit_of(code));
	if (env)
		(void)json_object_set_new(data, "environment", json_string(env));
	if (fields) {
		(void)json_object_update(data, fields);
		json_decref(fields);
	}
	o = json_pack("{s:s, s:O, s:{s:i, s:O, s:o}}", "jsonrpc", "2.0", "id", call->id, "error",
		      "code", 1, "message", json_object_get(data, "detail"), "data", data);
	client_send_json(call->client, o);
	json_decref(o);
	call_end(call);
}

void call_fail(struct call *call, const char *code, const char *env, const char *next_step,
	       const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	call_vfail(call, code, NULL, env, next_step, fmt, ap);
	va_end(ap);
}

void call_fail_with(struct call *call, const char *code, json_t *fields, const char *env,
		    const char *next_step, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	call_vfail(call, code, fields, env, next_step, fmt, ap);
	va_end(ap);
}

void call_progress(struct call *call, const char *text, uint64_t files, uint64_t bytes,
		   uint64_t total_files, uint64_t total_bytes)
{
	json_t *o;

	if (!call->client || call->client->queued > RPC_QUEUE_HIGH)
		return;
	o = json_pack("{s:s, s:s, s:{s:s, s:I, s:I, s:I, s:I}}", "jsonrpc", "2.0", "method",
		      "progress", "params", "text", text, "files", (json_int_t)files, "bytes",
		      (json_int_t)bytes, "total_files", (json_int_t)total_files, "total_bytes",
		      (json_int_t)total_bytes);
	client_send_json(call->client, o);
	json_decref(o);
}

bool call_has_room(const struct call *call)
{
	return !call->client || call->client->queued < RPC_QUEUE_HIGH;
}

bool call_bytes(struct call *call, enum rpc_kind kind, const void *data, size_t n)
{
	if (!call->client)
		return true;
	client_send(call->client, kind, data, n);
	return call_has_room(call);
}

bool call_notify(struct call *call, const char *method, json_t *params)
{
	json_t *o =
		json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method", method, "params", params);

	client_send_json(call->client, o);
	json_decref(o);
	return call_has_room(call);
}

/* A string, or {"base64": ...} decoded in place (once) into a string that JSON itself could
 * not have carried. */
static const char *value_str(json_t *holder, json_t *v)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(1 << 20);
	const char *s = json_string_value(v), *b64;
	json_t *text;

	if (s)
		return strlen(s) == json_string_length(v) ? s : NULL;
	text = json_object_get(v, "decoded");
	if (text)
		return json_string_value(text);
	b64 = json_string_value(json_object_get(v, "base64"));
	(void)holder;
	if (!b64 || text_unbase64(&b, b64, strlen(b64)) < 0 ||
	    memchr(buf_data(&b), 0, buf_len(&b)) != NULL)
		return NULL;
	text = json_stringn_nocheck((const char *)buf_data(&b), buf_len(&b));
	if (json_object_set_new_nocheck(v, "decoded", text) < 0)
		return NULL;
	return json_string_value(text);
}

const char *call_str(struct call *call, const char *key)
{
	return value_str(call->params, json_object_get(call->params, key));
}

bool call_bool(struct call *call, const char *key)
{
	return json_is_true(json_object_get(call->params, key));
}

int64_t call_int(struct call *call, const char *key, int64_t def)
{
	json_t *v = json_object_get(call->params, key);

	return json_is_integer(v) ? json_integer_value(v) : def;
}

char **call_strv(struct call *call, const char *key)
{
	json_t *a = json_object_get(call->params, key);
	char **v = calloc(json_array_size(a) + 1, sizeof(*v));

	for (size_t i = 0; v && i < json_array_size(a); i++) {
		const char *s = value_str(a, json_array_get(a, i));

		v[i] = s ? strdup(s) : NULL;
		if (!v[i]) {
			call_strv_free(v);
			return NULL;
		}
	}
	return v;
}

void call_strv_free(char **v)
{
	for (char **p = v; p && *p; p++)
		free(*p);
	free(v);
}

/* ---- receiving ---- */

static void client_closed(uv_handle_t *h)
{
	struct client *c = container_of((uv_pipe_t *)h, struct client, pipe);
	struct client **p = &c->server->clients;

	while (*p && *p != c)
		p = &(*p)->next;
	if (*p)
		*p = c->next;
	c->server->n_clients--;
	buf_done(&c->in);
	free(c);
}

static void client_close(struct client *c)
{
	struct call *call = c->call;

	if (c->closing)
		return;
	c->closing = true;
	c->call = NULL;
	if (call) {
		call->client = NULL;
		if (call->on_cancel)
			call->on_cancel(call);
	}
	uv_close((uv_handle_t *)&c->pipe, client_closed);
}

static void client_protocol_error(struct client *c, int code, const char *text)
{
	json_t *o = json_pack("{s:s, s:n, s:{s:i, s:s}}", "jsonrpc", "2.0", "id", "error", "code",
			      code, "message", text);

	client_send_json(c, o);
	json_decref(o);
}

static const struct verb *verb_find(const char *name)
{
	for (const struct verb *v = verbs; v->name; v++)
		if (strcmp(v->name, name) == 0)
			return v;
	return NULL;
}

static void client_request(struct client *c, json_t *m)
{
	const char *method = json_string_value(json_object_get(m, "method"));
	json_t *id = json_object_get(m, "id"), *params = json_object_get(m, "params");
	struct call *call;

	if (!method) {
		client_protocol_error(c, -32600, "not a JSON-RPC request");
		return;
	}
	if (!id) { /* a notification */
		if (!c->call)
			return;
		if (strcmp(method, "cancel") != 0) {
			if (c->call->on_notify)
				c->call->on_notify(c->call, method, params);
		} else if (c->call->on_cancel) {
			c->call->on_cancel(c->call);
		}
		return;
	}
	if (c->call) {
		client_protocol_error(c, -32600, "one call at a time on a connection");
		return;
	}
	call = calloc(1, sizeof(*call));
	if (!call)
		return;
	call->brain = c->server->brain;
	call->client = c;
	call->id = json_incref(id);
	call->params = json_is_object(params) ? json_incref(params) : json_object();
	c->call = call;
	call->verb = verb_find(method);
	if (!call->verb)
		call_fail(call, "unsupported", NULL, "limb help",
			  "this limbd does not know the verb '%s'", method);
	else if (call->brain->stopping)
		call_fail(call, "daemon_unreachable", NULL, "limb up", "limbd is going down");
	else
		call->verb->handler(call);
}

static void client_frame(struct client *c, uint8_t kind, const uint8_t *p, size_t n)
{
	json_error_t e;
	json_t *m;

	if (kind == RPC_STDIN) {
		if (c->call && c->call->on_stdin)
			c->call->on_stdin(c->call, p, n, n == 0);
		return;
	}
	if (kind != RPC_JSON) {
		client_protocol_error(c, -32600, "unknown kind of frame");
		return;
	}
	m = json_loadb((const char *)p, n, JSON_REJECT_DUPLICATES, &e);
	if (json_is_object(m))
		client_request(c, m);
	else
		client_protocol_error(c, -32700, "not a JSON object");
	json_decref(m);
}

static void client_alloc(uv_handle_t *h, size_t n, uv_buf_t *b)
{
	static char room[65536]; /* used up before the next callback */

	(void)h;
	(void)n;
	*b = uv_buf_init(room, sizeof(room));
}

static void client_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
	struct client *c = container_of((uv_pipe_t *)s, struct client, pipe);

	if (n < 0 || (n > 0 && buf_add(&c->in, b->base, (size_t)n) < 0)) {
		client_close(c);
		return;
	}
	while (!c->closing && buf_len(&c->in) >= RPC_HEADER_BYTES) {
		const uint8_t *p = buf_data(&c->in);
		size_t len = get_le32(p);

		if (len > RPC_FRAME_MAX) {
			client_protocol_error(c, -32600, "a frame above 64 MiB");
			client_close(c);
			return;
		}
		if (buf_len(&c->in) < RPC_HEADER_BYTES + len)
			return;
		client_frame(c, p[4], p + RPC_HEADER_BYTES, len);
		buf_consume(&c->in, RPC_HEADER_BYTES + len);
	}
}

void call_pause(struct call *call, bool pause)
{
	struct client *c = call->client;

	if (!c || c->closing || c->paused == pause)
		return;
	c->paused = pause;
	if (pause)
		(void)uv_read_stop((uv_stream_t *)&c->pipe);
	else
		(void)uv_read_start((uv_stream_t *)&c->pipe, client_alloc, client_read);
}

static bool client_allowed(struct client *c)
{
	struct ucred cred;
	socklen_t n = sizeof(cred);
	uv_os_fd_t fd;

	if (uv_fileno((uv_handle_t *)&c->pipe, &fd) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0)
		return false;
	return cred.uid == geteuid();
}

static void on_connection(uv_stream_t *s, int status)
{
	struct rpc_server *sv = container_of((uv_pipe_t *)s, struct rpc_server, listener);
	struct client *c;

	if (status < 0 || !(c = calloc(1, sizeof(*c))))
		return;
	c->server = sv;
	buf_init(&c->in, RPC_FRAME_MAX + 65536 + RPC_HEADER_BYTES);
	(void)uv_pipe_init(sv->brain->loop, &c->pipe, 0);
	c->next = sv->clients;
	sv->clients = c;
	sv->n_clients++;
	if (uv_accept(s, (uv_stream_t *)&c->pipe) < 0 || sv->n_clients > CLIENTS_MAX ||
	    !client_allowed(c) ||
	    uv_read_start((uv_stream_t *)&c->pipe, client_alloc, client_read) < 0)
		client_close(c);
}

static void why(char **ret_why, const char *fmt, ...) _printf_(2, 3);
static void why(char **ret_why, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(ret_why, fmt, ap) < 0)
		*ret_why = NULL;
	va_end(ap);
}

/* Whether somebody listens there: the limbd of another state, as we hold the lock of ours. */
static bool socket_answers(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	return fd >= 0 && (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 || errno == EAGAIN);
}

/* Only a socket that a limbd left is taken away. */
static int socket_place(const char *path, char **ret_why)
{
	const char *slash = strrchr(path, '/');
	cleanup_free char *dir = slash ? strndup(path, MAX((size_t)(slash - path), (size_t)1))
				       : strdup(".");
	struct stat st;

	if (!dir)
		return -ENOMEM;
	if (stat(dir, &st) < 0) {
		why(ret_why,
		    "the socket '%s' cannot be made: '%s': %s; choose another with LIMB_SOCKET",
		    path, dir, strerror(errno));
		return -ENOENT;
	}
	if (lstat(path, &st) < 0)
		return 0;
	if (!S_ISSOCK(st.st_mode)) {
		why(ret_why,
		    "the socket '%s' cannot be made: something else is there; choose another with "
		    "LIMB_SOCKET",
		    path);
		return -EEXIST;
	}
	if (socket_answers(path)) {
		why(ret_why,
		    "the socket '%s' is that of another limbd; choose another with LIMB_SOCKET",
		    path);
		return -EADDRINUSE;
	}
	return unlink(path) < 0 ? -errno : 0;
}

int rpc_server_start(struct brain *b, char **ret_why)
{
	struct rpc_server *sv = calloc(1, sizeof(*sv));
	struct sockaddr_un a;
	int r;

	if (!sv)
		return -ENOMEM;
	sv->brain = b;
	if (strlen(b->socket_path) >= sizeof(a.sun_path)) {
		why(ret_why,
		    "the socket path '%s' is longer than %zu bytes; choose a shorter one with "
		    "LIMB_SOCKET or --state",
		    b->socket_path, sizeof(a.sun_path) - 1);
		free(sv);
		return -ENAMETOOLONG;
	}
	r = socket_place(b->socket_path, ret_why);
	if (r < 0) {
		free(sv);
		return r;
	}
	(void)uv_pipe_init(b->loop, &sv->listener, 0);
	r = uv_pipe_bind(&sv->listener, b->socket_path);
	if (r == 0 && chmod(b->socket_path, 0600) < 0)
		r = -errno;
	if (r == 0)
		r = uv_listen((uv_stream_t *)&sv->listener, BACKLOG, on_connection);
	b->rpc = sv;
	if (r < 0)
		why(ret_why, "cannot listen on '%s': %s; choose another with LIMB_SOCKET",
		    b->socket_path, strerror(-r));
	return r;
}

void rpc_server_stop(struct brain *b)
{
	struct rpc_server *sv = b->rpc;

	if (!sv || sv->stopping)
		return;
	sv->stopping = true;
	(void)unlink(b->socket_path);
	if (!uv_is_closing((uv_handle_t *)&sv->listener))
		uv_close((uv_handle_t *)&sv->listener, NULL);
	for (struct client *c = sv->clients, *next; c; c = next) {
		next = c->next;
		client_close(c);
	}
}
