/* From changes that wait to such that are over: which step is next, and what came of the last.
 * As many as can be foreseen together go at once (HACKING, "Changes go in batches"). */
#include "brain/queue-impl.h"

#include <stdio.h>

#include "base/log.h"
#include "base/text.h"
#include "brain/barrier.h"
#include "brain/commit.h"
#include "brain/link.h"

enum {
	BARRIER_MS = 60000,
	TRIES = 5,	/* that the environment was ahead of us */
	STALE = 200,	/* that it said something while we judged one, */
	STALE_MANY = 5, /* or many: those are looked at there, too */
	BATCH_BYTES = 16 << 20,
	SMALL = 1 << 20, /* the barrier goes with them, and is not late for them */
};

bool queue_may_run(const struct env *env)
{
	return link_up(env) && !env->halted && !env->full && !env->failed && !env->hostile &&
	       !env->muted && !env->restoring && !env->creating && !env->busy && !env->frozen &&
	       !env->migration && !env->brain->stopping;
}

static struct item *next_item(struct queue *q)
{
	struct item *it = q->head;

	while (it && it->error)
		it = it->next;
	return it && it->durable && merge_is_whole(q, it) ? it : NULL;
}

static bool is_alone(const struct queue *q)
{
	return q->n_parts == 1 && !q->parts[0].j.plain;
}

/* Nothing is under way any more; what is left is begun anew when it is possible. */
static void stop(struct queue *q)
{
	send_end(q);
	if (q->applying)
		q->env->applying[q->applying]--;
	q->applying = 0;
	q->state = QUEUE_IDLE;
	for (size_t i = 0; i < q->n_parts; i++)
		judged_done(&q->parts[i].j);
	q->n_parts = 0;
	ahead_free(take_ptr(&q->ahead));
}

static void later(struct queue *q, int r)
{
	log_debug("environment '%s': its queue waits: %s", q->env->name, strerror(-r));
	stop(q);
	queue_later(q);
}

static void go_on(struct queue *q)
{
	stop(q);
	queue_kick(q->env);
}

static int work(struct queue *q, enum queue_state state, uv_work_cb fn, uv_after_work_cb after)
{
	int r = uv_queue_work(q->env->brain->loop, &q->work, fn, after);

	if (r < 0)
		return r;
	q->working = true;
	q->env->threads++;
	q->state = state;
	return 0;
}

static void worked(struct queue *q)
{
	q->working = false;
	q->env->threads--;
}

/* ---- recorded ---- */

static void refused(int r, uint64_t seq, void *userdata)
{
	struct queue *q = userdata;

	if (r < 0) {
		if (r != -ECANCELED)
			later(q, r);
		return;
	}
	queue_over(q, q->parts[0].it, "unapplied", q->r < 0 ? -q->r : EIO, seq);
	queue_told(q);
	go_on(q);
}

/* The part is the only one. */
static void unapplied(struct queue *q, int r, const char *detail)
{
	const struct part *p = &q->parts[0];
	char shown[300];

	q->state = QUEUE_RECORDING;
	q->r = r;
	if (r != -ECANCELED)
		log_warning(
			"environment '%s' refuses a change of '%s': %s; see: limb status %s",
			q->env->name,
			text_escape_into(shown, sizeof(shown), p->it->path, strlen(p->it->path)),
			strerror(-r), q->env->name);
	r = record_unapplied(q, p, -r, detail, refused, q);
	if (r < 0)
		later(q, r);
}

/* What the one behind those that were made was answered. */
static void refusal(struct queue *q)
{
	struct part *p = &q->parts[q->n_parts];
	bool alone = !q->batched;
	char detail[sizeof(p->detail)];
	struct item *it = p->it;
	int r = p->r;

	memcpy(detail, p->detail, sizeof(detail));
	switch (-r) {
	case ESTALE:
	case EEXIST:
	case ENOENT:
	case ENOTDIR:
	case EISDIR:
	case ENOTEMPTY:
	case ELOOP:
		/* It is not what we knew: we have heard, and judge again; by itself, where less
		 * is asked for. */
		if (!alone || q->tries++ < TRIES) {
			q->window = 1;
			go_on(q);
			return;
		}
		break;
	default: break;
	}
	stop(q);
	q->tries = 0;
	q->window = MAX(q->window / 4, (size_t)1);
	q->parts[0].it = it;
	q->n_parts = 1;
	unapplied(q, r, detail);
}

