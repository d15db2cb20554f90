#include "fs/await.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "fs/keeper.h"

enum {
	TICK_MS = 20, /* a look at signals and deadlines */
	NAMES_MAX = 2,
};

struct waiter {
	struct waiter *next;
	struct await *a;
	uint64_t first, last;
	int error; /* the first refusal's */
	bool lost, answered;
	struct await_name {
		uint64_t parent;
		char *name;
	} names[NAMES_MAX];
	unsigned n_names;
	fuse_req_t req;
	struct answer answer;
	uint64_t since_ms, away_ms;
};

struct await {
	struct fs *fs;
	struct await_words words;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	atomic_bool stop; /* set under the lock */
	uint64_t over;
	struct waiter *waiters;
	unsigned n_answered; /* of them */
};

void answer_give(struct fs *fs, fuse_req_t req, int r, const struct answer *a)
{
	bool entry = a->kind == ANSWER_ENTRY || a->kind == ANSWER_CREATE;

	r = MIN(r, 0);
	if (r < 0 || a->kind == ANSWER_NOTHING)
		(void)fuse_reply_err(req, -r);
	else if (a->kind == ANSWER_ENTRY)
		r = fuse_reply_entry(req, &a->entry);
	else if (a->kind == ANSWER_CREATE)
		r = fuse_reply_create(req, &a->entry, &a->fi);
	else if (a->kind == ANSWER_ATTR)
		r = fuse_reply_attr(req, &a->attr, a->attr_timeout_s);
	else
		r = fuse_reply_write(req, a->written);
	if (r < 0 && entry && a->entry.ino)
		spot_forget(fs, a->entry.ino, 1);
}

/* ---- one ---- */

static void waiter_free(struct waiter *w)
{
	for (unsigned i = 0; i < w->n_names; i++)
		free(w->names[i].name);
	free(w);
}

struct waiter *await_new(struct await *a, uint64_t first)
{
	struct waiter *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->a = a;
	w->first = first;
	w->last = UINT64_MAX;
	w->since_ms = clock_mono_ms();
	(void)pthread_mutex_lock(&a->lock);
	w->next = a->waiters;
	a->waiters = w;
	(void)pthread_mutex_unlock(&a->lock);
	return w;
}

void await_until(struct waiter *w, uint64_t last)
{
	(void)pthread_mutex_lock(&w->a->lock);
	w->last = last;
	(void)pthread_mutex_unlock(&w->a->lock);
}

/* Without memory the kernel is not told of it. */
void await_name(struct waiter *w, uint64_t parent, const char *name)
{
	char *copy = w->n_names < NAMES_MAX ? strdup(name) : NULL;

	if (copy)
		w->names[w->n_names++] = (struct await_name){parent, copy};
}

static void unlink_waiter(struct await *a, struct waiter *w)
{
	struct waiter **p = &a->waiters;

	while (*p != w)
		p = &(*p)->next;
	*p = w->next;
	a->n_answered -= w->answered;
}

void await_drop(struct waiter *w)
{
	struct await *a;

	if (!w)
		return;
	a = w->a;
	(void)pthread_mutex_lock(&a->lock);
	unlink_waiter(a, w);
	(void)pthread_mutex_unlock(&a->lock);
	waiter_free(w);
}

/* ---- what limbd says ---- */

void await_refused(struct await *a, uint64_t number, int error)
{
	(void)pthread_mutex_lock(&a->lock);
	for (struct waiter *w = a->waiters; w; w = w->next)
		if (number >= w->first && number <= w->last && !w->error)
			w->error = error;
	(void)pthread_mutex_unlock(&a->lock);
}

void await_over(struct await *a, uint64_t number)
{
	(void)pthread_mutex_lock(&a->lock);
	a->over = MAX(a->over, number);
	(void)pthread_cond_signal(&a->cond);
	(void)pthread_mutex_unlock(&a->lock);
}

void await_lost(struct await *a)
{
	(void)pthread_mutex_lock(&a->lock);
	for (struct waiter *w = a->waiters; w; w = w->next)
		w->lost = true;
	(void)pthread_cond_signal(&a->cond);
	(void)pthread_mutex_unlock(&a->lock);
}

bool await_is_over(struct await *a, uint64_t number)
{
	bool over;

	(void)pthread_mutex_lock(&a->lock);
	over = number <= a->over;
	(void)pthread_mutex_unlock(&a->lock);
	return over;
}

/* ---- the thread ---- */

