/* conflicts, resolve, retry, drop: what a person decides about changes of both sides. */
#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"
#include "brain/commit.h"
#include "brain/link.h"
#include "brain/verb.h"
#include "brain/want.h"
#include "journal/record.pb-c.h"
#include "wire/attr.h"

enum { APPLY_MS = 60000 };

/* ---- VERSION ---- */

static void set(json_t *o, const char *key, json_t *v)
{
	(void)json_object_set_new(o, key, v);
}

static json_t *version(uint64_t seq, const char *side, int64_t time_ns, const Limb__Attr *a,
		       const Limb__Content *c)
{
	char when[CLOCK_TEXT_MAX];
	json_t *o = json_pack("{s:o, s:s, s:I, s:s, s:s}", "version",
			      json_sprintf("%llu", (unsigned long long)seq), "side", side, "seq",
			      (json_int_t)seq, "type", node_type_name(a ? (uint8_t)a->type : 0),
			      "modified_at", clock_format(when, time_ns));

	if (a)
		set(o, "mode", json_sprintf("%04o", a->mode & 07777));
	if (c && c->sha256.len == SHA256_BYTES) {
		set(o, "size_bytes", json_integer((json_int_t)c->size_bytes));
		verb_put_hash(o, "sha256", c->sha256.data);
	}
	return o;
}

static const Limb__Attr *brain_attr(const Limb__Intent *in)
{
	return in->wanted ? in->wanted : in->seen;
}

/* The environment's, then the brain's; a removal has its node's type and no content. */
static json_t *versions_json(const Limb__Conflict *c)
{
	const Limb__Intent *in = c->intent;
	bool removes = in->kind == LIMB__INTENT_KIND__INTENT_REMOVE;
	json_t *list = json_array(), *o;

	if (c->environment)
		(void)json_array_append_new(list,
					    version(c->node_seq, "environment", c->node_time_ns,
						    c->environment, c->environment_content));
	o = version(c->intent_seq, "brain", c->intent_time_ns, brain_attr(in),
		    removes		 ? NULL
		    : in->wanted_content ? in->wanted_content
					 : in->seen_content);
	if (removes)
		set(o, "removed", json_true());
	if (in->to_path.len)
		verb_put_bytes(o, "to_path", in->to_path.data, in->to_path.len);
	(void)json_array_append_new(list, o);
	return list;
}

struct listing {
	struct env *env;
	json_t *list;
};

static int add_conflict(const struct index_intent *row, void *userdata)
{
	Limb__Record *rec = limb__record__unpack(NULL, row->n, row->body);
	struct listing *l = userdata;
	char when[CLOCK_TEXT_MAX];
	const Limb__Conflict *c;
	json_t *o;

	if (!rec)
		return 0;
	c = rec->body_case == LIMB__RECORD__BODY_CONFLICT ? rec->conflict : NULL;
	if (c && c->intent) {
		o = json_pack("{s:o, s:s, s:s, s:s, s:s, s:o}", "conflict_id",
			      json_sprintf("c-%llu", (unsigned long long)row->change),
			      "environment", l->env->name, "kind", c->kind, "winner", c->winner,
			      "since_at", clock_format(when, row->time_ns), "versions",
			      versions_json(c));
		verb_put_bytes(o, "path", c->path.data, c->path.len);
		if (c->intent->seen_content)
			set(o, "base",
			    version(c->intent_base_seq, "base", c->intent->seen->mtime_ns,
				    c->intent->seen, c->intent->seen_content));
		(void)json_array_append_new(l->list, o);
	}
	limb__record__free_unpacked(rec, NULL);
	return 0;
}

static int list_conflicts(struct env *env, json_t *list)
{
	struct listing l = {env, list};
	struct index_txn *t;
	int r;

	r = env_read_begin(env, &t);
	if (r < 0)
		return r;
	r = index_conflicts(t, add_conflict, &l);
	index_read_end(t);
	return r;
}