/* All that was made has ended. */
static void all_ended(struct queue *q)
{
	queue_told(q);
	if (q->refused) {
		refusal(q);
		return;
	}
	q->tries = 0;
	q->window = MIN(q->window * 4, (size_t)BATCH_MAX);
	go_on(q);
}

static const char *outcome(const struct part *p)
{
	const struct rec_plan *plan = &p->j.plan;

	return plan->verdict == REC_CONFLICT || plan->verdict == REC_WAIT ? "conflict"
	       : plan->verdict == REC_DONE				  ? "done"
									  : "applied";
}

static void ended(int r, uint64_t seq, void *userdata)
{
	struct part *p = userdata;
	struct queue *q;

	if (r == -ECANCELED) /* the queue is gone */
		return;
	q = p->queue;
	if (r < 0) {
		q->record_r = r;
	} else {
		q->conflicts += p->j.plan.conflict || p->j.plan.verdict == REC_WAIT;
		queue_over(q, p->it, outcome(p), 0, seq);
	}
	if (--q->recording)
		return;
	if (q->record_r < 0) {
		q->unsure = true;
		later(q, q->record_r);
	} else {
		all_ended(q);
	}
}

static int end_one(struct queue *q, struct part *p)
{
	const struct rec_plan *plan = &p->j.plan;
	char shown[300];
	int r = 0;

	p->queue = q;
	if (plan->conflict || plan->verdict == REC_CONFLICT || plan->verdict == REC_WAIT) {
		log_info("environment '%s': '%s' was changed on both sides; see: limb conflicts %s",
			 q->env->name,
			 text_escape_into(shown, sizeof(shown), p->it->path, strlen(p->it->path)),
			 q->env->name);
		r = record_conflict(q, p, NULL, NULL);
	}
	return r < 0 ? r : record_end(q, p, outcome(p), ended, p);
}

/* They are made, are so already, or are lost. */
static void end(struct queue *q)
{
	int r = 0;

	q->state = QUEUE_RECORDING;
	q->recording = 1;
	q->record_r = 0;
	for (size_t i = 0; r >= 0 && i < q->n_parts; i++) {
		q->recording++;
		r = end_one(q, &q->parts[i]);
		if (r < 0) {
			q->recording--;
			q->record_r = r;
		}
	}
	if (--q->recording)
		return;
	/* None of them is on its way. */
	if (q->record_r < 0) {
		q->unsure = true;
		later(q, q->record_r);
	} else {
		all_ended(q);
	}
}

/* ---- confirmed ---- */

static void confirm_work(uv_work_t *w)
{
	judge_made(container_of(w, struct queue, work));
}

static void found_work(uv_work_t *w)
{
	judge_found(container_of(w, struct queue, work));
}

static void confirm_worked(uv_work_t *w, int status)
{
	struct queue *q = container_of(w, struct queue, work);

	(void)status;
	worked(q);
	if (q->r < 0) {
		q->unsure = true;
		later(q, q->r);
	} else {
		end(q);
	}
}

/* Those up to the first that was not made; *ret: what that one was answered, 0: there is none. */
static size_t count_made(const struct queue *q, int *ret)
{
	size_t n = 0;

	while (n < q->n_parts && q->parts[n].answered && q->parts[n].r == 0)
		n++;
	*ret = n == q->n_parts ? 0 : q->parts[n].answered ? q->parts[n].r : -ETIMEDOUT;
	return n;
}

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Somebody writes there, without a rest, what was just changed: by its name, as its directory may
 * have another by now. */
