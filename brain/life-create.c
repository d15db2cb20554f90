/* Create: names and roots judged, the copy of --from, the sandbox, the first sync. */
#include "brain/life-impl.h"

#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "brain/barrier.h"
#include "brain/commit.h"
#include "brain/link.h"
#include "brain/migrate.h"
#include "brain/provider.h"
#include "brain/state.h"
#include "brain/view.h"
#include "journal/record.pb-c.h"

enum {
	FIRST_SYNC_MS = 24 * 3600 * 1000,
};

/* ---- failing: nothing stays ---- */

static void fail_deleted(struct life *l, const struct provider_error *err)
{
	struct env *env = l->env;
	struct call *call = take_ptr(&l->call), *rm = l->given_up;
	char name[80], detail[512], code[40], step[300];
	const char *verb = l->verb;

	(void)err;
	(void)snprintf(step, sizeof(step), "%s",
		       l->step[0]		       ? l->step
		       : strcmp(l->code, "usage") == 0 ? "limb help create"
						       : "limb doctor");
	(void)snprintf(name, sizeof(name), "%s", env->name);
	(void)snprintf(code, sizeof(code), "%s", l->code);
	(void)snprintf(detail, sizeof(detail), "%s", l->detail);
	(void)state_record_env(env->brain, env, "removed");
	l->env = NULL;
	life_discard(env, false);
	life_free(l);
	if (call)
		call_fail(call, code, name, step, "cannot %s '%s': %s", verb, name, detail);
	if (rm)
		call_ok(rm, json_pack("{s:s, s:b, s:b}", "environment", name, "removed", 1,
				      "journal_kept", 0));
}

static void fail_now(struct life *l)
{
	link_stop(l->env, "create failed");
	life_provider_stop(l, "delete", fail_deleted);
}

void life_create_fail(struct life *l, const char *code, const char *detail)
{
	(void)snprintf(l->code, sizeof(l->code), "%s", code);
	if (detail != l->detail)
		(void)snprintf(l->detail, sizeof(l->detail), "%s", detail);
	l->env->wanted = false;
	l->on_status = NULL;
	life_end_timer(l, fail_now);
}

/* ---- giving up: somebody no longer wants it ---- */

/* At the beginning of each step; true: there is none. */
static bool given_up(struct life *l)
{
	if (!l->unwanted)
		return false;
	(void)snprintf(l->step, sizeof(l->step), "limb ls");
	life_create_fail(l, "conflict",
			 l->given_up ? "it was removed before it was finished"
				     : "it was interrupted; nothing of it stays");
	return true;
}

static void give_up(struct life *l)
{
	l->unwanted = true;
	if (l->copying)
		(void)uv_process_kill(&l->copier, SIGTERM); /* copy_closed() is next */
	else if (l->on_status)
		link_stop(l->env, "given up"); /* create_synced() is next */
	else if (l->attached) {
		l->attached = NULL;
		(void)given_up(l);
	} /* else a step of moments, or a provider's with its deadline */
}

bool life_give_up(struct env *env, struct call *call)
{
	struct life *l = env->busy ? env->life : NULL;

	if (!l || strcmp(l->verb, "create") != 0 || l->unwanted)
		return false;
	l->given_up = call;
	give_up(l);
	return true;
}

/* A client that is only gone is another matter: what it began is finished. */
static void create_cancelled(struct call *call)
{
	const char *name = call_str(call, "name");
	struct env *env = name && call->client ? env_find(call->brain, name) : NULL;
	struct life *l = env && env->busy ? env->life : NULL;

	if (l && l->call == call && !l->unwanted)
		give_up(l);
}

/* ---- the first sync ---- */

json_t *life_created(struct env *env, uint64_t took_ms)
{
	struct index_counts n = {0};
	struct index_txn *t;
	json_t *result;
	bool busy = env->busy;

	if (env_read_begin(env, &t) == 0) {
		(void)index_counts(t, &n);
		index_read_end(t);
	}
	env->busy = false;
	result = env_json_inspect(env);
	env->busy = busy;
	(void)json_object_set_new(result, "duration_ms", json_integer((json_int_t)took_ms));
	(void)json_object_set_new(result, "files", json_integer((json_int_t)n.files));
	(void)json_object_set_new(result, "bytes", json_integer((json_int_t)n.bytes));
	if (env->left_out)
		(void)json_object_set_new(result, "left_out",
					  json_integer((json_int_t)env->left_out));
	return result;
}

