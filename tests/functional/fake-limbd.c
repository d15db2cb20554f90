/*
 * fake-limbd SOCKET DIR - answers limb as limbd would (brain/rpc.h), with what a
 * test wants: the result of method M is DIR/M.json, an error of it DIR/M.error.
 * Requests are appended to DIR/requests.log, one JSON object a line.
 *
 * `exec` obeys the command: argv[0] is
 *	cat		stdin comes back on stdout
 *	flood N		N bytes on stdout, and "err" on stderr
 *	exit N		ends with N
 *	fail		an error with exit 125
 *	hang		nothing, until it is cancelled: DIR/cancelled appears
 *	deaf		nothing, not even then
 *	die		the connection closes
 *	garbage		no JSON
 * `down` is answered, and half a second later DIR/ended appears and it ends.
 * One connection at a time, until SIGTERM.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/io.h"
#include "base/util.h"
#include "brain/rpc.h"

static const char *arg_dir;

static int send_frame(int fd, enum rpc_kind kind, const void *data, size_t n)
{
	uint8_t header[RPC_HEADER_BYTES] = {0};

	put_le32(header, (uint32_t)n);
	header[4] = (uint8_t)kind;
	if (io_write_full(fd, header, sizeof(header), "fake.send") < 0)
		return -1;
	return io_write_full(fd, data, n, "fake.send");
}

static int send_json(int fd, json_t *o)
{
	char *text = json_dumps(o, JSON_COMPACT);
	int r = send_frame(fd, RPC_JSON, text, strlen(text));

	free(text);
	json_decref(o);
	return r;
}

/* The payload, or NULL at the end of the connection. */
static uint8_t *receive(int fd, uint8_t *ret_kind, size_t *ret_n)
{
	uint8_t header[RPC_HEADER_BYTES], *p;
	size_t n;

	if (io_read_full(fd, header, sizeof(header), "fake.receive") != sizeof(header))
		return NULL;
	n = get_le32(header);
	p = malloc(n + 1);
	if (!p || io_read_full(fd, p, n, "fake.receive") != (ssize_t)n) {
		free(p);
		return NULL;
	}
	*ret_kind = header[4];
	*ret_n = n;
	return p;
}

static int answer(int fd, json_t *result)
{
	return send_json(fd,
			 json_pack("{s:s, s:i, s:o}", "jsonrpc", "2.0", "id", 1, "result", result));
}

static int refuse(int fd, json_t *data)
{
	return send_json(fd, json_pack("{s:s, s:i, s:{s:i, s:s, s:o}}", "jsonrpc", "2.0", "id", 1,
				       "error", "code", 1, "message", "it failed", "data", data));
}

static json_t *load(const char *method, const char *suffix)
{
	char path[4096];

	(void)snprintf(path, sizeof(path), "%s/%s.%s", arg_dir, method, suffix);
	return json_load_file(path, 0, NULL);
}

static void touch(const char *name)
{
	char path[4096];

	(void)snprintf(path, sizeof(path), "%s/%s", arg_dir, name);
	(void)close(open(path, O_WRONLY | O_CREAT, 0600));
}

static int exited(int fd, int code)
{
	return answer(fd, json_pack("{s:s, s:s, s:i, s:b, s:s}", "job_id", "j-1", "state", "exited",
				    "exit_code", code, "timed_out", 0, "stdout", ""));
}

static int cat(int fd, bool has_stdin)
{
	uint8_t kind, *p;
	size_t n = has_stdin;
	int r = 0;

	while (n > 0 && r >= 0 && (p = receive(fd, &kind, &n))) {
		if (kind == RPC_STDIN && n > 0)
			r = send_frame(fd, RPC_STDOUT, p, n);
		free(p);
	}
	return r < 0 ? r : exited(fd, 0);
}

static int flood(int fd, size_t n)
{
	static uint8_t block[100000];
	int r = send_frame(fd, RPC_STDERR, "err\n", 4);

	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (uint8_t)(i % 251);
	while (r >= 0 && n > 0) {
		size_t m = MIN(n, sizeof(block));

		r = send_frame(fd, RPC_STDOUT, block, m);
		n -= m;
	}
	return r < 0 ? r : exited(fd, 0);
}

