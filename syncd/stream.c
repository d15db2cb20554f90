#include "syncd/stream.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "syncd/kept.h"
#include "syncd/plan.h"
#include "syncd/state.h"

enum {
	PIECE = 512 * 1024,
	HASH_STEP = 32, /* pieces read in one step when nothing is sent */
	ATTEMPTS = 2,
	DONE_MS = 300 * 1000, /* for DATA_DONE; then it goes whole */
};

struct stream {
	struct sync *sy;
	struct item *item;
	uv_work_t req;
	bool busy;     /* a worker has it */
	bool lost;     /* the line went: begin again */
	bool sending;  /* false: only hashed, the brain may have these bytes */
	bool awaiting; /* all is sent, DATA_DONE is to come */
	unsigned attempts;
	uint32_t number;
	uint64_t start_ms, sent_ms;
	uint64_t sent_at; /* offset of the next DATA */
	struct kept kept; /* the worker's, too */

	/* The worker's while busy. */
	int root_fd, dir_fd, fd;
	struct scan_dir dir;
	struct capture c;
	struct stamp first; /* as it was when reading began */
	uint64_t at, data_end;
	struct sha256_ctx *sha;
	uint8_t *mem;
	size_t n; /* bytes of mem read at `from` */
	uint64_t from, hole;
	bool sparse, finished;
	struct buf text;
	int error;
};

/* ---- in threads ---- */

static int open_file(struct stream *s)
{
	int r;

	r = scan_open(s->root_fd, &s->dir, false, &s->dir_fd);
	if (r < 0)
		return r;
	r = capture_open(s->dir_fd, &s->c, &s->fd);
	if (r < 0)
		return r;
	if (s->c.mapped)
		(void)fdatasync(s->fd);
	s->mem = malloc(PIECE);
	s->sha = sha256_new();
	return s->mem && s->sha ? 0 : -ENOMEM;
}

static int begin(struct stream *s)
{
	int r;

	r = stamp_of(s->fd, &s->first);
	if (r < 0)
		return r;
	s->at = s->data_end = 0;
	s->sparse = capture_is_sparse(&s->first);
	s->c.holes = false;
	sha256_reset(s->sha);
	/* Holes are for nothing, and would not come out of a delta. */
	kept_begin(&s->kept, s->fd, s->sparse ? 0 : s->first.size, s->sending);
	return 0;
}

/* A file system without SEEK_HOLE shows one piece of data. */
static int find_data(struct stream *s)
{
	off_t data, end;

	if (!s->sparse) {
		s->data_end = s->first.size;
		return 0;
	}
	data = lseek(s->fd, (off_t)s->at, SEEK_DATA);
	if (data < 0 && errno == ENXIO)
		data = (off_t)s->first.size;
	if (data < 0)
		return -errno;
	data = MIN(data, (off_t)s->first.size);
	if ((uint64_t)data > s->at) {
		s->hole = (uint64_t)data - s->at;
		s->c.holes = true;
		sha256_update_zeros(s->sha, s->hole);
		s->data_end = (uint64_t)data;
		return 0;
	}
	end = lseek(s->fd, data, SEEK_HOLE);
	s->data_end = end < 0 ? s->first.size : MIN((uint64_t)end, s->first.size);
	return 0;
}

static int read_piece(struct stream *s)
{
	size_t want;
	ssize_t n;
	int r;

	s->n = 0;
	s->hole = 0;
	s->from = s->at;
	if (s->at < s->first.size && s->at >= s->data_end) {
		r = find_data(s);
		if (r < 0)
			return r;
		if (s->hole) {
			s->at += s->hole;
			s->finished = s->at >= s->first.size;
			return 0;
		}
	}
	want = (size_t)MIN(s->data_end - s->at, (uint64_t)PIECE);
	while (s->n < want) {
		n = pread(s->fd, s->mem + s->n, want - s->n, (off_t)(s->at + s->n));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		s->n += (size_t)n;
	}
	sha256_update(s->sha, s->mem, s->n);
	s->at += s->n;
	s->finished = s->n < want || s->at >= s->first.size;
	kept_feed(&s->kept, s->mem, s->n);
	return 0;
}

