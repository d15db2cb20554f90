#include "brain/ingest-loop.h"

#include <assert.h>
#include <malloc.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "brain/ingest.h"

#define READ_BYTES (64u << 10)
/* Above these the other side is not read. */
#define OUT_HIGH_BYTES (1u << 20)
#define SEND_HIGH_BYTES (8u << 20)
#define PACKS_MAX 2 /* descriptors that came and whose ENTRY_PACK has not */
#define REST_AFTER_MS 1000
#define DRAIN_MS 10000

enum state {
	STATE_RUNNING,
	STATE_STOPPING, /* ENTRY_STOP: what is queued for the environment goes out */
	STATE_ENDED,
};

struct loop {
	struct ingest *in;
	int limbd_fd, in_fd, out_fd; /* in_fd, out_fd: -1 when at their end */
	int pack_fd;
	struct buf entries; /* from limbd */
	struct buf sends;   /* frames for the environment */
	struct wframe_decoder decoder;
	struct wframe frame; /* waits for a pack */
	bool has_frame, more_work;
	int packs[PACKS_MAX];
	size_t n_packs;
	enum state state;
	enum ingest_exit status;
	uint64_t stop_by_ms;
};

static int write_pack(const void *data, size_t n, uint64_t offset, void *userdata)
{
	struct loop *l = userdata;

	return io_pwrite_full(l->pack_fd, data, n, offset, "ingest.pack");
}

static void end(struct loop *l, enum ingest_exit status)
{
	if (l->state != STATE_ENDED)
		l->status = status;
	l->state = STATE_ENDED;
}

static void fail(struct loop *l, int r, const char *what)
{
	(void)log_error_errno(r, "%s", what);
	end(l, INGEST_EXIT_FAILED);
}

static size_t queued_out(struct loop *l)
{
	return buf_len(ingest_out(l->in));
}

/* ---- to limbd ---- */

static void write_out(struct loop *l)
{
	struct buf *out = ingest_out(l->in);
	ssize_t n;

	while (buf_len(out) > 0) {
		n = io_write_some(l->limbd_fd, buf_data(out), buf_len(out), "ingest.entries");
		if (n == -EAGAIN)
			return;
		if (n < 0) {
			if (n != -EPIPE && n != -ECONNRESET)
				(void)log_error_errno((int)n, "cannot write to limbd");
			buf_clear(out);
			end(l, n == -EPIPE || n == -ECONNRESET ? INGEST_EXIT_ENDED
							       : INGEST_EXIT_FAILED);
			return;
		}
		buf_consume(out, (size_t)n);
	}
}

/* The last words: what is queued and then one text. */
static void say_last(struct loop *l, enum entry_type type, int error, const char *text)
{
	struct entry_text e = {.error = error, .len = (uint32_t)strnlen(text, ENTRY_TEXT_MAX)};
	int r;

	r = ingest_flush(l->in);
	if (r >= 0)
		r = entry_add(ingest_out(l->in), (uint16_t)type, &e, sizeof(e), text, e.len);
	if (r < 0)
		fail(l, r, "cannot hand over the last entries");
}

/* limbd gets what is left, if it reads in time. */
static void drain_out(struct loop *l)
{
	uint64_t deadline = clock_mono_ms() + DRAIN_MS, now;

	while (queued_out(l) > 0 && (now = clock_mono_ms()) < deadline) {
		struct pollfd p = {.fd = l->limbd_fd, .events = POLLOUT};

		write_out(l);
		if (queued_out(l) > 0)
			(void)poll(&p, 1, (int)(deadline - now));
	}
}

/* ---- from the environment ---- */

static void hostile(struct loop *l, const char *why)
{
	say_last(l, ENTRY_HOSTILE, EPROTO, why);
	end(l, INGEST_EXIT_HOSTILE);
}

static void transport_ended(struct loop *l, int r)
{
	l->in_fd = -1;
	if (r == 0 && !l->decoder.started)
		say_last(l, ENTRY_BYE, 0, "transport ended before the start mark");
	else
		say_last(l, ENTRY_BYE, -r, r < 0 ? "transport failed" : "transport ended");
	end(l, INGEST_EXIT_ENDED);
}