static void create_over(struct life *l)
{
	struct env *env = l->env;

	if (given_up(l))
		return;
	if (l->call)
		l->call->on_cancel = NULL;
	env->first_sync_done = true;
	if (env->staged) {
		struct call *call = take_ptr(&l->call);
		uint64_t begun_ms = l->begun_ms;

		life_done(l, NULL);
		migrate_staged(call, env, begun_ms);
		return;
	}
	env->creating = false;
	(void)env_save(env);
	life_done(l, l->call ? life_created(env, life_ms(l)) : NULL);
}

/* ---- create --from to another machine ---- */

int life_stage(struct life *l)
{
	struct env *env = l->env;
	char *local = strdup("local"), *to = NULL;

	if (!local || asprintf(&to, "%s%s%s", env->provider, env->target ? ":" : "",
			       env->target ? env->target : "") < 0) {
		free(local);
		return -ENOMEM;
	}
	free(env->provider);
	free(take_ptr(&env->target));
	env->provider = local;
	env->staged = to;
	return env_save(env);
}

struct unstaging {
	struct env *env;
	struct call *call;
	char code[40], detail[512], step[300];
};

static void places_deleted(void *userdata)
{
	struct unstaging *u = userdata;
	struct env *env = u->env;
	struct life *l;

	env->busy = false;
	l = life_new(env, u->call, "create");
	if (l) {
		memcpy(l->step, u->step, sizeof(l->step));
		life_create_fail(l, u->code, u->detail);
	} else if (u->call)
		call_fail(u->call, "internal", env->name, "limb rm NAME --force", "out of memory");
	free(u);
}

void life_unstage(struct env *env, struct call *call, const char *code, const char *detail,
		  const char *step)
{
	struct unstaging *u = calloc(1, sizeof(*u));

	if (!u) {
		if (call)
			call_fail(call, "internal", env->name, "limb rm NAME --force",
				  "out of memory");
		return;
	}
	u->env = env;
	u->call = call;
	(void)snprintf(u->code, sizeof(u->code), "%s", code);
	(void)snprintf(u->detail, sizeof(u->detail), "%s", detail);
	(void)snprintf(u->step, sizeof(u->step), "%s", step ? step : "");
	env->busy = true; /* nobody begins anything with it meanwhile */
	migrate_delete_places(env, true, places_deleted, u);
}

static void create_view_seen(struct env *env, bool behind, void *userdata)
{
	(void)env;
	(void)behind;
	create_over(userdata);
}

static void create_synced(struct env *env, const struct barrier_result *res, void *userdata)
{
	struct life *l = userdata;

	l->on_status = NULL;
	if (given_up(l))
		return;
	if (res->r < 0 && res->r == -ENOTCONN && !env->hostile && !env->halted) {
		/* The line fell and is tried again: the sync goes on by itself. */
		l->attached = NULL;
		life_attach(l, NULL, false, false, create_attached, create_late);
		return;
	}
	if (res->r < 0) {
		life_create_fail(l, env->hostile ? "hostile" : life_code(res->r),
				 env->n_reasons ? env->reasons[0].detail : strerror(-res->r));
		return;
	}
	if (!env->view)
		view_start(env);
	view_wait_connected(env, create_view_seen, l);
}

static void create_status(struct life *l)
{
	const struct entry_status *s = &l->env->status;

	if (l->call)
		call_progress(l->call, "first sync", s->scanned_files, s->scanned_bytes, l->files,
			      l->bytes);
}

static void create_sync(struct life *l)
{
	int r;

	if (given_up(l))
		return;
	l->on_status = create_status;
	r = barrier_run(l->env, FIRST_SYNC_MS, create_synced, l);
	if (r < 0)
		life_create_fail(l, life_code(r), strerror(-r));
}

void create_attached(struct life *l, enum attach_mode mode)
{
	if (mode == ATTACH_HOLD) {
		life_create_fail(l, "halted",
				 l->env->n_reasons ? l->env->reasons[0].detail : "halted");
		return;
	}
	life_end_timer(l, create_sync);
}

