#include "brain/env.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/text.h"
#include "brain/accept.h"
#include "brain/commit.h"
#include "brain/queue.h"
#include "brain/link.h"
#include "brain/quota.h"
#include "brain/view.h"

enum {
	JSON_MAX = 1 << 20,
	ROOT_GONE_MS = 5000, /* limb-syncd looks each second, time without a line does not count */
};

const char *env_state_name(enum env_state s)
{
	static const char *const names[] = {
		[ENV_CREATING] = "creating",
		[ENV_LIVE] = "live",
		[ENV_CATCHING_UP] = "catching_up",
		[ENV_DEGRADED] = "degraded",
		[ENV_AWAY] = "away",
		[ENV_LOST] = "lost",
		[ENV_MOUNT_CHANGED] = "mount_changed",
		[ENV_HALTED] = "halted",
		[ENV_HOSTILE] = "hostile",
		[ENV_PAUSED] = "paused",
		[ENV_STOPPED] = "stopped",
	};

	return names[s];
}

/* The order is that of how much a person has to do about it. */
enum env_state env_state(const struct env *env)
{
	if (env->hostile)
		return ENV_HOSTILE;
	if (env->halted || env->failed)
		return ENV_HALTED;
	if (env->creating)
		return ENV_CREATING;
	if (!env->wanted)
		return ENV_STOPPED;
	if (env->lost)
		return ENV_LOST;
	if (!link_up(env))
		return ENV_AWAY;
	if (env->full)
		return ENV_HALTED;
	if (env->paused)
		return ENV_PAUSED;
	if (!env->has_status || env->status.scanning)
		return ENV_CATCHING_UP;
	if (env->mount_changed)
		return ENV_MOUNT_CHANGED;
	for (size_t i = 0; i < env->n_said; i++)
		if (strcmp(env->said[i].code, "mass_delete") != 0)
			return ENV_DEGRADED;
	return ENV_LIVE;
}

static struct env *env_alloc(struct brain *b, const uint8_t id[16], const char *name)
{
	struct env *env = calloc(1, sizeof(*env));

	if (!env)
		return NULL;
	env->brain = b;
	env->dir_fd = env->log_fd = -1;
	env->restore_at = INDEX_NOW;
	memcpy(env->id, id, sizeof(env->id));
	text_hex(env->id_hex, id, 16);
	memcpy(env->wire_id, id, sizeof(env->wire_id));
	memcpy(env->wire_hex, env->id_hex, sizeof(env->wire_hex));
	env->name = strdup(name);
	env->class = strdup("ordered");
	if (!env->name || !env->class ||
	    asprintf(&env->dir, "%s/envs/%s", b->state_dir, env->id_hex) < 0) {
		env->dir = NULL;
		env_free(env);
		return NULL;
	}
	return env;
}

int env_new(struct brain *b, const char *name, struct env **ret)
{
	uint8_t id[16];

	random_bytes(id, sizeof(id));
	/* RFC 9562 version 4, as `id:uuid` of the contract promises. */
	id[6] = (uint8_t)((id[6] & 0x0f) | 0x40);
	id[8] = (uint8_t)((id[8] & 0x3f) | 0x80);
	*ret = env_alloc(b, id, name);
	if (!*ret)
		return -ENOMEM;
	(*ret)->created_ns = clock_real_ns();
	return 0;
}

