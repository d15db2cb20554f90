#include "brain/link.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "brain/attach.h"
#include "brain/intake.h"
#include "brain/commit.h"
#include "brain/feed.h"
#include "brain/job.h"
#include "brain/life.h"
#include "brain/provider.h"
#include "journal/pack.h"

enum {
	IN_LIMIT = 16 << 20,
	OUT_LIMIT = 256 << 20,
	READ_BYTES = 256 << 10,
	IN_KEPT = 512 << 10,  /* what a quiet line keeps of its buffer */
	TURN_BYTES = 4 << 20, /* entries taken in one turn of the loop */
	PACK_ZEROS = 1 << 20,
	RETRY_FIRST_MS = 100,
	RETRY_MAX_MS = 10000,
	HELLO_MS = 20000,
	ZSTD_LEVEL = 1,
};

struct expectation {
	struct expectation *next;
	struct env *env;
	uint64_t request;
	link_answer_fn fn;
	void *userdata;
	uv_timer_t timer;
};

/* Bytes for limb-ingest; a descriptor goes with the first of them. */
struct out {
	struct out *next;
	size_t n, done;
	int fd;
	uint8_t bytes[];
};

struct link {
	struct env *env;
	uv_process_t transport, ingest;
	bool transport_alive, ingest_alive;
	/* libuv wants each handle that was initialised closed, once */
	bool transport_made, ingest_made, poll_made;
	bool starting; /* the provider's answer is awaited */
	int sock;
	uv_poll_t poll;
	uv_timer_t hello_timer;
	bool reading, writing, up, ending;
	struct buf in;
	struct out *out_head, **out_tail;
	size_t out_bytes;
	unsigned closing; /* handles that still close */
};

static struct expectation *expectations; /* of all environments; few */
static uint64_t last_request;

/* ---- requests ---- */

static void expectation_closed(uv_handle_t *h)
{
	free(container_of((uv_timer_t *)h, struct expectation, timer));
}

static void expectation_end(struct expectation *e)
{
	for (struct expectation **p = &expectations; *p; p = &(*p)->next) {
		if (*p == e) {
			*p = e->next;
			break;
		}
	}
	uv_close((uv_handle_t *)&e->timer, expectation_closed);
}

static void expectation_late(uv_timer_t *t)
{
	struct expectation *e = container_of(t, struct expectation, timer);

	expectation_end(e);
	e->fn(e->env, -ETIMEDOUT, NULL, e->userdata);
}

int link_expect(struct env *env, uint64_t deadline_ms, link_answer_fn fn, void *userdata,
		uint64_t *ret_request)
{
	struct expectation *e;

	if (!link_up(env))
		return -ENOTCONN;
	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	e->env = env;
	e->request = ++last_request;
	e->fn = fn;
	e->userdata = userdata;
	(void)uv_timer_init(env->brain->loop, &e->timer);
	(void)uv_timer_start(&e->timer, expectation_late, deadline_ms, 0);
	e->next = expectations;
	expectations = e;
	*ret_request = e->request;
	return 0;
}

static struct expectation *expectation_find(struct env *env, uint64_t request)
{
	for (struct expectation *e = expectations; e; e = e->next)
		if (e->request == request && e->env == env)
			return e;
	return NULL;
}

void link_answer(struct env *env, uint64_t request, int r, const struct entry_head *h, bool keep)
{
	struct expectation *e = expectation_find(env, request);

	if (!e)
		return; /* its deadline has passed */
	if (!keep)
		expectation_end(e);
	e->fn(env, r, h, e->userdata);
}

void link_forget(struct env *env, uint64_t request)
{
	struct expectation *e = expectation_find(env, request);

	if (e)
		expectation_end(e);
}

static void expectations_fail(struct env *env, int r)
{
	struct expectation *e;

	do {
		for (e = expectations; e && e->env != env; e = e->next)
			;
		if (e) {
			expectation_end(e);
			e->fn(env, r, NULL, e->userdata);
		}
	} while (e);
}

/* ---- ending ---- */

static void link_handle_closed(uv_handle_t *h)
{
	struct link *l = h->data;
	struct out *o;

	if (--l->closing)
		return;
	while ((o = l->out_head)) {
		l->out_head = o->next;
		if (o->fd >= 0)
			(void)close(o->fd);
		free(o);
	}
	buf_done(&l->in);
	if (l->sock >= 0)
		(void)close(l->sock);
	free(l);
}

