/* why: how one path is, whose its last version is, and what to do about it. */
#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"
#include "brain/link.h"
#include "brain/queue.h"
#include "brain/rules.h"
#include "brain/verb.h"
#include "journal/last-path.h"
#include "journal/record.pb-c.h"
#include "wire/wire.pb-c.h"

enum { ASK_MS = 10000 };

/* What the environment says of the path. */
enum theirs {
	THEIRS_UNKNOWN, /* not asked, or no answer */
	THEIRS_ABSENT,
	THEIRS_EQUAL,
	THEIRS_DIFFERS,
	THEIRS_NEW, /* there, and the journal has none */
	THEIRS_UNREADABLE,
};

struct why {
	struct call *call;
	char *path;
	int asked;	/* < 0: why it was not answered */
	const char *at; /* the component that is to come next; NULL: all came */
	bool hash;	/* its bytes are read this time */
	bool hash_next; /* nothing but that can tell */
	enum theirs theirs;
	int error;	   /* UNREADABLE */
	uint32_t fields;   /* DIFFERS: bits of enum node_field */
	uint32_t not_held; /* what this incarnation cannot hold of it */
	/* of the journal */
	bool known, renamed;
	uint64_t seq, gone_seq;
	uint8_t type;
	struct buf now_at; /* renamed: one path of now */
};

static void why_free(struct why *w)
{
	buf_done(&w->now_at);
	free(w->path);
	free(w);
}

static void set(json_t *o, const char *key, json_t *v)
{
	(void)json_object_set_new(o, key, v);
}

/* ---- the journal's side ---- */

static int look(struct why *w, struct index_txn *t, struct last_path *ret)
{
	int r = last_path_find(t, w->path, ret);

	w->known = w->renamed = false;
	w->gone_seq = 0;
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	w->known = true;
	w->gone_seq = ret->gone_seq;
	w->seq = ret->gone_seq ? ret->gone_seq : ret->n.version;
	w->type = ret->n.n.type;
	buf_clear(&w->now_at);
	w->renamed = ret->is_renamed && index_path(t, ret->n.id, &w->now_at) == 0;
	return 0;
}

/* ---- the environment's side ---- */

/* Their entry against the journal's; without their bytes, ctime and inode stand for them. */
static void compare(struct why *w, struct env *env, const struct node *theirs)
{
	struct last_path p = {0};
	struct index_txn *t;
	uint32_t all, held;

	if (env_read_begin(env, &t) < 0)
		return;
	if (look(w, t, &p) < 0 || !w->known || w->gone_seq) {
		w->theirs = THEIRS_NEW;
		index_read_end(t);
		return;
	}
	all = node_compare(&p.n.n, theirs, 0) & ~(uint32_t)(NODE_FIELD_LINKS | NODE_FIELD_HOLES);
	held = node_compare(&p.n.n, theirs, env->unheld) &
	       ~(uint32_t)(NODE_FIELD_LINKS | NODE_FIELD_HOLES);
	if (!w->hash) {
		all &= ~(uint32_t)NODE_FIELD_CONTENT;
		held &= ~(uint32_t)NODE_FIELD_CONTENT;
	}
	w->hash_next = !w->hash && !held && theirs->type == NODE_TYPE_FILE &&
		       (p.n.n.ctime_ns != theirs->ctime_ns || p.n.n.inode != theirs->inode);
	w->theirs = held ? THEIRS_DIFFERS : THEIRS_EQUAL;
	w->fields = held;
	w->not_held = all & ~held;
	index_read_end(t);
}

/* One entry of what leads to the path; what else comes is passed over. */
static void take(struct why *w, struct env *env, const struct entry_tree_entry *e, const char *name,
		 const struct node *node)
{
	size_t len;

	if (!w->at)
		return;
	len = strcspn(w->at, "/");
	if (e->name_len != len || memcmp(name, w->at, len) != 0)
		return;
	if (w->at[len]) {
		w->at += len + 1;
		return;
	}
	w->at = NULL;
	if (e->error) {
		w->theirs = THEIRS_UNREADABLE;
		w->error = (int)e->error;
	} else {
		compare(w, env, node);
	}
}

static void answer(struct why *w, struct env *env);
static void ask(struct why *w, struct env *env);

static void on_part(struct env *env, int r, const struct entry_head *e, void *userdata)
{
	const struct entry_tree_part *p = (const struct entry_tree_part *)e;
	const struct entry_tree_entry *entry;
	struct why *w = userdata;
	struct entry_cursor c;
	const char *name;
	struct node node;

	if (r == 0) {
		entry_cursor_init(&c, e);
		while (entry_next_tree(&c, &entry, &name, &node))
			take(w, env, entry, name, &node);
		if (!p->last)
			return;
	}
	w->asked = r;
	if (r < 0)
		w->theirs = THEIRS_UNKNOWN;
	else if (w->at)
		w->theirs = THEIRS_ABSENT;
	if (r == 0 && w->hash_next)
		ask(w, env);
	else
		answer(w, env);
}

