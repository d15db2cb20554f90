#include "brain/upkeep.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "brain/commit.h"
#include "brain/env.h"
#include "brain/link.h"
#include "brain/past.h"
#include "brain/upkeep-check.h"
#include "brain/view.h"

enum {
	QUIET_MS = 20000,
	TICKS = 4,	   /* in a quiet time */
	BUSY_MS = 200,	   /* a commit round began within: others work */
	WORK_NS = 5000000, /* at most, then a pause of */
	PAUSE_MS = 50,	   /* while others work */
	COPY_RECORDS = 32, /* fewer are replayed at once */
	COPY_NODES_PART = 128,
};

struct upkeep {
	struct brain *brain;
	uv_timer_t timer;
	uint64_t quiet_ms;
	atomic_bool stop;

	/* the thread that checks and merges */
	uv_work_t merge_work;
	bool merging;
	char *worker, uid[16];
	uint64_t worked_since_ns, told_removed;
	int result;

	/* the thread that copies an index */
	uv_work_t copy_work;
	struct env *copied; /* NULL: none is */
	uint64_t copy_seq;
	int copy_result;
};

/* ---- packs ---- */

/* After some ms of work it makes room for who works at the same time. */
static int pace(void *userdata)
{
	struct upkeep *u = userdata;

	if (clock_mono_ns() - u->worked_since_ns >= WORK_NS) {
		if (clock_mono_ms() - atomic_load(&u->brain->last_round_ms) < BUSY_MS)
			(void)usleep(PAUSE_MS * 1000);
		u->worked_since_ns = clock_mono_ns();
	}
	return atomic_load(&u->stop);
}

static int check(struct upkeep *u, const struct store_merge_pace *p,
		 const struct store_merge_job *job)
{
	struct store_merge_verdict v = {0};
	int r;

	r = upkeep_check(u->worker, u->uid[0] ? u->uid : NULL, job, &u->stop, &v);
	if (r >= 0)
		r = store_merge_checked(u->brain->store, p, job, &v);
	free((void *)v.good);
	return r;
}

static int merge(struct upkeep *u)
{
	const struct store_merge_pace p = {.wait = pace, .userdata = u};
	struct store_merge_job job;
	int r;

	do {
		while ((r = store_merge_next(u->brain->store, &p, &job)) > 0) {
			r = check(u, &p, &job);
			store_merge_done(&job);
			if (r < 0)
				return r;
		}
		if (r >= 0)
			r = store_merge_packs(u->brain->store, &p);
	} while (r > 0);
	return r;
}

static void merge_work(uv_work_t *w)
{
	struct upkeep *u = container_of(w, struct upkeep, merge_work);

	u->result = merge(u);
}

static void merge_done(uv_work_t *w, int status)
{
	struct upkeep *u = container_of(w, struct upkeep, merge_work);
	static struct log_limit limit;

	(void)status;
	u->merging = false;
	if (store_merge_removed(u->brain->store) != u->told_removed) {
		u->told_removed = store_merge_removed(u->brain->store);
		for (struct env *env = u->brain->envs; env; env = env->next)
			view_merged(env);
		past_merged(u->brain);
	}
	if (u->result < 0 && u->result != -ECANCELED && log_limited(&limit, 3, 600000))
		(void)log_line_errno(LOG_LEVEL_WARNING, u->result,
				     "cannot merge packs; what is stored more than once stays so");
}

static void seal_quiet(struct upkeep *u)
{
	for (struct env *env = u->brain->envs; env; env = env->next)
		if (!env->failed && link_up(env) && commit_pack_quiet(env, u->quiet_ms))
			(void)link_send_seal(env);
}

/* ---- indexes ---- */

bool upkeep_copy_due(const struct upkeep_copy_facts *f)
{
	uint64_t enough = COPY_RECORDS + f->nodes / COPY_NODES_PART;

	if (f->records < enough || f->since_ms < 3 * f->quiet_ms)
		return false;
	/* Who is never idle gets one, too. */
	return f->idle_ms >= f->quiet_ms || f->records >= 8 * enough;
}

