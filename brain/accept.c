#include "brain/accept.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "brain/keep.h"
#include "brain/link.h"
#include "brain/queue.h"
#include "brain/view.h"

enum {
	BATCH_MAX = 256,
	BATCH_BYTES = 64 << 20,
	PIECE = 1 << 20,
	MOMENT_MS = 60, /* the bytes of what was just made come */
	RETRY_MS = 1000,
	RETRY_MAX_MS = 8000,
	DRAIN_MS = 5000,
	QUEUE_MS = 60000, /* without any progress */
	QUEUE_LAST_MS = 10000,
};

struct taken {
	struct accepted e;
	char *path, *to_path;
	uint8_t *target, *xattrs;
	bool merged; /* its content is that of an earlier CREATE */
	int r;	     /* its content cannot be had */
};

struct draining {
	struct draining *next;
	struct accept *a;
	struct call *call; /* NULL: it gave up, or there is none */
	accept_then_fn then;
	accept_drained_fn fn;
	void *userdata;
	uint64_t token, late_ms;
	bool applied; /* the queue is waited for, too */
	bool tried;   /* ... not for long, and what then waits there is no failure */
	enum { DRAIN_ASKED, DRAIN_LOGGED, DRAIN_READING, DRAIN_QUEUED } state;
};

struct accept {
	struct env *env;
	uv_work_t work;
	uv_timer_t timer, late;
	bool working, again, soon;
	unsigned closing;
	uint64_t token;
	struct draining *draining;

	/* what has become an INTENT: asked for, durable */
	uint64_t epoch, asked, consumed;
	uint64_t min_base; /* record that ended the newest intent of the view */
	uint64_t told;
	unsigned pending;  /* not durable yet */
	bool failed;	   /* one could not be added: read again from what is consumed */
	unsigned failures; /* ... in a row */

	/* the helper thread's, while it works */
	struct accepted_reader *reader;
	int dir_fd;
	struct taken batch[BATCH_MAX];
	size_t n;
	bool at_end;
	int r;
};

/* ---- reading, in the thread ---- */

static int copy_entry(struct taken *t, const struct accepted *e)
{
	*t = (struct taken){.e = *e};
	t->path = strdup(e->path);
	t->to_path = strdup(e->to_path);
	t->target = malloc(e->n.target_len + 1);
	t->xattrs = malloc(e->n.xattrs_len + 1);
	if (!t->path || !t->to_path || !t->target || !t->xattrs)
		return -ENOMEM;
	memcpy(t->target, e->n.target, e->n.target_len);
	memcpy(t->xattrs, e->n.xattrs, e->n.xattrs_len);
	t->e.n.xattrs = t->xattrs;
	t->e.path = t->path;
	t->e.to_path = t->to_path;
	t->e.n.target = e->n.target_len ? t->target : NULL;
	return 0;
}

static void batch_clear(struct accept *a)
{
	for (size_t i = 0; i < a->n; i++) {
		free(a->batch[i].path);
		free(a->batch[i].to_path);
		free(a->batch[i].target);
		free(a->batch[i].xattrs);
	}
	a->n = 0;
}

static int read_batch(struct accept *a)
{
	uint64_t bytes = 0;
	struct accepted e;
	int r = 0;

	if (a->dir_fd < 0)
		a->dir_fd = file_open_dir(a->env->dir_fd, ACCEPTED_DIR);
	if (a->dir_fd < 0)
		return a->dir_fd;
	if (!a->reader)
		r = accepted_reader_open(a->dir_fd, a->epoch, a->asked, &a->reader);
	while (r >= 0 && a->n < BATCH_MAX && bytes < BATCH_BYTES) {
		r = accepted_next(a->reader, &e);
		if (r <= 0)
			break;
		r = copy_entry(&a->batch[a->n++], &e);
		bytes += e.kind == ACCEPTED_VERSION ? e.n.content.size_bytes : 0;
	}
	a->at_end = r == 0;
	return MIN(r, 0);
}

static int keep_data_of(struct accept *a, struct keep *k, struct taken *t)
{
	cleanup_free uint8_t *piece = malloc(PIECE);
	struct content_ref ref = {0};
	cleanup_close int fd = -1;
	char name[32];
	ssize_t n;
	int r = 0;

	if (!piece)
		return -ENOMEM;
	accepted_data_name(t->e.number, name);
	fd = openat(a->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0) {
		t->r = -errno;
		return 0;
	}
	keep_file_begin(k);
	do {
		n = io_read_full(fd, piece, PIECE, "accept.read");
		if (n < 0)
			return (int)n;
		r = keep_data(k, piece, (size_t)n);
	} while (r >= 0 && n == PIECE);
	if (r >= 0)
		r = keep_file_end(k, &ref);
	if (r < 0)
		return r;
	/* A loss of power took what nobody was promised. */
	if (ref.size_bytes != t->e.n.content.size_bytes ||
	    memcmp(ref.sha256, t->e.n.content.sha256, SHA256_BYTES) != 0)
		t->r = -EBADMSG;
	t->e.n.content = ref;
	return 0;
}