static const char *decoder_fault(int r)
{
	switch (r) {
	case -EPROTO: return "no start mark in 1 MiB";
	case -E2BIG: return "frame longer than its limit";
	case -EPROTONOSUPPORT: return "frame of an unknown type";
	default: return "damaged frame";
	}
}

static void judge(struct loop *l, int r)
{
	if (r == -EPROTO)
		hostile(l, ingest_why(l->in));
	else if (r < 0)
		fail(l, r, "cannot take what the environment sends");
}

/* The pack is sealed by limbd as soon as it reads ENTRY_PACK_FULL. */
static void close_full_pack(struct loop *l)
{
	if (l->pack_fd < 0 || ingest_has_pack(l->in))
		return;
	(void)close(l->pack_fd);
	l->pack_fd = -1;
}

static bool may_take(struct loop *l)
{
	return l->state == STATE_RUNNING && !l->more_work && queued_out(l) < OUT_HIGH_BYTES &&
	       !ingest_blocked(l->in) && !(l->has_frame && ingest_needs_pack(l->in, &l->frame));
}

static void take_frame(struct loop *l)
{
	int r;

	l->has_frame = false;
	r = ingest_frame(l->in, &l->frame);
	close_full_pack(l);
	if (r < 0) {
		judge(l, r);
		return;
	}
	l->more_work = true; /* ingest_work() says no at once when there is none */
	if (ingest_bye(l->in)) {
		r = ingest_flush(l->in);
		if (r < 0)
			judge(l, r);
		end(l, INGEST_EXIT_ENDED);
	}
}

static void work(struct loop *l)
{
	int r = ingest_work(l->in);

	close_full_pack(l);
	l->more_work = r > 0;
	if (r < 0)
		judge(l, r);
}

/* All whole frames that are here. */
static void take_frames(struct loop *l)
{
	int r;

	for (;;) {
		if (l->more_work && l->state == STATE_RUNNING)
			work(l);
		if (!may_take(l))
			return;
		if (!l->has_frame) {
			r = wframe_decoder_next(&l->decoder, &l->frame);
			if (r == -ENOMEM)
				fail(l, r, "cannot take what the environment sends");
			else if (r < 0)
				hostile(l, decoder_fault(r));
			if (r <= 0)
				return;
			l->has_frame = true;
			continue;
		}
		take_frame(l);
	}
}

static bool wants_input(struct loop *l)
{
	return l->in_fd >= 0 && !l->has_frame && may_take(l);
}

static void read_transport(struct loop *l)
{
	uint8_t *p;
	ssize_t n;
	int r;

	r = wframe_decoder_reserve(&l->decoder, READ_BYTES, &p);
	if (r < 0) {
		fail(l, r, "cannot read from the transport");
		return;
	}
	n = io_read_some(l->in_fd, p, READ_BYTES, "ingest.read");
	if (n == -EAGAIN)
		return;
	if (n <= 0) {
		transport_ended(l, (int)n);
		return;
	}
	wframe_decoder_commit(&l->decoder, (size_t)n);
	take_frames(l);
}

/* ---- from limbd ---- */

static void take_pack(struct loop *l, const struct entry_pack *pack)
{
	int r;

	if (l->n_packs == 0) {
		fail(l, -EBADMSG, "a pack without its file");
		return;
	}
	r = ingest_set_pack(l->in, pack);
	if (r < 0) {
		fail(l, r, "cannot take a pack");
		return;
	}
	l->more_work = true; /* what came meanwhile may wait for it */
	l->pack_fd = l->packs[0];
	memmove(l->packs, l->packs + 1, --l->n_packs * sizeof(l->packs[0]));
}

static int take_send(struct loop *l, const struct entry_send *send)
{
	return l->out_fd < 0 ? 0 : buf_add(&l->sends, entry_tail(send), send->len);
}

