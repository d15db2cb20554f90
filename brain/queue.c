#include "brain/queue-impl.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "brain/accept.h"
#include "brain/commit.h"
#include "brain/link.h"
#include "wire/attr.h"

enum { TICK_MS = 200 };

/* ---- items ---- */

void item_free(struct item *it)
{
	if (!it)
		return;
	if (it->rec)
		limb__record__free_unpacked(it->rec, NULL);
	buf_done(&it->xattrs[0]);
	buf_done(&it->xattrs[1]);
	free(it->path);
	free(it->to_path);
	free(it);
}

static struct intent_name name_of(uint64_t parent, const ProtobufCBinaryData *b)
{
	size_t len = MIN(b->len, (size_t)NODE_NAME_MAX);

	return (struct intent_name){parent, (const char *)b->data, (uint16_t)len};
}

static char *path_of(const ProtobufCBinaryData *b)
{
	return strndup((const char *)b->data ? (const char *)b->data : "", b->len);
}

static int take_node(struct item *it, unsigned which, const Limb__Attr *a, const Limb__Content *c,
		     struct node *ret)
{
	const char *why;

	buf_init(&it->xattrs[which], NODE_XATTRS_MAX);
	if (!a)
		return 0;
	return wire_attr_parse(a, a->type == LIMB__NODE_TYPE__NODE_FILE ? c : NULL,
			       &it->xattrs[which], ret, &why);
}

/* An item from a record's body, as the log or the index has it. */
static int item_new(struct queue *q, const uint8_t *body, size_t n, struct item **ret)
{
	struct item *it = calloc(1, sizeof(*it));
	const Limb__Intent *m;
	int r = -EBADMSG;

	if (!it)
		return -ENOMEM;
	it->queue = q;
	it->rec = limb__record__unpack(NULL, n, body);
	if (!it->rec || it->rec->body_case != LIMB__RECORD__BODY_INTENT)
		goto out;
	m = it->rec->intent;
	if (m->kind < LIMB__INTENT_KIND__INTENT_CREATE || m->kind > LIMB__INTENT_KIND__INTENT_ATTR)
		goto out;
	it->path = path_of(&m->path);
	it->to_path = path_of(&m->to_path);
	r = it->path && it->to_path ? 0 : -ENOMEM;
	if (r == 0)
		r = take_node(it, 0, m->wanted, m->wanted_content, &it->in.wanted);
	if (r == 0)
		r = take_node(it, 1, m->seen, m->seen_content, &it->in.base);
	if (r < 0)
		goto out;
	it->in.number = m->change;
	it->in.kind = (uint8_t)m->kind;
	it->in.node = m->node;
	it->in.at = name_of(m->parent, &m->name);
	it->in.to = name_of(m->to_parent, &m->to_name);
	it->in.replaces = m->replaces;
	it->in.shared = m->shared;
	it->in.path = it->path;
	it->in.to_path = it->to_path;
	it->in.fields = m->fields;
	it->in.view_epoch = m->view_epoch;
	it->in.view_number = m->view_number;
	it->in.merge_last = m->merge_last;
	it->in.merge_node = m->merge_node;
	it->base_seq = it->rec->base_seq;
	*ret = it;
	return 0;
out:
	item_free(it);
	return r;
}

static uint64_t item_bytes(const struct item *it)
{
	return it->in.kind == INTENT_CREATE || it->in.kind == INTENT_WRITE
		       ? it->in.wanted.content.size_bytes
		       : 0;
}

static void item_append(struct queue *q, struct item *it)
{
	*q->tail = it;
	q->tail = &it->next;
	q->n++;
	q->n_unapplied += it->error != 0;
	q->bytes += item_bytes(it);
	q->last = MAX(q->last, it->in.number);
	view_append(q, it);
}

void item_remove(struct queue *q, struct item *it)
{
	struct item **p = &q->head;

	while (*p != it)
		p = &(*p)->next;
	*p = it->next;
	if (!it->next)
		q->tail = p;
	q->n--;
	q->n_unapplied -= it->error != 0;
	q->bytes -= item_bytes(it);
	q->view_fresh = false;
	item_free(it);
	if (q->n == 0) {
		facts_clear(&q->facts);
		merge_forget(q);
	}
}

/* ---- opening ---- */

static int load_item(const struct index_intent *row, void *userdata)
{
	struct queue *q = userdata;
	struct item *it;
	int r = item_new(q, row->body, row->n, &it);

	if (r == -EBADMSG)
		return 0; /* no writer of ours wrote it */
	if (r < 0)
		return r;
	it->seq = row->seq;
	it->since_ns = row->time_ns;
	it->error = row->error;
	it->durable = true;
	item_append(q, it);
	return 0;
}

