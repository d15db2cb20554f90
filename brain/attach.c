#include "brain/attach.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/text.h"
#include "brain/commit.h"
#include "brain/job.h"
#include "brain/life.h"
#include "brain/guest.h"
#include "brain/link.h"
#include "brain/quota.h"
#include "brain/queue.h"
#include "brain/rules.h"
#include "wire/wire.pb-c.h"

enum { SWEEP_PERIOD_S = 300 };
#define NODE_GRANT (1ull << 32) /* ids are 64 bits wide: no incarnation runs out */

struct attach_decision attach_judge(const struct attach_facts *f)
{
	struct attach_decision d = {.mode = ATTACH_HOLD};

	if (f->root_missing) {
		d.reason = "root_missing";
		d.detail = "its root is gone";
		return d;
	}
	if (f->fresh || f->incarnation == 0) {
		d.mode = f->restoring ? ATTACH_RESTORE : ATTACH_SYNC;
		d.new_incarnation = true;
		d.set_mark = true;
		return d;
	}
	if (f->unfinished) {
		d.reason = "root_missing";
		d.detail = "its rebuild did not come to its end";
		return d;
	}
	if (!f->has_mark || !f->mark_equal) {
		d.reason = f->root_empty ? "root_emptied" : "root_replaced";
		d.detail = f->root_empty ? "its root is empty and not the one that it had"
					 : "another directory stands where its root was";
		return d;
	}
	if (f->root_empty && f->known_files && !f->shadow_incarnation) {
		d.reason = "root_emptied";
		d.detail = "its root was emptied while nobody watched";
		return d;
	}
	d.mode = ATTACH_SYNC;
	d.new_incarnation = f->restarted && !f->shadow_incarnation;
	if (f->shadow_incarnation && f->shadow_incarnation != f->incarnation)
		d.new_incarnation = true;
	return d;
}

void attach_expect(struct env *env, const char *why, bool fresh, bool restoring)
{
	env->next_why = why;
	env->next_fresh = fresh;
	env->next_restoring = restoring;
}

/* ---- WELCOME ---- */

void attach_welcome(struct env *env, enum attach_mode mode, bool set_mark)
{
	Limbwire__Welcome w = LIMBWIRE__WELCOME__INIT;
	ProtobufCBinaryData *lines;
	uint64_t durable = 0;
	struct index_txn *t;

	if (env_read_begin(env, &t) == 0) {
		durable = index_number(t, env->incarnation);
		index_read_end(t);
	}
	w.protocol = WIRE_PROTOCOL_VERSION;
	w.capabilities = env->network ? WIRE_CAP_LZ4 | WIRE_CAP_DELTA | WIRE_CAP_TREES : 0;
	w.brain_id = (ProtobufCBinaryData){sizeof(env->brain->id), env->brain->id};
	w.environment_id = (ProtobufCBinaryData){sizeof(env->wire_id), env->wire_id};
	w.environment_name = env->name;
	w.incarnation = env->incarnation;
	w.term = env->brain->term;
	w.node_first = MAX(env->grant_first, env->node_used + 1);
	w.node_end = env->grant_end;
	w.durable_number = durable;
	w.mode = mode == ATTACH_SYNC	  ? LIMBWIRE__WELCOME__MODE__MODE_SYNC
		 : mode == ATTACH_RESTORE ? LIMBWIRE__WELCOME__MODE__MODE_RESTORE
					  : LIMBWIRE__WELCOME__MODE__MODE_HOLD;
	w.mark = (ProtobufCBinaryData){sizeof(env->mark), env->mark};
	w.set_mark = set_mark;
	w.sweep_period_s = SWEEP_PERIOD_S;
	w.watch_limit = (uint32_t)json_integer_value(json_object_get(env->spec, "watch_limit"));
	rules_welcome(env, &w, &lines);
	ignore_done(&env->ignore);
	env->last_number = durable;
	env->session++;
	link_set_up(env);
	if (link_send_start(env, durable) < 0 ||
	    link_send(env, WIRE_WELCOME, &w.base, NULL, 0) < 0) {
		link_lost(env, "cannot send WELCOME");
	} else {
		quota_look(env);
		quota_say(env);
		queue_kick(env);
	}
	free(lines);
}

struct beginning {
	struct env *env;
	struct link *link;
	enum attach_mode mode;
	bool set_mark;
};

static void incarnation_durable(int r, uint64_t seq, void *userdata)
{
	struct beginning *b = userdata;
	struct env *env = b->env;

	(void)seq;
	if (r == 0 && env->link && env->link == b->link) {
		attach_welcome(env, b->mode, b->set_mark);
		life_attached(env, b->mode);
	}
	free(b);
}

