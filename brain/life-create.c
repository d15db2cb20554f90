/* Create: names and roots judged, the copy of --from, the sandbox, the first sync. */
#include "brain/life-impl.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "brain/barrier.h"
#include "brain/commit.h"
#include "brain/link.h"
#include "brain/migrate.h"
#include "brain/provider.h"
#include "brain/quota.h"
#include "brain/rules.h"
#include "brain/state.h"
#include "brain/view.h"
#include "journal/record.pb-c.h"

enum {
	FIRST_SYNC_MS = 24 * 3600 * 1000,
	SPEC_MAX = 1 << 20,
};

/* ---- failing: nothing stays ---- */

static void fail_deleted(struct life *l, const struct provider_error *err)
{
	struct env *env = l->env;
	struct call *call = take_ptr(&l->call);
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
	char code[40], detail[512];
};

static void places_deleted(void *userdata)
{
	struct unstaging *u = userdata;
	struct env *env = u->env;
	struct life *l;

	env->busy = false;
	l = life_new(env, u->call, "create");
	if (l)
		life_create_fail(l, u->code, u->detail);
	else if (u->call)
		call_fail(u->call, "internal", env->name, "limb rm NAME --force", "out of memory");
	free(u);
}

void life_unstage(struct env *env, struct call *call, const char *code, const char *detail)
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
	(void)uv_read_start((uv_stream_t *)&l->copier_out, copy_alloc, copy_read);
	return 0;
}

/* ---- judging the request ---- */

static bool beneath(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 &&
	       (path[n] == '/' || path[n] == 0 || strcmp(dir, "/") == 0);
}

const char *life_judge_dir(struct brain *b, const char *dir, char **ret)
{
	struct stat st;
	char *real;

	real = realpath(dir, NULL);
	if (!real)
		return errno == ENOENT ? "that directory does not exist; make it first"
				       : strerror(errno);
	*ret = real;
	if (stat(real, &st) < 0)
		return strerror(errno);
	if (!S_ISDIR(st.st_mode))
		return "that is not a directory; choose one";
	if (faccessat(AT_FDCWD, real, R_OK | X_OK, AT_EACCESS) < 0)
		return "that may not be read, or not entered, by you; choose another, or have its "
		       "owner allow it";
	if (strcmp(real, "/") == 0)
		return "the whole machine cannot be an environment's root; choose a directory in "
		       "it";
	if (beneath(real, b->state_dir) || beneath(b->state_dir, real))
		return "it and limbfs's own state directory contain each other; choose another, or "
		       "another --state";
	if (beneath(real, b->mount_dir) || beneath(b->mount_dir, real))
		return "it and the mount contain each other; choose another, or another mount "
		       "with: limb up --mount";
	return NULL;
}

const struct env *life_root_taken(struct brain *b, const char *root)
{
	for (struct env *e = b->envs; e; e = e->next)
		if (e->user_root && (beneath(root, e->user_root) || beneath(e->user_root, root)))
			return e;
	return NULL;
}

struct request {
	const char *name;
	char *from, *root, *provider, *target;
	json_t *spec;
};

static void request_done(struct request *q)
{
	free(q->from);
	free(q->root);
	free(q->provider);
	free(q->target);
	json_decref(q->spec);
}

/* What limbd itself takes from the spec; the rest is the provider's to judge. */
static bool judge_settings(struct call *call, json_t *spec)
{
	const char *why = rules_judge(spec);
	json_t *env = json_object_get(spec, "env"), *limit = json_object_get(spec, "watch_limit");
	const char *name;
	json_t *value;
	bool ok = !env || json_is_object(env);

	json_object_foreach(env, name, value)
		ok = ok && *name && !strchr(name, '=') && strncmp(name, "LIMB_", 5) != 0 &&
		     json_is_string(value) &&
		     strlen(json_string_value(value)) == json_string_length(value);
	if (!ok) {
		call_fail(
			call, "usage", call_str(call, "name"), NULL,
			"the spec's `env` is an object of variables, {\"NAME\": \"value\"}; names "
			"that begin with LIMB_ are limbfs's own");
		return false;
	}
	if (!why)
		why = quota_judge_spec(spec);
	if (why) {
		call_fail(call, "usage", call_str(call, "name"), NULL, "%s", why);
		return false;
	}
	value = json_object_get(spec, "view");
	if (value &&
	    !(json_is_object(value) && (!json_object_get(value, "write") ||
					json_is_boolean(json_object_get(value, "write"))))) {
		call_fail(call, "usage", call_str(call, "name"), NULL,
			  "the spec's `view` is an object, {\"write\": true}");
		return false;
	}
	if (limit && !(json_is_integer(limit) && json_integer_value(limit) >= 0 &&
		       json_integer_value(limit) <= UINT32_MAX)) {
		call_fail(
			call, "usage", call_str(call, "name"), NULL,
			"the spec's `watch_limit` is a number of watches; 0 is the kernel's limit");
		return false;
	}
	return true;
}

/* --spec FILE: one JSON object, at most SPEC_MAX bytes. */
static bool judge_spec(struct call *call, struct request *q)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(SPEC_MAX);
	const char *file = call_str(call, "spec");
	json_error_t e = {.text = ""};
	int r;

	/* limb sends the object; another client may name the file. */
	if (json_is_object(json_object_get(call->params, "spec"))) {
		q->spec = json_deep_copy(json_object_get(call->params, "spec"));
		return judge_settings(call, q->spec);
	}
	if (!file) {
		q->spec = json_object();
		return true;
	}
	r = file_read(AT_FDCWD, file, &b);
	if (r == 0)
		q->spec = json_loadb((const char *)buf_data(&b), buf_len(&b),
				     JSON_REJECT_DUPLICATES, &e);
	if (json_is_object(q->spec))
		return judge_settings(call, q->spec);
	call_fail(call, "usage", q->name, NULL,
		  "the spec '%s' is not one JSON object%s%s (line %d)", file, r < 0 ? ": " : "",
		  r < 0 ? strerror(-r) : "", e.line);
	return false;
}

static bool judge(struct call *call, struct request *q)
{
	struct brain *b = call->brain;
	const char *from = call_str(call, "from"), *root = call_str(call, "root");
	const struct env *other;
	const char *why;
	char shown[256];

	q->name = call_str(call, "name");
	if (!life_judge_name(call, q->name))
		return false;
	if (from && root) {
		call_fail(call, "usage", q->name, "limb help create",
			  "--from copies a directory, --root uses one in place: give one of them");
		return false;
	}
	if (from || root) {
		const char *dir = from ? from : root;

		why = life_judge_dir(b, dir, from ? &q->from : &q->root);
		if (why) {
			call_fail(call, "invalid_path", q->name, NULL, "'%s': %s",
				  text_escape_into(shown, sizeof(shown), dir, strlen(dir)), why);
			return false;
		}
	}
	other = q->root ? life_root_taken(b, q->root) : NULL;
	if (other) {
		call_fail(
			call, "invalid_path", q->name, NULL,
			"'%s' and the root of environment '%s' contain each other; choose another",
			q->root, other->name);
		return false;
	}
	if (!life_judge_provider(call, q->name, call_str(call, "provider"), &q->provider,
				 &q->target))
		return false;
	return judge_spec(call, q);
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
	struct request q = {0};
	struct env *env = NULL;
	struct life *l;
	int r;

	if (!judge(call, &q))
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
	request_done(&q);
}
