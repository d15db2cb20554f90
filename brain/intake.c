#include "brain/intake.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "brain/commit.h"
#include "brain/job.h"
#include "brain/link.h"
#include "brain/point.h"
#include "brain/quota.h"
#include "brain/warned.h"
#include "journal/pack.h"
#include "wire/wire.pb-c.h"

/* As limb-syncd counts for its reason mass_delete. */
enum {
	MASS_WINDOW_MS = 5000,
	MASS_NODES = 1000,
	MASS_FEWEST = 10,
	RUN_GAP_MS = 3000,
};

int intake_on_places(struct env *env, const struct entry_head *e)
{
	const struct entry_places *p = (const struct entry_places *)e;
	const struct entry_place *places = entry_tail(p);
	uint64_t bytes = 0;
	int r;

	for (size_t i = 0; env->full && i < p->n; i++)
		bytes += places[i].len;
	r = quota_took(env, bytes);
	return r < 0 ? r : commit_places(env, entry_tail(p), p->n, p->pack_end);
}

static int refuse(struct env *env, const char *why)
{
	env_lied(env, "a change that cannot be: %s", why);
	return -EPROTO;
}

int intake_check_number(struct env *env, uint64_t number)
{
	return number > env->last_number ? refuse(env, "an end before the changes that it covers")
					 : 0;
}

/* New nodes come from the grant, rising, each once. */
static const char *check_grant(struct env *env, const struct change *c, uint64_t *used)
{
	struct index_txn *t = index_writer_txn(env->index);
	struct index_node n;

	for (size_t i = 0; i < c->n_ops; i++) {
		const struct change_op *op = &c->ops[i];

		if (op->kind != CHANGE_PUT || op->node == NODE_ROOT)
			continue;
		/* One that is new in this change may be put again in it: the index does not
		 * have it yet. */
		if (op->node > env->node_used) {
			if (op->node < env->grant_first || op->node >= env->grant_end)
				return "a node id that was not granted";
			*used = MAX(*used, op->node);
			continue;
		}
		if (t && index_get_node(t, op->node, INDEX_NOW, &n) == -ENOENT)
			return "a node id that was used before";
	}
	return NULL;
}

/* What has content names what this line has proven to have. */
static const char *check_contents(struct env *env, const struct change *c)
{
	for (size_t i = 0; i < c->n_ops; i++) {
		const struct content_ref *ref = &c->ops[i].attr.content;

		if (c->ops[i].kind == CHANGE_PUT && c->ops[i].has_content && ref->size_bytes > 0 &&
		    !link_has_proof(env, ref->depth ? ref->root : ref->sha256))
			return "content that it did not send";
	}
	return NULL;
}

static uint64_t nodes_now(struct env *env)
{
	struct index_txn *t = index_writer_txn(env->index);
	struct index_counts n = {0};

	if (t)
		(void)index_counts(t, &n);
	return n.files + n.directories + n.symlinks + n.others;
}

/* A deletion of very much comes as many changes: the first of them opens a window, and when
 * it is known to be one, what was before it gets a label. */
static int watch_removals(struct env *env, uint64_t before, uint64_t seq)
{
	struct removals *m = &env->removals;
	uint64_t after = nodes_now(env), now_ms = clock_mono_ms();
	char label[40];

	if (after >= before)
		return 0;
	/* With as many as at its start again, there was no deletion until now. */
	if (!m->since_ms || now_ms - m->since_ms > MASS_WINDOW_MS || before >= m->before_nodes) {
		*m = (struct removals){
			.since_ms = now_ms, .before_seq = seq - 1, .before_nodes = before};
	}
	m->removed += before - after;
	if (m->labelled || m->removed < MASS_FEWEST ||
	    (m->removed <= MASS_NODES && m->removed * 2 <= m->before_nodes))
		return 0;
	m->labelled = true;
	(void)snprintf(label, sizeof(label), "mass_delete_%llu", (unsigned long long)m->before_seq);
	return point_record(env, label, "mass_delete", m->before_seq, false, NULL, NULL);
}

/* Before it is in the index: does it say anything but that something went? Content may be told
 * again; a directory's time may be told before what is gone from it. *ret_empties: one of these. */
