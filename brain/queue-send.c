/* The plans as messages: content by PUSH, a piece at a time from a helper thread, then APPLY; as
 * many as there are, without waiting for answers. */
#include "brain/queue-impl.h"

#include <stdio.h>

#include "brain/link.h"
#include "wire/wire.pb-c.h"

enum {
	PIECE = 256 << 10,
	STEP = 1 << 20,
	ASK_MS = 60000,	     /* without any progress */
	LATER_MS = 86400000, /* those behind the one that is answered next */
	LINE_HIGH = 4 << 20,
	PAUSE_MS = 5,
};

static void send_next(struct queue *q);

/* ---- in the helper thread ---- */

static bool has_bytes(const struct part *p)
{
	const enum rec_step step = p->j.plan.step;

	if (p->j.plan.verdict != REC_APPLY)
		return false;
	return step == STEP_PUT_OVER || step == STEP_JOIN ||
	       (step == STEP_PUT_NEW &&
		(p->it->in.kind == INTENT_LINK ? p->it->in.base.type : p->it->in.wanted.type) ==
			NODE_TYPE_FILE);
}

static const struct node *thing(const struct item *it)
{
	return it->in.kind == INTENT_LINK ? &it->in.base : &it->in.wanted;
}

static bool is_merge(const struct item *it)
{
	return it->in.merge_last != 0;
}

static void begin_part(struct queue *q, const struct part *p)
{
	const struct node *n = thing(p->it);

	q->begun = true;
	q->push = 0;
	q->piece = 2;
	q->sent = 0;
	if (!has_bytes(p))
		return;
	q->push = p->push;
	q->piece = 0;
	q->piece_at = 0;
	q->pieces[0] = n->content;
	q->pieces[1] = (struct content_ref){0};
	q->piece_from[0] = q->piece_from[1] = 0;
	if (p->j.plan.step == STEP_JOIN) {
		q->pieces[0] = p->j.plan.base;
		q->pieces[1] = n->content;
		q->piece_from[1] = p->it->in.base.content.size_bytes;
	}
	sha256_free(q->hash);
	q->hash = sha256_new();
}

static int put_push(struct queue *q, const void *data, size_t n, bool last)
{
	Limbwire__Push p = LIMBWIRE__PUSH__INIT;
	uint8_t body[64];

	p.push = q->push;
	p.offset = q->sent;
	p.last = last;
	q->sent += n;
	q->sent_all += n;
	sha256_update(q->hash, data, n);
	return wframe_encode(&q->frames, WIRE_PUSH, body, limbwire__push__pack(&p, body), data, n,
			     q->env->compress);
}

static int read_piece(struct queue *q, struct buf *piece)
{
	const struct content_ref *ref = &q->pieces[q->piece];
	uint64_t left = ref->size_bytes - q->piece_at;
	int r;

	r = content_read(ref, q->piece_at, (size_t)MIN(left, (uint64_t)PIECE), store_fetch_fn,
			 q->env->brain->store, piece);
	if (r == 0 && buf_len(piece) == 0)
		r = -EBADMSG;
	q->piece_at += buf_len(piece);
	return r;
}

/* Bytes of the part that is begun. */
static int put_piece(struct queue *q)
{
	_cleanup_(buf_done) struct buf piece = BUF_INIT(PIECE + FRAME_RAW_MAX);
	int r = 0;

	if (q->piece_at < q->pieces[q->piece].size_bytes)
		r = read_piece(q, &piece);
	while (q->piece < 2 && q->piece_at >= q->pieces[q->piece].size_bytes)
		if (++q->piece < 2)
			q->piece_at = q->piece_from[q->piece];
	if (r == 0)
		r = put_push(q, buf_data(&piece), buf_len(&piece), q->piece == 2);
	if (r == 0 && q->piece == 2) {
		sha256_final(q->hash, q->became.sha256);
		q->became.size_bytes = q->sent;
	}
	return r;
}