static void ask(struct why *w, struct env *env)
{
	Limbwire__TreeGet m = LIMBWIRE__TREE_GET__INIT;
	ProtobufCBinaryData path = {strlen(w->path), (uint8_t *)w->path};
	int r;

	w->at = w->path;
	w->hash = w->hash_next;
	w->hash_next = false;
	m.hash = w->hash;
	m.flat = true;
	m.paths = &path;
	m.n_paths = 1;
	m.deadline_ms = ASK_MS - 500;
	r = link_expect(env, ENTRY_TREE_PART, ASK_MS, on_part, w, &m.request);
	if (r == 0) {
		r = link_send(env, WIRE_TREE_GET, &m.base, NULL, 0);
		if (r < 0)
			link_forget(env, m.request);
	}
	if (r < 0) {
		w->asked = r;
		w->theirs = THEIRS_UNKNOWN;
		answer(w, env);
	}
}

/* ---- the answer ---- */

struct answer {
	struct env *env;
	json_t *o, *reasons;
	const char *state, *durability;
};

static void reason(struct answer *a, const char *code, int64_t since_ns, json_t *detail,
		   json_t *step)
{
	char when[CLOCK_TEXT_MAX];
	json_t *steps = json_array(), *o = json_object();

	if (step)
		(void)json_array_append_new(steps, step);
	set(o, "code", json_string(code));
	set(o, "detail", detail);
	set(o, "next_steps", steps);
	set(o, "since_at", json_string(clock_format(when, since_ns ? since_ns : clock_real_ns())));
	(void)json_array_append_new(a->reasons, o);
}

static void fields_text(char *out, size_t size, uint32_t fields)
{
	size_t n = 0;

	out[0] = 0;
	for (uint32_t bit = 1; bit <= NODE_FIELD_HOLES && n < size; bit <<= 1)
		if (fields & bit)
			n += (size_t)snprintf(out + n, size - n, "%s%s", n ? ", " : "",
					      node_field_name((enum node_field)bit));
}

struct conflict_search {
	const char *path;
	uint64_t change;
	int64_t since_ns;
	bool brain, found;
};

static int match_conflict(const struct index_intent *row, void *userdata)
{
	struct conflict_search *s = userdata;
	Limb__Record *rec = limb__record__unpack(NULL, row->n, row->body);
	const Limb__Conflict *c = rec ? rec->conflict : NULL;

	if (rec && rec->body_case == LIMB__RECORD__BODY_CONFLICT &&
	    c->path.len == strlen(s->path) && memcmp(c->path.data, s->path, c->path.len) == 0) {
		s->found = true;
		s->change = row->change;
		s->since_ns = row->time_ns;
		s->brain = strcmp(c->winner, "brain") == 0;
	}
	if (rec)
		limb__record__free_unpacked(rec, NULL);
	return 0;
}

static bool in_conflict(struct why *w, struct answer *a)
{
	struct conflict_search s = {.path = w->path};
	struct index_txn *t;

	if (env_read_begin(a->env, &t) < 0)
		return false;
	(void)index_conflicts(t, match_conflict, &s);
	index_read_end(t);
	if (!s.found)
		return false;
	a->state = "conflict";
	set(a->o, "conflict_id", json_sprintf("c-%llu", (unsigned long long)s.change));
	reason(a, "conflict", s.since_ns,
	       json_sprintf(
		       "both sides changed it; the %s's version is in place, the other is kept",
		       s.brain ? "brain" : "environment"),
	       json_sprintf("limb resolve %s PATH --take environment|brain", a->env->name));
	return true;
}

/* The brain's own change of it is its last version, as long as that waits. */
static bool is_on_its_way(struct why *w, struct answer *a)
{
	struct queue_change q;
	char when[CLOCK_TEXT_MAX];

	if (!queue_find(a->env, w->path, &q))
		return false;
	set(a->o, "seq", json_integer((json_int_t)(q.seq ? q.seq : env_seq(a->env))));
	set(a->o, "at", json_string(clock_format(when, q.since_ns)));
	set(a->o, "age_ms", json_integer((clock_real_ns() - q.since_ns) / 1000000));
	set(a->o, "origin", json_string("brain"));
	if (q.error) {
		a->state = a->durability = "unapplied";
		reason(a, "unapplied", q.since_ns,
		       json_sprintf("the environment refused the change: %s",
				    q.error == ECANCELED ? "it builds on one that was refused"
							 : strerror(q.error)),
		       json_sprintf("limb retry %s PATH, or limb drop %s PATH", a->env->name,
				    a->env->name));
		return true;
	}
	a->state = "queued";
	a->durability = q.seq ? "durable" : "accepted";
	reason(a, "queued", q.since_ns,
	       json_string("a change of the brain's side waits until the environment takes it"),
	       link_up(a->env) ? NULL : json_sprintf("limb start %s", a->env->name));
	return true;
}