int env_make_dirs(struct env *env)
{
	static const char *const names[] = {"log", "jobs", "hands"};
	int r;

	r = file_make_dir(env->brain->envs_fd, env->id_hex);
	if (r < 0)
		return r;
	env->dir_fd = file_open_dir(env->brain->envs_fd, env->id_hex);
	if (env->dir_fd < 0)
		return env->dir_fd;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		r = file_make_dir(env->dir_fd, names[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

static char *text_of(json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? strdup(s) : NULL;
}

/* ---- places ---- */

void env_place_name(const struct env *env, const char *what, char out[40])
{
	if (env->place)
		(void)snprintf(out, 40, "%s.%llu", what, (unsigned long long)env->place);
	else
		(void)snprintf(out, 40, "%s", what);
}

static char *place_path(const struct env *env, const char *what)
{
	char name[40], *path;

	env_place_name(env, what, name);
	return asprintf(&path, "%s/%s", env->place_dir ? env->place_dir : env->dir, name) < 0
		       ? NULL
		       : path;
}

char *env_hands_dir(const struct env *env)
{
	return place_path(env, "hands");
}

char *env_own_root(const struct env *env)
{
	return place_path(env, "root");
}

static void put(json_t *o, const char *key, const char *value)
{
	if (value)
		(void)json_object_set_new(o, key, json_string(value));
}

json_t *env_place_json(const struct env *env)
{
	json_t *o = json_object();

	put(o, "provider", env->provider);
	put(o, "target", env->target);
	put(o, "user_root", env->user_root);
	put(o, "handle", env->handle);
	put(o, "root", env->root);
	put(o, "host_root", env->host_root);
	put(o, "inner_dir", env->inner_dir);
	put(o, "inner_syncd", env->inner_syncd);
	if (env->place)
		(void)json_object_set_new(o, "place", json_integer((json_int_t)env->place));
	if (env->network)
		(void)json_object_set_new(o, "network", json_true());
	return o;
}

static void take_text(char **to, json_t *o, const char *key)
{
	free(*to);
	*to = text_of(o, key);
}

int env_place_take(struct env *env, json_t *o)
{
	take_text(&env->provider, o, "provider");
	take_text(&env->target, o, "target");
	take_text(&env->user_root, o, "user_root");
	take_text(&env->handle, o, "handle");
	take_text(&env->root, o, "root");
	take_text(&env->host_root, o, "host_root");
	take_text(&env->inner_dir, o, "inner_dir");
	take_text(&env->inner_syncd, o, "inner_syncd");
	env->place = (uint64_t)json_integer_value(json_object_get(o, "place"));
	env->network = json_is_true(json_object_get(o, "network"));
	return env->provider ? 0 : -EBADMSG;
}

#define SWAP(a, b)                         \
	do {                               \
		__typeof__(a) swapped = a; \
		a = b;                     \
		b = swapped;               \
	} while (0)

void env_place_swap(struct env *a, struct env *b)
{
	SWAP(a->provider, b->provider);
	SWAP(a->target, b->target);
	SWAP(a->user_root, b->user_root);
	SWAP(a->handle, b->handle);
	SWAP(a->root, b->root);
	SWAP(a->host_root, b->host_root);
	SWAP(a->inner_dir, b->inner_dir);
	SWAP(a->inner_syncd, b->inner_syncd);
	SWAP(a->place, b->place);
	SWAP(a->network, b->network);
	SWAP(a->compress, b->compress);
	SWAP(a->deltas, b->deltas);
	SWAP(a->trees, b->trees);
	SWAP(a->settings, b->settings);
	SWAP(a->isolation, b->isolation);
	SWAP(a->enforces, b->enforces);
	SWAP(a->defaults, b->defaults);
	SWAP(a->init_pid, b->init_pid);
	SWAP(a->syncd_pid, b->syncd_pid);
	SWAP(a->syncd_host_pid, b->syncd_host_pid);
	SWAP(a->syncd_static, b->syncd_static);
	SWAP(a->unheld, b->unheld);
	SWAP(a->self_uid, b->self_uid);
	SWAP(a->self_gid, b->self_gid);
	SWAP(a->incarnation, b->incarnation);
	SWAP(a->grant_first, b->grant_first);
	SWAP(a->grant_end, b->grant_end);
	SWAP(a->node_used, b->node_used);
	SWAP(a->status, b->status);
	SWAP(a->has_status, b->has_status);
	for (size_t i = 0; i < sizeof(a->mark); i++) {
		SWAP(a->mark[i], b->mark[i]);
		SWAP(a->boot_id[i], b->boot_id[i]);
	}
	for (size_t i = 0; i < sizeof(a->syncd_version); i++)
		SWAP(a->syncd_version[i], b->syncd_version[i]);
	for (size_t i = 0; i < sizeof(a->syncd_sha256); i++)
		SWAP(a->syncd_sha256[i], b->syncd_sha256[i]);
}

int env_guest_new(struct env *env, uint64_t place, struct env **ret)
{
	struct env *guest = env_alloc(env->brain, env->id, env->name);
	int r;

	if (!guest)
		return -ENOMEM;
	guest->guest_of = env;
	guest->place = place;
	guest->index = env->index;
	guest->dir_fd = fcntl(env->dir_fd, F_DUPFD_CLOEXEC, 3);
	r = guest->dir_fd < 0 ? -errno : 0;
	guest->spec = env->spec ? json_deep_copy(env->spec) : json_object();
	if (r < 0) {
		env_free(guest);
		return r;
	}
	*ret = guest;
	return 0;
}

static int env_load_json(struct env *env)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(JSON_MAX);
	json_error_t e;
	json_t *o;
	int r;

	r = file_read(env->dir_fd, "env.json", &b);
	if (r < 0)
		return r;
	o = json_loadb((const char *)buf_data(&b), buf_len(&b), 0, &e);
	if (!json_is_object(o)) {
		json_decref(o);
		return -EBADMSG;
	}
	(void)env_place_take(env, o);
	env->home_root = text_of(o, "home_root");
	env->migration = json_incref(json_object_get(o, "migration"));
	env->left = json_incref(json_object_get(o, "left"));
	env->forked_from = json_incref(json_object_get(o, "forked_from"));
	env->warned = json_incref(json_object_get(o, "warned"));
	env->frozen = json_is_true(json_object_get(o, "frozen"));
	env->paused = json_is_true(json_object_get(o, "paused"));
	env->spec = json_incref(json_object_get(o, "spec"));
	env->ignored_hash = text_of(o, "ignored_hash");
	env->content_bytes = env->content_saved =
		(uint64_t)json_integer_value(json_object_get(o, "content_bytes"));
	env->full_at = (uint64_t)json_integer_value(json_object_get(o, "full_at"));
	if (json_is_string(json_object_get(env->spec, "class")))
		take_text(&env->class, env->spec, "class");
	env->wanted = json_is_true(json_object_get(o, "wanted"));
	env->work_mode = json_is_true(json_object_get(o, "work_mode"));
	env->creating = json_is_true(json_object_get(o, "creating"));
	env->staged = text_of(o, "staged");
	env->restoring = json_is_true(json_object_get(o, "restoring"));
	env->rebuild_from = (uint64_t)json_integer_value(json_object_get(o, "rebuild_from"));
	env->first_sync_done = !env->creating;
	env->created_ns = json_integer_value(json_object_get(o, "created_ns"));
	json_decref(o);
	return env->provider ? 0 : -EBADMSG;
}

int env_save(struct env *env)
{
	json_t *o;
	char *text;
	int r;

	if (env->guest_of)
		return 0; /* a part of its environment's */
	if (env->unread)
		return -EBADMSG;
	o = env_place_json(env);
	put(o, "home_root", env->home_root);
	put(o, "ignored_hash", env->ignored_hash);
	if (env->migration)
		(void)json_object_set(o, "migration", env->migration);
	if (env->left)
		(void)json_object_set(o, "left", env->left);
	if (env->forked_from)
		(void)json_object_set(o, "forked_from", env->forked_from);
	if (env->content_bytes)
		(void)json_object_set_new(o, "content_bytes",
					  json_integer((json_int_t)env->content_bytes));
	if (env->full_at)
		(void)json_object_set_new(o, "full_at", json_integer((json_int_t)env->full_at));
	if (env->paused)
		(void)json_object_set_new(o, "paused", json_true());
	if (env->frozen)
		(void)json_object_set_new(o, "frozen", json_true());
	(void)json_object_set(o, "spec", env->spec);
	(void)json_object_set_new(o, "wanted", json_boolean(env->wanted));
	(void)json_object_set_new(o, "work_mode", json_boolean(env->work_mode));
	if (env->warned)
		(void)json_object_set(o, "warned", env->warned);
	(void)json_object_set_new(o, "creating", json_boolean(env->creating));
	put(o, "staged", env->staged);
	if (env->restoring)
		(void)json_object_set_new(o, "restoring", json_true());
	if (env->rebuild_from)
		(void)json_object_set_new(o, "rebuild_from",
					  json_integer((json_int_t)env->rebuild_from));
	(void)json_object_set_new(o, "created_ns", json_integer(env->created_ns));
	text = json_dumps(o, JSON_INDENT(1));
	json_decref(o);
	if (!text)
		return -ENOMEM;
	r = file_replace(env->dir_fd, "env.json", text, strlen(text));
	free(text);
	if (r == 0)
		env->content_saved = env->content_bytes;
	return r;
}

int env_load(struct brain *b, const uint8_t id[16], const char *name, struct env **ret)
{
	struct env *env = env_alloc(b, id, name);
	int r;

	if (!env)
		return -ENOMEM;
	env->dir_fd = file_open_dir(b->envs_fd, env->id_hex);
	r = env->dir_fd < 0 ? env->dir_fd : env_load_json(env);
	if (r < 0) {
		env_free(env);
		return r;
	}
	*ret = env;
	return 0;
}

int env_new_unread(struct brain *b, const uint8_t id[16], const char *name, struct env **ret)
{
	struct env *env = env_alloc(b, id, name);

	if (!env)
		return -ENOMEM;
	env->failed = env->unread = true;
	env->dir_fd = file_open_dir(b->envs_fd, env->id_hex);
	/* No provider has such a name: nothing is done to what may still run. */
	env->provider = strdup("unknown");
	if (!env->provider || env->dir_fd < 0) {
		int r = env->provider ? env->dir_fd : -ENOMEM;

		env_free(env);
		return r;
	}
	*ret = env;
	return 0;
}

/* The last INCARNATION record, as the index keeps it. */
int env_resume(struct env *env)
{
	struct index_txn *t;
	const void *body;
	Limb__Record *rec;
	size_t n;
	int r;

	r = index_read_begin(env->index, &t);
	if (r < 0)
		return r;
	env->incarnation = index_incarnation(t);
	env->last_number = env->taken_number = index_number(t, env->incarnation);
	env->grant_end = index_next_node(t);
	if (index_meta_get(t, "incarnation_body", &body, &n) == 0 &&
	    (rec = limb__record__unpack(NULL, n, body))) {
		const Limb__Incarnation *i = rec->incarnation_start;

		if (rec->body_case == LIMB__RECORD__BODY_INCARNATION_START) {
			env->grant_first = i->node_grant_first;
			env->grant_end = i->node_grant_end;
			env->unheld = i->unheld;
			if (i->mark.len == sizeof(env->mark))
				memcpy(env->mark, i->mark.data, sizeof(env->mark));
		}
		limb__record__free_unpacked(rec, NULL);
	}
	env->node_used = index_node_used(t, env->grant_first, env->grant_end);
	index_read_end(t);
	return 0;
}

struct replay {
	bool began;
	uint64_t from, to;
};

static void note_replay(uint64_t seq, uint64_t last, void *userdata)
{
	struct replay *rp = userdata;

	(void)last;
	if (!rp->began)
		rp->from = seq;
	rp->began = true;
	rp->to = seq;
}

int env_open(struct env *env, bool create)
{
	struct log_ids ids = {.term = env->brain->term};
	struct log_recovery rec = {0};
	struct replay rp = {0};
	int r;

	memcpy(ids.log_id, env->id, sizeof(ids.log_id));
	memcpy(ids.brain_id, env->brain->id, sizeof(ids.brain_id));
	if (env->log_fd < 0)
		env->log_fd = file_open_dir(env->dir_fd, "log");
	if (env->log_fd < 0)
		return env->log_fd;
	r = log_open(env->log_fd, &ids, create ? LOG_CREATE : 0, &env->log, &rec);
	if (r < 0)
		return r;
	if (rec.torn_tail_bytes)
		log_info("environment '%s': cut a torn tail of %llu bytes from its log", env->name,
			 (unsigned long long)rec.torn_tail_bytes);
	r = index_open(env->dir_fd, INDEX_WRITE, env->log_fd, note_replay, &rp, &env->index);
	if (r < 0)
		return r;
	if (rp.to > rp.from)
		log_info(
			"environment '%s': replayed records %llu to %llu of its log into its index",
			env->name, (unsigned long long)rp.from + 1, (unsigned long long)rp.to);
	r = commit_new(env, &env->commit);
	if (r >= 0)
		r = queue_open(env);
	return r < 0 ? r : accept_open(env);
}

void env_close(struct env *env)
{
	if (env->log && env->content_bytes != env->content_saved)
		(void)env_save(env);
	accept_close(env);
	queue_close(env);
	commit_free(take_ptr(&env->commit));
	index_close(take_ptr(&env->index));
	log_close(take_ptr(&env->log));
	if (env->log_fd >= 0)
		(void)close(take_fd(&env->log_fd));
}

static void reasons_free(struct env_reason *r, size_t n)
{
	for (size_t i = 0; i < n; i++)
		env_reason_done(&r[i]);
}

void env_free(struct env *env)
{
	if (!env)
		return;
	if (env->guest_of)
		env->index = NULL; /* lent */
	env_close(env);
	if (env->dir_fd >= 0)
		(void)close(env->dir_fd);
	reasons_free(env->reasons, env->n_reasons);
	reasons_free(env->said, env->n_said);
	json_decref(env->spec);
	ignore_done(&env->ignore);
	free(env->ignored_hash);
	json_decref(env->isolation);
	json_decref(env->enforces);
	json_decref(env->defaults);
	json_decref(env->unsupported);
	json_decref(env->warned);
	json_decref(env->migration);
	json_decref(env->left);
	json_decref(env->forked_from);
	free(env->home_root);
	free(env->staged);
	free(env->place_dir);
	free(env->name);
	free(env->dir);
	free(env->provider);
	free(env->target);
	free(env->user_root);
	free(env->class);
	free(env->handle);
	free(env->root);
	free(env->host_root);
	free(env->inner_dir);
	free(env->inner_syncd);
	free(env);
}

void env_link_in(struct env *env)
{
	struct env **p = &env->brain->envs;

	while (*p && strcmp((*p)->name, env->name) < 0)
		p = &(*p)->next;
	env->next = *p;
	*p = env;
}

void env_link_out(struct env *env)
{
	for (struct env **p = &env->brain->envs; *p; p = &(*p)->next) {
		if (*p == env) {
			*p = env->next;
			return;
		}
	}
}

struct env *env_find(struct brain *b, const char *name)
{
	for (struct env *env = b->envs; env; env = env->next)
		if (strcmp(env->name, name) == 0)
			return env;
	return NULL;
}

struct env *env_parent(const struct env *env)
{
	const char *id = json_string_value(json_object_get(env->forked_from, "id"));

	for (struct env *e = id ? env->brain->envs : NULL; e; e = e->next)
		if (strcmp(e->id_hex, id) == 0)
			return e;
	return NULL;
}

void env_root_gone(struct env *env)
{
	const struct removal_run *m = &env->run;
	uint64_t now_ms = env->fell_ms ? env->fell_ms : clock_mono_ms();

	/* STATUS overtakes changes: the last of the run may still come. */
	if (env->rebuild_from || !m->before_seq || !m->empties ||
	    (now_ms > m->last_ms && now_ms - m->last_ms > ROOT_GONE_MS))
		return;
	env->rebuild_from = m->before_seq;
	(void)env_save(env);
}

int env_read_begin(struct env *env, struct index_txn **ret)
{
	return env->index ? index_read_begin(env->index, ret) : -EIO;
}

uint64_t env_seq(struct env *env)
{
	struct index_txn *t;
	uint64_t seq = 0;

	if (env_read_begin(env, &t) == 0) {
		seq = index_seq(t);
		index_read_end(t);
	}
	return seq;
}

uint64_t env_nodes(struct env *env)
{
	struct index_counts n = {0};
	struct index_txn *t;

	if (env_read_begin(env, &t) == 0) {
		(void)index_counts(t, &n);
		index_read_end(t);
	}
	return n.files + n.directories + n.symlinks + n.others;
}

struct later {
	uv_timer_t timer;
	struct env *env;
};

static void later_closed(uv_handle_t *h)
{
	struct later *l = container_of((uv_timer_t *)h, struct later, timer);

	env_free(l->env);
	free(l);
}

static void later_tick(uv_timer_t *t)
{
	struct later *l = container_of(t, struct later, timer);

	if ((l->env->commit && commit_busy(l->env)) || l->env->threads || l->env->runs)
		return;
	(void)uv_timer_stop(t);
	uv_close((uv_handle_t *)t, later_closed);
}

void env_free_later(struct env *env)
{
	struct later *l = calloc(1, sizeof(*l));

	if (!l)
		return; /* leaked rather than freed under a thread */
	l->env = env;
	(void)uv_timer_init(env->brain->loop, &l->timer);
	(void)uv_timer_start(&l->timer, later_tick, 10, 10);
}