/* The first half says whose the root is, the second which incarnation's. */
static void mark_of(const struct env *env, uint8_t half[8])
{
	static const char what[] = "limb mark";
	uint8_t hash[SHA256_BYTES], text[sizeof(what) + sizeof(env->id)];

	memcpy(text, what, sizeof(what));
	memcpy(text + sizeof(what), env->id, sizeof(env->id));
	sha256(text, sizeof(text), hash);
	memcpy(half, hash, 8);
}

bool attach_mark_is_ours(const struct env *env, const uint8_t mark[16])
{
	uint8_t half[8];

	mark_of(env, half);
	return memcmp(mark, half, sizeof(half)) == 0;
}

void attach_make_mark(const struct env *env, uint8_t mark[16])
{
	mark_of(env, mark);
	random_bytes(mark + 8, 8);
}

int attach_grant(struct env *env)
{
	struct index_txn *t;
	int r;

	r = env_read_begin(env, &t);
	if (r < 0)
		return r;
	env->grant_first = MAX(index_next_node(t), NODE_ROOT + 1);
	index_read_end(t);
	env->grant_end = env->grant_first + NODE_GRANT;
	env->node_used = env->grant_first - 1;
	return 0;
}

int attach_record(struct env *env, const struct env *to, enum record_type type, const char *why,
		  commit_fn fn, void *userdata)
{
	Limb__Record rec = LIMB__RECORD__INIT;
	Limb__Incarnation inc = LIMB__INCARNATION__INIT;

	inc.provider = to->provider;
	inc.target = to->target ? to->target : (char *)"";
	inc.handle = to->handle ? to->handle : (char *)"";
	inc.root = to->root;
	inc.host_root = to->host_root ? to->host_root : (char *)"";
	inc.unheld = to->unheld;
	inc.syncd_version = (char *)to->syncd_version;
	inc.syncd_sha256 =
		(ProtobufCBinaryData){sizeof(to->syncd_sha256), (uint8_t *)to->syncd_sha256};
	inc.machine_id = (ProtobufCBinaryData){sizeof(to->boot_id), (uint8_t *)to->boot_id};
	inc.node_grant_first = to->grant_first;
	inc.node_grant_end = to->grant_end;
	inc.why = (char *)why;
	inc.mark = (ProtobufCBinaryData){sizeof(to->mark), (uint8_t *)to->mark};
	inc.self_uid = to->self_uid;
	inc.self_gid = to->self_gid;
	inc.from_incarnation = to == env ? 0 : env->incarnation;
	rec.body_case = LIMB__RECORD__BODY_INCARNATION_START;
	rec.incarnation_start = &inc;
	rec.incarnation = to->incarnation;
	return commit_submit(env, type, &rec, fn, userdata);
}

static int incarnation_begin(struct env *env, const struct attach_decision *d)
{
	struct beginning *b = calloc(1, sizeof(*b));
	int r;

	if (!b)
		return -ENOMEM;
	r = attach_grant(env);
	if (r < 0) {
		free(b);
		return r;
	}
	env->incarnation++;
	if (d->set_mark)
		attach_make_mark(env, env->mark);
	*b = (struct beginning){env, env->link, d->mode, d->set_mark};
	r = attach_record(env, env, RECORD_INCARNATION, env->next_why ? env->next_why : "restart",
			  incarnation_durable, b);
	if (r < 0)
		free(b);
	return r;
}

static void hold(struct env *env, const struct attach_decision *d)
{
	if (strcmp(d->reason, "root_replaced") != 0)
		env_root_gone(env);
	env_halt(env, d->reason, "%s; its journal has all that was durable: run: limb rebuild %s%s",
		 d->detail, env->name,
		 strcmp(d->reason, "root_replaced") == 0
			 ? " (or, if that directory is meant: limb accept with the path .)"
			 : "");
	log_warning("environment '%s' is halted: %s", env->name, d->detail);
}

