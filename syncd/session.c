#include "syncd/session.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/util.h"

enum {
	CLASSES = SESSION_BULK + 1,
	READ_BYTES = 256 << 10,
	READS_AT_ONCE = 4,	 /* then others have their turn */
	CHUNK_BYTES = 256 << 10, /* what a control frame waits for at most */
	CHUNK_FRAMES = 32,
	TICK_MS = 5000,
	PING_AFTER_MS = 15000,
	CLOSE_AFTER_MS = 45000,
};

struct out_frame {
	struct out_frame *next;
	struct buf bytes;
};

struct out_queue {
	struct out_frame *first, **last;
	size_t bytes;
	bool was_high;
};

struct session {
	const struct session_ops *ops;
	void *userdata;
	uv_loop_t *loop;

	/* Each attach has its own handles: closing them takes until the loop's next turn. */
	struct line *line;
	bool welcomed, compress, deltas, trees, closing;

	struct wframe_decoder decoder;
	struct out_queue queues[CLASSES];
	struct out_frame *chunk[CHUNK_FRAMES]; /* being written, in this order */
	size_t n_chunk, chunk_offset;	       /* bytes written of chunk[0] */
	struct buf packed;

	uint64_t heard_ms, pinged_ms;
	uv_prepare_t flush;
	uv_idle_t awake;
	uv_timer_t tick;
	unsigned open_handles;
};

struct line {
	struct session *session;
	int in, out, held;
	bool blocked; /* `out` is full: wait until it is writable */
	unsigned open_handles;
	uv_poll_t in_poll, out_poll, held_poll;
};

static const size_t high_marks[CLASSES] = {SIZE_MAX, SESSION_OUTPUT_HIGH, SESSION_BULK_HIGH};

/* ---- queues ---- */

static void frame_free(struct out_frame *f)
{
	buf_done(&f->bytes);
	free(f);
}

static void queues_clear(struct session *s)
{
	struct out_frame *f;

	for (size_t i = 0; i < s->n_chunk; i++)
		frame_free(s->chunk[i]);
	s->n_chunk = 0;
	s->chunk_offset = 0;
	for (unsigned c = 0; c < CLASSES; c++) {
		while ((f = s->queues[c].first)) {
			s->queues[c].first = f->next;
			frame_free(f);
		}
		s->queues[c] = (struct out_queue){.last = &s->queues[c].first};
	}
}

static int pack(struct session *s, struct buf *out, enum wire_type type,
		const ProtobufCMessage *msg, const void *bulk, size_t bulk_len)
{
	size_t n = protobuf_c_message_get_packed_size(msg);
	uint8_t *p;
	int r;

	if (n > WIRE_BODY_MAX || bulk_len > WIRE_BULK_MAX)
		return -E2BIG;
	buf_clear(&s->packed);
	r = buf_reserve(&s->packed, n, &p);
	if (r < 0)
		return r;
	(void)protobuf_c_message_pack(msg, p);
	return wframe_encode(out, (uint8_t)type, p, n, bulk, bulk_len,
			     s->compress ? WIRE_LZ4 : WIRE_PLAIN);
}

static int queue(struct session *s, enum session_class class, enum wire_type type,
		 const ProtobufCMessage *msg, const void *bulk, size_t bulk_len)
{
	struct out_queue *q = &s->queues[class];
	struct out_frame *f;
	int r;

	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	if (type == WIRE_TREE_PART && s->trees)
		r = wframe_pack_tree(&f->bytes, (const Limbwire__TreePart *)msg);
	else
		r = pack(s, &f->bytes, type, msg, bulk, bulk_len);
	if (r < 0) {
		frame_free(f);
		return r;
	}
	*q->last = f;
	q->last = &f->next;
	q->bytes += buf_len(&f->bytes);
	if (q->bytes > high_marks[class])
		q->was_high = true;
	return 0;
}