/* A file's first bytes come with it, if its name means it until then, and no time that was set
 * before they were written. */
static void merge(struct accept *a, size_t at)
{
	struct taken *made = &a->batch[at];
	const struct accepted *set = NULL;

	for (size_t i = at + 1; i < a->n; i++) {
		struct taken *t = &a->batch[i];

		if (t->e.kind == ACCEPTED_REMOVE || t->e.kind == ACCEPTED_MOVE ||
		    t->e.kind == ACCEPTED_LINK)
			return;
		if (t->e.node == made->e.node && t->e.kind == ACCEPTED_ATTR &&
		    (t->e.fields & NODE_FIELD_MTIME))
			set = &t->e;
		if (t->e.kind != ACCEPTED_VERSION || t->e.node != made->e.node)
			continue;
		if (t->r == 0 && strcmp(t->path, made->path) == 0 &&
		    (!set || set->n.mtime_ns == t->e.n.mtime_ns)) {
			made->e.n.content = t->e.n.content;
			t->merged = true;
		}
		return;
	}
}

static int empty_content(struct keep *k, struct content_ref *ret)
{
	keep_file_begin(k);
	return keep_file_end(k, ret);
}

static int keep_all(struct accept *a)
{
	_cleanup_(keep_dropp) struct keep *k = NULL;
	int r = keep_begin(a->env->brain, a->env->id, &k);

	for (size_t i = 0; r >= 0 && i < a->n; i++) {
		struct taken *t = &a->batch[i];

		if (t->e.kind == ACCEPTED_VERSION)
			r = keep_data_of(a, k, t);
		else if (t->e.kind == ACCEPTED_CREATE && t->e.n.type == NODE_TYPE_FILE)
			r = empty_content(k, &t->e.n.content);
	}
	if (r >= 0)
		r = keep_end(k);
	for (size_t i = 0; r >= 0 && i < a->n; i++)
		if (a->batch[i].e.kind == ACCEPTED_CREATE && a->batch[i].e.n.type == NODE_TYPE_FILE)
			merge(a, i);
	return r;
}

static void read_work(uv_work_t *w)
{
	struct accept *a = container_of(w, struct accept, work);

	a->at_end = false;
	a->r = read_batch(a);
	if (a->r >= 0 && a->n)
		a->r = keep_all(a);
	if (a->r == -ENOENT) { /* nothing was ever written */
		a->r = 0;
		a->at_end = true;
	}
}

/* ---- the loop ---- */

static void start(struct accept *a);

static void tick(uv_timer_t *t)
{
	start(container_of(t, struct accept, timer));
}

static void read_anew(struct accept *a)
{
	accepted_reader_close(take_ptr(&a->reader));
	a->asked = a->consumed;
	a->failed = false;
}

static void drain_fail(const struct draining *d, struct call *call)
{
	json_t *more = json_pack("{s:i}", "retry_after_ms", RETRY_MS);
	struct env *env = d->a->env;
	struct queue_counts waits;

	queue_counts(env, &waits);
	if (d->state == DRAIN_QUEUED)
		call_fail_with(call, "unsynced", more, env->name, "limb status NAME",
			       "%llu changes that were made in the view of environment '%s' are "
			       "not in it yet; try again",
			       (unsigned long long)waits.changes, env->name);
	else
		call_fail_with(call, "unsynced", more, env->name, "limb status NAME",
			       "what was written in the view of environment '%s' is not taken in "
			       "yet; try again",
			       env->name);
}

static void drain_end(struct draining *d, bool ok)
{
	struct draining **p = &d->a->draining;
	struct call *call = d->call;

	while (*p != d)
		p = &(*p)->next;
	*p = d->next;
	if (d->fn)
		d->fn(d->a->env, ok, d->userdata);
	if (call) {
		call->op = NULL;
		call->on_cancel = NULL;
		if (ok)
			d->then(call);
		else
			drain_fail(d, call);
	}
	free(d);
}

static void drain_applied(struct env *env, const struct queue_result *res, void *userdata)
{
	struct draining *d = userdata;

	(void)env;
	drain_end(d, res->r == 0 || (res->r == -ETIMEDOUT && d->tried));
}

static void drain_taken(struct draining *d)
{
	if (!d->applied) {
		drain_end(d, true);
		return;
	}
	d->state = DRAIN_QUEUED;
	d->late_ms = UINT64_MAX;
	if (queue_wait(d->a->env, d->tried ? QUEUE_LAST_MS : QUEUE_MS, drain_applied, d) < 0)
		drain_end(d, false);
}

