#include "brain/migrate-impl.h"

#include <stdarg.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/text.h"
#include "brain/attach.h"
#include "brain/barrier.h"
#include "brain/commit.h"
#include "brain/job.h"
#include "brain/link.h"
#include "brain/verb.h"
#include "brain/verify.h"
#include "brain/view.h"
#include "wire/wire.pb-c.h"

enum {
	RESTORE_MS = 24 * 3600 * 1000,
	BARRIER_MS = 60000,
	SCAN_MS = 600000,
	FREEZE_MS = 15000,
	PASSES = 3,		 /* copies while it runs */
	CHANGES_WORTH_PASS = 64, /* records since the last one */
};

void move_step(const char *name)
{
#ifdef LIMB_FAULTS
	int e;

	if (fault_visit(name, &e) == FAULT_KILL)
		fault_die();
#else
	(void)name;
#endif
}

/* ---- thaw ---- */

static void thaw_answered(struct env *env, int r, const struct entry_head *e, void *userdata)
{
	(void)userdata;
	if (r < 0 || ((const struct entry_done *)e)->error || env->paused)
		return; /* the next WELCOME tries again */
	env->frozen = false;
	(void)env_save(env);
}

void migrate_thaw(struct env *env)
{
	Limbwire__Freeze m = LIMBWIRE__FREEZE__INIT;

	/* When it is paused, this limb-syncd may be another one than was told to pause it. */
	if (!env->frozen || !link_up(env) ||
	    link_expect(env, ENTRY_DONE, FREEZE_MS, thaw_answered, NULL, &m.request) < 0)
		return;
	m.thaw = !env->paused;
	if (link_send(env, WIRE_FREEZE, &m.base, NULL, 0) < 0)
		link_forget(env, m.request);
}

/* ---- what is kept of a move ---- */

static json_t *hex_json(const uint8_t *p, size_t n)
{
	char text[65];

	text_hex(text, p, n);
	return json_string(text);
}

/* The entry of env->left for the place that it has now. */
static json_t *left_entry(struct env *env, uint64_t seq)
{
	json_t *left = env_place_json(env);
	struct index_txn *t;
	uint64_t number = 0;

	if (env_read_begin(env, &t) == 0) {
		number = index_number(t, env->incarnation);
		index_read_end(t);
	}
	(void)json_object_update_new(
		left, json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "incarnation",
				(json_int_t)env->incarnation, "seq", (json_int_t)seq, "number",
				(json_int_t)number, "grant_first", (json_int_t)env->grant_first,
				"grant_end", (json_int_t)env->grant_end, "mark",
				hex_json(env->mark, sizeof(env->mark))));
	return left;
}

/* ---- the end ---- */

static void timer_closed(uv_handle_t *h)
{
	free(container_of((uv_timer_t *)h, struct move, timer));
}

static void move_free(struct move *m)
{
	move_jobs_done(m);
	json_decref(m->jobs_done);
	json_decref(m->unsupported);
	json_decref(m->answer);
	free(m->from_provider);
	if (m->timer_made)
		uv_close((uv_handle_t *)&m->timer, timer_closed);
	else
		free(m);
}

/* The guest and its life go. */
static void guest_over(struct move *m)
{
	struct life *gl = take_ptr(&m->gl);
	struct env *guest = take_ptr(&m->guest);

	if (guest)
		guest->wanted = false;
	if (gl)
		life_done(gl, NULL);
	guest_free(guest);
}

/* A directory that a person named is not emptied: somebody else may have begun to use it. */
static void say_what_stays(struct move *m)
{
	const struct env *guest = m->guest;
	bool named = guest && (guest->user_root ||
			       (guest->target && strstr(guest->target, ":/") && guest->root));
	char shown[256];
	size_t n = strlen(m->detail);

	if (!m->copying || !named)
		return;
	text_escape_into(shown, sizeof(shown), guest->root, strlen(guest->root));
	(void)snprintf(m->detail + n, sizeof(m->detail) - n,
		       "; what was copied to '%s' there stays: empty it before it is used again",
		       shown);
}