/* Moves the next frames, by class, into the chunk to be written. */
static void chunk_fill(struct session *s)
{
	size_t bytes = 0;

	for (unsigned c = 0; c < CLASSES; c++) {
		struct out_queue *q = &s->queues[c];

		while (q->first && s->n_chunk < CHUNK_FRAMES && bytes < CHUNK_BYTES) {
			struct out_frame *f = q->first;

			q->first = f->next;
			if (!q->first)
				q->last = &q->first;
			q->bytes -= buf_len(&f->bytes);
			bytes += buf_len(&f->bytes);
			s->chunk[s->n_chunk++] = f;
		}
	}
}

static void chunk_written(struct session *s, size_t n)
{
	size_t done = 0;

	s->chunk_offset += n;
	while (done < s->n_chunk && s->chunk_offset >= buf_len(&s->chunk[done]->bytes)) {
		s->chunk_offset -= buf_len(&s->chunk[done]->bytes);
		frame_free(s->chunk[done++]);
	}
	s->n_chunk -= done;
	memmove(s->chunk, s->chunk + done, s->n_chunk * sizeof(s->chunk[0]));
}

static int chunk_write(struct session *s)
{
	struct iovec iov[CHUNK_FRAMES];
	ssize_t n;

	for (size_t i = 0; i < s->n_chunk; i++) {
		size_t skip = i == 0 ? s->chunk_offset : 0;

		iov[i].iov_base = (void *)(buf_data(&s->chunk[i]->bytes) + skip);
		iov[i].iov_len = buf_len(&s->chunk[i]->bytes) - skip;
	}
	n = io_writev_some(s->line->out, iov, (int)s->n_chunk, "session.send");
	if (n < 0)
		return (int)n;
	chunk_written(s, (size_t)n);
	return 0;
}

/* ---- the line ---- */

static void line_done(struct line *l)
{
	(void)close(l->in);
	(void)close(l->out);
	if (l->held >= 0)
		(void)close(l->held);
	free(l);
}

static void on_handle_closed(uv_handle_t *h)
{
	struct line *l = h->data;

	/* Only then: a descriptor's number must not be given out while it is polled. */
	if (--l->open_handles == 0)
		line_done(l);
}

static void line_close(struct line *l)
{
	uv_poll_t *polls[] = {&l->in_poll, &l->out_poll, &l->held_poll};

	l->session = NULL;
	if (l->open_handles == 0) {
		line_done(l);
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(polls); i++) {
		if (polls[i]->data)
			uv_close((uv_handle_t *)polls[i], on_handle_closed);
	}
}

static void detach(struct session *s)
{
	struct line *l = take_ptr(&s->line);

	if (!l)
		return;
	line_close(l);
	s->welcomed = s->compress = s->deltas = s->trees = s->closing = false;
	queues_clear(s);
	wframe_decoder_done(&s->decoder);
	wframe_decoder_init(&s->decoder);
	s->ops->detached(s->userdata);
}

static void on_writable(uv_poll_t *h, int status, int events);

static bool control_pending(const struct session *s)
{
	return s->n_chunk > 0 || s->queues[SESSION_CONTROL].bytes > 0;
}

/* Writes until the stream is full or nothing is left. */
static void flush(struct session *s)
{
	int r = 0;

	if (!s->line || s->line->blocked)
		return;
	for (;;) {
		if (s->n_chunk == 0)
			chunk_fill(s);
		if (s->n_chunk == 0)
			break;
		r = chunk_write(s);
		if (r < 0)
			break;
	}
	if (r == -EAGAIN) {
		s->line->blocked = true;
		(void)uv_poll_start(&s->line->out_poll, UV_WRITABLE, on_writable);
	} else if (r < 0 || (s->closing && !control_pending(s))) {
		detach(s);
		return;
	}
	for (unsigned c = 0; c < CLASSES; c++) {
		if (s->queues[c].was_high && s->queues[c].bytes < high_marks[c] / 2) {
			s->queues[c].was_high = false;
			s->ops->drained((enum session_class)c, s->userdata);
		}
	}
}

static bool anything_queued(const struct session *s)
{
	return s->n_chunk > 0 || s->queues[SESSION_CONTROL].first ||
	       s->queues[SESSION_OUTPUT].first || s->queues[SESSION_BULK].first;
}