static int finish(struct stream *s)
{
	struct stamp after;
	int r;

	r = stamp_of(s->fd, &after);
	if (r < 0)
		return r;
	kept_end(&s->kept);
	s->c.torn = !stamp_same(&after, &s->first) || s->at != s->first.size;
	s->c.st = s->first;
	s->c.st.size = s->at;
	sha256_final(s->sha, s->c.sha);
	buf_clear(&s->text);
	return capture_xattrs(s->dir_fd, s->fd, &s->c, &s->text);
}

static void do_step(uv_work_t *req)
{
	struct stream *s = req->data;
	unsigned steps = HASH_STEP;

	s->error = 0;
	if (s->fd < 0) {
		s->error = open_file(s);
		if (s->error == 0)
			s->error = begin(s);
	} else if (s->at == 0 && s->finished) {
		s->finished = false;
		s->error = begin(s);
	}
	if (s->sending && !s->kept.delta)
		steps = 1;
	while (s->error == 0 && !s->finished && !s->kept.hopeless && steps-- &&
	       buf_len(&s->kept.ops) == 0)
		s->error = read_piece(s);
	if (s->error == 0 && s->finished)
		s->error = finish(s);
}

/* ---- on the loop ---- */

static void stream_free(struct stream *s)
{
	struct streams *ss = &s->sy->streams;

	for (unsigned i = 0; i < ss->n; i++)
		if (ss->active[i] == s)
			ss->active[i] = ss->active[--ss->n];
	if (s->fd >= 0)
		(void)close(s->fd);
	if (s->dir_fd >= 0)
		(void)close(s->dir_fd);
	free(s->dir.path);
	free(s->mem);
	sha256_free(s->sha);
	kept_done(&s->kept);
	buf_done(&s->text);
	free(s);
}

static void send_data(struct stream *s, const Limbwire__Data *d, const void *bulk, size_t n)
{
	(void)session_send(s->sy->session, SESSION_BULK, WIRE_DATA, &d->base, bulk, n);
	s->sy->emit.bytes += n;
}

static void send_abort(struct stream *s)
{
	Limbwire__Data d = LIMBWIRE__DATA__INIT;

	if (!s->sending || !s->number)
		return;
	d.stream = s->number;
	d.abort = true;
	send_data(s, &d, NULL, 0);
}

/* What is known of a delta so far. */
static void send_ops(struct stream *s)
{
	const struct kept_op *op = (const struct kept_op *)buf_data(&s->kept.ops);
	size_t n = buf_len(&s->kept.ops) / sizeof(*op);
	const uint8_t *literal = buf_data(&s->kept.literals);

	for (size_t i = 0; i < n; i++, op++) {
		Limbwire__Data d = LIMBWIRE__DATA__INIT;

		if (!s->number) {
			s->number = s->sy->emit.next_stream++;
			s->sent_at = 0;
			d.base_node = s->kept.base.node;
			d.base_sha256 = (ProtobufCBinaryData){SHA256_BYTES, s->kept.base.sha};
			d.size_bytes = s->first.size;
		}
		d.stream = s->number;
		d.offset = s->sent_at;
		d.copy_from = op->from;
		d.copy_bytes = op->bytes;
		send_data(s, &d, literal, op->len);
		s->sent_at += op->bytes + op->len;
		literal += op->len;
	}
	buf_clear(&s->kept.ops);
	buf_clear(&s->kept.literals);
}

static void send_piece(struct stream *s)
{
	Limbwire__Data d = LIMBWIRE__DATA__INIT;

	if (s->sending && s->kept.delta) {
		send_ops(s);
		return;
	}
	if (!s->sending || (!s->n && !s->hole))
		return;
	if (!s->number)
		s->number = s->sy->emit.next_stream++;
	d.stream = s->number;
	d.offset = s->from;
	d.hole_bytes = s->hole;
	send_data(s, &d, s->mem, s->n);
}