void verb_conflicts(struct call *call)
{
	json_t *list;
	int r = 0;

	if (call_str(call, "name")) {
		struct env *env = verb_env(call);

		if (!env)
			return;
		list = json_array();
		r = list_conflicts(env, list);
		if (r < 0) {
			json_decref(list);
			verb_fail_errno(call, env, r, "its conflicts cannot be read");
			return;
		}
	} else {
		list = json_array();
		for (struct env *env = call->brain->envs; env; env = env->next)
			(void)list_conflicts(env, list);
	}
	call_ok(call, json_pack("{s:o}", "conflicts", list));
}

/* ---- resolve ---- */

struct resolve {
	struct call *call;
	char *path, *taken, key[24];
	const char *take;
	Limb__Record *rec; /* of the one that is resolved */
	bool brain;	   /* the brain's version is to be there */
};

static void resolve_free(struct resolve *s)
{
	if (s->rec)
		limb__record__free_unpacked(s->rec, NULL);
	free(s->path);
	free(s->taken);
	free(s);
}

static void resolve_fail(struct resolve *s, struct env *env, int r, const char *what)
{
	verb_fail_errno(s->call, env, r, what);
	resolve_free(s);
}

/* Is it the version that is asked for? *ret_brain: whose. */
static bool is_taken(const Limb__Conflict *c, const char *take, bool *ret_brain)
{
	uint64_t seq;

	*ret_brain = strcmp(take, "brain") == 0;
	if (*ret_brain || strcmp(take, "environment") == 0)
		return true;
	if (text_parse_u64(take, UINT64_MAX, &seq) < 0)
		return false;
	*ret_brain = seq == c->intent_seq;
	return *ret_brain || (c->environment && seq == c->node_seq);
}

static int find_one(const struct index_intent *row, void *userdata)
{
	Limb__Record *rec = limb__record__unpack(NULL, row->n, row->body);
	struct resolve *s = userdata;
	const Limb__Conflict *c;
	bool brain;

	c = rec && rec->body_case == LIMB__RECORD__BODY_CONFLICT ? rec->conflict : NULL;
	if (c && c->intent && c->path.len == strlen(s->path) &&
	    memcmp(c->path.data, s->path, c->path.len) == 0 && is_taken(c, s->take, &brain)) {
		/* Of several of one path the newest is meant, unless a version says another. */
		if (s->rec)
			limb__record__free_unpacked(s->rec, NULL);
		s->rec = rec;
		s->brain = brain;
		(void)snprintf(s->key, sizeof(s->key), "%llu", (unsigned long long)row->change);
		return 0;
	}
	if (rec)
		limb__record__free_unpacked(rec, NULL);
	return 0;
}

static void resolved(int r, uint64_t seq, void *userdata)
{
	struct resolve *s = userdata;
	struct env *env = verb_env(s->call);
	json_t *o;

	if (!env) {
		resolve_free(s);
		return;
	}
	if (r < 0) {
		resolve_fail(s, env, r, "the decision cannot be recorded");
		return;
	}
	queue_conflict_resolved(env);
	o = json_pack("{s:s, s:s, s:I}", "environment", env->name, "taken",
		      s->brain ? "brain" : "environment", "seq", (json_int_t)seq);
	verb_put_bytes(o, "path", s->path, strlen(s->path));
	if (!queue_is_empty(env))
		set(o, "pending", json_true());
	call_ok(s->call, o);
	resolve_free(s);
}

static void decide(struct resolve *s, struct env *env)
{
	Limb__Record rec = LIMB__RECORD__INIT;
	Limb__Decision d = LIMB__DECISION__INIT;
	int r;

	d.verb = (char *)"take";
	d.path = (ProtobufCBinaryData){strlen(s->path), (uint8_t *)s->path};
	d.key = s->key;
	d.value = (char *)(s->brain ? "brain" : "environment");
	rec.origin = LIMB__ORIGIN__ORIGIN_BRAIN;
	rec.body_case = LIMB__RECORD__BODY_DECISION;
	rec.decision = &d;
	r = commit_submit(env, RECORD_DECISION, &rec, resolved, s);
	if (r < 0)
		resolve_fail(s, env, r, "the decision cannot be recorded");
}