static int load_end(const struct index_intent *row, void *userdata)
{
	Limb__Record *rec = limb__record__unpack(NULL, row->n, row->body);
	struct queue *q = userdata;
	int r = 0;

	if (rec && rec->body_case == LIMB__RECORD__BODY_INTENT_END)
		r = facts_take(&q->facts, rec->intent_end);
	if (rec)
		limb__record__free_unpacked(rec, NULL);
	return r;
}

static void tick(uv_timer_t *t);

int queue_open(struct env *env)
{
	struct queue *q = calloc(1, sizeof(*q));
	struct index_txn *t;
	int r;

	if (q)
		q->parts = calloc(PARTS_MAX, sizeof(*q->parts));
	if (!q || !q->parts) {
		free(q);
		return -ENOMEM;
	}
	q->env = env;
	q->window = BATCH_MAX;
	q->tail = &q->head;
	buf_init(&q->target, NODE_TARGET_MAX + 1);
	buf_init(&q->xattrs, NODE_XATTRS_MAX);
	buf_init(&q->frames, 4 << 20);
	env->queue = q;
	(void)uv_timer_init(env->brain->loop, &q->timer);
	(void)uv_timer_init(env->brain->loop, &q->pause);
	r = env_read_begin(env, &t);
	if (r < 0)
		return r;
	r = index_intents(t, load_item, q);
	if (r == 0)
		r = index_intent_ends(t, load_end, q);
	q->last = MAX(q->last, index_last_change(t));
	q->durable_to = q->last;
	q->conflicts = index_conflict_count(t);
	index_read_end(t);
	return r < 0 ? r : merge_open(q);
}

static void waiting_end(struct queue *q, struct waiting *w, int r)
{
	struct waiting **p = &q->waiting;

	while (*p != w)
		p = &(*p)->next;
	*p = w->next;
	w->res.r = r;
	w->fn(q->env, &w->res, w->userdata);
	free(w);
}

static void queue_closed(uv_handle_t *h)
{
	struct queue *q = h->data;

	if (--q->closing == 0)
		free(q);
}

void queue_close(struct env *env)
{
	struct queue *q = env->queue;
	struct item *it;

	if (!q)
		return;
	env->queue = NULL;
	while (q->waiting)
		waiting_end(q, q->waiting, -ECANCELED);
	while ((it = q->head)) {
		q->head = it->next;
		item_free(it);
	}
	facts_clear(&q->facts);
	merge_forget(q);
	view_clear(q);
	for (size_t i = 0; i < PARTS_MAX; i++)
		judged_done(&q->parts[i].j);
	free(q->parts);
	ahead_free(q->ahead);
	sha256_free(q->hash);
	buf_done(&q->target);
	buf_done(&q->xattrs);
	buf_done(&q->frames);
	q->closing = 2;
	q->timer.data = q->pause.data = q;
	uv_close((uv_handle_t *)&q->timer, queue_closed);
	uv_close((uv_handle_t *)&q->pause, queue_closed);
}

void queue_counts(struct env *env, struct queue_counts *ret)
{
	const struct queue *q = env->queue;

	*ret = (struct queue_counts){0};
	if (!q)
		return;
	ret->changes = q->n - q->n_unapplied;
	ret->unapplied = q->n_unapplied;
	ret->bytes = q->bytes;
	ret->conflicts = q->conflicts;
}

bool queue_is_empty(const struct env *env)
{
	return !env->queue || env->queue->n == env->queue->n_unapplied;
}

uint64_t queue_view_done(const struct env *env, uint64_t consumed)
{
	for (const struct item *it = env->queue ? env->queue->head : NULL; it; it = it->next)
		if (!it->error && it->in.view_number && it->in.view_number <= consumed)
			consumed = it->in.view_number - 1;
	return consumed;
}

bool queue_has_room(const struct env *env, size_t n)
{
	return env->queue && !env->full && n <= QUEUE_MAX && env->queue->n <= QUEUE_MAX - n;
}

/* ---- adding ---- */

static void fill_bytes(ProtobufCBinaryData *b, const void *p, size_t n)
{
	*b = (ProtobufCBinaryData){n, (uint8_t *)(uintptr_t)p};
}

