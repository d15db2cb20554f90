#include "journal/points.h"

#include <stdio.h>

/* ---- the list ---- */

static struct points_item *add(struct points *l)
{
	if (l->n == POINTS_MAX)
		return NULL;
	if (l->n == l->room) {
		size_t room = l->room ? l->room * 2 : 64;
		struct points_item *p = reallocarray(l->items, room, sizeof(*p));

		if (!p)
			return NULL;
		l->items = p;
		l->room = room;
	}
	l->items[l->n] = (struct points_item){0};
	return &l->items[l->n++];
}

static void copy_word(char *out, size_t size, const char *s, size_t n)
{
	(void)snprintf(out, size, "%.*s", (int)MIN(n, size - 1), s);
}

static int take_point(const struct index_point *p, void *userdata)
{
	struct points_item *it;

	/* Found by its being consistent; one for each sync is nothing to list. */
	if (p->kind_len == 4 && memcmp(p->kind, "sync", 4) == 0)
		return 0;
	it = add(userdata);
	if (!it)
		return 1;
	it->seq = p->at_seq;
	it->time_ns = p->time_ns;
	it->consistent = p->consistent;
	copy_word(it->label, sizeof(it->label), p->label, p->label_len);
	copy_word(it->kind, sizeof(it->kind), p->kind, p->kind_len);
	copy_word(it->job, sizeof(it->job), p->job, p->job_len);
	it->automatic = strcmp(it->kind, "label") != 0;
	return 0;
}

static bool add_job(struct points *l, const struct index_job *j, const struct index_job_record *rec,
		    const char *kind)
{
	struct points_item *it;

	if (!rec->seq)
		return true;
	it = add(l);
	if (!it)
		return false;
	it->seq = rec->seq;
	it->time_ns = rec->time_ns;
	it->automatic = true;
	(void)snprintf(it->kind, sizeof(it->kind), "%s", kind);
	copy_word(it->job, sizeof(it->job), j->id, j->id_len);
	return true;
}

static int take_job(const struct index_job *j, void *userdata)
{
	return !add_job(userdata, j, &j->end, "after_job") ||
	       !add_job(userdata, j, &j->start, "before_job");
}

static int by_seq(const void *a, const void *b)
{
	const struct points_item *x = a, *y = b;

	return x->seq > y->seq ? -1 : x->seq < y->seq;
}

int points_list(struct index_txn *t, struct points *ret)
{
	struct points l = {0};
	int r = index_points(t, INDEX_NOW, take_point, &l);

	if (r == 0)
		r = index_jobs(t, take_job, &l);
	if (r < 0) {
		points_done(&l);
		return r;
	}
	if (l.n)
		qsort(l.items, l.n, sizeof(*l.items), by_seq);
	*ret = l;
	return 0;
}

void points_done(struct points *l)
{
	free(l->items);
	*l = (struct points){0};
}

/* ---- what a point means ---- */

static int back(struct index_txn *t, uint64_t n, uint64_t *ret_at)
{
	uint64_t at = index_seq(t);
	_cleanup_(points_done) struct points l = {0};
	int r = n > 0 ? points_list(t, &l) : 0;

	if (r < 0)
		return r;
	for (size_t i = 0; n > 0 && i < l.n; i++) {
		if (!l.items[i].automatic || l.items[i].seq >= at)
			continue;
		at = l.items[i].seq;
		n--;
	}
	if (n > 0)
		return -ENOENT;
	*ret_at = at;
	return 0;
}

static int take_consistent(const struct index_point *p, void *userdata)
{
	if (!p->consistent)
		return 0;
	*(uint64_t *)userdata = p->at_seq;
	return 1;
}

int points_consistent(struct index_txn *t, uint64_t *ret_at)
{
	uint64_t at = 0;
	int r = index_points(t, INDEX_NOW, take_consistent, &at);

	if (r < 0)
		return r;
	if (!at)
		return -ENOENT;
	*ret_at = at;
	return 0;
}

static int of_job(struct index_txn *t, const struct point *p, uint64_t *ret_at)
{
	struct index_job job;
	uint64_t at;
	int r = index_job(t, p->word, &job);

	if (r < 0)
		return r;
	at = p->kind == POINT_BEFORE_JOB ? job.start.seq : job.end.seq;
	if (!at)
		return -ENOENT;
	*ret_at = at;
	return 0;
}

int points_find(struct index_txn *t, int log_fd, const struct point *p, uint64_t *ret_at)
{
	uint64_t at = 0;
	int r = -EINVAL;

	switch (p->kind) {
	case POINT_SEQ:
		at = p->seq;
		r = at ? 0 : -ENOENT;
		break;
	case POINT_LABEL: r = index_label(t, p->word, &at); break;
	case POINT_TIME:
		/* The log's last records may not be in the index yet. */
		r = log_seq_at(log_fd, p->time_ns, &at);
		at = MIN(at, index_seq(t));
		break;
	case POINT_BEFORE_JOB:
	case POINT_AFTER_JOB: r = of_job(t, p, &at); break;
	case POINT_HEAD: r = back(t, p->seq, &at); break;
	case POINT_NOW:
		at = index_seq(t);
		r = 0;
		break;
	}
	if (r < 0)
		return r;
	if (at > index_seq(t))
		return -ENOENT;
	*ret_at = at;
	return 0;
}
