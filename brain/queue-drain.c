/* From a change that waits to one that is over: which step is next, and what came of the last. */
#include "brain/queue-impl.h"

#include <stdio.h>

#include "base/log.h"
#include "base/text.h"
#include "brain/barrier.h"
#include "brain/commit.h"
#include "brain/link.h"

enum {
	BARRIER_MS = 60000,
	TRIES = 5,   /* that the environment was ahead of us */
	STALE = 200, /* that it said something while we judged */
};

static bool is_possible(const struct env *env)
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

/* Nothing is under way any more; what is left is begun anew when it is possible. */
static void stop(struct queue *q)
{
	if (q->applying)
		q->env->applying[q->applying]--;
	q->applying = 0;
	q->state = QUEUE_IDLE;
	q->item = NULL;
	judged_done(&q->judged);
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

/* ---- recorded ---- */

static void ended(int r, uint64_t seq, void *userdata)
{
	struct queue *q = userdata;
	struct item *it = q->item;

	if (r < 0) {
		if (r != -ECANCELED)
			later(q, r);
		return;
	}
	q->conflicts += q->judged.plan.conflict || q->judged.plan.verdict == REC_WAIT;
	queue_over(q, it,
		   q->judged.plan.verdict == REC_CONFLICT || q->judged.plan.verdict == REC_WAIT
			   ? "conflict"
			   : "applied",
		   0, seq);
	go_on(q);
}

/* It is made, is so already, or is lost. */
static void end(struct queue *q)
{
	const struct rec_plan *p = &q->judged.plan;
	bool lost = p->verdict == REC_CONFLICT || p->verdict == REC_WAIT;
	int r = 0;

	q->state = QUEUE_RECORDING;
	if (p->conflict || lost) {
		char shown[300];

		log_info("environment '%s': '%s' was changed on both sides; see: limb conflicts %s",
			 q->env->name,
			 text_escape_into(shown, sizeof(shown), q->item->path,
					  strlen(q->item->path)),
			 q->env->name);
		r = record_conflict(q, q->item, NULL, NULL);
	}
	if (r == 0)
		r = record_end(q, q->item,
			       lost			? "conflict"
			       : p->verdict == REC_DONE ? "done"
							: "applied",
			       ended, q);
	if (r < 0)
		later(q, r);
}

static void refused(int r, uint64_t seq, void *userdata)
{
	struct queue *q = userdata;

	if (r < 0) {
		if (r != -ECANCELED)
			later(q, r);
		return;
	}
	queue_over(q, q->item, "unapplied", q->judged.r < 0 ? -q->judged.r : EIO, seq);
	go_on(q);
}

static void unapplied(struct queue *q, int r, const char *detail)
{
	char shown[300];

	q->state = QUEUE_RECORDING;
	q->judged.r = r;
	if (r != -ECANCELED)
		log_warning("environment '%s' refuses a change of '%s': %s; see: limb status %s",
			    q->env->name,
			    text_escape_into(shown, sizeof(shown), q->item->path,
					     strlen(q->item->path)),
			    strerror(-r), q->env->name);
	r = record_unapplied(q, q->item, -r, detail, refused, q);
	if (r < 0)
		later(q, r);
}

/* ---- confirmed ---- */

static void confirm_work(uv_work_t *w)
{
	judge_made(container_of(w, struct queue, work));
}

static void confirm_worked(uv_work_t *w, int status)
{
	struct queue *q = container_of(w, struct queue, work);

	(void)status;
	q->working = false;
	q->env->threads--;
	if (q->judged.r < 0)
		later(q, q->judged.r);
	else
		end(q);
}

static void shown(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct queue *q = userdata;
	int r = res->r;

	if (r == 0)
		r = uv_queue_work(env->brain->loop, &q->work, confirm_work, confirm_worked);
	if (r < 0) {
		later(q, r);
		return;
	}
	q->working = true;
	env->threads++;
	q->state = QUEUE_CONFIRMING;
}

static void settled(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct queue *q = userdata;

	if (res->r < 0) {
		later(q, res->r);
		return;
	}
	q->settled_session = env->session;
	go_on(q);
}

static void settle(struct queue *q)
{
	int r;

	stop(q);
	q->state = QUEUE_SETTLING;
	r = barrier_run(q->env, BARRIER_MS, settled, q);
	if (r < 0)
		later(q, r);
}

void queue_answered(struct queue *q, int r, const char *detail)
{
	switch (-r) {
	case 0:
		q->tries = 0;
		q->state = QUEUE_SHOWING;
		r = barrier_run(q->env, BARRIER_MS, shown, q);
		if (r < 0)
			later(q, r);
		return;
	case ENOTCONN:
	case ETIMEDOUT:
	case ECANCELED: later(q, r); return;
	case ESTALE:
	case EEXIST:
	case ENOENT:
	case ENOTDIR:
	case EISDIR:
	case ENOTEMPTY:
	case ELOOP:
		/* It is not what we knew: we hear, and judge again. */
		if (q->tries++ < TRIES) {
			settle(q);
			return;
		}
		break;
	default: break;
	}
	q->tries = 0;
	unapplied(q, r, detail);
}

/* ---- judged ---- */

static void judge_work(uv_work_t *w)
{
	judge(container_of(w, struct queue, work));
}

static void judge_worked(uv_work_t *w, int status)
{
	struct queue *q = container_of(w, struct queue, work);
	struct judged *j = &q->judged;

	(void)status;
	q->working = false;
	q->env->threads--;
	if (j->r < 0) {
		if (j->r == -EBADMSG || j->r == -ENOENT)
			unapplied(q, j->r, "what it builds on cannot be read");
		else
			later(q, j->r);
		return;
	}
	if (!is_possible(q->env) || q->settled_session != q->env->session) {
		go_on(q);
		return;
	}
	/* It has said something since: what it is about is not known. */
	if (j->plan.verdict == REC_APPLY && q->env->last_number != j->seen && q->stale++ < STALE) {
		go_on(q);
		return;
	}
	q->stale = 0;
	if (j->plan.verdict == REC_APPLY) {
		if (j->plan.by_path && j->plan.step == STEP_PUT_NEW && !j->path)
			j->path = strdup(q->item->in.kind == INTENT_LINK ? q->item->to_path
									 : q->item->path);
		if (j->plan.by_path && j->plan.step != STEP_PUT_NEW && !j->to_path)
			j->to_path = strdup(q->item->to_path);
		send_begin(q);
	} else {
		end(q);
	}
}

/* Was an earlier change refused on which this one builds? */
static bool is_blocked(const struct queue *q, const struct item *of)
{
	const uint64_t ids[] = {of->in.node, of->in.at.parent, of->in.to.parent, of->in.replaces};

	for (const struct item *it = q->head; it && it != of; it = it->next) {
		if (!it->error)
			continue;
		for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
			if (ids[i] == (INTENT_MADE | it->in.number) ||
			    (i == 0 && ids[i] && ids[i] == it->in.node))
				return true;
	}
	return false;
}

void queue_kick(struct env *env)
{
	struct queue *q = env->queue;
	int r;

	if (!q || q->state != QUEUE_IDLE)
		return;
	q->item = next_item(q);
	if (!q->item)
		return;
	if (!is_possible(env)) {
		q->item = NULL;
		queue_later(q);
		return;
	}
	if (q->settled_session != env->session) {
		settle(q);
		return;
	}
	/* Not in the helper thread: a person may drop what was refused meanwhile. */
	if (is_blocked(q, q->item)) {
		unapplied(q, -ECANCELED, "an earlier change that it builds on was refused");
		return;
	}
	r = uv_queue_work(env->brain->loop, &q->work, judge_work, judge_worked);
	if (r < 0) {
		q->item = NULL;
		queue_later(q);
		return;
	}
	q->working = true;
	env->threads++;
	q->state = QUEUE_JUDGING;
}