static void link_maybe_free(struct link *l)
{
	uv_handle_t *handles[4];
	unsigned n = 0;

	if (!l->ending || l->starting || l->transport_alive || l->ingest_alive || l->closing)
		return;
	handles[n++] = (uv_handle_t *)&l->hello_timer;
	if (l->poll_made)
		handles[n++] = (uv_handle_t *)&l->poll;
	if (l->transport_made)
		handles[n++] = (uv_handle_t *)&l->transport;
	if (l->ingest_made)
		handles[n++] = (uv_handle_t *)&l->ingest;
	l->closing = n;
	for (unsigned i = 0; i < n; i++) {
		handles[i]->data = l;
		uv_close(handles[i], link_handle_closed);
	}
}

static void link_end(struct env *env, const char *why)
{
	struct link *l = env->link;

	if (!l)
		return;
	log_debug("environment '%s': line ends: %s", env->name, why);
	env->link = NULL;
	l->ending = true;
	l->up = false;
	if (l->poll_made)
		(void)uv_poll_stop(&l->poll);
	(void)uv_timer_stop(&l->hello_timer);
	if (l->ingest_alive)
		(void)uv_process_kill(&l->ingest, SIGKILL);
	if (l->transport_alive)
		(void)uv_process_kill(&l->transport, SIGTERM);
	(void)commit_drop_pack(env);
	feed_stop(env);
	expectations_fail(env, -ENOTCONN);
	job_line_lost(env);
	link_maybe_free(l);
}

static void retry_now(uv_timer_t *t)
{
	struct env *env = container_of(t, struct env, retry);

	if (env->wanted && !env->link && !env->brain->stopping)
		life_revive(env);
}

void link_stop(struct env *env, const char *why)
{
	if (env->retry_ready)
		(void)uv_timer_stop(&env->retry);
	link_end(env, why);
}

void link_lost(struct env *env, const char *why)
{
	uint64_t ms = RETRY_FIRST_MS;

	if (link_up(env))
		env->attach_failures = 0;
	link_end(env, why);
	if (!env->wanted || env->hostile || env->brain->stopping)
		return;
	for (unsigned i = 0; i < env->attach_failures && ms < RETRY_MAX_MS; i++)
		ms *= 2;
	env->attach_failures++;
	if (!env->retry_ready) {
		(void)uv_timer_init(env->brain->loop, &env->retry);
		env->retry_ready = true;
	}
	(void)uv_timer_start(&env->retry, retry_now, MIN(ms, (uint64_t)RETRY_MAX_MS), 0);
}

static void transport_exit(uv_process_t *p, int64_t status, int sig)
{
	struct link *l = container_of(p, struct link, transport);

	(void)status;
	(void)sig;
	l->transport_alive = false;
	/* limb-ingest sees the end of the stream and says the rest itself. */
	link_maybe_free(l);
}

static void ingest_exit(uv_process_t *p, int64_t status, int sig)
{
	struct link *l = container_of(p, struct link, ingest);

	l->ingest_alive = false;
	if (!l->ending) {
		if (sig || (status && status != 3))
			log_warning("environment '%s': limb-ingest ended (%s %d)", l->env->name,
				    sig ? "signal" : "status", sig ? sig : (int)status);
		/* What it wrote before is still in the socket: the poll reads it first. */
	}
	link_maybe_free(l);
}

/* ---- output ---- */

static void link_poll_update(struct link *l);

static int out_write(struct link *l, struct out *o)
{
	struct iovec iov = {.iov_base = o->bytes + o->done, .iov_len = o->n - o->done};
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *cm;
	ssize_t n;

	if (o->fd >= 0) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
		cm = CMSG_FIRSTHDR(&msg);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cm), &o->fd, sizeof(int));
	}
	do
		n = sendmsg(l->sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (o->fd >= 0) {
		(void)close(o->fd);
		o->fd = -1;
	}
	o->done += (size_t)n;
	l->out_bytes -= (size_t)n;
	return 0;
}