static bool is_left_out(struct why *w, struct answer *a)
{
	const struct ignore *ig = &a->env->ignore;
	struct ignore_hit hit;
	bool is_dir = w->known && w->type == NODE_TYPE_DIRECTORY;
	json_t *by, *pattern;

	/* Of what the journal never had nobody knows what it is. */
	if (!ig->n_rules ||
	    (!ignore_covers(ig, w->path, is_dir, &hit) &&
	     (w->known || w->theirs == THEIRS_NEW || !ignore_covers(ig, w->path, true, &hit))))
		return false;
	by = rules_hit_json(&hit);
	pattern = json_object_get(by, "pattern");
	a->state = "ignored";
	reason(a, "ignored", 0,
	       json_sprintf("a rule leaves it out: %s in %s, line %lld",
			    pattern ? json_string_value(pattern) : "",
			    json_string_value(json_object_get(by, "file")),
			    (long long)json_integer_value(json_object_get(by, "line"))),
	       hit.file->person ? NULL : json_string("edit that file to have it kept"));
	set(a->o, "ignored_by", by);
	return true;
}

/* The environment names this path, or what it lies in, in a reason of its own. */
static bool is_said(struct why *w, struct answer *a)
{
	for (size_t i = 0; i < a->env->n_said; i++) {
		const struct env_reason *r = &a->env->said[i];
		size_t n = r->path ? strlen(r->path) : 0;

		if (!r->path || strncmp(r->path, w->path, n) != 0 ||
		    (n && w->path[n] && w->path[n] != '/'))
			continue;
		a->state = r->code;
		return true; /* the reason itself comes with the environment's */
	}
	return false;
}

static void judge_theirs(struct why *w, struct answer *a)
{
	const char *name = a->env->name;
	char text[160];

	switch (w->theirs) {
	case THEIRS_EQUAL:
		a->state = "live";
		if (!w->not_held)
			return;
		a->state = "unsupported";
		fields_text(text, sizeof(text), w->not_held);
		reason(a, "unsupported", 0,
		       json_sprintf("this incarnation cannot hold all of it: %s; the journal does",
				    text),
		       json_sprintf("limb migrate %s --to a place that can", name));
		return;
	case THEIRS_DIFFERS:
		a->state = "pending";
		fields_text(text, sizeof(text), w->fields);
		reason(a, "not_captured", 0,
		       json_sprintf("what is there now is not captured yet: %s", text),
		       json_sprintf("limb sync %s", name));
		return;
	case THEIRS_NEW:
		a->state = "pending";
		reason(a, "not_captured", 0, json_string("it is there, and not captured yet"),
		       json_sprintf("limb sync %s", name));
		return;
	case THEIRS_UNREADABLE:
		a->state = "unreadable";
		reason(a, "unreadable", 0,
		       json_sprintf("limb-syncd cannot read it: %s; the version before is kept",
				    strerror(w->error)),
		       json_string("give its owner the right to read it"));
		return;
	case THEIRS_ABSENT:
		if (w->known && !w->gone_seq) {
			a->state = "pending";
			reason(a, "not_captured", 0,
			       json_string("it is gone there, and that is not captured yet"),
			       json_sprintf("limb sync %s", name));
			return;
		}
		break;
	case THEIRS_UNKNOWN: break;
	}
	if (w->gone_seq)
		a->state = "gone";
	else if (!w->known)
		a->state = "absent";
	else
		a->state = env_state_name(env_state(a->env));
}

/* Who removed it, and how to have it again. */
static void say_gone(struct why *w, struct answer *a)
{
	_cleanup_(buf_done) struct buf path = BUF_INIT(0);
	json_t *detail;

	if (w->renamed && text_escape(&path, buf_data(&w->now_at), buf_len(&w->now_at)) == 0) {
		detail = json_sprintf("record %llu moved it to '%.*s'",
				      (unsigned long long)w->gone_seq, (int)buf_len(&path),
				      (const char *)buf_data(&path));
		verb_put_bytes(a->o, "now_path", buf_data(&w->now_at), buf_len(&w->now_at));
	} else {
		detail = json_sprintf("record %llu removed it", (unsigned long long)w->gone_seq);
	}
	reason(a, "removed", 0, detail,
	       json_sprintf("limb restore %s PATH --at %llu", a->env->name,
			    (unsigned long long)w->gone_seq - 1));
}