static bool is_left_out(const struct queue *q, const struct barrier_result *res)
{
	for (size_t i = 0; i < res->n_left_out; i++)
		for (size_t k = 0; k < q->n_parts; k++) {
			const struct part *p = &q->parts[k];
			const char *paths[] = {p->j.path, p->j.to_path, p->it->path,
					       p->it->to_path};

			for (size_t n = 0; n < ARRAY_SIZE(paths); n++)
				if (paths[n] &&
				    strcmp(name_of(res->left_out[i]), name_of(paths[n])) == 0)
					return true;
		}
	return false;
}

/* Everything was answered, and what was made is in the index. */
static void shown(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct queue *q = userdata;
	int r = res->r, why;
	size_t made;

	(void)env;
	made = count_made(q, &why);
	if (r == 0 && is_left_out(q, res))
		r = -ETIMEDOUT;
	if (r == 0 && (why == -ENOTCONN || why == -ETIMEDOUT || why == -ECANCELED))
		r = why;
	if (r < 0) {
		later(q, r);
		return;
	}
	q->unsure = false;
	q->batched = q->n_parts > 1;
	q->refused = why < 0;
	for (size_t i = made; i < q->n_parts; i++)
		judged_done(&q->parts[i].j);
	q->n_parts = made;
	if (made == 0) {
		end(q);
		return;
	}
	r = work(q, QUEUE_CONFIRMING, confirm_work, confirm_worked);
	if (r < 0) {
		q->unsure = true;
		later(q, r);
	}
}

static void barrier(struct queue *q)
{
	int r;

	q->barrier = true;
	r = barrier_run_past(q->env, BARRIER_MS, shown, q);
	if (r < 0)
		later(q, r);
}

static bool all_answered(const struct queue *q)
{
	for (size_t i = 0; i < q->n_parts; i++)
		if (!q->parts[i].answered)
			return false;
	return true;
}

/* Right behind them, if they are small: it shows what they made, and costs no time on the line. */
static void consider_barrier(struct queue *q)
{
	if (q->state == QUEUE_SENDING && q->all_sent && !q->barrier &&
	    (q->sent_all <= SMALL || all_answered(q)))
		barrier(q);
}

void queue_sent(struct queue *q)
{
	consider_barrier(q);
}

void queue_answered(struct queue *q)
{
	consider_barrier(q);
}

/* ---- settled ---- */

/* Is `next` a move of what `made` left? */
static bool is_moved_on(const struct item *made, const struct item *next)
{
	return next && next->in.kind == INTENT_MOVE &&
	       (next->in.node == (INTENT_MADE | made->in.number) || next->in.node == made->in.node);
}

static void settled(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct queue *q = userdata;
	size_t made = 0;
	int r = res->r;

	q->perhaps = NULL;
	for (size_t i = 0; r == 0 && i < q->n_parts; i++) {
		struct part *p = &q->parts[i];

		if (!p->answered || p->r == -ENOTCONN || p->r == -ETIMEDOUT)
			r = -ENOTCONN;
		else if (p->r == 0)
			q->parts[made++].it = p->it;
		if (p->r == 0)
			q->perhaps = NULL;
		else if (made && !q->perhaps)
			q->perhaps = p->it;
	}
	if (r == 0 && made && is_left_out(q, res))
		r = -ETIMEDOUT;
	if (r < 0) {
		later(q, r);
		return;
	}
	q->settled_session = env->session;
	q->unsure = false;
	/* One alone is judged again, and asked for under its number: nothing stands on it. */
	if (made == 0 || (made == 1 && !is_moved_on(q->parts[0].it, q->perhaps))) {
		go_on(q);
		return;
	}
	q->n_parts = made;
	q->refused = false;
	r = work(q, QUEUE_CONFIRMING, found_work, confirm_worked);
	if (r < 0)
		later(q, r);
}

/* Was an earlier change refused on which this one builds? */
static bool is_blocked(const struct queue *q, const struct item *of)
{
	const uint64_t ids[] = {of->in.node, of->in.at.parent, of->in.to.parent, of->in.replaces};

	for (const struct item *it = q->n_unapplied ? q->head : NULL; it && it != of;
	     it = it->next) {
		if (!it->error)
			continue;
		for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
			if (ids[i] == (INTENT_MADE | it->in.number) ||
			    (i == 0 && ids[i] && ids[i] == it->in.node))
				return true;
	}
	return false;
}