static void on_idle(uv_idle_t *h)
{
	(void)h;
}

/* Before the loop sleeps: what one turn has queued leaves together. drained() queues
 * more; others have their turn in between, and the loop does not sleep meanwhile. */
static void on_flush(uv_prepare_t *h)
{
	struct session *s = h->data;

	flush(s);
	if (s->line && !s->line->blocked && anything_queued(s))
		(void)uv_idle_start(&s->awake, on_idle);
	else
		(void)uv_idle_stop(&s->awake);
}

static void on_writable(uv_poll_t *h, int status, int events)
{
	struct line *l = h->data;

	if (!l->session)
		return;
	(void)uv_poll_stop(h);
	l->blocked = false;
	if (status < 0)
		detach(l->session);
	else
		flush(l->session);
}

static int read_frames(struct session *s)
{
	struct wframe f;
	int r;

	while ((r = wframe_decoder_next(&s->decoder, &f)) > 0) {
		r = s->ops->frame(&f, s->userdata);
		if (r < 0)
			return r;
		if (s->closing)
			return 0;
	}
	return r;
}

static void on_readable(uv_poll_t *h, int status, int events)
{
	struct line *l = h->data;
	struct session *s = l->session;
	static struct log_limit limit;
	ssize_t n = 0;
	int r = 0;

	if (!s || s->closing)
		return;
	for (unsigned i = 0; i < READS_AT_ONCE; i++) {
		uint8_t *p;

		r = wframe_decoder_reserve(&s->decoder, READ_BYTES, &p);
		if (r < 0)
			break;
		n = io_read_some(l->in, p, READ_BYTES, "session.receive");
		if (n <= 0)
			break;
		s->heard_ms = uv_now(s->loop);
		wframe_decoder_commit(&s->decoder, (size_t)n);
		r = read_frames(s);
		if (r < 0 || s->closing || n < READ_BYTES)
			break;
	}
	if (r < 0 && log_limited(&limit, 5, 1000))
		(void)log_warning_errno(r, "closing the stream: what came is not in order");
	if (s->closing)
		(void)uv_poll_stop(&l->in_poll);
	else if (r < 0 || n == 0 || (n < 0 && n != -EAGAIN))
		detach(s);
}

/* The process at the end of the transport is gone. */
static void on_held(uv_poll_t *h, int status, int events)
{
	struct line *l = h->data;

	if (l->session)
		detach(l->session);
}

static void on_tick(uv_timer_t *h)
{
	struct session *s = h->data;
	uint64_t now = uv_now(s->loop);
	Limbwire__Ping ping = LIMBWIRE__PING__INIT;

	if (!s->line)
		return;
	if (now - s->heard_ms > CLOSE_AFTER_MS) {
		detach(s);
	} else if (now - s->heard_ms > PING_AFTER_MS && now - s->pinged_ms > PING_AFTER_MS) {
		s->pinged_ms = now;
		ping.id = now;
		(void)queue(s, SESSION_CONTROL, WIRE_PING, &ping.base, NULL, 0);
	}
}

static int set_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

static int poll_open(struct line *l, uv_poll_t *h, int fd)
{
	int r = set_nonblocking(fd);

	if (r < 0)
		return r;
	r = uv_poll_init(l->session->loop, h, fd);
	if (r < 0)
		return r;
	h->data = l;
	l->open_handles++;
	return 0;
}

static int say_hello(struct session *s)
{
	Limbwire__Hello hello = LIMBWIRE__HELLO__INIT;
	struct out_frame *f;
	int r;

	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	r = buf_add(&f->bytes, WIRE_START, WIRE_START_BYTES);
	if (r < 0) {
		frame_free(f);
		return r;
	}
	s->chunk[s->n_chunk++] = f;
	hello.capabilities = WIRE_CAP_LZ4 | WIRE_CAP_DELTA | WIRE_CAP_TREES | WIRE_CAP_SETTINGS;
	r = s->ops->hello(&hello, s->userdata);
	if (r < 0)
		return r;
	return queue(s, SESSION_CONTROL, WIRE_HELLO, &hello.base, NULL, 0);
}