static void fail_over(struct move *m)
{
	struct env *env = m->env;
	struct call *call = take_ptr(&m->l->call);

	json_decref(env->migration);
	env->migration = NULL;
	(void)env_save(env);
	env->muted = env->no_jobs = false;
	migrate_thaw(env);
	link_resume(env);
	say_what_stays(m);
	guest_over(m);
	life_done(m->l, NULL);
	if (env->staged)
		life_unstage(env, call, m->code, m->detail, m->step);
	else if (call)
		call_fail(call, m->code, env->name, m->step[0] ? m->step : "limb status",
			  "cannot move '%s': %s; it is where it was", env->name, m->detail);
	move_free(m);
}

/* Its line fell, most often: the sweep of places that were left deletes it later. */
static void keep_to_delete(struct env *env)
{
	json_t *to = json_deep_copy(json_object_get(env->migration, "to"));

	if (!to)
		return;
	(void)json_object_set_new(to, "verified", json_true());
	if (!env->left)
		env->left = json_array();
	(void)json_array_append_new(env->left, to);
}

static void fail_deleted(struct life *gl, const struct provider_error *err)
{
	struct move *m = gl->extra;

	if (err)
		log_warning("environment '%s': what was begun at its new place: %s", m->env->name,
			    err->detail);
	if (err && m->guest->handle)
		keep_to_delete(m->env);
	else
		guest_remove_dirs(m->guest);
	fail_over(m);
}

static void fail_now(struct life *gl)
{
	struct move *m = gl->extra;

	link_stop(m->guest, "migrate failed");
	life_provider_stop(gl, "delete", fail_deleted);
}

void move_fail(struct move *m, const char *code, const char *fmt, ...)
{
	va_list ap;

	(void)snprintf(m->code, sizeof(m->code), "%s", code);
	va_start(ap, fmt);
	(void)vsnprintf(m->detail, sizeof(m->detail), fmt, ap);
	va_end(ap);
	m->gl->on_status = NULL;
	m->gl->attached = NULL;
	m->guest->wanted = false;
	life_end_timer(m->gl, fail_now);
}

void move_fail_errno(struct move *m, int r, const char *what)
{
	move_fail(m, life_code(r), "%s: %s", what,
		  r == -ETIMEDOUT ? "no answer before its deadline" : strerror(-r));
}

/* It lives at the new place; what could not be done is said, and done later. */
static void over(struct move *m)
{
	struct env *env = m->env;
	struct call *call = take_ptr(&m->l->call);
	json_t *answer = take_ptr(&m->answer);
	uint64_t took_ms = life_ms(m->l);
	char detail[sizeof(m->detail)], code[sizeof(m->code)];

	memcpy(detail, m->detail, sizeof(detail));
	memcpy(code, m->code, sizeof(code));
	move_jobs_again(m);
	(void)env_save(env);
	guest_over(m);
	life_done(m->l, NULL);
	if (call && answer && strcmp(call->verb->name, "create") == 0) {
		json_decref(answer);
		call_ok(call, life_created(env, took_ms));
	} else if (call && answer) {
		call_ok(call, answer);
	} else {
		json_decref(answer);
		if (call)
			call_fail(call, code, env->name, "limb verify NAME",
				  "'%s' lives at its new place now, but %s; the old one stays as "
				  "it is until that can be done",
				  env->name, detail);
	}
	if (!env->view)
		view_start(env);
	move_free(m);
}

static void old_cleaned(int r, void *userdata)
{
	struct move *m = userdata;

	move_step("migrate.cleaned");
	if (r < 0)
		(void)json_object_set_new(m->answer, "left",
					  json_pack("[{s:s}]", "provider", m->from_provider));
	over(m);
}