/* False: it waits on. */
static bool is_due(const struct await *a, struct waiter *w, uint64_t now_ms, int *ret)
{
	bool live = status_is_live(&a->fs->status);

	if (!w->answered)
		return false;
	w->away_ms = live ? 0 : w->away_ms ? w->away_ms : now_ms;
	if (w->lost || atomic_load(&a->stop))
		*ret = -ETIMEDOUT;
	else if (w->last <= a->over)
		*ret = -w->error;
	else if (fuse_req_interrupted(w->req))
		*ret = -EINTR;
	else if (now_ms - w->since_ms >= AWAIT_MS ||
		 (!live && now_ms - w->away_ms >= AWAIT_AWAY_MS))
		*ret = -ETIMEDOUT;
	else
		return false;
	return true;
}

static void finish(struct await *a, struct waiter *w, int r)
{
	bool stop = atomic_load(&a->stop); /* nobody is there to be told any more */

	/* Known to its caller: nothing is left that a person would have to decide. */
	if (!stop && r < 0 && r == -w->error)
		a->words.told(w->first, w->last, a->words.userdata);
	answer_give(a->fs, w->req, r, &w->answer);
	for (unsigned i = 0; !stop && r < 0 && i < w->n_names; i++)
		keeper_forget_name(a->fs->keeper, w->names[i].parent, w->names[i].name);
	waiter_free(w);
}

void await_answer(struct waiter *w, fuse_req_t req, const struct answer *answer)
{
	struct await *a = w->a;
	uint64_t last = w->last; /* set by this thread */
	bool stop;

	w->req = req;
	w->answer = *answer;
	w->answer.attr_timeout_s = w->answer.entry.attr_timeout = 0;
	(void)pthread_mutex_lock(&a->lock);
	stop = atomic_load(&a->stop);
	if (stop) {
		unlink_waiter(a, w);
	} else {
		w->answered = true;
		a->n_answered++;
		(void)pthread_cond_signal(&a->cond);
	}
	(void)pthread_mutex_unlock(&a->lock);
	if (stop)
		finish(a, w, -ETIMEDOUT);
	else
		a->words.waits(last, a->words.userdata);
}

static struct waiter *next_due(struct await *a, int *ret)
{
	uint64_t now_ms = clock_mono_ms();

	for (struct waiter *w = a->waiters; w; w = w->next) {
		if (!is_due(a, w, now_ms, ret))
			continue;
		unlink_waiter(a, w);
		return w;
	}
	return NULL;
}

static void *run(void *userdata)
{
	struct await *a = userdata;
	struct timespec until;
	struct waiter *w;
	int r;

	(void)pthread_mutex_lock(&a->lock);
	for (;;) {
		while ((w = next_due(a, &r))) {
			(void)pthread_mutex_unlock(&a->lock);
			finish(a, w, r);
			(void)pthread_mutex_lock(&a->lock);
		}
		if (atomic_load(&a->stop))
			break;
		until = clock_to_timespec((int64_t)(clock_mono_ns() + TICK_MS * 1000000ull));
		if (a->n_answered)
			(void)pthread_cond_clockwait(&a->cond, &a->lock, CLOCK_MONOTONIC, &until);
		else
			(void)pthread_cond_wait(&a->cond, &a->lock);
	}
	(void)pthread_mutex_unlock(&a->lock);
	return NULL;
}

int await_start(struct fs *fs, const struct await_words *words, struct await **ret)
{
	struct await *a = calloc(1, sizeof(*a));
	int r;

	if (!a)
		return -ENOMEM;
	a->fs = fs;
	a->words = *words;
	(void)pthread_mutex_init(&a->lock, NULL);
	(void)pthread_cond_init(&a->cond, NULL);
	r = -pthread_create(&a->thread, NULL, run, a);
	if (r < 0) {
		free(a);
		return r;
	}
	*ret = a;
	return 0;
}

void await_stop(struct await *a)
{
	if (!a)
		return;
	(void)pthread_mutex_lock(&a->lock);
	atomic_store(&a->stop, true);
	(void)pthread_cond_signal(&a->cond);
	(void)pthread_mutex_unlock(&a->lock);
	(void)pthread_join(a->thread, NULL);
}

void await_free(struct await *a)
{
	if (!a)
		return;
	while (a->waiters)
		await_drop(a->waiters);
	(void)pthread_cond_destroy(&a->cond);
	(void)pthread_mutex_destroy(&a->lock);
	free(a);
}