int attach_on_hello(struct env *env, const struct entry_head *e)
{
	const struct entry_hello *h = (const struct entry_hello *)e;
	struct attach_facts f = {0};
	struct attach_decision d;
	struct index_counts counts = {0};
	struct index_txn *t;

	if (h->protocol_min > WIRE_PROTOCOL_VERSION || h->protocol_max < WIRE_PROTOCOL_VERSION) {
		(void)env_set_reason(
			env, "version_mismatch",
			"its limb-syncd speaks protocol %u to %u, this limbd %d; restart it: "
			"limb stop %s && limb start %s",
			h->protocol_min, h->protocol_max, WIRE_PROTOCOL_VERSION, env->name,
			env->name);
		return -EPROTO;
	}
	if (memcmp(h->environment_id, env->wire_id, sizeof(env->wire_id)) != 0) {
		(void)env_set_reason(env, "stale_incarnation",
				     "another environment's limb-syncd answers there");
		return -EPROTO;
	}
	env->deltas = env->network && (h->capabilities & WIRE_CAP_DELTA) != 0;
	env->settings = (h->capabilities & WIRE_CAP_SETTINGS) != 0;
	env->compress = env->network && (h->capabilities & WIRE_CAP_LZ4) != 0;
	env->trees = env->network && (h->capabilities & WIRE_CAP_TREES) != 0;
	memcpy(env->syncd_sha256, h->syncd_sha256, sizeof(env->syncd_sha256));
	memcpy(env->syncd_version, h->syncd_version, sizeof(env->syncd_version));
	env->syncd_version[sizeof(env->syncd_version) - 1] = 0;
	env->syncd_static = h->static_build;
	env->syncd_pid = h->syncd_pid;
	env->unheld = h->unheld;
	env->self_uid = h->self_uid;
	env->self_gid = h->self_gid;
	memcpy(env->boot_id, h->boot_id, sizeof(env->boot_id));
	/* What its log has is not what the index says: limb-syncd would take old changes for
	 * its new ones of the same numbers. */
	if ((env->guest_of ? env->guest_of : env)->failed)
		return -EIO;
	if (env->guest_of)
		return guest_on_hello(env, h);

	if (env_read_begin(env, &t) == 0) {
		(void)index_counts(t, &counts);
		index_read_end(t);
	}
	f.root_missing = h->root_missing;
	f.root_empty = h->root_empty;
	f.has_mark = h->has_mark;
	f.mark_equal = h->has_mark && memcmp(h->mark, env->mark, sizeof(env->mark)) == 0;
	f.shadow_incarnation = h->shadow_incarnation;
	f.incarnation = env->incarnation;
	f.fresh = env->next_fresh;
	f.restoring = env->next_restoring;
	f.unfinished = env->restoring;
	f.known_files = counts.files + counts.directories + counts.symlinks + counts.others > 0;
	f.restarted = env->next_why != NULL;
	d = attach_judge(&f);

	env_clear_reason(env, "line_down");
	if (d.mode == ATTACH_HOLD) {
		hold(env, &d);
		if (f.restarted)
			jobs_lost(env);
	} else {
		if (d.mode == ATTACH_SYNC && (env->restoring || env->rebuild_from)) {
			env->restoring = false; /* a person took it as it is */
			env->rebuild_from = 0;
			(void)env_save(env);
		}
		env->halted = false;
		env_clear_reason(env, NULL);
	}
	if (d.new_incarnation)
		return incarnation_begin(env, &d);
	attach_welcome(env, d.mode, d.set_mark);
	if (env->link)
		life_attached(env, d.mode);
	return 0;
}

/* ---- STATUS ---- */

static void said_clear(struct env *env)
{
	for (size_t i = 0; i < env->n_said; i++)
		env_reason_done(&env->said[i]);
	env->n_said = 0;
}

/* "'path': detail", the path escaped: a reason that is about one file names it. */
static char *said_text(const char *detail, size_t detail_len, const char *path, size_t path_len)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(64 << 10);
	char *text;

	if (path_len)
		(void)buf_add_str(&b, "'");
	(void)text_escape(&b, path, path_len);
	if (path_len)
		(void)buf_add_str(&b, "': ");
	(void)text_utf8_replace(&b, detail, detail_len);
	return buf_to_str(&b, &text) < 0 ? NULL : text;
}

int attach_on_status(struct env *env, const struct entry_head *e)
{
	const struct entry_status *s = (const struct entry_status *)e;
	const struct entry_reason *r;
	const char *detail, *path;
	struct entry_cursor c;

	env->status = *s;
	env->has_status = true;
	said_clear(env);
	entry_cursor_init(&c, e);
	while (entry_next_reason(&c, &r, &detail, &path) && env->n_said < ENV_REASONS_MAX) {
		struct env_reason *to = &env->said[env->n_said];

		memcpy(to->code, r->code, sizeof(to->code));
		to->code[sizeof(to->code) - 1] = 0;
		to->since_ns = r->since_ns;
		to->path = r->path_len ? strndup(path, r->path_len) : NULL;
		to->detail = said_text(detail, r->detail_len, path, r->path_len);
		if (to->detail)
			env->n_said++;
		else
			env_reason_done(to);
	}
	env->mount_changed = s->mount_changed;
	if (s->halted && !env->halted) {
		env->halted = true;
		for (size_t i = 0; i < env->n_said; i++)
			if (strcmp(env->said[i].code, "root_missing") == 0 ||
			    strcmp(env->said[i].code, "root_emptied") == 0)
				env_root_gone(env);
		log_warning("environment '%s' is halted: %s", env->name,
			    env->n_said ? env->said[0].code : "no reason given");
	}
	life_status(env);
	return 0;
}