static int take_entry(struct loop *l, const struct entry_head *e)
{
	size_t n = e->length - sizeof(*e);
	int r;

	switch ((enum entry_type)e->type) {
	case ENTRY_SEND: return take_send(l, (const struct entry_send *)e);
	case ENTRY_PACK: take_pack(l, (const struct entry_pack *)e); return 0;
	case ENTRY_BASE_DATA:
		l->more_work = true;
		return ingest_base_data(l->in, (const struct entry_base_data *)e);
	case ENTRY_SEED: ingest_seed(l->in, entry_tail(e), n / SHA256_BYTES); return 0;
	case ENTRY_START:
		ingest_start(l->in, ((const struct entry_start *)e)->durable_number);
		return 0;
	case ENTRY_SEAL:
		r = ingest_seal(l->in);
		close_full_pack(l);
		return r;
	case ENTRY_STOP:
		if (l->state == STATE_RUNNING) {
			l->state = STATE_STOPPING;
			l->stop_by_ms = clock_mono_ms() + DRAIN_MS;
		}
		return 0;
	default: return -EBADMSG;
	}
}

static void take_entries(struct loop *l)
{
	const char *why;
	ssize_t n;
	int r;

	while (l->state != STATE_ENDED && buf_len(&l->sends) < SEND_HIGH_BYTES) {
		const struct entry_head *e = (const void *)buf_data(&l->entries);

		n = entry_whole(e, buf_len(&l->entries));
		if (n == 0)
			return;
		r = n < 0 ? (int)n : entry_check(e, &why);
		if (r >= 0)
			r = take_entry(l, e);
		if (r < 0) {
			fail(l, r, "cannot take what limbd sends");
			return;
		}
		buf_consume(&l->entries, (size_t)n);
	}
}

static int keep_descriptors(struct loop *l, struct msghdr *m)
{
	int r = m->msg_flags & MSG_CTRUNC ? -EMFILE : 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		int fds[PACKS_MAX];
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		assert(n <= PACKS_MAX); /* what the control buffer holds */
		memcpy(fds, CMSG_DATA(c), n * sizeof(int));
		for (size_t i = 0; i < n; i++) {
			if (l->n_packs < PACKS_MAX)
				l->packs[l->n_packs++] = fds[i];
			else
				r = -EMFILE;
		}
	}
	return r;
}

static void read_limbd(struct loop *l)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(PACKS_MAX * sizeof(int))];
	} control;
	struct iovec iov = {.iov_len = READ_BYTES};
	struct msghdr m = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	uint8_t *p;
	ssize_t n;
	int r;

	r = buf_reserve(&l->entries, READ_BYTES, &p);
	if (r < 0) {
		fail(l, r, "cannot read from limbd");
		return;
	}
	iov.iov_base = p;
	do {
		n = recvmsg(l->limbd_fd, &m, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) {
		end(l, INGEST_EXIT_ENDED); /* limbd is gone */
		return;
	}
	r = keep_descriptors(l, &m);
	if (r < 0) {
		fail(l, r, "cannot take descriptors from limbd");
		return;
	}
	buf_commit(&l->entries, (size_t)n);
	take_entries(l);
}

/* ---- to the environment ---- */

/* They wait for room; an environment that asks very often and does not read loses answers. */
static void take_replies(struct loop *l)
{
	struct buf *replies = ingest_replies(l->in);

	if (buf_len(&l->sends) >= SEND_HIGH_BYTES)
		return;
	if (l->out_fd >= 0)
		(void)buf_add(&l->sends, buf_data(replies), buf_len(replies));
	buf_clear(replies);
}

static void write_transport(struct loop *l)
{
	ssize_t n;

	take_replies(l);
	while (buf_len(&l->sends) > 0) {
		n = io_write_some(l->out_fd, buf_data(&l->sends), buf_len(&l->sends),
				  "ingest.send");
		if (n == -EAGAIN)
			return;
		if (n < 0) {
			/* It does not read any more; what it said before still counts. */
			l->out_fd = -1;
			buf_clear(&l->sends);
			return;
		}
		buf_consume(&l->sends, (size_t)n);
	}
}

/* ---- the loop ---- */

enum { POLL_LIMBD, POLL_IN, POLL_OUT, POLL_COUNT };

