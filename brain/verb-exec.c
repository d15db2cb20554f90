/* exec and shell: a job, its streams and its end, for one client. */
#include <pwd.h>

#include "base/clock.h"
#include "base/text.h"
#include "brain/accept.h"
#include "brain/env.h"
#include "brain/job.h"
#include "brain/link.h"
#include "brain/queue.h"
#include "brain/quota.h"
#include "brain/shell.h"
#include "brain/stream.h"
#include "brain/verb.h"

enum {
	MAX_OUTPUT = 1 << 20,
	PATIENCE_MS = 4000, /* for an environment that is away; the contract allows 5 s */
	QUEUE_MS = 24 * 3600 * 1000,
	PATIENCE_STEP_MS = 20,
};

/* ---- the request ---- */

static bool env_append(char ***v, size_t *n, char *entry)
{
	char **p = entry ? reallocarray(*v, *n + 2, sizeof(*p)) : NULL;

	if (!p) {
		free(entry);
		return false;
	}
	*v = p;
	p[(*n)++] = entry;
	p[*n] = NULL;
	return true;
}

static char *assignment(const char *name, const char *value)
{
	char *s;

	return asprintf(&s, "%s=%s", name, value) < 0 ? NULL : s;
}

/* Takes entry; a later name takes the place of an earlier one. */
static bool env_set(char ***v, size_t *n, char *entry)
{
	size_t len = entry ? strcspn(entry, "=") : 0;

	for (size_t i = 0; entry && i < *n; i++) {
		if (strncmp((*v)[i], entry, len + 1) == 0) {
			free((*v)[i]);
			(*v)[i] = entry;
			return true;
		}
	}
	return env_append(v, n, entry);
}

/* The whole environment of the command: ours, the spec's, then what was given with it. */
static char **exec_env(struct call *call, struct env *env, char **user)
{
	static const char *const fixed[] = {
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LANG=C.UTF-8",
	};
	static const char *const no_terminal[] = {"PAGER=cat", "GIT_PAGER=cat", "MANPAGER=cat"};
	const char *term = call_str(call, "term");
	bool ok = true, tty = call_bool(call, "tty");
	const char *name;
	char **v = NULL;
	json_t *value;
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
		ok = ok && env_append(&v, &n, strdup(fixed[i]));
	for (size_t i = 0; !tty && i < ARRAY_SIZE(no_terminal); i++)
		ok = ok && env_append(&v, &n, strdup(no_terminal[i]));
	if (tty)
		ok = ok && env_append(&v, &n, assignment("TERM", term ? term : "xterm-256color"));
	ok = ok && env_append(&v, &n, assignment("HOME", env->root));
	ok = ok && env_append(&v, &n, strdup(env->self_uid == 0 ? "USER=root" : "USER=user"));
	ok = ok && env_append(&v, &n, assignment("LIMB_ENVIRONMENT", env->name));
	json_object_foreach(json_object_get(env->spec, "env"), name, value)
		ok = ok && env_set(&v, &n, assignment(name, json_string_value(value)));
	for (char **u = user; u && *u; u++)
		ok = ok && env_set(&v, &n, strdup(*u));
	if (!ok) {
		call_strv_free(v);
		return NULL;
	}
	return v;
}

static bool exec_refuse(struct call *call, struct env *env, char **argv, char **user)
{
	const char *key = call_str(call, "key"), *shell = call_str(call, "shell");

	for (char **u = user; u && *u; u++) {
		if (strncmp(*u, "LIMB_", 5) == 0 || !strchr(*u, '=') || **u == '=') {
			call_fail(call, "usage", env->name, NULL,
				  "a variable is NAME=VALUE, and names that begin with LIMB_ are "
				  "limbfs's own");
			return true;
		}
	}
	if (!argv || !argv[0] || !user) {
		call_fail(call, "usage", env->name, "limb help exec",
			  "the command is missing, or an argument holds a NUL byte");
		return true;
	}
	if (json_object_get(call->params, "key") &&
	    (!key || !*key || strlen(key) > INDEX_KEY_MAX || !text_utf8_ok(key, strlen(key)))) {
		call_fail(call, "usage", env->name, NULL, "a key is text of 1 to %d bytes",
			  INDEX_KEY_MAX);
		return true;
	}
	if (shell && !shell_name_ok(shell)) {
		call_fail(call, "usage", env->name, NULL,
			  "the name of a shell session has 1 to 64 letters, digits, '.', '_' or "
			  "'-', and begins with a letter or digit");
		return true;
	}
	return false;
}