void create_late(struct life *l)
{
	life_create_fail(l, "env_unreachable",
			 l->env->n_reasons ? l->env->reasons[0].detail
					   : "limb-syncd did not answer in 30 s");
}

void life_finish_create(struct env *env)
{
	struct life *l = life_new(env, NULL, "create");

	if (l)
		create_sync(l);
}

/* ---- the sandbox ---- */

static void create_started(struct life *l, const struct provider_error *err)
{
	if (err) {
		const char *step = json_string_value(json_array_get(err->next_steps, 0));

		(void)snprintf(l->step, sizeof(l->step), "%s", step ? step : "");
		life_create_fail(l, err->code, err->detail);
		return;
	}
	if (given_up(l))
		return;
	(void)env_save(l->env);
	life_attach(l, "create", true, false, create_attached, create_late);
}

static void genesis_durable(int r, uint64_t seq, void *userdata)
{
	struct life *l = userdata;

	(void)seq;
	if (r < 0)
		life_create_fail(l, life_code(r), strerror(-r));
	else
		life_provider_create(l, create_started);
}

static void create_genesis(struct life *l)
{
	struct env *env = l->env;
	Limb__Record rec = LIMB__RECORD__INIT;
	Limb__Genesis g = LIMB__GENESIS__INIT;
	char *spec = env->spec ? json_dumps(env->spec, JSON_COMPACT) : NULL;
	int r;

	g.log_id = (ProtobufCBinaryData){sizeof(env->id), env->id};
	g.brain_id = (ProtobufCBinaryData){sizeof(env->brain->id), env->brain->id};
	g.name = env->name;
	g.kind = (char *)"environment";
	g.provider = env->provider;
	g.target = env->target ? env->target : (char *)"";
	g.spec_json = spec ? spec : (char *)"";
	rec.origin = LIMB__ORIGIN__ORIGIN_BRAIN;
	rec.body_case = LIMB__RECORD__BODY_GENESIS;
	rec.genesis = &g;
	r = commit_submit(env, RECORD_GENESIS, &rec, genesis_durable, l);
	free(spec);
	if (r < 0)
		life_create_fail(l, life_code(r), strerror(-r));
}

/* ---- the copy ---- */

static void copy_closed(uv_handle_t *h)
{
	struct life *l = h->data;

	if (--l->copier_handles)
		return;
	l->copying = false;
	if (given_up(l))
		return;
	if (l->copier_status)
		life_create_fail(l, "io_error",
				 l->detail[0] ? l->detail
					      : "the copy of --from failed; see limbd.log");
	else
		create_genesis(l);
}

static void copy_maybe_over(struct life *l)
{
	l->copier_handles = 2;
	l->copier.data = l->copier_out.data = l;
	uv_close((uv_handle_t *)&l->copier, copy_closed);
	uv_close((uv_handle_t *)&l->copier_out, copy_closed);
}

static void copy_line(struct life *l)
{
	json_error_t e;
	json_t *o = json_loadb(l->line, l->line_n, 0, &e);
	const char *detail = json_string_value(json_object_get(o, "detail"));

	l->files = (uint64_t)json_integer_value(json_object_get(o, "files"));
	l->bytes = (uint64_t)json_integer_value(json_object_get(o, "bytes"));
	l->env->left_out = (uint64_t)json_integer_value(json_object_get(o, "unreadable")) +
			   (uint64_t)json_integer_value(json_object_get(o, "mounts"));
	if (detail)
		(void)snprintf(l->detail, sizeof(l->detail), "%s", detail);
	if (l->call)
		call_progress(l->call, "copying", l->files, l->bytes, 0, 0);
	json_decref(o);
}

static void copy_alloc(uv_handle_t *h, size_t n, uv_buf_t *b)
{
	static char room[4096]; /* used up before the next callback */

	(void)h;
	(void)n;
	*b = uv_buf_init(room, sizeof(room));
}

static void copy_bytes(struct life *l, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] == '\n') {
			copy_line(l);
			l->line_n = 0;
		} else if (l->line_n < sizeof(l->line)) {
			l->line[l->line_n++] = p[i];
		}
	}
}

