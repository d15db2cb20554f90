#include "brain/commit.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "brain/anew.h"
#include "brain/link.h"
#include "brain/quota.h"
#include "brain/view.h"
#include "journal/pack.h"

enum {
	PLACES_MAX = 1 << 20,
	PACK_FILL_BYTES = 1 << 20, /* zeros kept ahead of a pack's end */
	PACK_FILL_LOW = 256 << 10,
	/* A round costs two syncs and a page of each table for nearly every content in it.  So
	 * after one that had much the next gathers for a moment, unless somebody waits. */
	MUCH = 16, /* changes and places */
	GATHER_MS = 40,
	GATHER_MAX = 8192,
};

/* Someone who waits for a sequence, or a record that waits for its round. */
struct waiter {
	struct waiter *next;
	uint64_t seq;
	commit_fn fn;
	void *userdata;
	enum record_type type; /* queued records only */
	uint8_t *body;
	size_t n;
};

struct wqueue {
	struct waiter *head, **tail;
};

struct pack {
	uint8_t id[16];
	int fd;
	uint64_t end;		 /* in use, as limb-ingest said */
	uint64_t filled;	 /* the file reaches here, at least */
	uint64_t quiet_since_ms; /* nothing came, and nobody asked for it */
	bool dirty;
	bool closing;
};

struct commit {
	struct env *env;
	struct wqueue queued;  /* records not yet appended */
	struct wqueue waiting; /* appended; told when durable */
	struct store_place *places;
	size_t n_places, cap_places;
	struct pack pack;
	struct pack old; /* being closed */
	bool txn, dirty, running, failed;
	bool awaited;	   /* somebody waits for the round to come */
	bool much;	   /* the last one had much */
	size_t gathered;   /* for the one to come */
	uint64_t ended_ms; /* when the last one ended */

	/* the round that runs; helper threads read these only */
	uv_work_t log_work, pack_work;
	struct log_sync log_sync;
	int log_result, pack_result;
	int pack_fds[2];
	uint64_t fill_from, fill_bytes;
	unsigned works;
};

static void wqueue_init(struct wqueue *q)
{
	q->head = NULL;
	q->tail = &q->head;
}

static void wqueue_push(struct wqueue *q, struct waiter *w)
{
	w->next = NULL;
	*q->tail = w;
	q->tail = &w->next;
}

static struct waiter *wqueue_pop(struct wqueue *q)
{
	struct waiter *w = q->head;

	if (w) {
		q->head = w->next;
		if (!q->head)
			q->tail = &q->head;
	}
	return w;
}

static void waiter_free(struct waiter *w)
{
	if (w)
		free(w->body);
	free(w);
}

int commit_new(struct env *env, struct commit **ret)
{
	struct commit *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->env = env;
	c->pack.fd = c->old.fd = -1;
	wqueue_init(&c->queued);
	wqueue_init(&c->waiting);
	*ret = c;
	return 0;
}

void commit_cancel(struct env *env)
{
	struct commit *c = env->commit;
	struct waiter *w;

	if (!c)
		return;
	c->failed = true; /* who is told may not begin anything more */
	while ((w = wqueue_pop(&c->queued)) || (w = wqueue_pop(&c->waiting))) {
		if (w->fn)
			w->fn(-ECANCELED, 0, w->userdata);
		waiter_free(w);
	}
}

void commit_free(struct commit *c)
{
	struct waiter *w;

	if (!c)
		return;
	while ((w = wqueue_pop(&c->queued)))
		waiter_free(w);
	while ((w = wqueue_pop(&c->waiting)))
		waiter_free(w);
	if (c->pack.fd >= 0)
		(void)close(c->pack.fd);
	if (c->old.fd >= 0)
		(void)close(c->old.fd);
	free(c->places);
	free(c);
}

bool commit_busy(const struct env *env)
{
	return env->commit && env->commit->running;
}