static void verified(struct env *env, int r, json_t *result, void *userdata)
{
	struct move *m = userdata;
	json_t *o;

	(void)env;
	/* Not before: a tree that they change cannot be seen to be equal. */
	move_jobs_again(m);
	if (r < 0) {
		(void)snprintf(m->code, sizeof(m->code), "%s", life_code(r));
		(void)snprintf(m->detail, sizeof(m->detail), "it cannot be verified: %s",
			       strerror(-r));
		over(m);
		return;
	}
	move_step("migrate.verified");
	o = m->answer = json_deep_copy(result);
	(void)json_object_set_new(o, "from",
				  json_pack("{s:s, s:I}", "provider", m->from_provider,
					    "incarnation", (json_int_t)m->from_incarnation));
	(void)json_object_set_new(o, "to",
				  json_pack("{s:s, s:I}", "provider", m->env->provider,
					    "incarnation", (json_int_t)m->to_incarnation));
	(void)json_object_set_new(o, "frozen_ms", json_integer((json_int_t)m->frozen_ms));
	(void)json_object_set_new(o, "bytes_sent", json_integer((json_int_t)m->sent_bytes));
	(void)json_object_set_new(o, "duration_ms", json_integer((json_int_t)life_ms(m->l)));
	(void)json_object_set(o, "jobs", m->jobs_done);
	if (!json_is_true(json_object_get(o, "equal"))) {
		over(m); /* the old place is kept */
		return;
	}
	(void)json_object_set_new(m->left, "verified", json_true());
	(void)env_save(m->env);
	old_clean(m->gl, m->left, true, old_cleaned, m);
}

static void new_synced(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct move *m = userdata;
	int r = res->r;

	if (r == 0)
		r = verify_run(env, true, NULL, verified, m);
	if (r < 0) {
		(void)snprintf(m->code, sizeof(m->code), "%s", life_code(r));
		(void)snprintf(m->detail, sizeof(m->detail), "it cannot be synced: %s",
			       strerror(-r));
		over(m);
	}
}

/* ---- the lease ---- */

/* env.json as the log has it: guest has the new place, and then the old one. */
json_t *move_switch(struct env *env, struct env *guest)
{
	json_t *left = json_incref(json_object_get(env->migration, "left"));

	if (env->staged) {
		free(take_ptr(&env->staged));
		env->creating = false;
	}
	if (!env->left)
		env->left = json_array();
	(void)json_array_append_new(env->left, left);
	env_place_swap(env, guest);
	if (env->user_root) {
		free(env->home_root);
		env->home_root = strdup(env->user_root);
	}
	env->last_number = env->taken_number = 0;
	env->restoring = env->frozen = false;
	json_decref(env->migration);
	env->migration = NULL;
	return left;
}

static void moved(struct move *m)
{
	struct env *env = m->env, *guest = m->guest;
	int r;

	/* limb-ingest ends with its pack; what the old place says from now on is heard anew. */
	link_stop(env, "moved");
	link_move(guest, env);
	guest->guest_is_old = true;
	guest->restore_at = INDEX_NOW;
	guest->restore_base = 0;
	env->muted = env->no_jobs = false;
	env->mount_changed = false;
	json_decref(env->unsupported);
	env->unsupported = take_ptr(&m->unsupported);
	if (env->link) {
		r = link_send_pack(env);
		if (r == 0)
			attach_welcome(env, ATTACH_SYNC, false);
		else
			link_lost(env, "cannot make a pack");
	}
	m->frozen_ms = clock_mono_ms() - m->frozen_since_ms;
	if (link_up(env))
		life_attached(env, ATTACH_SYNC);
	r = barrier_run(env, SCAN_MS, new_synced, m);
	if (r < 0) {
		struct barrier_result none = {.r = r};

		new_synced(env, &none, m);
	}
}

static void leased(int r, uint64_t seq, void *userdata)
{
	struct move *m = userdata;

	(void)seq;
	if (r < 0) {
		move_fail_errno(m, r, "the lease cannot be recorded");
		return;
	}
	move_step("migrate.handed");
	m->left = move_switch(m->env, m->guest);
	r = env_save(m->env);
	if (r < 0) /* the log has it: the next start makes it good */
		log_warning_errno(r, "environment '%s': its new place cannot be saved",
				  m->env->name);
	move_step("migrate.switched");
	moved(m);
}

static void lease(struct move *m)
{
	int r;

	move_step("migrate.lease");
	m->sent_bytes = link_sent_bytes(m->guest);
	r = link_up(m->guest) ? attach_record(m->env, m->guest, RECORD_LEASE, "migrate", leased, m)
			      : -ENOTCONN;
	if (r < 0)
		move_fail_errno(m, r, "the lease cannot be handed over");
}

/* ---- copies ---- */

