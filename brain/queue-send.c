/* The plan as messages: its content by PUSH, a piece at a time from a helper thread, then APPLY. */
#include "brain/queue-impl.h"

#include <stdio.h>

#include "brain/link.h"
#include "wire/wire.pb-c.h"

enum {
	PIECE = 256 << 10,
	STEP = 1 << 20,
	ASK_MS = 60000, /* without any progress */
	LINE_HIGH = 4 << 20,
	PAUSE_MS = 5,
};

static void send_next(struct queue *q);

static void fail(struct queue *q, int r)
{
	link_forget(q->env, q->request);
	queue_answered(q, r, "its content cannot be read");
}

static int put_push(struct queue *q, const void *data, size_t n, bool last)
{
	Limbwire__Push p = LIMBWIRE__PUSH__INIT;
	uint8_t body[64];

	p.push = q->push;
	p.offset = q->sent;
	p.last = last;
	q->sent += n;
	sha256_update(q->hash, data, n);
	return wframe_encode(&q->frames, WIRE_PUSH, body, limbwire__push__pack(&p, body), data, n,
			     q->env->compress);
}

static int read_piece(struct queue *q, struct buf *piece)
{
	const struct content_ref *ref = &q->parts[q->part];
	uint64_t left = ref->size_bytes - q->part_at;
	int r;

	r = content_read(ref, q->part_at, (size_t)MIN(left, (uint64_t)PIECE), store_fetch_fn,
			 q->env->brain->store, piece);
	if (r == 0 && buf_len(piece) == 0)
		r = -EBADMSG;
	q->part_at += buf_len(piece);
	return r;
}

static void send_work(uv_work_t *w)
{
	struct queue *q = container_of(w, struct queue, work);
	_cleanup_(buf_done) struct buf piece = BUF_INIT(PIECE + FRAME_RAW_MAX);
	int r = 0;

	while (r == 0 && !q->all_sent && buf_len(&q->frames) < STEP) {
		buf_clear(&piece);
		while (q->part < 2 && q->part_at >= q->parts[q->part].size_bytes) {
			if (++q->part < 2)
				q->part_at = q->part_from[q->part];
		}
		if (q->part < 2)
			r = read_piece(q, &piece);
		else
			q->all_sent = true;
		if (r == 0)
			r = put_push(q, buf_data(&piece), buf_len(&piece), q->all_sent);
	}
	q->judged.r = r;
}

static enum rec_step step_of(const struct queue *q)
{
	return q->judged.plan.step;
}

static const struct node *thing(const struct item *it)
{
	return it->in.kind == INTENT_LINK ? &it->in.base : &it->in.wanted;
}

static bool is_merge(const struct item *it)
{
	return it->in.merge_last != 0;
}

static void fill_put(struct queue *q, Limbwire__Apply *m, Limb__Attr *a, Limb__Content *c)
{
	const struct rec_plan *p = &q->judged.plan;
	const struct node *n = thing(q->item);
	const Limb__Intent *in = q->item->rec->intent;

	a->type = (Limb__NodeType)n->type;
	a->mode = n->mode;
	m->attr_defaults = true;
	/* A fork's change brings all attributes, as far as they can be had there. */
	if (is_merge(q->item)) {
		*a = in->kind == LIMB__INTENT_KIND__INTENT_LINK ? *in->seen : *in->wanted;
		m->attr_defaults = false;
		m->lenient = true;
	}
	m->no_replace = p->step == STEP_PUT_NEW;
	m->make_parents = p->by_path;
	switch (n->type) {
	case NODE_TYPE_DIRECTORY: m->kind = LIMBWIRE__APPLY__KIND__MKDIR; return;
	case NODE_TYPE_FIFO:
	case NODE_TYPE_SOCKET:
	case NODE_TYPE_CHAR:
	case NODE_TYPE_BLOCK: m->kind = LIMBWIRE__APPLY__KIND__SYMLINK; return;
	case NODE_TYPE_SYMLINK:
		m->kind = LIMBWIRE__APPLY__KIND__SYMLINK;
		a->target = (ProtobufCBinaryData){n->target_len, (uint8_t *)n->target};
		return;
	default: break;
	}
	m->kind = LIMBWIRE__APPLY__KIND__PUT;
	m->content = c;
	m->push = q->push;
	c->size_bytes = q->sent;
	if (p->step == STEP_PUT_NEW)
		return;
	m->keep_attr = true;
	m->base_sha256 = (ProtobufCBinaryData){SHA256_BYTES, (uint8_t *)p->base.sha256};
}

static void fill_attr(const struct item *it, const struct rec_plan *p, Limbwire__Apply *m,
		      Limb__Attr *a)
{
	const struct node *n = &it->in.wanted;

	m->kind = LIMBWIRE__APPLY__KIND__ATTR;
	m->fields = p->fields;
	a->type = (Limb__NodeType)n->type;
	a->mode = n->mode;
	a->uid_kind = (Limb__OwnerKind)n->uid_kind;
	a->uid = n->uid;
	a->gid_kind = (Limb__OwnerKind)n->gid_kind;
	a->gid = n->gid;
	a->mtime_ns = n->mtime_ns;
	if (n->type == NODE_TYPE_SYMLINK)
		a->target = (ProtobufCBinaryData){n->target_len, (uint8_t *)n->target};
	if (p->fields & NODE_FIELD_XATTR) {
		a->n_xattrs = it->rec->intent->wanted->n_xattrs;
		a->xattrs = it->rec->intent->wanted->xattrs;
	}
}