static void fill_put(struct queue *q, const struct part *part, Limbwire__Apply *m, Limb__Attr *a,
		     Limb__Content *c)
{
	const struct rec_plan *p = &part->j.plan;
	const struct node *n = thing(part->it);
	const Limb__Intent *in = part->it->rec->intent;

	a->type = (Limb__NodeType)n->type;
	a->mode = n->mode;
	m->attr_defaults = true;
	/* A fork's change brings all attributes, as far as they can be had there. */
	if (is_merge(part->it)) {
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

static ProtobufCBinaryData hash_of(const struct content_ref *c)
{
	return (ProtobufCBinaryData){SHA256_BYTES, (uint8_t *)c->sha256};
}

static void fill_apply(struct queue *q, const struct part *part, Limbwire__Apply *m, Limb__Attr *a,
		       Limb__Content *c)
{
	const struct judged *j = &part->j;
	const struct rec_plan *p = &j->plan;

	switch (p->step) {
	case STEP_REMOVE:
		m->kind = LIMBWIRE__APPLY__KIND__REMOVE;
		m->node = p->node;
		m->careful = part->it->in.base.type != NODE_TYPE_DIRECTORY;
		break;
	case STEP_MOVE:
	case STEP_LINK:
		m->kind = p->step == STEP_MOVE ? LIMBWIRE__APPLY__KIND__MOVE
					       : LIMBWIRE__APPLY__KIND__LINK;
		m->node = p->node;
		m->replaces = p->replaces;
		m->no_replace = !p->replaces;
		m->make_parents = p->by_path;
		break;
	case STEP_ATTR:
		/* There is one root, which has no name. */
		m->node = p->node == NODE_ROOT ? 0 : p->node;
		m->attr = a;
		fill_attr(part->it, p, m, a);
		break;
	default:
		m->attr = a;
		fill_put(q, part, m, a, c);
		return;
	}
	m->left = j->left;
	m->replaces_left = j->replaces_left;
	if (m->left)
		m->node = 0;
	if (m->replaces_left)
		m->replaces = 0;
	if ((m->left && p->step == STEP_REMOVE) || m->replaces_left)
		m->base_sha256 = hash_of(&j->goes);
}

static int put_apply(struct queue *q, const struct part *part)
{
	Limbwire__Apply m = LIMBWIRE__APPLY__INIT;
	Limb__Attr attr = LIMB__ATTR__INIT;
	Limb__Content content = LIMB__CONTENT__INIT;
	const struct judged *j = &part->j;

	m.request = part->request;
	m.number = part->it->in.number;
	m.deadline_ms = ASK_MS - 1000;
	m.seen = q->seen;
	m.batch = q->n_parts > 1 ? q->batch : 0;
	m.origin = (Limb__Origin)q->applying;
	if (j->plan.verdict == REC_APPLY) {
		m.path = text(j->path);
		m.to_path = text(j->to_path);
		fill_apply(q, part, &m, &attr, &content);
	} else {
		m.path = text(part->it->path);
		m.kind = LIMBWIRE__APPLY__KIND__NOTHING;
	}
	return wframe_pack(&q->frames, WIRE_APPLY, &m.base, NULL, 0, q->env->compress);
}

static void send_work(uv_work_t *w)
{
	struct queue *q = container_of(w, struct queue, work);

	q->r = 0;
	while (q->r == 0 && q->at < q->n_parts && buf_len(&q->frames) < STEP) {
		const struct part *p = &q->parts[q->at];

		if (!q->begun)
			begin_part(q, p);
		if (q->piece < 2) {
			q->r = put_piece(q);
			continue;
		}
		q->r = put_apply(q, p);
		q->begun = false;
		q->at++;
	}
}

/* ---- on the loop ---- */

/* The one that is answered next is the one that has a deadline. */
static void extend(struct queue *q)
{
	for (size_t i = 0; i < q->n_parts; i++)
		if (!q->parts[i].answered) {
			link_extend(q->env, q->parts[i].request, ASK_MS);
			return;
		}
}

static void answer(struct part *p, int r, const char *detail)
{
	p->answered = true;
	p->r = r;
	(void)snprintf(p->detail, sizeof(p->detail), "%.*s", (int)sizeof(p->detail) - 1, detail);
}

static void answered(struct env *env, int r, const struct entry_head *e, void *userdata)
{
	const struct entry_done *d = (const struct entry_done *)e;
	struct part *p = userdata;
	struct queue *q = p->queue;
	char detail[ENTRY_TEXT_MAX + 1] = "";

	(void)env;
	if (r == 0 && d->error) {
		r = -d->error;
		(void)snprintf(detail, sizeof(detail), "%.*s",
			       (int)MIN(d->len, (uint32_t)ENTRY_TEXT_MAX), (const char *)(d + 1));
	}
	/* No answer of its own: nobody knows; the number makes asking again harmless. */
	answer(p, r == 0 || e ? r : -ENOTCONN, detail);
	extend(q);
	if (!q->working) /* else its thread ends first */
		queue_answered(q);
}

/* What was not sent is not waited for. */
static void give_up(struct queue *q, size_t from, int r, const char *detail)
{
	for (size_t i = from; i < q->n_parts; i++) {
		struct part *p = &q->parts[i];

		if (p->answered)
			continue;
		link_forget(q->env, p->request);
		answer(p, i == from ? r : -ECANCELED, detail);
	}
	q->at = q->n_parts;
	q->begun = false;
}

static bool any_refused(const struct queue *q)
{
	for (size_t i = 0; i < q->n_parts; i++)
		if (q->parts[i].answered && q->parts[i].r < 0)
			return true;
	return false;
}

static void send_worked(uv_work_t *w, int status)
{
	struct queue *q = container_of(w, struct queue, work);
	int r;

	(void)status;
	q->working = false;
	q->env->threads--;
	r = link_send_raw(q->env, buf_data(&q->frames), buf_len(&q->frames));
	buf_clear(&q->frames);
	if (r < 0)
		give_up(q, 0, -ENOTCONN, "");
	else if (q->r < 0)
		give_up(q, q->at, -EIO, "its content cannot be read");
	else if (any_refused(q))
		give_up(q, q->at, -ECANCELED, "");
	extend(q);
	send_next(q);
}

static void pause_over(uv_timer_t *t)
{
	struct queue *q = container_of(t, struct queue, pause);

	if (q->state == QUEUE_SENDING && !q->working && !q->all_sent)
		send_next(q);
}

static void send_next(struct queue *q)
{
	if (q->at == q->n_parts) {
		q->all_sent = true;
		queue_sent(q);
		return;
	}
	if (link_queued(q->env) >= LINE_HIGH) {
		(void)uv_timer_start(&q->pause, pause_over, PAUSE_MS, 0);
		return;
	}
	if (uv_queue_work(q->env->brain->loop, &q->work, send_work, send_worked) < 0) {
		give_up(q, q->at, -ENOTCONN, "");
		send_next(q);
		return;
	}
	q->working = true;
	q->env->threads++;
}

static int ask_all(struct queue *q)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < q->n_parts; i++) {
		Limbwire__Apply m = LIMBWIRE__APPLY__INIT;

		m.request = q->parts[i].request;
		m.kind = LIMBWIRE__APPLY__KIND__ASK;
		m.number = q->parts[i].it->in.number;
		m.path = text(q->parts[i].it->path);
		r = link_send(q->env, WIRE_APPLY, &m.base, NULL, 0);
	}
	return r;
}