static int hang(int fd, bool deaf)
{
	uint8_t kind, *p;
	size_t n;

	touch("hanging");
	while ((p = receive(fd, &kind, &n))) {
		bool cancel = kind == RPC_JSON && memmem(p, n, "\"cancel\"", 8);

		free(p);
		if (cancel) {
			touch("cancelled");
			if (!deaf)
				return exited(fd, 143);
		}
	}
	touch("closed");
	return -1;
}

static int exec(int fd, json_t *params)
{
	json_t *argv = json_object_get(params, "argv");
	const char *what = json_string_value(json_array_get(argv, 0));
	const char *number = json_string_value(json_array_get(argv, 1));
	long n = number ? strtol(number, NULL, 10) : 0;

	if (!what)
		return exited(fd, 127);
	if (strcmp(what, "cat") == 0)
		return cat(fd, json_is_true(json_object_get(params, "stdin")));
	if (strcmp(what, "flood") == 0)
		return flood(fd, (size_t)n);
	if (strcmp(what, "exit") == 0)
		return exited(fd, (int)n);
	if (strcmp(what, "hang") == 0 || strcmp(what, "deaf") == 0)
		return hang(fd, what[0] == 'd');
	if (strcmp(what, "garbage") == 0)
		return send_frame(fd, RPC_JSON, "{", 1);
	if (strcmp(what, "fail") == 0)
		return refuse(fd, json_pack("{s:s, s:s, s:[s], s:s, s:i}", "error", "not_running",
					    "detail", "'x' is stopped", "next_steps",
					    "limb start x", "environment", "x", "exit", 125));
	return -1; /* die */
}

static int one_call(int fd, json_t *request)
{
	const char *method = json_string_value(json_object_get(request, "method")), *dst;
	json_t *o;

	if (!method)
		return -1;
	if (strcmp(method, "exec") == 0)
		return exec(fd, json_object_get(request, "params"));
	if (strcmp(method, "create") == 0)
		for (int i = 1; i <= 3; i++)
			(void)send_json(fd, json_pack("{s:s, s:s, s:{s:s, s:i, s:i}}", "jsonrpc",
						      "2.0", "method", "progress", "params", "text",
						      "copying", "files", i, "bytes", 1024 * i));
	dst = json_string_value(json_object_get(json_object_get(request, "params"), "dst"));
	if (strcmp(method, "cp") == 0 && dst && strcmp(dst, "-") == 0)
		(void)send_frame(fd, RPC_STDOUT, "bytes\0of it", 11);
	o = load(method, "json");
	if (o)
		(void)answer(fd, o);
	if (o && strcmp(method, "down") == 0) {
		/* limbd answers, and then has things to put away */
		(void)poll(NULL, 0, 500);
		touch("ended");
		exit(0);
	}
	if (o)
		return 0;
	o = load(method, "error");
	return o ? refuse(fd, o) : -1;
}

static void serve(int fd)
{
	uint8_t kind, *p;
	char path[4096];
	json_t *request;
	size_t n;
	int log, r = 0;

	(void)snprintf(path, sizeof(path), "%s/requests.log", arg_dir);
	log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	while (r >= 0 && (p = receive(fd, &kind, &n))) {
		request = kind == RPC_JSON ? json_loadb((char *)p, n, 0, NULL) : NULL;
		if (request) {
			p[n] = '\n';
			(void)io_write_full(log, p, n + 1, "fake.log");
			r = one_call(fd, request);
		}
		json_decref(request);
		free(p);
	}
	(void)close(log);
}

int main(int argc, char **argv)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int listener;

	if (argc != 3 || strlen(argv[1]) >= sizeof(sa.sun_path))
		return 2;
	arg_dir = argv[2];
	memcpy(sa.sun_path, argv[1], strlen(argv[1]) + 1);
	(void)signal(SIGPIPE, SIG_IGN);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&sa, sizeof(sa)) < 0 ||
	    listen(listener, 8) < 0) {
		perror(argv[1]);
		return 1;
	}
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			return 1;
		serve(fd);
		(void)close(fd);
	}
}