static int link_flush(struct link *l)
{
	struct out *o;
	int r;

	while ((o = l->out_head)) {
		r = out_write(l, o);
		if (r == -EAGAIN)
			break;
		if (r < 0)
			return r;
		if (o->done < o->n)
			continue;
		l->out_head = o->next;
		if (!l->out_head)
			l->out_tail = &l->out_head;
		free(o);
	}
	link_poll_update(l);
	return 0;
}

/* An entry of `type`: a fixed part and bytes; fd (or -1) is taken over. */
static int link_put(struct env *env, enum entry_type type, const void *fixed, size_t fixed_n,
		    const void *data, size_t n, int fd)
{
	struct link *l = env->link;
	struct entry_head head = {.type = (uint16_t)type};
	size_t total = ALIGN_UP(sizeof(head) + fixed_n + n, (size_t)8);
	struct out *o;

	if (!l || l->out_bytes + total > OUT_LIMIT || !(o = calloc(1, sizeof(*o) + total))) {
		if (fd >= 0)
			(void)close(fd);
		return !l ? -ENOTCONN : l->out_bytes + total > OUT_LIMIT ? -ENOBUFS : -ENOMEM;
	}
	head.length = (uint32_t)total;
	memcpy(o->bytes, &head, sizeof(head));
	if (fixed_n)
		memcpy(o->bytes + sizeof(head), fixed, fixed_n);
	if (n)
		memcpy(o->bytes + sizeof(head) + fixed_n, data, n);
	o->n = total;
	o->fd = fd;
	*l->out_tail = o;
	l->out_tail = &o->next;
	l->out_bytes += total;
	/* Failure shows at the read side, where the line is ended once. */
	(void)link_flush(l);
	return 0;
}

int link_send_raw(struct env *env, const void *frames, size_t n)
{
	const uint32_t len[2] = {(uint32_t)n, 0}; /* as in struct entry_send */

	return link_put(env, ENTRY_SEND, len, sizeof(len), frames, n, -1);
}

int link_send_start(struct env *env, uint64_t durable_number)
{
	return link_put(env, ENTRY_START, &durable_number, sizeof(durable_number), NULL, 0, -1);
}

int link_send(struct env *env, enum wire_type type, const ProtobufCMessage *msg, const void *bulk,
	      size_t bulk_len)
{
	_cleanup_(buf_done) struct buf frame = BUF_INIT(WIRE_BODY_MAX + WIRE_BULK_MAX + 64);
	cleanup_free uint8_t *body = NULL;
	size_t n = msg ? protobuf_c_message_get_packed_size(msg) : 0;
	int r;

	if (!env->link)
		return -ENOTCONN;
	if (n > WIRE_BODY_MAX)
		return -E2BIG;
	body = malloc(n ? n : 1);
	if (!body)
		return -ENOMEM;
	if (msg)
		(void)protobuf_c_message_pack(msg, body);
	r = wframe_encode(&frame, (uint8_t)type, body, n, bulk, bulk_len, false);
	if (r < 0)
		return r;
	return link_send_raw(env, buf_data(&frame), buf_len(&frame));
}

size_t link_queued(const struct env *env)
{
	return env->link ? env->link->out_bytes : 0;
}

int link_send_pack(struct env *env)
{
	struct entry_pack p = {.offset = PACK_HEADER_BYTES,
			       .seal_bytes = PACK_SEAL_BYTES,
			       .zstd_level = ZSTD_LEVEL};
	cleanup_close int fd = -1, copy = -1;
	int r;

	r = store_pack_create(env->brain->store, env->id, PACK_ZEROS, p.pack_id, &fd);
	if (r < 0)
		return r;
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (copy < 0)
		return -errno;
	r = commit_set_pack(env, p.pack_id, fd, PACK_ZEROS);
	if (r < 0)
		return r;
	(void)take_fd(&fd);
	return link_put(env, ENTRY_PACK, (const uint8_t *)&p + sizeof(p.head),
			sizeof(p) - sizeof(p.head), NULL, 0, take_fd(&copy));
}

/* ---- input ---- */

/* A handler returns 0, or negative: the entry breaks a rule that limb-ingest should have
 * kept, or cannot be taken; the line ends. */
typedef int (*entry_fn)(struct env *env, const struct entry_head *e);

static int on_answer_request_first(struct env *env, const struct entry_head *e)
{
	/* DONE, BARRIER_DONE, RESTORED, PS_DONE: the request is the first field. */
	const struct entry_done *d = (const struct entry_done *)e;

	link_answer(env, d->request, 0, e, false);
	return 0;
}