static int pack(const struct env *env, const struct intent *in, uint64_t base_seq, uint8_t **ret,
		size_t *ret_n)
{
	struct wire_attr_scratch wanted = {0}, seen = {0};
	Limb__Record rec = LIMB__RECORD__INIT;
	Limb__Intent m = LIMB__INTENT__INIT;
	int r = 0;

	m.change = in->number;
	m.kind = (Limb__IntentKind)in->kind;
	m.node = in->node;
	m.parent = in->at.parent;
	fill_bytes(&m.name, in->at.name, in->at.len);
	m.to_parent = in->to.parent;
	fill_bytes(&m.to_name, in->to.name, in->to.len);
	m.replaces = in->replaces;
	m.shared = in->shared;
	fill_bytes(&m.path, in->path, in->path ? strlen(in->path) : 0);
	fill_bytes(&m.to_path, in->to_path, in->to_path ? strlen(in->to_path) : 0);
	m.fields = in->fields;
	m.view_epoch = in->view_epoch;
	m.view_number = in->view_number;
	m.merge_last = in->merge_last;
	m.merge_node = in->merge_node;
	if (in->wanted.type) {
		r = wire_attr_fill(&wanted, &in->wanted);
		m.wanted = &wanted.attr;
		if (in->wanted.type == NODE_TYPE_FILE)
			m.wanted_content = &wanted.content;
	}
	if (r == 0 && in->base.type) {
		r = wire_attr_fill(&seen, &in->base);
		m.seen = &seen.attr;
		if (in->base.type == NODE_TYPE_FILE)
			m.seen_content = &seen.content;
	}
	rec.incarnation = env->incarnation;
	rec.origin = in->view_number  ? LIMB__ORIGIN__ORIGIN_VIEW
		     : in->merge_last ? LIMB__ORIGIN__ORIGIN_MERGE
				      : LIMB__ORIGIN__ORIGIN_BRAIN;
	rec.base_seq = base_seq;
	rec.body_case = LIMB__RECORD__BODY_INTENT;
	rec.intent = &m;
	if (r == 0) {
		*ret_n = limb__record__get_packed_size(&rec);
		*ret = malloc(*ret_n);
		r = *ret ? 0 : -ENOMEM;
	}
	if (r == 0)
		(void)limb__record__pack(&rec, *ret);
	wire_attr_scratch_done(&wanted);
	wire_attr_scratch_done(&seen);
	return r;
}

static void added(int r, uint64_t seq, void *userdata)
{
	struct item *it = userdata;
	queue_durable_fn fn = it->fn;
	void *ud = it->userdata;

	if (r == -ECANCELED) { /* the environment goes, and the queue with it */
		if (fn)
			fn(r, seq, ud);
		return;
	}
	it->durable = r == 0;
	if (r == 0)
		it->queue->durable_to = MAX(it->queue->durable_to, it->in.number);
	it->seq = seq;
	it->fn = NULL;
	if (r < 0)
		item_remove(it->queue, it); /* the log has failed: nothing goes on anyway */
	else
		queue_kick(it->queue->env);
	if (fn)
		fn(r, seq, ud);
}

int queue_add(struct env *env, struct intent *in, queue_durable_fn fn, void *userdata)
{
	struct queue *q = env->queue;
	cleanup_free uint8_t *body = NULL;
	struct item *it;
	size_t n;
	int r;

	if (!q || !env->commit)
		return -EIO;
	if (!queue_has_room(env, 1))
		return -EDQUOT;
	in->number = q->last + 1;
	r = pack(env, in, in->base_seq ? MIN(in->base_seq, env_seq(env)) : env_seq(env), &body, &n);
	if (r == 0)
		r = item_new(q, body, n, &it);
	if (r < 0)
		return r;
	it->fn = fn;
	it->userdata = userdata;
	it->since_ns = clock_real_ns();
	r = commit_submit(env, RECORD_INTENT, it->rec, added, it);
	if (r < 0) {
		item_free(it);
		return r;
	}
	item_append(q, it);
	return 0;
}

/* ---- waiting ---- */

static void tick_soon(struct queue *q)
{
	if (!uv_is_active((uv_handle_t *)&q->timer))
		(void)uv_timer_start(&q->timer, tick, TICK_MS, 0);
}

/* Whoever makes it possible kicks; what is overlooked there costs a moment, not more. While the
 * line is down nothing is tried. */
void queue_later(struct queue *q)
{
	if (link_up(q->env))
		tick_soon(q);
}

static void tick(uv_timer_t *t)
{
	struct queue *q = container_of(t, struct queue, timer);
	uint64_t now = clock_mono_ms();

	for (struct waiting *w = q->waiting, *next; w; w = next) {
		next = w->next;
		if (w->ms && now >= w->until_ms)
			waiting_end(q, w, -ETIMEDOUT);
	}
	queue_kick(q->env);
	if (q->waiting)
		tick_soon(q);
}

/* Is none of those up to `last` waiting any more? */
static bool all_over(const struct queue *q, uint64_t last)
{
	for (const struct item *it = q->head; it; it = it->next)
		if (!it->error && it->in.number <= last)
			return false;
	return true;
}

int queue_wait(struct env *env, uint64_t ms, queue_fn fn, void *userdata)
{
	struct queue *q = env->queue;
	struct waiting *w = q ? calloc(1, sizeof(*w)) : NULL;

	if (!w)
		return q ? -ENOMEM : -EIO;
	w->last = q->last;
	w->ms = ms;
	w->until_ms = clock_mono_ms() + ms;
	w->fn = fn;
	w->userdata = userdata;
	w->next = q->waiting;
	q->waiting = w;
	if (all_over(q, w->last))
		waiting_end(q, w, 0);
	else
		tick_soon(q);
	return 0;
}