/* Only limbd's own user may call. */
static const char *principal(void)
{
	static char name[80];
	const struct passwd *pw;

	if (!*name) {
		pw = getpwuid(geteuid());
		if (pw && pw->pw_name && text_utf8_ok(pw->pw_name, strlen(pw->pw_name)))
			(void)snprintf(name, sizeof(name), "%s", pw->pw_name);
		else
			(void)snprintf(name, sizeof(name), "uid:%u", (unsigned)geteuid());
	}
	return name;
}

/* first: this call has started the job; its client's input and its leaving are the job's. */
static void exec_follow(struct call *call, struct job *job, bool first)
{
	bool json = call_bool(call, "json");
	struct stream *s;

	if (call_bool(call, "detach")) {
		call_ok(call, job_json_exec(job, 0, false));
		return;
	}
	s = stream_new(call, job, json ? STREAM_QUIET : STREAM_BYTES, STREAM_EXEC);
	if (!s)
		return;
	s->input = s->kills = first;
	s->outlive = call_bool(call, "outlive");
	s->with_output = json;
	s->max = (uint64_t)MAX((int64_t)2, call_int(call, "max_output_bytes", MAX_OUTPUT));
	s->wait_ms = (uint64_t)MAX((int64_t)0, call_int(call, "wait_ms", 0));
	stream_go(s);
}

/* True: the key has a job already, and the call is answered by it. */
static bool exec_again(struct call *call, struct env *env, char **argv)
{
	const char *key = call_str(call, "key"), *cwd = call_str(call, "cwd");
	struct job *job;
	int r;

	if (!key)
		return false;
	r = job_by_key(env, key, &job);
	if (r == -ENOENT)
		return false;
	if (r < 0)
		verb_fail_errno(call, env, r, "its jobs cannot be read");
	else if (!job_is(job, argv, cwd ? cwd : ""))
		call_fail_with(call, "conflict", json_pack("{s:s}", "job_id", job_id(job)),
			       env->name, "use another --key",
			       "the key was used for another command: job %s", job_id(job));
	else
		exec_follow(call, job, false);
	return true;
}

/* stdin_text: all of its input, or with `stdin` the first of it, in the call itself. */
static void give_input(struct call *call, struct job *job)
{
	_cleanup_(buf_done) struct buf b = BUF_INIT(0);
	const json_t *v = json_object_get(call->params, "stdin_text");
	const char *base64 = json_string_value(json_object_get(v, "base64"));
	bool eof = !call_bool(call, "stdin");

	if (base64 && text_unbase64(&b, base64, strlen(base64)) == 0)
		(void)job_input(job, buf_data(&b), buf_len(&b), eof);
	else
		(void)job_input(job, json_string_value(v), json_string_length(v), eof);
}

