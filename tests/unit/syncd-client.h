/*
 * syncd-client.h - a brain for tests: starts the real limb-syncd on private
 * directories and speaks frames to it through `limb-syncd attach`.
 *
 *	client_make(&c)			directories below $TMPDIR, no process yet
 *	client_attach(&c)		attach, HELLO read
 *	client_welcome(&c, mode)
 *	client_send(&c, type, &msg.base, bulk, n)
 *	m = client_wait(&c, WIRE_X)	the next message of that type, others are dropped
 *	client_remove(&c)		stop, nothing is left
 *
 * Everything fails the test by itself when it goes wrong or takes 20 s.
 */
#ifndef TESTS_SYNCD_CLIENT_H
#define TESTS_SYNCD_CLIENT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/sha256.h"
#include "base/util.h"
#include "wire/frame.h"
#include "wire/wire.pb-c.h"

#define CLIENT_ENV "00112233445566778899aabbccddeeff"
enum { CLIENT_PATIENCE_MS = 20000, CLIENT_FIRST_NODE = 1000000 };

struct client {
	char top[200], dir[220], root[220];
	int fd; /* stdin and stdout of the attach */
	pid_t pid;
	struct wframe_decoder decoder;
	struct wframe frame;
	ProtobufCMessage *last; /* what client_wait gave last */
	uint64_t request, incarnation;
	unsigned mode;
	uint64_t capabilities;	   /* WELCOME's */
	void (*before_exec)(void); /* in each limb-syncd */
	bool closed;		   /* the stream has ended */

	/* JOB_OUTPUT that went by while waiting for something else */
	const char *job;
	struct buf out[2];
	uint64_t end[2], left_out[2];
};

static const ProtobufCMessageDescriptor *client_type(uint8_t type)
{
	switch (type) {
	case WIRE_HELLO: return &limbwire__hello__descriptor;
	case WIRE_PING:
	case WIRE_PONG: return &limbwire__ping__descriptor;
	case WIRE_ERROR: return &limbwire__error__descriptor;
	case WIRE_TREE_GET: return &limbwire__tree_get__descriptor;
	case WIRE_APPLIED:
	case WIRE_FROZEN: return &limbwire__done__descriptor;
	case WIRE_PULL: return &limbwire__pull__descriptor;
	case WIRE_CHANGE: return &limbwire__wire_change__descriptor;
	case WIRE_RESTORED: return &limbwire__restored__descriptor;
	case WIRE_BARRIER_DONE: return &limbwire__barrier_done__descriptor;
	case WIRE_JOB_STARTED: return &limbwire__job_started__descriptor;
	case WIRE_JOB_OUTPUT: return &limbwire__job_output__descriptor;
	case WIRE_JOB_EXIT: return &limbwire__job_exit__descriptor;
	case WIRE_JOB_LIST: return &limbwire__job_list__descriptor;
	case WIRE_PS_DONE: return &limbwire__ps_done__descriptor;
	default: return NULL;
	}
}

static inline void client_make(struct client *c)
{
	const char *tmp = getenv("TMPDIR");

	memset(c, 0, sizeof(*c));
	c->fd = -1;
	c->incarnation = 1;
	c->mode = LIMBWIRE__WELCOME__MODE__MODE_HOLD;
	(void)snprintf(c->top, sizeof(c->top), "%.150s/limb-syncd-XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(c->top));
	(void)snprintf(c->dir, sizeof(c->dir), "%s/private", c->top);
	(void)snprintf(c->root, sizeof(c->root), "%s/root", c->top);
	assert_int_equal(mkdir(c->root, 0755), 0);
}

static inline pid_t client_spawn(struct client *c, const char *command, int in, int out)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		if (in >= 0)
			(void)dup2(in, STDIN_FILENO);
		if (out >= 0)
			(void)dup2(out, STDOUT_FILENO);
		if (c->before_exec)
			c->before_exec();
		if (strcmp(command, "stop") == 0)
			execlp("limb-syncd", "limb-syncd", "stop", "--dir", c->dir, NULL);
		else
			execlp("limb-syncd", "limb-syncd", command, "--dir", c->dir, "--root",
			       c->root, "--env", CLIENT_ENV, NULL);
		_exit(127);
	}
	return pid;
}