/* It ended: applied, done, conflict; or with an error it stays, unapplied. */
void queue_over(struct queue *q, struct item *it, const char *outcome, int error, uint64_t seq)
{
	uint64_t number = it->in.number;

	q->views_over |= it->in.view_number != 0;
	if (it->in.view_number && (error || strcmp(outcome, "conflict") == 0))
		accept_refused(q->env, it->in.view_epoch, it->in.view_number,
			       error ? error : EBUSY);
	if (error && !it->error)
		q->n_unapplied++;
	if (error) {
		it->error = error;
		q->view_fresh = false;
	} else {
		item_remove(q, it);
	}
	for (struct waiting *w = q->waiting; w; w = w->next) {
		w->until_ms = clock_mono_ms() + w->ms;
		if (number > w->last)
			continue;
		w->res.applied += !error && strcmp(outcome, "conflict") != 0;
		w->res.conflicts += !error && strcmp(outcome, "conflict") == 0;
		w->res.unapplied += error != 0;
		w->res.error = error ? error : w->res.error;
		w->res.seq = MAX(w->res.seq, seq);
	}
}

void queue_told(struct queue *q)
{
	if (q->views_over) {
		q->views_over = false;
		accept_ended(q->env);
	}
	for (struct waiting *w = q->waiting, *next; w; w = next) {
		next = w->next;
		if (all_over(q, w->last))
			waiting_end(q, w, 0);
	}
}

/* ---- a person's word ---- */

void queue_conflict_resolved(struct env *env)
{
	if (env->queue && env->queue->conflicts)
		env->queue->conflicts--;
}

void queue_unapplied(struct env *env, queue_refused_fn each, void *userdata)
{
	for (struct item *it = env->queue ? env->queue->head : NULL; it; it = it->next) {
		struct queue_refused u = {it->in.number, it->error, it->path, it->since_ns};

		if (it->error)
			each(&u, userdata);
	}
}

static int decide(struct env *env, const char *verb, const struct item *it, queue_durable_fn fn,
		  void *userdata)
{
	Limb__Record rec = LIMB__RECORD__INIT;
	Limb__Decision d = LIMB__DECISION__INIT;
	char key[24];

	(void)snprintf(key, sizeof(key), "%llu", (unsigned long long)it->in.number);
	d.verb = (char *)verb;
	d.key = key;
	fill_bytes(&d.path, it->path, strlen(it->path));
	rec.origin = LIMB__ORIGIN__ORIGIN_BRAIN;
	rec.body_case = LIMB__RECORD__BODY_DECISION;
	rec.decision = &d;
	return commit_submit(env, RECORD_DECISION, &rec, fn, userdata);
}

/* Of the last one the caller hears. */
static int decide_all(struct env *env, const char *path, bool retry, queue_durable_fn fn,
		      void *userdata)
{
	struct queue *q = env->queue;
	struct item *last = NULL;
	int r = 0;

	for (struct item *it = q ? q->head : NULL; it; it = it->next)
		if (it->error && strcmp(it->path, path) == 0)
			last = it;
	if (!last)
		return -ENOENT;
	for (struct item *it = q->head, *next; r == 0 && it; it = next) {
		bool here = it->error && strcmp(it->path, path) == 0, end = it == last;

		next = it->next;
		/* What waited for it goes on, too, and is judged anew. */
		if (!here && !(it->error == ECANCELED && it->in.number > 0))
			continue;
		if (here && !retry) {
			r = decide(env, "drop", it, end ? fn : NULL, userdata);
			if (r == 0)
				item_remove(q, it);
			continue;
		}
		r = decide(env, "retry", it, end ? fn : NULL, userdata);
		if (r == 0) {
			it->error = 0;
			q->n_unapplied--;
			q->view_fresh = false;
		}
	}
	queue_kick(env);
	return r;
}

int queue_retry(struct env *env, const char *path, queue_durable_fn fn, void *userdata)
{
	return decide_all(env, path, true, fn, userdata);
}

int queue_drop(struct env *env, const char *path, queue_durable_fn fn, void *userdata)
{
	return decide_all(env, path, false, fn, userdata);
}

void queue_drop_of_view(struct env *env, uint64_t epoch, uint64_t first, uint64_t last)
{
	struct queue *q = env->queue;

	for (struct item *it = q ? q->head : NULL, *next; it; it = next) {
		next = it->next;
		if (it->error && it->in.view_epoch == epoch && it->in.view_number >= first &&
		    it->in.view_number <= last && decide(env, "drop", it, NULL, NULL) == 0)
			item_remove(q, it);
	}
}