void send_end(struct queue *q)
{
	for (size_t i = 0; i < q->n_parts; i++)
		if (q->parts[i].request && !q->parts[i].answered)
			link_forget(q->env, q->parts[i].request);
	(void)uv_timer_stop(&q->pause);
}

int send_begin(struct queue *q, bool ask)
{
	int r = 0;

	q->at = 0;
	q->begun = q->all_sent = q->barrier = false;
	q->sent_all = 0;
	q->batch++;
	buf_clear(&q->frames);
	for (size_t i = 0; i < q->n_parts; i++) {
		struct part *p = &q->parts[i];

		p->queue = q;
		p->answered = false;
		p->r = 0;
		p->request = 0;
		p->push = !ask && has_bytes(p) ? link_push_number() : 0;
	}
	for (size_t i = 0; r == 0 && i < q->n_parts; i++)
		r = link_expect(q->env, ENTRY_DONE, LATER_MS, answered, &q->parts[i],
				&q->parts[i].request);
	if (r == 0 && ask)
		r = ask_all(q);
	if (r < 0) {
		send_end(q);
		return r;
	}
	extend(q);
	if (ask)
		return 0;
	q->applying = is_merge(q->parts[0].it) ? ORIGIN_MERGE_ : ORIGIN_BRAIN_;
	q->env->applying[q->applying]++;
	send_next(q);
	return 0;
}