static int on_tree_part(struct env *env, const struct entry_head *e)
{
	const struct entry_tree_part *p = (const struct entry_tree_part *)e;

	link_answer(env, p->request, 0, e, !p->last);
	return 0;
}

static int on_error(struct env *env, const struct entry_head *e)
{
	const struct entry_text *t = (const struct entry_text *)e;

	link_answer(env, t->request, t->error > 0 ? -t->error : -EIO, e, false);
	return 0;
}

static int on_pack_full(struct env *env, const struct entry_head *e)
{
	int r;

	(void)e;
	r = commit_drop_pack(env);
	if (r < 0)
		return r;
	return link_send_pack(env);
}

static int on_bye(struct env *env, const struct entry_head *e)
{
	(void)env;
	(void)e;
	return -ENOTCONN;
}

static int on_hostile(struct env *env, const struct entry_head *e)
{
	const struct entry_text *t = (const struct entry_text *)e;

	env->hostile = true;
	(void)env_set_reason(env, "lies", "%.*s; look at it, then run: limb start %s",
			     (int)MIN(t->len, (uint32_t)ENTRY_TEXT_MAX), (const char *)(t + 1),
			     env->name);
	log_warning("environment '%s' broke a rule of the wire and is cut off: %.*s", env->name,
		    (int)MIN(t->len, (uint32_t)ENTRY_TEXT_MAX), (const char *)(t + 1));
	return -EPROTO;
}

static int on_pong(struct env *env, const struct entry_head *e)
{
	(void)env;
	(void)e;
	return 0;
}

static const struct {
	entry_fn fn;
	bool needs_commit; /* appends records: waits for the round that runs */
	bool before_welcome;
} handlers[] = {
	[ENTRY_HELLO] = {attach_on_hello, true, true},
	[ENTRY_PLACES] = {intake_on_places, true, false},
	[ENTRY_CHANGE] = {intake_on_change, true, false},
	[ENTRY_BARRIER_DONE] = {on_answer_request_first, true, false},
	[ENTRY_STATUS] = {attach_on_status, true, false},
	[ENTRY_TREE_GET] = {feed_on_tree_get, false, false},
	[ENTRY_TREE_PART] = {on_tree_part, false, false},
	[ENTRY_DONE] = {on_answer_request_first, true, false},
	[ENTRY_PULL] = {feed_on_pull, false, false},
	[ENTRY_RESTORED] = {on_answer_request_first, true, false},
	[ENTRY_JOB_STARTED] = {job_on_started, false, false},
	[ENTRY_JOB_OUTPUT] = {job_on_output, false, false},
	[ENTRY_JOB_EXIT] = {job_on_exit, true, false},
	[ENTRY_JOB_LIST] = {job_on_list, true, false},
	[ENTRY_PS_DONE] = {on_answer_request_first, false, false},
	[ENTRY_ERROR] = {on_error, false, true},
	[ENTRY_BYE] = {on_bye, false, true},
	[ENTRY_PACK_FULL] = {on_pack_full, true, true},
	[ENTRY_HOSTILE] = {on_hostile, false, true},
	[ENTRY_PONG] = {on_pong, false, false},
};

/* 1: taken; 0: not now; negative: the line ends. */
static int link_take(struct link *l, const struct entry_head *e)
{
	struct env *env = l->env;
	const char *why = "";
	int r;

	if (e->type >= ARRAY_SIZE(handlers) || !handlers[e->type].fn)
		return -EPROTO;
	if (!l->up && !handlers[e->type].before_welcome)
		return -EPROTO;
	if (handlers[e->type].needs_commit && commit_busy(env))
		return 0;
	r = entry_check(e, &why);
	if (r < 0) {
		log_warning("environment '%s': limb-ingest sent what does not add up: %s",
			    env->name, why);
		return r;
	}
	env->last_word_ms = clock_mono_ms();
	r = handlers[e->type].fn(env, e);
	return r < 0 ? r : 1;
}