/* Of the record that gave the path its last version. */
static void put_version(struct why *w, struct answer *a)
{
	_cleanup_(buf_done) struct buf body = BUF_INIT(RECORD_BODY_MAX);
	uint64_t seq = w->known && w->seq ? w->seq : env_seq(a->env);
	int64_t time_ns = clock_real_ns();
	char when[CLOCK_TEXT_MAX];
	Limb__Record *rec = NULL;
	const char *origin = NULL;
	uint16_t type;

	if (w->known && w->seq && a->env->log_fd >= 0 &&
	    log_read_one(a->env->log_fd, seq, &type, &time_ns, &body) >= 0)
		rec = limb__record__unpack(NULL, buf_len(&body), buf_data(&body));
	if (rec)
		origin = change_origin_name((int)rec->origin);
	set(a->o, "seq", json_integer((json_int_t)seq));
	set(a->o, "at", json_string(clock_format(when, time_ns)));
	set(a->o, "age_ms", json_integer(MAX(clock_real_ns() - time_ns, 0) / 1000000));
	set(a->o, "origin", json_string(origin && *origin ? origin : "environment"));
	if (rec && rec->job && *rec->job)
		set(a->o, "job_id", json_string(rec->job));
	if (rec && rec->principal && *rec->principal)
		set(a->o, "principal", json_string(rec->principal));
	if (rec)
		limb__record__free_unpacked(rec, NULL);
}

static bool is_as_it_should_be(const char *state)
{
	static const char *const good[] = {"live", "ignored", "gone", "paused", "stopped"};

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		if (strcmp(state, good[i]) == 0)
			return true;
	return false;
}

static void judge(struct why *w, struct answer *a)
{
	struct env *env = a->env;

	if (in_conflict(w, a) || is_on_its_way(w, a) || is_left_out(w, a))
		return;
	judge_theirs(w, a);
	if (w->theirs == THEIRS_UNKNOWN && *w->path && is_said(w, a))
		return;
	if (w->theirs == THEIRS_UNREADABLE)
		(void)is_said(w, a);
	if (strcmp(a->state, "gone") == 0)
		say_gone(w, a);
	if (strcmp(a->state, "absent") == 0)
		reason(a, "absent", 0,
		       json_string(w->theirs == THEIRS_ABSENT
					   ? "neither the environment nor its journal has it, and "
					     "it never was there"
					   : "its journal never had it"),
		       json_sprintf("limb ls %s:", env->name));
	if (w->theirs == THEIRS_UNKNOWN && w->asked < 0)
		reason(a, "not_asked", 0,
		       json_sprintf("the environment did not say how it is there now: %s",
				    w->asked == -ETIMEDOUT ? "no answer in 10 s"
							   : strerror(-w->asked)),
		       json_sprintf("limb status %s", env->name));
}

static void answer(struct why *w, struct env *env)
{
	struct answer a = {
		.env = env, .o = json_object(), .reasons = json_array(), .durability = "applied"};
	struct last_path p = {0};
	json_t *mine;
	struct index_txn *t;
	int r;

	r = env_read_begin(env, &t);
	if (r == 0) {
		r = look(w, t, &p);
		index_read_end(t);
	}
	if (r < 0) {
		json_decref(a.o);
		json_decref(a.reasons);
		verb_fail_errno(w->call, env, r, "its journal cannot be read");
		why_free(w);
		return;
	}
	put_version(w, &a);
	judge(w, &a);
	if (env_state(env) != ENV_LIVE) {
		mine = env_json_reasons(env);
		(void)json_array_extend(a.reasons, mine);
		json_decref(mine);
	}
	set(a.o, "environment", json_string(env->name));
	verb_put_bytes(a.o, "path", w->path, strlen(w->path));
	set(a.o, "state", json_string(a.state));
	set(a.o, "ok", json_boolean(is_as_it_should_be(a.state)));
	set(a.o, "durability", json_string(a.durability));
	set(a.o, "incarnation", json_integer((json_int_t)env->incarnation));
	set(a.o, "heard_ms",
	    json_integer(
		    (json_int_t)(env->last_word_ms ? clock_mono_ms() - env->last_word_ms : 0)));
	set(a.o, "reasons", a.reasons);
	call_ok(w->call, a.o);
	why_free(w);
}

void verb_why(struct call *call)
{
	const char *path = call_str(call, "path");
	struct env *env = verb_env(call);
	struct why *w;

	if (!env)
		return;
	w = calloc(1, sizeof(*w));
	if (!w) {
		call_fail(call, "internal", env->name, NULL, "out of memory");
		return;
	}
	w->call = call;
	buf_init(&w->now_at, 0);
	w->path = verb_path(call, env, path ? path : "");
	if (!w->path) {
		why_free(w);
		return; /* answered */
	}
	/* The root itself is what the environment is. */
	if (*w->path && link_up(env) && !env->paused && !env->halted)
		ask(w, env);
	else
		answer(w, env);
}
