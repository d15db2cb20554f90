/* What becomes of a change, as records. */
#include "brain/queue-impl.h"

#include "base/clock.h"
#include "brain/commit.h"
#include "wire/attr.h"

static void set_bytes(ProtobufCBinaryData *b, const void *p, size_t n)
{
	*b = (ProtobufCBinaryData){n, (uint8_t *)(uintptr_t)p};
}

static const char *last_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static const char *const kinds[] = {
	[CONFLICT_EDIT_EDIT] = "edit_edit",
	[CONFLICT_EDIT_DELETE] = "edit_delete",
	[CONFLICT_TYPE] = "type",
	[CONFLICT_RENAME] = "rename",
};

int record_conflict(struct queue *q, const struct part *p, queue_durable_fn fn, void *userdata)
{
	const struct judged *j = &p->j;
	const struct item *it = p->it;
	struct wire_attr_scratch other = {0};
	Limb__Conflict c = LIMB__CONFLICT__INIT;
	Limb__Record rec = LIMB__RECORD__INIT;
	int r = 0;

	c.change = it->in.number;
	c.kind = (char *)kinds[j->plan.conflict ? j->plan.conflict : CONFLICT_TYPE];
	c.winner = (char *)(j->plan.verdict == REC_APPLY && j->plan.step != STEP_ATTR
				    ? "brain"
				    : "environment");
	set_bytes(&c.path, it->path, strlen(it->path));
	c.intent = it->rec->intent;
	c.intent_seq = it->seq;
	c.intent_time_ns = it->since_ns;
	c.intent_base_seq = it->base_seq;
	if (j->other.type) {
		c.node = j->plan.other;
		c.node_seq = j->other_seq;
		c.node_time_ns = j->other.mtime_ns;
		r = wire_attr_fill(&other, &j->other);
		c.environment = &other.attr;
		if (j->other.type == NODE_TYPE_FILE)
			c.environment_content = &other.content;
	}
	rec.origin = LIMB__ORIGIN__ORIGIN_BRAIN;
	rec.body_case = LIMB__RECORD__BODY_CONFLICT;
	rec.conflict = &c;
	if (r == 0)
		r = commit_submit(q->env, RECORD_CONFLICT, &rec, fn, userdata);
	wire_attr_scratch_done(&other);
	return r;
}

static void set_content(Limb__Content *c, const struct content_ref *ref)
{
	limb__content__init(c);
	c->size_bytes = ref->size_bytes;
	set_bytes(&c->sha256, ref->sha256, SHA256_BYTES);
}