static void link_process(struct link *l)
{
	struct env *env = l->env;
	size_t taken = 0;
	int r = 0;

	while (env->link == l && taken < TURN_BYTES) {
		ssize_t whole = entry_whole(buf_data(&l->in), buf_len(&l->in));

		r = (int)MIN(whole, (ssize_t)0);
		if (whole <= 0)
			break;
		r = link_take(l, (const struct entry_head *)buf_data(&l->in));
		if (r <= 0 || env->link != l)
			break;
		buf_consume(&l->in, (size_t)whole);
		taken += (size_t)whole;
	}
	if (env->link != l)
		return;
	if (r < 0) {
		link_lost(env, r == -ENOTCONN ? "the line fell" : strerror(-r));
		return;
	}
	if (buf_len(&l->in) == 0 && l->in.cap > IN_KEPT) {
		buf_done(&l->in);
		buf_init(&l->in, IN_LIMIT + READ_BYTES);
	}
	link_poll_update(l);
}

static int link_read(struct link *l)
{
	uint8_t *p;
	ssize_t n;
	int r;

	r = buf_reserve(&l->in, READ_BYTES, &p);
	if (r < 0)
		return r;
	n = io_read_some(l->sock, p, READ_BYTES, "link.read");
	if (n == -EAGAIN)
		return 0;
	if (n == 0)
		return -ENOTCONN;
	if (n < 0)
		return (int)n;
	buf_commit(&l->in, (size_t)n);
	return 1;
}

static void link_poll(uv_poll_t *p, int status, int events)
{
	struct link *l = container_of(p, struct link, poll);
	struct env *env = l->env;
	int r = 0;

	if (status < 0)
		r = status;
	if (r == 0 && events & UV_WRITABLE)
		r = link_flush(l);
	if (r == 0 && events & (UV_READABLE | UV_DISCONNECT))
		r = link_read(l);
	if (r < 0) {
		link_process(l); /* what came before the end counts */
		if (env->link == l)
			link_lost(env, "limb-ingest has ended");
		return;
	}
	link_process(l);
	if (env->link == l && events & UV_WRITABLE)
		feed_drained(env);
}

static void link_poll_update(struct link *l)
{
	int events = 0;

	if (l->ending || !l->poll_made)
		return;
	if (buf_len(&l->in) < IN_LIMIT / 2)
		events |= UV_READABLE;
	if (l->out_head)
		events |= UV_WRITABLE;
	(void)uv_poll_start(&l->poll, events, link_poll);
}

void link_resume(struct env *env)
{
	if (env->link)
		link_process(env->link);
}

bool link_up(const struct env *env)
{
	return env->link && env->link->up;
}

void link_set_up(struct env *env)
{
	env->link->up = true;
	(void)uv_timer_stop(&env->link->hello_timer);
}

int link_transport_pid(const struct env *env)
{
	return env->link && env->link->transport_alive ? env->link->transport.pid : 0;
}

int link_ingest_pid(const struct env *env)
{
	return env->link && env->link->ingest_alive ? env->link->ingest.pid : 0;
}

/* ---- starting ---- */

static void hello_late(uv_timer_t *t)
{
	struct link *l = container_of(t, struct link, hello_timer);

	(void)env_set_reason(l->env, "line_down", "no word from limb-syncd in %d s; trying again",
			     HELLO_MS / 1000);
	link_lost(l->env, "no HELLO in time");
}

static int spawn(struct env *env, uv_process_t *p, const char *file, char **argv, char **envp,
		 int in, int out, int err, int extra, uv_exit_cb cb)
{
	uv_stdio_container_t io[4] = {
		{.flags = in >= 0 ? UV_INHERIT_FD : UV_IGNORE, .data.fd = in},
		{.flags = out >= 0 ? UV_INHERIT_FD : UV_IGNORE, .data.fd = out},
		{.flags = UV_INHERIT_FD, .data.fd = err},
		{.flags = UV_INHERIT_FD, .data.fd = extra},
	};
	uv_process_options_t o = {
		.file = file,
		.args = argv,
		.env = envp,
		.cwd = "/",
		.exit_cb = cb,
		.stdio = io,
		.stdio_count = extra >= 0 ? 4 : 3,
	};

	return uv_spawn(env->brain->loop, p, &o);
}

/* As root each environment's limb-ingest has a user of its own, far above anybody's. */
static void ingest_uid(const struct env *env, char *out, size_t size)
{
	(void)snprintf(out, size, "%u", (1u << 30) + (get_le32(env->id) & 0xffffff));
}