static void drains_end(struct accept *a)
{
	struct draining *d = a->draining, *next;

	/* Who is told may begin a new one; that is at the head, and not looked at. */
	for (; d; d = next) {
		next = d->next;
		if (d->state == DRAIN_READING)
			drain_taken(d);
	}
}

static void advance(struct accept *a)
{
	if (a->pending || a->failed)
		return;
	a->consumed = a->asked;
	accept_over(a->env);
}

static void durable(int r, uint64_t seq, void *userdata)
{
	struct accept *a = userdata;

	(void)seq;
	if (r == -ECANCELED)
		return;
	a->pending--;
	a->failed |= r < 0;
	advance(a);
}

static void skip(struct accept *a, const struct taken *t, int r)
{
	char shown[300], from[32], to[32];

	/* Its bytes stay beside the log, for a person. */
	accepted_data_name(t->e.number, from);
	(void)snprintf(to, sizeof(to), "lost.%016" PRIx64, t->e.number);
	(void)!linkat(a->dir_fd, from, a->dir_fd, to, 0);
	log_warning("environment '%s': what was written in the view to '%s' cannot be taken in: %s",
		    a->env->name, text_escape_into(shown, sizeof(shown), t->path, strlen(t->path)),
		    strerror(-r));
}

static int take(struct accept *a)
{
	uint64_t epoch = a->reader ? accepted_reader_epoch(a->reader) : a->epoch;
	int r = 0;

	a->epoch = epoch;
	for (size_t i = 0; r >= 0 && i < a->n; i++) {
		const struct taken *t = &a->batch[i];

		if (t->r < 0) {
			skip(a, t, t->r);
		} else if (!t->merged) {
			a->pending++;
			r = accept_want(a->env, &t->e, epoch, a->min_base, durable, a);
			if (r <= 0)
				a->pending--;
			if (r < 0 && r != -EDQUOT && r != -EIO && r != -ENOMEM) {
				skip(a, t, r);
				r = 0;
			}
		}
		if (r >= 0)
			a->asked = t->e.number;
	}
	return MIN(r, 0);
}

static void read_done(uv_work_t *w, int status)
{
	struct accept *a = container_of(w, struct accept, work);
	bool any = a->n > 0;
	int r = a->r;

	(void)status;
	a->working = false;
	a->env->threads--;
	if (a->closing || a->env->accept != a || !a->env->commit) {
		batch_clear(a);
		return;
	}
	if (r >= 0)
		r = take(a);
	batch_clear(a);
	if (r < 0) {
		log_debug("environment '%s': its view's log waits: %s", a->env->name, strerror(-r));
		a->failed = true;
		if (!a->pending)
			read_anew(a);
		a->soon = true;
		(void)uv_timer_start(&a->timer, tick,
				     backoff_ms(a->failures++, RETRY_MS, RETRY_MAX_MS), 0);
		return;
	}
	a->failures = 0;
	advance(a);
	if (a->at_end && !any && !a->failed)
		drains_end(a);
	/* More is being written: by and by, as long as nobody waits for it. */
	if (a->again || (any && (!a->at_end || a->draining)))
		start(a);
	else if (any)
		accept_kick(a->env);
}

static void start(struct accept *a)
{
	int r;

	a->again = true;
	if (a->working || !a->env->commit || !a->env->queue || a->env->failed)
		return;
	if (a->failed && !a->pending)
		read_anew(a);
	if (a->failed)
		return;
	a->again = false;
	a->soon = false;
	(void)uv_timer_stop(&a->timer);
	for (struct draining *d = a->draining; d; d = d->next)
		if (d->state == DRAIN_LOGGED)
			d->state = DRAIN_READING;
	r = uv_queue_work(a->env->brain->loop, &a->work, read_work, read_done);
	if (r < 0)
		return;
	a->working = true;
	a->env->threads++;
}

void accept_kick(struct env *env)
{
	struct accept *a = env->accept;

	if (!a || a->soon)
		return;
	a->soon = true;
	(void)uv_timer_start(&a->timer, tick, MOMENT_MS, 0);
}

void accept_now(struct env *env)
{
	if (env->accept)
		start(env->accept);
}

void accept_refused(struct env *env, uint64_t epoch, uint64_t number, int error)
{
	if (env->accept && env->accept->epoch == epoch)
		view_refused(env, number, error);
}

void accept_told(struct env *env, uint64_t first, uint64_t last)
{
	if (env->accept)
		queue_drop_of_view(env, env->accept->epoch, first, last);
}

void accept_over(struct env *env)
{
	struct accept *a = env->accept;
	uint64_t over;

	if (!a || !env->queue || !a->consumed)
		return;
	over = queue_view_done(env, a->consumed);
	if (over <= a->told)
		return;
	if (view_over(env, over, env_seq(env)))
		a->told = over;
}