static ProtobufCBinaryData text(const char *s)
{
	return (ProtobufCBinaryData){s ? strlen(s) : 0, (uint8_t *)(uintptr_t)s};
}

static int send_apply(struct queue *q)
{
	Limbwire__Apply m = LIMBWIRE__APPLY__INIT;
	Limb__Attr attr = LIMB__ATTR__INIT;
	Limb__Content content = LIMB__CONTENT__INIT;
	const struct judged *j = &q->judged;
	const struct rec_plan *p = &j->plan;

	m.request = q->request;
	m.number = q->item->in.number;
	m.deadline_ms = ASK_MS - 1000;
	m.seen = j->seen;
	m.origin = (Limb__Origin)q->applying;
	m.path = text(j->path);
	m.to_path = text(j->to_path);
	switch (p->step) {
	case STEP_REMOVE:
		m.kind = LIMBWIRE__APPLY__KIND__REMOVE;
		m.node = p->node;
		m.careful = q->item->in.base.type != NODE_TYPE_DIRECTORY;
		break;
	case STEP_MOVE:
	case STEP_LINK:
		m.kind = p->step == STEP_MOVE ? LIMBWIRE__APPLY__KIND__MOVE
					      : LIMBWIRE__APPLY__KIND__LINK;
		m.node = p->node;
		m.replaces = p->replaces;
		m.no_replace = !p->replaces;
		m.make_parents = p->by_path;
		break;
	case STEP_ATTR:
		m.node = p->node;
		m.attr = &attr;
		fill_attr(q->item, p, &m, &attr);
		break;
	default: m.attr = &attr; fill_put(q, &m, &attr, &content);
	}
	return link_send(q->env, WIRE_APPLY, &m.base, NULL, 0);
}

static void answered(struct env *env, int r, const struct entry_head *e, void *userdata)
{
	const struct entry_done *d = (const struct entry_done *)e;
	struct queue *q = userdata;
	char detail[ENTRY_TEXT_MAX + 1] = "";

	(void)env;
	if (r == 0 && d->error) {
		r = -d->error;
		(void)snprintf(detail, sizeof(detail), "%.*s",
			       (int)MIN(d->len, (uint32_t)ENTRY_TEXT_MAX), (const char *)(d + 1));
	}
	if (q->working) { /* its thread ends first */
		q->judged.plan.verdict = REC_WAIT;
		return;
	}
	/* No answer of its own: nobody knows; the number makes asking again harmless. */
	queue_answered(q, r == 0 || e ? r : -ENOTCONN, detail);
}

static void send_worked(uv_work_t *w, int status)
{
	struct queue *q = container_of(w, struct queue, work);
	int r = q->judged.r;

	(void)status;
	q->working = false;
	q->env->threads--;
	if (q->judged.plan.verdict != REC_APPLY) { /* the line fell meanwhile */
		queue_answered(q, -ENOTCONN, "");
		return;
	}
	if (r == 0)
		r = link_send_raw(q->env, buf_data(&q->frames), buf_len(&q->frames));
	buf_clear(&q->frames);
	if (r < 0) {
		fail(q, r == -ENOTCONN ? r : -EIO);
		return;
	}
	link_extend(q->env, q->request, ASK_MS);
	send_next(q);
}

static void pause_over(uv_timer_t *t)
{
	struct queue *q = container_of(t, struct queue, pause);

	if (q->state == QUEUE_SENDING && !q->working)
		send_next(q);
}

static void send_next(struct queue *q)
{
	int r;

	if (q->all_sent) {
		sha256_final(q->hash, q->became.sha256);
		q->became.size_bytes = q->sent;
		q->state = QUEUE_ASKED;
		r = send_apply(q);
		if (r < 0)
			fail(q, -ENOTCONN);
		return;
	}
	if (link_queued(q->env) >= LINE_HIGH) {
		(void)uv_timer_start(&q->pause, pause_over, PAUSE_MS, 0);
		return;
	}
	r = uv_queue_work(q->env->brain->loop, &q->work, send_work, send_worked);
	if (r < 0) {
		fail(q, -ENOTCONN);
		return;
	}
	q->working = true;
	q->env->threads++;
}

void send_begin(struct queue *q)
{
	const struct rec_plan *p = &q->judged.plan;
	const struct node *n = thing(q->item);
	bool file = (step_of(q) == STEP_PUT_NEW && n->type == NODE_TYPE_FILE) ||
		    step_of(q) == STEP_PUT_OVER || step_of(q) == STEP_JOIN;
	int r;

	r = link_expect(q->env, ENTRY_DONE, ASK_MS, answered, q, &q->request);
	if (r < 0) {
		queue_answered(q, -ENOTCONN, "");
		return;
	}
	q->state = QUEUE_SENDING;
	q->applying = is_merge(q->item) ? ORIGIN_MERGE_ : ORIGIN_BRAIN_;
	q->env->applying[q->applying]++;
	q->push = file ? link_push_number() : 0;
	q->all_sent = !file;
	q->part = 0;
	q->part_at = q->sent = 0;
	q->parts[0] = n->content;
	q->parts[1] = (struct content_ref){0};
	q->part_from[0] = q->part_from[1] = 0;
	if (step_of(q) == STEP_JOIN) {
		q->parts[0] = p->base;
		q->parts[1] = n->content;
		q->part_from[1] = q->item->in.base.content.size_bytes;
	}
	sha256_free(q->hash);
	q->hash = sha256_new();
	buf_clear(&q->frames);
	send_next(q);
}