static void send_last(struct stream *s)
{
	Limbwire__Data d = LIMBWIRE__DATA__INIT;

	if (!s->number)
		s->number = s->sy->emit.next_stream++;
	d.stream = s->number;
	d.offset = s->at;
	d.last = true;
	send_data(s, &d, NULL, 0);
}

static void restart(struct stream *s, bool sending)
{
	send_abort(s);
	s->number = 0;
	s->awaiting = false;
	s->sending = sending;
	s->at = 0;
	s->finished = true; /* with at 0: begin() */
}

/* The node that has these bytes already, if the brain knows them. */
static bool is_known(struct stream *s)
{
	struct sync *sy = s->sy;
	uint32_t at = plan_node_of(sy, s->item);
	const struct shadow_node *n = at ? shadow_node(&sy->shadow, at) : NULL;

	return n && n->size == s->c.st.size && !(n->flags & SHADOW_TORN) &&
	       memcmp(n->sha, s->c.sha, sizeof(n->sha)) == 0;
}

static void deliver(struct stream *s)
{
	struct sync *sy = s->sy;
	uint32_t number = s->sending ? s->number : 0, e, dir = s->item->dir;
	size_t len = s->item->len;
	char name[256];

	memcpy(name, s->item->name, len); /* the item may go */
	s->c.error = s->error == -ENOENT ? -ENOENT : s->error;
	s->c.cost_ns = (clock_mono_ms() - s->start_ms) * 1000000;
	sy->emit.used_stream = 0;
	plan_captured(sy, s->item, &s->c, NULL, buf_data(&s->text), number);
	if (number && sy->emit.used_stream != number)
		send_abort(s);
	e = s->c.error || s->c.torn ? 0 : shadow_find(&sy->shadow, dir, name, len);
	if (e)
		kept_after(sy, &s->kept,
			   shadow_node(&sy->shadow, shadow_entry(&sy->shadow, e)->node)->id,
			   s->c.sha, s->c.st.size);
	stream_free(s);
}

static bool next_step(struct stream *s);

static void step_done(uv_work_t *req, int status)
{
	struct stream *s = req->data;
	struct sync *sy = s->sy;

	s->busy = false;
	sy->in_flight--;
	if (status < 0)
		s->error = status;
	if (s->lost || (s->item->dir && !shadow_attached(&sy->shadow, s->item->dir))) {
		if (!s->lost)
			send_abort(s);
		dirty_retry(&sy->dirty, s->item);
		stream_free(s);
	} else if (s->error == -EXDEV || s->error == -ESTALE) {
		send_abort(s);
		s->sending = false;
		plan_failed(sy, s->item, -ESTALE);
		stream_free(s);
	} else if (s->error < 0) {
		deliver(s);
	} else {
		send_piece(s);
		if (s->kept.hopeless) {
			s->kept.whole = true;
			restart(s, true);
			(void)next_step(s);
		} else if (!s->finished) {
			(void)next_step(s);
		} else if (s->c.torn && ++s->attempts < ATTEMPTS) {
			restart(s, s->sending);
			(void)next_step(s);
		} else if (!s->sending && (s->c.torn || !is_known(s))) {
			restart(s, true);
			(void)next_step(s);
		} else {
			s->awaiting = s->sending && s->kept.delta && s->number;
			if (s->sending)
				send_last(s);
			s->sent_ms = clock_mono_ms();
			if (!s->awaiting)
				deliver(s);
		}
	}
	sync_pump(sy);
}

/* False while the line is full. */
static bool next_step(struct stream *s)
{
	struct sync *sy = s->sy;

	if (s->awaiting)
		return false;
	if (!sync_may_send(sy) || !sync_may_capture(sy) ||
	    session_queued(sy->session, SESSION_BULK) >= SESSION_BULK_HIGH)
		return false;
	if (uv_queue_work(sy->loop, &s->req, do_step, step_done) < 0)
		return false;
	s->busy = true;
	sy->in_flight++;
	return true;
}