void accept_ended(struct env *env)
{
	if (!env->accept)
		return;
	env->accept->min_base = env_seq(env);
	accept_over(env);
}

void accept_connected(struct env *env)
{
	if (!env->accept)
		return;
	env->accept->told = 0;
	accept_over(env);
	accept_kick(env);
}

/* ---- draining ---- */

void accept_drained(struct env *env, uint64_t token)
{
	struct accept *a = env->accept;
	bool any = false;

	for (struct draining *d = a ? a->draining : NULL; d; d = d->next) {
		if (d->state != DRAIN_ASKED || d->token > token)
			continue;
		d->state = DRAIN_LOGGED;
		any = true;
	}
	if (any)
		start(a);
}

static void too_late(uv_timer_t *t)
{
	struct accept *a = container_of(t, struct accept, late);
	uint64_t now = clock_mono_ms();
	struct draining *d = a->draining, *next;

	for (; d; d = next) {
		next = d->next;
		if (now >= d->late_ms)
			drain_end(d, false);
	}
	if (!a->draining)
		(void)uv_timer_stop(t);
}

static void give_up(struct call *call)
{
	struct draining *d = call->op;

	d->call = NULL;
	call->op = NULL;
	call->on_cancel = NULL;
	call_fail(call, "env_unreachable", d->a->env->name, NULL,
		  "given up before what was written in the view was taken in");
}

enum how_far { TAKEN, APPLIED, TRIED };

static struct draining *begin(struct env *env, enum how_far to)
{
	struct accept *a = env->accept;
	struct draining *d;

	if (!a || !env->commit || !view_is_writable(env) || !(d = calloc(1, sizeof(*d))))
		return NULL;
	d->a = a;
	d->applied = to == APPLIED || (to == TRIED && queue_may_run(env));
	d->tried = to == TRIED;
	d->token = ++a->token;
	d->late_ms = clock_mono_ms() + DRAIN_MS;
	d->next = a->draining;
	a->draining = d;
	if (!uv_is_active((uv_handle_t *)&a->late))
		(void)uv_timer_start(&a->late, too_late, DRAIN_MS / 10, DRAIN_MS / 10);
	return d;
}

static void ask(struct env *env, const struct draining *d)
{
	uint64_t token = d->token;

	if (!view_drain(env, token))
		accept_drained(env, token);
}

static void first(struct call *call, struct env *env, enum how_far to, accept_then_fn then)
{
	struct draining *d = begin(env, to);

	if (!d) {
		then(call);
		return;
	}
	d->call = call;
	d->then = then;
	call->op = d;
	call->on_cancel = give_up;
	ask(env, d);
}

void accept_first(struct call *call, struct env *env, accept_then_fn then)
{
	first(call, env, TAKEN, then);
}

void accept_applied_first(struct call *call, struct env *env, accept_then_fn then)
{
	first(call, env, APPLIED, then);
}

void accept_tried_first(struct call *call, struct env *env, accept_then_fn then)
{
	first(call, env, TRIED, then);
}

void accept_drain(struct env *env, accept_drained_fn fn, void *userdata)
{
	struct draining *d = begin(env, TRIED);

	if (!d) {
		fn(env, true, userdata);
		return;
	}
	d->fn = fn;
	d->userdata = userdata;
	ask(env, d);
}

/* ---- opened, closed ---- */

int accept_open(struct env *env)
{
	struct accept *a = calloc(1, sizeof(*a));
	struct index_txn *t;
	int r;

	if (!a)
		return -ENOMEM;
	a->env = env;
	a->dir_fd = -1;
	env->accept = a;
	(void)uv_timer_init(env->brain->loop, &a->timer);
	(void)uv_timer_init(env->brain->loop, &a->late);
	r = env_read_begin(env, &t);
	if (r < 0)
		return r;
	index_view_place(t, &a->epoch, &a->asked);
	a->consumed = a->asked;
	a->min_base = index_seq(t);
	index_read_end(t);
	accept_kick(env);
	return 0;
}

static void accept_closed(uv_handle_t *h)
{
	struct accept *a = h->data;

	if (--a->closing)
		return;
	batch_clear(a);
	accepted_reader_close(a->reader);
	if (a->dir_fd >= 0)
		(void)close(a->dir_fd);
	free(a);
}

void accept_close(struct env *env)
{
	struct accept *a = env->accept;

	if (!a)
		return;
	env->accept = NULL;
	/* Who waits for the queue is told by that, as it closes. */
	for (struct draining *d = a->draining, *next; d; d = next) {
		next = d->next;
		if (d->state != DRAIN_QUEUED)
			drain_end(d, false);
	}
	a->closing = 2;
	a->timer.data = a->late.data = a;
	uv_close((uv_handle_t *)&a->timer, accept_closed);
	uv_close((uv_handle_t *)&a->late, accept_closed);
}