static void take_unsupported(struct move *m, const struct entry_head *e)
{
	const struct entry_unsupported *u;
	const char *path, *field;
	struct entry_cursor c;

	json_decref(m->unsupported);
	m->unsupported = json_array();
	entry_cursor_init(&c, e);
	while (entry_next_unsupported(&c, &u, &path, &field))
		(void)json_array_append_new(m->unsupported, json_pack("{s:s%, s:s%}", "path", path,
								      (size_t)u->path_len, "field",
								      field, (size_t)u->field_len));
}

static void first_copied(struct env *guest, int r, const struct entry_head *e, void *userdata);

static int copy(struct move *m, uint64_t seq, link_answer_fn fn)
{
	Limbwire__Restore q = LIMBWIRE__RESTORE__INIT;
	int r;

	m->guest->restore_at = seq;
	m->guest->restore_base = m->base_seq;
	m->seq = seq;
	r = link_expect(m->guest, ENTRY_RESTORED, RESTORE_MS, fn, m, &q.request);
	if (r < 0)
		return r;
	q.at_seq = seq;
	q.hold = true;
	/* Else the first sync of the new life, the lease's perhaps, would wait for all of it. */
	q.durable = fn == first_copied;
	q.deadline_ms = RESTORE_MS - 1000;
	r = link_send(m->guest, WIRE_RESTORE, &q.base, NULL, 0);
	if (r < 0)
		link_forget(m->guest, q.request);
	return r;
}

/* True: it was answered, and is there. */
static bool copied(struct move *m, int r, const struct entry_head *e)
{
	const struct entry_restored *a = (const struct entry_restored *)e;

	if (r == 0 && a->error) {
		char text[400];

		move_fail(m, life_code(-a->error), "%s", life_not_restored(a, text, sizeof(text)));
		return false;
	}
	if (r < 0) {
		move_fail_errno(m, r, "its files cannot be brought there");
		return false;
	}
	take_unsupported(m, e);
	m->base_seq = m->seq;
	return true;
}

static void final_copied(struct env *guest, int r, const struct entry_head *e, void *userdata)
{
	(void)guest;
	if (copied(userdata, r, e))
		lease(userdata);
}

static int note_change(const struct index_recent *change, void *userdata)
{
	(void)change;
	*(bool *)userdata = true;
	return 1;
}

/* Is the tree another one than it was at that point? */
static bool has_changed(struct env *env, uint64_t since)
{
	struct index_txn *t;
	bool changed = false;

	if (env_read_begin(env, &t) < 0)
		return true;
	if (index_recent(t, since, note_change, &changed) < 0)
		changed = true; /* too long ago to tell */
	index_read_end(t);
	return changed;
}

static void final_durable(int r, uint64_t seq, void *userdata)
{
	struct move *m = userdata;

	(void)seq;
	move_step("migrate.final");
	if (r == 0) {
		(void)json_object_set_new(m->env->migration, "left",
					  left_entry(m->env, env_seq(m->env)));
		r = env_save(m->env);
	}
	if (r == 0 && !has_changed(m->env, m->base_seq)) {
		m->seq = env_seq(m->env);
		lease(m);
		return;
	}
	if (r == 0)
		r = copy(m, env_seq(m->env), final_copied);
	if (r < 0)
		move_fail_errno(m, r, "what changed last cannot be brought there");
}

static void final_synced(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct move *m = userdata;
	int r = res->r;

	/* What comes from now on is late. */
	env->muted = true;
	if (r == 0)
		r = commit_wait(env, final_durable, m);
	if (r < 0)
		move_fail_errno(m, r, "it cannot be synced");
}

static void frozen(struct env *env, int r, const struct entry_head *e, void *userdata)
{
	struct move *m = userdata;

	if (r == 0 && ((const struct entry_done *)e)->error &&
	    ((const struct entry_done *)e)->error != ESRCH)
		r = -((const struct entry_done *)e)->error;
	if (r == 0)
		r = barrier_run(env, BARRIER_MS, final_synced, m);
	if (r < 0)
		move_fail_errno(m, r, "its processes cannot be frozen");
}

