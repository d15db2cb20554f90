/*
 * Late words: a place that an environment has left says that its files are not as
 * they were when it was left.
 *
 * A new environment NAME~N gets, in a log of its own, the tree as it was then, and
 * is the writer of record for that place's incarnation from there on: its
 * limb-syncd is attached to it by the ordinary way, and what it says is taken as
 * ever.  It is known there by the parent's id (wire_id), and lives in the parent's
 * private directory, until it has said all; then it is a stopped environment like
 * another, to be read, or to be made again by rebuild.
 */
#include "brain/migrate-impl.h"

#include "base/log.h"
#include "brain/attach.h"
#include "brain/barrier.h"
#include "brain/commit.h"
#include "brain/link.h"
#include "brain/snapshot.h"
#include "brain/state.h"
#include "brain/view.h"

enum { HEAR_MS = 600000, FORKS_MAX = 10000 };

struct late {
	struct env *fork;
	struct life *l; /* the fork's */
	struct env *parent;
	uint64_t parent_seq, number;
	old_fn then;
	void *userdata;
};

static void late_over(struct late *q, int r)
{
	old_fn then = q->then;
	void *userdata = q->userdata;

	free(q);
	then(r, userdata);
}

static void fail_go(struct life *l)
{
	struct late *q = l->extra;
	struct env *f = q->fork;

	link_stop(f, "late words failed");
	(void)state_record_env(f->brain, f, "removed");
	life_done(l, NULL);
	life_discard(f, false);
	late_over(q, -EIO);
}

static void late_fail(struct late *q, int r, const char *what)
{
	log_warning_errno(r, "environment '%s': %s", q->fork->name, what);
	q->fork->wanted = false;
	life_end_timer(q->l, fail_go);
}

/* ---- hearing it out ---- */

static void late_settled(struct life *l)
{
	struct late *q = l->extra;
	struct env *f = q->fork;
	int r;

	link_stop(f, "it has said all");
	/* From now on an environment like others, with a journal and no place. */
	memcpy(f->wire_id, f->id, sizeof(f->wire_id));
	memcpy(f->wire_hex, f->id_hex, sizeof(f->wire_hex));
	free(take_ptr(&f->place_dir));
	free(take_ptr(&f->handle));
	free(take_ptr(&f->host_root));
	free(take_ptr(&f->user_root));
	free(take_ptr(&f->inner_dir));
	free(take_ptr(&f->inner_syncd));
	f->place = 0;
	f->creating = false;
	f->first_sync_done = true;
	/* What is not saved as a whole environment is forgotten by the next limbd, and the place
	 * that said it would be gone. */
	r = env_save(f);
	if (r < 0) {
		late_fail(q, r, "what was said late cannot be kept");
		return;
	}
	log_warning("environment '%s': what the place that it left said late is in '%s'",
		    q->parent->name, f->name);
	view_start(f);
	life_done(l, NULL);
	late_over(q, 0);
}

static void late_heard(struct env *f, const struct barrier_result *res, void *userdata)
{
	struct late *q = userdata;

	if (res->r < 0) {
		late_fail(q, res->r, "its late words cannot be had");
		return;
	}
	f->wanted = false;
	life_end_timer(q->l, late_settled);
}

static void late_go(struct life *l)
{
	struct late *q = l->extra;
	int r = barrier_run(q->fork, HEAR_MS, late_heard, q);

	if (r < 0)
		late_fail(q, r, "its late words cannot be had");
}

static void late_attached(struct life *l, enum attach_mode mode)
{
	if (mode != ATTACH_SYNC)
		late_fail(l->extra, -ESTALE, "it is not what was left");
	else
		life_end_timer(l, late_go);
}

static void late_late(struct life *l)
{
	late_fail(l->extra, -ETIMEDOUT, "it does not answer any more");
}

static void late_ready(int r, uint64_t seq, void *userdata)
{
	struct late *q = userdata;

	(void)seq;
	if (r < 0)
		late_fail(q, r, "the tree as it was cannot be recorded");
	else
		life_attach(q->l, NULL, false, false, late_attached, late_late);
}

static void late_begun(int r, uint64_t seq, void *userdata)
{
	struct late *q = userdata;

	(void)seq;
	if (r == 0)
		r = snapshot_take(q->fork, q->parent, q->parent_seq, q->number);
	if (r == 0)
		r = commit_wait(q->fork, late_ready, q);
	if (r < 0)
		late_fail(q, r, "the tree as it was cannot be recorded");
}

static int late_genesis(struct late *q)
{
	struct env *f = q->fork;
	int r = snapshot_genesis(f, q->parent, q->parent_seq, NULL, NULL);

	return r < 0 ? r : attach_record(f, f, RECORD_INCARNATION, "fork", late_begun, q);
}

static int fork_new(struct env *guest, json_t *left, struct env **ret)
{
	struct env *parent = guest->guest_of, *f = NULL;
	cleanup_free char *name = NULL;
	int r;

	for (unsigned i = 1; !name; i++) {
		if (i > FORKS_MAX)
			return -E2BIG;
		if (asprintf(&name, "%s~%u", parent->name, i) < 0) {
			name = NULL;
			return -ENOMEM;
		}
		if (env_find(parent->brain, name))
			free(take_ptr(&name));
	}
	r = env_new(parent->brain, name, &f);
	if (r < 0)
		return r;
	f->provider = strdup(guest->provider);
	f->spec = parent->spec ? json_deep_copy(parent->spec) : json_object();
	f->creating = true;
	r = snapshot_begin(f);
	if (r < 0)
		return r;
	(void)env_place_take(f, left);
	f->place_dir = strdup(parent->dir);
	memcpy(f->wire_id, parent->id, sizeof(f->wire_id));
	memcpy(f->wire_hex, parent->id_hex, sizeof(f->wire_hex));
	f->incarnation = guest->incarnation;
	f->grant_first = guest->grant_first;
	f->grant_end = guest->grant_end;
	f->unheld = guest->unheld;
	f->self_uid = guest->self_uid;
	f->self_gid = guest->self_gid;
	memcpy(f->mark, guest->mark, sizeof(f->mark));
	*ret = f;
	return 0;
}

void late_fork(struct env *guest, json_t *left, old_fn then, void *userdata)
{
	struct late *q = calloc(1, sizeof(*q));
	struct index_txn *t;
	int r = -ENOMEM;

	link_stop(guest, "its words are late");
	if (!q)
		goto fail;
	q->parent = guest->guest_of;
	q->parent_seq = (uint64_t)json_integer_value(json_object_get(left, "seq"));
	q->number = (uint64_t)json_integer_value(json_object_get(left, "number"));
	q->then = then;
	q->userdata = userdata;
	r = fork_new(guest, left, &q->fork);
	if (r < 0)
		goto fail;
	/* Ids that were given out before it was left. */
	if (env_read_begin(q->parent, &t) == 0) {
		q->fork->node_used = index_node_used(t, q->fork->grant_first, q->fork->grant_end);
		index_read_end(t);
	}
	q->l = life_new(q->fork, NULL, "fork");
	if (!q->l) {
		r = -ENOMEM;
		goto fail;
	}
	q->l->extra = q;
	r = late_genesis(q);
	if (r < 0)
		late_fail(q, r, "its log cannot be begun");
	return;
fail:
	log_warning_errno(r, "environment '%s': no fork for late words", guest->name);
	free(q);
	then(r, userdata);
}