bool commit_idle(const struct env *env)
{
	const struct commit *c = env->commit;

	return !c->running && !c->dirty && !c->queued.head && !c->waiting.head;
}

static int commit_begin(struct commit *c)
{
	int r;

	if (c->failed)
		return -EIO;
	if (c->txn)
		return 0;
	r = index_begin(c->env->index);
	if (r < 0)
		return r;
	c->txn = true;
	return 0;
}

int commit_prepare(struct env *env)
{
	return commit_begin(env->commit);
}

/* From here on nothing is acknowledged: what is on disk is not known. */
static void commit_fail(struct commit *c, int r, const char *what)
{
	struct env *env = c->env;

	if (c->failed)
		return;
	c->failed = true;
	env->failed = true;
	log_error_errno(r, "environment '%s': cannot %s; nothing more is taken from it", env->name,
			what);
	if (r == -ENOSPC || r == -EDQUOT) {
		(void)env_set_reason(env, "no_space",
				     "cannot %s: %s; free space in '%s': limbd then goes on by "
				     "itself",
				     what, strerror(-r), env->brain->state_dir);
		anew_want(env->brain);
	} else {
		(void)env_set_reason(env, "io_error",
				     "cannot %s: %s; mend the disk, then run: limb down && limb up",
				     what, strerror(-r));
	}
}

static int append(struct commit *c, enum record_type type, const void *body, size_t n,
		  uint64_t *ret_seq)
{
	struct log_record rec = {.type = (uint16_t)type, .body = body, .n = n};
	int r;

	r = commit_begin(c);
	if (r < 0)
		return r;
	rec.time_ns = clock_real_ns();
	r = log_append(c->env->log, (uint16_t)type, body, n, rec.time_ns, &rec.seq);
	if (r < 0) {
		commit_fail(c, r, "append to its log");
		return r;
	}
	memcpy(rec.chain, log_chain(c->env->log), sizeof(rec.chain));
	r = index_apply(c->env->index, &rec);
	if (r < 0) {
		commit_fail(c, r, "apply a record to its index");
		return r;
	}
	c->dirty = true;
	*ret_seq = rec.seq;
	return 0;
}

int commit_submit(struct env *env, enum record_type type, Limb__Record *rec, commit_fn fn,
		  void *userdata)
{
	struct commit *c = env->commit;
	struct waiter *w;

	if (!c || c->failed) /* its journal is not open, or not to be written to */
		return -EIO;
	if (!rec->incarnation)
		rec->incarnation = env->incarnation;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->n = limb__record__get_packed_size(rec);
	w->body = malloc(w->n ? w->n : 1);
	if (!w->body) {
		waiter_free(w);
		return -ENOMEM;
	}
	(void)limb__record__pack(rec, w->body);
	w->type = type;
	w->fn = fn;
	w->userdata = userdata;
	wqueue_push(&c->queued, w);
	c->awaited = true;
	return 0;
}

int commit_tell(struct env *env, commit_fn fn, void *userdata)
{
	struct commit *c = env->commit;
	struct waiter *w;

	if (!c || c->failed)
		return -EIO;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->fn = fn;
	w->userdata = userdata;
	/* Behind the records that are queued, or among those that wait. */
	wqueue_push(&c->queued, w);
	return 0;
}

int commit_wait(struct env *env, commit_fn fn, void *userdata)
{
	int r = commit_tell(env, fn, userdata);

	if (r == 0)
		env->commit->awaited = true;
	return r;
}