static void resolve_applied(struct env *env, const struct queue_result *res, void *userdata)
{
	struct resolve *s = userdata;

	if (res->r == -ECANCELED)
		resolve_fail(s, env, -ENOTCONN, "it goes");
	else if (res->conflicts || res->unapplied)
		resolve_fail(s, env, res->unapplied ? -res->error : -EBUSY,
			     res->unapplied ? "it refuses that version"
					    : "it was changed again meanwhile; look at it, and "
					      "resolve it again");
	else
		decide(s, env);
}

static void resolve_wanted(int r, uint64_t seq, void *userdata)
{
	struct resolve *s = userdata;
	struct env *env = verb_env(s->call);

	(void)seq;
	if (!env) {
		resolve_free(s);
		return;
	}
	/* One that is away gets it when it is back: it waits before all that comes later. */
	if (r == 0 && link_up(env))
		r = queue_wait(env, APPLY_MS, resolve_applied, s);
	else if (r == 0)
		decide(s, env);
	if (r < 0)
		resolve_fail(s, env, r, "that version cannot be brought there");
}

/* The brain's change, over what is there now. */
static int want_again(struct resolve *s, struct env *env, const Limb__Conflict *c)
{
	const Limb__Intent *in = c->intent;
	_cleanup_(buf_done) struct buf xattrs = BUF_INIT(NODE_XATTRS_MAX);
	cleanup_free char *from = NULL, *to = NULL;
	struct node n = {0};
	const char *why;
	int r;

	switch (in->kind) {
	case LIMB__INTENT_KIND__INTENT_REMOVE: return want_remove(env, s->path, resolve_wanted, s);
	case LIMB__INTENT_KIND__INTENT_MOVE:
		to = strndup((const char *)in->to_path.data, in->to_path.len);
		return to ? want_move(env, s->path, to, resolve_wanted, s) : -ENOMEM;
	case LIMB__INTENT_KIND__INTENT_LINK:
		from = strndup((const char *)in->path.data, in->path.len);
		to = strndup((const char *)in->to_path.data, in->to_path.len);
		r = from && to ? want_link(env, from, to, resolve_wanted, s) : -ENOMEM;
		if (r != -EEXIST)
			return r;
		/* What has that name there goes. */
		r = want_remove(env, to, NULL, NULL);
		return r < 0 ? r : want_link(env, from, to, resolve_wanted, s);
	case LIMB__INTENT_KIND__INTENT_ATTR:
		r = wire_attr_parse(in->wanted, in->wanted_content, &xattrs, &n, &why);
		return r < 0 ? r : want_attr(env, s->path, &n, in->fields, resolve_wanted, s);
	case LIMB__INTENT_KIND__INTENT_CREATE:
	case LIMB__INTENT_KIND__INTENT_WRITE:
		r = wire_attr_parse(in->wanted, in->wanted_content, &xattrs, &n, &why);
		return r < 0 ? r : want_put(env, s->path, &n, WANT_PARENTS, resolve_wanted, s);
	default: return -EOPNOTSUPP;
	}
}

/* The environment's, where the brain's is: what was removed there goes again. */
static int want_theirs(struct resolve *s, struct env *env, const Limb__Conflict *c)
{
	if (strcmp(c->winner, "brain") != 0)
		return -EALREADY;
	return want_remove(env, s->path, resolve_wanted, s);
}