/* What those that come later have to know. */
void end_fill(const struct facts *f, const struct item *it, const struct judged *j,
	      const struct content_ref *became, Limb__IntentEnd *e, Limb__Content c[2])
{
	const struct rec_plan *p = &j->plan;
	bool made = p->verdict == REC_APPLY;
	const char *name = NULL;
	bool done = false;

	e->node = p->node;
	e->astray = p->astray;
	e->dropped = p->dropped;
	if (p->verdict == REC_DONE && it->in.kind == INTENT_CREATE) {
		e->made = INTENT_MADE | it->in.number;
		e->made_node = p->node;
		if (it->in.wanted.type == NODE_TYPE_DIRECTORY) {
			e->node = 0; /* it may have in it what the brain did not see */
			return;
		}
		e->parent = p->at.parent;
		set_bytes(&e->name, it->in.at.name, p->at.parent ? it->in.at.len : 0);
	} else if (p->verdict == REC_DONE && it->in.kind == INTENT_WRITE && p->node &&
		   alias_of(f, it->in.node) && p->node != alias_of(f, it->in.node)) {
		/* Made before a crash, which took the answer: what was replaced is this one now. */
		e->made = alias_of(f, it->in.node);
		e->made_node = p->node;
		e->parent = p->at.parent;
		set_bytes(&e->name, it->in.at.name, p->at.parent ? it->in.at.len : 0);
		done = true;
	} else if (p->verdict == REC_DONE &&
		   (it->in.kind == INTENT_MOVE || it->in.kind == INTENT_LINK)) {
		e->parent = p->to.parent;
		set_bytes(&e->name, it->in.to.name, p->to.parent ? it->in.to.len : 0);
	} else if (p->verdict == REC_DONE && it->in.kind == INTENT_REMOVE) {
		e->dropped = true;
	} else if (made && p->step == STEP_PUT_NEW) {
		e->made = it->in.kind == INTENT_CREATE ? INTENT_MADE | it->in.number : it->in.node;
		e->made_node = e->node = j->made;
		name = j->path;
	} else if (made && (p->step == STEP_PUT_OVER || p->step == STEP_JOIN)) {
		/* A file that is replaced is another node there, unless it has several names. */
		if (j->made != p->node) {
			e->made = p->node;
			e->made_node = e->node = j->made;
		}
		name = p->placed ? j->path : NULL;
	} else if (made && (p->step == STEP_MOVE || p->step == STEP_LINK)) {
		name = j->to_path;
	}
	if (made && p->step == STEP_MOVE)
		e->took = p->replaces;
	if (made && p->by_path && p->gone != j->made_dir) {
		e->gone = p->gone;
		e->gone_node = j->made_dir;
	}
	if (name && j->made_dir && j->made == e->node) {
		e->parent = j->made_dir;
		set_bytes(&e->name, last_name(name), strlen(last_name(name)));
	}
	if (j->was && !e->made) {
		e->made = j->was;
		e->made_node = p->node;
	}
	if (j->passed)
		e->node = 0;
	e->written = (made && (p->step == STEP_PUT_NEW || p->step == STEP_PUT_OVER ||
			       p->step == STEP_JOIN)) ||
		     (p->verdict == REC_DONE && it->in.kind == INTENT_CREATE) || done;
	if (!e->written)
		return;
	set_content(&c[0],
		    it->in.kind == INTENT_LINK ? &it->in.base.content : &it->in.wanted.content);
	set_content(&c[1], p->step == STEP_JOIN		? became
			   : it->in.kind == INTENT_LINK ? &it->in.base.content
							: &it->in.wanted.content);
	e->meant = &c[0];
	e->became = &c[1];
}

int record_end(struct queue *q, const struct part *p, const char *outcome, queue_durable_fn fn,
	       void *userdata)
{
	Limb__IntentEnd e = LIMB__INTENT_END__INIT;
	Limb__Record rec = LIMB__RECORD__INIT;
	Limb__Content c[2];
	int r;

	e.change = p->it->in.number;
	e.outcome = (char *)outcome;
	e.merged = p->it->in.merge_last != 0;
	end_fill(&q->facts, p->it, &p->j, &q->became, &e, c);
	rec.origin = LIMB__ORIGIN__ORIGIN_BRAIN;
	rec.body_case = LIMB__RECORD__BODY_INTENT_END;
	rec.intent_end = &e;
	r = commit_submit(q->env, RECORD_INTENT_END, &rec, fn, userdata);
	if (r < 0)
		return r;
	q->view_fresh = false; /* it has the ids that were */
	r = facts_take(&q->facts, &e);
	return r < 0 ? r : merge_ended(q, p->it, &e);
}

int record_unapplied(struct queue *q, const struct part *p, int error, const char *detail,
		     queue_durable_fn fn, void *userdata)
{
	Limb__Unapplied u = LIMB__UNAPPLIED__INIT;
	Limb__Record rec = LIMB__RECORD__INIT;

	u.change = p->it->in.number;
	u.error = error;
	u.detail = (char *)detail;
	set_bytes(&u.path, p->it->path, strlen(p->it->path));
	rec.origin = LIMB__ORIGIN__ORIGIN_BRAIN;
	rec.body_case = LIMB__RECORD__BODY_UNAPPLIED;
	rec.unapplied = &u;
	return commit_submit(q->env, RECORD_UNAPPLIED, &rec, fn, userdata);
}