int commit_change(struct env *env, const struct change *ch, uint64_t *ret_seq, const char **ret_why)
{
	struct commit *c = env->commit;
	_cleanup_(buf_done) struct buf body = BUF_INIT(RECORD_BODY_MAX - RECORD_SALT_BYTES);
	int64_t now = clock_real_ns();
	uint64_t seq;
	int r;

	*ret_why = "the log has failed";
	r = commit_begin(c);
	if (r < 0)
		return r;
	r = index_check_change(env->index, ch, ret_why);
	if (r < 0)
		return r;
	r = change_pack(ch, &body);
	if (r < 0)
		return r;
	r = log_append(env->log, RECORD_CHANGE, buf_data(&body), buf_len(&body), now, &seq);
	if (r < 0) {
		commit_fail(c, r, "append to its log");
		return r;
	}
	r = index_apply_change(env->index, seq, now, ch);
	if (r < 0) {
		commit_fail(c, r, "apply a change to its index");
		return r;
	}
	c->dirty = true;
	c->gathered++;
	*ret_seq = seq;
	return 0;
}

int commit_places(struct env *env, const struct entry_place *places, size_t n, uint64_t pack_end)
{
	struct commit *c = env->commit;

	if (c->pack.fd < 0)
		return -EPROTO;
	if (c->n_places + n > PLACES_MAX)
		return -E2BIG;
	if (c->n_places + n > c->cap_places) {
		size_t cap = MAX(c->n_places + n, c->cap_places * 2);
		struct store_place *p = reallocarray(c->places, cap, sizeof(*p));

		if (!p)
			return -ENOMEM;
		c->places = p;
		c->cap_places = cap;
	}
	for (size_t i = 0; i < n; i++) {
		struct store_place *p = &c->places[c->n_places++];

		memcpy(p->hash, places[i].hash, sizeof(p->hash));
		memcpy(p->pack_id, c->pack.id, sizeof(p->pack_id));
		p->offset = places[i].offset;
		p->len = places[i].len;
		p->kind = (uint8_t)places[i].kind;
	}
	env->content_bytes += pack_end > c->pack.end ? pack_end - c->pack.end : 0;
	c->pack.end = pack_end;
	c->pack.quiet_since_ms = clock_mono_ms();
	c->pack.dirty = true;
	c->dirty = true;
	c->gathered += n;
	return 0;
}

int commit_set_pack(struct env *env, const uint8_t pack_id[16], int fd)
{
	struct commit *c = env->commit;

	if (c->pack.fd >= 0)
		return -EBUSY;
	c->pack = (struct pack){.fd = fd, .end = PACK_HEADER_BYTES, .filled = PACK_HEADER_BYTES};
	memcpy(c->pack.id, pack_id, sizeof(c->pack.id));
	return 0;
}

int commit_pack_id(const struct env *env, uint8_t ret_id[16])
{
	const struct commit *c = env->commit;

	if (!c || c->pack.fd < 0)
		return -EPROTO;
	memcpy(ret_id, c->pack.id, sizeof(c->pack.id));
	return 0;
}

/* Cutting and syncing it takes a helper thread; the store is the brain's, so the environment
 * may be gone by then. */
struct closing {
	uv_work_t work;
	struct brain *brain;
	uint8_t id[16];
	int fd, result;
	uint64_t end;
};

static void closing_work(uv_work_t *w)
{
	struct closing *cl = container_of(w, struct closing, work);

	cl->result = store_pack_done(cl->brain->store, cl->id, cl->end);
	(void)close(cl->fd);
}

static void closing_done(uv_work_t *w, int status)
{
	struct closing *cl = container_of(w, struct closing, work);

	(void)status;
	if (cl->result < 0)
		log_warning_errno(cl->result, "a pack stays open; the next start closes it");
	cl->brain->pack_works--;
	free(cl);
}

static void pack_close(struct commit *c, struct pack *p)
{
	struct closing *cl;

	if (p->fd < 0)
		return;
	cl = calloc(1, sizeof(*cl));
	if (!cl) {
		log_warning("environment '%s': a pack stays open; the next start closes it",
			    c->env->name);
		(void)close(take_fd(&p->fd));
		return;
	}
	cl->brain = c->env->brain;
	memcpy(cl->id, p->id, sizeof(cl->id));
	cl->fd = take_fd(&p->fd);
	cl->end = p->end;
	cl->brain->pack_works++;
	(void)uv_queue_work(cl->brain->loop, &cl->work, closing_work, closing_done);
}