static bool copy_is_due(struct upkeep *u, struct env *env, uint64_t *ret_seq)
{
	struct upkeep_copy_facts f = {.quiet_ms = u->quiet_ms};
	struct index_counts counts = {0};
	uint64_t now = clock_mono_ms();
	struct index_txn *t;

	if (env->failed || !env->index || env_read_begin(env, &t) < 0)
		return false;
	*ret_seq = index_seq(t);
	(void)index_counts(t, &counts);
	index_read_end(t);
	if (!env->copy_known) {
		env->copy_known = true;
		(void)index_copied(env->index, &env->copy_seq);
	}
	/* Not before the next look is it known whether it is idle. */
	if (*ret_seq != env->looked_seq) {
		env->looked_seq = *ret_seq;
		env->looked_ms = now;
	}
	f.records = *ret_seq - MIN(*ret_seq, env->copy_seq);
	f.nodes = counts.files + counts.directories + counts.symlinks + counts.others;
	f.since_ms = env->copy_ms ? now - env->copy_ms : UINT64_MAX;
	f.idle_ms = now - env->looked_ms;
	return upkeep_copy_due(&f);
}

static void copy_work(uv_work_t *w)
{
	struct upkeep *u = container_of(w, struct upkeep, copy_work);

	u->copy_result = index_sync(u->copied->index);
}

static void copy_done(uv_work_t *w, int status)
{
	struct upkeep *u = container_of(w, struct upkeep, copy_work);
	struct env *env = take_ptr(&u->copied);

	(void)status;
	env->threads--;
	env->copy_ms = clock_mono_ms();
	if (u->copy_result >= 0)
		env->copy_seq = u->copy_seq;
	else
		log_warning_errno(u->copy_result,
				  "environment '%s': cannot copy its index; after a loss of power "
				  "its whole log is replayed",
				  env->name);
}

static void copy_one(struct upkeep *u)
{
	for (struct env *env = u->brain->envs; env && !u->copied; env = env->next) {
		if (!copy_is_due(u, env, &u->copy_seq))
			continue;
		u->copied = env;
		env->threads++;
		if (uv_queue_work(u->brain->loop, &u->copy_work, copy_work, copy_done) < 0) {
			env->threads--;
			u->copied = NULL;
		}
		return;
	}
}

/* ---- the whole ---- */

static void tick(uv_timer_t *t)
{
	struct upkeep *u = container_of(t, struct upkeep, timer);

	if (u->brain->stopping)
		return;
	seal_quiet(u);
	if (!u->copied)
		copy_one(u);
	if (!u->merging &&
	    uv_queue_work(u->brain->loop, &u->merge_work, merge_work, merge_done) == 0)
		u->merging = true;
}

int upkeep_start(struct brain *b)
{
	struct upkeep *u = calloc(1, sizeof(*u));
	const char *quiet = getenv("LIMB_QUIET_MS");

	if (!u)
		return -ENOMEM;
	u->brain = b;
	u->worker = brain_helper(b, "limb-ingest");
	if (!u->worker) {
		free(u);
		return -ENOMEM;
	}
	/* A user that no environment's limb-ingest has. */
	(void)link_helper_uid(1u << 24, u->uid, sizeof(u->uid));
	if (!quiet || text_parse_u64(quiet, 24 * 3600 * 1000, &u->quiet_ms) < 0 || u->quiet_ms == 0)
		u->quiet_ms = QUIET_MS;
	(void)uv_timer_init(b->loop, &u->timer);
	(void)uv_timer_start(&u->timer, tick, u->quiet_ms / TICKS + 1, u->quiet_ms / TICKS + 1);
	uv_unref((uv_handle_t *)&u->timer);
	b->upkeep = u;
	return 0;
}

void upkeep_stop(struct brain *b)
{
	if (!b->upkeep)
		return;
	atomic_store(&b->upkeep->stop, true);
	(void)uv_timer_stop(&b->upkeep->timer);
}

bool upkeep_busy(const struct brain *b)
{
	return b->upkeep && (b->upkeep->merging || b->upkeep->copied);
}

void upkeep_free(struct brain *b)
{
	if (b->upkeep)
		free(b->upkeep->worker);
	free(take_ptr(&b->upkeep));
}