void verb_resolve(struct call *call)
{
	const char *path = call_str(call, "path");
	struct env *env = verb_env(call);
	const Limb__Conflict *c;
	struct index_txn *t;
	struct resolve *s;
	int r;

	if (!env)
		return;
	if (!path || !call_str(call, "take")) {
		call_fail(call, "usage", env->name, "limb help resolve",
			  "say which version stays: --take environment, brain or a VERSION of "
			  "limb conflicts");
		return;
	}
	if (!link_up(env) && !want_is_away(env)) {
		(void)verb_live_env(call);
		return;
	}
	s = calloc(1, sizeof(*s));
	if (!s) {
		call_fail(call, "internal", env->name, NULL, "out of memory");
		return;
	}
	s->call = call;
	s->take = call_str(call, "take");
	s->path = verb_path(call, env, path);
	if (!s->path) {
		resolve_free(s);
		return; /* answered */
	}
	r = env_read_begin(env, &t);
	if (r == 0) {
		r = index_conflicts(t, find_one, s);
		index_read_end(t);
	}
	if (r == 0 && !s->rec) {
		char shown[300];

		call_fail(call, "file_not_found", env->name, "limb conflicts NAME",
			  "environment '%s' has no conflict of '%s' with such a version", env->name,
			  text_escape_into(shown, sizeof(shown), s->path, strlen(s->path)));
		resolve_free(s);
		return;
	}
	if (r == 0) {
		c = s->rec->conflict;
		if (s->brain == (strcmp(c->winner, "brain") == 0))
			r = -EALREADY; /* it is there */
		else
			r = s->brain ? want_again(s, env, c) : want_theirs(s, env, c);
	}
	if (r == -EALREADY)
		decide(s, env);
	else if (r < 0)
		resolve_fail(s, env, r, "that version cannot be brought there");
}

/* ---- retry, drop ---- */

struct verdict {
	struct call *call;
	char *path;
	bool retry;
};

static void verdict_free(struct verdict *v)
{
	free(v->path);
	free(v);
}

static void verdict_ok(struct verdict *v, struct env *env, uint64_t seq)
{
	json_t *o = json_pack("{s:s, s:I}", "environment", env->name, "seq", (json_int_t)seq);

	verb_put_bytes(o, "path", v->path, strlen(v->path));
	if (v->retry && !queue_is_empty(env))
		set(o, "pending", json_true());
	call_ok(v->call, o);
	verdict_free(v);
}

static void retried(struct env *env, const struct queue_result *res, void *userdata)
{
	struct verdict *v = userdata;

	if (res->unapplied) {
		call_fail_with(v->call, "unapplied", json_pack("{s:s}", "path", v->path), env->name,
			       "limb drop NAME PATH",
			       "environment '%s' refuses '%s' again: %s; it stays unapplied",
			       env->name, v->path, strerror(res->error));
		verdict_free(v);
	} else {
		verdict_ok(v, env, MAX(res->seq, env_seq(env)));
	}
}

static void verdict_durable(int r, uint64_t seq, void *userdata)
{
	struct verdict *v = userdata;
	struct env *env = verb_env(v->call);

	if (!env) {
		verdict_free(v);
		return;
	}
	if (r == 0 && v->retry && link_up(env)) {
		r = queue_wait(env, APPLY_MS, retried, v);
		if (r == 0)
			return;
	}
	if (r == 0) {
		verdict_ok(v, env, seq);
		return;
	}
	verb_fail_errno(v->call, env, r, "the decision cannot be recorded");
	verdict_free(v);
}

static void verdict(struct call *call, bool retry)
{
	const char *path = call_str(call, "path");
	struct env *env = verb_env(call);
	struct verdict *v;
	char shown[300];
	int r;

	if (!env || (env->failed && !verb_live_env(call)))
		return;
	v = calloc(1, sizeof(*v));
	if (!v) {
		call_fail(call, "internal", env->name, NULL, "out of memory");
		return;
	}
	v->call = call;
	v->retry = retry;
	v->path = verb_path(call, env, path ? path : "");
	if (!v->path) {
		verdict_free(v);
		return;
	}
	r = retry ? queue_retry(env, v->path, verdict_durable, v)
		  : queue_drop(env, v->path, verdict_durable, v);
	if (r == 0)
		return;
	if (r == -ENOENT)
		call_fail(call, "file_not_found", env->name, "limb status NAME",
			  "environment '%s' has refused no change of '%s'", env->name,
			  text_escape_into(shown, sizeof(shown), v->path, strlen(v->path)));
	else
		verb_fail_errno(call, env, r, "the decision cannot be recorded");
	verdict_free(v);
}

void verb_retry(struct call *call)
{
	verdict(call, true);
}

void verb_drop(struct call *call)
{
	verdict(call, false);
}