bool commit_pack_quiet(struct env *env, uint64_t quiet_ms)
{
	struct commit *c = env->commit;
	uint64_t now = clock_mono_ms();

	if (!c || c->running || c->pack.fd < 0 || c->pack.dirty ||
	    c->pack.end == PACK_HEADER_BYTES || now - c->pack.quiet_since_ms < quiet_ms)
		return false;
	c->pack.quiet_since_ms = now;
	return true;
}

int commit_drop_pack(struct env *env)
{
	struct commit *c = env->commit;

	if (c->pack.fd < 0)
		return 0;
	if (c->old.fd >= 0)
		return -EBUSY;
	if (!c->pack.dirty && !c->running && c->n_places) {
		/* A round has failed: its log may be there all the same, and the store was not told
		 * where its contents are. Of a pack that is left open the next start looks. */
		(void)close(take_fd(&c->pack.fd));
		return 0;
	}
	if (!c->pack.dirty && !c->running) {
		pack_close(c, &c->pack);
		return 0;
	}
	c->old = c->pack;
	c->old.closing = true;
	c->pack.fd = -1;
	c->dirty = c->awaited = true;
	return 0;
}

/* ---- a round ---- */

static void round_log(uv_work_t *work)
{
	struct commit *c = container_of(work, struct commit, log_work);

	c->log_result = log_sync_run(&c->log_sync);
}

static void round_pack(uv_work_t *work)
{
	struct commit *c = container_of(work, struct commit, pack_work);
	int r = 0, q;

	for (size_t i = 0; i < ARRAY_SIZE(c->pack_fds); i++) {
		if (c->pack_fds[i] < 0)
			continue;
		q = io_fdatasync(c->pack_fds[i], "pack.sync");
		if (q < 0 && r == 0)
			r = q;
	}
	if (r == 0 && c->fill_bytes && c->pack_fds[0] >= 0) {
		/* Zeros ahead are for later syncs' speed: failing is no harm. limb-ingest
		 * writes meanwhile, maybe beyond all that it has told: so only at the end. */
		(void)io_append_zeros(c->pack_fds[0], c->fill_bytes, "pack.fill");
	}
	c->pack_result = r;
}

static void tell(struct wqueue *q, int r)
{
	struct wqueue mine = *q;
	struct waiter *w;

	if (!q->head)
		return;
	wqueue_init(q);
	while (mine.head) {
		w = mine.head;
		mine.head = w->next;
		if (w->fn)
			w->fn(r, w->seq, w->userdata);
		waiter_free(w);
	}
}

static void round_publish(struct commit *c)
{
	struct env *env = c->env;
	int r;

	r = log_sync_end(env->log, &c->log_sync, c->log_result);
	if (r == 0)
		r = c->pack_result;
	if (r < 0) {
		commit_fail(c, r, "sync its log and content");
		goto out;
	}
	if (c->fill_bytes)
		c->pack.filled = MAX(c->pack.filled, c->fill_from) + c->fill_bytes;
	if (c->n_places) {
		r = store_add(env->brain->store, c->places, c->n_places);
		if (r < 0) {
			commit_fail(c, r, "add to the store's table");
			goto out;
		}
		c->n_places = 0;
		if (c->cap_places > 65536) {
			free(c->places);
			c->places = NULL;
			c->cap_places = 0;
		}
	}
	if (c->txn) {
		r = index_commit(env->index);
		c->txn = false;
		if (r < 0)
			commit_fail(c, r, "commit its index");
	}
	if (c->old.fd >= 0 && c->old.closing)
		pack_close(c, &c->old);
out:
	c->running = false;
	c->ended_ms = clock_mono_ms();
	if (r < 0) {
		tell(&c->waiting, r);
		tell(&c->queued, r);
		return;
	}
	view_publish(env, log_durable(env->log));
	tell(&c->waiting, 0);
	quota_look(env);
	link_resume(env);
}

