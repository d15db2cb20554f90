/*
 * A fork's changes in the queue (verb-merge.c). They are added in one turn of the loop, and
 * count only when all of them are durable: what a crash left of them is withdrawn, and a
 * second merge finds the same changes again.
 *
 * Their base is the tree at the fork's point, however long ago: so what earlier merges of the
 * same fork made has to be known again, though nothing waits that it was kept for
 * (queue_merge_known). A fork has not seen what was done in the view meanwhile, nor by other
 * forks: what counts as its own doing is kept apart (queue->merged), for the fork of one merge
 * at a time. That of another, of which something was refused and is tried again, is read from the
 * log when it comes (merge_facts).
 */
#include "brain/queue-impl.h"

#include <jansson.h>

#include "base/log.h"
#include "brain/commit.h"
#include "brain/merge-past.h"

bool merge_is_whole(const struct queue *q, const struct item *it)
{
	return q->durable_to >= it->in.merge_last;
}

uint64_t queue_next(const struct env *env)
{
	return env->queue ? env->queue->last + 1 : 0;
}

uint64_t queue_merging(const struct env *env)
{
	for (const struct item *it = env->queue ? env->queue->head : NULL; it; it = it->next)
		if (!it->error && it->in.merge_last)
			return it->in.number;
	return 0;
}

int queue_merge_known(struct env *env, const struct merge_past *past, uint64_t last)
{
	struct queue *q = env->queue;
	int r = q ? 0 : -EIO;

	if (q)
		merge_forget(q);
	for (size_t i = 0; r == 0 && i < past->n_ends; i++) {
		const Limb__IntentEnd *e = past->ends[i]->intent_end;

		r = facts_take_ids(&q->facts, e);
		if (r == 0 && merge_past_is_own(past, e))
			r = facts_take_own(&q->merged, e);
	}
	if (q)
		q->view_fresh = false; /* it has the ids that were */
	if (r == 0)
		q->merged_last = last;
	return r;
}

void merge_forget(struct queue *q)
{
	facts_clear(&q->merged);
	q->merged_last = 0;
}

static int facts_read(struct queue *q, uint64_t from_seq, uint64_t last)
{
	struct merge_past past = {0};
	int r = merge_past_read(q->env->log_fd, from_seq, NULL, last, &past);

	if (r == 0)
		r = queue_merge_known(q->env, &past, last);
	merge_past_done(&past);
	return r;
}

int merge_facts(struct queue *q, const struct item *it)
{
	if (!it->in.merge_last || it->in.merge_last == q->merged_last)
		return 0;
	return facts_read(q, it->base_seq, it->in.merge_last);
}

int merge_ended(struct queue *q, const struct item *it, const Limb__IntentEnd *e)
{
	if (!it->in.merge_last)
		return 0;
	if (it->in.merge_last == q->merged_last)
		return facts_take_own(&q->merged, e);
	/* Among what was found made after a crash: it is in the log when the next is judged. */
	merge_forget(q);
	return 0;
}

static int withdraw(struct queue *q, struct item *it)
{
	Limb__IntentEnd e = LIMB__INTENT_END__INIT;
	Limb__Record rec = LIMB__RECORD__INIT;
	int r;

	e.change = it->in.number;
	e.outcome = (char *)"withdrawn";
	rec.origin = LIMB__ORIGIN__ORIGIN_MERGE;
	rec.body_case = LIMB__RECORD__BODY_INTENT_END;
	rec.intent_end = &e;
	r = commit_submit(q->env, RECORD_INTENT_END, &rec, NULL, NULL);
	if (r == 0)
		item_remove(q, it);
	return r;
}

int merge_open(struct queue *q)
{
	uint64_t from = 0, last = 0;
	int r = 0;

	for (struct item *it = q->head, *next; r == 0 && it; it = next) {
		next = it->next;
		if (!it->in.merge_last)
			continue;
		if (it->in.merge_last > q->last) {
			r = withdraw(q, it);
			continue;
		}
		from = from ? MIN(from, it->base_seq) : it->base_seq;
		last = it->in.merge_last;
	}
	return r < 0 || !from ? r : facts_read(q, from, last);
}