static void freeze(struct move *m)
{
	Limbwire__Freeze q = LIMBWIRE__FREEZE__INIT;
	struct env *env = m->env;
	int r;

	m->frozen_since_ms = clock_mono_ms();
	env->frozen = true;
	r = env_save(env);
	move_step("migrate.freeze");
	if (r == 0)
		r = link_expect(env, ENTRY_DONE, FREEZE_MS, frozen, m, &q.request);
	if (r == 0) {
		r = link_send(env, WIRE_FREEZE, &q.base, NULL, 0);
		if (r < 0)
			link_forget(env, q.request);
	}
	if (r < 0)
		move_fail_errno(m, r, "its processes cannot be frozen");
}

static void first_copied(struct env *guest, int r, const struct entry_head *e, void *userdata)
{
	struct move *m = userdata;

	(void)guest;
	if (!copied(m, r, e))
		return;
	if (++m->passes < PASSES && env_seq(m->env) - m->seq > CHANGES_WORTH_PASS) {
		r = copy(m, env_seq(m->env), first_copied);
		if (r < 0)
			move_fail_errno(m, r, "its files cannot be brought there");
		return;
	}
	m->gl->on_status = NULL;
	move_step("migrate.copied");
	move_jobs(m, freeze);
}

static void copy_status(struct life *gl)
{
	struct move *m = gl->extra;

	if (m->l->call)
		call_progress(m->l->call, "copying", m->guest->status.scanned_files,
			      m->guest->status.scanned_bytes, gl->files, gl->bytes);
}

static void copy_begin(struct life *gl)
{
	struct move *m = gl->extra;
	struct index_counts n = {0};
	struct index_txn *t;
	int r;

	if (env_read_begin(m->env, &t) == 0) {
		(void)index_counts(t, &n);
		gl->files = n.files;
		gl->bytes = n.bytes;
		index_read_end(t);
	}
	gl->on_status = copy_status;
	m->copying = true;
	move_step("migrate.copy");
	r = copy(m, env_seq(m->env), first_copied);
	if (r < 0)
		move_fail_errno(m, r, "its files cannot be brought there");
}

/* ---- the new place ---- */

static void target_attached(struct life *gl, enum attach_mode mode)
{
	struct move *m = gl->extra;

	m->guest->wanted = false; /* when its line falls, the move has failed */
	if (mode != ATTACH_RESTORE)
		move_fail(m, "invalid_path", "%s",
			  m->guest->n_reasons ? m->guest->reasons[0].detail : "the root there");
	else
		life_end_timer(gl, copy_begin);
}

static void target_late(struct life *gl)
{
	struct move *m = gl->extra;

	move_fail(m, "env_unreachable", "%s",
		  m->guest->n_reasons ? m->guest->reasons[0].detail
				      : "limb-syncd there did not answer in 30 s");
}

static int save_migration(struct move *m)
{
	struct env *env = m->env;

	json_decref(env->migration);
	env->migration = json_pack("{s:o, s:I, s:o}", "to", env_place_json(m->guest),
				   "to_incarnation", (json_int_t)m->to_incarnation, "mark",
				   hex_json(m->guest->mark, sizeof(m->guest->mark)));
	return env_save(env);
}

static void target_started(struct life *gl, const struct provider_error *err)
{
	struct move *m = gl->extra;
	int r;

	if (err) {
		const char *step = json_string_value(json_array_get(err->next_steps, 0));

		(void)snprintf(m->step, sizeof(m->step), "%s", step ? step : "");
		move_fail(m, err->code, "%s", err->detail);
		return;
	}
	r = attach_grant(m->guest);
	if (r == 0)
		r = save_migration(m);
	if (r < 0) {
		move_fail_errno(m, r, "the new place cannot be recorded");
		return;
	}
	life_attach(gl, NULL, false, false, target_attached, target_late);
}

static int begin(struct move *m)
{
	int r;

	attach_make_mark(m->env, m->guest->mark);
	m->guest->incarnation = m->to_incarnation;
	r = guest_make_dirs(m->guest);
	if (r == 0)
		r = save_migration(m);
	if (r < 0)
		return r;
	move_step("migrate.begin");
	life_provider_create(m->gl, target_started);
	return 0;
}

void move_begin(struct move *m)
{
	int r = begin(m);

	if (r < 0)
		move_fail_errno(m, r, "the new place cannot be made");
}