static void copy_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
	if (n > 0)
		copy_bytes(container_of((uv_pipe_t *)s, struct life, copier_out), b->base,
			   (size_t)n);
	else if (n < 0)
		(void)uv_read_stop(s);
}

static void copy_exit(uv_process_t *p, int64_t status, int sig)
{
	struct life *l = container_of(p, struct life, copier);
	char tmp[4096];
	uv_os_fd_t fd;
	ssize_t n;

	l->copier_status = sig ? 128 + sig : status;
	/* Its last words are in the pipe by now. */
	if (uv_fileno((uv_handle_t *)&l->copier_out, &fd) == 0)
		while ((n = read(fd, tmp, sizeof(tmp))) > 0)
			copy_bytes(l, tmp, (size_t)n);
	copy_maybe_over(l);
}

static int create_copy(struct life *l, const char *from)
{
	struct env *env = l->env;
	cleanup_free char *file = brain_helper(env->brain, "limb-copy"), *to = NULL;
	int r;

	if (!file || asprintf(&to, "%s/root", env->dir) < 0)
		return -ENOMEM;
	char *argv[] = {file, (char *)from, to, NULL};
	uv_stdio_container_t io[3] = {
		{.flags = UV_IGNORE},
		{.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE,
		 .data.stream = (uv_stream_t *)&l->copier_out},
		{.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
	};
	uv_process_options_t o = {.file = file,
				  .args = argv,
				  .cwd = "/",
				  .exit_cb = copy_exit,
				  .stdio = io,
				  .stdio_count = 3};

	(void)uv_pipe_init(env->brain->loop, &l->copier_out, 0);
	r = uv_spawn(env->brain->loop, &l->copier, &o);
	if (r < 0) {
		l->copier_status = 1;
		(void)snprintf(l->detail, sizeof(l->detail), "cannot run '%s': %s", file,
			       strerror(-r));
		copy_maybe_over(l);
		return 0;
	}
	l->copying = true;
	(void)uv_read_start((uv_stream_t *)&l->copier_out, copy_alloc, copy_read);
	return 0;
}

int life_make_root(struct env *env)
{
	int r;

	if (env->user_root)
		return 0;
	r = file_make_dir(env->dir_fd, "root");
	/* A workspace's root is as a new directory is for its user. */
	if (r == 0 && fchmodat(env->dir_fd, "root", 0755, 0) < 0)
		r = -errno;
	return r;
}

void life_create(struct call *call)
{
	struct life_request q = {0};
	struct env *env = NULL;
	struct life *l;
	int r;

	if (!life_judge(call, &q))
		goto out;
	r = env_new(call->brain, q.name, &env);
	if (r < 0)
		goto fail;
	env->provider = take_ptr(&q.provider);
	env->target = take_ptr(&q.target);
	env->user_root = take_ptr(&q.root);
	env->home_root = env->user_root ? strdup(env->user_root) : NULL;
	env->spec = take_ptr(&q.spec);
	if (json_object_get(env->spec, "class")) {
		free(env->class);
		env->class = strdup(json_string_value(json_object_get(env->spec, "class")));
	}
	env->creating = true;
	env->wanted = true;
	env->work_mode = strcmp(env->provider, "local") == 0;
	r = env_make_dirs(env);
	if (r == 0)
		r = env_save(env);
	if (r == 0 && !q.from)
		r = life_make_root(env);
	if (r == 0)
		r = env_open(env, true);
	if (r == 0)
		r = state_record_env(call->brain, env, "created");
	if (r < 0)
		goto fail;
	env_link_in(env);
	l = life_new(env, call, "create");
	if (!l) {
		call_fail(call, "internal", q.name, NULL, "out of memory");
		life_discard(env, false);
		goto out;
	}
	call->on_cancel = create_cancelled;
	l->copied = q.from != NULL;
	if (q.from)
		(void)create_copy(l, q.from);
	else
		create_genesis(l);
	goto out;
fail:
	if (env) {
		(void)file_remove_tree(call->brain->envs_fd, env->id_hex);
		env_free(env);
	}
	call_fail(call, life_code(r), q.name, "limb doctor", "cannot create '%s' in '%s': %s",
		  q.name, call->brain->state_dir, strerror(-r));
out:
	life_request_done(&q);
}