static bool makes(struct env *env, const struct change *c, bool *ret_empties)
{
	struct index_txn *t = index_writer_txn(env->index);
	struct index_node n;

	for (size_t i = 0; i < c->n_ops; i++) {
		const struct change_op *op = &c->ops[i];
		struct node now = op->attr;
		uint32_t differs;

		*ret_empties |= op->kind == CHANGE_UNLINK;
		if (op->kind == CHANGE_UNLINK)
			continue;
		if (op->kind != CHANGE_PUT || !t || index_get_node(t, op->node, INDEX_NOW, &n) < 0)
			return true;
		if (!op->has_content)
			now.content = n.n.content;
		differs = node_compare(&n.n, &now, 0);
		if (differs & ~(uint32_t)(NODE_FIELD_MTIME | NODE_FIELD_LINKS | NODE_FIELD_HOLES))
			return true;
		*ret_empties |= n.n.type == NODE_TYPE_DIRECTORY && differs & NODE_FIELD_MTIME;
	}
	return false;
}

/* A change that makes or writes something ends a run. */
static void watch_run(struct env *env, bool made, bool empties, uint64_t seq)
{
	struct removal_run *m = &env->run;
	uint64_t now_ms = clock_mono_ms();

	if (made)
		*m = (struct removal_run){0};
	else if (!m->before_seq || now_ms - m->last_ms > RUN_GAP_MS)
		*m = (struct removal_run){.before_seq = seq - 1};
	m->empties |= empties;
	m->last_ms = now_ms;
}

static void change_durable(int r, uint64_t seq, void *userdata)
{
	struct env *env = userdata;
	Limbwire__Durable d = LIMBWIRE__DURABLE__INIT;

	env->durable_asked = false;
	if (r < 0 || !link_up(env))
		return;
	d.number = d.safe_elsewhere = env->taken_number;
	d.seq = seq;
	(void)link_send(env, WIRE_DURABLE, &d.base, NULL, 0);
}

/* What it says about who made a change counts only while somebody waits for such a one. */
static uint8_t origin_of(const struct env *env, const struct entry_change *ec)
{
	return ec->origin && ec->origin <= ORIGIN_MERGE_ && env->applying[ec->origin]
		       ? (uint8_t)ec->origin
		       : ORIGIN_ENVIRONMENT_;
}

int intake_on_change(struct env *env, const struct entry_head *e)
{
	const struct entry_change *ec = (const struct entry_change *)e;
	struct change_op ops[CHANGE_OPS_MAX];
	struct change c = {.incarnation = env->incarnation,
			   .number = ec->number,
			   .origin = origin_of(env, ec),
			   .base_seq = ec->base_seq,
			   .origin_time_ns = ec->time_ns,
			   .ops = ops};
	struct entry_cursor cur;
	uint64_t seq, used = env->node_used, nodes;
	const char *why;
	bool made, empties = false;
	int r;

	if (ec->number <= env->last_number)
		return 0; /* had before: exactly once */
	if (ec->number != env->last_number + 1)
		return refuse(env, "a number out of order");
	r = quota_took(env, e->length);
	if (r < 0)
		return r;
	entry_cursor_init(&cur, e);
	while (c.n_ops < CHANGE_OPS_MAX && entry_next_op(&cur, &ops[c.n_ops]))
		c.n_ops++;
	if (ec->job[0] && job_known(env, ec->job))
		c.job = ec->job;
	r = commit_prepare(env);
	if (r < 0)
		return r;
	why = check_contents(env, &c);
	if (!why)
		why = check_grant(env, &c, &used);
	if (why)
		return refuse(env, why);
	nodes = nodes_now(env);
	made = makes(env, &c, &empties);
	r = commit_change(env, &c, &seq, &why);
	if (r == -EINVAL)
		return refuse(env, why);
	if (r < 0)
		return r;
	env->node_used = used;
	env->last_number = ec->number;
	env->taken_number = ec->number;
	watch_run(env, made, empties, seq);
	if (made)
		warned_look(env, &c, seq);
	r = watch_removals(env, nodes, seq);
	if (r < 0)
		return r;
	if (!env->durable_asked) {
		r = commit_tell(env, change_durable, env);
		if (r == 0)
			env->durable_asked = true;
	}
	return r;
}