static int wait_ms(const struct loop *l, bool rested)
{
	if (l->more_work || ingest_pending(l->in))
		return 0;
	if (l->state == STATE_STOPPING)
		return DRAIN_MS;
	return rested ? -1 : REST_AFTER_MS;
}

/* Memory that the last work took. */
static void rest(struct loop *l)
{
	ingest_rest(l->in);
	if (!l->has_frame)
		wframe_decoder_trim(&l->decoder);
	if (buf_len(&l->entries) == 0)
		buf_done(&l->entries);
	if (buf_len(&l->sends) == 0)
		buf_done(&l->sends);
	(void)malloc_trim(0);
}

/* Nothing more is waiting, so nothing is worth waiting for. */
static void flush(struct loop *l)
{
	int r;

	r = ingest_flush(l->in);
	if (r < 0)
		fail(l, r, "cannot write to the pack");
}

static void turn(struct loop *l, bool *rested)
{
	struct pollfd p[POLL_COUNT];
	int n;

	take_frames(l);
	if (l->state == STATE_ENDED)
		return;
	take_replies(l);
	/* A descriptor that is not wanted is left out: its hang-up would wake us for ever.
	 * limbd's hang-up is always wanted. */
	p[POLL_LIMBD] = (struct pollfd){.fd = l->limbd_fd};
	if (buf_len(&l->sends) < SEND_HIGH_BYTES)
		p[POLL_LIMBD].events |= POLLIN;
	if (queued_out(l) > 0)
		p[POLL_LIMBD].events |= POLLOUT;
	p[POLL_IN] = (struct pollfd){.fd = wants_input(l) ? l->in_fd : -1, .events = POLLIN};
	p[POLL_OUT] =
		(struct pollfd){.fd = buf_len(&l->sends) > 0 ? l->out_fd : -1, .events = POLLOUT};
	n = poll(p, POLL_COUNT, wait_ms(l, *rested));
	if (n < 0 && errno != EINTR) {
		fail(l, -errno, "cannot poll");
		return;
	}
	if (n == 0 && !l->more_work && !ingest_pending(l->in) && !*rested) {
		rest(l);
		*rested = true;
		return;
	}
	if (n != 0)
		*rested = false;

	if (n > 0 && p[POLL_LIMBD].revents & POLLIN)
		read_limbd(l);
	else if (n > 0 && p[POLL_LIMBD].revents & (POLLHUP | POLLERR))
		end(l, INGEST_EXIT_ENDED);
	if (n > 0 && p[POLL_IN].revents && wants_input(l))
		read_transport(l);
	if (l->state == STATE_RUNNING && !(n > 0 && p[POLL_IN].revents))
		flush(l);
	write_out(l);
	write_transport(l);
	take_entries(l);
}

static int setup(struct loop *l)
{
	int r;

	buf_init(&l->entries, ENTRY_MAX + READ_BYTES);
	buf_init(&l->sends, SEND_HIGH_BYTES + 2 * ENTRY_MAX);
	wframe_decoder_init(&l->decoder);
	r = ingest_new(write_pack, l, &l->in);
	if (r < 0)
		return r;
	return buf_add(&l->sends, WIRE_START, WIRE_START_BYTES);
}

static void done(struct loop *l)
{
	ingest_free(l->in);
	buf_done(&l->entries);
	buf_done(&l->sends);
	wframe_decoder_done(&l->decoder);
}

int ingest_loop(int limbd_fd, int in_fd, int out_fd)
{
	struct loop l = {
		.limbd_fd = limbd_fd,
		.in_fd = in_fd,
		.out_fd = out_fd,
		.pack_fd = -1,
		.status = INGEST_EXIT_ENDED,
	};
	bool rested = false;

	if (setup(&l) < 0) {
		(void)log_oom();
		done(&l);
		return INGEST_EXIT_FAILED;
	}
	write_transport(&l);
	while (l.state != STATE_ENDED) {
		turn(&l, &rested);
		if (l.state == STATE_STOPPING &&
		    (buf_len(&l.sends) == 0 || clock_mono_ms() >= l.stop_by_ms))
			end(&l, INGEST_EXIT_ENDED);
	}
	drain_out(&l);
	done(&l);
	return (int)l.status;
}