static void exec_start(struct call *call, struct env *env, char **argv, char **user)
{
	struct job_spec spec = {.argv = argv, .principal = principal()};
	struct job *job;
	int r;

	spec.env = exec_env(call, env, user);
	if (!spec.env) {
		call_fail(call, "internal", env->name, NULL, "out of memory");
		return;
	}
	spec.cwd = call_str(call, "cwd") ? call_str(call, "cwd") : "";
	spec.key = call_str(call, "key");
	spec.shell = call_str(call, "shell");
	spec.shell_set = user;
	spec.shell_interactive = call_bool(call, "interactive");
	spec.timeout_ms = (uint64_t)MAX((int64_t)0, call_int(call, "timeout_ms", 0));
	spec.stdin_open = call_bool(call, "stdin") || json_object_get(call->params, "stdin_text");
	spec.tty = call_bool(call, "tty");
	spec.waits = !call_bool(call, "detach") && !call_bool(call, "json");
	spec.rows = (uint32_t)MIN(MAX(call_int(call, "rows", 0), 0L), (int64_t)UINT16_MAX);
	spec.cols = (uint32_t)MIN(MAX(call_int(call, "cols", 0), 0L), (int64_t)UINT16_MAX);
	r = job_start(env, &spec, &job);
	call_strv_free(spec.env);
	if (r == -EBUSY)
		call_fail_with(call, env->paused ? "not_running" : "conflict",
			       env->paused ? json_object()
					   : json_pack("{s:i}", "retry_after_ms", 1000),
			       env->name, env->paused ? "limb resume NAME" : "limb status",
			       env->paused ? "environment '%s' is paused; let it go on first"
					   : "environment '%s' is about to move; try again when "
					     "that is over",
			       env->name);
	else if (r < 0)
		verb_fail_errno(call, env, r, "the job cannot be recorded");
	if (r < 0)
		return;
	if (json_object_get(call->params, "stdin_text"))
		give_input(call, job);
	exec_follow(call, job, true);
}

static void add_refused(const struct queue_refused *u, void *userdata)
{
	json_t *o = json_pack("{s:s}", "reason", strerror(u->error));

	verb_put_bytes(o, "path", u->path, strlen(u->path));
	(void)json_array_append_new(userdata, o);
}

/* Changes that were asked for before it and were refused: it would not see them. */
static bool exec_unapplied(struct call *call, struct env *env)
{
	json_t *list = json_array();
	size_t n;

	if (!call_bool(call, "despite_unapplied"))
		queue_unapplied(env, add_refused, list);
	n = json_array_size(list);
	if (n == 0) {
		json_decref(list);
		return false;
	}
	call_fail_with(
		call, "unapplied", json_pack("{s:o}", "unapplied", list), env->name,
		"limb retry NAME PATH, limb drop NAME PATH, or --despite-unapplied",
		"environment '%s' has refused %zu changes that came before, the first of '%s': "
		"%s",
		env->name, n, json_string_value(json_object_get(json_array_get(list, 0), "path")),
		json_string_value(json_object_get(json_array_get(list, 0), "reason")));
	return true;
}

/* What is left is for ends of jobs and for decisions. */
static bool exec_spent(struct call *call, struct env *env)
{
	if (env->quota != QUOTA_SPENT)
		return false;
	call_fail(call, "quota_exceeded", env->name, "limb set NAME quota=BYTES",
		  "environment '%s' has used up its quota, and the reserve for the records of "
		  "commands",
		  env->name);
	return true;
}

/* Changes made before it are there before it begins. */
static bool exec_ready(const struct env *env)
{
	return link_up(env) && !env->halted && !env->failed && queue_is_empty(env);
}

static void exec_behind(struct call *call, struct env *env)
{
	struct queue_counts n;

	queue_counts(env, &n);
	call_fail_with(call, "unsynced", json_pack("{s:i}", "retry_after_ms", 1000), env->name,
		       "limb status NAME",
		       "%llu changes that came before still wait for environment '%s'; try again, "
		       "or use --queue",
		       (unsigned long long)n.changes, env->name);
}

/* alive: it has to run now, or fails. */
static bool exec_try(struct call *call, bool now)
{
	struct env *env = verb_env(call);
	char **argv, **user;
	bool answered = true;

	if (!env)
		return true;
	argv = call_strv(call, "argv");
	user = call_strv(call, "env");
	if (exec_refuse(call, env, argv, user) || exec_again(call, env, argv))
		;
	else if (!now && !exec_ready(env))
		answered = false;
	else if (!verb_attached_env(call) || exec_spent(call, env) || exec_unapplied(call, env))
		;
	else if (!queue_is_empty(env))
		exec_behind(call, env);
	else
		exec_start(call, env, argv, user);
	call_strv_free(argv);
	call_strv_free(user);
	return answered;
}