static inline void client_send(struct client *c, uint8_t type, const ProtobufCMessage *m,
			       const void *bulk, size_t n)
{
	_cleanup_(buf_done) struct buf out = BUF_INIT(0);
	size_t len = protobuf_c_message_get_packed_size(m);
	cleanup_free uint8_t *body = malloc(len + 1);

	(void)protobuf_c_message_pack(m, body);
	assert_int_equal(wframe_encode(&out, type, body, len, bulk, n, false), 0);
	assert_int_equal(io_write_full(c->fd, buf_data(&out), buf_len(&out), "test.send"), 0);
}

/* The next frame: true; false at the end of the stream or after ms. */
static inline bool client_next(struct client *c, int ms)
{
	uint64_t end = clock_mono_ms() + (uint64_t)ms;
	int r;

	while ((r = wframe_decoder_next(&c->decoder, &c->frame)) == 0) {
		struct pollfd p = {c->fd, POLLIN, 0};
		uint64_t now = clock_mono_ms();
		uint8_t *mem;
		ssize_t n;

		if (now >= end || poll(&p, 1, (int)(end - now)) == 0)
			return false;
		assert_int_equal(wframe_decoder_reserve(&c->decoder, 65536, &mem), 0);
		n = TEMP_FAILURE_RETRY(read(c->fd, mem, 65536));
		if (n <= 0) {
			c->closed = true;
			return false;
		}
		wframe_decoder_commit(&c->decoder, (size_t)n);
	}
	assert_true(r > 0);
	return true;
}

/* Collects output of c->job; what is sent again after a re-attach is taken once. */
static inline void client_output(struct client *c, const Limbwire__JobOutput *m)
{
	unsigned i = m->stream - 1;
	uint64_t skip;

	if (!c->job || strcmp(c->job, m->job) != 0)
		return;
	assert_true(i < 2);
	if (m->offset + c->frame.bulk_len <= c->end[i])
		return;
	skip = m->offset < c->end[i] ? c->end[i] - m->offset : 0;
	if (m->offset > c->end[i])
		c->left_out[i] += m->offset - c->end[i];
	assert_int_equal(buf_add(&c->out[i], c->frame.bulk + skip, c->frame.bulk_len - skip), 0);
	c->end[i] = m->offset + c->frame.bulk_len;
}

/* The message of the next frame of that type, until the next call; NULL if none comes. */
static inline void *client_try(struct client *c, uint8_t type, int ms)
{
	uint64_t end = clock_mono_ms() + (uint64_t)ms;

	for (;;) {
		uint64_t now = clock_mono_ms();
		ProtobufCMessage *m;

		if (!client_next(c, now < end ? (int)(end - now) : 0))
			return NULL;
		if (!client_type(c->frame.type))
			continue;
		m = protobuf_c_message_unpack(client_type(c->frame.type), NULL, c->frame.body_len,
					      c->frame.body);
		assert_non_null(m);
		if (c->frame.type == WIRE_JOB_OUTPUT)
			client_output(c, (Limbwire__JobOutput *)m);
		if (c->frame.type == type) {
			if (c->last)
				protobuf_c_message_free_unpacked(c->last, NULL);
			c->last = m;
			return m;
		}
		if (c->frame.type == WIRE_ERROR)
			print_message("# ERROR %d %s\n", ((Limbwire__Error *)m)->error,
				      ((Limbwire__Error *)m)->detail);
		protobuf_c_message_free_unpacked(m, NULL);
	}
}

static inline void *client_wait(struct client *c, uint8_t type)
{
	void *m = client_try(c, type, CLIENT_PATIENCE_MS);

	if (!m)
		fail_msg("no %s came", wframe_type_name(type));
	return m;
}

/* The other side ends the stream by itself, not because we are silent (it would ask first);
 * other frames that come before do not matter. */
static inline void client_wait_closed(struct client *c)
{
	while (client_next(c, CLIENT_PATIENCE_MS))
		assert_int_not_equal(c->frame.type, WIRE_PING);
	assert_true(c->closed);
}

static inline void client_detach(struct client *c)
{
	int status;

	if (c->fd < 0)
		return;
	(void)close(c->fd);
	c->fd = -1;
	assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	wframe_decoder_done(&c->decoder);
}

static inline Limbwire__Hello *client_attach(struct client *c)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	c->pid = client_spawn(c, "attach", pair[1], pair[1]);
	(void)close(pair[1]);
	c->fd = pair[0];
	c->closed = false;
	wframe_decoder_init(&c->decoder);
	return client_wait(c, WIRE_HELLO);
}