static void round_done(uv_work_t *work, int status)
{
	struct commit *c = work->data;

	(void)status;
	if (--c->works == 0)
		round_publish(c);
}

static int round_append_queued(struct commit *c)
{
	struct waiter *w;
	int r;

	while ((w = wqueue_pop(&c->queued))) {
		if (w->body) {
			r = append(c, w->type, w->body, w->n, &w->seq);
			if (r < 0) {
				if (w->fn)
					w->fn(r, 0, w->userdata);
				waiter_free(w);
				return r;
			}
			free(w->body);
			w->body = NULL;
		} else {
			w->seq = log_last(c->env->log);
		}
		wqueue_push(&c->waiting, w);
	}
	return 0;
}

static void round_start(struct commit *c)
{
	struct env *env = c->env;
	bool with_pack;
	int r;

	r = log_sync_begin(env->log, &c->log_sync);
	if (r < 0) {
		commit_fail(c, r, "write its log");
		tell(&c->waiting, r);
		tell(&c->queued, r);
		return;
	}
	with_pack = (c->pack.fd >= 0 && c->pack.dirty) || c->old.fd >= 0;
	c->pack_fds[0] = c->pack.fd >= 0 && c->pack.dirty ? c->pack.fd : -1;
	c->pack_fds[1] = c->old.fd;
	c->fill_bytes = 0;
	/* A pack gets zeros when it is used (many are not), and a bulk load runs ahead of them
	 * at once; there they would only cost. */
	if (c->pack_fds[0] >= 0 && c->pack.end + PACK_FILL_LOW > c->pack.filled &&
	    (c->pack.end < c->pack.filled || c->pack.filled == PACK_HEADER_BYTES) &&
	    c->pack.filled < PACK_SEAL_BYTES) {
		c->fill_from = c->pack.end;
		c->fill_bytes = PACK_FILL_BYTES;
	}
	c->pack.dirty = false;
	c->pack_result = 0;
	c->dirty = c->awaited = false;
	c->much = c->gathered >= MUCH;
	c->gathered = 0;
	c->running = true;
	atomic_store(&env->brain->last_round_ms, clock_mono_ms());
	c->works = with_pack ? 2 : 1;
	c->log_work.data = c;
	c->pack_work.data = c;
	(void)uv_queue_work(env->brain->loop, &c->log_work, round_log, round_done);
	if (with_pack)
		(void)uv_queue_work(env->brain->loop, &c->pack_work, round_pack, round_done);
}

static void gathered(uv_timer_t *t)
{
	(void)t; /* the loop's turn kicks all */
}

static bool gathers(struct commit *c)
{
	struct brain *b = c->env->brain;
	uint64_t now_ms = clock_mono_ms(), until_ms = c->ended_ms + GATHER_MS;

	if (!c->much || c->awaited || c->gathered >= GATHER_MAX || now_ms >= until_ms ||
	    b->stopping)
		return false;
	if (!uv_is_active((uv_handle_t *)&b->commit_timer))
		(void)uv_timer_start(&b->commit_timer, gathered, until_ms - now_ms, 0);
	return true;
}

static void commit_kick(struct env *env)
{
	struct commit *c = env->commit;

	if (!c || c->running)
		return;
	if (c->failed) {
		tell(&c->queued, -EIO);
		return;
	}
	if ((!c->dirty && !c->queued.head) || gathers(c))
		return;
	if (round_append_queued(c) < 0) {
		tell(&c->waiting, -EIO);
		return;
	}
	if (c->dirty || log_last(env->log) > log_durable(env->log))
		round_start(c);
	else
		tell(&c->waiting, 0);
}

void commit_kick_all(struct brain *b)
{
	for (struct env *env = b->envs, *next; env; env = next) {
		next = env->next;
		commit_kick(env);
	}
}