/* ---- an environment that cannot run it yet ---- */

struct patience {
	struct call *call;
	uv_timer_t timer;
	uint64_t end_ms;
	bool queue;
	uint64_t changes; /* that wait before it; as long as they become fewer, it waits, too */
};

static void patience_closed(uv_handle_t *h)
{
	free(container_of((uv_timer_t *)h, struct patience, timer));
}

static void patience_end(struct patience *p)
{
	p->call->op = NULL;
	p->call->on_cancel = NULL;
	uv_close((uv_handle_t *)&p->timer, patience_closed);
}

static uint64_t waiting_for(struct env *env)
{
	struct queue_counts n;

	queue_counts(env, &n);
	return n.changes;
}

static bool coming_back(struct call *call)
{
	const char *name = call_str(call, "name");
	struct env *env = name ? env_find(call->brain, name) : NULL;

	return env && env->wanted && (!link_up(env) || !queue_is_empty(env)) && !env->halted &&
	       !env->failed && !env->hostile && !env->lost;
}

static void exec_drained(struct call *call);

static void patience_tick(uv_timer_t *t)
{
	struct patience *p = container_of(t, struct patience, timer);
	struct call *call = p->call;
	const char *name = call_str(call, "name");
	struct env *env = name ? env_find(call->brain, name) : NULL;
	bool now;

	if (env && link_up(env) && p->changes > waiting_for(env)) {
		p->changes = waiting_for(env);
		p->end_ms = MAX(p->end_ms, clock_mono_ms() + PATIENCE_MS);
	}
	now = !(p->queue || coming_back(call)) || clock_mono_ms() >= p->end_ms ||
	      call->brain->stopping;

	if (!now && env && !exec_ready(env))
		return;
	patience_end(p);
	/* It may have ended in between: then it is waited for anew, where that was asked for. */
	if (now || !p->queue)
		(void)exec_try(call, true);
	else
		exec_drained(call);
}

/* Nothing was started. */
static void patience_cancel(struct call *call)
{
	patience_end(call->op);
	call_fail(call, "env_unreachable", call_str(call, "name"), NULL,
		  "given up before the environment could run it");
}

static void exec_drained(struct call *call)
{
	bool queue = call_bool(call, "queue");
	struct patience *p;

	if (exec_try(call, !queue && !coming_back(call)))
		return;
	p = calloc(1, sizeof(*p));
	if (!p) {
		(void)exec_try(call, true);
		return;
	}
	p->call = call;
	p->queue = queue;
	p->end_ms = clock_mono_ms() + (queue ? QUEUE_MS : PATIENCE_MS);
	p->changes = UINT64_MAX;
	call->op = p;
	call->on_cancel = patience_cancel;
	(void)uv_timer_init(call->brain->loop, &p->timer);
	(void)uv_timer_start(&p->timer, patience_tick, PATIENCE_STEP_MS, PATIENCE_STEP_MS);
}

/* What was written in the view before it comes first. */
void verb_exec(struct call *call)
{
	const char *name = call_str(call, "name");
	struct env *env = name ? env_find(call->brain, name) : NULL;

	if (env)
		accept_first(call, env, exec_drained);
	else
		exec_drained(call);
}

/* ---- shell ---- */

void verb_shell(struct call *call)
{
	static const char choose[] =
		"if command -v bash >/dev/null 2>&1; then exec bash -l; else exec sh -l; fi";

	(void)json_object_set_new(call->params, "argv",
				  json_pack("[s, s, s]", "/bin/sh", "-c", choose));
	/* In a session: what it kept, then the same choice. */
	(void)json_object_set_new(call->params, "interactive", json_true());
	verb_exec(call);
}