/* all: not only those that may be sent together */
static void choose(struct queue *q, size_t max, bool all)
{
	uint64_t bytes = 0;

	q->n_parts = 0;
	for (struct item *it = q->head; it && q->n_parts < max; it = it->next) {
		if (it->error)
			continue;
		if (!it->durable)
			break;
		/* Those of a merge are alone: their author has seen nothing of the others. */
		if (!all && it->in.merge_last && q->n_parts)
			break;
		bytes += it->in.wanted.content.size_bytes;
		if (q->n_parts && !all && (bytes > BATCH_BYTES || is_blocked(q, it)))
			break;
		q->parts[q->n_parts++].it = it;
		if (!all && it->in.merge_last)
			break;
	}
}

/* Which of them were made, before a line fell or one of us died? And what is the tree? */
static void settle(struct queue *q)
{
	int r;

	choose(q, PARTS_MAX, true);
	q->state = QUEUE_SETTLING;
	r = send_begin(q, true);
	if (r == 0)
		r = barrier_run_past(q->env, BARRIER_MS, settled, q);
	if (r < 0)
		later(q, r);
}

/* ---- judged ---- */

static void judge_work(uv_work_t *w)
{
	judge(container_of(w, struct queue, work));
}

static void judge_failed(struct queue *q, int r)
{
	if (r == -EBADMSG || r == -ENOENT)
		unapplied(q, r, "what it builds on cannot be read");
	else
		later(q, r);
}

static void send_alone_path(struct part *p)
{
	struct judged *j = &p->j;

	if (j->plan.by_path && j->plan.step == STEP_PUT_NEW && !j->path)
		j->path = strdup(p->it->in.kind == INTENT_LINK ? p->it->to_path : p->it->path);
	if (j->plan.by_path && j->plan.step != STEP_PUT_NEW && !j->to_path)
		j->to_path = strdup(p->it->to_path);
}

static void judge_worked(uv_work_t *w, int status)
{
	struct queue *q = container_of(w, struct queue, work);
	bool apply = false;
	int r;

	(void)status;
	worked(q);
	if (q->r < 0) {
		later(q, q->r);
		return;
	}
	if (q->parts[0].j.r < 0) {
		judge_failed(q, q->parts[0].j.r);
		return;
	}
	if (!queue_may_run(q->env) || q->settled_session != q->env->session) {
		go_on(q);
		return;
	}
	for (size_t i = 0; i < q->n_parts; i++)
		apply |= q->parts[i].j.plan.verdict == REC_APPLY;
	/* It has said something since: what it is about is not known. */
	if (apply && q->env->last_number != q->seen &&
	    q->stale++ < (q->n_parts > 1 ? STALE_MANY : STALE)) {
		go_on(q);
		return;
	}
	q->stale = 0;
	if (!apply) {
		q->refused = false;
		end(q);
		return;
	}
	if (is_alone(q))
		send_alone_path(&q->parts[0]);
	q->state = QUEUE_SENDING;
	q->unsure = true;
	r = send_begin(q, false);
	if (r < 0)
		later(q, -ENOTCONN);
}

void queue_kick(struct env *env)
{
	struct queue *q = env->queue;

	if (!q || q->state != QUEUE_IDLE || !next_item(q))
		return;
	if (!queue_may_run(env)) {
		queue_later(q);
		return;
	}
	if (q->unsure || q->settled_session != env->session) {
		settle(q);
		return;
	}
	choose(q, q->window, false);
	/* Not in the helper thread: a person may drop what was refused meanwhile. */
	if (is_blocked(q, q->parts[0].it)) {
		q->n_parts = 1;
		unapplied(q, -ECANCELED, "an earlier change that it builds on was refused");
		return;
	}
	if (merge_facts(q, q->parts[0].it) < 0 ||
	    work(q, QUEUE_JUDGING, judge_work, judge_worked) < 0) {
		stop(q);
		queue_later(q);
	}
}