static inline void client_welcome(struct client *c)
{
	static const uint8_t env[16] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
					0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};
	Limbwire__Welcome m = LIMBWIRE__WELCOME__INIT;

	assert_int_equal(io_write_full(c->fd, WIRE_START, WIRE_START_BYTES, "test.send"), 0);
	m.protocol = 1;
	m.environment_id = (ProtobufCBinaryData){sizeof(env), (uint8_t *)env};
	m.incarnation = c->incarnation;
	m.node_first = CLIENT_FIRST_NODE;
	m.node_end = 2000000;
	m.mode = (Limbwire__Welcome__Mode)c->mode;
	m.capabilities = c->capabilities;
	client_send(c, WIRE_WELCOME, &m.base, NULL, 0);
}

/* Attached and welcomed. */
static inline void client_join(struct client *c)
{
	(void)client_attach(c);
	client_welcome(c);
}

/* What the daemon and the holders had to say. */
static inline void client_check_log(const struct client *c)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	char path[300];

	(void)snprintf(path, sizeof(path), "%s/log", c->dir);
	if (file_read(AT_FDCWD, path, &b) < 0 || buf_len(&b) == 0)
		return;
	if (memmem(buf_data(&b), buf_len(&b), "error:", 6) ||
	    memmem(buf_data(&b), buf_len(&b), "Sanitizer", 9))
		fail_msg("%.*s", (int)buf_len(&b), (const char *)buf_data(&b));
}

static inline void client_remove(struct client *c)
{
	int status;
	pid_t pid;

	client_detach(c);
	pid = client_spawn(c, "stop", -1, -1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	if (c->last)
		protobuf_c_message_free_unpacked(c->last, NULL);
	buf_done(&c->out[0]);
	buf_done(&c->out[1]);
	client_check_log(c);
	assert_int_equal(file_remove_tree(AT_FDCWD, c->top), 0);
}

/* ---- jobs ---- */

struct client_job {
	const char *id, *cwd;
	const char *const *argv; /* or: */
	const char *sh;
	uint64_t timeout_ms, limit_bytes;
	bool tty, stdin_open;
};

static inline void client_start(struct client *c, const struct client_job *job)
{
	Limbwire__JobStart m = LIMBWIRE__JOB_START__INIT;
	ProtobufCBinaryData argv[16], env[2];
	char mark[100];
	const char *sh[] = {"sh", "-c", job->sh, NULL};
	const char *const *a = job->argv ? job->argv : sh;

	c->job = job->id;
	for (unsigned i = 0; i < 2; i++) {
		buf_clear(&c->out[i]);
		c->end[i] = c->left_out[i] = 0;
	}
	m.request = ++c->request;
	m.job = (char *)job->id;
	for (; a[m.n_argv]; m.n_argv++)
		argv[m.n_argv] = (ProtobufCBinaryData){strlen(a[m.n_argv]), (uint8_t *)a[m.n_argv]};
	m.argv = argv;
	(void)snprintf(mark, sizeof(mark), "LIMB_JOB=%s", job->id);
	env[0] = (ProtobufCBinaryData){18, (uint8_t *)"PATH=/usr/bin:/bin"};
	env[1] = (ProtobufCBinaryData){strlen(mark), (uint8_t *)mark};
	m.env = env;
	m.n_env = 2;
	if (job->cwd)
		m.cwd = (ProtobufCBinaryData){strlen(job->cwd), (uint8_t *)job->cwd};
	m.timeout_ms = job->timeout_ms;
	m.output_limit_bytes = job->limit_bytes;
	m.tty = job->tty;
	m.stdin_open = job->stdin_open;
	client_send(c, WIRE_JOB_START, &m.base, NULL, 0);
}

static inline Limbwire__JobExit *client_run(struct client *c, const struct client_job *job)
{
	Limbwire__JobStarted *started;

	client_start(c, job);
	started = client_wait(c, WIRE_JOB_STARTED);
	assert_int_equal(started->error, 0);
	return client_wait(c, WIRE_JOB_EXIT);
}

static inline void client_forget(struct client *c, const char *id)
{
	Limbwire__JobForget m = LIMBWIRE__JOB_FORGET__INIT;

	m.job = (char *)id;
	client_send(c, WIRE_JOB_FORGET, &m.base, NULL, 0);
}

static inline bool client_out_is(const struct client *c, unsigned i, const char *text)
{
	return buf_len(&c->out[i]) == strlen(text) &&
	       (*text == 0 || memcmp(buf_data(&c->out[i]), text, strlen(text)) == 0);
}

#endif