static int link_spawn_ingest(struct link *l, int in, int out, int sock)
{
	cleanup_free char *file = brain_helper(l->env->brain, "limb-ingest");
	char uid[16];
	char *argv[] = {file, NULL, NULL, NULL};
	int r;

	if (!file)
		return -ENOMEM;
	if (geteuid() == 0) {
		ingest_uid(l->env, uid, sizeof(uid));
		argv[1] = (char *)"--uid";
		argv[2] = uid;
	}
	l->ingest_made = true;
	r = spawn(l->env, &l->ingest, file, argv, NULL, in, out, STDERR_FILENO, sock, ingest_exit);
	if (r == 0)
		l->ingest_alive = true;
	return r;
}

static void link_spawn(struct env *env, char **argv, char **envp)
{
	struct link *l = env->link;
	int to[2] = {-1, -1}, from[2] = {-1, -1}, pair[2] = {-1, -1};
	int r;

	if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
		r = -errno;
		goto out;
	}
	(void)fcntl(to[1], F_SETPIPE_SZ, 1 << 20);
	(void)fcntl(from[1], F_SETPIPE_SZ, 1 << 20);
	r = fcntl(pair[0], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
	if (r < 0)
		goto out;
	(void)setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &(int){1 << 20}, sizeof(int));
	(void)setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &(int){1 << 20}, sizeof(int));
	l->transport_made = true;
	r = spawn(env, &l->transport, argv[0], argv, envp, to[0], from[1], STDERR_FILENO, -1,
		  transport_exit);
	if (r < 0)
		goto out;
	l->transport_alive = true;
	r = link_spawn_ingest(l, from[0], to[1], pair[1]);
	if (r < 0)
		goto out;
	l->sock = take_fd(&pair[0]);
	r = uv_poll_init(env->brain->loop, &l->poll, l->sock);
	if (r < 0)
		goto out;
	l->poll_made = true;
	link_poll_update(l);
	r = link_send_pack(env);
out:
	for (size_t i = 0; i < 2; i++) {
		if (to[i] >= 0)
			(void)close(to[i]);
		if (from[i] >= 0)
			(void)close(from[i]);
		if (pair[i] >= 0)
			(void)close(pair[i]);
	}
	if (r < 0) {
		log_warning_errno(r, "environment '%s': cannot start its line", env->name);
		(void)env_set_reason(env, "line_down", "cannot start '%s': %s", argv[0],
				     strerror(-r));
		link_lost(env, "cannot start");
	}
}

static void on_command(struct env *env, const struct provider_error *err, json_t *answer,
		       void *userdata)
{
	struct link *l = userdata;
	cleanup_free char **argv = NULL, **envp = NULL;

	l->starting = false;
	if (env->link != l) {
		link_maybe_free(l); /* stopped meanwhile */
		return;
	}
	if (err) {
		(void)env_set_reason(env, "line_down", "%s", err->detail);
		link_lost(env, err->detail);
		return;
	}
	argv = provider_argv(json_object_get(answer, "argv"));
	envp = provider_env(json_object_get(answer, "env"));
	if (!argv) {
		(void)env_set_reason(env, "line_down",
				     "provider '%s' answered `command` without argv",
				     env->provider);
		link_lost(env, "bad answer of the provider");
		return;
	}
	link_spawn(env, argv, envp);
}

int link_start(struct env *env)
{
	json_t *argv;
	struct link *l;
	int r;

	if (env->link)
		return 0;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->env = env;
	l->sock = -1;
	l->out_tail = &l->out_head;
	buf_init(&l->in, IN_LIMIT + READ_BYTES);
	(void)uv_timer_init(env->brain->loop, &l->hello_timer);
	(void)uv_timer_start(&l->hello_timer, hello_late, HELLO_MS, 0);
	env->link = l;
	argv = json_pack("[sssssssss]", env->inner_syncd, "attach", "--dir", env->inner_dir,
			 "--root", env->root, "--env", env->id_hex, "--wait");
	l->starting = true;
	r = provider_run(env, "command", json_pack("{s:o}", "argv", argv), 10000, on_command, l);
	if (r < 0) {
		l->starting = false;
		link_lost(env, "cannot run its provider");
	}
	return r;
}