static struct stream *stream_new(struct sync *sy, struct item *it)
{
	struct stream *s = calloc(1, sizeof(*s));
	uint32_t at, e;

	if (!s)
		return NULL;
	s->sy = sy;
	s->item = it;
	s->req.data = s;
	s->fd = s->dir_fd = -1;
	s->root_fd = sy->root.fd;
	s->start_ms = clock_mono_ms();
	s->c = (struct capture){.name = it->name,
				.expect = it->st,
				.mapped = it->flags & ITEM_MAPPED,
				.unheld = sy->root.unheld};
	buf_init(&s->text, 0);
	kept_init(&s->kept);
	s->kept.may = session_takes_deltas(sy->session);
	s->kept.private_fd = sync_private_fd(sy);
	sync_scan_dir(sy, it->dir, &s->dir);
	at = plan_node_of(sy, it);
	s->sending = true;
	if (at) {
		const struct shadow_node *n = shadow_node(&sy->shadow, at);

		/* Another file in its place has to be sent whatever its bytes are. */
		s->sending = n->size != it->st.size || (n->flags & SHADOW_TORN) ||
			     !plan_is_node(sy, at, &it->st);
		/* What has the name until now is likely to be like it. */
		e = shadow_find(&sy->shadow, it->dir, it->name, it->len);
		s->kept.node = e ? shadow_node(&sy->shadow, shadow_entry(&sy->shadow, e)->node)->id
				 : n->id;
	}
	sy->streams.active[sy->streams.n++] = s;
	return s;
}

static bool is_active(const struct sync *sy, const struct item *it)
{
	for (unsigned i = 0; i < sy->streams.n; i++)
		if (sy->streams.active[i]->item == it)
			return true;
	return false;
}

/* Whole, then. */
static void delta_failed(struct stream *s)
{
	s->kept.whole = true;
	restart(s, true);
}

void streams_on_done(struct sync *sy, const Limbwire__DataDone *m)
{
	struct stream *s = NULL;

	for (unsigned i = 0; i < sy->streams.n; i++)
		if (sy->streams.active[i]->number == m->stream && sy->streams.active[i]->awaiting)
			s = sy->streams.active[i];
	if (!s)
		return;
	s->awaiting = false;
	if (m->error == 0 && m->size_bytes == s->c.st.size && m->sha256.len == SHA256_BYTES &&
	    memcmp(m->sha256.data, s->c.sha, SHA256_BYTES) == 0)
		deliver(s);
	else
		delta_failed(s);
}

void streams_pump(struct sync *sy)
{
	struct item *it, *next;

	for (unsigned i = 0; i < sy->streams.n; i++) {
		struct stream *s = sy->streams.active[i];

		if (s->awaiting && clock_mono_ms() - s->sent_ms > DONE_MS)
			delta_failed(s);
		if (!s->busy)
			(void)next_step(s);
	}
	for (it = dirty_first(&sy->dirty, ITEM_STREAM); it && sy->streams.n < STREAMS_MAX;
	     it = next) {
		struct stream *s;

		next = dirty_after(&sy->dirty, it);
		if (is_active(sy, it))
			continue;
		if (!shadow_attached(&sy->shadow, it->dir)) {
			dirty_done(&sy->dirty, it);
			continue;
		}
		s = stream_new(sy, it);
		if (!s || !next_step(s))
			return;
	}
}

void streams_detached(struct sync *sy)
{
	for (unsigned i = sy->streams.n; i-- > 0;) {
		struct stream *s = sy->streams.active[i];

		s->lost = true;
		if (s->busy)
			continue;
		dirty_retry(&sy->dirty, s->item);
		stream_free(s);
	}
}

uint64_t stream_age_ms(const struct sync *sy, const struct item *it)
{
	for (unsigned i = 0; i < sy->streams.n; i++)
		if (sy->streams.active[i]->item == it)
			return MAX(clock_mono_ms() - sy->streams.active[i]->start_ms, (uint64_t)1);
	return 0;
}