int session_attach(struct session *s, int in, int out, int held)
{
	struct line *l;
	int r;

	l = calloc(1, sizeof(*l));
	if (!l) {
		(void)close(in);
		(void)close(out);
		if (held >= 0)
			(void)close(held);
		return -ENOMEM;
	}
	*l = (struct line){.session = s, .in = in, .out = out, .held = held};
	detach(s);
	r = poll_open(l, &l->in_poll, in);
	if (r == 0)
		r = poll_open(l, &l->out_poll, out);
	if (r == 0 && held >= 0)
		r = poll_open(l, &l->held_poll, held);
	if (r < 0) {
		line_close(l);
		return r;
	}

	s->line = l;
	s->heard_ms = s->pinged_ms = uv_now(s->loop);
	r = say_hello(s);
	if (r < 0) {
		detach(s);
		return 0;
	}
	(void)uv_poll_start(&l->in_poll, UV_READABLE, on_readable);
	if (held >= 0)
		(void)uv_poll_start(&l->held_poll, UV_READABLE | UV_DISCONNECT, on_held);
	return 0;
}

/* ---- what others call ---- */

int session_send(struct session *s, enum session_class class, enum wire_type type,
		 const ProtobufCMessage *msg, const void *bulk, size_t bulk_len)
{
	if (!s->line || !s->welcomed || s->closing)
		return -ENOTCONN;
	return queue(s, class, type, msg, bulk, bulk_len);
}

int session_send_error(struct session *s, uint64_t request, int error, const char *detail)
{
	Limbwire__Error m = LIMBWIRE__ERROR__INIT;

	/* Also before WELCOME: it may be the answer to it. */
	if (!s->line || s->closing)
		return -ENOTCONN;
	m.request = request;
	m.error = error < 0 ? -error : error;
	m.detail = (char *)(detail ? detail : "");
	return queue(s, SESSION_CONTROL, WIRE_ERROR, &m.base, NULL, 0);
}

bool session_attached(const struct session *s)
{
	return s->welcomed;
}

size_t session_queued(const struct session *s, enum session_class class)
{
	return s->queues[class].bytes;
}

bool session_takes_deltas(const struct session *s)
{
	return s->deltas;
}

bool session_has_trees(const struct session *s)
{
	return s->trees;
}

void session_welcomed(struct session *s, uint64_t capabilities)
{
	s->welcomed = true;
	s->compress = (capabilities & WIRE_CAP_LZ4) != 0;
	s->deltas = (capabilities & WIRE_CAP_DELTA) != 0;
	s->trees = (capabilities & WIRE_CAP_TREES) != 0;
}

void session_close(struct session *s)
{
	s->closing = true;
}

int session_new(uv_loop_t *loop, const struct session_ops *ops, void *userdata,
		struct session **ret)
{
	struct session *s;

	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->ops = ops;
	s->userdata = userdata;
	s->loop = loop;
	for (unsigned c = 0; c < CLASSES; c++)
		s->queues[c].last = &s->queues[c].first;
	buf_init(&s->packed, WIRE_BODY_MAX);
	wframe_decoder_init(&s->decoder);
	(void)uv_prepare_init(loop, &s->flush);
	(void)uv_idle_init(loop, &s->awake);
	(void)uv_timer_init(loop, &s->tick);
	s->flush.data = s->awake.data = s->tick.data = s;
	(void)uv_prepare_start(&s->flush, on_flush);
	(void)uv_timer_start(&s->tick, on_tick, TICK_MS, TICK_MS);
	*ret = s;
	return 0;
}

static void on_closed(uv_handle_t *h)
{
	struct session *s = h->data;

	if (--s->open_handles > 0)
		return;
	queues_clear(s);
	buf_done(&s->packed);
	wframe_decoder_done(&s->decoder);
	free(s);
}

void session_free(struct session *s)
{
	if (!s)
		return;
	detach(s);
	s->open_handles = 3;
	uv_close((uv_handle_t *)&s->flush, on_closed);
	uv_close((uv_handle_t *)&s->awake, on_closed);
	uv_close((uv_handle_t *)&s->tick, on_closed);
}
